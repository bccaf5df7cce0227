//! Configurations that need Rust's nightly toolchain: Miri and fuzzing.

use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Stdio};

use crate::report::Report;
use crate::step::{Outcome, root, step};

/// Seconds for each target, if `CASEMATE_FUZZ_SECONDS` says nothing else.
const FUZZ_SECONDS: &str = "60";

/// The units of the devices and of ext4's parsers under Miri, which finds undefined behaviour of what they call too.
pub fn miri(report: &mut Report) -> Outcome {
    if !has("miri") {
        return report.skip("miri: not there (rustup toolchain install nightly --component miri,rust-src)");
    }
    let parsers = ["format::"];
    let test =
        |package| step("rustup", ["run", "nightly", "cargo", "miri", "test", "--lib", "--package", package]);
    // Temporary files and threads.
    let flags = "-Zmiri-disable-isolation";
    test("casemate-blockdev").env("MIRIFLAGS", flags).run_tests(report)?;
    test("casemate-ext4").args(&["--"]).args(&parsers).env("MIRIFLAGS", flags).run_tests(report)
}

/// Each fuzz target for a short time.
pub fn fuzz_minute(report: &mut Report) -> Outcome {
    if !has("fuzz") {
        return report.skip("fuzz-minute: no cargo-fuzz under nightly (cargo install cargo-fuzz)");
    }
    let seconds = std::env::var("CASEMATE_FUZZ_SECONDS").unwrap_or_else(|_| FUZZ_SECONDS.to_owned());
    let limit = format!("-max_total_time={seconds}");
    let folder = fs::read_dir(root().join("fuzz/fuzz_targets")).map_err(|error| error.to_string())?;
    let sources = folder.filter_map(Result::ok).map(|entry| entry.path());
    let is_target = |path: &std::path::PathBuf| path.extension() == Some(OsStr::new("rs"));
    let mut targets: Vec<_> =
        sources.filter(is_target).filter_map(|path| path.file_stem()?.to_str().map(str::to_owned)).collect();
    targets.sort();
    for target in targets {
        step("rustup", ["run", "nightly", "cargo", "fuzz", "run", &target, "--", &limit]).run()?;
    }
    Ok(())
}

/// Whether the nightly toolchain's cargo has this command.
fn has(command: &str) -> bool {
    let mut version = Command::new("rustup");
    version
        .args(["run", "nightly", "cargo", command, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}
