//! The layers between an image and what reads it: options of every command that takes them.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, ArgMatches, FromArgMatches};

use casemate::{Error, Image};

use super::crypt::mapping::MappingArgs;
use super::verity::options::{HashArgs, parse_root_hash};
use crate::context::{Context, check_driver};
use crate::passphrase::Asked;

/// The group of options that say that something is decrypted.
pub const DECRYPTION: &str = "decryption";

/// The group of options that say where a key is read.
const KEY_SOURCE: &str = "key_source";

/// dm-crypt and dm-verity over an image, in the order in which they are given.
#[derive(clap::Args, Debug)]
// Without the layer they would do nothing, and other commands have options of the same names: -s, --hash, ...
#[command(
    mut_arg("algorithm", |arg| arg.long("verity-hash").alias("hash").requires("dm_verity")),
    mut_arg("format", |arg| arg.long("verity-format").alias("format").requires("dm_verity")),
    mut_arg("data_block_size", |arg| {
        arg.long("verity-data-block-size").alias("data-block-size").requires("dm_verity")
    }),
    mut_arg("hash_block_size", |arg| {
        arg.long("verity-hash-block-size").alias("hash-block-size").requires("dm_verity")
    }),
    mut_arg("data_blocks", |arg| arg.long("verity-data-blocks").alias("data-blocks").requires("dm_verity")),
    mut_arg("salt", |arg| {
        arg.short(None).long("verity-salt").alias("salt").requires("dm_verity").help("The salt in hex, or '-' for none")
    }),
    mut_arg("provider", |arg| arg.long("verity-provider").alias("provider").requires("dm_verity")))]
pub struct LayerArgs {
    // Looks at what was given before the other fields take it out.
    #[command(flatten)]
    order: Order,
    #[command(flatten)]
    crypt: CryptArgs,
    #[command(flatten)]
    verity: VerityArgs,
    #[command(flatten, next_help_heading = "dm-verity")]
    hash: HashArgs,
}

/// dm-crypt over an image.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "dm-crypt", group = ArgGroup::new(DECRYPTION).args(["crypt", "crypt_table"]),
    group = ArgGroup::new(KEY_SOURCE).args(["key_file", "key_fd"]))]
pub struct CryptArgs {
    /// Decrypt what is below with this dm-crypt specification, such as aes-xts-plain64.
    #[arg(long, value_name = "SPEC")]
    crypt: Option<String>,
    /// Take everything about the mapping from a file with a device-mapper table line.
    #[arg(long, value_name = "FILE")]
    crypt_table: Option<PathBuf>,
    /// Read the key from this file; "-" is standard input. Without it a passphrase is asked for.
    #[arg(long, value_name = "FILE", requires = "crypt")]
    key_file: Option<PathBuf>,
    /// Read the key from this open file descriptor.
    #[arg(long, value_name = "NUMBER", requires = "crypt", conflicts_with = "key_file")]
    key_fd: Option<u32>,
    /// Pass over this many bytes of the key file.
    #[arg(long, value_name = "BYTES", default_value_t = 0, requires = KEY_SOURCE)]
    keyfile_offset: u64,
    /// The key's size in bits [default: 256].
    #[arg(long, value_name = "BITS", requires = "crypt")]
    key_size: Option<usize>,
    /// The hash that makes the key of a passphrase.
    #[arg(
        long,
        value_name = "HASH",
        default_value = "sha256",
        requires = "crypt",
        conflicts_with_all = ["key_file", "key_fd"]
    )]
    passphrase_hash: String,
    /// Sectors of 512 bytes before the encrypted data.
    #[arg(long, value_name = "SECTORS", default_value_t = 0, requires = "crypt")]
    crypt_offset: u64,
    /// Sectors of 512 bytes that are added to a sector's number before its IV is made.
    #[arg(long, value_name = "SECTORS", default_value_t = 0, requires = "crypt")]
    skip: u64,
    /// Bytes of an encryption sector: 512, 1024, 2048 or 4096.
    #[arg(long, value_name = "BYTES", default_value_t = 512, requires = "crypt")]
    sector_size: usize,
    /// Count IVs in encryption sectors, not in 512 bytes.
    #[arg(long, requires = "crypt")]
    iv_large_sectors: bool,
    /// Take an XTS key whose halves are equal.
    #[arg(long, requires = DECRYPTION)]
    allow_equal_halves: bool,
    /// Use this driver for the cipher or for the passphrase's hash, even if the policy would not choose it ("casemate
    /// providers" lists them).
    #[arg(long, value_name = "DRIVER", requires = DECRYPTION)]
    crypt_provider: Vec<String>,
}

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "dm-verity")]
struct VerityArgs {
    /// Check what is below against a dm-verity hash device and its root hash, in hex. If HASH is the image itself, the hash
    /// area lies behind the data.
    #[arg(long, num_args = 2, value_names = ["HASH", "ROOT"])]
    dm_verity: Option<Vec<String>>,
    /// Where the hash area begins, in bytes.
    #[arg(
        long = "verity-hash-offset",
        alias = "hash-offset",
        value_name = "BYTES",
        default_value_t = 0,
        requires = "dm_verity"
    )]
    hash_offset: u64,
    /// There is no superblock; the parameters are those of the other options.
    #[arg(long = "verity-no-superblock", alias = "no-superblock", requires = "dm_verity")]
    no_superblock: bool,
}

