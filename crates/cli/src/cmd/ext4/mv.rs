//! `casemate ext4 mv`.

use std::ffi::OsString;

use casemate::Error;
use casemate::blockdev::os::OsStrExt;

use super::change::ChangeArgs;
use crate::answer::Answer;
use crate::context::Context;

/// Rename or move files and directories inside an image.
///
/// An existing directory TO receives them under their own names. An existing file TO is replaced. If FROM and TO are two names of
/// one file, FROM is removed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  casemate ext4 mv root.img /etc/motd /etc/motd.old")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// Paths to move.
    #[arg(value_name = "FROM")]
    from: OsString,
    /// The new name, or the directory to move into.
    #[arg(value_name = "TO")]
    to: OsString,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.change.change(context, |writer| {
            let from = self.from.as_bytes();
            let to = into(writer, from, self.to.as_bytes());
            self.change.place(writer.move_name(from, &to))
        })
    }
}

/// The whole new name of `from`: `to`, or a name in `to` if that is a directory.
pub fn into(writer: &casemate::ext4::Writer, from: &[u8], to: &[u8]) -> Vec<u8> {
    if !writer.fs().resolve(to, true).is_ok_and(|inode| inode.is_dir()) {
        return to.to_vec();
    }
    let name = from.split(|byte| *byte == b'/').rfind(|part| !part.is_empty()).unwrap_or(b"");
    [to, b"/", name].concat()
}
