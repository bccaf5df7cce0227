//! Images changed in place, and what e2fsck, the kernel and a full check of all checksums say of them.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{FileDevice, NoProgress, Pool};
use casemate_ext4::{
    Ext4, NewNode, OpenOptions, PutOptions, RecoveryFile, Time, WriteOptions, Writer, check,
};
use casemate_testkit::{TempDir, run, run_any, tempdir, tool};
use common::tree;

/// What mke2fs is told, and the size of the image.
const FEATURES: [(&str, &str); 35] = [
    ("-t ext4", "28M"),
    ("-t ext4 -b 1024", "28M"),
    ("-t ext4 -b 2048", "28M"),
    ("-t ext4 -b 8192", "96M"),
    ("-t ext4 -b 16384", "96M"),
    ("-t ext4 -b 32768", "128M"),
    ("-t ext4 -b 65536", "192M"),
    ("-t ext4 -I 128", "28M"),
    ("-t ext4 -b 4096 -I 1024", "40M"),
    ("-t ext4 -O ^64bit", "28M"),
    ("-t ext4 -O ^has_journal", "28M"),
    ("-t ext4 -O ^flex_bg,^resize_inode", "28M"),
    ("-t ext4 -O ^resize_inode,meta_bg -b 1024 -g 1024", "28M"),
    ("-t ext4 -b 1024 -g 256 -O ^resize_inode,^flex_bg", "28M"),
    ("-t ext4 -b 1024 -g 2048 -O ^sparse_super,^resize_inode", "28M"),
    ("-t ext4 -O bigalloc -C 16384", "64M"),
    ("-t ext4 -O bigalloc -b 1024 -C 8192", "64M"),
    ("-t ext4 -O inline_data", "28M"),
    ("-t ext4 -O ea_inode", "28M"),
    ("-t ext4 -O large_dir -b 1024", "28M"),
    ("-t ext4 -O ^dir_index", "28M"),
    ("-t ext4 -O ^filetype", "28M"),
    ("-t ext4 -O casefold", "28M"),
    ("-t ext4 -O metadata_csum_seed,orphan_file", "28M"),
    ("-t ext4 -O quota,project", "28M"),
    ("-t ext4 -O quota,ea_inode,mmp -b 1024", "28M"),
    ("-t ext4 -O ^metadata_csum,^uninit_bg", "28M"),
    ("-t ext4 -O ^metadata_csum,uninit_bg", "28M"),
    ("-t ext4 -O encrypt,verity,stable_inodes,project -b 1024 -O fast_commit", "28M"),
    ("-t ext2", "28M"),
    ("-t ext2 -b 1024 -O ^dir_index,^resize_inode,^sparse_super", "28M"),
    ("-t ext2 -b 1024 -r 0 -O none", "28M"),
    ("-t ext3", "28M"),
    ("-t ext3 -b 2048 -O ^filetype", "28M"),
    ("-t ext4 -O ^extent,^64bit,inline_data", "28M"),
];

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempdir().unwrap())
    }

    fn image(&self) -> PathBuf {
        self.0.path().join("image")
    }

    fn make(&self, mke2fs: &Path, features: &str, size: &str) {
        let _ = std::fs::remove_file(self.image());
        let mut command = Command::new(mke2fs);
        command.args(["-q", "-F", "-N", "5000"]).args(features.split(' ')).arg(self.image());
        run(command.arg(size));
    }

    fn writer(&self) -> Writer {
        let device = Arc::new(FileDevice::open_writable(self.image()).unwrap());
        let recovery = Some(RecoveryFile::new(self.0.path().join("image.redo")));
        let time = Some(Time { seconds: 1_700_000_000, nanoseconds: 5 });
        Writer::open(device, WriteOptions { recovery, time, seed: Some(7), ..WriteOptions::default() })
            .unwrap()
    }

    fn reader(&self) -> Ext4 {
        let device = Arc::new(FileDevice::open(self.image()).unwrap());
        Ext4::open(device, &OpenOptions::default()).unwrap()
    }

    /// Every checksum equals the one over all of its structure, and e2fsck has nothing to say.
    fn assert_clean(&self, e2fsck: &Path, what: &str) {
        let device = Arc::new(FileDevice::open(self.image()).unwrap());
        let report = check(device, &OpenOptions::default(), Pool::default(), &NoProgress).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.faults);
        let output = run_any(Command::new(e2fsck).args(["-fn"]).arg(self.image()));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{what}: {text}");
    }
}

const PUT: PutOptions<'_> = PutOptions { recursive: true, owner: None, xattrs: true, progress: &NoProgress };

#[test]
fn trees_are_written_as_they_are_read() {
    let (Some(mke2fs), Some(e2fsck)) = (tool("mke2fs"), tool("e2fsck")) else { return };
    let place = Place::new();
    let mut trees = std::collections::BTreeMap::new();
    for (features, size) in FEATURES {
        let block = features.split_once("-b ").map_or("4096", |(_, rest)| rest.split(' ').next().unwrap());
        let block: usize = block.parse().unwrap();
        let (source, expected) = trees.entry(block).or_insert_with(|| {
            let source = place.0.path().join(format!("tree{block}"));
            std::fs::create_dir(&source).unwrap();
            tree::make(&source, block);
            let expected = tree::describe_host(&source);
            (source, expected)
        });
        place.make(&mke2fs, features, size);
        let empty = counts(&place.reader());
        let mut writer = place.writer();
        writer.make_directory(b"/made/below", &NewNode { mode: 0o755, ..NewNode::default() }, true).unwrap();
        writer.commit().unwrap();
        place.assert_clean(&e2fsck, features);
        writer.put(&source.join("."), b"/", &PUT).unwrap_or_else(|error| panic!("{features}: {error}"));
        writer.commit().unwrap();
        place.assert_clean(&e2fsck, features);
        writer.remove_tree(b"made").unwrap();
        writer.commit().unwrap();
        drop(writer);
        let mut found = tree::describe_image(&place.reader());
        found.remove(&b"made"[..]);
        tree::compare(&found, expected, features);
        // And all of it away again.
        let mut writer = place.writer();
        let root = writer.fs().root().unwrap();
        for entry in writer.fs().read_dir(&root).unwrap() {
            if entry.name != b"lost+found" {
                writer.remove_tree(&entry.name).unwrap();
            }
        }
        writer.commit().unwrap();
        place.assert_clean(&e2fsck, features);
        assert_eq!(counts(&place.reader()), empty, "{features}");
    }
}

/// Free blocks and inodes, but for the blocks that the root directory grew by.
fn counts(fs: &Ext4) -> (u64, u32) {
    let root = fs.root().unwrap().sectors(fs.layout().block_size) * 512 / u64::from(fs.layout().block_size);
    (fs.superblock().blocks_free + root, fs.superblock().inodes_free)
}
