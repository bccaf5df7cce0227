//! Places of new file systems: files, parts of files and devices, and streams.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use casemate_blockdev::android_sparse::Written;
use casemate_blockdev::os::FileTypeExt;
use casemate_blockdev::target::{Consent, Made, Target, is_block_device, look_at_path};
use casemate_blockdev::{
    Access, AtFile, BlockDevice, ErrorKind, FileDevice, Medium, Output, PartitionId, Window, name_all,
    set_len, signatures,
};
use casemate_providers::Work;

use crate::build::plan::Plan;
use crate::build::writer::BuildReport;
use crate::error::{Error, Result};

/// Kind of what is made.
const EXT: Made = Made::Known(signatures::EXT);

/// Where a new file system goes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BuildTarget {
    /// A file, which is there whole or not at all, or a block device.
    File(PathBuf),
    /// A part of a file that is there, or of a block device, whose other bytes stay.
    Within {
        /// The file or device.
        path: PathBuf,
        /// The part's first byte.
        offset: u64,
    },
    /// A file that is there, which stays the same file with its owner and all its names, or a block device. As mke2fs does it, a
    /// file grows if the file system needs that, bytes behind the file system stay, and space in it that nothing uses is given
    /// back.
    InPlace {
        /// The file or device.
        path: PathBuf,
        /// The file system's first byte.
        offset: u64,
    },
    /// A partition (GPT or MBR).
    Partition {
        /// The file or device.
        path: PathBuf,
        /// The partition: its number, counted from 1, or a GPT's UUID or name.
        id: PartitionId,
    },
    /// An image that is open for changes, such as a LUKS volume. It has its size.
    Image(Box<Medium>),
    /// Standard output.
    Stream,
}

impl From<PathBuf> for BuildTarget {
    fn from(path: PathBuf) -> BuildTarget {
        BuildTarget::File(path)
    }
}

impl From<&Path> for BuildTarget {
    fn from(path: &Path) -> BuildTarget {
        BuildTarget::File(path.to_owned())
    }
}

impl BuildTarget {
    /// The size in bytes that the target has, if it is a block device or the rest of a file.
    ///
    /// # Errors
    /// `Io`.
    pub fn size(&self) -> Result<Option<u64>> {
        let (path, offset) = match self {
            BuildTarget::File(path) => (path, 0),
            BuildTarget::Within { path, offset } | BuildTarget::InPlace { path, offset } => (path, *offset),
            _ => return Ok(self.part(Access::ReadUnlocked)?.map(|part| part.device().size())),
        };
        let metadata = std::fs::metadata(path);
        let is_fixed = metadata.is_ok_and(|metadata| {
            metadata.file_type().is_block_device() || !matches!(self, BuildTarget::File(_))
        });
        if !is_fixed {
            return Ok(None);
        }
        let size = FileDevice::open(path).map_err(|error| error.at(path.display()))?.size();
        Ok(Some(size.saturating_sub(offset)))
    }

    /// Asks for consent if something would be lost there, before anything is begun.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    pub fn look(&self, consent: Consent<'_>) -> Result<()> {
        match (self, self.part(Access::ReadUnlocked)?) {
            (_, Some(part)) => Target::on(part, EXT, consent).map(drop),
            (BuildTarget::File(path), _) => look_at_path(path, Some(EXT), consent),
            _ => Ok(()),
        }
    }

    /// The file or device, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            BuildTarget::File(path)
            | BuildTarget::Within { path, .. }
            | BuildTarget::InPlace { path, .. }
            | BuildTarget::Partition { path, .. } => Some(path),
            BuildTarget::Image(image) => image.path(),
            BuildTarget::Stream => None,
        }
    }

    /// The image that is written.
    ///
    /// # Errors
    /// `Io`; [`Error::is_busy`] if it is in use; `Argument` for a stream; whatever the consent says.
    pub fn open<M: AsRef<Medium> + From<Medium>>(
        &self,
        made: Made,
        consent: Consent<'_>,
    ) -> Result<Target<M>> {
        match (self, self.part(Access::Change)?) {
            (_, Some(part)) => Target::on(part.into(), made, consent),
            (BuildTarget::File(path), _) => Target::anew(path, made, consent),
            _ => Err(Error::argument(
                "standard output can't be opened as an image; build into a file or block device",
            )),
        }
    }

    /// The part of a file or device that it is; `None` for a file of its own and a stream.
    fn part(&self, access: Access) -> Result<Option<Medium>> {
        match self {
            BuildTarget::File(_) | BuildTarget::Stream => Ok(None),
            BuildTarget::Within { path, offset } | BuildTarget::InPlace { path, offset } => {
                rest(Medium::open(path, access)?, *offset).map(Some)
            }
            BuildTarget::Partition { path, id } => {
                Medium::open(path, access)?.partition_named(id, false).map(Some)
            }
            BuildTarget::Image(image) => Ok(Some(Medium::clone(image))),
        }
    }
}

