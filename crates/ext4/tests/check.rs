//! Checks of images: sound ones, and ones with a single recorded damage.

mod common;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use casemate_blockdev::{BlockDevice, MemoryDevice};
use casemate_ext4::csum::Kind;
use casemate_ext4::{
    CheckOptions, CheckReport, Ext4, FindingKind, GroupNo, OpenOptions, Problem, Structure, check,
    fix_checksums,
};
use casemate_providers::Work;
use casemate_testkit::{mke2fs, tempdir, tool};
use common::{Fixture, fixtures};

fn run(image: Vec<u8>) -> CheckReport {
    let device = Arc::new(MemoryDevice::new(image));
    check(device, &CheckOptions::default(), &Work::default()).unwrap()
}

/// Which structure a recorded damage is in; `None` for what no checksum covers.
fn expected(what: &str, kind: Kind) -> Option<Structure> {
    let table = [
        ("superblock:", Structure::Superblock),
        ("journal superblock", Structure::JournalSuperblock),
        ("group descriptor", Structure::GroupDescriptor),
        ("group 0 block bitmap", Structure::BlockBitmap),
        ("group 0 inode bitmap", Structure::InodeBitmap),
        ("extent tree block", Structure::ExtentBlock),
        ("folder block", Structure::DirectoryBlock),
        ("root folder block", Structure::DirectoryBlock),
        ("htree root", Structure::HtreeNode),
        ("htree inner node", Structure::HtreeNode),
        ("htree leaf", Structure::DirectoryBlock),
        ("xattr block", Structure::XattrBlock),
        ("MMP block", Structure::MmpBlock),
        ("orphan file", Structure::OrphanBlock),
        ("inode", Structure::Inode),
    ];
    if what.contains("not covered") {
        return None;
    }
    let (_, structure) =
        table.iter().find(|(start, _)| what.starts_with(start)).unwrap_or_else(|| panic!("{what}"));
    (kind == Kind::Metadata || *structure == Structure::GroupDescriptor).then_some(*structure)
}

fn damages(fixture: &Fixture) -> Vec<(String, usize, u8)> {
    let list = fixture.manifest["damage"].as_array().unwrap();
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    list.iter()
        .map(|damage| {
            let what = damage["structure"].as_str().unwrap().to_owned();
            (what, number(&damage["offset"]) as usize, number(&damage["xor"]) as u8)
        })
        .collect()
}

#[test]
fn sound_images_are_clean() {
    for fixture in fixtures() {
        let report = run(fixture.image.clone());
        assert_eq!(report.faults, [], "{}", fixture.name);
        if report.kind == Kind::Metadata {
            for structure in [Structure::Inode, Structure::GroupDescriptor, Structure::InodeBitmap] {
                assert!(report.checked[&structure] > 0, "{}: no {structure:?}", fixture.name);
            }
        }
        assert_eq!(report.replayed > 0, fixture.name == "1k-dirty-journal");
    }
}

#[test]
fn every_recorded_damage_is_found_and_nothing_else() {
    let mut found = 0;
    for fixture in fixtures() {
        let kind = run(fixture.image.clone()).kind;
        for (what, offset, xor) in damages(&fixture) {
            let mut image = fixture.image.clone();
            image[offset] ^= xor;
            let report = run(image);
            let place = format!("{}: {what}: {:?}", fixture.name, report.faults);
            let sums: Vec<_> = report
                .faults
                .iter()
                .chain(&report.notes)
                .filter(|fault| matches!(fault.problem(), Problem::Checksum { .. }))
                .collect();
            match expected(&what, kind) {
                None if what.contains("behind the last inode") => {
                    let [fault] = &report.faults[..] else { panic!("{place}") };
                    assert_eq!(fault.place().structure, Structure::InodeBitmap, "{place}");
                    assert_eq!(fault.kind(), FindingKind::BitmapPadding, "{place}");
                }
                // Whatever else is wrong with the structure, its checksum is not.
                None => assert!(sums.is_empty(), "{place}"),
                Some(structure) => {
                    found += 1;
                    let [fault] = sums[..] else { panic!("{place}") };
                    assert_eq!(fault.place().structure, structure, "{place}");
                    if what.contains("checksum") {
                        assert_eq!(report.faults.len(), 1, "{place}");
                    }
                }
            }
        }
    }
    assert!(found > 150, "{found} damages");
}

