//! Images changed in place, and what e2fsck, the kernel and a full check of all checksums say of them.

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileDevice, MemoryDevice, Pool};
use casemate_ext4::{
    CheckOptions, Ext4, NewNode, OpenOptions, PutOptions, RecoveryFile, Time, WriteOptions, Writer, check,
};
use casemate_providers::Work;
use casemate_testkit::{TempDir, mke2fs, run_any, tempdir, tool};
use common::tree;

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempdir().unwrap())
    }

    fn image(&self) -> PathBuf {
        self.0.path().join("image")
    }

    fn make(&self, mke2fs: &Path, features: &str, size: &str) {
        mke2fs::make(mke2fs, &format!("-N 5000 {features}"), &self.image(), size);
    }

    fn writer(&self) -> Writer {
        self.writer_with(false)
    }

    fn writer_with(&self, is_direct: bool) -> Writer {
        let device = Arc::new(FileDevice::open_writable(self.image()).unwrap());
        let recovery = (!is_direct).then(|| RecoveryFile::new(self.0.path().join("image.redo")));
        let time = Some(Time { seconds: 1_700_000_000, nanoseconds: 5 });
        let options = WriteOptions { recovery, is_direct, time, seed: Some(7), ..WriteOptions::default() };
        Writer::open(device, options).unwrap()
    }

    fn reader(&self) -> Ext4 {
        let device = Arc::new(FileDevice::open(self.image()).unwrap());
        Ext4::open(device, &OpenOptions::default()).unwrap()
    }

    /// Every checksum equals the one over all of its structure, and e2fsck has nothing to say.
    fn assert_clean(&self, e2fsck: &Path, what: &str) {
        let device = Arc::new(FileDevice::open(self.image()).unwrap());
        let report = check(device, &CheckOptions::default(), &Work::default()).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.faults);
        let output = run_any(Command::new(e2fsck).args(["-fn"]).arg(self.image()));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{what}: {text}");
    }
}

/// The work of so many threads.
fn on(threads: usize) -> Work<'static> {
    Work { pool: Pool::new(std::num::NonZeroUsize::new(threads)), ..Work::default() }
}

const PUT: PutOptions = {
    let mut put = PutOptions::new();
    put.recursive = true;
    put
};

/// A file that gets the name of the recovery file between two changes stays.
#[test]
fn a_foreign_file_of_the_name_is_not_replaced_between_changes() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let place = Place::new();
    place.make(&mke2fs, "-O ^has_journal", "8M");
    let mut writer = place.writer();
    let redo = place.0.path().join("image.redo");
    writer.make_directory(b"/one", &NewNode::new(0o755), true).unwrap();
    writer.commit().unwrap();
    assert!(!redo.exists());
    std::fs::write(&redo, "PRECIOUS").unwrap();
    writer.make_directory(b"/two", &NewNode::new(0o755), true).unwrap();
    let error = writer.commit().unwrap_err();
    assert!(error.to_string().contains("is not a file of an interrupted change"), "{error}");
    drop(writer);
    assert_eq!(std::fs::read(&redo).unwrap(), b"PRECIOUS");
    std::fs::remove_file(&redo).unwrap();
    let reader = place.reader();
    assert!(reader.resolve(b"/one", true).is_ok() && reader.resolve(b"/two", true).is_err());
}

