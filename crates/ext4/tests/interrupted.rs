//! Changes that end in the middle: by an error, or by a loss of power that keeps some of what was not flushed.

mod common;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use casemate_blockdev::{Access, BlockDevice, FileDevice, MemoryDevice};
use casemate_ext4::{
    CheckOptions, Error, Ext4, Interrupted, NewNode, OpenOptions, PutOptions, RecoveryFile, RepairDepth,
    RepairOptions, ResizeTo, Tuning, WriteOptions, Writer, check, repair, resize,
};
use casemate_primitives::Cpu;
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::{Providers, Work};
use casemate_testkit::{Medium, TempDir, run, run_any, tempdir, tool};
use common::assert_sound;

/// Where the superblock keeps its features that a reader must know, and which of them says that the journal must be
/// replayed.
const INCOMPAT: usize = 1024 + 0x60;
const RECOVER: u8 = 4;

/// First bytes of the journal's superblock (version 2), and the place of the number of the log's first block.
const JOURNAL: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
const SEQUENCE: usize = 0x18;
const START: usize = 0x1c;

const NODE: fn() -> NewNode = || NewNode::new(0o755);

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

    fn recovery(&self) -> PathBuf {
        self.folder.path().join("redo")
    }

    fn assert_clean(&self, image: &[u8], what: &str) {
        let path = self.folder.path().join("checked");
        std::fs::write(&path, image).unwrap();
        assert_sound(&path, what);
    }
}

#[derive(Clone)]
enum Event {
    Write(u64, Vec<u8>),
    Flush,
}

/// Contents of the recovery file when something reached the device.
type Kept = Option<Vec<u8>>;

/// Notes what reaches it. From one flush on all fail.
struct Recorder {
    below: MemoryDevice,
    events: Mutex<Vec<(Event, Kept)>>,
    recovery: PathBuf,
    /// Flushes until the first one that fails.
    good_flushes: AtomicUsize,
}

impl Recorder {
    fn new(image: &[u8], good_flushes: usize) -> Arc<Recorder> {
        let below = MemoryDevice::new(image.to_vec());
        Recorder::beside(below, PathBuf::new(), good_flushes)
    }

    fn beside(below: MemoryDevice, recovery: PathBuf, good_flushes: usize) -> Arc<Recorder> {
        Arc::new(Recorder { below, events: Mutex::default(), recovery, good_flushes: good_flushes.into() })
    }

    fn note(&self, event: Event) {
        self.events.lock().unwrap().push((event, std::fs::read(&self.recovery).ok()));
    }

    fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().iter().map(|(event, _)| event.clone()).collect()
    }

    fn image(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.below.size() as usize];
        self.below.read_at(&mut bytes, 0).unwrap();
        bytes
    }
}

impl BlockDevice for Recorder {
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
        self.note(Event::Write(offset, buf.to_vec()));
        self.below.write_at(buf, offset)
    }
    fn flush(&self) -> casemate_blockdev::Result<()> {
        self.note(Event::Flush);
        let left = |left: usize| left.checked_sub(1);
        match self.good_flushes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) {
            Err(_) => Err(std::io::Error::other("injected").into()),
            Ok(_) => Ok(()),
        }
    }
}

fn writer(device: Arc<dyn BlockDevice>) -> Result<Writer, Error> {
    Writer::open(device, WriteOptions { seed: Some(4), ..WriteOptions::default() })
}

fn writer_beside(device: Arc<dyn BlockDevice>, recovery: &Path) -> Result<Writer, Error> {
    let recovery = Some(RecoveryFile::new(recovery));
    Writer::open(device, WriteOptions { recovery, seed: Some(4), ..WriteOptions::default() })
}

/// The image as readers see it with this recovery file beside it.
fn completed(image: &[u8], recovery: &Path) -> Result<Option<Arc<dyn BlockDevice>>, Error> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(image.to_vec()));
    RecoveryFile::new(recovery).over(&device, &Providers::default())
}

