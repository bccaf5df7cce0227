//! Transactions made permanent: through the journal of the file system, through a file beside it, or in place.
//!
//! Between commits the log is empty. A commit writes the transaction to the log, makes it valid (one write of
//! the journal's superblock, or one rename), writes the blocks to their places, and empties the log. So there
//! is never more than one transaction, and nothing to revoke.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, check_process, u64_of, usize_of};

use crate::error::{Corrupt, Error, Place, Result, Structure, again};
use crate::format::csum::{Checksums, Context, Subject, recipe};
use crate::format::features::Incompat;
use crate::format::inode::Time;
use crate::format::journal_block::{self, Tag};
use crate::format::journal_superblock::{self, JOURNAL_SUPERBLOCK_SIZE, JournalSuperblock, MAGIC, MAGIC_AT};
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, SuperblockMut, primary_place};
use crate::read::fs::{Ext4, OpenOptions};
use crate::read::journal::{self, FastCommits, Journal, Overlay};
use crate::read::primary::read_superblock;
use crate::transaction::cache::Blocks;
use crate::transaction::recovery_file::RecoveryFile;
use crate::units::Block;

/// Bytes that are written at once.
const CHUNK: usize = 4 << 20;

/// Dirty metadata that is collected before a commit, in bytes, where the log would hold more.
const COMFORTABLE: usize = 32 << 20;

/// Where transactions go.
#[derive(Debug)]
pub(crate) struct Log {
    checksums: Checksums,
    block_size: usize,
    uuid: [u8; 16],
    kind: Kind,
    failed: Option<Failed>,
    /// The process that made the log; a fork makes no second writer.
    process: u32,
}

/// How far a commit came that failed. One of which nothing is in the log that counts is as if it had not begun.
#[derive(Debug)]
enum Failed {
    /// The log holds all of it. The same blocks are committed once more before anything else is changed.
    Logged(Error),
    /// The commit's outcome is unknown: the next program that opens the file system finds it. With the error of the device, if
    /// it was one.
    Unknown(Option<Error>),
}

#[derive(Debug)]
enum Kind {
    Journal(Box<InJournal>),
    File(Box<RecoveryFile>),
    /// Nothing: blocks are written to their places at once.
    Direct,
}

#[derive(Debug)]
struct InJournal {
    journal: Journal,
    /// The first block of the journal.
    raw: Vec<u8>,
    superblock: JournalSuperblock,
    sequence: u32,
}

impl Log {
    /// The log of a file system that needs no recovery. With `spare_journal` it is never the journal.
    pub fn open(fs: &Ext4, file: Option<RecoveryFile>, spare_journal: bool) -> Result<Log> {
        let journal = if spare_journal { None } else { Journal::open(fs)? };
        let kind = match journal {
            Some(journal) => Kind::Journal(Box::new(InJournal::new(fs, journal)?)),
            None => in_file(file)?,
        };
        Ok(Log::new(fs, kind))
    }

    /// Whether commits go through the journal.
    pub fn is_journal(&self) -> bool {
        matches!(self.kind, Kind::Journal(_))
    }

    /// Goes on in a recovery file, if this is a journal.
    pub fn leave_journal(&mut self, file: Option<RecoveryFile>) -> Result<()> {
        if let Kind::Journal(_) = &self.kind {
            self.kind = in_file(file)?;
        }
        Ok(())
    }

    /// The log of a file system that is thrown away if a commit fails, as one is that is only being made.
    pub fn direct(fs: &Ext4) -> Log {
        Log::new(fs, Kind::Direct)
    }

    fn new(fs: &Ext4, kind: Kind) -> Log {
        Log {
            checksums: *fs.checksums(),
            block_size: fs.layout().block_len(),
            uuid: fs.superblock().uuid,
            kind,
            failed: None,
            process: std::process::id(),
        }
    }

    /// How many dirty blocks are a good time for a commit.
    pub fn comfortable(&self) -> usize {
        let most = COMFORTABLE / self.block_size;
        match &self.kind {
            Kind::Journal(log) => most.min(log.capacity() / 2),
            Kind::File(_) | Kind::Direct => most,
        }
    }

