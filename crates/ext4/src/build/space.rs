//! Blocks of a file system that is only being planned: ranges that are taken, and what lies between them, given out in
//! order.

use std::collections::BTreeMap;

/// Ranges of blocks that are taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    /// Ends by starts; no two touch.
    ranges: BTreeMap<u64, u64>,
}

impl Taken {
    /// Takes `len` blocks from `start` on, whether some of them were taken before or not.
    pub fn take(&mut self, start: u64, len: u64) {
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
    pub fn find(&self, from: u64, len: u64) -> u64 {
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
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().map(|(start, end)| (*start, *end))
    }
}

/// A run of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first block, counted in the file.
    pub logical: u32,
    /// Where it lies.
    pub physical: u64,
    /// How many there are.
    pub len: u32,
}

/// Free blocks, allocated in ascending order. It has no end: blocks behind that of the file system are missing.
#[derive(Clone, Debug)]
pub(crate) struct Free {
    /// First and last block of what is free, in whole clusters; the last one has no end.
    gaps: Vec<(u64, u64)>,
    /// Where each of them began.
    starts: Vec<u64>,
    /// The gap that is given out of.
    now: usize,
    cluster: u64,
    /// The block behind the last one that was given out.
    end: u64,
}

impl Free {
    /// The free blocks between ranges that are taken, from block `first` on, in clusters of `cluster` blocks.
    pub fn new(taken: &Taken, first: u64, cluster: u64) -> Free {
        let mut gaps = Vec::new();
        let mut at = first.next_multiple_of(cluster);
        if cluster == 1 {
            at = first;
        }
        for (start, end) in taken.ranges() {
            let start = start / cluster * cluster;
            if start > at {
                gaps.push((at, start));
            }
            at = at.max(end.next_multiple_of(cluster));
        }
        gaps.push((at, u64::MAX / cluster * cluster));
        let starts = gaps.iter().map(|(start, _)| *start).collect();
        Free { gaps, starts, now: 0, cluster, end: 0 }
    }

    /// Gives out whole clusters for `len` blocks of a file, the first of which is `logical`: pieces in order.
    pub fn take(&mut self, mut logical: u32, len: u32, mut each: impl FnMut(Run)) {
        let mut left = u64::from(len);
        while left > 0 {
            let (start, end) = self.gaps[self.now];
            if start == end {
                self.now += 1;
                continue;
            }
            let len = left.min(end - start);
            let clusters = len.div_ceil(self.cluster);
            self.gaps[self.now].0 = start + clusters * self.cluster;
            self.note(start, clusters);
            // OK to truncate: no more than was asked for.
            each(Run { logical, physical: start, len: len as u32 });
            logical += len as u32;
            left -= len;
        }
    }

    /// Takes `len` blocks in one run, the first that is long enough before block `blocks`; in several runs if none is.
    pub fn take_whole(&mut self, len: u32, blocks: u64, mut each: impl FnMut(Run)) {
        let whole = u64::from(len).next_multiple_of(self.cluster);
        let room = |gap: &usize| self.gaps[*gap].1.min(blocks).saturating_sub(self.gaps[*gap].0);
        let Some(found) = (self.now..self.gaps.len()).find(|gap| room(gap) >= whole) else {
            return self.take(0, len, each);
        };
        let start = self.gaps[found].0;
        self.gaps[found].0 += whole;
        self.note(start, whole / self.cluster);
        each(Run { logical: 0, physical: start, len });
    }

    fn note(&mut self, start: u64, clusters: u64) {
        self.end = self.end.max(start + clusters * self.cluster);
    }

    /// Everything that is in use, with what was `taken` before: starts and ends, in order.
    pub fn used(&self, taken: &Taken) -> Vec<(u64, u64)> {
        let mut all = taken.clone();
        for (start, (now, _)) in self.starts.iter().zip(&self.gaps) {
            all.take(*start, now - start);
        }
        all.ranges().collect()
    }

    /// The block behind the last one that was given out.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Blocks that are free before block `blocks`.
    pub fn left(&self, blocks: u64) -> u64 {
        self.gaps[self.now..].iter().map(|(start, end)| (*end).min(blocks).saturating_sub(*start)).sum()
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
                    taken.take(start, len);
                }
                let all: Vec<u64> = taken.ranges().flat_map(|(start, end)| start..end).collect();
                assert!(all.iter().copied().eq((0..400).filter(|at| bits[*at as usize])));
                let (from, len) = (rng.below(300), 1 + rng.below(9));
                let naive = (from..).find(|at| (*at..at + len).all(|at| at >= 400 || !bits[at as usize]));
                assert_eq!(Some(taken.find(from, len)), naive);
                let is_free = |at: u64| {
                    let start = at / cluster * cluster;
                    (start..start + cluster).all(|at| at >= 400 || !bits[at as usize])
                };
                let mut free = Free::new(&taken, 0, cluster);
                assert_eq!(free.left(400), (0..400).filter(|at| is_free(*at)).count() as u64);
                let mut expected = (0..).filter(|at| is_free(*at));
                let mut at = 0;
                for _ in 0..5 {
                    let len = 1 + rng.below(40) as u32;
                    let mut found = Vec::new();
                    free.take(at, len, |run| {
                        assert_eq!(run.logical, at + found.len() as u32);
                        found.extend(run.physical..run.physical + u64::from(run.len));
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
        taken.take(0, 10);
        taken.take(20, 5);
        let mut free = Free::new(&taken, 0, 1);
        let mut runs = Vec::new();
        free.take_whole(12, 50, |run| runs.push((run.physical, run.len)));
        free.take(0, 12, |run| runs.push((run.physical, run.len)));
        assert_eq!(runs, [(25, 12), (10, 10), (37, 2)]);
        assert_eq!((free.end(), free.left(50)), (39, 11));
        assert_eq!(free.used(&taken), [(0, 39)]);
        free.take_whole(20, 50, |run| runs.push((run.physical, run.len)));
        assert_eq!(runs[3..], [(39, 20)], "there is no such piece, and it goes on behind the end");
    }
}
