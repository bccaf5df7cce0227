//! Journals that end in fast commits of a real kernel: read as that kernel replays them, and made a transaction when the
//! image is changed.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileDevice, MemoryDevice};
use casemate_ext4::{CheckOptions, Ext4, Interrupted, OpenOptions, WriteOptions, Writer, check};
use casemate_primitives::cpu::Cpu;
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Work;
use casemate_testkit::{Medium, Rng, TempDir, cut_states, mke2fs, slow_tests, tempdir, tool};
use common::assert_sound;
use common::kernel::{SHOW, compare_with, on_mounted};

/// A whole commit comes first; what is synced alone afterwards are fast commits.
const BASE: &str = "mkdir a d d/empty; seq 1000 > a/base; seq 9000 > a/long; echo g > a/gone; echo o > a/other\n\
    ln a/other a/twice; truncate -s 400000 a/sparse; fallocate -l 200000 a/reserved; sync -f .\n";

/// Scripts, and changes that a kernel notes in fast commits.
const SCENES: [(&str, &str); 8] = [
    ("new", "seq 5000 > a/new; sync a/new; echo tail >> a/new; sync a/new"),
    ("names", "echo n > a/n; mv a/base a/renamed; ln a/n a/hard; sync a/renamed; rm a/twice; sync a/n"),
    ("gone", "rm a/gone; echo x > a/x; sync a/x; rm a/x; echo y > a/y; sync a/y"),
    ("directories", "mkdir d/sub; echo x > d/sub/file; sync d/sub/file; rmdir d/empty; touch d/f; sync d/f"),
    (
        "many",
        "for i in $(seq 90); do : > d/a-rather-long-name-that-fills-blocks-$i; done; sync d/*-9; sync d/*-90",
    ),
    (
        "unwritten",
        "printf middle | dd of=a/reserved bs=1 seek=90000 conv=notrunc status=none; sync a/reserved",
    ),
    (
        "holes",
        "for i in 3 50 20 90 70; do printf $i | dd of=a/sparse bs=1 seek=${i}000 conv=notrunc status=none\n\
               sync a/sparse; done; fallocate -p -o 8192 -l 16384 a/long; sync a/long",
    ),
    ("cut", "truncate -s 5000 a/long; sync a/long; chmod 600 a/other; chown 7:8 a/other; sync a/other"),
];

/// Scripts for files without extents, and for small ones that have their contents in the inode.
const OTHER_BASE: &str = "mkdir a; seq 1000 > a/base; seq 9000 > a/long; echo small > a/small; seq 40 > a/more\n\
    truncate -s 400000 a/sparse; echo g > a/gone; ln -s $(printf %080d 1) a/link; sync -f .\n";

const OTHER_SCENES: [(&str, &str); 6] = [
    ("new", "seq 5000 > a/new; sync a/new; echo tail >> a/new; sync a/new"),
    (
        "grown",
        "seq 2000 >> a/base; sync a/base; seq 300 >> a/small; sync a/small; seq 9 >> a/more; sync a/more",
    ),
    ("grown at once", "seq 900 >> a/small; seq 70000 >> a/more; sync a/small; sync a/more"),
    (
        "holes",
        "for i in 3 50 20 90 70 390; do printf $i | dd of=a/sparse bs=1 seek=${i}000 conv=notrunc status=none\n\
               sync a/sparse; done; fallocate -p -o 8192 -l 16384 a/long; sync a/long",
    ),
    (
        "links",
        "ln -s $(printf %090d 2) a/other; ln -s short a/short; echo x > a/x; sync a/x; rm a/gone; echo y >> a/x; sync a/x",
    ),
    (
        "cut",
        "truncate -s 5000 a/long; sync a/long; echo more >> a/long; sync a/long; echo s > a/small; sync a/small",
    ),
];

const OTHER_FEATURES: [&str; 4] = [
    "-t ext4 -b 1024 -O fast_commit,^extent,^64bit",
    "-t ext4 -b 4096 -O fast_commit,^extent,^64bit,^metadata_csum",
    "-t ext4 -b 1024 -I 512 -O fast_commit,inline_data",
    "-t ext4 -b 1024 -I 256 -O fast_commit,inline_data,^extent,^64bit",
];