/// All of an image from a byte on: nothing, where the image ends before it.
fn rest(image: Medium, offset: u64) -> Result<Medium> {
    let offset = offset.min(image.device().size());
    image.window(offset, None)
}

/// An image that is complete, and not there for others yet: whatever belongs to it is completed before.
pub enum Complete {
    /// A file that gets its name, or a block device.
    Output(Output),
    /// A medium: a new file that gets its name, or a place in something else that was written in place.
    Medium,
    /// A stream, which this function gives all bytes.
    Stream(Box<dyn FnOnce() -> Result<()>>),
}

impl fmt::Debug for Complete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Complete::Output(_) => "Output",
            Complete::Medium => "Medium",
            Complete::Stream(_) => "Stream",
        })
    }
}

impl Complete {
    /// Gives the image its name, or its bytes to the stream, and their names to the outputs beside it. An image that is a medium is the
    /// last one of those.
    ///
    /// # Errors
    /// Errors of [`name_all`]; `Io`.
    pub fn finish(self, mut beside: Vec<Output>, media: &[Medium]) -> Result<()> {
        match self {
            // Media beside it are those of dm-verity, whose image is one.
            Complete::Output(output) => beside.push(output),
            Complete::Medium => {}
            Complete::Stream(write) => write()?,
        }
        name_all(beside, &media.iter().collect::<Vec<_>>())
    }
}

