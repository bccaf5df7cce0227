//! Hash areas that veritysetup made, whole and damaged, as fixtures; see `fixtures/dm/README.md`.

use casemate_blockdev::ErrorKind;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use casemate_blockdev::{MemoryDevice, Uuid};
use casemate_providers::Work;
use casemate_testkit::fixture;
use casemate_verity::dm::{self, BlockSize, HashType, Layout, Parameters, SUPERBLOCK_SIZE, Salt, Superblock};
use casemate_verity::tree::{Finding, Summary};
use casemate_verity::{Error, hex};

struct Case {
    name: String,
    json: Value,
    data: Vec<u8>,
    /// Empty if the hash area is in the data file.
    hash: Vec<u8>,
}

impl Case {
    fn all() -> Vec<Case> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dm");
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let mut manifests: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect();
        manifests.sort();
        assert!(manifests.len() >= 19, "{manifests:?}");
        manifests.iter().map(|manifest| Case::read(manifest)).collect()
    }

    fn read(manifest: &Path) -> Case {
        let json: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
        let file = |key: &str| {
            let name = json[key].as_str().unwrap();
            fixture(manifest.with_file_name(format!("{name}.xz")))
        };
        let name = json["name"].as_str().unwrap().to_owned();
        let one_file = json["data_file"] == json["hash_file"];
        let (data, hash) = (file("data_file"), if one_file { Vec::new() } else { file("hash_file") });
        Case { name, json, data, hash }
    }

    fn number(&self, key: &str) -> u64 {
        self.json[key].as_u64().unwrap()
    }

    fn root_hash(&self) -> Vec<u8> {
        hex::decode(self.json["root_hash"].as_str().unwrap()).unwrap()
    }

    /// The layout that the manifest describes.
    fn layout(&self) -> Layout {
        let mut parameters = Parameters::new(self.json["algorithm"].as_str().unwrap()).unwrap();
        parameters.hash_type = HashType::numbered(self.number("hash_type")).unwrap();
        parameters.data_block_size = BlockSize::new(self.number("data_block_size")).unwrap();
        parameters.hash_block_size = BlockSize::new(self.number("hash_block_size")).unwrap();
        parameters.salt = Salt::from_text(self.json["salt_hex"].as_str().unwrap()).unwrap();
        let uuid = self.json["uuid"].as_str().map(|text| Uuid::from_text(text).unwrap());
        Layout::new(parameters, self.number("data_blocks"), self.number("hash_offset"), uuid).unwrap()
    }

    /// The layout by the superblock of this hash area, or by the manifest if there is none.
    fn found_layout(&self, hash: &[u8]) -> Result<Layout, Error> {
        if self.json["superblock"] != true {
            return Ok(self.layout());
        }
        let offset = self.number("hash_offset");
        let bytes = hash[offset as usize..][..SUPERBLOCK_SIZE].try_into().unwrap();
        Layout::from_superblock(Superblock::from_bytes(bytes)?, offset)
    }

    fn verify(&self, data: &[u8], hash: &[u8]) -> Result<(Summary, Vec<Finding>), Error> {
        let hash = if self.hash.is_empty() { data } else { hash };
        let layout = self.found_layout(hash)?;
        let mut findings = Vec::new();
        let mut report = |finding| {
            findings.push(finding);
            Ok(())
        };
        let (data, hash) = (MemoryDevice::new(data.to_vec()), MemoryDevice::new(hash.to_vec()));
        let summary = dm::verify(&layout, &data, &hash, &self.root_hash(), &Work::default(), &mut report)?;
        Ok((summary, findings))
    }
}

