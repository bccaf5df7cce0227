//! Small sound images with something of everything in them: of every row of testkit's table of features, and the
//! fixtures that kernels wrote.

use std::fs::{File, FileTimes};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use casemate_blockdev::FileDevice;
use casemate_ext4::{NewNode, PutOptions, RecoveryFile, Time, WriteOptions, Writer};
use casemate_providers::Work;
use casemate_testkit::run;

/// When everything was changed last, so that an image is the same whenever it is made.
const NOW: u64 = 1_700_000_000;
const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

/// The fixtures of this crate, and with `encrypted` those of encrypted trees, which lie with their keys.
pub fn fixtures(encrypted: bool) -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders = vec![crates.join("ext4/tests/fixtures"), crates.join("ext4/tests/fixtures/verity")];
    folders.extend(encrypted.then(|| crates.join("casemate/tests/fscrypt/fixtures")));
    let mut images = Vec::new();
    for folder in folders {
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        images.extend(paths.filter(|path| path.to_string_lossy().ends_with(".img.xz")));
    }
    images.sort();
    images
}

/// Maker of images.
pub struct Maker {
    mke2fs: PathBuf,
    debugfs: PathBuf,
    folder: PathBuf,
}

impl Maker {
    /// A maker of images in a folder of its own.
    pub fn new(mke2fs: PathBuf, debugfs: PathBuf, folder: &Path) -> Maker {
        for block in [1024, 65536] {
            make_tree(&folder.join(format!("tree{block}")), block);
        }
        Maker { mke2fs, debugfs, folder: folder.to_path_buf() }
    }

    /// Makes an image with these options of mke2fs, and fills it by this crate's writer.
    pub fn make(&self, options: &str, name: &str) -> PathBuf {
        let image = self.folder.join(name);
        let _ = std::fs::remove_file(&image);
        let words: Vec<&str> = options.split_whitespace().collect();
        let value = |flag: &str| words.iter().position(|word| *word == flag).map(|at| words[at + 1]);
        let block: usize = value("-b").unwrap_or("4096").parse().unwrap();
        let size = match block {
            1024 | 2048 => "8M",
            // Room for a journal of 1024 blocks.
            4096 => "12M",
            8192 => "20M",
            _ => "32M",
        };
        let extended = value("-E").map_or(String::new(), |extended| format!("{extended},"));
        let mut make = Command::new(&self.mke2fs);
        make.args(["-q", "-F", "-N", "448", "-U", UUID]).args(&words);
        make.args(["-E", &format!("{extended}hash_seed={UUID},root_owner=0:0")]);
        run(make.env("E2FSPROGS_FAKE_TIME", NOW.to_string()).arg(&image).arg(size));
        if options.contains("casefold") {
            self.debugfs(&image, "mkdir folded\nsif folded flags 0x40080000\n");
        }
        self.fill(&image, block, options);
        image
    }

    /// Runs commands of debugfs on an image.
    pub fn debugfs(&self, image: &Path, commands: &str) {
        let script = image.with_extension("script");
        std::fs::write(&script, commands).unwrap();
        let mut debugfs = Command::new(&self.debugfs);
        run(debugfs.env("E2FSPROGS_FAKE_TIME", NOW.to_string()).arg("-w").arg("-f").arg(script).arg(image));
    }

    fn fill(&self, image: &Path, block: usize, options: &str) {
        let time = Time { seconds: NOW.cast_signed(), nanoseconds: 0 };
        let write = WriteOptions {
            recovery: Some(RecoveryFile::new(image.with_extension("redo"))),
            time: Some(time),
            seed: Some(1),
            ..WriteOptions::default()
        };
        let device = Arc::new(FileDevice::open_writable(image).unwrap());
        let mut writer = Writer::open(device, write).unwrap_or_else(|error| panic!("{options}: {error}"));
        let mut put = PutOptions::new();
        (put.recursive, put.owner) = (true, Some((0, 0)));
        let tree = self.folder.join(format!("tree{}", if block > 8192 { 65536 } else { 1024 }));
        writer.put(&tree.join("."), b"/", &put, &Work::default()).unwrap();
        let node = NewNode::new(0o644);
        for len in [1, 59, 60, 300] {
            writer.make_symlink(format!("/link{len}").as_bytes(), &vec![b't'; len], &node).unwrap();
        }
        // Features decide which attributes have room: what has none is left out.
        for (path, name, len) in [
            ("/file", "user.small", 5),
            ("/file", "user.empty", 0),
            ("/file", "user.block", 500),
            ("/many", "user.block", 300),
            ("/pieces", "user.inode", 20),
            ("/pieces", "user.large", 5000),
            ("/file", "user.large", 5000),
        ] {
            let _ = writer.set_xattr(path.as_bytes(), name.as_bytes(), Some(&vec![7; len]), true);
        }
        if options.contains("casefold") {
            for name in ["Name", "other", "\u{c4}hnlich"] {
                writer.make_file(format!("/folded/{name}").as_bytes(), &node).unwrap();
            }
        }
        writer.make_file(b"/reserved", &node).unwrap();
        // Without extents nothing can be reserved.
        let _ = writer.allocate_file(b"/reserved", 3 * block as u64);
        writer.truncate(b"/sparse", 70 * block as u64).unwrap();
        writer.set_owner(b"/file", Some(1000), Some(70_000), false).unwrap();
        writer.commit().unwrap();
    }
}

/// A small tree of what images store in different ways.
fn make_tree(tree: &Path, block: usize) {
    let many = tree.join("many");
    std::fs::create_dir_all(&many).unwrap();
    for i in 0..150 {
        std::fs::write(many.join(format!("Name-{i}-{}", "x".repeat(i % 90))), vec![1; (i % 3) * 15]).unwrap();
    }
    std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
    std::fs::write(tree.join("a/inner"), vec![3; 100]).unwrap();
    std::fs::write(tree.join("file"), vec![5; 14 * block]).unwrap();
    let pieces = File::create(tree.join("pieces")).unwrap();
    for i in 0..if block > 1024 { 8 } else { 130 } {
        pieces.write_all_at(&vec![7; block], 2 * block as u64 * i).unwrap();
    }
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.write_all_at(b"far", 20 * block as u64).unwrap();
    symlink("many", tree.join("short")).unwrap();
    std::fs::hard_link(tree.join("pieces"), tree.join("a/hard")).unwrap();
    let (here, kinds) =
        (rustix::fs::CWD, [rustix::fs::FileType::Fifo, rustix::fs::FileType::CharacterDevice]);
    for (kind, name) in kinds.into_iter().zip(["fifo", "device"]) {
        // Only root may make devices; without, there is one thing less.
        let device = rustix::fs::makedev(259, 70_000);
        let _ = rustix::fs::mknodat(here, tree.join(name), kind, rustix::fs::Mode::RUSR, device);
    }
    let time = UNIX_EPOCH + Duration::from_secs(NOW);
    let times = FileTimes::new().set_accessed(time).set_modified(time);
    let mut folders = vec![tree.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_file() {
                File::open(entry.path()).unwrap().set_times(times).unwrap();
            } else if kind.is_dir() {
                folders.push(entry.path());
            }
        }
        File::open(&folder).unwrap().set_times(times).unwrap();
    }
}
