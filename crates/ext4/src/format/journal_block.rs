//! The blocks that the journal writes beside copies of blocks: descriptors, revocations, commits.

use casemate_blockdev::usize_of;

use crate::error::{Place, Result};
use crate::format::field::{Be16, Be32, Be64, Byte, Bytes, Split};
use crate::format::journal_superblock::{JournalSuperblock, KIND, MAGIC, MAGIC_AT};
use crate::number::low16;
use crate::units::Block;

/// Puts back the magic number that an escaped copy began with, in the part of the copy from byte `at` on.
pub(crate) fn unescape(part: &mut [u8], at: u64) {
    for (byte, magic) in part.iter_mut().zip(MAGIC.to_be_bytes().iter().skip(usize_of(at))) {
        *byte = *magic;
    }
}

/// The header.
const SEQUENCE: Be32 = Be32(0x8);
const HEADER: usize = 12;

/// The end of descriptors and revocations with a checksum.
const TAIL: usize = 4;

/// A commit block: the checksum of version 1 with its type and size, and the time.
const V1_TYPE: Byte = Byte(0xc);
const V1_SIZE: Byte = Byte(0xd);
const V1_CHECKSUM: Be32 = Be32(0x10);
const SECONDS: Be64 = Be64(0x30);
const NANOSECONDS: Be32 = Be32(0x38);
/// Bytes of a commit block; what follows is zeros.
pub(crate) const COMMIT: usize = NANOSECONDS.end();

/// CRC-32, the only type of version 1 that there is.
const CRC32: (u8, u8) = (1, 4);

/// A tag: version 3 has more room for flags and checksum.
const BLOCK: Split<Be32, Be32> = Split(Be32(0x0), Be32(0x8));
const CHECKSUM: Be16 = Be16(0x4);
const FLAGS: Be16 = Be16(0x6);
const V3_FLAGS: Be32 = Be32(0x4);
const V3_CHECKSUM: Be32 = Be32(0xc);
/// The UUID behind a tag that does not say that it is the same as before.
const UUID: Bytes<16> = Bytes(0);
const UUID_SIZE: usize = 16;

const ESCAPED: u32 = 1;
const SAME_UUID: u32 = 2;
const LAST: u32 = 8;

/// A block of revocations: how many bytes of it are used; then block numbers.
const USED: Be32 = Be32(0xc);
const NUMBERS: usize = USED.end();

/// Kind of a block of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Tags: which blocks the copies behind it are of.
    Descriptor,
    /// The end of a transaction.
    Commit,
    /// Blocks whose older copies must not be replayed.
    Revoke,
}

impl Kind {
    /// The number that stands for the kind.
    fn number(self) -> u32 {
        match self {
            Kind::Descriptor => 1,
            Kind::Commit => 2,
            Kind::Revoke => 5,
        }
    }
}

/// The header of a block of the journal; `None` for anything else, such as a copy.
pub(crate) fn header(block: &[u8]) -> Option<(Kind, u32)> {
    if MAGIC_AT.get(block) != MAGIC {
        return None;
    }
    let kinds = [Kind::Descriptor, Kind::Commit, Kind::Revoke];
    let kind = kinds.into_iter().find(|kind| kind.number() == KIND.get(block))?;
    Some((kind, SEQUENCE.get(block)))
}

/// A block of `size` bytes with a header, and nothing else.
fn new(size: usize, kind: Kind, sequence: u32) -> Vec<u8> {
    let mut block = vec![0; size];
    for (field, value) in [(MAGIC_AT, MAGIC), (KIND, kind.number()), (SEQUENCE, sequence)] {
        field.set(&mut block, value);
    }
    block
}

/// A commit block of `size` bytes, without its checksum.
pub(crate) fn commit_bytes(size: usize, sequence: u32, seconds: i64, nanoseconds: u32) -> Vec<u8> {
    let mut block = new(size, Kind::Commit, sequence);
    SECONDS.set(&mut block, seconds.cast_unsigned());
    NANOSECONDS.set(&mut block, nanoseconds);
    block
}

/// When a transaction was committed, in seconds.
pub(crate) fn commit_time(block: &[u8]) -> u64 {
    SECONDS.get(block)
}

/// The checksum of version 1 in a commit block: the transaction's descriptors and copies. `None` if it has none.
pub(crate) fn commit_checksum(block: &[u8], place: Place) -> Result<Option<u32>> {
    let (kind, size) = (V1_TYPE.get(block), V1_SIZE.get(block));
    match V1_CHECKSUM.get(block) {
        0 if (kind, size) == (0, 0) => Ok(None),
        checksum if (kind, size) == CRC32 => Ok(Some(checksum)),
        _ => Err(place.malformed(format!("a checksum of type {kind} and {size} bytes, not CRC-32 of 4"))),
    }
}

/// A block of the file system whose copy stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// The block, counted in the file system.
    pub block: Block,
    /// The copy began with the journal's magic number, which is zeroed in the log.
    pub escaped: bool,
    /// The copy's checksum: all of it (version 3) or its low half.
    pub checksum: u32,
}

