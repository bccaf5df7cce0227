//! The layers between an image and what reads it: options of every command that takes them.

mod stack;

use std::path::{Path, PathBuf};

use clap::ArgGroup;

use casemate::blockdev::Events;
use casemate::integrity::IntegrityOptions;
use casemate::luks::{LuksKey, LuksOptions, Reencrypting, Volume};
use casemate::verity::partition_uuids;
use casemate::{Access, Advice, Error, Image, SecretSource, probe};

use self::stack::{LayerOptions, Stack, ids};
pub use super::crypt::mapping::DECRYPTION;
use super::crypt::mapping::MappingArgs;
use super::explained::{explained, without_hash_area};
use super::luks::options::UnlockArgs;
use super::verity::options::{HashArgs, parse_root_hash};
use crate::cmd::integrity::JournalArgs;
use crate::context::Context;
use crate::passphrase::Asked;
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
    /// The partition of HASH that has the hash area, counted from 1; "auto" is the one whose UUID is the second half of the
    /// root hash, as systemd makes them.
    #[arg(
        long = "verity-hash-partition",
        alias = "hash-partition",
        value_name = "N",
        value_parser = hash_partition,
        requires = "dm_verity"
    )]
    hash_partition: Option<HashPartition>,
    /// Make or expect no superblock; the other options give the parameters.
    #[arg(long = "verity-no-superblock", alias = "no-superblock", requires = "dm_verity")]
    no_superblock: bool,
}

/// Which partition has a hash area.
#[derive(Clone, Copy, Debug)]
enum HashPartition {
    Number(u32),
    /// The one that the root hash tells.
    Auto,
}

fn hash_partition(text: &str) -> Result<HashPartition, String> {
    match text {
        "auto" => Ok(HashPartition::Auto),
        _ => text.parse().map(HashPartition::Number).map_err(|_| "a partition's number, or auto".to_owned()),
    }
}

/// Options that begin a dm-crypt, LUKS or dm-integrity layer, each with all options of its layer.
fn crypt_kinds() -> Vec<(&'static [&'static str], Vec<String>)> {
    let luks = ["luks", "key_file", "key_fd", "keyfile_offset"].map(str::to_owned);
    let luks = ids::<UnlockArgs>().into_iter().chain(luks).collect();
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
    /// Whether something is verified, so that nothing can be written.
    pub fn verify(&self) -> bool {
        self.layers().iter().any(|layer| layer.verity.dm_verity.is_some())
    }

    /// Opens a LUKS volume whose reencryption was begun, the only layer, so that it can be written while that goes on.
    pub fn reencrypting(
        &self,
        image: Image,
        zone: Option<u64>,
        context: &Context,
    ) -> Result<(Image, Reencrypting), Error> {
        match self.layers() {
            [layer] if layer.crypt.luks => layer.crypt.reencrypting(image, zone, context),
            _ => Err(Error::argument("--reencrypt is of a LUKS volume with no other layer")),
        }
    }

    /// Lays them on an image. Discards pass the decryption only with `allow_discards`.
    pub fn over(&self, mut image: Image, context: &Context, allow_discards: bool) -> Result<Image, Error> {
        for (number, layer) in self.layers().iter().enumerate() {
            image = match &layer.verity.dm_verity {
                Some(verity) => layer.with_verity(verity, image, context)?,
                None => {
                    let of = asked_for(&image, number, self.layers().len());
                    layer.crypt.over(image, &of, context, allow_discards)?
                }
            };
        }
        Ok(image)
    }
}

impl CryptArgs {
    /// Whether something is decrypted.
    pub fn decrypt(&self) -> bool {
        !self.layers().is_empty()
    }

    /// Lays the mappings on an image, if there are any.
    pub fn over(&self, mut image: Image, context: &Context, allow_discards: bool) -> Result<Image, Error> {
        for (number, layer) in self.layers().iter().enumerate() {
            let of = asked_for(&image, number, self.layers().len());
            image = layer.over(image, &of, context, allow_discards)?;
        }
        Ok(image)
    }
}

/// Name of the volume in a prompt for its passphrase.
fn asked_for(image: &Image, number: usize, layers: usize) -> PathBuf {
    match layers {
        1 => image.name().into(),
        _ => format!("{}, layer {}", image.name(), number + 1).into(),
    }
}

