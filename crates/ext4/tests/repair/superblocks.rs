//! A superblock with a wrong checksum, beside copies with right ones: what does not change in use is that of the copies.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::FileDevice;
use casemate_ext4::csum::{Checksums, Context, Subject, recipe};
use casemate_ext4::{Block, ErrorKind, RepairDepth, RepairOptions, RepairReport, Result, Superblock, repair};
use casemate_primitives::cpu::Cpu;
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Work;
use casemate_testkit::{run, tempdir, tool};

use super::common::collection::Maker;
use super::common::tree::compare;
use super::{e2fsck, options, tree};

/// Where the superblock lies, and fields in it.
const SUPERBLOCK: usize = 1024;
const COMPAT: usize = 0x5c;
const INCOMPAT: usize = 0x60;
const RO_COMPAT: usize = 0x64;
const RESERVED_DESCRIPTORS: usize = 0xce;
const JOURNAL_INODE: usize = 0xe0;
const FLAGS: usize = 0x160;
const SALT: usize = 0x258;

/// The marks of a file system in use, which copies never have: a journal to replay, and orphans.
const RECOVER: (usize, u8) = (INCOMPAT, 4);
const ORPHANS: (usize, u8) = (RO_COMPAT + 2, 1);

fn try_to_mend_all(image: &Path) -> Result<RepairReport> {
    let device = Arc::new(FileDevice::open_writable(image).unwrap());
    let how = RepairOptions { depth: RepairDepth::All, ..options(image) };
    repair(device, how, &mut |_, _| Ok(true), &Work::default())
}

/// Mends everything, and has e2fsck agree.
fn mend_all(fsck: &Path, image: &Path, what: &str) -> RepairReport {
    let repaired = try_to_mend_all(image).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(repaired.report.is_clean() && repaired.altered.is_empty(), "{what}: {repaired:?}");
    let (status, text) = e2fsck(fsck, image);
    assert_eq!(status, Some(0), "{what}: {text}{repaired:?}");
    repaired
}

/// Changes bytes of the superblock, and leaves its checksum.
fn damage(sound: &[u8], image: &Path, change: impl FnOnce(&mut [u8])) {
    let mut bytes = sound.to_vec();
    change(&mut bytes[SUPERBLOCK..][..1024]);
    std::fs::write(image, &bytes).unwrap();
}

/// Makes a superblock's checksum right.
fn seal(raw: &mut [u8]) {
    let sums = Checksums::new(Crc32c::new(Cpu::detect()), &Superblock::from_bytes(raw).unwrap()).unwrap();
    sums.store(recipe(Subject::Superblock), &Context::default(), raw);
}

fn field(bytes: &[u8], at: usize, len: usize) -> &[u8] {
    &bytes[SUPERBLOCK + at..][..len]
}

/// Each bit of the features that flips, alone or beside other damage: the repair finds them all again.
#[test]
fn features_are_those_of_copies() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    for features in [
        "-t ext4 -b 1024 -g 2048",
        "-t ext4 -b 1024 -g 2048 -O encrypt,casefold,ea_inode,orphan_file,quota -E encoding=utf8",
        "-t ext4 -b 1024 -g 2048 -O ^has_journal,^resize_inode,meta_bg,^flex_bg,^dir_nlink,metadata_csum_seed,inline_data",
    ] {
        let sound = maker.make(features, "sound");
        let (bytes, expected) = (std::fs::read(&sound).unwrap(), tree(&sound));
        let image = folder.path().join("image");
        for (at, bit) in
            [COMPAT, INCOMPAT, RO_COMPAT].into_iter().flat_map(|at| (0..32).map(move |bit| (at, bit)))
        {
            let what = format!("{features}: bit {bit} at {at:#x}");
            damage(&bytes, &image, |raw| {
                raw[at + bit / 8] ^= 1 << (bit % 8);
                // A checksum that is damaged as well tells nothing.
                raw[0x3fc] ^= u8::from(bit % 3 == 0);
            });
            mend_all(&fsck, &image, &what);
            let mended = std::fs::read(&image).unwrap();
            assert_eq!(field(&mended, COMPAT, 12), field(&bytes, COMPAT, 12), "{what}");
            if bit == 1 {
                compare(&tree(&image), &expected, &what);
            }
        }
    }
}

