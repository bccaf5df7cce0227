//! A set of block numbers, kept as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Block numbers, as few ranges as describe them. Memory goes with the number of ranges, never with their
/// lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// From a range's start to its end; ranges neither overlap nor touch.
    by_start: BTreeMap<u64, u64>,
}

impl Ranges {
    /// The empty set of block numbers.
    pub fn new() -> Ranges {
        Ranges::default()
    }

    /// Adds all block numbers of a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        // Whatever overlaps or touches becomes one; going down from `end`, the first that does neither ends it.
        while let Some((&other_start, &other_end)) = self.by_start.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            start = start.min(other_start);
            end = end.max(other_end);
            self.by_start.remove(&other_start);
        }
        self.by_start.insert(start, end);
    }

    /// Whether the block number is in the set.
    pub fn contains(&self, number: u64) -> bool {
        self.by_start.range(..=number).next_back().is_some_and(|(_, end)| number < *end)
    }

    /// The ranges of block numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.by_start.iter().map(|(start, end)| *start..*end)
    }

    /// The number of blocks in the set.
    pub fn count(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether the set has no blocks.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// The parents of these blocks, where each has `fan_out` children.
    pub(crate) fn parents(&self, fan_out: u64) -> Ranges {
        let mut parents = Ranges::new();
        self.iter().for_each(|range| parents.insert(range.start / fan_out..range.end.div_ceil(fan_out)));
        parents
    }

    /// The children of these blocks, where each has `fan_out` and there are `count` in all.
    pub(super) fn children(&self, fan_out: u64, count: u64) -> Ranges {
        let limit = |number: u64| number.saturating_mul(fan_out).min(count);
        let mut children = Ranges::new();
        self.iter().for_each(|range| children.insert(limit(range.start)..limit(range.end)));
        children
    }
}

impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Ranges {
        let mut set = Ranges::new();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use casemate_testkit::Rng;

    use super::*;

    #[test]
    fn a_set_of_ranges_is_a_set() {
        let mut rng = Rng::new(1);
        for round in 0..200 {
            let mut ranges = Ranges::new();
            let mut oracle = [false; 64];
            for _ in 0..round % 20 {
                let start = rng.below(60);
                let end = start + rng.below(5);
                ranges.insert(start..end);
                oracle[start as usize..end as usize].fill(true);
            }
            let found: Vec<_> = (0..64).map(|number| ranges.contains(number)).collect();
            assert_eq!(found, oracle, "round {round}: {ranges:?}");
            assert_eq!(ranges.count(), oracle.iter().filter(|inside| **inside).count() as u64);
            let ends: Vec<_> = ranges.iter().collect();
            assert!(ends.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
        }
    }

    #[test]
    fn parents_and_children() {
        let ranges: Ranges = [3..4, 8..17].into_iter().collect();
        assert!(ranges.parents(8).iter().eq(std::iter::once(0..3)));
        assert!(ranges.children(2, 20).iter().eq([6..8, 16..20]));
    }
}
