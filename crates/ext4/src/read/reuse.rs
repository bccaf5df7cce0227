//! Blocks that were used again after the file that had them was deleted, as far as the journal's copies tell.
//!
//! Three kinds of copies do: of blocks of inodes, whose maps have the block; of block bitmaps, in which the block is free and, in a later
//! one, in use; and of the block itself, which was that of a directory, of attributes, or of a map. Each proves it only if it is later
//! than the file's own last copy.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use casemate_blockdev::u64_of;

use crate::error::Result;
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::read::fs::Ext4;
use crate::read::journal::{History, Moment, NOW};
use crate::read::mapping::{MapVisitor, Mapping};
use crate::units::{Block, GroupNo, Run};

/// Runs of maps that are noted.
const MOST_RUNS: usize = 1 << 22;
/// Bits of bitmaps that are kept, of all groups together.
const MOST_BITS: usize = 1 << 22;

/// Blocks that inodes had by copies of these in the journal.
#[derive(Debug, Default)]
pub(crate) struct Held {
    runs: Vec<(u32, Run)>,
    /// Maps that are left out, as there are too many.
    pub left_out: u64,
}

impl Held {
    /// Notes the blocks that an inode had at a transaction, and those of its map and its attributes. What can't be read is
    /// left out.
    pub fn note(&mut self, fs: &Ext4, history: &Arc<History>, inode: &Inode, transaction: u32) {
        if self.runs.len() >= MOST_RUNS {
            self.left_out += 1;
            return;
        }
        let mut blocks = Blocks::default();
        if has_blocks(inode) {
            let _ = history.as_of(fs, transaction).visit_map(inode, 0, &mut blocks);
        }
        blocks.0.extend(inode.xattr_block().map(|first| Run { first, len: 1 }));
        let inside = blocks.0.into_iter().filter(|run| fs.layout().contains(run.first, run.len));
        self.runs.extend(inside.map(|run| (transaction, run)));
    }
}

/// The blocks of a file, and those of its map.
#[derive(Default)]
struct Blocks(Vec<Run>);

impl MapVisitor for Blocks {
    fn mapping(&mut self, mapping: Mapping) -> Result<ControlFlow<()>> {
        self.0.push(Run { first: mapping.physical, len: mapping.len });
        Ok(if self.0.len() < MOST_RUNS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }

    fn map_block(&mut self, block: Block) -> Result<()> {
        self.0.push(Run { first: block, len: 1 });
        Ok(())
    }
}

/// Whether two states of an inode lead to the same blocks, as far as they tell by themselves.
pub(crate) fn is_same_map(one: &Inode, other: &Inode) -> bool {
    let area = one.block_area();
    let is_flat = match one.has(InodeFlags::EXTENTS) {
        // The depth of the tree.
        true => area[6..8] == [0, 0],
        false => area[48..].iter().all(|byte| *byte == 0),
    };
    let is_same = area == other.block_area() && one.xattr_block() == other.xattr_block();
    is_same && (is_flat || one.as_bytes() == other.as_bytes())
}

fn has_blocks(inode: &Inode) -> bool {
    let kind = inode.kind();
    matches!(kind, FileType::Regular | FileType::Directory | FileType::Symlink)
        && !inode.has(InodeFlags::INLINE_DATA)
}

/// Later uses of blocks.
pub(crate) struct Reuse<'a> {
    fs: &'a Ext4,
    history: &'a History,
    held: Latest,
    /// The last transaction that freed a block which was taken later, by its bit, for groups that were looked at.
    freed: HashMap<GroupNo, HashMap<u64, u32>>,
    bits: usize,
}

/// The last transaction of those whose inodes have a block: runs by their first blocks, with their ends.
#[derive(Debug, Default)]
struct Latest(BTreeMap<Block, (Block, u32)>);

impl Latest {
    fn of(mut held: Vec<(u32, Run)>) -> Latest {
        let mut latest = Latest::default();
        // Later ones go over earlier ones.
        held.sort_unstable();
        for (transaction, run) in held {
            latest.paint(run, transaction);
        }
        latest
    }