/// Fields that contradict nothing, and fields that contradict much.
#[test]
fn fields_are_those_of_copies() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let sound = maker.make("-t ext4 -b 1024 -g 2048 -O orphan_file,quota", "sound");
    let (bytes, expected) = (std::fs::read(&sound).unwrap(), tree(&sound));
    let image = folder.path().join("image");
    for (name, at, value) in [
        ("orphan_file_inum", 0x280, 40),
        ("reserved_gdt_blocks", RESERVED_DESCRIPTORS, 8),
        ("journal_inum", JOURNAL_INODE, 12),
        ("uuid", 0x68, 1),
        ("volume_name", 0x78, b'x'),
        ("hash_seed", 0xec, 1),
        ("errors", 0x3c, 3),
        ("def_resuid", 0x50, 9),
        ("magic", 0x38, 6),
        ("log_block_size", 0x18, 2),
        ("blocks_count", 0x5, 16),
        ("inodes_per_group", 0x28, 16),
        ("first_ino", 0x54, 1),
        ("inode_size", 0x59, 2),
        ("desc_size", 0xfe, 32),
        ("min_extra_isize", 0x15c, 4),
        ("default_mount_opts", 0x100, 64),
        ("mount_opts", 0x200, b'a'),
        ("log_groups_per_flex", 0x174, 1),
        ("checksum_type", 0x175, 2),
        ("usr_quota_inum", 0x240, 13),
        ("jnl_blocks", 0x110, 1),
    ] {
        damage(&bytes, &image, |raw| raw[at] ^= value);
        mend_all(&fsck, &image, name);
        let mended = std::fs::read(&image).unwrap();
        let len = 4 - at % 4;
        assert_eq!(field(&mended, at, len), field(&bytes, at, len), "{name}");
        compare(&tree(&image), &expected, name);
    }
}

/// Fields that change in use are not those of copies, and what the kernel sets in the superblock alone stays.
#[test]
fn what_copies_do_not_follow_stays() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let mut bytes =
        std::fs::read(maker.make("-t ext4 -b 1024 -g 2048 -O orphan_file,encrypt", "sound")).unwrap();
    let image = folder.path().join("image");
    // Copies from a time before attributes in blocks, large files, directories with many names, a salt and a kind of hash.
    let copies = [1, 3].map(|group| (group * 2048 + 1) * 1024);
    for at in copies {
        let raw = &mut bytes[at..at + 1024];
        raw[COMPAT] &= !8;
        raw[RO_COMPAT] &= !0x22;
        raw[FLAGS] &= !3;
        seal(raw);
    }
    let own: [(usize, &[u8]); 5] = [
        (0x34, &[7, 0]),
        (0x178, &[1, 2, 3, 4]),
        (0x88, b"/mnt"),
        (0x2c, &[1, 2, 3, 0x60]),
        (SALT, &[5; 16]),
    ];
    let raw = &mut bytes[SUPERBLOCK..][..1024];
    own.iter().for_each(|(at, value)| raw[*at..at + value.len()].copy_from_slice(value));
    seal(raw);
    // One wrong byte, which its checksum tells, or as many as it can't.
    for many in [false, true] {
        damage(&bytes, &image, |raw| {
            raw[0x280] ^= 8;
            raw[0x3fc] ^= u8::from(many);
        });
        let what = format!("many {many}");
        mend_all(&fsck, &image, &what);
        let mended = std::fs::read(&image).unwrap();
        for (at, len) in
            [(COMPAT, 12), (FLAGS, 4), (0x280, 4)].into_iter().chain(own.map(|(at, value)| (at, value.len())))
        {
            assert_eq!(field(&mended, at, len), field(&bytes, at, len), "{what}: {at:#x}");
        }
    }
    // A bit of the checksum alone: the rest is right, also what copies have otherwise.
    let raw = &mut bytes[SUPERBLOCK..][..1024];
    raw[0x78..0x7c].copy_from_slice(b"name");
    seal(raw);
    damage(&bytes, &image, |raw| raw[0x3fc] ^= 1);
    mend_all(&fsck, &image, "checksum");
    assert_eq!(field(&std::fs::read(&image).unwrap(), 0x78, 16), field(&bytes, 0x78, 16));
}

