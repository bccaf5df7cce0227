//! Test binaries of the workspace, several at once: many wait, for a kernel that boots, a client or a clock.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;

use crate::report::Report;
use crate::step::{Outcome, cargo};

/// Binaries that run at the same time, each of which runs as many of its tests at once as there are cores. With two of them half of
/// two cores' time went to waiting.
const AT_ONCE: usize = 4;

/// A test binary.
struct Binary {
    path: PathBuf,
    /// Cargo runs tests in the folder of their package.
    folder: PathBuf,
    name: String,
}

/// The tests to run, and how; all that there is and as it is by default.
#[derive(Default)]
pub struct Tests<'a> {
    /// Filters of `cargo test --workspace`: packages and targets.
    pub filter: &'a [&'a str],
    /// Names of binaries that are not run.
    pub left_out: &'a [&'a str],
    /// Arguments of every binary.
    pub args: &'a [&'a str],
    /// Variables of their environment.
    pub variables: &'a [(&'a str, &'a str)],
}

/// Builds test binaries, and runs them.
pub fn run(report: &mut Report, tests: &Tests<'_>) -> Outcome {
    let build = ["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
    let messages = cargo(build).args(tests.filter).output()?;
    let mut binaries: Vec<Binary> = messages.lines().filter_map(binary).collect();
    if binaries.is_empty() {
        return Err("cargo names no test binaries".to_owned());
    }
    binaries.retain(|binary| !tests.left_out.contains(&&*binary.name));
    let skips = report.skip_log().to_owned();
    let (next, report, failed) =
        (Mutex::new(binaries.into_iter()), Mutex::new(report), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(binary) = { lock(&next).next() } {
                    let start = Instant::now();
                    let output = binary.run(tests, &skips);
                    let seconds = start.elapsed().as_secs_f64();
                    // Whole outputs, one after the other.
                    let mut report = lock(&report);
                    println!("     Running {} ({seconds:.1} s)", binary.name);
                    let is_good = output.as_ref().is_ok_and(|output| output.status.success());
                    match &output {
                        Ok(output) => show(output, &mut report),
                        Err(error) => println!("{}: {error}", binary.path.display()),
                    }
                    if !is_good {
                        lock(&failed).push(binary.name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() { Ok(()) } else { Err(format!("tests of {}", failed.join(", "))) }
}

/// The binary of one of cargo's messages, if it is about a test.
fn binary(message: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let source = Path::new(message["target"]["src_path"].as_str()?);
    let source = source.strip_prefix(&folder).unwrap_or(source).display();
    let package = folder.file_name()?.to_string_lossy();
    Some(Binary { name: format!("{package}: {source}"), path, folder })
}

impl Binary {
    fn run(&self, tests: &Tests<'_>, skips: &Path) -> std::io::Result<Output> {
        let mut command = Command::new(&self.path);
        command.args(tests.args).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.env("CASEMATE_SKIP_LOG", skips).envs(tests.variables.iter().copied());
        crate::step::expect_no_skips(&mut command);
        command.output()
    }
}

fn show(output: &Output, report: &mut Report) {
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        report.count(line);
        println!("{line}");
    }
    // What can't be shown is not a reason to fail.
    let _ = std::io::stderr().write_all(&output.stderr);
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_are_told_from_other_messages() {
        let test = r#"{"reason":"compiler-artifact","manifest_path":"/a/crates/cli/Cargo.toml","profile":{"test":true},
            "target":{"src_path":"/a/crates/cli/tests/crypt.rs"},"executable":"/a/target/debug/deps/crypt-1"}"#;
        let found = binary(test).unwrap();
        assert_eq!(found.name, "cli: tests/crypt.rs");
        assert_eq!(found.folder, Path::new("/a/crates/cli"));
        assert!(binary(&test.replace("true", "false")).is_none());
        assert!(binary(&test.replace("compiler-artifact", "build-finished")).is_none());
        assert!(binary("   Compiling casemate").is_none());
    }
}
