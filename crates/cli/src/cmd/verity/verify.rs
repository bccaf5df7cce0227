//! `casemate verity verify`.

use std::fmt::Write as _;
use std::io::{BufWriter, Write};

use serde_json::json;

use casemate::Error;
use casemate::tree::{Block, Fault, Finding, Ranges, Summary};
use casemate::verity::{Differences, Layout, Repaired, Volume, hex};

use super::options::{RootHashArgs, StoredArgs};
use crate::answer::Answer;
use crate::context::Context;

/// Check a data device against its hash area and root hash.
///
/// Prints wrong blocks: hash blocks of the highest level first, data blocks last, and of each the first 20; -v and --json list them
/// all. The exit status is 1 then, and 2 if blocks can't be read and no other is wrong. Bytes behind the
/// protected data blocks are not checked; -v and --json tell how many there are.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate verity verify root.img root.verity @root.hash.txt\n\
    \x20 casemate verity verify root.img root.verity --root-hash-file=root.hash.txt --json\n\
    \x20 casemate verity verify boot.img @boot.txt   # the hash area lies behind the file system")]
pub struct Args {
    #[command(flatten)]
    stored: StoredArgs,
    #[command(flatten)]
    root_hash: RootHashArgs,
}

impl Args {
    pub fn run(mut self, context: &Context) -> Result<Answer, Error> {
        let root_hash = self.stored.root_hash(&self.root_hash)?;
        let mut volume = self.stored.open(context)?;
        let layout = volume.layout().clone();
        let progress =
            context.progress(&self.stored.data().display().to_string(), layout.geometry().data_size());
        let mut out = BufWriter::new(context.output());
        let mut separator = "{\"findings\":[";
        let mut lines = Lines { all: context.verbose(), ..Lines::default() };
        let mut report = |finding: Finding| {
            if !context.json() {
                return match lines.has_room(&finding) {
                    true => Ok(out.write_all(line(&layout, &finding).as_bytes())?),
                    false => Ok(()),
                };
            }
            write!(out, "{separator}{}", value(&layout, &finding))?;
            separator = ",";
            Ok(())
        };
        let summary = volume.verify(&root_hash, &self.stored.work(context, &progress), &mut report)?;
        drop(progress);
        let opened = if separator == "," { "" } else { separator };
        out.flush().map_err(|error| Error::io("standard output", error))?;
        let parity = self.parity(context, &mut volume, &root_hash, &summary)?;
        if context.json() {
            let mut rest = summary_value(&summary);
            rest["data_blocks"] = layout.geometry().data_blocks().into();
            rest["unprotected_bytes"] = volume.unprotected_bytes().into();
            if let Some(parity) = &parity {
                rest["fec"] = parity.value();
            }
            // The object goes on after the findings, which were printed as they were found.
            context.print(format!("{opened}],{}\n", &rest.to_string()[1..]))?;
        } else {
            let text = if summary.is_clean() { String::new() } else { summary_lines(&summary, context) };
            let text = lines.left_out() + &text;
            context.print(text + &parity.as_ref().map_or(String::new(), Parity::lines))?;
        }
        let differences = match &parity {
            Some(Parity::Wrong(differences)) => differences.clone(),
            _ => Differences::default(),
        };
        let answer = answer(&summary, &differences);
        if answer == Answer::Yes {
            let blocks = layout.geometry().data_blocks();
            let behind = match volume.unprotected_bytes() {
                0 => String::new(),
                bytes => format!("; the root hash says nothing of the {bytes} bytes behind them"),
            };
            let name = self.stored.data().display();
            context.done(format_args!("{name}: verified, {blocks} data blocks{behind}"));
        }
        Ok(answer)
    }

