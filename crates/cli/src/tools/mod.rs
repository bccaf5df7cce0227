//! Other tools' command lines: if the command is called through a link with such a tool's name, it takes that
//! tool's options and gives that tool's exit status.

mod fsverity;
mod veritysetup;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// The tool whose name the command was called by, if it is one.
pub fn called_as(args: &[OsString]) -> Option<fn(&[OsString]) -> ExitCode> {
    let name = Path::new(args.first()?).file_name()?;
    match name.to_str()? {
        "fsverity" => Some(fsverity::main),
        "veritysetup" => Some(veritysetup::main),
        _ => None,
    }
}
