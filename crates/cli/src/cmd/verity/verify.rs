//! `casemate verity verify`.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use serde_json::json;

use casemate::Error;
use casemate::tree::{Block, Fault, Finding, Ranges, Summary};
use casemate::verity::{Layout, hex};

use super::options::{AreaArgs, HashArgs, RootHashArgs, worker};
use crate::Answer;
use crate::context::Context;

/// Check a data device against its hash area and root hash.
///
/// Every block that is wrong is printed: the hash blocks of the highest level first, the data blocks last. The
/// exit status is 1 then.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  casemate verity verify root.img root.hash 4392712b...\n  \
    casemate verity verify root.img root.hash --root-hash-file=root.txt --json")]
pub struct Args {
    /// The data device.
    #[arg(value_name = "DATA_DEVICE")]
    data: PathBuf,
    /// The hash device; it may be the data device.
    #[arg(value_name = "HASH_DEVICE")]
    hash: PathBuf,
    #[command(flatten)]
    root_hash: RootHashArgs,
    #[command(flatten)]
    options: HashArgs,
    #[command(flatten)]
    area: AreaArgs,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let root_hash = self.root_hash.get()?;
        let volume = self.area.open(&self.data, &self.hash, &self.options, false)?;
        let layout = volume.layout();
        let progress = context.progress(&self.data.display().to_string(), layout.geometry().data_size());
        let mut out = BufWriter::new(io::stdout());
        let mut separator = "{\"findings\":[";
        let mut report = |finding: Finding| {
            if !context.json() {
                return out.write_all(line(layout, &finding).as_bytes());
            }
            write!(out, "{separator}{}", value(layout, &finding))?;
            separator = ",";
            Ok(())
        };
        let summary = volume.verify(&root_hash, &worker(context, &progress), &mut report)?;
        drop(progress);
        let opened = if separator == "," { "" } else { separator };
        out.flush().map_err(|error| Error::io("standard output", error))?;
        if context.json() {
            let rest = summary_value(&summary).to_string();
            // The object goes on after the findings, which were printed as they were found.
            context.print(format!("{opened}],{}\n", &rest[1..]))?;
        } else if !summary.is_clean() {
            context.print(summary_lines(&summary))?;
        }
        Ok(if summary.is_clean() { Answer::Yes } else { Answer::No })
    }
}

/// A finding in words.
fn line(layout: &Layout, finding: &Finding) -> String {
    let mut text = match finding.block {
        Block::Data(index) => format!("data block {index}"),
        Block::Hash { level, index } => {
            let position = layout.tree_offset() + layout.geometry().offset(level, index);
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
    }
    text
}

/// A finding for programs.
fn value(layout: &Layout, finding: &Finding) -> serde_json::Value {
    let mut value = match finding.block {
        Block::Data(index) => json!({"kind": "data", "index": index}),
        Block::Hash { level, index } => {
            let position = layout.tree_offset() + layout.geometry().offset(level, index);
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
    }
    value
}

fn summary_value(summary: &Summary) -> serde_json::Value {
    let ranges = |set: &Ranges| set.iter().map(|range| [range.start, range.end]).collect::<Vec<_>>();
    json!({
        "verified": summary.is_clean(),
        "bad_data_blocks": summary.bad_data.count(),
        "bad_hash_blocks": summary.bad_hash_blocks,
        "hash_blocks_not_zero": summary.not_zero,
        "unverified_data_blocks": summary.unverified.count(),
        "bad_data_ranges": ranges(&summary.bad_data),
        "unverified_data_ranges": ranges(&summary.unverified),
    })
}

fn summary_lines(summary: &Summary) -> String {
    let mut text = String::new();
    for range in summary.unverified.iter() {
        let (first, last) = (range.start, range.end - 1);
        writeln!(text, "data blocks {first} to {last}: can't be verified, a hash block above them is bad")
            .expect("writing to a string");
    }
    let (data, hash, unverified) =
        (summary.bad_data.count(), summary.bad_hash_blocks, summary.unverified.count());
    write!(text, "Verification failed: {data} bad data blocks, {hash} bad hash blocks")
        .expect("writing to a string");
    let mut more = |count: u64, what: &str| {
        if count > 0 {
            write!(text, ", {count} {what}").expect("writing to a string");
        }
    };
    more(unverified, "data blocks that can't be verified");
    more(summary.not_zero, "hash blocks with bytes that must be zero");
    text.push('\n');
    text
}
