//! A device whose changes are kept in a file.
//!
//! The file is a header, a bitmap with a bit for each block of 4096 bytes, checksums of what lies below the blocks, and
//! then the blocks, each at its own position (docs/formats/overlay.md). A block whose bit is 0 is that of the device below. The file is sparse: what was
//! never written takes no room.
//!
//! Power may go at any moment: a bit is written only after its block is on stable storage, which is when a flush is
//! asked for. A bit that is lost takes back a write that was never flushed. Bits are independent
//! of each other, so it does not matter which part of the bitmap was written when the power went.
//!
//! The blocks mean something only together with the device below as it was when they came. [`OverlayBase`] says whether it still is,
//! and the checksums say it of the sectors below each block: a commit writes over nothing else.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::advice::Advice;
use crate::code::Code;
use crate::device::{BlockDevice, past_end};
use crate::error::{Error, Result};
use crate::events::Events;
use crate::partition::crc32;
use crate::{u64_of, usize_of};

/// Proof that the device below an overlay is the one that it was made over, and has not changed.
pub trait OverlayBase: fmt::Debug + Send + Sync {
    /// At most 64 bytes that say which device `device` is, such as a digest of samples, in the way of an edition of the format.
    ///
    /// # Errors
    /// Errors of reading the device.
    fn identity(&self, device: &dyn BlockDevice, edition: OverlayEdition) -> Result<Vec<u8>>;

    /// Digest that stays the same until somebody writes to the device; `None` if nothing tells.
    ///
    /// # Errors
    /// Errors of asking for it.
    fn state(&self) -> Result<Option<[u8; STATE]>>;

    /// Whether the identity proves all that the device holds.
    fn is_constant(&self) -> bool;

    /// Whether the caller answers for a device whose state is not what it was.
    fn is_trusted(&self) -> bool;

    /// Checksum of a sector.
    fn checksum(&self, sector: &[u8]) -> [u8; SUM];
}

/// A device that never changes, by its name.
impl OverlayBase for Vec<u8> {
    fn identity(&self, _: &dyn BlockDevice, _: OverlayEdition) -> Result<Vec<u8>> {
        Ok(self.clone())
    }
    fn state(&self) -> Result<Option<[u8; STATE]>> {
        Ok(None)
    }
    fn is_constant(&self) -> bool {
        true
    }
    fn is_trusted(&self) -> bool {
        false
    }
    fn checksum(&self, _: &[u8]) -> [u8; SUM] {
        [0; SUM]
    }
}

/// OverlayEdition of the format, which has two versions: one to be used, and one for the time of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlayEdition {
    /// Versions 1 and 2, without a state and checksums of the device below.
    First,
    /// Versions 3 and 4.
    Second,
}

/// A device with changes that are kept in `store`, usually a file; what is below is never written.
#[derive(Debug)]
pub struct OverlayFile<D, S> {
    below: D,
    store: S,
    base: Arc<dyn OverlayBase>,
    size: u64,
    layout: Layout,
    /// A bit for each block: whether it is in the store.
    bits: Vec<AtomicU64>,
    /// Parts of the bitmap that have bits which the store has not.
    dirty: Vec<AtomicBool>,
    /// Whether bits and checksums of each 64 blocks have room in the store: a flush writes them there, also on a full disk.
    has_room: Vec<AtomicBool>,
    /// One room at a time is made.
    making_room: Mutex<()>,
    /// One flush at a time, the next of which writes this header where it writes new bits.
    flushing: Mutex<Option<[u8; HEADER]>>,
    /// Held exclusively while a whole block is made of a part and the block below; shared by all other work.
    filling: RwLock<()>,
}

impl<D: BlockDevice, S: BlockDevice> OverlayFile<D, S> {
    /// Bytes of a block.
    pub const BLOCK: u64 = 4096;

    /// Makes an empty store for changes of `below`.
    ///
    /// # Errors
    /// `Argument` for sizes that can't be; what the store and the base say.
    pub fn format(store: &S, below: &D, base: &dyn OverlayBase) -> Result<()> {
        let layout = Layout::new(OverlayEdition::Second, below.size())?;
        let head = Head {
            is_committed: false,
            identity: padded(&base.identity(below, OverlayEdition::Second)?)?,
            state: base.state()?,
        };
        store.write_zeroes(u64_of(HEADER), layout.bitmap, true)?;
        // A hole behind the end of a file is there only when something follows.
        store.write_at(&[0], layout.data_start - 1)?;
        store.flush()?;
        store.write_at(&layout.header(&head), 0)?;
        store.flush()
    }

