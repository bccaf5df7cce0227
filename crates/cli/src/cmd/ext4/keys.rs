//! The keys of encrypted files: options that all commands take.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use casemate::ext4::{self, Reading};
use casemate::fscrypt::{KeyDescriptor, KeyId, Keyring, read_raw_key};
use casemate::protectors::{self, Secret};
use casemate::{Error, Image};

use crate::context::Context;

/// Raw keys of encrypted files.
#[derive(clap::Args, Debug)]
pub struct RawKeyArgs {
    /// Read encrypted files with the raw master key in this file (16 to 64 bytes, as fscryptctl takes it); "-" is
    /// standard input. May be given several times. DESCRIPTOR, 16 hexadecimal digits, is needed for policies of
    /// version 1 that were given an unusual one.
    #[arg(long = "fscrypt-key", value_name = "[DESCRIPTOR:]FILE", help_heading = "Encrypted files")]
    files: Vec<KeyFile>,
}

/// Keys of encrypted files.
#[derive(clap::Args, Debug)]
pub struct KeyArgs {
    #[command(flatten)]
    raw: RawKeyArgs,
    /// Read encrypted files with what google/fscrypt left in the image (/.fscrypt), opened with the passphrase in this
    /// file, its first line, or with the 32 bytes of a raw key; "-" is standard input. May be given several times.
    #[arg(long = "fscrypt-passphrase-file", value_name = "FILE", help_heading = "Encrypted files")]
    passphrases: Vec<PathBuf>,
    /// Use the protector in this file instead of those in the image: that of a login passphrase lies in /.fscrypt/protectors
    /// of the system's root, not of every disk. May be given several times.
    #[arg(
        long = "protector",
        value_name = "FILE",
        requires = "passphrases",
        help_heading = "Encrypted files"
    )]
    protectors: Vec<PathBuf>,
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
    /// Gives `reading` the keys: raw ones, and those that passphrases open in the file system of `image` itself.
    pub fn give(&self, context: &Context, image: &Image, reading: &mut Reading) -> Result<(), Error> {
        reading.keys = self.raw.keyring(context)?.map(Arc::new);
        if self.passphrases.is_empty() {
            return Ok(());
        }
        let secrets: Vec<Secret> =
            self.passphrases.iter().map(|path| Secret::read(path)).collect::<Result<_, _>>()?;
        let fs = ext4::open(image, reading)?;
        let mut ring = match reading.keys.take() {
            Some(ring) => Arc::unwrap_or_clone(ring),
            None => Keyring::new(context.providers().clone()),
        };
        protectors::unlock(&fs, &mut ring, &secrets, &self.protectors)
            .map_err(|error| error.within(image.name()))?;
        reading.keys = Some(Arc::new(ring));
        Ok(())
    }
}

impl RawKeyArgs {
    /// All raw keys that were given; `None` if there are none.
    pub fn keyring(&self, context: &Context) -> Result<Option<Keyring>, Error> {
        if self.files.is_empty() {
            return Ok(None);
        }
        let mut ring = Keyring::new(context.providers().clone());
        for file in &self.files {
            let key = read_raw_key(&file.path)?;
            let added = match file.descriptor {
                Some(descriptor) => ring.add_with_descriptor(descriptor, key),
                None => ring.add(key).map(|_| ()),
            };
            added.map_err(|error| Error::argument(format!("{}: {error}", file.path.display())))?;
        }
        Ok(Some(ring))
    }
}
