//! Where the blocks of a hash tree lie.

use std::ops::Range;

use casemate_blockdev::{BlockDevice, u64_of, usize_of};

use crate::Error;

/// The most levels a tree may have (`DM_VERITY_MAX_LEVELS` of the kernel).
pub const MAX_LEVELS: usize = 63;

/// The shape of a tree: sizes of blocks and digests, whatever the size of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    data_block_size: u32,
    hash_block_size: u32,
    digest_len: u32,
    digest_stride: u32,
    digests_per_block: u32,
}

/// The geometry of a tree over data of a known size: where each level lies.
///
/// Levels are stored without gaps, the root's level first and level 0 last, in both formats. Positions are
/// counted in hash blocks from the beginning of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    shape: Shape,
    data_size: u64,
    data_blocks: u64,
    /// Level 0, which holds the digests of data blocks, first.
    levels: Vec<Level>,
    tree_blocks: u64,
}

/// One level of a tree, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The first block's position in the tree, in hash blocks.
    pub first_block: u64,
    /// The number of hash blocks; at least 1.
    pub blocks: u64,
    /// The number of digests in these blocks; at least 2.
    pub digests: u64,
}

impl Shape {
    /// The shape of dm-verity's trees: the digests of a hash block are a power of two, and with `padded`
    /// (type 1) each takes a power of two of bytes. Source: `verity_hash.c` of cryptsetup.
    ///
    /// # Errors
    /// `Argument` for block sizes of 0 and digests of which no two fit in a hash block.
    pub fn power_of_two(
        data_block_size: u32,
        hash_block_size: u32,
        digest_len: usize,
        padded: bool,
    ) -> Result<Shape, Error> {
        let digest_len = digest_length(digest_len)?;
        let count = hash_block_size / digest_len;
        let count = if count == 0 { 0 } else { 1 << count.ilog2() };
        let stride = if padded { digest_len.next_power_of_two() } else { digest_len };
        Shape::new(data_block_size, hash_block_size, digest_len, stride, count)
    }

    /// The shape of fs-verity's trees: one block size, digests side by side, as many as fit. Source: the
    /// kernel's `fsverity.rst`.
    ///
    /// # Errors
    /// `Argument` for a block size in which no two digests fit.
    pub fn packed(block_size: u32, digest_len: usize) -> Result<Shape, Error> {
        let digest_len = digest_length(digest_len)?;
        Shape::new(block_size, block_size, digest_len, digest_len, block_size / digest_len)
    }

    fn new(
        data_block_size: u32,
        hash_block_size: u32,
        digest_len: u32,
        digest_stride: u32,
        digests_per_block: u32,
    ) -> Result<Shape, Error> {
        if data_block_size == 0 {
            return Err(Error::argument("the data block size is 0"));
        }
        let used = digest_stride.checked_mul(digests_per_block);
        // A tree of which each block holds one digest would never end.
        if digests_per_block < 2 || used.is_none_or(|used| used > hash_block_size) {
            let text =
                format!("a hash block of {hash_block_size} bytes is too small for digests of {digest_len}");
            return Err(Error::argument(text));
        }
        Ok(Shape { data_block_size, hash_block_size, digest_len, digest_stride, digests_per_block })
    }

    /// Bytes of a data block.
    pub fn data_block_size(&self) -> usize {
        usize_of(self.data_block_size)
    }

    /// Bytes of a hash block.
    pub fn hash_block_size(&self) -> usize {
        usize_of(self.hash_block_size)
    }

    /// Bytes of a digest.
    pub fn digest_len(&self) -> usize {
        usize_of(self.digest_len)
    }

    /// Bytes from the beginning of one digest to the next in a hash block.
    pub fn digest_stride(&self) -> usize {
        usize_of(self.digest_stride)
    }

    /// The number of digests in a full hash block.
    pub fn digests_per_block(&self) -> usize {
        usize_of(self.digests_per_block)
    }

