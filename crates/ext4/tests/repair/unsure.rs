//! Damage that makes other things unsure: what can't be read, or is left damaged, is neither free nor in use for certain.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::FileDevice;
use casemate_ext4::csum::{Checksums, Context, Subject, recipe};
use casemate_ext4::{BLOCK_UNINIT, ErrorKind, Ext4, GroupDescriptor, GroupNo, InodeNo, OpenOptions, repair};
use casemate_primitives::cpu::Cpu;
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Work;
use casemate_testkit::{Rng, tempdir, tool};

use super::common::collection::Maker;
use super::common::tree::compare;
use super::{KINDS, complaints, e2fsck, mend, tree};

/// Modes, flags, links and times of an inode.
const MODE: usize = 0;
const DELETED: usize = 0x14;
const LINKS: usize = 0x1a;
const FLAGS: usize = 0x20;
/// How many extents the root of its tree has, and the length of the first one.
const EXTENTS: usize = 0x28 + 2;
const LENGTH: usize = 0x28 + 16;

/// A change of an inode's bytes.
type Change = fn(&mut [u8]);

/// Damage of an inode, as flipped bits do it: the same with the checksum made right, and left.
const CHANGES: [(&str, Change); 12] = [
    ("no kind of file", |raw| raw[MODE + 1] &= 0x0f),
    ("a socket", |raw| raw[MODE + 1] |= 0xc0),
    ("a device", |raw| raw[MODE + 1] = raw[MODE + 1] & 0x0f | 0x20),
    ("a link", |raw| raw[MODE + 1] = raw[MODE + 1] & 0x0f | 0xa0),
    ("a pipe", |raw| raw[MODE + 1] = raw[MODE + 1] & 0x0f | 0x10),
    ("contents in the inode", |raw| raw[FLAGS + 3] |= 0x10),
    ("no tree, or one", |raw| raw[FLAGS + 2] ^= 0x08),
    ("deleted", |raw| raw[LINKS..LINKS + 2].fill(0)),
    ("deleted at some time", |raw| {
        raw[LINKS..LINKS + 2].fill(0);
        raw[DELETED] = 77;
    }),
    ("no extents, and a wrong checksum", |raw| raw[EXTENTS] = 0),
    ("a shorter extent, and a wrong checksum", |raw| raw[LENGTH] &= 1),
    ("another place, and a wrong checksum", |raw| raw[LENGTH + 4] ^= 1),
];

fn open(image: &Path) -> Ext4 {
    let options = OpenOptions { verify_checksums: false, ..OpenOptions::default() };
    Ext4::open(Arc::new(FileDevice::open(image).unwrap()), &options).unwrap()
}

