//! `casemate ext4 put`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use casemate::Error;
use casemate::ext4::PutOptions;

use super::change::{ChangeArgs, print_report};
use crate::Answer;
use crate::context::Context;

/// Copy files or trees into an image.
///
/// Modes, owners, times of modification, holes, links and extended attributes are kept. What goes into an
/// existing directory keeps its name; SRC/. stands for what is in SRC. An existing file is replaced by a new one.
/// A large tree is committed in parts: if it is interrupted, whole files are there.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  casemate ext4 put root.img motd /etc/motd\n  \
    casemate ext4 put -r root.img rootfs/. /")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// The file or folder to copy.
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// Where to in the image.
    #[arg(value_name = "DST")]
    destination: OsString,
    /// Copy folders with all that is in them.
    #[arg(short, long)]
    recursive: bool,
    /// Give everything to this owner and group, by their numbers.
    #[arg(long, value_name = "UID:GID", value_parser = super::chown::parse_both)]
    owner: Option<(u32, u32)>,
    /// Leave extended attributes out.
    #[arg(long)]
    no_xattrs: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut writer = self.change.open(context)?;
        let progress = context.progress(&self.source.display().to_string(), 0);
        let options = PutOptions {
            recursive: self.recursive,
            owner: self.owner,
            xattrs: !self.no_xattrs,
            progress: &progress,
        };
        let result = writer.put(&self.source, self.destination.as_bytes(), &options);
        drop(progress);
        let report = self.change.place(result)?;
        self.change.place(writer.commit())?;
        print_report(context, &report)?;
        Ok(Answer::Yes)
    }
}
