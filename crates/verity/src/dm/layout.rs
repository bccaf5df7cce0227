//! The layout of a dm-verity device: where data, superblock and tree lie.

use casemate_blockdev::{Medium, Uuid, u64_of};

use super::{Parameters, SUPERBLOCK_SIZE, Superblock};
use crate::tree::Geometry;
use crate::{Advice, Code, Error, ErrorKind};

/// The layout of a dm-verity device: how blocks are hashed, how many there are, and where the hash area begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    parameters: Parameters,
    geometry: Geometry,
    hash_offset: u64,
    uuid: Option<Uuid>,
    hash_start_block: u64,
}

impl Layout {
    /// Lays out data, superblock and tree, and checks that all of them have a place.
    ///
    /// The hash area begins at byte `hash_offset` of the hash device: with a superblock, which has `uuid`, and
    /// the tree at the next hash block; or, without one, with the tree in the hash block of which `hash_offset`
    /// is part.
    ///
    /// # Errors
    /// `Argument` if `hash_offset` is not a multiple of 512, there are no data blocks, or a size passes 64 bits.
    pub fn new(
        parameters: Parameters,
        data_blocks: u64,
        hash_offset: u64,
        uuid: Option<Uuid>,
    ) -> Result<Layout, Error> {
        if !hash_offset.is_multiple_of(512) {
            return Err(argument(format!("hash offset {hash_offset} is not a multiple of 512")));
        }
        if data_blocks == 0 {
            return Err(argument("there is not one data block to protect".to_owned()));
        }
        let size = data_blocks.checked_mul(parameters.data_block_size.bytes().into());
        let too_many = || argument(format!("{data_blocks} data blocks are too many"));
        let geometry = Geometry::new(parameters.shape()?, size.ok_or_else(too_many)?)?;
        let block_size = u64::from(parameters.hash_block_size.bytes());
        let start = match uuid {
            Some(_) => hash_offset.checked_add(u64_of(SUPERBLOCK_SIZE)).map(|end| end.div_ceil(block_size)),
            None => Some(hash_offset / block_size),
        };
        let end = start.and_then(|start| start.checked_add(geometry.tree_blocks()));
        // Block devices, files and the kernel's sector numbers end below 2^63 bytes.
        let end = end.and_then(|end| end.checked_mul(block_size)).filter(|end| *end < 1 << 63);
        let (Some(hash_start_block), Some(_)) = (start, end) else {
            return Err(argument(format!("the hash area at byte {hash_offset} is too far away")));
        };
        Ok(Layout { parameters, geometry, hash_offset, uuid, hash_start_block })
    }

    /// The layout that the superblock says which begins at byte `hash_offset` of a hash device.
    ///
    /// # Errors
    /// `Argument` for a wrong offset; `Corrupt` or `Unsupported` if there is no superblock that makes sense; `Io`.
    pub fn read(hash: &Medium, hash_offset: u64) -> Result<Layout, Error> {
        if !hash_offset.is_multiple_of(512) {
            return Err(argument(format!("hash offset {hash_offset} is not a multiple of 512")));
        }
        let mut bytes = [0; SUPERBLOCK_SIZE];
        hash.top().read_at(&mut bytes, hash_offset).map_err(|error| match error.code() {
            Code::CutOff => {
                let (name, size) = (hash.name(), hash.top().size());
                let text =
                    format!("{name}: no verity superblock at {hash_offset}: the file has {size} bytes");
                Error::coded(Code::NotThisFormat, text)
            }
            _ => error.at(hash.name()),
        })?;
        let superblock = Superblock::from_bytes(&bytes);
        let layout = superblock.and_then(|found| Layout::from_superblock(found, hash_offset));
        layout.map_err(|error| error.at(hash.name()))
    }

    /// The layout that a superblock at `hash_offset` describes.
    ///
    /// # Errors
    /// `Corrupt` if no such device can exist, `Argument` for a wrong offset.
    pub fn from_superblock(superblock: Superblock, hash_offset: u64) -> Result<Layout, Error> {
        let Superblock { uuid, parameters, data_blocks } = superblock;
        let layout = Layout::new(parameters, data_blocks, hash_offset, Some(uuid));
        layout.map_err(|error| match error.kind() {
            ErrorKind::Argument if hash_offset.is_multiple_of(512) => {
                Error::corrupt(format!("verity superblock: {}", error.text()))
            }
            _ => error,
        })
    }