    /// Lays a run over the runs that are there.
    fn paint(&mut self, run: Run, transaction: u32) {
        let end = run.end();
        if let Some((first, (old, at))) = self.0.range(..run.first).next_back().map(|(a, b)| (*a, *b))
            && old > run.first
        {
            self.0.insert(first, (run.first, at));
            if old > end {
                self.0.insert(end, (old, at));
            }
        }
        let inside: Vec<Block> = self.0.range(run.first..end).map(|(first, _)| *first).collect();
        for first in inside {
            if let Some((old, at)) = self.0.remove(&first).filter(|(old, _)| *old > end) {
                self.0.insert(end, (old, at));
            }
        }
        self.0.insert(run.first, (end, transaction));
    }

    fn at(&self, block: Block) -> Option<u32> {
        let (_, (end, at)) = self.0.range(..=block).next_back()?;
        (block < *end).then_some(*at)
    }
}

impl<'a> Reuse<'a> {
    pub fn new(fs: &'a Ext4, history: &'a History, held: Held) -> Reuse<'a> {
        Reuse { fs, history, held: Latest::of(held.runs), freed: HashMap::new(), bits: 0 }
    }

    /// Whether the journal misses transactions behind this one.
    pub fn has_gap_behind(&self, transaction: u32) -> bool {
        self.history.has_gap_behind(transaction)
    }

    /// The number of blocks of a run that something else had: by its map after the moment `since`, at which the file had them, or as
    /// a structure after `gone`, from which on it was no more.
    pub fn count(&mut self, run: Run, since: Moment, gone: Moment) -> u64 {
        if since == NOW || self.history.is_empty() {
            return 0;
        }
        let mut count = 0;
        for block in run.first.run(run.len) {
            let is_held = self.held.at(block).is_some_and(|last| Moment::from(last) > since);
            count += u64::from(is_held || self.is_copied(block, gone) || self.is_freed(block, since));
        }
        count
    }

    fn is_copied(&self, block: Block, gone: Moment) -> bool {
        self.history.transactions(block).next().is_some_and(|last| Moment::from(last) > gone)
    }

    fn is_freed(&mut self, block: Block, since: Moment) -> bool {
        let layout = *self.fs.layout();
        let Some((group, within)) = layout.group_of(block) else { return false };
        if !self.freed.contains_key(&group) {
            if self.bits > MOST_BITS {
                (self.freed, self.bits) = (HashMap::new(), 0);
            }
            let found = self.freed_of(group);
            self.bits += found.len();
            self.freed.insert(group, found);
        }
        let bit = within / u64::from(layout.cluster_blocks);
        let last = self.freed.get(&group).and_then(|freed| freed.get(&bit));
        last.is_some_and(|last| Moment::from(*last) > since)
    }

    /// Bits that are free in a copy of a group's bitmap and set in a later one, with the last such copy.
    fn freed_of(&self, group: GroupNo) -> HashMap<u64, u32> {
        let mut freed = HashMap::new();
        let Ok(place) = self.fs.with_descriptor(group, |found| found.block_bitmap()) else { return freed };
        let mut later = vec![0; self.fs.layout().block_len()];
        for transaction in self.history.transactions(place) {
            let Some(bytes) = self.history.read_block(self.fs, place, transaction) else { continue };
            for (at, (byte, later)) in bytes.iter().zip(&mut later).enumerate() {
                let mut new = !*byte & *later;
                while new != 0 {
                    let bit = u64_of(at) * 8 + u64::from(new.trailing_zeros());
                    freed.entry(bit).or_insert(transaction);
                    new &= new - 1;
                }
                *later |= byte;
            }
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use casemate_testkit::Rng;

    use super::*;

    /// The last of the runs over each block, by trying each.
    #[test]
    fn against_single_blocks() {
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let mut runs = Vec::new();
            for at in 0..rng.below(12) {
                let run = Run { first: Block::new(1 + rng.below(60)), len: 1 + rng.below(20) };
                runs.push((at as u32 % 5, run));
            }
            let latest = Latest::of(runs.clone());
            for block in (0..90).map(Block::new) {
                let over = runs.iter().filter(|(_, run)| run.first <= block && block < run.end());
                assert_eq!(latest.at(block), over.map(|(at, _)| *at).max(), "{seed}: {block}");
            }
        }
    }
}
