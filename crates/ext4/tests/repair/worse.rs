//! No repair makes it worse: e2fsck complains of no more than before, and whatever could be read stays.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, MemoryDevice};
use casemate_ext4::csum::{Checksums, Context, Subject, recipe};
use casemate_ext4::{
    Block, CheckOptions, Ext4, Finding, FindingKind, InodeNo, OpenOptions, Preen, Problem, check, repair,
};
use casemate_primitives::cpu::Cpu;
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Work;
use casemate_testkit::{Rng, TempDir, run_any, slow_tests, tempdir, tool};

use super::common::collection::Maker;
use super::common::mutation::Image;
use super::{KINDS, complaints, options, readable};

/// Seconds that e2fsck has for an image: of some it never comes to an end.
const PATIENCE: &str = "20";

/// The exit status and output of e2fsck on an image; `None` if it did not end.
fn e2fsck(fsck: &Path, image: &Path) -> Option<(Option<i32>, String)> {
    let mut command = Command::new("timeout");
    let output = run_any(command.args(["-s", "KILL", PATIENCE]).arg(fsck).arg("-fn").arg(image));
    let text = [&output.stdout[..], &output.stderr].concat();
    let status = output.status.code().filter(|status| *status < 16)?;
    Some((Some(status), String::from_utf8_lossy(&text).into_owned()))
}

/// The stop of `e2fsck -p` in an image with only those faults that it fixes by itself, in the words of this crate.
fn stops_at_routine(fsck: &Path, path: &Path, bytes: &[u8]) -> Option<String> {
    let device = Arc::new(MemoryDevice::new(bytes.to_vec()));
    let report = check(device, &CheckOptions::default(), &Work::default()).ok()?;
    let preen = Preen::of(&report);
    if report.is_clean() || !report.faults.iter().all(|finding| preen.mends(finding)) {
        return None;
    }
    let mut command = Command::new("timeout");
    let output = run_any(command.args(["-s", "KILL", PATIENCE]).arg(fsck).arg("-fp").arg(path));
    let status = output.status.code().filter(|status| *status < 16)?;
    let text = String::from_utf8_lossy(&output.stdout);
    // Where a directory was deleted, what was in it has no name once the directory's own is gone, and that is seen only then.
    let is_deleted = |finding: &Finding| matches!(finding.problem(), Problem::Unused(_));
    if report.faults.iter().any(is_deleted)
        && ["Unattached", "Unconnected"].iter().any(|word| text.contains(word))
    {
        return None;
    }
    (status > 1).then(|| format!("e2fsck -p: {status}: {text}\n{:?}", report.faults))
}

/// The damage that a repair added to an image, as e2fsck and a reader see it.
fn is_worse(fsck: &Path, path: &Path, bytes: Vec<u8>, what: &str) -> Option<String> {
    std::fs::write(path, &bytes).unwrap();
    if let Some(text) = stops_at_routine(fsck, path, &bytes) {
        return Some(format!("{what}:\n{text}"));
    }
    std::fs::write(path, &bytes).unwrap();
    let before = e2fsck(fsck, path)?;
    let device = Arc::new(MemoryDevice::new(bytes.clone()));
    // What two have is changed by one of them.
    let found = check(device.clone(), &CheckOptions::default(), &Work::default());
    let is_shared = found
        .is_ok_and(|report| report.faults.iter().any(|finding| finding.kind() == FindingKind::ClaimedTwice));
    let files = if is_shared { Default::default() } else { readable(device.clone()) };
    let repaired = repair(device.clone(), options(path), &mut |_, _| Ok(true), &Work::default());
    let _ = std::fs::remove_file(path.with_extension("redo"));
    let after_files = readable(device.clone());
    for (name, contents) in files {
        let is_same = after_files.get(&name) == Some(&contents);
        if !is_same {
            return Some(format!("{what}: {} was lost: {repaired:?}", name.escape_ascii()));
        }
    }
    let mut mended = vec![0; bytes.len()];
    device.read_at(&mut mended, 0).unwrap();
    if mended == bytes {
        return None;
    }
    std::fs::write(path, &mended).unwrap();
    let after = e2fsck(fsck, path)?;
    // Sometimes it gives up before the end, or because it wants to write, although it was told not to.
    let gave_up = |said: &(Option<i32>, String)| {
        said.0 == Some(8)
            || ["Error writing block", "aborted", "Cannot proceed"].iter().any(|words| said.1.contains(words))
    };
    if gave_up(&before) {
        return None;
    }
    let is_no_worse = complaints(&after) <= complaints(&before)
        && after.0.map(|status| status & 7) <= before.0.map(|status| status & 7);
    (!is_no_worse).then(|| format!("{what}:\nbefore: {before:?}\nafter: {after:?}\n{repaired:?}"))
}

