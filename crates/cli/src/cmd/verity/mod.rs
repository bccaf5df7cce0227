//! `casemate verity`: the commands of `veritysetup` that need no kernel, and more.

mod dump;
mod format;
pub mod info;
pub mod options;
mod repair;
mod sign;
mod table;
mod update;
mod verify;

use clap::Subcommand;

use casemate::Error;

use crate::answer::Answer;
use crate::context::Context;

/// Make, check and describe dm-verity hash trees.
///
/// Options and output lines are those of veritysetup.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Format(format::Args),
    Verify(verify::Args),
    Dump(dump::Args),
    Table(table::Args),
    Update(update::Args),
    Repair(repair::Args),
    Sign(sign::Args),
    VerifySignature(sign::VerifyArgs),
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match self.command {
            Command::Format(args) => args.run(context),
            Command::Verify(args) => args.run(context),
            Command::Dump(args) => args.run(context),
            Command::Table(args) => args.run(context),
            Command::Update(args) => args.run(context),
            Command::Repair(args) => args.run(context),
            Command::Sign(args) => args.run(context),
            Command::VerifySignature(args) => args.run(context),
        }
    }
}
