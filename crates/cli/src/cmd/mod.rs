//! The table of commands. Each command is a file: its options, and a `run` that calls the facade and prints.

mod base64;
mod completions;
mod crypt;
pub mod ends;
mod explained;
pub mod ext4;
mod fscrypt;
pub mod fsverity;
pub mod info;
mod integrity;
pub mod layers;
pub mod luks;
mod man;
mod overlay;
mod providers;
mod serve;
pub mod signer;
pub mod verity;

use clap::Subcommand;

use casemate::Error;

use crate::answer::Answer;
use crate::context::Context;

/// All commands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, made from the command line")]
pub enum Command {
    Base64(base64::Args),
    Completions(completions::Args),
    Crypt(crypt::Args),
    Ext4(ext4::Args),
    Fscrypt(fscrypt::Args),
    Fsverity(fsverity::Args),
    Info(info::Args),
    Integrity(integrity::Args),
    Luks(luks::Args),
    Man(man::Args),
    Overlay(overlay::Args),
    Providers(providers::Args),
    Serve(serve::Args),
    Verity(verity::Args),
}

impl Command {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match self {
            Command::Base64(args) => args.run(context),
            Command::Completions(args) => args.run(context),
            Command::Crypt(args) => args.run(context),
            Command::Ext4(args) => args.run(context),
            Command::Fscrypt(args) => args.run(context),
            Command::Fsverity(args) => args.run(context),
            Command::Info(args) => args.run(context),
            Command::Integrity(args) => args.run(context),
            Command::Luks(args) => args.run(context),
            Command::Man(args) => args.run(context),
            Command::Overlay(args) => args.run(context),
            Command::Providers(args) => args.run(context),
            Command::Serve(args) => args.run(context),
            Command::Verity(args) => args.run(context),
        }
    }
}
