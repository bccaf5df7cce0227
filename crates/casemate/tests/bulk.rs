//! Many files at once: what reading them one by one gives.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind as Kind;
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use casemate::blockdev::{BlockDevice, Events, MemoryDevice, Pool};
use casemate::ext4::{
    FileSystem, FileType, Found, Handful, Inode, InodeNo, ReadOptions, SeenDirectories, VerityPolicy,
};
use casemate::{Access, Error, Image, Work};
use casemate_testkit::{Rng, TempDir, fixture, run, tempdir, tool};

/// Files, and directories that can't be read: contents, or what keeps them from being read.
type Tree = BTreeMap<Vec<u8>, Vec<Result<Vec<u8>, String>>>;

fn add(tree: &mut Tree, path: Vec<u8>, contents: Result<Vec<u8>, Error>) {
    tree.entry(path).or_default().push(contents.map_err(|error| error.to_string()));
}

/// The slow way: each file by itself.
fn one_by_one(fs: &FileSystem) -> Tree {
    let (mut tree, mut seen) = (Tree::new(), SeenDirectories::new());
    folder(fs, &mut tree, &mut seen, Vec::new(), InodeNo::ROOT);
    tree
}

fn folder(fs: &FileSystem, tree: &mut Tree, seen: &mut SeenDirectories, path: Vec<u8>, number: InodeNo) {
    let mut entries = Vec::new();
    let mut read = |inode: &Inode| {
        seen.enter(fs.inodes(), &path, inode)?;
        fs.inodes().for_each_entry(inode, |entry| {
            entries.push(entry);
            Ok(ControlFlow::Continue(()))
        })
    };
    let read = fs.inode(number).and_then(|inode| read(&inode).map_err(|error| error.at(fs.name())));
    if let Err(error) = read {
        add(tree, path.clone(), Err(error));
    }
    for entry in entries {
        if matches!(&entry.name[..], b"." | b"..") {
            continue;
        }
        let path = if path.is_empty() { entry.name } else { [&path, &b"/"[..], &entry.name].concat() };
        let inode = fs.inode(entry.inode);
        match entry.kind.or(inode.as_ref().ok().map(Inode::kind)) {
            Some(FileType::Directory) => folder(fs, tree, seen, path, entry.inode),
            Some(FileType::Regular) | None => add(tree, path, inode.and_then(|inode| fs.read_inode(&inode))),
            Some(_) => {}
        }
    }
}

fn work(threads: usize) -> Work<'static> {
    Work { pool: Pool::new(NonZeroUsize::new(threads)), ..Work::default() }
}

/// All that `Files` finds, and the most bytes that it has found at once.
fn at_once(fs: &FileSystem, threads: usize) -> (Tree, usize) {
    let (mut tree, mut most) = (Tree::new(), 0);
    let mut files = fs.files(&fs.inode(InodeNo::ROOT).unwrap()).unwrap();
    loop {
        let mut bytes = 0;
        let more = files.read(&work(threads), |found, handful| {
            for (index, contents) in handful {
                bytes += contents.as_ref().map_or(0, |bytes| bytes.len());
                add(&mut tree, found[index].path(), contents.map(Cow::into_owned));
            }
            Ok(())
        });
        most = most.max(bytes);
        if !more.unwrap() {
            return (tree, most);
        }
    }
}

/// Contents of files by the numbers of their inodes.
fn by_numbers(fs: &FileSystem, numbers: &[InodeNo]) -> Vec<Result<Vec<u8>, String>> {
    let mut found = vec![None; numbers.len()];
    let keep = |handful: Handful<'_>| {
        for (index, contents) in handful {
            let contents = contents.map(Cow::into_owned).map_err(|error| error.to_string());
            assert!(found[index].replace(contents).is_none());
        }
        Ok(())
    };
    fs.read_many(numbers, &work(3), keep).unwrap();
    found.into_iter().map(Option::unwrap).collect()
}

