//! Blocks of a file system that is only being planned: ranges that are taken, and what lies between them, given out in
//! order.

use std::collections::BTreeMap;
use std::ops::Range;

use casemate_blockdev::{u32_of, usize_of};

use crate::units::{Block, Run};

/// Ranges of blocks that are taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    /// Ends by starts; no two touch.
    ranges: BTreeMap<Block, Block>,
}

impl Taken {
    /// Takes `len` blocks from `start` on, whether some of them were taken before or not.
    pub fn take(&mut self, start: Block, len: u64) {
        let (mut start, mut end) = (start, start + len);
        if len == 0 {
            return;
        }
        while let Some((&other, &other_end)) = self.ranges.range(..=end).next_back()
            && other_end >= start
        {
            self.ranges.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.ranges.insert(start, end);
    }

    /// The first place from `from` on where `len` blocks are free.
    pub fn find(&self, from: Block, len: u64) -> Block {
        let mut at = match self.ranges.range(..=from).next_back() {
            Some((_, &end)) => from.max(end),
            None => from,
        };
        for (&start, &end) in self.ranges.range(at..) {
            if start - at >= len {
                break;
            }
            at = end;
        }
        at
    }

    /// All ranges, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Run> {
        self.ranges.iter().map(|(start, end)| Run::between(*start, *end))
    }
}

/// A run of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileRun {
    /// The first block, counted in the file.
    pub logical: u32,
    /// Where it lies.
    pub physical: Block,
    /// How many there are.
    pub len: u32,
}

impl FileRun {
    /// The run's bytes in the file, in blocks of so many bytes.
    pub fn bytes(&self, block_size: usize) -> Range<usize> {
        let start = usize_of(self.logical) * block_size;
        start..start + usize_of(self.len) * block_size
    }
}

/// Free blocks, allocated in ascending order. It has no end: blocks behind that of the file system are missing.
#[derive(Clone, Debug)]
pub(crate) struct Free {
    /// First block of what is free and the one behind the last, in whole clusters; the last one has no end.
    gaps: Vec<Range<Block>>,
    /// Where each of them began.
    starts: Vec<Block>,
    /// The gap that is given out of.
    now: usize,
    cluster: u64,
    /// The block behind the last one that was given out.
    end: Block,
}

impl Free {
    /// The free blocks between ranges that are taken, from block `first` on, in clusters of `cluster` blocks.
    pub fn new(taken: &Taken, first: Block, cluster: u64) -> Free {
        let mut gaps = Vec::new();
        let up = |block: Block| Block::new(block.get().next_multiple_of(cluster));
        let mut at = up(first);
        if cluster == 1 {
            at = first;
        }
        for run in taken.ranges() {
            let start = run.first.cluster(cluster).first_block(cluster);
            if start > at {
                gaps.push(at..start);
            }
            at = at.max(up(run.end()));
        }
        gaps.push(at..Block::new(u64::MAX).cluster(cluster).first_block(cluster));
        let starts = gaps.iter().map(|gap| gap.start).collect();
        Free { gaps, starts, now: 0, cluster, end: Block::default() }
    }

    /// Gives out whole clusters for `len` blocks of a file, the first of which is `logical`: pieces in order.
    pub fn take(&mut self, mut logical: u32, len: u32, mut each: impl FnMut(FileRun)) {
        let mut left = u64::from(len);
        while left > 0 {
            let Range { start, end } = self.gaps[self.now];
            if start == end {
                self.now += 1;
                continue;
            }
            let len = left.min(end - start);
            let clusters = len.div_ceil(self.cluster);
            self.gaps[self.now].start = start + clusters * self.cluster;
            self.note(start, clusters);
            left -= len;
            // No more than was asked for.
            let len = u32_of(len);
            each(FileRun { logical, physical: start, len });
            logical += len;
        }
    }

    /// Takes `len` blocks in one run, the first that is long enough before block `end`; in several runs if none is.
    pub fn take_whole(&mut self, len: u32, end: Block, mut each: impl FnMut(FileRun)) {
        let whole = u64::from(len).next_multiple_of(self.cluster);
        let room = |gap: &usize| self.room(&self.gaps[*gap], end);
        let Some(found) = (self.now..self.gaps.len()).find(|gap| room(gap) >= whole) else {
            return self.take(0, len, each);
        };
        let start = self.gaps[found].start;
        self.gaps[found].start += whole;
        self.note(start, whole / self.cluster);
        each(FileRun { logical: 0, physical: start, len });
    }

