//! Operations on files by their inodes, as a kernel asks for them that shows a file system which changes: contents in
//! pieces, attributes, names that move, and inodes without names that somebody still has open.
//!
//! Each is one operation of the [`Writer`], or several where one transaction has no room for it, of which each leaves the
//! file system whole. Nothing is committed but what the log has no room for: the caller does, when it has to be permanent.

mod attributes;
mod contents;
mod flags;
mod names;

use crate::edit::Writer;
use crate::error::Result;
use crate::format::inode::Inode;
use crate::read::usage::Usage;
use crate::units::InodeNo;

pub use attributes::{NewAttributes, Presence, SetId};

impl Writer {
    /// The inode with this number, which may have lost its last name.
    ///
    /// # Errors
    /// `Corrupt` when there is no such inode.
    pub fn inode(&self, number: InodeNo) -> Result<Inode> {
        self.files().get_unlinked(number)
    }

    /// The counts and sizes of statfs(2).
    ///
    /// # Errors
    /// `Corrupt` for a damaged journal inode.
    pub fn usage(&self) -> Result<Usage> {
        let space = self.files().space();
        let clusters = space.free_clusters() + space.pinned_clusters();
        self.fs().usage_of(clusters, space.free_inodes())
    }

    /// Whether anything is to be committed.
    pub fn is_changed(&self) -> bool {
        self.files().space().transaction().is_pending()
    }

    /// Whether a commit makes room: for what was freed since the last one.
    pub fn has_pinned_room(&self) -> bool {
        self.files().space().pinned_clusters() > 0
    }

    /// Whether the operations that follow leave blocks free that are reserved for root, as those of others do.
    pub fn keep_reserve(&mut self, keeps: bool) {
        self.files_mut().keep_reserve(keeps);
    }
}