impl Layer {
    fn with_verity(&self, verity: &[String], image: Image, context: &Context) -> Result<Image, Error> {
        let [hash, root] = verity else { return Err(Error::argument("--dm-verity takes HASH and ROOT")) };
        let options = self.hash.options(self.verity.hash_offset, self.verity.no_superblock)?;
        let root = parse_root_hash(root)?;
        let providers = context.naming(self.hash.provider.as_slice());
        let hash = match (image.is_file(hash.as_ref()), self.verity.hash_partition) {
            (true, None) => image.clone(),
            (true, Some(_)) => image.disk()?.into(),
            (false, _) => Image::open(hash, Access::ReadLocked)?,
        };
        let hash = match self.verity.hash_partition {
            None => hash,
            Some(HashPartition::Number(number)) => hash.partition(number)?,
            Some(HashPartition::Auto) => hash.partition_of_uuid(partition_uuids(&root)?.hash)?,
        };
        let verified = image.verity(&hash, &root, &options, &providers);
        verified.map_err(|error| match self.verity.hash_offset {
            0 => without_hash_area(error, &hash, Advice::LayerHashOffset),
            _ => error,
        })
    }
}

impl IntegrityArgs {
    fn over(&self, name: &str, image: Image, context: &Context) -> Result<Image, Error> {
        let mut options = IntegrityOptions::default();
        options.algorithm = name.to_owned();
        options.bitmap = self.integrity_bitmap_mode;
        self.journal.0.set(&mut options)?;
        if let Some(path) = &self.integrity_key_file {
            options = options.with_key(&SecretSource::file(path))?;
        }
        let data = self.integrity_data_device.as_ref().map(|path| image.open_alike(path)).transpose()?;
        let over = image.clone().integrity(data.as_ref(), &options, context.providers());
        let over = over.map_err(|error| explained(error, &image, probe::INTEGRITY))?;
        if over.has_unknown_blocks() {
            context.note(&format!(
                "{}: by its superblock tags were still to be computed; blocks without one are read and not checked",
                image.name()
            ));
        }
        Ok(over)
    }
}

impl CryptLayer {
    /// Lays the mapping on an image; a person is asked for the passphrase of `of`.
    fn over(&self, image: Image, of: &Path, context: &Context, allow_discards: bool) -> Result<Image, Error> {
        if let Some(name) = &self.integrity.dm_integrity {
            return self.integrity.over(name, image, context);
        }
        if self.luks {
            return self.with_luks(image, of, context, allow_discards);
        }
        let mut mapping = self.mapping.mapping(of, Asked::Once, context)?;
        mapping.allow_discards = allow_discards;
        image.crypt(mapping)
    }

    fn with_luks(
        &self,
        image: Image,
        of: &Path,
        context: &Context,
        allow_discards: bool,
    ) -> Result<Image, Error> {
        let (volume, key, mut options) = self.luks_volume(image, of, Access::ReadLocked, context)?;
        options.allow_discards = allow_discards;
        volume.open(&key, &options, &context.opening())
    }

    fn reencrypting(
        &self,
        image: Image,
        zone: Option<u64>,
        context: &Context,
    ) -> Result<(Image, Reencrypting), Error> {
        let of = PathBuf::from(image.name());
        let (volume, key, options) = self.luks_volume(image, &of, Access::Change, context)?;
        volume.open_reencrypting(&key, &options, zone, &context.opening())
    }

    /// The volume, its key, and how it is opened. A header that lies apart is opened for `access`.
    fn luks_volume(
        &self,
        image: Image,
        of: &Path,
        access: Access,
        context: &Context,
    ) -> Result<(Volume, LuksKey, LuksOptions), Error> {
        let header = self.unlock.header(&image, access)?;
        let volume = image.luks_volume(header.as_ref(), context.providers());
        let volume =
            volume.map_err(|error| explained(error, header.as_ref().unwrap_or(&image), probe::LUKS))?;
        let key = self.unlock.key(self.mapping.key_source(), None, of)?;
        Ok((volume, key, self.unlock.options()?))
    }
}