    /// The digests in hash blocks, or a part of them that begins with the slot of child `first`; the part may
    /// end right after its last digest.
    pub(super) fn slots<'a>(&self, first: u64, part: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let (stride, len, per_block) = (self.digest_stride(), self.digest_len(), self.digests_per_block());
        let block_size = self.hash_block_size();
        let skipped = usize_of(first % u64_of(per_block));
        (skipped..).map_while(move |slot| {
            let offset = slot / per_block * block_size + slot % per_block * stride - skipped * stride;
            part.get(offset..offset + len)
        })
    }

    /// Writes digests that lie side by side into hash blocks; gaps and the tail become zeros.
    ///
    /// # Panics
    /// If `blocks` is not exactly the hash blocks that these digests need.
    pub fn lay_out(&self, digests: &[u8], blocks: &mut [u8]) {
        let per_block = self.digests_per_block() * self.digest_len();
        assert_eq!(blocks.len(), digests.len().div_ceil(per_block) * self.hash_block_size());
        blocks.fill(0);
        let blocks = blocks.chunks_exact_mut(self.hash_block_size());
        for (digests, block) in digests.chunks(per_block).zip(blocks) {
            let slots = block.chunks_mut(self.digest_stride());
            for (digest, slot) in digests.chunks_exact(self.digest_len()).zip(slots) {
                slot[..digest.len()].copy_from_slice(digest);
            }
        }
    }
}

impl Geometry {
    /// The geometry of the tree over `data_size` bytes; a last data block that is not full counts.
    ///
    /// # Errors
    /// `Argument` if the tree would be too large for 64-bit sizes or 63 levels.
    pub fn new(shape: Shape, data_size: u64) -> Result<Geometry, Error> {
        let data_blocks = data_size.div_ceil(u64::from(shape.data_block_size));
        let mut levels = Vec::new();
        let mut digests = data_blocks;
        let mut tree_blocks = 0u64;
        while digests > 1 {
            let blocks = digests.div_ceil(u64::from(shape.digests_per_block));
            levels.push(Level { first_block: 0, blocks, digests });
            tree_blocks = tree_blocks.checked_add(blocks).ok_or_else(|| too_large(data_size))?;
            digests = blocks;
        }
        let bytes = tree_blocks.checked_mul(u64::from(shape.hash_block_size));
        if levels.len() > MAX_LEVELS || bytes.is_none() {
            return Err(too_large(data_size));
        }
        let mut position = 0;
        for level in levels.iter_mut().rev() {
            level.first_block = position;
            position += level.blocks;
        }
        Ok(Geometry { shape, data_size, data_blocks, levels, tree_blocks })
    }

    /// Fills `buf` with data blocks from block `first` on, which exist, a last part block filled up with zeros.
    /// Returns how many bytes were read.
    pub(super) fn read_data(
        &self,
        data: &dyn BlockDevice,
        first: u64,
        buf: &mut [u8],
    ) -> Result<usize, Error> {
        let offset = first * u64_of(self.shape.data_block_size());
        let len = usize_of((self.data_size - offset).min(u64_of(buf.len())));
        buf[len..].fill(0);
        data.read_at(&mut buf[..len], offset)?;
        Ok(len)
    }

    /// Where the digest of child `child` is in `level`, in bytes from the beginning of the tree.
    pub(super) fn slot_offset(&self, level: usize, child: u64) -> u64 {
        let per_block = u64::from(self.shape.digests_per_block);
        self.offset(level, child / per_block) + child % per_block * u64::from(self.shape.digest_stride)
    }

    /// The data blocks that hang below block `index` of `level`.
    pub fn data_below(&self, level: usize, index: u64) -> Range<u64> {
        let mut range = index..index.saturating_add(1);
        for _ in 0..=level {
            let per_block = u64::from(self.shape.digests_per_block);
            range = range.start.saturating_mul(per_block)..range.end.saturating_mul(per_block);
        }
        range.start.min(self.data_blocks)..range.end.min(self.data_blocks)
    }

    /// How many digests block `index` of `level` holds; the last block of a level may hold fewer than others.
    pub fn digests_in(&self, level: usize, index: u64) -> usize {
        let per_block = u64::from(self.shape.digests_per_block);
        let left = self.levels[level].digests.saturating_sub(index.saturating_mul(per_block));
        usize_of(left.min(per_block))
    }

    /// The tree's shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Bytes of data.
    pub fn data_size(&self) -> u64 {
        self.data_size
    }

    /// The number of data blocks, a last part block included.
    pub fn data_blocks(&self) -> u64 {
        self.data_blocks
    }

    /// All levels, level 0 (digests of data blocks) first. Data of one block or none has no levels.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The number of hash blocks of all levels.
    pub fn tree_blocks(&self) -> u64 {
        self.tree_blocks
    }

