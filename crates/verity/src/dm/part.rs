//! Hash areas that are made in parts.

use casemate_blockdev::{BlockDevice, Medium, Uuid};
use casemate_providers::{Providers, SaltedHash, Work};

use super::{Layout, SUPERBLOCK_SIZE, Superblock};
use crate::tree::{Geometry, TreeDevice};
use crate::{Error, Part, Whole, is_whole_tree};

impl Whole for Layout {
    const MAGIC: [u8; 16] = *b"casemate area 1\0";
    /// A superblock, where the hash area begins, and whether it has one.
    const LEN: usize = SUPERBLOCK_SIZE + 16;
    type Joined = Vec<u8>;

    fn geometry(&self) -> Result<Geometry, Error> {
        Ok(Layout::geometry(self).clone())
    }

    fn hash(&self, providers: &Providers) -> Result<SaltedHash, Error> {
        self.parameters().salted_hash(providers)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let superblock = Superblock {
            uuid: self.uuid().unwrap_or(Uuid::from_bytes([0; 16])),
            parameters: self.parameters().clone(),
            data_blocks: Layout::geometry(self).data_blocks(),
        };
        let mut bytes = superblock.to_bytes().to_vec();
        bytes.extend(self.hash_offset().to_le_bytes());
        bytes.extend(u64::from(self.uuid().is_some()).to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Layout, Error> {
        let wrong = || Error::corrupt("part of a hash area: no superblock, place and flag");
        let (superblock, rest) = bytes.split_first_chunk::<SUPERBLOCK_SIZE>().ok_or_else(wrong)?;
        let ([place, flag], []) = rest.as_chunks::<8>() else { return Err(wrong()) };
        let (superblock, hash_offset) = (Superblock::from_bytes(superblock)?, u64::from_le_bytes(*place));
        match u64::from_le_bytes(*flag) {
            0 => Layout::new(superblock.parameters, superblock.data_blocks, hash_offset, None),
            1 => Layout::from_superblock(superblock, hash_offset),
            _ => Err(wrong()),
        }
    }

    fn joined(&self, root_hash: Vec<u8>) -> Vec<u8> {
        root_hash
    }
}

/// Whether a device has the whole hash area of this layout below `root_hash`, and nothing behind it: the superblock, and each hash
/// block. The data are not read; those of a single block, which have no tree, are never said to have one.
///
/// # Errors
/// `Unsupported` if no implementation of the hash may be used; `Io`.
pub fn is_whole_area(
    layout: &Layout,
    hash_device: &dyn BlockDevice,
    root_hash: &[u8],
    work: &Work<'_>,
) -> Result<bool, Error> {
    if Layout::geometry(layout).tree_blocks() == 0 || hash_device.size() != layout.hash_device_size() {
        return Ok(false);
    }
    if let Some(superblock) = layout.superblock() {
        let mut stored = [0; SUPERBLOCK_SIZE];
        hash_device.read_at(&mut stored, layout.hash_offset())?;
        if stored != superblock.to_bytes() {
            return Ok(false);
        }
    }
    is_whole_tree(layout, hash_device, layout.tree_offset(), root_hash, work)
}

/// Completes a hash area, of which the hash blocks of all parts are there, by the levels above them and the superblock. Returns
/// the root hash.
///
/// # Errors
/// Errors of [`Part::join`]; `Io`.
pub fn join(
    parts: &[Part<Layout>],
    hash_device: &dyn BlockDevice,
    work: &Work<'_>,
) -> Result<Vec<u8>, Error> {
    let layout = parts.first().ok_or_else(|| Error::argument("no parts were given"))?.whole();
    let sink = TreeDevice::new(Layout::geometry(layout), hash_device, layout.tree_offset());
    let root_hash = Part::join(parts, &sink, work)?;
    super::format::finish(layout, hash_device)?;
    Ok(root_hash)
}

/// Completes a hash area as [`join`] does on a medium, which grows to its length. A new file gets its name.
///
/// # Errors
/// Errors of [`join`]; `Argument` if the medium was opened for reading.
pub fn join_on(parts: &[Part<Layout>], hash: &Medium, work: &Work<'_>) -> Result<Vec<u8>, Error> {
    let _lease = hash.lease()?;
    if let Some(part) = parts.first() {
        hash.grow_to(part.whole().hash_device_size())?;
    }
    let root_hash = join(parts, &hash.named(), work)?;
    hash.commit()?;
    Ok(root_hash)
}
