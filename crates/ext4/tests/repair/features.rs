//! Features that the superblock lost: those of its copies are taken, and nothing of what they are for is.

use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::FileDevice;
use casemate_ext4::{RepairDepth, RepairOptions, RepairReport, WriteOptions, Writer, repair};
use casemate_providers::Work;
use casemate_testkit::{tempdir, tool};

use super::common::collection::Maker;
use super::common::tree::compare;
use super::{e2fsck, options, tree};

/// Where the features begin, and where a copy of attributes has its magic number.
const FEATURES: usize = 1024 + 0x5c;
const ATTRIBUTES: [u8; 4] = [0, 0, 2, 0xea];

fn mend_all(image: &Path) -> RepairReport {
    let device = Arc::new(FileDevice::open_writable(image).unwrap());
    let how = RepairOptions { depth: RepairDepth::All, ..options(image) };
    repair(device, how, &mut |_, _| Ok(true), &Work::default()).unwrap()
}

#[test]
fn lost_features_cost_nothing() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    for features in [
        "-t ext4 -b 1024 -g 2048",
        "-t ext4 -b 1024 -g 2048 -I 128",
        "-t ext4 -b 1024 -g 2048 -O ^metadata_csum",
        "-t ext3 -b 1024 -g 2048",
    ] {
        let sound = maker.make(features, "sound");
        let expected = tree(&sound);
        let image = folder.path().join("image");
        for (at, len) in [(0, 4), (4, 4), (8, 4), (0, 8), (4, 8), (0, 12), (0, 64), (0, 932)] {
            let what = format!("{features}: {len} zeros {at} behind the beginning of the features");
            let mut bytes = std::fs::read(&sound).unwrap();
            let words = bytes[FEATURES..FEATURES + 12].to_vec();
            bytes[FEATURES + at..][..len].fill(0);
            std::fs::write(&image, &bytes).unwrap();
            let repaired = mend_all(&image);
            assert!(repaired.report.is_clean() && repaired.altered.is_empty(), "{what}: {repaired:?}");
            compare(&tree(&image), &expected, &what);
            assert_eq!(e2fsck(&fsck, &image).0, Some(0), "{what}");
            let mended = std::fs::read(&image).unwrap();
            assert_eq!(mended[FEATURES..FEATURES + 12], words, "{what}");
            assert_eq!(mend_all(&image).mended, [], "{what}");
            assert!(std::fs::read(&image).unwrap() == mended, "{what}");
        }
    }
}

/// Without a copy, blocks of attributes tell that there is the feature.
#[test]
fn attributes_prove_their_feature() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    for features in ["-t ext4 -b 4096", "-t ext2 -b 4096"] {
        let image = maker.make(features, "image");
        let expected = tree(&image);
        maker.debugfs(&image, "feature -ext_attr");
        let repaired = mend_all(&image);
        assert!(repaired.report.is_clean() && repaired.altered.is_empty(), "{features}: {repaired:?}");
        compare(&tree(&image), &expected, features);
        assert_eq!(e2fsck(&fsck, &image).0, Some(0), "{features}");
    }
}

/// Contents in inodes prove their feature, also where a block of attributes belongs to the inode, or inodes that hold values.
/// Gives a file, a directory and a file in that one an attribute of so many bytes.
fn set_large(image: &Path, len: usize) {
    let writing = WriteOptions { seed: Some(1), ..WriteOptions::default() };
    let mut writer = Writer::open(Arc::new(FileDevice::open_writable(image).unwrap()), writing).unwrap();
    for path in ["/many/Name-1-x", "/a", "/a/inner"] {
        writer.set_xattr(path.as_bytes(), b"user.large", Some(&vec![b'q'; len]), true).unwrap();
    }
    writer.commit().unwrap();
}

#[test]
fn contents_in_inodes_prove_their_feature() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    for features in [
        "-t ext4 -b 1024 -O inline_data",
        "-t ext4 -b 4096 -O inline_data,^metadata_csum",
        "-t ext4 -b 4096 -O inline_data,ea_inode",
    ] {
        let image = maker.make(features, "image");
        let large = if features.contains("ea_inode") { 9000 } else { 300 };
        set_large(&image, large);
        let expected = tree(&image);
        let sound = std::fs::read(&image).unwrap();
        for has_copies in [true, false] {
            let what = format!("{features}, copies {has_copies}");
            std::fs::write(&image, &sound).unwrap();
            match has_copies {
                true => {
                    let mut bytes = sound.clone();
                    bytes[FEATURES + 5] &= 0x7f;
                    std::fs::write(&image, &bytes).unwrap();
                }
                false => maker.debugfs(&image, "feature -inline_data"),
            }
            let repaired = mend_all(&image);
            assert!(repaired.report.is_clean() && repaired.altered.is_empty(), "{what}: {repaired:?}");
            compare(&tree(&image), &expected, &what);
            assert_eq!(e2fsck(&fsck, &image).0, Some(0), "{what}");
        }
    }
}

#[test]
fn values_in_inodes_prove_their_feature() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    for (features, lost) in [
        ("-t ext4 -b 1024 -O ea_inode", "-ea_inode"),
        ("-t ext4 -b 1024 -O ea_inode,inline_data,^metadata_csum", "-ea_inode"),
        ("-t ext4 -b 4096 -O inline_data,ea_inode", "-ea_inode"),
        ("-t ext4 -b 4096 -O inline_data,ea_inode", "-ea_inode -inline_data"),
    ] {
        let image = maker.make(features, "image");
        set_large(&image, 9000);
        let expected = tree(&image);
        // Under a right checksum, also in the copies: nothing else tells of the feature.
        maker.debugfs(&image, &format!("feature {lost}"));
        let repaired = mend_all(&image);
        let what = format!("{features}, {lost}");
        assert!(repaired.report.is_clean() && repaired.altered.is_empty(), "{what}: {repaired:?}");
        compare(&tree(&image), &expected, &what);
        assert_eq!(e2fsck(&fsck, &image).0, Some(0), "{what}");
        let superblock = std::fs::read(&image).unwrap();
        assert!(superblock[FEATURES + 5] & 4 != 0, "{what}: the feature is not set");
    }
}

#[test]
fn files_that_lose_attributes_are_named() {
    let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let image = maker.make("-t ext4 -b 1024 -O ^has_journal", "image");
    let mut bytes = std::fs::read(&image).unwrap();
    for block in bytes.chunks_mut(1024).filter(|block| block.starts_with(&ATTRIBUTES)) {
        block[..4].fill(0);
    }
    std::fs::write(&image, &bytes).unwrap();
    let repaired = mend_all(&image);
    let how: Vec<&str> = repaired.altered.iter().map(|altered| altered.how.name()).collect();
    assert!(repaired.report.is_clean(), "{repaired:?}");
    assert_eq!(how, ["attributes"; 2], "{repaired:?}");
}
