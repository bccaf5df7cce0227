//! Old block maps: twelve numbers of blocks in the inode, then three more for one, two and three levels of blocks of
//! numbers. A number of zero is a hole, on any level.
//!
//! Source: Documentation/filesystems/ext4/ifork.rst, "Direct/Indirect Block Addressing".

use casemate_blockdev::{u32_of, u64_of};

use crate::format::field::Le32;

/// Numbers in an inode, and those of them that stand for blocks.
pub(crate) const SLOTS: usize = 15;
pub(crate) const DIRECT: usize = 12;
/// The number that leads to two levels.
pub(crate) const DOUBLE: usize = 13;

/// Bytes of a number.
const NUMBER: usize = 4;

/// The number with this index, in an inode's block area or in a block of numbers.
pub(crate) fn number(index: usize) -> Le32 {
    Le32(NUMBER * index)
}

/// The numbers in a block.
pub(crate) fn numbers(block: &[u8]) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator {
    block.chunks_exact(NUMBER).map(|bytes| number(0).get(bytes))
}

/// Levels of blocks of numbers below a number of the inode.
pub(crate) fn level(slot: usize) -> u32 {
    u32_of((slot + 1).saturating_sub(DIRECT))
}

/// Blocks that a file has at most whose map has so many levels of blocks of numbers.
pub(crate) fn most(levels: u32, block_size: u64) -> u64 {
    (1..=levels).map(|level| per_block(block_size).pow(level)).sum::<u64>() + u64_of(DIRECT)
}

/// Numbers in a block of so many bytes.
pub(crate) fn per_block(block_size: u64) -> u64 {
    block_size / u64_of(NUMBER)
}
