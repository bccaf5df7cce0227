//! `casemate crypt`: dm-crypt mappings over files.

pub mod mapping;
mod table;
mod transform;

use clap::Subcommand;

use casemate::Error;
use casemate::crypt::Direction;

use crate::answer::Answer;
use crate::context::Context;

/// Encrypt and decrypt images as a dm-crypt mapping does.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Encrypt an image to another file, to standard output, or in place.
    Encrypt(transform::Args),
    /// Decrypt an image to another file, to standard output, or in place.
    Decrypt(transform::Args),
    Table(table::Args),
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match self.action {
            Action::Encrypt(args) => args.run(Direction::Encrypt, context),
            Action::Decrypt(args) => args.run(Direction::Decrypt, context),
            Action::Table(args) => args.run(context),
        }
    }
}
