//! Files without their contents.

use crate::Time;

/// The kind of a file: the type bits of `st_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum FileType {
    Regular,
    Directory,
    Symlink,
    CharacterDevice,
    BlockDevice,
    Fifo,
    Socket,
}

impl FileType {
    /// The kind of file that the type bits of a mode (`st_mode`) name; `None` for bits that name none.
    pub fn from_mode(mode: u16) -> Option<FileType> {
        Some(match mode >> 12 {
            0x1 => FileType::Fifo,
            0x2 => FileType::CharacterDevice,
            0x4 => FileType::Directory,
            0x6 => FileType::BlockDevice,
            0x8 => FileType::Regular,
            0xa => FileType::Symlink,
            0xc => FileType::Socket,
            _ => return None,
        })
    }

    /// The type bits of a mode (`st_mode`).
    pub fn mode_bits(self) -> u16 {
        match self {
            FileType::Fifo => 0x1000,
            FileType::CharacterDevice => 0x2000,
            FileType::Directory => 0x4000,
            FileType::BlockDevice => 0x6000,
            FileType::Regular => 0x8000,
            FileType::Symlink => 0xa000,
            FileType::Socket => 0xc000,
        }
    }

    /// The letter that `ls -l` prints.
    pub fn letter(self) -> char {
        match self {
            FileType::Regular => '-',
            FileType::Directory => 'd',
            FileType::Symlink => 'l',
            FileType::CharacterDevice => 'c',
            FileType::BlockDevice => 'b',
            FileType::Fifo => 'p',
            FileType::Socket => 's',
        }
    }

    /// The word that results in JSON have.
    pub fn name(self) -> &'static str {
        match self {
            FileType::Regular => "file",
            FileType::Directory => "directory",
            FileType::Symlink => "symlink",
            FileType::CharacterDevice => "character device",
            FileType::BlockDevice => "block device",
            FileType::Fifo => "fifo",
            FileType::Socket => "socket",
        }
    }
}

/// The number that no user and no group has: the kernel takes it for none.
pub const NO_ID: u32 = u32::MAX;

/// A file's metadata, beside its names, contents and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kind of file.
    pub kind: FileType,
    /// Permission bits.
    pub mode: u16,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// The time of the contents' last change.
    pub modified: Time,
    /// The time of the last access, where that is told.
    pub accessed: Option<Time>,
    /// Major and minor number of a device.
    pub device: (u32, u32),
}

impl Node {
    /// A file of root's that nobody may use, from 1970.
    pub const fn new(kind: FileType) -> Node {
        let modified = Time { seconds: 0, nanoseconds: 0 };
        Node { kind, mode: 0, uid: 0, gid: 0, modified, accessed: None, device: (0, 0) }
    }
}

/// The target of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// The path in the tree of the file that has another name here.
    Hard(Vec<u8>),
    /// The target of a symbolic link.
    Symbolic(Vec<u8>),
}
