//! New file systems, made of trees: beside mke2fs, e2fsck and the kernel.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileDevice, MemoryDevice, Pool};
use casemate_ext4::{
    BuildOptions, BuildSize, CheckOptions, Ext4, Features, Identify, NewUuid, OpenOptions, Plan, Tree,
    TreeOptions, check,
};
use casemate_providers::Work;
use casemate_testkit::{Rng, TempDir, mke2fs, run, run_any, tempdir, tool};

use common::kernel::{in_uml, on_mounted};
use common::tree;

fn on(threads: usize) -> Work<'static> {
    Work { pool: Pool::new(NonZeroUsize::new(threads)), ..Work::default() }
}

fn options(kind: &str, features: &str, block: u32) -> BuildOptions {
    let mut options = BuildOptions::new([7; 16], [9; 16]);
    options.features = Features::of_type(kind).unwrap();
    options.features.change(features).unwrap();
    options.block_size = block;
    options
}

fn tree_of(folder: &Path) -> Tree {
    let mut tree = Tree::new();
    tree.add_folder(folder, &TreeOptions::default(), Pool::default()).unwrap();
    tree
}

/// Writes a plan to a file of its size.
fn write(plan: &Plan, path: &Path, work: &Work<'_>) {
    let file = fs::File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    file.set_len(plan.size()).unwrap();
    plan.write(&FileDevice::from_file(file).unwrap(), true, work).unwrap();
}

fn open(path: &Path) -> Ext4 {
    Ext4::open(Arc::new(FileDevice::open(path).unwrap()), &OpenOptions::default()).unwrap()
}

fn assert_clean(path: &Path, what: &str) {
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(path).unwrap());
    let report = check(device, &CheckOptions::default(), &Work::default()).unwrap();
    assert!(report.is_clean(), "{what}: {:?}", report.faults);
    let Some(e2fsck) = tool("e2fsck") else { return };
    let output = run_any(Command::new(e2fsck).arg("-fn").arg(path));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{what}: {text}");
}

/// A folder with one of everything for a file system of such blocks.
fn source(block: usize) -> TempDir {
    let folder = tempdir().unwrap();
    tree::make(folder.path(), block);
    // More than 2^16 of either, and a file whose tree of extents has a level more in small blocks.
    let _ = std::os::unix::fs::chown(folder.path().join("attributed"), Some(70_000), Some(80_000));
    folder
}

#[test]
fn trees_are_as_they_were_in_every_kind_of_file_system() {
    let rows = [
        ("ext4", "", 4096),
        ("ext4", "", 1024),
        ("ext4", "", 2048),
        ("ext4", "", 65536),
        ("ext4", "^metadata_csum,uninit_bg", 1024),
        ("ext4", "^metadata_csum,^64bit", 4096),
        ("ext4", "bigalloc", 1024),
        ("ext4", "bigalloc", 4096),
        ("ext4", "^flex_bg,^dir_index", 1024),
        ("ext4", "^resize_inode,meta_bg", 1024),
        ("ext4", "sparse_super2,^filetype,fast_commit", 1024),
        ("ext4", "^has_journal,large_dir,casefold,encrypt,verity", 4096),
        ("ext4", "quota,project,mmp", 4096),
        ("ext4", "quota,mmp,inline_data", 1024),
        ("ext4", "inline_data,quota,^metadata_csum,bigalloc", 4096),
        ("ext4", "inline_data,^has_journal,quota,project,^extent,^64bit", 2048),
        ("ext3", "", 1024),
        ("ext2", "", 1024),
        ("ext2", "^sparse_super,^resize_inode", 4096),
    ];
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    for (kind, features, block) in rows {
        let source = source(block as usize);
        let expected = tree::describe_host(source.path());
        let what = format!("{kind} {features} {block}");
        // The exact size, and one with several groups.
        for size in [BuildSize::Fitting { free: 0, align: 1 }, BuildSize::Bytes(300 << 20)] {
            let mut options = options(kind, features, block);
            options.size = size;
            let plan =
                Plan::new(tree_of(source.path()), &options).unwrap_or_else(|error| panic!("{what}: {error}"));
            write(&plan, &image, &on(2));
            assert_clean(&image, &what);
            let fs = open(&image);
            if matches!(size, BuildSize::Fitting { .. }) {
                let free = fs.superblock().blocks_free * u64::from(block);
                assert!(free <= 40 * u64::from(block), "{what}: {free} bytes are free");
                assert_eq!(fs::metadata(&image).unwrap().len(), plan.size());
            }
            tree::compare(&tree::describe_image(&fs), &expected, &what);
        }
    }
}

