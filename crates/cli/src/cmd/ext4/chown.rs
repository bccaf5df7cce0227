//! `casemate ext4 chown`.

use std::ffi::OsString;

use casemate::Error;
use casemate::blockdev::os::OsStrExt;

use super::change::{ChangeArgs, each};
use crate::answer::Answer;
use crate::context::Context;

/// Change owners and groups of files in an image.
///
/// Both are numbers, because names differ between machines.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  casemate ext4 chown root.img 0:0 /etc/shadow\n  \
    casemate ext4 chown root.img :42 /etc/shadow")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// The owner, the group behind a colon, or both.
    #[arg(value_name = "UID:GID", value_parser = parse)]
    owner: Owner,
    /// The files.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Change symbolic links themselves.
    #[arg(long)]
    no_dereference: bool,
    /// Change directories with their contents, and links themselves.
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// New owner and group; `None` stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.change.change(context, |writer| {
            let Owner { uid, gid } = self.owner;
            for top in &self.paths {
                let mut follow = !self.no_dereference;
                let changed = each(writer, top.as_bytes(), self.recursive, follow, |writer, path, _| {
                    writer.set_owner(path, uid, gid, std::mem::take(&mut follow))
                });
                self.change.place(changed)?;
            }
            Ok(())
        })
    }
}

fn parse(text: &str) -> Result<Owner, String> {
    let number = |part: &str| match part {
        "" => Ok(None),
        "root" => Ok(Some(0)),
        // The kernel takes the last number for none.
        _ => match part.parse() {
            Ok(u32::MAX) => Err(format!("{part}: not the number of a user or group")),
            Ok(number) => Ok(Some(number)),
            Err(_) => {
                Err(format!("{part}: not a number; but for root, an image has no names of users and groups"))
            }
        },
    };
    let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
    let owner = Owner { uid: number(uid)?, gid: number(gid)? };
    if owner == (Owner { uid: None, gid: None }) {
        Err("neither owner nor group".to_owned())
    } else {
        Ok(owner)
    }
}

/// An owner and a group, both given.
pub fn parse_both(text: &str) -> Result<(u32, u32), String> {
    let owner = parse(text)?;
    owner.uid.zip(owner.gid).ok_or_else(|| format!("{text}: give owner and group as UID:GID, such as 0:0"))
}
