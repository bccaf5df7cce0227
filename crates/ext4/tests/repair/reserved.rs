//! Reserved inodes with fields that they can't have.

use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::FileDevice;
use casemate_ext4::{CheckOptions, FindingKind, RepairDepth, RepairOptions, check, repair};
use casemate_providers::Work;
use casemate_testkit::{Rng, run, run_any, tempdir, tool};

use super::{e2fsck, options};

/// Places of fields in an inode: the flags, the count of sectors, and the block of attributes.
const FLAGS: usize = 0x20;
const SECTORS: usize = 0x1c;
const ATTRIBUTES: usize = 0x68;

#[test]
fn reserved_inodes_are_made_what_they_are_for() {
    let (Some(mke2fs), Some(fsck)) = (tool("mke2fs"), tool("e2fsck")) else { return };
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    let mut command = Command::new(mke2fs);
    command.args(["-q", "-F", "-t", "ext4", "-O", "^metadata_csum,^uninit_bg", "-b", "1024", "-I", "256"]);
    run(command.arg(&image).arg("16M"));
    let sound = std::fs::read(&image).unwrap();
    let table = u32::from_le_bytes(sound[2048 + 8..2048 + 12].try_into().unwrap()) as usize * 1024;
    for (number, field) in [(5, ATTRIBUTES), (5, SECTORS), (7, ATTRIBUTES), (9, SECTORS), (10, SECTORS)] {
        let mut damaged = sound.clone();
        damaged[table + (number - 1) * 256 + field] = 1;
        std::fs::write(&image, &damaged).unwrap();
        let device = Arc::new(FileDevice::open_writable(&image).unwrap());
        let how = RepairOptions { depth: RepairDepth::All, ..options(&image) };
        let repaired = repair(device, how, &mut |_, _| Ok(true), &Work::default()).unwrap();
        assert!(repaired.report.is_clean(), "inode {number}: {repaired:?}");
        let (code, text) = e2fsck(&fsck, &image);
        assert_eq!(code, Some(0), "inode {number}: {text}");
    }
}

/// A boot loader lost the flag of its extent tree, which is set again, or its mode: then its blocks are nobody's.
#[test]
fn the_boot_loader_keeps_its_contents_while_it_has_a_kind() {
    let (Some(mke2fs), Some(fsck), Some(debugfs)) = (tool("mke2fs"), tool("e2fsck"), tool("debugfs")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let (image, tree) = (folder.path().join("image"), folder.path().join("tree"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("boot"), Rng::new(1).bytes(90_000)).unwrap();
    let mut command = Command::new(mke2fs);
    command.args([
        "-q",
        "-F",
        "-t",
        "ext4",
        "-O",
        "^metadata_csum,^uninit_bg",
        "-b",
        "1024",
        "-I",
        "256",
        "-d",
    ]);
    run(command.arg(&tree).arg(&image).arg("16M"));
    let mut bytes = std::fs::read(&image).unwrap();
    let table = u32::from_le_bytes(bytes[2048 + 8..2048 + 12].try_into().unwrap()) as usize * 1024;
    let boot = table + 4 * 256;
    // The file becomes the boot loader, and has no name any more.
    bytes.copy_within(table + 11 * 256..table + 12 * 256, boot);
    std::fs::write(&image, &bytes).unwrap();
    run(Command::new(debugfs).args(["-w", "-R", "clri /boot"]).arg(&image));
    run_any(Command::new(&fsck).arg("-fy").arg(&image));
    let sound = std::fs::read(&image).unwrap();
    assert_eq!(e2fsck(&fsck, &image).0, Some(0));
    for (at, len, kind) in [(FLAGS, 4, FindingKind::InodeFlag), (0, 2, FindingKind::InodeBlocks)] {
        let mut damaged = sound.clone();
        damaged[boot + at..boot + at + len].fill(0);
        std::fs::write(&image, &damaged).unwrap();
        let device = Arc::new(FileDevice::open_writable(&image).unwrap());
        let found = check(device.clone(), &CheckOptions::default(), &Work::default()).unwrap();
        assert!(found.faults.iter().any(|fault| fault.kind() == kind), "{kind:?}: {:?}", found.faults);
        let how = RepairOptions { depth: RepairDepth::All, ..options(&image) };
        let repaired = repair(device, how, &mut |_, _| Ok(true), &Work::default()).unwrap();
        assert!(repaired.report.is_clean(), "{kind:?}: {repaired:?}");
        let (code, text) = e2fsck(&fsck, &image);
        assert_eq!(code, Some(0), "{kind:?}: {text}");
        let now = std::fs::read(&image).unwrap();
        let is_kept = now[boot..boot + 128] == sound[boot..boot + 128];
        assert_eq!(is_kept, kind == FindingKind::InodeFlag, "{kind:?}");
    }
}
