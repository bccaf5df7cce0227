//! Reading the log: which transactions are whole, what they revoke, and where each block's last copy lies.

use casemate_blockdev::{u32_of, u64_of};

use crate::error::{Corrupt, Error, Place, Result, Structure};
use crate::format::crc32::crc32;
use crate::format::csum::{Context, Subject};
use crate::format::journal_block::{self, Kind, Tag};
use crate::read::fs::Ext4;
use crate::read::journal::overlay::{Copy, Overlay};
use crate::read::journal::{FastCommits, Journal, Recovery};
use crate::units::Block;

/// Contents of a log.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// Whole transactions.
    pub transactions: u32,
    /// The sequence number that the next transaction would have had.
    pub next_sequence: u32,
    /// The last copy of each block of the file system, in the order of blocks.
    pub blocks: Vec<(Block, Copy)>,
    /// Why the log ended before its last transaction, which was committed.
    pub cut: Option<Corrupt>,
}

/// A copy of a block in the log.
struct Logged {
    tag: Tag,
    /// The block of the journal.
    log: u32,
    sequence: u32,
    /// The last transaction that revokes copies of the block; noted with the first of them alone.
    revoked: Option<u32>,
}

/// The copies of blocks that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// All that count. A damaged one is an error.
    Whole,
    /// Sound ones alone.
    Sound,
}

/// Reads the whole log once, and then once more what was revoked: a small log can revoke far more blocks than it has
/// copies of, which are all that is kept in memory.
pub(crate) fn scan(journal: &Journal, copies: Copies) -> Result<Replay> {
    let superblock = &journal.superblock;
    let mut replay = Replay { next_sequence: superblock.sequence, ..Replay::default() };
    // Copies in the order of the log, and the blocks of the journal that revoke some; those of whole transactions come first.
    let (mut logged, mut revokes) = (Vec::new(), Vec::new());
    let mut whole_ones = (0, 0);
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
        let place = Place::of(Structure::JournalBlock).at_log(at);
        let log = at;
        at = superblock.next(at);
        budget -= 1;
        let sound = journal.check(kind, &bytes, place);
        match kind {
            Kind::Descriptor | Kind::Revoke if sound.is_err() => {
                // It may be left over from a time before; the commit block's time will tell.
                transaction.suspect = transaction.suspect.or(corrupt(sound)?);
                if kind == Kind::Descriptor {
                    let count =
                        journal_block::tags(&bytes, superblock, place).map_or(0, |tags| u32_of(tags.len()));
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
                    logged.push(Logged { tag, log: at, sequence, revoked: None });
                    skip(journal, &mut at, &mut budget, 1);
                }
            }
            Kind::Revoke => match journal_block::revoked(&bytes, superblock, place) {
                Ok(_) => revokes.push((log, sequence)),
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
                whole_ones = (logged.len(), revokes.len());
            }
        }
    }
    logged.truncate(whole_ones.0);
    revokes.truncate(whole_ones.1);
    // Stable: the last copy of a block stays the last one.
    logged.sort_by_key(|copy| copy.tag.block);
    for (log, sequence) in revokes {
        let place = Place::of(Structure::JournalBlock).at_log(log);
        for block in journal_block::revoked(&journal.read(log)?, superblock, place)? {
            let first = logged.partition_point(|copy| copy.tag.block < block);
            if let Some(copy) = logged.get_mut(first).filter(|copy| copy.tag.block == block) {
                copy.revoked = Some(sequence);
            }
        }
    }
    for of_block in logged.chunk_by(|a, b| a.tag.block == b.tag.block) {
        let revoked = of_block[0].revoked;
        let mut last = None;
        for copy in of_block {
            // Sequence numbers wrap, so "not before" is a difference that is not negative.
            if revoked.is_none_or(|revoked| revoked.wrapping_sub(copy.sequence).cast_signed() < 0) {
                last = match journal.copy(copy) {
                    Ok(found) => Some((copy.tag.block, found)),
                    Err(error) if copies == Copies::Sound && Corrupt::of(&error).is_some() => last,
                    Err(error) => return Err(error),
                };
            }
        }
        replay.blocks.extend(last);
    }
    Ok(replay)
}

