//! Whole structures damaged, in the ways of e2fsprogs' own tests, beside `e2fsck -fy` on a twin: whatever it mends is mended, and
//! each file that it keeps under a name is there with the same contents.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::MemoryDevice;
use casemate_ext4::{Ext4, OpenOptions, RepairDepth, RepairOptions, RepairReport, repair};
use casemate_providers::Work;
use casemate_testkit::{Rng, TempDir, run, run_any, tempdir, tool};

use super::{e2fsck, options, readable};

/// Images that each damage is tried on.
const USUAL: &str = "-t ext4 -b 1024";

/// Damage: a name, options of mke2fs, and what is done. Lines are commands of debugfs; `!fill INODE BLOCK BYTE` fills a block of a
/// file, with noise if the byte is 256, `!word INODE BLOCK OFFSET NUMBER` sets 32 bits of one, `!zero OFFSET LENGTH` empties bytes of
/// the image, and `!fsck` mends what was done before.
const DAMAGE: [(&str, &str, &str); 65] = [
    ("no superblock", "-t ext4 -b 1024 24M", "!zero 1024 1024"),
    ("no superblock, of small groups", "-t ext4 -b 1024 -g 2048", "!zero 1024 1024"),
    ("no superblock, and no descriptors", "-t ext4 -b 1024 24M", "!zero 1024 2048"),
    ("an empty journal superblock", USUAL, "!fill <8> 0 0"),
    ("a journal superblock of noise", USUAL, "!fill <8> 0 256"),
    ("a journal superblock, 4 KiB", "-t ext4 -b 4096 16M", "!fill <8> 0 255"),
    ("a journal without its inode", USUAL, "clri <8>"),
    ("a journal of an unknown kind", USUAL, "sif <8> mode 0x61a4"),
    ("resize_inode with meta_bg", USUAL, "feature meta_bg"),
    ("resize_inode with some meta_bg", USUAL, "feature meta_bg\nssv first_meta_bg 1"),
    ("resize_inode of another kind", USUAL, "sif <7> mode 0x41a4"),
    ("resize_inode with another block", USUAL, "sif <7> block[0] 700"),
    ("reserved blocks without resize_inode", USUAL, "feature -resize_inode"),
    ("links that are too many", USUAL, "sif /d links_count 65500"),
    ("links of a directory that overflowed", USUAL, "sif / links_count 1"),
    ("a link that is shorter", USUAL, "sif /short size 3"),
    ("a link that is longer", USUAL, "sif /short size 20"),
    ("a link of no bytes", USUAL, "sif /short size 0"),
    ("a link that is far longer", USUAL, "sif /short size 500"),
    ("a short link with extents", USUAL, "sif /short flags 0x80000"),
    ("a long link that is shorter", USUAL, "sif /long size 5"),
    ("a long link that is longer", USUAL, "sif /long size 2000"),
    ("a long link without extents", USUAL, "sif /long flags 0"),
    ("a long link that is encrypted", USUAL, "sif /long flags 0x80800"),
    ("a short link that is encrypted", "-t ext4 -b 1024 -O encrypt", "sif /short flags 0x800"),
    ("a long link in a block of noise", USUAL, "!fill /long 0 256"),
    ("inline contents of another size", "-t ext4 -b 1024 -O inline_data", "sif /in/b size 5000"),
    ("inline names of another size", "-t ext4 -b 1024 -O inline_data", "sif /in size 500"),
    ("inline names with a wrong length", "-t ext4 -b 1024 -O inline_data", "sif /in block[2] 0x0101ffff"),
    ("inline contents without the flag", "-t ext4 -b 1024 -O inline_data", "sif /in/b flags 0"),
    ("inline contents with extents", "-t ext4 -b 1024 -O inline_data", "sif /in/b flags 0x10080000"),
    ("inline contents without the feature", "-t ext4 -b 1024 -O inline_data", "feature -inline_data"),
    ("blocks that are called inline", "-t ext4 -b 1024 -O inline_data", "sif /d/f3 flags 0x10080000"),
    ("an inode of no kind without a name", USUAL, "unlink /d/f3\nsif <INODE> mode 0x01a4"),
    ("an inode with a wrong map without a name", USUAL, "sif /d/f3 block[2] 0xffff\nunlink /d/f3"),
    ("a user quota file of noise", "-t ext4 -b 1024 -O quota", "!fill <3> 0 256"),
    ("a quota tree of noise", "-t ext4 -b 1024 -O quota", "!fill <4> 1 256"),
    ("quota entries of noise", "-t ext4 -b 1024 -O quota", "!fill <3> 5 256"),
    ("a quota file without its inode", "-t ext4 -b 1024 -O quota", "clri <3>"),
    ("a quota file that is a directory", "-t ext4 -b 1024 -O quota", "sif <4> mode 0x41a4"),
    ("a quota file that ends nowhere", "-t ext4 -b 1024 -O quota", "sif <4> block[3] 0x7fff"),
    ("a quota file without its flag of extents", "-t ext4 -b 1024 -O quota", "sif <3> flags 0"),
    (
        "a project quota file without its flag of extents",
        "-t ext4 -b 1024 -O quota,project,^orphan_file",
        "sif <12> flags 0",
    ),
    ("a quota extent far behind the end", "-t ext4 -b 1024 -O quota", "sif <4> block[4] 0xffffffff"),
    ("a user quota file that is cut", "-t ext4 -b 1024 -O quota", "sif <3> block[6] 7"),
    (
        "a project quota file that is cut",
        "-t ext4 -b 1024 -O quota,project,^orphan_file",
        "sif <12> block[6] 7",
    ),
    (
        "a project quota file without a link, and other counts",
        "-t ext4 -b 1024 -O quota,project,^orphan_file",
        "sif <12> links_count 0\nclri /d/f3",
    ),
    (
        "a project quota file from block 99 on",
        "-t ext4 -b 1024 -O quota,project,^orphan_file",
        "sif <12> block[3] 99",
    ),
    (
        "a quota tree that leads to a node for entries",
        "-t ext4 -b 1024 -O quota",
        "sif /d/f1 uid 2560\n!fsck\n!word <3> 4 20 3",
    ),
    ("a quota file with a hole", "-t ext4 -b 1024 -O quota", "punch <3> 1 1"),
    ("orphans without a link", "-t ext4 -b 1024 -O orphan_file", "sif <12> links_count 0"),
    ("orphans without the flag of extents", "-t ext4 -b 1024 -O orphan_file", "sif <12> flags 0"),
    ("orphans with an index", "-t ext4 -b 1024 -O orphan_file", "sif <12> flags 0x81000"),
    ("orphans that fold cases", "-t ext4 -b 1024 -O orphan_file", "sif <12> flags 0x40080000"),
    ("orphans that are called inline", "-t ext4 -b 1024 -O orphan_file", "sif <12> flags 0x10080000"),
    ("orphans from block 99 on", "-t ext4 -b 1024 -O orphan_file", "sif <12> block[3] 99"),
    (
        "orphans beside their cluster",
        "-t ext4 -b 1024 -O orphan_file,bigalloc -C 8192",
        "sif <12> bmap[3] 3000",
    ),
    (
        "orphans that lead elsewhere and are too long",
        "-t ext4 -b 1024 -O orphan_file",
        "sif <12> block[5] 1400\nsif <12> size 65536",
    ),
    ("orphans that are the journal's", "-t ext4 -b 1024 -O orphan_file,quota", "copy_inode <8> <12>"),
    ("orphans of noise", "-t ext4 -b 1024 -O orphan_file", "!fill <12> 0 256"),
    ("no inode of orphans", "-t ext4 -b 1024 -O orphan_file", "clri <12>"),
    (
        "orphans without a journal",
        "-t ext4 -b 1024 -O orphan_file",
        "feature -has_journal\nclri <8>\nssv journal_inum 0",
    ),
    ("orphans without the feature", "-t ext4 -b 1024", "feature orphan_present"),
    ("checksums of orphans that are left", "-t ext4 -b 1024 -O orphan_file,quota", "feature -metadata_csum"),
    ("an index of noise", USUAL, "!fill /many 0 256"),
];

