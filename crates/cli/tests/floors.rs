//! The floors of ARCHITECTURE.md: a crate uses lower floors only, and so does a room of a crate whose rooms have an order. Files of
//! a crate import each other in a circle only where that is inherent.

#[path = "floors/circles.rs"]
mod circles;
#[path = "floors/meaning.rs"]
mod meaning;

use std::collections::{BTreeMap, BTreeSet};
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
    ("casemate-probe", 5),
    ("casemate", 6),
    ("casemate-fuse", 7),
    ("casemate-cli", 8),
    ("casemate-python", 7),
    ("casemate-capi", 7),
    ("casemate-libfsverity", 7),
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
                below >= 6 || (["casemate-fuse", "casemate-cli"].contains(&name) && other == "casemate-sys");
            assert!(own < 7 || is_facade, "{name} uses {other}: commands use the facade only");
        }
    }
}

/// The rooms of ext4 in their order: one uses itself and those before it.
const ROOMS_OF_EXT4: &[&str] = &[
    "number",
    "units",
    "error",
    "format",
    "read",
    "transaction",
    "alloc",
    "edit",
    "open",
    "check",
    "diff",
    "repair",
    "build",
    "tune",
    "resize",
];

#[test]
fn rooms_of_ext4_use_those_before_them_only() {
    let wrong = arrows_back(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext4/src"), ROOMS_OF_EXT4);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The rooms of the facade in their order.
const ROOMS_OF_FACADE: &[&str] = &[
    "errno",
    "overlay",
    "image",
    "target",
    "rescue",
    "part",
    "crypt",
    "verity",
    "fsverity",
    "integrity",
    "protectors",
    "luks",
    "ext4",
    "backup",
    "reencrypt",
    "image_spec",
    "serve",
];

#[test]
fn rooms_of_the_facade_use_those_before_them_only() {
    let wrong = arrows_back(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../casemate/src"), ROOMS_OF_FACADE);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Circles of files that are inherent; ARCHITECTURE.md says of each why.
const CIRCLES: &[&str] = &[
    "blockdev: beneath, held",
    "blockdev: identity, os, os::unix, os::windows",
    "cli: context, progress",
    "ext4: edit::contents, edit::inodes, edit::xattr",
    "ext4: read::deleted, read::old_names",
    "ext4: repair, repair::altered, repair::copies, repair::directory, repair::map",
    "luks: authenticated, policy, unlock, volume",
    "python: device, ext4, fsverity, luks, verity",
];

#[test]
fn files_import_each_other_in_circles_that_are_inherent_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let crates = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut found = Vec::new();
    for folder in crates.chain(["benches", "fuzz", "xtask"].map(|name| root.join(name))) {
        let name = folder.file_name().unwrap().to_str().unwrap();
        found.extend(circles::of(&folder.join("src")).into_iter().map(|files| format!("{name}: {files}")));
    }
    found.sort();
    assert_eq!(
        found, CIRCLES,
        "an arrow that closes a circle is cut, or the circle is named with its reason"
    );
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let unnamed: Vec<_> =
        CIRCLES.iter().filter(|circle| !text.contains(&format!("- `{circle}`: "))).collect();
    assert!(unnamed.is_empty(), "ARCHITECTURE.md gives no reason: {unnamed:?}");
}

/// Places in a crate's source in which a room names one that comes after it, or none at all, as `crate::Name` does. A name that
/// the crate exports is one of the room that has it; what it exports of other crates is no room's. Unit tests may name any.
fn arrows_back(source: &Path, rooms: &[&str]) -> Vec<String> {
    let order = |room: &str| rooms.iter().position(|other| *other == room);
    let lib = fs::read_to_string(source.join("lib.rs")).unwrap();
    let exported = exported(&without_comments(&lib));
    let mut wrong = Vec::new();
    for file in files_in(source) {
        let path = file.strip_prefix(source).unwrap();
        let room = path.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        if room == "lib" {
            continue;
        }
        let own = order(room).unwrap_or_else(|| panic!("{room} has no place among the rooms"));
        let text = fs::read_to_string(&file).unwrap();
        let code = without_comments(text.split("\n#[cfg(test)]\nmod tests").next().unwrap());
        for named in code.split("crate::").skip(1).flat_map(names) {
            let room = exported.get(&named).unwrap_or(&named);
            let is_others = room.starts_with("casemate_");
            if !is_others && order(room).is_none_or(|other| other > own) {
                wrong.push(format!("{}: {named}", path.display()));
            }
        }
    }
    wrong
}

/// The names that a crate exports, each with the room or the other crate that it comes from.
fn exported(lib: &str) -> BTreeMap<String, String> {
    let mut exported = BTreeMap::new();
    for line in lib.split("pub use ").skip(1) {
        let line = line.split(';').next().unwrap();
        let room = line.split([':', ' ']).next().unwrap();
        let last = match line.split_once(" as ") {
            Some((_, name)) => name,
            None => line.rsplit_once("::").map_or(line, |(_, name)| name),
        };
        let list = line.find('{').map_or(last, |at| &line[at..]);
        exported.extend(names(list).into_iter().map(|name| (name, room.to_owned())));
    }
    exported
}

/// The first names of what follows `crate::`: one, or those of a group.
fn names(rest: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    if !rest.starts_with('{') {
        return vec![name(rest)];
    }
    let (mut depth, mut part, mut names) = (0, String::new(), Vec::new());
    for c in rest.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => names.push(std::mem::take(&mut part)),
            c if depth == 1 => part.push(c),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names.push(part);
    names.iter().map(|part| name(part)).filter(|name| !name.is_empty() && name != "self").collect()
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
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
