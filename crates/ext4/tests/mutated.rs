//! Whole images with a few fields changed and the checksums made right again, so that the damage gets past them:
//! opened, checked, walked, read and copied out. Whatever they say, nothing may panic, read without end or take
//! memory without bound.
//!
//! The work is done in children of this test with a limit on their memory, one for each image. A case is an image
//! and a seed: `CASEMATE_MUTATED="IMAGE FIRST COUNT" cargo test -p casemate-ext4 --test mutated -- --ignored`
//! repeats some.

mod common;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use casemate_blockdev::{BlockDevice, FileDevice, MemoryDevice, NoEvents, Overlay};
use casemate_ext4::{
    CheckOptions, Contents, DirEntry, Error, Ext4, ExtractOptions, Inode, InodeNo, OpenOptions, Result,
    SeenDirectories, check, extract_to_folder, extract_to_tar,
};
use casemate_providers::Work;
use casemate_testkit::{Rng, block_map, fixture, run, slow_tests, tempdir, tool};
use common::collection::{self, Maker};
use common::mutation::Image;

const VARIABLE: &str = "CASEMATE_MUTATED";

/// Images made here, for what the fixtures lack.
const MADE: [(&str, &str); 7] = [
    ("ext2", "-t ext2 -b 1024"),
    ("plain", "-t ext4 -b 1024 -O ^metadata_csum,^64bit,^has_journal"),
    ("large-values", "-t ext4 -b 1024 -O ea_inode,^has_journal"),
    ("meta-bg", "-t ext4 -b 1024 -g 1024 -O ^resize_inode,meta_bg,orphan_file"),
    ("casefold", "-t ext4 -b 1024 -O casefold,sparse_super2 -E encoding_flags=strict"),
    ("large-inodes", "-t ext4 -b 4096 -I 4096 -O inline_data,^has_journal"),
    ("fast-commit", "-t ext4 -b 1024 -O fast_commit"),
];

#[test]
fn mutated_images_do_no_harm() {
    let folder = tempdir().unwrap();
    let mut images = collection::fixtures(false);
    if let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) {
        let maker = Maker::new(mke2fs, debugfs, folder.path());
        images.extend(MADE.map(|(name, options)| maker.make(options, name)));
    }
    let cases = if slow_tests() { 2_000 } else { 60 };
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(image) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
                    child(image, cases);
                }
            });
        }
    });
}

/// Runs some cases of an image in a process of their own.
fn child(image: &Path, cases: u64) {
    let output = limited("child_of_the_other_test", &format!("{} 0 {cases}", image.display()));
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().rev().find(|line| line.starts_with("case ")).unwrap_or("no case at all");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}, {last}: {}\n{stderr}", image.display(), output.status);
    assert_eq!(text.lines().filter(|line| line.starts_with("case ")).count() as u64, cases);
}

/// Runs a test of this file in a process of its own, with a limit on its memory.
fn limited(test: &str, work: &str) -> Output {
    // KiB of address space; the largest image takes 16 MiB.
    let limit = "ulimit -v 800000; exec timeout 3600 \"$0\" --ignored --exact \"$1\" --nocapture";
    Command::new("sh")
        .args(["-c", limit])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(VARIABLE, work)
        .output()
        .unwrap()
}

