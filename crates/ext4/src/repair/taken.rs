//! Blocks that the file system's own structures have, by which free ones for others of them are found.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::check::{Places, fixed_blocks, places};
use crate::error::Result;
use crate::format::group::GroupDescriptor;
use crate::read::fs::Ext4;
use crate::units::{Block, Run, merge};

/// Superblocks and descriptors, and what descriptors name: several groups may name one block.
#[derive(Debug, Default)]
pub(super) struct Taken {
    fixed: Vec<Run>,
    /// First blocks of inode tables, and bitmaps, each with the number of groups that name it.
    tables: BTreeMap<Block, u32>,
    bitmaps: BTreeMap<Block, u32>,
    table_len: u64,
    /// Blocks from which searches in a range for so many blocks go on: what is taken stays so.
    next: BTreeMap<(Block, u64), Block>,
}

impl Taken {
    pub fn of(fs: &Ext4) -> Result<Taken> {
        let layout = fs.layout();
        let mut taken = Taken { table_len: layout.inode_table_blocks().max(1), ..Taken::default() };
        for group in layout.all_groups() {
            fixed_blocks(layout, fs.superblock(), group, |run| taken.fixed.push(run));
            let raw = fs.with_raw_descriptor(group, <[u8]>::to_vec)?;
            taken.add(places(GroupDescriptor::from_bytes(&raw)?));
        }
        merge(&mut taken.fixed);
        Ok(taken)
    }

    pub fn add(&mut self, [table, blocks, inodes]: Places) {
        *self.tables.entry(table).or_default() += 1;
        for bitmap in [blocks, inodes] {
            *self.bitmaps.entry(bitmap).or_default() += 1;
        }
    }

    pub fn remove(&mut self, [table, blocks, inodes]: Places) {
        let remove = |from: &mut BTreeMap<Block, u32>, block: Block| match from.get_mut(&block) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                from.remove(&block);
            }
        };
        remove(&mut self.tables, table);
        remove(&mut self.bitmaps, blocks);
        remove(&mut self.bitmaps, inodes);
    }

    /// The last block of a run that a structure has; of bitmaps, which can be made anew, only where these count.
    pub fn last(&self, run: Run, with_bitmaps: bool) -> Option<Block> {
        let end = run.first.saturating_add(run.len);
        let before = self.fixed.partition_point(|own| own.first < end);
        let fixed = before.checked_sub(1).and_then(|at| self.fixed[at].shared(Run::between(run.first, end)));
        let least = Block::new(run.first.get().saturating_sub(self.table_len - 1));
        let table = self.tables.range(least..end).next_back();
        let table = table.map(|(first, _)| first.saturating_add(self.table_len).min(end).before());
        let bitmap = self.bitmaps.range(run.first..end).next_back().filter(|_| with_bitmaps);
        fixed.map(|shared| shared.end().before()).max(table).max(bitmap.map(|(block, _)| *block))
    }

    pub fn is_free(&self, run: Run, with_bitmaps: bool) -> bool {
        self.last(run, with_bitmaps).is_none()
    }

    /// The first run of so many blocks of a range that no structure has; `last_used` tells of other blocks in use.
    pub fn free_run(
        &mut self,
        range: &Range<Block>,
        len: u64,
        last_used: impl Fn(Run) -> Option<Block>,
    ) -> Option<Block> {
        let key = (range.start, len);
        let mut at = self.next.get(&key).copied().unwrap_or(range.start);
        let found = loop {
            let fits = at.checked_add(len).is_some_and(|end| end <= range.end);
            if !fits {
                break None;
            }
            let run = Run { first: at, len };
            match self.last(run, true).max(last_used(run)) {
                Some(last) => at = last + 1,
                None => break Some(at),
            }
        };
        self.next.insert(key, at);
        found
    }

    /// All of these blocks, in order, as far as they lie in the file system.
    pub fn runs(&self, end: Block) -> Vec<Run> {
        let tables = self.tables.keys().map(|first| (*first, self.table_len));
        let named = tables.chain(self.bitmaps.keys().map(|block| (*block, 1)));
        let inside = named.filter_map(|(first, len)| {
            let stop = first.saturating_add(len).min(end);
            (first < stop).then(|| Run::between(first, stop))
        });
        let mut runs: Vec<Run> = self.fixed.iter().copied().chain(inside).collect();
        merge(&mut runs);
        runs
    }
}

#[cfg(test)]
mod tests {
    use casemate_testkit::Rng;

    use super::*;

    /// All blocks of a structure one by one, and the first run by trying each block.
    #[test]
    fn against_single_blocks() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let block = |rng: &mut Rng, most: u64| Block::new(rng.below(most));
            let mut taken = Taken { table_len: 1 + rng.below(6), ..Taken::default() };
            for _ in 0..rng.below(8) {
                let len = 1 + rng.below(3);
                taken.fixed.push(Run { first: block(&mut rng, 90), len });
            }
            merge(&mut taken.fixed);
            let mut named: Vec<Places> = Vec::new();
            for _ in 0..6 {
                let own = [block(&mut rng, 110), block(&mut rng, 110), block(&mut rng, 110)];
                taken.add(own);
                named.push(own);
            }
            let gone = named.swap_remove(rng.below(6) as usize);
            taken.remove(gone);
            let is_in = |at: u64, first: Block, len: u64| (first.get()..first.get() + len).contains(&at);
            let has = |at: u64, with_bitmaps: bool| {
                taken.fixed.iter().any(|run| is_in(at, run.first, run.len))
                    || named.iter().any(|[table, ..]| is_in(at, *table, taken.table_len))
                    || with_bitmaps && named.iter().any(|[_, a, b]| [a.get(), b.get()].contains(&at))
            };
            for _ in 0..60 {
                let (first, len) = (rng.below(100), 1 + rng.below(9));
                for with_bitmaps in [false, true] {
                    let expected = (first..first + len).rfind(|at| has(*at, with_bitmaps)).map(Block::new);
                    let run = Run { first: Block::new(first), len };
                    assert_eq!(taken.last(run, with_bitmaps), expected, "{seed}: {run:?}");
                }
            }
            let used = |at: u64| at % 7 == 3;
            let (len, range) = (1 + rng.below(5), 5..100);
            let is_free = |first: &u64| (*first..first + len).all(|at| !has(at, true) && !used(at));
            let expected = range.clone().find(|first| first + len <= range.end && is_free(first));
            let range = Block::new(range.start)..Block::new(range.end);
            let last_used =
                |run: Run| (run.first.get()..run.end().get()).rfind(|at| used(*at)).map(Block::new);
            for _ in 0..2 {
                let found = taken.free_run(&range, len, last_used).map(Block::get);
                assert_eq!(found, expected, "{seed}");
            }
        }
    }
}
