//! Parameters of a file's tree: hash algorithm, block size and salt.

use std::fmt;

use casemate_blockdev::usize_of;
use casemate_providers::{Providers, SaltedHash};

use crate::Error;
use crate::tree::{Geometry, Shape};

/// A hash algorithm that fs-verity has a number for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// SHA-256, number 1.
    #[default]
    Sha256,
    /// SHA-512, number 2.
    Sha512,
}

/// The parameters of a file's tree: hash algorithm, block size and salt, checked.
#[derive(Clone, PartialEq, Eq)]
pub struct Parameters {
    algorithm: Algorithm,
    log_block_size: u8,
    salt: Vec<u8>,
}

impl Algorithm {
    /// All hash algorithms, by number.
    pub const ALL: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Sha512];

    /// The hash algorithm called `name`.
    pub fn named(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The hash algorithm with the number `number` (`FS_VERITY_HASH_ALG_*`).
    pub fn numbered(number: u32) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| u32::from(algorithm.number()) == number)
    }

    /// The algorithm's name, such as `sha256`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        }
    }

    /// The algorithm's number in descriptors.
    pub fn number(self) -> u8 {
        match self {
            Algorithm::Sha256 => 1,
            Algorithm::Sha512 => 2,
        }
    }

    /// Length of a digest in bytes.
    pub fn digest_len(self) -> usize {
        match self {
            Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
        }
    }
}

impl Parameters {
    /// The largest block size in bytes. The kernel takes 1024 up to its page size; larger trees are for other readers.
    pub const MAX_BLOCK_SIZE: u32 = 1 << 20;
    /// The most bytes of a salt.
    pub const MAX_SALT: usize = 32;

    /// Takes the parameters of a tree, after checking them. `block_size` is in bytes.
    ///
    /// # Errors
    /// `Argument` if `block_size` is not a power of two, has no room for two digests or is larger than
    /// [`Parameters::MAX_BLOCK_SIZE`], or `salt` is longer than 32 bytes.
    pub fn new(algorithm: Algorithm, block_size: u32, salt: &[u8]) -> Result<Parameters, Error> {
        let smallest = 2 * algorithm.digest_len();
        let fits = usize_of(block_size) >= smallest && block_size <= Parameters::MAX_BLOCK_SIZE;
        if !block_size.is_power_of_two() || !fits {
            return Err(Error::argument(format!(
                "block size {block_size}: with {} it must be a power of two from {smallest} to {}",
                algorithm.name(),
                Parameters::MAX_BLOCK_SIZE
            )));
        }
        if salt.len() > Parameters::MAX_SALT {
            let text = format!("salt of {} bytes; at most {} are allowed", salt.len(), Parameters::MAX_SALT);
            return Err(Error::argument(text));
        }
        let log_block_size = u8::try_from(block_size.ilog2()).unwrap_or(u8::MAX);
        Ok(Parameters { algorithm, log_block_size, salt: salt.to_vec() })
    }

    /// The hash algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Size of data blocks and of tree blocks, in bytes.
    pub fn block_size(&self) -> usize {
        1 << self.log_block_size
    }

    /// The salt as it was given, without padding.
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// The tree's shape: how digests are packed into its blocks.
    pub fn shape(&self) -> Shape {
        // OK to unwrap: the constructor has checked that two digests fit.
        Shape::packed(1 << self.log_block_size, self.algorithm.digest_len()).unwrap()
    }

    /// The geometry of the tree over `data_size` bytes: where its blocks lie.
    ///
    /// # Errors
    /// `Argument` if the tree would be too large for 64-bit sizes.
    pub fn geometry(&self, data_size: u64) -> Result<Geometry, Error> {
        Geometry::new(self.shape(), data_size)
    }

    pub(super) fn log_block_size(&self) -> u8 {
        self.log_block_size
    }

    /// The hash of one block: the salt comes first, padded with zeros to whole blocks of the hash's inside.
    pub(super) fn block_hash(&self, providers: &Providers) -> Result<SaltedHash, Error> {
        let hash = providers.hash(self.algorithm.name())?;
        let mut prefix = self.salt.clone();
        prefix.resize(prefix.len().next_multiple_of(hash.block_len()), 0);
        Ok(hash.salted(&prefix, &[]))
    }
}

impl Default for Parameters {
    /// SHA-256, blocks of 4096 bytes, no salt: what `fsverity` takes if nothing is said.
    fn default() -> Parameters {
        Parameters { algorithm: Algorithm::Sha256, log_block_size: 12, salt: Vec::new() }
    }
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}-byte blocks, salt {:02x?}", self.algorithm.name(), self.block_size(), self.salt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sane_parameters_pass() {
        let sha256 = |size| Parameters::new(Algorithm::Sha256, size, &[]).is_ok();
        let sha512 = |size| Parameters::new(Algorithm::Sha512, size, &[]).is_ok();
        assert!(sha256(64) && sha256(4096) && sha256(1 << 20) && sha512(128));
        assert!(!sha256(0) && !sha256(32) && !sha256(4095) && !sha256(1 << 21) && !sha256(1 << 31));
        assert!(!sha512(64));
        assert!(Parameters::new(Algorithm::Sha256, 4096, &[1; 32]).is_ok());
        assert!(Parameters::new(Algorithm::Sha256, 4096, &[1; 33]).is_err());
    }
}
