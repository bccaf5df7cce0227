//! Fast commits: deltas at the journal's end, newer than its last transaction.
//!
//! They are recognised and refused: replaying them means changing extents, directories and bitmaps as the
//! kernel would.

use crate::error::{Error, Result};
use crate::format::fast_commit::Record;
use crate::read::journal::Journal;

/// Refuses a journal that holds whole fast commits on top of transaction `sequence - 1`.
pub(crate) fn refuse(journal: &Journal, sequence: u32) -> Result<()> {
    let mut commits = 0;
    let mut crc = 0;
    // The block behind the log stays unused.
    'blocks: for block in journal.superblock.end() + 1..journal.superblock.blocks {
        let bytes = journal.read(block)?;
        let mut rest = &bytes[..];
        while rest.len() >= 4 {
            let Some((record, behind)) = Record::split(rest) else { break 'blocks };
            if record.sequence().is_some_and(|other| other != sequence) {
                break 'blocks;
            }
            crc = journal.checksums.update(Some(crc), record.covered());
            if let Some(expected) = record.checksum() {
                if crc != expected {
                    break 'blocks;
                }
                commits += 1;
                crc = 0;
                // A fast commit fills its last block.
                break;
            }
            rest = behind;
        }
    }
    if commits == 0 {
        return Ok(());
    }
    let text = format!(
        "the journal ends in {commits} fast commits, which are not replayed here; \
         mount the image once or run e2fsck, or open it without its journal"
    );
    Err(Error::unsupported(text))
}
