//! The command line of `e2fsck` 1.47.0 (`fsck.ext4`, `fsck.ext3`, `fsck.ext2`), for scripts: exit status 0 sound, 1 mended,
//! 4 damage is left, 8 it could not be checked, 16 wrong usage, 32 interrupted.
//!
//! With -n the journal is replayed in memory, where e2fsck skips it. With -y, and with questions, everything is mended by the
//! rules of docs/checks.md. With -p nothing is written if there is something at which that stops:
//! a system must not go on from there by itself.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, Parser};

use casemate::blockdev::AtFile;
use casemate::ext4::{
    CheckReport, Finding, FindingKind, Preen, ReadOptions, RepairDepth, RepairHow, SUPERBLOCK_OFFSET,
    SUPERBLOCK_SIZE, Structure, Superblock, WriteOptions,
};
use casemate::{Access, Error, Image};

use crate::cmd::ext4::check::{files, group, groups};
use crate::context::Context;
use crate::question;
use crate::streams::{say, tell};

/// The version whose command line this is.
const VERSION: &str = "e2fsck 1.47.0 (5-Feb-2023)";

const USAGE: &str = "\
Usage: e2fsck [-panyfvtV] [-b superblock] [-B blocksize] [-C fd] [-z undo_file] [-E extended-options] device

  -p, -a  Fix what an interruption leaves, such as counts and names of deleted files, and ask nothing; at anything else, stop and
          write nothing
  -n      Check only, and write nothing
  -y      Fix everything, and ask nothing
  -f      Check even if the file system is marked clean
  -b, -B  Use the superblock backup in this block, in blocks of this size; without them a backup is found if needed
  -C, -t, -v, -d, -r  Accepted, for scripts
  -E      Accepted where it changes nothing: nodiscard, readahead_kb=N, fragcheck
  -V      Print the version
  -z      Keep the blocks that are changed in a new file, as they were before; e2undo puts them back
  -c, -D, -F, -j, -k, -l, -L, -S  Not supported

This is casemate under the name e2fsck.
";

/// Message where a repair needs a person who looks.
const BY_HAND: &str = "UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.\n\t(i.e., without -a or -p options)\n";

const LOST_SUPERBLOCK: &str = "
The superblock could not be read or does not describe a valid ext2/ext3/ext4
file system. A copy can be named:
    e2fsck -b 8193 <device>
 or
    e2fsck -b 32768 <device>

";

/// Exit statuses, as fsck(8) has them.
const MENDED: u8 = 1;
const DAMAGED: u8 = 4;
const COULD_NOT: u8 = 8;
const WRONG_USAGE: u8 = 16;
const INTERRUPTED: u8 = 32;

/// The exit status of e2fsck for an extended option that it does not know.
const UNKNOWN_EXTENDED: u8 = 1;

/// Extended options that change nothing here: how much is read ahead, what is printed beside the result, and what is so anyway.
const EXTENDED: &[&str] =
    &["ea_ver=1", "ea_ver=2", "fragcheck", "inode_count_fullmap", "no_optimize_extents", "nodiscard"];

/// Extended options that ask for work that is not done here.
const EXTENDED_UNSUPPORTED: &[(&str, &str)] = &[
    ("bmap2extent", "-E bmap2extent (block maps made extents)"),
    ("check_encoding", "-E check_encoding (names in the encoding of the directory)"),
    ("discard", "-E discard (discarding free blocks)"),
    ("fixes_only", "-E fixes_only (no optimizations)"),
    ("journal_only", "-E journal_only (replaying the journal alone)"),
    ("optimize_extents", "-E optimize_extents (shorter extent trees)"),
    ("unshare_blocks", "-E unshare_blocks (blocks that files share, copied)"),
];

