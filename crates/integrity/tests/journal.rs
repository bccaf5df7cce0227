//! A volume that was copied while a kernel used it: its journal holds what its places do not have yet.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use casemate_blockdev::{BlockDevice, MemoryDevice, Pool};
use casemate_integrity::{FormatOptions, IntegrityDevice, Superblock, Tagger, format, verify};
use casemate_providers::{Providers, Work};
use casemate_testkit::{Rng, fixture};

fn image() -> Vec<u8> {
    fixture(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/journal.img.xz"))
}

fn open(bytes: Vec<u8>) -> casemate_integrity::Result<IntegrityDevice<MemoryDevice, MemoryDevice>> {
    let superblock = Superblock::from_bytes(&bytes)?;
    let tagger = Tagger::new("sha256", None, &superblock, &Providers::default())?;
    IntegrityDevice::open(MemoryDevice::new(bytes), None, tagger)
}

fn one_thread() -> Work<'static> {
    Work { pool: Pool::new(NonZeroUsize::new(1)), ..Work::default() }
}

#[test]
fn what_the_journal_holds_is_read_from_there() {
    let volume = open(image()).unwrap();
    let report = verify(&volume, &one_thread()).unwrap();
    assert_eq!((report.blocks, report.wrong, report.unknown), (190, 0, 0));
    assert!(report.journalled > 0);
    let mut data = vec![0; 32768];
    volume.read_at(&mut data, 0).unwrap();
    // What the kernel's journal was found to hold: SHA-256 of the plaintext that was written.
    let digest = Providers::default().hash("sha256").unwrap().digest(&data);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "4232b63cf12a42fd11f6d1b9ad1eb894ae1d2db47e77ac04ac73899f448ac8b6");
    // Any part of blocks is a part of the same bytes.
    let mut rng = Rng::new(1);
    for _ in 0..200 {
        let at = rng.below(32768) as usize;
        let len = rng.below(32768 - at as u64) as usize;
        let mut part = vec![0; len];
        volume.read_at(&mut part, at as u64).unwrap();
        assert!(part == data[at..at + len]);
    }
    assert!(volume.read_at(&mut data, volume.size() - 1).is_err());
    assert!(volume.write_at(&data, volume.size() - 1).is_err());
}

#[test]
fn a_damaged_block_is_refused_alone() {
    let mut bytes = image();
    let layout = Superblock::from_bytes(&bytes).unwrap().layout(false).unwrap();
    bytes[layout.data(100) as usize + 7] ^= 1;
    bytes[layout.tag(150) as usize] ^= 1;
    let volume = open(bytes).unwrap();
    let report = verify(&volume, &one_thread()).unwrap();
    assert_eq!((report.wrong, &report.wrong_blocks[..]), (2, &[100..101, 150..151][..]));
    let mut block = [0; 4096];
    for number in 0..report.blocks {
        let read = volume.read_at(&mut block, number * 4096);
        assert_eq!(read.is_err(), [100, 150].contains(&number), "{number}");
    }
}

/// Superblock, tags and journal are the image's word: nothing in them makes reading panic.
#[test]
fn mutated_volumes_are_refused_or_read() {
    let (image, mut rng) = (image(), Rng::new(5));
    let journal_end = Superblock::from_bytes(&image).unwrap().layout(false).unwrap().tag(0);
    for round in 0..3000 {
        let mut bytes = image.clone();
        for _ in 0..=rng.below(3) {
            let most = if round % 2 == 0 { 64 } else { journal_end };
            let at = rng.below(most) as usize;
            bytes[at] = match rng.below(3) {
                0 => 0,
                1 => 0xff,
                _ => rng.below(256) as u8,
            };
        }
        let Ok(volume) = open(bytes) else { continue };
        let mut block = vec![0; 8192];
        let _ = volume.read_at(&mut block, 1000);
        let _ = volume.read_at(&mut block, volume.size().saturating_sub(8192));
        if volume.size() < 8 << 20 {
            let _ = verify(&volume, &one_thread());
        }
    }
}