/// True if the change that the tests below interrupt is made; false if nothing of it is.
fn is_changed(device: Arc<dyn BlockDevice>, what: &str) -> bool {
    let report = check(device.clone(), &CheckOptions::default(), &Work::default()).unwrap();
    assert!(report.is_clean(), "{what}: {:?}", report.faults);
    let fs = Ext4::open(device, &OpenOptions::default()).unwrap();
    let is_new = fs.resolve(b"/new/99", false).is_ok();
    assert_eq!(fs.resolve(b"/old", false).is_ok(), !is_new, "{what}");
    is_new
}

/// A file system without a journal, with what the change takes away.
fn before_the_change(place: &Place, options: &str) -> Option<Vec<u8>> {
    let device = Arc::new(MemoryDevice::new(place.image(options, "8M")?));
    let mut changing = writer_beside(device.clone(), &place.recovery()).unwrap();
    changing.make_directory(b"/old", &NODE(), false).unwrap();
    changing.commit().unwrap();
    drop(changing);
    Some(Arc::into_inner(device).unwrap().into_bytes())
}

/// Makes the change and notes every write of it, with the recovery file as it was then.
fn record(before: &[u8], recovery: &Path) -> Vec<(Event, Kept)> {
    let below = MemoryDevice::new(before.to_vec());
    let device = Recorder::beside(below, recovery.to_owned(), usize::MAX);
    let mut changing = writer_beside(device.clone(), recovery).unwrap();
    changing.make_directory(b"/new", &NODE(), false).unwrap();
    for number in 0..100 {
        changing.make_directory(format!("/new/{number}").as_bytes(), &NODE(), false).unwrap();
    }
    changing.remove(b"/old").unwrap();
    changing.commit().unwrap();
    drop(changing);
    std::mem::take(&mut *device.events.lock().unwrap())
}

/// Where the change was interrupted with half of the blocks written, and the recovery file.
fn in_the_middle(before: &[u8], recovery: &Path) -> (Vec<u8>, Vec<u8>) {
    let events = record(before, recovery);
    let mut image = before.to_vec();
    let mut writes = 0;
    for (event, kept) in events {
        let (Event::Write(offset, bytes), Some(kept)) = (event, kept) else { continue };
        write(&mut image, offset, &bytes);
        writes += 1;
        // The first one is the mark.
        if writes == 3 {
            return (image, kept);
        }
    }
    panic!("three writes");
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
            let mut options = PutOptions::default();
            options.owner = Some((0, 0));
            options.xattrs = false;
            writer.put(&sparse, b"/sparse", &options, &Work::default())
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
            assert!(after.all(|event| matches!(event, Event::Flush)), "{what}: something was written");
            let device = Arc::new(MemoryDevice::new(device.image()));
            let mut changing = writer(device.clone()).unwrap();
            changing.make_directory(b"/new", &NODE(), false).unwrap();
            changing.commit().unwrap();
            drop(changing);
            place.assert_clean(&Arc::into_inner(device).unwrap().into_bytes(), &what);
        }
    }
}

