//! The options that say how an inode is encrypted, and with which key.

use std::path::PathBuf;

use casemate::blockdev::Uuid;
use casemate::fscrypt::{Context as EncryptionContext, InodeInfo, MasterKey, read_raw_key};
use casemate::hex;
use casemate::{Error, SecretSource};

use super::policy::FscryptPolicyArgs;
use crate::context::Context;
use crate::size::bytes;

/// How an inode is encrypted: by its context, or in words.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Encryption")]
pub struct InodeArgs {
    /// The file with the raw master key; "-" is standard input, /dev/fd/N an open descriptor.
    #[arg(short, long = "fscrypt-key", alias = "key", value_name = "FILE")]
    key: PathBuf,
    /// The file holds the software secret of a hardware-wrapped key.
    #[arg(long)]
    software_secret: bool,
    /// The inode's encryption context, as casemate ext4 stat shows it.
    #[arg(long, value_name = "HEX", conflicts_with_all = ["nonce", "contents", "filenames", "padding", "flag", "policy_version", "data_unit_size"])]
    context: Option<String>,
    /// The inode's nonce.
    #[arg(long, value_name = "HEX", required_unless_present = "context")]
    nonce: Option<String>,
    #[command(flatten)]
    policy: FscryptPolicyArgs,
    /// The inode's number, for the flags iv-ino-lblk.
    #[arg(long = "inode-number", alias = "inode", value_name = "NUMBER", default_value_t = 0)]
    inode: u32,
    /// The file system's UUID, for the flags iv-ino-lblk.
    #[arg(long, value_name = "UUID", default_value = "00000000-0000-0000-0000-000000000000")]
    uuid: String,
    /// The file system's block size.
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = bytes::<u32>)]
    block_size: u32,
}

impl InodeArgs {
    /// The key, and what its derived keys depend on.
    pub fn keyed(&self, context: &Context) -> Result<(MasterKey, InodeInfo), Error> {
        let key = read_key(&self.key, self.software_secret, context)?;
        let encryption = match &self.context {
            Some(text) => {
                let bytes =
                    hex::decode(text).ok_or_else(|| Error::argument("--context: no hexadecimal digits"))?;
                EncryptionContext::from_bytes(&bytes)?
            }
            None => self.described(&key)?,
        };
        let uuid = Uuid::from_text(&self.uuid)?.bytes();
        if !self.block_size.is_power_of_two() || !(512..=1 << 16).contains(&self.block_size) {
            return Err(Error::argument(format!(
                "--block-size {}: a power of two from 512 to 65536",
                self.block_size
            )));
        }
        Ok((key, InodeInfo { context: encryption, number: self.inode, uuid, block_size: self.block_size }))
    }

    fn described(&self, key: &MasterKey) -> Result<EncryptionContext, Error> {
        let policy = self.policy.policy().policy(key)?;
        let nonce = self.nonce.as_deref().unwrap_or_default();
        let nonce = hex::decode(nonce).and_then(|bytes| bytes.try_into().ok());
        let nonce = nonce.ok_or_else(|| Error::argument("--nonce: 32 hexadecimal digits"))?;
        Ok(EncryptionContext { policy, nonce })
    }
}

/// The master key in a file.
pub fn read_key(
    path: &std::path::Path,
    software_secret: bool,
    context: &Context,
) -> Result<MasterKey, Error> {
    let (providers, secret) = (context.providers(), read_raw_key(&SecretSource::file(path))?);
    let key = match software_secret {
        true => MasterKey::from_software_secret(providers, secret),
        false => MasterKey::new(providers, secret),
    };
    key.map_err(|error| Error::argument(format!("{}: {error}", path.display())))
}
