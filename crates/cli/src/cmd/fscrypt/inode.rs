//! The options that say how an inode is encrypted, and with which key.

use std::path::PathBuf;

use clap::ValueEnum;

use casemate::fscrypt::{
    Context as EncryptionContext, InodeInfo, Ivs, KeyId, MasterKey, Mode, Policy, read_raw_key,
};
use casemate::hex;
use casemate::{Error, SecretSource};

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
    /// The mode of contents.
    #[arg(long, value_name = "MODE", default_value = "aes-256-xts")]
    contents: Mode,
    /// The mode of names and link targets.
    #[arg(long, value_name = "MODE", default_value = "aes-256-cts")]
    filenames: Mode,
    /// What names are padded to a multiple of.
    #[arg(long, value_name = "BYTES", default_value = "32", value_parser = bytes::<usize>)]
    padding: usize,
    /// How keys and IVs are made, if not for each file.
    #[arg(long, value_enum)]
    flag: Option<Flag>,
    /// The policy's version.
    #[arg(long, value_name = "1|2", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    policy_version: u8,
    /// Bytes of a data unit, if they are fewer than a block's.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u32>)]
    data_unit_size: Option<u32>,
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

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Flag {
    DirectKey,
    IvInoLblk64,
    IvInoLblk32,
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
        let uuid = hex::decode(&self.uuid.replace('-', "")).and_then(|bytes| bytes.try_into().ok());
        let uuid = uuid.ok_or_else(|| Error::argument("--uuid: no UUID"))?;
        if !self.block_size.is_power_of_two() || !(512..=1 << 16).contains(&self.block_size) {
            return Err(Error::argument(format!(
                "--block-size {}: a power of two from 512 to 65536",
                self.block_size
            )));
        }
        Ok((key, InodeInfo { context: encryption, number: self.inode, uuid, block_size: self.block_size }))
    }

    fn described(&self, key: &MasterKey) -> Result<EncryptionContext, Error> {
        let id: KeyId = match self.policy_version {
            1 => key.descriptor().into(),
            _ => key.identifier().into(),
        };
        let size = self.data_unit_size.unwrap_or(0);
        if size != 0 && !size.is_power_of_two() {
            return Err(Error::argument(format!("--data-unit-size {size}: it must be a power of two")));
        }
        let policy = Policy {
            padding: self.padding,
            ivs: match self.flag {
                None => Ivs::PerFileKey,
                Some(Flag::DirectKey) => Ivs::DirectKey,
                Some(Flag::IvInoLblk64) => Ivs::InodeBlock64,
                Some(Flag::IvInoLblk32) => Ivs::InodeBlock32,
            },
            // OK to truncate: below 32.
            log2_data_unit_size: size.checked_ilog2().unwrap_or(0) as u8,
            ..Policy::new(id, self.contents, self.filenames)
        };
        // What was asked for is wrong, not something on a disk.
        policy.check().map_err(|error| Error::argument(error.to_string()))?;
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
