//! Images that mke2fs makes of a tree, with every feature it has, compared with the tree itself.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{FileDevice, NoProgress, Pool};
use casemate_ext4::{Ext4, OpenOptions, check};
use casemate_testkit::{run, run_any, tempdir, tool};
use common::tree;

/// What mke2fs is told, for each image: options, separated by spaces.
const FEATURES: [&str; 41] = [
    "-t ext4",
    "-t ext2",
    "-t ext3",
    "-t ext4 -b 1024",
    "-t ext4 -b 2048",
    "-t ext4 -b 8192",
    "-t ext4 -b 16384",
    "-t ext4 -b 32768",
    "-t ext4 -b 65536",
    "-t ext4 -I 128",
    "-t ext4 -b 4096 -I 1024",
    "-t ext4 -b 4096 -I 4096",
    "-t ext4 -O ^extent,^64bit",
    "-t ext4 -O ^64bit",
    "-t ext4 -O ^has_journal",
    "-t ext4 -O ^flex_bg,^resize_inode",
    "-t ext4 -O ^resize_inode,meta_bg -b 1024 -g 1024",
    "-t ext4 -b 1024 -g 256 -O ^resize_inode,^flex_bg",
    "-t ext4 -b 1024 -g 1024 -O sparse_super2,^resize_inode",
    "-t ext4 -b 1024 -g 2048 -O ^sparse_super,^resize_inode",
    "-t ext4 -O bigalloc -C 16384",
    "-t ext4 -O bigalloc -b 1024 -C 8192",
    "-t ext4 -O inline_data",
    "-t ext4 -O inline_data -b 1024 -I 512",
    "-t ext4 -O inline_data -b 65536 -I 2048",
    "-t ext4 -O ea_inode",
    "-t ext4 -O large_dir",
    "-t ext4 -O ^dir_index",
    "-t ext4 -O ^filetype",
    "-t ext4 -O ^filetype,^metadata_csum",
    "-t ext4 -O casefold",
    "-t ext4 -O casefold -E encoding_flags=strict",
    "-t ext4 -O mmp",
    "-t ext4 -O quota,project",
    "-t ext4 -O orphan_file",
    "-t ext4 -O metadata_csum_seed",
    "-t ext4 -O ^metadata_csum",
    "-t ext4 -O ^metadata_csum,uninit_bg",
    "-t ext4 -O encrypt,verity,stable_inodes",
    "-t ext4 -O fast_commit",
    "-t ext4 -O ^uninit_bg,^metadata_csum,^dir_nlink,^extra_isize,^huge_file",
];

#[test]
fn trees_are_read_as_they_were_written() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let mut trees = std::collections::BTreeMap::new();
    for features in FEATURES {
        let block = features.split_once("-b ").map_or("4096", |(_, rest)| rest.split(' ').next().unwrap());
        let block: usize = block.parse().unwrap();
        let (source, expected) = trees.entry(block).or_insert_with(|| {
            let source = folder.path().join(format!("tree{block}"));
            std::fs::create_dir(&source).unwrap();
            tree::make(&source, block);
            let expected = tree::describe_host(&source);
            (source, expected)
        });
        let image = folder.path().join("image");
        make_image(&mke2fs, features, source, &image, block);
        let fs = open(&image);
        tree::compare(&tree::describe_image(&fs), expected, features);
        assert_clean(&image, features);
    }
}

#[test]
fn indexed_directories_are_searched_by_every_hash() {
    let (Some(mke2fs), Some(e2fsck), Some(tune2fs)) = (tool("mke2fs"), tool("e2fsck"), tool("tune2fs"))
    else {
        return;
    };
    let folder = tempdir().unwrap();
    let source = folder.path().join("tree");
    let many = source.join("many");
    std::fs::create_dir_all(&many).unwrap();
    let names: Vec<String> = (0..4000).map(|i| format!("{i}-{}-ünïcode", "n".repeat(i * 7 % 101))).collect();
    for name in &names {
        std::fs::write(many.join(name), []).unwrap();
    }
    for (hash, options) in [
        ("legacy", "-t ext4 -b 1024"),
        ("half_md4", "-t ext4 -b 4096"),
        ("tea", "-t ext4 -b 1024 -O large_dir,^metadata_csum"),
        ("half_md4", "-t ext4 -b 65536"),
        ("half_md4", "-t ext2 -b 1024 -O dir_index"),
    ] {
        let image = folder.path().join("image");
        make_image(&mke2fs, options, &source, &image, 65536);
        run(Command::new(&tune2fs).arg("-E").arg(format!("hash_alg={hash}")).arg(&image));
        // Optimising directories gives them their indexes; 1 says that something was changed.
        let output = run_any(Command::new(&e2fsck).args(["-fyD"]).arg(&image));
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        let fs = open(&image);
        let dir = fs.resolve(b"many", false).unwrap();
        assert!(fs.is_indexed(&dir), "{hash} {options}");
        for entry in fs.read_dir(&dir).unwrap() {
            let found = fs.lookup_indexed(&dir, &entry.name).unwrap();
            let name = String::from_utf8_lossy(&entry.name);
            assert_eq!(found, Some(entry.inode), "{hash} {options}: {name}");
        }
        assert_eq!(fs.lookup_indexed(&dir, b"not there").unwrap(), None);
        assert_eq!(fs.read_dir(&dir).unwrap().len(), names.len(), "{hash} {options}");
        assert_clean(&image, options);
    }
}

#[test]
fn a_real_tree() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let source = Path::new("/usr/share/doc");
    if !source.is_dir() {
        return casemate_testkit::skip("no /usr/share/doc");
    }
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    run(Command::new(&mke2fs).args(["-q", "-F", "-t", "ext4", "-d"]).arg(source).arg(&image).arg("600M"));
    let expected = tree::describe_host(source);
    tree::compare(&tree::describe_image(&open(&image)), &expected, "/usr/share/doc");
    assert_clean(&image, "/usr/share/doc");
}

fn make_image(mke2fs: &Path, options: &str, source: &Path, image: &Path, block: usize) {
    let _ = std::fs::remove_file(image);
    let mut command = Command::new(mke2fs);
    command.args(["-q", "-F", "-N", "5000"]).args(options.split(' ')).arg("-d").arg(source).arg(image);
    run(command.arg(if block > 4096 { "96M" } else { "28M" }));
}

fn open(image: &Path) -> Ext4 {
    let device = Arc::new(FileDevice::open(image).unwrap());
    Ext4::open(device, &OpenOptions::default()).unwrap()
}

fn assert_clean(image: &Path, what: &str) {
    let device = Arc::new(FileDevice::open(image).unwrap());
    let report = check(device, &OpenOptions::default(), Pool::default(), &NoProgress).unwrap();
    assert!(report.is_clean(), "{what}: {:?}", report.faults);
}
