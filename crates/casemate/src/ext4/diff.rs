//! Two images' file systems compared.

use casemate_ext4::{DiffSide, diff_size};
use casemate_providers::Work;

use super::{FileSystem, ReadOptions};
use crate::{Error, Image};

pub use casemate_ext4::{Area, DiffOptions, DiffReport, Difference, FieldValue, Side};

/// An image's file system, opened to be compared with another one.
#[derive(Debug)]
pub struct DiffImage {
    fs: FileSystem,
    side: DiffSide,
}

impl Image {
    /// Opens the file system on the image to be compared with another one: bytes as they lie there, and files as they are
    /// once its journal is replayed.
    ///
    /// # Errors
    /// Errors of [`Image::ext4`].
    pub fn ext4_to_compare(&self, options: &ReadOptions, work: &Work<'_>) -> Result<DiffImage, Error> {
        let fs = self.ext4(options, work)?;
        // Bytes of an interrupted change lie beside the image.
        let completed = match options.replay_journal {
            true => self.completed(options.recovery_file.as_deref(), &work.providers)?,
            false => None,
        };
        let device = completed.as_ref().unwrap_or(self).device();
        let side = DiffSide::new(fs.inodes().clone(), device);
        Ok(DiffImage { fs, side })
    }
}

impl DiffImage {
    /// The file system.
    pub fn file_system(&self) -> &FileSystem {
        &self.fs
    }

    /// How many bytes a comparison with another one reports as progress.
    pub fn diff_size(&self, other: &DiffImage) -> u64 {
        diff_size([&self.side, &other.side])
    }

    /// Compares the file system with another one, and calls `found` with each difference, the most useful ones first. The
    /// listener hears of bytes that are compared.
    ///
    /// # Errors
    /// Errors of `found`, and `Interrupted`. What can't be read is a difference.
    pub fn diff(
        &self,
        other: &DiffImage,
        options: DiffOptions,
        work: &Work<'_>,
        found: &mut dyn FnMut(&Difference) -> Result<(), Error>,
    ) -> Result<DiffReport, Error> {
        casemate_ext4::diff([&self.side, &other.side], options, work, found)
    }
}