/// Copies that a file system had before it grew say nothing of it.
#[test]
fn copies_of_another_size_are_not_taken() {
    let (Some(mke2fs), Some(debugfs), Some(fsck), Some(resize)) =
        (tool("mke2fs"), tool("debugfs"), tool("e2fsck"), tool("resize2fs"))
    else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let image = maker.make("-t ext4 -b 1024 -g 2048", "image");
    let old = std::fs::read(&image).unwrap();
    std::fs::File::options().write(true).open(&image).unwrap().set_len(24 << 20).unwrap();
    run(Command::new(resize).arg("-f").arg(&image));
    let (mut bytes, expected) = (std::fs::read(&image).unwrap(), tree(&image));
    for at in (0..12).map(|group| (group * 2048 + 1) * 1024).filter(|at| *at > 1024) {
        if field(&bytes[at - 1024..], 0x38, 2) == [0x53, 0xef] {
            bytes.copy_within(2049 * 1024..2050 * 1024, at);
            let group = u8::try_from(at / (2048 * 1024)).unwrap();
            bytes[at..at + 1024].copy_from_slice(&old[2049 * 1024..2050 * 1024]);
            bytes[at + 0x5a] = group;
            seal(&mut bytes[at..at + 1024]);
        }
    }
    damage(&bytes, &image, |raw| raw[0x3fc] ^= 7);
    mend_all(&fsck, &image, "grown");
    compare(&tree(&image), &expected, "grown");
    assert_eq!(field(&std::fs::read(&image).unwrap(), 0, 12), field(&bytes, 0, 12), "grown");
}

/// Marks of a file system in use are not lost with a wrong checksum, nor kept beyond their time.
#[test]
fn marks_are_those_of_what_is_there() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let sound = std::fs::read(maker.make("-t ext4 -b 1024 -g 2048 -O orphan_file", "sound")).unwrap();
    let image = folder.path().join("image");
    for (marks, is_sealed) in
        [(&[ORPHANS][..], true), (&[ORPHANS], false), (&[RECOVER, ORPHANS], true), (&[RECOVER], false)]
    {
        for depth in [RepairDepth::Safe, RepairDepth::All] {
            let what = format!("{marks:?}, sealed {is_sealed}, {depth:?}");
            damage(&sound, &image, |raw| {
                for (at, mark) in marks {
                    raw[*at] |= mark;
                }
                if is_sealed {
                    seal(raw);
                }
            });
            let device = Arc::new(FileDevice::open_writable(&image).unwrap());
            let how = RepairOptions { depth, ..options(&image) };
            let repaired = repair(device, how, &mut |_, _| Ok(true), &Work::default()).unwrap();
            assert!(repaired.report.is_clean(), "{what}: {repaired:?}");
            let (status, text) = e2fsck(&fsck, &image);
            assert_eq!(status, Some(0), "{what}: {text}");
            let mended = std::fs::read(&image).unwrap();
            assert_eq!(field(&mended, COMPAT, 12), field(&sound, COMPAT, 12), "{what}");
        }
    }
}

/// Transactions in a journal on another device can't be replayed, and are not forgotten.
#[test]
fn a_journal_elsewhere_is_not_forgotten() {
    let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let mut sound = std::fs::read(maker.make("-t ext4 -b 1024 -g 2048 -O ^has_journal", "sound")).unwrap();
    let image = folder.path().join("image");
    for at in [SUPERBLOCK, 2049 * 1024, (3 * 2048 + 1) * 1024] {
        let raw = &mut sound[at..at + 1024];
        raw[COMPAT] |= 4;
        raw[0xd0..0xe0].fill(7);
        raw[0xe4] = 7;
        if at == SUPERBLOCK {
            raw[INCOMPAT] |= 4;
        }
        seal(raw);
    }
    std::fs::write(&image, &sound).unwrap();
    let undamaged = try_to_mend_all(&image).unwrap_err();
    assert_eq!(undamaged.kind(), ErrorKind::Unsupported, "{undamaged}");
    for (at, value) in [(JOURNAL_INODE, 12), (0x280, 12), (0x18, 3), (0x38, 6), (0xd5, 1), (0xe4, 1)] {
        damage(&sound, &image, |raw| raw[at] ^= value);
        let error = try_to_mend_all(&image).unwrap_err();
        assert_eq!(error.to_string(), undamaged.to_string(), "{at:#x}");
        let bytes = std::fs::read(&image).unwrap();
        assert_eq!(field(&bytes, INCOMPAT, 4), field(&sound, INCOMPAT, 4), "{at:#x}");
    }
    // Where a copy is taken as a whole, the mark is that of what is left of the superblock.
    damage(&sound, &image, |raw| {
        raw[0x18] ^= 3;
        raw[0x68..0x78].fill(9);
        raw[0x3fc] ^= 7;
    });
    assert_eq!(try_to_mend_all(&image).unwrap_err().to_string(), undamaged.to_string());
    std::fs::write(&image, &sound).unwrap();
    let device = Arc::new(FileDevice::open_writable(&image).unwrap());
    let mut named = options(&image);
    named.check.open.superblock = Some(Block::new(2049));
    let error = repair(device, named, &mut |_, _| Ok(true), &Work::default()).unwrap_err();
    assert_eq!(error.to_string(), undamaged.to_string());
}

