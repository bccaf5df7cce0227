//! Licences of everything that is linked into what is released, as the file that `casemate licenses` prints.
//!
//! The texts are those in the sources of the registry; what one is the licence of is what its manifest says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::report::Report;
use crate::step::{Outcome, cargo, root};

/// Packages that are released.
const RELEASED: &[&str] = &["casemate-cli", "casemate-capi", "casemate-libfsverity", "casemate-python"];

/// The file, which is part of the command.
const FILE: &str = "crates/cli/src/licenses.txt";

/// How names of files with licences begin.
const NAMES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE", "COPYRIGHT"];

/// Writes the file anew.
pub fn write(_: &mut Report) -> Outcome {
    fs::write(root().join(FILE), text()?).map_err(|error| format!("{FILE}: {error}"))
}

/// Compares the file with what it should be.
pub fn check(_: &mut Report) -> Outcome {
    let found = fs::read_to_string(root().join(FILE)).map_err(|error| format!("{FILE}: {error}"))?;
    match found == text()? {
        true => Ok(()),
        false => Err(format!("{FILE} is not current: cargo xtask licenses writes it anew")),
    }
}

/// A package with its licence's texts.
struct Package {
    name: String,
    license: String,
    texts: Vec<String>,
}

fn text() -> Result<String, String> {
    let metadata = cargo(["metadata", "--locked", "--format-version", "1"]).output()?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|error| error.to_string())?;
    let packages = packages(&metadata)?;
    let mut page = String::from(
        "casemate is licensed under MIT or Apache-2.0, at your option. It contains the Rust standard library (MIT or\n\
         Apache-2.0) and the packages below, on some systems only. Their licences follow, each text once.\n\n",
    );
    for Package { name, license, .. } in &packages {
        writeln!(page, "{name}: {license}").expect("writing to a string");
    }
    let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in &packages {
        for text in &package.texts {
            texts.entry(text).or_default().push(&package.name);
        }
    }
    // By their first package, so that a new one moves none.
    let mut texts: Vec<_> = texts.into_iter().map(|(text, names)| (names, text)).collect();
    texts.sort();
    for (names, text) in texts {
        writeln!(page, "\n{}\n{}\n\n{text}", "-".repeat(80), names.join(", ")).expect("writing to a string");
    }
    Ok(page)
}

/// Everything that is linked and is not ours, in the order of the names.
fn packages(metadata: &Value) -> Result<Vec<Package>, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (word(&package["id"]), package)).collect();
    let uses: BTreeMap<String, Vec<String>> = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| {
            let is_linked =
                |found: &&Value| list(&found["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let deps = list(&node["deps"]);
            (word(&node["id"]), deps.iter().filter(is_linked).map(|found| word(&found["pkg"])).collect())
        })
        .collect();
    let is_released = |package: &&Value| RELEASED.contains(&package["name"].as_str().unwrap_or_default());
    let mut left: Vec<String> =
        all.values().filter(is_released).map(|package| word(&package["id"])).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = left.pop() {
        if seen.insert(id.clone()) {
            left.extend(uses.get(&id).cloned().unwrap_or_default());
        }
    }
    let mut found = Vec::new();
    for package in seen.iter().filter_map(|id| all.get(id)).filter(|package| !package["source"].is_null()) {
        let name = format!("{} {}", word(&package["name"]), word(&package["version"]));
        let license = word(&package["license"]);
        let manifest = PathBuf::from(word(&package["manifest_path"]));
        let folder = manifest.parent().unwrap_or(Path::new("."));
        let texts = license_texts(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        if license.is_empty() || (texts.is_empty() && !license.contains("Apache-2.0")) {
            return Err(format!("{name}: neither a text nor a name of a licence that has one here"));
        }
        found.push(Package { name, license, texts });
    }
    found.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(found)
}

/// The licences in a package's folder. The text of Apache-2.0 is the same for all, whatever its margins.
fn license_texts(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut texts = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(&inner)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            let is_license = NAMES.iter().any(|begin| name.starts_with(begin));
            if path.is_dir() && is_license {
                folders.push(path);
            } else if is_license || inner != folder {
                texts.insert(plain(&String::from_utf8_lossy(&fs::read(&path)?)));
            }
        }
    }
    Ok(texts.into_iter().collect())
}

/// A text without spaces at line ends, and without empty lines around it; Apache-2.0 as everybody has it.
fn plain(text: &str) -> String {
    let is_apache = text.contains("Apache License") && text.contains("TERMS AND CONDITIONS FOR USE");
    let text = match text.find("END OF TERMS AND CONDITIONS").filter(|_| is_apache) {
        // What others add in front of it or behind it stays.
        Some(_) if text.trim_start().starts_with("Apache License") && text.len() < 12_000 => {
            include_str!("../../LICENSE-APACHE")
        }
        _ => text,
    };
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}
