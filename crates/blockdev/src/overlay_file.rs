//! A device whose changes are kept in a file.
//!
//! The file is a header, a bitmap with a bit for each block of 4096 bytes, and then the blocks, each at its own
//! position (docs/formats/overlay.md). A block whose bit is 0 is that of the device below. The file is sparse: what was
//! never written takes no room.
//!
//! Power may go at any moment: a bit is written only after its block is on stable storage, which is when a flush is
//! asked for. A bit that is lost takes back a write that was never flushed. Bits are independent
//! of each other, so it does not matter which part of the bitmap was written when the power went.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use crate::advice::Advice;
use crate::code::Code;
use crate::device::{BlockDevice, past_end};
use crate::error::{Error, Result};
use crate::events::Events;
use crate::partition::crc32;
use crate::{u64_of, usize_of};

/// A device with changes that are kept in `store`, usually a file; what is below is never written.
#[derive(Debug)]
pub struct OverlayFile<D, S> {
    below: D,
    store: S,
    size: u64,
    data_start: u64,
    /// A bit for each block: whether it is in the store.
    bits: Vec<AtomicU64>,
    /// Parts of the bitmap that have bits which the store has not.
    dirty: Vec<AtomicBool>,
    /// One flush at a time.
    flushing: Mutex<()>,
    /// Held exclusively while a whole block is made of a part and the block below; shared by all other work.
    filling: RwLock<()>,
}

impl<D: BlockDevice, S: BlockDevice> OverlayFile<D, S> {
    /// Bytes of a block.
    pub const BLOCK: u64 = 4096;

    /// Makes an empty store for changes of a device of `size` bytes. `base` says, in at most 64 bytes, which device it
    /// is, such as a root hash or a digest of what it holds.
    ///
    /// # Errors
    /// `Argument` for sizes that can't be; what the store says.
    pub fn format(store: &S, size: u64, base: &[u8]) -> Result<()> {
        let data_start = data_start(size)?;
        let header = header(VERSION, size, &padded(base)?)?;
        store.write_zeroes(u64_of(HEADER), data_start - u64_of(HEADER), true)?;
        // A hole behind the end of a file is there only when something follows.
        store.write_at(&[0], data_start - 1)?;
        store.flush()?;
        store.write_at(&header, 0)?;
        store.flush()
    }

    /// Opens a store that has changes of `below`.
    ///
    /// # Errors
    /// `Argument` if it is none, or belongs to another device; `Corrupt` if it is damaged; what the store says.
    pub fn open(below: D, store: S, base: &[u8]) -> Result<OverlayFile<D, S>> {
        let (overlay, is_committed, found) = OverlayFile::read(below, store)?;
        if is_committed {
            return Err(refuse("a commit of the overlay was interrupted").advise(Advice::CommitOverlay));
        }
        check_base(&found, base)?;
        Ok(overlay)
    }

    /// Writes what a store has into the device below, and empties the store, which is one for the device as it is then.
    /// `identify` makes of a device what says which one it is. Returns how many blocks were written; the listener hears of
    /// their bytes. What was interrupted is completed by the same again: nothing but that can be done with the store
    /// meanwhile.
    ///
    /// # Errors
    /// Errors of [`OverlayFile::open`] and of either device, after which a second call may succeed.
    pub fn commit(
        below: D,
        store: S,
        identify: impl Fn(&dyn BlockDevice) -> Result<Vec<u8>>,
        events: &dyn Events,
    ) -> Result<u64> {
        let (overlay, is_committed, found) = OverlayFile::read(below, store)?;
        // What is seen through the store stays the same from the beginning of the commit to its end: this tells the device
        // meanwhile.
        let view = padded(&identify(&overlay)?)?;
        match is_committed {
            true => check_base(&found, &view)?,
            false => check_base(&found, &identify(&overlay.below)?)?,
        }
        let OverlayFile { below, store, size, data_start, .. } = &overlay;
        let write_header = |version| -> Result<()> {
            store.write_at(&header(version, *size, &view)?, 0)?;
            store.flush()
        };
        store.flush()?;
        write_header(COMMITTED)?;
        let mut buffer = vec![0; usize_of(COPIED.min(*size))];
        let mut at = 0;
        while at < *size {
            let (is_stored, run) = overlay.run(at, *size);
            at = run.end;
            for start in run.clone().step_by(buffer.len()).filter(|_| is_stored) {
                let piece = &mut buffer[..usize_of((run.end - start).min(COPIED))];
                store.read_at(piece, data_start + start)?;
                below.write_at(piece, start)?;
                events.advance(u64_of(piece.len()))?;
            }
        }
        below.flush()?;
        store.write_zeroes(u64_of(HEADER), data_start - u64_of(HEADER), true)?;
        store.flush()?;
        write_header(VERSION)?;
        store.discard(*data_start, *size)?;
        Ok(overlay.changed_blocks())
    }

