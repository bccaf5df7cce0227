//! The floors of ARCHITECTURE.md: a crate uses lower floors only.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::process::Command;

use casemate_testkit::run;

/// What each crate that is built into the command stands on.
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
    ("casemate-luks", 3),
    ("casemate-fscrypt", 3),
    ("casemate-ext4", 3),
    ("casemate", 4),
    ("casemate-fuse", 5),
    ("casemate-cli", 6),
    ("casemate-python", 5),
    ("casemate-capi", 5),
    ("casemate-libfsverity", 5),
];

/// What only tests use, or nothing of the product: the shared helpers, and the runner.
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
            // Calls to the kernel are no format's, and folders are made by the kernel.
            let is_facade = below >= 4 || (name, other) == ("casemate-fuse", "casemate-sys");
            assert!(own < 5 || is_facade, "{name} uses {other}: commands use the facade only");
        }
    }
}
