//! Fast commits: records of tag, length and contents at the journal's end. All integers are little-endian.
//!
//! Source: Documentation/filesystems/ext4/journal.rst, "Fast commits"; the kernel's fs/ext4/fast_commit.h, for facts.

use crate::error::{Error, Place, Result};
use crate::format::extent::{Extent, ExtentNode};
use crate::format::field::{Le16, Le32};
use crate::format::inode::OLD_INODE_SIZE;
use crate::units::InodeNo;

const TAG: Le16 = Le16(0);
const LENGTH: Le16 = Le16(2);
const HEADER: usize = 4;

const ADD_RANGE: u16 = 1;
const DELETE_RANGE: u16 = 2;
const CREATE: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;
const PADDING: u16 = 7;

/// The last record of a fast commit: transaction and checksum, which covers what comes before it.
const TAIL: u16 = 8;
const TAIL_SEQUENCE: Le32 = Le32(4);
const TAIL_CHECKSUM: Le32 = Le32(8);

/// The first record: features and transaction.
const HEAD: u16 = 9;
const HEAD_FEATURES: Le32 = Le32(4);
const HEAD_SEQUENCE: Le32 = Le32(8);

/// Of ranges and inodes the inode, of names the directory.
const NUMBER: Le32 = Le32(4);
/// Offset of the contents behind the number: an extent or an inode as they lie on the disk.
const CONTENTS: usize = 8;
/// A range that goes: its first block, counted in the file, and its length.
const LOGICAL: Le32 = Le32(8);
const LEN: Le32 = Le32(12);
/// The inode of a name, which follows.
const NAMED: Le32 = Le32(8);
const NAME: usize = 12;

/// A record, with its header.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    bytes: &'a [u8],
    tag: u16,
}

/// Event that a record describes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// A run of an inode's blocks has a place.
    Add { inode: InodeNo, extent: Extent },
    /// A run of an inode's blocks has none any more.
    Delete { inode: InodeNo, logical: u32, len: u32 },
    /// An inode that was just made has this name in a directory.
    Create { parent: InodeNo, inode: InodeNo, name: &'a [u8] },
    /// An inode has one more name.
    Link { parent: InodeNo, inode: InodeNo, name: &'a [u8] },
    /// An inode has a name less.
    Unlink { parent: InodeNo, inode: InodeNo, name: &'a [u8] },
    /// An inode's fields: 128 bytes at least, and those of its extra fields.
    Inode { inode: InodeNo, raw: &'a [u8] },
}

impl<'a> Record<'a> {
    /// The first record of these bytes, which are at least four, and what follows it; `None` if that is none.
    pub fn split(bytes: &'a [u8]) -> Option<(Record<'a>, &'a [u8])> {
        let (tag, len) = (TAG.get(bytes), usize::from(LENGTH.get(bytes)));
        let (bytes, rest) = bytes.split_at_checked(HEADER + len)?;
        let shortest = match tag {
            ADD_RANGE => CONTENTS + 12,
            DELETE_RANGE => LEN.end(),
            CREATE | LINK | UNLINK => NAME + 1,
            INODE => CONTENTS + OLD_INODE_SIZE,
            PADDING => HEADER,
            HEAD | TAIL => HEADER + 8,
            _ => return None,
        };
        (bytes.len() >= shortest).then_some((Record { bytes, tag }, rest))
    }

    /// The transaction, if it is a record that tells one.
    pub fn sequence(&self) -> Option<u32> {
        match self.tag {
            HEAD => Some(HEAD_SEQUENCE.get(self.bytes)),
            TAIL => Some(TAIL_SEQUENCE.get(self.bytes)),
            _ => None,
        }
    }

    /// Features that a reader must know, of which there are none yet.
    pub fn features(&self) -> u32 {
        if self.tag == HEAD { HEAD_FEATURES.get(self.bytes) } else { 0 }
    }

    /// The checksum of a whole fast commit, if the record is its last one.
    pub fn checksum(&self) -> Option<u32> {
        (self.tag == TAIL).then(|| TAIL_CHECKSUM.get(self.bytes))
    }

    /// Bytes of the record that the checksum covers.
    pub fn covered(&self) -> &'a [u8] {
        if self.tag == TAIL { &self.bytes[..TAIL_CHECKSUM.0] } else { self.bytes }
    }

    /// The record itself.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The record's event; `None` for records that only frame others.
    pub fn event(&self, place: Place) -> Result<Option<Event<'a>>> {
        let bytes = self.bytes;
        let inode = |field: Le32| {
            InodeNo::new(field.get(bytes)).ok_or_else(|| place.malformed("a fast commit names inode 0"))
        };
        let named = || Ok::<_, Error>((inode(NUMBER)?, inode(NAMED)?, &bytes[NAME..]));
        Ok(Some(match self.tag {
            ADD_RANGE => {
                let extent = ExtentNode::entry(&bytes[CONTENTS..]);
                if extent.len == 0 {
                    return Err(place.malformed("a fast commit adds a range without blocks"));
                }
                Event::Add { inode: inode(NUMBER)?, extent }
            }
            DELETE_RANGE => {
                Event::Delete { inode: inode(NUMBER)?, logical: LOGICAL.get(bytes), len: LEN.get(bytes) }
            }
            CREATE => {
                let (parent, inode, name) = named()?;
                Event::Create { parent, inode, name }
            }
            LINK => {
                let (parent, inode, name) = named()?;
                Event::Link { parent, inode, name }
            }
            UNLINK => {
                let (parent, inode, name) = named()?;
                Event::Unlink { parent, inode, name }
            }
            INODE => Event::Inode { inode: inode(NUMBER)?, raw: &bytes[CONTENTS..] },
            _ => return Ok(None),
        }))
    }
}
