//! `casemate ext4 mkdir`.

use std::ffi::OsString;

use casemate::Error;
use casemate::blockdev::os::OsStrExt;

use super::change::{ChangeArgs, node};
use super::chmod::parse_octal;
use crate::answer::Answer;
use crate::context::Context;

/// Make directories in an image.
///
/// A directory inherits the group of its parent if that has the set-group-ID bit, and the parent's default ACL.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  casemate ext4 mkdir -p root.img /var/lib/app")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// The directories.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Create missing parents, too, with the usual permission bits; existing directories are accepted.
    #[arg(short, long)]
    parents: bool,
    /// Permission bits, octal; a default ACL removes some [default: 755, or the default ACL's].
    #[arg(short, long, value_name = "MODE", value_parser = parse_octal)]
    mode: Option<u16>,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.change.change(context, |writer| {
            self.paths.iter().try_for_each(|path| {
                let made = writer.make_directory(path.as_bytes(), &node(self.mode, 0o777), self.parents);
                self.change.place(made)
            })
        })
    }
}
