//! Sizes that a file system can have, and the least of them.

use crate::alloc::base_blocks;
use crate::error::{Error, Place, Result, Structure, no_space};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::layout::Layout;
use crate::read::fs::Ext4;
use crate::units::{Block, GroupNo};

/// Blocks that a group has room for besides its own structures; a last one with fewer is left out, as by mke2fs.
const LEAST_IN_GROUP: u64 = 50;

/// The size of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub blocks: u64,
    pub groups: u32,
}

/// Refuses file systems whose size can't change.
pub(super) fn check(fs: &Ext4) -> Result<()> {
    let (layout, superblock) = (fs.layout(), fs.superblock());
    if superblock.ro_compat.has(RoCompat::BIGALLOC) {
        let text = "file systems with the feature bigalloc can't change their size";
        return Err(Error::unsupported(text));
    }
    if superblock.compat.has(Compat::RESIZE_INODE) && superblock.incompat.has(Incompat::META_BG) {
        return Err(Error::unsupported(
            "file systems with both resize_inode and meta_bg can't change their size",
        ));
    }
    let reserved = u32::from(superblock.reserved_descriptor_blocks());
    if superblock.compat.has(Compat::RESIZE_INODE) && reserved > layout.block_size / 4 {
        let place = Place::of(Structure::Superblock);
        return Err(place.malformed(format!("room for {reserved} blocks of descriptors more")));
    }
    for group in layout.all_groups().filter(|group| layout.has_superblock(*group)) {
        if base_blocks(layout, superblock, group) > layout.blocks_in(group) {
            let place = Place::group(Structure::GroupDescriptor, group);
            return Err(place.malformed("has no room for all descriptors"));
        }
    }
    Ok(())
}

/// Blocks that a group's own structures have in it, or that it has elsewhere with flex_bg.
pub(super) fn own_blocks(fs: &Ext4, group: GroupNo) -> u64 {
    base_blocks(fs.layout(), fs.superblock(), group) + 2 + fs.layout().inode_table_blocks()
}

impl Shape {
    /// The largest size of at most so many blocks.
    pub fn of(fs: &Ext4, blocks: u64) -> Result<Shape> {
        let (layout, superblock) = (fs.layout(), fs.superblock());
        let bits64 = superblock.incompat.has(Incompat::BITS64);
        if blocks > u64::from(u32::MAX) && (!bits64 || superblock.compat.has(Compat::RESIZE_INODE)) {
            let text = format!("{blocks} blocks: 2^32 and more need the feature 64bit, and not resize_inode");
            return Err(Error::unsupported(text));
        }
        let first = u64::from(layout.first_data_block);
        let per_group = u64::from(layout.blocks_per_group);
        let data = blocks.saturating_sub(first);
        let most = u32::MAX / layout.inodes_per_group;
        let mut groups = u32::try_from(data.div_ceil(per_group)).unwrap_or(u32::MAX).min(most);
        let mut blocks = blocks.min(first + u64::from(groups) * per_group);
        let rest = (blocks.saturating_sub(first)) % per_group;
        if groups > 1 && rest > 0 && rest < overhead(fs, groups) + LEAST_IN_GROUP {
            blocks -= rest;
            groups -= 1;
        }
        if groups == 0 {
            return Err(Error::argument(format!("{blocks} blocks are too few for a file system")));
        }
        Ok(Shape { blocks, groups })
    }

    /// The first block behind it.
    pub fn end(self) -> Block {
        Block::new(self.blocks)
    }

    /// Refuses a size in which there is no room for what is in use, or for structures that do not move.
    pub fn require_room(self, fs: &Ext4) -> Result<()> {
        let least = fixed_end(fs, self.groups)?;
        if self.end() < least {
            let text = format!("{} blocks: structures that can't move end at block {least}", self.blocks);
            return Err(Error::argument(text));
        }
        let counts = Counts::of(fs)?;
        if counts.inodes > u64::from(self.groups) * u64::from(fs.layout().inodes_per_group) {
            return Err(no_space("inodes"));
        }
        if counts.data > self.room(fs) {
            return Err(no_space("blocks"));
        }
        Ok(())
    }

