//! Damage mended: e2fsck finds nothing of it afterwards, and files are what they were.

mod beside;
#[path = "../common/mod.rs"]
mod common;
mod features;
mod fields;
mod journal;
mod records;
mod reserved;
mod shared;
mod superblocks;
mod undo;
mod unsure;
mod worse;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use casemate_blockdev::{BlockDevice, Events, FileDevice, MemoryDevice};
use casemate_ext4::{
    Block, CheckOptions, ErrorKind, Ext4, FindingKind, OpenOptions, RecoveryFile, RepairDepth, RepairOptions,
    RepairReport, SeenDirectories, Time, check, repair,
};
use casemate_primitives::cpu::Cpu;
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Work;
use casemate_testkit::{Rng, mke2fs, run_any, slow_tests, tempdir, tool};
use common::collection::Maker;
use common::mutation::Image;
use common::tree::{Tree, compare, describe_image};

/// Damage by commands of debugfs, and the kind that is found of it.
const DAMAGE: [(&str, &str); 14] = [
    ("set_bg 0 free_blocks_count 5\nset_bg 0 checksum calc", "free-blocks"),
    ("set_bg 0 free_inodes_count 3\nset_bg 0 checksum calc", "free-inodes"),
    ("set_bg 0 used_dirs_count 9\nset_bg 0 checksum calc", "directory-count"),
    ("ssv free_blocks_count 1", "free-total"),
    ("ssv free_inodes_count 2", "free-total"),
    ("sif /file links_count 7", "link-count"),
    ("sif /a links_count 12", "link-count"),
    ("sif /file blocks 2", "inode-blocks"),
    ("sif /file dtime 5", "deletion-time"),
    ("freei <13>", "inode-bitmap"),
    ("seti <400>", "inode-bitmap"),
    ("setb 6000 3", "block-bitmap"),
    ("set_bg 0 checksum 0x1234", "checksum"),
    ("sif /file checksum 0x1234", "checksum"),
];

fn options(image: &Path) -> RepairOptions<'static> {
    RepairOptions {
        recovery: Some(RecoveryFile::new(image.with_extension("redo"))),
        time: Some(Time { seconds: 1_700_000_001, nanoseconds: 0 }),
        seed: Some(1),
        ..RepairOptions::default()
    }
}

/// Mends everything.
fn mend(image: &Path) -> RepairReport {
    let device = Arc::new(FileDevice::open_writable(image).unwrap());
    repair(device, options(image), &mut |_, _| Ok(true), &Work::default()).unwrap()
}

fn tree(image: &Path) -> Tree {
    let device = Arc::new(FileDevice::open(image).unwrap());
    describe_image(&Ext4::open(device, &OpenOptions::default()).unwrap())
}

fn e2fsck(e2fsck: &Path, image: &Path) -> (Option<i32>, String) {
    let output = run_any(Command::new(e2fsck).arg("-fn").arg(image));
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// How much e2fsck complains of.
fn complaints((_, text): &(Option<i32>, String)) -> usize {
    let is_told = |line: &&str| {
        let line = line.trim();
        let is_talk = ["Pass ", "Fix? no", "Clear? no", "<y>"].iter().any(|start| line.starts_with(start));
        !(line.is_empty() || is_talk || line.contains(" files (") || line.contains("*****"))
    };
    text.lines().filter(is_told).count()
}

const KINDS: [&str; 4] = [
    "-t ext4 -b 1024",
    "-t ext4 -b 1024 -O ^has_journal,^metadata_csum,uninit_bg",
    "-t ext2 -b 1024",
    "-t ext4 -b 1024 -C 4096 -O bigalloc",
];

#[test]
fn what_was_damaged_is_mended_and_nothing_else_changes() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    for features in KINDS {
        let sound = maker.make(features, "sound");
        let expected = tree(&sound);
        let image = folder.path().join("image");
        for (damage, kind) in DAMAGE {
            let what = format!("{features}: {damage}");
            std::fs::copy(&sound, &image).unwrap();
            maker.debugfs(&image, damage);
            if kind == "checksum" && !has_checksums(features) {
                continue;
            }
            assert_mended(&fsck, &image, kind, &what);
            compare(&tree(&image), &expected, &what);
            // Nothing is left to do.
            let bytes = std::fs::read(&image).unwrap();
            assert_eq!(mend(&image).mended, [], "{what}");
            assert!(std::fs::read(&image).unwrap() == bytes, "{what}");
        }
    }
}

