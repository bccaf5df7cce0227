//! Checks of images: sound ones, and ones with a single recorded damage.

mod common;

use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, MemoryDevice};
use casemate_ext4::csum::Kind;
use casemate_ext4::{CheckReport, Ext4, FindingKind, OpenOptions, Problem, Structure, check, fix_checksums};
use casemate_providers::Work;
use casemate_testkit::{tempdir, tool};
use common::{Fixture, fixtures};

fn run(image: Vec<u8>) -> CheckReport {
    let device = Arc::new(MemoryDevice::new(image));
    check(device, &OpenOptions::default(), &Work::default()).unwrap()
}

/// Which structure a recorded damage is in; `None` for what no checksum covers.
fn expected(what: &str, kind: Kind) -> Option<Structure> {
    let table = [
        ("superblock:", Structure::Superblock),
        ("journal superblock", Structure::JournalSuperblock),
        ("group descriptor", Structure::GroupDescriptor),
        ("group 0 block bitmap", Structure::BlockBitmap),
        ("group 0 inode bitmap", Structure::InodeBitmap),
        ("extent tree block", Structure::ExtentBlock),
        ("folder block", Structure::DirectoryBlock),
        ("root folder block", Structure::DirectoryBlock),
        ("htree root", Structure::HtreeNode),
        ("htree inner node", Structure::HtreeNode),
        ("htree leaf", Structure::DirectoryBlock),
        ("xattr block", Structure::XattrBlock),
        ("MMP block", Structure::MmpBlock),
        ("orphan file", Structure::OrphanBlock),
        ("inode", Structure::Inode),
    ];
    if what.contains("not covered") {
        return None;
    }
    let (_, structure) =
        table.iter().find(|(start, _)| what.starts_with(start)).unwrap_or_else(|| panic!("{what}"));
    (kind == Kind::Metadata || *structure == Structure::GroupDescriptor).then_some(*structure)
}

fn damages(fixture: &Fixture) -> Vec<(String, usize, u8)> {
    let list = fixture.manifest["damage"].as_array().unwrap();
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    list.iter()
        .map(|damage| {
            let what = damage["structure"].as_str().unwrap().to_owned();
            (what, number(&damage["offset"]) as usize, number(&damage["xor"]) as u8)
        })
        .collect()
}

#[test]
fn sound_images_are_clean() {
    for fixture in fixtures() {
        let report = run(fixture.image.clone());
        assert_eq!(report.faults, [], "{}", fixture.name);
        if report.kind == Kind::Metadata {
            for structure in [Structure::Inode, Structure::GroupDescriptor, Structure::InodeBitmap] {
                assert!(report.checked[&structure] > 0, "{}: no {structure:?}", fixture.name);
            }
        }
        assert_eq!(report.replayed > 0, fixture.name == "1k-dirty-journal");
    }
}

#[test]
fn every_recorded_damage_is_found_and_nothing_else() {
    let mut found = 0;
    for fixture in fixtures() {
        let kind = run(fixture.image.clone()).kind;
        for (what, offset, xor) in damages(&fixture) {
            let mut image = fixture.image.clone();
            image[offset] ^= xor;
            let report = run(image);
            let place = format!("{}: {what}: {:?}", fixture.name, report.faults);
            let sums: Vec<_> = report
                .faults
                .iter()
                .chain(&report.notes)
                .filter(|fault| matches!(fault.problem(), Problem::Checksum { .. }))
                .collect();
            match expected(&what, kind) {
                None if what.contains("behind the last inode") => {
                    let [fault] = &report.faults[..] else { panic!("{place}") };
                    assert_eq!(fault.place().structure, Structure::InodeBitmap, "{place}");
                    assert_eq!(fault.kind(), FindingKind::BitmapPadding, "{place}");
                }
                // Whatever else is wrong with the structure, its checksum is not.
                None => assert!(sums.is_empty(), "{place}"),
                Some(structure) => {
                    found += 1;
                    let [fault] = sums[..] else { panic!("{place}") };
                    assert_eq!(fault.place().structure, structure, "{place}");
                    if what.contains("checksum") {
                        assert_eq!(report.faults.len(), 1, "{place}");
                    }
                }
            }
        }
    }
    assert!(found > 150, "{found} damages");
}

#[test]
fn a_flipped_checksum_is_rewritten_to_what_it_was() {
    for fixture in fixtures().filter(|fixture| fixture.name != "1k-dirty-journal") {
        let kind = run(fixture.image.clone()).kind;
        for (what, offset, xor) in damages(&fixture) {
            if expected(&what, kind).is_none() {
                continue;
            }
            let mut image = fixture.image.clone();
            image[offset] ^= xor;
            let device = Arc::new(MemoryDevice::new(image.clone()));
            let options = OpenOptions::default();
            let (rewritten, report) = fix_checksums(device.clone(), &options, &Work::default()).unwrap();
            let place = format!("{}: {what}: {rewritten:?}, then {:?}", fixture.name, report.faults);
            assert!(!rewritten.is_empty(), "{place}");
            let mut after = bytes(&device);
            if fixture.name == "4k-mmp" {
                if what.starts_with("MMP") {
                    assert!(report.is_clean(), "{place}");
                    continue;
                }
                // Whoever changes something says there who he is (s_mmp_block).
                let block = u64::from_le_bytes(image[1024 + 0x168..][..8].try_into().unwrap()) as usize;
                after[block * 4096..][..4096].copy_from_slice(&image[block * 4096..][..4096]);
            }
            if what.contains("checksum") {
                assert!(after == fixture.image && report.is_clean(), "{place}");
            }
            // Below an inode whose map points elsewhere, other structures can be damaged for good.
            if !what.contains("first extent") && !what.contains("inline folder") {
                assert_eq!(report.fixable().count(), 0, "{place}");
                let changed = after.iter().zip(&image).filter(|(a, b)| a != b).count();
                assert!((1..=8).contains(&changed), "{place}: {changed} bytes changed");
            }
        }
    }
}

