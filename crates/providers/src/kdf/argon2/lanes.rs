//! Argon2's memory, filled lane by lane.
//!
//! Memory is a matrix of blocks: each lane is a row, in four slices. A block's parents are the one before it in its lane and
//! one that is looked for, in any lane, but in other lanes only in slices that are whole. So lanes may be filled at the same
//! time until the end of a slice. A thread that has several takes turns, a block of each: while it computes one, what the
//! others need comes from memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use casemate_blockdev::{Pool, u64_of, usize_of};
use casemate_primitives::argon2::{Block, Compression, WORDS};

use super::super::is_stopped;
use super::{Argon2, Argon2Variant};

/// Slices of a lane.
const SLICES: usize = 4;

/// Blocks of each lane, of about half a microsecond, until it is asked again whether to stop.
const ASK: usize = 1 << 12;

/// The way through a part of memory: a slice of all lanes, in one pass.
struct Way<'m> {
    argon2: &'m Argon2,
    compression: Compression,
    pass: u32,
    slice: usize,
    /// Blocks of a lane's slice.
    len: usize,
    /// All slices of all lanes, one lane after the other; those that are being filled have no blocks here.
    others: Vec<&'m [Block]>,
    /// Whether a thread was told to stop.
    stopped: &'m AtomicBool,
}

/// A lane whose slice is being filled.
struct Lane<'m> {
    number: usize,
    own: &'m mut [Block],
    /// Where next blocks have their other parents, where that does not depend on contents, and how many such runs there were.
    places: Block,
    runs: u64,
}

/// Blocks of a lane's slice, for a number of KiB in all.
pub(super) fn slice_len(argon2: &Argon2) -> usize {
    usize_of(argon2.memory / argon2.lanes) / SLICES
}

/// Bytes of all blocks.
pub(super) fn memory_len(argon2: &Argon2) -> usize {
    (slice_len(argon2) * SLICES * usize_of(argon2.lanes)).saturating_mul(size_of::<Block>())
}