    /// Blocks of a gap before block `end`.
    fn room(&self, gap: &Range<Block>, end: Block) -> u64 {
        gap.end.min(end).checked_since(gap.start).unwrap_or(0)
    }

    fn note(&mut self, start: Block, clusters: u64) {
        self.end = self.end.max(start + clusters * self.cluster);
    }

    /// Everything that is in use, with what was `taken` before, in order.
    pub fn used(&self, taken: &Taken) -> Vec<Run> {
        let mut all = taken.clone();
        for (start, gap) in self.starts.iter().zip(&self.gaps) {
            all.take(*start, gap.start - *start);
        }
        all.ranges().collect()
    }

    /// The block behind the last one that was given out.
    pub fn end(&self) -> Block {
        self.end
    }

    /// Blocks that are free before block `end`.
    pub fn left(&self, end: Block) -> u64 {
        self.gaps[self.now..].iter().map(|gap| self.room(gap, end)).sum()
    }
}

#[cfg(test)]
mod tests {
    use casemate_testkit::Rng;

    use super::*;

    #[test]
    fn against_single_blocks() {
        let mut rng = Rng::new(5);
        for cluster in [1u64, 4] {
            for _ in 0..200 {
                let mut bits = [false; 400];
                let mut taken = Taken::default();
                for _ in 0..rng.below(12) {
                    let start = rng.below(380);
                    let len = rng.below(20);
                    bits[start as usize..(start + len) as usize].fill(true);
                    taken.take(Block::new(start), len);
                }
                let all: Vec<u64> =
                    taken.ranges().flat_map(|run| run.first.run(run.len)).map(Block::get).collect();
                assert!(all.iter().copied().eq((0..400).filter(|at| bits[*at as usize])));
                let (from, len) = (rng.below(300), 1 + rng.below(9));
                let naive = (from..).find(|at| (*at..at + len).all(|at| at >= 400 || !bits[at as usize]));
                assert_eq!(Some(taken.find(Block::new(from), len).get()), naive);
                let is_free = |at: u64| {
                    let start = at / cluster * cluster;
                    (start..start + cluster).all(|at| at >= 400 || !bits[at as usize])
                };
                let mut free = Free::new(&taken, Block::default(), cluster);
                assert_eq!(free.left(Block::new(400)), (0..400).filter(|at| is_free(*at)).count() as u64);
                let mut expected = (0..).filter(|at| is_free(*at));
                let mut at = 0;
                for _ in 0..5 {
                    let len = 1 + rng.below(40) as u32;
                    let mut found = Vec::new();
                    free.take(at, len, |run| {
                        assert_eq!(run.logical, at + found.len() as u32);
                        found.extend(run.physical.run(run.len.into()).map(Block::get));
                    });
                    let whole = u64::from(len).next_multiple_of(cluster) as usize;
                    let blocks: Vec<u64> = expected.by_ref().take(whole).collect();
                    assert_eq!(found, blocks[..len as usize]);
                    at += len;
                }
            }
        }
    }

    #[test]
    fn one_piece_is_taken_where_it_fits() {
        let mut taken = Taken::default();
        taken.take(Block::new(0), 10);
        taken.take(Block::new(20), 5);
        let mut free = Free::new(&taken, Block::default(), 1);
        let end = Block::new(50);
        let mut runs = Vec::new();
        free.take_whole(12, end, |run| runs.push((run.physical.get(), run.len)));
        free.take(0, 12, |run| runs.push((run.physical.get(), run.len)));
        assert_eq!(runs, [(25, 12), (10, 10), (37, 2)]);
        assert_eq!((free.end(), free.left(end)), (Block::new(39), 11));
        assert_eq!(free.used(&taken), [Run { first: Block::new(0), len: 39 }]);
        free.take_whole(20, end, |run| runs.push((run.physical.get(), run.len)));
        assert_eq!(runs[3..], [(39, 20)], "there is no such piece, and it goes on behind the end");
    }
}
