//! Checksums of what lies below an overlay's blocks.

use std::ops::Range;

use super::base::UNREADABLE;
use super::layout::{HEADER, PART, PART_WORDS, SECTOR, SUM, SUMS};
use super::{OverlayFile, refuse};
use crate::code::Code;
use crate::device::BlockDevice;
use crate::error::Result;
use crate::{u64_of, usize_of};

/// The most blocks that are read at once.
const RUN: u64 = 256;

impl<D: BlockDevice, S: BlockDevice> OverlayFile<D, S> {
    /// Refuses a device below that has something else under the store's blocks than it had when they came, and than they
    /// have themselves.
    pub(super) fn check_blocks(&self) -> Result<()> {
        let Some(sums_start) = self.sums_noted() else { return Ok(()) };
        let mut changed = 0u64;
        for first in (0..u64_of(self.bits.len())).step_by(PART_WORDS) {
            let words = (first..u64_of(self.bits.len())).take(PART_WORDS).map(|word| self.word(word));
            for run in runs(first * 64, words) {
                // A block that can't be read any more can't be lost either.
                self.each_readable(run, |blocks, below| {
                    let mut sums = vec![0; usize_of(blocks.end - blocks.start) * SUMS];
                    self.store.read_at(&mut sums, sums_start + blocks.start * u64_of(SUMS))?;
                    let now = self.sums_of(below);
                    for ((block, below), at) in blocks.zip(below.chunks(usize_of(Self::BLOCK))).zip(0..) {
                        let of = |sums: &[u8]| sums[at * SUMS..][..SUMS].to_vec();
                        changed += u64::from(!self.is_known(block, below, &of(&sums), &of(&now))?);
                    }
                    Ok(())
                })?;
            }
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

    /// Whether each sector below a block is as it was noted, or as the store has it.
    fn is_known(&self, block: u64, below: &[u8], noted: &[u8], now: &[u8]) -> Result<bool> {
        let is_old = |at: usize| {
            let noted = &noted[at * SUM..][..SUM];
            // Nothing tells how a sector was that could not be read, so the caller has to.
            *noted == now[at * SUM..][..SUM] || noted == UNREADABLE && self.base.is_trusted()
        };
        let sectors = || below.chunks(SECTOR).enumerate();
        if sectors().all(|(at, _)| is_old(at)) {
            return Ok(true);
        }
        let mut new = vec![0; below.len()];
        self.store.read_at(&mut new, self.layout.data_start + block * Self::BLOCK)?;
        Ok(sectors().zip(new.chunks(SECTOR)).all(|((at, sector), new)| sector == new || is_old(at)))
    }

    /// Notes checksums of what lies below blocks that are new in parts of the bitmap.
    pub(super) fn note_below(&self, parts: &[(usize, Vec<u8>)]) -> Result<()> {
        let Some(sums_start) = self.sums_noted() else { return Ok(()) };
        for (number, bytes) in parts {
            let mut old = vec![0; bytes.len()];
            self.store.read_at(&mut old, u64_of(HEADER) + u64_of(number * PART))?;
            let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            let added = bytes.chunks(8).zip(old.chunks(8)).map(|(new, old)| word(new) & !word(old));
            for run in runs(u64_of(number * PART) * 8, added) {
                let blocks = usize_of(run.end - run.start);
                let mut sums = UNREADABLE.repeat(blocks * SUMS / SUM);
                let start = run.start;
                self.each_readable(run, |blocks, below| {
                    let place =
                        &mut sums[usize_of(blocks.start - start) * SUMS..usize_of(blocks.end - start) * SUMS];
                    place.copy_from_slice(&self.sums_of(below));
                    Ok(())
                })?;
                self.store.write_at(&sums, sums_start + start * u64_of(SUMS))?;
            }
        }
        Ok(())
    }

    /// Checksums of whole blocks below, with zeros for the sectors that the device's last block has not.
    fn sums_of(&self, below: &[u8]) -> Vec<u8> {
        let mut sums = self.base.checksums(below);
        sums.resize(below.len().div_ceil(usize_of(Self::BLOCK)) * SUMS, 0);
        sums
    }

    /// Hands over what can be read of blocks below: all of them at once, or each by itself.
    fn each_readable(
        &self,
        blocks: Range<u64>,
        mut each: impl FnMut(Range<u64>, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if let Ok(below) = self.blocks_below(blocks.clone()) {
            return each(blocks, &below);
        }
        for block in blocks {
            if let Ok(below) = self.blocks_below(block..block + 1) {
                each(block..block + 1, &below)?;
            }
        }
        Ok(())
    }

    /// The bytes of blocks below.
    pub(super) fn blocks_below(&self, blocks: Range<u64>) -> Result<Vec<u8>> {
        let (start, end) = (blocks.start * Self::BLOCK, (blocks.end * Self::BLOCK).min(self.size));
        let mut bytes = vec![0; usize_of(end - start)];
        self.below.read_at(&mut bytes, start).map(|()| bytes)
    }

    /// Where checksums of what lies below new blocks are noted, if they are.
    pub(super) fn sums_noted(&self) -> Option<u64> {
        self.layout.sums_start.filter(|_| !self.base.is_constant())
    }
}

/// Runs of the blocks whose bits are set in words, of which the first is that of 64 blocks from `first` on.
fn runs(first: u64, words: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (word, start) in words.zip((first..).step_by(64)).filter(|(word, _)| *word != 0) {
        for block in (0..64).filter(|bit| word >> bit & 1 == 1).map(|bit| start + bit) {
            match runs.last_mut() {
                Some(run) if run.end == block && run.end - run.start < RUN => run.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
    }
    runs
}