/// Fills memory, in which each lane's first two blocks are there, in all passes. Gives the sum of the lanes' last blocks;
/// `None` if it was stopped.
pub(super) fn fill(
    argon2: &Argon2,
    compression: Compression,
    memory: &mut [Block],
    pool: Pool,
) -> Option<Block> {
    let (len, stopped) = (slice_len(argon2), AtomicBool::new(false));
    for pass in 0..argon2.passes {
        for slice in 0..SLICES {
            let mut lanes = Vec::new();
            let mut others: Vec<&[Block]> = Vec::new();
            for (number, part) in memory.chunks_mut(len).enumerate() {
                if number % SLICES == slice {
                    let number = number / SLICES;
                    lanes.push(Lane { number, own: part, places: Block::ZERO, runs: 0 });
                    others.push(&[]);
                } else {
                    others.push(part);
                }
            }
            let way = Way { argon2, compression, pass, slice, len, others, stopped: &stopped };
            let each = lanes.len().div_ceil(pool.threads());
            let groups: Vec<Mutex<&mut [Lane<'_>]>> = lanes.chunks_mut(each).map(Mutex::new).collect();
            let done = pool.run(
                u64_of(groups.len()),
                || (),
                |(), k| {
                    // OK to unwrap: an index of the vector, locked once.
                    way.fill(&mut groups[usize_of(k)].lock().unwrap());
                    Ok::<(), std::convert::Infallible>(())
                },
            );
            let Ok(()) = done;
            if stopped.load(Ordering::Relaxed) {
                return None;
            }
        }
    }
    let mut sum = Block::ZERO;
    for last in memory.chunks(SLICES * len).filter_map(|lane| lane.last()) {
        sum.0.iter_mut().zip(last.0).for_each(|(sum, word)| *sum ^= word);
    }
    Some(sum)
}

impl Way<'_> {
    /// Fills the slice of some lanes.
    fn fill(&self, lanes: &mut [Lane<'_>]) {
        let is_begun = self.pass == 0 && self.slice == 0;
        let first = if is_begun { 2 } else { 0 };
        if is_begun && self.is_independent() {
            lanes.iter_mut().for_each(|lane| self.next_places(lane));
        }
        // Where each lane's next block has its other parent.
        let mut found: Vec<(usize, usize)> = lanes.iter_mut().map(|lane| self.parent(lane, first)).collect();
        for index in first..self.len {
            if index.is_multiple_of(ASK) && (self.stopped.load(Ordering::Relaxed) || is_stopped()) {
                self.stopped.store(true, Ordering::Relaxed);
                return;
            }
            for (lane, found) in lanes.iter_mut().zip(&mut found) {
                let (before, rest) = lane.own.split_at_mut(index);
                let Some(to) = rest.first_mut() else { return };
                let previous = before.last().unwrap_or_else(|| self.last_of(lane.number));
                let (slice, at) = *found;
                let other = self.others[slice].get(at).unwrap_or_else(|| &before[at]);
                match self.pass {
                    0 => self.compression.fill(previous, other, to),
                    _ => self.compression.add(previous, other, to),
                }
                if index + 1 < self.len {
                    *found = self.parent(lane, index + 1);
                    let (slice, at) = *found;
                    self.compression.expect(self.others[slice].get(at).unwrap_or_else(|| &lane.own[at]));
                }
            }
        }
    }

    /// Whether places do not depend on contents.
    fn is_independent(&self) -> bool {
        match self.argon2.variant {
            Argon2Variant::I => true,
            Argon2Variant::Id => self.pass == 0 && self.slice < SLICES / 2,
        }
    }

    /// The last block of the slice before, in one lane.
    fn last_of(&self, lane: usize) -> &Block {
        let before = (self.slice + SLICES - 1) % SLICES;
        &self.others[lane * SLICES + before][self.len - 1]
    }

    /// Where the block of a lane has its other parent: in which of all slices, and where there.
    fn parent(&self, lane: &mut Lane<'_>, index: usize) -> (usize, usize) {
        let random = if self.is_independent() {
            if index.is_multiple_of(WORDS) {
                self.next_places(lane);
            }
            lane.places.0[index % WORDS]
        } else {
            match index {
                0 => self.last_of(lane.number).0[0],
                _ => lane.own[index - 1].0[0],
            }
        };
        let is_first = self.pass == 0 && self.slice == 0;
        let number =
            if is_first { lane.number } else { usize_of((random >> 32) % u64::from(self.argon2.lanes)) };
        let whole = self.len * if self.pass == 0 { self.slice } else { SLICES - 1 };
        // The block before is the first parent, and is no other.
        let choice = match number == lane.number {
            true => whole + index - 1,
            false => whole - usize::from(index == 0),
        };
        // Late ones more often than early ones.
        let low = random & 0xffff_ffff;
        let back = usize_of((((low * low) >> 32) * u64_of(choice)) >> 32);
        let oldest = if self.pass == 0 { 0 } else { (self.slice + 1) % SLICES * self.len };
        let place = (oldest + choice - 1 - back) % (SLICES * self.len);
        (number * SLICES + place / self.len, place % self.len)
    }

    /// The next 128 places.
    fn next_places(&self, lane: &mut Lane<'_>) {
        lane.runs += 1;
        let Argon2 { variant, passes, .. } = *self.argon2;
        let numbers = [
            u64::from(self.pass),
            u64_of(lane.number),
            u64_of(self.slice),
            u64_of(self.others.len() * self.len),
            passes.into(),
            variant.number().into(),
            lane.runs,
        ];
        let (mut seed, mut once) = (Block::ZERO, Block::ZERO);
        seed.0[..numbers.len()].copy_from_slice(&numbers);
        self.compression.fill(&Block::ZERO, &seed, &mut once);
        self.compression.fill(&Block::ZERO, &once, &mut lane.places);
    }
}
