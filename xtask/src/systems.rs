//! Other systems than Linux with glibc: musl, with everything in one file; Windows, run under Wine; macOS, linked alone.

use std::fs;
use std::path::{Path, PathBuf};

use crate::binaries::{self, Tests};
use crate::cross::rustup_has_target;
use crate::install::{has_packages, may_install};
use crate::report::Report;
use crate::step::{Outcome, Step, cargo, root, step};
use crate::zig::Zig;

const MUSL: &str = "x86_64-unknown-linux-musl";
const MUSL_AARCH64: &str = "aarch64-unknown-linux-musl";
const WINDOWS: &str = "x86_64-pc-windows-gnu";
const MACOS: &str = "aarch64-apple-darwin";

/// Debian's `wine` looks for one of 32 bits first, and says so each time.
const WINE: &str = "/usr/lib/wine/wine64";

/// All but what programs of the system's own C library load, for musl and in a folder of its own.
const NOT_LOADED: [&str; 8] = [
    "--exclude=casemate-capi",
    "--exclude=casemate-libfsverity",
    "--exclude=casemate-python",
    "--exclude=xtask",
    "--target",
    MUSL,
    "--target-dir",
    "target/musl",
];

/// The crates that are on every system.
const PORTABLE: [&str; 14] = [
    "casemate",
    "casemate-blockdev",
    "casemate-cli",
    "casemate-crypt",
    "casemate-ext4",
    "casemate-fscrypt",
    "casemate-integrity",
    "casemate-luks",
    "casemate-primitives",
    "casemate-probe",
    "casemate-providers",
    "casemate-sys",
    "casemate-trees",
    "casemate-verity",
];

/// Tests of the command where musl may do something in its own way: threads, locks, pipes, names, memory. Its messages are its
/// own, too, which those beside other tools compare.
const TESTS: [&str; 8] = [
    "--lib",
    "--test=build",
    "--test=crypt",
    "--test=ext4",
    "--test=integrity",
    "--test=interrupts",
    "--test=luks",
    "--test=verity",
];

/// Jobs for a command of another system in a folder of its own, each line's words.
const JOBS: [&str; 8] = [
    "--quiet verity format data hash --root-hash-file root.txt",
    "verity verify data hash --root-hash-file root.txt",
    "--quiet luks format --from data --key-file pass --pbkdf pbkdf2 --pbkdf-force-iterations 1000 volume",
    "--quiet luks extract volume plain --key-file pass",
    "verity verify plain hash --root-hash-file root.txt",
    "--quiet ext4 build --from tree image",
    "ext4 check image",
    "ext4 cat image /file",
];

/// Tests the libraries' units and the command, linked to musl.
pub fn musl(report: &mut Report) -> Outcome {
    if !prepared(report, "musl", MUSL, &["musl-tools"])? {
        return Ok(());
    }
    let filter = [&NOT_LOADED[..], &TESTS].concat();
    binaries::run(report, &Tests { filter: &filter, ..Tests::default() })?;
    let folder = root().join("target/musl");
    try_alone(report, &folder.join(MUSL).join("debug/casemate"), &folder.join("empty-root"))
}

/// The command with everything in one file, tried in a root that has nothing else; none where it can't be built.
pub fn static_command(report: &mut Report, out: &Path) -> Result<Option<PathBuf>, String> {
    if !prepared(report, "static command", MUSL, &["musl-tools"])? {
        return Ok(None);
    }
    let build = ["build", "--quiet", "--release", "--package", "casemate-cli", "--target", MUSL];
    cargo(build).args(&["--target-dir", "target/musl"]).run()?;
    let program = named_for(MUSL, "strip", out)?;
    try_alone(report, &program, &out.join("empty-root"))?;
    Ok(Some(program))
}

/// The static command for AArch64, tried under qemu-user, without a library that it could load.
pub fn static_command_aarch64(report: &mut Report, out: &Path) -> Result<Option<PathBuf>, String> {
    let packages = ["binutils-aarch64-linux-gnu", "qemu-user"];
    if !prepared(report, "static command", MUSL_AARCH64, &packages)? {
        return Ok(None);
    }
    Zig::install()?.build("casemate-cli", MUSL_AARCH64, "target/musl").args(&["--release"]).run()?;
    let program = named_for(MUSL_AARCH64, "aarch64-linux-gnu-strip", out)?;
    let place = out.join("empty-root");
    fill(&place)?;
    do_jobs(&place, || step("qemu-aarch64", [&*program.to_string_lossy()]).folder(&place))?;
    Ok(Some(program))
}