    /// Opens a store that has changes of `below`.
    ///
    /// # Errors
    /// `Argument` if it is none, belongs to another device, or if `below` has changed; `Corrupt` if it is damaged; what the
    /// store and the base say.
    pub fn open(below: D, store: S, base: Arc<dyn OverlayBase>) -> Result<OverlayFile<D, S>> {
        let (mut overlay, head) = OverlayFile::read(below, store, base)?;
        if head.is_committed {
            return Err(refuse("a commit of the overlay was interrupted").advise(Advice::CommitOverlay));
        }
        let identity = overlay.check_identity(&head, &overlay.below)?;
        let state = overlay.base.state()?;
        if !overlay.check_state(&head, state)? {
            overlay.check_blocks()?;
        }
        if overlay.layout.edition == OverlayEdition::Second && state != head.state {
            let new = Head { is_committed: false, identity, state };
            overlay.flushing = Mutex::new(Some(overlay.layout.header(&new)));
        }
        Ok(overlay)
    }

    /// Writes what a store has into the device below, and empties the store, which is one for the device as it is then.
    /// Returns how many blocks were written; the listener hears of their bytes. What was interrupted is completed by the same
    /// again: nothing but that can be done with the store meanwhile.
    ///
    /// # Errors
    /// Errors of [`OverlayFile::open`]; `Argument` if a block below is neither as it was nor as the store has it, before
    /// anything is written; errors of either device, after which a second call may succeed.
    pub fn commit(below: D, store: S, base: Arc<dyn OverlayBase>, events: &dyn Events) -> Result<u64> {
        let (overlay, head) = OverlayFile::read(below, store, base)?;
        let OverlayFile { below, store, base, layout, size, .. } = &overlay;
        // What is seen through the store stays the same from the beginning of the commit to its end: this tells the device
        // meanwhile.
        let view = padded(&base.identity(&overlay, layout.edition)?)?;
        if head.is_committed {
            same_base(&head.identity, &view)?;
        } else {
            overlay.check_identity(&head, below)?;
            overlay.check_state(&head, base.state()?)?;
        }
        match (overlay.check_blocks(), head.is_committed) {
            // Half of the blocks are written: nothing but the other half is a way out.
            (Err(error), true) if error.code() == Code::Changed && base.is_trusted() => {}
            (Err(error), true) => return Err(error.advise(Advice::TrustImage)),
            (checked, _) => checked?,
        }
        let write_header = |is_committed, state| -> Result<()> {
            store.write_at(&layout.header(&Head { is_committed, identity: view, state }), 0)?;
            store.flush()
        };
        store.flush()?;
        write_header(true, head.state)?;
        let mut buffer = vec![0; usize_of(COPIED.min(*size))];
        let mut at = 0;
        while at < *size {
            let (is_stored, run) = overlay.run(at, *size);
            at = run.end;
            for start in run.clone().step_by(buffer.len()).filter(|_| is_stored) {
                let piece = &mut buffer[..usize_of((run.end - start).min(COPIED))];
                store.read_at(piece, layout.data_start + start)?;
                below.write_at(piece, start)?;
                events.advance(u64_of(piece.len()))?;
            }
        }
        below.flush()?;
        store.write_zeroes(u64_of(HEADER), layout.bitmap, true)?;
        store.flush()?;
        write_header(false, base.state()?)?;
        store.discard(layout.data_start, *size)?;
        Ok(overlay.changed_blocks())
    }