/// Writes of any length at any place, flushed or not, are what is read; and whoever opens the volume afterwards, or what
/// a flush has left of it, finds the same. The journal is small, so it is gone round many times.
#[test]
fn what_is_written_is_read() {
    let mut rng = Rng::new(7);
    for (block_size, tag_size, journal) in [(512, 4, 16 << 10), (4096, 32, 300 << 10), (1024, 8, 64 << 10)] {
        let mut options = FormatOptions::new(tag_size, [3; 16]);
        (options.block_size, options.journal_size, options.interleave_sectors) =
            (block_size, Some(journal), 64);
        let disk = Arc::new(MemoryDevice::new(vec![0; 1 << 20]));
        let superblock = Superblock::new(disk.size(), &options).unwrap();
        let tagger =
            |superblock: &Superblock| Tagger::new("sha256", None, superblock, &Providers::default()).unwrap();
        format(&disk, &superblock, &tagger(&superblock), None, &one_thread()).unwrap();
        let mut model = Vec::new();
        for round in 0..6 {
            let volume =
                IntegrityDevice::open(Arc::clone(&disk), None::<MemoryDevice>, tagger(&superblock)).unwrap();
            model.resize(volume.size() as usize, 0);
            let mut found = vec![0; model.len()];
            volume.read_at(&mut found, 0).unwrap();
            assert!(found == model, "{block_size}: {round}");
            for _ in 0..60 {
                let at = rng.below(model.len() as u64) as usize;
                let len = rng.below(30_000.min(model.len() as u64 - at as u64) + 1) as usize;
                let bytes = rng.bytes(len);
                volume.write_at(&bytes, at as u64).unwrap();
                model[at..at + len].copy_from_slice(&bytes);
                if rng.below(4) == 0 {
                    volume.flush().unwrap();
                    let mut copy = vec![0; 1 << 20];
                    disk.read_at(&mut copy, 0).unwrap();
                    let copy = open(copy).unwrap();
                    assert_eq!(verify(&copy, &one_thread()).unwrap().wrong, 0);
                    copy.read_at(&mut found, 0).unwrap();
                    assert!(found == model, "{block_size}: {round}");
                }
                let at = rng.below(model.len() as u64 - 5000) as usize;
                volume.read_at(&mut found[..5000], at as u64).unwrap();
                assert!(found[..5000] == model[at..at + 5000]);
            }
        }
    }
}

/// A journal that a kernel has left is replayed before the first write, and what is in it is still there then.
#[test]
fn a_journal_is_replayed_before_anything_is_written() {
    let before = open(image()).unwrap();
    let mut model = vec![0; before.size() as usize];
    before.read_at(&mut model, 0).unwrap();
    let disk = Arc::new(MemoryDevice::new(image()));
    let superblock = before.superblock().clone();
    let tagger = Tagger::new("sha256", None, &superblock, &Providers::default()).unwrap();
    let volume = IntegrityDevice::open(Arc::clone(&disk), None::<MemoryDevice>, tagger).unwrap();
    volume.write_at(&[9; 700], 5000).unwrap();
    drop(volume);
    model[5000..5700].fill(9);
    let mut bytes = vec![0; disk.size() as usize];
    disk.read_at(&mut bytes, 0).unwrap();
    let after = open(bytes).unwrap();
    let mut found = vec![0; model.len()];
    after.read_at(&mut found, 0).unwrap();
    assert!(found == model);
    assert_eq!(verify(&after, &one_thread()).unwrap().journalled, 1);
}

/// A write with its place, or a flush.
type Call = Option<(u64, Vec<u8>)>;

/// A device that notes what was written, and when it was flushed.
struct Noted {
    disk: MemoryDevice,
    calls: Mutex<Vec<Call>>,
}

impl BlockDevice for Noted {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.disk)
    }
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate_integrity::Result<()> {
        self.disk.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> casemate_integrity::Result<()> {
        self.calls.lock().unwrap().push(Some((offset, buf.to_vec())));
        self.disk.write_at(buf, offset)
    }
    fn flush(&self) -> casemate_integrity::Result<()> {
        self.calls.lock().unwrap().push(None);
        Ok(())
    }
}

