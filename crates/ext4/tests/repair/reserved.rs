//! Reserved inodes with fields that they can't have.

use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::FileDevice;
use casemate_ext4::{RepairDepth, RepairOptions, repair};
use casemate_providers::Work;
use casemate_testkit::{run, tempdir, tool};

use super::{e2fsck, options};

/// Places of fields in an inode: the count of sectors, and the block of attributes.
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
    for (number, field) in [(7, ATTRIBUTES), (9, SECTORS), (10, SECTORS)] {
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
