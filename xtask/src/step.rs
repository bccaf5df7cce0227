//! One command of a configuration.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

pub use crate::report::Outcome;
use crate::report::Report;

/// A command that runs at the workspace's root.
pub struct Step {
    command: Command,
    text: String,
}

/// `cargo` with these arguments; the same cargo that runs this program.
///
/// It gets nothing of what cargo told this program about its own package: build scripts that look at such variables would run
/// again, and a third of the workspace would be built anew, each time that somebody calls cargo alone between.
pub fn cargo<const N: usize>(args: [&str; N]) -> Step {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut step = step(cargo, args);
    let is_of_package = |name: &str| name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_package)) {
        step.command.env_remove(name);
    }
    step
}

/// Any program with these arguments.
pub fn step<const N: usize>(program: impl AsRef<OsStr>, args: [&str; N]) -> Step {
    let mut command = Command::new(program.as_ref());
    command.args(args).current_dir(root());
    expect_no_skips(&mut command);
    let name = std::path::Path::new(program.as_ref()).file_name().unwrap_or(program.as_ref());
    Step { command, text: format!("{} {}", name.to_string_lossy(), args.join(" ")) }
}

/// A skip that depends on the machine alone: containers seldom let users other than root open /dev/fuse.
const EXPECTED_SKIPS: &str = "FUSE: other users can't use /dev/fuse";

/// Makes a skipped test a failure where skips are not expected.
pub fn expect_no_skips(command: &mut Command) {
    if std::env::var_os("CI").is_some() {
        command.env("CASEMATE_NO_SKIPS", "1");
        if std::env::var_os("CASEMATE_EXPECTED_SKIPS").is_none() {
            command.env("CASEMATE_EXPECTED_SKIPS", EXPECTED_SKIPS);
        }
    }
}

/// The workspace's root: this program's manifest lies one folder below.
pub fn root() -> std::path::PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the workspace").to_owned()
}

impl Step {
    /// Sets a variable of the environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Step {
        self.command.env(name, value);
        self
    }

    /// Runs it in this folder instead of the workspace's root.
    pub fn folder(mut self, folder: &std::path::Path) -> Step {
        self.command.current_dir(folder);
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<str>>(mut self, args: &[S]) -> Step {
        for arg in args {
            self.command.arg(arg.as_ref());
            self.text = format!("{} {}", self.text.trim_end(), arg.as_ref());
        }
        self
    }

    /// Runs it, showing what it prints.
    pub fn run(mut self) -> Outcome {
        let status = self.command.status().map_err(|error| format!("{}: {error}", self.text))?;
        if status.success() { Ok(()) } else { Err(format!("{}: {status}", self.text)) }
    }

    /// Runs it, showing what it says, and returns what it writes to standard output.
    pub fn output(mut self) -> Result<String, String> {
        let output = self.command.stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("{}: {error}", self.text))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("{}: {}", self.text, output.status)),
        }
    }

    /// Runs it, showing what it prints, and counts the tests that cargo reports.
    pub fn run_tests(mut self, report: &mut Report) -> Outcome {
        let failed = |error| format!("{}: {error}", self.text);
        let mut child = self.command.stdout(Stdio::piped()).spawn().map_err(failed)?;
        let output = child.stdout.take().expect("standard output was asked for");
        for line in BufReader::new(output).lines() {
            let line = line.map_err(failed)?;
            report.count(&line);
            println!("{line}");
        }
        let status = child.wait().map_err(failed)?;
        if status.success() { Ok(()) } else { Err(format!("{}: {status}", self.text)) }
    }
}
