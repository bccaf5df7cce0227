//! Maps of block numbers that grow and shrink: what files have without extents.

use casemate_blockdev::{u64_of, usize_of};

use super::no_room;
use crate::alloc::Goal;
use crate::edit::file_map::{FileMap, MapView};
use crate::edit::inode::count_clusters;
use crate::error::{Error, Place, Result, Structure};
use crate::format::block_map::{self, DIRECT, SLOTS};
use crate::read::mapping::Mapping;
use crate::units::Block;

/// Where numbers stand: a block of them, or the inode if `None`; and which one of them.
#[derive(Clone, Copy, Debug)]
struct Slot {
    holder: Option<Block>,
    index: usize,
}

/// The part of the tree that a number of the inode stands for.
#[derive(Clone, Copy, Debug)]
struct Root {
    index: usize,
    /// Levels of numbers below.
    level: u32,
    /// The first block, counted in the file.
    logical: u64,
}

/// Blocks that can have a place in a file.
pub(crate) fn most_blocks(block_size: u64) -> u64 {
    // Blocks are counted in 32 bits elsewhere.
    block_map::most(3, block_size).min(u32::MAX.into())
}

impl MapView<'_> {
    /// The number of the inode that leads to logical block `at`, its level, and the first block that it leads to.
    fn root_slot(&self, at: u64) -> Result<(Slot, u32, u64)> {
        let root = self.roots().into_iter().rfind(|root| root.logical <= at);
        let root = root.filter(|root| at - root.logical < self.covered(root.level)).ok_or_else(no_room)?;
        Ok((Slot { holder: None, index: root.index }, root.level, root.logical))
    }

    fn roots(&self) -> [Root; SLOTS] {
        let mut next = 0;
        std::array::from_fn(|index| {
            let level = block_map::level(index);
            let logical = next;
            next += self.covered(level);
            Root { index, level, logical }
        })
    }

    /// The number of `holder` that leads to logical block `at` over so many levels, and the first block that it leads to;
    /// `logical` is that of the holder.
    fn slot_below(&self, holder: Block, level: u32, logical: u64, at: u64) -> (Slot, u64) {
        let covered = self.covered(level);
        let index = (at - logical) / covered;
        (Slot { holder: Some(holder), index: usize_of(index) }, logical + index * covered)
    }

    /// Numbers in a block.
    fn per_block(&self) -> u64 {
        block_map::per_block(self.space.block_bytes())
    }

    /// Blocks of a file that a number with so many levels below it stands for.
    fn covered(&self, level: u32) -> u64 {
        self.per_block().pow(level)
    }

    fn number(&self, slot: Slot) -> Result<Option<Block>> {
        let field = block_map::number(slot.index);
        let number = match slot.holder {
            None => field.get(self.inode.block_area()),
            Some(block) => {
                self.load_numbers(block)?;
                self.space.transaction().with(block, |bytes| field.get(bytes))?
            }
        };
        Ok(Block::some(number.into()))
    }

    /// The block that a number leads to, which must be there.
    fn holder(&self, slot: Slot) -> Result<Block> {
        let place = Place::inode(Structure::Inode, self.inode.number());
        self.number(slot)?.ok_or_else(|| place.malformed("has no block of numbers where it has blocks"))
    }

    /// The last number of a block that is not zero.
    fn last_number(&self, block: Block) -> Result<Option<usize>> {
        self.space
            .transaction()
            .with(block, |bytes| block_map::numbers(bytes).rposition(|number| number != 0))
    }

    fn load_numbers(&self, block: Block) -> Result<()> {
        self.space
            .load(block, Place::inode(Structure::IndirectBlock, self.inode.number()).at(block), |_| Ok(()))
    }
}

