//! The layers between an image and what reads it: options of every command that takes them.

pub mod image;
mod stack;

use std::path::PathBuf;

use clap::ArgGroup;

use casemate::Error;
use casemate::image_spec::{HashPartition, IntegritySpec, LayerSpec, VeritySpec};

pub use self::image::{Asking, file_system, spec_parser};
use self::stack::{LayerOptions, Stack, ids};
pub use super::crypt::mapping::DECRYPTION;
use super::crypt::mapping::MappingArgs;
use super::luks::options::{OtherDataArgs, UnlockArgs};
use super::verity::hash::HashArgs;
use crate::cmd::journal::JournalArgs;
use crate::size::bytes;

/// dm-crypt, LUKS, dm-integrity and dm-verity over an image, any number of times, in the order in which they are given.
pub type LayerArgs = Stack<Layer>;

/// Layers that can be written through: dm-crypt, LUKS and dm-integrity over an image.
pub type CryptArgs = Stack<CryptLayer>;

/// A layer of any kind.
#[derive(clap::Args, Debug)]
// Without the layer they would do nothing. --hash, --salt, ... alone could be those of something else.
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
pub struct Layer {
    #[command(flatten)]
    crypt: CryptLayer,
    #[command(flatten)]
    verity: VerityArgs,
    #[command(flatten, next_help_heading = "dm-verity")]
    hash: HashArgs,
}

const KEY_FILE: &str = "Read the key from this file, as it is, cut to the key's size; with --luks the passphrase, all of it. \"-\" is \
                        standard input. Without it a passphrase is asked for, or is the first line of standard input if that \
                        is not a terminal";

/// The group of options that say what a key is for.
const KEYED: &str = "keyed";

/// dm-crypt, LUKS or dm-integrity. Without it the other options do nothing, and are refused.
#[derive(clap::Args, Debug)]
#[command(
    group = ArgGroup::new(KEYED).args(["crypt", "luks"]),
    mut_arg("key_file", |arg| arg.requires(KEYED).help(KEY_FILE).long_help(None)),
    mut_arg("key_fd", |arg| arg.requires(KEYED)),
    mut_arg("luks_header", |arg| arg.requires("luks")),
    mut_arg("key_slot", |arg| arg.requires("luks")),
    mut_arg("volume_key_file", |arg| arg.requires("luks").conflicts_with_all(["key_file", "key_fd"])),
    mut_arg("kdf_limit", |arg| arg.requires("luks")),
    mut_arg("luks_policy", |arg| arg.requires("luks")),
    mut_arg("mac_key_file", |arg| arg.requires("luks_policy")),
    mut_arg("key_size", |arg| arg.requires("crypt")),
    mut_arg("passphrase_hash", |arg| arg.requires("crypt")),
    mut_arg("crypt_offset", |arg| arg.requires("crypt")),
    mut_arg("skip", |arg| arg.requires("crypt")),
    mut_arg("sector_size", |arg| arg.requires("crypt")),
    mut_arg("iv_large_sectors", |arg| arg.requires("crypt")),
    mut_arg("allow_equal_halves", |arg| arg.requires(DECRYPTION)),
    mut_arg("crypt_provider", |arg| arg.requires(DECRYPTION)))]
pub struct CryptLayer {
    #[command(flatten)]
    mapping: MappingArgs,
    /// The image is a LUKS volume. --key-file, or --key-fd, is its passphrase, all of it.
    #[arg(long, help_heading = "LUKS")]
    luks: bool,
    #[command(flatten)]
    unlock: UnlockArgs,
    #[command(flatten)]
    other_data: OtherDataArgs,
    #[command(flatten)]
    integrity: IntegrityArgs,
}

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "dm-integrity")]
struct IntegrityArgs {
    /// The device below is a dm-integrity volume with this integrity algorithm, which the superblock does not record:
    /// crc32c, crc32, sha256, ..., or with a key hmac-sha256, ... A block with a wrong tag is an error.
    #[arg(long, value_name = "NAME")]
    dm_integrity: Option<String>,
    /// Read the key of the tags from this file, all of it.
    #[arg(long, value_name = "FILE", requires = "dm_integrity")]
    integrity_key_file: Option<PathBuf>,
    /// The file or block device with the data: what is below has the tags alone.
    #[arg(long, value_name = "PATH", requires = "dm_integrity")]
    integrity_data_device: Option<PathBuf>,
    /// Write data to their places at once, not through the journal: quicker, and what is being written when power fails may be
    /// torn. A bitmap says where tags are made again then.
    #[arg(long, requires = "dm_integrity")]
    integrity_bitmap_mode: bool,
    #[command(flatten)]
    journal: LayerJournal,
}

/// Options for the protection of a layer's journal, which are refused without that layer.
#[derive(Debug)]
struct LayerJournal(JournalArgs);

impl clap::Args for LayerJournal {
    fn augment_args(command: clap::Command) -> clap::Command {
        let of_layer = |command: clap::Command, id| command.mut_arg(id, |arg| arg.requires("dm_integrity"));
        ids::<JournalArgs>().into_iter().fold(JournalArgs::augment_args(command), of_layer)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        LayerJournal::augment_args(command)
    }
}

