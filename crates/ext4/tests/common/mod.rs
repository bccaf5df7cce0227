//! Fixtures and small helpers that the tests share.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod collection;
pub mod kernel;
pub mod mutation;
pub mod tree;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, MemoryDevice};
use casemate_ext4::{Ext4, OpenOptions, Result};
use casemate_testkit::fixture;
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

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
