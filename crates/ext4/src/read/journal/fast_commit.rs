//! Fast commits: deltas at the journal's end, newer than its last transaction.
//!
//! They are recognised and refused: replaying them means changing extents, directories and bitmaps as the
//! kernel would. Source: the kernel's fs/ext4/fast_commit.h, for facts.

use crate::error::{Error, Result};
use crate::format::bytes::{le16, le32};
use crate::read::journal::Journal;

const TAIL: u16 = 8;
const HEAD: u16 = 9;

/// Refuses a journal that holds whole fast commits on top of transaction `sequence - 1`.
pub(crate) fn refuse(journal: &Journal, sequence: u32) -> Result<()> {
    let mut commits = 0;
    let mut crc = 0;
    // The block behind the log stays unused.
    'blocks: for block in journal.superblock.end() + 1..journal.superblock.blocks {
        let bytes = journal.read(block)?;
        let mut rest = &bytes[..];
        while rest.len() >= 4 {
            let (tag, len) = (le16(rest, 0), usize::from(le16(rest, 2)));
            let Some(record) = rest.get(..4 + len) else { break 'blocks };
            if tag == 0 || tag > HEAD {
                break 'blocks;
            }
            let covered = if tag == TAIL { 8.min(record.len()) } else { record.len() };
            match tag {
                HEAD if len < 8 || le32(record, 8) != sequence => break 'blocks,
                TAIL if len < 8 || le32(record, 4) != sequence => break 'blocks,
                TAIL => {
                    crc = journal.checksums.update(Some(crc), &record[..covered]);
                    if crc != le32(record, 8) {
                        break 'blocks;
                    }
                    commits += 1;
                    crc = 0;
                    // A fast commit fills its last block.
                    break;
                }
                _ => {}
            }
            crc = journal.checksums.update(Some(crc), &record[..covered]);
            rest = &rest[record.len()..];
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