/// Many faults of many kinds are mended after one look at all of the file system, and one more shows that they are: bytes of inode
/// tables that are gone through tell how many looks there were.
#[test]
fn many_faults_take_two_looks() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    for features in KINDS.into_iter().chain(["-t ext4 -b 1024 -O quota"]) {
        let image = maker.make(features, "image");
        maker.debugfs(
            &image,
            "sif /many links_count 12\nsif /file blocks 2\nsif /a/inner dtime 0x60000000\nsif /pieces links_count 9\n\
             unlink /reserved\nunlink /fifo\nunlink /a/b/c\nseti <400>\nsetb 6000 3\nfreei <13>\n\
             ssv free_inodes_count 2\nset_bg 0 free_blocks_count 5\nset_bg 0 free_inodes_count 290\n\
             set_bg 0 used_dirs_count 9\nset_bg 0 checksum calc",
        );
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open_writable(&image).unwrap());
        let seen = Seen::default();
        let work = Work { events: &seen, ..Work::default() };
        let faults = check(device.clone(), &CheckOptions::default(), &work).unwrap().faults.len();
        let once = std::mem::take(&mut *seen.0.lock().unwrap());
        let repaired = repair(device, options(&image), &mut |_, _| Ok(true), &work).unwrap();
        let all = *seen.0.lock().unwrap();
        let what = format!("{features}: {faults} faults, {} looks, {repaired:?}", all / once);
        assert!(faults > 12 && repaired.report.is_clean(), "{what}");
        assert_eq!(e2fsck(&fsck, &image).0, Some(0), "{what}");
        assert!(all <= 2 * once, "{what}");
    }
}

/// Decisions that don't depend on each other go by one look at the file system; what follows from them, by the next.
#[test]
fn many_decisions_take_few_looks() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    for features in KINDS {
        let image = maker.make(features, "image");
        maker.debugfs(
            &image,
            "sif /file faddr 77\nsif /a/inner size 30000\nkill_file /fifo\nkill_file /link1\n\
             link /a/b /second\nsif /a/b/c mode 0x81ff\nsif /pieces size 3\nsif /link300 size 7\n\
             ssv free_inodes_count 2\nsetb 6000 3\nfreei <13>\nsif / links_count 40\n",
        );
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open_writable(&image).unwrap());
        let seen = Seen::default();
        let work = Work { events: &seen, ..Work::default() };
        let faults = check(device.clone(), &CheckOptions::default(), &work).unwrap().faults.len();
        let once = std::mem::take(&mut *seen.0.lock().unwrap());
        let all = RepairOptions { depth: RepairDepth::All, ..options(&image) };
        let repaired = repair(device, all, &mut |_, _| Ok(true), &work).unwrap();
        let all = *seen.0.lock().unwrap();
        let what = format!("{features}: {faults} faults, {} looks, {repaired:?}", all / once);
        assert!(faults > 9 && repaired.report.is_clean(), "{what}");
        assert_eq!(e2fsck(&fsck, &image).0, Some(0), "{what}");
        println!("{features}: {} looks", all / once);
        assert!(all <= 5 * once, "{what}");
    }
}

/// Bytes that long work went through.
#[derive(Default)]
struct Seen(Mutex<u64>);

impl Events for Seen {
    fn advance(&self, bytes: u64) -> casemate_blockdev::Result<()> {
        *self.0.lock().unwrap() += bytes;
        Ok(())
    }
}

fn has_checksums(features: &str) -> bool {
    features.starts_with("-t ext4") && !features.contains("^metadata_csum")
}