fn same(fs: &FileSystem, what: &str) -> Tree {
    let expected = one_by_one(fs);
    for threads in [1, 3] {
        let (found, _) = at_once(fs, threads);
        for (path, contents) in &expected {
            let path_text = String::from_utf8_lossy(path);
            assert!(found.get(path) == Some(contents), "{what}: {path_text}, {threads} threads");
        }
        assert_eq!(found.len(), expected.len(), "{what}, {threads} threads");
    }
    // In an order that is none, and some twice.
    let numbers = (1..=fs.superblock_inodes().min(500)).rev().chain([12, 13, 12]);
    let numbers: Vec<InodeNo> = numbers.filter_map(InodeNo::new).collect();
    for (number, found) in numbers.iter().zip(by_numbers(fs, &numbers)) {
        let expected = fs.inode(*number).and_then(|inode| fs.read_inode(&inode));
        assert!(found == expected.map_err(|error| error.to_string()), "{what}: inode {number}");
    }
    expected
}

/// Questions that only these tests ask.
trait Asked {
    fn superblock_inodes(&self) -> u32;
}

impl Asked for FileSystem {
    fn superblock_inodes(&self) -> u32 {
        self.inodes().layout().inodes
    }
}

fn options(change: impl FnOnce(&mut ReadOptions)) -> ReadOptions {
    let mut options = ReadOptions::default();
    change(&mut options);
    options
}

fn open(device: impl BlockDevice + 'static, options: &ReadOptions) -> Result<FileSystem, Error> {
    Image::over("image", Arc::new(device)).ext4(options, &Work::default())
}

/// Images that kernels and mke2fs have made.
fn images() -> Vec<(String, Vec<u8>)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext4/tests/fixtures");
    let files = ["", "verity"].into_iter().flat_map(|folder| fs::read_dir(top.join(folder)).unwrap());
    let paths = files.map(|file| file.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().ends_with(".img.xz")).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.display().to_string(), fixture(path))).collect()
}

#[test]
fn images_of_kernels_are_read_as_one_by_one() {
    let images = images();
    assert!(images.len() > 10);
    for (name, bytes) in images {
        for policy in [VerityPolicy::Check, VerityPolicy::Require, VerityPolicy::Ignore] {
            let options = options(|options| options.verity = policy);
            let tree = same(&open(MemoryDevice::new(bytes.clone()), &options).unwrap(), &name);
            let is_read = |found: &Vec<Result<_, _>>| found.iter().all(Result::is_ok);
            let read = tree.values().filter(|found| is_read(found)).count();
            assert!(read == tree.len() || policy == VerityPolicy::Require, "{name}");
        }
    }
}

#[test]
fn damaged_images_are_read_as_one_by_one() {
    let mut rng = Rng::new(7);
    let mut failed = 0;
    for (name, bytes) in images().into_iter().filter(|(_, bytes)| bytes.len() <= 32 << 20) {
        let fs = open(MemoryDevice::new(bytes.clone()), &ReadOptions::default()).unwrap();
        // Inodes, directories and maps lie at the beginning, mostly.
        let places: Vec<usize> = (0..bytes.len() / 4).filter(|at| bytes[*at] != 0 && *at > 4096).collect();
        drop(fs);
        for round in 0..4 {
            let mut damaged = bytes.clone();
            for _ in 0..200 {
                let at = places[rng.below(places.len() as u64) as usize];
                damaged[at] = rng.below(256) as u8;
            }
            let options = options(|options| options.verify_checksums = round % 2 == 0);
            let Ok(fs) = open(MemoryDevice::new(damaged), &options) else { continue };
            if !fs.inode(InodeNo::ROOT).is_ok_and(|root| root.is_dir()) {
                continue;
            }
            // A size of a GiB of zeros is sound, and slow.
            let large =
                |number| fs.inode(number).is_ok_and(|inode| (1 << 26..1 << 30).contains(&inode.size()));
            if !(1..=fs.superblock_inodes()).filter_map(InodeNo::new).any(large) {
                let tree = same(&fs, &format!("{name}, round {round}"));
                failed += usize::from(tree.values().flatten().any(Result::is_err));
            }
        }
    }
    assert!(failed > 10, "{failed}");
}

