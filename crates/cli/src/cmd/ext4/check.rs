//! `casemate ext4 check`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tempfile::TempDir;

use casemate::blockdev::{NoEvents, u64_of};
use casemate::ext4::{
    Altered, CheckReport, ChecksumKind, FileSystem, Finding, FindingKind, GroupNo, InodeNo, Level, Problem,
    RepairDepth, RepairHow, VerityPolicy,
};
use casemate::{Access, Error, ErrorKind, Image, Keys, Work, probe};

use super::image::ImageArgs;
use crate::answer::Answer;
use crate::cmd::explained::explained;
use crate::cmd::signer::read_certificate;
use crate::context::Context;
use crate::question;

/// Findings of a kind that are shown where nobody asks for more.
const SHOWN: usize = 5;

/// Files with changed contents that are named where nobody asks for more.
const MOST_FILES: usize = 100;

/// Check an image's file system, and list its faults.
///
/// Faults are damage; notes are oddities that do no harm. Exit status 0: no faults, 1: faults, 2: the image could not
/// be checked. docs/checks.md explains the name of each finding. A journal is replayed in memory first; with
/// --no-replay, the image is checked as it is, as e2fsck -n does. With keys of encrypted folders, their decrypted names
/// and links must be valid.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  casemate ext4 check root.img\n  \
    casemate ext4 check root.img --verity\n  \
    casemate ext4 check root.img --fscrypt-key master.key\n  \
    casemate ext4 check root.img --json | jq -r '.faults[].name' | sort | uniq -c\n  \
    casemate ext4 check root.img --repair --dry-run")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// Exit with status 1 for notes, too.
    #[arg(long)]
    strict: bool,
    /// Read the contents of files with fs-verity, too, and compare them with their trees.
    ///
    /// (Their descriptors are always checked, and the device below with --dm-verity.)
    #[arg(long)]
    verity: bool,
    /// Certificate in PEM or DER. Files with fs-verity must be signed by it, and there must be such a file. The
    /// certificate itself is trusted, not verified.
    #[arg(long, value_name = "CERTFILE", requires = "verity")]
    cert: Option<PathBuf>,
    /// Demand on files: fs-verity on every one, or only a match on those that have it.
    #[arg(long, value_name = "DEMAND", value_enum, default_value = "check", requires = "verity")]
    fsverity: Demand,
    /// Rewrite every wrong checksum, and nothing else. Other damage in the structures stays, and has a right checksum
    /// then.
    ///
    /// Not through --dm-verity.
    #[arg(long, conflicts_with = "dm_verity")]
    fix_checksums: bool,
    /// Fix faults, and ask before each kind of finding: those that need no guess, or with =all everything.
    ///
    /// Fixes counts, bitmaps, checksums, link counts, orphans, file types in names, quota usage, backups of superblock
    /// and descriptors, and directory indexes. Files without a name get one in lost+found. A damaged superblock is
    /// restored from a backup (with --superblock, from that one). Commits all at once through the journal, or without
    /// one through a file beside the image; in several steps if the journal has no room. Leaves alone what would need a
    /// guess, such as blocks that two files share. With =all these are fixed by the rules of docs/checks.md, too: both files get
    /// the blocks, maps are cut at their damage, and what has lost its name gets one in lost+found.
    #[arg(long, value_name = "DEPTH", value_enum, num_args = 0..=1, require_equals = true,
        default_missing_value = "safe",
        conflicts_with_all = ["dm_verity", "fix_checksums", "no_replay", "ignore_checksums", "verity"])]
    repair: Option<Depth>,
    /// Keep the blocks that the repair changes in a new file, as they were before. e2undo UNDOFILE IMAGE (e2fsprogs) puts them
    /// back.
    #[arg(long, value_name = "UNDOFILE", requires = "repair")]
    undo: Option<PathBuf>,
    /// Ask nothing, and fix everything that can be fixed.
    #[arg(long, alias = "yes", short_alias = 'y', requires = "repair")]
    batch_mode: bool,
    /// Only list what --repair would fix, or --fix-checksums rewrite.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// How much of the damage a repair fixes.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Depth {
    /// Faults that need no guess.
    Safe,
    /// All faults, by the rules of docs/checks.md where something must be decided.
    All,
}