    /// With parity: whether it is right, or what it could restore.
    fn parity(
        &self,
        context: &Context,
        volume: &mut Volume,
        root_hash: &[u8],
        summary: &Summary,
    ) -> Result<Option<Parity>, Error> {
        if volume.fec_layout().is_none() {
            return Ok(None);
        }
        let device = self.stored.fec.fec_device.as_deref().unwrap_or(self.stored.hash());
        let progress = context.progress(&device.display().to_string(), volume.parity_size());
        let work = self.stored.work(context, &progress);
        if !summary.is_clean() {
            self.stored.settle_roots(volume, context)?;
            return Ok(Some(Parity::Could(volume.try_repair(root_hash, &work)?.repaired)));
        }
        let mut wrong = volume.check_parity(&work)?;
        if !wrong.is_empty() && self.stored.settle_roots(volume, context)? {
            wrong = volume.check_parity(&work)?;
        }
        Ok(Some(Parity::Wrong(wrong)))
    }
}

/// Lines of wrong hash blocks, or of wrong data blocks, that are printed where nobody asks for more.
const SHOWN: usize = 20;

/// Lines of findings that were printed, and those that were not.
#[derive(Default)]
struct Lines {
    /// Whether all are.
    all: bool,
    hash: usize,
    data: usize,
}

impl Lines {
    /// Counts a finding; whether its line is printed.
    fn has_room(&mut self, finding: &Finding) -> bool {
        let count = match finding.block {
            Block::Hash { .. } => &mut self.hash,
            Block::Data(_) => &mut self.data,
        };
        *count += 1;
        self.all || *count <= SHOWN
    }

    /// A line about those that were not printed.
    fn left_out(&self) -> String {
        match self.hash.saturating_sub(SHOWN) + self.data.saturating_sub(SHOWN) {
            left_out if left_out > 0 && !self.all => {
                format!("and {left_out} more wrong blocks; --verbose shows all\n")
            }
            _ => String::new(),
        }
    }
}

/// State of the parity.
enum Parity {
    /// Everything else is right; in these rounds the parity is not.
    Wrong(Differences),
    /// Blocks that could be restored.
    Could(Repaired),
}

impl Parity {
    fn lines(&self) -> String {
        match self {
            Parity::Wrong(differences) => difference_lines(differences, "; make it again"),
            Parity::Could(repaired) => {
                let (data, hash) = (repaired.data.count(), repaired.hash_blocks);
                let all = if repaired.left.is_clean() { "that is all" } else { "that is not all" };
                format!(
                    "'casemate verity repair' can restore {data} data blocks and {hash} hash blocks: {all}\n"
                )
            }
        }
    }

    fn value(&self) -> serde_json::Value {
        match self {
            Parity::Wrong(differences) => json!({
                "wrong_rounds": differences.wrong.count(),
                "unreadable_rounds": differences.unreadable.count(),
                "unreadable_round_ranges": ranges(&differences.unreadable),
            }),
            Parity::Could(repaired) => json!({
                "repairable_data_blocks": repaired.data.count(),
                "repairable_hash_blocks": repaired.hash_blocks,
                "repairs_all": repaired.left.is_clean(),
            }),
        }
    }
}

/// Lines on parity that differs or can't be read.
pub fn difference_lines(differences: &Differences, advice: &str) -> String {
    let mut text = String::new();
    if !differences.wrong.is_empty() {
        let count = differences.wrong.count();
        text += &format!("Verification failed: the parity of {count} rounds is wrong{advice}\n");
    }
    for range in differences.unreadable.iter() {
        let (first, last) = (range.start, range.end - 1);
        text += &match first == last {
            true => format!("the parity of round {first} can't be read\n"),
            false => format!("the parity of rounds {first} to {last} can't be read\n"),
        };
    }
    text
}

/// No where something is wrong, else "could not" where something can't be read.
pub fn answer(summary: &Summary, parity: &Differences) -> Answer {
    match (summary.is_wrong() || !parity.wrong.is_empty(), summary.is_clean() && parity.is_empty()) {
        (true, _) => Answer::No,
        (false, true) => Answer::Yes,
        (false, false) => Answer::Failed,
    }
}

fn ranges(set: &Ranges) -> Vec<[u64; 2]> {
    set.iter().map(|range| [range.start, range.end]).collect()
}

