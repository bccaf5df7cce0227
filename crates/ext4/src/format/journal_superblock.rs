//! The journal's superblock: the first block of its file.

use crate::error::{Error, Place, Result, Structure};
use crate::format::bytes::{array, be32};

/// The magic number that all of the journal's own blocks begin with.
pub(crate) const MAGIC: u32 = 0xc03b_3998;

/// A compatible feature, as which no reader needs to know it.
pub(crate) const CHECKSUM_V1: u32 = 0x1;

const BITS64: u32 = 0x2;
pub(crate) const ASYNC_COMMIT: u32 = 0x4;
const CSUM_V2: u32 = 0x8;
const CSUM_V3: u32 = 0x10;
const FAST_COMMIT: u32 = 0x20;

/// Revoke records are the lowest bit.
const KNOWN: u32 = 0x1 | BITS64 | ASYNC_COMMIT | CSUM_V2 | CSUM_V3 | FAST_COMMIT;

/// Blocks at the journal's end for fast commits where the superblock does not say.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;

/// A journal's superblock.
#[derive(Clone, Debug)]
pub struct JournalSuperblock {
    /// The block size in bytes.
    pub block_size: u32,
    /// Blocks of the journal, this one among them.
    pub blocks: u32,
    /// The first block of the log.
    pub first: u32,
    /// The first transaction in the log.
    pub sequence: u32,
    /// The block where it begins; 0 when there is nothing to replay.
    pub start: u32,
    /// `s_errno`, set when the journal was aborted.
    pub error: u32,
    /// The journal's UUID.
    pub uuid: [u8; 16],
    /// Blocks at the end that hold fast commits.
    pub fast_commit_blocks: u32,
    compat: u32,
    incompat: u32,
}

impl JournalSuperblock {
    /// Reads the fields of a journal's first block.
    ///
    /// # Errors
    /// `Corrupt` when it is none or its numbers make no sense, `Unsupported` for features
    /// that a reader must know.
    pub fn from_bytes(bytes: &[u8]) -> Result<JournalSuperblock> {
        let place = Place::of(Structure::JournalSuperblock);
        if bytes.len() < 1024 || be32(bytes, 0) != MAGIC {
            return Err(place.malformed("no magic number 0xc03b3998"));
        }
        let (compat, incompat) = match be32(bytes, 4) {
            3 => (0, 0),
            4 => (be32(bytes, 0x24), be32(bytes, 0x28)),
            other => return Err(place.malformed(format!("block type {other}"))),
        };
        if incompat & !KNOWN != 0 {
            let text = format!("journals with the features {:#x}", incompat & !KNOWN);
            return Err(Error::unsupported(text));
        }
        if incompat & (CSUM_V2 | CSUM_V3) == CSUM_V2 | CSUM_V3 {
            return Err(place.malformed("two versions of checksums at once"));
        }
        if compat & CHECKSUM_V1 != 0 && incompat & (CSUM_V2 | CSUM_V3) != 0 {
            return Err(place.malformed("checksums of version 1 and of a later one at once"));
        }
        let fast_commit_blocks = match (incompat & FAST_COMMIT, be32(bytes, 0x54)) {
            (0, _) => 0,
            (_, 0) => DEFAULT_FAST_COMMIT_BLOCKS,
            (_, blocks) => blocks,
        };
        let superblock = JournalSuperblock {
            block_size: be32(bytes, 0xc),
            blocks: be32(bytes, 0x10),
            first: be32(bytes, 0x14),
            sequence: be32(bytes, 0x18),
            start: be32(bytes, 0x1c),
            error: be32(bytes, 0x20),
            uuid: array(bytes, 0x30),
            fast_commit_blocks,
            compat,
            incompat,
        };
        if superblock.has_checksums() && bytes[0x50] != 4 {
            return Err(Error::unsupported(format!("journal checksums of type {}", bytes[0x50])));
        }
        let log = superblock.first..superblock.end();
        if superblock.first == 0 || log.is_empty() {
            return Err(place.malformed("a log without blocks"));
        }
        if superblock.start != 0 && !log.contains(&superblock.start) {
            return Err(place.malformed("the log begins outside the journal"));
        }
        Ok(superblock)
    }

    /// The block behind the last one of the log.
    pub fn end(&self) -> u32 {
        self.blocks.saturating_sub(self.fast_commit_blocks)
    }

    /// The block that follows `block` in the log, which is a ring.
    pub fn next(&self, block: u32) -> u32 {
        let next = block.saturating_add(1);
        if next >= self.end() { self.first } else { next }
    }

    /// Whether all of its blocks carry CRC-32C checksums (version 2 or 3).
    pub fn has_checksums(&self) -> bool {
        self.incompat & (CSUM_V2 | CSUM_V3) != 0
    }

    /// Whether commit blocks may carry a CRC-32 of their transaction (version 1).
    pub(crate) fn has_v1_checksums(&self) -> bool {
        self.compat & CHECKSUM_V1 != 0
    }

    /// Whether commit blocks may reach the disk before what they commit.
    pub(crate) fn has_async_commits(&self) -> bool {
        self.incompat & ASYNC_COMMIT != 0
    }

    /// Whether it has room for fast commits.
    pub fn has_fast_commits(&self) -> bool {
        self.incompat & FAST_COMMIT != 0
    }

    /// Whether tags are those of checksums of version 3.
    pub(crate) fn is_v3(&self) -> bool {
        self.incompat & CSUM_V3 != 0
    }

    /// Whether block numbers have 64 bits.
    pub(crate) fn is_64bit(&self) -> bool {
        self.incompat & BITS64 != 0
    }

    /// Bytes of a tag in a descriptor block.
    pub(crate) fn tag_size(&self) -> usize {
        if self.is_v3() {
            return 16;
        }
        // Version 2 adds two bytes that nothing uses: the checksum's other half found no place.
        8 + if self.is_64bit() { 4 } else { 0 } + if self.has_checksums() { 2 } else { 0 }
    }

    /// The names of its features.
    pub fn features(&self) -> Vec<&'static str> {
        let names = [
            (self.compat & CHECKSUM_V1, "journal_checksum"),
            (self.incompat & 0x1, "journal_incompat_revoke"),
            (self.incompat & BITS64, "journal_64bit"),
            (self.incompat & ASYNC_COMMIT, "journal_async_commit"),
            (self.incompat & CSUM_V2, "journal_checksum_v2"),
            (self.incompat & CSUM_V3, "journal_checksum_v3"),
            (self.incompat & FAST_COMMIT, "fast_commit"),
        ];
        names.into_iter().filter(|(flag, _)| *flag != 0).map(|(_, name)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_tags() {
        for (incompat, size) in [(0, 8), (2, 12), (8, 10), (10, 14), (16, 16), (18, 16)] {
            let mut raw = vec![0; 1024];
            for (at, value) in
                [(0, MAGIC), (4, 4), (0xc, 1024), (0x10, 64), (0x14, 1), (0x28, incompat), (0x50, 4 << 24)]
            {
                raw[at..at + 4].copy_from_slice(&value.to_be_bytes());
            }
            assert_eq!(JournalSuperblock::from_bytes(&raw).unwrap().tag_size(), size, "{incompat}");
        }
    }
}
