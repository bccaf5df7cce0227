//! Devices that fail once, and whoever writes goes on.

use std::sync::{Arc, Mutex};

use casemate_blockdev::{BlockDevice, MemoryDevice};
use casemate_integrity::{FormatOptions, Superblock, format, verify};
use casemate_testkit::Rng;

use crate::{How, one_thread};

/// A device one of whose writes or flushes fails, and that is gone in the middle of a later one.
struct Failing {
    disk: MemoryDevice,
    /// How many of them succeed before, and between both.
    left: Mutex<[i64; 2]>,
    /// Whether half of the bytes are there that were being written.
    is_torn: bool,
}

impl Failing {
    fn new(start: &[u8], left: [i64; 2], is_torn: bool) -> Arc<Failing> {
        Arc::new(Failing { disk: MemoryDevice::new(start.to_vec()), left: Mutex::new(left), is_torn })
    }

    /// The bytes that are written of so many, or an error.
    fn spend(&self, len: usize) -> Result<(), usize> {
        let [left, between] = &mut *self.left.lock().unwrap();
        *left -= 1;
        *between -= i64::from(*left < -1);
        match (*left, *between) {
            (-1, _) => Err(if self.is_torn { len / 1024 * 512 } else { 0 }),
            (_, -1) => Err(len / 1024 * 512),
            (_, i64::MIN..-1) => Err(0),
            _ => Ok(()),
        }
    }
}

impl BlockDevice for Failing {
    fn below(&self) -> Option<&dyn BlockDevice> {
        None
    }
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate_integrity::Result<()> {
        self.disk.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> casemate_integrity::Result<()> {
        let done = self.spend(buf.len());
        self.disk.write_at(&buf[..done.err().unwrap_or(buf.len())], offset)?;
        done.map_err(|_| std::io::Error::other("an error").into())
    }
    fn flush(&self) -> casemate_integrity::Result<()> {
        self.spend(0).map_err(|_| std::io::Error::other("an error").into())
    }
}

/// Blocks that an error has left half written in their places are whole in the journal, and stay so until they are in their places.
#[test]
fn an_error_while_blocks_come_to_their_places_does_not_cost_the_journal() {
    let mut options = FormatOptions::new(32, [3; 16]);
    (options.journal_size, options.interleave_sectors) = (Some(40 << 10), 64);
    options.block_size = 4096;
    let disk = Arc::new(MemoryDevice::new(vec![0; 400 << 10]));
    let superblock = Superblock::new(disk.size(), &options).unwrap();
    // What is written next is written over what was written last.
    assert_eq!(superblock.journal_sections, 1);
    format(&disk, &superblock, &How::Plain.tagger(&superblock).unwrap(), None, &one_thread()).unwrap();
    let volume = How::Plain.open(Arc::clone(&disk)).unwrap();
    let model = Rng::new(6).bytes(volume.size() as usize);
    volume.write_at(&model, 0).unwrap();
    drop(volume);
    let mut start = vec![0; disk.size() as usize];
    disk.read_at(&mut start, 0).unwrap();
    let mut torn = 0;
    for (left, between, is_torn) in (0..20).flat_map(|left| {
        (0..8).flat_map(move |between| [false, true].map(|is_torn| (left, between, is_torn)))
    }) {
        let failing = Failing::new(&start, [i64::MAX; 2], is_torn);
        let volume = How::Plain.open(Arc::clone(&failing)).unwrap();
        // The journal is emptied before the first write.
        volume.write_at(&[9; 100], 4096).unwrap();
        *failing.left.lock().unwrap() = [left, between];
        for _ in 0..3 {
            // A part of each block, whose rest was there before.
            for block in [1, 2, 30] {
                let _ = volume.write_at(&[9; 100], block * 4096);
            }
            let _ = volume.flush();
        }
        torn += i32::from(failing.left.lock().unwrap()[1] < 0);
        drop(volume);
        let mut bytes = vec![0; start.len()];
        failing.read_at(&mut bytes, 0).unwrap();
        let after = How::Plain.open(MemoryDevice::new(bytes)).unwrap();
        let mut found = vec![0; model.len()];
        after.read_at(&mut found, 0).unwrap_or_else(|error| panic!("{left} {between} {is_torn}: {error}"));
        for (at, (found, model)) in found.chunks(4096).zip(model.chunks(4096)).enumerate() {
            assert!(found[100..] == model[100..], "{left} {between} {is_torn}: block {at}");
            let is_new = [1, 2, 30].contains(&at) && found[..100] == [9; 100];
            assert!(is_new || found == model, "{left} {between} {is_torn}: block {at}");
        }
    }
    assert!(torn > 100, "{torn}");
}

/// Writes after an error, as those of servers and file systems, harm nothing of what was there before.
#[test]
fn an_error_while_a_journal_is_emptied_harms_no_later_write() {
    for (how, has_code) in [(How::Plain, false), (How::Bitmap, false), (How::Sealed("ctr-aes"), true)] {
        let mut options = FormatOptions::new(32, [3; 16]);
        (options.journal_size, options.interleave_sectors) = (Some(120 << 10), 64);
        options.has_journal_code = has_code;
        let disk = MemoryDevice::new(vec![0; 400 << 10]);
        let superblock = Superblock::new(disk.size(), &options).unwrap();
        format(&disk, &superblock, &how.tagger(&superblock).unwrap(), None, &one_thread()).unwrap();
        // The journal has blocks of an earlier session.
        let before = match how {
            How::Bitmap => How::Plain,
            how => how,
        };
        let disk = Arc::new(disk);
        let volume = before.open(Arc::clone(&disk)).unwrap();
        let mut model = Rng::new(4).bytes(volume.size() as usize);
        volume.write_at(&model, 0).unwrap();
        drop(volume);
        let mut start = vec![0; disk.size() as usize];
        disk.read_at(&mut start, 0).unwrap();
        model[512..1536].fill(9);
        for left in 0.. {
            let failing = Failing::new(&start, [left, i64::MAX], false);
            let volume = how.open(Arc::clone(&failing)).unwrap();
            let mut errors = 0;
            for _ in 0..3 {
                errors += i32::from(volume.write_at(&[9; 1024], 512).is_err());
                errors += i32::from(volume.flush().is_err());
            }
            drop(volume);
            let mut bytes = vec![0; start.len()];
            failing.read_at(&mut bytes, 0).unwrap();
            let after = how.open(MemoryDevice::new(bytes)).unwrap();
            assert_eq!(verify(&after, &one_thread()).unwrap().wrong_blocks, [], "{how:?}, call {left}");
            let mut found = vec![0; model.len()];
            after.read_at(&mut found, 0).unwrap();
            assert!(found == model, "{how:?}, call {left}");
            if errors == 0 {
                assert!(left > 10, "{how:?}: {left} calls");
                break;
            }
        }
    }
}