/// Of two kinds of checksums of descriptors one counts, and the other is taken away.
#[test]
fn an_older_kind_of_checksums_goes() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let sound = std::fs::read(maker.make("-t ext4 -b 1024 -g 2048", "sound")).unwrap();
    let image = folder.path().join("image");
    damage(&sound, &image, |raw| {
        raw[RO_COMPAT] |= 0x10;
        seal(raw);
    });
    let device = Arc::new(FileDevice::open_writable(&image).unwrap());
    let refused = repair(device.clone(), options(&image), &mut |_, _| Ok(false), &Work::default()).unwrap();
    let kinds: Vec<_> = refused.report.notes.iter().map(|note| note.kind().name()).collect();
    assert_eq!(kinds, ["checksum-features"], "{refused:?}");
    let repaired = repair(device, options(&image), &mut |_, _| Ok(true), &Work::default()).unwrap();
    assert!(repaired.report.is_clean(), "{repaired:?}");
    assert_eq!(e2fsck(&fsck, &image).0, Some(0));
    assert_eq!(field(&std::fs::read(&image).unwrap(), COMPAT, 12), field(&sound, COMPAT, 12));
}

/// Counts of free blocks and inodes that no file system has, with right and wrong checksums, in a file system without copies.
#[test]
fn any_count_of_what_is_free_is_mended() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    for features in ["-t ext4 -b 4096 -O 64bit", "-t ext4 -b 1024 -C 4096 -O bigalloc,64bit"] {
        let sound = maker.make(features, "sound");
        let (bytes, expected) = (std::fs::read(&sound).unwrap(), tree(&sound));
        let image = folder.path().join("image");
        for (low, high, inodes) in [
            ([0; 4], [0, 0, 0, 0x80], [0; 4]),
            ([0xff; 4], [0xff; 4], [0xff; 4]),
            ([0xff; 4], [0xff, 0xff, 0xff, 0x7f], [0, 0, 0, 0x80]),
            ([0; 4], [0, 0, 0, 1], [0xff, 0xff, 0xff, 0x7f]),
        ] {
            for is_sealed in [false, true] {
                for (depth, name) in [(RepairDepth::All, "all"), (RepairDepth::Safe, "safe")] {
                    let what = format!("{features}: {low:x?} {high:x?} {inodes:x?} {is_sealed} {name}");
                    damage(&bytes, &image, |raw| {
                        raw[0xc..0x10].copy_from_slice(&low);
                        raw[0x158..0x15c].copy_from_slice(&high);
                        raw[0x10..0x14].copy_from_slice(&inodes);
                        if is_sealed {
                            seal(raw);
                        }
                    });
                    let device = Arc::new(FileDevice::open_writable(&image).unwrap());
                    let how = RepairOptions { depth, ..options(&image) };
                    let repaired = repair(device, how, &mut |_, _| Ok(true), &Work::default());
                    if depth == RepairDepth::All || is_sealed {
                        assert!(repaired.unwrap().report.is_clean(), "{what}");
                        assert_eq!(e2fsck(&fsck, &image).0, Some(0), "{what}");
                        compare(&tree(&image), &expected, &what);
                    }
                }
            }
        }
    }
}
