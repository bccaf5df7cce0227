//! `casemate fscrypt`: the cryptography of fscrypt without a file system, for scripts and tests.

mod backup;
mod contents;
mod inode;
mod key;
mod names;
mod policy;
mod restore;
mod set_policy;

use clap::Subcommand;

pub use policy::FscryptPolicyArgs;

use casemate::Error;
use casemate::crypt::Direction;

use crate::answer::Answer;
use crate::context::Context;

/// Name keys, derive keys, and encrypt and decrypt names and contents as fscrypt does.
///
/// Encrypted images are read with casemate ext4 and its option --fscrypt-key.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, made from the command line")]
enum Command {
    KeyId(key::IdArgs),
    Derive(key::DeriveArgs),
    EncryptName(names::EncryptArgs),
    DecryptName(names::DecryptArgs),
    NokeyName(names::NoKeyArgs),
    SetPolicy(set_policy::Args),
    /// Encrypt a file's contents, whole data units; the end is filled up with zeros.
    Encrypt(contents::Args),
    /// Decrypt a file's contents, whole data units.
    Decrypt(contents::Args),
    Backup(backup::BackupArgs),
    Extract(backup::ExtractArgs),
    Restore(restore::Args),
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match self.command {
            Command::KeyId(args) => args.run(context),
            Command::Derive(args) => args.run(context),
            Command::EncryptName(args) => args.run(context),
            Command::DecryptName(args) => args.run(context),
            Command::NokeyName(args) => args.run(context),
            Command::SetPolicy(args) => args.run(context),
            Command::Encrypt(args) => args.run(Direction::Encrypt, context),
            Command::Decrypt(args) => args.run(Direction::Decrypt, context),
            Command::Backup(args) => args.run(context),
            Command::Extract(args) => args.run(context),
            Command::Restore(args) => args.run(context),
        }
    }
}
