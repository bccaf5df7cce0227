//! Data that is checked as it is read.

use std::io;

use casemate_blockdev::BlockDevice;
use casemate_primitives::Messages;
use casemate_providers::SaltedHash;

use super::{Geometry, TreeDevice};

/// Blocks that are read and hashed together, so that a level's hash block is read once for many of them.
const RUN_BYTES: usize = 1 << 20;

/// Data under a hash tree, as a device whose reads fail where the data does not match.
///
/// Every read checks what it returns, from the data up to the root hash: nothing is trusted from an earlier
/// read, so what changes underneath is noticed. Holes of the data are data here, for they have digests too.
pub struct VerifiedDevice<D, T> {
    geometry: Geometry,
    hash: SaltedHash,
    data: D,
    tree: T,
    tree_offset: u64,
    root_hash: Vec<u8>,
}

impl<D: BlockDevice, T: BlockDevice> VerifiedDevice<D, T> {
    /// The first bytes of `data`, as many as `geometry` says, below `root_hash`. The tree begins at byte
    /// `tree_offset` of `tree`.
    ///
    /// # Panics
    /// If the root hash has another length than the geometry says.
    pub fn new(
        geometry: Geometry,
        hash: SaltedHash,
        data: D,
        tree: T,
        tree_offset: u64,
        root_hash: &[u8],
    ) -> VerifiedDevice<D, T> {
        assert_eq!(root_hash.len(), geometry.shape().digest_len());
        VerifiedDevice { geometry, hash, data, tree, tree_offset, root_hash: root_hash.to_vec() }
    }

    /// Reads data blocks `first .. first + count` into `blocks`, checked; a last part block ends in zeros.
    fn read_blocks(&self, first: u64, count: usize, blocks: &mut Vec<u8>) -> io::Result<()> {
        let shape = self.geometry.shape();
        self.geometry.read_data(&self.data, first, count, blocks)?;
        let mut digests = vec![0; count * shape.digest_len()];
        self.hash.hash_many(Messages::contiguous(blocks, shape.data_block_size()), &mut digests);
        self.check(None, first, &digests)
    }

    /// Compares the digests of blocks of a level (or of data) with what the blocks above have for them.
    fn check(&self, level: Option<usize>, first: u64, digests: &[u8]) -> io::Result<()> {
        let shape = self.geometry.shape();
        let above = level.map_or(0, |level| level + 1);
        let refuse = |index: u64| {
            let text = match level {
                Some(level) => format!("hash block {index} of level {level} does not match the block above"),
                None => format!("data block {index} does not match its hash tree"),
            };
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        };
        if above == self.geometry.levels().len() {
            return if digests == self.root_hash { Ok(()) } else { refuse(first) };
        }
        let fan_out = shape.digests_per_block() as u64;
        let mut parent = Vec::new();
        let mut parent_index = None;
        for (index, digest) in (first..).zip(digests.chunks_exact(shape.digest_len())) {
            if parent_index != Some(index / fan_out) {
                self.read_hash_block(above, index / fan_out, &mut parent)?;
                parent_index = Some(index / fan_out);
            }
            // OK to cut: smaller than the number of digests in a block.
            let slot = (index % fan_out) as usize * shape.digest_stride();
            if parent[slot..slot + shape.digest_len()] != *digest {
                return refuse(index);
            }
        }
        Ok(())
    }

    /// Reads a hash block and checks it, and those above it.
    fn read_hash_block(&self, level: usize, index: u64, block: &mut Vec<u8>) -> io::Result<()> {
        let shape = self.geometry.shape();
        block.resize(shape.hash_block_size(), 0);
        TreeDevice::new(&self.geometry, &self.tree, self.tree_offset).read(level, index, block)?;
        let mut digest = vec![0; shape.digest_len()];
        self.hash.hash(block, &mut digest);
        self.check(Some(level), index, &digest)
    }
}

impl<D: BlockDevice, T: BlockDevice> BlockDevice for VerifiedDevice<D, T> {
    fn size(&self) -> u64 {
        self.geometry.data_size()
    }

    fn read_at(&self, mut buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.size()) {
            let text = format!("read of {} bytes at {offset} passes the end of the data", buf.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        let block_size = self.geometry.shape().data_block_size();
        let run = (RUN_BYTES / block_size).max(1);
        let mut blocks = Vec::new();
        let mut at = offset;
        while !buf.is_empty() {
            let first = at / block_size as u64;
            let within = (at % block_size as u64) as usize;
            let count = (within + buf.len()).div_ceil(block_size).min(run);
            self.read_blocks(first, count, &mut blocks)?;
            let len = buf.len().min(count * block_size - within);
            let (part, rest) = buf.split_at_mut(len);
            part.copy_from_slice(&blocks[within..within + len]);
            at += len as u64;
            buf = rest;
        }
        Ok(())
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use casemate_blockdev::{MemoryDevice, NoProgress, Pool};
    use casemate_primitives::Cpu;
    use casemate_providers::Hash;
    use casemate_testkit::Rng;

    use super::*;
    use crate::tree::{Job, Shape, build};

    #[test]
    fn only_what_matches_is_read() {
        let hash = Hash::named("sha256", Cpu::detect()).unwrap().salted(b"salt", b"");
        // Digests of 32 bytes in hash blocks of 128: four a block, four levels over 100 blocks and a part.
        let shape = Shape::packed(128, 32).unwrap();
        for size in [0, 1, 128, 129, 100 * 128 + 57] {
            let data = Rng::new(size as u64).bytes(size);
            let geometry = Geometry::new(shape, size as u64).unwrap();
            let tree = MemoryDevice::new(vec![0; geometry.tree_size() as usize + 10]);
            let job = Job { shape, hash: &hash, pool: Pool::default(), progress: &NoProgress };
            let sink = TreeDevice::new(&geometry, &tree, 10);
            let built = build(&job, &geometry, &MemoryDevice::new(data.clone()), &sink).unwrap();
            let tree = tree.into_bytes();
            let open = |data: &[u8], tree: &[u8]| {
                let (data, tree) = (MemoryDevice::new(data.to_vec()), MemoryDevice::new(tree.to_vec()));
                VerifiedDevice::new(geometry.clone(), hash.clone(), data, tree, 10, &built.root_hash)
            };
            let device = open(&data, &tree);
            let mut read = vec![0; size];
            device.read_at(&mut read, 0).unwrap();
            assert_eq!(read, data);
            assert!(device.read_at(&mut [0], size as u64).is_err());
            if size < 1000 {
                continue;
            }
            device.read_at(&mut read[..300], 1000).unwrap();
            assert_eq!(read[..300], data[1000..1300]);
            let mut bad = data.clone();
            bad[5000] ^= 1;
            let device = open(&bad, &tree);
            assert_eq!(device.read_at(&mut read, 0).unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert!(device.read_at(&mut read[..1], 5000 / 128 * 128).is_err());
            device.read_at(&mut read[..4992], 0).unwrap();
            // Any byte of the tree: what hangs below can't be read, something else can.
            for at in (10..tree.len()).step_by(97) {
                let mut bad = tree.clone();
                bad[at] ^= 1;
                let device = open(&data, &bad);
                assert!(device.read_at(&mut read, 0).is_err(), "byte {at} of the tree");
            }
        }
    }
}