#[derive(Debug, Parser)]
#[command(name = "e2fsck", disable_help_flag = true, disable_version_flag = true, args_override_self = true)]
struct Tool {
    #[arg(short = 'p', short_alias = 'a', action = ArgAction::Count)]
    preen: u8,
    #[arg(short = 'n', action = ArgAction::Count)]
    no: u8,
    #[arg(short = 'y', action = ArgAction::Count)]
    yes: u8,
    #[arg(short = 'f', action = ArgAction::Count)]
    force: u8,
    #[arg(short = 'v', action = ArgAction::Count)]
    verbose: u8,
    #[arg(short = 't', short_aliases = ['d', 'r'], action = ArgAction::Count)]
    ignored: u8,
    #[arg(short = 'V', action = ArgAction::Count)]
    version: u8,
    #[arg(short = 'b')]
    superblock: Option<u64>,
    #[arg(short = 'B')]
    block_size: Option<u64>,
    #[arg(short = 'C', allow_negative_numbers = true)]
    completion: Option<i32>,
    #[arg(short = 'E')]
    extended: Option<String>,
    #[arg(short = 'c', action = ArgAction::Count)]
    bad_blocks: u8,
    #[arg(short = 'D', action = ArgAction::Count)]
    optimize: u8,
    #[arg(short = 'F', action = ArgAction::Count)]
    flush: u8,
    #[arg(short = 'k', action = ArgAction::Count)]
    keep: u8,
    #[arg(short = 'S', action = ArgAction::Count)]
    write_superblocks: u8,
    #[arg(short = 'j')]
    journal: Option<OsString>,
    #[arg(short = 'l')]
    add_bad_blocks: Option<OsString>,
    #[arg(short = 'L')]
    set_bad_blocks: Option<OsString>,
    #[arg(short = 'z')]
    undo: Option<OsString>,
    device: Option<PathBuf>,
}

/// Whether a command line is understood; nothing is run.
pub fn understands(args: &[OsString]) -> bool {
    let is_known = |tool: Tool| tool.unsupported().is_none() && tool.unknown_extended().is_none();
    Tool::try_parse_from(args).is_ok_and(is_known)
}

/// Runs one command line.
pub fn main(args: &[OsString]) -> ExitCode {
    let tool = Tool::try_parse_from(args);
    let modes = |tool: &Tool| u8::from(tool.preen > 0) + u8::from(tool.no > 0) + u8::from(tool.yes > 0);
    let (tool, device) = match tool {
        Ok(tool) if tool.version > 0 => {
            tell(format_args!("{VERSION}\n\tUsing casemate {}\n", env!("CARGO_PKG_VERSION")));
            return ExitCode::SUCCESS;
        }
        Ok(tool) if modes(&tool) > 1 => {
            say("e2fsck: Only one of the options -p/-a, -n or -y may be specified.");
            return ExitCode::from(COULD_NOT);
        }
        Ok(tool) if tool.unknown_extended().is_some() => {
            let option = tool.unknown_extended().unwrap_or_default();
            say(format_args!("Unknown extended option: {option}"));
            return ExitCode::from(UNKNOWN_EXTENDED);
        }
        Ok(tool) if tool.unsupported().is_some() => {
            let option = tool.unsupported().unwrap_or_default();
            say(format_args!("e2fsck: {option} is not supported here; e2fsprogs has an e2fsck that does it"));
            return ExitCode::from(WRONG_USAGE);
        }
        Ok(Tool { device: Some(device), .. }) if device.as_os_str().is_empty() => return wrong_usage(),
        Ok(mut tool) => match tool.device.take() {
            Some(device) => (tool, device),
            None => return wrong_usage(),
        },
        Err(_) => return wrong_usage(),
    };
    let context = Context::for_tool("e2fsck: ").going_on();
    let is_asked = modes(&tool) == 0;
    let status = match is_asked && !io::stdin().is_terminal() {
        true => Err(Error::argument("need terminal for interactive repairs")),
        false => tool.run(&device, &context),
    };
    ExitCode::from(status.unwrap_or_else(|error| {
        context.complain(&error);
        if error.is_interrupt() { INTERRUPTED } else { COULD_NOT }
    }))
}

fn wrong_usage() -> ExitCode {
    tell(USAGE);
    ExitCode::from(WRONG_USAGE)
}

