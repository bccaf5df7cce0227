//! Changes that end in the middle: by an error, or by a loss of power that keeps some of what was not flushed.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use casemate_blockdev::{BlockDevice, MemoryDevice};
use casemate_ext4::{Error, Ext4, NewNode, OpenOptions, PutOptions, WriteOptions, Writer};
use casemate_testkit::{TempDir, run, run_any, tempdir, tool};

/// Where the superblock keeps its features that a reader must know, and which of them says that the journal must be
/// replayed.
const INCOMPAT: usize = 1024 + 0x60;
const RECOVER: u8 = 4;

/// What the journal's superblock begins with (version 2), and where it says in which block the log begins.
const JOURNAL: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
const SEQUENCE: usize = 0x18;
const START: usize = 0x1c;

const NODE: fn() -> NewNode = || NewNode { mode: 0o755, ..NewNode::default() };

struct Place {
    folder: TempDir,
    e2fsck: PathBuf,
}

impl Place {
    fn new() -> Option<Place> {
        Some(Place { e2fsck: tool("e2fsck")?, folder: tempdir().unwrap() })
    }

    fn image(&self, options: &str, size: &str) -> Option<Vec<u8>> {
        let path = self.folder.path().join("image");
        let mut command = Command::new(tool("mke2fs")?);
        run(command.args(["-q", "-F", "-N", "600"]).args(options.split(' ')).arg(&path).arg(size));
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        Some(bytes)
    }

