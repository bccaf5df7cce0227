//! Transactions made permanent: through the journal of the file system, through a file beside it, or in place.
//!
//! Between commits the log is empty. A commit writes the transaction to the log, makes it valid (one write of
//! the journal's superblock, or one rename), writes the blocks to their places, and empties the log. So there
//! is never more than one transaction, and nothing to revoke.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use casemate_blockdev::BlockDevice;

use crate::error::{Error, Result};
use crate::format::bytes::{be32, le32};
use crate::format::csum::{Checksums, Context, Subject, recipe};
use crate::format::features::Incompat;
use crate::format::inode::Time;
use crate::format::journal_superblock::{ASYNC_COMMIT, CHECKSUM_V1, JournalSuperblock, MAGIC};
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use crate::read::fs::{Ext4, OpenOptions, read_superblock};
use crate::read::journal::{self, Journal};
use crate::transaction::cache::Blocks;
use crate::transaction::recovery_file::RecoveryFile;

/// Bytes that are written at once.
const CHUNK: usize = 4 << 20;

/// Dirty metadata that is collected before a commit, in bytes, where the log would hold more.
const COMFORTABLE: usize = 32 << 20;

/// Tags say so of copies whose first four bytes were zeroed, that no UUID follows, and that they are the last.
const ESCAPED: u32 = 1;
const SAME_UUID: u32 = 2;
const LAST: u32 = 8;

/// Where transactions go.
#[derive(Debug)]
pub(crate) struct Log {
    checksums: Checksums,
    block_size: usize,
    uuid: [u8; 16],
    kind: Kind,
    /// A commit failed: whether it counts, only whoever opens the file system next can tell.
    is_broken: bool,
}

#[derive(Debug)]
enum Kind {
    Journal(Box<InJournal>),
    File(RecoveryFile),
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
    /// The log of a file system that needs no recovery.
    pub fn open(fs: &Ext4, file: Option<RecoveryFile>) -> Result<Log> {
        let kind = match Journal::open(fs)? {
            Some(journal) => Kind::Journal(Box::new(InJournal::new(fs, journal)?)),
            None => match file {
                Some(file) => Kind::File(file),
                None => {
                    let text = "file systems without a journal can't be changed without a recovery file";
                    return Err(Error::unsupported(text.to_owned()));
                }
            },
        };
        Ok(Log::new(fs, kind))
    }

    /// The log of a file system that is thrown away if a commit fails, as one is that is only being made.
    pub fn direct(fs: &Ext4) -> Log {
        Log::new(fs, Kind::Direct)
    }

