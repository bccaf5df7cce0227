//! The blocks that the journal writes beside copies of blocks: descriptors, revocations, commits.

use crate::error::{Place, Result};
use crate::format::bytes::{be16, be32, join};
use crate::format::journal_superblock::{JournalSuperblock, MAGIC};

/// What a block of the journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Tags: which blocks the copies behind it are of.
    Descriptor,
    /// The end of a transaction.
    Commit,
    /// Blocks whose older copies must not be replayed.
    Revoke,
}

/// The header of a block of the journal; `None` for anything else, such as a copy.
pub(crate) fn header(block: &[u8]) -> Option<(Kind, u32)> {
    if be32(block, 0) != MAGIC {
        return None;
    }
    let kind = match be32(block, 4) {
        1 => Kind::Descriptor,
        2 => Kind::Commit,
        5 => Kind::Revoke,
        _ => return None,
    };
    Some((kind, be32(block, 8)))
}

/// Bytes of a commit block; what follows is zeros.
pub(crate) const COMMIT: usize = 0x3c;

/// When a transaction was committed, in seconds.
pub(crate) fn commit_time(block: &[u8]) -> u64 {
    join(be32(block, 0x34), be32(block, 0x30))
}

/// The checksum of version 1 in a commit block: the transaction's descriptors and copies. `None` if it has none.
pub(crate) fn commit_checksum(block: &[u8], place: Place) -> Result<Option<u32>> {
    match (block[12], block[13], be32(block, 16)) {
        (0, 0, 0) => Ok(None),
        (1, 4, checksum) => Ok(Some(checksum)),
        (kind, size, _) => {
            Err(place.malformed(format!("a checksum of type {kind} and {size} bytes, not CRC-32 of 4")))
        }
    }
}

/// A block of the file system whose copy stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// The block, counted in the file system.
    pub block: u64,
    /// The copy began with the journal's magic number, which is zeroed in the log.
    pub escaped: bool,
    /// The copy's checksum: all of it (version 3) or its low half.
    pub checksum: u32,
}

/// The tags of a descriptor block.
pub(crate) fn tags(block: &[u8], superblock: &JournalSuperblock, place: Place) -> Result<Vec<Tag>> {
    const ESCAPED: u32 = 1;
    const SAME_UUID: u32 = 2;
    const LAST: u32 = 8;

    let size = superblock.tag_size();
    let end = block.len() - if superblock.has_checksums() { 4 } else { 0 };
    let mut list = Vec::new();
    let mut at = 12;
    loop {
        if at + size > end {
            // A full block may do without the last tag's flag.
            return if list.is_empty() { Err(place.malformed("has no tags")) } else { Ok(list) };
        }
        let tag = &block[at..at + size];
        let (flags, high_at, checksum) = if superblock.is_v3() {
            (be32(tag, 4), 8, be32(tag, 12))
        } else {
            (u32::from(be16(tag, 6)), 8, u32::from(be16(tag, 4)))
        };
        let high = if superblock.is_64bit() { be32(tag, high_at) } else { 0 };
        list.push(Tag { block: join(be32(tag, 0), high), escaped: flags & ESCAPED != 0, checksum });
        at += size + if flags & SAME_UUID != 0 { 0 } else { 16 };
        if flags & LAST != 0 {
            return Ok(list);
        }
    }
}

/// The blocks that a revoke block names.
pub(crate) fn revoked(block: &[u8], superblock: &JournalSuperblock, place: Place) -> Result<Vec<u64>> {
    let width = if superblock.is_64bit() { 8 } else { 4 };
    let used = usize::try_from(be32(block, 12)).unwrap_or(usize::MAX);
    let end = block.len() - if superblock.has_checksums() { 4 } else { 0 };
    if used < 16 || used > end {
        return Err(place.malformed(format!("revokes {used} bytes of blocks")));
    }
    let number = |entry: &[u8]| match width {
        8 => join(be32(entry, 4), be32(entry, 0)),
        _ => u64::from(be32(entry, 0)),
    };
    Ok(block[16..used].chunks_exact(width).map(number).collect())
}
