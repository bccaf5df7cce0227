//! Options that several commands of `casemate verity` take.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use casemate::blockdev::Events;
use casemate::verity::{
    Access, BlockSize, Fec, HashType, Layout, Parameters, Salt, Source, Stored, Volume, hex,
};
use casemate::{Error, Providers};

use crate::context::{Context, read_small};
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
    /// Protect only so many data blocks [default: all whole ones].
    #[arg(long, value_name = "BLOCKS")]
    pub data_blocks: Option<u64>,
    /// The salt in hex, or '-' for none [default: 32 random bytes when formatting].
    #[arg(short, long, value_name = "HEX")]
    pub salt: Option<String>,
    /// Hash with this driver, even if the policy would not choose it ("casemate providers" lists them).
    #[arg(long, value_name = "DRIVER")]
    pub provider: Option<String>,
}

/// Data with its hash area.
#[derive(clap::Args, Clone, Debug)]
pub struct StoredArgs {
    /// The data: a file or a block device.
    #[arg(value_name = "DATA_DEVICE")]
    pub data: PathBuf,
    /// The hash device; it may be the data device.
    #[arg(value_name = "HASH_DEVICE")]
    pub hash: PathBuf,
    /// Where the hash area begins in the hash device.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::<u64>)]
    pub hash_offset: u64,
    /// There is no superblock; the parameters are those of the other options.
    #[arg(long)]
    pub no_superblock: bool,
    #[command(flatten)]
    pub options: HashArgs,
    #[command(flatten)]
    pub fec: FecArgs,
}

/// Error correction.
#[derive(clap::Args, Clone, Debug)]
pub struct FecArgs {
    /// Parity for error correction; it may be on the hash device.
    #[arg(long, value_name = "PATH")]
    pub fec_device: Option<PathBuf>,
    /// Where the parity begins.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::<u64>, requires = "fec_device")]
    pub fec_offset: u64,
    /// Parity bytes for each codeword of 255, from 2 to 24 [default: what the size of the parity says; 2 for a new one].
    #[arg(long, value_name = "COUNT", requires = "fec_device")]
    pub fec_roots: Option<u32>,
}

/// A root hash that exists.
#[derive(clap::Args, Clone, Debug)]
pub struct RootHashArgs {
    /// The root hash in hex, or @FILE with the file that has it ("@-": standard input).
    #[arg(value_name = "ROOT_HASH")]
    pub root_hash: Option<String>,
    /// Read the root hash from this file; "-" is standard input.
    #[arg(long, value_name = "FILE")]
    pub root_hash_file: Option<PathBuf>,
}

impl HashArgs {
    /// The parameters, with `salt` if none was given.
    pub fn parameters(&self, salt: impl FnOnce() -> Result<Salt, Error>) -> Result<Parameters, Error> {
        let mut parameters = Parameters::new(self.algorithm.as_deref().unwrap_or("sha256"))?;
        parameters.hash_type = HashType::numbered(self.format.unwrap_or(1))?;
        parameters.data_block_size = BlockSize::new(self.data_block_size.unwrap_or(4096))?;
        parameters.hash_block_size = BlockSize::new(self.hash_block_size.unwrap_or(4096))?;
        parameters.salt = match &self.salt {
            Some(text) => Salt::from_text(text)?,
            None => salt()?,
        };
        Ok(parameters)
    }

    /// Where the parameters of a hash area come from.
    pub fn source(&self, no_superblock: bool) -> Result<Source, Error> {
        Ok(match no_superblock {
            false => Source::Superblock,
            true => Source::Given {
                parameters: self.parameters(|| Ok(Salt::default()))?,
                data_blocks: self.data_blocks(),
            },
        })
    }

    /// Checks that a superblock says what was given.
    pub fn check(&self, layout: &Layout) -> Result<(), Error> {
        let found = layout.parameters();
        let given_salt = self.salt.as_deref().map(Salt::from_text).transpose()?;
        let salt = |salt: &Salt| match salt.bytes() {
            [] => "-".to_owned(),
            bytes => hex::encode(bytes),
        };
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let found_algorithm = found.algorithm().to_owned();
        // Names that mean the same are the same.
        let algorithm = self.algorithm.as_deref().map(Parameters::new).transpose()?;
        let algorithm = algorithm.map(|parameters| parameters.algorithm().to_owned());
        for (what, given, found) in [
            ("hash algorithm", algorithm, found_algorithm),
            ("format", number(self.format), found.hash_type.number().to_string()),
            ("data block size", number(self.data_block_size), found.data_block_size.bytes().to_string()),
            ("hash block size", number(self.hash_block_size), found.hash_block_size.bytes().to_string()),
            (
                "number of data blocks",
                number(self.data_blocks()),
                layout.geometry().data_blocks().to_string(),
            ),
            ("salt", given_salt.as_ref().map(salt), salt(&found.salt)),
        ] {
            if let Some(given) = given.filter(|given| *given != found) {
                return Err(Error::argument(format!(
                    "the {what} in the superblock is {found}, not {given}; leave that option out, or say that there is no \
                     superblock"
                )));
            }
        }
        Ok(())
    }

