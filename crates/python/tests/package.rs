//! The package as an interpreter sees it: Python's own tests, in `tests/python`, with the native part beside the package.

use std::path::{Path, PathBuf};
use std::process::Command;

use casemate_testkit::{find_program, run, skip, tempdir, tool};

/// The interpreter, if there is one that is new enough.
fn python() -> Option<PathBuf> {
    // The system's own, which finds the system's packages.
    let system = PathBuf::from("/usr/bin/python3");
    let python = if system.exists() { system } else { tool("python3")? };
    let code = "import sys; sys.exit(sys.version_info < (3, 11))";
    if !Command::new(&python).args(["-c", code]).status().unwrap().success() {
        skip("python3 is older than 3.11");
        return None;
    }
    Some(python)
}

/// Runs a module of tests with the package and its native part in one folder.
fn unittest(python: &Path, module: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempdir().unwrap();
    run(Command::new("cp").arg("-r").arg(here.join("python/casemate")).arg(folder.path()));
    // Beside the tests, in target/debug/deps.
    let native = std::env::current_exe().unwrap().with_file_name("lib_casemate.so");
    std::fs::copy(native, folder.path().join("casemate/_casemate.abi3.so")).unwrap();
    let mut command = Command::new(python);
    command.args(["-B", "-W", "error", "-m", "unittest", "-q", module]);
    let tools = ["mke2fs", "sfdisk", "cryptsetup", "veritysetup", "fsverity", "e2fsck", "debugfs", "nbdcopy"];
    for name in tools.into_iter().chain(["dumpe2fs", "resize2fs", "e2undo"]) {
        if let Some(path) = find_program(name) {
            command.env(name.to_uppercase(), path);
        }
    }
    // Cargo puts the command beside the folder of tests.
    command.env("CASEMATE", std::env::current_exe().unwrap().with_file_name("../casemate"));
    command.env("DOCUMENTS", here.join("../../docs"));
    command.env("PYTHONPATH", folder.path()).current_dir(here.join("tests/python"));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("Ran "), "{printed}{text}");
    for line in text.lines().filter(|line| line.contains("skipped=")) {
        skip(line);
    }
}

#[test]
fn python_s_tests_pass() {
    let Some(python) = python() else { return };
    unittest(&python, "test_casemate");
}

#[test]
fn errors_speak_of_arguments_and_paths() {
    let Some(python) = python() else { return };
    unittest(&python, "test_texts");
}

#[test]
fn objects_are_shared_without_harm() {
    let Some(python) = python() else { return };
    unittest(&python, "test_sharing");
}

#[test]
fn file_systems_are_repaired_tuned_and_resized() {
    let Some(python) = python() else { return };
    unittest(&python, "test_upkeep");
}

#[test]
fn fsspec_reads_images() {
    let Some(python) = python() else { return };
    if !Command::new(&python).args(["-c", "import fsspec"]).output().unwrap().status.success() {
        skip("no fsspec: the package python3-fsspec");
        return;
    }
    unittest(&python, "test_fsspec");
}

#[test]
fn fleets_do_what_one_machine_does() {
    let Some(python) = python() else { return };
    if !Command::new(&python).args(["-c", "import fsspec"]).output().unwrap().status.success() {
        skip("no fsspec: the package python3-fsspec");
        return;
    }
    unittest(&python, "test_fleet");
}

/// The stubs of the native part and the package's own types, as people's editors see them.
#[test]
fn types_are_right() {
    let Some(mypy) = tool("mypy") else { return };
    let folder = tempdir().unwrap();
    let mut command = Command::new(mypy);
    // Of what others have only the names count.
    command.args([
        "--strict",
        "--no-site-packages",
        "--ignore-missing-imports",
        "--allow-subclassing-any",
        "--cache-dir",
    ]);
    command.arg(folder.path()).arg("casemate");
    run(command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("python")));
}

/// The stubs list exactly the names of the native part.
#[test]
fn stubs_name_what_is_there() {
    let Some(python) = python() else { return };
    unittest(&python, "test_stubs");
}