/// The demand of a check on files with and without fs-verity.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Demand {
    /// Every file must have fs-verity, and match it.
    Require,
    /// Files that have fs-verity must match it.
    Check,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        if self.dry_run && self.repair.is_none() && !self.fix_checksums {
            return Err(Error::argument(
                "--dry-run goes with --repair or --fix-checksums; a check writes nothing",
            ));
        }
        if let Some(depth) = self.repair {
            return self.repair(depth, context);
        }
        // What changes meanwhile would be blamed on the image.
        let access = if self.fix_checksums && !self.dry_run { Access::Change } else { Access::Read };
        let image = self.image.image(access, context)?;
        let mut options = self.image.options()?;
        options.check_verity = self.verity;
        options.verity = match self.fsverity {
            Demand::Require => VerityPolicy::Require,
            Demand::Check => VerityPolicy::Check,
        };
        options.certificate = self.cert.as_deref().map(read_certificate).transpose()?;
        if options.superblock.is_some() {
            return Err(Error::argument(
                "a check finds a sound copy of the superblock by itself: leave the copy out, which only --repair takes",
            ));
        }
        let name = image.name().to_owned();
        // A damaged superblock is for the check to say; only the bar's length is unknown then.
        let silent = Work { events: &NoEvents, ..context.opening() };
        let contents = |fs: &FileSystem| if self.verity { fs.used_bytes() } else { 0 };
        let mut without_keys = options.clone();
        without_keys.keys = Keys::default();
        let total = image.ext4(&without_keys, &silent).map_or(0, |fs| fs.check_size() + contents(&fs));
        let progress = context.progress(&name, total);
        let work = context.work(context.providers().clone(), &progress);
        let report = image.ext4_check(&options, &work);
        let report = match report {
            // Damage of something else is no answer to the question whether a file system is sound.
            Err(error) if error.kind() == ErrorKind::Corrupt && !is_ext4(&image) => {
                drop(progress);
                context.complain(&explained(error, &image, probe::EXT));
                return Ok(Answer::Failed);
            }
            report => report?,
        };
        drop(progress);
        if !self.fix_checksums {
            self.print(context, &report, &[])?;
            if !report.is_clean() {
                if report.faults.iter().any(|fault| fault.place().inode.is_some()) {
                    context.hint(&format!(
                        "casemate ext4 find {} -inum N prints the paths of inode N",
                        self.image.file().display()
                    ));
                }
                context.hint("--repair fixes faults that need no guess, --repair=all the others, too; with -n it only lists them");
            }
            return Ok(self.answer(&report));
        }
        let fixable: Vec<Finding> = report.fixable().cloned().collect();
        if !context.json() {
            let mut text = String::new();
            if !fixable.is_empty() {
                let verb = if self.dry_run { "would be" } else { "will be" };
                writeln!(text, "{} {verb} rewritten:", count(u64_of(fixable.len()), "checksum"))
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
            self.print(context, &report, &[])?;
            return Ok(self.answer(&report));
        }
        let progress = context.progress(&name, total);
        let work = context.work(context.providers().clone(), &progress);
        let (rewritten, report) = image.ext4_fix_checksums(&options, &work)?;
        drop(progress);
        if !context.json() {
            context.print(format!("{} rewritten\n", count(u64_of(rewritten.len()), "checksum")))?;
        }
        self.print(context, &report, &rewritten)?;
        Ok(self.answer(&report))
    }

    fn repair(&self, depth: Depth, context: &Context) -> Result<Answer, Error> {
        let image = match self.dry_run {
            true => self.image.trial(context)?,
            false => self.image.image(Access::Change, context)?,
        };
        let mut options = self.image.write_options()?;
        let scratch = self.dry_run.then(TempDir::new).transpose();
        let scratch = scratch.map_err(|error| Error::io("the temporary folder", error))?;
        if let Some(scratch) = &scratch {
            options.recovery_file = Some(scratch.path().join("recovery"));
        }
        let mut approve = |kind: FindingKind, findings: &[Finding]| {
            if self.batch_mode || self.dry_run {
                return Ok(true);
            }
            let mut text = String::new();
            group(&mut text, context, kind, &findings.iter().collect::<Vec<_>>());
            ask(&text)
        };
        let mut how = RepairHow::default();
        how.depth = match depth {
            Depth::Safe => RepairDepth::Safe,
            Depth::All => RepairDepth::All,
        };
        how.undo = self.undo.clone().filter(|_| !self.dry_run);
        let repaired = image.ext4_repair(&options, &how, &mut approve, &context.opening());
        let repaired = repaired.map_err(|error| explained(error, &image, probe::EXT))?;
        let mended = repaired.mended;
        let mut left = "";
        if !context.json() && !mended.is_empty() {
            let verb = match (self.dry_run, mended.len()) {
                (true, _) => "would be",
                (false, 1) => "was",
                (false, _) => "were",
            };
            let mut text = String::from(if self.dry_run { "Would be fixed:\n" } else { "Fixed:\n" });
            groups(&mut text, context, &mended);
            if !repaired.report.is_clean() {
                left = if self.dry_run { "Would be left:\n" } else { "Left:\n" };
            }
            writeln!(text, "{} {verb} fixed", count(u64_of(mended.len()), "finding"))
                .expect("writing to a string");
            files(&mut text, context, &repaired.altered, self.dry_run);
            context.print(text)?;
        }
        context.print(left)?;
        self.print_with(context, &repaired.report, &[], &mended, Some(&repaired.altered))?;
        if !context.json() && !repaired.report.is_clean() {
            context.print(advice(&repaired.report, &repaired.withheld, depth))?;
        }
        Ok(if self.dry_run && !mended.is_empty() { Answer::No } else { self.answer(&repaired.report) })
    }

    fn print(&self, context: &Context, report: &CheckReport, rewritten: &[Finding]) -> Result<(), Error> {
        self.print_with(context, report, rewritten, &[], None)
    }

    fn print_with(
        &self,
        context: &Context,
        report: &CheckReport,
        rewritten: &[Finding],
        mended: &[Finding],
        altered: Option<&[Altered]>,
    ) -> Result<(), Error> {
        if context.json() {
            let checked: serde_json::Map<String, Value> = report
                .checked
                .iter()
                .map(|(structure, count)| (structure.name().replace(' ', "_"), (*count).into()))
                .collect();
            return context.print_json(&Printed {
                clean: report.is_clean(),
                checksums: kind(report.kind),
                faults: Values(&report.faults),
                faults_left_out: report.faults_left_out,
                notes: Values(&report.notes),
                rewritten: Values(rewritten),
                mended: Values(mended),
                altered: altered.map(|altered| altered.iter().map(alteration).collect()),
                checked,
                fs_verity: self.verity.then(|| {
                    let count = report.verity;
                    json!({"files": count.files, "verified": count.verified, "without": count.without})
                }),
                replayed_transactions: report.replayed,
            });
        }
        let mut text = String::new();
        groups(&mut text, context, &report.faults);
        groups(&mut text, context, &report.notes);
        if report.faults_left_out > 0 {
            writeln!(text, "and {} more", count(report.faults_left_out, "fault"))
                .expect("writing to a string");
        }
        if report.replayed > 0 {
            writeln!(text, "checked with {} transactions of the journal replayed in memory", report.replayed)
                .expect("writing to a string");
        }
        if self.verity {
            let (verified, without) = (report.verity.verified, report.verity.without);
            writeln!(text, "{} verified by fs-verity, {without} without it", count(verified, "file"))
                .expect("writing to a string");
        }
        let total: u64 = report.checked.values().sum();
        let faults = u64_of(report.faults.len()) + report.faults_left_out;
        let what = match report.kind {
            ChecksumKind::Metadata => format!("{} checked", count(total, "checksum")),
            ChecksumKind::Groups => {
                format!("{} checked; only group descriptors have some", count(total, "checksum"))
            }
            ChecksumKind::None => "this file system has no metadata checksums".to_owned(),
        };
        let notes = match report.notes.len() {
            0 => String::new(),
            notes => format!(", {}", count(u64_of(notes), "note")),
        };
        writeln!(text, "{what}, {}{notes}", count(faults, "fault")).expect("writing to a string");
        context.print(text)
    }

    fn answer(&self, report: &CheckReport) -> Answer {
        match report.is_clean() && (!self.strict || report.notes.is_empty()) {
            true => Answer::Yes,
            false => Answer::No,
        }
    }
}

