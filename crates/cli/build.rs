//! Commit and target of the build, for `casemate --version --verbose`.
//!
//! The commit is that of a clean or changed tree of this project, that of a package of cargo, or what `CASEMATE_COMMIT` says. Builds
//! for tests do not look, so that no commit makes them anew.

#![expect(clippy::disallowed_macros, reason = "a build script talks to cargo on standard output")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CASEMATE_COMMIT");
    let said = env::var("CASEMATE_COMMIT").ok();
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if is_release && said.is_none() {
        // Never there: each build looks again.
        println!("cargo::rerun-if-changed=.git-of-each-build");
    }
    let found = || if is_release { of_package().or_else(of_tree) } else { None };
    let commit = said.or_else(found).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=CASEMATE_COMMIT={commit}");
    println!("cargo::rustc-env=CASEMATE_TARGET={}", env::var("TARGET").unwrap_or_default());
}

fn here() -> PathBuf {
    env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default()
}

/// The commit that cargo has noted in a package that it made.
fn of_package() -> Option<String> {
    let noted = fs::read_to_string(here().join(".cargo_vcs_info.json")).ok()?;
    let rest = noted.split("\"sha1\"").nth(1)?.split('"').nth(1)?;
    is_commit(rest).then(|| rest.to_owned())
}

/// The commit of this project's own tree, and whether something was changed in it.
fn of_tree() -> Option<String> {
    let root = here().join("../..").canonicalize().ok()?;
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(&root).args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // A tree of somebody else, in which these sources lie, has other commits.
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root {
        return None;
    }
    let commit = git(&["rev-parse", "HEAD"]).filter(|commit| is_commit(commit))?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit}, changed") })
}

fn is_commit(text: &str) -> bool {
    text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