/// A disk without room for one of the writes of a commit, whichever that is: when there is room again, all is made permanent
/// by the next commit, and a writer that ends before leaves the change whole or not begun.
#[test]
fn a_commit_that_finds_no_room_is_made_good_by_the_next() {
    let Some(place) = Place::new() else { return };
    for options in ["-t ext4 -b 1024", "-t ext3 -b 4096", "-t ext4 -b 1024 -O ^has_journal"] {
        let Some(before) = place.image(options, "8M") else { return };
        let (mut failed, mut refused) = (0, 0);
        for good in 0.. {
            let what = format!("{options}: {good} writes");
            let medium = Medium::new(before.clone());
            let mut changing = writer_beside(medium.clone(), &place.recovery()).unwrap();
            changing.make_directory(b"/new", &NODE(), false).unwrap();
            for number in 0..99 {
                changing.make_directory(format!("/new/{number}").as_bytes(), &NODE(), false).unwrap();
            }
            medium.fail_after(good);
            if changing.commit().is_ok() {
                break;
            }
            failed += 1;
            assert!(changing.commit().is_err(), "{what}: told again");
            // Nothing is mixed with what may count already.
            let added = changing.make_directory(b"/more", &NODE(), false);
            refused += usize::from(added.is_err());
            let found = Ext4::open(seen(&place, medium.bytes()), &OpenOptions::default()).unwrap();
            let is_new = found.resolve(b"/new", false).is_ok();
            assert!(
                is_new == found.resolve(b"/new/98", false).is_ok() && found.resolve(b"/more", false).is_err(),
                "{what}"
            );
            medium.fail_after(u64::MAX);
            if added.is_err() {
                changing.make_directory(b"/more", &NODE(), false).unwrap();
            }
            changing.make_directory(b"/later", &NODE(), false).unwrap();
            changing.commit().unwrap();
            drop(changing);
            assert!(!place.recovery().exists(), "{what}");
            place.assert_clean(&medium.bytes(), &what);
            let fs =
                Ext4::open(Arc::new(MemoryDevice::new(medium.bytes())), &OpenOptions::default()).unwrap();
            for path in ["/new/0", "/new/98", "/more", "/later"] {
                assert!(fs.resolve(path.as_bytes(), false).is_ok(), "{what}: {path}");
            }
        }
        assert!(failed > 5 && refused > 2, "{options}: {failed} {refused}");
    }
}

