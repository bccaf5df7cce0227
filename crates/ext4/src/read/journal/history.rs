//! Older states of a file system, as far as the journal has copies of its blocks.
//!
//! A log is a ring: behind what must be replayed lie transactions of earlier times, until others are written over them. Their copies
//! of blocks are what the file system had when they were committed. [`History`] notes where each copy lies, and [`History::as_of`]
//! shows the file system as one transaction left it, where blocks that it has no copy of are as they are now.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use casemate_blockdev::{BlockDevice, u64_of};

use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::{Context, Subject};
use crate::format::journal_block::{self, Kind, Tag};
use crate::format::journal_superblock::{JournalSuperblock, MAGIC, MAGIC_AT};
use crate::number::within;
use crate::read::fs::Ext4;
use crate::read::journal::{Copy, Journal};
use crate::units::Block;

/// Copies that are noted: those of a journal of 4 GiB. They take some 50 bytes each.
const MOST_COPIES: usize = 1 << 20;

/// A transaction, or [`NOW`].
pub(crate) type Moment = u64;

/// After all transactions.
pub(crate) const NOW: Moment = Moment::MAX;

/// Copies of blocks by the transactions that they were committed with.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The copies of each block, oldest first.
    copies: HashMap<Block, Vec<(u32, Copy)>>,
    /// Copies that were not noted, as there are too many.
    pub left_out: u64,
    /// The error of the first block that could not be read.
    pub unread: Option<Error>,
    /// Copies that were read.
    reads: AtomicU64,
    /// The last transaction of those that follow one in the log, each behind the other, without a gap.
    followed: HashMap<u32, u32>,
    /// The first whole transaction behind the last ones that are gone; 0 if none are.
    gap_end: u32,
}

/// A block of the log with a header.
struct Step {
    kind: Kind,
    sequence: u32,
    /// Blocks that it takes, with the copies behind it. None if they are not whole.
    len: Option<u32>,
}

/// Copies that are read: forged maps could name each of them any number of times.
const MOST_READS: u64 = 1 << 22;

impl History {
    /// The history that a journal has which can't be read: none.
    pub fn unread(error: Error) -> History {
        History { unread: Some(error), ..History::default() }
    }

    /// Reads all of the journal. A file system without one has no history.
    ///
    /// # Errors
    /// Errors of reading; a journal that is damaged beyond its superblock has as much history as can be read.
    pub fn read(fs: &Ext4) -> Result<History> {
        let mut history = History::default();
        let Some(journal) = Journal::open(fs)? else { return Ok(history) };
        let superblock = journal.superblock();
        let mut count = 0;
        let mut steps = BTreeMap::new();
        for at in superblock.first..superblock.end() {
            let bytes = match journal.read(at) {
                Ok(bytes) => bytes,
                Err(error) => {
                    history.unread.get_or_insert(error);
                    continue;
                }
            };
            let Some((kind, sequence)) = journal_block::header(&bytes) else { continue };
            let len = (kind != Kind::Descriptor).then_some(1);
            steps.insert(at, Step { kind, sequence, len });
            if kind != Kind::Descriptor {
                continue;
            }
            let place = Place::of(Structure::JournalBlock).at(Block::new(at.into()));
            if journal.check(Kind::Descriptor, &bytes, place).is_err() {
                continue;
            }
            let Ok(tags) = journal_block::tags(&bytes, superblock, place) else { continue };
            let mut log = at;
            let mut len = Some(1_u32);
            for tag in tags {
                log = superblock.next(log);
                len = len.map(|len| len + 1);
                if !fs.layout().contains(tag.block, 1) || !is_whole(&journal, &tag, log, sequence) {
                    len = None;
                    continue;
                }
                if count == MOST_COPIES {
                    history.left_out += 1;
                    len = None;
                    continue;
                }
                count += 1;
                let offset = fs.layout().offset(journal.physical(log)?);
                let copy = Copy { offset, escaped: tag.escaped };
                history.copies.entry(tag.block).or_default().push((sequence, copy));
            }
            steps.insert(at, Step { kind, sequence, len });
        }
        let bounds = bounds(&steps, superblock);
        history.gap_end = gap_end(bounds.keys().copied());
        history.followed = followed(bounds);
        for copies in history.copies.values_mut() {
            // Stable: of one transaction the copy behind counts.
            copies.sort_by_key(|(sequence, _)| *sequence);
        }
        Ok(history)
    }

    /// True if there are no copies.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// The transactions that have a copy of a block, newest first.
    pub fn transactions(&self, block: Block) -> impl Iterator<Item = u32> {
        self.copies.get(&block).into_iter().flatten().rev().map(|(sequence, _)| *sequence)
    }

    /// The last transaction up to which all are known that follow this one: a block without a copy in them stays as it is.
    pub fn known_until(&self, transaction: u32) -> u32 {
        self.followed.get(&transaction).copied().unwrap_or(transaction)
    }

    /// Whether transactions behind this one are gone, as when later mounts wrote the journal from its beginning again.
    pub fn has_gap_behind(&self, transaction: u32) -> bool {
        is_gap(transaction, self.gap_end)
    }

