//! Places of a group's structures.

use crate::format::features::Incompat;
use crate::format::group::{Bitmap, GroupDescriptor};
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;
use crate::units::{Block, GroupNo, Run};

/// Places of a group's structures that a check needs; `None` where a block cannot be there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// The first block of the inode table.
    pub table: Option<Block>,
    /// How many inodes from the table's start on were ever used.
    pub used: u32,
    /// The bitmaps' blocks; those that were never written have none.
    pub block_bitmap: Option<Block>,
    pub inode_bitmap: Option<Block>,
    pub flags: u16,
    pub free_clusters: u32,
    pub free_inodes: u32,
    pub directories: u32,
}

/// Calls `f` with the runs of blocks that a group begins with: superblock, descriptors, and room for more of them.
pub(crate) fn fixed_blocks(layout: &Layout, superblock: &Superblock, group: GroupNo, mut f: impl FnMut(Run)) {
    let start = layout.group_start(group);
    let mut add = |block: Block, len: u64| {
        let end = block.saturating_add(len).min(layout.end());
        if block < end {
            f(Run::between(block, end));
        }
    };
    let per_block = layout.descriptors_per_block();
    let (index, within) = layout.descriptor_position(group);
    let meta = layout.is_meta(index);
    let offset = layout.superblock_offset(group);
    if let Some(offset) = offset {
        let own = Block::of_byte(offset, layout.block_size.into());
        // With 1 KiB blocks and bigalloc, the boot block belongs to group 0.
        add(own.min(start), (own.max(start) - own.min(start)) + 1);
        if !meta {
            let blocks = match superblock.incompat.has(Incompat::META_BG) {
                true => superblock.first_meta_bg.min(layout.descriptor_blocks()),
                false => layout.descriptor_blocks() + u32::from(superblock.reserved_descriptor_blocks()),
            };
            add(own + 1, blocks.into());
        }
    }
    if meta && [0, 1, per_block - 1].contains(&within) {
        let boot =
            u64::from(group == GroupNo::PRIMARY && layout.block_size == 1024 && layout.first_data_block == 0);
        add(start + u64::from(offset.is_some()) + boot, 1);
    }
}

/// One of a group's structures that its descriptor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Table,
    Blocks,
    Inodes,
}

impl Part {
    /// Position in [`Places`].
    pub fn index(self) -> usize {
        match self {
            Part::Table => 0,
            Part::Blocks => 1,
            Part::Inodes => 2,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Part::Table => "inode table",
            Part::Blocks => "block bitmap",
            Part::Inodes => "inode bitmap",
        }
    }

    pub fn bitmap(self) -> Option<Bitmap> {
        match self {
            Part::Table => None,
            Part::Blocks => Some(Bitmap::Blocks),
            Part::Inodes => Some(Bitmap::Inodes),
        }
    }

    pub fn of(self, group: &mut Group) -> &mut Option<Block> {
        match self {
            Part::Table => &mut group.table,
            Part::Blocks => &mut group.block_bitmap,
            Part::Inodes => &mut group.inode_bitmap,
        }
    }
}

/// Places of a group: of its inode table and its two bitmaps.
pub(crate) type Places = [Block; 3];

pub(crate) fn places(of: GroupDescriptor<'_>) -> Places {
    [of.inode_table(), of.block_bitmap(), of.inode_bitmap()]
}
