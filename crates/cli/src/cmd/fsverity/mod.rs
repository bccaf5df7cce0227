//! `casemate fsverity`: the commands of `fsverity`, and checking.

mod check;
mod digest;
#[cfg(target_os = "linux")]
mod kernel;
mod parameters;
mod sign;
mod verify;

pub use parameters::{Hex, hex};

use clap::Subcommand;

use casemate::Error;

use crate::answer::Answer;
use crate::context::Context;

/// Compute, sign and check fs-verity digests of files.
///
/// The options and output lines are those of the fsverity tool.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

/// The commands that `fsverity` has too; it knows no others.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, made from the command line")]
pub enum ToolCommand {
    Digest(digest::Args),
    Sign(sign::Args),
    #[cfg(target_os = "linux")]
    Enable(kernel::EnableArgs),
    #[cfg(target_os = "linux")]
    Measure(kernel::MeasureArgs),
    #[cfg(target_os = "linux")]
    #[command(name = "dump_metadata", visible_aliases = ["dump-metadata", "dump"])]
    DumpMetadata(kernel::DumpArgs),
}

/// All commands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, made from the command line")]
pub enum Command {
    #[command(flatten)]
    Tool(ToolCommand),
    Check(check::Args),
    VerifySignature(verify::Args),
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match self.command {
            Command::Tool(command) => command.run(context),
            Command::Check(args) => args.run(context),
            Command::VerifySignature(args) => args.run(context),
        }
    }
}

impl ToolCommand {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match self {
            ToolCommand::Digest(args) => args.run(context),
            ToolCommand::Sign(args) => args.run(context),
            #[cfg(target_os = "linux")]
            ToolCommand::Enable(args) => args.run(context),
            #[cfg(target_os = "linux")]
            ToolCommand::Measure(args) => args.run(context),
            #[cfg(target_os = "linux")]
            ToolCommand::DumpMetadata(args) => args.run(context),
        }
    }
}
