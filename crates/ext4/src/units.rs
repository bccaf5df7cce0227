//! Units as types: one number cannot be taken for another by mistake.
//!
//! Each unit is made and read by named methods, and prints as its plain number. None has `Deref` or `From`: `new` and `get`
//! stand where a field of the format is read or written.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::{Add, AddAssign, Sub};

use casemate_blockdev::{u32_of, usize_of};

/// Number of an inode, from 1 on. An index in a table is one less; 0 stands for no inode on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeNo(NonZeroU32);

impl InodeNo {
    /// The first inode of a file system.
    pub(crate) const FIRST: InodeNo = InodeNo::reserved(1);
    /// Holds damaged blocks.
    pub(crate) const BAD_BLOCKS: InodeNo = InodeNo::reserved(1);
    /// The root directory.
    pub const ROOT: InodeNo = InodeNo::reserved(2);
    /// Counts what users have, in file systems with quotas.
    pub(crate) const USER_QUOTA: InodeNo = InodeNo::reserved(3);
    /// Counts what groups have, in file systems with quotas.
    pub(crate) const GROUP_QUOTA: InodeNo = InodeNo::reserved(4);
    /// Kept for boot loaders.
    pub(crate) const BOOT_LOADER: InodeNo = InodeNo::reserved(5);
    /// Holds the blocks that descriptors grow into.
    pub(crate) const RESIZE: InodeNo = InodeNo::reserved(7);
    /// The journal's usual inode.
    pub(crate) const JOURNAL: InodeNo = InodeNo::reserved(8);
    /// The first inode that is not reserved in most file systems. New ones have lost+found there.
    pub(crate) const LOST_AND_FOUND: InodeNo = InodeNo::reserved(11);

    /// A number of the format, which is not 0.
    const fn reserved(number: u32) -> InodeNo {
        InodeNo(NonZeroU32::new(number).unwrap())
    }

    /// The inode with this number; `None` for 0.
    pub const fn new(number: u32) -> Option<InodeNo> {
        match NonZeroU32::new(number) {
            Some(number) => Some(InodeNo(number)),
            None => None,
        }
    }

    /// Whether the number is reserved in all file systems, and for no file that there still is.
    pub(crate) fn is_of_no_file(self) -> bool {
        matches!(self.get(), 6 | 9 | 10)
    }

    /// The number, from 1 on.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// The number of an inode as it is stored: 0 if there is none.
    pub fn stored(inode: Option<InodeNo>) -> u32 {
        inode.map_or(0, InodeNo::get)
    }

    /// Position among all inodes of a file system, from 0 on.
    pub const fn index(self) -> u32 {
        self.0.get() - 1
    }

    /// The inode at a position among all inodes of a file system; `None` for the last number of 32 bits, which has no inode.
    pub const fn at_index(index: u32) -> Option<InodeNo> {
        match index.checked_add(1) {
            Some(number) => InodeNo::new(number),
            None => None,
        }
    }

    /// The inode `count` numbers later, or that with the last number of 32 bits.
    pub(crate) const fn plus(self, count: u32) -> InodeNo {
        InodeNo(self.0.saturating_add(count))
    }

    /// This inode and those that follow it, `count` in all, as far as 32 bits reach.
    pub(crate) fn run(self, count: u32) -> impl DoubleEndedIterator<Item = InodeNo> + Clone {
        let first = u64::from(self.get());
        (first..first + u64::from(count)).filter_map(|number| InodeNo::new(u32::try_from(number).ok()?))
    }
}

impl fmt::Display for InodeNo {
    /// The plain number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a block group, from 0 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupNo(u32);

impl GroupNo {
    /// The first group, which has the primary superblock and descriptors.
    pub const PRIMARY: GroupNo = GroupNo(0);