    /// A store over `below`, whether a commit of it has begun, and what says which device it is for.
    fn read(below: D, store: S) -> Result<(OverlayFile<D, S>, bool, [u8; BASE])> {
        let size = below.size();
        let data_start = data_start(size)?;
        let mut header = [0; HEADER];
        store.read_at(&mut header, 0).map_err(|error| match error.code() {
            Code::CutOff => refuse("the file is too short for an overlay"),
            _ => error,
        })?;
        let le64 = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let le32 = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        if header[..16] != *MAGIC {
            return Err(refuse("the file is not an overlay"));
        }
        if le32(CHECKED) != crc32(&header[..CHECKED]) {
            return Err(invalid("the overlay's header is damaged: its checksum is wrong"));
        }
        let version = le32(16);
        if !matches!(version, VERSION | COMMITTED)
            || u64::from(le32(20)) != Self::BLOCK
            || le64(32) != data_start && le64(24) == size
        {
            return Err(refuse("the overlay is of another version"));
        }
        if le64(24) != size {
            return Err(refuse(&format!("the overlay is of a device of {} bytes, not {size}", le64(24))));
        }
        let base = header[40..40 + BASE].try_into().expect("as many bytes");
        let blocks = size.div_ceil(Self::BLOCK);
        // The size is that of a device which exists.
        let mut bytes = vec![0; usize_of(data_start - u64_of(HEADER))];
        store.read_at(&mut bytes, u64_of(HEADER))?;
        let bits: Vec<_> = bytes
            .chunks_exact(8)
            .map(|word| AtomicU64::new(u64::from_le_bytes(word.try_into().expect("eight bytes"))))
            .collect();
        let dirty = bytes.chunks(PART).map(|_| AtomicBool::new(false)).collect();
        let overlay = OverlayFile {
            below,
            store,
            size,
            data_start,
            bits,
            dirty,
            flushing: Mutex::default(),
            filling: RwLock::default(),
        };
        if (blocks..u64_of(overlay.bits.len()) * 64).any(|block| overlay.has(block)) {
            return Err(invalid("the overlay is damaged: it has blocks behind the device's end"));
        }
        Ok((overlay, version == COMMITTED, base))
    }

    /// The number of blocks that are kept in the store, not below.
    pub fn changed_blocks(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }

    fn has(&self, block: u64) -> bool {
        self.bits[usize_of(block / 64)].load(Ordering::Acquire) >> (block % 64) & 1 == 1
    }

    /// Notes that blocks are in the store now.
    fn add(&self, blocks: Range<u64>) {
        for block in blocks {
            let bit = 1 << (block % 64);
            if self.bits[usize_of(block / 64)].fetch_or(bit, Ordering::AcqRel) & bit == 0 {
                self.dirty[usize_of(block / 8) / PART].store(true, Ordering::Release);
            }
        }
    }