    /// How many dirty blocks leave room for what is to be done at the end of an operation. A file has room for any.
    pub fn most(&self) -> usize {
        match &self.kind {
            Kind::Journal(log) => log.capacity() / 4 * 3,
            Kind::File(_) | Kind::Direct => usize::MAX,
        }
    }

    /// Refuses to change anything where a commit failed that may count: more would be mixed with it.
    pub fn check(&self) -> Result<()> {
        match &self.failed {
            Some(Failed::Logged(error)) => {
                let text = |error: &str| format!("an earlier change is not in its place yet: {error}");
                Err(again(error).map_text(text))
            }
            _ => self.check_known(),
        }
    }

    /// Refuses to commit where nobody knows what the last commit did, and in a process that got the log by a fork.
    pub fn check_known(&self) -> Result<()> {
        check_process(self.process)?;
        let Some(Failed::Unknown(cause)) = &self.failed else { return Ok(()) };
        let (what, help) = (
            "an earlier change could not be made permanent",
            "open the file system again to complete it or to drop it",
        );
        match cause {
            Some(cause) => Err(again(cause).map_text(|why| format!("{what}; {help}: {why}"))),
            None => Err(io::Error::other(format!("{what}; {help}")).into()),
        }
    }

    /// Whether a commit failed that the same blocks complete.
    pub fn is_logged(&self) -> bool {
        matches!(self.failed, Some(Failed::Logged(_)))
    }

    /// Breaks off: nothing is committed any more.
    pub fn break_off(&mut self) {
        self.failed = Some(Failed::Unknown(None));
    }

    /// Empties a log that the file system's superblock says need not be replayed, and that is not empty: what lies
    /// there was written in place already. No transaction that it can hold has a number as high as those to come.
    pub fn clear(&mut self, device: &dyn BlockDevice) -> Result<()> {
        let Kind::Journal(log) = &mut self.kind else { return Ok(()) };
        if log.superblock.start == 0 {
            return Ok(());
        }
        let blocks = log.superblock.end() - log.superblock.first;
        log.sequence = log.sequence.wrapping_add(blocks).wrapping_add(1);
        log.write_superblock(device, log.sequence, 0)?;
        device.flush()
    }

    /// Makes a transaction the state of the file system. If that fails because something can't be written, the same
    /// transaction can be committed again; [`check`](Log::check) says whether it may have grown meanwhile. After a flush
    /// that failed nothing is known, and nothing is written any more.
    pub fn commit(&mut self, device: &dyn BlockDevice, mut blocks: Blocks<'_>, now: Time) -> Result<()> {
        self.check_known()?;
        self.require_room(blocks.len())?;
        if matches!(self.kind, Kind::Journal(_)) {
            self.set_recover(&mut blocks);
        }
        if !self.is_logged() {
            self.store(device, &blocks, now)?;
        }
        match self.place(device, &blocks) {
            Ok(()) => {
                self.failed = None;
                Ok(())
            }
            Err(error) => {
                let is_known = self.check_known().is_ok();
                if is_known {
                    self.failed = Some(Failed::Logged(again(&error)));
                }
                Err(error)
            }
        }
    }

    /// Flushes a device. After that has failed nobody can tell what it holds.
    fn flush(&mut self, device: &dyn BlockDevice) -> Result<()> {
        device.flush().inspect_err(|error| self.failed = Some(Failed::Unknown(Some(again(error)))))
    }

    fn require_room(&self, need: usize) -> Result<()> {
        match &self.kind {
            Kind::Journal(log) if need > log.capacity() => {
                let have = log.capacity();
                let text = format!("a change of {need} blocks, and the journal has room for {have}");
                Err(Error::unsupported(text))
            }
            _ => Ok(()),
        }
    }

