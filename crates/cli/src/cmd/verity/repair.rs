//! `casemate verity repair`.

use serde_json::json;

use casemate::Error;
use casemate::verity::Repaired;

use super::options::{Changes, RootHashArgs, StoredArgs};
use super::verify::{summary_lines, summary_value};
use crate::answer::Answer;
use crate::context::Context;

/// Restore damaged data and hash blocks from parity, in place.
///
/// The hash tree says which blocks are damaged, the parity what they were; nothing is written whose digest is not
/// the right one. The exit status is 1 if something is left that could not be restored.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate verity repair root.img root.verity @root.hash.txt --fec-device=root.fec -n\n\
    \x20 casemate verity repair root.img root.verity @root.hash.txt --fec-device=root.fec")]
pub struct Args {
    #[command(flatten)]
    stored: StoredArgs,
    #[command(flatten)]
    root_hash: RootHashArgs,
    /// Say what could be restored, and write nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        if self.stored.fec.fec_device.is_none() {
            return Err(Error::argument("give the device with the parity: --fec-device"));
        }
        let root_hash = self.root_hash.get()?;
        let changes = if self.dry_run { Changes::Nothing } else { Changes::Data };
        let volume = self.stored.open(changes, context)?;
        let size = volume.layout().geometry().data_size();
        let progress = context.progress(&self.stored.data.display().to_string(), size);
        let work = self.stored.work(context, &progress);
        let repaired = match self.dry_run {
            true => volume.try_repair(&root_hash, &work)?.0,
            false => volume.repair(&root_hash, &work)?,
        };
        drop(progress);
        if context.json() {
            let mut value = summary_value(&repaired.left);
            value["repaired_data_blocks"] = repaired.data.count().into();
            value["repaired_hash_blocks"] = repaired.hash_blocks.into();
            let ranges: Vec<_> = repaired.data.iter().map(|range| json!([range.start, range.end])).collect();
            value["repaired_data_ranges"] = ranges.into();
            context.print_json(&value)?;
        } else {
            context.print(lines(&repaired, self.dry_run))?;
        }
        Ok(if repaired.left.is_clean() { Answer::Yes } else { Answer::No })
    }
}

fn lines(repaired: &Repaired, dry_run: bool) -> String {
    let (data, hash) = (repaired.data.count(), repaired.hash_blocks);
    let left = if repaired.left.is_clean() { String::new() } else { summary_lines(&repaired.left) };
    match (data + hash, dry_run) {
        (0, _) if left.is_empty() => "Nothing is damaged.\n".to_owned(),
        (_, false) => format!("Restored {data} data blocks and {hash} hash blocks.\n{left}"),
        (_, true) => format!("{data} data blocks and {hash} hash blocks can be restored.\n{left}"),
    }
}