    fn assert_clean(&self, image: &[u8], what: &str) {
        let path = self.folder.path().join("checked");
        std::fs::write(&path, image).unwrap();
        let output = run_any(Command::new(&self.e2fsck).arg("-fn").arg(&path));
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[derive(Clone)]
enum Event {
    Write(u64, Vec<u8>),
    Flush,
}

/// Notes what reaches it, and lets one flush fail.
struct Recorder {
    below: MemoryDevice,
    events: Mutex<Vec<Event>>,
    /// Flushes until the one that fails.
    good_flushes: AtomicUsize,
}

impl Recorder {
    fn new(image: &[u8], good_flushes: usize) -> Arc<Recorder> {
        let below = MemoryDevice::new(image.to_vec());
        Arc::new(Recorder { below, events: Mutex::default(), good_flushes: good_flushes.into() })
    }

    fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    fn image(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.below.size() as usize];
        self.below.read_at(&mut bytes, 0).unwrap();
        bytes
    }
}

impl BlockDevice for Recorder {
    fn size(&self) -> u64 {
        self.below.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.below.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> std::io::Result<()> {
        self.events.lock().unwrap().push(Event::Write(offset, buf.to_vec()));
        self.below.write_at(buf, offset)
    }
    fn flush(&self) -> std::io::Result<()> {
        self.events.lock().unwrap().push(Event::Flush);
        match self.good_flushes.fetch_sub(1, Ordering::Relaxed) {
            0 => Err(std::io::Error::other("injected")),
            _ => Ok(()),
        }
    }
}

fn writer(device: Arc<dyn BlockDevice>) -> Result<Writer, Error> {
    Writer::open(device, WriteOptions { seed: Some(4), ..WriteOptions::default() })
}

fn write(image: &mut [u8], offset: u64, bytes: &[u8]) {
    image[offset as usize..][..bytes.len()].copy_from_slice(bytes);
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Where the journal's superblock lies, as commits have written it.
fn journal_of(events: &[Event]) -> usize {
    let found = events.iter().find_map(|event| match event {
        Event::Write(offset, bytes) if bytes.len() == 1024 && bytes.starts_with(&JOURNAL) => Some(*offset),
        _ => None,
    });
    found.unwrap() as usize
}

#[test]
fn nothing_is_written_after_a_commit_that_failed() {
    let Some(place) = Place::new() else { return };
    // Pieces that each have a block of numbers for themselves: a copy of it needs many commits.
    let sparse = place.folder.path().join("sparse");
    let file = std::fs::File::create(&sparse).unwrap();
    for number in 0..3000 {
        file.write_all_at(&[number as u8 | 1; 1024], number << 18).unwrap();
    }
    for options in ["-t ext3 -b 1024 -J size=1", "-t ext4 -b 1024 -J size=1 -O ^extent,^64bit"] {
        let Some(before) = place.image(options, "16M") else { return };
        let put = |writer: &mut Writer| {
            let options = PutOptions { owner: Some((0, 0)), xattrs: false, ..PutOptions::new() };
            writer.put(&sparse, b"/sparse", &options)
        };
        let whole = Recorder::new(&before, usize::MAX);
        let mut changing = writer(whole.clone()).unwrap();
        put(&mut changing).unwrap();
        drop(changing);
        let flushes = whole.events().iter().filter(|event| matches!(event, Event::Flush)).count();
        assert!(flushes > 12, "{options}: {flushes} flushes are not many commits");
        for good in (0..flushes).step_by(3) {
            let what = format!("{options}: flush {good} of {flushes} fails");
            let device = Recorder::new(&before, good);
            let mut changing = writer(device.clone()).unwrap();
            let error = put(&mut changing).unwrap_err();
            assert!(error.to_string().contains("injected"), "{what}: {error}");
            for error in [
                changing.commit().unwrap_err(),
                changing.make_directory(b"/new", &NODE(), false).unwrap_err(),
            ] {
                assert!(error.to_string().contains("open the file system again"), "{what}: {error}");
            }
            drop(changing);
            let mut after = device.events().into_iter().skip_while({
                let mut left = good + 1;
                move |event| {
                    left -= usize::from(matches!(event, Event::Flush));
                    left > 0
                }
            });
            after.next();
            assert_eq!(after.count(), 0, "{what}");
            let device = Arc::new(MemoryDevice::new(device.image()));
            let mut changing = writer(device.clone()).unwrap();
            changing.make_directory(b"/new", &NODE(), false).unwrap();
            changing.commit().unwrap();
            drop(changing);
            place.assert_clean(&Arc::into_inner(device).unwrap().into_bytes(), &what);
        }
    }
}

#[test]
fn a_log_that_holds_something_is_always_called_so() {
    let Some(place) = Place::new() else { return };
    for options in ["-t ext4 -b 1024", "-t ext3 -b 4096"] {
        let Some(before) = place.image(options, "16M") else { return };
        let device = Recorder::new(&before, usize::MAX);
        let mut changing = writer(device.clone()).unwrap();
        for path in [b"/a", b"/b"] {
            changing.make_directory(path, &NODE(), false).unwrap();
            changing.commit().unwrap();
        }
        drop(changing);
        let events = device.events();
        let journal = journal_of(&events);
        let (mut durable, mut pending) = (before, Vec::<(u64, Vec<u8>)>::new());
        let mut states = 0;
        for event in events {
            match event {
                Event::Flush => {
                    for (offset, bytes) in pending.drain(..) {
                        write(&mut durable, offset, &bytes);
                    }
                }
                // Of what was not flushed, only this one may have got there.
                Event::Write(offset, bytes) => {
                    let mut image = durable.clone();
                    write(&mut image, offset, &bytes);
                    let is_called_so = image[INCOMPAT] & RECOVER != 0;
                    assert!(be32(&image, journal + START) == 0 || is_called_so, "{options}: {offset}");
                    states += 1;
                    pending.push((offset, bytes));
                }
            }
        }
        assert!(states > 10, "{options}: {states}");
    }
}

#[test]
fn a_log_that_need_not_be_replayed_is_emptied_before_it_is_used() {
    let Some(place) = Place::new() else { return };
    let Some(before) = place.image("-t ext4 -b 1024 -O ^metadata_csum", "16M") else { return };
    // Cut where the log counts and nothing is in its place yet; then the mark is taken away.
    let device = Recorder::new(&before, usize::MAX);
    let mut changing = writer(device.clone()).unwrap();
    changing.make_directory(b"/a", &NODE(), false).unwrap();
    changing.commit().unwrap();
    drop(changing);
    let events = device.events();
    let journal = journal_of(&events);
    let mut image = before;
    for event in events {
        if let Event::Write(offset, bytes) = event {
            write(&mut image, offset, &bytes);
        }
        if be32(&image, journal + START) != 0 {
            break;
        }
    }
    image[INCOMPAT] &= !RECOVER;
    let sequence = be32(&image, journal + SEQUENCE);
    let fs = Ext4::open(Arc::new(MemoryDevice::new(image.clone())), &OpenOptions::default()).unwrap();
    assert_eq!(fs.recovery().transactions, 0);
    assert!(fs.resolve(b"/a", false).is_err());
    let device = Recorder::new(&image, usize::MAX);
    let mut changing = writer(device.clone()).unwrap();
    let opened = device.events();
    assert!(matches!(opened.last(), Some(Event::Flush)));
    let image = device.image();
    assert_eq!(be32(&image, journal + START), 0);
    // None of the transactions that fit into the log has a number like those to come.
    assert!(be32(&image, journal + SEQUENCE) > sequence + 1000);
    changing.make_directory(b"/b", &NODE(), false).unwrap();
    changing.commit().unwrap();
    drop(changing);
    place.assert_clean(&device.image(), "used");
}
