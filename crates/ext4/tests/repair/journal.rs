//! State that a journal tells of, beside what it holds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{FileDevice, MemoryDevice};
use casemate_ext4::{CheckOptions, RepairDepth, RepairOptions, RepairReport, check, repair};
use casemate_providers::Work;
use casemate_testkit::{run, tempdir, tool};

use super::{e2fsck, options};

/// Places in the superblock: features, and where the journal is.
const COMPAT: usize = 1024 + 0x5c;
const INCOMPAT: usize = 1024 + 0x60;
const JOURNAL_UUID: usize = 1024 + 0xd0;
const JOURNAL_DEVICE: usize = 1024 + 0xe4;

/// Place of the type of checksums in the journal's superblock.
const CHECKSUM_TYPE: usize = 0x50;

/// A block that nobody has, to which a transaction in the journal writes.
const FREE: usize = 13_000;

/// An image whose journal has a transaction that writes sevens to a block.
fn with_transaction(features: &str, folder: &Path) -> Option<PathBuf> {
    let (mke2fs, debugfs) = (tool("mke2fs")?, tool("debugfs")?);
    let (image, script) = (folder.join("image"), folder.join("script"));
    let _ = std::fs::remove_file(&image);
    let mut make = Command::new(mke2fs);
    run(make.args(["-q", "-F", "-b", "1024"]).args(features.split_whitespace()).arg(&image).arg("16M"));
    std::fs::write(folder.join("block"), [7; 1024]).unwrap();
    let open = if features.contains("ext4") { "jo -c" } else { "jo" };
    let block = folder.join("block");
    std::fs::write(&script, format!("{open}\njw -b {FREE} {}\njc\n", block.display())).unwrap();
    run(Command::new(debugfs).arg("-w").arg("-f").arg(script).arg(&image));
    Some(image)
}

/// Mends everything. Whether the transaction was replayed, and the repair's report.
fn replays(image: &Path) -> (bool, RepairReport) {
    let device = Arc::new(FileDevice::open_writable(image).unwrap());
    let how = RepairOptions { depth: RepairDepth::All, ..options(image) };
    let repaired = repair(device, how, &mut |_, _| Ok(true), &Work::default()).unwrap();
    let bytes = std::fs::read(image).unwrap();
    (bytes[FREE * 1024..][..1024] == [7; 1024], repaired)
}

/// Transactions in the usual inode count, whatever the superblock says of the journal.
#[test]
fn transactions_of_a_journal_that_is_not_named_are_replayed() {
    let Some(fsck) = tool("e2fsck") else { return };
    let folder = tempdir().unwrap();
    for features in ["-t ext3", "-t ext4"] {
        for (number, is_told) in
            [0, 9, 12, 169, 4_000_000].into_iter().flat_map(|it| [(it, true), (it, false)])
        {
            let Some(image) = with_transaction(features, folder.path()) else { return };
            let mut commands = format!("ssv journal_inum {number}\n");
            if !is_told {
                commands.insert_str(0, "feature -needs_recovery\n");
            }
            let script = folder.path().join("script");
            std::fs::write(&script, commands).unwrap();
            run(Command::new(tool("debugfs").unwrap()).arg("-w").arg("-f").arg(script).arg(&image));
            let what = format!("{features}: inode {number}, told: {is_told}");
            let (is_replayed, repaired) = replays(&image);
            assert!(repaired.report.is_clean() && is_replayed, "{what}: {repaired:?}");
            assert!(repaired.altered.is_empty(), "{what}: {repaired:?}");
            assert_eq!(e2fsck(&fsck, &image).0, Some(0), "{what}");
        }
    }
}

/// The type of a journal's checksums can be but one: a wrong one is damage, and costs nothing.
#[test]
fn a_wrong_type_of_checksums_costs_no_transaction() {
    let Some(fsck) = tool("e2fsck") else { return };
    let folder = tempdir().unwrap();
    for (is_dirty, kind) in [(true, 0), (true, 255), (false, 0), (false, 1)] {
        let Some(image) = with_transaction("-t ext4", folder.path()) else { return };
        if !is_dirty {
            assert!(replays(&image).0);
        }
        let mut bytes = std::fs::read(&image).unwrap();
        let journal =
            bytes.chunks(1024).position(|block| block.starts_with(b"\xc0\x3b\x39\x98\0\0\0\x04")).unwrap();
        assert_eq!(bytes[journal * 1024 + CHECKSUM_TYPE], 4);
        bytes[journal * 1024 + CHECKSUM_TYPE] = kind;
        std::fs::write(&image, &bytes).unwrap();
        if !is_dirty {
            // What does not go through the journal is mended, whatever becomes of that.
            let device = Arc::new(FileDevice::open_writable(&image).unwrap());
            let safe = repair(device, options(&image), &mut |_, _| Ok(true), &Work::default()).unwrap();
            let faults: Vec<_> = safe.report.faults.iter().map(|fault| fault.kind().name()).collect();
            assert_eq!(faults, ["journal-superblock"], "type {kind}");
        }
        let (is_replayed, repaired) = replays(&image);
        assert!(repaired.report.is_clean() && is_replayed, "type {kind}: {repaired:?}");
        assert_eq!(e2fsck(&fsck, &image).0, Some(0), "type {kind}");
    }
}

#[test]
fn an_error_that_the_kernel_noted_is_a_fault() {
    let (Some(mke2fs), Some(fsck)) = (tool("mke2fs"), tool("e2fsck")) else { return };
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    run(Command::new(mke2fs).args(["-q", "-F", "-t", "ext3", "-b", "1024"]).arg(&image).arg("16M"));
    let mut bytes = std::fs::read(&image).unwrap();
    let journal =
        bytes.chunks(1024).position(|block| block.starts_with(b"\xc0\x3b\x39\x98\0\0\0\x04")).unwrap();
    bytes[journal * 1024 + 0x20..][..4].fill(0xff);
    std::fs::write(&image, &bytes).unwrap();
    let device = Arc::new(FileDevice::open_writable(&image).unwrap());
    let found = check(device.clone(), &CheckOptions::default(), &Work::default()).unwrap();
    let faults: Vec<_> = found.faults.iter().map(|fault| fault.kind().name()).collect();
    assert_eq!(faults, ["journal-superblock"], "{found:?}");
    let how = RepairOptions { depth: RepairDepth::All, ..options(&image) };
    let repaired = repair(device, how, &mut |_, _| Ok(true), &Work::default()).unwrap();
    assert!(repaired.report.is_clean(), "{repaired:?}");
    let (code, text) = e2fsck(&fsck, &image);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_journal_elsewhere_that_must_be_replayed_is_a_fault() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    run(Command::new(mke2fs).args(["-q", "-F", "-t", "ext2", "-b", "1024"]).arg(&image).arg("16M"));
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[COMPAT] |= 4;
    bytes[JOURNAL_UUID..JOURNAL_UUID + 16].fill(7);
    bytes[JOURNAL_DEVICE] = 7;
    let look = |bytes: &[u8]| {
        let device = Arc::new(MemoryDevice::new(bytes.to_vec()));
        let found = check(device, &CheckOptions::default(), &Work::default()).unwrap();
        found.faults.iter().map(|fault| fault.kind().name()).collect::<Vec<_>>()
    };
    assert_eq!(look(&bytes), [""; 0]);
    bytes[INCOMPAT] |= 4;
    assert_eq!(look(&bytes), ["journal-log"]);
}
