//! `casemate ext4 touch`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use casemate::Error;
use casemate::ext4::Time;

use super::change::{ChangeArgs, is_missing};
use crate::answer::Answer;
use crate::context::Context;

/// Change times of files in an image; make files that are not there, empty.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
    \x20 casemate ext4 touch root.img --date @1700000000 /etc/.updated")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// The files; symbolic links are followed.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Only the time of access.
    #[arg(short)]
    accessed: bool,
    /// Only the time of modification.
    #[arg(short)]
    modified: bool,
    /// Make no files.
    #[arg(short = 'c', long)]
    no_create: bool,
    /// The time, as seconds since 1970 behind an @ [default: now].
    #[arg(short, long, value_name = "@SECONDS", value_parser = parse)]
    date: Option<Time>,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.change.change(context, |writer| {
            let time = self.date.unwrap_or_else(|| writer.time());
            let accessed = (self.accessed || !self.modified).then_some(time);
            let modified = (self.modified || !self.accessed).then_some(time);
            for path in &self.paths {
                let path = path.as_bytes();
                if self.no_create && is_missing(writer, path) {
                    continue;
                }
                self.change.make_missing(writer, path)?;
                let is_now = self.date.is_none() && accessed.is_some() && modified.is_some();
                let touched = if is_now {
                    writer.set_times_to_now(path)
                } else {
                    writer.set_times(path, accessed, modified)
                };
                self.change.place(touched)?;
            }
            Ok(())
        })
    }
}

fn parse(text: &str) -> Result<Time, String> {
    let seconds = text.strip_prefix('@').and_then(|text| text.parse().ok());
    let seconds = seconds.ok_or_else(|| format!("{text}: not seconds since 1970 behind an @"))?;
    Ok(Time { seconds, nanoseconds: 0 })
}