/// A tree of files, links and a directory with an index.
fn make_tree(folder: &Path) -> PathBuf {
    let tree = folder.join("tree");
    for name in ["d/e", "many", "in"] {
        std::fs::create_dir_all(tree.join(name)).unwrap();
    }
    let mut rng = Rng::new(3);
    for number in 1..7 {
        std::fs::write(tree.join(format!("d/f{number}")), rng.bytes(number * 1700)).unwrap();
    }
    for number in 0..120 {
        std::fs::write(tree.join(format!("many/{number}-{}", "x".repeat(40))), format!("{number}")).unwrap();
    }
    for (name, len) in [("a", 20), ("b", 90), ("c", 60)] {
        std::fs::write(tree.join("in").join(name), rng.bytes(len)).unwrap();
    }
    symlink("target", tree.join("short")).unwrap();
    symlink("t".repeat(90), tree.join("long")).unwrap();
    tree
}

struct Bench {
    folder: TempDir,
    mke2fs: PathBuf,
    debugfs: PathBuf,
    fsck: PathBuf,
    tree: PathBuf,
}

impl Bench {
    fn new() -> Option<Bench> {
        let (mke2fs, debugfs, fsck) = (tool("mke2fs")?, tool("debugfs")?, tool("e2fsck")?);
        let folder = TempDir::new_in("/dev/shm").unwrap_or_else(|_| tempdir().unwrap());
        let tree = make_tree(folder.path());
        Some(Bench { folder, mke2fs, debugfs, fsck, tree })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn make(&self, features: &str) -> PathBuf {
        let image = self.path("image");
        let _ = std::fs::remove_file(&image);
        let mut words: Vec<&str> = features.split_whitespace().collect();
        let size = words.pop_if(|word| word.ends_with('M')).unwrap_or("8M");
        let mut make = Command::new(&self.mke2fs);
        make.args(["-q", "-F", "-N", "448"]).args(words).arg("-d").arg(&self.tree).arg(&image).arg(size);
        run(make.env("E2FSPROGS_FAKE_TIME", "1700000000"));
        // Gives the directory an index.
        run_any(Command::new(&self.fsck).arg("-fyD").arg(&image));
        image
    }

    fn ask(&self, image: &Path, request: &str) -> String {
        run(Command::new(&self.debugfs).args(["-R", request]).arg(image))
    }

    fn damage(&self, image: &Path, script: &str) {
        let number = self.ask(image, "stat /d/f3");
        let number = number.split_whitespace().nth(1).unwrap();
        for line in script.replace("INODE", number).lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let file = std::fs::File::options().write(true).open(image).unwrap();
            match words[..] {
                ["!fill", inode, block, byte] => {
                    let size = self.ask(image, "stats -h");
                    let size = size.lines().find_map(|line| line.strip_prefix("Block size:")).unwrap();
                    let size: usize = size.trim().parse().unwrap();
                    let place = self.ask(image, &format!("bmap {inode} {block}"));
                    let place: u64 = place.trim().parse().unwrap();
                    let bytes = match u8::try_from(byte.parse::<u32>().unwrap()) {
                        Ok(byte) => vec![byte; size],
                        Err(_) => Rng::new(5).bytes(size),
                    };
                    file.write_all_at(&bytes, place * size as u64).unwrap();
                }
                ["!word", inode, block, at, number] => {
                    // Of blocks of 1 KiB.
                    let place: u64 =
                        self.ask(image, &format!("bmap {inode} {block}")).trim().parse().unwrap();
                    let at: u64 = at.parse().unwrap();
                    let number: u32 = number.parse().unwrap();
                    file.write_all_at(&number.to_le_bytes(), place * 1024 + at).unwrap();
                }
                ["!fsck"] => {
                    run_any(Command::new(&self.fsck).arg("-fy").arg(image));
                }
                ["!zero", at, len] => {
                    file.write_all_at(&vec![0; len.parse().unwrap()], at.parse().unwrap()).unwrap();
                }
                _ => {
                    let file = self.path("script");
                    std::fs::write(&file, format!("{line}\n")).unwrap();
                    run(Command::new(&self.debugfs).arg("-w").arg("-f").arg(file).arg(image));
                }
            }
        }
    }

