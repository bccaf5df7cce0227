//! `casemate ext4 df`.

use serde_json::json;

use casemate::Error;

use super::image::ImageArgs;
use crate::answer::Answer;
use crate::context::Context;
use crate::size;

/// Show free space of a file system in KiB, as df does for a mounted one.
#[derive(clap::Args, Debug)]
#[command(
    // -h is that of df.
    disable_help_flag = true,
    after_help = "Examples:\n\
    \x20 casemate ext4 df -h root.img\n\
    \x20 casemate ext4 df disk.img -P 1 --json"
)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// Show inodes, not space.
    #[arg(short = 'i', long)]
    inodes: bool,
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
        let usage = fs.inodes().usage().map_err(|error| self.image.error(error))?;
        let bytes = |blocks: u64| blocks.saturating_mul(fs.inodes().layout().block_size.into());
        let used = usage.blocks.saturating_sub(usage.free);
        if context.json() {
            context.print_json(&json!({
                "image": self.image.file().to_string_lossy(),
                "bytes": bytes(usage.blocks),
                "used": bytes(used),
                "free": bytes(usage.free),
                "available": bytes(usage.available),
                "inodes": usage.inodes,
                "inodes_free": usage.inodes_free,
                "last_mounted_on": fs.inodes().superblock().last_mounted(),
            }))?;
            return Ok(Answer::Yes);
        }
        let (heads, numbers) = match self.inodes {
            true => {
                let used = usage.inodes.saturating_sub(usage.inodes_free);
                (["Inodes", "IUsed", "IFree", "IUse%"], [usage.inodes, used, usage.inodes_free])
            }
            false => {
                let heads = match self.human_readable {
                    true => ["Size", "Used", "Avail", "Use%"],
                    false => ["1K-blocks", "Used", "Available", "Use%"],
                };
                (heads, [usage.blocks, used, usage.available].map(bytes))
            }
        };
        let shown = numbers.map(|number| match (self.human_readable, self.inodes) {
            (true, _) => size::shown(number),
            (false, true) => number.to_string(),
            (false, false) => number.div_ceil(1024).to_string(),
        });
        let [_, used, left] = numbers.map(u128::from);
        let percent = match used + left {
            0 => "-".to_owned(),
            all => format!("{}%", (used * 100).div_ceil(all)),
        };
        let [all, used, left] = shown;
        let name = fs.name();
        let place = match fs.inodes().superblock().last_mounted() {
            place if place.is_empty() => "-".to_owned(),
            place => place,
        };
        // Columns as wide as what is in them, and at least as df makes them.
        let widths = [5, 5, 5, 4];
        let cells = [&all, &used, &left, &percent];
        let width = |at: usize| widths[at].max(heads[at].len()).max(cells[at].len());
        let row = |name: &str, cells: [&str; 4], place: &str| {
            let first = 14.max(fs.name().len());
            let [a, b, c, d] = std::array::from_fn(|at| format!("{:>1$}", cells[at], width(at)));
            format!("{name:<first$} {a} {b} {c} {d} {place}\n")
        };
        let lines = row("Filesystem", heads, "Mounted on") + &row(name, cells.map(String::as_str), &place);
        context.print(lines)?;
        Ok(Answer::Yes)
    }
}
