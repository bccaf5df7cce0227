//! Walks over old block maps.

use std::collections::HashSet;
use std::ops::ControlFlow;

use casemate_blockdev::ErrorKind;

use crate::error::{Place, Result, Structure};
use crate::format::block_map::{self, SLOTS};
use crate::format::inode::Inode;
use crate::read::fs::Ext4;
use crate::read::mapping::{MapVisitor, Mapping, map_place};
use crate::units::Block;

/// Visits an inode's blocks from logical block `from` on.
pub(crate) fn walk(
    fs: &Ext4,
    inode: &Inode,
    from: u64,
    visitor: &mut dyn MapVisitor,
) -> Result<ControlFlow<()>> {
    let mut walk = Walk { fs, inode, from, visitor, logical: 0, pending: None, seen: HashSet::new() };
    let area = inode.block_area();
    for slot in 0..SLOTS {
        let number = block_map::number(slot).get(area);
        if walk.pointer(number, block_map::level(slot), map_place(inode))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    walk.flush()
}

struct Walk<'a> {
    fs: &'a Ext4,
    inode: &'a Inode,
    from: u64,
    visitor: &'a mut dyn MapVisitor,
    /// The next block, counted in the file.
    logical: u64,
    /// A run that may go on.
    pending: Option<Mapping>,
    /// Blocks of numbers so far. A second visit to one would be a cycle, or work without end.
    seen: HashSet<Block>,
}

impl Walk<'_> {
    /// Visits what a block number stands for: a block, or `level` levels of numbers.
    fn pointer(&mut self, block: u32, level: u32, place: Place) -> Result<ControlFlow<()>> {
        let per_block = block_map::per_block(self.fs.layout().block_size.into());
        let covered = per_block.pow(level);
        let block = Block::some(block.into()).filter(|_| self.logical + covered > self.from);
        let Some(block) = block else {
            self.logical += covered;
            return Ok(ControlFlow::Continue(()));
        };
        self.fs.check_blocks(block, 1, place)?;
        if level == 0 {
            return self.data(block);
        }
        let end = self.logical + covered;
        match self.numbers(block, level) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.logical = end;
                self.visitor.broken(error)?;
                Ok(ControlFlow::Continue(()))
            }
            other => other,
        }
    }

    fn numbers(&mut self, block: Block, level: u32) -> Result<ControlFlow<()>> {
        let place = Place::inode(Structure::IndirectBlock, self.inode.number()).at(block);
        if !self.seen.insert(block) {
            return Err(place.malformed("is used twice in one map"));
        }
        self.visitor.map_block(block)?;
        let bytes = self.fs.metadata_block(block)?;
        if !self.visitor.node(self.fs, self.inode, place, block, &bytes)? {
            self.logical += block_map::per_block(self.fs.layout().block_size.into()).pow(level);
            return Ok(ControlFlow::Continue(()));
        }
        for number in block_map::numbers(&bytes) {
            if self.pointer(number, level - 1, place)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn data(&mut self, block: Block) -> Result<ControlFlow<()>> {
        let logical = self.logical;
        self.logical += 1;
        if let Some(run) = &mut self.pending
            && run.end() == logical
            && run.physical + run.len == block
        {
            run.len += 1;
            return Ok(ControlFlow::Continue(()));
        }
        let flow = self.flush()?;
        self.pending = Some(Mapping { logical, physical: block, len: 1, unwritten: false });
        Ok(flow)
    }

    fn flush(&mut self) -> Result<ControlFlow<()>> {
        match self.pending.take() {
            Some(run) => self.visitor.mapping(run),
            None => Ok(ControlFlow::Continue(())),
        }
    }
}
