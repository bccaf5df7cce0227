//! Changes that are larger than the journal: done in steps, and a crash between them loses nothing.

mod common;

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use casemate_blockdev::{BlockDevice, FileDevice};
use casemate_ext4::{Error, Ext4, NewNode, OpenOptions, PutOptions, WriteOptions, Writer};
use casemate_providers::Work;
use casemate_testkit::{Rng, TempDir, run, run_any, slow_tests, tempdir, tool};
use common::assert_sound;
use common::kernel::on_mounted;

/// Many groups, whose bitmaps are more blocks than the journal has.
const OPTIONS: [&str; 2] = [
    "-t ext4 -b 1024 -g 256 -N 1200 -O ^resize_inode,^flex_bg,quota -J size=1",
    "-t ext3 -b 1024 -g 256 -N 1200 -O ^resize_inode -J size=1",
];
const SIZE: &str = "300M";
const LARGE: u64 = 220 << 20;

/// Pieces of a sparse file.
const PIECES: u64 = 1200;

struct Image {
    folder: TempDir,
    e2fsck: PathBuf,
}

impl Image {
    fn new(options: &str, size: &str) -> Option<Image> {
        let (mke2fs, e2fsck) = (tool("mke2fs")?, tool("e2fsck")?);
        // Images of many pieces are slow to remove from a disk.
        let folder = TempDir::new_in("/dev/shm").or_else(|_| tempdir()).unwrap();
        let image = Image { folder, e2fsck };
        run(Command::new(mke2fs).args(["-q", "-F"]).args(options.split(' ')).arg(image.path()).arg(size));
        let mut writer = writer(image.device(&image.path(), i64::MAX));
        let node = NewNode::new(0o644);
        writer.make_file(b"/other", &node).unwrap();
        writer.allocate_file(b"/other", 100_000).unwrap();
        writer.make_file(b"/large", &node).unwrap();
        writer.commit().unwrap();
        Some(image)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// The image at `path`, or a copy of it, until so many writes were made.
    fn device(&self, path: &Path, writes: i64) -> Arc<Crashing> {
        Arc::new(Crashing { below: FileDevice::open_writable(path).unwrap(), left: writes.into() })
    }

    fn fs(path: &Path) -> Ext4 {
        Ext4::open(Arc::new(FileDevice::open(path).unwrap()), &OpenOptions::default()).unwrap()
    }

    fn free(&self) -> (u64, u32) {
        let fs = Image::fs(&self.path());
        (fs.superblock().blocks_free, fs.superblock().inodes_free)
    }
}

fn writer(device: Arc<dyn BlockDevice>) -> Writer {
    Writer::open(device, WriteOptions { seed: Some(4), ..WriteOptions::default() }).unwrap()
}

fn size_of(fs: &Ext4, path: &[u8]) -> Option<u64> {
    fs.resolve(path, true).ok().map(|inode| inode.size())
}

#[test]
fn changes_larger_than_the_journal_are_done_in_steps() {
    for options in OPTIONS {
        in_steps(options);
    }
}

fn in_steps(options: &str) {
    let Some(image) = Image::new(options, SIZE) else { return };
    let before = image.free();
    let mut writer = writer(image.device(&image.path(), i64::MAX));
    writer.allocate_file(b"/large", LARGE).unwrap();
    writer.commit().unwrap();
    assert_sound(&image.path(), "allocated");
    assert_eq!(size_of(writer.fs(), b"/large"), Some(LARGE));
    assert!(image.free().0 + (LARGE >> 10) <= before.0);
    // What there is no room for changes nothing.
    let full = writer.allocate_file(b"/large", 2 * LARGE);
    assert!(full.as_ref().is_err_and(|error| error.io_kind() == Some(std::io::ErrorKind::StorageFull)));
    writer.commit().unwrap();
    assert_eq!(size_of(writer.fs(), b"/large"), Some(LARGE));
    writer.truncate(b"/large", 5000).unwrap();
    writer.commit().unwrap();
    assert_sound(&image.path(), "cut");
    writer.allocate_file(b"/large", LARGE).unwrap();
    writer.remove(b"/large").unwrap();
    writer.commit().unwrap();
    assert_sound(&image.path(), "removed");
    assert_eq!(image.free(), (before.0, before.1 + 1));
}

/// The sparse file has all its pieces.
fn assert_pieces(fs: &Ext4, what: &str) {
    let file = fs.open_file(&fs.resolve(b"/large", true).unwrap()).unwrap();
    for number in 0..PIECES {
        let mut bytes = [0; 1024];
        file.read_at(&mut bytes, number << 18).unwrap();
        assert!(bytes == [number as u8 | 1; 1024], "{what}: piece {number}");
    }
}

/// Passes writes on until it is told to stop: then nothing is written any more, as after a crash.
struct Crashing {
    below: FileDevice,
    left: AtomicI64,
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
        // Zeros for blocks that were never used are there already, and cost only time.
        if buf.len() > 1 << 16 && buf.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        if self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return Err(std::io::Error::other("crashed").into());
        }
        self.below.write_at(buf, offset)
    }
    fn flush(&self) -> casemate_blockdev::Result<()> {
        Ok(())
    }
}

