//! The wheel of the Python module, with the command in it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::report::Report;
use crate::step::{Outcome, cargo, root, step};

/// What the module and the command do in the environment that the wheel was installed into.
const TRIAL: &str = "import casemate, sys; from casemate import fsverity
data = bytes(5000000)
hasher = fsverity.new(data)
assert hasher.digest() == fsverity.digest(casemate.Device.from_bytes(data)).digest
print('casemate on', sys.version.split()[0])";

/// Builds the wheel, and tries it in a fresh environment.
pub fn wheel(_: &mut Report) -> Outcome {
    let (root, target) = (root(), root().join("target"));
    let out = target.join("wheels");
    let _ = fs::remove_dir_all(&out);
    let tools = environment(&target.join("wheel-tools"))?;
    step(tools.join("pip"), ["install", "--quiet", "maturin>=1.14,<2"]).run()?;
    cargo(["build", "--quiet", "--release", "--package", "casemate-cli"]).run()?;
    // maturin takes what lies in a folder of the module's name into the wheel; pip puts scripts beside the interpreter.
    let data = root.join("crates/python/casemate._casemate.data");
    let scripts = data.join("scripts");
    let copied = fs::create_dir_all(&scripts)
        .and_then(|()| fs::copy(target.join("release/casemate"), scripts.join("casemate")));
    copied.map_err(|error| format!("{}: {error}", scripts.display()))?;
    step("strip", [&*scripts.join("casemate").to_string_lossy()]).run()?;
    let built = step(tools.join("maturin"), ["build", "--release", "--out", &out.to_string_lossy()]);
    let built = built.folder(&root.join("crates/python")).run();
    let _ = fs::remove_dir_all(data);
    built?;
    let wheel = only_file(&out)?;
    let size = fs::metadata(&wheel).map_or(0, |data| data.len());
    println!("{}: {} KiB", wheel.display(), size.div_ceil(1024));
    let fresh = environment(&target.join("wheel-trial"))?;
    step(fresh.join("pip"), ["install", "--quiet", "--no-index", &wheel.to_string_lossy()]).run()?;
    step(fresh.join("python"), ["-c", TRIAL]).folder(&target).run()?;
    step(fresh.join("casemate"), ["--version"]).run()
}

/// A new environment of the system's interpreter; the folder of its programs.
pub fn environment(folder: &Path) -> Result<PathBuf, String> {
    step("python3", ["-m", "venv", "--clear", &folder.to_string_lossy()]).run()?;
    Ok(folder.join("bin"))
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