/// Power fails at any call. Of what was written since the last flush any sectors may be there. Every block then is one of those
/// that were written to it, or what it was, and none is older than what the volume's last flush had.
#[test]
fn power_may_fail_at_any_moment() {
    let mut rng = Rng::new(8);
    // A volume as a kernel has left it, whose journal is full, and a new one whose journal has three sections.
    let mut options = FormatOptions::new(32, [3; 16]);
    (options.block_size, options.journal_size, options.interleave_sectors) = (512, Some(120 << 10), 64);
    let new = MemoryDevice::new(vec![0; 400 << 10]);
    let superblock = Superblock::new(new.size(), &options).unwrap();
    let tagger = Tagger::new("sha256", None, &superblock, &Providers::default()).unwrap();
    format(&new, &superblock, &tagger, None, &one_thread()).unwrap();
    // The last one is what the second one has left: its journal has old states of the same blocks.
    let mut starts = vec![(new.into_bytes(), 512), (image(), 4096usize)];
    let mut again = true;
    while let Some((start, block_size)) = starts.pop() {
        let superblock = Superblock::from_bytes(&start).unwrap();
        let disk = Arc::new(Noted { disk: MemoryDevice::new(start.clone()), calls: Mutex::default() });
        let tagger = Tagger::new("sha256", None, &superblock, &Providers::default()).unwrap();
        let volume = IntegrityDevice::open(Arc::clone(&disk), None::<MemoryDevice>, tagger).unwrap();
        let mut model = vec![0; volume.size() as usize];
        volume.read_at(&mut model, 0).unwrap();
        // What each block was after each write, and the number of calls when a flush had returned.
        let mut history: Vec<Vec<Vec<u8>>> =
            model.chunks(block_size).map(|block| vec![block.to_vec()]).collect();
        let mut flushed: Vec<(usize, Vec<usize>)> = vec![(0, vec![0; history.len()])];
        for _ in 0..25 {
            for _ in 0..=rng.below(4) {
                let first = rng.below(history.len() as u64 / 4) as usize;
                let count = 1 + rng.below(40.min((history.len() - first) as u64)) as usize;
                let bytes = rng.bytes(count * block_size);
                volume.write_at(&bytes, (first * block_size) as u64).unwrap();
                for (block, bytes) in history[first..].iter_mut().zip(bytes.chunks(block_size)) {
                    block.push(bytes.to_vec());
                }
            }
            volume.flush().unwrap();
            flushed.push((
                disk.calls.lock().unwrap().len(),
                history.iter().map(|block| block.len() - 1).collect(),
            ));
        }
        let calls = disk.calls.lock().unwrap().clone();
        for round in 0..600 {
            // Often where the journal is made ready.
            let cut = rng.below(if round % 2 == 0 { 12 } else { calls.len() as u64 + 1 }) as usize;
            let last_flush = calls[..cut].iter().rposition(Option::is_none).map_or(0, |at| at + 1);
            let mut left = start.clone();
            for (at, call) in calls[..cut].iter().enumerate() {
                let Some((offset, bytes)) = call else { continue };
                // Some of the sectors of a call, or all or none.
                let whole = (round % 3 == 0).then(|| rng.below(2) == 0);
                for (k, sector) in bytes.chunks(512).enumerate() {
                    let place = *offset as usize + k * 512;
                    if at < last_flush || whole.unwrap_or_else(|| rng.below(2) == 0) {
                        left[place..place + sector.len()].copy_from_slice(sector);
                    }
                }
            }
            let found = open(left).unwrap();
            let (_, least) = flushed.iter().rfind(|(calls, _)| *calls <= cut).unwrap();
            let mut block = vec![0; block_size];
            for (number, least) in least.iter().enumerate() {
                let read = found.read_at(&mut block, (number * block_size) as u64);
                assert!(
                    read.is_ok(),
                    "round {round}, cut at {cut} of {}: {}",
                    calls.len(),
                    read.unwrap_err()
                );
                assert!(
                    history[number][*least..].contains(&block),
                    "round {round}, cut at {cut}: block {number}"
                );
            }
        }
        drop(volume);
        if block_size == 512 && std::mem::take(&mut again) {
            let mut left = vec![0; start.len()];
            disk.read_at(&mut left, 0).unwrap();
            starts.push((left, block_size));
        }
    }
}
