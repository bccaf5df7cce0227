//! The volume's device: blocks that are checked when they are read.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use casemate_blockdev::{
    Advice, BlockDevice, Code, DamageMap, Error, Result, check_process, u64_of, usize_of,
};
use casemate_primitives::secret::constant_time_eq;

use crate::journal::Journal;
use crate::layout::BITMAP_BLOCK;
use crate::seal::no_code;
use crate::superblock::LEN;
use crate::{Flags, JournalSeal, Layout, Superblock, Tagger};

/// Bytes that are read and checked at once.
pub(crate) const AT_ONCE: u64 = 256 << 10;

/// Bytes of blocks that wait for being flushed at most.
const MOST_WAITING: usize = 8 << 20;

/// A dm-integrity volume. Every block is checked when it is read; what the journal holds is shown as if it had been
/// written to its place.
///
/// Writes are kept in memory until they are flushed, and go to their place through the journal, as the kernel's do: after an
/// interruption each block has the data and the tag of one write. Before the first write the journal is replayed.
#[derive(Debug)]
pub struct IntegrityDevice<D: BlockDevice, M: BlockDevice> {
    pub(crate) data: Arc<D>,
    /// The superblock's device, if that is another one.
    pub(crate) meta: Option<M>,
    superblock: Superblock,
    layout: Layout,
    pub(crate) guard: Box<dyn BlockGuard>,
    pub(crate) has_bitmap: bool,
    writes: Locked,
    wrong: AtomicU64,
    /// The bytes of blocks that were read and of which nothing is known, once somebody wants them remembered.
    unknown: Mutex<Option<DamageMap>>,
    /// The process whose writes wait here.
    process: u32,
}

/// Data and tag of a block.
pub(crate) type Waiting = (Box<[u8]>, Box<[u8]>);

/// Writes that are not in their places yet, and the superblock.
#[derive(Debug)]
pub(crate) struct Writes {
    /// The superblock as it is now.
    pub superblock: Superblock,
    /// The entries that were found in the journal.
    pub journal: Journal,
    /// Whether all that the journal had, or a bitmap noted, is in its place, so that nothing of either is needed any more.
    pub is_in_order: bool,
    /// The round and the section that are written next; `None` before the first write.
    pub position: Option<(usize, u64)>,
    /// Data and tags of blocks that wait for being flushed.
    pub waiting: BTreeMap<u64, Waiting>,
    /// Blocks as they are in the journal, on their way to their places.
    pub placing: BTreeMap<u64, Waiting>,
    /// In bitmap mode the bits that are set on the device.
    pub marked: BTreeSet<u64>,
}

/// Readers go on beside each other, and what changes where blocks lie waits for them.
#[derive(Debug)]
struct Locked(RwLock<Writes>);

impl Locked {
    fn read(&self) -> RwLockReadGuard<'_, Writes> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Writes> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writes {
    fn has_any(&self, first: u64, count: u64) -> bool {
        [&self.waiting, &self.placing]
            .iter()
            .any(|blocks| blocks.range(first..first + count).next().is_some())
    }

    fn read_block(&self, block: u64, data: &mut [u8], tag: &mut [u8]) -> bool {
        let newest = self.waiting.get(&block).or_else(|| self.placing.get(&block));
        let Some((new, new_tag)) = newest else { return false };
        data.copy_from_slice(new);
        tag.copy_from_slice(new_tag);
        true
    }
}

/// Ties the data of a volume's blocks to their tags: a checksum, or a cipher.
pub trait BlockGuard: std::fmt::Debug + Send + Sync {
    /// Makes of blocks as they lie there, from the one of this number on, what a reader gets, and tells `wrong` of each
    /// whose tag is not that of its data.
    ///
    /// # Errors
    /// Errors of `wrong`; `Io`.
    fn open(
        &self,
        first: u64,
        data: &mut [u8],
        tags: &[u8],
        wrong: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()>;

    /// Makes of blocks, from the one of this number on, what lies there, and their tags.
    ///
    /// # Errors
    /// `Io`.
    fn seal(&self, first: u64, data: &mut [u8], tags: &mut [u8]) -> Result<()>;

    /// The protection of the journal, if it has one.
    fn journal(&self) -> Option<&JournalSeal> {
        None
    }

    /// Whether tags prove that somebody with the key wrote the data. Then nothing that lies beside them, and that nobody
    /// authenticated, may say of a tag that it need not fit.
    fn is_keyed(&self) -> bool {
        true
    }

    /// Whether the tags of data that have none may be made from them: then [`BlockGuard::seal`] leaves the data as they are.
    fn may_recalculate(&self) -> bool {
        false
    }
}

impl BlockGuard for Tagger {
    fn open(
        &self,
        first: u64,
        data: &mut [u8],
        tags: &[u8],
        wrong: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let mut right = vec![0; tags.len()];
        self.make(first, data, &mut right);
        if !constant_time_eq(tags, &right) {
            let pairs = tags.chunks_exact(self.tag_size()).zip(right.chunks_exact(self.tag_size()));
            for (number, _) in (first..).zip(pairs).filter(|(_, (tag, right))| !constant_time_eq(tag, right))
            {
                wrong(number)?;
            }
        }
        Ok(())
    }