#[test]
fn a_flipped_checksum_is_rewritten_to_what_it_was() {
    for fixture in fixtures().filter(|fixture| fixture.name != "1k-dirty-journal") {
        let kind = run(fixture.image.clone()).kind;
        for (what, offset, xor) in damages(&fixture) {
            if expected(&what, kind).is_none() {
                continue;
            }
            let mut image = fixture.image.clone();
            image[offset] ^= xor;
            let device = Arc::new(MemoryDevice::new(image.clone()));
            let options = CheckOptions::default();
            let (rewritten, report) = fix_checksums(device.clone(), &options, &Work::default()).unwrap();
            let place = format!("{}: {what}: {rewritten:?}, then {:?}", fixture.name, report.faults);
            assert!(!rewritten.is_empty(), "{place}");
            let mut after = bytes(&device);
            if fixture.name == "4k-mmp" {
                if what.starts_with("MMP") {
                    assert!(report.is_clean(), "{place}");
                    continue;
                }
                // Whoever changes something says there who he is (s_mmp_block).
                let block = u64::from_le_bytes(image[1024 + 0x168..][..8].try_into().unwrap()) as usize;
                after[block * 4096..][..4096].copy_from_slice(&image[block * 4096..][..4096]);
            }
            if what.contains("checksum") {
                assert!(after == fixture.image && report.is_clean(), "{place}");
            }
            // Below an inode whose map points elsewhere, other structures can be damaged for good.
            if !what.contains("first extent") && !what.contains("inline folder") {
                assert_eq!(report.fixable().count(), 0, "{place}");
                let changed = after.iter().zip(&image).filter(|(a, b)| a != b).count();
                assert!((1..=8).contains(&changed), "{place}: {changed} bytes changed");
            }
        }
    }
}

#[test]
fn a_damaged_uuid_does_not_spread() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(32 << 20).unwrap();
    // Four groups: the second has a copy of the superblock, which tells that the UUID is not the image's own.
    let mut make = Command::new(mke2fs);
    casemate_testkit::run(
        make.args(["-q", "-t", "ext4", "-b", "1024", "-O", "metadata_csum,^metadata_csum_seed"]).arg(&path),
    );
    let mut image = std::fs::read(&path).unwrap();
    image[1024 + 0x68] ^= 1;
    let report = run(image);
    assert!(report.checked.contains_key(&Structure::BackupSuperblock));
    assert_eq!(report.faults.len(), 1, "{:?}", report.faults);
    assert_eq!(report.fixable().count(), 0, "a foreign UUID would be signed");
}

/// Bits that stand for no inode or block must be set. The last group is shorter than the others, and ends within a byte.
#[test]
fn bits_behind_the_end_of_a_bitmap_are_set() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let path = folder.path().join("image");
    for checksums in ["metadata_csum", "^metadata_csum,uninit_bg", "^metadata_csum,^uninit_bg"] {
        let _ = std::fs::remove_file(&path);
        let mut make = Command::new(&mke2fs);
        make.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-N", "64", "-O", checksums]);
        casemate_testkit::run(make.arg(&path).arg("12349"));
        let image = std::fs::read(&path).unwrap();
        assert_eq!(run(image.clone()).faults, [], "{checksums}");
        let fs = Ext4::open(Arc::new(MemoryDevice::new(image.clone())), &OpenOptions::default()).unwrap();
        let layout = *fs.layout();
        assert!(layout.groups == 2 && layout.clusters_in(GroupNo::new(1)) == 12348 - 8192, "{layout:?}");
        // Descriptors are in block 2; the two bitmaps are their first fields.
        let field = |at: usize| u64::from(u32::from_le_bytes(image[at..at + 4].try_into().unwrap()));
        let inode_bitmap = field(2048 + 4);
        let block_bitmap = field(2048 + layout.descriptor_size as usize);
        let cases = [
            // Behind the inodes that the checksum covers, at once and at the block's end.
            (Structure::InodeBitmap, inode_bitmap, u64::from(layout.inodes_per_group)),
            (Structure::InodeBitmap, inode_bitmap, 8 * 1024 - 1),
            // Behind the last block, which the checksum covers too.
            (Structure::BlockBitmap, block_bitmap, u64::from(layout.clusters_in(GroupNo::new(1)))),
            (Structure::BlockBitmap, block_bitmap, 8 * 1024 - 1),
        ];
        for (structure, block, bit) in cases {
            let mut image = image.clone();
            image[(block * 1024 + bit / 8) as usize] ^= 1 << (bit % 8);
            let report = run(image);
            let [fault] = &report.faults[..] else {
                panic!("{checksums}: {structure:?}: {:?}", report.faults)
            };
            assert_eq!(fault.place().structure, structure, "{checksums}");
            let summed = checksums == "metadata_csum" && structure == Structure::BlockBitmap;
            assert_eq!(matches!(fault.problem(), Problem::Checksum { .. }), summed, "{checksums}: {fault}");
        }
        // A bit right in front of them stands for a block that nobody has.
        let last = u64::from(layout.clusters_in(GroupNo::new(1))) - 1;
        let mut image = image.clone();
        image[(block_bitmap * 1024 + last / 8) as usize] ^= 1 << (last % 8);
        let report = run(image);
        let kinds: Vec<_> = report.faults.iter().map(|fault| fault.kind()).collect();
        assert!(kinds.contains(&FindingKind::BlockBitmap), "{checksums}: {:?}", report.faults);
        assert_eq!(kinds.contains(&FindingKind::Checksum), checksums == "metadata_csum", "{checksums}");
    }
}

