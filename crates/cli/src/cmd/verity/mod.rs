//! `casemate verity`: the commands of `veritysetup` that need no kernel, and more.

mod dump;
mod format;
pub mod hash;
pub mod info;
pub mod options;
mod repair;
mod sign;
mod table;
mod update;
mod verify;

use casemate::Error;

use crate::answer::Answer;
use crate::cmd::table::commands;
use crate::context::Context;

/// Make, check and describe dm-verity hash trees.
///
/// Options and output lines are those of veritysetup.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

commands! {
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
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.command.run(context)
    }
}