impl Tool {
    /// An option that was given, and that there is in e2fsprogs alone.
    fn unsupported(&self) -> Option<&'static str> {
        let given = [
            (self.bad_blocks > 0, "-c (searching for bad blocks)"),
            (self.optimize > 0, "-D (optimizing directories)"),
            (self.flush > 0, "-F (flushing buffers)"),
            (self.keep > 0, "-k (keeping bad blocks)"),
            (self.write_superblocks > 0, "-S"),
            (self.journal.is_some(), "-j (a journal on another device)"),
            (self.add_bad_blocks.is_some(), "-l (adding bad blocks)"),
            (self.set_bad_blocks.is_some(), "-L (setting bad blocks)"),
        ];
        let extended = || {
            let find = |word| EXTENDED_UNSUPPORTED.iter().find(|(known, _)| *known == word);
            self.extended().find_map(find).map(|(_, option)| *option)
        };
        given.into_iter().find(|(is, _)| *is).map(|(_, option)| option).or_else(extended)
    }

    /// The words of `-E`.
    fn extended(&self) -> impl Iterator<Item = &str> {
        self.extended.iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty())
    }

    /// The first word of `-E` that e2fsck does not know.
    fn unknown_extended(&self) -> Option<&str> {
        self.extended().find(|word| {
            let is_number = |value: &str| value.parse::<u64>().is_ok();
            !EXTENDED.contains(word)
                && !word.strip_prefix("readahead_kb=").is_some_and(is_number)
                && !EXTENDED_UNSUPPORTED.iter().any(|(known, _)| known == word)
        })
    }

    /// With -p: prints what somebody has to look at, and nothing is written. The exit status, if there is such a thing.
    fn stops(&self, image: &Image, report: &CheckReport, context: &Context) -> Result<Option<u8>, Error> {
        let preen = Preen::of(report);
        let serious: Vec<Finding> =
            report.faults.iter().filter(|finding| !preen.mends(finding)).cloned().collect();
        if serious.is_empty() && report.faults_left_out == 0 {
            return Ok(None);
        }
        let name = image.name();
        let mut text = String::new();
        groups(&mut text, context, &serious);
        let is_superblock = |finding: &Finding| {
            finding.place().structure == Structure::Superblock && is_of_superblock(finding)
        };
        if serious.iter().any(is_superblock) {
            text += &format!("{name}: {LOST_SUPERBLOCK}");
            context.print(text)?;
            return Ok(Some(COULD_NOT));
        }
        text += &format!("\n{name}: {BY_HAND}");
        context.print(text)?;
        Ok(Some(DAMAGED))
    }

    fn run(&self, device: &Path, context: &Context) -> Result<u8, Error> {
        let access = if self.no > 0 { Access::ReadUnlocked } else { Access::Change };
        let image = Image::open(device, access)?;
        let superblock = self.superblock.map(|block| self.copy(&image, block)).transpose()?;
        if self.force == 0
            && superblock.is_none()
            && let Some(line) = clean(&image, context)
        {
            context.print(line)?;
            return Ok(0);
        }
        // Without a check before it, a repair takes what is routine alone.
        let (mut preen, mut is_routine) = (Preen::default(), true);
        if self.preen > 0 && superblock.is_none() {
            let report = image.ext4_check(&ReadOptions::default(), &context.opening())?;
            if let Some(status) = self.stops(&image, &report, context)? {
                return Ok(status);
            }
            preen = Preen::of(&report);
            is_routine = report.faults.iter().all(Finding::is_routine);
        }
        let was_clean = is_clean(&image);
        let (mended, altered, report) = if self.no > 0 {
            let mut options = ReadOptions::default();
            options.superblock = superblock;
            (Vec::new(), Vec::new(), image.ext4_check(&options, &context.opening())?)
        } else {
            let mut approve = |kind: FindingKind, findings: &[Finding]| {
                if self.yes > 0 || self.preen > 0 && is_routine {
                    return Ok(true);
                }
                if self.preen > 0 {
                    return Ok(findings.iter().all(|finding| preen.mends(finding)));
                }
                let mut text = String::new();
                group(&mut text, context, kind, &findings.iter().collect::<Vec<_>>());
                ask(&text)
            };
            let mut options = WriteOptions::default();
            options.superblock = superblock;
            let mut how = RepairHow::default();
            how.undo = self.undo.as_ref().map(PathBuf::from);
            if self.preen == 0 || !is_routine {
                how.depth = RepairDepth::All;
            }
            let repaired = image.ext4_repair(&options, &how, &mut approve, &context.opening())?;
            (repaired.mended, repaired.altered, repaired.report)
        };
        let mut text = String::new();
        groups(&mut text, context, &mended);
        files(&mut text, context, &altered, false);
        groups(&mut text, context, &report.faults);
        let name = image.name();
        if !mended.is_empty() {
            text += &format!("\n{name}: ***** FILE SYSTEM WAS MODIFIED *****\n");
        }
        if !report.is_clean() && self.preen > 0 {
            text += &format!("\n{name}: {BY_HAND}");
        } else if !report.is_clean() {
            text += &format!("\n{name}: ********** WARNING: Filesystem still has errors **********\n\n");
        }
        text += &usage(&image, context).map_or(String::new(), |usage| format!("{name}: {usage}\n"));
        context.print(text)?;
        // That somebody was changing it is a state, and no finding.
        let is_mended = !mended.is_empty() || was_clean == Some(false) && is_clean(&image) == Some(true);
        Ok(match (report.is_clean(), is_mended) {
            (false, _) => DAMAGED,
            (true, true) => MENDED,
            (true, false) => 0,
        })
    }
}