/// A structure may stand for much more than there is of it: blocks that a directory, the journal or many directories
/// have several times. Memory is taken for distinct blocks that are there, at most some ten times as much.
#[test]
fn a_block_counts_once() {
    let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    for (bomb, expected) in [
        (Bomb::Directory, "directory: has blocks twice"),
        (Bomb::Directories, "has blocks that it or another directory has already"),
        (Bomb::Journal, "the journal has blocks twice"),
    ] {
        bomb.make(&mke2fs, &debugfs, &image);
        let output = limited("child_with_a_bomb", &image.display().to_string());
        let (text, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{bomb:?}: {}: {text}{stderr}", output.status);
        assert!(text.contains(expected), "{bomb:?}: {text}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Bomb {
    /// 60000 blocks of a directory are one.
    Directory,
    /// 60 directories have the same 1036 blocks.
    Directories,
    /// 200000 blocks of the journal are one full of revoke records.
    Journal,
}

impl Bomb {
    /// Makes an image of 256 MiB, nearly all of it holes. Old block maps need no more than a few blocks of numbers.
    fn make(self, mke2fs: &Path, debugfs: &Path, image: &Path) {
        // Where nothing else lies.
        const FREE: u32 = 40_000;
        let _ = std::fs::remove_file(image);
        let kind = if matches!(self, Bomb::Journal) { "ext3" } else { "ext2" };
        let mut command = Command::new(mke2fs);
        command.args(["-q", "-F", "-t", kind, "-b", "4096", "-N", "1024", "-O", "^resize_inode,^dir_index"]);
        run(command.arg(image).arg("256M"));
        let file = File::options().read(true).write(true).open(image).unwrap();
        let write =
            |block: u32, bytes: &[u8]| file.write_all_at(bytes, u64::from(block) * block_map::SIZE).unwrap();
        let contents = if let Bomb::Journal = self { revocations() } else { same_names() };
        let distinct = if let Bomb::Directories = self { 11 + 1024 } else { 1 };
        (0..distinct).for_each(|number| write(FREE + number, &contents));
        // The blocks that are counted from 1: those in the inode, those of the first level, those of the second.
        let at = |number: u32| FREE + (number - 1) % distinct;
        let blocks = match self {
            Bomb::Directory => 60_000,
            Bomb::Directories => distinct + 1,
            Bomb::Journal => 200_000,
        };
        let names: Vec<String> = match self {
            Bomb::Directory => vec!["d".to_owned()],
            Bomb::Directories => (0..60).map(|number| format!("d{number}")).collect(),
            Bomb::Journal => return block_map::journal(debugfs, image, blocks, at, FREE + distinct),
        };
        let commands = image.with_extension("commands");
        std::fs::write(&commands, names.iter().map(|name| format!("mkdir {name}\n")).collect::<String>())
            .unwrap();
        run(Command::new(debugfs).arg("-w").arg("-f").arg(&commands).arg(image));
        block_map::give(debugfs, image, &names, blocks, at, FREE + distinct);
    }
}

/// A directory block of 341 names, all of them "a".
fn same_names() -> Vec<u8> {
    let record = [11, 0, 0, 0, 12, 0, 1, 1, b'a', 0, 0, 0];
    let mut block = record.repeat(341);
    let last = block.len() - record.len();
    block[last + 4] = 16;
    block.resize(4096, 0);
    block
}

/// A block of the journal's transaction 1 that revokes 1020 blocks.
fn revocations() -> Vec<u8> {
    let words = [0xc03b_3998, 5, 1, 4096].into_iter().chain(1..=1020);
    words.flat_map(u32::to_be_bytes).collect()
}

#[test]
#[ignore = "the other test runs it, with a limit of memory"]
fn child_with_a_bomb() {
    let path = std::env::var(VARIABLE).expect(VARIABLE);
    let device = Arc::new(FileDevice::open(path).unwrap());
    let fs = match Ext4::open(device, &OpenOptions::default()) {
        Ok(fs) => fs,
        Err(error) => return println!("{error}"),
    };
    let root = fs.root().unwrap();
    if let Ok(dir) = fs.resolve(b"d", false) {
        println!("{}", fs.read_dir(&dir).unwrap_err());
    }
    walk(&fs, root.clone());
    let contents = Limited { left: AtomicU64::new(64 << 20) };
    let extract = ExtractOptions {
        owners: false,
        xattrs: true,
        overwrite: false,
        kept: &[],
        selection: None,
        contents: &contents,
    };
    let folder = tempdir().unwrap();
    let report =
        extract_to_folder(&fs, &root, &folder.path().join("out"), &extract, &Work::default()).unwrap();
    let tar = extract_to_tar(&fs, &root, &mut io::sink(), &extract, &Work::default()).unwrap();
    for failure in report.failures.iter().chain(&tar.failures) {
        println!("{failure}");
    }
}

#[test]
#[ignore = "the other test runs it, with a limit of memory"]
fn child_of_the_other_test() {
    let work = std::env::var(VARIABLE).expect(VARIABLE);
    let words: Vec<&str> = work.split(' ').collect();
    let [path, first, count] = words[..] else { panic!("{VARIABLE}: {work}") };
    let image = Image::new(fixture(path));
    let sound = Arc::new(MemoryDevice::new(image.bytes.clone()));
    let first: u64 = first.parse().unwrap();
    let folder = tempdir().unwrap();
    for seed in first..first + count.parse::<u64>().unwrap() {
        // A panic's or a killed process's case is the last one printed.
        println!("case {seed}");
        let mut rng = Rng::new(seed);
        let inner = Overlay::new(sound.clone());
        for (offset, bytes) in image.mutation(&mut rng).writes {
            inner.write_at(&bytes, offset as u64).unwrap();
        }
        let device = Arc::new(Counting { inner, read: AtomicU64::new(0) });
        exercise(&device, &mut rng, &folder.path().join("out"));
        let (read, most) = (device.read.load(Ordering::Relaxed), 64 * device.size() + (256 << 20));
        assert!(read < most, "case {seed} read {read} bytes");
    }
}

/// A device that counts what is read.
struct Counting {
    inner: Overlay<Arc<MemoryDevice>>,
    read: AtomicU64,
}

impl BlockDevice for Counting {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.inner)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate_blockdev::Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> casemate_blockdev::Result<()> {
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> casemate_blockdev::Result<()> {
        Ok(())
    }
}

/// Does everything with an image that can be done.
fn exercise(device: &Arc<Counting>, rng: &mut Rng, folder: &Path) {
    let options = OpenOptions {
        verify_checksums: rng.below(4) > 0,
        replay_journal: rng.below(8) > 0,
        ..OpenOptions::default()
    };
    let checking = CheckOptions { open: options.clone(), ..CheckOptions::default() };
    let _ = check(device.clone(), &checking, &Work::default());
    let Ok(fs) = Ext4::open(device.clone(), &options) else { return };
    if let Ok(root) = fs.root() {
        walk(&fs, root);
    }
    let found = fs.deleted_files(&NoEvents).unwrap();
    for file in found.files.iter().take(100) {
        assert!(
            file.blocks.all <= fs.layout().blocks && file.paths.iter().all(|path| path.starts_with(b"/"))
        );
        let _ =
            file.open().map(|contents| contents.read_at(&mut vec![0; contents.size().min(5000) as usize], 0));
        let _ = file.symlink_target();
    }
    let found = fs.unreachable_inodes(&NoEvents).unwrap();
    assert!(found.tops.iter().all(|inode| inode.links() > 0));
    for number in (0..40).chain([u32::MAX]) {
        if let Some(Ok(inode)) = InodeNo::new(number).map(|number| fs.inode(number)) {
            let _ = read_file(&fs, &inode);
        }
    }
    let contents = Limited { left: AtomicU64::new(64 << 20) };
    let extract = ExtractOptions {
        owners: false,
        xattrs: true,
        overwrite: false,
        kept: &[],
        selection: None,
        contents: &contents,
    };
    let Ok(root) = fs.root() else { return };
    let _ = extract_to_tar(&fs, &root, &mut io::sink(), &extract, &Work::default());
    if rng.below(8) == 0 {
        contents.left.store(16 << 20, Ordering::Relaxed);
        let _ = extract_to_folder(&fs, &root, folder, &extract, &Work::default());
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// Contents up to a sum: what a hostile image can claim to hold has no end, and writing it all is what it asks for.
struct Limited {
    left: AtomicU64,
}

impl Contents for Limited {
    fn open(&self, fs: &Ext4, inode: &Inode) -> Result<Box<dyn BlockDevice>> {
        let file = fs.open_file(inode)?;
        let (size, mut at, mut data) = (file.size(), 0, 0);
        while let Some(range) = file.next_data(at)? {
            data += range.end - range.start;
            at = range.end;
        }
        assert!(data <= size);
        let left = |left: u64| left.checked_sub(data + 4096);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) {
            Ok(_) => Ok(Box::new(file)),
            Err(_) => Err(Error::unsupported("too much")),
        }
    }
}

fn walk(fs: &Ext4, root: Inode) {
    let mut seen = SeenDirectories::new();
    let mut stack = vec![(Vec::new(), root)];
    while let Some((path, dir)) = stack.pop() {
        if seen.enter(fs, &path, &dir).is_err() {
            continue;
        }
        let entries: Vec<DirEntry> = fs.read_dir(&dir).unwrap_or_default();
        for entry in entries.iter().take(4) {
            let _ = fs.lookup(&dir, &entry.name);
            let _ = fs.lookup_indexed(&dir, &entry.name);
            let _ = fs.resolve(&[&path[..], &entry.name].concat(), true);
        }
        let _ = fs.lookup(&dir, b"not there");
        for entry in entries {
            let Ok(inode) = fs.inode(entry.inode) else { continue };
            if inode.is_dir() {
                let path = [&path[..], &entry.name, b"/"].concat();
                stack.push((path, inode));
            } else {
                let _ = read_file(fs, &inode);
            }
        }
    }
}

fn read_file(fs: &Ext4, inode: &Inode) -> Result<()> {
    let _ = (inode.accessed(), inode.created(), inode.device(), inode.sectors(fs.layout().block_size));
    let _ = (fs.xattrs(inode), fs.encrypted(inode), fs.symlink_target(inode), fs.verity(inode));
    let file = fs.open_file(inode)?;
    let mut buffer = vec![0; 1 << 16];
    for at in [0, 1000, file.size() / 2, file.size().saturating_sub(5000)] {
        let len = file.size().saturating_sub(at).min(buffer.len() as u64);
        file.read_at(&mut buffer[..len as usize], at)?;
    }
    Ok(())
}
