//! Fast commits: what happened since the journal's last transaction, at the journal's end.
//!
//! They tell of inodes, names and runs of blocks, not of blocks' contents; [`edit`](crate::edit::fast_commit) does what
//! they tell.

use crate::error::{Error, Place, Result, Structure};
use crate::format::fast_commit::{Event, Record};
use crate::read::journal::Journal;

/// Whole fast commits, in their order.
#[derive(Debug, Default)]
pub(crate) struct FastCommits {
    /// How many.
    pub commits: u32,
    /// Their records, one after the other.
    records: Vec<u8>,
}

impl FastCommits {
    /// Reads the fast commits on top of transaction `sequence - 1`.
    pub fn read(journal: &Journal, sequence: u32) -> Result<FastCommits> {
        let mut found = FastCommits::default();
        if !journal.superblock.has_fast_commits() {
            return Ok(found);
        }
        let mut crc = 0;
        let mut whole = 0;
        // The block behind the log stays unused.
        'blocks: for block in journal.superblock.end() + 1..journal.superblock.blocks {
            let bytes = journal.read(block)?;
            let mut rest = &bytes[..];
            while rest.len() >= 4 {
                let Some((record, behind)) = Record::split(rest) else { break 'blocks };
                if record.sequence().is_some_and(|other| other != sequence) {
                    break 'blocks;
                }
                if record.features() != 0 {
                    let text = "the journal ends in fast commits with unknown features";
                    return Err(Error::unsupported(text));
                }
                crc = journal.checksums.update(Some(crc), record.covered());
                found.records.extend_from_slice(record.bytes());
                if let Some(expected) = record.checksum() {
                    if crc != expected {
                        break 'blocks;
                    }
                    found.commits += 1;
                    whole = found.records.len();
                    crc = 0;
                    // A fast commit fills its last block.
                    break;
                }
                rest = behind;
            }
        }
        found.records.truncate(whole);
        Ok(found)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.commits == 0
    }

    /// The events of the commits.
    pub fn events(&self) -> Result<Vec<Event<'_>>> {
        let place = Place::of(Structure::JournalBlock);
        let mut events = Vec::new();
        let mut rest = &self.records[..];
        while let Some((record, behind)) = Some(rest).filter(|rest| rest.len() >= 4).and_then(Record::split) {
            events.extend(record.event(place)?);
            rest = behind;
        }
        Ok(events)
    }
}