fn descriptor<T>(fs: &Ext4, bytes: &[u8], group: GroupNo, f: impl FnOnce(GroupDescriptor<'_>) -> T) -> T {
    let layout = fs.layout();
    let size = layout.descriptor_size as usize;
    let (index, position) = layout.descriptor_position(group);
    let block = layout.descriptor_block(index);
    let at = layout.offset(block) as usize + position as usize * size;
    f(GroupDescriptor::from_bytes(&bytes[at..at + size]).unwrap())
}

fn numbered(number: u32) -> InodeNo {
    InodeNo::new(number).unwrap()
}

/// Where an inode lies, and how many bytes it has.
fn inode_place(image: &Path, number: InodeNo) -> (usize, usize) {
    let (fs, bytes) = (open(image), std::fs::read(image).unwrap());
    let (group, index) = fs.layout().inode_position(number).unwrap();
    let table = descriptor(&fs, &bytes, group, |found| found.inode_table());
    let size = fs.layout().inode_size as usize;
    (fs.layout().offset(table) as usize + index as usize * size, size)
}

/// Makes an inode's checksum right, if it has one.
fn seal(image: &Path, number: InodeNo, raw: &mut [u8]) {
    let sums = Checksums::new(Crc32c::new(Cpu::detect()), open(image).superblock()).unwrap();
    let generation = u32::from_le_bytes(raw[0x64..0x68].try_into().unwrap());
    let context = Context { inode: Some(number), generation, ..Context::default() };
    if sums.covers(Subject::Inode) {
        let _ = sums.store(recipe(Subject::Inode), &context, raw);
    }
}

/// Writes to all blocks that are free: whatever others could write there, they did. Whether the inode is one in use.
fn fill(image: &Path, number: InodeNo) -> bool {
    let fs = open(image);
    let layout = *fs.layout();
    let bytes = std::fs::read(image).unwrap();
    let file = File::options().write(true).open(image).unwrap();
    for group in layout.all_groups() {
        let (bitmap, flags) = descriptor(&fs, &bytes, group, |found| (found.block_bitmap(), found.flags()));
        let bits = &bytes[layout.offset(bitmap) as usize..];
        for cluster in (0..layout.clusters_in(group)).filter(|_| flags & BLOCK_UNINIT == 0) {
            if bits[cluster as usize / 8] >> (cluster % 8) & 1 == 0 {
                let first = layout.group_start(group) + u64::from(cluster * layout.cluster_blocks);
                let cluster = first.run(layout.cluster_blocks.into());
                for block in cluster.take_while(|block| block.get() < layout.blocks) {
                    file.write_all_at(&vec![0xee; layout.block_size as usize], layout.offset(block)).unwrap();
                }
            }
        }
    }
    let (group, index) = layout.inode_position(number).unwrap();
    let bitmap = descriptor(&fs, &bytes, group, |found| found.inode_bitmap());
    bytes[layout.offset(bitmap) as usize + index as usize / 8] >> (index % 8) & 1 == 1
}

/// Damages an inode of a sound image, mends that, fills all that is free, and undoes the damage: all is there again.
#[track_caller]
fn assert_kept(fsck: &Path, image: &Path, number: InodeNo, change: Change, is_sealed: bool, what: &str) {
    let sound = tree(image);
    let (at, size) = inode_place(image, number);
    let mut bytes = std::fs::read(image).unwrap();
    let old = bytes[at..at + size].to_vec();
    change(&mut bytes[at..at + size]);
    if bytes[at..at + size] == old {
        return;
    }
    if is_sealed {
        seal(image, number, &mut bytes[at..at + size]);
    }
    std::fs::write(image, &bytes).unwrap();
    let before = e2fsck(fsck, image);
    let repaired = mend(image);
    let after = e2fsck(fsck, image);
    assert!(
        complaints(&after) <= complaints(&before),
        "{what}: {repaired:?}\nbefore: {}\nafter: {}",
        before.1,
        after.1
    );
    assert!(fill(image, number), "{what}: the inode is free: {repaired:?}");
    // Whatever was mended of the inode is undone with it; nobody knew better.
    File::options().write(true).open(image).unwrap().write_all_at(&old, at as u64).unwrap();
    compare(&tree(image), &sound, &format!("{what}: {repaired:?}"));
}

#[test]
fn what_a_damaged_inode_has_is_not_free() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let with_journal = "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg";
    for features in KINDS.into_iter().chain([with_journal]) {
        let sound = maker.make(features, "sound");
        let image = folder.path().join("image");
        for path in ["file", "a", "many"] {
            let number = open(&sound).resolve(path.as_bytes(), false).unwrap().number();
            for (name, change) in CHANGES {
                let is_proven = features == with_journal
                    || features.contains("-t ext4") && !features.contains("^metadata");
                // What can't be seen can't be kept.
                if name.ends_with("a wrong checksum") && !is_proven
                    || name.starts_with("another") && features == with_journal
                {
                    continue;
                }
                std::fs::copy(&sound, &image).unwrap();
                let is_sealed = !name.ends_with("a wrong checksum");
                assert_kept(
                    &fsck,
                    &image,
                    number,
                    change,
                    is_sealed,
                    &format!("{features}: /{path}: {name}"),
                );
            }
        }
    }
}

/// The files that the file system itself has: journal, quotas, orphans.
#[test]
fn what_a_damaged_file_of_the_file_system_has_is_not_free() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let features = "-t ext4 -b 1024 -O orphan_file,quota";
    let sound = maker.make(features, "sound");
    let orphans = open(&sound).superblock().orphan_file.unwrap();
    let image = folder.path().join("image");
    for number in [7, 8, 3, orphans.get()].map(numbered) {
        for (name, change) in &CHANGES[..6] {
            std::fs::copy(&sound, &image).unwrap();
            assert_kept(&fsck, &image, number, *change, true, &format!("inode {number}: {name}"));
        }
    }
    // Features that are not said any more: files of theirs are left.
    for lost in ["feature -has_journal\nssv journal_inum 0", "feature -quota", "feature -orphan_file"] {
        std::fs::copy(&sound, &image).unwrap();
        maker.debugfs(&image, lost);
        let before = e2fsck(&fsck, &image);
        let used = |image: &Path| std::fs::read(image).unwrap();
        let (old, repaired) = (used(&image), mend(&image));
        let after = e2fsck(&fsck, &image);
        assert!(
            complaints(&after) <= complaints(&before) && after.0 <= before.0,
            "{lost}: {repaired:?}\n{}",
            after.1
        );
        for number in [3, 4, 8, orphans.get()].map(numbered) {
            let (at, size) = inode_place(&image, number);
            assert!(
                used(&image)[at..at + size] == old[at..at + size],
                "{lost}: inode {number}: {repaired:?}"
            );
        }
        assert!(fill(&image, numbered(8)), "{lost}");
        let undone = lost
            .replace("-has_journal\nssv journal_inum 0", "has_journal\nssv journal_inum 8")
            .replace("-", "");
        maker.debugfs(&image, &undone);
        compare(&tree(&image), &tree(&sound), lost);
        assert_eq!(e2fsck(&fsck, &image).0, Some(0), "{lost}: {}", e2fsck(&fsck, &image).1);
    }
}

