//! Other tools' command lines: if the command is called through a link with such a tool's name, it takes that
//! tool's options and gives that tool's exit status.

mod cryptsetup;
mod e2fsck;
mod fsverity;
mod integritysetup;
mod mke2fs;
#[cfg(target_os = "linux")]
mod mount;
#[cfg(target_os = "linux")]
mod umount;
mod veritysetup;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use casemate::Error;

use crate::answer;

/// A tool: what runs its command lines, and what tells whether one is understood.
type Tool = (fn(&[OsString]) -> ExitCode, fn(&[OsString]) -> bool);

/// What runs the tool whose name the command was called by, if it is one.
pub fn called_as(args: &[OsString]) -> Option<fn(&[OsString]) -> ExitCode> {
    tool(args).map(|(main, _)| main)
}

/// Whether that tool understands the command line.
pub fn understands(args: &[OsString]) -> Option<bool> {
    tool(args).map(|(_, understands)| understands(args))
}

/// The exit status of every tool, if its reader did not take all of its output: SIGPIPE ends the tools themselves.
fn cut(error: &Error) -> Option<ExitCode> {
    error.is_broken_pipe().then(|| ExitCode::from(answer::CUT))
}

fn tool(args: &[OsString]) -> Option<Tool> {
    let name = Path::new(args.first()?).file_name()?;
    match name.to_str()? {
        "cryptsetup" => Some((cryptsetup::main, cryptsetup::understands)),
        "e2fsck" | "fsck.ext4" | "fsck.ext3" | "fsck.ext2" => Some((e2fsck::main, e2fsck::understands)),
        "fsverity" => Some((fsverity::main, fsverity::understands)),
        "integritysetup" => Some((integritysetup::main, integritysetup::understands)),
        "mke2fs" | "mkfs.ext2" | "mkfs.ext3" | "mkfs.ext4" => Some((mke2fs::main, mke2fs::understands)),
        #[cfg(target_os = "linux")]
        "mount.casemate" => Some((mount::main, mount::understands)),
        #[cfg(target_os = "linux")]
        "umount.fuse.casemate" | "umount.casemate" => Some((umount::main, umount::understands)),
        "veritysetup" => Some((veritysetup::main, veritysetup::understands)),
        _ => None,
    }
}
