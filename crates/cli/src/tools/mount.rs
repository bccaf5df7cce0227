//! The command line that mount(8) calls a file system's own helper with: `mount.casemate IMAGE FOLDER [-sfnv] [-o OPTIONS]`.
//! Options are those of `casemate mount`, without the hyphens before them. Exit status 0, or 32 if there is no mount.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Parser;

use crate::cmd::mount::KernelOptions;
use crate::streams::say;

/// Options in /etc/fstab for mount(8) itself, which passes them on, and options that it adds. Writing stays off
/// whatever they are.
const OTHERS: &[&str] = &[
    "atime",
    "async",
    "auto",
    "defaults",
    "diratime",
    "group",
    "lazytime",
    "loop",
    "loud",
    "_netdev",
    "noatime",
    "noauto",
    "nodiratime",
    "nofail",
    "nogroup",
    "noowner",
    "norelatime",
    "nostrictatime",
    "nouser",
    "nousers",
    "owner",
    "relatime",
    "rw",
    "silent",
    "strictatime",
    "sync",
    "user",
    "users",
];

/// The exit status of a mount that failed, as mount(8) knows it.
const FAILED: u8 = 32;

#[derive(Debug, Parser)]
#[command(name = "mount.casemate", disable_version_flag = true)]
struct Helper {
    image: OsString,
    folder: OsString,
    /// The options, as in /etc/fstab.
    #[arg(short)]
    options: Vec<String>,
    /// Pass over options that are not known. (They are refused all the same.)
    #[arg(short)]
    sloppy: bool,
    /// Do everything but mount.
    #[arg(short)]
    fake: bool,
    #[arg(short)]
    no_mtab: bool,
    #[arg(short)]
    verbose: bool,
}

pub fn main(args: &[OsString]) -> ExitCode {
    let helper = Helper::parse_from(args);
    if helper.fake {
        return ExitCode::SUCCESS;
    }
    let run = || Command::new(std::env::current_exe()?).arg0("casemate").args(helper.arguments()).status();
    match run() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(FAILED),
        Err(error) => {
            say(format_args!("mount.casemate: {error}"));
            ExitCode::from(FAILED)
        }
    }
}

/// Whether a command line is understood; nothing is run.
pub fn understands(args: &[OsString]) -> bool {
    Helper::try_parse_from(args).is_ok_and(|helper| {
        let own = [OsString::from("casemate")].into_iter().chain(helper.arguments());
        crate::understands(&own.collect::<Vec<_>>())
    })
}

impl Helper {
    /// Arguments of casemate that mean this command line.
    fn arguments(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["mount".into()];
        let mut of_kernel = Vec::new();
        for option in self.options.iter().flat_map(|list| list.split(',')) {
            let name = option.split('=').next().unwrap_or_default();
            match option {
                "" => {}
                _ if KernelOptions::has(option) => of_kernel.push(option),
                _ if OTHERS.contains(&option) || name.starts_with("x-") || name == "comment" => {}
                _ => {
                    // mount(8)'s own options have underscores.
                    let own = format!("--{}{}", name.replace('_', "-"), &option[name.len()..]);
                    words.push(own.into());
                }
            }
        }
        // One list: an option is given once.
        if !of_kernel.is_empty() {
            words.extend(["-o".into(), of_kernel.join(",").into()]);
        }
        words.extend(["--".into(), self.image.clone(), self.folder.clone()]);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_fstab_are_those_of_the_command() {
        let line = "mount.casemate disk.img /mnt -n -o rw,noauto,luks,key_file=/etc/a=b,allow_other,dev,noexec,x-systemd.automount";
        let helper = Helper::try_parse_from(line.split(' ')).unwrap();
        let words = "mount --luks --key-file=/etc/a=b --allow-other -o dev,noexec -- disk.img /mnt";
        assert_eq!(helper.arguments(), words.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(understands(&line.split(' ').map(OsString::from).collect::<Vec<_>>()));
        assert!(!understands(&["mount.casemate", "a", "b", "-o", "none-such"].map(OsString::from)));
    }
}