/// A wrong descriptor does not make its group's inodes or their blocks free.
#[test]
fn inodes_are_not_lost_to_wrong_descriptors() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    // The only group of the others has no copy of its descriptor.
    let with_copy = "-t ext4 -b 1024 -g 4096 -O ^has_journal";
    for features in KINDS.into_iter().filter(|features| has_checksums(features)).chain([with_copy]) {
        let sound = maker.make(features, "sound");
        let expected = tree(&sound);
        let image = folder.path().join("image");
        for damage in [
            "set_bg 0 itable_unused 0xf300",
            "set_bg 0 itable_unused 0xf300\nset_bg 0 checksum calc",
            "set_bg 0 itable_unused 180\nset_bg 0 free_inodes_count 200",
            "set_bg 0 itable_unused 180\nset_bg 0 free_inodes_count 200\nset_bg 0 checksum calc",
            "set_bg 0 flags 1",
            "set_bg 0 flags 3\nset_bg 0 checksum calc",
            "set_bg 0 inode_table 5000",
            "set_bg 0 block_bitmap 5000",
            "set_bg 1 checksum 0x1234",
        ] {
            let what = format!("{features}: {damage}");
            if damage.starts_with("set_bg 1") && features != with_copy {
                continue;
            }
            std::fs::copy(&sound, &image).unwrap();
            maker.debugfs(&image, damage);
            let bytes = std::fs::read(&image).unwrap();
            assert_ne!(e2fsck(&fsck, &image).0, Some(0), "{what}");
            let device = Arc::new(FileDevice::open_writable(&image).unwrap());
            let repaired = repair(device, options(&image), &mut |_, _| Ok(true), &Work::default());
            if features != with_copy && damage.starts_with("set_bg 0 inode_table") {
                // Not even the root is found.
                assert_eq!(repaired.unwrap().mended, [], "{what}");
                assert!(std::fs::read(&image).unwrap() == bytes, "{what}");
                continue;
            }
            let repaired = repaired.unwrap();
            assert!(repaired.withheld.is_empty() && repaired.report.is_clean(), "{what}: {repaired:?}");
            compare(&tree(&image), &expected, &what);
            let (status, text) = e2fsck(&fsck, &image);
            assert_eq!(status, Some(0), "{what}: {text}");
        }
    }
}

/// Mends an image in which a check finds something of this kind.
fn assert_mended(fsck: &Path, image: &Path, kind: &str, what: &str) {
    let device = Arc::new(FileDevice::open(image).unwrap());
    let before = check(device, &CheckOptions::default(), &Work::default()).unwrap();
    let mut all = before.faults.iter().chain(&before.notes);
    assert!(all.any(|finding| finding.kind().name() == kind), "{what}: {before:?}");
    let repaired = mend(image);
    assert!(repaired.mended.iter().any(|finding| finding.kind().name() == kind), "{what}: {repaired:?}");
    assert!(repaired.report.is_clean() && repaired.report.notes.is_empty(), "{what}: {repaired:?}");
    let (status, text) = e2fsck(fsck, image);
    assert_eq!(status, Some(0), "{what}: {text}");
}

/// Where a directory's first block begins in an image of 1 KiB blocks.
fn first_block(image: &Path, path: &str) -> usize {
    let fs = Ext4::open(Arc::new(FileDevice::open(image).unwrap()), &OpenOptions::default()).unwrap();
    let inode = fs.resolve(path.as_bytes(), false).unwrap();
    fs.mapping_at(&inode, 0).unwrap().unwrap().physical.get() as usize * 1024
}

