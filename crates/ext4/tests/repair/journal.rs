//! State that a journal tells of, beside what it holds.

use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{FileDevice, MemoryDevice};
use casemate_ext4::{CheckOptions, RepairDepth, RepairOptions, check, repair};
use casemate_providers::Work;
use casemate_testkit::{run, tempdir, tool};

use super::{e2fsck, options};

/// Places in the superblock: features, and where the journal is.
const COMPAT: usize = 1024 + 0x5c;
const INCOMPAT: usize = 1024 + 0x60;
const JOURNAL_UUID: usize = 1024 + 0xd0;
const JOURNAL_DEVICE: usize = 1024 + 0xe4;

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