    /// Checks that data and hash area, if they are on one device, do not overlap.
    ///
    /// # Errors
    /// `Argument` if they do.
    pub fn check_one_device(&self) -> Result<(), Error> {
        let data_end = self.geometry.data_size();
        if self.tree_offset().min(self.hash_offset) < data_end {
            let text = format!(
                "data area overlaps with hash area: the data ends at byte {data_end}, the hash area begins at {}",
                self.hash_offset
            );
            let error = Error::coded(Code::Overlap, text).advise(Advice::DataBlocks);
            return Err(error.advise(Advice::HashAreaBehind(data_end)));
        }
        Ok(())
    }

    /// Checks that a root hash is as long as those of this device's algorithm.
    ///
    /// # Errors
    /// `Argument` if it is not.
    pub fn check_root_hash(&self, root_hash: &[u8]) -> Result<(), Error> {
        let (found, expected) = (root_hash.len(), self.parameters.digest_len());
        if found != expected {
            return Err(argument(format!(
                "the root hash has {found} bytes; one of {} has {expected} ({} hex digits)",
                self.parameters.algorithm(),
                2 * expected
            )));
        }
        Ok(())
    }

    /// The superblock, if this device has one.
    pub fn superblock(&self) -> Option<Superblock> {
        let parameters = self.parameters.clone();
        self.uuid.map(|uuid| Superblock { uuid, parameters, data_blocks: self.geometry.data_blocks() })
    }

    /// The hash parameters: type, block sizes, salt and algorithm.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The tree's geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Where the hash area begins on its device, in bytes.
    pub fn hash_offset(&self) -> u64 {
        self.hash_offset
    }

    /// The superblock's UUID.
    pub fn uuid(&self) -> Option<Uuid> {
        self.uuid
    }

    /// The first block of the tree, in hash blocks from the beginning of the hash device: a field of the table
    /// line.
    pub fn hash_start_block(&self) -> u64 {
        self.hash_start_block
    }

    /// Where the tree begins on its device, in bytes.
    pub fn tree_offset(&self) -> u64 {
        self.hash_start_block * u64::from(self.parameters.hash_block_size.bytes())
    }

    /// The byte of the hash device that a block of the tree begins at.
    pub fn position(&self, level: usize, index: u64) -> u64 {
        self.tree_offset() + self.geometry.offset(level, index)
    }

    /// Bytes of a hash device that ends with the hash area.
    pub fn hash_device_size(&self) -> u64 {
        self.tree_offset() + self.geometry.tree_size()
    }
}

fn argument(text: String) -> Error {
    Error::argument(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dm::BlockSize;

    fn start(hash_block_size: u64, hash_offset: u64, superblock: bool) -> u64 {
        let mut parameters = Parameters::new("sha256").unwrap();
        parameters.hash_block_size = BlockSize::new(hash_block_size).unwrap();
        let uuid = superblock.then(|| Uuid::from_bytes([0; 16]));
        Layout::new(parameters, 10, hash_offset, uuid).unwrap().hash_start_block()
    }

    #[test]
    fn the_tree_begins_at_a_block() {
        assert_eq!((start(4096, 0, true), start(4096, 0, false)), (1, 0));
        assert_eq!((start(512, 0, true), start(512, 512, false)), (1, 1));
        assert_eq!((start(4096, 3584, true), start(4096, 4096, true)), (1, 2));
        assert_eq!((start(4096, 3584, false), start(4096, 4608, false)), (0, 1));
    }

    #[test]
    fn absurd_places_are_refused() {
        let layout = |blocks, offset| {
            let parameters = Parameters::new("sha256").unwrap();
            Layout::new(parameters, blocks, offset, Some(Uuid::from_bytes([0; 16])))
        };
        assert!(layout(10, 0).is_ok());
        for (blocks, offset) in [
            (0, 0),
            (10, 100),
            (u64::MAX, 0),
            (10, u64::MAX - 511),
            (1 << 50, 1 << 63),
            (10, (1 << 63) - 512),
        ] {
            assert!(layout(blocks, offset).is_err(), "{blocks} {offset}");
        }
    }

    #[test]
    fn an_overlap_is_found() {
        let layout = |offset| {
            let parameters = Parameters::new("sha256").unwrap();
            Layout::new(parameters, 10, offset, Some(Uuid::from_bytes([0; 16]))).unwrap()
        };
        assert!(layout(40_960).check_one_device().is_ok());
        assert!(layout(40_960 - 512).check_one_device().is_err());
        assert!(layout(0).check_one_device().is_err());
    }
}