impl Plan {
    /// Writes the file system. A new file has its contents then, and not its name. `consent` is asked if something would be lost.
    ///
    /// # Errors
    /// `Io`; that a source changed since it was read; [`Error::is_busy`] if the target is in use; whatever the consent says.
    pub fn write_to(
        self,
        target: &BuildTarget,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<(BuildReport, Complete)> {
        let report = match target {
            BuildTarget::File(path) => {
                let output = Output::create_anew(path, &[], Some(EXT), consent)?;
                let Some(device) = output.device() else { return self.stream(output, path, work) };
                let is_new = std::fs::metadata(path).map_or(true, |metadata| metadata.is_file());
                let report = self.to_device(device, path, is_new, work);
                let report = report.map_err(|error| error.within(path.display()))?;
                return Ok((report, Complete::Output(output)));
            }
            BuildTarget::Within { path, offset } => {
                let image = Medium::open(path, Access::Change)?;
                image.check_partitions_in(*offset..offset.saturating_add(self.size()))?;
                let window = image.device();
                let window = Window::new(window, *offset, self.size())
                    .map_err(|error| Error::io(path.display(), error))?;
                let place = image.clone().window(*offset, Some(self.size()))?;
                Target::on(image.window(*offset, None)?, EXT, consent)?;
                place.erase_signatures(0, work.events)?;
                self.write(&window, false, work).map_err(|error| error.within(path.display()))
            }
            BuildTarget::InPlace { path, offset } => {
                let image = Medium::open(path, Access::Change)?;
                let end = offset.checked_add(self.size());
                let end = end.ok_or_else(|| Error::argument("the file system would end behind all files"))?;
                image.check_partitions_in(*offset..end)?;
                Target::on(rest(image.clone(), *offset)?, EXT, consent)?;
                let is_file = !is_block_device(path);
                if is_file {
                    image.grow_to(end)?;
                }
                image.clone().window(*offset, Some(self.size()))?.erase_signatures(0, work.events)?;
                let window = Window::new(image.device(), *offset, self.size()).at(path.display())?;
                let is_zeroed = is_file
                    && match window.zero_fast(0, self.size(), true) {
                        Err(error) if error.kind() == ErrorKind::Unsupported => false,
                        done => done.map(|()| true).at(path.display())?,
                    };
                self.write(&window, is_zeroed, work).map_err(|error| error.within(path.display()))
            }
            BuildTarget::Partition { path, id } => {
                let image = Medium::open(path, Access::Change)?.partition_named(id, false)?;
                let name = format!("partition {id}");
                self.to_image(image, &name, consent, work).map_err(|error| error.within(path.display()))
            }
            BuildTarget::Image(image) => {
                let name = image.name().to_owned();
                self.to_image(Medium::clone(image), "the device", consent, work)
                    .map_err(|error| error.within(name))
            }
            BuildTarget::Stream => return self.stream(io::stdout(), Path::new("standard output"), work),
        };
        Ok((report?, Complete::Medium))
    }

    /// Writes the file system as a sparse image of Android: what is not in it stays as it is on a device that it is flashed to.
    ///
    /// # Errors
    /// Errors of [`Plan::write_to`]; `Argument` for a target that is no file and no stream, or a size that is not whole blocks.
    pub fn write_android_sparse(
        self,
        target: &BuildTarget,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<(BuildReport, Complete)> {
        let kept = tempfile::tempfile().map_err(|error| Error::io("a temporary file", error))?;
        set_len(&kept, self.size())?;
        let written = Written::new(FileDevice::from_file(kept)?);
        let report = self.write(&written, false, work)?;
        let (size, block_size) = (self.size(), self.geometry().block_size);
        let complete = match target {
            BuildTarget::Stream => {
                let write = move || written.write(size, block_size, &mut io::stdout().lock());
                Complete::Stream(Box::new(write))
            }
            BuildTarget::File(path) => {
                let made = Some(Made::Known(signatures::SPARSE));
                let mut output = io::BufWriter::new(Output::create_anew(path, &[], made, consent)?);
                written.write(size, block_size, &mut output).map_err(|error| error.within(path.display()))?;
                let output = output.into_inner();
                Complete::Output(output.map_err(|error| Error::io(path.display(), error.into_error()))?)
            }
            BuildTarget::Within { .. }
            | BuildTarget::InPlace { .. }
            | BuildTarget::Partition { .. }
            | BuildTarget::Image(_) => {
                return Err(Error::argument("a sparse image is a file of its own; not within another one"));
            }
        };
        Ok((report, complete))
    }

    /// Writes all of an open image, or its beginning.
    fn to_image(
        &self,
        image: Medium,
        what: &str,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<BuildReport> {
        let (size, room) = (self.size(), image.device().size());
        if room < size {
            let text = format!("{what} has {room} bytes; the file system has {size}");
            return Err(io::Error::new(io::ErrorKind::StorageFull, text).into());
        }
        let _lease = image.lease()?;
        let target = Target::on(image, EXT, consent)?;
        target.erase_signatures(0, work.events)?;
        self.write(&*target.device(), false, work)
    }

    fn to_device(
        &self,
        device: &FileDevice,
        name: &Path,
        is_new: bool,
        work: &Work<'_>,
    ) -> Result<BuildReport> {
        if is_new {
            set_len(device.file(), self.size())?;
        } else if device.size() < self.size() {
            let text = format!("{} bytes; the file system has {}", device.size(), self.size());
            return Err(io::Error::new(io::ErrorKind::StorageFull, text).into());
        } else {
            signatures::erase(device, name.display(), work.events)?;
        }
        self.write(device, is_new, work)
    }

    /// Writes the image for a stream, which has no positions, to a temporary file.
    fn stream(
        self,
        mut to: impl Write + 'static,
        name: &Path,
        work: &Work<'_>,
    ) -> Result<(BuildReport, Complete)> {
        let kept = tempfile::tempfile().map_err(|error| Error::io("a temporary file", error))?;
        let device = FileDevice::from_file(kept)?;
        let report = self.to_device(&device, name, true, work)?;
        let name = name.display().to_string();
        let copy = move || {
            let mut file = device.file();
            let copied = io::Seek::rewind(&mut file).and_then(|()| io::copy(&mut file, &mut to));
            copied.and_then(|_| to.flush()).map_err(|error| Error::io(name, error))
        };
        Ok((report, Complete::Stream(Box::new(copy))))
    }
}