    /// The number of data blocks, if one was given; 0 says nothing, as in veritysetup.
    pub fn data_blocks(&self) -> Option<u64> {
        self.data_blocks.filter(|blocks| *blocks > 0)
    }
}

impl StoredArgs {
    /// Opens everything, and says what hashes it.
    pub fn open(&self, access: Access, context: &Context) -> Result<(Volume, Providers), Error> {
        let source = self.options.source(self.no_superblock)?;
        let (data, hash) = (self.data.clone().into(), self.hash.clone().into());
        let stored = Stored { data, hash, hash_offset: self.hash_offset, source, fec: self.fec.get() };
        let volume = Volume::open(stored, access)?;
        self.options.check(volume.layout()).map_err(|error| error.within(self.hash.display()))?;
        if let (Some(device), Some(roots)) = (&self.fec.fec_device, volume.other_fec_roots()) {
            let device = device.display();
            context
                .note(&format!("{device} has the size of parity with {roots} roots; --fec-roots {roots}?"));
        }
        let algorithm = volume.layout().parameters().algorithm();
        let providers = context.hashing(algorithm, self.options.provider.as_deref())?;
        Ok((volume, providers))
    }
}

impl FecArgs {
    /// The parity, if a device was given.
    pub fn get(&self) -> Option<Fec> {
        let device = self.fec_device.clone()?;
        Some(Fec { device: device.into(), offset: self.fec_offset, roots: self.fec_roots })
    }
}

/// A root hash that exists, where more words follow.
#[derive(clap::Args, Clone, Debug)]
pub struct RootHashFileArgs {
    /// Read the root hash from this file; "-" is standard input.
    #[arg(long, value_name = "FILE")]
    root_hash_file: Option<PathBuf>,
}

impl RootHashFileArgs {
    /// The root hash's bytes, and the path behind it, if there is one.
    pub fn split(&self, words: &[OsString]) -> Result<(Vec<u8>, Option<PathBuf>), Error> {
        let mut words = words.iter();
        let text = match &self.root_hash_file {
            Some(_) => None,
            None => words.next().map(|word| word.to_string_lossy().into_owned()),
        };
        let path = words.next().map(PathBuf::from);
        if words.next().is_some() {
            return Err(Error::argument("give the root hash or --root-hash-file, not both"));
        }
        let root_hash = RootHashArgs { root_hash: text, root_hash_file: self.root_hash_file.clone() };
        Ok((root_hash.get()?, path))
    }
}

impl RootHashArgs {
    /// The root hash's bytes.
    pub fn get(&self) -> Result<Vec<u8>, Error> {
        self.find()?
            .ok_or_else(|| Error::argument("no root hash: give it in hex, as @FILE or with --root-hash-file"))
    }

    /// The root hash's bytes, if one was given.
    pub fn find(&self) -> Result<Option<Vec<u8>>, Error> {
        let text = match (&self.root_hash, &self.root_hash_file) {
            (Some(text), None) => text.clone(),
            (None, Some(path)) => format!("@{}", path.display()),
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                let text = "give the root hash or --root-hash-file, not both";
                return Err(Error::argument(text.to_owned()));
            }
        };
        parse_root_hash(&text).map(Some)
    }
}

/// Reads a root hash in hex, or from the file behind an @.
pub fn parse_root_hash(text: &str) -> Result<Vec<u8>, Error> {
    if let Some(path) = text.strip_prefix('@') {
        let bytes = read_small(Path::new(path))?;
        let text = String::from_utf8_lossy(&bytes);
        return parse_root_hash(text.trim_end().trim_start_matches('@')).map_err(|error| error.at(path));
    }
    let wrong = || Error::argument(format!("'{text}' is no root hash: it must be hex digits"));
    hex::decode(text).filter(|bytes| !bytes.is_empty()).ok_or_else(wrong)
}
