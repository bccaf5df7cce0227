//! The keys of encrypted files: options that all commands take.

use std::path::PathBuf;
use std::str::FromStr;

use casemate::fscrypt::{KeyDescriptor, KeyId};
use casemate::{Error, KdfLimits, Keys, SecretSource};

/// Raw keys of encrypted files.
#[derive(clap::Args, Debug)]
pub struct RawKeyArgs {
    /// Read encrypted files with the raw master key in this file (16 to 64 bytes, as fscryptctl takes it); "-" is
    /// standard input. May be repeated. DESCRIPTOR:FILE, with 16 hexadecimal digits, is for version 1 policies with an
    /// unusual descriptor.
    #[arg(long = "fscrypt-key", value_name = "FILE", help_heading = "Encrypted files")]
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

/// A file with a key, and the descriptor that the key has.
#[derive(Clone, Debug)]
struct KeyFile {
    descriptor: Option<KeyDescriptor>,
    path: PathBuf,
}

impl FromStr for KeyFile {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<KeyFile, Self::Err> {
        if let Some((descriptor, path)) = text.split_once(':')
            && let Some(KeyId::Descriptor(descriptor)) = KeyId::from_hex(descriptor)
        {
            return Ok(KeyFile { descriptor: Some(descriptor), path: path.into() });
        }
        Ok(KeyFile { descriptor: None, path: text.into() })
    }
}

impl KeyArgs {
    /// Whether there are any.
    pub fn are_given(&self) -> bool {
        !self.raw.files.is_empty() || !self.passphrases.is_empty()
    }

    /// All keys that were given.
    pub fn keys(&self) -> Result<Keys, Error> {
        let limits = KdfLimits::default().times(self.fscrypt_kdf_limit);
        let mut keys = self.raw.keys()?.with_kdf_limits(limits);
        for path in &self.passphrases {
            keys = keys.with_secret(&SecretSource::file(path))?;
        }
        if let Some(folder) = &self.fscrypt_metadata {
            keys = keys.with_metadata(folder)?;
        }
        Ok(self.protectors.iter().fold(keys, Keys::with_protector))
    }
}

impl RawKeyArgs {
    /// All raw keys that were given.
    pub fn keys(&self) -> Result<Keys, Error> {
        self.files.iter().try_fold(Keys::default(), |keys, file| {
            let source = SecretSource::file(&file.path);
            match file.descriptor {
                Some(descriptor) => keys.with_described(descriptor, &source),
                None => keys.with_raw(&source),
            }
        })
    }
}