/// Whether the image has a superblock of ext4, damaged or not.
fn is_ext4(image: &Image) -> bool {
    probe::look(image).is_ok_and(|found| found.what == Some(probe::EXT))
}

/// Advice on the faults that a repair has left.
fn advice(report: &CheckReport, withheld: &[Finding], depth: Depth) -> String {
    let mut text = String::new();
    if !withheld.is_empty() {
        let kinds: BTreeSet<&str> = withheld.iter().map(|finding| finding.kind().name()).collect();
        let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
        let number = count(u64_of(withheld.len()), "fault");
        writeln!(text, "{number} of these ({kinds}) may be false: other damage hides what is right")
            .expect("writing to a string");
    }
    if matches!(depth, Depth::All)
        && report.faults.iter().any(|fault| fault.kind() == FindingKind::ClaimedTwice)
    {
        text.push_str(
            "the files that are named with claimed-twice share blocks, and there was no room for copies: copy one of them \
             out, remove it, and repair again\n",
        );
    }
    let has_no_root = report.faults.iter().any(|fault| fault.kind() == FindingKind::RootInode);
    text.push_str(match has_no_root {
        _ if matches!(depth, Depth::All) => {
            "no rule mends the faults that are left: copy what can be read (casemate ext4 extract)\n"
        }
        true => {
            "the root directory is lost, so no name can be read; \
             --repair=all makes a new one, and puts the files that it finds into lost+found\n"
        }
        false => {
            "the faults that are left need guesses: copy what can be read (casemate ext4 extract), \
             then let --repair=all decide by the rules of docs/checks.md\n"
        }
    });
    text
}