#[test]
fn a_damaged_uuid_does_not_spread() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(32 << 20).unwrap();
    // Four groups: the second has a copy of the superblock, which tells that the UUID is not the image's own.
    let mut make = Command::new(mke2fs);
    casemate_testkit::run(
        make.args(["-q", "-t", "ext4", "-b", "1024", "-O", "metadata_csum,^metadata_csum_seed"]).arg(&path),
    );
    let mut image = std::fs::read(&path).unwrap();
    image[1024 + 0x68] ^= 1;
    let report = run(image);
    assert!(report.checked.contains_key(&Structure::BackupSuperblock));
    assert_eq!(report.faults.len(), 1, "{:?}", report.faults);
    assert_eq!(report.fixable().count(), 0, "a foreign UUID would be signed");
}

/// Bits that stand for no inode or block must be set. The last group is shorter than the others, and ends within a byte.
#[test]
fn bits_behind_the_end_of_a_bitmap_are_set() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let path = folder.path().join("image");
    for checksums in ["metadata_csum", "^metadata_csum,uninit_bg", "^metadata_csum,^uninit_bg"] {
        let _ = std::fs::remove_file(&path);
        let mut make = Command::new(&mke2fs);
        make.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-N", "64", "-O", checksums]);
        casemate_testkit::run(make.arg(&path).arg("12349"));
        let image = std::fs::read(&path).unwrap();
        assert_eq!(run(image.clone()).faults, [], "{checksums}");
        let fs = Ext4::open(Arc::new(MemoryDevice::new(image.clone())), &OpenOptions::default()).unwrap();
        let layout = *fs.layout();
        assert!(layout.groups == 2 && layout.clusters_in(1) == 12348 - 8192, "{layout:?}");
        // Descriptors are in block 2; the two bitmaps are their first fields.
        let field = |at: usize| u64::from(u32::from_le_bytes(image[at..at + 4].try_into().unwrap()));
        let inode_bitmap = field(2048 + 4);
        let block_bitmap = field(2048 + layout.descriptor_size as usize);
        let cases = [
            // Behind the inodes that the checksum covers, at once and at the block's end.
            (Structure::InodeBitmap, inode_bitmap, u64::from(layout.inodes_per_group)),
            (Structure::InodeBitmap, inode_bitmap, 8 * 1024 - 1),
            // Behind the last block, which the checksum covers too.
            (Structure::BlockBitmap, block_bitmap, u64::from(layout.clusters_in(1))),
            (Structure::BlockBitmap, block_bitmap, 8 * 1024 - 1),
        ];
        for (structure, block, bit) in cases {
            let mut image = image.clone();
            image[(block * 1024 + bit / 8) as usize] ^= 1 << (bit % 8);
            let report = run(image);
            let [fault] = &report.faults[..] else {
                panic!("{checksums}: {structure:?}: {:?}", report.faults)
            };
            assert_eq!(fault.place().structure, structure, "{checksums}");
            let summed = checksums == "metadata_csum" && structure == Structure::BlockBitmap;
            assert_eq!(matches!(fault.problem(), Problem::Checksum { .. }), summed, "{checksums}: {fault}");
        }
        // A bit right in front of them stands for a block that nobody has.
        let last = u64::from(layout.clusters_in(1)) - 1;
        let mut image = image.clone();
        image[(block_bitmap * 1024 + last / 8) as usize] ^= 1 << (last % 8);
        let report = run(image);
        let kinds: Vec<_> = report.faults.iter().map(|fault| fault.kind()).collect();
        assert!(kinds.contains(&FindingKind::BlockBitmap), "{checksums}: {:?}", report.faults);
        assert_eq!(kinds.contains(&FindingKind::Checksum), checksums == "metadata_csum", "{checksums}");
    }
}

#[test]
fn nothing_is_rewritten_before_the_journal_is_replayed() {
    let fixture = fixtures().find(|fixture| fixture.name == "1k-dirty-journal").unwrap();
    let mut image = fixture.image.clone();
    image[1024 + 0x78] ^= 1;
    let device = Arc::new(MemoryDevice::new(image.clone()));
    let error = fix_checksums(device.clone(), &OpenOptions::default(), &Work::default());
    assert!(error.unwrap_err().to_string().contains("journal must be replayed"));
    assert!(bytes(&device) == image);
}

fn bytes(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(&mut bytes, 0).unwrap();
    bytes
}
