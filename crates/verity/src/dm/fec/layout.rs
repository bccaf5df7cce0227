//! The layout of error correction: the blocks that the parity covers, and where the parity lies.

use std::ops::RangeInclusive;

use casemate_blockdev::usize_of;
use casemate_primitives::Cpu;
use casemate_primitives::reed_solomon::ReedSolomon;

use super::super::Layout;
use crate::Error;

/// Bytes of a codeword: message and parity.
const CODEWORD: u64 = 255;

/// How many parity bytes a codeword may have.
pub(super) const ROOTS: RangeInclusive<u32> = 2..=24;

/// The layout of a dm-verity device's error correction: what the parity covers, and how long it is.
///
/// The *message* is all data blocks, then the hash device from the tree to its end (or to the parity, if that
/// is on the same device), then zeros up to a multiple of `255 - roots` blocks: `rounds` times as many. Seen
/// as bytes it is a matrix of `255 - roots` rows, each `rounds` blocks long, one after the other. Each of its
/// columns is the message of a codeword, and the codewords' parity bytes lie one after the other in the order
/// of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FecLayout {
    roots: u32,
    block_size: u64,
    data_blocks: u64,
    metadata_offset: u64,
    metadata_blocks: u64,
    rounds: u64,
}

impl FecLayout {
    /// The layout with `roots` parity bytes for every `255 - roots` bytes of the device that `layout` describes.
    ///
    /// `metadata_end` is where the protected part of the hash device ends, in bytes: its size, or where the
    /// parity begins if it is on the same device. Only whole blocks are protected.
    ///
    /// # Errors
    /// `Argument` if `roots` is not 2 to 24, the block sizes differ, or the hash area does not end before
    /// `metadata_end`.
    pub fn new(layout: &Layout, roots: u32, metadata_end: u64) -> Result<FecLayout, Error> {
        let parameters = layout.parameters();
        let block_size = parameters.data_block_size.bytes();
        if !ROOTS.contains(&roots) {
            let text = format!("{roots} parity bytes are not supported; choose 2 to 24");
            return Err(Error::argument(text));
        }
        if block_size != parameters.hash_block_size.bytes() {
            let text = "error correction needs data and hash blocks of the same size";
            return Err(Error::argument(text.to_owned()));
        }
        let (block_size, hash_end) = (u64::from(block_size), layout.hash_device_size());
        if metadata_end < hash_end {
            return Err(Error::argument(format!(
                "the parity would cover the hash device up to byte {metadata_end} only, within the hash area, \
                 which ends at {hash_end}"
            )));
        }
        let metadata_offset = layout.tree_offset();
        let metadata_blocks = (metadata_end - metadata_offset) / block_size;
        let data_blocks = layout.geometry().data_blocks();
        let too_many = || Error::argument("the devices are too large for error correction");
        // Below 2^62 bytes no sum or product here passes 64 bits.
        let blocks = data_blocks.checked_add(metadata_blocks).ok_or_else(too_many)?;
        if blocks > (1 << 62) / block_size {
            return Err(too_many());
        }
        let rounds = blocks.div_ceil(CODEWORD - u64::from(roots));
        Ok(FecLayout { roots, block_size, data_blocks, metadata_offset, metadata_blocks, rounds })
    }

    /// Parity bytes of a codeword.
    pub fn roots(&self) -> u32 {
        self.roots
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u64 {
        self.block_size
    }

    /// The number of blocks that the parity covers, data and hash device together: `fec_blocks` of the table line.
    pub fn blocks(&self) -> u64 {
        self.data_blocks + self.metadata_blocks
    }

    /// Blocks in a row of the message; the message blocks that share codewords are this far apart.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The number of blocks of parity.
    pub fn parity_blocks(&self) -> u64 {
        self.rounds * u64::from(self.roots)
    }

    /// Bytes of parity.
    pub fn parity_size(&self) -> u64 {
        self.parity_blocks() * self.block_size
    }

    /// The code.
    pub(super) fn code(&self, cpu: Cpu) -> ReedSolomon {
        // OK to unwrap: the number was checked when the layout was made.
        ReedSolomon::new(cpu, usize_of(self.roots)).unwrap()
    }

    /// How many message bytes, and rows, a codeword has.
    pub(super) fn rows(&self) -> u64 {
        CODEWORD - u64::from(self.roots)
    }

    /// How many codewords there are: bytes of a row.
    pub(super) fn columns(&self) -> u64 {
        self.rounds * self.block_size
    }

    /// Bytes of data: where in the message the hash device begins.
    pub(super) fn data_size(&self) -> u64 {
        self.data_blocks * self.block_size
    }

    /// Where the message ends and zeros follow, in bytes.
    pub(super) fn message_size(&self) -> u64 {
        self.blocks() * self.block_size
    }

    /// Bytes of the message that are on the hash device.
    pub(in crate::dm) fn metadata_size(&self) -> u64 {
        self.metadata_blocks * self.block_size
    }

    /// Where the message's part on the hash device begins there, in bytes.
    pub(in crate::dm) fn metadata_offset(&self) -> u64 {
        self.metadata_offset
    }
}

#[cfg(test)]
mod tests {
    use casemate_blockdev::Uuid;

    use super::*;
    use crate::dm::{BlockSize, Parameters};

    /// A device with a superblock and the tree behind it, in blocks of 4096 bytes.
    fn layout(data_blocks: u64) -> Layout {
        let uuid = Some(Uuid::from_bytes([0; 16]));
        Layout::new(Parameters::new("sha256").unwrap(), data_blocks, 0, uuid).unwrap()
    }

    #[test]
    fn sizes_follow_from_the_rounds() {
        let sizes = |data_blocks, roots, spare| {
            let layout = layout(data_blocks);
            let fec = FecLayout::new(&layout, roots, layout.hash_device_size() + spare).unwrap();
            (fec.blocks(), fec.rounds(), fec.parity_size())
        };
        assert_eq!(sizes(129, 24, 0), (132, 1, 24 * 4096)); // 3 hash blocks
        assert_eq!(sizes(251, 2, 0), (254, 2, 2 * 2 * 4096));
        assert_eq!(sizes(250, 2, 0), (253, 1, 2 * 4096));
        assert_eq!(sizes(250, 2, 4095), (253, 1, 2 * 4096)); // a part of a block is not covered
        assert_eq!(sizes(250, 2, 4096), (254, 2, 2 * 2 * 4096));
        assert_eq!(sizes(1, 2, 0), (1, 1, 2 * 4096)); // no tree
    }

    #[test]
    fn what_can_not_be_is_refused() {
        let layout = layout(129);
        let end = layout.hash_device_size();
        for (roots, end) in [(0, end), (1, end), (25, end), (2, end - 1), (2, 0)] {
            assert!(FecLayout::new(&layout, roots, end).is_err(), "{roots} roots, end {end}");
        }
        let mut parameters = Parameters::new("sha256").unwrap();
        parameters.data_block_size = BlockSize::new(1024).unwrap();
        let mixed = Layout::new(parameters, 129, 0, None).unwrap();
        assert!(FecLayout::new(&mixed, 2, mixed.hash_device_size()).is_err());
    }

    #[test]
    fn the_largest_sizes_are_errors_or_right() {
        let layout = layout(1 << 49); // 2^61 bytes, and a tree of 1/127 of that
        let fec = FecLayout::new(&layout, 24, layout.hash_device_size()).unwrap();
        assert_eq!(fec.parity_size(), fec.blocks().div_ceil(231) * 24 * 4096);
        assert!(FecLayout::new(&layout, 24, u64::MAX).is_err());
    }
}