/// Whether verity lies below crypt.
#[derive(Debug)]
struct Order {
    verity_first: bool,
}

impl FromArgMatches for Order {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Order, clap::Error> {
        let crypt = matches.index_of("crypt").or_else(|| matches.index_of("crypt_table"));
        let verity = matches.index_of("dm_verity");
        Ok(Order { verity_first: verity.is_some() && verity < crypt })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Order::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Order {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

impl LayerArgs {
    /// Whether something is decrypted, so that a wrong key may be what is wrong.
    pub fn decrypt(&self) -> bool {
        self.crypt.decrypt()
    }

    /// Whether something is verified, so that nothing can be written.
    pub fn verify(&self) -> bool {
        self.verity.dm_verity.is_some()
    }

    /// Lays them on an image. Discards pass the decryption only with `allow_discards`.
    pub fn over(&self, image: Image, context: &Context, allow_discards: bool) -> Result<Image, Error> {
        let crypt = |image: Image| self.crypt.over(image, context, allow_discards);
        if self.order.verity_first {
            crypt(self.with_verity(image, context)?)
        } else {
            self.with_verity(crypt(image)?, context)
        }
    }

    fn with_verity(&self, image: Image, context: &Context) -> Result<Image, Error> {
        let Some([hash, root]) = self.verity.dm_verity.as_deref() else { return Ok(image) };
        let source = self.hash.source(self.verity.no_superblock)?;
        let root = parse_root_hash(root)?;
        let driver = self.hash.provider.as_deref();
        let providers = context.naming(driver.as_slice());
        image.verity(hash.as_ref(), self.verity.hash_offset, &source, &root, &providers, |layout| {
            self.hash.check(layout).map_err(|error| error.within(hash))?;
            check_driver(&providers, layout.parameters().algorithm(), driver)
        })
    }
}

impl CryptArgs {
    /// Whether something is decrypted.
    pub fn decrypt(&self) -> bool {
        self.crypt.is_some() || self.crypt_table.is_some()
    }

    /// Lays the mapping on an image, if there is one.
    pub fn over(&self, image: Image, context: &Context, allow_discards: bool) -> Result<Image, Error> {
        match self.mapping() {
            Some(mapping) => {
                let mapping = mapping.mapping(Path::new(image.name()), Asked::Once, context)?;
                image.crypt(mapping, allow_discards)
            }
            None => Ok(image),
        }
    }

    fn mapping(&self) -> Option<MappingArgs> {
        let of = MappingArgs::of_cipher;
        let (cipher, table_file) = match (&self.crypt, &self.crypt_table) {
            (Some(cipher), _) => (cipher.clone(), None),
            (None, Some(path)) => (String::new(), Some(path.clone())),
            (None, None) => return None,
        };
        Some(MappingArgs {
            key_size: self.key_size,
            key_file: self.key_file.clone(),
            key_fd: self.key_fd,
            keyfile_offset: self.keyfile_offset,
            hash: self.passphrase_hash.clone(),
            offset: self.crypt_offset,
            skip: self.skip,
            sector_size: self.sector_size,
            iv_large_sectors: self.iv_large_sectors,
            allow_equal_halves: self.allow_equal_halves,
            provider: self.crypt_provider.clone(),
            table_file,
            ..of(cipher)
        })
    }
}
