//! Other processors: the AArch64 back ends, run on this machine under qemu-user, and 32-bit Linux.
//!
//! The toolchain is Debian's rustc-web, whose standard library exists for other architectures as a package;
//! where rustup has the target itself, that is used.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::binaries::{self, Tests};
use crate::install::{apt_get, has_packages, installed, may_install};
use crate::report::Report;
use crate::step::{Outcome, Step, cargo, root, step};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const TARGET_32: &str = "i686-unknown-linux-gnu";
/// The system's own C library for AArch64; that of the cross compiler is older, and under it threads never start.
const LIBC: &str = "libc6:arm64";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_STD: &str = "/usr/lib/rustlib";

/// Tests the primitives on AArch64.
pub fn aarch64(report: &mut Report) -> Outcome {
    if !prepared(report, "aarch64", TARGET, "arm64", &["gcc-aarch64-linux-gnu", "qemu-user", LIBC])? {
        return Ok(());
    }
    let skips = report.skip_log().to_owned();
    let tests = cargo(["test", "--package", "casemate-primitives", "--target", TARGET, "--no-fail-fast"])
        // Examples in the documentation are compiled for this machine, and an emulator's times tell nothing of constant time.
        .args(&["--lib", "--test=ciphers", "--test=sha2"])
        // A folder of its own: another compiler would otherwise rebuild everything back and forth.
        .env("CARGO_TARGET_DIR", "target/aarch64")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", "qemu-aarch64 -L /")
        .env("CASEMATE_SKIP_LOG", skips);
    with_compiler(tests, TARGET).run_tests(report)?;
    require_inlined()
}

/// Packages whose programs link what only a compiler for AArch64 makes, or are loaded by this machine's interpreter.
const NATIVE: [&str; 4] = [
    "--exclude=casemate-capi",
    "--exclude=casemate-libfsverity",
    "--exclude=casemate-python",
    "--exclude=xtask",
];

/// Tests that prove nothing under an emulator: binaries, and tests by what is in their names, each with the reason.
const BINARIES_LEFT_OUT: [(&str, &str); 1] = [("cli: tests/memory.rs", "limits of memory hold the emulator")];
const TESTS_LEFT_OUT: [(&str, &str); 11] = [
    ("memory_is_bounded", "limits of memory hold the emulator"),
    ("a_stock_kernel_", "the kernel that is booted runs no programs for AArch64"),
    ("the_kernels_ciphers", "the kernel that is booted runs no programs for AArch64"),
    ("the_kernels_hashes", "the kernel that is booted runs no programs for AArch64"),
    ("the_kernels_client_and_dm_crypt", "the kernel that is booted runs no programs for AArch64"),
    ("a_real_device_that_fails", "the kernel that is booted runs no programs for AArch64"),
    ("two_thousand_connections", "an emulator takes longer for so many than the test waits"),
    ("a_kernel_that_clones_no_files", "the emulator refuses by itself what the test has refused"),
    ("_leave_nothing", "what is traced and searched is the emulator"),
    ("the_link_behaves_as_the_tool", "the emulator does not have the ioctls of fs-verity"),
    ("costs_take_the_time", "an emulator takes other times"),
];

/// Runs all tests on AArch64. The kernel hands the programs of it that tests start to qemu-user, and so it does the tests.
pub fn emulated(report: &mut Report) -> Outcome {
    let packages = ["gcc-aarch64-linux-gnu", "qemu-user", LIBC];
    if !prepared(report, "emulated", TARGET, "arm64", &packages)? {
        return Ok(());
    }
    if !rustup_has_target(TARGET) {
        return report.skip("emulated: the compiler itself has no AArch64");
    }
    let Some(_emulator) = Emulator::register()? else {
        return report.skip("emulated: the kernel takes no programs for other processors (binfmt_misc)");
    };
    let linker = format!("--config=target.{TARGET}.linker='aarch64-linux-gnu-gcc'");
    let filter = [&NATIVE[..], &["--target", TARGET, "--target-dir=target/aarch64", &linker]].concat();
    for (tests, reason) in BINARIES_LEFT_OUT.iter().chain(&TESTS_LEFT_OUT) {
        report.leave_out(tests, reason)?;
    }
    let skips = TESTS_LEFT_OUT.map(|(name, _)| format!("--skip={name}"));
    let tests = Tests {
        filter: &filter,
        left_out: &BINARIES_LEFT_OUT.map(|(name, _)| name),
        args: &skips.each_ref().map(String::as_str),
        variables: &[("QEMU_LD_PREFIX", "/")],
    };
    binaries::run(report, &tests)
}

/// The kernel's word that it starts qemu-user for AArch64's programs, taken back at the end.
struct Emulator(Option<PathBuf>);

/// The kernel's folder of formats of programs.
const FORMATS: &str = "/proc/sys/fs/binfmt_misc";

impl Emulator {
    /// None where the kernel has no such thing, or does not let this user say it.
    fn register() -> Result<Option<Emulator>, String> {
        let formats = Path::new(FORMATS);
        let known = |name: &str| formats.join(name).exists();
        if !known("register")
            && (!may_install() || step("mount", ["-t", "binfmt_misc", "none", FORMATS]).run().is_err())
        {
            return Ok(None);
        }
        if known("qemu-aarch64") {
            return Ok(Some(Emulator(None)));
        }
        let own = Emulator(Some(formats.join("casemate-aarch64")));
        // A run that was killed has left it.
        if known("casemate-aarch64") {
            return Ok(Some(own));
        }
        // An ELF header of 64 bits in little-endian, a program or a library, of machine 183.
        let format = [
            r":casemate-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00",
            r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff",
            ":/usr/bin/qemu-aarch64:",
        ];
        let said = std::fs::write(formats.join("register"), format.concat());
        said.map_err(|error| format!("{FORMATS}: {error}")).map(|()| Some(own))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if let Some(format) = &self.0 {
            // The kernel forgets it with the machine, if not now.
            let _ = std::fs::write(format, "-1");
        }
    }
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
    // gcc-multilib is not a package for this: it excludes cross compilers.
    if !prepared(report, "i686", TARGET_32, "i386", &["gcc-12-multilib", "libc6-dev-i386"])? {
        return Ok(());
    }
    let skips = report.skip_log().to_owned();
    let tests = cargo(["test", "--lib", "--target", TARGET_32, "--no-fail-fast"]).args(&LIBRARIES);
    let tests = tests.env("CARGO_TARGET_DIR", "target/i686").env("CASEMATE_SKIP_LOG", skips);
    with_compiler(tests, TARGET_32).run_tests(report)?;
    // The command and the Python module are compiled alone.
    let packages = ["--package", "casemate-cli", "--package", "casemate-python"];
    let check = cargo(["check", "--target", TARGET_32]).args(&packages);
    with_compiler(check.env("CARGO_TARGET_DIR", "target/i686"), TARGET_32).run()
}

/// Libraries that may go wrong with 32 bits: lengths of files in `usize`.
const LIBRARIES: [&str; 24] = [
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
    "casemate-probe",
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
    let is_foreign = |package: &&str| package.ends_with(&format!(":{architecture}"));
    if packages.iter().filter(|package| is_foreign(package)).any(|package| !installed(package))
        && may_install()
    {
        step("dpkg", ["--add-architecture", architecture]).run()?;
        apt_get(&["update", "--quiet=2"])?;
    }
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