/// Shows findings on the terminal, and asks whether they are to be mended.
fn ask(findings: &str) -> Result<bool, Error> {
    if !io::stdin().is_terminal() {
        return Err(Error::argument("no terminal to ask at; --batch-mode repairs without asking"));
    }
    let answer = question::answer(&format!("{findings}Fix? [y/N] "))?;
    Ok(matches!(&*answer, "y" | "Y" | "yes"))
}

/// Writes findings of a kind: its name and meaning, and the first of them.
pub fn group(text: &mut String, context: &Context, kind: FindingKind, findings: &[&Finding]) {
    let what = if kind.level() == Level::Fault { "fault" } else { "note" };
    let number = count(u64_of(findings.len()), what);
    writeln!(text, "{} ({number}): {}", kind.name(), kind.description()).expect("writing to a string");
    let shown = if context.verbose() { findings.len() } else { findings.len().min(SHOWN) };
    for finding in &findings[..shown] {
        writeln!(text, "  {finding}").expect("writing to a string");
    }
    if shown < findings.len() {
        writeln!(text, "  and {} more; --verbose shows all", findings.len() - shown)
            .expect("writing to a string");
    }
}

/// Writes findings by their kinds.
pub fn groups(text: &mut String, context: &Context, findings: &[Finding]) {
    let mut kinds: BTreeMap<FindingKind, Vec<&Finding>> = BTreeMap::new();
    findings.iter().for_each(|finding| kinds.entry(finding.kind()).or_default().push(finding));
    kinds.iter().for_each(|(kind, findings)| group(text, context, *kind, findings));
}

/// Names the files whose contents a repair changed, or that may be others'.
pub fn files(text: &mut String, context: &Context, altered: &[Altered], is_trial: bool) {
    if altered.is_empty() {
        return;
    }
    let verb = if is_trial { "would be changed" } else { "were changed" };
    writeln!(text, "files whose contents {verb}, or may be those of others:").expect("writing to a string");
    let shown = if context.verbose() { altered.len() } else { altered.len().min(MOST_FILES) };
    for Altered { inode, how } in &altered[..shown] {
        writeln!(text, "  <{inode}> {}", how.description()).expect("writing to a string");
    }
    if shown < altered.len() {
        writeln!(text, "  and {} more; --verbose shows all", altered.len() - shown)
            .expect("writing to a string");
    }
}

fn alteration(altered: &Altered) -> Value {
    json!({
        "inode": altered.inode.get(),
        "name": altered.how.name(),
        "message": altered.how.description(),
    })
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

/// Output with --json.
#[derive(Serialize)]
struct Printed<'a> {
    clean: bool,
    checksums: &'static str,
    faults: Values<'a>,
    faults_left_out: u64,
    notes: Values<'a>,
    rewritten: Values<'a>,
    mended: Values<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    altered: Option<Vec<Value>>,
    checked: serde_json::Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fs_verity: Option<Value>,
    replayed_transactions: u32,
}

/// Findings as JSON, made one after the other: there may be very many.
struct Values<'a>(&'a [Finding]);

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(value))
    }
}

fn value(fault: &Finding) -> Value {
    let place = fault.place();
    let mut value = json!({
        "name": fault.kind().name(),
        "structure": place.structure.name(),
        "block": place.block,
        "group": place.group.map(GroupNo::get),
        "inode": place.inode.map(InodeNo::get),
        "entry": fault.name().map(String::from_utf8_lossy),
        "message": fault.to_string(),
    });
    match fault.problem() {
        Problem::Checksum { expected, found } => {
            value["expected"] = format!("{expected:#010x}").into();
            value["found"] = format!("{found:#010x}").into();
        }
        Problem::Number { expected, found, .. } => {
            value["expected"] = (*expected).into();
            value["found"] = (*found).into();
        }
        Problem::Run { first, last, .. } | Problem::Marked { first, last, .. } => {
            value["first"] = (*first).into();
            value["last"] = (*last).into();
        }
        _ => {}
    }
    value
}