/// Counts of what could not be read stay what they are, and so do names.
#[test]
fn nothing_is_counted_of_inodes_that_can_not_be_read() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    for features in KINDS {
        let sound = maker.make(features, "sound");
        let image = folder.path().join("image");
        for seed in 0..4 {
            std::fs::copy(&sound, &image).unwrap();
            let mut rng = Rng::new(seed);
            // Blocks of the table with the first directories.
            let (at, size) = inode_place(&image, open(&image).resolve(b"a", false).unwrap().number());
            let start = at / 1024 * 1024;
            let mut bytes = std::fs::read(&image).unwrap();
            let old = bytes[start..start + 3072].to_vec();
            match seed {
                0 => bytes[start..start + 3072].fill(0),
                1 => bytes[at..at + size].fill(0xff),
                _ => rng.fill(&mut bytes[start..start + 3072]),
            }
            std::fs::write(&image, &bytes).unwrap();
            let what = format!("{features}, {seed}");
            let before = e2fsck(&fsck, &image);
            let repaired = mend(&image);
            let after = e2fsck(&fsck, &image);
            assert!(
                complaints(&after) <= complaints(&before),
                "{what}: {repaired:?}\n{}{}",
                before.1,
                after.1
            );
            assert!(!repaired.report.is_clean(), "{what}");
            fill(&image, numbered(11));
            File::options().write(true).open(&image).unwrap().write_all_at(&old, start as u64).unwrap();
            compare(&tree(&image), &tree(&sound), &format!("{what}: {repaired:?}"));
        }
    }
}

/// A journal that can't be trusted is not written to, and the rest is mended all the same.
#[test]
fn a_damaged_journal_is_left_alone() {
    let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let sound = maker.make("-t ext4 -b 1024", "sound");
    let image = folder.path().join("image");
    let file = open(&sound).resolve(b"file", false).unwrap();
    let first = open(&sound).mapping_at(&file, 0).unwrap().unwrap().physical.get() as u32;
    // All but the journal's first block are those of a file, and what lies behind it.
    let shared = |raw: &mut [u8]| {
        let (extent, other) = (0x28 + 12, 0x28 + 24);
        raw[EXTENTS] = 2;
        raw[extent + 4] = 1;
        raw[extent + 5] = 0;
        raw[other..other + 4].copy_from_slice(&1u32.to_le_bytes());
        raw[other + 4..other + 6].copy_from_slice(&1023u16.to_le_bytes());
        raw[other + 6..other + 8].fill(0);
        raw[other + 8..other + 12].copy_from_slice(&first.to_le_bytes());
    };
    let no_kind = |raw: &mut [u8]| raw[MODE..MODE + 2].fill(0);
    let no_links = |raw: &mut [u8]| raw[LINKS..LINKS + 2].fill(0);
    type Change<'a> = (&'static str, &'a dyn Fn(&mut [u8]));
    let changes: [Change<'_>; 3] = [("no kind", &no_kind), ("no links", &no_links), ("shared", &shared)];
    for (name, change) in changes {
        std::fs::copy(&sound, &image).unwrap();
        maker.debugfs(&image, "freei <13>\n");
        let (at, size) = inode_place(&image, numbered(8));
        let mut bytes = std::fs::read(&image).unwrap();
        change(&mut bytes[at..at + size]);
        seal(&image, numbered(8), &mut bytes[at..at + size]);
        std::fs::write(&image, &bytes).unwrap();
        let repaired = mend(&image);
        assert!(!repaired.report.is_clean(), "{name}: {repaired:?}");
        let is_mended = |kind: &str| repaired.mended.iter().any(|finding| finding.kind().name() == kind);
        assert!(is_mended("inode-bitmap"), "{name}: {repaired:?}");
        compare(&tree(&image), &tree(&sound), name);
        assert!(!image.with_extension("redo").exists(), "{name}");
    }
}

/// A journal with a feature that nobody here knows is none that is damaged: what it is for, only others can tell.
#[test]
fn a_journal_that_is_not_understood_is_left_alone() {
    let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let image = maker.make("-t ext4 -b 1024", "image");
    maker.debugfs(&image, "ssv free_blocks_count 1");
    let mut bytes = std::fs::read(&image).unwrap();
    let journal =
        bytes.chunks(1024).position(|block| block.starts_with(b"\xc0\x3b\x39\x98\0\0\0\x04")).unwrap();
    // A bit of the features that who does not know them may not even read.
    bytes[journal * 1024 + 0x28 + 2] |= 0x40;
    std::fs::write(&image, &bytes).unwrap();
    let device = Arc::new(FileDevice::open_writable(&image).unwrap());
    let refused = repair(device, super::options(&image), &mut |_, _| Ok(true), &Work::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("journals with the features 0x4000"), "{refused}");
    assert!(std::fs::read(&image).unwrap() == bytes, "something was written");
}