    /// A store over `below`, with what its header says of it.
    fn read(below: D, store: S, base: Arc<dyn OverlayBase>) -> Result<(OverlayFile<D, S>, Head)> {
        let size = below.size();
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
        let another_version = || refuse("the overlay is of another version");
        let (edition, is_committed) = match le32(16) {
            1 => (OverlayEdition::First, false),
            2 => (OverlayEdition::First, true),
            3 => (OverlayEdition::Second, false),
            4 => (OverlayEdition::Second, true),
            _ => return Err(another_version()),
        };
        let layout = Layout::new(edition, size)?;
        let checked = layout.checked();
        if le32(checked) != crc32(&header[..checked]) {
            return Err(invalid("the overlay's header is damaged: its checksum is wrong"));
        }
        if u64::from(le32(20)) != Self::BLOCK || le64(32) != layout.data_start && le64(24) == size {
            return Err(another_version());
        }
        if le64(24) != size {
            return Err(refuse(&format!("the overlay is of a device of {} bytes, not {size}", le64(24))));
        }
        let identity = header[IDENTITY..][..BASE].try_into().expect("as many bytes");
        let state: [u8; STATE] = header[IDENTITY + BASE..][..STATE].try_into().expect("as many bytes");
        let state = Some(state).filter(|state| edition == OverlayEdition::Second && *state != [0; STATE]);
        let head = Head { is_committed, identity, state };
        let blocks = size.div_ceil(Self::BLOCK);
        // The size is that of a device which exists.
        let mut bytes = vec![0; usize_of(layout.bitmap)];
        store.read_at(&mut bytes, u64_of(HEADER))?;
        let bits: Vec<AtomicU64> = bytes
            .chunks_exact(8)
            .map(|word| AtomicU64::new(u64::from_le_bytes(word.try_into().expect("eight bytes"))))
            .collect();
        let dirty = bytes.chunks(PART).map(|_| AtomicBool::new(false)).collect();
        let has_room = bits.iter().map(|word| AtomicBool::new(word.load(Ordering::Relaxed) != 0)).collect();
        let overlay = OverlayFile {
            below,
            store,
            base,
            size,
            layout,
            bits,
            dirty,
            has_room,
            making_room: Mutex::default(),
            flushing: Mutex::default(),
            filling: RwLock::default(),
        };
        if (blocks..u64_of(overlay.bits.len()) * 64).any(|block| overlay.has(block)) {
            return Err(invalid("the overlay is damaged: it has blocks behind the device's end"));
        }
        Ok((overlay, head))
    }

    /// Refuses another device than that of which the header is; returns its identity.
    fn check_identity(&self, head: &Head, device: &dyn BlockDevice) -> Result<[u8; BASE]> {
        let identity = padded(&self.base.identity(device, self.layout.edition)?)?;
        same_base(&head.identity, &identity).map(|()| identity)
    }

    /// Refuses a device below to which somebody has written, unless the caller answers for that. Returns whether it is
    /// proved that nobody has. A store without blocks belongs to whatever is below.
    fn check_state(&self, head: &Head, state: Option<[u8; STATE]>) -> Result<bool> {
        if self.changed_blocks() == 0 || self.base.is_constant() {
            return Ok(true);
        }
        if state != head.state && !self.base.is_trusted() {
            let text = match self.layout.edition {
                OverlayEdition::First => {
                    "the overlay was made by an earlier version, which did not note whether the image changes"
                }
                OverlayEdition::Second => {
                    "the image was written to after the overlay was made, or it is a copy with another time of modification"
                }
            };
            return Err(refuse(text).with_code(Code::Changed).advise(Advice::TrustImage));
        }
        Ok(state.is_some() && state == head.state)
    }

    /// Refuses a device below that has something else under the store's blocks than it had when they came, and than they
    /// have themselves.
    fn check_blocks(&self) -> Result<()> {
        let Some(sums_start) = self.layout.sums_start else { return Ok(()) };
        let mut changed = 0u64;
        let words = (0..u64_of(self.bits.len())).filter(|word| self.word(*word) != 0);
        for block in words.flat_map(|word| word * 64..word * 64 + 64).filter(|block| self.has(*block)) {
            // What can't be read any more can't be lost either.
            let Ok(below) = self.block_below(block) else { continue };
            let mut sums = [0; SUMS];
            self.store.read_at(&mut sums, sums_start + block * u64_of(SUMS))?;
            let is_old = |sector: &[u8], sum: &[u8]| sum == [0; SUM] || self.base.checksum(sector) == *sum;
            let pairs = || below.chunks(SECTOR).zip(sums.chunks(SUM));
            if pairs().all(|(sector, sum)| is_old(sector, sum)) {
                continue;
            }
            let mut new = vec![0; below.len()];
            self.store.read_at(&mut new, self.layout.data_start + block * Self::BLOCK)?;
            let is_known =
                |((sector, sum), new): ((&[u8], &[u8]), &[u8])| sector == new || is_old(sector, sum);
            changed += u64::from(!pairs().zip(new.chunks(SECTOR)).all(is_known));
        }
        match changed {
            0 => Ok(()),
            _ => {
                let text = format!(
                    "the image was written to after the overlay was made: {changed} blocks of 4096 bytes that the \
                     overlay keeps are neither as they were nor as the overlay has them"
                );
                Err(refuse(&text).with_code(Code::Changed))
            }
        }
    }