    /// Blocks that files can have.
    fn room(self, fs: &Ext4) -> u64 {
        let own: u64 = GroupNo::first(self.groups).map(|group| own_blocks(fs, group)).sum();
        (self.blocks - u64::from(fs.layout().first_data_block)).saturating_sub(own)
    }
}

/// Blocks and inodes in use by files.
struct Counts {
    data: u64,
    inodes: u64,
}

impl Counts {
    fn of(fs: &Ext4) -> Result<Counts> {
        let layout = fs.layout();
        let (mut free, mut free_inodes, mut own) = (0u64, 0u64, 0u64);
        for group in layout.all_groups() {
            let (clusters, inodes) = fs.with_descriptor(group, |descriptor| {
                (descriptor.free_clusters(), descriptor.free_inodes())
            })?;
            free += u64::from(clusters);
            free_inodes += u64::from(inodes);
            own += own_blocks(fs, group);
        }
        let all = layout.blocks - u64::from(layout.first_data_block);
        Ok(Counts {
            data: all.saturating_sub(free).saturating_sub(own),
            inodes: u64::from(layout.inodes).saturating_sub(free_inodes),
        })
    }
}

/// Blocks of structures that a last group has of its own.
fn overhead(fs: &Ext4, groups: u32) -> u64 {
    own_blocks(fs, GroupNo::new(groups - 1))
}

/// The block behind the last one of structures of the first `groups` groups, which do not move.
pub(super) fn fixed_end(fs: &Ext4, groups: u32) -> Result<Block> {
    let mut groups = GroupNo::first(groups.min(fs.layout().groups));
    groups.try_fold(mmp_end(fs), |end, group| Ok(end.max(structures_end(fs, group)?)))
}

/// The block behind that of multi-mount protection.
fn mmp_end(fs: &Ext4) -> Block {
    fs.superblock().mmp_block.map_or(Block::new(0), |block| block.saturating_add(1))
}

/// The block behind the last one of a group's structures. With flex_bg they may lie in any group, also in a later one.
fn structures_end(fs: &Ext4, group: GroupNo) -> Result<Block> {
    let layout: &Layout = fs.layout();
    let places = fs.with_descriptor(group, |descriptor| {
        [
            descriptor.block_bitmap().saturating_add(1),
            descriptor.inode_bitmap().saturating_add(1),
            descriptor.inode_table().saturating_add(layout.inode_table_blocks()),
        ]
    })?;
    let base = layout.group_start(group) + base_blocks(layout, fs.superblock(), group);
    Ok(places.into_iter().fold(base, Block::max))
}

/// The fewest blocks that the file system may have, as far as that can be told without moving anything.
///
/// # Errors
/// `Unsupported` for features with which its size can't change; `Corrupt`.
pub fn least_blocks(fs: &Ext4) -> Result<u64> {
    check(fs)?;
    Ok(least(fs, 0)?.blocks)
}

/// The least size with room for so many blocks more than are in use.
pub(super) fn least(fs: &Ext4, more: u64) -> Result<Shape> {
    let layout = fs.layout();
    let counts = Counts::of(fs)?;
    let needed = counts.data + more;
    let first = u64::from(layout.first_data_block);
    let mut room = 0u64;
    let mut fixed = mmp_end(fs);
    for group in layout.all_groups() {
        fixed = fixed.max(structures_end(fs, group)?);
        let groups = group.get() + 1;
        let own = own_blocks(fs, group);
        let blocks_in = layout.blocks_in(group);
        room += blocks_in.saturating_sub(own);
        let has_inodes = counts.inodes <= u64::from(groups) * u64::from(layout.inodes_per_group);
        let end = layout.group_start(group).get() + blocks_in;
        if !has_inodes || room < needed || fixed.get() > end {
            continue;
        }
        // No fewer than the last group must have.
        let in_last = if groups == 1 { own } else { own + LEAST_IN_GROUP };
        let start = layout.group_start(group).get();
        let blocks = (end - (room - needed)).max(start + in_last).max(fixed.get()).max(first + 1).min(end);
        return Ok(Shape { blocks, groups });
    }
    Ok(Shape { blocks: layout.blocks, groups: layout.groups })
}
