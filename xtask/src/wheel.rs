//! Wheels of the Python module, each with the command in it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::install::{environment, environment_of};
use crate::report::Report;
use crate::step::{Outcome, cargo, root, step};
use crate::systems::prepared;
use crate::zig::Zig;

/// Jobs for the module and the command in the environment that the wheel was installed into.
const TRIAL: &str = "import casemate, sys; from casemate import fsverity
data = bytes(5000000)
hasher = fsverity.new(data)
assert hasher.digest() == fsverity.digest(casemate.Device.from_bytes(data)).digest
print('casemate on', sys.version.split()[0])";

/// Tools that the module's tests compare with.
const TOOLS: [&str; 8] =
    ["mke2fs", "sfdisk", "cryptsetup", "veritysetup", "fsverity", "e2fsck", "debugfs", "nbdcopy"];

/// The target of a wheel.
struct Platform {
    /// The compiler's name of it.
    target: &'static str,
    /// The version of glibc that the wheel asks for at most, behind the target's name.
    libc: &'static str,
    /// The wheel's tag; empty where maturin knows it.
    tag: &'static str,
    /// The program that strips the command; empty for none.
    strip: &'static str,
    /// Debian's packages that are needed.
    packages: &'static [&'static str],
}

/// This machine's.
const HERE: Platform = Platform {
    target: "x86_64-unknown-linux-gnu",
    libc: ".2.28",
    tag: "manylinux_2_28",
    strip: "strip",
    packages: &[],
};

/// Wheels that can't be tried here.
const ELSEWHERE: [Platform; 3] = [
    Platform {
        target: "aarch64-unknown-linux-gnu",
        libc: ".2.28",
        tag: "manylinux_2_28",
        strip: "aarch64-linux-gnu-strip",
        packages: &["binutils-aarch64-linux-gnu"],
    },
    Platform { target: "aarch64-apple-darwin", libc: "", tag: "", strip: "", packages: &[] },
    Platform {
        target: "x86_64-pc-windows-gnu",
        libc: "",
        tag: "",
        strip: "x86_64-w64-mingw32-strip",
        packages: &["gcc-mingw-w64-x86-64-win32"],
    },
];

/// Builds the wheel for this machine, and runs the module's tests in a fresh environment of each interpreter that
/// CASEMATE_PYTHONS names, with colons between them; of the system's own without.
pub fn wheel(report: &mut Report) -> Outcome {
    let Some(wheel) = HERE.wheel(report)? else { return Ok(()) };
    let pythons = std::env::var("CASEMATE_PYTHONS").unwrap_or_else(|_| "python3".to_owned());
    pythons.split(':').try_for_each(|python| try_wheel(&wheel, python))
}

fn try_wheel(wheel: &Path, python: &str) -> Outcome {
    let place = environment_of(python, &root().join("target/wheel-trial"))?;
    step(place.join("pip"), ["install", "--quiet", "--no-index", &wheel.to_string_lossy()]).run()?;
    step(place.join("python"), ["-c", TRIAL]).folder(&root().join("target")).run()?;
    step(place.join("casemate"), ["--version"]).run()?;
    step(place.join("pip"), ["install", "--quiet", "fsspec"]).run()?;
    let modules = ["-B", "-m", "unittest", "-q", "test_casemate", "test_sharing", "test_fsspec"];
    let tests = TOOLS
        .iter()
        .fold(step(place.join("python"), modules), |tests, tool| tests.env(&tool.to_uppercase(), tool));
    tests
        .env("CASEMATE", place.join("casemate"))
        .env("DOCUMENTS", root().join("docs"))
        .folder(&root().join("crates/python/tests/python"))
        .run()
}

/// Builds the wheels for other systems and processors, which are not tried.
pub fn wheels(report: &mut Report) -> Outcome {
    for platform in &ELSEWHERE {
        platform.wheel(report)?;
    }
    Ok(())
}