/// An image as readers see it with the recovery file that is beside it.
fn seen(place: &Place, image: Vec<u8>) -> Arc<dyn BlockDevice> {
    match completed(&image, &place.recovery()).unwrap() {
        Some(device) => device,
        None => Arc::new(MemoryDevice::new(image)),
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

fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// An image with a transaction in its log that counts and of which nothing is in its place yet, without the mark that says so.
/// Also the place of the journal.
fn untold(place: &Place, features: &str) -> Option<(Vec<u8>, usize)> {
    let before = place.image(&format!("-t ext4 -b 1024 -O {features}"), "16M")?;
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
    Some((image, journal))
}

#[test]
fn a_log_that_need_not_be_replayed_is_emptied_before_it_is_used() {
    let Some(place) = Place::new() else { return };
    let Some((mut image, journal)) = untold(&place, "^metadata_csum") else { return };
    // Its transaction is none any more.
    let first = journal + 1024 * be32(&image, journal + START) as usize;
    image[first..first + 12].fill(0);
    let sequence = be32(&image, journal + SEQUENCE);
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

#[test]
fn a_log_that_nothing_tells_of_is_never_dropped() {
    let Some(place) = Place::new() else { return };
    let Some((image, _)) = untold(&place, "^metadata_csum") else { return };
    let fs = Ext4::open(Arc::new(MemoryDevice::new(image.clone())), &OpenOptions::default()).unwrap();
    assert_eq!(fs.recovery().transactions, 0);
    assert!(fs.resolve(b"/a", false).is_err());
    let mend = |image: &[u8], depth| {
        let device = Arc::new(MemoryDevice::new(image.to_vec()));
        let options = RepairOptions { depth, ..RepairOptions::default() };
        let repaired = repair(device.clone(), options, &mut |_, _| Ok(true), &Work::default());
        (repaired, bytes_of(&*device))
    };
    let device = Recorder::new(&image, usize::MAX);
    let Err(refused) = writer(device.clone()) else { panic!("a log is dropped") };
    assert!(refused.to_string().contains("does not say"), "{refused}");
    assert!(device.image() == image);
    let (refused, after) = mend(&image, RepairDepth::Safe);
    assert!(refused.unwrap_err().to_string().contains("does not say") && after == image);
    let (repaired, after) = mend(&image, RepairDepth::All);
    let repaired = repaired.unwrap();
    assert!(repaired.mended.iter().any(|finding| finding.kind().name() == "journal-feature"), "{repaired:?}");
    place.assert_clean(&after, "replayed");
    let fs = Ext4::open(Arc::new(MemoryDevice::new(after)), &OpenOptions::default()).unwrap();
    assert!(fs.resolve(b"/a", false).is_ok());
    // A superblock that is made again of a copy, none of which tells of the log.
    let mut lost = image;
    lost[1024..2048].fill(0);
    for depth in [RepairDepth::Safe, RepairDepth::All] {
        let (repaired, after) = mend(&lost, depth);
        repaired.unwrap();
        let fs = Ext4::open(Arc::new(MemoryDevice::new(after)), &OpenOptions::default()).unwrap();
        assert!(fs.resolve(b"/a", false).is_ok(), "{depth:?}");
    }
}

/// Damage beside a log that must be replayed: what cannot be replayed goes, and the rest is mended.
#[test]
fn damage_beside_a_log_is_mended() {
    let Some(place) = Place::new() else { return };
    let Some((mut image, journal)) = untold(&place, "metadata_csum") else { return };
    image[INCOMPAT] |= RECOVER;
    let table = 1024 * u32::from_le_bytes(image[2048 + 8..2048 + 12].try_into().unwrap()) as usize;
    let inode = table + 7 * 256;
    // What is damaged, and whether all of the log can be replayed all the same.
    let cases: [(&str, usize, &[u8], bool); 8] = [
        ("checksum of descriptor 0", 2048 + 30, &[0x12, 0x77], true),
        ("inode table of group 0", 2048 + 8, &[0; 4], true),
        ("magic of the journal", journal, &[0; 4], false),
        ("size of the journal", journal + 0x10, &[0, 0x7f, 0, 0], false),
        ("first block of the log", journal + 0x14, &[0; 4], false),
        ("mode of inode 8", inode, &[0; 2], true),
        ("map of inode 8", inode + 40, &[0; 60], true),
        ("links of inode 8", inode + 26, &[0; 2], true),
    ];
    for (what, at, bytes, is_kept) in cases {
        let mut damaged = image.clone();
        write(&mut damaged, at as u64, bytes);
        let device = Arc::new(MemoryDevice::new(damaged));
        let recovery = Some(RecoveryFile::new(place.recovery()));
        let options = RepairOptions { depth: RepairDepth::All, recovery, ..RepairOptions::default() };
        let repaired = repair(device.clone(), options, &mut |_, _| Ok(true), &Work::default());
        let repaired = repaired.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(repaired.report.is_clean(), "{what}: {:?}", repaired.report.faults);
        assert!(!repaired.mended.is_empty(), "{what}");
        let after = bytes_of(&*device);
        place.assert_clean(&after, what);
        let fs = Ext4::open(Arc::new(MemoryDevice::new(after)), &OpenOptions::default()).unwrap();
        assert!(fs.superblock().compat.has(casemate_ext4::Compat::HAS_JOURNAL), "{what}");
        assert!(fs.resolve(b"/a", false).is_ok() || !is_kept, "{what}");
    }
}

/// `s_state`, whose lowest bit says that the file system is clean.
const STATE: usize = 1024 + 0x3a;

#[test]
fn a_change_beside_the_image_is_there_or_not_after_any_loss_of_power() {
    let Some(place) = Place::new() else { return };
    let recovery = place.recovery();
    for options in ["-t ext4 -b 1024 -O ^has_journal", "-t ext4 -b 4096 -O ^has_journal"] {
        let Some(before) = before_the_change(&place, options) else { return };
        let events = record(&before, &recovery);
        let (mut durable, mut pending) = (before, Vec::<(u64, Vec<u8>)>::new());
        let mut seen = [0; 3];
        let mut look = |image: &[u8], kept: &Kept, number: usize| {
            let what = format!("{options}: at {number}");
            match kept {
                Some(kept) => std::fs::write(&recovery, kept).unwrap(),
                None => drop(std::fs::remove_file(&recovery)),
            }
            let shown = completed(image, &recovery).unwrap();
            // What is not clean must not be read as it is.
            assert_eq!(shown.is_some(), image[STATE] & 1 == 0, "{what}");
            let expected = if shown.is_some() {
                Interrupted::Completed
            } else if kept.is_some() {
                Interrupted::Dropped
            } else {
                Interrupted::Nothing
            };
            let shown = shown.unwrap_or_else(|| Arc::new(MemoryDevice::new(image.to_vec())));
            let is_new = is_changed(shown, &what);
            let device = Arc::new(MemoryDevice::new(image.to_vec()));
            let opened =
                writer_beside(device.clone(), &recovery).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(opened.interrupted(), expected, "{what}");
            drop(opened);
            assert!(!recovery.exists(), "{what}");
            assert_eq!(is_changed(device.clone(), &what), is_new, "{what}");
            if number.is_multiple_of(16) {
                place.assert_clean(&Arc::into_inner(device).unwrap().into_bytes(), &what);
            }
            seen[expected as usize] += 1;
        };
        for (number, (event, kept)) in events.iter().enumerate() {
            look(&durable, kept, number);
            match event {
                Event::Flush => {
                    for (offset, bytes) in pending.drain(..) {
                        write(&mut durable, offset, &bytes);
                    }
                }
                Event::Write(offset, bytes) => {
                    // Of what was not flushed only this one got there, and only its beginning; superblocks are written
                    // whole.
                    let cut = if bytes.len() > 4096 { bytes.len() / 2 + 512 } else { bytes.len() };
                    let mut image = durable.clone();
                    write(&mut image, *offset, &bytes[..cut]);
                    look(&image, kept, number);
                    pending.push((*offset, bytes.clone()));
                }
            }
        }
        assert!(seen.iter().all(|count| *count > 0), "{options}: {seen:?}");
    }
}

#[test]
fn what_is_completed_before_a_repair_is_not_undone_with_it() {
    let (Some(place), Some(e2undo)) = (Place::new(), tool("e2undo")) else { return };
    let Some(before) = before_the_change(&place, "-t ext2 -b 1024") else { return };
    let (half, kept) = in_the_middle(&before, &place.recovery());
    let (image, undo) = (place.folder.path().join("half"), place.folder.path().join("undo"));
    std::fs::write(&image, &half).unwrap();
    std::fs::write(place.recovery(), &kept).unwrap();
    let recovery = Some(RecoveryFile::new(place.recovery()));
    let options = RepairOptions {
        depth: RepairDepth::All,
        recovery,
        undo: Some(undo.clone().into()),
        ..Default::default()
    };
    let device = Arc::new(FileDevice::open_writable(&image).unwrap());
    repair(device, options, &mut |_, _| Ok(true), &Work::default()).unwrap();
    assert!(!place.recovery().exists());
    if undo.exists() {
        run(Command::new(e2undo).arg(&undo).arg(&image));
    }
    let bytes = std::fs::read(&image).unwrap();
    assert!(is_changed(Arc::new(MemoryDevice::new(bytes)), "put back"));
}

#[test]
fn a_change_is_found_by_every_name_of_the_image() {
    let Some(place) = Place::new() else { return };
    let Some(before) = before_the_change(&place, "-t ext4 -b 1024 -O ^has_journal") else { return };
    let path = |name: &str| place.folder.path().join(name);
    std::fs::write(path("image"), &before).unwrap();
    std::fs::hard_link(path("image"), path("other")).unwrap();
    let medium = |name: &str| casemate_blockdev::Medium::open(path(name), Access::ReadUnlocked).unwrap();
    let noted = |name: &str| RecoveryFile::new(path(&format!("{name}.redo"))).noted_on(medium(name));
    medium("image").set_recovery_path(Path::new("/nowhere")).unwrap();
    if medium("other").recovery_path().unwrap().is_none() {
        return casemate_testkit::skip("no extended attributes here");
    }
    // Without a meaning where the file system is clean.
    assert!(noted("other").over(&medium("other").device(), &Providers::default()).unwrap().is_none());
    let mut pending = 0;
    for good in 0.. {
        std::fs::write(path("image"), &before).unwrap();
        let device = Recorder::new(&before, good);
        let options = |name: &str| WriteOptions { recovery: Some(noted(name)), ..WriteOptions::default() };
        let change = || {
            let mut changing = Writer::open(device.clone(), options("image"))?;
            changing.make_directory(b"/new", &NODE(), false)?;
            for number in 0..100 {
                changing.make_directory(format!("/new/{number}").as_bytes(), &NODE(), false)?;
            }
            changing.remove(b"/old")?;
            changing.commit()
        };
        let changed = change();
        std::fs::write(path("image"), device.image()).unwrap();
        if changed.is_ok() {
            assert_eq!(medium("image").recovery_path().unwrap(), None);
            break;
        }
        if !path("image.redo").exists() {
            continue;
        }
        let what = format!("flush {good} fails");
        let shown = noted("other").over(&medium("other").device(), &Providers::default()).unwrap();
        let is_clean = device.image()[STATE] & 1 == 1;
        assert_eq!(shown.is_none(), is_clean, "{what}");
        if let Some(shown) = shown {
            let is_new = is_changed(shown, &what);
            let changing = Access::Change.open(&path("other")).unwrap();
            let opened = Writer::open(Arc::new(changing), options("other")).unwrap();
            assert_eq!(opened.interrupted(), Interrupted::Completed, "{what}");
            drop(opened);
            assert_eq!(is_changed(medium("image").device(), &what), is_new, "{what}");
            assert_eq!(medium("image").recovery_path().unwrap(), None, "{what}");
            // It may be that of the image that this one is a copy of.
            assert!(path("image.redo").exists(), "{what}");
            pending += 1;
        }
        std::fs::remove_file(path("image.redo")).unwrap();
    }
    assert!(pending > 0);
    // The rest of a change that is not there is not done without.
    std::fs::write(path("image"), in_the_middle(&before, &place.recovery()).0).unwrap();
    medium("image").set_recovery_path(Path::new("/nowhere")).unwrap();
    let shown = noted("other").over(&medium("other").device(), &Providers::default());
    let error = shown.map(drop).unwrap_err();
    assert!(error.to_string().contains("/nowhere"), "{error}");
}

#[test]
fn a_change_is_not_completed_on_an_image_that_others_changed() {
    let Some(place) = Place::new() else { return };
    let recovery = place.recovery();
    let Some(before) = before_the_change(&place, "-t ext2 -b 1024") else { return };
    let other = |image: Vec<u8>| {
        let device = Arc::new(MemoryDevice::new(image));
        let mut changing = writer_beside(device.clone(), &place.folder.path().join("elsewhere")).unwrap();
        changing.make_directory(b"/other", &NODE(), false).unwrap();
        changing.commit().unwrap();
        drop(changing);
        Arc::into_inner(device).unwrap().into_bytes()
    };
    // The file has its name and the image is not marked yet, or was repaired by e2fsck.
    let (middle, kept) = in_the_middle(&before, &recovery);
    let path = place.folder.path().join("repaired");
    std::fs::write(&path, &middle).unwrap();
    run_any(Command::new(&place.e2fsck).arg("-fy").arg(&path));
    let repaired = std::fs::read(&path).unwrap();
    for image in [other(before.clone()), other(repaired.clone())] {
        place.assert_clean(&image, "changed by others");
        std::fs::write(&recovery, &kept).unwrap();
        assert!(completed(&image, &recovery).unwrap().is_none());
        let device = Arc::new(MemoryDevice::new(image));
        let opened = writer_beside(device.clone(), &recovery).unwrap();
        assert_eq!(opened.interrupted(), Interrupted::Dropped);
        assert!(opened.fs().resolve(b"/other", false).is_ok());
        drop(opened);
        assert!(!recovery.exists());
        place.assert_clean(&Arc::into_inner(device).unwrap().into_bytes(), "the file dropped");
    }
    // Somebody else was interrupted too, so the image is not clean.
    for image in [other(before), other(repaired)] {
        let mut image = image;
        image[STATE] &= !1;
        std::fs::write(&recovery, &kept).unwrap();
        let device = Recorder::new(&image, usize::MAX);
        for error in [completed(&image, &recovery).err(), writer_beside(device.clone(), &recovery).err()] {
            let text = error.unwrap().to_string();
            assert!(text.contains("was changed since; run e2fsck"), "{text}");
        }
        assert!(device.events().is_empty() && recovery.exists());
    }
}

#[test]
fn a_recovery_file_that_makes_no_sense_is_refused_before_anything_is_written() {
    let Some(place) = Place::new() else { return };
    let recovery = place.recovery();
    let Some(before) = before_the_change(&place, "-t ext2 -b 1024") else { return };
    let (image, kept) = in_the_middle(&before, &recovery);
    let record = 8 + 4 * (1024 / 512) + 1024;
    let blocks = (image.len() / 1024) as u64;
    let last = kept.len() - record;
    let put = |at: usize, bytes: &[u8]| {
        let mut kept = kept.clone();
        kept[at..at + bytes.len()].copy_from_slice(bytes);
        let crc = Crc32c::new(Cpu::detect());
        let sum = crc.update(crc.update(!0, &kept[..44]), &kept[48..]);
        kept[44..48].copy_from_slice(&sum.to_le_bytes());
        kept
    };
    let mut flipped = kept.clone();
    flipped[last + 500] ^= 1;
    let nothing = [&kept[..32], &[0; 12], &kept[44..48]].concat();
    let cases: [(&str, Vec<u8>, &str); 12] = [
        ("empty", Vec::new(), "not a file of an interrupted change"),
        ("a header cut short", kept[..40].to_vec(), "not a file of an interrupted change"),
        ("another version", put(14, b"1"), "another version"),
        ("no block size and no blocks", nothing, "damaged"),
        ("no block size", put(32, &[0; 4]), "damaged"),
        ("another block size", put(32, &4096u32.to_le_bytes()), "damaged"),
        ("too many blocks", put(36, &u64::MAX.to_le_bytes()), "damaged"),
        ("cut short", kept[..kept.len() - 1].to_vec(), "damaged"),
        ("a block behind the image", put(last, &(1u64 << 30).to_le_bytes()), "damaged"),
        ("the block behind the last", put(last, &blocks.to_le_bytes()), "damaged"),
        ("a block twice", put(48 + record, &kept[48..56]), "damaged"),
        ("a bit", flipped, "damaged"),
    ];
    let refused = |image: &[u8], what: &str, bytes: &[u8], text: &str| {
        std::fs::write(&recovery, bytes).unwrap();
        let device = Recorder::new(image, usize::MAX);
        for error in [completed(image, &recovery).err(), writer_beside(device.clone(), &recovery).err()] {
            let error = error.unwrap_or_else(|| panic!("{what}")).to_string();
            assert!(error.contains(text), "{what}: {error}");
        }
        assert!(device.events().is_empty(), "{what}");
    };
    for (what, bytes, text) in cases {
        refused(&image, what, &bytes, text);
    }
    let mut another = image.clone();
    another[1024 + 0x68] ^= 1;
    refused(&another, "another UUID", &kept, "another image");
    std::fs::write(&recovery, put(48, &kept[48..56])).unwrap();
    assert!(completed(&image, &recovery).unwrap().is_some());
}

/// Of a superblock that carries a mark on one sector and its checksum on the other, one was written.
#[test]
fn a_mark_that_power_tore_is_mended() {
    let Some(place) = Place::new() else { return };
    for options in ["-t ext4 -b 1024", "-t ext4 -b 4096 -O ^has_journal"] {
        let Some(whole) = place.image(options, "8M") else { return };
        for (byte, bit) in [(INCOMPAT, RECOVER), (STATE, 1)] {
            let mut torn = whole.clone();
            torn[byte] ^= bit;
            let device = Arc::new(MemoryDevice::new(torn.clone()));
            assert!(Ext4::open(device.clone(), &OpenOptions::default()).is_ok(), "{options}: {byte:#x}");
            drop(writer_beside(device.clone(), &place.recovery()).unwrap());
            assert!(Arc::into_inner(device).unwrap().into_bytes() == whole, "{options}: {byte:#x}");
            // Anything else is damage.
            torn[byte] ^= bit;
            torn[1024 + 0x78] ^= 1;
            let device = Arc::new(MemoryDevice::new(torn));
            assert!(writer_beside(device, &place.recovery()).is_err(), "{options}");
        }
    }
}

#[test]
fn no_copy_is_made_of_a_superblock_with_faults() {
    let Some(place) = Place::new() else { return };
    let Some(mut image) = place.image("-t ext4 -b 1024 -O ^metadata_csum", "24M") else { return };
    // s_log_cluster_size, another one than that of blocks without the feature bigalloc.
    image[1024 + 0x1c..][..4].fill(0xff);
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(image.clone()));
    let options = || WriteOptions {
        recovery: Some(RecoveryFile::new(place.recovery())),
        seed: Some(4),
        ..WriteOptions::default()
    };
    let mut tuning = Tuning::default();
    tuning.label = Some(b"label".to_vec());
    let error = Writer::open(device.clone(), options()).unwrap().tune(&tuning).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    for to in [ResizeTo::Bytes(16 << 20), ResizeTo::Least, ResizeTo::Bytes(24 << 20)] {
        let error = resize(device.clone(), options(), to, None, &Work::default()).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{to:?}: {error}");
    }
    assert!(bytes_of(&*device) == image);
}

#[test]
fn the_recovery_file_of_an_image_that_had_the_name_before_stays() {
    let Some(place) = Place::new() else { return };
    let recovery = place.recovery();
    let Some(before) = before_the_change(&place, "-t ext2 -b 1024") else { return };
    let (middle, kept) = in_the_middle(&before, &recovery);
    let at = |name: &str| place.folder.path().join(name);
    let medium = |name: &str| casemate_blockdev::Medium::open(at(name), Access::Change).unwrap();
    std::fs::write(at("torn"), &middle).unwrap();
    medium("torn").set_recovery_path(&recovery).unwrap();
    if medium("torn").recovery_path().unwrap().is_none() {
        return casemate_testkit::skip("no extended attributes here");
    }
    // A copy of the day before has taken the name of the image.
    std::fs::write(at("copy"), &before).unwrap();
    std::fs::write(&recovery, &kept).unwrap();
    let interrupted = |name: &str| {
        let medium = medium(name);
        let file = RecoveryFile::new(&recovery).noted_on(medium.clone());
        let options = WriteOptions { recovery: Some(file), ..WriteOptions::default() };
        Writer::open(medium.device(), options).unwrap().interrupted()
    };
    assert_eq!(interrupted("copy"), Interrupted::SetAside);
    assert!(!recovery.exists() && medium("copy").recovery_path().unwrap().is_none());
    let aside = PathBuf::from(format!("{}.1", recovery.display()));
    assert_eq!(std::fs::read(&aside).unwrap(), kept);
    // Its own image is completed from it, and needs it no more.
    assert_eq!(interrupted("torn"), Interrupted::Completed);
    assert!(aside.exists() && medium("torn").recovery_path().unwrap().is_none());
}