    /// Bytes of all levels.
    pub fn tree_size(&self) -> u64 {
        self.tree_blocks * u64::from(self.shape.hash_block_size)
    }

    /// Where block `index` of `level` begins, in bytes from the beginning of the tree.
    pub fn offset(&self, level: usize, index: u64) -> u64 {
        (self.levels[level].first_block + index) * u64::from(self.shape.hash_block_size)
    }
}

fn digest_length(digest_len: usize) -> Result<u32, Error> {
    match u32::try_from(digest_len) {
        Ok(len @ 1..=1024) => Ok(len),
        _ => Err(Error::argument(format!("a digest of {digest_len} bytes"))),
    }
}

fn too_large(data_size: u64) -> Error {
    Error::argument(format!("the hash tree over {data_size} bytes is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dm_verity_rounds_to_powers_of_two() {
        let sizes = |hash_block, digest, padded| {
            let shape = Shape::power_of_two(4096, hash_block, digest, padded).unwrap();
            (shape.digest_stride(), shape.digests_per_block())
        };
        assert_eq!(sizes(4096, 32, true), (32, 128));
        assert_eq!(sizes(4096, 20, true), (32, 128)); // sha1: 204 fit, 128 is the power below
        assert_eq!(sizes(4096, 20, false), (20, 128));
        assert_eq!(sizes(4096, 48, true), (64, 64)); // sha384: 85 fit
        assert_eq!(sizes(512, 64, true), (64, 8));
        assert!(Shape::power_of_two(4096, 64, 64, true).is_err());
        assert!(Shape::power_of_two(0, 4096, 32, true).is_err());
    }

    #[test]
    fn fs_verity_packs() {
        let shape = Shape::packed(1000, 32).unwrap();
        assert_eq!((shape.digest_stride(), shape.digests_per_block()), (32, 31));
        assert!(Shape::packed(63, 32).is_err());
        assert!(Shape::packed(0, 32).is_err());
    }

    #[test]
    fn levels_are_stored_root_first() {
        let shape = Shape::power_of_two(4096, 4096, 32, true).unwrap();
        let levels = |blocks: u64| {
            let geometry = Geometry::new(shape, blocks * 4096).unwrap();
            geometry.levels().iter().map(|level| (level.first_block, level.blocks)).collect::<Vec<_>>()
        };
        assert_eq!(levels(0), []);
        assert_eq!(levels(1), []);
        assert_eq!(levels(2), [(0, 1)]);
        assert_eq!(levels(128), [(0, 1)]);
        assert_eq!(levels(129), [(1, 2), (0, 1)]);
        assert_eq!(levels(128 * 128 + 1), [(3, 129), (1, 2), (0, 1)]);
    }

    #[test]
    fn the_data_below_a_block_ends_with_the_data() {
        let shape = Shape::power_of_two(4096, 4096, 32, true).unwrap();
        let geometry = Geometry::new(shape, 16_500 * 4096 + 1).unwrap();
        assert_eq!(geometry.data_below(0, 1), 128..256);
        assert_eq!(geometry.data_below(1, 1), 16_384..16_501);
        assert_eq!(geometry.data_below(2, 0), 0..16_501);
        assert_eq!((geometry.digests_in(0, 0), geometry.digests_in(0, 128)), (128, 117));
        assert_eq!((geometry.digests_in(1, 1), geometry.digests_in(2, 0)), (1, 2));
        assert_eq!(geometry.offset(0, 0), 3 * 4096);
    }

    #[test]
    fn the_largest_sizes_are_errors_or_right() {
        // Two digests in each block: as many levels as the size has bits.
        let shape = Shape::packed(64, 32).unwrap();
        let geometry = Geometry::new(shape, u64::MAX).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(geometry.levels().len(), 58);
        let shape = Shape::power_of_two(1, 64, 32, true).unwrap();
        assert!(Geometry::new(shape, u64::MAX).is_err());
        assert!(Geometry::new(shape, 1 << 57).is_ok());
    }

    #[test]
    fn gaps_and_tails_are_zeros() {
        let shape = Shape::power_of_two(512, 512, 20, true).unwrap();
        let mut blocks = vec![0xff; 1024];
        shape.lay_out(&[7; 20 * 17], &mut blocks);
        for (position, byte) in blocks.iter().enumerate() {
            let in_digest = position % 32 < 20 && position / 32 < 17;
            assert_eq!(*byte, if in_digest { 7 } else { 0 }, "at {position}");
        }
    }
}
