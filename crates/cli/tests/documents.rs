//! The commands that README.md and docs/commands.md show, run as they are printed.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use casemate_testkit::{kernel, run, tempdir, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines of all shell blocks of a document, one after the other; those of blocks that mount, where that works.
fn shell_blocks(document: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let blocks = text.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```").next().unwrap());
    let runs = |block: &&str| !block.contains("casemate mount") || kernel::fuse_works();
    blocks.filter(runs).flat_map(str::lines).map(str::to_owned).collect()
}

/// Runs lines as one script that stops at the first failure, in an empty folder in which `docs` is this project's.
fn run_lines(lines: &[String]) {
    let folder = tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("docs"), folder.path().join("docs")).unwrap();
    let own = Path::new(CASEMATE).parent().unwrap().to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let places = std::iter::once(own).chain(env::split_paths(&path)).chain(system);
    let path: OsString = env::join_paths(places).unwrap();
    let script = format!("set -euo pipefail\n{}\n", lines.join("\n"));
    run(Command::new("bash")
        .args(["-c", &script])
        .env("PATH", path)
        .env("HOME", folder.path())
        .current_dir(folder.path()));
}

#[test]
fn commands_of_the_readme_run_as_printed() {
    if tool("mke2fs").is_none() {
        return;
    }
    // What builds the command, and what runs the project's tests, has been done here.
    let lines: Vec<String> =
        shell_blocks("README.md").into_iter().filter(|l| !l.starts_with("cargo ")).collect();
    assert_eq!(lines.iter().filter(|line| line.starts_with("casemate ")).count(), 7);
    run_lines(&lines);
}

#[test]
fn all_commands_by_example_run_as_printed() {
    if ["mke2fs", "openssl", "qemu-img"].into_iter().any(|name| tool(name).is_none()) {
        return;
    }
    let lines = shell_blocks("docs/commands.md");
    assert!(lines.len() > 40, "{} lines", lines.len());
    run_lines(&lines);
}

/// The commands that `--help` lists, but for `help` itself.
fn listed_commands() -> BTreeSet<String> {
    let help = run(Command::new(CASEMATE).arg("--help"));
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = list.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    let names = names.filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}

#[test]
fn documents_and_help_know_the_same_commands() {
    let listed = listed_commands();
    assert!(listed.len() >= 7, "{listed:?}");
    let mut shown = BTreeSet::new();
    for document in ["README.md", "docs/commands.md", "CHANGELOG.md"] {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let inline = text.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("casemate "));
        let scripts = shell_blocks(document);
        let scripts = scripts.iter().flat_map(|line| line.split("casemate ").skip(1));
        for arguments in inline.chain(scripts) {
            let name = arguments.split_whitespace().next().unwrap();
            let is_word = name.starts_with(|first: char| first.is_ascii_lowercase()) && name != "help";
            assert!(!is_word || listed.contains(name), "{document}: casemate {arguments}");
            shown.insert(name.to_owned());
        }
    }
    let unknown: Vec<_> = listed.difference(&shown).collect();
    assert!(unknown.is_empty(), "no document shows {unknown:?}");
}