/// Fields that dumpe2fs prints of two images.
fn header(image: &Path) -> BTreeMap<String, String> {
    let Some(dumpe2fs) = tool("dumpe2fs") else { return BTreeMap::new() };
    let text = run(Command::new(dumpe2fs).arg("-h").arg(image).env("LC_ALL", "C"));
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect()
}

#[test]
fn numbers_are_those_of_mke2fs() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    // Not compared are identifiers, times, what was written, and checksums of these.
    let differ = [
        "Filesystem UUID",
        "Filesystem created",
        "Last mount time",
        "Last write time",
        "Last checked",
        "Lifetime writes",
        "Directory Hash Seed",
        "Checksum",
        "Checksum seed",
        "Journal sequence",
        "Journal checksum",
        "Mount count",
        // Where it is, and who uses it, which is nobody.
        "MMP block number",
        "mmp_update_date",
        "mmp_update_time",
        "mmp_node_name",
        "mmp_device_name",
        "mmp_sequence",
    ];
    let rows: [(&str, u32, &str, &str); 23] = [
        ("8M", 1024, "-i 4096", ""),
        ("100M", 1024, "-i 4096", ""),
        ("600M", 1024, "-i 16384", ""),
        ("2G", 2048, "-i 16384", ""),
        ("129M", 4096, "-i 16384", ""),
        ("130M", 4096, "-i 4096", ""),
        ("600M", 4096, "-i 16384", ""),
        ("1G", 4096, "-i 16384", ""),
        ("3G", 4096, "-i 16384", ""),
        ("40G", 4096, "-i 16384", ""),
        ("257M", 4096, "-i 16384 -N 20000", ""),
        ("300M", 4096, "-i 1024", ""),
        ("500M", 4096, "-i 16384 -G 4", ""),
        ("500M", 4096, "-i 16384 -g 8192", ""),
        ("500M", 4096, "-i 16384 -I 512", ""),
        ("500M", 4096, "-i 16384 -I 128", ""),
        ("500M", 4096, "-i 16384", "^resize_inode"),
        ("500M", 4096, "-i 16384", "^resize_inode,meta_bg"),
        ("500M", 4096, "-i 16384", "^flex_bg"),
        ("500M", 4096, "-i 16384", "sparse_super2"),
        ("500M", 4096, "-i 16384", "fast_commit"),
        ("500M", 8192, "-i 16384", ""),
        ("500M", 4096, "-i 16384", "quota,project,mmp"),
    ];
    let folder = tempdir().unwrap();
    let (theirs, ours) = (folder.path().join("theirs"), folder.path().join("ours"));
    for (size, block, numbers, features) in rows {
        let what = format!("{size} -b {block} {numbers} -O {features}");
        let list =
            format!("orphan_file,metadata_csum_seed{}{features}", if features.is_empty() { "" } else { "," });
        mke2fs::make(&mke2fs, &format!("-t ext4 -b {block} {numbers} -O {list}"), &theirs, size);
        let mut options = options("ext4", features, block);
        let words: Vec<&str> = numbers.split(' ').collect();
        for pair in words.chunks(2) {
            let number: u64 = pair[1].parse().unwrap();
            match pair[0] {
                "-i" => options.inode_ratio = number,
                "-N" => options.inodes = Some(number as u32),
                "-G" => options.groups_per_flex = number as u32,
                "-g" => options.blocks_per_group = Some(number as u32),
                _ => options.inode_size = number as u32,
            }
        }
        options.reserved_percent = 5.0;
        // Its file ends where its last group does, which may be before that.
        let (number, unit) = size.split_at(size.len() - 1);
        let unit = if unit == "G" { 1 << 30 } else { 1 << 20 };
        options.size = BuildSize::Bytes(number.parse::<u64>().unwrap() * unit);
        let plan = Plan::new(Tree::new(), &options).unwrap_or_else(|error| panic!("{what}: {error}"));
        write(&plan, &ours, &on(2));
        assert_clean(&ours, &what);
        let (mut expected, mut found) = (header(&theirs), header(&ours));
        for key in differ {
            expected.remove(key);
            found.remove(key);
        }
        assert!(expected.len() > 20 || expected.is_empty());
        if ["130M", "300M"].contains(&size) {
            // It tries groups of several sizes, and reserves five percent of what one of these had room for.
            expected.remove("Reserved block count");
        }
        for (key, value) in &expected {
            assert_eq!(found.get(key), Some(value), "{what}: {key}");
        }
    }
}