/// Damage of single bytes. With checksums those are wrong first, and are mended before what they cover is.
#[test]
fn bytes_are_mended_below_wrong_checksums() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    for features in KINDS {
        let image = maker.make(features, "image");
        let (sound, expected) = (std::fs::read(&image).unwrap(), tree(&image));
        let many = first_block(&image, "many");
        let entry = first_block(&image, "a") + 24 + 7;
        let parent = first_block(&image, "a/b") + 12;
        let word = |at: usize| u32::from_le_bytes(sound[at..at + 4].try_into().unwrap()) as usize;
        // Descriptors are in the third block; their first fields are the bitmaps.
        let padding = |field: usize| word(2048 + field) * 1024 + 1023;
        for (at, value, kind) in [
            (padding(4), 0x7f, "bitmap-padding"),
            (many + 0x2b, 0xff, "htree-order"),
            (many + 0x2c, 0x77, "htree-node"),
            (entry, 6, "entry-kind"),
            (parent, 11, "parent"),
        ] {
            let what = format!("{features}: {kind}");
            let mut bytes = sound.clone();
            assert_ne!(bytes[at], value, "{what}");
            bytes[at] = value;
            std::fs::write(&image, bytes).unwrap();
            let repaired = mend(&image);
            assert!(
                repaired.mended.iter().any(|finding| finding.kind().name() == kind),
                "{what}: {repaired:?}"
            );
            assert!(repaired.report.is_clean(), "{what}: {repaired:?}");
            let (status, text) = e2fsck(&fsck, &image);
            assert_eq!(status, Some(0), "{what}: {text}");
            compare(&tree(&image), &expected, &what);
        }
    }
}

#[test]
fn copies_are_made_again() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let image = maker.make("-t ext4 -b 1024 -g 2048", "image");
    let sound = std::fs::read(&image).unwrap();
    for (at, kind) in [
        (2049 * 1024 + 0x78, "backup-checksum"),
        (2049 * 1024 + 0x38, "backup-differs"),
        (2050 * 1024 + 64, "backup-checksum"),
    ] {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&image, &bytes).unwrap();
        assert_mended(&fsck, &image, kind, kind);
        // The copy is one to read by.
        let options = OpenOptions { superblock: Some(Block::new(2049)), ..OpenOptions::default() };
        let fs = Ext4::open(Arc::new(FileDevice::open(&image).unwrap()), &options).unwrap();
        assert_eq!(fs.superblock().group, 1);
        assert!(fs.resolve(b"a/b", false).is_ok());
    }
}

#[test]
fn quotas_count_what_owners_have() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let image =
        maker.make("-t ext4 -b 1024 -O quota,project -E quotatype=usrquota:grpquota:prjquota", "image");
    // One owner has less than is counted, another has no entry, and one that has an entry has nothing left.
    for damage in
        ["sif /file uid 1234", "sif /file gid 77\nsif /a/b gid 78", "sif /file projid 5", "sif /file uid 0"]
    {
        maker.debugfs(&image, damage);
        assert_mended(&fsck, &image, "quota-usage", damage);
    }
}

/// The superblock is made again of a copy when somebody says so, and not otherwise.
#[test]
fn a_lost_superblock_is_that_of_a_copy() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    for features in ["-t ext4 -b 1024 -g 2048", "-t ext2 -b 1024 -g 2048"] {
        let image = maker.make(features, "image");
        let (sound, expected) = (std::fs::read(&image).unwrap(), tree(&image));
        for (at, len) in [(1024, 1024), (1024 + 0x18, 4), (1024 + 0x38, 2), (1024 + 0x60, 4)] {
            let what = format!("{features}: {len} bytes at {at}");
            let mut bytes = sound.clone();
            bytes[at..at + len].fill(0xff);
            std::fs::write(&image, &bytes).unwrap();
            let device = Arc::new(FileDevice::open_writable(&image).unwrap());
            let refused = repair(device, options(&image), &mut |_, _| Ok(false), &Work::default());
            assert!(refused.is_err_and(|error| error.kind() == ErrorKind::Corrupt), "{what}");
            assert!(std::fs::read(&image).unwrap() == bytes, "{what}");
            let repaired = mend(&image);
            let first = repaired.mended.first().map(|finding| finding.to_string()).unwrap_or_default();
            assert!(first.contains(" has a copy"), "{what}: {first}");
            assert!(repaired.report.is_clean(), "{what}: {repaired:?}");
            let (status, text) = e2fsck(&fsck, &image);
            assert_eq!(status, Some(0), "{what}: {text}");
            compare(&tree(&image), &expected, &what);
        }
        // Another copy is taken where somebody names it.
        let mut bytes = sound.clone();
        bytes[1024..2048].fill(0);
        bytes[2049 * 1024..][..1024].fill(0);
        std::fs::write(&image, &bytes).unwrap();
        let device = Arc::new(FileDevice::open_writable(&image).unwrap());
        let mut named = options(&image);
        named.check.open.superblock = Some(Block::new(3 * 2048 + 1));
        let repaired = repair(device, named, &mut |_, _| Ok(true), &Work::default()).unwrap();
        assert!(repaired.mended[0].to_string().contains("the copy in block 6145 is taken"), "{repaired:?}");
        assert!(repaired.report.is_clean() && e2fsck(&fsck, &image).0 == Some(0), "{repaired:?}");
    }
}