/// How many tags a descriptor block of `size` bytes has room for.
pub(crate) fn tags_per_block(size: usize, superblock: &JournalSuperblock) -> usize {
    (end(size, superblock) - HEADER - UUID_SIZE) / superblock.tag_size()
}

/// A descriptor block of `size` bytes with these tags, which have room, without its checksum. The first one is followed
/// by the journal's UUID.
pub(crate) fn descriptor_bytes(
    size: usize,
    sequence: u32,
    tags: &[Tag],
    superblock: &JournalSuperblock,
) -> Vec<u8> {
    let mut block = new(size, Kind::Descriptor, sequence);
    let mut at = HEADER;
    for (position, tag) in tags.iter().enumerate() {
        let mut flags = if tag.escaped { ESCAPED } else { 0 };
        flags |= if position > 0 { SAME_UUID } else { 0 };
        flags |= if position + 1 == tags.len() { LAST } else { 0 };
        let bytes = &mut block[at..at + superblock.tag_size()];
        BLOCK.set_if(superblock.is_64bit(), bytes, tag.block.get());
        if superblock.is_v3() {
            V3_FLAGS.set(bytes, flags);
            V3_CHECKSUM.set(bytes, tag.checksum);
        } else {
            // The low half is what version 2 has room for; flags are small.
            CHECKSUM.set(bytes, low16(tag.checksum));
            FLAGS.set(bytes, low16(flags));
        }
        at += superblock.tag_size();
        if position == 0 {
            *UUID.get_mut(&mut block[at..]) = superblock.uuid;
            at += UUID_SIZE;
        }
    }
    block
}

/// The tags of a descriptor block.
pub(crate) fn tags(block: &[u8], superblock: &JournalSuperblock, place: Place) -> Result<Vec<Tag>> {
    let (size, end) = (superblock.tag_size(), end(block.len(), superblock));
    let mut list = Vec::new();
    let mut at = HEADER;
    loop {
        if at + size > end {
            // A full block may do without the last tag's flag.
            return if list.is_empty() { Err(place.malformed("has no tags")) } else { Ok(list) };
        }
        let tag = &block[at..at + size];
        let (flags, checksum) = match superblock.is_v3() {
            true => (V3_FLAGS.get(tag), V3_CHECKSUM.get(tag)),
            false => (FLAGS.get(tag).into(), CHECKSUM.get(tag).into()),
        };
        let block = Block::new(BLOCK.get_if(superblock.is_64bit(), tag));
        list.push(Tag { block, escaped: flags & ESCAPED != 0, checksum });
        at += size + if flags & SAME_UUID != 0 { 0 } else { UUID_SIZE };
        if flags & LAST != 0 {
            return Ok(list);
        }
    }
}

/// The blocks that a revoke block names.
pub(crate) fn revoked(block: &[u8], superblock: &JournalSuperblock, place: Place) -> Result<Vec<Block>> {
    let used = usize::try_from(USED.get(block)).unwrap_or(usize::MAX);
    if used < NUMBERS || used > end(block.len(), superblock) {
        return Err(place.malformed(format!("revokes {used} bytes of blocks")));
    }
    let numbers = &block[NUMBERS..used];
    Ok(match superblock.is_64bit() {
        true => numbers.chunks_exact(8).map(|entry| Block::new(Be64(0).get(entry))).collect(),
        false => numbers.chunks_exact(4).map(|entry| Block::new(Be32(0).get(entry).into())).collect(),
    })
}

/// The byte that a block's checksum begins at, or its end if it has none.
fn end(size: usize, superblock: &JournalSuperblock) -> usize {
    size - if superblock.has_checksums() { TAIL } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Structure;
    use crate::format::journal_superblock::tests::sample;

    #[test]
    fn what_is_written_is_read() {
        let place = Place::of(Structure::JournalBlock);
        for incompat in [0, 2, 8, 10, 16, 18] {
            let mut raw = sample(incompat);
            raw[0x30..0x40].fill(0xee);
            let superblock = JournalSuperblock::from_bytes(&raw).unwrap();
            let count = tags_per_block(1024, &superblock);
            let high = if superblock.is_64bit() { 0x5_0000_0000 } else { 0 };
            let sum = if superblock.is_v3() { 0x0102_0304 } else { 0x0304 };
            let list: Vec<Tag> = (0..count as u64)
                .map(|number| Tag {
                    block: Block::new(high + number),
                    escaped: number % 3 == 0,
                    checksum: sum,
                })
                .collect();
            let block = descriptor_bytes(1024, 7, &list, &superblock);
            assert_eq!(header(&block), Some((Kind::Descriptor, 7)), "{incompat}");
            assert_eq!(tags(&block, &superblock, place).unwrap(), list, "{incompat}");
            assert_eq!(
                tags(&descriptor_bytes(1024, 7, &list[..1], &superblock), &superblock, place).unwrap().len(),
                1
            );
        }
        let commit = commit_bytes(1024, 8, 9, 10);
        assert_eq!((header(&commit), commit_time(&commit)), (Some((Kind::Commit, 8)), 9));
        assert_eq!(commit_checksum(&commit, place).unwrap(), None);
        assert_eq!(header(&[0; 1024]), None);
    }
}
