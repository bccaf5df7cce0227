//! Where the superblock says that everything of fixed place lies.
//!
//! Sources: Documentation/filesystems/ext4/{blockgroup,group_descr}.rst; `sparse_super2` and `meta_bg` as the
//! kernel reads them (fs/ext4/balloc.c and super.c, for facts).

use casemate_blockdev::{u32_of, usize_of};

use crate::error::{Error, Place, Result, Structure};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::superblock::{SUPERBLOCK_OFFSET, Superblock};
use crate::units::{Block, GroupNo, InodeNo};

/// More groups than any file system has that a kernel could mount in practice: two exbibytes at 4 KiB blocks.
const MOST_GROUPS: u64 = 1 << 24;

/// The sizes and counts of a file system, and the places that follow from them.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks in a cluster; 1 without bigalloc.
    pub cluster_blocks: u32,
    /// Blocks in the file system.
    pub blocks: u64,
    /// The first block of group 0.
    pub first_data_block: u32,
    /// Block groups.
    pub groups: u32,
    /// Blocks in a group; the last one may have fewer.
    pub blocks_per_group: u32,
    /// Clusters in a group, and so the bits in use of a block bitmap.
    pub clusters_per_group: u32,
    /// Inodes in a group.
    pub inodes_per_group: u32,
    /// Inodes in the file system.
    pub inodes: u32,
    /// Bytes of an inode.
    pub inode_size: u32,
    /// Bytes of a descriptor.
    pub descriptor_size: u32,
    first_meta_bg: Option<u32>,
    copies: Copies,
    /// The group whose copies of the descriptors are read; 0 for the primary ones.
    home: GroupNo,
}

/// Which groups hold a copy of superblock and descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Copies {
    All,
    /// 0, 1 and powers of 3, 5 and 7.
    Sparse,
    /// Group 0 and these two.
    Named([GroupNo; 2]),
}

impl Copies {
    /// The copies of a file system with these features.
    pub fn of(compat: Compat, ro_compat: RoCompat, backup_groups: [GroupNo; 2]) -> Copies {
        match (compat.has(Compat::SPARSE_SUPER2), ro_compat.has(RoCompat::SPARSE_SUPER)) {
            (true, _) => Copies::Named(backup_groups),
            (false, true) => Copies::Sparse,
            (false, false) => Copies::All,
        }
    }

    /// Whether the group begins with a copy (group 0: with the superblock).
    pub fn has(self, group: GroupNo) -> bool {
        match self {
            Copies::All => true,
            Copies::Sparse => {
                group.get() <= 1 || [3, 5, 7].into_iter().any(|base| is_power(group.get(), base))
            }
            Copies::Named(groups) => group == GroupNo::PRIMARY || groups.contains(&group),
        }
    }
}

impl Layout {
    /// The layout of the file system with this superblock.
    ///
    /// # Errors
    /// `Corrupt` when counts contradict each other.
    pub fn new(superblock: &Superblock) -> Result<Layout> {
        let place = Place::of(Structure::Superblock);
        let data_blocks = superblock.blocks - u64::from(superblock.first_data_block);
        let groups = data_blocks.div_ceil(u64::from(superblock.blocks_per_group));
        if groups > MOST_GROUPS {
            return Err(Error::unsupported(format!("{groups} block groups, more than {MOST_GROUPS}")));
        }
        if groups * u64::from(superblock.inodes_per_group) != u64::from(superblock.inodes) {
            return Err(place.malformed("the number of inodes is not that of all groups"));
        }
        let copies = Copies::of(superblock.compat, superblock.ro_compat, superblock.backup_groups);
        let meta_bg = superblock.incompat.has(Incompat::META_BG);
        let layout = Layout {
            block_size: superblock.block_size,
            cluster_blocks: superblock.cluster_size / superblock.block_size,
            blocks: superblock.blocks,
            first_data_block: superblock.first_data_block,
            // Not more than MOST_GROUPS.
            groups: u32_of(groups),
            blocks_per_group: superblock.blocks_per_group,
            clusters_per_group: superblock.clusters_per_group,
            inodes_per_group: superblock.inodes_per_group,
            inodes: superblock.inodes,
            inode_size: superblock.inode_size,
            descriptor_size: superblock.descriptor_size,
            first_meta_bg: meta_bg.then_some(superblock.first_meta_bg),
            copies,
            home: GroupNo::PRIMARY,
        };
        // What follows keeps the work of a walk over all groups below the size of the file system.
        let descriptors = layout.descriptor_blocks().min(layout.first_meta_bg.unwrap_or(u32::MAX));
        if layout.blocks_per_group <= 1 + descriptors {
            return Err(place.malformed("a group has no room for all descriptors"));
        }
        if groups.saturating_mul(layout.inode_table_blocks()) > layout.blocks {
            return Err(place.malformed("there is no room for all inode tables"));
        }
        Ok(layout)
    }