/// Damages what tells of an inode: mode, flags, links, blocks of the table.
fn damage_inodes(bytes: &mut [u8], rng: &mut Rng) -> String {
    let device = Arc::new(MemoryDevice::new(bytes.to_vec()));
    let fs = Ext4::open(device, &OpenOptions { replay_journal: false, ..OpenOptions::default() }).unwrap();
    let layout = *fs.layout();
    let sums = Checksums::new(Crc32c::new(Cpu::detect()), fs.superblock()).unwrap();
    let size = layout.inode_size as usize;
    let descriptor = layout.offset(layout.descriptor_block(0)) as usize;
    let table = u32::from_le_bytes(bytes[descriptor + 8..descriptor + 12].try_into().unwrap());
    let table = layout.offset(Block::new(table.into())) as usize;
    let mut what = String::new();
    for _ in 0..=rng.below(3) {
        let number = [2, 7, 8, 11, 12 + rng.below(20) as u32][rng.below(5) as usize];
        let number = if rng.below(2) == 0 { 12 + rng.below(190) as u32 } else { number };
        let at = table + (number as usize - 1) * size;
        if rng.below(10) == 0 {
            let block = at / 1024 * 1024;
            match rng.below(2) {
                0 => bytes[block..block + 1024].fill(0),
                _ => rng.fill(&mut bytes[block..block + 1024]),
            }
            what += &format!("block with inode {number}; ");
            continue;
        }
        let raw = &mut bytes[at..at + size];
        // Mode, size, links, blocks, flags, map, block of attributes.
        let fields = [
            0, 1, 4, 0x14, 0x1a, 0x1c, 0x20, 0x21, 0x22, 0x23, 0x28, 0x2a, 0x2c, 0x2e, 0x34, 0x38, 0x3c, 0x68,
        ];
        let field = fields[rng.below(fields.len() as u64) as usize];
        raw[field] ^= if rng.below(2) == 0 { 1 << rng.below(8) } else { rng.next_u64() as u8 };
        let is_sealed = rng.below(3) > 0;
        let generation = u32::from_le_bytes(raw[0x64..0x68].try_into().unwrap());
        let context = Context { inode: InodeNo::new(number), generation, ..Context::default() };
        if is_sealed && sums.covers(Subject::Inode) {
            let _ = sums.store(recipe(Subject::Inode), &context, raw);
        }
        what += &format!("inode {number} +{field:#x}; ");
    }
    what
}