/// The part read so far of a transaction that is not committed yet.
struct Transaction {
    /// A block with a wrong checksum.
    suspect: Option<Corrupt>,
    /// A block that makes no sense.
    malformed: Option<Corrupt>,
    /// Version 1: over all descriptors and copies so far.
    checksum: u32,
}

impl Default for Transaction {
    fn default() -> Transaction {
        Transaction { suspect: None, malformed: None, checksum: !0 }
    }
}

impl Journal {
    /// Checks a descriptor, revoke or commit block's checksum.
    pub(super) fn check(&self, kind: Kind, bytes: &[u8], place: Place) -> Result<()> {
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

    /// Where a copy that counts lies.
    fn copy(&self, copy: &Logged) -> Result<Copy> {
        let place = Place::of(Structure::JournalBlock).at_log(copy.log);
        let block = copy.tag.block;
        if block >= self.fs.layout().end() {
            return Err(place.malformed(format!("is a copy of block {block}, outside the file system")));
        }
        if let Some(damage) = corrupt(self.check_copy(copy, place))? {
            let text = format!(
                "{}; transaction {}, of which it is, was committed: run e2fsck -f, \
                 or open the image without its journal",
                damage.problem(),
                copy.sequence
            );
            return Err(place.malformed(text));
        }
        let offset = self.fs.layout().offset(self.physical(copy.log)?);
        Ok(Copy { offset, escaped: copy.tag.escaped })
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

/// Replays what is sound of a damaged journal into a layer over its device.
pub(crate) fn remains(journal: &Journal) -> Result<Overlay> {
    let replay = scan(journal, Copies::Sound)?;
    let device = journal.fs.device();
    Ok(Overlay::new(device.clone(), device.clone(), journal.fs.layout().block_size, replay.blocks))
}

/// Whether the journal of `fs` holds transactions, and the superblock does not say that they must be replayed.
///
/// # Errors
/// Errors of reading. A journal that is not understood is not one that holds some.
pub(crate) fn is_untold(fs: &Ext4) -> Result<bool> {
    if fs.superblock().needs_recovery() {
        return Ok(false);
    }
    let journal = Journal::salvage(fs).filter(|journal| journal.superblock.start != 0);
    let Some(journal) = journal else { return Ok(false) };
    match scan(&journal, Copies::Sound) {
        Ok(replay) if replay.transactions > 0 || replay.cut.is_some() => Ok(true),
        Ok(replay) => Ok(!FastCommits::read(&journal, replay.next_sequence)?.is_empty()),
        Err(error) if Corrupt::of(&error).is_some() => Ok(true),
        Err(error) => Err(error),
    }
}

/// Contents of a journal that are to be replayed.
pub(crate) struct Replayable {
    /// The device as its transactions make it.
    pub overlay: Overlay,
    /// Events after the last transaction.
    pub fast_commits: FastCommits,
    pub recovery: Recovery,
}

/// Replays the transactions of the journal of `fs` into a layer over its device; `None` if nothing must be replayed.
/// `must` is what the superblock says of that.
pub(crate) fn recover(fs: &Ext4, must: bool) -> Result<Option<Replayable>> {
    if !must {
        return Ok(None);
    }
    let Some(journal) = Journal::open(fs)? else {
        if !fs.superblock().needs_recovery() {
            return Ok(None);
        }
        if let (None, false) = fs.superblock().named_journal() {
            let text = "the journal must be replayed, and nothing says where it is";
            return Err(Place::of(Structure::Superblock).malformed(text));
        }
        let text = "the journal must be replayed and lies on another device; \
                    open the image without it to see what is there";
        return Err(Error::unsupported(text.to_owned()));
    };
    if journal.superblock.start == 0 {
        return Ok(None);
    }
    let replay = scan(&journal, Copies::Whole)?;
    // Where a transaction is missing, nothing that followed it can be replayed.
    let fast_commits = match replay.cut {
        None => FastCommits::read(&journal, replay.next_sequence)?,
        Some(_) => FastCommits::default(),
    };
    let recovery = Recovery {
        transactions: replay.transactions,
        fast_commits: fast_commits.commits,
        blocks: u64_of(replay.blocks.len()),
        cut: replay.cut,
        missing: false,
        next_sequence: replay.next_sequence,
    };
    let device = fs.device();
    let overlay = Overlay::new(device.clone(), device.clone(), fs.layout().block_size, replay.blocks);
    Ok(Some(Replayable { overlay, fast_commits, recovery }))
}