    /// Puts a transaction into the log. What of it counts if that fails is replaced when it is put there again.
    fn store(&mut self, device: &dyn BlockDevice, blocks: &Blocks<'_>, now: Time) -> Result<()> {
        match &self.kind {
            Kind::Journal(log) => {
                self.mark(device, |mut superblock| superblock.set_needs_recovery(true))?;
                log.write_transaction(device, blocks, now)?;
                self.flush(device)
            }
            Kind::File(file) => {
                let file = file.clone();
                // What the blocks are as they lie there now, so will they be found after a loss of power.
                self.flush(device)?;
                self.store_in(&file, device, blocks)?;
                // From here on the file counts, until the transaction's own superblock says that it is clean.
                self.mark(device, |mut superblock| superblock.set_clean(false))?;
                self.flush(device)
            }
            Kind::Direct => Ok(()),
        }
    }

    fn store_in(&self, file: &RecoveryFile, device: &dyn BlockDevice, blocks: &Blocks<'_>) -> Result<()> {
        let size = u64_of(self.block_size);
        let (superblock, range) = primary_place(self.block_size);
        file.store(self.checksums.crc32c(), &self.uuid, self.block_size, blocks, |block| {
            let mut bytes = vec![0; self.block_size];
            device.read_at(&mut bytes, block.offset(size))?;
            if block == superblock {
                let raw = &mut bytes[range.clone()];
                SuperblockMut { raw }.set_clean(false);
                self.seal_superblock(raw);
            }
            Ok(bytes)
        })
    }

    /// Makes a transaction valid that the journal holds, writes its blocks to their places, and empties the log. Each
    /// step may be done again with the same blocks.
    fn place(&mut self, device: &dyn BlockDevice, blocks: &Blocks<'_>) -> Result<()> {
        let size = self.block_size;
        match &self.kind {
            Kind::Journal(log) => {
                let (sequence, first) = (log.sequence, log.superblock.first);
                self.write_journal_superblock(device, sequence, first)?;
                self.flush(device)?;
                write_blocks(device, size, blocks.iter())?;
                self.flush(device)?;
                let next = sequence.wrapping_add(1);
                self.write_journal_superblock(device, next, 0)?;
                // A log with something in it, and nothing that says that it must be replayed, is what others complain of.
                self.flush(device)?;
                self.mark(device, |mut superblock| superblock.set_needs_recovery(false))?;
                self.flush(device)?;
                if let Kind::Journal(log) = &mut self.kind {
                    log.sequence = next;
                }
                Ok(())
            }
            Kind::File(file) => {
                let (file, (superblock, _)) = (file.clone(), primary_place(size));
                write_blocks(device, size, blocks.iter().filter(|(block, _)| **block != superblock))?;
                self.flush(device)?;
                write_blocks(device, size, blocks.get_key_value(&superblock).into_iter())?;
                self.flush(device)?;
                file.remove()
            }
            Kind::Direct => {
                write_blocks(device, size, blocks.iter())
                    .inspect_err(|error| self.failed = Some(Failed::Unknown(Some(again(error)))))?;
                self.flush(device)
            }
        }
    }

    fn write_journal_superblock(
        &mut self,
        device: &dyn BlockDevice,
        sequence: u32,
        start: u32,
    ) -> Result<()> {
        match &mut self.kind {
            Kind::Journal(log) => log.write_superblock(device, sequence, start),
            Kind::File(_) | Kind::Direct => Ok(()),
        }
    }

    /// Sets the flag "journal must be replayed" in the transaction's superblock, for while the transaction is written.
    fn set_recover(&self, blocks: &mut Blocks<'_>) {
        let (superblock, range) = primary_place(self.block_size);
        if let Some(block) = blocks.get_mut(&superblock) {
            let raw = &mut block.to_mut()[range];
            SuperblockMut { raw }.set_needs_recovery(true);
            self.seal_superblock(raw);
        }
    }

