//! The keys of encrypted files: options that all commands take.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use casemate::Error;
use casemate::fscrypt::{Crypto, KeyDescriptor, KeyId, Keyring, read_raw_key};

use crate::context::Context;

/// Keys of encrypted files.
#[derive(clap::Args, Debug)]
pub struct KeyArgs {
    /// Read encrypted files with the raw master key in this file (16 to 64 bytes, as fscryptctl takes it); "-" is
    /// standard input. May be given several times. DESCRIPTOR, 16 hexadecimal digits, is needed for policies of
    /// version 1 that were given an unusual one.
    #[arg(long = "fscrypt-key", value_name = "[DESCRIPTOR:]FILE", help_heading = "Encrypted files")]
    files: Vec<KeyFile>,
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
    /// All keys that were given; `None` if there are none.
    pub fn keyring(&self, context: &Context) -> Result<Option<Arc<Keyring>>, Error> {
        if self.files.is_empty() {
            return Ok(None);
        }
        let mut ring = Keyring::new(Crypto::new(context.cpu()));
        for file in &self.files {
            let key = read_raw_key(&file.path)?;
            let added = match file.descriptor {
                Some(descriptor) => ring.add_with_descriptor(descriptor, key),
                None => ring.add(key).map(|_| ()),
            };
            added.map_err(|error| Error::Argument(format!("{}: {error}", file.path.display())))?;
        }
        Ok(Some(Arc::new(ring)))
    }
}
