//! The inode that keeps room behind the descriptors: a tree of two levels, whose blocks of numbers are that room itself.

use casemate_blockdev::{u64_of, usize_of};

use crate::alloc::Goal;
use crate::edit::files::Files;
use crate::edit::inode::{clear, write};
use crate::error::{Error, Place, Result, Structure};
use crate::format::block_map::{self, DOUBLE};
use crate::format::features::RoCompat;
use crate::format::layout::Layout;
use crate::units::{Block, GroupNo, InodeNo};

/// The block that the inode's tree begins with.
fn top(files: &Files) -> Result<Block> {
    let inode = files.get_unlinked(InodeNo::RESIZE)?;
    let place = Place::inode(Structure::Inode, InodeNo::RESIZE);
    let block = Block::new(block_map::number(DOUBLE).get(inode.block_area()).into());
    files.fs().check_blocks(block, 1, place)?;
    Ok(block)
}

/// Moves the block that the inode's tree begins with to before an end. How many were moved.
pub(super) fn move_top(files: &mut Files, end: Block) -> Result<u64> {
    let from = top(files)?;
    if from < end {
        return Ok(0);
    }
    let (to, _) = files.inodes().space_mut().allocate(Goal::Near(GroupNo::PRIMARY), 1)?;
    let bytes = files.fs().read_block(from)?;
    files.inodes().transaction().create(to, bytes);
    let mut inode = files.get_unlinked(InodeNo::RESIZE)?;
    let number =
        to.low().ok_or_else(|| Error::unsupported("room for descriptors behind the first 2^32 blocks"))?;
    block_map::number(DOUBLE).set(inode.block_area_mut(), number);
    write(files.inodes().space_mut(), &inode)?;
    files.inodes().space_mut().free_blocks(from, 1)?;
    Ok(1)
}

/// Makes the inode keep `count` blocks behind the descriptors of a layout, with their copies.
pub(super) fn keep(files: &mut Files, layout: &Layout, count: u32) -> Result<()> {
    let size = layout.block_len();
    let per_block = usize_of(block_map::per_block(u64_of(size)));
    let top_block = top(files)?;
    let number = |block: Block| {
        block.low().ok_or_else(|| Error::unsupported("room for descriptors behind the first 2^32 blocks"))
    };
    let mut top = vec![0; size];
    let groups: Vec<_> = layout.copy_groups().take(per_block).collect();
    for index in 0..count {
        let index = layout.descriptor_blocks() + index;
        let block = layout.superblock_block() + 1 + u64::from(index);
        block_map::number(usize_of(index) % per_block).set(&mut top, number(block)?);
        let mut copies = vec![0; size];
        for (at, group) in groups.iter().enumerate() {
            let copy = block + u64::from(group.get()) * u64::from(layout.blocks_per_group);
            block_map::number(at).set(&mut copies, number(copy)?);
        }
        files.inodes().transaction().create(block, copies);
    }
    files.inodes().transaction().create(top_block, top);
    let mut inode = files.get_unlinked(InodeNo::RESIZE)?;
    let blocks = 1 + u64::from(count) * (1 + u64_of(groups.len()));
    let has_huge = files.fs().superblock().ro_compat.has(RoCompat::HUGE_FILE);
    inode.set_sectors(blocks * u64::from(layout.block_size / 512), layout.block_size, has_huge);
    write(files.inodes().space_mut(), &inode)
}

/// Empties the inode: the blocks that it keeps are descriptors, or become so.
pub(super) fn drop(files: &mut Files) -> Result<()> {
    let top_block = top(files)?;
    let inode = files.get_unlinked(InodeNo::RESIZE)?;
    files.inodes().space_mut().free_blocks(top_block, 1)?;
    clear(files.inodes().space_mut(), &inode)
}
