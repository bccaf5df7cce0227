//! Metadata blocks that are changed, kept in memory until they are committed.
//!
//! The cache is a device: whoever reads through it sees the changes. Each change remembers what it replaced, so
//! that an operation that fails half-way is taken back by [`Cache::roll_back`].

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use casemate_blockdev::{BlockDevice, u64_of, usize_of};

use crate::error::Result;
use crate::number::within;
use crate::units::Block;

/// Bytes of file contents that are collected before they are written.
const DATA_BUFFER: usize = 4 << 20;

/// Blocks by their numbers.
pub(crate) type Blocks<'a> = BTreeMap<Block, Cow<'a, [u8]>>;

/// A device below, changed metadata blocks over it.
pub(crate) struct Cache {
    below: Arc<dyn BlockDevice>,
    block_size: usize,
    state: RwLock<State>,
    /// How many blocks were looked at, again and again: it tells how work grows.
    #[cfg(test)]
    pub looks: std::sync::atomic::AtomicU64,
}

#[derive(Default)]
struct State {
    blocks: HashMap<Block, Held, Numbers>,
    /// How many of them are dirty.
    dirty: usize,
    undo: Undo,
    /// File contents on their way down, and the byte that they begin at.
    data: Vec<u8>,
    data_at: u64,
    /// How many of them are of operations that have ended.
    data_kept: usize,
    /// Whether contents went down since all was flushed last.
    has_contents: bool,
}

struct Held {
    bytes: Box<[u8]>,
    dirty: bool,
}

/// Bytes that the current operation replaced, oldest first.
#[derive(Default)]
struct Undo {
    steps: Vec<Step>,
    /// The old bytes of all steps, one after the other.
    bytes: Vec<u8>,
}

enum Step {
    /// Bytes of a block, and whether it was dirty before.
    Bytes { block: Block, at: usize, len: usize, dirty: bool },
    /// Bits of a block that were inverted.
    Bits { block: Block, first: u64, count: u64, dirty: bool },
    /// A whole block that came or went.
    Block { block: Block, old: Option<Held> },
}

/// A block while it is changed.
pub(crate) struct Edit<'a> {
    block: Block,
    bytes: &'a mut Box<[u8]>,
    dirty: &'a mut bool,
    dirty_count: &'a mut usize,
    undo: &'a mut Undo,
}

impl Edit<'_> {
    /// The block as it is now.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Replaces the bytes from `at` on.
    pub fn write(&mut self, at: usize, new: &[u8]) {
        let old = &mut self.bytes[at..at + new.len()];
        self.undo.bytes.extend_from_slice(old);
        self.undo.steps.push(Step::Bytes { block: self.block, at, len: new.len(), dirty: *self.dirty });
        old.copy_from_slice(new);
        self.set_dirty();
    }

    /// Inverts a run of bits.
    pub fn flip(&mut self, first: u64, count: u64) {
        self.undo.steps.push(Step::Bits { block: self.block, first, count, dirty: *self.dirty });
        crate::format::bitmap::flip(self.bytes, first, count);
        self.set_dirty();
    }

    fn set_dirty(&mut self) {
        *self.dirty_count += usize::from(!*self.dirty);
        *self.dirty = true;
    }
}

impl State {
    /// Puts a whole block in place, or takes it away; the one that was there before.
    fn replace(&mut self, block: Block, new: Option<Held>) -> Option<Held> {
        self.dirty += usize::from(new.as_ref().is_some_and(|new| new.dirty));
        let old = match new {
            Some(new) => self.blocks.insert(block, new),
            None => self.blocks.remove(&block),
        };
        self.dirty -= usize::from(old.as_ref().is_some_and(|old| old.dirty));
        old
    }
}

impl Cache {
    pub fn new(below: Arc<dyn BlockDevice>, block_size: u32) -> Cache {
        Cache {
            below,
            block_size: usize_of(block_size),
            state: RwLock::default(),
            #[cfg(test)]
            looks: Default::default(),
        }
    }

    /// Counts what is looked at, in tests.
    fn count_looks(&self, blocks: u64) {
        let _ = blocks;
        #[cfg(test)]
        self.looks.fetch_add(blocks, std::sync::atomic::Ordering::Relaxed);
    }

