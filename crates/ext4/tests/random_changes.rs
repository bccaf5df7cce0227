//! Random operations on images, compared with a model in memory, by e2fsck, by a check of all checksums and by a
//! kernel.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileDevice, MemoryDevice};
use casemate_ext4::{
    Error, Ext4, FileType, NewNode, OpenOptions, PutOptions, RecoveryFile, Time, WriteOptions, Writer,
};
use casemate_providers::Work;
use casemate_testkit::{Rng, TempDir, mke2fs, run, run_any, slow_tests, tempdir, tool};
use common::assert_sound;
use common::kernel::on_mounted;

/// Kind of a path in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Directory,
    File { contents: Vec<u8>, id: u64 },
    Symlink(Vec<u8>),
}

struct World {
    folder: TempDir,
    e2fsck: PathBuf,
    what: String,
    model: BTreeMap<Vec<u8>, Node>,
    xattrs: BTreeMap<(u64, Vec<u8>), Vec<u8>>,
    next_id: u64,
    rng: Rng,
}

impl World {
    fn new(features: &str, size: &str, seed: u64) -> Option<World> {
        let (mke2fs, e2fsck) = (tool("mke2fs")?, tool("e2fsck")?);
        let folder = tempdir().unwrap();
        let image = folder.path().join("image");
        mke2fs::make(&mke2fs, &format!("-N 600 {features}"), &image, size);
        Some(World {
            folder,
            e2fsck,
            what: format!("{features} seed {seed}"),
            model: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            next_id: 0,
            rng: Rng::new(seed),
        })
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn writer(&self) -> Writer {
        // Tools that other tests start hold our locks for a moment, between fork and exec.
        let mut open = FileDevice::open_exclusive(self.image());
        for _ in 0..500 {
            if open.is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            open = FileDevice::open_exclusive(self.image());
        }
        let device = Arc::new(open.unwrap());
        let recovery = Some(RecoveryFile::new(self.folder.path().join("image.redo")));
        let time = Some(Time { seconds: 1_700_000_000, nanoseconds: 0 });
        Writer::open(device, WriteOptions { recovery, time, seed: Some(1), ..WriteOptions::default() })
            .unwrap()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    /// A path that is there, of the kind that `f` takes.
    fn existing(&mut self, f: impl Fn(&Node) -> bool) -> Option<Vec<u8>> {
        let list: Vec<_> =
            self.model.iter().filter(|(_, node)| f(node)).map(|(path, _)| path.clone()).collect();
        let at = self.below(list.len().max(1));
        list.get(at).cloned()
    }

    /// A name that is not there, in a directory that is.
    fn fresh(&mut self) -> Vec<u8> {
        let dir = if self.below(3) == 0 { None } else { self.existing(|node| *node == Node::Directory) };
        let len = [1, 5, 12, 40, 120, 255][self.below(6)];
        let name: Vec<u8> = (0..len).map(|_| b'a' + self.below(26) as u8).collect();
        let path = [&dir.unwrap_or_default()[..], b"/", &name].concat();
        if self.model.contains_key(&path) { self.fresh() } else { path }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = [0, 1, 59, 61, 700, 5000, 70_000, 300_000][self.below(8)];
        let salt = self.below(251);
        (0..len).map(|i| (i % 251 + salt) as u8 | 1).collect()
    }

    fn is_below(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let prefix = [path, b"/"].concat();
        self.model.keys().filter(|other| other.starts_with(&prefix)).cloned().collect()
    }

    /// One random operation, in the image and in the model.
    fn step(&mut self, writer: &mut Writer) {
        let node = NewNode::new(0o644);
        match self.below(13) {
            0 | 1 => {
                let path = self.fresh();
                let dir = NewNode::new(0o755);
                if self.done(writer.make_directory(&path, &dir, false)) {
                    self.model.insert(path, Node::Directory);
                }
            }
            2..=4 => {
                let contents = self.bytes();
                let source = self.folder.path().join("source");
                std::fs::write(&source, &contents).unwrap();
                let path = match self.below(4) {
                    0 => self.existing(|node| matches!(node, Node::File { .. })),
                    _ => None,
                };
                let path = path.unwrap_or_else(|| self.fresh());
                let mut options = PutOptions::default();
                options.owner = Some((0, 0));
                options.xattrs = false;
                if self.done(writer.put(&source, &path, &options, &Work::default())) {
                    self.next_id += 1;
                    self.model.insert(path, Node::File { contents, id: self.next_id });
                }
            }
            5 => {
                let path = self.fresh();
                let len = [1, 59, 60, 300][self.below(4)];
                let target = vec![b't'; len];
                if self.done(writer.make_symlink(&path, &target, &node)) {
                    self.model.insert(path, Node::Symlink(target));
                }
            }
            6 => {
                let Some(from) = self.existing(|node| matches!(node, Node::File { .. })) else { return };
                let path = self.fresh();
                if self.done(writer.link(&from, &path)) {
                    self.model.insert(path, self.model[&from].clone());
                }
            }
            7 => {
                let Some(path) = self.existing(|_| true) else { return };
                if self.done(writer.remove_tree(&path)) {
                    for gone in self.is_below(&path) {
                        self.model.remove(&gone);
                    }
                    self.model.remove(&path);
                }
            }
            8 => {
                let Some(from) = self.existing(|_| true) else { return };
                let to = self.fresh();
                if to.starts_with(&[&from[..], b"/"].concat()) {
                    assert!(writer.rename(&from, &to).is_err());
                } else if self.done(writer.rename(&from, &to)) {
                    for path in self.is_below(&from).into_iter().chain([from.clone()]) {
                        let node = self.model.remove(&path).unwrap();
                        self.model.insert([&to[..], &path[from.len()..]].concat(), node);
                    }
                }
            }
            9 => {
                let Some(path) = self.existing(|node| matches!(node, Node::File { .. })) else { return };
                let size = [0, 3, 100, 5000, 123_456][self.below(5)];
                let allocate = self.below(2) == 0;
                let result = match allocate {
                    true => writer.allocate_file(&path, size),
                    false => writer.truncate(&path, size),
                };
                if self.done(result) {
                    self.change(&path, |contents| {
                        let size = if allocate { contents.len().max(size as usize) } else { size as usize };
                        contents.resize(size, 0);
                    });
                }
            }
            10 => {
                let Some(path) = self.existing(|_| true) else { return };
                let (uid, gid) = ([0, 1, 1000, 70_000][self.below(4)], [0, 3, 1 << 30][self.below(3)]);
                self.done(writer.set_owner(&path, Some(uid), Some(gid), false));
            }
            _ => {
                let Some(path) = self.existing(|node| matches!(node, Node::File { .. })) else { return };
                let Node::File { id, .. } = self.model[&path] else { return };
                let name = [b"user.", &b"abcdefgh"[self.below(8)..]].concat();
                let len = [0, 3, 50, 400, 3000][self.below(5)];
                let value = vec![self.below(256) as u8; len];
                if self.below(3) == 0 {
                    let there = self.xattrs.contains_key(&(id, name.clone()));
                    let result = writer.set_xattr(&path, &name, None, true);
                    assert_eq!(result.is_ok(), there, "{}: {result:?}", self.what);
                    self.xattrs.remove(&(id, name));
                } else if self.done(writer.set_xattr(&path, &name, Some(&value), true)) {
                    self.xattrs.insert((id, name), value);
                }
            }
        }
    }

    /// Changes the contents of all names of a file.
    fn change(&mut self, path: &[u8], f: impl Fn(&mut Vec<u8>)) {
        let Node::File { id: changed, .. } = self.model[path] else { return };
        for node in self.model.values_mut() {
            if let Node::File { contents, id } = node
                && *id == changed
            {
                f(contents);
            }
        }
    }

    /// Whether an operation was done; only a full file system is a reason why not.
    fn done<T>(&self, result: Result<T, Error>) -> bool {
        match result {
            Ok(_) => true,
            Err(error) if error.io_kind() == Some(std::io::ErrorKind::StorageFull) => false,
            Err(error) => panic!("{}: {error}", self.what),
        }
    }

    fn assert_clean(&self) {
        assert_sound(&self.image(), &self.what);
    }

    /// The image holds what the model says, and nothing else.
    fn assert_same(&self, fs: &Ext4) {
        let mut found = BTreeMap::new();
        let mut dirs = vec![Vec::new()];
        while let Some(dir) = dirs.pop() {
            let inode = fs.resolve(&dir, false).unwrap();
            for entry in fs.read_dir(&inode).unwrap() {
                let path = [&dir[..], b"/", &entry.name].concat();
                if path == b"/lost+found" {
                    continue;
                }
                let inode = fs.inode(entry.inode).unwrap();
                // Found by hash, too.
                assert_eq!(fs.resolve(&path, false).unwrap().number(), entry.inode, "{}", self.what);
                let contents = match inode.kind() {
                    FileType::Directory => {
                        dirs.push(path.clone());
                        None
                    }
                    FileType::Symlink => Some(fs.symlink_target(&inode).unwrap()),
                    _ => {
                        let file = fs.open_file(&inode).unwrap();
                        let mut bytes = vec![0; file.size() as usize];
                        file.read_at(&mut bytes, 0).unwrap();
                        if let Some(Node::File { id, .. }) = self.model.get(&path) {
                            let found: BTreeMap<_, _> =
                                fs.xattrs(&inode).unwrap().into_iter().map(|x| (x.name, x.value)).collect();
                            let expected: BTreeMap<_, _> = self
                                .xattrs
                                .iter()
                                .filter(|((of, _), _)| of == id)
                                .map(|((_, name), value)| (name.clone(), value.clone()))
                                .collect();
                            assert_eq!(found, expected, "{}", self.what);
                        }
                        Some(bytes)
                    }
                };
                found.insert(path, contents);
            }
        }
        assert_eq!(found.len(), self.model.len(), "{}", self.what);
        for (path, node) in &self.model {
            let shown = String::from_utf8_lossy(path);
            let expected = match node {
                Node::Directory => None,
                Node::File { contents, .. } => Some(contents),
                Node::Symlink(target) => Some(target),
            };
            let found = found.get(path).unwrap_or_else(|| panic!("{}: {shown} is missing", self.what));
            assert!(found.as_ref() == expected, "{}: {shown}", self.what);
        }
    }

    /// A kernel reads back what the model says: it lists sizes and sums.
    fn assert_kernel(&self) {
        let script =
            "find . -path ./lost+found -prune -o -type f -print0 | sort -z | xargs -0 -r cat | cksum";
        let mut all = Vec::new();
        // find | sort orders by bytes where the locale says so.
        for (_, node) in self.model.iter().filter(|(_, node)| matches!(node, Node::File { .. })) {
            if let Node::File { contents, .. } = node {
                all.extend_from_slice(contents);
            }
        }
        let script = format!("export LC_ALL=C; {script}");
        let Some(found) = on_mounted(&self.image(), "ro,noload", &script) else { return };
        let path = self.folder.path().join("all");
        std::fs::write(&path, all).unwrap();
        let expected = run(Command::new("cksum").stdin(std::fs::File::open(&path).unwrap()));
        assert_eq!(found.trim(), expected.trim(), "{}", self.what);
    }
}

#[test]
fn random_operations_leave_clean_images() {
    let steps = if slow_tests() { 3000 } else { 250 };
    for (number, kind) in mke2fs::all().filter(|kind| kind.often || slow_tests()).enumerate() {
        let (features, Some(size)) = (kind.options, kind.change) else { continue };
        let Some(mut world) = World::new(features, size, number as u64) else { return };
        let mut writer = world.writer();
        for step in 0..steps {
            world.step(&mut writer);
            if world.below(20) == 0 {
                writer.commit().unwrap();
            }
            if step % 125 == 124 {
                writer.commit().unwrap();
                world.assert_clean();
                world.assert_same(writer.fs());
            }
            if world.below(60) == 0 {
                writer.commit().unwrap();
                drop(writer);
                writer = world.writer();
            }
        }
        writer.commit().unwrap();
        drop(writer);
        world.assert_clean();
        // Inline data and a journal together stop the kernel of some machines.
        let risky = features.contains("inline_data");
        let page =
            features.contains("-b 1024") || features.contains("-b 4096") || features.contains("-b 2048");
        if !risky && page {
            world.assert_kernel();
        }
    }
}

#[test]
fn a_full_file_system_gives_everything_back() {
    for (features, size) in [
        ("-t ext4 -b 1024", "2M"),
        ("-t ext4 -b 4096 -O ^has_journal", "4M"),
        ("-t ext4 -b 1024 -O bigalloc,^has_journal -C 4096", "4M"),
        ("-t ext2 -b 1024", "4M"),
        ("-t ext3 -b 4096", "8M"),
        ("-t ext4 -b 1024 -O quota,project,mmp", "2M"),
    ] {
        let Some(world) = World::new(features, size, 1) else { return };
        let mut writer = world.writer();
        let counts = |writer: &Writer| {
            let device = Arc::new(FileDevice::open(world.image()).unwrap());
            let fs = Ext4::open(device, &OpenOptions::default()).unwrap();
            let _ = writer.fs();
            (fs.superblock().blocks_free, fs.superblock().inodes_free)
        };
        let before = counts(&writer);
        let node = NewNode::new(0o755);
        writer.make_directory(b"/full", &node, false).unwrap();
        let full = |result: Result<(), Error>| match result {
            Ok(()) => false,
            Err(error) if error.io_kind() == Some(std::io::ErrorKind::StorageFull) => true,
            Err(error) => panic!("{features}: {error}"),
        };
        // One large file takes nearly all blocks, small ones the rest, empty ones all inodes.
        writer.make_file(b"/full/large", &node).unwrap();
        let mut size = 64 << 20;
        let mut reached = 0;
        while size >= 1024 {
            if !full(writer.allocate_file(b"/full/large", reached + size)) {
                reached += size;
            }
            size /= 2;
        }
        let mut number = 0;
        while !full(writer.make_file(format!("/full/{number}").as_bytes(), &node)) {
            number += 1;
        }
        writer.commit().unwrap();
        world.assert_clean();
        let (blocks, _) = counts(&writer);
        assert!(blocks < 16, "{features}: {blocks} blocks are left");
        writer.remove_tree(b"/full").unwrap();
        writer.commit().unwrap();
        world.assert_clean();
        assert_eq!(counts(&writer), before, "{features}");
        // All inodes, by as many files as it takes.
        writer.make_directory(b"/full", &node, false).unwrap();
        let mut number = 0;
        while !full(writer.make_file(format!("/full/{number}").as_bytes(), &node)) {
            number += 1;
        }
        writer.commit().unwrap();
        world.assert_clean();
        assert_eq!(counts(&writer).1, 0, "{features}");
        writer.remove_tree(b"/full").unwrap();
        writer.commit().unwrap();
        world.assert_clean();
        assert_eq!(counts(&writer), before, "{features}");
    }
}

/// Passes writes on until it is told to stop, at any write: then nothing is written any more, as after a crash.
struct Crashing {
    below: Arc<dyn BlockDevice>,
    left: std::sync::atomic::AtomicI64,
}

impl BlockDevice for Crashing {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.below)
    }
    fn size(&self) -> u64 {
        self.below.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate_blockdev::Result<()> {
        self.below.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> casemate_blockdev::Result<()> {
        // A write may be cut anywhere, but a superblock of 1024 bytes is there or not: file systems rely on that.
        for (number, part) in buf.chunks(1024).enumerate() {
            if self.left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) <= 0 {
                return Err(std::io::Error::other("crashed").into());
            }
            self.below.write_at(part, offset + 1024 * number as u64)?;
        }
        Ok(())
    }
    fn flush(&self) -> casemate_blockdev::Result<()> {
        Ok(())
    }
}

#[test]
fn a_crash_at_any_write_loses_nothing_that_was_there() {
    let points = if slow_tests() { 400 } else { 40 };
    for features in [
        "-t ext4 -b 1024",
        "-t ext4 -b 4096 -O ^has_journal",
        "-t ext4 -b 4096 -O ^metadata_csum",
        "-t ext4 -b 1024 -O quota",
    ] {
        let Some(mut world) = World::new(features, "8M", 9) else { return };
        let mut writer = world.writer();
        for _ in 0..120 {
            world.step(&mut writer);
        }
        writer.commit().unwrap();
        drop(writer);
        let before = std::fs::read(world.image()).unwrap();
        // What is written in all, to know where crashes can be.
        let work = |device: Arc<dyn BlockDevice>, recovery: &Path| {
            let options = WriteOptions {
                recovery: Some(RecoveryFile::new(recovery)),
                seed: Some(3),
                ..WriteOptions::default()
            };
            let mut writer = Writer::open(device, options)?;
            let node = NewNode::new(0o755);
            for round in 0..4 {
                writer.make_directory(format!("/new{round}").as_bytes(), &node, false)?;
                for number in 0..30 {
                    let path = format!("/new{round}/{number}-{}", "n".repeat(100));
                    writer.make_file(path.as_bytes(), &node)?;
                    writer.allocate_file(path.as_bytes(), 3000)?;
                }
                writer.commit()?;
                if round > 0 {
                    writer.remove_tree(format!("/new{}", round - 1).as_bytes())?;
                }
            }
            writer.commit()
        };
        let redo = world.folder.path().join("image.redo");
        let crash = |left: i64| {
            let _ = std::fs::remove_file(&redo);
            let below = Arc::new(MemoryDevice::new(before.clone()));
            let device = Arc::new(Crashing { below: below.clone(), left: left.into() });
            let result = work(device.clone(), &redo);
            let used = left - device.left.load(std::sync::atomic::Ordering::Relaxed);
            drop(device);
            (result.is_ok(), used, Arc::into_inner(below).unwrap().into_bytes())
        };
        let (whole, total, _) = crash(i64::MAX / 2);
        assert!(whole && total > 200, "{features}: {total}");
        for point in 0..points {
            let left = if point < 10 { total - 1 - point } else { world.rng.below(total as u64) as i64 };
            let (whole, _, image) = crash(left);
            assert!(!whole);
            std::fs::write(world.image(), &image).unwrap();
            let with_e2fsck = !features.contains("^has_journal") && point % 2 == 0;
            if with_e2fsck {
                let output = run_any(Command::new(&world.e2fsck).arg("-fp").arg(world.image()));
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(matches!(output.status.code(), Some(0 | 1)), "{features} at {left}: {text}");
                assert!(!text.contains("UNEXPECTED"), "{features} at {left}: {text}");
            } else {
                drop(world.writer());
            }
            assert!(!redo.exists());
            world.assert_clean();
            let device = Arc::new(FileDevice::open(world.image()).unwrap());
            let fs = Ext4::open(device, &OpenOptions::default()).unwrap();
            for (path, node) in &world.model {
                let shown = String::from_utf8_lossy(path);
                let inode =
                    fs.resolve(path, false).unwrap_or_else(|error| panic!("{features}: {shown}: {error}"));
                if let Node::File { contents, .. } = node {
                    let file = fs.open_file(&inode).unwrap();
                    let mut bytes = vec![0; file.size() as usize];
                    file.read_at(&mut bytes, 0).unwrap();
                    assert!(bytes == *contents, "{features} at {left}: {shown}");
                }
            }
        }
    }
}