/// An image of 12 MiB as it was left while it was mounted, and what it shows there; `None` after a skip.
fn crashed(
    mke2fs: &Path,
    folder: &TempDir,
    features: &str,
    base: &str,
    scene: &str,
) -> Option<(PathBuf, String)> {
    let (image, crashed) = (folder.path().join("image"), folder.path().join("crashed"));
    mke2fs::make(mke2fs, &format!("-N 500 {features}"), &image, "12M");
    let work =
        format!("{base}{scene}\ncp --sparse=always '{}' '{}'\n{SHOW}", image.display(), crashed.display());
    let shown = on_mounted(&image, "rw,commit=1000", &work)?;
    Some((crashed, shown))
}

const FEATURES: [&str; 4] = [
    "-t ext4 -b 1024 -O fast_commit",
    "-t ext4 -b 4096 -O fast_commit",
    "-t ext4 -b 1024 -O fast_commit,^64bit,^metadata_csum",
    "-t ext4 -b 1024 -C 4096 -O fast_commit,bigalloc",
];

#[test]
fn they_are_read_as_the_kernel_left_the_files() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let Some(replayed) = compare_all(&mke2fs, &FEATURES, BASE, &SCENES) else { return };
    if replayed == 0 {
        return casemate_testkit::skip("the kernel made no fast commits");
    }
    // Of the rest the kernel thinks that they are no changes for fast commits.
    assert!(replayed >= 24, "{replayed} of 32");
}

/// Of files with maps of block numbers, and of those whose contents left the inode, a kernel notes what it can't replay: Linux
/// 6.1 dies of it, or gives the files other contents. What is read is what the mounted file system had.
#[test]
fn files_without_extents_are_read_as_the_kernel_left_them() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let Some(replayed) = compare_all(&mke2fs, &OTHER_FEATURES, OTHER_BASE, &OTHER_SCENES) else { return };
    if replayed == 0 {
        return casemate_testkit::skip("the kernel made no fast commits");
    }
    assert!(replayed >= 16, "{replayed} of 24");
}

/// Compares what is read of images in all ways with what was seen on them while they were mounted. How many had fast commits;
/// `None` after a skip.
fn compare_all(mke2fs: &Path, features: &[&str], base: &str, scenes: &[(&str, &str)]) -> Option<u32> {
    let folder = tempdir().unwrap();
    let mut replayed = 0;
    for (features, (name, scene)) in
        features.iter().flat_map(|features| scenes.iter().map(move |scene| (features, scene)))
    {
        let what = format!("{name}, {features}");
        let (image, shown) = crashed(mke2fs, &folder, features, base, scene)?;
        let device = Arc::new(FileDevice::open(&image).unwrap());
        let fs = Ext4::open(device.clone(), &OpenOptions::default())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        replayed += u32::from(fs.recovery().fast_commits > 0);
        compare(&fs, &shown, &what);
        let report = check(device, &CheckOptions::default(), &Work::default()).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.faults);
        let mut all = vec![0; fs.device().size() as usize];
        fs.device().read_at(&mut all, 0).unwrap();
        // As it is read, without the journal, it is sound by e2fsck too.
        let whole = folder.path().join("whole");
        std::fs::write(&whole, &all).unwrap();
        assert_sound(&whole, &what);
        let writer =
            Writer::open(Arc::new(FileDevice::open_writable(&image).unwrap()), WriteOptions::default())
                .unwrap();
        assert_eq!(writer.interrupted(), Interrupted::Completed, "{what}");
        compare(writer.fs(), &shown, &what);
        drop(writer);
        assert_sound(&image, &what);
        let fs = Ext4::open(Arc::new(FileDevice::open(&image).unwrap()), &OpenOptions::default()).unwrap();
        assert!(!fs.superblock().needs_recovery(), "{what}");
        compare(&fs, &shown, &what);
    }
    Some(replayed)
}