    /// Notes checksums of what lies below blocks that are new in parts of the bitmap.
    fn note_below(&self, parts: &[(usize, Vec<u8>)]) -> Result<()> {
        let Some(sums_start) = self.sums_noted() else { return Ok(()) };
        for (number, bytes) in parts {
            let mut old = vec![0; bytes.len()];
            self.store.read_at(&mut old, u64_of(HEADER) + u64_of(number * PART))?;
            for (at, (new, old)) in bytes.iter().zip(&old).enumerate().filter(|(_, (new, old))| new != old) {
                let first = u64_of(number * PART + at) * 8;
                let bits = (0..8).filter(|bit| (new & !old) >> bit & 1 == 1);
                for block in bits.map(|bit| first + bit) {
                    let mut sums = [0; SUMS];
                    if let Ok(below) = self.block_below(block) {
                        for (sum, sector) in sums.chunks_mut(SUM).zip(below.chunks(SECTOR)) {
                            sum.copy_from_slice(&self.base.checksum(sector));
                        }
                    }
                    self.store.write_at(&sums, sums_start + block * u64_of(SUMS))?;
                }
            }
        }
        Ok(())
    }

    /// The bytes of a block below.
    fn block_below(&self, block: u64) -> Result<Vec<u8>> {
        let start = block * Self::BLOCK;
        let mut whole = vec![0; usize_of((self.size - start).min(Self::BLOCK))];
        self.below.read_at(&mut whole, start).map(|()| whole)
    }

    /// The number of blocks that are kept in the store, not below.
    pub fn changed_blocks(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }

    fn has(&self, block: u64) -> bool {
        self.word(block / 64) >> (block % 64) & 1 == 1
    }

    /// The bits of 64 blocks.
    fn word(&self, number: u64) -> u64 {
        self.bits[usize_of(number)].load(Ordering::Acquire)
    }

