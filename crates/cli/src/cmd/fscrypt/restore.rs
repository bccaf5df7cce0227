//! `casemate fscrypt restore`.

use std::ffi::OsString;
use std::path::PathBuf;

use casemate::Error;
use casemate::backup;
use casemate::blockdev::os::OsStrExt;

use super::backup::open;
use crate::answer::Answer;
use crate::cmd::ext4::change::{ChangeArgs, print_report};
use crate::context::Context;

/// Restore a backup into an ext4 image, with encrypted files as ciphertext, without their key.
///
/// PATH becomes the backup's top directory. It must not exist, or be a directory that is not encrypted, which is added
/// to. Names, contents and targets stay ciphertext, contexts and nonces are kept: the same key opens them. The restore
/// is complete or has no effect, so the changed metadata must fit the image's journal. Policies with IV_INO_LBLK_64 or
/// IV_INO_LBLK_32, images with other blocks than the backup's, and casefolded encrypted directories are refused.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate fscrypt backup root.img /home home.tar\n\
    \x20 truncate -s 64M new.img && mke2fs -q -t ext4 -O encrypt new.img\n\
    \x20 casemate fscrypt restore home.tar new.img /home")]
pub struct Args {
    /// The backup; "-" is standard input.
    #[arg(value_name = "TAR")]
    tar: PathBuf,
    #[command(flatten)]
    change: ChangeArgs,
    /// The directory of the image.
    #[arg(value_name = "PATH")]
    path: OsString,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut input = open(&self.tar)?;
        let name = self.tar.display().to_string();
        let report = self.change.change_with(context, |writer| {
            let progress = context.progress(&name, 0);
            let path = self.path.as_bytes();
            let work = context.work(context.providers().clone(), &progress);
            backup::restore(&mut input, &name, writer, path, &work)
        })?;
        print_report(context, &self.change, &report)?;
        Ok(Answer::Yes)
    }
}