/// An image of a tree that `make` fills.
fn world(options: &[&str], size: &str, make: impl FnOnce(&Path)) -> Option<(TempDir, PathBuf)> {
    let mke2fs = tool("mke2fs")?;
    let folder = tempdir().unwrap();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    fs::create_dir(&tree).unwrap();
    make(&tree);
    let mut command = Command::new(mke2fs);
    run(command.args(["-q", "-F"]).args(options).arg("-d").args([&tree, &image]).arg(size));
    Some((folder, image))
}

fn many(tree: &Path) {
    let mut rng = Rng::new(1);
    for number in 0..2000 {
        let folder = tree.join(format!("{}", number / 500));
        fs::create_dir_all(&folder).unwrap();
        let len = (rng.below(90).pow(2)) as usize;
        fs::write(folder.join(format!("file-{number}")), rng.bytes(len)).unwrap();
    }
    fs::write(tree.join("large"), rng.bytes(3_000_000)).unwrap();
    fs::write(tree.join("sparse"), b"x").unwrap();
    fs::File::options().write(true).open(tree.join("sparse")).unwrap().set_len(100_000).unwrap();
    fs::hard_link(tree.join("0/file-7"), tree.join("3/another name")).unwrap();
    symlink("0/file-7", tree.join("link")).unwrap();
}

#[test]
fn files_of_each_kind_are_read_as_one_by_one() {
    for options in [
        &["-t", "ext4"][..],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext4", "-O", "inline_data,^filetype"],
        &["-t", "ext4", "-O", "^metadata_csum,bigalloc"],
    ] {
        let Some((_folder, image)) = world(options, "64M", many) else { return };
        let fs = Image::open(&image, Access::Read).unwrap();
        let fs = fs.ext4(&ReadOptions::default(), &Work::default()).unwrap();
        let tree = same(&fs, &options.join(" "));
        assert_eq!(tree.len(), 2003);
        // With inline data mke2fs does not copy it right.
        if !options.iter().any(|option| option.contains("inline_data")) {
            let sparse = tree[&b"sparse"[..]][0].as_ref().unwrap();
            let zeros = sparse[1..].iter().all(|byte| *byte == 0);
            assert!(sparse.len() == 100_000 && sparse[0] == b'x' && zeros, "{options:?}");
        }
        assert!(tree[&b"3/another name"[..]] == tree[&b"0/file-7"[..]]);
    }
}

/// A device of which some bytes can't be read, and whose reads are counted.
struct Worn(MemoryDevice, Range<u64>, AtomicU64);

impl BlockDevice for Worn {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.0)
    }
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate::Result<()> {
        self.2.fetch_add(1, Ordering::Relaxed);
        match offset < self.1.end && self.1.start < offset + buf.len() as u64 {
            true => Err(Kind::TimedOut.into()),
            false => self.0.read_at(buf, offset),
        }
    }
    fn write_at(&self, _buf: &[u8], _offset: u64) -> casemate::Result<()> {
        Err(Kind::ReadOnlyFilesystem.into())
    }
    fn flush(&self) -> casemate::Result<()> {
        Ok(())
    }
}

