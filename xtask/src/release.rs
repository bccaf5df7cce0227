//! The crates as they are published, and what changed in them for those who link them.

use std::process::{Command, Stdio};

use crate::report::Report;
use crate::step::{Outcome, cargo, root, step};

/// cargo-semver-checks' version for this compiler.
const SEMVER_CHECKS: &str = "0.51.0";

/// Builds each crate from its package, as the registry's users do, and compares its interface with the last release's.
pub fn crates(_: &mut Report) -> Outcome {
    cargo(["package", "--quiet", "--workspace", "--locked"]).run()?;
    let Some(release) = last_release() else {
        println!(
            "no release yet that interfaces could be compared with (CASEMATE_RELEASE=REVISION names one)"
        );
        return Ok(());
    };
    let tools = root().join("target/semver-checks");
    if !tools.join("bin/cargo-semver-checks").exists() {
        let version =
            ["--quiet", "--locked", "--debug", "cargo-semver-checks", "--version", SEMVER_CHECKS, "--root"];
        cargo(["install"]).args(&version).args(&[&tools.to_string_lossy()]).run()?;
    }
    println!("beside {release}");
    step(tools.join("bin/cargo-semver-checks"), ["semver-checks", "--workspace", "--baseline-rev", &release])
        .run()
}

/// The last release's tag, or what the environment names.
fn last_release() -> Option<String> {
    if let Ok(revision) = std::env::var("CASEMATE_RELEASE") {
        return Some(revision);
    }
    let mut git = Command::new("git");
    git.args(["describe", "--tags", "--abbrev=0", "--match", "v*"]).current_dir(root()).stderr(Stdio::null());
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