#[test]
fn what_has_no_name_is_found_again() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    for features in KINDS {
        let image = maker.make(features, "image");
        let before = tree(&image);
        maker.debugfs(&image, "unlink /a/inner\nunlink /a/b\nunlink /short\n");
        assert_eq!(e2fsck(&fsck, &image).0, Some(4));
        let repaired = mend(&image);
        assert!(repaired.report.is_clean(), "{features}: {repaired:?}");
        let (status, text) = e2fsck(&fsck, &image);
        assert_eq!(status, Some(0), "{features}: {text}");
        let device = Arc::new(FileDevice::open(&image).unwrap());
        let fs = Ext4::open(device, &OpenOptions::default()).unwrap();
        let found = fs.read_dir(&fs.resolve(b"lost+found", false).unwrap()).unwrap();
        assert_eq!(found.len(), 3, "{features}: {found:?}");
        assert!(found.iter().all(|entry| entry.name == format!("#{}", entry.inode).into_bytes()));
        // All else is where it was.
        let after = tree(&image);
        for (path, node) in before.iter().filter(|(path, _)| !path.starts_with(b"a") && *path != b"short") {
            assert_eq!(after.get(path), Some(node), "{features}: {}", String::from_utf8_lossy(path));
        }
    }
}

/// Inodes without a name get one in lost+found although that is mended behind them.
#[test]
fn a_damaged_lost_and_found_is_mended_first() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let image = maker.make("-t ext4 -b 1024", "image");
    maker.debugfs(&image, "sif /lost+found checksum 0x1234\nclri /a\n");
    let device = Arc::new(FileDevice::open_writable(&image).unwrap());
    let all = RepairOptions { depth: RepairDepth::All, ..options(&image) };
    let repaired = repair(device, all, &mut |_, _| Ok(true), &Work::default()).unwrap();
    assert!(repaired.report.is_clean(), "{repaired:?}");
    assert_eq!(e2fsck(&fsck, &image).0, Some(0));
    assert!(tree(&image).keys().any(|path| path.starts_with(b"lost+found/#")));
}

/// A checksum is the proof of damage that nobody can mend.
#[test]
fn no_checksum_is_made_to_fit_what_is_damaged_below() {
    let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let image = maker.make("-t ext4 -b 1024", "image");
    maker.debugfs(&image, &format!("ea_set /file user.large {}\n", "v".repeat(150)));
    let mut bytes = std::fs::read(&image).unwrap();
    let value = bytes.windows(150).position(|window| window == [b'v'; 150]).unwrap();
    bytes[value + 5] ^= 1;
    std::fs::write(&image, &bytes).unwrap();
    let repaired = mend(&image);
    assert_eq!(repaired.mended, [], "{repaired:?}");
    let kinds: Vec<_> = repaired.report.faults.iter().map(|finding| finding.kind().name()).collect();
    assert_eq!(kinds, ["checksum", "xattr-hash"], "{repaired:?}");
}

#[test]
fn no_file_takes_the_place_of_a_damaged_dot() {
    let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let image = maker.make("-t ext2 -b 1024", "image");
    let dot = first_block(&image, "/lost+found");
    maker.debugfs(&image, "unlink /short\n");
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[dot] = 0;
    std::fs::write(&image, &bytes).unwrap();
    let repaired = mend(&image);
    assert_eq!(repaired.mended, [], "{repaired:?}");
    assert!(!repaired.report.is_clean(), "{repaired:?}");
    assert!(std::fs::read(&image).unwrap() == bytes);
}

