//! One transaction: metadata blocks that are changed, with their checksums, until all of them become the image's at
//! once.
//!
//! [`Transaction`] knows blocks, not files. What was changed since [`begin`](Transaction::begin) can be taken back by
//! [`roll_back`](Transaction::roll_back); [`commit`](Transaction::commit) makes everything permanent, through the
//! [`Log`] that the file system has.

mod cache;
mod log;
mod mmp;
pub(crate) mod patch;
pub(crate) mod recovery_file;

use std::sync::Arc;

use casemate_blockdev::{BlockDevice, Change, u64_of, usize_of};
use casemate_primitives::crc32c::Crc32c;

use crate::error::Result;
use crate::format::csum::{Checksums, Context, Subject};
use crate::format::inode::Time;
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, SuperblockMut, primary_place};
use crate::read::fs::{Ext4, OpenOptions};
use crate::read::journal::FastCommits;
use crate::read::primary;
use crate::read::primary::read_superblock;
use crate::units::Block;

pub(crate) use cache::Edit;
pub(crate) use mmp::Mmp;

pub(crate) use log::{Decide, Doubt};

use cache::Cache;
use log::Log;
use patch::{Part, Patcher, Patching};
use recovery_file::{Interrupted, RecoveryFile};

/// Metadata that is kept in memory between transactions, in bytes.
const CACHE_BYTES: usize = 256 << 20;

/// Changed blocks of a file system, on their way to a commit.
pub(crate) struct Transaction {
    cache: Arc<Cache>,
    patcher: Patcher,
    block_size: usize,
    log: Log,
    /// Tells other machines that the file system is in use.
    mmp: Option<Mmp>,
    /// Whether a commit has written something.
    has_committed: bool,
}

/// How transactions are made permanent.
#[derive(Debug, Default)]
pub(crate) struct LogOptions {
    /// The file for transactions of a file system without a journal.
    pub recovery: Option<RecoveryFile>,
    /// Whether blocks are written to their places at once.
    pub is_direct: bool,
    /// How checksums are brought up to date.
    pub patching: Patching,
    /// Whether nothing is written to the journal, as to one that is damaged: the recovery file takes its place.
    pub spare_journal: bool,
}

/// Completes a change that is kept in the recovery file.
pub(crate) fn complete(
    device: &Arc<dyn BlockDevice>,
    options: &OpenOptions,
    recovery: Option<&RecoveryFile>,
) -> Result<Interrupted> {
    let crc = Crc32c::new(options.providers.cpu());
    primary::mend(&**device, crc)?;
    recovery.map_or(Ok(Interrupted::Nothing), |file| file.replay(&**device, crc))
}

/// Completes a change of the file system on `device` that was interrupted: the one in the recovery file, or those in
/// the journal. `fold_in` makes fast commits a transaction; `decide` decides on what could be lost.
pub(crate) fn recover(
    device: &Arc<dyn BlockDevice>,
    options: &OpenOptions,
    recovery: Option<&RecoveryFile>,
    decide: &mut Decide<'_>,
    fold_in: impl FnOnce(&FastCommits) -> Result<()>,
) -> Result<Interrupted> {
    let interrupted = complete(device, options, recovery)?;
    let Some(fast_commits) = log::replay(device, options, decide)? else { return Ok(interrupted) };
    if !fast_commits.is_empty() {
        fold_in(&fast_commits)?;
    }
    Ok(Interrupted::Completed)
}

