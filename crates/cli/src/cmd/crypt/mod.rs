//! `casemate crypt`: dm-crypt mappings over files.

pub mod mapping;
mod table;
mod transform;

use std::path::Path;

use clap::Subcommand;

use casemate::blockdev::{BlockDevice, Events};
use casemate::crypt::Direction;
use casemate::{Error, probe};

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
    /// Encrypt an image to another file, to standard output, or where it lies.
    Encrypt(transform::Args),
    /// Decrypt an image to another file, to standard output, or where it lies.
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

/// Says that a key may be wrong where what was decrypted with it begins as nothing that is known. Nothing else tells a
/// wrong key from a right one.
pub fn mention_noise(decrypted: &dyn BlockDevice, place: &Path, context: &Context) {
    // Who can't read it will hear so elsewhere.
    if let Ok(None) = probe::device(decrypted) {
        let place = place.display();
        context.note(&format!(
            "{place}: nothing known begins the decrypted data: the key or its options may be wrong"
        ));
    }
}