impl clap::FromArgMatches for LayerJournal {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<LayerJournal, clap::Error> {
        JournalArgs::from_arg_matches(matches).map(LayerJournal)
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "dm-verity")]
struct VerityArgs {
    /// Check what is below against a dm-verity hash device and its root hash, in hex or as @FILE. If HASH is the image
    /// itself, the hash area lies behind the data, at --verity-hash-offset, or in another partition of it, at
    /// --verity-hash-partition.
    #[arg(long, num_args = 2, value_names = ["HASH", "ROOT"])]
    dm_verity: Option<Vec<String>>,
    /// First byte of the hash area.
    #[arg(
        long = "verity-hash-offset",
        alias = "hash-offset",
        value_name = "BYTES",
        default_value = "0",
        value_parser = bytes::<u64>,
        requires = "dm_verity"
    )]
    hash_offset: u64,
    /// The partition of HASH that has the hash area: number, UUID or name; "auto" is the one whose UUID is the second half of
    /// the root hash, as systemd makes them.
    #[arg(
        long = "verity-hash-partition",
        alias = "hash-partition",
        value_name = "WHICH",
        requires = "dm_verity"
    )]
    hash_partition: Option<HashPartition>,
    /// Make or expect no superblock; the other options give the parameters.
    #[arg(long = "verity-no-superblock", alias = "no-superblock", requires = "dm_verity")]
    no_superblock: bool,
}

/// Options that begin a dm-crypt, LUKS or dm-integrity layer, each with all options of its layer.
fn crypt_kinds() -> Vec<(&'static [&'static str], Vec<String>)> {
    let luks = ["luks", "key_file", "key_fd", "keyfile_offset"].map(str::to_owned);
    let luks = ids::<UnlockArgs>().into_iter().chain(ids::<OtherDataArgs>()).chain(luks).collect();
    vec![
        (&["crypt", "crypt_table"], ids::<MappingArgs>()),
        (&["luks"], luks),
        (&["dm_integrity"], ids::<IntegrityArgs>()),
    ]
}

impl LayerOptions for CryptLayer {
    fn kinds() -> Vec<(&'static [&'static str], Vec<String>)> {
        crypt_kinds()
    }
}

impl LayerOptions for Layer {
    fn kinds() -> Vec<(&'static [&'static str], Vec<String>)> {
        let mut kinds = crypt_kinds();
        kinds.push((&["dm_verity"], [ids::<VerityArgs>(), ids::<HashArgs>()].concat()));
        kinds
    }
}

impl LayerArgs {
    /// The layers as values.
    pub fn specs(&self) -> Result<Vec<LayerSpec>, Error> {
        let spec = |layer: &Layer| match &layer.verity.dm_verity {
            Some(verity) => layer.verity(verity).map(LayerSpec::Verity),
            None => layer.crypt.spec(),
        };
        self.layers().iter().map(spec).collect()
    }
}

impl CryptArgs {
    /// The mappings as values.
    pub fn specs(&self) -> Result<Vec<LayerSpec>, Error> {
        self.layers().iter().map(CryptLayer::spec).collect()
    }
}

impl Layer {
    fn verity(&self, verity: &[String]) -> Result<VeritySpec, Error> {
        let [device, root] = verity else { return Err(Error::argument("--dm-verity takes HASH and ROOT")) };
        let options = self.hash.options(self.verity.hash_offset, self.verity.no_superblock)?;
        let mut spec = VeritySpec::new(root);
        spec.hash_device = Some(device.into());
        spec.hash_offset = options.hash_offset;
        spec.hash_partition = self.verity.hash_partition.clone();
        spec.superblock = options.superblock;
        spec.algorithm = options.algorithm;
        spec.hash_type = options.hash_type;
        spec.data_block_size = options.data_block_size;
        spec.hash_block_size = options.hash_block_size;
        spec.data_blocks = options.data_blocks;
        spec.salt = options.salt;
        spec.driver = options.driver;
        Ok(spec)
    }
}

impl IntegrityArgs {
    fn spec(&self, name: &str) -> Result<IntegritySpec, Error> {
        let mut spec = IntegritySpec::new(name);
        spec.key_file = self.integrity_key_file.clone();
        spec.data_device = self.integrity_data_device.clone();
        spec.bitmap = self.integrity_bitmap_mode;
        (spec.journal_code, spec.journal_cipher) = self.journal.0.spec()?;
        Ok(spec)
    }
}

impl CryptLayer {
    fn spec(&self) -> Result<LayerSpec, Error> {
        if let Some(name) = &self.integrity.dm_integrity {
            return self.integrity.spec(name).map(LayerSpec::Integrity);
        }
        match self.luks {
            true => {
                let mut spec = self.unlock.spec(self.mapping.key_place());
                spec.overwrite = self.other_data.luks_overwrite;
                Ok(LayerSpec::Luks(spec))
            }
            false => self.mapping.spec().map(LayerSpec::Crypt),
        }
    }
}