#[test]
fn a_crash_between_steps_loses_nothing() {
    let points = if slow_tests() { 60 } else { 3 };
    for options in OPTIONS {
        crash(options, points);
    }
}

fn crash(options: &str, points: usize) {
    let Some(image) = Image::new(options, SIZE) else { return };
    let copy = image.folder.path().join("copy");
    let mut rng = Rng::new(5);
    // Blocks far from each other: without extents each has a block of numbers for itself.
    let source = image.folder.path().join("source");
    let file = std::fs::File::create(&source).unwrap();
    for number in 0..PIECES {
        file.write_all_at(&[number as u8 | 1; 1024], number << 18).unwrap();
    }
    let sparse = Some(file.metadata().unwrap().len());
    let put = move |writer: &mut Writer| {
        let mut options = PutOptions::default();
        options.owner = Some((0, 0));
        options.xattrs = false;
        writer.put(&source, b"/large", &options, &Work::default()).map(|_| ())
    };
    type Change<'a> = (&'a str, &'a dyn Fn(&mut Writer) -> Result<(), Error>, &'a [Option<u64>]);
    let changes: [Change<'_>; 6] = [
        ("put", &put, &[Some(0), sparse]),
        ("clear", &|writer| writer.truncate(b"/large", 0), &[sparse, Some(1024), Some(0)]),
        ("grow", &|writer| writer.allocate_file(b"/large", LARGE), &[Some(0), Some(LARGE)]),
        ("cut", &|writer| writer.truncate(b"/large", LARGE / 9), &[Some(LARGE), Some(LARGE / 9)]),
        ("empty", &|writer| writer.truncate(b"/large", 0), &[Some(LARGE), Some(1024), Some(0)]),
        ("remove", &|writer| writer.remove(b"/large"), &[Some(LARGE), None]),
    ];
    for (what, change, outcomes) in changes {
        let what = format!("{options}: {what}");
        if outcomes[0] == Some(LARGE) {
            let mut writer = writer(image.device(&image.path(), i64::MAX));
            writer.allocate_file(b"/large", LARGE).unwrap();
            writer.commit().unwrap();
        }
        let attempt = |left: i64, path: &Path| {
            run(Command::new("cp").arg("--sparse=always").arg(image.path()).arg(path));
            let device = image.device(path, left);
            let mut writer = writer(device.clone());
            let result = change(&mut writer).and_then(|()| writer.commit());
            (result.is_ok(), left - device.left.load(Ordering::Relaxed))
        };
        let (whole, total) = attempt(i64::MAX / 2, &copy);
        // Each transaction marks the file system and its journal, and unmarks them.
        assert!(whole && total > 10, "{what}: {total} writes");
        for point in 0..points {
            let left = 1 + rng.below(total as u64 - 1) as i64;
            if attempt(left, &copy).0 {
                // Contents are written by several threads, and in as many pieces as it happens.
                continue;
            }
            let what = format!("{what} stopped at write {left} of {total}");
            // Quotas, as one of the images has them, are more than some kernels know.
            if point % 3 == 2 && options.contains("ext3") {
                if on_mounted(&copy, "rw", "ls").is_none() {
                    return;
                }
            } else if point % 3 == 0 {
                let output = run_any(Command::new(&image.e2fsck).arg("-fp").arg(&copy));
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(matches!(output.status.code(), Some(0 | 1)), "{what}: {text}");
                assert!(!text.contains("UNEXPECTED"), "{what}: {text}");
            } else {
                drop(writer(image.device(&copy, i64::MAX)));
            }
            assert_sound(&copy, &what);
            let fs = Image::fs(&copy);
            assert!(outcomes.contains(&size_of(&fs, b"/large")), "{what}: {:?}", size_of(&fs, b"/large"));
            assert_eq!(size_of(&fs, b"/other"), Some(100_000), "{what}");
            if size_of(&fs, b"/large") == sparse {
                assert_pieces(&fs, &what);
            }
        }
        let mut writer = writer(image.device(&image.path(), i64::MAX));
        change(&mut writer).unwrap();
        writer.commit().unwrap();
    }
}

/// As many bytes, and then a failure, as of a pipe whose other end is gone.
struct Broken(usize);

impl Read for Broken {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let len = buffer.len().min(self.0);
        self.0 -= len;
        buffer[..len].fill(7);
        if len > 0 { Ok(len) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
    }
}

#[test]
fn a_stream_that_breaks_off_leaves_nothing() {
    for options in OPTIONS {
        let Some(image) = Image::new(options, "64M") else { return };
        let before = image.free();
        let mut writer = writer(image.device(&image.path(), i64::MAX));
        let mut from = Broken(30 << 20);
        let options = PutOptions::new();
        let put = writer.put_contents(&mut from, Path::new("-"), b"/streamed", &options, &Work::default());
        assert_eq!(put.unwrap_err().io_kind(), Some(std::io::ErrorKind::BrokenPipe));
        // Who hears of an error commits nothing.
        drop(writer);
        assert_sound(&image.path(), "broken off");
        assert_eq!(image.free(), before);
    }
}
