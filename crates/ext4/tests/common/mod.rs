//! Fixtures and small helpers that the tests share.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod collection;
pub mod kernel;
pub mod mutation;
pub mod tree;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileDevice, MemoryDevice};
use casemate_ext4::{CheckOptions, Ext4, OpenOptions, Result, check};
use casemate_providers::Work;
use casemate_testkit::{fixture, run_any, tool};
use serde_json::Value;

/// An image and what a kernel and e2fsprogs said of it.
pub struct Fixture {
    pub name: String,
    pub image: Vec<u8>,
    pub manifest: Value,
}

impl Fixture {
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(MemoryDevice::new(self.image.clone()))
    }

    pub fn open(&self) -> Result<Ext4> {
        Ext4::open(self.device(), &OpenOptions::default())
    }
}

/// All images of plain files, one after the other.
pub fn fixtures() -> impl Iterator<Item = Fixture> {
    let images = fixtures_in("");
    assert!(images.len() >= 10);
    images.into_iter().map(load)
}

/// The images with fs-verity files.
pub fn verity_fixtures() -> impl Iterator<Item = Fixture> {
    fixtures_in("verity").into_iter().map(load)
}

fn fixtures_in(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder);
    let mut images: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".img.xz"))
        .collect();
    images.sort();
    images
}

fn load(path: PathBuf) -> Fixture {
    let name = path.file_name().unwrap().to_string_lossy().replace(".img.xz", "");
    let plain = path.with_file_name(format!("{name}.json"));
    let manifest = if plain.exists() { plain } else { path.with_file_name(format!("{name}.json.xz")) };
    let manifest = serde_json::from_slice(&fixture(manifest)).unwrap();
    Fixture { image: fixture(path), manifest, name }
}

/// Neither a check nor e2fsck, where there is one, finds anything wrong with an image.
pub fn assert_sound(image: &Path, what: &str) {
    let device = Arc::new(FileDevice::open(image).unwrap());
    let report = check(device, &CheckOptions::default(), &Work::default()).unwrap();
    assert!(report.is_clean(), "{what}: {:?}", report.faults);
    let Some(e2fsck) = tool("e2fsck") else { return };
    let output = run_any(Command::new(e2fsck).arg("-fn").arg(image));
    let [text, said] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    // Of quotas it only complains.
    assert!(output.status.success() && !said.contains("QUOTA"), "{what}: {text}{said}");
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