/// Files with holes and many names, in folders of any size.
fn random_tree(rng: &mut Rng, folder: &Path) {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    for number in 0..rng.below(200) {
        let into = folders[rng.below(folders.len() as u64) as usize].clone();
        let path = into.join(format!("{}{number}", "n".repeat(rng.below(200) as usize)));
        match rng.below(12) {
            0 => {
                fs::create_dir(&path).unwrap();
                folders.push(path);
            }
            1 => symlink("t".repeat(1 + rng.below(900) as usize), &path).unwrap(),
            2 if !files.is_empty() => {
                let first: &std::path::PathBuf = &files[rng.below(files.len() as u64) as usize];
                fs::hard_link(first, &path).unwrap();
            }
            3 => {
                let file = fs::File::create(&path).unwrap();
                for _ in 0..rng.below(30) {
                    let mut bytes = vec![0; 1 + rng.below(9000) as usize];
                    rng.fill(&mut bytes);
                    file.write_all_at(&bytes, rng.below(4 << 20)).unwrap();
                }
                files.push(path);
            }
            4 => {
                fs::write(&path, "attributed").unwrap();
                // The same ones are shared, too many are in a block.
                let len = [5, 60, 300][rng.below(3) as usize];
                for name in ["user.one", "user.two"] {
                    let _ =
                        rustix::fs::setxattr(&path, name, &vec![b'v'; len], rustix::fs::XattrFlags::empty());
                }
            }
            _ => {
                let most = 1 << rng.below(19);
                let mut bytes = vec![0; rng.below(most) as usize];
                rng.fill(&mut bytes);
                fs::write(&path, bytes).unwrap();
                files.push(path);
            }
        }
    }
}