/// The command that was built for a target, stripped, under its name for those who download it.
fn named_for(target: &str, strip: &str, out: &Path) -> Result<PathBuf, String> {
    let program = out.join(format!("casemate-{}-{target}", env!("CARGO_PKG_VERSION")));
    let built = root().join("target/musl").join(target).join("release/casemate");
    fs::copy(&built, &program).map_err(failed(&built))?;
    step(strip, [&*program.to_string_lossy()]).run()?;
    Ok(program)
}

fn try_alone(report: &mut Report, program: &Path, place: &Path) -> Outcome {
    if !may_install() {
        return report.skip("static command: only root has a root of its own to try it in");
    }
    fill(place)?;
    fs::copy(program, place.join("casemate")).map_err(failed(program))?;
    do_jobs(place, || step("chroot", [&*place.to_string_lossy(), "/casemate"]))
}

/// Makes a folder with what the jobs need.
fn fill(place: &Path) -> Outcome {
    let _ = fs::remove_dir_all(place);
    let made = fs::create_dir_all(place.join("tree"))
        .and_then(|()| fs::write(place.join("data"), vec![7; 8 << 20]))
        .and_then(|()| fs::write(place.join("pass"), "a passphrase"))
        .and_then(|()| fs::write(place.join("tree/file"), "from a folder of its own\n"));
    made.map_err(failed(place))
}

/// Tries a command in a folder of its own.
pub fn try_command(program: &Path, place: &Path) -> Outcome {
    fill(place)?;
    do_jobs(place, || step(program, []).folder(place))
}

/// Does the command's main jobs in such a folder, and removes it.
fn do_jobs(place: &Path, command: impl Fn() -> Step) -> Outcome {
    for job in JOBS {
        command().args(&job.split(' ').collect::<Vec<_>>()).run()?;
    }
    fs::remove_dir_all(place).map_err(failed(place))
}

/// Tests the libraries' units under Wine, lets the command do its main jobs there, and links the Python module.
pub fn windows(report: &mut Report) -> Outcome {
    if !prepared(report, "windows", WINDOWS, &["gcc-mingw-w64-x86-64-win32", "wine64"])? {
        return Ok(());
    }
    let folder = root().join("target/windows");
    let library = folder.join("stand-in");
    fs::create_dir_all(&library).map_err(failed(&library))?;
    let source = root().join("xtask/src/bcryptprimitives.c");
    let (source, made) = (source.to_string_lossy(), library.join("bcryptprimitives.dll"));
    let compile = ["-O2", "-shared", "-o", &*made.to_string_lossy(), &*source, "-ladvapi32"];
    step("x86_64-w64-mingw32-gcc", compile).run()?;
    // Wine shows the system's root as a drive.
    let found = format!("Z:{}", library.display()).replace('/', "\\");
    let skips = report.skip_log().to_owned();
    let under_wine = |step: Step| {
        let step =
            step.env("WINEPREFIX", folder.join("wine")).env("WINEDEBUG", "-all").env("WINEPATH", &found);
        step.env("CASEMATE_SKIP_LOG", &skips)
    };
    let runner = "CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER";
    let common = ["--target", WINDOWS, "--target-dir", "target/windows"];
    let tests = cargo(["test", "--lib", "--no-fail-fast"]).args(&PORTABLE.map(|name| ["-p", name]).concat());
    under_wine(tests.args(&common).env(runner, WINE)).run_tests(report)?;
    let build = ["build", "--quiet", "--package", "casemate-cli", "--package", "casemate-python"];
    cargo(build).args(&common).run()?;
    let (place, program) = (folder.join("trial"), folder.join(WINDOWS).join("debug/casemate.exe"));
    fill(&place)?;
    do_jobs(&place, || under_wine(step(WINE, [&*program.to_string_lossy()]).folder(&place)))
}

/// Compiles and links the command and the Python module for macOS. Nothing is run.
pub fn macos(report: &mut Report) -> Outcome {
    if !prepared(report, "macos", MACOS, &[])? {
        return Ok(());
    }
    // Zig has what Apple's linker and libraries say.
    let zig = Zig::install()?;
    zig.build("casemate-cli", MACOS, "target/macos").run()?;
    zig.build("casemate-python", MACOS, "target/macos").run()
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// Whether a target's standard library and programs are there, fetched where that is allowed; else that is a skip.
pub fn prepared(report: &mut Report, name: &str, target: &str, packages: &[&str]) -> Result<bool, String> {
    if !rustup_has_target(target) && may_install() {
        // Where there is no rustup, the next line says what is missing.
        let _ = step("rustup", ["target", "add", target]).run();
    }
    if !rustup_has_target(target) {
        return report.skip(&format!("{name}: no standard library for {target}")).map(|()| false);
    }
    has_packages(report, name, packages)
}
