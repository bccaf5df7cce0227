//! The options that say what a dm-crypt mapping is, and where its key comes from.

use std::path::{Path, PathBuf};

use clap::ArgGroup;

use casemate::Error;
use casemate::crypt::Mapping;
use casemate::image_spec::{CryptSpec, KeyPlace};

use crate::cmd::layers::image::Asking;
use crate::context::Context;
use crate::passphrase::{Asked, descriptor};
use crate::size::{bytes, sectors};

/// The group of options that say that something is decrypted.
pub const DECRYPTION: &str = "decryption";

/// The group of options that say where a key is read.
const KEY_SOURCE: &str = "key_source";

/// Options that describe a dm-crypt mapping.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "dm-crypt", group = ArgGroup::new(DECRYPTION).args(["crypt", "crypt_table"]),
    group = ArgGroup::new(KEY_SOURCE).args(["key_file", "key_fd"]))]
pub struct MappingArgs {
    /// The dm-crypt specification of what is encrypted, such as aes-xts-plain64.
    #[arg(long, value_name = "SPEC", alias = "cipher")]
    crypt: Option<String>,
    /// Read the whole mapping, with its key, from a file with a device-mapper table line. The line also gives the
    /// length.
    #[arg(long, value_name = "FILE", alias = "table-file", conflicts_with_all = ["key_file", "key_fd", "keyfile_offset", "key_size", "passphrase_hash", "crypt_offset", "skip", "sector_size", "iv_large_sectors"])]
    crypt_table: Option<PathBuf>,
    /// Read the key from this file; "-" is standard input. It is used unchanged, cut to the key's size. Without it
    /// casemate asks for a passphrase, or reads the first line of standard input if that is not a terminal.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Read the key from this open file descriptor.
    #[arg(long, value_name = "NUMBER", conflicts_with = "key_file", value_parser = descriptor())]
    key_fd: Option<u32>,
    /// Skip N bytes of the key file.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::<u64>, requires = KEY_SOURCE)]
    keyfile_offset: u64,
    /// The key's size in bits [default: 256].
    #[arg(long, value_name = "BITS")]
    key_size: Option<usize>,
    /// Hash that derives the key from a passphrase: a name, "name:bytes", or "plain" for none.
    #[arg(long, value_name = "HASH", default_value = "sha256", conflicts_with_all = ["key_file", "key_fd"])]
    passphrase_hash: String,
    /// Where the encrypted data begins.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = sectors)]
    crypt_offset: u64,
    /// Sectors of 512 bytes to add to a sector's number in its IV.
    #[arg(long, value_name = "SECTORS", default_value_t = 0)]
    skip: u64,
    /// The size of an encryption sector: 512, 1024, 2048 or 4096 bytes.
    #[arg(long, value_name = "BYTES", default_value = "512", value_parser = bytes::<usize>)]
    sector_size: usize,
    /// Count IVs in encryption sectors, not in 512 bytes.
    #[arg(long)]
    iv_large_sectors: bool,
    /// Accept an XTS key whose halves are equal. FIPS forbids it, the kernel outside FIPS mode accepts it.
    #[arg(long)]
    allow_equal_halves: bool,
    /// Use this driver for the cipher or for the passphrase's hash, even if the policy would not choose it ("casemate
    /// providers" lists them).
    #[arg(long, value_name = "DRIVER")]
    crypt_provider: Vec<String>,
}

/// Options of a command that always has a mapping: with cryptsetup's short names, and aes-xts-plain64 as the default.
#[derive(clap::Args, Debug)]
#[command(
    mut_arg("crypt", |arg| arg.short('c').help("The dm-crypt specification [default: aes-xts-plain64]")),
    mut_arg("key_file", |arg| arg.short('d')),
    mut_arg("key_size", |arg| arg.short('s')),
    mut_arg("skip", |arg| arg.short('p')),
    mut_arg("passphrase_hash", |arg| arg.alias("hash")),
    mut_arg("crypt_provider", |arg| arg.alias("provider")))]
pub struct OwnMappingArgs {
    #[command(flatten)]
    mapping: MappingArgs,
    /// cryptsetup's -o.
    #[arg(short = 'o', hide = true, value_name = "SECTORS", conflicts_with_all = ["crypt_offset", "crypt_table"])]
    offset_in_sectors: Option<u64>,
    /// Everywhere else these are bytes of the image.
    #[arg(long, hide = true, value_parser = no_offset)]
    offset: Option<u64>,
}

fn no_offset(text: &str) -> Result<u64, String> {
    Err(format!("the data begins at --crypt-offset, in bytes, or with an s in sectors ({text}s)"))
}

impl OwnMappingArgs {
    pub fn get(&self) -> MappingArgs {
        let mut mapping = self.mapping.clone();
        if mapping.crypt_table.is_none() {
            mapping.crypt.get_or_insert_with(|| "aes-xts-plain64".to_owned());
        }
        mapping.crypt_offset = self.offset_in_sectors.unwrap_or(mapping.crypt_offset);
        mapping
    }
}

impl MappingArgs {
    /// The mapping of an image, keyed. Where there is a passphrase, it is asked for so often.
    pub fn mapping(&self, image: &Path, asked: Asked, context: &Context) -> Result<Mapping, Error> {
        self.spec()?.mapping(&image.display().to_string(), &Asking::of(context).asking(asked))
    }

    /// The mapping as a value.
    pub fn spec(&self) -> Result<CryptSpec, Error> {
        let mut spec = CryptSpec::default();
        let options = &mut spec.options;
        options.allow_equal_halves = self.allow_equal_halves;
        options.drivers.clone_from(&self.crypt_provider);
        if self.crypt_table.is_some() {
            spec.table.clone_from(&self.crypt_table);
            return Ok(spec);
        }
        options.cipher = self.crypt.clone().ok_or_else(|| Error::argument("no --crypt was given"))?;
        options.key_bits = self.key_size;
        options.passphrase_hash.clone_from(&self.passphrase_hash);
        options.offset = self.crypt_offset;
        options.iv_offset = self.skip;
        options.sector_size = self.sector_size;
        options.iv_large_sectors = self.iv_large_sectors;
        spec.key = self.key_place();
        Ok(spec)
    }

    /// Where the key is.
    pub fn key_place(&self) -> KeyPlace {
        match (&self.key_file, self.key_fd) {
            (Some(path), _) => KeyPlace::File(path.clone(), self.keyfile_offset),
            (None, Some(number)) => KeyPlace::Descriptor(number, self.keyfile_offset),
            (None, None) => KeyPlace::Asked,
        }
    }

    /// The files that the mapping is read from.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.crypt_table, &self.key_file].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Whether the key comes from standard input, which then has no data.
    pub fn reads_standard_input(&self) -> bool {
        let from_file = self.key_file.as_ref().is_some_and(|path| path.as_os_str() != "-");
        !(from_file || self.key_fd.is_some() || self.crypt_table.is_some())
    }
}
