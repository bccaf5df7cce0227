//! Descriptions of new files.

use std::io::ErrorKind;

use casemate_trees::NO_ID;

use crate::error::{Result, invalid};
use crate::format::inode::{FileType, Time};

/// Attributes of a new file.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct NewNode {
    /// Permission bits.
    pub mode: u16,
    /// Permission bits that are taken away from those, unless the directory has a default ACL.
    pub umask: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Last change of the contents; now if `None`.
    pub modified: Option<Time>,
}

impl NewNode {
    /// Root's, changed now, with these permission bits.
    pub const fn new(mode: u16) -> Self {
        NewNode { mode, umask: 0, uid: 0, gid: 0, modified: None }
    }
}

/// Refuses an owner or group that the kernel takes for none.
pub(crate) fn check_owner(uid: u32, gid: u32) -> Result<()> {
    for (id, what) in [(uid, "user"), (gid, "group")] {
        if id == NO_ID {
            return Err(invalid(ErrorKind::InvalidInput, format!("{id}: not the number of a {what}")));
        }
    }
    Ok(())
}

/// Kind and contents of a new file.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// An empty directory.
    Directory,
    /// A regular file without contents.
    File,
    /// A symbolic link, and its target.
    Symlink(&'a [u8]),
    /// A device, pipe or socket; numbers count for devices.
    Node(FileType, u32, u32),
}

/// How a new file is encrypted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Encrypted<'a> {
    /// As its directory is, with a nonce of its own.
    LikeParent,
    /// With this context, or not at all. Its target, if it is a link, is stored as it is.
    As(Option<&'a [u8]>),
}

impl Body<'_> {
    pub(super) fn kind(&self) -> FileType {
        match self {
            Body::Directory => FileType::Directory,
            Body::File => FileType::Regular,
            Body::Symlink(_) => FileType::Symlink,
            Body::Node(kind, ..) => *kind,
        }
    }
}
