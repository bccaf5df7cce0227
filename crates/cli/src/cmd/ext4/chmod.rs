//! `casemate ext4 chmod`.

use std::ffi::OsString;

use casemate::Error;
use casemate::blockdev::os::{self, OsStrExt};
use casemate::ext4::{FileType, ModeChange};

use super::change::{ChangeArgs, each};
use crate::answer::Answer;
use crate::context::Context;

/// Change permission bits of files in an image.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  casemate ext4 chmod root.img 4755 /bin/su\n  \
    casemate ext4 chmod root.img u+x,go-w /etc/rc.local")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// Octal bits, or changes such as u+x,go=r, as GNU's chmod takes them. A directory's set-user-ID and set-group-ID stay unless
    /// they are named, or octal bits have five digits. Changes without u, g, o and a leave the bits of the umask alone.
    #[arg(value_name = "MODE", allow_hyphen_values = true, value_parser = parse_mode)]
    mode: ModeChange,
    /// The files; symbolic links are followed.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Change directories with their contents; skip links in them.
    #[arg(short = 'R', long)]
    recursive: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let umask = u16::try_from(os::umask() & 0o777).unwrap_or(0);
        self.change.change(context, |writer| {
            for top in &self.paths {
                let changed = each(writer, top.as_bytes(), self.recursive, true, |writer, path, inode| {
                    // Links below have no permissions, and what they lead to may lie elsewhere.
                    if inode.kind() == FileType::Symlink {
                        return Ok(());
                    }
                    let mode = self.mode.apply_with_umask(inode.mode() & 0o7777, inode.is_dir(), umask);
                    writer.set_mode(path, mode)
                });
                self.change.place(changed)?;
            }
            Ok(())
        })
    }
}

/// Octal permission bits.
pub fn parse_octal(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("{text}: not an octal mode"))
}

/// Permission bits: octal, or those that changes such as u+s make of none.
pub fn mode_bits(text: &str) -> Result<u16, String> {
    Ok(parse_mode(text)?.apply(0, false))
}

/// Octal permission bits, or changes.
pub fn parse_mode(text: &str) -> Result<ModeChange, String> {
    text.parse().map_err(|error: Error| error.text().into_owned())
}
