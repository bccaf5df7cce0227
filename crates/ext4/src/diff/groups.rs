//! Descriptors of groups.

use super::Diff;
use super::difference::{Difference, Side};
use crate::error::Result;
use crate::format::group::GroupDescriptor;

impl Diff<'_> {
    /// Compares the descriptors of file systems that have the same groups.
    pub fn groups(&mut self) -> Result<()> {
        let layouts = self.sides.map(|side| *side.fs.layout());
        let shape =
            layouts.map(|layout| (layout.blocks_per_group, layout.block_size, layout.inodes_per_group));
        if shape[0] != shape[1] {
            return Ok(());
        }
        let fewer = if layouts[0].groups < layouts[1].groups { 0 } else { 1 };
        for group in layouts[fewer].all_groups() {
            let mut raw = Vec::new();
            for side in Side::BOTH {
                match self.sides[side.index()].fs.with_raw_descriptor(group, <[u8]>::to_vec) {
                    Ok(found) => raw.push(found),
                    Err(error) => {
                        let path = format!("group descriptor {group}");
                        self.skip(side, path.as_bytes(), error)?;
                    }
                }
            }
            let [a, b] = &raw[..] else { continue };
            if a == b {
                continue;
            }
            let descriptors = [GroupDescriptor::from_bytes(a)?, GroupDescriptor::from_bytes(b)?];
            let [numbers_a, numbers_b] = descriptors.map(numbers);
            for ((field, a), (_, b)) in numbers_a.into_iter().zip(numbers_b).filter(|((_, a), (_, b))| a != b)
            {
                self.tell(Difference::Group { group, field, values: [a, b] })?;
            }
        }
        Ok(())
    }
}

/// Numbers of a descriptor. Checksums follow from what they are of.
fn numbers(descriptor: GroupDescriptor<'_>) -> [(&'static str, u64); 8] {
    [
        ("block bitmap", descriptor.block_bitmap().get()),
        ("inode bitmap", descriptor.inode_bitmap().get()),
        ("inode table", descriptor.inode_table().get()),
        ("free clusters", descriptor.free_clusters().into()),
        ("free inodes", descriptor.free_inodes().into()),
        ("directories", descriptor.used_directories().into()),
        ("unused inodes", descriptor.unused_inodes().into()),
        ("flags", descriptor.flags().into()),
    ]
}
