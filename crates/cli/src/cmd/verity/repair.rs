//! `casemate verity repair`.

use std::path::Path;

use serde_json::json;

use casemate::blockdev::Events as _;
use casemate::verity::{Differences, Repaired, Volume};
use casemate::{Error, ErrorKind};

use super::options::{ChangedArgs, Changes, RootHashArgs};
use super::verify::{answer, difference_lines, summary_lines, summary_value};
use crate::answer::Answer;
use crate::cmd::overwrite::OverwriteArgs;
use crate::context::Context;

/// Restore damaged data and hash blocks from parity, in place, and damaged parity from them.
///
/// The hash tree shows which blocks are damaged, the parity restores them; only blocks with the right digest are
/// written. Once all are right, parity that is not theirs is made again. The exit status is 1 if damage is left, and 2 if that can't be read.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate verity repair root.img root.verity @root.hash.txt --fec-device=root.fec -n\n\
    \x20 casemate verity repair root.img root.verity @root.hash.txt --fec-device=root.fec")]
pub struct Args {
    #[command(flatten)]
    changed: ChangedArgs,
    #[command(flatten)]
    root_hash: RootHashArgs,
    #[command(flatten)]
    overwrite: OverwriteArgs,
}

impl Args {
    pub fn run(mut self, context: &Context) -> Result<Answer, Error> {
        let Some(device) = self.changed.stored.fec.fec_device.clone() else {
            return Err(Error::argument("give the device with the parity: --fec-device"));
        };
        let root_hash = self.changed.stored.root_hash(&self.root_hash)?;
        let ChangedArgs { stored, dry_run } = &self.changed;
        let mut volume = self.changed.open(Changes::Data, context)?;
        stored.settle_roots(&mut volume, context)?;
        let size = volume.layout().geometry().data_size();
        let progress = context.progress(&stored.data().display().to_string(), size);
        let work = stored.work(context, &progress);
        let repaired = volume.repair(&root_hash, &work)?;
        drop(progress);
        let parity = match repaired.left.is_clean() {
            true => self.parity(context, &device, &volume, &repaired)?,
            false => {
                if let Some(roots) = volume.fec_roots_by_size() {
                    let device = device.display();
                    context.note(&format!(
                        "{device} was taken for parity with {roots} roots, by its size alone; if it has another number of roots, \
                         --fec-roots gives it"
                    ));
                }
                Parity::default()
            }
        };
        if context.json() {
            let mut value = summary_value(&repaired.left);
            value["repaired_data_blocks"] = repaired.data.count().into();
            value["repaired_hash_blocks"] = repaired.hash_blocks.into();
            let ranges: Vec<_> = repaired.data.iter().map(|range| json!([range.start, range.end])).collect();
            value["repaired_data_ranges"] = ranges.into();
            value["dry_run"] = (*dry_run).into();
            if repaired.left.is_clean() {
                value["fec"] = json!({
                    "wrong_rounds": parity.left.wrong.count(),
                    "unreadable_rounds": parity.left.unreadable.count(),
                    "repaired_rounds": parity.made,
                });
            }
            context.print_json(&value)?;
        } else {
            context.print(lines(&repaired, &parity, *dry_run, context))?;
        }
        let answer = answer(&repaired.left, &parity.left);
        if answer == Answer::Yes {
            context.done_or_tried(*dry_run, stored.data(), "repaired");
        }
        Ok(answer)
    }

    /// Makes the parity again, if it is not that of data and hash area, which are whole.
    fn parity(
        &self,
        context: &Context,
        device: &Path,
        volume: &Volume,
        repaired: &Repaired,
    ) -> Result<Parity, Error> {
        let ChangedArgs { stored, dry_run } = &self.changed;
        let progress = || context.progress(&device.display().to_string(), volume.parity_size());
        let checking = progress();
        let differences = volume.check_parity(&stored.work(context, &checking))?;
        drop(checking);
        if differences.is_empty() {
            return Ok(Parity::default());
        }
        let rounds = differences.all();
        let making = progress();
        let consent = self.overwrite.on_trial(*dry_run);
        match volume.repair_parity(repaired, &rounds, &consent, &stored.work(context, &making)) {
            Ok(unreadable) => {
                let mut left = Differences::default();
                let made = rounds.count() - unreadable.count();
                left.unreadable = unreadable;
                Ok(Parity { left, made })
            }
            // What was restored is told all the same.
            Err(error) if error.kind() == ErrorKind::Argument => {
                drop(making);
                context.complain(&error);
                Ok(Parity { left: differences, made: 0 })
            }
            Err(error) => Err(error),
        }
    }
}

/// State of the parity.
#[derive(Default)]
struct Parity {
    /// Rounds that are still wrong, or can't be read.
    left: Differences,
    /// The number of rounds that were made again.
    made: u64,
}

fn lines(repaired: &Repaired, parity: &Parity, dry_run: bool, context: &Context) -> String {
    let (data, hash) = (repaired.data.count(), repaired.hash_blocks);
    let left = if repaired.left.is_clean() { String::new() } else { summary_lines(&repaired.left, context) };
    let blocks = match (data + hash, dry_run) {
        (0, _) if left.is_empty() => String::new(),
        (_, false) => format!("Restored {data} data blocks and {hash} hash blocks.\n{left}"),
        (_, true) => format!("{data} data blocks and {hash} hash blocks can be restored.\n{left}"),
    };
    let parity = match (parity.made, dry_run) {
        (0, _) if blocks.is_empty() && parity.left.is_empty() => "Nothing is damaged.\n".to_owned(),
        (0, _) => String::new(),
        (made, true) => format!("The parity of {made} rounds can be made again.\n"),
        (made, false) => format!("Made the parity of {made} rounds again.\n"),
    } + &difference_lines(&parity.left, "");
    blocks + &parity
}