#[test]
fn random_trees_with_random_options_are_clean() {
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    let rounds = if casemate_testkit::slow_tests() { 200 } else { 6 };
    for seed in 0..rounds {
        let mut rng = Rng::new(seed);
        let source = tempdir().unwrap();
        random_tree(&mut rng, source.path());
        let mut pick = |list: &[&'static str]| list[rng.below(list.len() as u64) as usize];
        let kind = pick(&["ext4", "ext4", "ext4", "ext3", "ext2"]);
        let mut features = String::new();
        if kind == "ext4" {
            for list in [
                &["", "^metadata_csum", "^metadata_csum,uninit_bg"][..],
                &["", "^flex_bg"],
                &["", "^resize_inode", "^resize_inode,meta_bg"],
                &["", "bigalloc"],
                &["", "^64bit"],
                &["", "^dir_index", "^filetype", "sparse_super2"],
                &["", "quota", "quota,project"],
                &["", "inline_data"],
                &["", "", "mmp"],
            ] {
                features.push_str(pick(list));
                features.push(',');
            }
        }
        let block = [1024, 2048, 4096, 4096][rng.below(4) as usize];
        let mut options = options(kind, &features, block);
        options.groups_per_flex = 1 << rng.below(6);
        options.packed_meta_blocks = kind == "ext4" && !features.contains("^flex_bg") && rng.below(4) == 0;
        options.reserved_percent = rng.below(10) as f64;
        options.inode_size = [128, 256, 512][rng.below(3) as usize];
        if features.contains("project") {
            options.inode_size = options.inode_size.max(256);
        }
        options.size = match rng.below(3) {
            0 => BuildSize::Bytes(100 << 20),
            1 => BuildSize::Fitting { free: rng.below(64 << 20), align: 1 << rng.below(24) },
            _ => BuildSize::Fitting { free: 0, align: 1 },
        };
        let what = format!("seed {seed}: {kind} {features} {options:?}");
        let plan = match Plan::new(tree_of(source.path()), &options) {
            Ok(plan) => plan,
            // Small inodes have no room for attributes but in blocks, which may be too small as well.
            Err(error) => panic!("{what}: {error}"),
        };
        write(&plan, &image, &on(1 + seed as usize % 3));
        assert_clean(&image, &what);
        if let BuildSize::Fitting { free, align } = options.size {
            let superblock = open(&image).superblock().clone();
            let left = (superblock.blocks_free - superblock.blocks_reserved.min(superblock.blocks_free))
                * u64::from(block);
            assert!(left >= free && plan.size() % align == 0, "{what}: {left} bytes are free");
        }
        let found = tree::describe_image(&open(&image));
        tree::compare(&found, &tree::describe_host(source.path()), &what);
    }
}

#[test]
fn resize2fs_makes_it_larger_and_smaller() {
    let Some(resize2fs) = tool("resize2fs") else { return };
    let source = source(4096);
    let host = tree::describe_host(source.path());
    for (kind, features, block) in [
        ("ext4", "", 4096),
        ("ext4", "", 1024),
        ("ext4", "^resize_inode,meta_bg", 1024),
        ("ext4", "^flex_bg,sparse_super2", 4096),
        ("ext3", "", 1024),
    ] {
        let what = format!("{kind} {features} {block}");
        let image = source.path().with_extension("image");
        let plan = Plan::new(tree_of(source.path()), &options(kind, features, block)).unwrap();
        write(&plan, &image, &on(1));
        let blocks = || open(&image).superblock().blocks;
        let (mut sizes, small) = (vec![blocks()], plan.size());
        fs::File::options().write(true).open(&image).unwrap().set_len(small + (150 << 20)).unwrap();
        for arguments in [&[][..], &["-M"]] {
            // It asks for a check of what was never mounted.
            run(Command::new(&resize2fs).arg("-f").arg(&image).args(arguments));
            assert_clean(&image, &what);
            tree::compare(&tree::describe_image(&open(&image)), &host, &what);
            sizes.push(blocks());
        }
        assert!(sizes[1] > sizes[0] && sizes[2] < sizes[1], "{what}: {sizes:?}");
        fs::remove_file(&image).unwrap();
    }
}

/// While a kernel uses it.
#[test]
fn a_mounted_one_grows() {
    let Some(resize2fs) = tool("resize2fs") else { return };
    let source = source(4096);
    for (features, block) in [("", 4096), ("^resize_inode,meta_bg", 1024), ("quota,inline_data", 1024)] {
        let image = source.path().with_extension("image");
        let mut options = options("ext4", features, block);
        options.size = BuildSize::Fitting { free: 4 << 20, align: 1 };
        let plan = Plan::new(tree_of(source.path()), &options).unwrap();
        write(&plan, &image, &on(1));
        let before = open(&image).superblock().blocks;
        fs::File::options().write(true).open(&image).unwrap().set_len(plan.size() + (150 << 20)).unwrap();
        let script =
            format!("{} /dev/ubda; dd if=/dev/zero of=filled bs=1M count=100; sync", resize2fs.display());
        if in_uml(&image, "rw", &script).is_none() {
            return;
        }
        assert!(open(&image).superblock().blocks > before, "{features}: it did not grow");
        assert_clean(&image, features);
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    let folder = tempdir().unwrap();
    let source = source(4096);
    let image = |name: &str, threads: usize| {
        let path = folder.path().join(name);
        write(&Plan::new(tree_of(source.path()), &options("ext4", "", 4096)).unwrap(), &path, &on(threads));
        fs::read(path).unwrap()
    };
    let first = image("first", 1);
    assert!(first == image("second", 4));
    // What was there before makes no difference.
    let plan = Plan::new(tree_of(source.path()), &options("ext4", "", 4096)).unwrap();
    let dirty = MemoryDevice::new(vec![0xa5; first.len()]);
    plan.write(&dirty, false, &on(2)).unwrap();
    let path = folder.path().join("dirty");
    fs::write(&path, dirty.into_bytes()).unwrap();
    assert_clean(&path, "over something else");
    tree::compare(
        &tree::describe_image(&open(&path)),
        &tree::describe_host(source.path()),
        "over something else",
    );
}

#[test]
fn times_are_none_later_than_the_one_that_is_given() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("new"), "").unwrap();
    let old = folder.path().join("old");
    fs::write(&old, "").unwrap();
    let early = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(5, 6);
    fs::File::options().write(true).open(&old).unwrap().set_modified(early).unwrap();
    let mut options = options("ext4", "", 4096);
    let limit = casemate_ext4::Time { seconds: 1_000_000, nanoseconds: 0 };
    options.time = Some(limit);
    let image = folder.path().join("image");
    write(&Plan::new(tree_of(folder.path()), &options).unwrap(), &image, &on(1));
    let fs = open(&image);
    assert_eq!(fs.superblock().times()[0], 1_000_000);
    for (path, time) in
        [("/new", limit), ("/old", casemate_ext4::Time { seconds: 5, nanoseconds: 6 }), ("/", limit)]
    {
        let inode = fs.resolve(path.as_bytes(), true).unwrap();
        assert_eq!(
            [inode.modified(), inode.changed(), inode.accessed(), inode.created().unwrap()],
            [time; 4],
            "{path}"
        );
    }
}

