//! Which blocks somebody has claimed: one bit a block, set by any number of threads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use casemate_blockdev::usize_of;

use crate::format::layout::Layout;
use crate::units::{Block, GroupNo, Run};

/// Words of a chunk, which is there from the first claim in it on: that of a million blocks.
const WORDS: u64 = 1 << 14;

/// The blocks of a file system that have owners.
#[derive(Debug)]
pub(crate) struct Claims {
    /// The block of the first bit.
    first: Block,
    end: Block,
    chunks: Vec<OnceLock<Box<[AtomicU64]>>>,
}

impl Claims {
    pub fn new(layout: &Layout) -> Claims {
        let (first, end) = (layout.group_start(GroupNo::PRIMARY), layout.end());
        let chunks = (end - first).div_ceil(64 * WORDS);
        Claims { first, end, chunks: (0..chunks).map(|_| OnceLock::new()).collect() }
    }

    /// Claims blocks, of those that there are, and tells of runs that are somebody's already.
    pub fn claim(&self, block: Block, len: u64, mut twice: impl FnMut(Run)) {
        let start = block.max(self.first);
        let end = block.saturating_add(len).min(self.end);
        let mut at = start;
        while at < end {
            let bit = at - self.first;
            let low = bit % 64;
            let count = (64 - low).min(end - at);
            let mask = (!0 >> (64 - count)) << low;
            let old = self.word(bit / 64).fetch_or(mask, Ordering::Relaxed) & mask;
            let mut left = old;
            while left != 0 {
                let from = left.trailing_zeros();
                let run = (left >> from).trailing_ones();
                twice(Run { first: self.first + (bit - low + u64::from(from)), len: run.into() });
                left = if from + run == 64 { 0 } else { left >> (from + run) << (from + run) };
            }
            at += count;
        }
    }

    /// The 64 bits from a block on, as a bitmap on the disk has them.
    pub fn bits(&self, block: Block) -> u64 {
        let bit = block - self.first;
        let (word, low) = (bit / 64, bit % 64);
        let part = self.read(word) >> low;
        if low == 0 { part } else { part | self.read(word + 1) << (64 - low) }
    }

    /// Whether one of these blocks is claimed.
    pub fn any(&self, block: Block, len: u64) -> bool {
        (0..len).step_by(64).any(|at| {
            let mask = !0 >> (64 - (len - at).min(64));
            self.bits(block + at) & mask != 0
        })
    }

    /// The last one of these blocks that is claimed.
    pub fn last(&self, block: Block, len: u64) -> Option<Block> {
        (0..len.div_ceil(64)).rev().map(|word| word * 64).find_map(|at| {
            let mask = !0 >> (64 - (len - at).min(64));
            let bits = self.bits(block + at) & mask;
            // OK to subtract: some bit is set.
            (bits != 0).then(|| block + at + u64::from(63 - bits.leading_zeros()))
        })
    }

    fn read(&self, word: u64) -> u64 {
        let chunk = self.chunks.get(usize_of(word / WORDS)).and_then(OnceLock::get);
        chunk.map_or(0, |chunk| chunk[usize_of(word % WORDS)].load(Ordering::Relaxed))
    }

    fn word(&self, word: u64) -> &AtomicU64 {
        let new = || (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        &self.chunks[usize_of(word / WORDS)].get_or_init(new)[usize_of(word % WORDS)]
    }
}

#[cfg(test)]
mod tests {
    use casemate_testkit::Rng;

    use super::*;
    use crate::format::superblock::{Superblock, tests::sample};

    #[test]
    fn against_single_blocks() {
        let layout = Layout::new(&Superblock::from_bytes(&sample()).unwrap()).unwrap();
        let (mut rng, claims) = (Rng::new(5), Claims::new(&layout));
        let mut owned = vec![false; layout.blocks as usize + 64];
        for _ in 0..500 {
            let block = 1 + rng.below(layout.blocks - 1);
            let len = 1 + rng.below(200);
            let mut found = Vec::new();
            claims.claim(Block::new(block), len, |run| found.extend(run.first.run(run.len).map(Block::get)));
            let all = block..(block + len).min(layout.blocks);
            let expected: Vec<u64> = all.clone().filter(|block| owned[*block as usize]).collect();
            assert_eq!(found, expected);
            all.for_each(|block| owned[block as usize] = true);
            let at = 1 + rng.below(layout.blocks - 1);
            let bits = (0..64).fold(0, |bits, bit| bits | u64::from(owned[(at + bit) as usize]) << bit);
            assert_eq!(claims.bits(Block::new(at)), bits);
            let len = rng.below(layout.blocks - at);
            let part = &owned[at as usize..][..len as usize];
            assert_eq!(claims.any(Block::new(at), len), part.contains(&true));
            let last = part.iter().rposition(|is| *is).map(|last| Block::new(at + last as u64));
            assert_eq!(claims.last(Block::new(at), len), last);
        }
    }
}