impl Transaction {
    /// The file system on `device`, which needs no recovery, as it is with all changes so far; and what changes it.
    ///
    /// # Errors
    /// `Unsupported` without a journal where the options name no other way.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
        log: LogOptions,
        mmp: Option<Mmp>,
    ) -> Result<(Ext4, Transaction)> {
        let (fs, mut transaction) = Transaction::on_top(device, options, log)?;
        transaction.log.clear(&**transaction.cache.device())?;
        Ok((fs, Transaction { mmp, ..transaction }))
    }

    /// Opens a transaction on top of the fast commits behind the journal's last one: these stay until the commit.
    pub fn on_top(
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
        log: LogOptions,
    ) -> Result<(Ext4, Transaction)> {
        let block_size = read_superblock(&*device, SUPERBLOCK_OFFSET)?.block_size;
        let cache = Arc::new(Cache::new(device, block_size));
        let fs = Ext4::open_changing(cache.clone(), options)?;
        let patcher = Patcher { sums: *fs.checksums(), patching: log.patching };
        let log =
            if log.is_direct { Log::direct(&fs) } else { Log::open(&fs, log.recovery, log.spare_journal)? };
        let block_size = usize_of(block_size);
        let transaction = Transaction { cache, patcher, block_size, log, mmp: None, has_committed: false };
        Ok((fs, transaction))
    }

    /// Begins a step: what came before is not taken back with it.
    pub fn begin(&mut self) {
        self.cache.keep();
    }

    /// Takes back everything since [`begin`](Transaction::begin).
    pub fn roll_back(&mut self) {
        self.cache.roll_back();
    }

    /// Makes all changes permanent.
    ///
    /// # Errors
    /// Errors of the device. The state on the device is then the one before or the one after, once the file system was
    /// opened again. What could not be written may be committed again; after a flush that failed nothing can.
    pub fn commit(&mut self, now: Time) -> Result<()> {
        let Transaction { cache, log, mmp, has_committed, .. } = self;
        log.check_known()?;
        let below = cache.device();
        let has_written = *has_committed || cache.has_contents();
        cache.with_dirty(|dirty| {
            // Also where nothing is new: the device may have gone, and with it what was committed before.
            if dirty.is_empty() {
                return if has_written { below.flush() } else { Ok(()) };
            }
            *has_committed = true;
            let _change = Change::begin();
            if let Some(mmp) = mmp {
                mmp.check()?;
            }
            log.commit(&**below, dirty, now)
        })??;
        // Not before all went well: whoever asks next is told of what went wrong, too.
        self.cache.contents_are_flushed();
        self.cache.keep();
        self.cache.clean(CACHE_BYTES / self.block_size);
        Ok(())
    }

    /// Sends commits through a recovery file from now on, whether or not the file system has a journal.
    ///
    /// # Errors
    /// `Unsupported` without such a file.
    pub fn leave_journal(&mut self, file: Option<RecoveryFile>) -> Result<()> {
        self.log.leave_journal(file)
    }

    /// Whether commits go through the journal, and write its superblock.
    pub fn writes_journal(&self) -> bool {
        self.log.is_journal()
    }

    /// Refuses to change anything where a commit failed that may count.
    pub fn check(&self) -> Result<()> {
        self.log.check()
    }

    /// Refuses to commit where nobody knows what the last commit did.
    pub fn check_known(&self) -> Result<()> {
        self.log.check_known()
    }

    /// Whether a commit failed that the same blocks complete. Nothing is changed before that.
    pub fn is_logged(&self) -> bool {
        self.log.is_logged()
    }

    /// Breaks off: nothing is committed any more, because the basis of the changes is missing.
    pub fn break_off(&mut self) {
        self.log.break_off();
    }

    /// Whether anything was changed.
    pub fn is_changed(&self) -> bool {
        self.cache.dirty_count() > 0
    }

    /// Whether a commit has anything to write or to flush.
    pub fn is_pending(&self) -> bool {
        self.is_changed() || self.cache.has_contents()
    }

    /// True if it is time for a commit: the changes fill a good part of the log, or its contents are to be completed.
    pub fn is_large(&self) -> bool {
        self.is_logged() || self.cache.dirty_count() >= self.log.comfortable()
    }

    /// Whether only the end of an operation has room.
    pub fn is_full(&self) -> bool {
        self.cache.dirty_count() >= self.log.most()
    }

    /// The patcher, which computes checksums and brings them up to date.
    pub fn patcher(&self) -> &Patcher {
        &self.patcher
    }

    /// The checksums of the file system.
    pub fn sums(&self) -> &Checksums {
        &self.patcher.sums
    }

    /// The device below, which has nothing that is not committed.
    pub fn below(&self) -> &Arc<dyn BlockDevice> {
        self.cache.device()
    }

    /// Calls `f` with a block's bytes; keeps the block.
    pub fn with<T>(&self, block: Block, f: impl FnOnce(&[u8]) -> T) -> Result<T> {
        self.cache.with(block, f)
    }

    /// Calls `f` with a block's bytes if it is in memory.
    pub fn held<T>(&self, block: Block, f: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.cache.held(block, f)
    }

    /// Whether a block is in memory.
    pub fn holds(&self, block: Block) -> bool {
        self.cache.holds(block)
    }

    /// Fills a buffer from byte `offset` on, with all changes.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.cache.read_at(buf, offset)
    }

    /// Changes a block, which is read first if it is not in memory.
    pub fn update<T>(&mut self, block: Block, f: impl FnOnce(&mut Edit<'_>) -> T) -> Result<T> {
        self.cache.update(block, f)
    }

    /// Puts a whole new block in place of whatever was there.
    pub fn create(&mut self, block: Block, bytes: Vec<u8>) {
        self.cache.create(block, bytes.into());
    }

    /// Creates a block of zeros.
    pub fn create_zeroed(&mut self, block: Block) {
        self.create(block, vec![0; self.block_size]);
    }

    /// Drops blocks that are freed: whatever was changed in them need not be written.
    pub fn forget(&mut self, first: Block, len: u64) {
        self.cache.forget(first, len);
    }

    /// Writes file contents from a block on, past the blocks that are kept here; before the commit at the latest.
    pub fn write_data(&mut self, block: Block, bytes: &[u8]) -> Result<()> {
        self.cache.write_data(block.offset(u64_of(self.block_size)), bytes)
    }

    /// Writes file contents in place of others: to blocks that may be kept here because a cut changed them.
    pub fn overwrite(&mut self, block: Block, bytes: &[u8]) -> Result<()> {
        self.cache.overwrite(block.offset(u64_of(self.block_size)), bytes)
    }

    /// A whole block as one structure.
    pub fn whole(&self, subject: Subject, context: Context) -> Part {
        Part { subject, context, base: 0, len: self.block_size }
    }

    /// Changes bytes of a block that is one structure, and patches its checksum.
    pub fn patch(
        &mut self,
        subject: Subject,
        context: Context,
        block: Block,
        at: usize,
        new: &[u8],
    ) -> Result<()> {
        let part = self.whole(subject, context);
        self.cache.update(block, |edit| self.patcher.patch(edit, &part, at, new))
    }

    /// Replaces a structure inside a block, writing what differs, and patches its checksum.
    pub fn rewrite(&mut self, block: Block, part: &Part, new: &mut [u8]) -> Result<()> {
        self.cache.update(block, |edit| self.patcher.rewrite(edit, part, new))
    }

    /// Puts a structure that is new into a block, with its checksum.
    pub fn insert(&mut self, block: Block, part: &Part, mut new: Vec<u8>) -> Result<()> {
        self.patcher.seal(&Part { base: 0, ..*part }, &mut new);
        self.cache.update(block, |edit| edit.write(part.base, &new))
    }

    /// Puts a new block that is one structure in place, with its checksum.
    pub fn create_structure(&mut self, subject: Subject, context: Context, block: Block, mut bytes: Vec<u8>) {
        self.patcher.seal(&self.whole(subject, context), &mut bytes);
        self.create(block, bytes);
    }

    /// Changes fields of the superblock.
    pub fn edit_superblock(&mut self, f: impl FnOnce(&mut SuperblockMut<'_>) -> Result<()>) -> Result<()> {
        let (block, range) = primary_place(self.block_size);
        let base = range.start;
        let mut raw = self.cache.with(block, |bytes| bytes[range].to_vec())?;
        f(&mut SuperblockMut { raw: &mut raw })?;
        let context = Context::default();
        let part = Part { subject: Subject::Superblock, context, base, len: SUPERBLOCK_SIZE };
        self.cache.update(block, |edit| {
            self.patcher.rewrite(edit, &part, &mut raw);
            // It is part of every transaction, changed or not: what marks the image as being changed goes with it.
            edit.write(base, &[]);
        })
    }

    /// How many blocks were looked at, again and again: it tells how work grows.
    #[cfg(test)]
    pub fn looks(&self) -> u64 {
        self.cache.looks.load(std::sync::atomic::Ordering::Relaxed)
    }
}
