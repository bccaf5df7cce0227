//! `casemate ext4 fallocate`.

use std::ffi::OsString;

use casemate::Error;
use casemate::blockdev::os::OsStrExt;

use super::change::ChangeArgs;
use crate::answer::Answer;
use crate::context::Context;
use crate::size::bytes;

/// Allocate the first bytes of a file in an image, in one piece if there is one.
///
/// New bytes read as zeros. A missing file is created. File systems without the feature extent (ext2, ext3) can't mark
/// blocks as unwritten, so zeros are written there, which takes longer.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 casemate ext4 fallocate root.img /swapfile 16M")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// The file.
    #[arg(value_name = "PATH")]
    path: OsString,
    /// Size in bytes; K, M, G, T stand for powers of 1024, s for sectors of 512 bytes.
    #[arg(value_name = "SIZE", value_parser = bytes::<u64>)]
    size: u64,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        if self.size == 0 {
            return Err(Error::argument("0 bytes can't be allocated"));
        }
        self.change.change(context, |writer| {
            let path = self.path.as_bytes();
            self.change.make_missing(writer, path)?;
            self.change.place(writer.allocate_file(path, self.size))
        })
    }
}