    fn seal(&self, first: u64, data: &mut [u8], tags: &mut [u8]) -> Result<()> {
        self.make(first, data, tags);
        Ok(())
    }

    fn journal(&self) -> Option<&JournalSeal> {
        Tagger::journal(self)
    }

    fn is_keyed(&self) -> bool {
        Tagger::is_keyed(self)
    }

    fn may_recalculate(&self) -> bool {
        Tagger::may_recalculate(self)
    }
}

/// The verdict on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The tag is not that of the data.
    Wrong,
    /// The tag is not that of the data, and need not be: it was to be computed when the volume was last used.
    Unknown,
}

impl<D: BlockDevice, M: BlockDevice> IntegrityDevice<D, M> {
    /// Opens the volume whose superblock lies at the beginning of `meta`, or of `data` if `None`.
    ///
    /// # Errors
    /// Errors of [`Superblock::from_bytes`]; `Corrupt` if the volume does not fit its device; `Locked` for a
    /// journal with codes whose key is not there; `Mismatch` for wrong codes; `Unsupported` for tags under a key of which some
    /// are still to be computed, if no code protects the superblock that says so, and for a journal that can't be read: one that
    /// is encrypted, without its key, or a damaged one.
    pub fn open(data: D, meta: Option<M>, guard: impl BlockGuard + 'static) -> Result<IntegrityDevice<D, M>> {
        let device = IntegrityDevice::opened(data, meta, guard, &|error| Err(error))?;
        match device.has_unread_journal() {
            true => Err(unread_journal()),
            false => Ok(device),
        }
    }

    /// Opens a volume as [`IntegrityDevice::open`] does, also one whose journal can't be read, from its device or for what it means:
    /// blocks that lie in it are read as they were before, and nothing can be written.
    ///
    /// # Errors
    /// Errors of [`IntegrityDevice::open`], but for such a journal.
    pub fn open_damaged(
        data: D,
        meta: Option<M>,
        guard: impl BlockGuard + 'static,
    ) -> Result<IntegrityDevice<D, M>> {
        // A part of it says nothing: which entries count, the whole tells.
        let without = |error: Error| match error.kind() {
            casemate_blockdev::ErrorKind::Io if !error.is_interrupt() => Ok(Journal::unread()),
            _ => Err(error),
        };
        IntegrityDevice::opened(data, meta, guard, &without)
    }

    /// Opens a volume; `without` says what to do about a journal that its device does not give.
    fn opened(
        data: D,
        meta: Option<M>,
        guard: impl BlockGuard + 'static,
        without: &dyn Fn(Error) -> Result<Journal>,
    ) -> Result<IntegrityDevice<D, M>> {
        let below: &dyn BlockDevice = meta.as_ref().map_or(&data, |meta| meta);
        let superblock = read_superblock(below)?;
        match guard.journal() {
            Some(journal) => {
                let mut bytes = [0; LEN];
                below.read_at(&mut bytes, 0)?;
                journal.check_superblock(&bytes)?;
            }
            None if superblock.flags.contains(Flags::JOURNAL_MAC) => return Err(no_code()),
            None => {}
        }
        let is_recalculating = superblock.flags.contains(Flags::RECALCULATING)
            && superblock.recalc_sector < superblock.provided_data_sectors;
        if is_recalculating && guard.is_keyed() && !guard.may_recalculate() {
            return Err(Error::unsupported(
                "dm-integrity superblock: it says that tags are still to be computed, which anybody may have written; with a \
                 key no tag may be missing",
            ));
        }
        let layout = superblock.layout(meta.is_some())?;
        layout.check(data.size(), below.size())?;
        let journal = Journal::read(below, &superblock, &layout, guard.journal()).or_else(without)?;
        let writes = Writes {
            superblock: superblock.clone(),
            journal,
            is_in_order: false,
            position: None,
            waiting: BTreeMap::new(),
            placing: BTreeMap::new(),
            marked: BTreeSet::new(),
        };
        let writes = Locked(RwLock::new(writes));
        let (data, wrong) = (Arc::new(data), AtomicU64::new(0));
        Ok(IntegrityDevice {
            data,
            meta,
            superblock,
            layout,
            guard: Box::new(guard),
            has_bitmap: false,
            writes,
            wrong,
            unknown: Mutex::default(),
            process: std::process::id(),
        })
    }

