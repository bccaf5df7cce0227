//! Files that no name leads to: deleted ones, and those whose directory is lost.

use std::path::Path;

use casemate_blockdev::{ErrorKind, MemoryDevice, u64_of};
use casemate_ext4::InodeFlags;
use casemate_probe::guess;
use casemate_providers::Work;
use casemate_trees::copy_new;

pub use casemate_ext4::{Deleted, DeletedBlocks, DeletedFile, DeletedSource, Unreachable, Unread};
pub use casemate_trees::{RescueFolder, place_below};

use super::{FileSystem, FileType, Inode, VerityPolicy, open_file};
use crate::Error;

impl FileSystem {
    /// Files that were deleted, as far as something of them is left. The listener hears of bytes of inode tables
    /// ([`FileSystem::check_size`]).
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn deleted_files(&self, work: &Work<'_>) -> Result<Deleted, Error> {
        self.inodes().deleted_files(work.events).map_err(|error| error.at(self.name()))
    }

    /// Inodes in use that no name reaches. The listener hears of bytes of inode tables ([`FileSystem::check_size`]).
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn unreachable_inodes(&self, work: &Work<'_>) -> Result<Unreachable, Error> {
        self.inodes().unreachable_inodes(work.events).map_err(|error| error.at(self.name()))
    }

    /// A guess of the kind of file that a regular file's first bytes are of; `None` if they tell nothing.
    pub fn guess(&self, inode: &Inode) -> Option<&'static str> {
        if inode.kind() != FileType::Regular {
            return None;
        }
        guess(&self.inodes().open_file(inode).ok()?)
    }

    /// Reads a deleted file with fs-verity, and returns why its contents are not those of its tree: its blocks may have been
    /// used again. `None` if they are, and for a file without fs-verity.
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn contradiction(&self, file: &DeletedFile, work: &Work<'_>) -> Result<Option<Error>, Error> {
        if file.inode.kind() != FileType::Regular || !file.inode.has(InodeFlags::VERITY) {
            return Ok(None);
        }
        let contents = open_file(&file.view(), &file.inode, VerityPolicy::Check, &work.providers);
        match contents.and_then(|contents| super::sha256(&*contents, work)) {
            Err(error) if error.is_interrupt() => Err(error),
            // Whoever copies the file hears of what else keeps it from being read.
            Err(error) if matches!(error.kind(), ErrorKind::Mismatch | ErrorKind::Corrupt) => Ok(Some(error)),
            _ => Ok(None),
        }
    }

    /// Writes the contents of a deleted file to a new file; holes stay holes. A symbolic link becomes a text file that holds
    /// its target.
    ///
    /// # Errors
    /// Errors of [`DeletedFile::open`]; `Io` if there is a file of that name.
    pub fn undelete(&self, file: &DeletedFile, target: &Path) -> Result<u64, Error> {
        let number = file.inode.number();
        let mode = u32::from(file.mode_without_acl());
        let about = |error| self.about(number, error);
        match file.inode.kind() {
            FileType::Regular => {
                let contents = file.open().map_err(about)?;
                copy_new(&contents, target, mode, about)
            }
            // As a text: a link would lead somewhere on the host.
            FileType::Symlink => {
                let bytes = file.symlink_target().map_err(about)?;
                let len = u64_of(bytes.len());
                // Its own mode says nothing.
                copy_new(&MemoryDevice::new(bytes), target, 0o644, about)?;
                Ok(len)
            }
            other => {
                let text = format!("inode {number} is a {}, which has no contents", other.name());
                Err(Error::argument(text).at(self.name()))
            }
        }
    }
}