#[test]
fn the_kernel_reads_and_changes_it() {
    let folder = tempdir().unwrap();
    let source = source(4096);
    let image = folder.path().join("image");
    for (kind, features) in [
        ("ext4", ""),
        ("ext4", "bigalloc"),
        ("ext3", ""),
        ("ext4", "^metadata_csum,uninit_bg"),
        ("ext4", "inline_data,mmp"),
    ] {
        let mut options = options(kind, features, 4096);
        options.size = BuildSize::Fitting { free: 64 << 20, align: 1 };
        write(&Plan::new(tree_of(source.path()), &options).unwrap(), &image, &on(2));
        let list = "find . -path ./lost+found -prune -o ! -name . -type f -printf '%p %m %U:%G %s %T@ %n\\n' | LC_ALL=C sort";
        let sums = "find . -path ./lost+found -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 cksum";
        let links = "find . -type l -printf '%p %l\\n' | LC_ALL=C sort";
        let look = format!("({list}; {sums}; {links}) | cat -v");
        let Some(found) = on_mounted(&image, "ro", &look) else { return };
        let expected = run(Command::new("sh").args(["-c", &look]).current_dir(source.path()));
        assert_eq!(found, expected, "{kind} {features}");
        let change = "for i in $(seq 400); do echo $i >many/new$i; done; rm -r deep sizes/f0; mv names other
            cp -r other more; echo more >>sparse; ln hard again; mkdir dir; mv many dir; sync";
        on_mounted(&image, "rw", change);
        assert_clean(&image, "after the kernel");
    }
}

/// mke2fs -d counts no owners: e2fsck finds them all missing.
#[test]
fn quota_files_count_the_owners_of_the_tree() {
    let folder = tempdir().unwrap();
    let (source, image) = (tempdir().unwrap(), folder.path().join("image"));
    let owner = |number: u32| number.wrapping_mul(0x9e37_79b9) >> (number % 20);
    for number in 0..300 {
        let path = source.path().join(number.to_string());
        fs::write(&path, vec![1; number as usize * 50]).unwrap();
        if std::os::unix::fs::chown(&path, Some(owner(number)), Some(owner(number / 7))).is_err() {
            casemate_testkit::skip("files of others: not root");
            return;
        }
    }
    for features in ["quota", "quota,project,inline_data"] {
        for block in [1024, 4096] {
            let mut options = options("ext4", features, block);
            options.size = BuildSize::Fitting { free: 8 << 20, align: 1 };
            write(&Plan::new(tree_of(source.path()), &options).unwrap(), &image, &on(2));
            assert_clean(&image, features);
            // The kernel goes on counting.
            let change =
                "echo more >>299; rm 5; echo new >new; chown 12345:54321 new; mkdir dir; mv 7 dir; sync";
            if in_uml(&image, "rw", change).is_some() {
                assert_clean(&image, "after the kernel");
            }
        }
    }
}

#[test]
fn too_small_is_refused_before_anything_is_written() {
    let source = source(4096);
    let mut options = options("ext4", "", 4096);
    let least = Plan::new(tree_of(source.path()), &options).unwrap().size();
    options.size = BuildSize::Bytes(least);
    assert!(Plan::new(tree_of(source.path()), &options).is_ok());
    options.size = BuildSize::Bytes(least - 40960);
    let error = Plan::new(tree_of(source.path()), &options).unwrap_err();
    assert_eq!(error.io_kind(), Some(std::io::ErrorKind::StorageFull));
    assert!(error.to_string().contains("40960 bytes more"), "{error}");
    // What must be free counts, too.
    options.min_free = 40960;
    options.size = BuildSize::Bytes(least);
    let error = Plan::new(tree_of(source.path()), &options).unwrap_err().to_string();
    assert!(error.contains("40960 bytes more"), "{error}");
    options.size = BuildSize::Fitting { free: 4096, align: 1 };
    assert!(Plan::new(tree_of(source.path()), &options).unwrap().size() >= least + 40960);
    options.inodes = Some(100);
    assert!(Plan::new(tree_of(source.path()), &options).unwrap_err().to_string().contains("100 inodes, and"));
}