    /// Changes what the superblock on the device says of the file system's state.
    fn mark(&self, device: &dyn BlockDevice, f: impl FnOnce(SuperblockMut<'_>)) -> Result<()> {
        mark(&self.checksums, device, f)
    }

    fn seal_superblock(&self, raw: &mut [u8]) {
        seal_superblock(&self.checksums, raw);
    }
}

impl InJournal {
    fn new(fs: &Ext4, journal: Journal) -> Result<InJournal> {
        let (_, mut raw) = Journal::locate(fs)?.ok_or_else(|| Error::unsupported("no journal"))?;
        let is_64bit = fs.superblock().incompat.has(Incompat::BITS64);
        journal_superblock::set_features(&mut raw, fs.superblock().has_metadata_csum(), is_64bit);
        let superblock = JournalSuperblock::from_bytes(&raw)?;
        if fs.layout().blocks >> 32 != 0 && !superblock.is_64bit() {
            return Err(Error::unsupported("a journal of 32 bits in a file system of 64"));
        }
        Ok(InJournal { journal, sequence: superblock.sequence, raw, superblock })
    }

    /// Blocks that a transaction may have.
    fn capacity(&self) -> usize {
        let log = usize_of(self.superblock.end() - self.superblock.first);
        log.saturating_sub(1 + log.div_ceil(self.tags_per_block() + 1))
    }

    fn tags_per_block(&self) -> usize {
        journal_block::tags_per_block(self.raw.len(), &self.superblock)
    }

