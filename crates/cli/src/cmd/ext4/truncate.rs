//! `casemate ext4 truncate`.

use std::ffi::OsString;

use casemate::Error;
use casemate::blockdev::os::OsStrExt;

use super::change::ChangeArgs;
use crate::answer::Answer;
use crate::context::Context;
use crate::size::bytes;

/// Extend a file of an image with a hole, or cut it.
///
/// A missing file is created.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  casemate ext4 truncate root.img /var/log/wtmp 0")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// The file.
    #[arg(value_name = "PATH")]
    path: OsString,
    /// Its new size in bytes; K, M, G, T stand for powers of 1024, s for sectors of 512 bytes.
    #[arg(value_name = "SIZE", value_parser = bytes::<u64>)]
    size: u64,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.change.change(context, |writer| {
            let path = self.path.as_bytes();
            self.change.make_missing(writer, path)?;
            self.change.place(writer.truncate(path, self.size))
        })
    }
}