impl FileMap<'_> {
    /// Makes sure that there are blocks of numbers for logical block `at`: how many blocks from there on have their
    /// numbers in the same place. New ones are put at `goal`, which is then behind them.
    pub fn pointer_room(&mut self, at: u64, goal: &mut Goal) -> Result<u64> {
        let (mut slot, mut level, mut logical) = self.view().root_slot(at)?;
        if level == 0 {
            return Ok(u64_of(DIRECT - slot.index));
        }
        while level > 0 {
            let block = match self.view().number(slot)? {
                Some(block) => block,
                None => {
                    let (block, _) = self.space.allocate(*goal, 1)?;
                    count_clusters(self.space.fs(), self.inode, 1)?;
                    self.space.transaction_mut().create_zeroed(block);
                    self.set_numbers(slot, &[stored(block)?])?;
                    *goal = Goal::Behind(block + 1);
                    block
                }
            };
            level -= 1;
            (slot, logical) = self.view().slot_below(block, level, logical, at);
        }
        Ok(self.view().per_block() - u64_of(slot.index))
    }

    /// Writes the numbers of a run whose place [`pointer_room`](FileMap::pointer_room) made.
    pub fn insert_pointers(&mut self, run: &Mapping) -> Result<()> {
        let (mut slot, mut level, mut logical) = self.view().root_slot(run.logical)?;
        while level > 0 {
            let block = self.view().holder(slot)?;
            level -= 1;
            (slot, logical) = self.view().slot_below(block, level, logical, run.logical);
        }
        let numbers: Vec<u32> = run.physical.run(run.len).map(stored).collect::<Result<_>>()?;
        self.set_numbers(slot, &numbers)
    }

    /// Takes away the first blocks of `from..to` that follow each other. Blocks of numbers stay, empty or not.
    pub fn take_next_pointers(&mut self, from: u64, to: u64) -> Result<Option<Mapping>> {
        let Some(run) = self.view().run_from(from)?.filter(|run| run.logical < to) else { return Ok(None) };
        let (first, end) = (run.logical.max(from), run.end().min(to));
        let (mut slot, mut level, mut logical) = self.view().root_slot(first)?;
        while level > 0 {
            let block = self.view().holder(slot)?;
            level -= 1;
            (slot, logical) = self.view().slot_below(block, level, logical, first);
        }
        let behind = match slot.holder {
            Some(_) => self.view().per_block() - u64_of(slot.index),
            None => u64_of(DIRECT - slot.index),
        };
        // At most the numbers in a block.
        let len = (end - first).min(behind);
        self.set_numbers(slot, &vec![0; usize_of(len)])?;
        let physical = run.physical + (first - run.logical);
        Ok(Some(Mapping { logical: first, physical, len, unwritten: false }))
    }

    /// Takes away the last blocks that follow each other and lie behind `from`, and blocks of numbers that are empty
    /// then.
    pub fn take_last_pointers(&mut self, from: u64) -> Result<Option<Mapping>> {
        for root in self.view().roots().into_iter().rev() {
            if root.logical + self.view().covered(root.level) <= from {
                break;
            }
            let slot = Slot { holder: None, index: root.index };
            if self.view().number(slot)?.is_none() {
                continue;
            }
            let taken = if root.level == 0 {
                Some(self.take_run(slot, root.logical, from)?)
            } else {
                self.take_last_below(slot, root.level, root.logical, from)?
            };
            if taken.is_some() {
                return Ok(taken);
            }
        }
        Ok(None)
    }

    /// Takes the last run in the blocks of numbers below the number in `parent`, which begin at block `logical` of the
    /// file.
    fn take_last_below(
        &mut self,
        parent: Slot,
        level: u32,
        logical: u64,
        from: u64,
    ) -> Result<Option<Mapping>> {
        let holder = self.view().holder(parent)?;
        self.view().load_numbers(holder)?;
        let covered = self.view().covered(level - 1);
        let mut taken = None;
        let mut left = self.view().last_number(holder)?;
        while let Some(index) = left {
            let first = logical + u64_of(index) * covered;
            if first + covered <= from {
                break;
            }
            let slot = Slot { holder: Some(holder), index };
            taken = if level == 1 {
                Some(self.take_run(slot, first, from)?)
            } else {
                self.take_last_below(slot, level - 1, first, from)?
            };
            left = self.view().last_number(holder)?;
            // Below what is kept in part there may be nothing to take.
            if taken.is_some() || left == Some(index) {
                break;
            }
        }
        if left.is_none() {
            self.set_numbers(parent, &[0])?;
            self.free_metadata_block(holder)?;
        }
        Ok(taken)
    }

    /// Takes away the blocks up to that of `slot`, block `logical` of the file, that follow each other.
    fn take_run(&mut self, slot: Slot, logical: u64, from: u64) -> Result<Mapping> {
        let most = (logical - from.min(logical)).min(u64_of(slot.index));
        let last = self.view().holder(slot)?;
        let mut len = 1;
        while len <= most {
            let before = Slot { index: slot.index - usize_of(len), ..slot };
            if self.view().number(before)?.is_none_or(|block| block + len != last) {
                break;
            }
            len += 1;
        }
        let physical = Block::new(last.get() + 1 - len);
        let place = match slot.holder {
            Some(block) => Place::inode(Structure::IndirectBlock, self.inode.number()).at(block),
            None => Place::inode(Structure::Inode, self.inode.number()),
        };
        self.space.fs().check_blocks(physical, len, place)?;
        // At most the numbers in a block.
        let first = Slot { index: slot.index + 1 - usize_of(len), ..slot };
        self.set_numbers(first, &vec![0; usize_of(len)])?;
        Ok(Mapping { logical: logical + 1 - len, physical, len, unwritten: false })
    }

    fn set_numbers(&mut self, first: Slot, numbers: &[u32]) -> Result<()> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let at = block_map::number(first.index).at();
        match first.holder {
            None => self.inode.block_area_mut()[at..at + bytes.len()].copy_from_slice(&bytes),
            Some(block) => self.space.transaction_mut().update(block, |edit| edit.write(at, &bytes))?,
        }
        Ok(())
    }
}

/// A block's number as it is stored: 32 bits.
fn stored(block: Block) -> Result<u32> {
    block.low().ok_or_else(|| Error::unsupported("files without extents in blocks beyond the first 2^32"))
}
