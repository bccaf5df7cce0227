//! Options: how a hash area is made, or where one is found and what is expected of it.

use casemate_blockdev::{Medium, Uuid};

use super::{BlockSize, Fec, HashType, Layout, Parameters, Salt};
use crate::{Error, hex};

/// How a hash area is made, or where an existing one is found and what is expected of it.
///
/// A parameter that is `None` has its usual value when a hash area is made, and is taken from the superblock when there is one.
/// Any other must agree with the superblock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerityOptions {
    /// The hash algorithm's name; sha256 if `None`.
    pub algorithm: Option<String>,
    /// The format: the normal one if `None`, or Chrome OS's.
    pub hash_type: Option<HashType>,
    /// Bytes of a data block; 4096 if `None`.
    pub data_block_size: Option<BlockSize>,
    /// Bytes of a hash block; 4096 if `None`.
    pub hash_block_size: Option<BlockSize>,
    /// Bytes hashed with every block. If `None`, 32 random ones when a hash area is made, and none where there is no
    /// superblock.
    pub salt: Option<Salt>,
    /// Data blocks that are protected; all whole ones if `None`.
    pub data_blocks: Option<u64>,
    /// The byte of the hash device that the hash area begins at: a multiple of 512.
    pub hash_offset: u64,
    /// Whether the hash area has a superblock. On by default.
    pub superblock: bool,
    /// Parity for error correction.
    pub fec: Option<Fec>,
    /// The driver that must do the hashing; whichever is chosen if `None`.
    pub driver: Option<String>,
}

impl Default for VerityOptions {
    fn default() -> VerityOptions {
        VerityOptions {
            algorithm: None,
            hash_type: None,
            data_block_size: None,
            hash_block_size: None,
            salt: None,
            data_blocks: None,
            hash_offset: 0,
            superblock: true,
            fec: None,
            driver: None,
        }
    }
}

impl VerityOptions {
    /// The parameters of hashing, with `salt` if none was said.
    pub(super) fn parameters(&self, salt: impl FnOnce() -> Result<Salt, Error>) -> Result<Parameters, Error> {
        let mut parameters = Parameters::new(self.algorithm.as_deref().unwrap_or("sha256"))?;
        parameters.hash_type = self.hash_type.unwrap_or_default();
        parameters.data_block_size = self.data_block_size.unwrap_or_default();
        parameters.hash_block_size = self.hash_block_size.unwrap_or_default();
        parameters.salt = match &self.salt {
            Some(salt) => salt.clone(),
            None => salt()?,
        };
        Ok(parameters)
    }

    pub(super) fn layout_over(
        &self,
        data: &Medium,
        parameters: Parameters,
        uuid: Option<Uuid>,
    ) -> Result<Layout, Error> {
        let block_size = u64::from(parameters.data_block_size.bytes());
        let data_blocks = self.data_blocks.unwrap_or(data.top().size() / block_size);
        Layout::new(parameters, data_blocks, self.hash_offset, uuid).map_err(|error| error.at(data.name()))
    }

    /// Where everything lies that exists.
    pub(super) fn found(&self, data: &Medium, hash: &Medium) -> Result<Layout, Error> {
        if !self.superblock {
            return self.layout_over(data, self.parameters(|| Ok(Salt::default()))?, None);
        }
        let layout = Layout::read(hash, self.hash_offset)?;
        self.check(&layout).map_err(|error| error.within(hash.name()))?;
        Ok(layout)
    }

    /// Checks that a superblock says what was expected.
    fn check(&self, layout: &Layout) -> Result<(), Error> {
        let found = layout.parameters();
        let salt = |salt: &Salt| match salt.bytes() {
            [] => "-".to_owned(),
            bytes => hex::encode(bytes),
        };
        // Names that mean the same are the same.
        let algorithm = self.algorithm.as_deref().map(Parameters::new).transpose()?;
        let size = |size: BlockSize| size.bytes().to_string();
        let blocks = layout.geometry().data_blocks();
        for (what, expected, found) in [
            (
                "hash algorithm",
                algorithm.map(|parameters| parameters.algorithm().to_owned()),
                found.algorithm().to_owned(),
            ),
            (
                "format",
                self.hash_type.map(|kind| kind.number().to_string()),
                found.hash_type.number().to_string(),
            ),
            ("data block size", self.data_block_size.map(size), size(found.data_block_size)),
            ("hash block size", self.hash_block_size.map(size), size(found.hash_block_size)),
            ("number of data blocks", self.data_blocks.map(|blocks| blocks.to_string()), blocks.to_string()),
            ("salt", self.salt.as_ref().map(salt), salt(&found.salt)),
        ] {
            if let Some(expected) = expected.filter(|expected| *expected != found) {
                return Err(Error::argument(format!(
                    "the {what} in the superblock is {found}, not {expected}; leave that option out, or say that there is no \
                     superblock"
                )));
            }
        }
        Ok(())
    }
}
