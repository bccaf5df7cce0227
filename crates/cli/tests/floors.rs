//! The floors of ARCHITECTURE.md: a crate uses lower floors only, and so does a room of a crate whose rooms have an order.

#[path = "floors/meaning.rs"]
mod meaning;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use casemate_testkit::run;

/// Floor of each crate that is built into the command.
const FLOORS: &[(&str, u32)] = &[
    ("casemate-primitives", 1),
    ("casemate-blockdev", 1),
    ("casemate-sys", 1),
    ("casemate-providers", 2),
    ("casemate-nbd", 2),
    ("casemate-trees", 2),
    ("casemate-verity", 3),
    ("casemate-crypt", 3),
    ("casemate-integrity", 3),
    ("casemate-luks", 4),
    ("casemate-fscrypt", 3),
    ("casemate-ext4", 3),
    ("casemate", 5),
    ("casemate-fuse", 6),
    ("casemate-cli", 7),
    ("casemate-python", 6),
    ("casemate-capi", 6),
    ("casemate-libfsverity", 6),
];

/// Crates that only tests use, or that are not part of the product: the shared helpers, and the runner.
const BESIDE: [&str; 2] = ["casemate-testkit", "xtask"];

fn floor(name: &str) -> Option<u32> {
    FLOORS.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, floor)| *floor)
}

#[test]
fn crates_use_lower_floors_only() {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = Command::new(cargo);
    metadata.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let text = run(metadata.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")));
    let metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let members: BTreeSet<&str> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    assert!(members.len() > 10, "{members:?}");
    for package in packages {
        let name = package["name"].as_str().unwrap();
        if BESIDE.contains(&name) {
            continue;
        }
        let own = floor(name).unwrap_or_else(|| panic!("{name} has no floor here and in ARCHITECTURE.md"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let other = dependency["name"].as_str().unwrap();
            if dependency["kind"] == "dev" || !members.contains(other) {
                continue;
            }
            let below = floor(other).unwrap_or_else(|| panic!("{name} uses {other}, which is for tests"));
            assert!(below < own, "{name} on floor {own} uses {other} on floor {below}");
            // Calls to the kernel belong to no format: folders are made by it, and it has a process's standard streams.
            let is_facade =
                below >= 5 || (["casemate-fuse", "casemate-cli"].contains(&name) && other == "casemate-sys");
            assert!(own < 6 || is_facade, "{name} uses {other}: commands use the facade only");
        }
    }
}

/// The rooms of ext4 in their order: one uses itself and those before it.
const ROOMS_OF_EXT4: &[&str] =
    &["error", "format", "read", "transaction", "alloc", "edit", "open", "check", "repair", "build"];

#[test]
fn rooms_of_ext4_use_those_before_them_only() {
    let wrong = arrows_back(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext4/src"), ROOMS_OF_EXT4);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Lines of a crate's source in which a room names one that comes after it, or none at all, as `crate::Name` does.
/// Unit tests may name any.
fn arrows_back(source: &Path, rooms: &[&str]) -> Vec<String> {
    let order = |room: &str| rooms.iter().position(|other| *other == room);
    let mut wrong = Vec::new();
    for file in files_in(source) {
        let path = file.strip_prefix(source).unwrap();
        let room = path.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        if room == "lib" {
            continue;
        }
        let own = order(room).unwrap_or_else(|| panic!("{room} has no place among the rooms"));
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
        for (number, line) in code.lines().enumerate() {
            let line = line.split("//").next().unwrap();
            for named in line.split("crate::").skip(1) {
                let other = named.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
                if order(other).is_none_or(|other| other > own) {
                    wrong.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
                }
            }
        }
    }
    wrong
}

/// All source files below a folder.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_in(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}
