//! Other tools' command lines: if the command is called through a link with such a tool's name, it takes that
//! tool's options and gives that tool's exit status.

mod cryptsetup;
mod e2fsck;
mod fsverity;
mod integritysetup;
mod links;
mod mke2fs;
mod mke2fs_conf;
#[cfg(target_os = "linux")]
mod mount;
mod resize2fs;
mod tune2fs;
#[cfg(target_os = "linux")]
mod umount;
mod veritysetup;

pub use links::{HELPERS, LINKS};

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use casemate::Error;

use crate::answer;
use crate::context::Context;
use crate::streams::say;

/// A tool: what runs its command lines, and what tells whether one is understood.
type Tool = (fn(&[OsString]) -> ExitCode, fn(&[OsString]) -> bool);

/// Function that runs the tool whose name the command was called by, if it is one.
pub fn called_as(args: &[OsString]) -> Option<fn(&[OsString]) -> ExitCode> {
    match tool(args) {
        Some((main, _)) => Some(main),
        None if is_strange(args) => Some(refuse_name),
        None => None,
    }
}

/// All that may be the name of a file in a tool's command line: its words, and the values of its options.
pub fn files(args: &[OsString]) -> Vec<PathBuf> {
    let value =
        |word: &OsString| word.to_str()?.strip_prefix("--")?.split_once('=').map(|(_, value)| value.into());
    args.iter().skip(1).map(|word| value(word).unwrap_or_else(|| PathBuf::from(word))).collect()
}

/// The tools and their versions that the links answer as.
pub const VERSIONS: &[&str] = &[
    cryptsetup::VERSION,
    "e2fsck 1.47.0",
    fsverity::VERSION,
    integritysetup::VERSION,
    "mke2fs 1.47.4",
    "resize2fs 1.47.0",
    "tune2fs 1.47.0",
    veritysetup::VERSION,
];

/// Packages of other tools than those that there are here, and how the names of their programs begin or end.
const STRANGE: &[&str] = &[
    "badblocks",
    "blkid",
    "chattr",
    "cryptsetup-",
    "debugfs",
    "dmsetup",
    "dumpe2fs",
    "e2",
    "e4",
    "filefrag",
    "findfs",
    "fsck",
    "fscrypt",
    "logsave",
    "lsattr",
    "mkfs",
    "mklost+found",
    "mount",
    "nbdkit",
    "qemu-",
    "resizepart",
    "umount",
];

/// Whether the command was called by the name of another tool, whose work it would not do.
fn is_strange(args: &[OsString]) -> bool {
    let name = args.first().and_then(|name| Path::new(name).file_name()).and_then(|name| name.to_str());
    name.is_some_and(|name| STRANGE.iter().any(|known| name.starts_with(known)))
}

fn refuse_name(args: &[OsString]) -> ExitCode {
    let name = args.first().and_then(|name| Path::new(name).file_name()).unwrap_or_default();
    let known: Vec<&str> = LINKS.iter().map(|(name, _)| *name).chain(HELPERS).collect();
    say(format_args!(
        "casemate: {}: this tool is not part of casemate, which answers to the names {}",
        name.display(),
        known.join(", ")
    ));
    ExitCode::from(2)
}

/// Whether that tool understands the command line.
pub fn understands(args: &[OsString]) -> Option<bool> {
    tool(args).map(|(_, understands)| understands(args))
}

/// The exit status of every tool, if its reader did not take all of its output: SIGPIPE ends the tools themselves.
fn cut(error: &Error) -> Option<ExitCode> {
    error.is_broken_pipe().then(|| ExitCode::from(answer::CUT))
}

/// Prints a tool's usage, or else its version, if the command line asks for one of them: it does nothing besides then.
fn asked(context: &Context, usage: Option<&str>, version: Option<&str>) -> Option<ExitCode> {
    let version = version.map(|version| format!("{version} flags: CASEMATE\n"));
    let text = usage.map(str::to_owned).or(version)?;
    Some(if context.print(text).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Text of an error in a command line, without clap's own usage and hints.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

fn tool(args: &[OsString]) -> Option<Tool> {
    let name = Path::new(args.first()?).file_name()?;
    let is_listed = |name: &&str| LINKS.iter().any(|(known, _)| known == name) || HELPERS.contains(name);
    // Packages make the links of the lists, so a name that is in none is not known here either.
    match name.to_str().filter(is_listed)? {
        "cryptsetup" => Some((cryptsetup::main, cryptsetup::understands)),
        "e2fsck" | "fsck.ext4" | "fsck.ext3" | "fsck.ext2" => Some((e2fsck::main, e2fsck::understands)),
        "e2label" => Some((tune2fs::label, tune2fs::understands_label)),
        "fsverity" => Some((fsverity::main, fsverity::understands)),
        "integritysetup" => Some((integritysetup::main, integritysetup::understands)),
        "mke2fs" | "mkfs.ext2" | "mkfs.ext3" | "mkfs.ext4" => Some((mke2fs::main, mke2fs::understands)),
        #[cfg(target_os = "linux")]
        "mount.casemate" => Some((mount::main, mount::understands)),
        "resize2fs" => Some((resize2fs::main, resize2fs::understands)),
        "tune2fs" => Some((tune2fs::main, tune2fs::understands)),
        #[cfg(target_os = "linux")]
        "umount.fuse.casemate" | "umount.casemate" => Some((umount::main, umount::understands)),
        "veritysetup" => Some((veritysetup::main, veritysetup::understands)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_link_is_a_tool() {
        let helpers = HELPERS.iter().filter(|_| cfg!(target_os = "linux"));
        for name in LINKS.iter().map(|(name, _)| name).chain(helpers) {
            assert!(tool(&[OsString::from(name)]).is_some(), "{name}");
        }
    }
}