    /// Makes room for the bits of blocks that come into the store, and for checksums of what lies below them.
    fn make_room(&self, blocks: Range<u64>) -> Result<()> {
        for group in blocks.start / 64..blocks.end.div_ceil(64) {
            let has_room = &self.has_room[usize_of(group)];
            if has_room.load(Ordering::Acquire) {
                continue;
            }
            let _one = self.making_room.lock().unwrap_or_else(PoisonError::into_inner);
            if !has_room.load(Ordering::Acquire) {
                let part = usize_of(group) / PART_WORDS;
                let groups = &self.has_room[part * PART_WORDS..][..PART_WORDS];
                // A part that no block has come to is all zeros, and no flush writes it before its first block has room.
                if !groups.iter().any(|group| group.load(Ordering::Acquire)) {
                    self.store.write_at(&[0; PART], u64_of(HEADER) + u64_of(part * PART))?;
                }
                if let Some(sums_start) = self.sums_noted() {
                    self.store.write_at(&[0; 64 * SUMS], sums_start + group * u64_of(64 * SUMS))?;
                }
                has_room.store(true, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Where checksums of what lies below new blocks are noted, if they are.
    fn sums_noted(&self) -> Option<u64> {
        self.layout.sums_start.filter(|_| !self.base.is_constant())
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
                return self.store.write_at(buf, self.layout.data_start + offset);
            }
        }
        let _alone = self.filling.write().unwrap_or_else(PoisonError::into_inner);
        if self.has(block) {
            return self.store.write_at(buf, self.layout.data_start + offset);
        }
        let start = block * Self::BLOCK;
        let mut whole = self.block_below(block)?;
        self.make_room(block..block + 1)?;
        whole[usize_of(offset - start)..][..buf.len()].copy_from_slice(buf);
        self.store.write_at(&whole, self.layout.data_start + start)?;
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
                true => self.store.read_at(now, self.layout.data_start + at)?,
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
                self.make_room(Self::blocks(range.clone()))?;
                self.store.write_at(part, self.layout.data_start + range.start)?;
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
                let end = self.layout.data_start + range.end;
                self.make_room(Self::blocks(range.clone()))?;
                // A hole behind the end of the file would leave it too short to be read.
                if self.store.size() < end {
                    self.store.write_at(&[0], end - 1)?;
                }
                self.store.write_zeroes(end - len, len, may_punch)?;
                self.add(Self::blocks(range));
            } else {
                self.write_part(&vec![0; usize_of(len)], range.start)?;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut header = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parts = Vec::new();
        for (number, dirty) in self.dirty.iter().enumerate() {
            if dirty.swap(false, Ordering::AcqRel) {
                let words = &self.bits[number * PART / 8..((number + 1) * PART / 8).min(self.bits.len())];
                let bytes = words.iter().flat_map(|word| word.load(Ordering::Acquire).to_le_bytes());
                parts.push((number, bytes.collect::<Vec<u8>>()));
            }
        }
        let noted = || {
            self.note_below(&parts)?;
            match header.filter(|_| !parts.is_empty()) {
                Some(header) => self.store.write_at(&header, 0),
                None => Ok(()),
            }
        };
        let written = noted().and_then(|()| self.store.flush()).and_then(|()| {
            for (number, bytes) in &parts {
                self.store.write_at(bytes, u64_of(HEADER) + u64_of(number * PART))?;
            }
            if parts.is_empty() { Ok(()) } else { self.store.flush() }
        });
        match &written {
            Err(_) => parts.iter().for_each(|(number, _)| self.dirty[*number].store(true, Ordering::Release)),
            Ok(()) if !parts.is_empty() => *header = None,
            Ok(()) => {}
        }
        written
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        let mut at = offset;
        while at < self.size {
            let (stored, run) = self.run(at, self.size);
            let data = match stored {
                true => self.store.next_data(self.layout.data_start + at)?.map(|data| {
                    data.start.saturating_sub(self.layout.data_start)
                        ..data.end.saturating_sub(self.layout.data_start)
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

/// Contents of a header, besides sizes.
struct Head {
    /// Whether a commit has begun.
    is_committed: bool,
    identity: [u8; BASE],
    state: Option<[u8; STATE]>,
}

/// Places in a store.
#[derive(Clone, Debug)]
struct Layout {
    edition: OverlayEdition,
    size: u64,
    /// Bytes of the bitmap.
    bitmap: u64,
    /// Where the checksums of what lies below the blocks begin, if there are any.
    sums_start: Option<u64>,
    /// Where the blocks begin, at a whole block.
    data_start: u64,
}

impl Layout {
    fn new(edition: OverlayEdition, size: u64) -> Result<Layout> {
        // Positions in files end at 2^63.
        if size == 0 || size > 1 << 62 {
            let text = format!("an overlay can't be made for a device of {size} bytes");
            return Err(Error::argument(text));
        }
        let blocks = size.div_ceil(4096);
        let bitmap = blocks.div_ceil(8).next_multiple_of(4096);
        let behind = u64_of(HEADER) + bitmap;
        let (sums_start, data_start) = match edition {
            OverlayEdition::First => (None, behind),
            OverlayEdition::Second => (Some(behind), behind + (blocks * u64_of(SUMS)).next_multiple_of(4096)),
        };
        Ok(Layout { edition, size, bitmap, sums_start, data_start })
    }

    /// How many bytes of the header its checksum covers.
    fn checked(&self) -> usize {
        match self.edition {
            OverlayEdition::First => IDENTITY + BASE,
            OverlayEdition::Second => IDENTITY + BASE + STATE,
        }
    }

    /// The bytes of a header.
    fn header(&self, head: &Head) -> [u8; HEADER] {
        let version = match self.edition {
            OverlayEdition::First => 1u32,
            OverlayEdition::Second => 3,
        } + u32::from(head.is_committed);
        let mut header = [0; HEADER];
        header[..16].copy_from_slice(MAGIC);
        header[16..20].copy_from_slice(&version.to_le_bytes());
        header[20..24].copy_from_slice(&4096u32.to_le_bytes());
        header[24..32].copy_from_slice(&self.size.to_le_bytes());
        header[32..40].copy_from_slice(&self.data_start.to_le_bytes());
        header[IDENTITY..][..BASE].copy_from_slice(&head.identity);
        if self.edition == OverlayEdition::Second {
            header[IDENTITY + BASE..][..STATE].copy_from_slice(&head.state.unwrap_or_default());
        }
        let checked = self.checked();
        let crc = crc32(&header[..checked]);
        header[checked..checked + 4].copy_from_slice(&crc.to_le_bytes());
        header
    }
}

/// Identity of the device below, padded with zeros as the header stores it.
fn padded(base: &[u8]) -> Result<[u8; BASE]> {
    let mut padded = [0; BASE];
    let place = padded.get_mut(..base.len());
    place.ok_or_else(|| Error::argument("the name of the device below is too long"))?.copy_from_slice(base);
    Ok(padded)
}

fn same_base(found: &[u8; BASE], base: &[u8; BASE]) -> Result<()> {
    match found == base {
        true => Ok(()),
        false => {
            let text = "the overlay belongs to another image, or this one was changed since it was made";
            Err(refuse(text).with_code(Code::Changed))
        }
    }
}

fn refuse(text: &str) -> Error {
    Error::argument(text.to_owned())
}

fn invalid(text: &str) -> Error {
    Error::corrupt(text.to_owned())
}

const MAGIC: &[u8; 16] = b"casemate overlay";
/// Bytes that are copied at once.
const COPIED: u64 = 1 << 20;
const HEADER: usize = 4096;
/// The longest identity of a device below.
const BASE: usize = 64;
/// Where the identity lies in the header.
const IDENTITY: usize = 40;
/// Bytes of a state of the device below, of which all zeros say that there is none.
pub const STATE: usize = 32;
/// Bytes of a checksum, of which all zeros say that there is none.
pub const SUM: usize = 8;
/// Bytes of a sector, which is old or new after a power failure, and has a checksum.
const SECTOR: usize = 512;
/// Bytes of the checksums of a block.
const SUMS: usize = 4096 / SECTOR * SUM;
/// The bitmap is written in parts of so many bytes.
const PART: usize = 4096;
/// Words of a part, each with the bits of 64 blocks.
const PART_WORDS: usize = PART / 8;

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

    fn base_of(name: &str) -> Vec<u8> {
        name.as_bytes().to_vec()
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
            OverlayFile::format(&store, &&below, &base_of("base")).unwrap();
            let mut model = base.clone();
            // Each byte's values since the last flush.
            let mut possible: Vec<Vec<u8>> = base.iter().map(|byte| vec![*byte]).collect();
            for _ in 0..3 {
                let overlay =
                    OverlayFile::open(&below, Arc::clone(&store), Arc::new(base_of("base"))).unwrap();
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
                let overlay =
                    OverlayFile::open(&below, Arc::clone(&store), Arc::new(base_of("base"))).unwrap();
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
        OverlayFile::format(&file, &&below, &base_of("")).unwrap();
        let overlay = OverlayFile::open(&below, file, Arc::new(base_of(""))).unwrap();
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
        OverlayFile::format(&file, &&below, &base_of("")).unwrap();
        let overlay = OverlayFile::open(&below, file, Arc::new(base_of(""))).unwrap();
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
        let message = |store: &FileDevice, base: &str| {
            OverlayFile::open(&below, store, Arc::new(base_of(base))).unwrap_err().to_string()
        };
        let store = file();
        assert_eq!(message(&store, ""), "the file is too short for an overlay");
        OverlayFile::format(&store, &&below, &base_of("one")).unwrap();
        assert!(OverlayFile::open(&below, &store, Arc::new(base_of("one"))).is_ok());
        assert!(message(&store, "two").starts_with("the overlay belongs to another image"));
        store.write_at(&[0x10], 4096).unwrap();
        assert_eq!(message(&store, "one"), "the overlay is damaged: it has blocks behind the device's end");
        store.write_at(&[9], 30).unwrap();
        assert_eq!(message(&store, "one"), "the overlay's header is damaged: its checksum is wrong");
        store.write_at(&[9], 0).unwrap();
        assert_eq!(message(&store, "one"), "the file is not an overlay");
        let other = file();
        OverlayFile::format(&other, &MemoryDevice::new(vec![0; 20_000]), &base_of("")).unwrap();
        assert_eq!(message(&other, ""), "the overlay is of a device of 20000 bytes, not 10000");
        assert!(OverlayFile::format(&other, &MemoryDevice::new(Vec::new()), &base_of("")).is_err());
    }

    /// A device that somebody may write to: its state is a number, and trust is asked for.
    #[derive(Clone, Debug, Default)]
    struct Writable {
        state: Option<u8>,
        is_trusted: bool,
    }

    impl OverlayBase for Writable {
        fn identity(&self, _: &dyn BlockDevice, edition: OverlayEdition) -> Result<Vec<u8>> {
            Ok(format!("{edition:?}").into_bytes())
        }
        fn state(&self) -> Result<Option<[u8; STATE]>> {
            Ok(self.state.map(|state| [state; STATE]))
        }
        fn is_constant(&self) -> bool {
            false
        }
        fn is_trusted(&self) -> bool {
            self.is_trusted
        }
        fn checksum(&self, sector: &[u8]) -> [u8; SUM] {
            (u64::from(crc32(sector)) << 32 | 1).to_le_bytes()
        }
    }

    fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
        let mut bytes = vec![0; usize_of(device.size())];
        device.read_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn base(state: Option<u8>, is_trusted: bool) -> Writable {
        Writable { state, is_trusted }
    }

    /// Text of an error, or nothing.
    fn text_of<T>(result: Result<T>) -> String {
        result.map_or_else(|error| error.to_string(), |_| String::new())
    }

    /// A device of ones whose overlay has twos in blocks 1 to 8.
    fn written(base: &Writable) -> (MemoryDevice, Arc<Lossy>) {
        let (below, store) = (MemoryDevice::new(vec![1; 20 * 4096 - 100]), Arc::new(Lossy::default()));
        OverlayFile::format(&store, &&below, base).unwrap();
        let overlay = OverlayFile::open(&below, Arc::clone(&store), Arc::new(base.clone())).unwrap();
        overlay.write_at(&[2; 8 * 4096], 4096).unwrap();
        overlay.flush().unwrap();
        drop(overlay);
        (below, store)
    }

    #[test]
    fn a_device_that_was_written_to_is_refused() {
        let (below, store) = written(&base(Some(1), false));
        let open = |base: Writable| text_of(OverlayFile::open(&below, Arc::clone(&store), Arc::new(base)));
        let commit =
            |base| text_of(OverlayFile::commit(&below, Arc::clone(&store), Arc::new(base), &crate::NoEvents));
        assert_eq!(open(base(Some(1), false)), "");
        for state in [Some(2), None] {
            for said in [open(base(state, false)), commit(base(state, false))] {
                assert!(said.starts_with("the image was written to after"), "{said}");
            }
            assert_eq!(open(base(state, true)), "");
        }
        // Who trusts a device has said so from its first new block on.
        let overlay = OverlayFile::open(&below, Arc::clone(&store), Arc::new(base(Some(3), true))).unwrap();
        overlay.flush().unwrap();
        assert_ne!(open(base(Some(3), false)), "");
        overlay.write_at(&[2; 10], 15 * 4096).unwrap();
        overlay.flush().unwrap();
        assert_eq!(open(base(Some(3), false)), "");
        // What lies under the blocks shows it without a state, and to those who trust it.
        below.write_at(&[7], 15 * 4096 + 5000).unwrap();
        assert_eq!(open(base(Some(4), true)), "");
        below.write_at(&[7], 15 * 4096 + 4000).unwrap();
        let before = bytes_of(&below);
        for said in [open(base(Some(4), true)), commit(base(Some(4), true)), commit(base(Some(3), false))] {
            assert!(said.contains("1 blocks of 4096 bytes that the overlay keeps are neither"), "{said}");
        }
        assert!(bytes_of(&below) == before);
        below.write_at(&[1], 15 * 4096 + 4000).unwrap();
        assert_eq!(commit(base(Some(3), false)), "");
        let mut bytes = [0; 3];
        below.read_at(&mut bytes, 9 * 4096 - 2).unwrap();
        assert_eq!(bytes, [2, 2, 1]);
        // An overlay without blocks belongs to whatever is below.
        assert_eq!(open(base(Some(9), false)), "");
    }

    /// A device that takes a number of writes.
    #[derive(Debug)]
    struct Ending<'a>(&'a MemoryDevice, AtomicU64);

    impl BlockDevice for Ending<'_> {
        fn below(&self) -> Option<&dyn BlockDevice> {
            Some(self.0)
        }
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            self.0.read_at(buf, offset)
        }
        fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
            // The power fails within the second sector.
            self.0.write_at(&buf[..1024], offset)?;
            match self.1.fetch_sub(1, Ordering::Relaxed) {
                0 => Err(Error::io("below", std::io::Error::other("power failure"))),
                _ => self.0.write_at(buf, offset),
            }
        }
        fn flush(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_was_written_during_a_commit_stays() {
        for is_old_edition in [false, true] {
            let (below, store) = written(&base(Some(1), false));
            if is_old_edition {
                make_old(&store, &below);
            }
            let ending = Ending(&below, AtomicU64::new(0));
            let trusted = |is_trusted| Arc::new(base(Some(1), is_trusted || is_old_edition));
            let said =
                text_of(OverlayFile::commit(&ending, Arc::clone(&store), trusted(false), &crate::NoEvents));
            assert!(said.contains("power failure"), "{said}");
            let commit = |is_trusted| {
                let base = Arc::new(base(Some(2), is_trusted));
                text_of(OverlayFile::commit(&below, Arc::clone(&store), base, &crate::NoEvents))
            };
            let open = text_of(OverlayFile::open(&below, Arc::clone(&store), trusted(true)));
            assert!(open.contains("a commit of the overlay was interrupted"), "{open}");
            if !is_old_edition {
                // Somebody writes between, among what was written, and behind it.
                for at in [4096, 5 * 4096] {
                    let mut old = [0];
                    below.read_at(&mut old, at).unwrap();
                    below.write_at(b"x", at).unwrap();
                    let before = bytes_of(&below);
                    let said = commit(false);
                    assert!(
                        said.contains("1 blocks of 4096 bytes") && said.contains("take the image as it is"),
                        "{said}"
                    );
                    assert!(bytes_of(&below) == before);
                    below.write_at(&old, at).unwrap();
                }
                below.write_at(b"x", 4096).unwrap();
                assert_ne!(commit(false), "");
            }
            assert_eq!(commit(!is_old_edition), "");
            let mut bytes = vec![0; 8 * 4096];
            below.read_at(&mut bytes, 4096).unwrap();
            assert!(bytes == vec![2; 8 * 4096]);
        }
    }

    /// Makes a store one of the first edition, which has the same block size and bitmap.
    fn make_old(store: &Lossy, below: &MemoryDevice) {
        let [first, second] = [OverlayEdition::First, OverlayEdition::Second]
            .map(|edition| Layout::new(edition, below.size()).unwrap());
        let mut blocks = vec![0; usize_of(below.size())];
        store.read_at(&mut blocks, second.data_start).unwrap();
        store.write_at(&blocks, first.data_start).unwrap();
        let identity = padded(b"First").unwrap();
        let head = Head { is_committed: false, identity, state: None };
        store.write_at(&first.header(&head), 0).unwrap();
    }

    #[test]
    fn overlays_of_earlier_versions_are_read_on_trust() {
        let (below, store) = written(&base(Some(1), false));
        make_old(&store, &below);
        let open =
            |is_trusted| OverlayFile::open(&below, Arc::clone(&store), Arc::new(base(Some(1), is_trusted)));
        assert!(text_of(open(false)).starts_with("the overlay was made by an earlier version"));
        let overlay = open(true).unwrap();
        overlay.write_at(&[3; 4096], 10 * 4096).unwrap();
        overlay.flush().unwrap();
        drop(overlay);
        let overlay = open(true).unwrap();
        let mut bytes = vec![0; 11 * 4096];
        overlay.read_at(&mut bytes, 0).unwrap();
        let expected = |at: usize| match at / 4096 {
            1..=8 => 2,
            10 => 3,
            _ => 1,
        };
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
        assert!(below.into_bytes().iter().all(|byte| *byte == 1));
    }
}
