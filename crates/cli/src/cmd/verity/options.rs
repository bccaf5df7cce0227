//! Options that several commands of `casemate verity` take.

use std::path::{Path, PathBuf};

use casemate::Error;
use casemate::verity::{BlockSize, HashType, Parameters, Salt, Source, Volume, Worker, hex};

use crate::context::{Context, read_small};
use crate::progress::Reporter;

/// How blocks are hashed.
#[derive(clap::Args, Clone, Debug)]
pub struct HashArgs {
    /// The hash algorithm.
    #[arg(long = "hash", value_name = "NAME", default_value = "sha256")]
    pub algorithm: String,
    /// The format: 1 is the normal one, 0 that of Chrome OS.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub format: u64,
    /// The size of data blocks in bytes, a power of two from 512 to 524288.
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    pub data_block_size: u64,
    /// The size of hash blocks in bytes, a power of two from 512 to 524288.
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    pub hash_block_size: u64,
    /// Protect only so many data blocks [default: all whole ones].
    #[arg(long, value_name = "BLOCKS")]
    pub data_blocks: Option<u64>,
    /// The salt in hex, or '-' for none [default: 32 random bytes when formatting].
    #[arg(short, long, value_name = "HEX")]
    pub salt: Option<String>,
}

/// Where the hash area is.
#[derive(clap::Args, Clone, Debug)]
pub struct AreaArgs {
    /// Where the hash area begins in the hash device, in bytes.
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub hash_offset: u64,
    /// There is no superblock; the parameters are those of the other options.
    #[arg(long)]
    pub no_superblock: bool,
}

/// A root hash that exists.
#[derive(clap::Args, Clone, Debug)]
pub struct RootHashArgs {
    /// The root hash in hex.
    #[arg(value_name = "ROOT_HASH")]
    pub root_hash: Option<String>,
    /// Read the root hash from this file.
    #[arg(long, value_name = "FILE")]
    pub root_hash_file: Option<PathBuf>,
}

impl HashArgs {
    /// The parameters, with `salt` if none was given.
    pub fn parameters(&self, salt: impl FnOnce() -> Result<Salt, Error>) -> Result<Parameters, Error> {
        let mut parameters = Parameters::new(&self.algorithm)?;
        parameters.hash_type = HashType::numbered(self.format)?;
        parameters.data_block_size = BlockSize::new(self.data_block_size)?;
        parameters.hash_block_size = BlockSize::new(self.hash_block_size)?;
        parameters.salt = match &self.salt {
            Some(text) => Salt::from_text(text)?,
            None => salt()?,
        };
        Ok(parameters)
    }

    /// The number of data blocks, if one was given; 0 says nothing, as in veritysetup.
    pub fn data_blocks(&self) -> Option<u64> {
        self.data_blocks.filter(|blocks| *blocks > 0)
    }
}

impl AreaArgs {
    /// How to learn about a hash area that exists.
    pub fn source(&self, hash: &HashArgs) -> Result<Source, Error> {
        if !self.no_superblock {
            return Ok(Source::Superblock);
        }
        let parameters = hash.parameters(|| Ok(Salt::default()))?;
        Ok(Source::Given { parameters, data_blocks: hash.data_blocks() })
    }

    /// Opens data and its hash area.
    pub fn open(
        &self,
        data: &Path,
        hash: &Path,
        options: &HashArgs,
        writable: bool,
    ) -> Result<Volume, Error> {
        Volume::open(data, hash, self.hash_offset, self.source(options)?, writable)
    }
}

impl RootHashArgs {
    /// The root hash's bytes.
    pub fn get(&self) -> Result<Vec<u8>, Error> {
        self.find()?.ok_or_else(|| {
            Error::Argument("no root hash: give it after the devices or with --root-hash-file".to_owned())
        })
    }

    /// The root hash's bytes, if one was given.
    pub fn find(&self) -> Result<Option<Vec<u8>>, Error> {
        let text = match (&self.root_hash, &self.root_hash_file) {
            (Some(text), None) => text.clone(),
            (None, Some(path)) => {
                let bytes = read_small(path)?;
                String::from_utf8_lossy(&bytes).trim_end().to_owned()
            }
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                let text = "give the root hash or --root-hash-file, not both";
                return Err(Error::Argument(text.to_owned()));
            }
        };
        parse_root_hash(&text).map(Some)
    }
}

/// Reads a root hash in hex.
pub fn parse_root_hash(text: &str) -> Result<Vec<u8>, Error> {
    let wrong = || Error::Argument(format!("'{text}' is no root hash: it must be hex digits"));
    hex::decode(text).filter(|bytes| !bytes.is_empty()).ok_or_else(wrong)
}

/// Who does the work.
pub fn worker<'a>(context: &Context, progress: &'a Reporter) -> Worker<'a> {
    Worker { cpu: context.cpu(), pool: context.pool(), progress }
}