    /// The group with this number, whether or not the file system has one.
    pub const fn new(number: u32) -> GroupNo {
        GroupNo(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Position in a list of all groups.
    pub(crate) fn index(self) -> usize {
        usize_of(self.0)
    }

    /// The first `count` groups of a file system.
    pub fn first(count: u32) -> impl DoubleEndedIterator<Item = GroupNo> + ExactSizeIterator + Clone {
        (0..count).map(GroupNo)
    }

    /// The groups from this one up to another one.
    pub(crate) fn until(
        self,
        end: GroupNo,
    ) -> impl DoubleEndedIterator<Item = GroupNo> + ExactSizeIterator + Clone {
        (self.0..end.0).map(GroupNo)
    }

    /// The group `count` groups later, where a file system of so many groups begins again behind the last one.
    pub(crate) fn around(self, count: u32, groups: u32) -> GroupNo {
        GroupNo(u32_of((u64::from(self.0) + u64::from(count)) % u64::from(groups)))
    }
}

impl fmt::Display for GroupNo {
    /// The plain number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a block of the file system, counted from the beginning of the device.
///
/// A number of blocks is added with `+`, and the difference of two numbers is a number of blocks. A byte is made by
/// [`Layout::offset`](crate::Layout::offset) alone. Blocks within a file or the journal are plain numbers, and no `Block`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(u64);

impl Block {
    /// The block with this number, whether or not the file system has one.
    pub const fn new(number: u64) -> Block {
        Block(number)
    }

    /// The block that a byte of the device lies in.
    pub(crate) const fn of_byte(byte: u64, block_size: u64) -> Block {
        Block(byte / block_size)
    }

    /// The block that a byte of the device lies in, and the byte's position in the block.
    pub(crate) fn position_of(byte: u64, block_size: u64) -> (Block, usize) {
        (Block::of_byte(byte, block_size), usize_of(byte % block_size))
    }

    /// The block with a stored number, where 0 stands for none.
    pub(crate) const fn some(number: u64) -> Option<Block> {
        if number == 0 { None } else { Some(Block(number)) }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as a field of 32 bits has it, if there is room for it.
    pub(crate) fn low(self) -> Option<u32> {
        u32::try_from(self.0).ok()
    }

    /// The number of a block as it is stored, where 0 stands for none.
    pub(crate) fn stored(block: Option<Block>) -> u64 {
        block.map_or(0, Block::get)
    }

    /// The cluster that the block lies in, where each has so many blocks.
    pub(crate) const fn cluster(self, cluster_blocks: u64) -> Cluster {
        Cluster(self.0 / cluster_blocks)
    }

    /// Blocks of its cluster before the block, where each has so many blocks.
    pub(crate) const fn within_cluster(self, cluster_blocks: u64) -> u64 {
        self.0 % cluster_blocks
    }

    /// The block before; the first one for itself.
    pub(crate) const fn before(self) -> Block {
        Block(self.0.saturating_sub(1))
    }

    /// The byte that the block begins at. Blocks of the file system only: no overflow.
    pub(crate) const fn offset(self, block_size: u64) -> u64 {
        self.0 * block_size
    }

    /// The byte that the block begins at, unless that is behind the last one of 64 bits.
    pub(crate) fn checked_offset(self, block_size: u64) -> Option<u64> {
        self.0.checked_mul(block_size)
    }

    /// The block `count` blocks later, unless that has no number.
    pub fn checked_add(self, count: u64) -> Option<Block> {
        self.0.checked_add(count).map(Block)
    }

    /// The block `count` blocks later, or that with the last number of 64 bits.
    pub(crate) const fn saturating_add(self, count: u64) -> Block {
        Block(self.0.saturating_add(count))
    }

    /// Blocks from another one up to this one, unless that comes later.
    pub fn checked_since(self, earlier: Block) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }

    /// The blocks from this one up to another one.
    pub(crate) fn until(self, end: Block) -> impl DoubleEndedIterator<Item = Block> + Clone {
        (self.0..end.0).map(Block)
    }

    /// This block and those that follow it, `count` in all.
    pub fn run(self, count: u64) -> impl DoubleEndedIterator<Item = Block> + Clone {
        self.until(self + count)
    }
}

impl Add<u64> for Block {
    type Output = Block;

    /// The block `count` blocks later.
    fn add(self, count: u64) -> Block {
        Block(self.0 + count)
    }
}

impl AddAssign<u64> for Block {
    fn add_assign(&mut self, count: u64) {
        self.0 += count;
    }
}

impl Sub<Block> for Block {
    type Output = u64;

    /// Blocks from an earlier one up to this one.
    fn sub(self, earlier: Block) -> u64 {
        self.0 - earlier.0
    }
}

impl fmt::Display for Block {
    /// The plain number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Blocks of the file system that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    /// The first block.
    pub first: Block,
    /// Number of blocks.
    pub len: u64,
}

impl Run {
    /// The blocks from one up to another one, which comes later.
    pub fn between(first: Block, end: Block) -> Run {
        Run { first, len: end - first }
    }

    /// The block behind the last one.
    pub fn end(self) -> Block {
        self.first + self.len
    }

    /// The blocks that two runs share.
    pub fn shared(self, other: Run) -> Option<Run> {
        let (first, end) = (self.first.max(other.first), self.end().min(other.end()));
        (first < end).then(|| Run::between(first, end))
    }
}

/// Puts runs in order, and makes one of those that touch.
pub(crate) fn merge(runs: &mut Vec<Run>) {
    runs.sort_unstable();
    runs.dedup_by(|next, before| {
        let touches = next.first <= before.end();
        if touches {
            *before = Run::between(before.first, before.end().max(next.end()));
        }
        touches
    });
}

/// Number of a cluster of the file system, counted from block 0. A bit of a block bitmap stands for one.
///
/// It has one block without the feature bigalloc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Cluster(u64);

impl Cluster {
    /// The cluster with this number.
    pub const fn new(number: u64) -> Cluster {
        Cluster(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The first block of the cluster, where each has so many blocks.
    pub const fn first_block(self, cluster_blocks: u64) -> Block {
        Block(self.0 * cluster_blocks)
    }
}

impl Add<u64> for Cluster {
    type Output = Cluster;

    /// The cluster `count` clusters later.
    fn add(self, count: u64) -> Cluster {
        Cluster(self.0 + count)
    }
}

impl Sub<Cluster> for Cluster {
    type Output = u64;

    /// Clusters from an earlier one up to this one.
    fn sub(self, earlier: Cluster) -> u64 {
        self.0 - earlier.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_begin_with_one() {
        assert_eq!((InodeNo::new(0), InodeNo::stored(None)), (None, 0));
        assert_eq!((InodeNo::FIRST.index(), InodeNo::at_index(0)), (0, Some(InodeNo::FIRST)));
        assert_eq!(InodeNo::at_index(u32::MAX), None);
        let last = InodeNo::new(u32::MAX).unwrap();
        assert_eq!((last.run(3).count(), last.plus(1)), (1, last));
        assert!(InodeNo::ROOT.run(2).map(InodeNo::get).eq([2, 3]));
    }

    #[test]
    fn blocks_and_clusters_are_counted_apart() {
        let block = Block::new(21);
        assert_eq!((block.cluster(4).first_block(4), block.within_cluster(4)), (Block::new(20), 1));
        assert_eq!((block.offset(1024), Block::of_byte(21 * 1024 + 1023, 1024)), (21504, block));
        assert_eq!((block - Block::new(9), block.checked_since(block + 1)), (12, None));
        assert_eq!(
            (Block::default().before(), Block::new(u64::MAX).checked_add(1)),
            (Block::default(), None)
        );
        assert_eq!((Block::some(0), Block::stored(Block::some(7))), (None, 7));
        assert!(block.run(2).map(Block::get).eq([21, 22]));
    }

    #[test]
    fn runs_share_what_both_have() {
        let run = |first, len| Run { first: Block::new(first), len };
        assert_eq!(run(10, 5).shared(run(12, 9)), Some(run(12, 3)));
        assert_eq!(run(10, 5).shared(run(0, 100)), Some(run(10, 5)));
        assert_eq!((run(10, 5).shared(run(15, 1)), run(10, 5).shared(run(2, 8))), (None, None));
    }

    #[test]
    fn groups_go_around() {
        assert_eq!(GroupNo::new(5).around(3, 7), GroupNo::new(1));
        assert_eq!(GroupNo::new(5).around(1, 7), GroupNo::new(6));
        assert!(GroupNo::new(5).until(GroupNo::new(7)).map(GroupNo::index).eq([5, 6]));
    }

    #[test]
    fn numbers_are_printed_as_such() {
        assert_eq!(format!("{} {:>4}", InodeNo::ROOT, InodeNo::LOST_AND_FOUND), "2   11");
    }
}
