//! Single wrong fields of superblocks and group descriptors, with right checksums: a repair of everything keeps at least the
//! contents that `e2fsck -fy` keeps, and says that nothing is left only where e2fsck agrees.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, MemoryDevice};
use casemate_ext4::csum::{Checksums, Context, Subject, recipe};
use casemate_ext4::{Ext4, GroupNo, OpenOptions, RepairDepth, RepairOptions, Superblock, repair};
use casemate_primitives::cpu::Cpu;
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Work;
use casemate_testkit::{Rng, TempDir, run, run_any, slow_tests, tempdir, tool};

use super::{options, readable};

/// Fields of the superblock: names of the specification, without their `s_`; offsets and sizes in bytes.
const SUPERBLOCK: [(&str, usize, usize); 49] = [
    ("inodes_count", 0x0, 4),
    ("blocks_count_lo", 0x4, 4),
    ("r_blocks_count_lo", 0x8, 4),
    ("free_blocks_count_lo", 0xc, 4),
    ("free_inodes_count", 0x10, 4),
    ("first_data_block", 0x14, 4),
    ("log_block_size", 0x18, 4),
    ("log_cluster_size", 0x1c, 4),
    ("blocks_per_group", 0x20, 4),
    ("clusters_per_group", 0x24, 4),
    ("inodes_per_group", 0x28, 4),
    ("mnt_count", 0x34, 2),
    ("state", 0x3a, 2),
    ("errors", 0x3c, 2),
    ("creator_os", 0x48, 4),
    ("rev_level", 0x4c, 4),
    ("first_ino", 0x54, 4),
    ("inode_size", 0x58, 2),
    ("block_group_nr", 0x5a, 2),
    ("feature_compat", 0x5c, 4),
    ("feature_incompat", 0x60, 4),
    ("feature_ro_compat", 0x64, 4),
    ("uuid", 0x68, 4),
    ("prealloc_dir_blocks", 0xcd, 1),
    ("reserved_gdt_blocks", 0xce, 2),
    ("journal_uuid", 0xd0, 4),
    ("journal_inum", 0xe0, 4),
    ("journal_dev", 0xe4, 4),
    ("last_orphan", 0xe8, 4),
    ("hash_seed", 0xec, 4),
    ("def_hash_version", 0xfc, 1),
    ("jnl_backup_type", 0xfd, 1),
    ("desc_size", 0xfe, 2),
    ("first_meta_bg", 0x104, 4),
    ("jnl_blocks", 0x10c, 4),
    ("blocks_count_hi", 0x150, 4),
    ("min_extra_isize", 0x15c, 2),
    ("want_extra_isize", 0x15e, 2),
    ("flags", 0x160, 4),
    ("mmp_block", 0x168, 4),
    ("log_groups_per_flex", 0x174, 1),
    ("checksum_type", 0x175, 1),
    ("usr_quota_inum", 0x240, 4),
    ("overhead_clusters", 0x248, 4),
    ("backup_bgs", 0x24c, 4),
    ("prj_quota_inum", 0x26c, 4),
    ("checksum_seed", 0x270, 4),
    ("encoding", 0x27c, 2),
    ("orphan_file_inum", 0x280, 4),
];

/// Fields of group descriptors, likewise without their `bg_`.
const DESCRIPTOR: [(&str, usize, usize); 10] = [
    ("block_bitmap_lo", 0x0, 4),
    ("inode_bitmap_lo", 0x4, 4),
    ("inode_table_lo", 0x8, 4),
    ("free_blocks_count_lo", 0xc, 2),
    ("free_inodes_count_lo", 0xe, 2),
    ("used_dirs_count_lo", 0x10, 2),
    ("flags", 0x12, 2),
    ("block_bitmap_csum_lo", 0x18, 2),
    ("inode_bitmap_csum_lo", 0x1a, 2),
    ("itable_unused_lo", 0x1c, 2),
];

/// Values that fields get; features get them as bits that change.
const VALUES: [u32; 10] = [0, 1, 2, 7, 32, 200, 2000, 6000, 65535, u32::MAX];
const FEATURES: [u32; 10] = [0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x80, 0x200, 0x400];