    /// This device in bitmap mode: data go to their places at once, after a bitmap has noted where, and not through
    /// the journal. What is being written when power fails may be torn then, as on a disk; the tags are made again by
    /// who writes next.
    ///
    /// # Errors
    /// `Unsupported` if the journal's place is too small for the bitmap.
    pub fn with_bitmap(mut self) -> Result<IntegrityDevice<D, M>> {
        let last = self.superblock.bit_of(self.layout.blocks() - 1);
        if last / 8 / BITMAP_BLOCK >= self.layout.journal_len() / BITMAP_BLOCK {
            return Err(Error::unsupported("dm-integrity: the journal's place has no room for a bitmap"));
        }
        self.has_bitmap = true;
        Ok(self)
    }

    /// The volume's superblock, as it was when the volume was opened.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Whether the journal can't be read, and may hold blocks that are newer than those in their places.
    pub fn has_unread_journal(&self) -> bool {
        self.writes.read().journal.is_foreign()
    }

    /// The number of blocks that are read from the journal.
    pub fn journalled_blocks(&self) -> u64 {
        self.writes.read().journal.len()
    }

    /// The number of blocks that were read and had a wrong tag.
    pub fn wrong_blocks(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed)
    }

    /// Remembers from now on where blocks lie that are read and of which nothing is known.
    pub fn remember_unknown(&self) {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
    }

    /// Bytes of blocks that were read since [`IntegrityDevice::remember_unknown`] and of which nothing is known: their tags do not
    /// fit, and were still to be computed.
    pub fn unknown(&self) -> Vec<Range<u64>> {
        let unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        unknown.as_ref().map_or_else(Vec::new, DamageMap::ranges)
    }

    /// Whether blocks may be read whose tags are not there yet, and that are not checked therefore: by the superblock, as it was
    /// when the volume was opened, tags were still to be computed.
    pub fn has_unknown_blocks(&self) -> bool {
        let superblock = &self.superblock;
        let is_recalculating = superblock.flags.contains(Flags::RECALCULATING)
            && superblock.recalc_sector < superblock.provided_data_sectors;
        (is_recalculating && self.believes(Flags::RECALCULATING))
            || (superblock.flags.contains(Flags::DIRTY_BITMAP) && self.believes(Flags::DIRTY_BITMAP))
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn meta(&self) -> &dyn BlockDevice {
        self.meta.as_ref().map_or(&*self.data, |meta| meta)
    }

    /// Reads blocks, from the one of this number on, and tells of each whose tag is not right.
    pub(crate) fn read_blocks(
        &self,
        block: u64,
        buf: &mut [u8],
        tell: &mut dyn FnMut(u64, Verdict) -> Result<()>,
    ) -> Result<()> {
        self.check_blocks(&self.writes.read(), block, buf, tell)
    }

    /// Reads whole blocks from this one on, and counts those of which nothing is known: their tags do not fit, and were still to
    /// be computed.
    ///
    /// # Errors
    /// `Mismatch` for a block whose tag is not that of its data; `Io`.
    pub fn read_counting(&self, block: u64, buf: &mut [u8]) -> Result<u64> {
        let mut unknown = 0;
        self.read_blocks(block, buf, &mut |block, verdict| {
            unknown += u64::from(verdict == Verdict::Unknown);
            self.refuse(block, verdict)
        })?;
        Ok(unknown)
    }

    fn check_blocks(
        &self,
        writes: &Writes,
        mut block: u64,
        mut buf: &mut [u8],
        tell: &mut dyn FnMut(u64, Verdict) -> Result<()>,
    ) -> Result<()> {
        let (size, tag_size) = (usize_of(self.layout.block_size()), usize_of(self.layout.tag_size()));
        let mut tags = Vec::new();
        while !buf.is_empty() {
            let count = (buf.len() / size).min((usize_of(AT_ONCE) / size).max(1));
            let (now, rest) = buf.split_at_mut(count * size);
            tags.resize(count * tag_size, 0);
            self.read_stored(writes, block, now, &mut tags)?;
            self.guard.open(block, now, &tags, &mut |number| {
                let verdict =
                    if self.is_unknown(writes, number)? { Verdict::Unknown } else { Verdict::Wrong };
                tell(number, verdict)
            })?;
            block += u64_of(count);
            buf = rest;
        }
        Ok(())
    }

    /// Reads blocks and their tags, from wherever they are newest.
    fn read_stored(
        &self,
        writes: &Writes,
        mut block: u64,
        mut buf: &mut [u8],
        mut tags: &mut [u8],
    ) -> Result<()> {
        let (size, tag_size) = (usize_of(self.layout.block_size()), usize_of(self.layout.tag_size()));
        while !buf.is_empty() {
            let count = self.layout.run(block, u64_of(buf.len() / size));
            let (now, rest) = buf.split_at_mut(usize_of(count) * size);
            let (now_tags, rest_tags) = tags.split_at_mut(usize_of(count) * tag_size);
            self.data.read_at(now, self.layout.data(block))?;
            self.meta().read_at(now_tags, self.layout.tag(block))?;
            if writes.journal.has_any(block, count) || writes.has_any(block, count) {
                let seal = self.guard.journal();
                let blocks = now.chunks_exact_mut(size).zip(now_tags.chunks_exact_mut(tag_size));
                for (number, (data, tag)) in (block..).zip(blocks) {
                    if !writes.read_block(number, data, tag) {
                        writes.journal.read_block(self.meta(), &self.layout, seal, number, data, tag)?;
                    }
                }
            }
            block += count;
            (buf, tags) = (rest, rest_tags);
        }
        Ok(())
    }

    /// The range of whole blocks that has these bytes; `None` if they pass the end.
    fn blocks_of(&self, offset: u64, len: usize) -> Option<Range<u64>> {
        let end = offset.checked_add(u64_of(len)).filter(|end| *end <= self.size())?;
        Some(offset / self.layout.block_size()..end.div_ceil(self.layout.block_size()))
    }

    /// An error about a block whose tag is wrong; it is counted.
    fn refuse(&self, block: u64, verdict: Verdict) -> Result<()> {
        match verdict {
            Verdict::Unknown => {
                if let Some(unknown) = &mut *self.unknown.lock().unwrap_or_else(PoisonError::into_inner) {
                    let at = block * self.layout.block_size();
                    unknown.add(at..at + self.layout.block_size());
                }
                Ok(())
            }
            Verdict::Wrong => {
                self.wrong.fetch_add(1, Ordering::Relaxed);
                let at = block * self.layout.block_size();
                let text =
                    format!("dm-integrity: the tag of block {block}, at {at}, is not that of its data");
                Err(Error::coded(Code::BadDigest, text))
            }
        }
    }

    /// Whether the superblock's flag is believed that says of tags that they need not fit. Tags without a key protect from
    /// accidents alone, which set no flags. With a key the superblock needs a code; a bitmap has none, so it counts where it
    /// was said that there is one.
    pub(crate) fn believes(&self, flag: Flags) -> bool {
        match (self.guard.is_keyed(), flag) {
            (true, Flags::DIRTY_BITMAP) => self.has_bitmap,
            (true, _) => self.guard.may_recalculate(),
            (false, _) => true,
        }
    }

    /// Whether the tag of a block was to be computed when the volume was last used.
    fn is_unknown(&self, writes: &Writes, block: u64) -> Result<bool> {
        let superblock = &writes.superblock;
        // No overflow: a block of the volume.
        let end = (block + 1) << superblock.log2_sectors_per_block;
        if superblock.flags.contains(Flags::RECALCULATING) && end > superblock.recalc_sector {
            return Ok(self.believes(Flags::RECALCULATING));
        }
        // What this device has marked itself has its tags all the same, as long as it goes on.
        if !superblock.flags.contains(Flags::DIRTY_BITMAP)
            || writes.position.is_some()
            || writes.is_in_order
            || !self.believes(Flags::DIRTY_BITMAP)
        {
            return Ok(false);
        }
        let (bit, mut byte) = (superblock.bit_of(block), [0]);
        if bit / 8 >= self.layout.journal_len() {
            return Err(too_long());
        }
        self.meta().read_at(&mut byte, self.layout.bitmap() + bit / 8)?;
        Ok(byte[0] & 1 << (bit % 8) != 0)
    }
}