    /// Changes a block, which is read first if it is not here yet.
    pub fn update<T>(&self, block: Block, f: impl FnOnce(&mut Edit<'_>) -> T) -> Result<T> {
        self.count_looks(1);
        let mut guard = self.state();
        let state = &mut *guard;
        let entry = match state.blocks.entry(block) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(Held { bytes: read_block(&*self.below, self.block_size, block)?, dirty: false })
            }
        };
        Ok(f(&mut Edit {
            block,
            bytes: &mut entry.bytes,
            dirty: &mut entry.dirty,
            dirty_count: &mut state.dirty,
            undo: &mut state.undo,
        }))
    }

    /// Calls `f` with a block's bytes; keeps the block.
    pub fn with<T>(&self, block: Block, f: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let mut f = Some(f);
        // OK to unwrap: it is called once, here or there.
        match self.held(block, |bytes| f.take().unwrap()(bytes)) {
            Some(result) => Ok(result),
            None => self.update(block, |edit| f.take().unwrap()(edit.bytes())),
        }
    }

    /// Calls `f` with a block's bytes if it is in the cache.
    pub fn held<T>(&self, block: Block, f: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.count_looks(1);
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.blocks.get(&block).map(|block| f(&block.bytes))
    }

    /// Whether the block is here.
    pub fn holds(&self, block: Block) -> bool {
        self.state.read().unwrap_or_else(PoisonError::into_inner).blocks.contains_key(&block)
    }

    /// Puts a whole new block in place of whatever was there.
    pub fn create(&self, block: Block, bytes: Box<[u8]>) {
        let mut state = self.state();
        let old = state.replace(block, Some(Held { bytes, dirty: true }));
        state.undo.steps.push(Step::Block { block, old });
    }

    /// Drops blocks that are freed: whatever was changed in them need not be written.
    pub fn forget(&self, first: Block, len: u64) {
        let mut guard = self.state();
        let state = &mut *guard;
        let all = first..first + len;
        let here: Vec<Block> = if len > u64_of(state.blocks.len()) {
            state.blocks.keys().copied().filter(|block| all.contains(block)).collect()
        } else {
            first.run(len).filter(|block| state.blocks.contains_key(block)).collect()
        };
        for block in here {
            let old = state.replace(block, None);
            state.undo.steps.push(Step::Block { block, old });
        }
    }

    /// Writes file contents, past the blocks that are kept here.
    pub fn write_data(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut state = self.state();
        state.has_contents = true;
        if state.data_at + u64_of(state.data.len()) != offset || state.data.len() + bytes.len() > DATA_BUFFER
        {
            self.flush_data(&mut state)?;
            state.data_at = offset;
        }
        if bytes.len() >= DATA_BUFFER {
            state.data_at = offset + u64_of(bytes.len());
            return self.below.write_at(bytes, offset);
        }
        state.data.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes file contents to blocks some of which may be kept here: those that are part of the transaction, as the last
    /// block of a file that was cut is, stay so.
    pub fn overwrite(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let size = u64_of(self.block_size);
        let first = Block::of_byte(offset, size);
        let mut at = 0;
        for (number, piece) in first.until(Block::new(u64::MAX)).zip(bytes.chunks(self.block_size)) {
            if !self.holds(number) {
                continue;
            }
            let here = usize_of(number - first) * self.block_size;
            let is_dirty = self.state().blocks.get(&number).is_some_and(|block| block.dirty);
            if is_dirty {
                self.write_data(offset + u64_of(at), &bytes[at..here])?;
                self.update(number, |edit| edit.write(0, piece))?;
                at = here + piece.len();
            } else {
                self.forget(number, 1);
            }
        }
        if at < bytes.len() { self.write_data(offset + u64_of(at), &bytes[at..]) } else { Ok(()) }
    }

    /// Ends an operation: what it did can no longer be taken back alone.
    pub fn keep(&self) {
        let mut state = self.state();
        state.undo.steps.clear();
        state.undo.bytes.clear();
        state.data_kept = state.data.len();
    }

    /// Takes back everything since the last [`keep`](Cache::keep).
    pub fn roll_back(&self) {
        let mut guard = self.state();
        let state = &mut *guard;
        // The blocks that they were for are free again, and may get other contents before these are written.
        let kept = state.data_kept;
        state.data.truncate(kept);
        while let Some(step) = state.undo.steps.pop() {
            match step {
                Step::Bytes { block, at, len, dirty } => {
                    let from = state.undo.bytes.len() - len;
                    if let Some(entry) = state.blocks.get_mut(&block) {
                        entry.bytes[at..at + len].copy_from_slice(&state.undo.bytes[from..]);
                        state.dirty -= usize::from(entry.dirty && !dirty);
                        entry.dirty = dirty;
                    }
                    state.undo.bytes.truncate(from);
                }
                Step::Bits { block, first, count, dirty } => {
                    if let Some(entry) = state.blocks.get_mut(&block) {
                        crate::format::bitmap::flip(&mut entry.bytes, first, count);
                        state.dirty -= usize::from(entry.dirty && !dirty);
                        entry.dirty = dirty;
                    }
                }
                Step::Block { block, old } => {
                    state.replace(block, old);
                }
            }
        }
    }

    /// How many blocks are dirty.
    pub fn dirty_count(&self) -> usize {
        self.state.read().unwrap_or_else(PoisonError::into_inner).dirty
    }

    /// Calls `f` with all dirty blocks by their numbers, with file contents written before. Nothing may be read
    /// through the cache meanwhile.
    pub fn with_dirty<T>(&self, f: impl FnOnce(Blocks<'_>) -> T) -> Result<T> {
        let mut state = self.state();
        self.flush_data(&mut state)?;
        let dirty = state.blocks.iter().filter(|(_, block)| block.dirty);
        Ok(f(dirty.map(|(number, block)| (*number, Cow::Borrowed(&block.bytes[..]))).collect()))
    }

    /// Calls all blocks clean, after they were written below; drops them if there are more than `most`.
    pub fn clean(&self, most: usize) {
        let mut state = self.state();
        if state.blocks.len() > most {
            state.blocks.clear();
        }
        state.blocks.values_mut().for_each(|block| block.dirty = false);
        state.dirty = 0;
    }

    /// Whether contents went down that are still to be flushed.
    pub fn has_contents(&self) -> bool {
        self.state.read().unwrap_or_else(PoisonError::into_inner).has_contents
    }

    /// Notes that all contents are flushed.
    pub fn contents_are_flushed(&self) {
        self.state().has_contents = false;
    }

    /// The device below.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.below
    }

    /// Reads contents of files, some of which are not written yet.
    fn read_over_data(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.below.read_at(buf, offset)?;
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let (start, end) = (
            state.data_at.max(offset),
            (state.data_at + u64_of(state.data.len())).min(offset + u64_of(buf.len())),
        );
        if start < end {
            let ahead = &state.data[within(start..end, state.data_at)];
            buf[within(start..end, offset)].copy_from_slice(ahead);
        }
        Ok(())
    }

    fn flush_data(&self, state: &mut State) -> Result<()> {
        if !state.data.is_empty() {
            self.below.write_at(&state.data, state.data_at)?;
            state.data_at += u64_of(state.data.len());
            state.data.clear();
            state.data_kept = 0;
        }
        Ok(())
    }

    fn state(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockDevice for Cache {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.below)
    }

    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let size = u64_of(self.block_size);
        let end = offset + u64_of(buf.len());
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let mut state = state;
        if state.data_at < end && state.data_at + u64_of(state.data.len()) > offset {
            drop(state);
            // Contents that can't be written yet are read from here.
            if self.flush_data(&mut self.state()).is_err() {
                return self.read_over_data(buf, offset);
            }
            state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        }
        let blocks = Block::of_byte(offset, size)..Block::new(end.div_ceil(size));
        self.count_looks(blocks.end - blocks.start);
        // What lies in one block, as nearly all metadata does, need not be read below.
        if blocks.end - blocks.start == 1 {
            match state.blocks.get(&blocks.start) {
                Some(block) => {
                    let from = usize_of(offset % size);
                    buf.copy_from_slice(&block.bytes[from..from + buf.len()]);
                }
                None => self.below.read_at(buf, offset)?,
            }
            return Ok(());
        }
        self.below.read_at(buf, offset)?;
        for number in blocks.start.until(blocks.end) {
            let Some(block) = state.blocks.get(&number) else { continue };
            let start = number.get() * size;
            let (from, to) = (start.max(offset), (start + size).min(end));
            buf[within(from..to, offset)].copy_from_slice(&block.bytes[within(from..to, start)]);
        }
        Ok(())
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        let size = self.size();
        Ok((offset < size).then_some(offset..size))
    }
}

