//! The tools that tests need, from Debian's packages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::report::Report;
use crate::step::{Outcome, root, step};

/// A package and what its absence costs.
const PACKAGES: &[(&str, &str)] = &[
    ("acl", "access control lists in extracted trees"),
    ("android-sdk-libsparse-utils", "sparse images of Android, as simg2img unpacks them"),
    ("attr", "extended attributes in extracted trees"),
    ("btrfs-progs", "a file system that is recognised"),
    ("busybox-static", "the real kernel's first program"),
    ("chromium-headless-shell", "the page of casemate info, as a browser shows it"),
    ("cryptsetup-bin", "comparison with cryptsetup and veritysetup"),
    ("dmsetup", "device-mapper in the real kernel"),
    ("dosfstools", "a file system that is recognised"),
    ("e2fsprogs", "comparison with mke2fs, e2fsck and debugfs"),
    ("erofs-utils", "a file system that is recognised"),
    ("fdisk", "partition tables: sfdisk"),
    ("fish", "completions"),
    ("fscrypt", "encrypted images that the real tool made"),
    ("fio", "a client of serve, and files of mounted folders"),
    ("fsverity", "comparison with fsverity"),
    ("fuse2fs", "a peer in measurements of mounted folders"),
    ("fuse3", "folders mounted by others than root"),
    ("gcc-aarch64-linux-gnu", "tests of the AArch64 back ends"),
    ("jq", "examples of the commands' help"),
    ("keyutils", "signatures that the real kernel checks"),
    ("kmod", "modules of the real kernel"),
    ("libc6-dev-arm64-cross", "tests of the AArch64 back ends"),
    ("libarchive-tools", "descriptions of trees that bsdtar made"),
    ("libnbd-bin", "clients of serve: nbdinfo and nbdcopy"),
    ("mandoc", "the manual pages' markup"),
    ("mypy", "the Python module's types"),
    ("nbd-client", "the kernel as a client of serve"),
    ("openssl", "comparison of signatures, and certificates"),
    ("python3", "independent test vectors, and the Python module"),
    ("python3-distributed", "digests on Dask, in the Python module"),
    ("python3-fsspec", "images by URL, in the Python module"),
    ("qemu-system-x86", "Debian's stock kernel: fs-verity, error correction"),
    ("qemu-user", "tests of the AArch64 back ends"),
    ("qemu-utils", "clients of serve: qemu-img, qemu-io and qemu-nbd"),
    ("selinux-utils", "labels beside selabel_lookup"),
    ("squashfs-tools", "a file system that is recognised"),
    ("strace", "losses of power: what commands write, and in which order"),
    ("user-mode-linux", "a real kernel as a process"),
    ("valgrind", "the constant-time check"),
    ("xfsprogs", "a file system that is recognised"),
    ("zsh", "completions"),
    ("zstd", "examples of the commands' help"),
];

/// Installs what is missing where that is allowed, else says what will be skipped.
pub fn tools(_: &mut Report) -> Outcome {
    let missing: Vec<_> = PACKAGES.iter().filter(|(package, _)| !installed(package)).collect();
    if missing.is_empty() {
        println!("all packages are there");
        return kernel();
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
    apt_get(&args)?;
    kernel()
}

/// Debian's kernel for virtual machines, unpacked into `target/kernel` and not installed: tests boot it in QEMU.
fn kernel() -> Outcome {
    if !may_install() {
        return Ok(());
    }
    if !fetch_kernel(&root().join("target/kernel"), &[])? {
        println!("no kernel package for this machine, so some tests will be skipped");
    }
    Ok(())
}

/// Unpacks Debian's newest kernel for virtual machines into `folder`, if nothing is there; `options` say to apt where it comes
/// from. False if there is no such package.
pub fn fetch_kernel(folder: &Path, options: &[String]) -> Result<bool, String> {
    if folder.join("lib/modules").exists() {
        return Ok(true);
    }
    let depends = |package: &str| {
        let output = Command::new("apt-cache").args(options).args(["depends", package]).output();
        let output = output.map_err(|error| format!("apt-cache: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: ").map(str::to_owned));
        Ok::<Vec<String>, String>(names.collect())
    };
    let is_kernel = |name: &String| name.starts_with("linux-image-");
    let Some(package) = depends("linux-image-cloud-amd64")?.into_iter().find(is_kernel) else {
        return Ok(false);
    };
    let version = package.trim_start_matches("linux-image-").to_owned();
    println!("fetching the kernel {version}");
    // Newer packages are split: the kernel itself and its modules are packages of their own.
    let parts = ["linux-base-", "linux-binary-", "linux-modules-"];
    let others =
        depends(&package)?.into_iter().filter(|name| parts.iter().any(|part| name.starts_with(part)));
    // Packages are unpacked aside, so that a kernel is there whole or not at all.
    let aside = folder.with_extension("part");
    let _ = std::fs::remove_dir_all(&aside);
    std::fs::create_dir_all(&aside).map_err(|error| format!("{}: {error}", aside.display()))?;
    let download = step("apt-get", ["--quiet", "-o", "APT::Sandbox::User=root", "download"]);
    let packages: Vec<String> = [package].into_iter().chain(others).collect();
    download.args(options).args(&packages).folder(&aside).run()?;
    // Newer packages have modules and the kernel below usr.
    let script = "for package in *.deb; do dpkg-deb -x $package .; done; rm *.deb; \
        [ -e lib/modules ] || { mkdir -p lib; mv usr/lib/modules lib/; }; mkdir -p boot; \
        [ -e boot/vmlinuz-$0 ] || cp lib/modules/$0/vmlinuz boot/vmlinuz-$0; depmod -b . \"$0\" && mv \"$PWD\" \"$1\"";
    step("sh", ["-ec", script, &version, &folder.to_string_lossy()]).folder(&aside).run()?;
    Ok(true)
}

/// Whether dpkg knows `package` as installed.
pub fn installed(package: &str) -> bool {
    let query = Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output();
    query.is_ok_and(|output| output.stdout.starts_with(b"installed"))
}

/// Whether packages are there, installed where that is allowed; else that is a skip of what needs them.
pub fn has_packages(report: &mut Report, name: &str, packages: &[&str]) -> Result<bool, String> {
    for package in packages {
        if !installed(package) {
            if may_install() {
                apt_get(&["install", "--yes", "--quiet=2", "--no-install-recommends", package])?;
                continue;
            }
            return report.skip(&format!("{name}: no package {package}")).map(|()| false);
        }
    }
    Ok(true)
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

/// A new environment of the system's interpreter; the folder of its programs.
pub fn environment(folder: &Path) -> Result<PathBuf, String> {
    environment_of("python3", folder)
}

/// A new environment of an interpreter.
pub fn environment_of(python: &str, folder: &Path) -> Result<PathBuf, String> {
    step(python, ["-m", "venv", "--clear", &folder.to_string_lossy()]).run()?;
    Ok(folder.join("bin"))
}
