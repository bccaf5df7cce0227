//! Fast commits: records of tag, length and contents at the journal's end.
//!
//! Source: the kernel's fs/ext4/fast_commit.h, for facts.

use crate::format::field::{Le16, Le32};

const TAG: Le16 = Le16(0);
const LENGTH: Le16 = Le16(2);
const HEADER: usize = 4;

/// The last record of a fast commit: transaction and checksum, which covers what comes before it.
const TAIL: u16 = 8;
const TAIL_SEQUENCE: Le32 = Le32(4);
const TAIL_CHECKSUM: Le32 = Le32(8);

/// The first record: features and transaction.
const HEAD: u16 = 9;
const HEAD_SEQUENCE: Le32 = Le32(8);

/// A record, with its header.
pub(crate) struct Record<'a> {
    bytes: &'a [u8],
    tag: u16,
}

impl<'a> Record<'a> {
    /// The first record of these bytes, which are at least four, and what follows it; `None` if that is none.
    pub fn split(bytes: &'a [u8]) -> Option<(Record<'a>, &'a [u8])> {
        let (tag, len) = (TAG.get(bytes), usize::from(LENGTH.get(bytes)));
        let (bytes, rest) = bytes.split_at_checked(HEADER + len)?;
        let shortest = if matches!(tag, HEAD | TAIL) { HEADER + 8 } else { HEADER };
        (matches!(tag, 1..=HEAD) && bytes.len() >= shortest).then_some((Record { bytes, tag }, rest))
    }

    /// The transaction, if it is a record that tells one.
    pub fn sequence(&self) -> Option<u32> {
        match self.tag {
            HEAD => Some(HEAD_SEQUENCE.get(self.bytes)),
            TAIL => Some(TAIL_SEQUENCE.get(self.bytes)),
            _ => None,
        }
    }

    /// The checksum of a whole fast commit, if the record is its last one.
    pub fn checksum(&self) -> Option<u32> {
        (self.tag == TAIL).then(|| TAIL_CHECKSUM.get(self.bytes))
    }

    /// What the checksum covers of it.
    pub fn covered(&self) -> &'a [u8] {
        if self.tag == TAIL { &self.bytes[..TAIL_CHECKSUM.0] } else { self.bytes }
    }
}
