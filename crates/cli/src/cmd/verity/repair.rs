//! `casemate verity repair`.

use serde_json::json;

use casemate::Error;
use casemate::verity::Repaired;

use super::options::{ChangedArgs, Changes, RootHashArgs};
use super::verify::{summary_lines, summary_value};
use crate::answer::Answer;
use crate::context::Context;

/// Restore damaged data and hash blocks from parity, in place.
///
/// The hash tree shows which blocks are damaged, the parity restores them; only blocks with the right digest are
/// written. The exit status is 1 if some blocks could not be restored.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate verity repair root.img root.verity @root.hash.txt --fec-device=root.fec -n\n\
    \x20 casemate verity repair root.img root.verity @root.hash.txt --fec-device=root.fec")]
pub struct Args {
    #[command(flatten)]
    changed: ChangedArgs,
    #[command(flatten)]
    root_hash: RootHashArgs,
}

impl Args {
    pub fn run(mut self, context: &Context) -> Result<Answer, Error> {
        if self.changed.stored.fec.fec_device.is_none() {
            return Err(Error::argument("give the device with the parity: --fec-device"));
        }
        let root_hash = self.changed.stored.root_hash(&self.root_hash)?;
        let ChangedArgs { stored, dry_run } = &self.changed;
        let volume = self.changed.open(Changes::Data, context)?;
        let size = volume.layout().geometry().data_size();
        let progress = context.progress(&stored.data().display().to_string(), size);
        let work = stored.work(context, &progress);
        let repaired = volume.repair(&root_hash, &work)?;
        drop(progress);
        if context.json() {
            let mut value = summary_value(&repaired.left);
            value["repaired_data_blocks"] = repaired.data.count().into();
            value["repaired_hash_blocks"] = repaired.hash_blocks.into();
            let ranges: Vec<_> = repaired.data.iter().map(|range| json!([range.start, range.end])).collect();
            value["repaired_data_ranges"] = ranges.into();
            value["dry_run"] = (*dry_run).into();
            context.print_json(&value)?;
        } else {
            context.print(lines(&repaired, *dry_run))?;
        }
        if !repaired.left.is_clean() {
            return Ok(Answer::No);
        }
        context.done_or_tried(*dry_run, stored.data(), "repaired");
        Ok(Answer::Yes)
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
