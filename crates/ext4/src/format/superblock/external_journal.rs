//! The superblock of a journal that lies on a device of its own.

use super::*;

/// A journal on a device of its own: the part of a superblock that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalJournal {
    /// The UUID, by which the file system names its journal.
    pub uuid: [u8; 16],
    /// The label.
    pub label: String,
    /// The block size in bytes.
    pub block_size: u32,
    /// Blocks of the device that it takes, those before the journal among them.
    pub blocks: u64,
}

impl ExternalJournal {
    /// Reads the fields of a superblock at [`SUPERBLOCK_OFFSET`]; `None` if it is not one of an external journal. The feature
    /// alone may be a damaged bit of a file system, which has inodes.
    pub fn from_superblock(bytes: &[u8]) -> Option<ExternalJournal> {
        let raw = bytes.first_chunk::<SUPERBLOCK_SIZE>().filter(|raw| Superblock::has_magic(raw))?;
        let is_one = REVISION.get(raw) == 1
            && Incompat(INCOMPAT.get(raw)).has(Incompat::JOURNAL_DEV)
            && INODES.get(raw) == 0
            && INODES_PER_GROUP.get(raw) == 0;
        let log_block_size = Some(LOG_BLOCK_SIZE.get(raw)).filter(|log| is_one && *log <= 6)?;
        Some(ExternalJournal {
            uuid: *UUID.get(raw),
            label: text(LABEL.get(raw)),
            block_size: 1024 << log_block_size,
            blocks: BLOCKS.get_if(Incompat(INCOMPAT.get(raw)).has(Incompat::BITS64), raw),
        })
    }
}
