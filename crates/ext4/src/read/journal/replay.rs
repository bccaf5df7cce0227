//! Reading the log: which transactions are whole, what they revoke, and where each block's last copy lies.

use std::collections::{HashMap, HashSet};

use crate::error::{Corrupt, Place, Result, Structure};
use crate::format::crc32::crc32;
use crate::format::csum::{Context, Subject};
use crate::format::journal_block::{self, Kind, Tag};
use crate::read::journal::Journal;

/// What a log holds.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// Whole transactions.
    pub transactions: u32,
    /// The sequence number that the next transaction would have had.
    pub next_sequence: u32,
    /// The last copy of each block of the file system.
    pub blocks: HashMap<u64, LogCopy>,
    /// Why the log ended before its last transaction, which was committed.
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
    let mut last_commit = 0;
    let mut transaction = Transaction::default();
    // A transaction that may only have been interrupted: its commit block need not have been the last to be written.
    let mut doubtful: Option<Corrupt> = None;
    let mut expected = superblock.sequence;
    while budget > 0 {
        let bytes = journal.read(at)?;
        let Some((kind, sequence)) = journal_block::header(&bytes) else { break };
        if sequence != expected {
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
                    let count =
                        journal_block::tags(&bytes, superblock, place).map_or(0, |tags| tags.len() as u32);
                    skip(journal, &mut at, &mut budget, count);
                }
            }
            Kind::Descriptor => {
                // One that can't count any more needs no checksum.
                let has_v1 = superblock.has_v1_checksums() && doubtful.is_none();
                if has_v1 {
                    transaction.checksum = crc32(transaction.checksum, &bytes);
                }
                for tag in journal_block::tags(&bytes, superblock, place)? {
                    if budget == 0 {
                        break;
                    }
                    if has_v1 {
                        transaction.checksum = crc32(transaction.checksum, &journal.read(at)?);
                    }
                    transaction.logged.push(Logged { tag, log: at, sequence });
                    skip(journal, &mut at, &mut budget, 1);
                }
            }
            Kind::Revoke => match journal_block::revoked(&bytes, superblock, place) {
                // What lies elsewhere has no copies either.
                Ok(list) => {
                    let blocks = journal.fs.layout().blocks;
                    transaction.revoked.extend(list.into_iter().filter(|block| *block < blocks));
                }
                Err(error) => transaction.malformed = corrupt(Err(error))?,
            },
            Kind::Commit => {
                let whole = std::mem::take(&mut transaction);
                if doubtful.is_some() {
                    // Had it been interrupted, nothing would have been committed after it.
                    replay.cut = doubtful;
                    break;
                }
                let time = journal_block::commit_time(&bytes);
                let is_stale = time < last_commit;
                if let Some(suspect) = whole.suspect {
                    replay.cut = Some(suspect).filter(|_| !is_stale);
                    break;
                }
                let sound = sound.and_then(|()| journal.check_v1(whole.checksum, &bytes, place));
                if let Some(damage) = corrupt(sound)? {
                    if is_stale {
                        break;
                    }
                    if superblock.has_async_commits() {
                        doubtful = Some(damage);
                        expected = expected.wrapping_add(1);
                        continue;
                    }
                    replay.cut = Some(damage);
                    break;
                }
                if whole.malformed.is_some() {
                    replay.cut = whole.malformed;
                    break;
                }
                last_commit = time;
                replay.transactions += 1;
                expected = expected.wrapping_add(1);
                replay.next_sequence = expected;
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
        if let Some(damage) = corrupt(journal.check_copy(&copy, place))? {
            let text = format!(
                "{}; transaction {}, of which it is, was committed: run e2fsck -f, \
                 or open the image without its journal",
                damage.problem(),
                copy.sequence
            );
            return Err(place.malformed(text));
        }
        replay.blocks.insert(block, LogCopy { log: copy.log, escaped: copy.tag.escaped });
    }
    Ok(replay)
}

/// What was read of the transaction that is not committed yet.
struct Transaction {
    logged: Vec<Logged>,
    revoked: HashSet<u64>,
    /// A block with a wrong checksum.
    suspect: Option<Corrupt>,
    /// A block that makes no sense.
    malformed: Option<Corrupt>,
    /// Version 1: over all descriptors and copies so far.
    checksum: u32,
}

impl Default for Transaction {
    fn default() -> Transaction {
        Transaction {
            logged: Vec::new(),
            revoked: HashSet::new(),
            suspect: None,
            malformed: None,
            checksum: !0,
        }
    }
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
        let sound = self.checksums.verify(subject, &Context::default(), bytes, place);
        if sound.is_err() && kind == Kind::Commit {
            // A torn write may have left something else behind what counts.
            let mut bytes = bytes.to_vec();
            bytes[journal_block::COMMIT..].fill(0);
            return self.checksums.verify(subject, &Context::default(), &bytes, place).or(sound);
        }
        sound
    }

    /// Checks a commit block's checksum over its transaction, if it has one.
    fn check_v1(&self, expected: u32, commit: &[u8], place: Place) -> Result<()> {
        if !self.superblock.has_v1_checksums() {
            return Ok(());
        }
        match journal_block::commit_checksum(commit, place)? {
            Some(found) => crate::format::csum::compare(expected, found, place),
            None => Ok(()),
        }
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
        let recipe = crate::format::csum::recipe(subject);
        let expected = self.checksums.compute(recipe, &context, &bytes).unwrap_or(0) & 0xffff;
        crate::format::csum::compare(expected, copy.tag.checksum, place)
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
    let Err(error) = result else { return Ok(None) };
    Corrupt::of(&error).cloned().map(Some).ok_or(error)
}
