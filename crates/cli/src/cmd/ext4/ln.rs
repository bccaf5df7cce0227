//! `casemate ext4 ln`.

use std::ffi::OsString;

use casemate::Error;
use casemate::blockdev::os::OsStrExt;

use super::change::{ChangeArgs, node};
use crate::answer::Answer;
use crate::context::Context;

/// Make links inside an image: hard ones, or symbolic ones with -s.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  casemate ext4 ln -s root.img ../usr/lib/os-release /etc/release")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// The file to link to, or any text as a symbolic link's target.
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// The new name, or the directory to make it in.
    #[arg(value_name = "LINK")]
    link: OsString,
    /// Make a symbolic link.
    #[arg(short, long)]
    symbolic: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.change.change(context, |writer| {
            let target = self.target.as_bytes();
            let link = super::mv::into(writer, target, self.link.as_bytes());
            let made = if self.symbolic {
                writer.make_symlink(&link, target, &node(Some(0o777), 0))
            } else {
                writer.link(target, &link)
            };
            self.change.place(made)
        })
    }
}