/// The files that can be read, whatever checksums say, with the CRC-32C of their contents.
fn readable(device: Arc<MemoryDevice>) -> BTreeMap<Vec<u8>, u32> {
    let mut files = BTreeMap::new();
    let options = OpenOptions { verify_checksums: false, ..OpenOptions::default() };
    let Ok(fs) = Ext4::open(device, &options) else { return files };
    let crc = Crc32c::new(Cpu::detect());
    let mut seen = SeenDirectories::new();
    let mut directories: Vec<_> = fs.root().map(|root| (Vec::new(), root)).into_iter().collect();
    while let Some((path, directory)) = directories.pop() {
        if seen.enter(&fs, &path, &directory).is_err() {
            continue;
        }
        for entry in fs.read_dir(&directory).unwrap_or_default() {
            let (Ok(inode), path) = (fs.inode(entry.inode), [&path, &entry.name[..], b"/"].concat()) else {
                continue;
            };
            if inode.is_dir() {
                directories.push((path, inode));
            } else if let Ok(file) = fs.open_file(&inode) {
                let mut contents = vec![0; file.size().min(1 << 20) as usize];
                if file.read_at(&mut contents, 0).is_ok() {
                    files.insert(path, crc.update(!0, &contents));
                }
            }
        }
    }
    files
}

/// Fields changed at random in whole images: what is said to be mended is, e2fsck finds it sound where a check does, and
/// whatever it was, nothing panics and files that could be read are what they were.
#[test]
fn mutated_images_are_mended_as_far_as_it_is_said() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let (mut mended, mut sound, mut cases) = (0, 0, 0);
    let kinds: Vec<&str> = match slow_tests() {
        true => mke2fs::all().map(|row| row.options).filter(|options| !options.contains("mmp")).collect(),
        false => KINDS.to_vec(),
    };
    for features in kinds {
        let path = maker.make(features, "image");
        let image = Image::new(std::fs::read(&path).unwrap());
        for seed in 0..if slow_tests() { 400 } else { 25 } {
            let what = format!("{features} {seed}");
            let mut bytes = image.bytes.clone();
            for (offset, new) in image.mutation_with(&mut Rng::new(seed), |rng| rng.below(4) > 0).writes {
                bytes[offset..offset + new.len()].copy_from_slice(&new);
            }
            let device = Arc::new(MemoryDevice::new(bytes));
            // What two have is changed by one of them.
            let found = check(device.clone(), &CheckOptions::default(), &Work::default());
            let is_shared = found.is_ok_and(|report| {
                report.faults.iter().any(|finding| finding.kind() == FindingKind::ClaimedTwice)
            });
            let before = if is_shared { BTreeMap::new() } else { readable(device.clone()) };
            let repaired = repair(device.clone(), options(&path), &mut |_, _| Ok(true), &Work::default());
            let _ = std::fs::remove_file(path.with_extension("redo"));
            cases += 1;
            let after = readable(device.clone());
            for (path, contents) in before {
                let is_same = after.get(&path) == Some(&contents);
                assert!(is_same, "{what}: {} was lost: {repaired:?}", path.escape_ascii());
            }
            let Ok(repaired) = repaired else { continue };
            mended += repaired.mended.len();
            if repaired.report.is_clean() {
                sound += 1;
                let mut bytes = vec![0; image.bytes.len()];
                device.read_at(&mut bytes, 0).unwrap();
                std::fs::write(&path, &bytes).unwrap();
                let (status, text) = e2fsck(&fsck, &path);
                // Sometimes it wants to write, although it was told not to, and gives up.
                let gave_up = text.contains("Error writing block");
                assert!(status == Some(0) || gave_up, "{what}: {repaired:?}\n{text}");
            }
        }
    }
    println!("{cases} cases, {mended} findings mended, {sound} images sound");
    assert!(sound > cases / 4 && mended > cases / 2, "{cases} cases, {mended} findings, {sound} images");
}
