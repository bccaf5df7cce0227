//! Errors, and their places on the disk.

use std::borrow::Cow;
use std::fmt;
use std::io::ErrorKind;

use crate::units::{Block, GroupNo, InodeNo};

pub use casemate_blockdev::{Error, Result};

/// The error for a full file system.
pub(crate) fn no_space(what: &str) -> Error {
    Error::path(ErrorKind::StorageFull, format!("no free {what} left in the file system"))
}

/// The error for what a caller may not ask for.
pub(crate) fn invalid(kind: ErrorKind, text: impl Into<String>) -> Error {
    Error::path(kind, text.into())
}

/// A copy of an error, for each caller that asks again.
pub(crate) fn again(error: &Error) -> Error {
    error.again()
}

/// A structure that is not as it should be: which one, where it lies, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Corrupt {
    place: Place,
    problem: Problem,
}

/// Fault of a structure.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Problem {
    /// The checksum does not fit.
    Checksum {
        /// The checksum of the structure's contents.
        expected: u32,
        /// The stored checksum.
        found: u32,
    },
    /// A number is another than it should be.
    Number {
        /// Meaning of the number.
        what: Counted,
        /// The right number.
        expected: u64,
        /// The stored number.
        found: u64,
    },
    /// Blocks or inodes are not what they should be.
    Run {
        /// The first one.
        first: u64,
        /// The last one.
        last: u64,
        /// The fault, in words: `are claimed by others, too`.
        what: &'static str,
    },
    /// A bitmap says something else of blocks or inodes than what was found.
    Marked {
        /// The first one.
        first: u64,
        /// The last one.
        last: u64,
        /// The bitmap's wrong state of them.
        marked: Marked,
    },
    /// A directory is below itself.
    Loop,
    /// A name leads to an inode that is deleted, or was never used.
    Unused(InodeNo),
    /// Anything else, in words.
    Malformed(Cow<'static, str>),
}

/// The subject of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Counted {
    /// Free blocks of the whole file system.
    FreeBlocks,
    /// Free inodes of the whole file system.
    FreeInodes,
    /// Anything else, in words.
    Other(&'static str),
}

impl From<&'static str> for Counted {
    fn from(what: &'static str) -> Counted {
        Counted::Other(what)
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Counted::FreeBlocks => "free blocks",
            Counted::FreeInodes => "free inodes",
            Counted::Other(what) => what,
        })
    }
}

/// The state of blocks or inodes in a bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Marked {
    /// Marked as in use.
    Used,
    /// Marked as free.
    Free,
}

/// A structure of the file system and where it lies: what is known of block, group and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Which structure.
    pub structure: Structure,
    /// The file system block that it begins in; for journal blocks, the block within the journal.
    pub block: Option<u64>,
    /// The block group that it belongs to.
    pub group: Option<GroupNo>,
    /// The inode that it belongs to.
    pub inode: Option<InodeNo>,
}

macro_rules! structures {
    ($($name:ident $text:literal $doc:literal,)*) => {
        /// The kinds of structures that can be damaged.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Structure {
            $(#[doc = $doc] $name,)*
        }

        impl Structure {
            /// The structure's name, as messages print it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Structure::$name => $text,)*
                }
            }
        }
    };
}

structures! {
    Superblock "superblock" "The primary superblock.",
    BackupSuperblock "backup superblock" "A copy of the superblock in another group.",
    GroupDescriptor "group descriptor" "A block group's descriptor.",
    BackupGroupDescriptor "backup group descriptor" "A copy of a descriptor in another group.",
    BlockBitmap "block bitmap" "A group's map of used blocks or clusters.",
    InodeBitmap "inode bitmap" "A group's map of used inodes.",
    Inode "inode" "An inode.",
    ExtentBlock "extent block" "A node or leaf of a file's extent tree, outside the inode.",
    IndirectBlock "indirect block" "A block of an old block map.",
    Directory "directory" "A directory as a whole.",
    DirectoryBlock "directory block" "A block of directory entries.",
    HtreeNode "htree node" "The root or an inner node of a directory's hash tree.",
    XattrBlock "xattr block" "A block of extended attributes.",
    Xattr "extended attribute" "Extended attributes in the inode, or one value.",
    XattrInode "xattr inode" "An inode that holds the value of an extended attribute.",
    InlineData "inline data" "File contents or entries inside the inode.",
    Symlink "symbolic link" "A symbolic link's target.",
    MmpBlock "mmp block" "The block of multi-mount protection.",
    OrphanBlock "orphan file block" "A block of the orphan file.",
    QuotaFile "quota file" "The hidden file that counts what users, groups or projects use.",
    JournalSuperblock "journal superblock" "The journal's own superblock.",
    JournalBlock "journal block" "A descriptor, revoke, commit or data block of the log.",
    EncryptionContext "encryption context" "The policy and nonce of an encrypted inode.",
    VerityMetadata "verity metadata" "The fs-verity descriptor behind a file's contents.",
}