    /// The bytes from `at` on, at most to `end`, which lie all in the store or all below.
    fn run(&self, at: u64, end: u64) -> (bool, Range<u64>) {
        let first = at / Self::BLOCK;
        let stored = self.has(first);
        let mut block = first + 1;
        while block * Self::BLOCK < end && self.has(block) == stored {
            // Whole words at once, for devices of which little has changed.
            let all = if stored { u64::MAX } else { 0 };
            let word =
                block.is_multiple_of(64) && self.bits[usize_of(block / 64)].load(Ordering::Acquire) == all;
            block += if word { 64 } else { 1 };
        }
        (stored, at..end.min(block * Self::BLOCK))
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<u64> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(end),
            _ => Err(past_end(offset, len, self.size)),
        }
    }

    /// Writes into one block that is not covered whole.
    fn write_part(&self, buf: &[u8], offset: u64) -> Result<()> {
        let block = offset / Self::BLOCK;
        {
            let _shared = self.filling.read().unwrap_or_else(PoisonError::into_inner);
            if self.has(block) {
                return self.store.write_at(buf, self.data_start + offset);
            }
        }
        let _alone = self.filling.write().unwrap_or_else(PoisonError::into_inner);
        if self.has(block) {
            return self.store.write_at(buf, self.data_start + offset);
        }
        let start = block * Self::BLOCK;
        let mut whole = vec![0; usize_of((self.size - start).min(Self::BLOCK))];
        self.below.read_at(&mut whole, start)?;
        whole[usize_of(offset - start)..][..buf.len()].copy_from_slice(buf);
        self.store.write_at(&whole, self.data_start + start)?;
        self.add(block..block + 1);
        Ok(())
    }

    /// Cuts a range at blocks: whole ones, with `true`, and parts of one.
    fn pieces(&self, offset: u64, end: u64) -> impl Iterator<Item = (bool, Range<u64>)> {
        let mut at = offset;
        let size = self.size;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let start = at;
            // The device's last block is whole where the device ends.
            let last_whole = if end == size { end } else { end - end % Self::BLOCK };
            let whole = start.is_multiple_of(Self::BLOCK) && start < last_whole;
            at = if whole { last_whole } else { end.min((start / Self::BLOCK + 1) * Self::BLOCK) };
            Some((whole, start..at))
        })
    }

    /// The blocks of a range that `pieces` calls whole.
    fn blocks(range: Range<u64>) -> Range<u64> {
        range.start / Self::BLOCK..range.end.div_ceil(Self::BLOCK)
    }
}

