//! Support for the tests of all crates: real tools, real kernels, skips and fixtures.
//!
//! A test that needs something of the machine asks for it here. If it is missing the test says
//! `skipped: why` and ends; where skips are not expected ([`skip`]), that is a failure.
#![forbid(unsafe_code)]

pub mod block_map;
#[cfg(unix)]
mod cpio;
#[cfg(unix)]
pub mod kernel;
#[cfg(unix)]
mod listing;
mod medium;
pub mod mke2fs;
#[cfg(unix)]
pub mod nbd;
#[cfg(unix)]
mod place;
#[cfg(unix)]
pub mod power;
#[cfg(unix)]
pub mod qemu;
#[cfg(unix)]
pub mod uml;
#[cfg(unix)]
pub mod valgrind;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

pub use casemate_primitives::testing::Rng;
#[cfg(unix)]
pub use listing::listing;
pub use medium::{Medium, cut_states};
#[cfg(unix)]
pub use place::{Place, heeding_signals, status, stderr, stdout};
pub use tempfile::{TempDir, tempdir};

/// The result of a script that ran under another kernel.
#[derive(Debug)]
pub struct GuestOutput {
    /// The script's exit status.
    pub status: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// The kernel's own messages.
    pub console: String,
}

impl GuestOutput {
    /// Panics with everything the guest said unless the script succeeded.
    pub fn expect_success(self) -> GuestOutput {
        assert_eq!(self.status, 0, "in the guest: {}\n{}\n{}", self.stdout, self.stderr, self.console);
        self
    }
}

/// How long a test waits for what must come: no machine is so slow or so busy that it takes longer, and only a test that fails
/// takes as long.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// Waits until something is so.
///
/// # Panics
/// If it is not so after [`PATIENCE`].
#[track_caller]
pub fn wait_until(is_so: impl FnMut() -> bool) {
    assert!(comes_true(is_so), "it takes too long");
}

/// Whether something becomes so within [`PATIENCE`].
pub fn comes_true(mut is_so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Reports on standard error why a test did not run, and notes it for the test runner.
///
/// With `CASEMATE_NO_SKIPS=1` a skip is a failure, unless the reason begins with one of the words listed in
/// `CASEMATE_EXPECTED_SKIPS` (separated by commas). `CASEMATE_SKIP_LOG` names a file that collects reasons.
pub fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
    if let Some(log) = std::env::var_os("CASEMATE_SKIP_LOG") {
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        let line = format!("{test}: {reason}\n");
        let file = OpenOptions::new().create(true).append(true).open(log);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the skip log can be written");
    }
    if std::env::var_os("CASEMATE_NO_SKIPS").is_some_and(|value| value == "1") {
        let expected = std::env::var("CASEMATE_EXPECTED_SKIPS").unwrap_or_default();
        let expected = expected.split(',').any(|word| !word.is_empty() && reason.starts_with(word));
        assert!(expected, "a skip that was not expected: {reason}");
    }
}

/// The program `name` from `PATH` or the system's folders, or a skip and `None`.
pub fn tool(name: &str) -> Option<PathBuf> {
    let found = find_program(name);
    if found.is_none() {
        skip(&format!("no {name}"));
    }
    found
}

/// Where the program `name` lies, if it is installed. Says nothing if it isn't.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if cfg!(windows) {
        // Those of the system below Wine know nothing of its paths.
        return None;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let places = std::env::split_paths(&path).chain(system);
    places.map(|place| place.join(name)).find(|path| path.is_file())
}

/// Whether the slow sweeps should run too (`CASEMATE_SLOW_TESTS=1`).
pub fn slow_tests() -> bool {
    std::env::var_os("CASEMATE_SLOW_TESTS").is_some_and(|value| value == "1")
}

/// Runs a command and panics with its whole output if it fails. Returns what it wrote to standard output.
pub fn run(command: &mut Command) -> String {
    let output = run_any(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8 from a tool")
}

/// Runs a command, whatever its exit status.
pub fn run_any(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The bytes of a fixture, unpacked if its name ends in `.xz`.
pub fn fixture(path: impl AsRef<Path>) -> Vec<u8> {
    let path = path.as_ref();
    let raw = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if path.extension().is_none_or(|extension| extension != "xz") {
        return raw;
    }
    let mut bytes = Vec::new();
    lzma_rs::xz_decompress(&mut raw.as_slice(), &mut bytes)
        .unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
    bytes
}