impl Corrupt {
    pub(crate) fn new(place: Place, problem: Problem) -> Corrupt {
        Corrupt { place, problem }
    }

    /// The structure and fault of an error, if it is about a structure.
    pub fn of(error: &Error) -> Option<&Corrupt> {
        error.cause()
    }

    /// The structure, and where it lies.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The fault of the structure.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl Place {
    pub(crate) fn group(structure: Structure, group: GroupNo) -> Place {
        Place { group: Some(group), ..Place::of(structure) }
    }

    /// A structure of an inode.
    pub fn inode(structure: Structure, inode: InodeNo) -> Place {
        Place { inode: Some(inode), ..Place::of(structure) }
    }

    pub(crate) fn of(structure: Structure) -> Place {
        Place { structure, block: None, group: None, inode: None }
    }

    pub(crate) fn at(self, block: Block) -> Place {
        Place { block: Some(block.get()), ..self }
    }

    /// A place in a block of the journal, which is counted within it.
    pub(crate) fn at_log(self, block: u32) -> Place {
        Place { block: Some(block.into()), ..self }
    }

    /// The error that something about this place contradicts the format.
    pub fn malformed(self, what: impl Into<Cow<'static, str>>) -> Error {
        Corrupt::new(self, Problem::Malformed(what.into())).into()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = self.structure.name();
        match self.group {
            Some(group) if self.structure == Structure::GroupDescriptor => {
                return write!(f, "group descriptor {group}");
            }
            Some(group) => write!(f, "group {group}: ")?,
            None => {}
        }
        if let Some(inode) = self.inode {
            write!(f, "inode {inode}")?;
            if self.structure == Structure::Inode {
                name = "";
            } else {
                f.write_str(": ")?;
            }
        }
        f.write_str(name)?;
        self.block.map_or(Ok(()), |block| write!(f, " {block}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Checksum { expected, found } => {
                write!(f, "wrong checksum: expected {expected:#010x}, found {found:#010x}")
            }
            Problem::Number { what, expected, found } => {
                write!(f, "{what}: expected {expected}, found {found}")
            }
            Problem::Run { first, last, what } if first == last => write!(f, "block {first} {what}"),
            Problem::Run { first, last, what } => write!(f, "blocks {first} to {last} {what}"),
            Problem::Marked { first, last, marked } if first == last => f.write_str(&match marked {
                Marked::Used => format!("{first} is free, and marked as in use"),
                Marked::Free => format!("{first} is in use, and marked as free"),
            }),
            Problem::Marked { first, last, marked: Marked::Used } => {
                write!(f, "{first} to {last} are free, and marked as in use")
            }
            Problem::Marked { first, last, marked: Marked::Free } => {
                write!(f, "{first} to {last} are in use, and marked as free")
            }
            Problem::Loop => f.write_str("is within itself"),
            Problem::Unused(inode) => write!(f, "inode {inode} is not in use"),
            Problem::Malformed(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

impl std::error::Error for Corrupt {}

impl From<Corrupt> for Error {
    fn from(corrupt: Corrupt) -> Error {
        let Place { structure, block, group, inode } = corrupt.place;
        let mut place = casemate_blockdev::Place::default();
        (place.structure, place.block, place.group, place.inode) =
            (Some(structure.name()), block, group.map(GroupNo::get), inode.map(InodeNo::get));
        Error::corrupt(corrupt.to_string()).with_place(place).with_cause(corrupt)
    }
}