/// A size that has no room for all inodes is not the last word where the size is searched.
#[test]
fn a_size_is_found_for_more_inodes_than_a_group_has_room_for() {
    let source = tempdir().unwrap();
    fs::write(source.path().join("a"), "hi").unwrap();
    let image = source.path().with_extension("image");
    let mut all = Vec::new();
    for (features, per_group) in [
        ("", None),
        ("^has_journal", None),
        ("", Some(2048)),
        ("bigalloc", None),
        ("^resize_inode", Some(256)),
    ] {
        for (free, align) in [(0, 1), (20 << 20, 1), (0, 16 << 20)] {
            for inodes in [9000, 40_000] {
                let mut options = options("ext4", features, 1024);
                (options.blocks_per_group, options.inodes, options.min_free) =
                    (per_group, Some(inodes), free);
                options.size = BuildSize::Fitting { free: 0, align };
                all.push(options);
            }
        }
    }
    // Inodes by the ratio are too many for a group that is full, and not for two of which one is begun.
    let mut by_ratio = options("ext4", "bigalloc", 1024);
    (by_ratio.inode_ratio, by_ratio.min_free) = (10_240, 100 << 20);
    all.push(by_ratio.clone());
    for options in &all {
        let plan =
            Plan::new(tree_of(source.path()), options).unwrap_or_else(|error| panic!("{options:?}: {error}"));
        write(&plan, &image, &on(1));
        assert_clean(&image, &format!("{options:?}"));
        let superblock = open(&image).superblock().clone();
        assert!(superblock.blocks_free * 1024 >= options.min_free);
        let mut given = options.clone();
        given.size = BuildSize::Bytes(plan.size());
        assert_eq!(Plan::new(tree_of(source.path()), &given).unwrap().size(), plan.size());
    }
    fs::remove_file(&image).unwrap();
    // Where no size has room, that is said at once.
    by_ratio.inode_ratio = 1024;
    let error = Plan::new(tree_of(source.path()), &by_ratio).unwrap_err().to_string();
    assert!(error.contains("more than 1 group has room for"), "{error}");
    by_ratio.features.change("^bigalloc").unwrap();
    by_ratio.inode_size = 1024;
    let error = Plan::new(tree_of(source.path()), &by_ratio).unwrap_err().to_string();
    assert!(error.contains("this file system needs at least"), "{error}");
}

#[test]
fn sources_that_change_are_noticed() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, vec![1; 10_000]).unwrap();
    let plan = Plan::new(tree_of(folder.path()), &options("ext4", "", 4096)).unwrap();
    fs::write(&file, vec![1; 9_000]).unwrap();
    let device = MemoryDevice::new(vec![0; plan.size() as usize]);
    let error = plan.write(&device, true, &on(1)).unwrap_err();
    assert!(error.to_string().contains("file: changed"), "{error}");
    // There is no file system then.
    assert!(Ext4::open(Arc::new(device), &OpenOptions::default()).is_err());
    assert_eq!(fs::metadata(&file).unwrap().size(), 9_000);
}

/// A UUID that is in checksums is made of contents that are read before they are copied.
#[test]
fn contents_that_a_uuid_follows_from_are_those_that_are_written() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("file");
    for change in [0, 1] {
        fs::write(&file, vec![1; 10_000]).unwrap();
        let mut options = options("ext4", "^metadata_csum_seed", 4096);
        options.uuid = Some(NewUuid::OfContents(Arc::new(FirstSum)));
        let plan = Plan::new(tree_of(folder.path()), &options).unwrap();
        plan.uuid(&on(1)).unwrap();
        fs::write(&file, vec![1 + change; 10_000]).unwrap();
        let device = MemoryDevice::new(vec![0; plan.size() as usize]);
        let result = plan.write(&device, true, &on(1));
        assert_eq!(result.is_err(), change == 1, "{result:?}");
        if let Err(error) = result {
            assert!(error.to_string().contains("file: changed"), "{error}");
        }
    }
}

#[derive(Debug)]
struct FirstSum;

impl Identify for FirstSum {
    fn uuid(&self, sums: &[u32]) -> [u8; 16] {
        [sums.iter().fold(0, |all, sum| all ^ sum.to_le_bytes()[0]); 16]
    }
}
