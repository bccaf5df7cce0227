//! Differences between two file systems, as data.

use crate::error::Error;
use crate::format::inode::FileType;
use crate::format::value::FieldValue;
use crate::units::GroupNo;

/// One of the two file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first one.
    A,
    /// The second one.
    B,
}

impl Side {
    /// Both of them.
    pub const BOTH: [Side; 2] = [Side::A, Side::B];

    /// Position among the two.
    pub fn index(self) -> usize {
        match self {
            Side::A => 0,
            Side::B => 1,
        }
    }

    /// Name for programs: `a` or `b`.
    pub fn name(self) -> &'static str {
        match self {
            Side::A => "a",
            Side::B => "b",
        }
    }
}

/// Difference between two file systems. Values are those of the first and of the second one.
#[derive(Debug)]
#[non_exhaustive]
pub enum Difference {
    /// A field of the superblock.
    Superblock {
        /// Name of the field.
        field: &'static str,
        /// Its values.
        values: [FieldValue; 2],
    },
    /// A path that one of them has.
    Only {
        /// The one that has it.
        side: Side,
        /// The path.
        path: Vec<u8>,
        /// Type of the file.
        kind: FileType,
        /// How many names are below it.
        below: u64,
    },
    /// An attribute of a file.
    File {
        /// A path of the file.
        path: Vec<u8>,
        /// Name of the attribute.
        field: &'static str,
        /// Its values; `None` where there is none.
        values: [Option<FieldValue>; 2],
    },
    /// An extended attribute or ACL of a file.
    Xattr {
        /// A path of the file.
        path: Vec<u8>,
        /// Name of the extended attribute.
        name: Vec<u8>,
        /// Its values; `None` where there is none.
        values: [Option<Vec<u8>>; 2],
    },
    /// Contents of a file.
    Contents {
        /// A path of the file.
        path: Vec<u8>,
        /// The first byte of the file that differs.
        first: u64,
        /// Blocks that differ, as the first file system counts them.
        blocks: u64,
    },
    /// A number of a group's descriptor.
    Group {
        /// The group.
        group: GroupNo,
        /// Name of the field.
        field: &'static str,
        /// Its values.
        values: [u64; 2],
    },
    /// How and where a file is stored.
    Storage {
        /// A path of the file.
        path: Vec<u8>,
        /// Name of the number or place.
        field: &'static str,
        /// Its values.
        values: [FieldValue; 2],
    },
    /// Something that can't be read, and was not compared.
    Unread {
        /// The file system that it is in.
        side: Side,
        /// The path, if it is about a file.
        path: Option<Vec<u8>>,
        /// The fault.
        error: Error,
    },
    /// Where bytes differ. All of these lines together count each byte that differs once.
    Bytes {
        /// Part of the file system.
        area: Area,
        /// Blocks in which bytes differ, of the smaller block size.
        blocks: u64,
        /// Bytes that differ.
        bytes: u64,
        /// The first of them, counted from the beginning of the file system.
        first: u64,
    },
}

impl Difference {
    /// Name of the kind, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Difference::Superblock { .. } => "superblock",
            Difference::Only { .. } => "only",
            Difference::File { .. } => "file",
            Difference::Xattr { .. } => "xattr",
            Difference::Contents { .. } => "contents",
            Difference::Group { .. } => "group",
            Difference::Storage { .. } => "storage",
            Difference::Unread { .. } => "unread",
            Difference::Bytes { .. } => "bytes",
        }
    }
}

macro_rules! areas {
    ($($name:ident $text:literal $doc:literal,)*) => {
        /// Parts of a file system. Of two that share a byte, one in each image, the earlier one is told.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Area {
            $(#[doc = $doc] $name,)*
        }

        impl Area {
            /// Name of the area.
            pub fn name(self) -> &'static str {
                match self {
                    $(Area::$name => $text,)*
                }
            }

            /// All areas.
            pub fn all() -> Vec<Area> {
                vec![$(Area::$name,)*]
            }
        }
    };
}

areas! {
    Boot "boot sector" "The first 1024 bytes, which the file system leaves alone.",
    Superblock "superblock" "The primary superblock.",
    SuperblockCopies "copies of the superblock" "Copies of the superblock in other groups.",
    Descriptors "group descriptors" "The primary descriptors of groups.",
    DescriptorCopies "copies of group descriptors" "Copies of descriptors in other groups.",
    ReservedDescriptors "room for group descriptors" "Blocks that descriptors may grow into.",
    BlockBitmaps "block bitmaps" "Maps of blocks in use.",
    InodeBitmaps "inode bitmaps" "Maps of inodes in use.",
    Inodes "inodes" "Inodes that are in use.",
    UnusedInodes "unused inodes" "Slots of inode tables that no inode is in.",
    Mmp "multi-mount protection" "The block of multi-mount protection.",
    Journal "journal" "The journal, its superblock and its log.",
    OrphanFile "orphan file" "The file that lists orphans.",
    QuotaFiles "quota files" "Files that count what users, groups and projects use.",
    Directories "directories" "Blocks of directories, and their indexes.",
    Contents "file contents" "Blocks of regular files, up to the end of each.",
    Symlinks "symbolic links" "Targets of symbolic links that have blocks.",
    Attributes "attribute blocks" "Blocks of extended attributes, and of their values.",
    Maps "maps of files" "Blocks of extent trees and of old block maps.",
    Verity "fs-verity trees" "Hash trees and descriptors behind files' ends.",
    Unwritten "unwritten blocks" "Blocks that files have and that were never written.",
    Slack "behind ends of files" "Bytes of blocks behind the end of a file.",
    Padding "padding" "Bytes of metadata blocks that no field has.",
    Unused "unused blocks" "Blocks that nothing has.",
    Tail "behind the shorter file system" "Bytes that only the longer file system has.",
}