#[test]
fn no_repair_makes_it_worse() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = TempDir::new_in("/dev/shm").unwrap_or_else(|_| tempdir().unwrap());
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let mut worse = Vec::new();
    let more =
        ["-t ext4 -b 1024 -O ^metadata_csum,uninit_bg", "-t ext4 -b 1024 -O orphan_file,quota,inline_data"];
    for features in KINDS.into_iter().chain(more) {
        let path = maker.make(features, "image");
        let image = Image::new(std::fs::read(&path).unwrap());
        for seed in 0..if slow_tests() { 1000 } else { 20 } {
            let mut rng = Rng::new(seed);
            let mut bytes = image.bytes.clone();
            let mut what = format!("{features} {seed}: ");
            if seed % 2 == 0 {
                what += &damage_inodes(&mut bytes, &mut rng);
            } else {
                let mutation = image.mutation_with(&mut rng, |rng| rng.below(4) > 0);
                for (offset, new) in mutation.writes {
                    bytes[offset..offset + new.len()].copy_from_slice(&new);
                }
                what += &mutation.what.join("; ");
            }
            worse.extend(is_worse(&fsck, &path, bytes, &what));
        }
    }
    assert!(worse.is_empty(), "{} are worse:\n{}", worse.len(), worse.join("\n\n"));
}

/// Shapes of damage that follow from features that are not said any more, and from maps that are longer than can be.
#[test]
fn no_repair_of_a_feature_or_a_map_makes_it_worse() {
    let (Some(mke2fs), Some(debugfs), Some(fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck")) else {
        return;
    };
    let folder = TempDir::new_in("/dev/shm").unwrap_or_else(|_| tempdir().unwrap());
    let maker = Maker::new(mke2fs, debugfs, folder.path());
    let mut worse = Vec::new();
    for (features, damage) in [
        ("-t ext4 -b 1024", "feature -has_journal\nssv journal_inum 0"),
        ("-t ext4 -b 1024", "feature -has_journal"),
        ("-t ext3 -b 1024", "feature -has_journal\nssv journal_inum 0"),
        ("-t ext4 -b 1024 -O meta_bg,^resize_inode", "ssv first_meta_bg 9999"),
        ("-t ext4 -b 1024", "feature meta_bg"),
        ("-t ext4 -b 1024", "feature -resize_inode"),
        ("-t ext4 -b 1024", "feature -extent"),
        ("-t ext4 -b 1024", "feature -64bit"),
        ("-t ext4 -b 1024", "feature -filetype"),
        ("-t ext4 -b 1024", "feature -dir_index"),
        ("-t ext4 -b 1024", "feature -huge_file -large_file -extra_isize"),
        ("-t ext4 -b 1024 -O quota", "feature -quota"),
        ("-t ext4 -b 1024 -O orphan_file", "feature -orphan_file"),
        ("-t ext2 -b 1024", "sif /a block[1] 5000\nsif /a block[DIND] 5001\nsif /a size 99999999"),
        ("-t ext2 -b 1024", "sif /a block[TIND] 4000"),
        ("-t ext4 -b 1024", "sif /a block[3] 0x7fffffff\nsetb 5000"),
        ("-t ext4 -b 1024", "sif /a block[2] 1\nsif /a block[3] 3000000\nsif /a size 9000000000"),
        ("-t ext4 -b 1024", "sif <8> links_count 0"),
        ("-t ext4 -b 1024", "sif <7> mode 0"),
        ("-t ext4 -b 1024", "sif <7> block[DIND] 0"),
        ("-t ext4 -b 1024", "sif <7> size 0\nsif <7> blocks 0"),
        ("-t ext4 -b 1024", "clri <7>"),
        ("-t ext4 -b 1024", "clri <8>"),
        ("-t ext4 -b 1024", "clri <11>"),
        ("-t ext4 -b 1024", "clri /a"),
        ("-t ext4 -b 1024", "clri /many"),
        ("-t ext4 -b 1024", "kill_file /many"),
        ("-t ext4 -b 1024", "clri <2>"),
        ("-t ext4 -b 1024", "sif <1> block[0] 3000\nsif <1> blocks 2"),
    ] {
        let path = maker.make(features, "image");
        maker.debugfs(&path, damage);
        let bytes = std::fs::read(&path).unwrap();
        worse.extend(is_worse(&fsck, &path, bytes, &format!("{features}: {damage}")));
    }
    assert!(worse.is_empty(), "{} are worse:\n{}", worse.len(), worse.join("\n\n"));
}