impl Tool {
    /// The block of a copy of the superblock, if its blocks have the size that was said.
    fn copy(&self, image: &Image, block: u64) -> Result<u64, Error> {
        let Some(expected) = self.block_size else { return Ok(block) };
        let mut raw = [0; SUPERBLOCK_SIZE];
        let offset =
            block.checked_mul(expected).ok_or_else(|| Error::argument("-b: there is no such block"))?;
        image.device().read_at(&mut raw, offset).at(image.name())?;
        let found = Superblock::from_bytes(&raw).at(image.name())?.block_size;
        if u64::from(found) == expected {
            return Ok(block);
        }
        Err(Error::argument(format!(
            "-B {expected}: the superblock in block {block} says blocks of {found} bytes"
        )))
    }
}

/// Shows findings on the terminal and asks whether they are to be fixed. As with the tool, Enter is yes.
fn ask(findings: &str) -> Result<bool, Error> {
    if !io::stdin().is_terminal() {
        return Err(Error::argument("need terminal for interactive repairs"));
    }
    let answer = question::answer(&format!("{findings}Fix<y>? "))?;
    Ok(matches!(&*answer, "" | "y" | "Y" | "yes"))
}

/// Whether the superblock itself is what is wrong.
fn is_of_superblock(finding: &Finding) -> bool {
    matches!(finding.kind(), FindingKind::SuperblockField | FindingKind::Malformed | FindingKind::Checksum)
}

/// Whether the superblock says that nobody is changing the file system; `None` if there is none that could be read.
fn is_clean(image: &Image) -> Option<bool> {
    let mut raw = [0; SUPERBLOCK_SIZE];
    image.device().read_at(&mut raw, SUPERBLOCK_OFFSET).ok()?;
    Superblock::from_bytes(&raw).ok().map(|superblock| superblock.is_clean())
}

/// Line for a file system that need not be checked; `None` if it must be.
fn clean(image: &Image, context: &Context) -> Option<String> {
    let fs = image.ext4(&ReadOptions::default(), &context.opening()).ok()?;
    let superblock: &Superblock = fs.inodes().superblock();
    let is_clean = superblock.is_clean() && superblock.state() & 2 == 0 && !superblock.needs_recovery();
    let is_clean = is_clean && !fs.inodes().has_untold_transactions().unwrap_or(true);
    Some(format!("{}: clean, {}\n", image.name(), usage(image, context)?)).filter(|_| is_clean)
}

/// Files and blocks in use.
fn usage(image: &Image, context: &Context) -> Option<String> {
    let fs = image.ext4(&ReadOptions::default(), &context.opening()).ok()?;
    let superblock: &Superblock = fs.inodes().superblock();
    let (inodes, blocks) = (superblock.inodes, superblock.blocks);
    let (inodes_free, blocks_free) = (superblock.inodes_free, superblock.blocks_free);
    let (files, used) = (inodes.saturating_sub(inodes_free), blocks.saturating_sub(blocks_free));
    Some(format!("{files}/{inodes} files, {used}/{blocks} blocks"))
}
