//! Files whose trees are made in parts.

use casemate_providers::{Providers, SaltedHash};

use crate::fs::{Descriptor, Parameters};
use crate::tree::Geometry;
use crate::{Error, Whole};

/// A file whose tree is made in [parts](crate::Part): parameters and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeFile {
    /// The parameters of the tree: algorithm, block size and salt.
    pub parameters: Parameters,
    /// Bytes of the file.
    pub size: u64,
}

impl Whole for WholeFile {
    const MAGIC: [u8; 16] = *b"casemate part 1\0";
    const LEN: usize = Descriptor::LEN;
    type Joined = Descriptor;

    fn geometry(&self) -> Result<Geometry, Error> {
        self.parameters.geometry(self.size)
    }

    fn hash(&self, providers: &Providers) -> Result<SaltedHash, Error> {
        self.parameters.block_hash(providers)
    }

    /// A descriptor whose root hash is not known yet.
    fn to_bytes(&self) -> Vec<u8> {
        self.joined(vec![0; self.parameters.algorithm().digest_len()]).to_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Result<WholeFile, Error> {
        let descriptor = Descriptor::from_bytes(bytes)?;
        Ok(WholeFile { parameters: descriptor.parameters().clone(), size: descriptor.data_size() })
    }

    fn joined(&self, root_hash: Vec<u8>) -> Descriptor {
        Descriptor::new(self.parameters.clone(), self.size, &root_hash)
    }
}
