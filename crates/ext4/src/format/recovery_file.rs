//! The file that keeps a transaction beside an image without a journal: a header, then for each block, in ascending
//! order, its number, the CRC-32C of each of its sectors as it was, and the block. Sums are not inverted.
//!
//! This is a format of this project alone: docs/formats/recovery-file.md.

use crate::format::field::{Bytes, Le32, Le64};
use crate::units::Block;

/// Bytes of the header.
pub(crate) const HEADER: usize = SUM.end();

/// The bytes of a disk that are written at once: of a block that was being written some may be new.
pub(crate) const SECTOR: usize = 512;

/// Magic number of the file, and how many of its bytes all versions share.
const MAGIC: &[u8; 16] = b"casemate redo 2\n";
const FAMILY: usize = 14;

const MAGIC_AT: Bytes<16> = Bytes(0);
const UUID: Bytes<16> = Bytes(16);
const BLOCK_SIZE: Le32 = Le32(32);
const COUNT: Le64 = Le64(36);
/// The CRC-32C of all of the file but this field.
const SUM: Le32 = Le32(44);

const NUMBER: Le64 = Le64(0);
const SECTOR_SUM: Le32 = Le32(0);

/// Whose file it is, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    This,
    Another,
    /// That of something else.
    None,
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The file system's.
    pub uuid: [u8; 16],
    pub block_size: u32,
    /// How many blocks follow.
    pub count: u64,
    pub sum: u32,
}

impl Header {
    /// A header of this version from its bytes.
    pub fn from_bytes(bytes: &[u8; HEADER]) -> Header {
        Header {
            uuid: *UUID.get(bytes),
            block_size: BLOCK_SIZE.get(bytes),
            count: COUNT.get(bytes),
            sum: SUM.get(bytes),
        }
    }

    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        *MAGIC_AT.get_mut(&mut bytes) = *MAGIC;
        *UUID.get_mut(&mut bytes) = self.uuid;
        BLOCK_SIZE.set(&mut bytes, self.block_size);
        COUNT.set(&mut bytes, self.count);
        SUM.set(&mut bytes, self.sum);
        bytes
    }
}

/// The version of a file, by its header.
pub(crate) fn version(header: &[u8; HEADER]) -> Version {
    match MAGIC_AT.get(header) {
        MAGIC => Version::This,
        magic if magic[..FAMILY] == MAGIC[..FAMILY] => Version::Another,
        _ => Version::None,
    }
}

/// The part of a header that its sum covers.
pub(crate) fn summed(header: &[u8; HEADER]) -> &[u8] {
    &header[..SUM.0]
}

/// Bytes of a block with what goes before it.
pub(crate) fn record_len(block_size: usize) -> usize {
    contents_at(block_size) + block_size
}

/// Where in its record a block begins.
pub(crate) fn contents_at(block_size: usize) -> usize {
    NUMBER.end() + SECTOR_SUM.end() * (block_size / SECTOR)
}

/// A block with what goes before it.
pub(crate) fn record_bytes(block: Block, sums: impl Iterator<Item = u32>, contents: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(record_len(contents.len()));
    record.extend(block.get().to_le_bytes());
    record.extend(sums.flat_map(u32::to_le_bytes));
    record.extend_from_slice(contents);
    record
}

/// The number of a block, the sums of its sectors, and its contents.
pub(crate) fn split(record: &[u8], block_size: usize) -> (Block, impl Iterator<Item = u32>, &[u8]) {
    let (before, contents) = record.split_at(contents_at(block_size));
    let sums = before[NUMBER.end()..].chunks_exact(SECTOR_SUM.end()).map(|sum| SECTOR_SUM.get(sum));
    (Block::new(NUMBER.get(before)), sums, contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let header = Header { uuid: [1; 16], block_size: 1024, count: 2, sum: 3 };
        let mut bytes = header.to_bytes();
        assert_eq!((Header::from_bytes(&bytes), version(&bytes)), (header, Version::This));
        bytes[FAMILY] ^= 1;
        assert_eq!(version(&bytes), Version::Another);
        bytes[0] ^= 1;
        assert_eq!(version(&bytes), Version::None);
        let record = record_bytes(Block::new(4), [5, 6].into_iter(), &[7; 1024]);
        let (block, sums, contents) = split(&record, 1024);
        assert_eq!((record.len(), block, contents), (record_len(1024), Block::new(4), &[7; 1024][..]));
        assert!(sums.eq([5, 6]));
    }
}
