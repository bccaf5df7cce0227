//! The AArch64 back ends, run on this machine under qemu-user.
//!
//! The toolchain is Debian's rustc-web, whose standard library exists for other architectures as a package;
//! where rustup has the target itself, that is used.

use std::path::Path;
use std::process::Command;

use crate::install::{apt_get, installed, may_install};
use crate::report::Report;
use crate::step::{Outcome, cargo};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_STD: &str = "/usr/lib/rustlib/aarch64-unknown-linux-gnu";

/// Tests the primitives on AArch64.
pub fn aarch64(report: &mut Report) -> Outcome {
    let rustup = rustup_has_target();
    if !rustup && !debian_has_target() && may_install() {
        add_architecture()?;
    }
    if !rustup && !debian_has_target() {
        return report.skip("aarch64: no standard library for the target (libstd-rust-web-dev:arm64)");
    }
    for (package, program) in
        [("gcc-aarch64-linux-gnu", "aarch64-linux-gnu-gcc"), ("qemu-user", "qemu-aarch64")]
    {
        if !installed(package) {
            return report.skip(&format!("aarch64: no {program} (package {package})"));
        }
    }
    let skips = report.skip_log().to_owned();
    let mut tests = cargo(["test", "--package", "casemate-primitives", "--target", TARGET, "--no-fail-fast"])
        // libc6:arm64 lies in the system's own folders. The cross compiler's libc is older; under it threads
        // never start.
        // A folder of its own: another compiler would otherwise rebuild everything back and forth.
        .env("CARGO_TARGET_DIR", "target/aarch64")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", "qemu-aarch64 -L /")
        .env("CASEMATE_SKIP_LOG", skips);
    if !rustup {
        tests = tests.env("RUSTC", DEBIAN_RUSTC).env("RUSTDOC", "/usr/bin/rustdoc");
    }
    tests.run_tests(report)
}

fn rustup_has_target() -> bool {
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

fn debian_has_target() -> bool {
    Path::new(DEBIAN_RUSTC).exists() && Path::new(DEBIAN_STD).exists()
}

fn add_architecture() -> Outcome {
    crate::step::step("dpkg", ["--add-architecture", "arm64"]).run()?;
    apt_get(&["update", "--quiet=2"])?;
    let packages = ["rustc-web", "libstd-rust-web-dev:arm64"];
    let mut args = vec!["install", "--yes", "--quiet=2", "--no-install-recommends"];
    args.extend(packages);
    apt_get(&args)
}