    /// A block as a transaction left it; `None` if that can't be read, or too much was read already.
    pub fn read_block(&self, fs: &Ext4, block: Block, transaction: u32) -> Option<Vec<u8>> {
        let copy = self.copy(block, transaction)?;
        if self.reads.fetch_add(1, Ordering::Relaxed) >= MOST_READS {
            return None;
        }
        let mut bytes = vec![0; fs.layout().block_len()];
        fs.device().read_at(&mut bytes, copy.offset).ok()?;
        if copy.escaped {
            bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        }
        Some(bytes)
    }

    /// The file system as a transaction left it.
    pub fn as_of(self: &Arc<History>, fs: &Ext4, transaction: u32) -> Ext4 {
        fs.on_device(Arc::new(AsOf {
            inner: Arc::clone(fs.device()),
            history: Arc::clone(self),
            transaction,
            block_size: fs.layout().block_size.into(),
        }))
    }

    fn copy(&self, block: Block, transaction: u32) -> Option<Copy> {
        let copies = self.copies.get(&block)?;
        let behind = copies.partition_point(|(sequence, _)| *sequence <= transaction);
        behind.checked_sub(1).map(|at| copies[at].1)
    }
}

/// Where each transaction that is whole begins and ends.
fn bounds(steps: &BTreeMap<u32, Step>, superblock: &JournalSuperblock) -> BTreeMap<u32, (u32, u32)> {
    let mut bounds: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    // A transaction that goes over the end of the ring is met twice; forged ones could meet without end.
    let mut met: HashMap<u32, u8> = HashMap::new();
    for (start, first) in steps {
        if met.contains_key(start) {
            continue;
        }
        let mut at = *start;
        while let Some(step) = steps.get(&at).filter(|step| step.sequence == first.sequence) {
            let times = met.entry(at).or_default();
            *times += 1;
            let Some(len) = step.len.filter(|_| *times <= 2) else { break };
            let behind = at.saturating_add(len);
            let size = superblock.end() - superblock.first;
            at = if behind >= superblock.end() { behind - size } else { behind };
            if step.kind == Kind::Commit {
                bounds.insert(first.sequence, (*start, at));
                break;
            }
        }
    }
    bounds
}

/// For each transaction that is whole, the last one of those that follow it without a gap.
fn followed(bounds: BTreeMap<u32, (u32, u32)>) -> HashMap<u32, u32> {
    let mut followed = HashMap::new();
    let mut next: Option<(u32, u32)> = None;
    for (sequence, (start, end)) in bounds.into_iter().rev() {
        let is_behind = next == sequence.checked_add(1).map(|number| (number, end));
        let last = if is_behind { followed.get(&(sequence + 1)).copied() } else { None };
        followed.insert(sequence, last.unwrap_or(sequence));
        next = Some((sequence, start));
    }
    followed
}

/// The first transaction behind the last gap in the numbers of those that are whole, in ascending order; 0 without one.
fn gap_end(whole: impl Iterator<Item = u32>) -> u32 {
    let (mut last, mut end) = (None, 0);
    for transaction in whole {
        if last.is_some_and(|last| is_gap(last, transaction)) {
            end = transaction;
        }
        last = Some(transaction);
    }
    end
}

/// Whether transactions are missing between two. A mount leaves one number out.
fn is_gap(one: u32, later: u32) -> bool {
    later.saturating_sub(one) > 2
}

/// Whether a copy is that of its tag: later transactions may have been written over it. Without checksums all that tells is that
/// no copy begins as the journal's own blocks do.
fn is_whole(journal: &Journal, tag: &Tag, log: u32, sequence: u32) -> bool {
    let Ok(bytes) = journal.read(log) else { return false };
    if MAGIC_AT.get(&bytes) == MAGIC {
        return false;
    }
    if !journal.superblock().has_checksums() {
        return true;
    }
    let context = Context { sequence, ..Context::default() };
    let recipe = crate::format::csum::recipe(Subject::JournalData);
    match journal.checksums().compute(recipe, &context, &bytes) {
        Some(sum) if journal.superblock().is_v3() => sum == tag.checksum,
        Some(sum) => sum & 0xffff == tag.checksum,
        None => false,
    }
}

/// A device as a transaction left it.
struct AsOf {
    inner: Arc<dyn BlockDevice>,
    history: Arc<History>,
    transaction: u32,
    block_size: u64,
}

impl BlockDevice for AsOf {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.inner)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)?;
        // It was read, so the end is on the device.
        let end = offset + u64_of(buf.len());
        for block in offset / self.block_size..end.div_ceil(self.block_size) {
            let Some(copy) = self.history.copy(Block::new(block), self.transaction) else { continue };
            let start = block * self.block_size;
            let (from, to) = (start.max(offset), (start + self.block_size).min(end));
            let part = &mut buf[within(from..to, offset)];
            self.inner.read_at(part, copy.offset + (from - start))?;
            if copy.escaped {
                journal_block::unescape(part, from - start);
            }
        }
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        Err(Error::from(std::io::Error::from(std::io::ErrorKind::ReadOnlyFilesystem)))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_missing_are_a_gap() {
        for (whole, end) in
            [(&[][..], 0), (&[7], 0), (&[1, 2, 4, 5], 0), (&[1, 2, 5, 6], 5), (&[1, 9, 10, 20, 22], 20)]
        {
            assert_eq!(gap_end(whole.iter().copied()), end, "{whole:?}");
        }
        assert!(is_gap(17, 20) && !is_gap(18, 20) && !is_gap(25, 20) && !is_gap(7, 0));
    }
}