#[test]
fn hash_areas_are_the_same_byte_for_byte() {
    for case in Case::all() {
        let layout = case.layout();
        let one_file = case.hash.is_empty();
        let data = MemoryDevice::new(case.data.clone());
        if one_file {
            // What follows the data is made again in place.
            let mut wiped = case.data.clone();
            wiped[layout.hash_offset() as usize..].fill(0xff);
            let start = layout.hash_offset() as usize + SUPERBLOCK_SIZE;
            let gap = start..layout.tree_offset() as usize;
            wiped[gap.clone()].copy_from_slice(&case.data[gap]);
            let device = MemoryDevice::new(wiped);
            layout.check_one_device().unwrap();
            assert_eq!(dm::format(&layout, &device, &device, &Work::default()).unwrap(), case.root_hash());
            assert!(device.into_bytes() == case.data, "{}", case.name);
            continue;
        }
        let device = MemoryDevice::new(vec![0; case.hash.len()]);
        let root_hash = dm::format(&layout, &data, &device, &Work::default()).unwrap();
        assert_eq!(hex::encode(&root_hash), hex::encode(&case.root_hash()), "{}", case.name);
        assert!(device.into_bytes() == case.hash, "{}: the hash area differs", case.name);
        assert_eq!(layout.hash_device_size(), case.hash.len() as u64, "{}", case.name);
    }
}

#[test]
fn whole_ones_verify() {
    for case in Case::all() {
        let (summary, findings) = case.verify(&case.data, &case.hash).unwrap();
        assert!(summary.is_clean() && findings.is_empty(), "{}: {findings:?}", case.name);
    }
}

/// Blocks that a kernel without error correction cannot read are those that are bad or cannot be verified.
#[test]
fn damage_is_found_in_the_recorded_blocks() {
    let mut variants = 0;
    for case in Case::all() {
        for variant in case.json["corrupted"].as_array().unwrap() {
            let what = format!("{}: {}", case.name, variant["what"]);
            let (mut data, mut hash) = (case.data.clone(), case.hash.clone());
            flip(variant, &mut data, &mut hash);
            let verified = case.verify(&data, &hash);
            let Ok((summary, findings)) = verified else {
                assert!(what.contains("superblock"), "{what}: {verified:?}");
                assert!(
                    verified.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt),
                    "{what}: {verified:?}"
                );
                continue;
            };
            let said = variant["veritysetup_output"].as_str().unwrap_or_default();
            // With error correction veritysetup may be content with what could be repaired.
            assert_eq!(summary.is_clean(), said.is_empty(), "{what}: {said}");
            assert_eq!(summary.is_clean(), findings.is_empty(), "{what}: {findings:?}");
            if case.json["fec_roots"].is_null() {
                assert_eq!(unreadable(&case, &summary), recorded(variant), "{what}");
            } else {
                // The kernel can't have lost what is good.
                assert!(unreadable(&case, &summary).is_superset(&recorded(variant)), "{what}");
            }
            variants += 1;
        }
    }
    assert!(variants >= 39, "{variants}");
}

/// Flips the bytes of a variant: a list, or a run of bytes.
fn flip(variant: &Value, data: &mut [u8], hash: &mut [u8]) {
    let runs = match &variant["flips"] {
        Value::Array(flips) => flips.clone(),
        run => vec![run.clone()],
    };
    for run in runs {
        let first = if run["first"].is_null() { &run["offset"] } else { &run["first"] };
        let (first, count) = (first.as_u64().unwrap(), run["count"].as_u64().unwrap_or(1));
        let file = if run["file"] == "hash" { &mut *hash } else { &mut *data };
        let bytes = &mut file[first as usize..][..count as usize];
        bytes.iter_mut().for_each(|byte| *byte ^= run["xor"].as_u64().unwrap() as u8);
    }
}

/// Data blocks that a kernel which reads whole pages can't read.
fn unreadable(case: &Case, summary: &Summary) -> BTreeSet<u64> {
    let per_page = (4096 / case.number("data_block_size")).max(1);
    let ranges = summary.bad_data.iter().chain(summary.unverified.iter());
    let pages = ranges.flat_map(|range| range.start / per_page..range.end.div_ceil(per_page));
    let blocks = pages.flat_map(|page| page * per_page..(page + 1) * per_page);
    blocks.filter(|block| *block < case.number("data_blocks")).collect()
}

fn recorded(variant: &Value) -> BTreeSet<u64> {
    let blocks = &variant["kernel"]["unreadable_blocks"];
    let Some(blocks) = blocks.as_array() else {
        return (blocks["first"].as_u64().unwrap()..=blocks["last"].as_u64().unwrap()).collect();
    };
    blocks.iter().map(|block| block.as_u64().unwrap()).collect()
}
