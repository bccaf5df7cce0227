//! `casemate luks` and `--luks`, beside cryptsetup.
#![allow(clippy::disallowed_macros)] // Tests say what they skip and measure.

mod convert;
mod dump;
mod format;
mod full;
mod headers;
mod kernel;
mod keys;
mod layers;
mod link;
mod lost;
mod mistaken;
mod online;
mod others;
mod policy;
mod protected;
mod put_back;
mod random;
mod reencrypt;
mod slots;
mod twins;
mod walk;
mod windows;

use std::path::{Path, PathBuf};
use std::process::Output;

use casemate_testkit::{Place, fixture, status, stderr, stdout};
use serde_json::Value;

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../casemate/tests/luks/fixtures")
}

/// Facts of the volumes that cryptsetup made.
fn manifests() -> Vec<Value> {
    let list: Value = serde_json::from_slice(&fixture(fixtures().join("images.json.xz"))).unwrap();
    list.as_array().unwrap().clone()
}

/// A folder with the volume `name` of the fixtures as `image`, and slot 0's passphrase as `key`.
fn place(name: &str) -> Place {
    let place = Place::new(CASEMATE);
    let manifest = manifests().into_iter().find(|manifest| manifest["name"] == name).unwrap();
    place.file("image", fixture(fixtures().join(format!("{name}.img.xz"))));
    if manifest["detached"] == true {
        place.file("header", fixture(fixtures().join(format!("{name}.hdr.xz"))));
    }
    let key = manifest["passphrases_hex"]["0"].as_str().unwrap();
    place.file("key", hex(key));
    place
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|k| u8::from_str_radix(&text[k..k + 2], 16).unwrap()).collect()
}

#[track_caller]
fn yes(output: Output) -> String {
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    stdout(&output)
}

/// Runs what must end with an exit status, and say something.
#[track_caller]
fn says(output: Output, expected: i32, text: &str) {
    assert!(
        status(&output) == expected && stderr(&output).contains(text),
        "{}: {}",
        status(&output),
        stderr(&output)
    );
}
