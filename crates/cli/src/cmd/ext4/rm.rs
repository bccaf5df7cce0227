//! `casemate ext4 rm`.

use std::ffi::OsString;

use casemate::Error;
use casemate::blockdev::os::OsStrExt;
use casemate::ext4::InodeNo;

use super::change::{ChangeArgs, is_missing};
use crate::answer::Answer;
use crate::context::Context;

/// Remove files and directories from an image.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  casemate ext4 rm -r root.img /var/cache/apt")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// Paths to remove; a symbolic link itself is removed.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Remove directories with their contents.
    #[arg(short, long)]
    recursive: bool,
    /// Remove empty directories.
    #[arg(short, long)]
    dir: bool,
    /// Ignore paths that do not exist.
    #[arg(short, long)]
    force: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.change.change(context, |writer| {
            for path in &self.paths {
                let bytes = path.as_bytes();
                let inode = match writer.fs().resolve(bytes, false) {
                    Err(_) if self.force && is_missing(writer, bytes) => continue,
                    result => self.change.place(result)?,
                };
                if inode.number() == InodeNo::ROOT {
                    return self.change.place(Err(Error::argument("the root directory can't be removed")));
                }
                if inode.is_dir() && !self.recursive && !self.dir {
                    let text = format!("{}: is a directory; give -r or -d", path.to_string_lossy());
                    return Err(Error::argument(text));
                }
                let removed = if self.recursive { writer.remove_tree(bytes) } else { writer.remove(bytes) };
                self.change.place(removed)?;
            }
            Ok(())
        })
    }
}
