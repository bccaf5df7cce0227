//! Where the metadata of each group lie: bitmaps and inode tables, packed together for the groups of a flex group.

use casemate_blockdev::usize_of;

use crate::build::geometry::Geometry;
use crate::build::space::Taken;
use crate::error::Result;
use crate::format::features::Incompat;
use crate::format::layout::Layout;
use crate::units::{Block, GroupNo};

/// Where a group's bitmaps and inode table lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    pub block_bitmap: Block,
    pub inode_bitmap: Block,
    pub inode_table: Block,
}

/// One of a group's places.
type Field = fn(&mut Places) -> &mut Block;

/// The places of all groups' metadata.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    pub places: Vec<Places>,
    /// All metadata of fixed place, superblocks and descriptors among them.
    pub taken: Taken,
}

impl Groups {
    /// The places of a file system with these numbers, and this layout that follows from them.
    pub fn new(geometry: &Geometry, layout: &Layout, is_packed: bool) -> Result<Groups> {
        let mut groups = Groups {
            places: vec![Places::default(); usize_of(geometry.groups)],
            taken: fixed(geometry, layout),
        };
        let has_flex = geometry.features.incompat.has(Incompat::FLEX_BG);
        let step = match (is_packed, has_flex) {
            (true, _) => geometry.groups,
            (false, true) => geometry.groups_per_flex,
            (false, false) => 1,
        };
        let mut first = 0;
        while first < geometry.groups {
            let end = geometry.groups.min(first.saturating_add(step));
            groups.place(geometry, layout, first..end);
            first = end;
        }
        Ok(groups)
    }

    /// Places metadata of some groups one after the other, behind what the first of them begins with.
    fn place(&mut self, geometry: &Geometry, layout: &Layout, groups: std::ops::Range<u32>) {
        let first = GroupNo::new(groups.start);
        let mut at = layout.group_start(first);
        let count = u64::from(groups.end - groups.start);
        let table = u64::from(geometry.inode_table_blocks());
        let kinds: [(u64, Field); 3] = [
            (1, |places| &mut places.block_bitmap),
            (1, |places| &mut places.inode_bitmap),
            (table, |places| &mut places.inode_table),
        ];
        for (len, field) in kinds {
            // All of a kind together where there is room for that.
            at = self.taken.find(at, len * if len == 1 { count } else { 1 });
            for group in first.until(GroupNo::new(groups.end)) {
                at = self.taken.find(at, len);
                *field(&mut self.places[group.index()]) = at;
                self.taken.take(at, len);
                at += len;
            }
        }
    }
}

/// Superblocks and descriptors, and what is kept for more of them.
fn fixed(geometry: &Geometry, layout: &Layout) -> Taken {
    let mut taken = Taken::default();
    let kept = if geometry.features.incompat.has(Incompat::META_BG) {
        0
    } else {
        u64::from(geometry.descriptor_blocks + geometry.reserved_descriptor_blocks)
    };
    for group in std::iter::once(GroupNo::PRIMARY).chain(layout.copy_groups()) {
        let start = layout.group_start(group);
        let superblock = if group == GroupNo::PRIMARY { layout.superblock_block() } else { start };
        taken.take(start.min(superblock), superblock - start.min(superblock) + 1 + kept);
    }
    for index in (0..layout.descriptor_blocks()).filter(|index| layout.is_meta(*index)) {
        taken.take(layout.descriptor_block(index), 1);
        for (_, block) in layout.descriptor_copies(index) {
            taken.take(block, 1);
        }
    }
    taken
}
