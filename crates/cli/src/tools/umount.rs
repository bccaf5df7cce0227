//! The command line that umount(8) calls a file system's own helper with: `umount.fuse.casemate FOLDER [-flnrv] [-t TYPE]
//! [-N NAMESPACE]`. Without the helper nobody would be told that the last changes of a folder could not be made permanent.
//! Exit status 0, or 32 if the folder is not unmounted, or not all is permanent.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Parser;

use crate::streams::say;

/// The exit status of what failed, as umount(8) knows it.
const FAILED: u8 = 32;

#[derive(Debug, Parser)]
#[command(name = "umount.fuse.casemate", disable_version_flag = true)]
struct Helper {
    folder: OsString,
    /// Unmount what is in use, too.
    #[arg(short)]
    lazy: bool,
    /// For file systems of a network.
    #[arg(short)]
    force: bool,
    #[arg(short)]
    no_mtab: bool,
    #[arg(short)]
    read_only: bool,
    #[arg(short)]
    verbose: bool,
    #[arg(short = 't')]
    kind: Option<OsString>,
    #[arg(short = 'N')]
    namespace: Option<OsString>,
}

pub fn main(args: &[OsString]) -> ExitCode {
    let helper = Helper::parse_from(args);
    let run = || Command::new(std::env::current_exe()?).arg0("casemate").args(helper.arguments()).status();
    match run() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(FAILED),
        Err(error) => {
            say(format_args!("umount.fuse.casemate: {error}"));
            ExitCode::from(FAILED)
        }
    }
}

/// Whether a command line is understood; nothing is run.
pub fn understands(args: &[OsString]) -> bool {
    Helper::try_parse_from(args).is_ok()
}

impl Helper {
    /// Arguments of casemate for this.
    fn arguments(&self) -> Vec<OsString> {
        let lazy = self.lazy.then(|| "--lazy".into());
        ["umount".into()].into_iter().chain(lazy).chain(["--".into(), self.folder.clone()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_umount_are_those_of_the_command() {
        let line = "umount.fuse.casemate /mnt/a -n -l -v -t fuse.casemate";
        let helper = Helper::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(helper.arguments(), ["umount", "--lazy", "--", "/mnt/a"].map(OsString::from));
    }
}
