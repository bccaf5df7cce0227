//! `casemate ext4 du`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{BufWriter, Write};

use casemate::Error;
use casemate::ext4::Inode;

use super::entry::{path_value, shown};
use super::image::ImageArgs;
use super::walk::{Step, walk};
use crate::answer::Answer;
use crate::context::{Context, Failures};
use crate::size;

/// Show the space that directories with their contents take, in KiB, as du does. Files with several names count once.
///
/// With --json, one object a line, in bytes.
#[derive(clap::Args, Debug)]
#[command(
    // -h is that of du.
    disable_help_flag = true,
    after_help = "Examples:\n\
    \x20 casemate ext4 du -sh root.img /usr /var\n\
    \x20 casemate ext4 du -d 1 root.img"
)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// Paths to count [default: the root directory].
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// Show files, too.
    #[arg(short = 'a', long, conflicts_with = "summarize")]
    all: bool,
    /// Show totals for the given paths only.
    #[arg(short = 's', long, conflicts_with = "max_depth")]
    summarize: bool,
    /// Show at most N levels below; totals include all levels.
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<usize>,
    /// Count file sizes, not allocated space: holes count, the unused end of the last block does not.
    #[arg(long)]
    apparent_size: bool,
    /// Show sizes as 1.5K, 23M, 4G: in powers of 1024, rounded up.
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let fs = self.image.open(context)?;
        let block_size = fs.inodes().layout().block_size;
        let most = if self.summarize { Some(0) } else { self.max_depth };
        let mut failures = Failures::default();
        let mut out = BufWriter::new(context.output());
        // Files with several names, and what was named before.
        let mut counted = HashSet::new();
        // Bytes so far of the directories down to here.
        let mut sums: Vec<u64> = Vec::new();
        let bytes = |inode: &Inode| match self.apparent_size {
            true if inode.is_dir() => 0,
            true => inode.size(),
            false => inode.sectors(block_size).saturating_mul(512),
        };
        walk(&fs, &self.paths, |step, depth| {
            let (path, sum, is_dir) = match step {
                Step::Found(_, inode) if inode.is_dir() => {
                    let is_new = counted.insert(inode.number());
                    if is_new {
                        sums.push(bytes(inode));
                    }
                    return Ok(is_new);
                }
                Step::Found(_, inode) if inode.links() > 1 && !counted.insert(inode.number()) => {
                    return Ok(false);
                }
                Step::Found(path, inode) => (path, bytes(inode), false),
                Step::Left(path) => (path, sums.pop().unwrap_or(0), true),
                Step::Failed(error) => {
                    failures.add(context, self.image.error(error));
                    return Ok(false);
                }
            };
            if let Some(above) = sums.last_mut() {
                *above = above.saturating_add(sum);
            }
            let is_shown = is_dir || self.all || depth == 0;
            if is_shown && most.is_none_or(|most| depth <= most) {
                let line = self.line(path, sum, context)?;
                out.write_all(&line).map_err(|error| Error::io("standard output", error))?;
            }
            Ok(false)
        })?;
        out.flush().map_err(|error| Error::io("standard output", error))?;
        failures.finish()
    }

    fn line(&self, path: &[u8], bytes: u64, context: &Context) -> Result<Vec<u8>, Error> {
        if context.json() {
            let mut value = path_value(path);
            value["bytes"] = bytes.into();
            return context.json_line(&value);
        }
        let size = if self.human_readable { size::shown(bytes) } else { bytes.div_ceil(1024).to_string() };
        Ok([size.as_bytes(), b"\t", &shown(path), b"\n"].concat())
    }
}
