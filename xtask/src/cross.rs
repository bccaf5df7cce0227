//! Other processors: the AArch64 back ends, run on this machine under qemu-user, and 32-bit Linux.
//!
//! The toolchain is Debian's rustc-web, whose standard library exists for other architectures as a package;
//! where rustup has the target itself, that is used.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::install::{apt_get, has_packages, may_install};
use crate::report::Report;
use crate::step::{Outcome, Step, cargo, root, step};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const TARGET_32: &str = "i686-unknown-linux-gnu";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_STD: &str = "/usr/lib/rustlib";

/// Tests the primitives on AArch64.
pub fn aarch64(report: &mut Report) -> Outcome {
    if !prepared(report, "aarch64", TARGET, "arm64", &["gcc-aarch64-linux-gnu", "qemu-user"])? {
        return Ok(());
    }
    let skips = report.skip_log().to_owned();
    let tests = cargo(["test", "--package", "casemate-primitives", "--target", TARGET, "--no-fail-fast"])
        // libc6:arm64 lies in the system's own folders. The cross compiler's libc is older; under it threads
        // never start.
        // A folder of its own: another compiler would otherwise rebuild everything back and forth.
        .env("CARGO_TARGET_DIR", "target/aarch64")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", "qemu-aarch64 -L /")
        .env("CASEMATE_SKIP_LOG", skips);
    with_compiler(tests, TARGET).run_tests(report)?;
    require_inlined()
}

/// An intrinsic that stays a function is called for each round of a cipher or a hash: none may.
fn require_inlined() -> Outcome {
    let folder = root().join("target/aarch64").join(TARGET).join("debug/deps");
    let is_program = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("casemate_primitives-") && path.extension().is_none()
    };
    let found = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let programs = found.flatten().map(|entry| entry.path()).filter(is_program);
    let newest = programs.max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok());
    let newest = newest.ok_or("aarch64: there is no program of tests")?;
    let names = step("aarch64-linux-gnu-nm", ["--demangle", &newest.to_string_lossy()]).output()?;
    if !names.contains("casemate_primitives::aes::aarch64") {
        return Err(format!("aarch64: {} tells no names", newest.display()));
    }
    match names.lines().find(|line| line.contains("core_arch::")) {
        None => Ok(()),
        Some(name) => Err(format!("aarch64: an instruction is a function of its own: {name}")),
    }
}

/// Tests the libraries' units on 32-bit Linux, which this processor runs as well.
pub fn i686(report: &mut Report) -> Outcome {
    // gcc-multilib is no package for this: it excludes cross compilers.
    if !prepared(report, "i686", TARGET_32, "i386", &["gcc-12-multilib", "libc6-dev-i386"])? {
        return Ok(());
    }
    let skips = report.skip_log().to_owned();
    let tests = cargo(["test", "--lib", "--target", TARGET_32, "--no-fail-fast"]).args(&LIBRARIES);
    let tests = tests.env("CARGO_TARGET_DIR", "target/i686").env("CASEMATE_SKIP_LOG", skips);
    with_compiler(tests, TARGET_32).run_tests(report)?;
    // The command is compiled alone.
    let check = cargo(["check", "--package", "casemate-cli", "--target", TARGET_32]);
    with_compiler(check.env("CARGO_TARGET_DIR", "target/i686"), TARGET_32).run()
}

/// What a library for 32 bits may get wrong: lengths of files in `usize`.
const LIBRARIES: [&str; 22] = [
    "-p",
    "casemate-primitives",
    "-p",
    "casemate-blockdev",
    "-p",
    "casemate-providers",
    "-p",
    "casemate-verity",
    "-p",
    "casemate-crypt",
    "-p",
    "casemate-fscrypt",
    "-p",
    "casemate-luks",
    "-p",
    "casemate-integrity",
    "-p",
    "casemate-ext4",
    "-p",
    "casemate-trees",
    "-p",
    "casemate-nbd",
];

/// Whether a target's standard library and programs are there, fetched where that is allowed; else that is a skip.
fn prepared(
    report: &mut Report,
    name: &str,
    target: &str,
    architecture: &str,
    packages: &[&str],
) -> Result<bool, String> {
    let has_target = || rustup_has_target(target) || debian_has_target(target);
    if !has_target() && may_install() {
        add_architecture(architecture)?;
    }
    if !has_target() {
        let text = format!("{name}: no standard library for the target (libstd-rust-web-dev:{architecture})");
        return report.skip(&text).map(|()| false);
    }
    has_packages(report, name, packages)
}

/// The compiler that has a target.
fn with_compiler(step: Step, target: &str) -> Step {
    match rustup_has_target(target) {
        true => step,
        false => step.env("RUSTC", DEBIAN_RUSTC).env("RUSTDOC", "/usr/bin/rustdoc"),
    }
}

/// Whether the compiler has a target's standard library.
pub fn rustup_has_target(target: &str) -> bool {
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

fn debian_has_target(target: &str) -> bool {
    Path::new(DEBIAN_RUSTC).exists() && Path::new(DEBIAN_STD).join(target).exists()
}

fn add_architecture(name: &str) -> Outcome {
    crate::step::step("dpkg", ["--add-architecture", name]).run()?;
    apt_get(&["update", "--quiet=2"])?;
    let library = format!("libstd-rust-web-dev:{name}");
    let packages = ["rustc-web", &library];
    let mut args = vec!["install", "--yes", "--quiet=2", "--no-install-recommends"];
    args.extend(packages);
    apt_get(&args)
}