    fn write_transaction(&self, device: &dyn BlockDevice, blocks: &Blocks<'_>, now: Time) -> Result<()> {
        let mut out = Writeout { device, size: u64_of(self.raw.len()), bytes: Vec::new(), at: 0 };
        let mut at = self.superblock.first;
        let all: Vec<(&Block, &Cow<'_, [u8]>)> = blocks.iter().collect();
        for part in all.chunks(self.tags_per_block()) {
            let copies: Vec<_> = part.iter().map(|(number, block)| LogCopy::new(**number, block)).collect();
            out.put(self.journal.physical(at)?, &self.descriptor(&copies))?;
            at += 1;
            for copy in &copies {
                out.put(self.journal.physical(at)?, &copy.bytes)?;
                at += 1;
            }
        }
        out.put(self.journal.physical(at)?, &self.commit_block(now))?;
        out.flush()
    }

    fn descriptor(&self, copies: &[LogCopy<'_>]) -> Vec<u8> {
        let sums = self.journal.checksums();
        let context = Context { sequence: self.sequence, ..Context::default() };
        let tag = |copy: &LogCopy<'_>| {
            let checksum = match self.superblock.has_checksums() {
                true => sums.compute(recipe(Subject::JournalData), &context, &copy.bytes).unwrap_or(0),
                false => 0,
            };
            Tag { block: copy.number, escaped: copy.escaped, checksum }
        };
        let tags: Vec<Tag> = copies.iter().map(tag).collect();
        let mut block =
            journal_block::descriptor_bytes(self.raw.len(), self.sequence, &tags, &self.superblock);
        self.seal(Subject::JournalList, &mut block);
        block
    }

    fn commit_block(&self, now: Time) -> Vec<u8> {
        let size = self.raw.len();
        let mut block = journal_block::commit_bytes(size, self.sequence, now.seconds, now.nanoseconds);
        self.seal(Subject::JournalCommit, &mut block);
        block
    }

    fn seal(&self, subject: Subject, block: &mut [u8]) {
        if self.superblock.has_checksums() {
            self.journal.checksums().store(recipe(subject), &Context::default(), block);
        }
    }

    /// Sets the log's beginning to `start` with the transaction `sequence`, or empties the log if `start` is 0.
    fn write_superblock(&mut self, device: &dyn BlockDevice, sequence: u32, start: u32) -> Result<()> {
        journal_superblock::set_log(&mut self.raw, sequence, start);
        if self.superblock.has_checksums() {
            let (subject, context) = (Subject::JournalSuperblock, Context::default());
            self.journal.checksums().store(
                recipe(subject),
                &context,
                &mut self.raw[..JOURNAL_SUPERBLOCK_SIZE],
            );
        }
        let offset = self.journal.physical(0)?.offset(u64_of(self.raw.len()));
        device.write_at(&self.raw[..JOURNAL_SUPERBLOCK_SIZE], offset)
    }
}

fn in_file(file: Option<RecoveryFile>) -> Result<Kind> {
    let text = "file systems without a journal can't be changed without a recovery file";
    file.map(Box::new).map(Kind::File).ok_or_else(|| Error::unsupported(text.to_owned()))
}

/// Changes what the superblock on a device says of the file system's state.
fn mark(sums: &Checksums, device: &dyn BlockDevice, f: impl FnOnce(SuperblockMut<'_>)) -> Result<()> {
    let mut raw = [0; SUPERBLOCK_SIZE];
    device.read_at(&mut raw, SUPERBLOCK_OFFSET)?;
    f(SuperblockMut { raw: &mut raw });
    seal_superblock(sums, &mut raw);
    device.write_at(&raw, SUPERBLOCK_OFFSET)
}

fn seal_superblock(sums: &Checksums, raw: &mut [u8]) {
    if sums.covers(Subject::Superblock) {
        sums.store(recipe(Subject::Superblock), &Context::default(), raw);
    }
}

/// Doubt whether a log may be replayed, or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// It holds transactions, and the superblock does not say that they must be replayed.
    Untold,
    /// It must be replayed, and something that is needed for that is damaged.
    Damaged,
}

/// Decision on a doubt: an error, or to go on and lose what is damaged.
pub(crate) type Decide<'a> = dyn FnMut(Doubt, Error) -> Result<()> + 'a;

/// Writes a journal that must be replayed to where its blocks belong, and empties it. `None` if there was none. If fast
/// commits are left, which no block can be written from, the journal goes on to say that they must be replayed, until
/// the next transaction takes their place: nothing may be committed before that is made of them. Transactions are dropped only
/// by decision.
pub(super) fn replay(
    device: &Arc<dyn BlockDevice>,
    options: &OpenOptions,
    decide: &mut Decide<'_>,
) -> Result<Option<FastCommits>> {
    let superblock = read_superblock(&**device, SUPERBLOCK_OFFSET)?;
    if !superblock.needs_recovery() {
        // Other damage makes the journal no emptier.
        let plain = OpenOptions { verify_checksums: false, ..options.clone() };
        let fs = Ext4::with_superblock(device.clone(), superblock, &plain)?;
        if !journal::is_untold(&fs)? {
            return Ok(None);
        }
        let text = "the journal holds transactions that must be replayed, and the superblock does not say so: \
                    repair all damage, which replays them";
        decide(Doubt::Untold, Place::of(Structure::Superblock).malformed(text))?;
        fs.superblock().ro_compat.check_writable()?;
        mark(fs.checksums(), &**device, |mut superblock| superblock.set_needs_recovery(true))?;
        device.flush()?;
    }
    match replay_whole(device, options) {
        Err(error) if Corrupt::of(&error).is_some() => {
            decide(Doubt::Damaged, error)?;
            replay_remains(device, options)?;
            Ok(Some(FastCommits::default()))
        }
        done => done.map(Some),
    }
}

/// Writes what is sound of a damaged journal to where its blocks belong, and empties the journal.
fn replay_remains(device: &Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<()> {
    let plain = OpenOptions { verify_checksums: false, ..options.clone() };
    let superblock = read_superblock(&**device, SUPERBLOCK_OFFSET)?;
    superblock.ro_compat.check_writable()?;
    let fs = Ext4::with_superblock(device.clone(), superblock, &plain)?;
    if let Some(journal) = Journal::salvage(&fs).filter(|journal| journal.superblock().start != 0) {
        match journal::remains(&journal) {
            Ok(overlay) => write_overlay(device, &overlay, fs.layout().block_len())?,
            Err(error) if Corrupt::of(&error).is_some() => {}
            Err(error) => return Err(error),
        }
        let raw = journal_superblock::as_it_was(&fs.read_block(journal.physical(0)?)?);
        let superblock = journal.superblock().clone();
        // No transaction that it can hold has a number as high as those to come.
        let next = superblock.sequence.wrapping_add(superblock.end() - superblock.first).wrapping_add(1);
        InJournal { journal, sequence: next, raw, superblock }.write_superblock(&**device, next, 0)?;
        device.flush()?;
    }
    // The journal may have held a newer superblock.
    let superblock = read_superblock(&**device, SUPERBLOCK_OFFSET)?;
    let fs = Ext4::with_superblock(device.clone(), superblock, &plain)?;
    mark(fs.checksums(), &**device, |mut superblock| superblock.set_needs_recovery(false))?;
    device.flush()
}

fn write_overlay(device: &Arc<dyn BlockDevice>, overlay: &Overlay, size: usize) -> Result<()> {
    let mut block = vec![0; size];
    for number in overlay.blocks() {
        let offset = number.offset(u64_of(size));
        overlay.read_at(&mut block, offset)?;
        device.write_at(&block, offset)?;
    }
    device.flush()
}

fn replay_whole(device: &Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<FastCommits> {
    let superblock = read_superblock(&**device, SUPERBLOCK_OFFSET)?;
    superblock.ro_compat.check_writable()?;
    let fs = Ext4::with_superblock(device.clone(), superblock, options)?;
    let mut next = None;
    let mut fast_commits = FastCommits::default();
    if let Some(found) = journal::recover(&fs, fs.superblock().needs_recovery())? {
        found.recovery.require_whole()?;
        write_overlay(device, &found.overlay, fs.layout().block_len())?;
        next = Some(found.recovery.next_sequence);
        fast_commits = found.fast_commits;
    }
    // The journal may have held a newer superblock.
    let superblock = read_superblock(&**device, SUPERBLOCK_OFFSET)?;
    let fs = Ext4::with_superblock(device.clone(), superblock, options)?;
    let mut log = Log::open(&fs, None, false)?;
    if let Kind::Journal(log) = &mut log.kind {
        // Fast commits count as long as the log is not called empty, and no transaction has their number.
        let (after, start) = if fast_commits.is_empty() { (1, 0) } else { (0, log.superblock.first) };
        log.sequence = next.map_or(log.sequence, |next| next.wrapping_add(after));
        log.write_superblock(&**device, log.sequence, start)?;
    }
    device.flush()?;
    log.mark(&**device, |mut superblock| superblock.set_needs_recovery(!fast_commits.is_empty()))?;
    device.flush()?;
    Ok(fast_commits)
}

/// A block as the log holds it: without the magic number that the log's own blocks begin with.
struct LogCopy<'a> {
    number: Block,
    bytes: Cow<'a, [u8]>,
    escaped: bool,
}

impl<'a> LogCopy<'a> {
    fn new(number: Block, block: &'a [u8]) -> LogCopy<'a> {
        let mut bytes = Cow::Borrowed(block);
        let escaped = MAGIC_AT.get(block) == MAGIC;
        if escaped {
            MAGIC_AT.set(bytes.to_mut(), 0);
        }
        LogCopy { number, bytes, escaped }
    }
}

fn write_blocks<'a>(
    device: &dyn BlockDevice,
    size: usize,
    blocks: impl Iterator<Item = (&'a Block, &'a Cow<'a, [u8]>)>,
) -> Result<()> {
    let mut out = Writeout { device, size: u64_of(size), bytes: Vec::new(), at: 0 };
    for (number, block) in blocks {
        out.put(*number, block)?;
    }
    out.flush()
}

/// Joins blocks that follow each other to larger writes.
struct Writeout<'a> {
    device: &'a dyn BlockDevice,
    size: u64,
    bytes: Vec<u8>,
    at: u64,
}

impl Writeout<'_> {
    fn put(&mut self, block: Block, bytes: &[u8]) -> Result<()> {
        let offset = block.offset(self.size);
        if self.at + u64_of(self.bytes.len()) != offset || self.bytes.len() >= CHUNK {
            self.flush()?;
            self.at = offset;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.bytes.is_empty() {
            self.device.write_at(&self.bytes, self.at)?;
            self.at += u64_of(self.bytes.len());
            self.bytes.clear();
        }
        Ok(())
    }
}