#[test]
fn nothing_is_rewritten_before_the_journal_is_replayed() {
    let fixture = fixtures().find(|fixture| fixture.name == "1k-dirty-journal").unwrap();
    let mut image = fixture.image.clone();
    image[1024 + 0x78] ^= 1;
    let device = Arc::new(MemoryDevice::new(image.clone()));
    let error = fix_checksums(device.clone(), &CheckOptions::default(), &Work::default());
    assert!(error.unwrap_err().to_string().contains("journal must be replayed"));
    assert!(bytes(&device) == image);
}

fn bytes(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Commands of debugfs that damage an image, and the finding of each that a check must make.
const DAMAGES: &[(&str, FindingKind)] = &[
    ("set_super_value r_blocks_count 8000", FindingKind::SuperblockField),
    ("set_super_value reserved_gdt_blocks 9", FindingKind::Features),
    ("set_super_value journal_inum 11", FindingKind::JournalInode),
    ("set_super_value journal_uuid 01020304-0506-0708-090a-0b0c0d0e0f10", FindingKind::JournalFeature),
    ("set_super_value usr_quota_inum 1", FindingKind::QuotaInode),
    ("set_bg 0 free_blocks_count 1", FindingKind::FreeBlocks),
    ("set_bg 0 free_inodes_count 1", FindingKind::FreeInodes),
    ("set_bg 0 used_dirs_count 7", FindingKind::DirectoryCount),
    ("set_bg 0 itable_unused 5000", FindingKind::GroupFlags),
    ("set_bg 0 block_bitmap 1", FindingKind::GroupConflict),
    ("set_bg 0 inode_bitmap 99999", FindingKind::GroupPlace),
    ("setb 4000", FindingKind::BlockBitmap),
    ("seti <100>", FindingKind::InodeBitmap),
    ("freei <2>", FindingKind::InodeBitmap),
    ("set_inode_field <2> dtime 9", FindingKind::RootInode),
    ("set_inode_field <2> mode 0100644", FindingKind::RootInode),
    ("set_inode_field <6> mode 0100644", FindingKind::ReservedInode),
    ("set_inode_field <1> links_count 1", FindingKind::BadBlocks),
    ("set_inode_field /file dtime 1577836800", FindingKind::DeletionTime),
    ("set_inode_field /file mode 0", FindingKind::InodeMode),
    ("set_inode_field /file faddr 5", FindingKind::InodeField),
    ("set_inode_field /file flags 0x81000", FindingKind::InodeFlag),
    ("set_inode_field /file extra_isize 13", FindingKind::ExtraSize),
    ("set_inode_field /file size 1", FindingKind::InodeSize),
    ("set_inode_field /file blocks 3", FindingKind::InodeBlocks),
    ("set_inode_field /pipe size 5", FindingKind::SpecialFile),
    ("set_inode_field /link size 3", FindingKind::Symlink),
    ("set_inode_field /file file_acl 99999999", FindingKind::XattrBlock),
    ("set_inode_field /file links_count 3", FindingKind::LinkCount),
    ("unlink /file", FindingKind::Unattached),
    ("unlink /folder", FindingKind::Unconnected),
    ("clri /file", FindingKind::EntryInode),
    ("link /folder /twice", FindingKind::DirectoryLink),
    ("set_inode_field /folder size 5", FindingKind::DirectorySize),
    ("set_inode_field /folder mode 0100644", FindingKind::EntryKind),
    ("set_inode_field <7> block[0] 100", FindingKind::ResizeInode),
    ("set_super_value log_groups_per_flex 40", FindingKind::SuperblockField),
];

/// Damages that e2fsck -n does not look for, and the kernel stumbles over.
const BEYOND: &[(&str, FindingKind)] = &[
    ("set_super_value last_orphan 100000", FindingKind::OrphanList),
    ("set_inode_field <8> size 4296015872", FindingKind::JournalInode),
];

#[test]
fn damages_by_debugfs_are_found_as_what_they_are() {
    let (Some(mke2fs), Some(debugfs), Some(e2fsck)) = (tool("mke2fs"), tool("debugfs"), tool("e2fsck"))
    else {
        return;
    };
    let folder = tempdir().unwrap();
    let (path, damaged) = (folder.path().join("image"), folder.path().join("damaged"));
    let (tree, script) = (folder.path().join("tree"), folder.path().join("script"));
    std::fs::create_dir_all(tree.join("folder")).unwrap();
    std::fs::write(tree.join("file"), [7; 5000]).unwrap();
    std::os::unix::fs::symlink("target", tree.join("link")).unwrap();
    let debug = |commands: &str, image: &std::path::Path| {
        std::fs::write(&script, commands).unwrap();
        casemate_testkit::run(Command::new(&debugfs).args(["-w", "-f"]).arg(&script).arg(image))
    };
    let mut missed = Vec::new();
    for options in ["-O ^resize_inode", "-O ^resize_inode,^extent,^64bit,^metadata_csum,uninit_bg"] {
        let _ = std::fs::remove_file(&path);
        let mut make = Command::new(&mke2fs);
        make.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-d"]).arg(&tree).args(options.split(' '));
        casemate_testkit::run(make.arg(&path).arg("8M"));
        debug("mknod pipe p\n", &path);
        assert_eq!(run(std::fs::read(&path).unwrap()).faults, [], "{options}");
        for (command, kind) in DAMAGES.iter().chain(BEYOND) {
            std::fs::copy(&path, &damaged).unwrap();
            let said = debug(&format!("{command}\n"), &damaged);
            let report = run(std::fs::read(&damaged).unwrap());
            let what = format!("{options}: {command}: {:?}\n{said}", report.faults);
            if !report.faults.iter().any(|fault| fault.kind() == *kind) {
                missed.push(what);
                continue;
            }
            let output = casemate_testkit::run_any(Command::new(&e2fsck).arg("-fn").arg(&damaged));
            let theirs = String::from_utf8_lossy(&output.stdout);
            // What it finds before its first pass, it forgets.
            let is_told = !output.status.success() || theirs.contains("? no");
            assert_eq!(is_told, !BEYOND.iter().any(|(beyond, _)| beyond == command), "{what}\n{theirs}");
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    // Of the last image, a file's first block becomes another's, and then that of the superblock.
    let stat = debug("blocks /folder\n", &path);
    let other = stat.lines().last().unwrap().trim().to_owned();
    for (block, owners) in [(other.as_str(), 2), ("1", 2)] {
        std::fs::copy(&path, &damaged).unwrap();
        debug(&format!("set_inode_field /file block[0] {block}\n"), &damaged);
        let report = run(std::fs::read(&damaged).unwrap());
        let twice = report.faults.iter().filter(|fault| fault.kind() == FindingKind::ClaimedTwice).count();
        assert_eq!(twice, owners, "{block}: {:?}", report.faults);
    }
    // The last image has no checksums of directories: one name becomes another's.
    let mut image = std::fs::read(&path).unwrap();
    let at = image.windows(6).position(|bytes| bytes == b"\x04\x07link").unwrap();
    image[at + 2..at + 6].copy_from_slice(b"file");
    let report = run(image);
    let [fault] = &report.faults[..] else { panic!("{:?}", report.faults) };
    assert_eq!((fault.kind(), fault.name()), (FindingKind::DuplicateName, Some(&b"file"[..])));
}

/// A directory whose map names one block again and again is a fault of its map: the block is read once, and its names count
/// once, so the time that a check takes does not grow with what a few blocks claim.
#[test]
fn a_block_that_a_directory_has_many_times_is_read_once() {
    let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let folder = tempdir().unwrap();
    let path = folder.path().join("image");
    mke2fs::make(&mke2fs, "-t ext2 -b 1024 -O ^dir_index", &path, "8M");
    let debugfs = |command: &str| {
        let mut debugfs = Command::new(&debugfs);
        casemate_testkit::run(debugfs.args(["-w", "-R", command]).arg(&path))
    };
    debugfs("mkdir d");
    debugfs("mkdir d/sub");
    let block: u32 = debugfs("bmap d 0").trim().parse().unwrap();
    const NUMBERS: u64 = 7000;
    for index in 1..12 {
        debugfs(&format!("sif d block[{index}] {block}"));
    }
    debugfs(&format!("sif d block[IND] {NUMBERS}"));
    debugfs(&format!("sif d size {}", (12 + 256) * 1024));
    let mut image = std::fs::read(&path).unwrap();
    for number in image[NUMBERS as usize * 1024..][..1024].chunks_exact_mut(4) {
        number.copy_from_slice(&block.to_le_bytes());
    }
    let device = Arc::new(Watched { below: MemoryDevice::new(image), block: block.into(), reads: 0.into() });
    let report = check(device.clone(), &CheckOptions::default(), &Work::default()).unwrap();
    let kinds: Vec<&str> = report.faults.iter().map(|finding| finding.kind().name()).collect();
    assert!(kinds.contains(&"claimed-twice"), "{kinds:?}");
    assert!(!kinds.contains(&"duplicate-name") && !kinds.contains(&"directory-link"), "{kinds:?}");
    assert_eq!(device.reads.load(Ordering::Relaxed), 1);
}

/// Counts how often a block is read.
struct Watched {
    below: MemoryDevice,
    block: u64,
    reads: AtomicU64,
}

impl BlockDevice for Watched {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.below)
    }

    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate_ext4::Result<()> {
        let block = self.block * 1024;
        let is_read = (offset..offset + buf.len() as u64).contains(&block);
        self.reads.fetch_add(is_read.into(), Ordering::Relaxed);
        self.below.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> casemate_ext4::Result<()> {
        self.below.write_at(buf, offset)
    }

    fn flush(&self) -> casemate_ext4::Result<()> {
        self.below.flush()
    }
}

/// Bad blocks lie where they lie: in any clusters, several in one, which no other file may have.
#[test]
fn bad_blocks_share_clusters() {
    let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let folder = tempdir().unwrap();
    let (path, list) = (folder.path().join("image"), folder.path().join("bad"));
    std::fs::write(&list, "901\n902\n1500\n1777\n2003\n").unwrap();
    std::fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
    let mut make = Command::new(mke2fs);
    make.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-C", "4096"]);
    make.args(["-O", "bigalloc,^has_journal,^resize_inode", "-l"]).arg(&list).arg(&path).arg("4096");
    casemate_testkit::run(&mut make);
    assert_eq!(run(std::fs::read(&path).unwrap()).faults, []);
    // In any order, too.
    for (slot, block) in [(0, 2003), (1, 901), (2, 1500), (3, 902), (4, 1777)] {
        let command = format!("sif <1> block[{slot}] {block}");
        casemate_testkit::run(Command::new(&debugfs).args(["-w", "-R", &command]).arg(&path));
    }
    assert_eq!(run(std::fs::read(&path).unwrap()).faults, []);
    // Another file's cluster is not theirs.
    casemate_testkit::run(Command::new(&debugfs).args(["-w", "-R", "sif <11> block[5] 900"]).arg(&path));
    let report = run(std::fs::read(&path).unwrap());
    let owners: Vec<_> = report
        .faults
        .iter()
        .filter(|fault| fault.kind() == FindingKind::ClaimedTwice)
        .filter_map(|fault| fault.place().inode)
        .map(|inode| inode.get())
        .collect();
    assert!(owners.contains(&1) && owners.contains(&11), "{:?}", report.faults);
}
