//! A device whose changes are kept in a file.
//!
//! The file is a header, a bitmap with a bit for each block of 4096 bytes, checksums of what lies below the blocks, and
//! then the blocks, each at its own position (docs/formats/overlay.md). A block whose bit is 0 is that of the device below.
//! The file is sparse: what was never written takes no room.
//!
//! Power may go at any moment: a bit is written only after its block is on stable storage, which is when a flush is
//! asked for. A bit that is lost takes back a write that was never flushed. Bits are independent
//! of each other, so it does not matter which part of the bitmap was written when the power went.
//!
//! The blocks mean something only together with the device below as it was when they came. [`OverlayBase`] says whether it still is,
//! and the checksums say it of the sectors below each block: a commit writes over nothing else.

mod base;
mod commit;
mod layout;
mod sums;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::advice::Advice;
use crate::code::Code;
use crate::device::{BlockDevice, past_end};
use crate::error::{Error, Result};
use crate::partition::crc32;
use crate::{u64_of, usize_of};

pub use base::{ConstantBase, OverlayBase};
pub use layout::OverlayEdition;
use layout::{BASE, HEADER, Head, IDENTITY, Layout, MAGIC, PART, PART_WORDS, STATE, SUMS};

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
            number: None,
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
        overlay.check_end()?;
        let identity = overlay.check_identity(&head, &overlay.below)?;
        let state = overlay.base.state()?;
        if !overlay.check_state(&head, state)? {
            overlay.check_blocks()?;
        }
        if overlay.layout.edition == OverlayEdition::Second && state != head.state {
            let new = Head { is_committed: false, identity, state, number: None };
            overlay.flushing = Mutex::new(Some(overlay.layout.header(&new)));
        }
        Ok(overlay)
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
        let head = Head { is_committed, identity, state, number: layout::number(&header) };
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

    /// Refuses a store that ends before the last block that it has.
    fn check_end(&self) -> Result<()> {
        let last = self.bits.iter().rposition(|word| word.load(Ordering::Relaxed) != 0);
        let Some(last) = last.map(u64_of) else { return Ok(()) };
        let end = (last * 64 + 64 - u64::from(self.word(last).leading_zeros())) * Self::BLOCK;
        let (end, found) = (self.layout.data_start + end.min(self.size), self.store.size());
        match found < end {
            true => Err(invalid(&format!(
                "the overlay is cut off: it has {found} bytes, and blocks up to byte {end}"
            ))),
            false => Ok(()),
        }
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
        let mut whole = self.blocks_below(block..block + 1)?;
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

#[cfg(test)]
mod tests;