#[test]
fn one_bad_block_costs_one_file_and_small_files_are_read_together() {
    let Some((_folder, image)) = world(&["-t", "ext4"], "64M", many) else { return };
    let bytes = fs::read(&image).unwrap();
    let device = |bad| Worn(MemoryDevice::new(bytes.clone()), bad, AtomicU64::new(0));
    let sound = Arc::new(device(0..0));
    let fs = open(sound.clone(), &ReadOptions::default()).unwrap();
    let (expected, _) = at_once(&fs, 2);
    let before = sound.2.load(Ordering::Relaxed);
    at_once(&fs, 2);
    let reads = sound.2.load(Ordering::Relaxed) - before;
    assert!(reads < 200, "{reads} reads for {} files", expected.len());

    let inode = fs.metadata("2/file-1234").unwrap();
    let first = fs.inodes().mapping_at(&inode, 0).unwrap().unwrap();
    let bad = fs.inodes().layout().offset(first.physical);
    let worn = open(device(bad..bad + 1), &ReadOptions::default()).unwrap();
    let (found, _) = at_once(&worn, 2);
    assert_eq!(found.len(), expected.len());
    for (path, contents) in found {
        let is_bad = path == b"2/file-1234";
        assert!(contents[0].is_err() == is_bad && (is_bad || contents == expected[&path]), "{contents:?}");
    }
}

#[test]
fn memory_and_walks_have_an_end() {
    let sparse = |tree: &Path| {
        for number in 0..12 {
            let file = fs::File::create(tree.join(format!("{number}"))).unwrap();
            file.set_len(if number == 5 { 1 << 40 } else { 5 << 20 }).unwrap();
        }
        fs::create_dir_all(tree.join("a/b")).unwrap();
    };
    let Some((_folder, image)) = world(&["-t", "ext4"], "8M", sparse) else { return };
    let Some(debugfs) = tool("debugfs") else { return };
    let circle = "link /a /a/b/again";
    run(Command::new(debugfs).args(["-w", "-R", circle]).arg(&image));
    let fs = open(MemoryDevice::new(fs::read(&image).unwrap()), &ReadOptions::default()).unwrap();
    let (tree, most) = at_once(&fs, 2);
    assert!(tree == one_by_one(&fs) && tree.len() == 13);
    assert!(most <= 9 << 20, "{most} bytes at once");
    let error = |path: &str| tree[path.as_bytes()][0].as_ref().unwrap_err();
    assert!(error("a/b/again").contains("is there under two names"), "{}", error("a/b/again"));
    assert!(error("5").starts_with("image: inode "), "{}", error("5"));
    let file = fs.metadata("/1").unwrap();
    assert_eq!(fs.files(&file).err().unwrap().io_kind(), Some(Kind::NotADirectory));
}

/// A listener that has heard enough after some bytes.
struct Until(Mutex<u64>);

impl Events for Until {
    fn advance(&self, bytes: u64) -> Result<(), Error> {
        let mut left = self.0.lock().unwrap();
        *left = left.checked_sub(bytes).ok_or_else(|| Error::from(Kind::Interrupted))?;
        Ok(())
    }
}

#[test]
fn who_has_heard_enough_ends_the_work() {
    let Some((_folder, image)) = world(&["-t", "ext4"], "64M", many) else { return };
    let fs = open(MemoryDevice::new(fs::read(&image).unwrap()), &ReadOptions::default()).unwrap();
    let root = fs.inodes().root().unwrap();
    for threads in [1, 3] {
        let until = Until(Mutex::new(1_000_000));
        let limited = Work { events: &until, ..work(threads) };
        let mut bytes = 0;
        let count = |_: &[Found], handful: Handful<'_>| {
            bytes += handful.iter().map(|(_, contents)| contents.as_ref().unwrap().len()).sum::<usize>();
            Ok(())
        };
        let error = fs.files(&root).unwrap().read(&limited, count).unwrap_err();
        assert_eq!(error.io_kind(), Some(Kind::Interrupted));
        assert!(bytes <= 1_000_000, "{bytes}");
        let refuse = |_: Handful<'_>| Err(Kind::StorageFull.into());
        let error = fs
            .read_many(&[12, 13, 14].map(|number| InodeNo::new(number).unwrap()), &work(threads), refuse)
            .unwrap_err();
        assert_eq!(error.io_kind(), Some(Kind::StorageFull));
    }
}
