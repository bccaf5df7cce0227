//! Copies of the superblock and of group descriptors.

use crate::alloc::Allocator;
use crate::error::Result;
use crate::format::csum::{Subject, recipe};
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, SuperblockMut};
use crate::units::{Block, GroupNo};

impl Allocator {
    /// Copies the superblock to a group.
    pub fn copy_superblock(&mut self, group: GroupNo) -> Result<()> {
        let offset = self.fs.layout().superblock_offset(group).unwrap_or(SUPERBLOCK_OFFSET);
        let (block, at) = Block::position_of(offset, self.block_bytes());
        let mut raw = [0; SUPERBLOCK_SIZE];
        self.transaction.read_at(&mut raw, SUPERBLOCK_OFFSET)?;
        SuperblockMut { raw: &mut raw }.set_group(group);
        let sums = *self.transaction.sums();
        if sums.covers(Subject::Superblock) {
            sums.store(recipe(Subject::Superblock), &Default::default(), &mut raw);
        }
        self.transaction.update(block, |edit| edit.write(at, &raw))
    }

    /// Copies the block with a group's descriptor to wherever a copy of it is.
    pub fn copy_descriptors(&mut self, group: GroupNo) -> Result<()> {
        let layout = *self.fs.layout();
        let (index, _) = layout.descriptor_position(group);
        let bytes = self.transaction.with(layout.descriptor_block(index), <[u8]>::to_vec)?;
        for (_, block) in layout.descriptor_copies(index).filter(|(_, block)| layout.contains(*block, 1)) {
            self.transaction.create(block, bytes.clone());
        }
        Ok(())
    }
}
