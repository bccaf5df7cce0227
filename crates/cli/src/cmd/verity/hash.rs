//! Options of how blocks are hashed, of commands and of layers.

use casemate::Error;
use casemate::verity::{BlockSize, HashType, Salt, VerityOptions};

use crate::size::bytes;

/// How blocks are hashed.
#[derive(clap::Args, Clone, Debug)]
pub struct HashArgs {
    /// The hash algorithm [default: sha256].
    #[arg(long = "hash", value_name = "NAME")]
    pub algorithm: Option<String>,
    /// The format: 1 is the normal one, 0 that of Chrome OS [default: 1].
    #[arg(long, value_name = "NUMBER")]
    pub format: Option<u64>,
    /// The size of data blocks in bytes, a power of two from 512 to 524288 [default: 4096].
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    pub data_block_size: Option<u64>,
    /// The size of hash blocks in bytes, a power of two from 512 to 524288 [default: 4096].
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    pub hash_block_size: Option<u64>,
    /// Protect only N data blocks [default: all whole ones].
    #[arg(long, value_name = "BLOCKS")]
    pub data_blocks: Option<u64>,
    /// The salt in hex, or '-' for none [default: as in the superblock; of a new hash area 32 random bytes].
    #[arg(short, long, value_name = "HEX")]
    pub salt: Option<String>,
    /// Hash with this driver, even if the policy would not choose it ("casemate providers" lists them).
    #[arg(long, value_name = "DRIVER")]
    pub provider: Option<String>,
}

impl HashArgs {
    /// How a hash area is hashed that is made, or what is expected of one that exists.
    pub fn options(&self, hash_offset: u64, no_superblock: bool) -> Result<VerityOptions, Error> {
        let mut options = VerityOptions::default();
        options.algorithm = self.algorithm.clone();
        options.hash_type = self.format.map(HashType::numbered).transpose()?;
        options.data_block_size = self.data_block_size.map(BlockSize::new).transpose()?;
        options.hash_block_size = self.hash_block_size.map(BlockSize::new).transpose()?;
        options.salt = self.salt.as_deref().map(Salt::from_text).transpose()?;
        // 0 says nothing, as in veritysetup.
        options.data_blocks = self.data_blocks.filter(|blocks| *blocks > 0);
        options.hash_offset = hash_offset;
        options.superblock = !no_superblock;
        options.driver = self.provider.clone();
        Ok(options)
    }
}