    /// Bytes of a block, as a length in memory.
    #[inline]
    pub(crate) fn block_len(&self) -> usize {
        usize_of(self.block_size)
    }

    /// Bytes of an inode, as a length in memory.
    #[inline]
    pub(crate) fn inode_len(&self) -> usize {
        usize_of(self.inode_size)
    }

    /// Bytes of a descriptor, as a length in memory.
    #[inline]
    pub(crate) fn descriptor_len(&self) -> usize {
        usize_of(self.descriptor_size)
    }

    /// The byte that block `block` begins at. Blocks of the file system only: no overflow.
    pub fn offset(&self, block: Block) -> u64 {
        block.offset(self.block_size.into())
    }

    /// Whether `len` blocks from `block` on lie inside the file system and behind its superblock.
    pub fn contains(&self, block: Block, len: u64) -> bool {
        // With 1 KiB blocks and bigalloc, the superblock lies behind the first block.
        block > self.superblock_block().max(Block::new(self.first_data_block.into()))
            && block.checked_add(len).is_some_and(|end| end <= self.end())
    }

    /// The block behind the last one.
    pub(crate) fn end(&self) -> Block {
        Block::new(self.blocks)
    }

    /// The first block of a group.
    pub fn group_start(&self, group: GroupNo) -> Block {
        Block::new(self.first_data_block.into()) + u64::from(group.get()) * u64::from(self.blocks_per_group)
    }

    /// Blocks of a group; the last one may have fewer.
    pub fn blocks_in(&self, group: GroupNo) -> u64 {
        self.blocks.saturating_sub(self.group_start(group).get()).min(u64::from(self.blocks_per_group))
    }

    /// The group that a block lies in, and how many blocks of the group are before it; `None` before the first group.
    pub(crate) fn group_of(&self, block: Block) -> Option<(GroupNo, u64)> {
        let within = block.checked_since(self.group_start(GroupNo::PRIMARY))?;
        let per_group = u64::from(self.blocks_per_group);
        Some((GroupNo::new(u32::try_from(within / per_group).ok()?), within % per_group))
    }

    /// Clusters in a group; the last one may have fewer, of which the last may be cut.
    pub fn clusters_in(&self, group: GroupNo) -> u32 {
        // At most blocks_per_group.
        u32_of(self.blocks_in(group)).div_ceil(self.cluster_blocks)
    }

    /// Whether the group begins with a copy of the superblock (group 0: with the superblock).
    pub fn has_superblock(&self, group: GroupNo) -> bool {
        self.copies.has(group)
    }

    /// The byte that the superblock of a group begins at, if it has one.
    pub fn superblock_offset(&self, group: GroupNo) -> Option<u64> {
        match group.get() {
            0 => Some(SUPERBLOCK_OFFSET),
            number if number >= self.groups || !self.has_superblock(group) => None,
            _ => Some(self.offset(self.group_start(group))),
        }
    }

    /// Descriptors in a block.
    pub fn descriptors_per_block(&self) -> u32 {
        self.block_size / self.descriptor_size
    }

    /// Blocks that all descriptors fill.
    pub fn descriptor_blocks(&self) -> u32 {
        self.groups.div_ceil(self.descriptors_per_block())
    }

    /// The layout with descriptors read from a group's copies; from other copies where these lie elsewhere.
    #[must_use]
    pub fn by_copies_of(self, group: GroupNo) -> Layout {
        Layout { home: group, ..self }
    }

    /// Where the `index`th block of descriptors lies.
    pub fn descriptor_block(&self, index: u32) -> Block {
        let is_home = self.home != GroupNo::PRIMARY;
        if is_home && !self.is_meta(index) && self.has_descriptors(self.home) {
            return self.group_start(self.home) + 1 + u64::from(index);
        }
        if is_home && let Some((_, block)) = self.descriptor_copies(index).next() {
            return block;
        }
        if self.is_meta(index) {
            let group = self.first_described(index);
            // With 1 KiB blocks and bigalloc, block 0 is the boot block although it belongs to group 0.
            let boot =
                u64::from(group == GroupNo::PRIMARY && self.block_size == 1024 && self.first_data_block == 0);
            return self.group_start(group) + u64::from(self.has_superblock(group)) + boot;
        }
        self.superblock_block() + 1 + u64::from(index)
    }