/// Error of a journal whose marks are of no round.
pub(crate) fn unread_journal() -> Error {
    let text = "dm-integrity: the journal can't be read: it is damaged, or encrypted with another key; blocks in it may be newer than \
                those in their places";
    Error::unsupported(text).advise(Advice::JournalCrypt)
}

/// Error of a bitmap that has no room.
pub(crate) fn too_long() -> Error {
    Error::corrupt("dm-integrity superblock: its bitmap is longer than the journal's place")
}

/// The superblock at the beginning of a device.
///
/// # Errors
/// `Io`; those of [`Superblock::from_bytes`].
pub fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut bytes = [0; LEN];
    let len = usize_of(device.size().min(u64_of(LEN)));
    device.read_at(&mut bytes[..len], 0)?;
    Superblock::from_bytes(&bytes[..len])
}

impl<D: BlockDevice, M: BlockDevice> BlockDevice for IntegrityDevice<D, M> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.data)
    }

    fn size(&self) -> u64 {
        self.layout.blocks() * self.layout.block_size()
    }

    fn read_at(&self, mut buf: &mut [u8], mut offset: u64) -> Result<()> {
        if self.blocks_of(offset, buf.len()).is_none() {
            return Err(past_end(offset, buf.len(), self.size()));
        }
        let refuse = &mut |block, verdict| self.refuse(block, verdict);
        let block_size = self.layout.block_size();
        let writes = self.writes.read();
        let mut one = Vec::new();
        while !buf.is_empty() {
            let (block, within) = (offset / block_size, usize_of(offset % block_size));
            let whole = buf.len() - buf.len() % usize_of(block_size);
            let len = if within == 0 && whole > 0 {
                self.check_blocks(&writes, block, &mut buf[..whole], refuse)?;
                whole
            } else {
                one.resize(usize_of(block_size), 0);
                self.check_blocks(&writes, block, &mut one, refuse)?;
                let len = buf.len().min(one.len() - within);
                buf[..len].copy_from_slice(&one[within..within + len]);
                len
            };
            buf = &mut buf[len..];
            offset += u64_of(len);
        }
        Ok(())
    }

    /// Keeps the blocks in memory until they are flushed, or too many.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let Some(blocks) = self.blocks_of(offset, buf.len()) else {
            return Err(past_end(offset, buf.len(), self.size()));
        };
        let (size, tag_size) = (usize_of(self.layout.block_size()), usize_of(self.layout.tag_size()));
        let mut writes = self.writes.write();
        self.begin_to_write(&mut writes)?;
        let mut done = 0;
        for block in blocks {
            let within = usize_of((offset + u64_of(done)) % u64_of(size));
            let len = (size - within).min(buf.len() - done);
            let (mut data, mut tag) = (vec![0; size], vec![0; tag_size]);
            if len < size {
                self.check_blocks(&writes, block, &mut data, &mut |block, verdict| {
                    self.refuse(block, verdict)
                })?;
            }
            data[within..within + len].copy_from_slice(&buf[done..done + len]);
            self.guard.seal(block, &mut data, &mut tag)?;
            writes.waiting.insert(block, (data.into(), tag.into()));
            done += len;
            if writes.waiting.len() * size >= MOST_WAITING {
                self.commit(&mut writes)?;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut writes = self.writes.write();
        self.commit(&mut writes)?;
        self.flush_below()
    }
}

/// Writes that were not flushed are written all the same, as it would be to a file.
impl<D: BlockDevice, M: BlockDevice> Drop for IntegrityDevice<D, M> {
    fn drop(&mut self) {
        // A child that `fork` made has copies of writes that are its parent's.
        if check_process(self.process).is_err() {
            return;
        }
        // Nobody is left to be told.
        let _ = self.close(&mut self.writes.write());
    }
}

fn past_end(offset: u64, len: usize, size: u64) -> Error {
    let text = format!("{len} bytes at {offset} pass the end of the device at {size}");
    std::io::Error::new(ErrorKind::UnexpectedEof, text).into()
}