/// A finding in words.
fn line(layout: &Layout, finding: &Finding) -> String {
    let mut text = match finding.block {
        Block::Data(index) => format!("data block {index}"),
        Block::Hash { level, index } => {
            let position = layout.position(level, index);
            format!("hash block {index} of level {level}, at byte {position} of the hash device")
        }
    };
    match &finding.fault {
        Fault::Digest { expected, found, trusted } => {
            let source = if *trusted { "" } else { " by a block that is bad itself" };
            let (expected, found) = (hex::encode(expected), hex::encode(found));
            writeln!(text, ": digest {found}, expected{source} {expected}").expect("writing to a string");
        }
        Fault::NotZero { offset } => {
            writeln!(text, ": byte {offset} is not zero").expect("writing to a string");
        }
        Fault::Unreadable { reason, .. } => {
            writeln!(text, ": can't be read: {reason}").expect("writing to a string");
        }
    }
    text
}

/// A finding for programs.
fn value(layout: &Layout, finding: &Finding) -> serde_json::Value {
    let mut value = match finding.block {
        Block::Data(index) => json!({"kind": "data", "index": index}),
        Block::Hash { level, index } => {
            let position = layout.position(level, index);
            json!({"kind": "hash", "level": level, "index": index, "hash_device_offset": position})
        }
    };
    match &finding.fault {
        Fault::Digest { expected, found, trusted } => {
            value["fault"] = "digest".into();
            value["expected"] = hex::encode(expected).into();
            value["found"] = hex::encode(found).into();
            value["expected_is_trusted"] = (*trusted).into();
        }
        Fault::NotZero { offset } => {
            value["fault"] = "not_zero".into();
            value["offset"] = (*offset).into();
        }
        Fault::Unreadable { reason, .. } => {
            value["fault"] = "unreadable".into();
            value["reason"] = reason.clone().into();
        }
    }
    value
}

pub fn summary_value(summary: &Summary) -> serde_json::Value {
    json!({
        "verified": summary.is_clean(),
        "bad_data_blocks": summary.bad_data.count(),
        "bad_hash_blocks": summary.bad_hash_blocks,
        "hash_blocks_not_zero": summary.not_zero,
        "unverified_data_blocks": summary.unverified.count(),
        "unreadable_data_blocks": summary.unreadable_data.count(),
        "unreadable_hash_blocks": summary.unreadable_hash_blocks,
        "unreadable_data_ranges": ranges(&summary.unreadable_data),
        "bad_data_ranges": ranges(&summary.bad_data),
        "unverified_data_ranges": ranges(&summary.unverified),
    })
}

pub fn summary_lines(summary: &Summary, context: &Context) -> String {
    let mut text = String::new();
    let ranges = summary.unverified.iter().count();
    let shown = if context.verbose() { ranges } else { ranges.min(SHOWN) };
    let why = if summary.bad_hash_blocks == 0 { "unreadable" } else { "bad" };
    for range in summary.unverified.iter().take(shown) {
        let (first, last) = (range.start, range.end - 1);
        writeln!(text, "data blocks {first} to {last}: can't be verified, a hash block above them is {why}")
            .expect("writing to a string");
    }
    if shown < ranges {
        writeln!(text, "and {} more such ranges of data blocks; --verbose shows all", ranges - shown)
            .expect("writing to a string");
    }
    let (data, hash, unverified) =
        (summary.bad_data.count(), summary.bad_hash_blocks, summary.unverified.count());
    let plural = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (data, hash) = (plural(data, "bad data block"), plural(hash, "bad hash block"));
    write!(text, "Verification failed: {data}, {hash}").expect("writing to a string");
    let mut more = |count: u64, what: &str| {
        if count > 0 {
            write!(text, ", {count} {what}").expect("writing to a string");
        }
    };
    more(unverified, "data blocks that can't be verified");
    more(summary.not_zero, "hash blocks with bytes that must be zero");
    more(summary.unreadable_data.count(), "data blocks that can't be read");
    more(summary.unreadable_hash_blocks, "hash blocks that can't be read");
    text.push('\n');
    text
}