/// Hashes block numbers: one multiplication, with a key that whoever made the image can't know.
#[derive(Clone)]
struct Numbers(u64);

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers(std::collections::hash_map::RandomState::new().build_hasher().finish())
    }
}

impl BuildHasher for Numbers {
    type Hasher = Number;

    fn build_hasher(&self) -> Number {
        Number(self.0)
    }
}

struct Number(u64);

impl Hasher for Number {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio.
        let (low, high) = (self.0 ^ number).carrying_mul(0x9e37_79b9_7f4a_7c15, 0);
        self.0 = low ^ high;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn read_block(device: &dyn BlockDevice, size: usize, block: Block) -> Result<Box<[u8]>> {
    let mut bytes = vec![0; size].into_boxed_slice();
    device.read_at(&mut bytes, block.offset(u64_of(size)))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use casemate_blockdev::MemoryDevice;
    use casemate_testkit::Medium;

    use super::*;

    #[test]
    fn what_is_rolled_back_was_never_there() {
        let image: Vec<u8> = (0..4096u32).map(|i| (i / 7) as u8).collect();
        let cache = Cache::new(Arc::new(MemoryDevice::new(image.clone())), 1024);
        let read = || {
            let mut all = vec![0; 4096];
            cache.read_at(&mut all, 0).unwrap();
            all
        };
        cache.update(Block::new(1), |edit| edit.write(10, b"kept")).unwrap();
        cache.keep();
        let before = read();
        assert_eq!(&before[1034..1038], b"kept");
        cache.update(Block::new(1), |edit| edit.write(12, b"xyz")).unwrap();
        cache.update(Block::new(2), |edit| edit.flip(5, 3000)).unwrap();
        cache.create(Block::new(3), vec![1; 1024].into());
        cache.update(Block::new(3), |edit| edit.write(0, b"new")).unwrap();
        cache.forget(Block::new(1), 1);
        assert_ne!(read(), before);
        cache.roll_back();
        assert_eq!(read(), before);
        assert_eq!(cache.with_dirty(|dirty| dirty.into_keys().collect::<Vec<_>>()).unwrap(), [Block::new(1)]);
        assert_eq!(cache.dirty_count(), 1);
    }

    #[test]
    fn contents_that_are_rolled_back_are_not_written_later() {
        let below = Arc::new(MemoryDevice::new(vec![0; 4096]));
        let cache = Cache::new(below.clone(), 1024);
        cache.write_data(0, b"kept").unwrap();
        cache.keep();
        cache.write_data(4, b"gone").unwrap();
        cache.roll_back();
        below.write_at(b"else", 4).unwrap();
        cache.write_data(2048, b"elsewhere").unwrap();
        cache.with_dirty(|_| ()).unwrap();
        let mut eight = [0; 8];
        below.read_at(&mut eight, 0).unwrap();
        assert_eq!(&eight, b"keptelse");
    }

    #[test]
    fn contents_are_read_that_can_not_be_written_yet() {
        let below = Medium::new(vec![7; 4096]);
        let cache = Cache::new(below.clone(), 1024);
        cache.write_data(1024, b"abc").unwrap();
        below.fail_after(0);
        let mut five = [0; 5];
        cache.read_at(&mut five, 1023).unwrap();
        assert_eq!(&five, b"\x07abc\x07");
        assert!(cache.with_dirty(|_| ()).is_err());
        below.fail_after(u64::MAX);
        cache.with_dirty(|_| ()).unwrap();
        assert_eq!(&below.bytes()[1024..1027], b"abc");
    }

    #[test]
    fn contents_are_seen_before_they_are_written() {
        let below = Arc::new(MemoryDevice::new(vec![0; 4096]));
        let cache = Cache::new(below.clone(), 1024);
        cache.write_data(1024, b"abc").unwrap();
        cache.write_data(1027, b"def").unwrap();
        let mut six = [0; 6];
        below.read_at(&mut six, 1024).unwrap();
        assert_eq!(six, [0; 6]);
        cache.read_at(&mut six, 1024).unwrap();
        assert_eq!(&six, b"abcdef");
    }
}
