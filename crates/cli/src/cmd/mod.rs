//! The table of commands. Each command is a file: its options, and a `run` that calls the facade and prints.

mod completions;
mod man;

use clap::Subcommand;

use casemate::Error;

use crate::Answer;
use crate::context::Context;

/// All commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match self {
            Command::Completions(args) => args.run(context),
            Command::Man(args) => args.run(context),
        }
    }
}