    /// Where the copies of the `index`th block of descriptors lie, each with the group it lies in.
    pub fn descriptor_copies(&self, index: u32) -> impl Iterator<Item = (GroupNo, Block)> {
        let is_meta = self.is_meta(index);
        let of_meta = if is_meta { self.meta_copies(index) } else { Vec::new() };
        let groups = (!is_meta).then(|| self.copy_groups()).into_iter().flatten();
        let groups = groups.filter(|group| self.has_descriptors(*group));
        let of_groups = groups.map(move |group| (group, self.group_start(group) + 1 + u64::from(index)));
        of_meta.into_iter().chain(of_groups)
    }

    /// Whether a group that has a superblock also has copies of the descriptors that lie together: not behind those groups, where
    /// each group's descriptor lies near it.
    fn has_descriptors(&self, group: GroupNo) -> bool {
        !self.is_meta(self.descriptor_position(group).0)
    }

    /// Copies of a block of descriptors in its meta group: in the second and in the last group.
    fn meta_copies(&self, index: u32) -> Vec<(GroupNo, Block)> {
        let first = self.first_described(index);
        let later = |count| first.get().checked_add(count).map(GroupNo::new);
        let groups = [later(1), later(self.descriptors_per_block() - 1)];
        let mut copies = Vec::new();
        for group in groups.into_iter().flatten().filter(|group| group.get() < self.groups) {
            let block = self.group_start(group) + u64::from(self.has_superblock(group));
            if group != first && copies.last() != Some(&(group, block)) {
                copies.push((group, block));
            }
        }
        copies
    }

    /// All block groups.
    pub fn all_groups(&self) -> impl DoubleEndedIterator<Item = GroupNo> + ExactSizeIterator + Clone + use<> {
        GroupNo::first(self.groups)
    }

    /// The block of descriptors that a group's lies in, and its position there.
    pub fn descriptor_position(&self, group: GroupNo) -> (u32, u32) {
        let per_block = self.descriptors_per_block();
        (group.get() / per_block, group.get() % per_block)
    }

    /// The first group whose descriptor lies in the `index`th block of descriptors.
    pub(crate) fn first_described(&self, index: u32) -> GroupNo {
        GroupNo::new(index * self.descriptors_per_block())
    }

    /// The groups other than 0 that hold copies of the superblock.
    pub fn copy_groups(&self) -> impl Iterator<Item = GroupNo> {
        // Of many groups few have copies: to ask each would take long wherever it is done for every group.
        let mut few = match self.copies {
            Copies::All => Vec::new(),
            Copies::Named(groups) => groups.to_vec(),
            Copies::Sparse => {
                let powers =
                    |base: u32| std::iter::successors(Some(base), move |power| power.checked_mul(base));
                let powers = [3, 5, 7].into_iter().flat_map(powers);
                powers.chain([1]).map(GroupNo::new).collect()
            }
        };
        few.retain(|group| *group != GroupNo::PRIMARY && group.get() < self.groups);
        few.sort_unstable();
        few.dedup();
        let all = matches!(self.copies, Copies::All).then(|| self.all_groups().skip(1));
        few.into_iter().chain(all.into_iter().flatten())
    }

    /// The group and the index in its table of an inode, if there is such an inode.
    pub fn inode_position(&self, inode: InodeNo) -> Option<(GroupNo, u32)> {
        let index = Some(inode.index()).filter(|index| *index < self.inodes)?;
        Some((GroupNo::new(index / self.inodes_per_group), index % self.inodes_per_group))
    }

    /// The inode at an index of a group's table, if there is such a group and index.
    pub fn inode_at(&self, group: GroupNo, index: u32) -> Option<InodeNo> {
        let before =
            group.get().checked_mul(self.inodes_per_group).filter(|_| index < self.inodes_per_group)?;
        InodeNo::at_index(before.checked_add(index)?).filter(|inode| inode.index() < self.inodes)
    }

