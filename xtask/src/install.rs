//! The tools that tests need, from Debian's packages.

use std::process::{Command, Stdio};

use crate::report::Report;
use crate::step::{Outcome, step};

/// A package and what its absence costs.
const PACKAGES: &[(&str, &str)] = &[
    ("acl", "access control lists in extracted trees"),
    ("attr", "extended attributes in extracted trees"),
    ("busybox-static", "the real kernel's first program"),
    ("cryptsetup-bin", "comparison with cryptsetup and veritysetup"),
    ("dmsetup", "device-mapper in the real kernel"),
    ("e2fsprogs", "comparison with mke2fs, e2fsck and debugfs"),
    ("fsverity", "comparison with fsverity"),
    ("gcc-aarch64-linux-gnu", "tests of the AArch64 back ends"),
    ("kmod", "modules of the real kernel"),
    ("libc6-dev-arm64-cross", "tests of the AArch64 back ends"),
    ("openssl", "comparison of signatures"),
    ("python3", "independent test vectors"),
    ("qemu-user", "tests of the AArch64 back ends"),
    ("user-mode-linux", "a real kernel as a process"),
    ("valgrind", "the constant-time check"),
];

/// Installs what is missing where that is allowed, else says what will be skipped.
pub fn tools(_: &mut Report) -> Outcome {
    let missing: Vec<_> = PACKAGES.iter().filter(|(package, _)| !installed(package)).collect();
    if missing.is_empty() {
        println!("all packages are there");
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(package, _)| *package).collect();
    if !may_install() {
        println!("not root on a Debian system, so some tests will be skipped. Missing packages:");
        for (package, use_) in missing {
            println!("    {package:<24} {use_}");
        }
        return Ok(());
    }
    println!("installing {}", names.join(" "));
    apt_get(&["update", "--quiet=2"])?;
    let mut args = vec!["install", "--yes", "--quiet=2", "--no-install-recommends"];
    args.extend(names);
    apt_get(&args)
}

/// Whether dpkg knows `package` as installed.
pub fn installed(package: &str) -> bool {
    let query = Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output();
    query.is_ok_and(|output| output.stdout.starts_with(b"installed"))
}

/// Whether this is root on a system with apt-get.
pub fn may_install() -> bool {
    let output = |program, arg| Command::new(program).arg(arg).stderr(Stdio::null()).output();
    let root = output("id", "-u").is_ok_and(|output| output.stdout == b"0\n");
    root && output("apt-get", "--version").is_ok_and(|output| output.status.success())
}

/// Runs apt-get without questions.
pub fn apt_get(args: &[&str]) -> Outcome {
    let mut command = step("apt-get", []);
    command = command.env("DEBIAN_FRONTEND", "noninteractive");
    command.args(args).run()
}
