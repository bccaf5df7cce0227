//! `casemate ext4 resize`.

use serde_json::json;

use casemate::ext4::{Resize, ResizeReport, Tail};
use casemate::{Error, probe};

use super::change::{ChangeArgs, Prepared};
use crate::answer::Answer;
use crate::cmd::explained::explained;
use crate::context::Context;
use crate::size::bytes;

/// Make a file system larger or smaller.
///
/// Without a size it gets that of the image. A file that is too small is extended by a hole; a file keeps its size where
/// the file system shrinks, unless --truncate is given. Where it shrinks, it is checked first, and what lies behind the new
/// end is moved. If that is interrupted, the next casemate command that writes to the image, or `casemate ext4 recover`,
/// completes it: run that before e2fsck or a mount.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  casemate ext4 resize root.img 96M\n  \
    casemate ext4 resize root.img 48M --truncate\n  casemate ext4 resize root.img")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// The new size in bytes; K, M, G, T stand for powers of 1024, s for sectors of 512 bytes.
    #[arg(value_name = "SIZE", value_parser = bytes::<u64>)]
    size: Option<u64>,
    /// Cut the file behind the file system.
    #[arg(long)]
    truncate: bool,
    /// Grow into bytes that hold something else, which is lost.
    #[arg(long)]
    overwrite: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let mut resize = Resize::default();
        resize.size = self.size;
        resize.overwrite = self.overwrite;
        resize.tail = if self.truncate { Tail::Cut } else { Tail::Keep };
        run(&self.change, resize, context)
    }
}

/// Gives a file system another size, and prints which.
pub fn run(change: &ChangeArgs, resize: Resize, context: &Context) -> Result<Answer, Error> {
    let Prepared { image, options, scratch: _scratch } = change.prepare(context)?;
    let resized = image.ext4_resize(&options, resize, &context.opening());
    let report = resized.map_err(|error| explained(error, &image, probe::EXT))?;
    let ResizeReport { block_size, blocks_before, blocks, blocks_moved, inodes_moved, .. } = report;
    if context.json() {
        context.print_json(&json!({
            "image": change.file().to_string_lossy(),
            "dry_run": change.is_dry_run(),
            "block_size": block_size,
            "blocks_before": blocks_before,
            "blocks": blocks,
            "bytes": report.bytes(),
            "blocks_moved": blocks_moved,
            "inodes_moved": inodes_moved,
        }))?;
    }
    let rest = image.device().size().saturating_sub(report.bytes());
    let rest = match rest >= u64::from(block_size) && !resize.least {
        true => format!("; the file keeps {rest} bytes behind it, which --truncate cuts off"),
        false => String::new(),
    };
    let what = match blocks_before == blocks {
        true => format!("{blocks} blocks of {block_size} bytes, as before"),
        false => {
            format!("{blocks} blocks of {block_size} bytes, before {blocks_before}; {blocks_moved} moved")
        }
    };
    change.done(context, &(what + &rest));
    Ok(Answer::Yes)
}