    fn new(fs: &Ext4, kind: Kind) -> Log {
        Log {
            checksums: *fs.checksums(),
            block_size: fs.layout().block_size as usize,
            uuid: fs.superblock().uuid,
            kind,
            is_broken: false,
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

    /// Refuses to go on where a commit failed. What it has written may count, and more would be mixed with it.
    pub fn check(&self) -> Result<()> {
        if !self.is_broken {
            return Ok(());
        }
        let text = "an earlier change could not be made permanent; open the file system again to complete it or to drop it";
        Err(io::Error::other(text).into())
    }

    /// Lets nothing be committed any more.
    pub fn break_off(&mut self) {
        self.is_broken = true;
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
        log.write_superblock(device, 0)?;
        device.flush()
    }

    /// Makes a transaction the state of the file system. After an error there is no other: see [`check`](Log::check).
    pub fn commit(&mut self, device: &dyn BlockDevice, blocks: Blocks<'_>, now: Time) -> Result<()> {
        self.check()?;
        self.require_room(blocks.len())?;
        self.is_broken = true;
        match &self.kind {
            Kind::File(file) => self.commit_to_file(file, device, &blocks)?,
            Kind::Journal(_) => self.commit_to_journal(device, blocks, now)?,
            Kind::Direct => {
                write_blocks(device, self.block_size, blocks.iter())?;
                device.flush()?;
            }
        }
        self.is_broken = false;
        Ok(())
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

    fn commit_to_file(
        &self,
        file: &RecoveryFile,
        device: &dyn BlockDevice,
        blocks: &Blocks<'_>,
    ) -> Result<()> {
        let size = self.block_size as u64;
        let superblock = SUPERBLOCK_OFFSET / size;
        // What the blocks are as they lie there now, so will they be found after a loss of power.
        device.flush()?;
        file.store(self.checksums.crc32c(), &self.uuid, self.block_size, blocks, |block| {
            let mut bytes = vec![0; self.block_size];
            device.read_at(&mut bytes, block * size)?;
            if block == superblock {
                let base = (SUPERBLOCK_OFFSET % size) as usize;
                let raw = &mut bytes[base..base + SUPERBLOCK_SIZE];
                set_unclean(raw);
                self.seal_superblock(raw);
            }
            Ok(bytes)
        })?;
        // From here on the file counts, until the transaction's own superblock says that it is clean.
        self.mark(device, set_unclean)?;
        device.flush()?;
        let rest = blocks.iter().filter(|(block, _)| **block != superblock);
        write_blocks(device, self.block_size, rest)?;
        device.flush()?;
        write_blocks(device, self.block_size, blocks.get_key_value(&superblock).into_iter())?;
        device.flush()?;
        file.remove()
    }

    fn commit_to_journal(
        &mut self,
        device: &dyn BlockDevice,
        mut blocks: Blocks<'_>,
        now: Time,
    ) -> Result<()> {
        self.set_recover(&mut blocks);
        self.mark(device, |raw| raw[0x60] |= Incompat::RECOVER.0 as u8)?;
        let Kind::Journal(log) = &mut self.kind else { return Ok(()) };
        log.write_transaction(device, &blocks, now)?;
        device.flush()?;
        log.write_superblock(device, log.superblock.first)?;
        device.flush()?;
        write_blocks(device, self.block_size, blocks.iter())?;
        device.flush()?;
        log.sequence = log.sequence.wrapping_add(1);
        log.write_superblock(device, 0)?;
        // A log with something in it, and nothing that says that it must be replayed, is what others complain of.
        device.flush()?;
        self.mark(device, |raw| raw[0x60] &= !(Incompat::RECOVER.0 as u8))?;
        device.flush()
    }

    /// Lets the superblock in a transaction say that the journal must be replayed: it does while it is written.
    fn set_recover(&self, blocks: &mut Blocks<'_>) {
        let size = self.block_size as u64;
        let base = (SUPERBLOCK_OFFSET % size) as usize;
        if let Some(block) = blocks.get_mut(&(SUPERBLOCK_OFFSET / size)) {
            let raw = &mut block.to_mut()[base..base + SUPERBLOCK_SIZE];
            raw[0x60] |= Incompat::RECOVER.0 as u8;
            self.seal_superblock(raw);
        }
    }

    /// Changes a byte of the superblock on the device.
    fn mark(&self, device: &dyn BlockDevice, f: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut raw = [0; SUPERBLOCK_SIZE];
        device.read_at(&mut raw, SUPERBLOCK_OFFSET)?;
        f(&mut raw);
        self.seal_superblock(&mut raw);
        device.write_at(&raw, SUPERBLOCK_OFFSET)
    }

    fn seal_superblock(&self, raw: &mut [u8]) {
        if self.checksums.covers(Subject::Superblock) {
            self.checksums.store(recipe(Subject::Superblock), &Context::default(), raw);
        }
    }
}

impl InJournal {
    fn new(fs: &Ext4, journal: Journal) -> Result<InJournal> {
        let (_, mut raw) = Journal::locate(fs)?.ok_or_else(|| Error::unsupported("no journal"))?;
        // A journal that no kernel has used yet gets the features that a kernel would give it.
        let is_fresh = be32(&raw, 4) == 4 && !journal.superblock().has_checksums();
        if is_fresh {
            let mut features = be32(&raw, 0x28);
            if fs.superblock().has_metadata_csum() {
                features = features & !ASYNC_COMMIT | 0x10;
                raw[0x50] = 4;
                // Checksums of version 1 and 3 at once make a journal that nobody accepts.
                let compat = be32(&raw, 0x24) & !CHECKSUM_V1;
                raw[0x24..0x28].copy_from_slice(&compat.to_be_bytes());
            }
            if fs.superblock().incompat.has(Incompat::BITS64) {
                features |= 0x2;
            }
            raw[0x28..0x2c].copy_from_slice(&features.to_be_bytes());
        }
        let superblock = JournalSuperblock::from_bytes(&raw)?;
        if fs.layout().blocks >> 32 != 0 && !superblock.is_64bit() {
            return Err(Error::unsupported("a journal of 32 bits in a file system of 64"));
        }
        Ok(InJournal { journal, sequence: superblock.sequence, raw, superblock })
    }

    /// Blocks that a transaction may have.
    fn capacity(&self) -> usize {
        let log = (self.superblock.end() - self.superblock.first) as usize;
        log.saturating_sub(1 + log.div_ceil(self.tags_per_block() + 1))
    }

    fn tags_per_block(&self) -> usize {
        let tail = if self.superblock.has_checksums() { 4 } else { 0 };
        // Header and the UUID behind the first tag.
        (self.raw.len() - 12 - 16 - tail) / self.superblock.tag_size()
    }

    fn write_transaction(&self, device: &dyn BlockDevice, blocks: &Blocks<'_>, now: Time) -> Result<()> {
        let mut out = Writeout { device, size: self.raw.len() as u64, bytes: Vec::new(), at: 0 };
        let mut at = self.superblock.first;
        let all: Vec<(&u64, &Cow<'_, [u8]>)> = blocks.iter().collect();
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
        let mut block = self.header(1);
        let sums = self.journal.checksums();
        let context = Context { sequence: self.sequence, ..Context::default() };
        let size = self.superblock.tag_size();
        let mut at = 12;
        for (position, copy) in copies.iter().enumerate() {
            let mut flags = if copy.escaped { ESCAPED } else { 0 };
            flags |= if position > 0 { SAME_UUID } else { 0 };
            flags |= if position + 1 == copies.len() { LAST } else { 0 };
            let sum = if self.superblock.has_checksums() {
                sums.compute(recipe(Subject::JournalData), &context, &copy.bytes).unwrap_or(0)
            } else {
                0
            };
            let big = copy.number.to_be_bytes();
            let tag = &mut block[at..at + size];
            tag[..4].copy_from_slice(&big[4..]);
            if self.superblock.is_v3() {
                tag[4..8].copy_from_slice(&flags.to_be_bytes());
                tag[12..16].copy_from_slice(&sum.to_be_bytes());
            } else {
                // OK to truncate: the low half is what version 2 has room for; flags are small.
                tag[4..6].copy_from_slice(&(sum as u16).to_be_bytes());
                tag[6..8].copy_from_slice(&(flags as u16).to_be_bytes());
            }
            if self.superblock.is_64bit() {
                tag[8..12].copy_from_slice(&big[..4]);
            }
            at += size;
            if position == 0 {
                block[at..at + 16].copy_from_slice(&self.superblock.uuid);
                at += 16;
            }
        }
        self.seal(Subject::JournalList, &mut block);
        block
    }

    fn commit_block(&self, now: Time) -> Vec<u8> {
        let mut block = self.header(2);
        block[0x30..0x38].copy_from_slice(&now.seconds.to_be_bytes());
        block[0x38..0x3c].copy_from_slice(&now.nanoseconds.to_be_bytes());
        self.seal(Subject::JournalCommit, &mut block);
        block
    }

    fn header(&self, kind: u32) -> Vec<u8> {
        let mut block = vec![0; self.raw.len()];
        for (at, word) in [(0, MAGIC), (4, kind), (8, self.sequence)] {
            block[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        block
    }

    fn seal(&self, subject: Subject, block: &mut [u8]) {
        if self.superblock.has_checksums() {
            self.journal.checksums().store(recipe(subject), &Context::default(), block);
        }
    }

    /// Lets the log begin at `start`, or be empty if that is 0.
    fn write_superblock(&mut self, device: &dyn BlockDevice, start: u32) -> Result<()> {
        self.raw[0x18..0x1c].copy_from_slice(&self.sequence.to_be_bytes());
        self.raw[0x1c..0x20].copy_from_slice(&start.to_be_bytes());
        if self.superblock.has_checksums() {
            let (subject, context) = (Subject::JournalSuperblock, Context::default());
            self.journal.checksums().store(recipe(subject), &context, &mut self.raw[..1024]);
        }
        let offset = self.journal.physical(0)? * self.raw.len() as u64;
        device.write_at(&self.raw[..1024], offset)
    }
}

/// Writes a journal that must be replayed to where its blocks belong. False if there was none.
pub(super) fn replay(device: &Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<bool> {
    let superblock = read_superblock(&**device, SUPERBLOCK_OFFSET)?;
    if !superblock.needs_recovery() {
        return Ok(false);
    }
    superblock.ro_compat.check_writable()?;
    let fs = Ext4::with_superblock(device.clone(), superblock, options)?;
    let mut next = None;
    if let Some((overlay, recovery)) = journal::recover(&fs)? {
        recovery.require_whole()?;
        let size = fs.layout().block_size as usize;
        let mut block = vec![0; size];
        for number in overlay.blocks() {
            let offset = number * size as u64;
            overlay.read_at(&mut block, offset)?;
            device.write_at(&block, offset)?;
        }
        device.flush()?;
        next = Some(recovery.next_sequence.wrapping_add(1));
    }
    // The journal may have held a newer superblock.
    let superblock = read_superblock(&**device, SUPERBLOCK_OFFSET)?;
    let fs = Ext4::with_superblock(device.clone(), superblock, options)?;
    let mut log = Log::open(&fs, None)?;
    if let Kind::Journal(log) = &mut log.kind {
        log.sequence = next.unwrap_or(log.sequence);
        log.write_superblock(&**device, 0)?;
    }
    device.flush()?;
    log.mark(&**device, |raw| {
        let flags = le32(raw, 0x60) & !Incompat::RECOVER.0;
        raw[0x60..0x64].copy_from_slice(&flags.to_le_bytes());
    })?;
    device.flush()?;
    Ok(true)
}

/// Clears the bit of `s_state` that says so.
fn set_unclean(raw: &mut [u8]) {
    raw[0x3a] &= !1;
}

/// A block as the log holds it: without the magic number that the log's own blocks begin with.
struct LogCopy<'a> {
    number: u64,
    bytes: Cow<'a, [u8]>,
    escaped: bool,
}

impl<'a> LogCopy<'a> {
    fn new(number: u64, block: &'a [u8]) -> LogCopy<'a> {
        let mut bytes = Cow::Borrowed(block);
        let escaped = be32(block, 0) == MAGIC;
        if escaped {
            bytes.to_mut()[..4].fill(0);
        }
        LogCopy { number, bytes, escaped }
    }
}

fn write_blocks<'a>(
    device: &dyn BlockDevice,
    size: usize,
    blocks: impl Iterator<Item = (&'a u64, &'a Cow<'a, [u8]>)>,
) -> Result<()> {
    let mut out = Writeout { device, size: size as u64, bytes: Vec::new(), at: 0 };
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
    fn put(&mut self, block: u64, bytes: &[u8]) -> Result<()> {
        let offset = block * self.size;
        if self.at + self.bytes.len() as u64 != offset || self.bytes.len() >= CHUNK {
            self.flush()?;
            self.at = offset;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.bytes.is_empty() {
            self.device.write_at(&self.bytes, self.at)?;
            self.at += self.bytes.len() as u64;
            self.bytes.clear();
        }
        Ok(())
    }
}