    /// Blocks of a group's inode table.
    pub fn inode_table_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group) * u64::from(self.inode_size)).div_ceil(u64::from(self.block_size))
    }

    /// The block that the primary superblock lies in.
    pub(crate) fn superblock_block(&self) -> Block {
        Block::of_byte(SUPERBLOCK_OFFSET, self.block_size.into())
    }

    /// Whether the `index`th block of descriptors lies in the groups that it describes.
    pub(crate) fn is_meta(&self, index: u32) -> bool {
        self.first_meta_bg.is_some_and(|first| index >= first)
    }
}

fn is_power(mut number: u32, base: u32) -> bool {
    while number > 1 && number.is_multiple_of(base) {
        number /= base;
    }
    number == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_lie_in_powers_of_three_five_and_seven() {
        let mut raw = crate::format::superblock::tests::sample();
        raw[0x4..0x8].copy_from_slice(&(8192u32 * 130).to_le_bytes());
        raw[0x0..0x4].copy_from_slice(&(256u32 * 130).to_le_bytes());
        raw[0x64] = 1; // sparse_super
        let layout = Layout::new(&Superblock::from_bytes(&raw).unwrap()).unwrap();
        let inode = |number| InodeNo::new(number).unwrap();
        let groups: Vec<_> = layout.copy_groups().map(GroupNo::get).collect();
        assert_eq!(groups, [1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
        assert_eq!(
            (layout.groups, layout.descriptor_blocks(), layout.descriptor_block(8)),
            (130, 9, Block::new(10))
        );
        assert_eq!(
            layout.descriptor_copies(2).nth(1).unwrap(),
            (GroupNo::new(3), Block::new(1 + 3 * 8192 + 1 + 2))
        );
        assert_eq!(layout.superblock_offset(GroupNo::new(2)), None);
        assert_eq!(layout.superblock_offset(GroupNo::new(3)), Some(1024 * (1 + 3 * 8192)));
        assert_eq!(layout.inode_position(inode(257)), Some((GroupNo::new(1), 0)));
        assert_eq!(layout.inode_at(GroupNo::new(1), 0), Some(inode(257)));
        assert_eq!(
            (layout.inode_at(GroupNo::PRIMARY, 256), layout.inode_at(GroupNo::new(130), 0)),
            (None, None)
        );
        assert_eq!(layout.inode_position(inode(256 * 130 + 1)), None);

        raw[0x60] |= 0x10; // meta_bg from descriptor block 1 on
        raw[0x104] = 1;
        let layout = Layout::new(&Superblock::from_bytes(&raw).unwrap()).unwrap();
        assert_eq!(layout.descriptor_block(0), Block::new(2));
        assert_eq!(layout.descriptor_block(1), Block::new(1 + 16 * 8192));
        assert_eq!(
            layout.descriptor_copies(1).collect::<Vec<_>>(),
            [(GroupNo::new(17), Block::new(1 + 17 * 8192)), (GroupNo::new(31), Block::new(1 + 31 * 8192))]
        );
        // The last meta group has two groups: one copy.
        assert_eq!(
            layout.descriptor_copies(8).collect::<Vec<_>>(),
            [(GroupNo::new(129), Block::new(1 + 129 * 8192))]
        );
    }

    #[test]
    fn groups_with_copies_are_listed_as_they_are_told() {
        let mut raw = crate::format::superblock::tests::sample();
        let layout = Layout::new(&Superblock::from_bytes(&raw).unwrap()).unwrap();
        let mut all = vec![layout];
        // Sparse or in two groups, which may be one, lie behind the end, or be out of order.
        for groups in [[1u32, 129], [7, 3], [5, 5], [0, 0], [9, 1000]] {
            raw[0x5c..0x60].copy_from_slice(&0x200u32.to_le_bytes());
            raw[0x24c..0x250].copy_from_slice(&groups[0].to_le_bytes());
            raw[0x250..0x254].copy_from_slice(&groups[1].to_le_bytes());
            all.push(Layout::new(&Superblock::from_bytes(&raw).unwrap()).unwrap());
        }
        for copies in [Copies::All, Copies::Sparse] {
            all.push(Layout { copies, groups: 5000, ..layout });
        }
        for layout in all {
            let told = layout.all_groups().skip(1).filter(|group| layout.has_superblock(*group));
            assert_eq!(
                layout.copy_groups().collect::<Vec<_>>(),
                told.collect::<Vec<_>>(),
                "{:?}",
                layout.copies
            );
        }
    }
}