impl<D: BlockDevice, S: BlockDevice> BlockDevice for OverlayFile<D, S> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.below)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, mut buf: &mut [u8], offset: u64) -> Result<()> {
        let end = self.check_range(offset, u64_of(buf.len()))?;
        let mut at = offset;
        while at < end {
            let (stored, range) = self.run(at, end);
            let (now, later) = buf.split_at_mut(usize_of(range.end - range.start));
            match stored {
                true => self.store.read_at(now, self.data_start + at)?,
                false => self.below.read_at(now, at)?,
            }
            (buf, at) = (later, range.end);
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let end = self.check_range(offset, u64_of(buf.len()))?;
        for (whole, range) in self.pieces(offset, end) {
            let part = &buf[usize_of(range.start - offset)..usize_of(range.end - offset)];
            if whole {
                let _shared = self.filling.read().unwrap_or_else(PoisonError::into_inner);
                self.store.write_at(part, self.data_start + range.start)?;
                self.add(Self::blocks(range));
            } else {
                self.write_part(part, range.start)?;
            }
        }
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_punch: bool) -> Result<()> {
        let end = self.check_range(offset, len)?;
        for (whole, range) in self.pieces(offset, end) {
            let len = range.end - range.start;
            if whole {
                let _shared = self.filling.read().unwrap_or_else(PoisonError::into_inner);
                // A hole that ends the file would leave it too short to be read.
                let may_punch = may_punch && range.end < self.size;
                self.store.write_zeroes(self.data_start + range.start, len, may_punch)?;
                if range.end == self.size {
                    self.store.write_at(&[0], self.data_start + range.end - 1)?;
                }
                self.add(Self::blocks(range));
            } else {
                self.write_part(&vec![0; usize_of(len)], range.start)?;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let _one = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parts = Vec::new();
        for (number, dirty) in self.dirty.iter().enumerate() {
            if dirty.swap(false, Ordering::AcqRel) {
                let words = &self.bits[number * PART / 8..((number + 1) * PART / 8).min(self.bits.len())];
                let bytes = words.iter().flat_map(|word| word.load(Ordering::Acquire).to_le_bytes());
                parts.push((number, bytes.collect::<Vec<u8>>()));
            }
        }
        let written = self.store.flush().and_then(|()| {
            for (number, bytes) in &parts {
                self.store.write_at(bytes, u64_of(HEADER) + u64_of(number * PART))?;
            }
            if parts.is_empty() { Ok(()) } else { self.store.flush() }
        });
        if written.is_err() {
            parts.iter().for_each(|(number, _)| self.dirty[*number].store(true, Ordering::Release));
        }
        written
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        let mut at = offset;
        while at < self.size {
            let (stored, run) = self.run(at, self.size);
            let data = match stored {
                true => self.store.next_data(self.data_start + at)?.map(|data| {
                    data.start.saturating_sub(self.data_start)..data.end.saturating_sub(self.data_start)
                }),
                false => self.below.next_data(at)?,
            };
            if let Some(data) = data {
                let (start, end) = (data.start.max(at), data.end.min(run.end));
                if start < end {
                    return Ok(Some(start..end));
                }
            }
            at = run.end;
        }
        Ok(None)
    }
}

/// The bytes of a header.
fn header(version: u32, size: u64, base: &[u8; BASE]) -> Result<[u8; HEADER]> {
    let mut header = [0; HEADER];
    header[..16].copy_from_slice(MAGIC);
    header[16..20].copy_from_slice(&version.to_le_bytes());
    header[20..24].copy_from_slice(&4096u32.to_le_bytes());
    header[24..32].copy_from_slice(&size.to_le_bytes());
    header[32..40].copy_from_slice(&data_start(size)?.to_le_bytes());
    header[40..CHECKED].copy_from_slice(base);
    let crc = crc32(&header[..CHECKED]);
    header[CHECKED..CHECKED + 4].copy_from_slice(&crc.to_le_bytes());
    Ok(header)
}

/// Identity of the device below, padded with zeros as the header stores it.
fn padded(base: &[u8]) -> Result<[u8; BASE]> {
    let mut padded = [0; BASE];
    let place = padded.get_mut(..base.len());
    place.ok_or_else(|| Error::argument("the name of the device below is too long"))?.copy_from_slice(base);
    Ok(padded)
}

fn check_base(found: &[u8; BASE], base: &[u8]) -> Result<()> {
    match *found == padded(base)? {
        true => Ok(()),
        false => {
            let text = "the overlay belongs to another image, or this one was changed since it was made";
            Err(refuse(text).with_code(Code::Changed))
        }
    }
}

/// Where the blocks begin: behind header and bitmap, at a whole block.
fn data_start(size: u64) -> Result<u64> {
    // Positions in files end at 2^63.
    if size == 0 || size > 1 << 62 {
        let text = format!("an overlay can't be made for a device of {size} bytes");
        return Err(Error::argument(text));
    }
    Ok(u64_of(HEADER) + size.div_ceil(4096).div_ceil(8).next_multiple_of(4096))
}

fn refuse(text: &str) -> Error {
    Error::argument(text.to_owned())
}

fn invalid(text: &str) -> Error {
    Error::corrupt(text.to_owned())
}

const MAGIC: &[u8; 16] = b"casemate overlay";
const VERSION: u32 = 1;
/// The version of a store whose blocks are on their way into the device below.
const COMMITTED: u32 = 2;
/// Bytes that are copied at once.
const COPIED: u64 = 1 << 20;
const HEADER: usize = 4096;
/// The longest identity of a device below.
const BASE: usize = 64;
/// The bytes of the header that its checksum covers.
const CHECKED: usize = 40 + BASE;
/// The bitmap is written in parts of so many bytes.
const PART: usize = 4096;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{FileDevice, MemoryDevice};

    type Model = Vec<u8>;
    type Writes = Vec<(u64, Vec<u8>)>;

    /// A disk with a cache: after a power failure each write since the last flush is there or not.
    #[derive(Debug, Default)]
    struct Lossy {
        stable: Mutex<Vec<u8>>,
        cached: Mutex<(Vec<u8>, Writes)>,
    }

    impl Lossy {
        fn power_failure(&self, mut random: impl FnMut(u64) -> u64) {
            let (mut stable, mut cached) = (self.stable.lock().unwrap(), self.cached.lock().unwrap());
            for (offset, data) in std::mem::take(&mut cached.1) {
                // In whole sectors, some of them.
                for (k, sector) in data.chunks(512).enumerate() {
                    if random(2) == 0 {
                        put(&mut stable, sector, offset + k as u64 * 512);
                    }
                }
            }
            cached.0 = stable.clone();
        }
    }

    fn put(bytes: &mut Vec<u8>, data: &[u8], offset: u64) {
        let end = offset as usize + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(data);
    }

    impl BlockDevice for Lossy {
        fn below(&self) -> Option<&dyn BlockDevice> {
            None
        }
        fn size(&self) -> u64 {
            self.cached.lock().unwrap().0.len() as u64
        }
        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            let cached = self.cached.lock().unwrap();
            let start = cached.0.len().min(offset as usize);
            let there = &cached.0[start..cached.0.len().min(start + buf.len())];
            buf[..there.len()].copy_from_slice(there);
            buf[there.len()..].fill(0);
            Ok(())
        }
        fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
            let mut cached = self.cached.lock().unwrap();
            put(&mut cached.0, buf, offset);
            cached.1.push((offset, buf.to_vec()));
            Ok(())
        }
        fn flush(&self) -> Result<()> {
            let mut cached = self.cached.lock().unwrap();
            cached.1.clear();
            *self.stable.lock().unwrap() = cached.0.clone();
            Ok(())
        }
    }

    fn random(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed * 2 + 1;
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        }
    }

    /// Writes, zeros and flushes at random, then a power failure: what was flushed is there, and each sector written
    /// since is old or new.
    #[test]
    fn what_was_flushed_survives_a_power_failure() {
        const SIZE: u64 = 9 * 4096 + 512;
        for seed in 0..100 {
            let mut random = random(seed);
            let base: Model = (0..SIZE).map(|_| random(256) as u8).collect();
            let below = MemoryDevice::new(base.clone());
            let store = Arc::new(Lossy::default());
            OverlayFile::<&MemoryDevice, _>::format(&store, SIZE, b"base").unwrap();
            let mut model = base.clone();
            // Each byte's values since the last flush.
            let mut possible: Vec<Vec<u8>> = base.iter().map(|byte| vec![*byte]).collect();
            for _ in 0..3 {
                let overlay = OverlayFile::open(&below, Arc::clone(&store), b"base").unwrap();
                for _ in 0..random(20) {
                    let offset = random(SIZE / 512) * 512;
                    let len = 512 * (1 + random(30)).min((SIZE - offset) / 512);
                    match random(8) {
                        0 => {
                            overlay.flush().unwrap();
                            possible = model.iter().map(|byte| vec![*byte]).collect();
                            continue;
                        }
                        1 => {
                            overlay.write_zeroes(offset, len, true).unwrap();
                            model[offset as usize..(offset + len) as usize].fill(0);
                        }
                        _ => {
                            let data: Vec<u8> = (0..len).map(|_| random(256) as u8).collect();
                            overlay.write_at(&data, offset).unwrap();
                            model[offset as usize..(offset + len) as usize].copy_from_slice(&data);
                        }
                    }
                    for at in offset as usize..(offset + len) as usize {
                        possible[at].push(model[at]);
                    }
                    let mut found = vec![0; SIZE as usize];
                    overlay.read_at(&mut found, 0).unwrap();
                    assert!(found == model, "seed {seed}");
                }
                drop(overlay);
                store.power_failure(&mut random);
                let overlay = OverlayFile::open(&below, Arc::clone(&store), b"base").unwrap();
                let mut found = vec![0; SIZE as usize];
                overlay.read_at(&mut found, 0).unwrap();
                for (at, byte) in found.iter().enumerate() {
                    assert!(possible[at].contains(byte), "seed {seed}, byte {at}");
                }
                overlay.flush().unwrap();
                model = found;
                possible = model.iter().map(|byte| vec![*byte]).collect();
            }
            assert!(below.into_bytes() == base);
        }
    }

    #[test]
    fn parts_of_one_block_by_many_threads() {
        let below = MemoryDevice::new(vec![7; 8 * 4096]);
        let file = FileDevice::from_file(tempfile::tempfile().unwrap()).unwrap();
        OverlayFile::<&MemoryDevice, _>::format(&file, 8 * 4096, b"").unwrap();
        let overlay = OverlayFile::open(&below, file, b"").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let overlay = &overlay;
                scope.spawn(move || {
                    for part in (usize::from(thread)..8 * 64).step_by(4) {
                        overlay.write_at(&[thread; 64], part as u64 * 64).unwrap();
                    }
                });
            }
        });
        let mut found = vec![0; 8 * 4096];
        overlay.read_at(&mut found, 0).unwrap();
        assert!(found.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at / 64 % 4));
        assert_eq!(overlay.changed_blocks(), 8);
    }

    #[test]
    #[cfg(unix)]
    fn holes_are_those_of_both_files() {
        let below = tempfile::tempfile().unwrap();
        below.set_len(4 << 20).unwrap();
        let below = FileDevice::from_file(below).unwrap();
        below.write_at(&[1; 4096], 1 << 20).unwrap();
        let file = FileDevice::from_file(tempfile::tempfile().unwrap()).unwrap();
        OverlayFile::<&FileDevice, _>::format(&file, 4 << 20, b"").unwrap();
        let overlay = OverlayFile::open(&below, file, b"").unwrap();
        overlay.write_at(&[2; 8192], 2 << 20).unwrap();
        overlay.write_zeroes(1 << 20, 4096, true).unwrap();
        let data = overlay.next_data(0).unwrap().unwrap();
        assert_eq!(data, 2 << 20..(2 << 20) + 8192);
        assert_eq!(overlay.next_data(data.end).unwrap(), None);
        overlay.write_zeroes(3 << 20, 1 << 20, true).unwrap();
        let mut end = [9; 10];
        overlay.read_at(&mut end, (4 << 20) - 10).unwrap();
        assert_eq!(end, [0; 10]);
    }

    #[test]
    fn strangers_are_refused() {
        let below = MemoryDevice::new(vec![0; 10_000]);
        let file = || FileDevice::from_file(tempfile::tempfile().unwrap()).unwrap();
        let message =
            |store: &FileDevice, base: &[u8]| OverlayFile::open(&below, store, base).unwrap_err().to_string();
        let store = file();
        assert_eq!(message(&store, b""), "the file is too short for an overlay");
        OverlayFile::<&MemoryDevice, _>::format(&store, 10_000, b"one").unwrap();
        assert!(OverlayFile::open(&below, &store, b"one").is_ok());
        assert!(message(&store, b"two").starts_with("the overlay belongs to another image"));
        store.write_at(&[0x10], 4096).unwrap();
        assert_eq!(message(&store, b"one"), "the overlay is damaged: it has blocks behind the device's end");
        store.write_at(&[9], 30).unwrap();
        assert_eq!(message(&store, b"one"), "the overlay's header is damaged: its checksum is wrong");
        store.write_at(&[9], 0).unwrap();
        assert_eq!(message(&store, b"one"), "the file is not an overlay");
        let other = file();
        OverlayFile::<&MemoryDevice, _>::format(&other, 20_000, b"").unwrap();
        assert_eq!(message(&other, b""), "the overlay is of a device of 20000 bytes, not 10000");
        assert!(OverlayFile::<&MemoryDevice, _>::format(&other, 0, b"").is_err());
    }
}
