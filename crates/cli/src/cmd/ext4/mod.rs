//! `casemate ext4`: ext4 images read, checked and changed without mounting them.

mod build;
mod cat;
pub mod change;
pub mod check;
mod chmod;
mod chown;
mod df;
mod diff;
mod digest;
mod du;
pub mod entry;
mod extract;
mod fallocate;
pub mod find;
mod getfattr;
pub mod image;
mod info;
pub mod keys;
mod label;
mod ln;
mod ls;
mod minimize;
mod mkdir;
mod mv;
mod put;
mod readlink;
mod recover;
pub mod resize;
mod rm;
mod setfattr;
mod stat;
pub mod touch;
mod tree;
mod truncate;
pub mod tune;
mod undelete;
mod walk;

use casemate::Error;

use crate::answer::Answer;
use crate::cmd::table::commands;
use crate::context::Context;

/// Read, check and change ext4 images without mounting them.
///
/// Commands that read never write to the image; they replay a journal in memory. They read through layers, named from
/// the image upwards: partition or offset, then --crypt, --luks, --dm-integrity and --dm-verity in the order of the
/// stack. --fsverity of cat and extract checks files with fs-verity.
///
/// Commands that read take the number of an inode for a path, too, as <12> or <12>/name: where no name leads to a file.
///
/// Commands that change an image do so all at once or not at all: through its journal, or without one through a file
/// beside it. Large changes, such as a tree, are done in steps, and the file system is sound after each.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

commands! {
    enum Command {
        Build(build::Args),
        Info(info::Args),
        Ls(ls::Args),
        Tree(tree::Args),
        Stat(stat::Args),
        Find(find::Args),
        Readlink(readlink::Args),
        Getfattr(getfattr::Args),
        Digest(digest::Args),
        Du(du::Args),
        Df(df::Args),
        Cat(cat::Args),
        Extract(extract::Args),
        Undelete(undelete::Args),
        Check(check::Args),
        Diff(diff::Args),
        Put(put::Args),
        Mkdir(mkdir::Args),
        Rm(rm::Args),
        Mv(mv::Args),
        Ln(ln::Args),
        Fallocate(fallocate::Args),
        Truncate(truncate::Args),
        Chmod(chmod::Args),
        Chown(chown::Args),
        Touch(touch::Args),
        Setfattr(setfattr::Args),
        Label(label::Args),
        Tune(tune::Args),
        Resize(resize::Args),
        Minimize(minimize::Args),
        Recover(recover::Args),
    }
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.command.run(context)
    }
}
