//! File systems of images that get another size, and the files that they lie in with them.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::sync::Arc;

use casemate_blockdev::{AtFile, set_len};
use casemate_ext4::{ResizeTo, least_blocks};
use casemate_providers::Work;

pub use casemate_ext4::ResizeReport;

use super::{ReadOptions, Superblock, WriteOptions};
use crate::{Advice, Error, Image, target};

/// The new size of a file system, and what becomes of its file.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Resize {
    /// Bytes of the file system; those of the image if `None`. A file that has fewer is extended by a hole.
    pub size: Option<u64>,
    /// Whether the file system becomes as small as it can be; there is no size then.
    pub least: bool,
    /// Fate of the rest of a file behind a file system that shrinks.
    pub tail: Tail,
    /// Whether the file system may grow into bytes that hold something.
    pub overwrite: bool,
}

/// Fate of the rest of a file behind a file system that shrinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tail {
    /// The file keeps its size.
    #[default]
    Keep,
    /// The file is cut if nothing was behind the file system before.
    CutIfEmpty,
    /// The file is cut; it is refused where something was behind the file system before, and where there is no file.
    Cut,
}

impl Image {
    /// Gives the file system on the image another size. What is behind a new end is moved before it; where a file system
    /// shrinks it is checked first. What is interrupted is completed when the image is opened to write again, by the recovery
    /// file; until then neither e2fsck nor the kernel should have it.
    ///
    /// # Errors
    /// Errors of [`Image::ext4_writer`] and [`resize`](casemate_ext4::resize); `Argument` for a size that the image can't
    /// have, where the file system would grow over the end of its partition, and into bytes that hold something.
    pub fn ext4_resize(
        &self,
        options: &WriteOptions,
        resize: Resize,
        work: &Work<'_>,
    ) -> Result<ResizeReport, Error> {
        let name = self.name();
        let reading = ReadOptions { keys: options.keys.clone(), ..ReadOptions::default() };
        let (writing, _keys) = self.writing(options, &reading, Arc::default(), work)?;
        let superblock = Superblock::from_bytes(&self.ext4_superblock()?).at(name)?;
        let end = superblock.blocks.saturating_mul(superblock.block_size.into());
        let size = self.device().size();
        let file_size = self.whole_file_size();
        let to = match resize.size {
            _ if resize.least => ResizeTo::Least,
            size_given => ResizeTo::Bytes(size_given.unwrap_or(size)),
        };
        if resize.tail == Tail::Cut && file_size.is_none() {
            return Err(Error::argument("only a file of its own can be cut").at(name));
        }
        let is_tail_empty = resize.tail != Tail::Keep && file_size.is_some() && self.is_empty(end, size)?;
        if resize.tail == Tail::Cut && !is_tail_empty {
            let text = "something is behind the file system, which would be lost if the file were cut";
            return Err(Error::argument(text).at(name));
        }
        let mut zeros_from = None;
        if let ResizeTo::Bytes(wanted) = to {
            if wanted > end {
                self.check_partitions_in(0..wanted)?;
            }
            if wanted > end && !resize.overwrite && !self.is_empty(end, wanted.min(size))? {
                let text = "something is behind the file system, which would be lost if it grew";
                return Err(Error::argument(text).advise(Advice::Overwrite).at(name));
            }
            if wanted > size {
                if file_size.is_none() {
                    let text = format!(
                        "{wanted} bytes, and there are {size}: make the device or the partition larger first"
                    );
                    return Err(Error::argument(text).at(name));
                }
                self.set_file_size(wanted)?;
                zeros_from = Some(size);
            }
        }
        let resized = casemate_ext4::resize(self.leased_device()?, writing, to, zeros_from, work).at(name);
        let is_pending = || {
            self.completed(options.recovery_file.as_deref(), &work.providers)
                .map_or(true, |image| image.is_some())
        };
        let report = match resized {
            Ok(report) => report,
            Err(error) => {
                // What was not committed is no part of the file system.
                let now = self.ext4_superblock().and_then(|raw| Superblock::from_bytes(&raw));
                if zeros_from.is_some()
                    && now.is_ok_and(|now| now.blocks == superblock.blocks)
                    && !is_pending()
                {
                    self.set_file_size(size)?;
                }
                let least = || self.ext4_least_size(&reading, work).unwrap_or(0);
                return Err(match (resize.size, error.io_kind()) {
                    (Some(wanted), Some(ErrorKind::StorageFull)) if wanted < end => error.map_text(|_| {
                        format!("{wanted} bytes are too few for the files: about {} are needed", least())
                    }),
                    _ => error,
                });
            }
        };
        if file_size.is_some() && report.bytes() < end {
            // What was the file system's is nobody's now.
            self.device().write_zeroes(report.bytes(), end - report.bytes(), true).at(name)?;
        }
        if is_tail_empty && report.bytes() < size {
            self.set_file_size(report.bytes())?;
        } else if resize.tail == Tail::CutIfEmpty && file_size.is_some() && report.bytes() < size {
            work.events
                .note(&format!("{name}: the file keeps its size: something is behind the file system"));
        }
        Ok(report)
    }

    /// The fewest bytes that the file system on the image may have, as far as that can be told without moving anything.
    ///
    /// # Errors
    /// Errors of [`Image::ext4`], and for features with which its size can't change.
    pub fn ext4_least_size(&self, options: &ReadOptions, work: &Work<'_>) -> Result<u64, Error> {
        let fs = self.ext4(options, work)?;
        let fs = fs.inodes();
        let blocks = least_blocks(fs).at(self.name())?;
        Ok(blocks.saturating_mul(fs.layout().block_size.into()))
    }

    /// The size of the file that the image is, if it is all of a regular file.
    fn whole_file_size(&self) -> Option<u64> {
        let path = self.path()?;
        let metadata = std::fs::metadata(path).ok()?;
        let is_whole = metadata.is_file()
            && self.is_file(path)
            && self.start() == 0
            && self.topmost().is_none()
            && !self.is_trial()
            && self.device().size() == metadata.len();
        is_whole.then_some(metadata.len())
    }

    /// Sets the size of the file that the image is.
    fn set_file_size(&self, size: u64) -> Result<(), Error> {
        let at = |error| Error::io(self.name(), error);
        let Some(path) = self.path() else { return Ok(()) };
        let file = OpenOptions::new().write(true).open(path).map_err(at)?;
        set_len(&file, size).and_then(|()| file.sync_all()).map_err(at)
    }

    /// Whether bytes of the image are zeros.
    fn is_empty(&self, from: u64, to: u64) -> Result<bool, Error> {
        target::holds_data(&*self.device(), from..to).map(|holds| !holds).at(self.name())
    }
}
