//! One wrong length of an extent, by which a file claims the blocks of many others: all of them keep their contents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{FileDevice, MemoryDevice};
use casemate_ext4::{
    Alteration, Ext4, FindingKind, InodeNo, OpenOptions, RepairDepth, RepairOptions, RepairReport, repair,
};
use casemate_providers::Work;
use casemate_testkit::{Rng, TempDir, run, slow_tests, tempdir, tool};

use super::{e2fsck, options, readable};

/// Files in an image, and bytes of each.
const FILES: usize = 120;
const BYTES: usize = 20_000;

/// An image with many files of some blocks each, and a directory.
fn image(folder: &TempDir, features: &str, size: &str) -> Option<(PathBuf, PathBuf)> {
    let (make, debugfs) = (tool("mke2fs")?, tool("debugfs")?);
    let (image, tree) = (folder.path().join("image"), folder.path().join("tree"));
    let _ = (std::fs::remove_file(&image), std::fs::remove_dir_all(&tree));
    std::fs::create_dir(&tree).unwrap();
    let mut rng = Rng::new(7);
    let mut bytes = vec![0; BYTES];
    for number in 0..FILES {
        rng.fill(&mut bytes);
        let len = if number == 0 { 3000 } else { BYTES };
        std::fs::write(tree.join(format!("f{number:03}")), &bytes[..len]).unwrap();
    }
    let mut command = Command::new(make);
    command.args(["-q", "-F", "-b", "1024", "-N", "256"]).args(features.split_whitespace());
    run(command.arg("-d").arg(&tree).arg(&image).arg(size));
    edit(&debugfs, &image, "mkdir /directory\nlink /f003 /directory/name\nsif /f003 links_count 2");
    Some((image, debugfs))
}

fn edit(debugfs: &Path, image: &Path, script: &str) {
    let file = image.with_extension("script");
    std::fs::write(&file, format!("{script}\n")).unwrap();
    run(Command::new(debugfs).args(["-w", "-f"]).arg(file).arg(image));
}

fn mend_all(image: &Path) -> RepairReport {
    let device = Arc::new(FileDevice::open_writable(image).unwrap());
    let options = RepairOptions { depth: RepairDepth::All, ..options(image) };
    repair(device, options, &mut |_, _| Ok(true), &Work::default()).unwrap()
}

fn contents(image: &Path) -> BTreeMap<Vec<u8>, u32> {
    readable(Arc::new(MemoryDevice::new(std::fs::read(image).unwrap())))
}

fn open(image: &Path) -> Ext4 {
    Ext4::open(Arc::new(FileDevice::open(image).unwrap()), &OpenOptions::default()).unwrap()
}

fn number_of(image: &Path, name: &[u8]) -> InodeNo {
    let fs = open(image);
    let entries = fs.read_dir(&fs.root().unwrap()).unwrap();
    entries.into_iter().find(|entry| &entry.name[..] == name).unwrap().inode
}

const FEATURES: [&str; 3] =
    ["-t ext4 -O ^has_journal", "-t ext4 -O bigalloc -C 16384", "-t ext4 -O ^metadata_csum"];

#[test]
fn a_map_over_the_blocks_of_many_is_cut_at_its_end() {
    let Some(fsck) = tool("e2fsck") else { return };
    let folder = tempdir().unwrap();
    for features in FEATURES {
        let Some((path, debugfs)) = image(&folder, features, "8M") else { return };
        let (sound, expected) = (std::fs::read(&path).unwrap(), contents(&path));
        assert_eq!(expected.len(), FILES + 1);
        // The second lengths lead out of the file system, as far as a length can.
        for (name, len) in
            [("f000", 3000), ("f000", 25000), ("f007", 2500), ("f007", 25000), ("lost+found", 2000)]
        {
            let what = format!("{features}: {name} {len}");
            std::fs::write(&path, &sound).unwrap();
            edit(&debugfs, &path, &format!("sif /{name} block[4] {len}"));
            let number = number_of(&path, name.as_bytes());
            let repaired = mend_all(&path);
            let left = &repaired.report.faults;
            assert!(repaired.report.is_clean(), "{what}: {left:?}\n{:?}", repaired.altered);
            let (status, text) = e2fsck(&fsck, &path);
            assert_eq!(status, Some(0), "{what}: {text}");
            assert!(contents(&path) == expected, "{what}: other contents: {:?}", repaired.altered);
            let is_told = repaired.altered.iter().any(|altered| {
                altered.inode == number && matches!(altered.how, Alteration::Cut | Alteration::Map)
            });
            assert!(is_told, "{what}: {:?}", repaired.altered);
        }
    }
}

/// A size that is too small is no reason to cut a map whose blocks the inode counts.
#[test]
fn a_wrong_size_beside_a_wrong_map_cuts_nothing() {
    let folder = tempdir().unwrap();
    let Some((path, debugfs)) = image(&folder, FEATURES[0], "8M") else { return };
    let first = number_of(&path, b"f005");
    let place = run(Command::new(&debugfs).args(["-R", "blocks /f005"]).arg(&path));
    let place: u64 = place.split_whitespace().next().unwrap().parse().unwrap();
    let before = contents(&path);
    edit(&debugfs, &path, &format!("sif /f005 size 3\nsif /f009 block[5] {place}"));
    let repaired = mend_all(&path);
    assert!(repaired.report.is_clean(), "{:?}", repaired.report.faults);
    let is_cut = repaired.altered.iter().any(|altered| altered.how == Alteration::Cut);
    assert!(!is_cut && repaired.altered.iter().any(|altered| altered.inode == first), "{repaired:?}");
    let after = contents(&path);
    let same = before.iter().filter(|(name, sum)| after.get(*name) == Some(sum)).count();
    // One has the blocks of the other, which has the size of its blocks.
    assert!(same >= FILES - 1, "{same}");
}

