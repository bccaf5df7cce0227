//! `casemate ext4 check`.

use std::fmt::Write as _;

use serde_json::{Value, json};

use casemate::blockdev::NoEvents;
use casemate::ext4::{CheckReport, ChecksumKind, Finding, Problem};
use casemate::{Access, Error, Work, probe};

use super::image::ImageArgs;
use crate::answer::Answer;
use crate::cmd::explained::explained;
use crate::context::Context;

/// Check every metadata checksum of an image, and the ends of its bitmaps.
///
/// Names, counts and contents are not checked: this is no replacement for e2fsck. Exit status 1 says that
/// something is wrong.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  casemate ext4 check root.img\n  \
    casemate ext4 check root.img --fix-checksums --dry-run")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// Rewrite every checksum that does not fit, and nothing else. Damaged structures are taken as they are:
    /// what damaged them is still in them. Not through --dm-verity.
    #[arg(long, conflicts_with = "dm_verity")]
    fix_checksums: bool,
    /// Only say what --fix-checksums would rewrite.
    #[arg(short = 'n', long, requires = "fix_checksums")]
    dry_run: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let access = if self.fix_checksums && !self.dry_run { Access::Change } else { Access::Read };
        let image = self.image.image(access, context)?;
        let options = self.image.options()?;
        if options.superblock.is_some() {
            return Err(Error::argument("--superblock: a check finds a sound copy by itself"));
        }
        let name = image.name().to_owned();
        // A damaged superblock is for the check to say; only the bar's length is unknown then.
        let silent = Work { events: &NoEvents, ..context.opening() };
        let total = image.ext4(&options, &silent).map_or(0, |fs| fs.check_size());
        let progress = context.progress(&name, total);
        let work = context.work(context.providers().clone(), &progress);
        let report = image.ext4_check(&options, &work);
        let report = report.map_err(|error| explained(error, &image, probe::EXT))?;
        drop(progress);
        if !self.fix_checksums {
            print(context, &report, &[])?;
            return Ok(if report.is_clean() { Answer::Yes } else { Answer::No });
        }
        let fixable: Vec<Finding> = report.fixable().cloned().collect();
        if !context.json() {
            let mut text = String::new();
            if !fixable.is_empty() {
                let verb = if self.dry_run { "would be" } else { "will be" };
                writeln!(text, "{} {verb} rewritten:", count(fixable.len() as u64, "checksum"))
                    .expect("writing to a string");
            }
            for fault in &fixable {
                if let Problem::Checksum { expected, found } = fault.problem() {
                    writeln!(text, "{}: {found:#010x} becomes {expected:#010x}", fault.place())
                        .expect("writing to a string");
                }
            }
            if !fixable.is_empty() {
                text.push_str("and then those of the structures below them that do not fit either\n");
            }
            context.print(text)?;
        }
        if self.dry_run || fixable.is_empty() {
            print(context, &report, &[])?;
            return Ok(if report.is_clean() { Answer::Yes } else { Answer::No });
        }
        let progress = context.progress(&name, total);
        let work = context.work(context.providers().clone(), &progress);
        let (rewritten, report) = image.ext4_fix_checksums(&options, &work)?;
        drop(progress);
        if !context.json() {
            context.print(format!("{} rewritten\n", count(rewritten.len() as u64, "checksum")))?;
        }
        print(context, &report, &rewritten)?;
        Ok(if report.is_clean() { Answer::Yes } else { Answer::No })
    }
}

fn print(context: &Context, report: &CheckReport, rewritten: &[Finding]) -> Result<(), Error> {
    if context.json() {
        let checked: serde_json::Map<String, Value> = report
            .checked
            .iter()
            .map(|(structure, count)| (structure.name().replace(' ', "_"), (*count).into()))
            .collect();
        return context.print_json(&json!({
            "clean": report.is_clean(),
            "checksums": kind(report.kind),
            "faults": report.faults.iter().map(value).collect::<Vec<_>>(),
            "faults_left_out": report.faults_left_out,
            "rewritten": rewritten.iter().map(value).collect::<Vec<_>>(),
            "checked": checked,
            "replayed_transactions": report.replayed,
        }));
    }
    let mut text = String::new();
    for fault in &report.faults {
        writeln!(text, "{fault}").expect("writing to a string");
    }
    if report.faults_left_out > 0 {
        writeln!(text, "and {} more", report.faults_left_out).expect("writing to a string");
    }
    if report.replayed > 0 {
        writeln!(text, "checked with {} transactions of the journal replayed in memory", report.replayed)
            .expect("writing to a string");
    }
    let total: u64 = report.checked.values().sum();
    let faults = report.faults.len() as u64 + report.faults_left_out;
    let what = match report.kind {
        ChecksumKind::Metadata => format!("{} checked", count(total, "checksum")),
        ChecksumKind::Groups => {
            format!("{} checked; only group descriptors have some", count(total, "checksum"))
        }
        ChecksumKind::None => "this file system has no metadata checksums".to_owned(),
    };
    writeln!(text, "{what}, {}", count(faults, "fault")).expect("writing to a string");
    context.print(text)
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn kind(kind: ChecksumKind) -> &'static str {
    match kind {
        ChecksumKind::Metadata => "metadata_csum",
        ChecksumKind::Groups => "uninit_bg",
        ChecksumKind::None => "none",
    }
}

fn value(fault: &Finding) -> Value {
    let place = fault.place();
    let mut value = json!({
        "name": fault.kind().name(),
        "structure": place.structure.name(),
        "block": place.block,
        "group": place.group,
        "inode": place.inode,
        "message": fault.to_string(),
    });
    if let Problem::Checksum { expected, found } = fault.problem() {
        value["expected"] = format!("{expected:#010x}").into();
        value["found"] = format!("{found:#010x}").into();
    }
    value
}
