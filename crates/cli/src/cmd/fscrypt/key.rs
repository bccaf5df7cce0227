//! `casemate fscrypt key-id` and `casemate fscrypt derive`.

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::json;

use casemate::Error;
use casemate::fscrypt::{KeyId, Purpose};
use casemate::hex;

use super::inode::{InodeArgs, read_key};
use crate::answer::Answer;
use crate::context::Context;

/// Print the identifier of a raw master key, by which policies of version 2 name it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate fscrypt key-id master.key\n\
    \x20 casemate fscrypt key-id --policy-version 1 - < master.key")]
pub struct IdArgs {
    /// The file with the key's bytes; "-" is standard input.
    #[arg(value_name = "KEYFILE")]
    key: PathBuf,
    /// The earlier name of --policy-version 1.
    #[arg(long, hide = true, conflicts_with = "software_secret")]
    descriptor: bool,
    /// The version of the policies that the key is for: 1 prints its usual descriptor, the beginning of SHA-512 of SHA-512
    /// of the key.
    #[arg(long, value_name = "1|2", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    policy_version: u8,
    /// The file holds the software secret of a hardware-wrapped key.
    #[arg(long)]
    software_secret: bool,
}

impl IdArgs {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let key = read_key(&self.key, self.software_secret, context)?;
        let (identifier, descriptor) = (KeyId::from(key.identifier()), KeyId::from(key.descriptor()));
        if context.json() {
            let mut value = json!({"identifier": identifier.to_string()});
            if !self.software_secret {
                value["descriptor"] = descriptor.to_string().into();
            }
            context.print_json(&value)?;
        } else {
            let id = if self.descriptor || self.policy_version == 1 { descriptor } else { identifier };
            context.print(format!("{id}\n"))?;
        }
        Ok(Answer::Yes)
    }
}

/// Print a key that is derived from a master key, in hexadecimal.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate ext4 stat --json root.img /home | jq -r .encryption_context > context\n\
    \x20 casemate fscrypt derive filenames --fscrypt-key master.key --context \"$(cat context)\"")]
pub struct DeriveArgs {
    /// Purpose of the key.
    #[arg(value_name = "PURPOSE")]
    purpose: DerivedKey,
    #[command(flatten)]
    inode: InodeArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DerivedKey {
    /// Encrypts contents.
    Contents,
    /// Encrypts names and link targets.
    Filenames,
    /// Hashes the names of a casefolded directory (SipHash-2-4).
    Dirhash,
    /// Hashes inode numbers for IV_INO_LBLK_32 (SipHash-2-4).
    InodeHash,
}

impl DeriveArgs {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let (key, inode) = self.inode.keyed(context)?;
        let policy = &inode.context.policy;
        let hkdf = |purpose, extra: &[u8]| match policy.version() {
            1 => Err(Error::argument("policies of version 1 have no such key")),
            _ => Ok(key.derive(purpose, extra, 16)),
        };
        let derived = match self.purpose {
            DerivedKey::Contents => key.file_key(policy.contents, &inode)?,
            DerivedKey::Filenames => key.file_key(policy.names, &inode)?,
            DerivedKey::Dirhash => hkdf(Purpose::DirHashKey, &inode.context.nonce)?,
            DerivedKey::InodeHash => hkdf(Purpose::InodeHashKey, &[])?,
        };
        let text = hex::encode(derived.expose());
        match context.json() {
            true => context.print_json(&json!({"key": text}))?,
            false => context.print(format!("{text}\n"))?,
        }
        Ok(Answer::Yes)
    }
}
