//! The journal's superblock: the first block of its file.

use casemate_blockdev::u32_of;

use crate::error::{Error, Place, Result, Structure};
use crate::format::field::{Be32, Byte, Bytes};

/// The magic number that all of the journal's own blocks begin with.
pub(crate) const MAGIC: u32 = 0xc03b_3998;

/// The header of all of them.
pub(crate) const MAGIC_AT: Be32 = Be32(0x0);
pub(crate) const KIND: Be32 = Be32(0x4);

/// Bytes of the structure.
pub(crate) const JOURNAL_SUPERBLOCK_SIZE: usize = 1024;

/// Its two versions, as kinds of blocks. The first one knows no features.
const VERSION_1: u32 = 3;
const VERSION_2: u32 = 4;

const BLOCK_SIZE: Be32 = Be32(0xc);
const BLOCKS: Be32 = Be32(0x10);
const FIRST: Be32 = Be32(0x14);
const SEQUENCE: Be32 = Be32(0x18);
const START: Be32 = Be32(0x1c);
const ERROR: Be32 = Be32(0x20);
const COMPAT: Be32 = Be32(0x24);
const INCOMPAT: Be32 = Be32(0x28);
const RO_COMPAT: Be32 = Be32(0x2c);
const UUID: Bytes<16> = Bytes(0x30);
const USERS: Be32 = Be32(0x40);
const CHECKSUM_TYPE: Byte = Byte(0x50);
const FAST_COMMIT_BLOCKS: Be32 = Be32(0x54);

const CRC32C: u8 = 4;

/// A compatible feature, as which no reader needs to know it.
const CHECKSUM_V1: u32 = 0x1;

