//! Reading the log: which transactions are whole, what they revoke, and where each block's last copy lies.

use std::collections::HashMap;

use crate::csum::{Context, Subject};
use crate::error::{Corrupt, Error, Place, Result, Structure};
use crate::journal::Journal;
use crate::journal::block::{self, Kind, Tag};

/// What a log holds.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// Whole transactions.
    pub transactions: u32,
    /// The sequence number that the next transaction would have had.
    pub next_sequence: u32,
    /// The last copy of each block of the file system.
    pub blocks: HashMap<u64, LogCopy>,
    /// Why the log ended before its last transaction.
    pub cut: Option<Corrupt>,
}

/// A copy of a block in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogCopy {
    /// The block of the journal.
    pub log: u32,
    /// Its first four bytes were the magic number.
    pub escaped: bool,
}

/// A copy that a transaction holds.
struct Logged {
    tag: Tag,
    log: u32,
    sequence: u32,
}

/// Reads the whole log. Three passes become one: copies are collected, then filtered by what was revoked.
pub(crate) fn scan(journal: &Journal) -> Result<Replay> {
    let superblock = &journal.superblock;
    let mut replay = Replay { next_sequence: superblock.sequence, ..Replay::default() };
    let mut logged = Vec::new();
    let mut revoked: HashMap<u64, u32> = HashMap::new();
    let mut at = superblock.start;
    // What the ring has room for; more would be the same blocks again.
    let mut budget = superblock.end() - superblock.first;
    let mut last_commit = (0, 0);
    let mut transaction = Transaction::default();
    while budget > 0 {
        let bytes = journal.read(at)?;
        let Some((kind, sequence)) = block::header(&bytes) else { break };
        if sequence != replay.next_sequence {
            break;
        }
        let place = Place::of(Structure::JournalBlock).at(u64::from(at));
        at = superblock.next(at);
        budget -= 1;
        let sound = journal.check(kind, &bytes, place);
        match kind {
            Kind::Descriptor | Kind::Revoke if sound.is_err() => {
                // It may be left over from a time before; the commit block's time will tell.
                transaction.suspect = transaction.suspect.or(corrupt(sound)?);
                if kind == Kind::Descriptor {
                    let count = block::tags(&bytes, superblock, place).map_or(0, |tags| tags.len() as u32);
                    skip(journal, &mut at, &mut budget, count);
                }
            }
            Kind::Descriptor => {
                for tag in block::tags(&bytes, superblock, place)? {
                    if budget == 0 {
                        break;
                    }
                    transaction.logged.push(Logged { tag, log: at, sequence });
                    skip(journal, &mut at, &mut budget, 1);
                }
            }
            Kind::Revoke => transaction.revoked.extend(block::revoked(&bytes, superblock, place)?),
            Kind::Commit => {
                let whole = std::mem::take(&mut transaction);
                let time = block::commit_time(&bytes);
                let suspect = whole.suspect.or(corrupt(sound)?);
                if let Some(corrupt) = suspect {
                    if time >= last_commit {
                        replay.cut = Some(corrupt);
                    }
                    break;
                }
                last_commit = time;
                replay.transactions += 1;
                replay.next_sequence = replay.next_sequence.wrapping_add(1);
                logged.extend(whole.logged);
                for block in whole.revoked {
                    revoked.insert(block, sequence);
                }
            }
        }
    }
    for copy in logged {
        let block = copy.tag.block;
        // Sequence numbers wrap, so "not before" is a difference that is not negative.
        let is_revoked =
            revoked.get(&block).is_some_and(|revoked| revoked.wrapping_sub(copy.sequence).cast_signed() >= 0);
        if is_revoked {
            continue;
        }
        let place = Place::of(Structure::JournalBlock).at(u64::from(copy.log));
        if block >= journal.fs.layout().blocks {
            return Err(place.malformed(format!("is a copy of block {block}, outside the file system")));
        }
        journal.check_copy(&copy, place)?;
        replay.blocks.insert(block, LogCopy { log: copy.log, escaped: copy.tag.escaped });
    }
    Ok(replay)
}

/// What was read of the transaction that is not committed yet.
#[derive(Default)]
struct Transaction {
    logged: Vec<Logged>,
    revoked: Vec<u64>,
    suspect: Option<Corrupt>,
}

impl Journal {
    /// Checks a descriptor, revoke or commit block's checksum.
    fn check(&self, kind: Kind, bytes: &[u8], place: Place) -> Result<()> {
        if !self.superblock.has_checksums() {
            return Ok(());
        }
        let subject = match kind {
            Kind::Descriptor | Kind::Revoke => Subject::JournalList,
            Kind::Commit => Subject::JournalCommit,
        };
        self.checksums.verify(subject, &Context::default(), bytes, place)
    }

    /// Checks the checksum in the tag of a copy.
    fn check_copy(&self, copy: &Logged, place: Place) -> Result<()> {
        if !self.superblock.has_checksums() {
            return Ok(());
        }
        let bytes = self.read(copy.log)?;
        let context = Context { sequence: copy.sequence, ..Context::default() };
        let subject = Subject::JournalData;
        if self.superblock.is_v3() {
            return self.checksums.verify_value(subject, &context, &bytes, copy.tag.checksum, place);
        }
        let recipe = crate::csum::recipe(subject);
        let expected = self.checksums.compute(recipe, &context, &bytes).unwrap_or(0) & 0xffff;
        crate::csum::compare(expected, copy.tag.checksum, place)
    }
}

fn skip(journal: &Journal, at: &mut u32, budget: &mut u32, count: u32) {
    for _ in 0..count.min(*budget) {
        *at = journal.superblock.next(*at);
        *budget -= 1;
    }
}

/// A damaged block as a finding; other errors stay errors.
fn corrupt(result: Result<()>) -> Result<Option<Corrupt>> {
    match result {
        Ok(()) => Ok(None),
        Err(Error::Corrupt(corrupt)) => Ok(Some(corrupt)),
        Err(error) => Err(error),
    }
}