/// Where there is no room for copies, all stays as it is, and is told: a hole would be a loss.
#[test]
fn without_room_for_copies_nothing_is_lost() {
    let folder = tempdir().unwrap();
    for features in FEATURES {
        let Some((path, debugfs)) = image(&folder, features, "8M") else { return };
        let place = run(Command::new(&debugfs).args(["-R", "blocks /f005"]).arg(&path));
        let place: u64 = place.split_whitespace().next().unwrap().parse().unwrap();
        edit(&debugfs, &path, &format!("sif /f009 block[5] {place}"));
        // All others are in use.
        edit(&debugfs, &path, "setb 1 8191");
        let ours = [number_of(&path, b"f005"), number_of(&path, b"f009")];
        let before = contents(&path);
        let repaired = mend_all(&path);
        assert!(contents(&path) == before, "{features}: other contents");
        let told: Vec<_> = repaired
            .report
            .faults
            .iter()
            .filter(|fault| fault.kind() == FindingKind::ClaimedTwice)
            .filter_map(|fault| fault.place().inode)
            .collect();
        assert!(ours.iter().all(|inode| told.contains(inode)), "{features}: {:?}", repaired.report.faults);
    }
}

/// Blocks of files of the file system's own, and of directories, that a map says to lie where a file's are: whatever is made anew, the
/// file keeps its contents, with a free place for it and without.
#[test]
fn structures_whose_maps_lead_to_a_file_are_not_made_over_it() {
    let Some(fsck) = tool("e2fsck") else { return };
    let folder = tempdir().unwrap();
    let kinds = [
        "-t ext4 -O orphan_file,quota",
        "-t ext4 -O orphan_file,quota,^extent,^64bit",
        "-t ext4 -O orphan_file,quota,^metadata_csum",
        "-t ext4 -O orphan_file,quota,bigalloc -C 8192",
    ];
    for features in kinds {
        let Some((path, debugfs)) = image(&folder, features, "8M") else { return };
        let ask = |request: &str| run(Command::new(&debugfs).args(["-R", request]).arg(&path));
        let orphans = open(&path).superblock().orphan_file.unwrap();
        let (sound, expected) = (std::fs::read(&path).unwrap(), contents(&path));
        let places: Vec<u64> =
            [0, 7].map(|block| ask(&format!("bmap /f005 {block}")).trim().parse().unwrap()).into();
        for (inode, block) in [
            (format!("<{orphans}>"), 0),
            (format!("<{orphans}>"), 5),
            ("<3>".to_owned(), 1),
            ("<4>".to_owned(), 0),
            ("<7>".to_owned(), 13),
            ("<8>".to_owned(), 0),
            ("<8>".to_owned(), 3),
            ("/directory".to_owned(), 0),
            ("/lost+found".to_owned(), 2),
        ] {
            for place in &places[..if slow_tests() { 2 } else { 1 }] {
                for more in ["", "feature orphan_present", "setb 1 8191"] {
                    if features.contains("bigalloc") && (more.starts_with("setb") || inode == "<7>") {
                        continue;
                    }
                    let what = format!("{features}: {inode}[{block}] at {place} {more}");
                    std::fs::write(&path, &sound).unwrap();
                    edit(&debugfs, &path, &format!("sif {inode} bmap[{block}] {place}\n{more}"));
                    let repaired = mend_all(&path);
                    let now = contents(&path);
                    let lost: Vec<_> =
                        expected.iter().filter(|(name, sum)| now.get(*name) != Some(*sum)).collect();
                    let is_renamed = |name: &[u8]| inode == "/directory" && name.starts_with(b"directory/");
                    assert!(lost.iter().all(|(name, _)| is_renamed(name)), "{what}: {lost:?}");
                    if more.starts_with("setb") {
                        continue;
                    }
                    assert!(repaired.report.is_clean(), "{what}: {:?}", repaired.report.faults);
                    let (status, text) = e2fsck(&fsck, &path);
                    assert_eq!(status, Some(0), "{what}: {text}");
                }
            }
        }
    }
}

/// The flag of files that hold values, in a directory: its names are counted as those of others.
#[test]
fn a_directory_that_says_it_holds_a_value_counts_its_names() {
    let Some(fsck) = tool("e2fsck") else { return };
    let folder = tempdir().unwrap();
    let Some((path, debugfs)) = image(&folder, FEATURES[0], "8M") else { return };
    edit(&debugfs, &path, "sif /directory flags 0x280000\nsif /directory links_count 25097");
    let repaired = mend_all(&path);
    assert!(repaired.report.is_clean(), "{:?}", repaired.report.faults);
    let (status, text) = e2fsck(&fsck, &path);
    assert_eq!(status, Some(0), "{text}");
}