/// Whenever the power is cut while they are made a transaction: what is read is the same.
#[test]
fn they_are_never_lost() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let (name, scene) = SCENES[1];
    let Some((image, shown)) = crashed(&mke2fs, &folder, FEATURES[0], BASE, scene) else { return };
    let before = std::fs::read(&image).unwrap();
    let open =
        |bytes: Vec<u8>| Ext4::open(Arc::new(MemoryDevice::new(bytes)), &OpenOptions::default()).unwrap();
    if open(before.clone()).recovery().fast_commits == 0 {
        return casemate_testkit::skip("the kernel made no fast commits");
    }
    let medium = Medium::new(before.clone());
    drop(Writer::open(medium.clone(), WriteOptions::default()).unwrap());
    let states = cut_states(&before, &medium.take_writes(), |len| vec![0, len / 2, len]);
    assert!(states.len() > 20, "{}", states.len());
    for (number, state) in states.into_iter().enumerate() {
        let what = format!("{name}, cut {number}");
        compare(&open(state.clone()), &shown, &what);
        let medium = Arc::new(MemoryDevice::new(state));
        drop(Writer::open(medium.clone(), WriteOptions::default()).unwrap());
        let mut after = vec![0; before.len()];
        medium.read_at(&mut after, 0).unwrap();
        std::fs::write(&image, after).unwrap();
        compare(&open(std::fs::read(&image).unwrap()), &shown, &what);
        assert_sound(&image, &what);
    }
}

/// Records with some bytes changed, and the checksum made right: whatever they say, nothing panics or has no end.
#[test]
fn changed_records_do_no_harm() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let crc = Crc32c::new(Cpu::detect());
    let mut opened = 0;
    for (_, scene) in [SCENES[0], SCENES[1], SCENES[3], SCENES[6]] {
        let Some((image, _)) = crashed(&mke2fs, &folder, FEATURES[0], BASE, scene) else { return };
        let image = std::fs::read(&image).unwrap();
        let commits: Vec<(usize, usize)> = (0..image.len())
            .step_by(1024)
            .filter_map(|at| Some((at, tail(&image[at..at + 1024])?)))
            .collect();
        if commits.is_empty() {
            return casemate_testkit::skip("the kernel made no fast commits");
        }
        let mut rng = Rng::new(1);
        for _ in 0..if slow_tests() { 5000 } else { 150 } {
            let mut image = image.clone();
            for _ in 0..=rng.below(3) {
                let (at, end) = commits[rng.below(commits.len() as u64) as usize];
                let byte = at + 12 + rng.below(end as u64 - 12) as usize;
                let values = [0, 1, 2, 11, 12, 0x7f, 0xff, image[byte].wrapping_add(1), image[byte] ^ 0x10];
                image[byte] = values[rng.below(values.len() as u64) as usize];
                let sum = crc.update(0, &image[at..at + end + 8]);
                image[at + end + 8..at + end + 12].copy_from_slice(&sum.to_le_bytes());
            }
            let device = Arc::new(MemoryDevice::new(image));
            let _ = check(device.clone(), &CheckOptions::default(), &Work::default());
            if let Ok(fs) = Ext4::open(device.clone(), &OpenOptions::default()) {
                opened += u32::from(fs.recovery().fast_commits > 0);
                let mut folders = vec![fs.root().unwrap()];
                while let Some(folder) = folders.pop().filter(|_| folders.len() < 50) {
                    for entry in fs.read_dir(&folder).unwrap_or_default() {
                        folders.extend(fs.inode(entry.inode).ok().filter(casemate_ext4::Inode::is_dir));
                    }
                }
            }
            drop(Writer::open(device, WriteOptions::default()));
        }
    }
    assert!(opened > 50, "{opened}");
}

/// The byte that the tail of a fast commit of this one block begins at.
fn tail(block: &[u8]) -> Option<usize> {
    let mut at = 0;
    block.starts_with(&[9, 0, 8, 0, 0, 0, 0, 0]).then_some(())?;
    loop {
        let word =
            |at: usize| Some(usize::from(u16::from_le_bytes(block.get(at..at + 2)?.try_into().unwrap())));
        match word(at)? {
            8 => return Some(at),
            1..=9 => at += 4 + word(at + 2)?,
            _ => return None,
        }
    }
}

/// Compares all but the times of directories, which the kernel leaves out of fast commits, and sizes of those that lie in
/// their inodes: how much of an inode new names take is up to whoever puts them there.
fn compare(fs: &Ext4, shown: &str, what: &str) {
    compare_with(fs, shown, 10, what, |facts| {
        let is_dir = facts.starts_with("d ");
        let is_left_out = |at: usize| is_dir && (at == 6 || at == 4 && what.contains("inline_data"));
        let words = facts.split(' ').enumerate().filter(|(at, _)| !is_left_out(*at));
        words.map(|(_, word)| word).collect::<Vec<_>>().join(" ")
    });
}