const BITS64: u32 = 0x2;
const ASYNC_COMMIT: u32 = 0x4;
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
    /// Features that a writer must know: there are none yet.
    pub(crate) ro_compat: u32,
    /// File systems that have it.
    pub(crate) users: u32,
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
        if bytes.len() < JOURNAL_SUPERBLOCK_SIZE || MAGIC_AT.get(bytes) != MAGIC {
            return Err(place.malformed("no magic number 0xc03b3998"));
        }
        let (compat, incompat) = match KIND.get(bytes) {
            VERSION_1 => (0, 0),
            VERSION_2 => (COMPAT.get(bytes), INCOMPAT.get(bytes)),
            other => return Err(place.malformed(format!("block type {other}"))),
        };
        if incompat & !KNOWN != 0 {
            let text = format!("journals with the features {:#x}", incompat & !KNOWN);
            return Err(Error::unsupported(text));
        }
        // Nobody has given these a meaning; the kernel refuses a journal with any.
        if KIND.get(bytes) == VERSION_2 && RO_COMPAT.get(bytes) != 0 {
            let text = format!("journals with the features {:#x} for writers", RO_COMPAT.get(bytes));
            return Err(Error::unsupported(text));
        }
        if incompat & (CSUM_V2 | CSUM_V3) == CSUM_V2 | CSUM_V3 {
            return Err(place.malformed("two versions of checksums at once"));
        }
        if compat & CHECKSUM_V1 != 0 && incompat & (CSUM_V2 | CSUM_V3) != 0 {
            return Err(place.malformed("checksums of version 1 and of a later one at once"));
        }
        let fast_commit_blocks = match (incompat & FAST_COMMIT, FAST_COMMIT_BLOCKS.get(bytes)) {
            (0, _) => 0,
            (_, 0) => DEFAULT_FAST_COMMIT_BLOCKS,
            (_, blocks) => blocks,
        };
        let superblock = JournalSuperblock {
            block_size: BLOCK_SIZE.get(bytes),
            blocks: BLOCKS.get(bytes),
            first: FIRST.get(bytes),
            sequence: SEQUENCE.get(bytes),
            start: START.get(bytes),
            error: ERROR.get(bytes),
            uuid: *UUID.get(bytes),
            ro_compat: if KIND.get(bytes) == VERSION_2 { RO_COMPAT.get(bytes) } else { 0 },
            users: if KIND.get(bytes) == VERSION_2 { USERS.get(bytes) } else { 1 },
            fast_commit_blocks,
            compat,
            incompat,
        };
        let checksum_type = CHECKSUM_TYPE.get(bytes);
        if superblock.has_checksums() && checksum_type != CRC32C {
            // There is no other one that goes with these features.
            return Err(place.malformed(format!(
                "checksums of type {checksum_type}, and journals have those of type {CRC32C}"
            )));
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

    /// True if the journal has room for fast commits.
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

/// The first block of a journal of so many blocks that nobody has used yet. What features it has, the kernel that mounts it
/// first decides.
pub(crate) fn new_bytes(block_size: usize, blocks: u32, fast_commit_blocks: u32) -> Vec<u8> {
    let mut raw = vec![0; block_size];
    let fields = [
        (MAGIC_AT, MAGIC),
        (KIND, VERSION_2),
        // At most 64 KiB.
        (BLOCK_SIZE, u32_of(block_size)),
        (BLOCKS, blocks),
        (FIRST, 1),
        (SEQUENCE, 1),
        (USERS, 1),
        (FAST_COMMIT_BLOCKS, fast_commit_blocks),
    ];
    for (field, value) in fields {
        field.set(&mut raw, value);
    }
    raw
}

/// A journal's superblock with the only type of checksums that there is, if it has some. Whether it was so before it was
/// damaged, its own checksum tells.
pub(crate) fn as_it_was(raw: &[u8]) -> Vec<u8> {
    let mut raw = raw.to_vec();
    let is_one = raw.len() >= JOURNAL_SUPERBLOCK_SIZE && MAGIC_AT.get(&raw) == MAGIC;
    if is_one && KIND.get(&raw) == VERSION_2 && INCOMPAT.get(&raw) & (CSUM_V2 | CSUM_V3) != 0 {
        CHECKSUM_TYPE.set(&mut raw, CRC32C);
    }
    raw
}

/// Sets the log in a superblock's bytes: it begins at `start` with transaction `sequence`, or is empty if `start` is 0.
pub(crate) fn set_log(raw: &mut [u8], sequence: u32, start: u32) {
    SEQUENCE.set(raw, sequence);
    START.set(raw, start);
}

/// Gives a journal that no kernel has used yet the features that a kernel would give it.
pub(crate) fn set_features(raw: &mut [u8], has_checksums: bool, is_64bit: bool) {
    if KIND.get(raw) != VERSION_2 || INCOMPAT.get(raw) & (CSUM_V2 | CSUM_V3) != 0 {
        return;
    }
    let mut features = INCOMPAT.get(raw);
    if has_checksums {
        features = features & !ASYNC_COMMIT | CSUM_V3;
        CHECKSUM_TYPE.set(raw, CRC32C);
        // Checksums of version 1 and 3 at once make a journal that nobody accepts.
        COMPAT.set(raw, COMPAT.get(raw) & !CHECKSUM_V1);
    }
    if is_64bit {
        features |= BITS64;
    }
    INCOMPAT.set(raw, features);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A journal of 64 blocks of 1 KiB with these features.
    pub(crate) fn sample(incompat: u32) -> Vec<u8> {
        let mut raw = vec![0; JOURNAL_SUPERBLOCK_SIZE];
        let fields = [
            (MAGIC_AT, MAGIC),
            (KIND, VERSION_2),
            (BLOCK_SIZE, 1024),
            (BLOCKS, 64),
            (FIRST, 1),
            (INCOMPAT, incompat),
        ];
        for (field, value) in fields {
            field.set(&mut raw, value);
        }
        CHECKSUM_TYPE.set(&mut raw, CRC32C);
        raw
    }

    #[test]
    fn sizes_of_tags() {
        for (incompat, size) in [(0, 8), (2, 12), (8, 10), (10, 14), (16, 16), (18, 16)] {
            let superblock = JournalSuperblock::from_bytes(&sample(incompat)).unwrap();
            assert_eq!(superblock.tag_size(), size, "{incompat}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut raw = sample(ASYNC_COMMIT);
        CHECKSUM_TYPE.set(&mut raw, 0);
        COMPAT.set(&mut raw, CHECKSUM_V1);
        set_features(&mut raw, true, true);
        set_log(&mut raw, 7, 9);
        let superblock = JournalSuperblock::from_bytes(&raw).unwrap();
        assert!(superblock.is_v3() && superblock.is_64bit());
        assert!(!superblock.has_v1_checksums() && !superblock.has_async_commits());
        assert_eq!((superblock.sequence, superblock.start), (7, 9));
        // One that has been used keeps what it has.
        let mut raw = sample(CSUM_V2);
        set_features(&mut raw, true, true);
        assert_eq!(raw, sample(CSUM_V2));
    }
}