impl Platform {
    /// Builds the wheel; none where it can't be built.
    fn wheel(&self, report: &mut Report) -> Result<Option<PathBuf>, String> {
        if !prepared(report, "wheel", self.target, self.packages)? {
            return Ok(None);
        }
        let (zig, folder) = (Zig::install()?, "target/wheel-build");
        let is_windows = self.target.contains("windows");
        let command = match is_windows {
            // Zig does not link for it.
            true => cargo(["build", "--quiet", "--package", "casemate-cli", "--target", self.target])
                .args(&["--target-dir", folder]),
            false => zig.build("casemate-cli", &format!("{}{}", self.target, self.libc), folder),
        };
        command.args(&["--release"]).run()?;
        let name = if is_windows { "casemate.exe" } else { "casemate" };
        let built = root().join(folder).join(self.target).join("release").join(name);
        // maturin takes what lies in a folder of the module's name into the wheel; pip puts scripts beside the interpreter.
        let data = root().join("crates/python/casemate._casemate.data");
        let scripts = data.join("scripts");
        let copied = fs::create_dir_all(&scripts).and_then(|()| fs::copy(built, scripts.join(name)));
        copied.map_err(|error| format!("{}: {error}", scripts.display()))?;
        if !self.strip.is_empty() {
            step(self.strip, [&*scripts.join(name).to_string_lossy()]).run()?;
        }
        let out = root().join("target/wheels").join(self.target);
        let _ = fs::remove_dir_all(&out);
        let mut maturin = zig.step("maturin", ["build", "--quiet", "--release", "--target", self.target]);
        maturin = maturin.args(&["--target-dir", &root().join(folder).to_string_lossy()]);
        maturin = maturin.args(&["--out", &out.to_string_lossy()]);
        if !is_windows {
            maturin = maturin.args(&["--zig"]);
        }
        if !self.tag.is_empty() {
            maturin = maturin.args(&["--compatibility", self.tag]);
        }
        let made = maturin.folder(&root().join("crates/python")).run();
        let _ = fs::remove_dir_all(data);
        made?;
        let wheel = only_file(&out)?;
        let size = fs::metadata(&wheel).map_or(0, |data| data.len());
        println!("{}: {} KiB", wheel.display(), size.div_ceil(1024));
        if !self.tag.is_empty() {
            // Every program in it, the command too, asks for no newer library than the tag grants.
            let audited = zig.step("auditwheel", ["show", &wheel.to_string_lossy()]).output()?;
            println!("{}", audited.trim());
            let granted = newest(self.tag).ok_or("a tag without a version")?;
            // Before that it names the file. Lines break anywhere.
            let audited = audited.split_whitespace().collect::<Vec<_>>().join(" ");
            let found = audited.split_once("platform tag").and_then(|(_, text)| newest(text));
            if found.is_none_or(|version| version > granted) {
                return Err(format!("{} is not {}", wheel.display(), self.tag));
            }
        }
        Ok(Some(wheel))
    }
}

/// The second number of the first `manylinux_2_N`.
fn newest(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("manylinux_2_")?;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

fn only_file(folder: &Path) -> Result<PathBuf, String> {
    let files = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files = files.filter_map(Result::ok).map(|entry| entry.path());
    match (files.next(), files.next()) {
        (Some(file), None) => Ok(file),
        _ => Err(format!("{}: not one wheel", folder.display())),
    }
}

/// Packages that there are adapters for. One of them asks for another without saying so.
const ADAPTED: [&str; 7] =
    ["dfvfs", "dissect.extfs", "dissect.fve", "dissect.target", "model-signing", "pyOpenSSL", "fsspec"];

/// Engines, and a store for them; with what they ask for without saying so.
const ENGINES: [&str; 7] =
    ["ray[data]", "pyspark", "dask[distributed]", "pyarrow", "s3fs", "moto[server]", "setuptools<81"];

/// Runs the adapters' tests beside the packages that they are for.
pub fn adapters(_: &mut Report) -> Outcome {
    beside("adapters", &ADAPTED, "test_contrib")?;
    // The types as the other checker sees them, beside those packages.
    let place = root().join("target/adapters/bin");
    step(place.join("pip"), ["install", "--quiet", "pyright[nodejs]"]).run()?;
    step(place.join("pyright"), ["--pythonpath", &place.join("python").to_string_lossy()])
        .folder(&root().join("crates/python"))
        .run()
}

/// Runs the fleets' tests on engines and a store that are started here.
pub fn engines(_: &mut Report) -> Outcome {
    beside("engines", &ENGINES, "test_engines")
}

/// Runs a module of tests in an environment with packages.
fn beside(name: &str, packages: &[&str], module: &str) -> Outcome {
    let (root, target) = (root(), root().join("target"));
    let place = environment(&target.join(name))?;
    step(place.join("pip"), ["install", "--quiet"]).args(packages).run()?;
    cargo(["build", "--quiet", "--workspace", "--lib"]).run()?;
    // Where every process of the environment finds it, on whatever engine.
    let code = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let package = step(place.join("python"), ["-c", code]).output()?;
    let package = PathBuf::from(package.trim()).join("casemate");
    let from = root.join("crates/python/python/casemate");
    step("cp", ["-r", &from.to_string_lossy(), &package.to_string_lossy()]).run()?;
    let native = package.join("_casemate.abi3.so");
    fs::copy(target.join("debug/lib_casemate.so"), &native)
        .map_err(|error| format!("{}: {error}", native.display()))?;
    let tests = step(place.join("python"), ["-W", "ignore", "-m", "unittest", "-v", module]);
    tests
        .env("MKE2FS", "mke2fs")
        .env("FSVERITY", "fsverity")
        .env("VERITYSETUP", "veritysetup")
        .folder(&root.join("crates/python/tests/python"))
        .run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_tags_are_read() {
        assert_eq!(newest("manylinux_2_28"), Some(28));
        assert_eq!(newest("tag:\n\"manylinux_2_17_x86_64\"."), Some(17));
        assert_eq!(newest("linux_x86_64"), None);
    }
}
