//! The keys of encrypted files: options that all commands take.

use std::path::PathBuf;

use clap::ValueHint;
use clap::builder::{OsStringValueParser, TypedValueParser};

use casemate::image_spec::{FileSystemSpec, KeyFile};
use casemate::{Error, Keys};

/// Raw keys of encrypted files.
#[derive(clap::Args, Debug)]
pub struct RawKeyArgs {
    /// Read encrypted files with the raw master key in this file (16 to 64 bytes, as fscryptctl takes it); "-" is
    /// standard input. May be repeated. DESCRIPTOR:FILE, with 16 hexadecimal digits, is for version 1 policies with an
    /// unusual descriptor.
    #[arg(long = "fscrypt-key", value_name = "FILE", value_parser = key_file(), value_hint = ValueHint::FilePath, help_heading = "Encrypted files")]
    files: Vec<KeyFile>,
}

/// Keys of encrypted files.
#[derive(clap::Args, Debug)]
pub struct KeyArgs {
    #[command(flatten)]
    raw: RawKeyArgs,
    /// Read encrypted files with google/fscrypt's protectors in the image (/.fscrypt). This file opens them, with a
    /// passphrase in its first line or the 32 bytes of a raw key; "-" is standard input. May be repeated.
    #[arg(long = "fscrypt-passphrase-file", value_name = "FILE", help_heading = "Encrypted files")]
    passphrases: Vec<PathBuf>,
    /// Use the protector in this file instead of those in the image. Protectors of login passphrases are in
    /// /.fscrypt/protectors of the system's root, not of each disk. May be repeated.
    #[arg(
        long = "protector",
        value_name = "FILE",
        requires = "passphrases",
        help_heading = "Encrypted files"
    )]
    protectors: Vec<PathBuf>,
    /// Use the policies and protectors in this folder, a copy of /.fscrypt, instead of those in the image.
    #[arg(long, value_name = "FOLDER", requires = "passphrases", help_heading = "Encrypted files")]
    fscrypt_metadata: Option<PathBuf>,
    /// Multiply the KDF cost limits of protectors by TIMES. The limits for all that are tried: 1 GiB of memory at
    /// once, 64 GiB filled in all passes.
    #[arg(
        long,
        value_name = "TIMES",
        default_value = "1",
        hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..),
        requires = "passphrases",
        help_heading = "Encrypted files"
    )]
    fscrypt_kdf_limit: u32,
}

fn key_file() -> impl TypedValueParser<Value = KeyFile> {
    OsStringValueParser::new().map(|text| KeyFile::parse(&text))
}

impl KeyArgs {
    /// The keys' places as values.
    pub fn spec(&self) -> FileSystemSpec {
        let mut spec = self.raw.spec();
        spec.passphrase_files.clone_from(&self.passphrases);
        spec.protectors.clone_from(&self.protectors);
        spec.metadata.clone_from(&self.fscrypt_metadata);
        spec.kdf_limit = self.fscrypt_kdf_limit;
        spec
    }

    /// All keys that were given.
    pub fn keys(&self) -> Result<Keys, Error> {
        self.spec().keys()
    }
}

impl RawKeyArgs {
    fn spec(&self) -> FileSystemSpec {
        let mut spec = FileSystemSpec::default();
        spec.raw_keys.clone_from(&self.files);
        spec
    }
}