/// Kinds of images: one group without copies, several with copies, blocks of 4096 bytes, checksums of two sorts and none.
const KINDS: [(&str, &str); 6] = [
    ("-t ext2 -b 1024", "8M"),
    ("-t ext4 -b 1024 -g 2048", "8M"),
    ("-t ext4 -b 4096", "8M"),
    ("-t ext3 -b 1024 -g 4096", "8M"),
    ("-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^flex_bg -g 2048", "8M"),
    ("-t ext4 -b 1024 -O quota,orphan_file", "8M"),
];

/// Cases of a normal run.
const SAMPLED: usize = 120;

/// Characters of a failure that are printed.
const TOLD: usize = 900;

/// Seconds that e2fsck has for an image.
const PATIENCE: &str = "20";

/// A field that gets a value: of the superblock, or of a group's descriptor.
#[derive(Clone, Copy, Debug)]
struct Case {
    field: (&'static str, usize, usize),
    group: Option<u32>,
    value: u32,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for field in SUPERBLOCK {
        let values = if field.0.starts_with("feature") { FEATURES } else { VALUES };
        cases.extend(values.map(|value| Case { field, group: None, value }));
    }
    for (field, group) in DESCRIPTOR.into_iter().flat_map(|field| [(field, 0), (field, 1)]) {
        cases.extend(VALUES.map(|value| Case { field, group: Some(group), value }));
    }
    cases
}

/// An image with some thirty files, each with contents of its own.
fn make(mke2fs: &Path, folder: &Path, (features, size): (&str, &str)) -> Vec<u8> {
    let (tree, image) = (folder.join("tree"), folder.join("sound"));
    if !tree.exists() {
        let mut rng = Rng::new(7);
        std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
        std::fs::create_dir_all(tree.join("many")).unwrap();
        for i in 0..30 {
            let mut contents = vec![0; [40, 700, 1024, 5000, 9000, 40_000][i % 6]];
            rng.fill(&mut contents);
            let parent = ["", "a/", "a/b/c/", "many/"][i % 4];
            std::fs::write(tree.join(format!("{parent}file-{i}")), contents).unwrap();
        }
        let mut large = vec![0; 1_500_000];
        rng.fill(&mut large);
        std::fs::write(tree.join("large"), large).unwrap();
    }
    let _ = std::fs::remove_file(&image);
    let mut make = Command::new(mke2fs);
    make.args(["-q", "-F", "-N", "448"]).args(features.split_whitespace()).arg("-d").arg(&tree);
    run(make.env("E2FSPROGS_FAKE_TIME", "1700000000").arg(&image).arg(size));
    std::fs::read(&image).unwrap()
}

/// Sets the field, and the checksum of the structure; false if nothing changes.
fn damage(bytes: &mut [u8], case: Case) -> bool {
    let before = bytes.to_vec();
    let device = Arc::new(MemoryDevice::new(before.clone()));
    let fs = Ext4::open(device, &OpenOptions { replay_journal: false, ..OpenOptions::default() }).unwrap();
    let (_, offset, len) = case.field;
    let (at, size) = match case.group {
        None => (1024, 1024),
        Some(group) if group < fs.layout().groups => {
            let size = fs.layout().descriptor_size as usize;
            let at = fs.layout().offset(fs.layout().descriptor_block(0)) as usize;
            (at + group as usize * size, size)
        }
        Some(_) => return false,
    };
    let raw = &mut bytes[at..at + size];
    let value = case.value.to_le_bytes();
    let field = &mut raw[offset..offset + len];
    match case.field.0.starts_with("feature") {
        true => field.iter_mut().zip(value).for_each(|(old, bit)| *old ^= bit),
        false => field.copy_from_slice(&value[..len]),
    }
    let crc = Crc32c::new(Cpu::detect());
    match case.group {
        None => {
            let sums = Superblock::from_bytes(raw).and_then(|found| Checksums::new(crc, &found));
            let sums = sums.unwrap_or_else(|_| Checksums::new(crc, fs.superblock()).unwrap());
            if sums.covers(Subject::Superblock) {
                let _ = sums.store(recipe(Subject::Superblock), &Context::default(), raw);
            }
        }
        Some(group) => {
            let sums = Checksums::new(crc, fs.superblock()).unwrap();
            let context = Context { group: GroupNo::new(group), ..Context::default() };
            let _ = sums.store(recipe(sums.descriptor_subject()), &context, raw);
        }
    }
    bytes != before
}

/// How often each contents are reached.
fn contents(device: Arc<MemoryDevice>) -> BTreeMap<u32, usize> {
    let mut found = BTreeMap::new();
    for contents in readable(device).into_values() {
        *found.entry(contents).or_default() += 1;
    }
    found
}

fn e2fsck(fsck: &Path, mode: &str, image: &Path) -> Option<i32> {
    let mut command = Command::new("timeout");
    let output = run_any(command.args(["-s", "KILL", PATIENCE]).arg(fsck).arg(mode).arg(image));
    output.status.code()
}

/// How a repair of everything falls behind e2fsck; `None` if it does not.
fn shortfall(fsck: &Path, path: &Path, sound: &[u8], case: Case) -> Option<String> {
    let mut bytes = sound.to_vec();
    if !damage(&mut bytes, case) {
        return None;
    }
    let whole = contents(Arc::new(MemoryDevice::new(sound.to_vec())));
    let left = |found: BTreeMap<u32, usize>| {
        whole.iter().filter(|(contents, _)| found.contains_key(contents)).count()
    };
    std::fs::write(path, &bytes).unwrap();
    let status = e2fsck(fsck, "-fy", path)?;
    // It may have made the image far longer.
    let mut mended = Vec::new();
    File::open(path).unwrap().take(bytes.len() as u64).read_to_end(&mut mended).unwrap();
    let kept = left(contents(Arc::new(MemoryDevice::new(mended))));
    let before = left(contents(Arc::new(MemoryDevice::new(bytes.clone()))));
    let device = Arc::new(MemoryDevice::new(bytes.clone()));
    let all = RepairOptions { depth: RepairDepth::All, ..options(path) };
    let repaired = repair(device.clone(), all, &mut |_, _| Ok(true), &Work::default());
    let _ = std::fs::remove_file(path.with_extension("redo"));
    let mut after = vec![0; bytes.len()];
    device.read_at(&mut after, 0).unwrap();
    let own = left(contents(device));
    let is_changed = after != bytes;
    let of = whole.len();
    let told = format!(
        "{case:?}: {before} of {of} before, {own} after, e2fsck -fy ends with {status} and keeps {kept}"
    );
    if own < kept {
        return Some(format!("{told}: {repaired:?}"));
    }
    if is_changed && own < before {
        return Some(format!("{told}: fewer than before: {repaired:?}"));
    }
    if is_changed && let Err(error) = &repaired {
        return Some(format!("{told}: refused after a change: {error}"));
    }
    // It refuses some features that nothing depends on.
    if let Ok(report) = &repaired
        && report.report.is_clean()
        && status < 8
    {
        std::fs::write(path, &after).unwrap();
        let status = e2fsck(fsck, "-fn", path)?;
        if status != 0 {
            return Some(format!("{told}: clean, and e2fsck -fn ends with {status}: {:?}", report.mended));
        }
    }
    None
}

#[test]
fn no_wrong_field_costs_contents() {
    let (Some(mke2fs), Some(fsck)) = (tool("mke2fs"), tool("e2fsck")) else { return };
    let folder = TempDir::new_in("/dev/shm").unwrap_or_else(|_| tempdir().unwrap());
    let path = folder.path().join("image");
    let images: Vec<Vec<u8>> = KINDS.into_iter().map(|kind| make(&mke2fs, folder.path(), kind)).collect();
    let mut all: Vec<(usize, Case)> =
        (0..KINDS.len()).flat_map(|kind| cases().into_iter().map(move |case| (kind, case))).collect();
    if !slow_tests() {
        let mut rng = Rng::new(11);
        all = (0..SAMPLED).map(|_| all.swap_remove(rng.below(all.len() as u64) as usize)).collect();
    }
    let count = all.len();
    let short: Vec<String> = all
        .into_iter()
        .filter_map(|(kind, case)| {
            let told = shortfall(&fsck, &path, &images[kind], case)?;
            let told = format!("{}: {}", KINDS[kind].0, told.chars().take(TOLD).collect::<String>());
            eprintln!("{told}");
            Some(told)
        })
        .collect();
    assert!(short.is_empty(), "{} of {count} fall short:\n{}", short.len(), short.join("\n"));
}
