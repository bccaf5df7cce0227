//! Old block maps: twelve numbers of blocks in the inode, then three more for one, two and three levels of blocks of
//! numbers. A number of zero is a hole, on any level.
//!
//! Source: Documentation/filesystems/ext4/ifork.rst, "Direct/Indirect Block Addressing".

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
    // OK to truncate: at most 3.
    (slot + 1).saturating_sub(DIRECT) as u32
}

/// Numbers in a block of so many bytes.
pub(crate) fn per_block(block_size: u64) -> u64 {
    block_size / NUMBER as u64
}