    /// Result of e2fsck on a copy of an image: whether it is clean by then, and what it says.
    fn theirs(&self, image: &Path) -> (PathBuf, bool, String) {
        let twin = self.path("twin");
        std::fs::copy(image, &twin).unwrap();
        let mut text = String::new();
        for _ in 0..2 {
            let output = run_any(Command::new(&self.fsck).arg("-fy").arg(&twin));
            text += &String::from_utf8_lossy(&output.stdout);
        }
        let is_clean = e2fsck(&self.fsck, &twin).0 == Some(0);
        (twin, is_clean, text)
    }
}

fn mend_all(image: &Path) -> RepairReport {
    let device = Arc::new(casemate_blockdev::FileDevice::open_writable(image).unwrap());
    let options = RepairOptions { depth: RepairDepth::All, ..options(image) };
    repair(device, options, &mut |_, _| Ok(true), &Work::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// Files by their paths, with a sum of their contents; links by their targets, and directories with an index.
fn files(image: &Path) -> BTreeMap<Vec<u8>, u32> {
    let device = Arc::new(MemoryDevice::new(std::fs::read(image).unwrap()));
    let mut files = readable(device.clone());
    let fs = Ext4::open(device, &OpenOptions::default()).unwrap();
    for name in ["short", "long", "many"] {
        let Ok(inode) = fs.resolve(name.as_bytes(), false) else { continue };
        if inode.is_dir() && fs.is_indexed(&inode) {
            files.insert(b"an index".to_vec(), 0);
        } else if let Ok(target) = fs.symlink_target(&inode) {
            files.insert([name.as_bytes(), b" -> ", &target[..]].concat(), 0);
        }
    }
    files
}

#[test]
fn what_e2fsck_mends_is_mended() {
    let Some(bench) = Bench::new() else { return };
    let mut short = Vec::new();
    for (what, features, script) in DAMAGE {
        let image = bench.make(features);
        bench.damage(&image, script);
        let (twin, is_theirs, text) = bench.theirs(&image);
        let repaired = mend_all(&image);
        let (status, found) = e2fsck(&bench.fsck, &image);
        if !repaired.report.is_clean() || status != Some(0) {
            if is_theirs {
                short.push(format!("{what}: not clean: {:?}\n{found}", repaired.report.faults));
            }
            continue;
        }
        let (ours, kept) = (files(&image), if is_theirs { files(&twin) } else { BTreeMap::new() });
        // What has lost its name there may have kept it.
        let is_kept = |path: &[u8], sum: &u32| match path.starts_with(b"lost+found/") {
            true => ours.values().any(|own| own == sum),
            false => ours.get(path) == Some(sum),
        };
        let lost = kept.iter().filter(|(path, sum)| !is_kept(path, sum));
        let lost: Vec<String> = lost.map(|(path, _)| path.escape_ascii().to_string()).collect();
        if !lost.is_empty() {
            short.push(format!("{what}: lost {lost:?}: {:?}\n{text}", repaired.mended));
        }
        let before = std::fs::read(&image).unwrap();
        let again = mend_all(&image);
        if !again.mended.is_empty() || std::fs::read(&image).unwrap() != before {
            short.push(format!("{what}: a second repair: {:?}", again.mended));
        }
    }
    assert!(short.is_empty(), "{} of {}:\n{}", short.len(), DAMAGE.len(), short.join("\n"));
}

/// Limits of owners outlive the file that they stand in.
#[test]
fn limits_of_a_damaged_quota_file_are_kept() {
    /// The number of a block's first entry, and its limit of space.
    const LIMIT: usize = 16 + 40;
    let Some(bench) = Bench::new() else { return };
    let limit = |image: &Path| {
        let place: u64 = bench.ask(image, "bmap <3> 5").trim().parse().unwrap();
        let bytes = std::fs::read(image).unwrap();
        let at = place as usize * 1024 + LIMIT;
        (at, u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()))
    };
    let image = bench.make("-t ext4 -b 1024 -O quota");
    let (at, none) = limit(&image);
    assert_eq!(none, 0);
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&77_777u64.to_le_bytes(), at as u64).unwrap();
    bench.damage(&image, "!fill <3> 0 256");
    let repaired = mend_all(&image);
    assert!(repaired.report.is_clean(), "{repaired:?}");
    assert_eq!(e2fsck(&bench.fsck, &image).0, Some(0));
    assert_eq!(limit(&image).1, 77_777);
}
