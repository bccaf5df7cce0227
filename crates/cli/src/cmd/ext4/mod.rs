//! `casemate ext4`: ext4 images read and checked without mounting them.

mod cat;
mod check;
mod entry;
mod extract;
mod image;
mod info;
mod keys;
mod ls;
mod stat;
mod tree;

use clap::Subcommand;

use casemate::Error;

use crate::Answer;
use crate::context::Context;

/// Read and check ext4 images without mounting them.
///
/// A journal that must be replayed is, in memory: images are never written, except by check --fix-checksums.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Info(info::Args),
    Ls(ls::Args),
    Tree(tree::Args),
    Stat(stat::Args),
    Cat(cat::Args),
    Extract(extract::Args),
    Check(check::Args),
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match self.command {
            Command::Info(args) => args.run(context),
            Command::Ls(args) => args.run(context),
            Command::Tree(args) => args.run(context),
            Command::Stat(args) => args.run(context),
            Command::Cat(args) => args.run(context),
            Command::Extract(args) => args.run(context),
            Command::Check(args) => args.run(context),
        }
    }
}