#[test]
fn trees_are_written_as_they_are_read() {
    let (Some(mke2fs), Some(e2fsck)) = (tool("mke2fs"), tool("e2fsck")) else { return };
    let place = Place::new();
    let mut trees = std::collections::BTreeMap::new();
    for kind in mke2fs::all() {
        let Some(size) = kind.put else { continue };
        let (features, block) = (kind.options, kind.block_size());
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
        writer.make_directory(b"/made/below", &NewNode::new(0o755), true).unwrap();
        writer.commit().unwrap();
        place.assert_clean(&e2fsck, features);
        writer
            .put(&source.join("."), b"/", &PUT, &Work::default())
            .unwrap_or_else(|error| panic!("{features}: {error}"));
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

/// A tree whose folders are read in several batches, with files that are read ahead and others that are not.
fn many_files(root: &Path) {
    for (folder, count) in [("a", 300), ("a/b", 70), ("c", 33), ("empty", 0)] {
        std::fs::create_dir(root.join(folder)).unwrap();
        for number in 0..count {
            let len = number * number * 7 % 60_000;
            let byte = u8::try_from(number % 251).unwrap();
            std::fs::write(root.join(folder).join(format!("file{number}")), vec![byte; len]).unwrap();
        }
    }
    let large: Vec<u8> = (0..3_000_000u32).map(|i| (i / 1000) as u8).collect();
    std::fs::write(root.join("c/large"), large).unwrap();
    std::fs::hard_link(root.join("a/file7"), root.join("a/b/linked")).unwrap();
    std::os::unix::fs::symlink("a/file8", root.join("link")).unwrap();
}

#[test]
fn the_image_does_not_depend_on_the_threads() {
    let (Some(mke2fs), Some(e2fsck)) = (tool("mke2fs"), tool("e2fsck")) else { return };
    let place = Place::new();
    let source = place.0.path().join("source");
    std::fs::create_dir(&source).unwrap();
    many_files(&source);
    // The journal of 1024 blocks is too small for one transaction.
    for features in ["-t ext4 -b 1024 -J size=1", "-t ext4 -O ^has_journal"] {
        place.make(&mke2fs, features, "64M");
        let empty = std::fs::read(place.image()).unwrap();
        let mut first: Option<Vec<u8>> = None;
        // The last one writes in place, without any log.
        for (threads, is_direct) in [(1, false), (2, false), (7, false), (2, true)] {
            if is_direct && !features.contains("^has_journal") {
                continue;
            }
            std::fs::write(place.image(), &empty).unwrap();
            let mut writer = place.writer_with(is_direct);
            let report = writer.put(&source, b"/", &PUT, &on(threads)).unwrap();
            assert_eq!((report.files, report.directories, report.others), (404, 5, 2));
            writer.commit().unwrap();
            drop(writer);
            place.assert_clean(&e2fsck, features);
            let image = std::fs::read(place.image()).unwrap();
            match &first {
                Some(first) => assert!(*first == image, "{features}: {threads} threads, direct {is_direct}"),
                None => first = Some(image),
            }
        }
        let mut found = tree::describe_image(&place.reader());
        found.retain(|path, _| path.starts_with(b"source/"));
        let found = found.into_iter().map(|(path, node)| (path[b"source/".len()..].to_vec(), node)).collect();
        tree::compare(&found, &tree::describe_host(&source), features);
    }
}

/// Takes writes until contents come.
struct Failing(FileDevice);

impl BlockDevice for Failing {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.0)
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate_blockdev::Result<()> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> casemate_blockdev::Result<()> {
        if buf.starts_with(b"lost") {
            Err(std::io::ErrorKind::StorageFull.into())
        } else {
            self.0.write_at(buf, offset)
        }
    }

    fn flush(&self) -> casemate_blockdev::Result<()> {
        self.0.flush()
    }
}

#[test]
fn nothing_is_committed_without_its_contents() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let place = Place::new();
    place.make(&mke2fs, "-t ext4", "28M");
    let empty = std::fs::read(place.image()).unwrap();
    // One that is read ahead, and one that is not.
    for len in [5000, 5_000_000] {
        let source = place.0.path().join("source");
        std::fs::write(&source, b"lost".repeat(len / 4)).unwrap();
        for threads in [1, 3] {
            let device = Arc::new(Failing(FileDevice::open_writable(place.image()).unwrap()));
            let mut writer = Writer::open(device, WriteOptions::default()).unwrap();
            let error = writer.put(&source, b"/", &PUT, &on(threads)).unwrap_err();
            assert!(error.io_kind() == Some(std::io::ErrorKind::StorageFull), "{error}");
            assert!(writer.commit().is_err());
            drop(writer);
            assert!(std::fs::read(place.image()).unwrap() == empty, "{len} bytes, {threads} threads");
        }
    }
}

#[test]
fn what_comes_before_an_unreadable_file_is_put() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let place = Place::new();
    place.make(&mke2fs, "-t ext4", "28M");
    let source = place.0.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for name in ["a", "b", "c", "d"] {
        std::fs::write(source.join(name), name).unwrap();
    }
    let refused = std::fs::metadata(source.join("c")).unwrap();
    let image = Some((refused.dev(), refused.ino()));
    let device = Arc::new(FileDevice::open_writable(place.image()).unwrap());
    let mut writer = Writer::open(device, WriteOptions { image, ..WriteOptions::default() }).unwrap();
    let error = writer.put(&source, b"/", &PUT, &Work::default()).unwrap_err();
    assert!(error.to_string().contains("source/c: is the image itself"), "{error}");
    writer.commit().unwrap();
    let names = |fs: &Ext4| {
        ["a", "b", "c", "d"].map(|name| fs.resolve(format!("/source/{name}").as_bytes(), true).is_ok())
    };
    assert_eq!(names(&place.reader()), [true, true, false, false]);
}

/// A bitmap in the superblock would be changed as a bitmap is, and nobody could open the file system again.
#[test]
fn bitmaps_and_tables_on_other_metadata_are_refused() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let place = Place::new();
    for (features, block) in [
        ("-t ext4 -b 1024 -O bigalloc", 1024),
        ("-t ext4 -b 1024 -O meta_bg,^resize_inode", 1024),
        ("-t ext4 -b 4096", 4096),
        ("-t ext3 -b 1024 -g 1024", 1024),
    ] {
        place.make(&mke2fs, features, "8M");
        let image = std::fs::read(place.image()).unwrap();
        let superblock = 1024 / block;
        let descriptor = (superblock as usize + 1) * block as usize;
        let table = u32::from_le_bytes(image[descriptor + 8..][..4].try_into().unwrap());
        let wrong = [0, superblock, superblock + 1, table, (8 << 20) / block, u32::MAX];
        for (field, value) in (0..3).flat_map(|field| wrong.map(|value| (field, value))) {
            let mut image = image.clone();
            if (field, value) == (2, table) {
                continue;
            }
            image[descriptor + 4 * field..][..4].copy_from_slice(&value.to_le_bytes());
            let open = OpenOptions { verify_checksums: false, ..OpenOptions::default() };
            let options = WriteOptions { open, is_direct: true, ..WriteOptions::default() };
            let error = Writer::open(Arc::new(MemoryDevice::new(image)), options).map(|_| ()).unwrap_err();
            let text = error.to_string();
            // With another table the journal's inode is not found, which is told first.
            let is_told = text.starts_with("group descriptor 0: ") || field == 2;
            assert!(is_told, "{features}, {field}, {value}: {text}");
        }
    }
}
