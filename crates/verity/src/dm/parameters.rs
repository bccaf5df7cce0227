//! Hash parameters of a dm-verity device: type, block sizes, salt and algorithm.

use std::fmt;

use casemate_blockdev::fill_random;
use casemate_providers::{Hash, Providers, SaltedHash, Seed};

use crate::tree::Shape;
use crate::{Error, hex};

/// The hash type, dm-verity's version: where the salt goes, and how digests are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashType {
    /// Type 0, of Chrome OS: `H(block || salt)`, digests side by side.
    ChromeOs,
    /// Type 1: `H(salt || block)`, each digest in a power of two of bytes.
    #[default]
    Normal,
}

/// A block size that dm-verity tools take: a power of two from 512 to 512 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize(u32);

/// A salt: 0 to 256 bytes that are hashed with every block. Not a secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Salt(Vec<u8>);

/// The hash parameters of a dm-verity device: type, block sizes, salt and algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The hash type.
    pub hash_type: HashType,
    /// The size of data blocks in bytes.
    pub data_block_size: BlockSize,
    /// The size of hash blocks in bytes.
    pub hash_block_size: BlockSize,
    /// The salt that is hashed with every block.
    pub salt: Salt,
    algorithm: String,
}

impl HashType {
    /// The hash type with this number, 0 or 1.
    ///
    /// # Errors
    /// `Unsupported` for numbers other than 0 and 1.
    pub fn numbered(number: u64) -> Result<HashType, Error> {
        match number {
            0 => Ok(HashType::ChromeOs),
            1 => Ok(HashType::Normal),
            _ => Err(Error::unsupported(format!("verity hash type {number}; there are 0 and 1"))),
        }
    }

    /// The hash type's number in superblocks and table lines.
    pub fn number(self) -> u32 {
        match self {
            HashType::ChromeOs => 0,
            HashType::Normal => 1,
        }
    }
}

impl BlockSize {
    /// Takes a block size in bytes, after checking it.
    ///
    /// # Errors
    /// `Unsupported` unless it is a power of two from 512 to 524288.
    pub fn new(bytes: u64) -> Result<BlockSize, Error> {
        match u32::try_from(bytes) {
            Ok(size @ 512..=524_288) if size.is_power_of_two() => Ok(BlockSize(size)),
            _ => Err(Error::unsupported(format!(
                "verity block size {bytes}; it must be a power of two from 512 to 524288"
            ))),
        }
    }

    /// The block size in bytes.
    pub fn bytes(self) -> u32 {
        self.0
    }
}

impl Default for BlockSize {
    fn default() -> BlockSize {
        BlockSize(4096)
    }
}

impl Salt {
    /// The longest salt in bytes.
    pub const MAX: usize = 256;

    /// Takes a salt of at most 256 bytes.
    ///
    /// # Errors
    /// `Unsupported` if it is longer than 256 bytes.
    pub fn new(bytes: Vec<u8>) -> Result<Salt, Error> {
        if bytes.len() > Salt::MAX {
            let text =
                format!("the verity salt has {} bytes, and at most {} are allowed", bytes.len(), Salt::MAX);
            return Err(Error::unsupported(text));
        }
        Ok(Salt(bytes))
    }

    /// Reads a salt from hex digits, or `-` for none.
    ///
    /// # Errors
    /// `Argument` if it is not hex, `Unsupported` if it is too long.
    pub fn from_text(text: &str) -> Result<Salt, Error> {
        if text == "-" {
            return Ok(Salt::default());
        }
        let bytes = hex::decode(text).ok_or_else(|| {
            Error::argument("the salt is not an even number of hex digits, nor '-' for none")
        })?;
        Salt::new(bytes)
    }

    /// A random salt of 32 bytes.
    ///
    /// # Errors
    /// `Io` if the system has no random bytes.
    pub fn random() -> Result<Salt, Error> {
        let mut bytes = vec![0; 32];
        fill_random(&mut bytes)?;
        Salt::new(bytes)
    }

    /// The salt that follows from a seed: the 32 bytes of its HMAC-SHA256.
    ///
    /// # Errors
    /// `Unsupported` with the reasons, if no implementation of SHA-256 may be used.
    pub fn from_seed(seed: &Seed, providers: &Providers) -> Result<Salt, Error> {
        Salt::new(seed.tag(b"verity-salt", providers)?.expose().to_vec())
    }

    /// The salt's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Hex digits, or `-` for no salt.
impl fmt::Display for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => f.write_str("-"),
            false => f.write_str(&hex::encode(&self.0)),
        }
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Salt({self})")
    }
}

impl Parameters {
    /// The usual parameters with the algorithm called `name`: type 1, blocks of 4096 bytes, no salt.
    ///
    /// # Errors
    /// `Unsupported` if there is no such algorithm; the text lists those that there are.
    pub fn new(name: &str) -> Result<Parameters, Error> {
        Hash::digest_len_of(name).map_err(|error| Error::unsupported(error.to_string()))?;
        Ok(Parameters {
            hash_type: HashType::default(),
            data_block_size: BlockSize::default(),
            hash_block_size: BlockSize::default(),
            salt: Salt::default(),
            algorithm: name.to_ascii_lowercase(),
        })
    }

    /// The hash algorithm's name in lower case, as it was given: some have two.
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// Length of a digest in bytes.
    pub fn digest_len(&self) -> usize {
        // OK to unwrap: `new` found the name.
        Hash::digest_len_of(&self.algorithm).unwrap()
    }

    /// The shape of the hash tree.
    ///
    /// # Errors
    /// `Argument` if the hash blocks are too small for the digests.
    pub fn shape(&self) -> Result<Shape, Error> {
        let padded = self.hash_type == HashType::Normal;
        Shape::power_of_two(self.data_block_size.0, self.hash_block_size.0, self.digest_len(), padded)
    }

    /// The hash with the salt in its place.
    ///
    /// # Errors
    /// `Unsupported` with the reasons, if no implementation may be used.
    pub fn salted_hash(&self, providers: &Providers) -> Result<SaltedHash, Error> {
        let hash = providers.hash(&self.algorithm)?;
        Ok(match self.hash_type {
            HashType::ChromeOs => hash.salted(&[], self.salt.bytes()),
            HashType::Normal => hash.salted(self.salt.bytes(), &[]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        for size in [0, 511, 513, 256, 1 << 20, u64::MAX, (1 << 32) + 512] {
            assert!(BlockSize::new(size).is_err(), "{size}");
        }
        assert!(Salt::new(vec![0; 257]).is_err() && Salt::new(vec![0; 256]).is_ok());
        assert!(Salt::from_text("123").is_err() && Salt::from_text("--").is_err());
        assert!(HashType::numbered(2).is_err());
        assert!(Parameters::new("sha257").is_err());
    }

    #[test]
    fn a_salt_is_written_as_it_is_read() {
        for text in ["-", "00", "12ab"] {
            assert_eq!(Salt::from_text(text).unwrap().to_string(), text);
        }
        assert_eq!(Salt::from_text("").unwrap().to_string(), "-");
    }
}
