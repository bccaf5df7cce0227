//! Group descriptors that a file system can be changed by: what each points to is not the superblock, not a descriptor,
//! and not something else of the same group. The kernel asks the same of what it mounts.

use crate::alloc::{Collector, Structures};
use crate::error::{Place, Result, Structure};
use crate::format::features::Incompat;
use crate::read::fs::Ext4;
use crate::units::{Block, GroupNo};

/// Checks where all groups say that their bitmaps and inode tables lie. Returns where that is.
pub(crate) fn check(fs: &Ext4) -> Result<Structures> {
    let layout = fs.layout();
    let mut descriptors: Vec<Block> =
        (0..layout.descriptor_blocks()).map(|index| layout.descriptor_block(index)).collect();
    descriptors.sort_unstable();
    let is_flexible = fs.superblock().incompat.has(Incompat::FLEX_BG);
    let ends = descriptors.first().copied().zip(descriptors.last().copied());
    let mut collector = Collector::default();
    for group in GroupNo::first(layout.groups) {
        let place = Place::group(Structure::GroupDescriptor, group);
        let places = fs.with_descriptor(group, |descriptor| {
            [
                ("block bitmap", descriptor.block_bitmap(), 1),
                ("inode bitmap", descriptor.inode_bitmap(), 1),
                ("inode table", descriptor.inode_table(), layout.inode_table_blocks()),
            ]
        })?;
        let (first, end) = match is_flexible {
            true => (Block::new(0), layout.end()),
            false => (layout.group_start(group), layout.group_start(group) + layout.blocks_in(group)),
        };
        for (index, (name, block, len)) in places.into_iter().enumerate() {
            fs.check_blocks(block, len, place)?;
            collector.add(index, block, len);
            // No overflow from here on: the blocks lie in the file system.
            if block < first || block + len > end {
                return Err(place.malformed(format!("the {name} at {block} lies in another group")));
            }
            // Nearly all lie behind the last descriptor.
            let is_near = ends.is_some_and(|(first, last)| first < block + len && block <= last);
            let next = || descriptors.partition_point(|descriptor| *descriptor < block);
            let mut others = places[..index].iter().map(|(_, other, len)| (*other, *len));
            if is_near && descriptors.get(next()).is_some_and(|descriptor| *descriptor < block + len)
                || others.any(|(other, other_len)| block < other + other_len && other < block + len)
            {
                return Err(place.malformed(format!("the {name} at {block} lies on other metadata")));
            }
        }
    }
    Ok(collector.finish(fs))
}
