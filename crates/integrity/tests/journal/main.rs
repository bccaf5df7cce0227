//! A volume that was copied while a kernel used it: its journal holds what its places do not have yet.

mod errors;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use casemate_blockdev::{BlockDevice, MemoryDevice, Pool};
use casemate_integrity::{
    ErrorKind, Flags, FormatOptions, IntegrityDevice, JournalSeal, Superblock, Tagger, format,
    read_superblock, verify,
};
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

/// How a volume is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Plain,
    Sealed(&'static str),
    Bitmap,
}

impl How {
    fn tagger(self, superblock: &Superblock) -> casemate_integrity::Result<Tagger> {
        let providers = Providers::default();
        let tagger = Tagger::new("sha256", None, superblock, &providers)?;
        let How::Sealed(cipher) = self else { return Ok(tagger) };
        let code = superblock.flags.contains(Flags::JOURNAL_MAC).then_some(("hmac-sha256", &[1; 20][..]));
        let seal = JournalSeal::new(code, Some((cipher, &[7; 32])), superblock, &providers)?;
        Ok(tagger.with_journal(seal))
    }

    fn open<D: BlockDevice>(self, disk: D) -> casemate_integrity::Result<IntegrityDevice<D, MemoryDevice>> {
        let superblock = read_superblock(&disk)?;
        let volume = IntegrityDevice::open(disk, None, self.tagger(&superblock)?)?;
        if self == How::Bitmap { volume.with_bitmap() } else { Ok(volume) }
    }
}

/// Power fails at any call. Of what was written since the last flush any sectors may be there. Every block then is one of those
/// that were written to it, or what it was, and none is older than what the volume's last flush had. Who writes then finds all
/// tags right.
#[test]
fn power_may_fail_at_any_moment() {
    // A volume as a kernel has left it, whose journal is full, and new ones whose journal has three sections.
    let new = |block_size, how: How, has_code| {
        let mut options = FormatOptions::new(32, [3; 16]);
        (options.block_size, options.journal_size, options.interleave_sectors) =
            (block_size, Some(120 << 10), 64);
        options.has_journal_code = has_code;
        let disk = MemoryDevice::new(vec![0; 400 << 10]);
        let superblock = Superblock::new(disk.size(), &options).unwrap();
        format(&disk, &superblock, &how.tagger(&superblock).unwrap(), None, &one_thread()).unwrap();
        (disk.into_bytes(), block_size as usize, how)
    };
    let plain = new(512, How::Plain, false);
    let mut bitmap = (plain.0.clone(), 512, How::Bitmap);
    // A bit for few blocks, so that there are many.
    bitmap.0[29] = 3;
    let mut recalculating = new(512, How::Plain, false);
    recalculating.0[24] |= 2;
    recalculating.0[8] = 5;
    let starts = vec![
        plain,
        (image(), 4096, How::Plain),
        (image(), 4096, How::Bitmap),
        bitmap,
        recalculating,
        new(512, How::Sealed("ctr-aes"), true),
        new(512, How::Sealed("cbc-aes"), false),
        new(4096, How::Sealed("cbc(aes)"), true),
    ];
    for start in starts {
        // The second time its journal has old states of the same blocks.
        let again = power_fails(start.0, start.1, start.2);
        if start.1 == 512 {
            power_fails(again, start.1, start.2);
        }
    }
}

/// Returns what is left where nothing fails.
fn power_fails(start: Vec<u8>, block_size: usize, how: How) -> Vec<u8> {
    let mut rng = Rng::new(8);
    let disk = Arc::new(Noted { disk: MemoryDevice::new(start.clone()), calls: Mutex::default() });
    let volume = how.open(Arc::clone(&disk)).unwrap();
    let mut model = vec![0; volume.size() as usize];
    volume.read_at(&mut model, 0).unwrap();
    // What is written at once: a block, but in bitmap mode a sector.
    let unit = if how == How::Bitmap { 512 } else { block_size };
    // What each unit was after each write, and the number of calls when a flush had returned.
    let mut history: Vec<Vec<Vec<u8>>> = model.chunks(unit).map(|part| vec![part.to_vec()]).collect();
    let mut flushed: Vec<(usize, Vec<usize>)> = vec![(0, vec![0; history.len()])];
    for _ in 0..25 {
        for _ in 0..=rng.below(4) {
            let blocks = (model.len() / block_size) as u64;
            let first = rng.below(blocks / 4) as usize;
            let count = 1 + rng.below(40.min(blocks - first as u64)) as usize;
            let bytes = rng.bytes(count * block_size);
            volume.write_at(&bytes, (first * block_size) as u64).unwrap();
            let parts = history[first * block_size / unit..].iter_mut().zip(bytes.chunks(unit));
            parts.for_each(|(part, bytes)| part.push(bytes.to_vec()));
        }
        volume.flush().unwrap();
        flushed.push((disk.calls.lock().unwrap().len(), history.iter().map(|part| part.len() - 1).collect()));
    }
    drop(volume);
    let calls = disk.calls.lock().unwrap().clone();
    for round in 0..160 {
        // Often where the journal is made ready, or the bitmap taken away.
        let cut = match round % 4 {
            0 => rng.below(calls.len() as u64 + 1),
            1 => calls.len() as u64 - rng.below(9),
            _ => rng.below(14),
        } as usize;
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
        let at = format!("{how:?}, round {round}, cut at {cut} of {}", calls.len());
        let (_, least) = flushed.iter().rfind(|(calls, _)| *calls <= cut).unwrap();
        let check = |found: &dyn BlockDevice| {
            let mut part = vec![0; unit];
            for (number, least) in least.iter().enumerate() {
                found
                    .read_at(&mut part, (number * unit) as u64)
                    .unwrap_or_else(|error| panic!("{at}: {error}"));
                assert!(history[number][*least..].contains(&part), "{at}: part {number}");
            }
        };
        let disk = Arc::new(MemoryDevice::new(left));
        let found = how.open(Arc::clone(&disk)).unwrap_or_else(|error| panic!("{at}: {error}"));
        check(&found);
        if round % 4 == 0 {
            // The first byte as it is: a write that changes nothing but the volume's state.
            let mut first = [0];
            found.read_at(&mut first, 0).unwrap();
            found.write_at(&first, 0).unwrap();
            found.flush().unwrap();
            drop(found);
            let found = how.open(disk).unwrap();
            check(&found);
            let report = verify(&found, &one_thread()).unwrap();
            assert_eq!((report.wrong, report.unknown), (0, 0), "{at}");
        }
    }
    let mut left = vec![0; start.len()];
    disk.read_at(&mut left, 0).unwrap();
    left
}

/// A block may be in the journal twice, and in its place as it was before. Where power fails while the journal is replayed and
/// emptied, no older state comes back.
#[test]
fn a_journal_that_is_being_emptied_does_not_go_back() {
    let mut options = FormatOptions::new(32, [3; 16]);
    (options.journal_size, options.interleave_sectors) = (Some(120 << 10), 64);
    let disk = MemoryDevice::new(vec![0; 400 << 10]);
    let superblock = Superblock::new(disk.size(), &options).unwrap();
    format(&disk, &superblock, &How::Plain.tagger(&superblock).unwrap(), None, &one_thread()).unwrap();
    let empty = disk.into_bytes();
    let noted = Arc::new(Noted { disk: MemoryDevice::new(empty.clone()), calls: Mutex::default() });
    let volume = How::Plain.open(Arc::clone(&noted)).unwrap();
    for state in [1, 2] {
        volume.write_at(&[state; 512], 0).unwrap();
        volume.flush().unwrap();
    }
    drop(volume);
    let first = |bytes: Vec<u8>| {
        let mut block = [0; 512];
        How::Plain.open(MemoryDevice::new(bytes)).unwrap().read_at(&mut block, 0).unwrap();
        block
    };
    // As soon as the journal has the second state, and its place has the first one.
    let (calls, mut start) = (noted.calls.lock().unwrap().clone(), empty);
    for (offset, bytes) in calls.into_iter().flatten() {
        if first(start.clone()) == [2; 512] {
            break;
        }
        start[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    assert_eq!(first(start.clone()), [2; 512]);
    let noted = Arc::new(Noted { disk: MemoryDevice::new(start.clone()), calls: Mutex::default() });
    let volume = How::Plain.open(Arc::clone(&noted)).unwrap();
    // The journal is emptied before the first write.
    volume.write_at(&[3; 512], 512).unwrap();
    let calls = noted.calls.lock().unwrap().clone();
    drop(volume);
    let mut rng = Rng::new(9);
    for cut in 0..=calls.len() {
        let last_flush = calls[..cut].iter().rposition(Option::is_none).map_or(0, |at| at + 1);
        for round in 0..8 {
            let mut left = start.clone();
            for (at, call) in calls[..cut].iter().enumerate() {
                let Some((offset, bytes)) = call else { continue };
                if at < last_flush || rng.below(2) == 0 {
                    left[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
                }
            }
            let block = first(left);
            assert!(block == [2; 512], "cut at {cut} of {}, round {round}: {}", calls.len(), block[0]);
        }
    }
}

/// Tags that can be guessed protect from nobody, whatever the superblock says of their length.
#[test]
fn tags_under_a_key_have_eight_bytes_at_least() {
    for (tag_size, is_taken) in [(4, false), (7, false), (8, true), (32, true)] {
        let superblock = Superblock::new(8 << 20, &FormatOptions::new(tag_size, [3; 16])).unwrap();
        let tagger = Tagger::new("hmac(sha256)", Some(&[7; 32]), &superblock, &Providers::default());
        let refused = tagger.err().map(|error| error.kind());
        assert_eq!(refused, (!is_taken).then_some(ErrorKind::Unsupported), "{tag_size}");
    }
}

/// Tags that were still to be made are on stable storage before the superblock says that they are there.
#[test]
fn tags_are_flushed_before_the_superblock_tells_of_them() {
    let mut options = FormatOptions::new(32, [3; 16]);
    (options.journal_size, options.interleave_sectors) = (Some(120 << 10), 64);
    let disk = MemoryDevice::new(vec![0; 400 << 10]);
    let superblock = Superblock::new(disk.size(), &options).unwrap();
    format(&disk, &superblock, &How::Plain.tagger(&superblock).unwrap(), None, &one_thread()).unwrap();
    let mut start = disk.into_bytes();
    (start[8], start[24]) = (5, start[24] | 2);
    let noted = Arc::new(Noted { disk: MemoryDevice::new(start), calls: Mutex::default() });
    let volume = How::Plain.open(Arc::clone(&noted)).unwrap();
    volume.write_at(&[1; 512], 0).unwrap();
    volume.flush().unwrap();
    let calls = noted.calls.lock().unwrap().clone();
    let is_superblock = |call: &Call| call.as_ref().is_some_and(|(offset, _)| *offset == 0);
    let told = calls.iter().rposition(is_superblock).unwrap();
    assert!(told > 0 && calls[told - 1].is_none(), "{told} of {}", calls.len());
}

fn ends(ranges: &[Range<u64>]) -> Vec<(u64, u64)> {
    ranges.iter().map(|range| (range.start, range.end)).collect()
}

/// A bitmap says whose tags may be wrong. They are made again before anything is written, and no others.
#[test]
fn a_dirty_bitmap_is_honoured() {
    let mut options = FormatOptions::new(32, [3; 16]);
    (options.journal_size, options.interleave_sectors) = (Some(64 << 10), 64);
    let disk = Arc::new(MemoryDevice::new(vec![0; 400 << 10]));
    let superblock = Superblock::new(disk.size(), &options).unwrap();
    format(&disk, &superblock, &How::Plain.tagger(&superblock).unwrap(), None, &one_thread()).unwrap();
    let layout = superblock.layout(false).unwrap();
    // Version 3 or more, a bit for 16 blocks; the third and the last are set.
    let mut bytes = superblock.to_bytes();
    (bytes[24], bytes[29]) = (bytes[24] | 4, 4);
    disk.write_at(&bytes, 0).unwrap();
    let last = (layout.blocks() - 1) / 16;
    let mut bitmap = vec![0; 4096];
    bitmap[0] = 4;
    bitmap[last as usize / 8] |= 1 << (last % 8);
    disk.write_at(&bitmap, 4096).unwrap();
    for block in [20, 32, 47, layout.blocks() - 1] {
        disk.write_at(&[9; 512], layout.data(block)).unwrap();
    }
    let report = |how: How| {
        let report = verify(&how.open(Arc::clone(&disk)).unwrap(), &one_thread()).unwrap();
        (ends(&report.wrong_blocks), report.unknown)
    };
    assert_eq!(report(How::Plain), (vec![(20, 21)], 3));
    for how in [How::Bitmap, How::Plain] {
        let volume = how.open(Arc::clone(&disk)).unwrap();
        volume.write_at(&[1; 100], 0).unwrap();
        volume.flush().unwrap();
        let flags = read_superblock(&disk).unwrap().flags;
        assert_eq!(flags.contains(Flags::DIRTY_BITMAP), how == How::Bitmap);
        let mut bits = [0; 4096];
        disk.read_at(&mut bits, 4096).unwrap();
        assert_eq!(
            (bits[0], bits[1..].iter().all(|byte| *byte == 0)),
            if how == How::Bitmap { (1, true) } else { (bits[0], false) }
        );
        drop(volume);
        assert!(!read_superblock(&disk).unwrap().flags.contains(Flags::DIRTY_BITMAP));
        assert_eq!(report(how), (vec![(20, 21)], 0));
        // The bitmap once more, for the other one.
        disk.write_at(&bytes, 0).unwrap();
        disk.write_at(&bitmap, 4096).unwrap();
    }
}

/// Tags that are still to be made are made with each flush; with a key no tag may be missing, whatever the superblock says.
#[test]
fn recalculation_goes_on() {
    let mut options = FormatOptions::new(32, [3; 16]);
    options.block_size = 4096;
    let disk = Arc::new(MemoryDevice::new(vec![0; 12 << 20]));
    let superblock = Superblock::new(disk.size(), &options).unwrap();
    let tagger = |superblock: &Superblock| How::Plain.tagger(superblock).unwrap();
    format(&disk, &superblock, &tagger(&superblock), None, &one_thread()).unwrap();
    let mut bytes = superblock.to_bytes();
    bytes[24] |= 2;
    bytes[32] = 80;
    disk.write_at(&bytes, 0).unwrap();
    let layout = superblock.layout(false).unwrap();
    for block in [3, 10, 1500, layout.blocks() - 1] {
        disk.write_at(&[9; 512], layout.data(block)).unwrap();
    }
    let volume = How::Plain.open(Arc::clone(&disk)).unwrap();
    let report = || {
        let report = verify(&How::Plain.open(Arc::clone(&disk)).unwrap(), &one_thread()).unwrap();
        (ends(&report.wrong_blocks), report.unknown)
    };
    assert_eq!(report(), (vec![(3, 4)], 3));
    for unknown in [2, 1, 0] {
        volume.write_at(&[1; 100], 0).unwrap();
        volume.flush().unwrap();
        assert_eq!(report(), (vec![(3, 4)], unknown));
    }
    let now = read_superblock(&disk).unwrap();
    assert_eq!(
        (now.recalc_sector, now.flags.contains(Flags::RECALCULATING)),
        (now.provided_data_sectors, true)
    );
    disk.write_at(&bytes, 0).unwrap();
    let keyed = Tagger::new("hmac-sha256", Some(&[1; 32]), &superblock, &Providers::default()).unwrap();
    let refused = IntegrityDevice::open(Arc::clone(&disk), None::<MemoryDevice>, keyed).unwrap_err();
    assert!(refused.text().contains("with a key no tag may be missing"), "{refused}");
    // A bitmap in a volume with a key: only where it is said that there is one.
    bytes[24] = bytes[24] & !2 | 4;
    disk.write_at(&bytes, 0).unwrap();
    disk.write_at(&[0xff; 512], 4096).unwrap();
    for says_so in [false, true] {
        let keyed = Tagger::new("hmac-sha256", Some(&[1; 32]), &superblock, &Providers::default()).unwrap();
        let volume = IntegrityDevice::open(Arc::clone(&disk), None::<MemoryDevice>, keyed).unwrap();
        let volume = if says_so { volume.with_bitmap().unwrap() } else { volume };
        // No tag is this key's, and all bits are set.
        assert_eq!(volume.read_at(&mut [0; 4096], 0).is_ok(), says_so);
        let report = verify(&volume, &one_thread()).unwrap();
        assert_eq!(report.wrong == 0, says_so, "{report:?}");
        assert_eq!(volume.write_at(&[1; 4096], 0).is_ok(), says_so);
    }
}

/// A journal without its key is left alone, and one that was changed is refused.
#[test]
fn a_sealed_journal_is_read_with_its_key_alone() {
    let how = How::Sealed("ctr-aes");
    let mut options = FormatOptions::new(32, [3; 16]);
    (options.journal_size, options.interleave_sectors, options.has_journal_code) = (Some(64 << 10), 64, true);
    let disk = Arc::new(MemoryDevice::new(vec![0; 400 << 10]));
    let superblock = Superblock::new(disk.size(), &options).unwrap();
    format(&disk, &superblock, &how.tagger(&superblock).unwrap(), None, &one_thread()).unwrap();
    let volume = how.open(Arc::clone(&disk)).unwrap();
    volume.write_at(&[5; 4096], 0).unwrap();
    drop(volume);
    let (mut bytes, providers) = (vec![0; 400 << 10], Providers::default());
    disk.read_at(&mut bytes, 0).unwrap();
    assert!(
        verify(&how.open(MemoryDevice::new(bytes.clone())).unwrap(), &one_thread()).unwrap().journalled > 0
    );
    let open = |bytes: &[u8], code: &[u8], cipher: &[u8]| {
        let tagger = Tagger::new("sha256", None, &superblock, &providers).unwrap();
        let seal = JournalSeal::new(
            Some(("hmac(sha256)", code)),
            Some(("ctr(aes)", cipher)),
            &superblock,
            &providers,
        );
        IntegrityDevice::open(
            MemoryDevice::new(bytes.to_vec()),
            None::<MemoryDevice>,
            tagger.with_journal(seal?),
        )
    };
    assert_eq!(open(&bytes, &[1; 20], &[7; 32]).unwrap().journalled_blocks(), 8);
    // Another key of the codes, a superblock that was changed, and an entry.
    assert_eq!(open(&bytes, &[2; 20], &[7; 32]).unwrap_err().kind(), ErrorKind::Mismatch);
    for at in [40, 4096 + 3] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        assert_eq!(open(&bytes, &[1; 20], &[7; 32]).unwrap_err().kind(), ErrorKind::Mismatch, "{at}");
    }
    // With another key the journal is noise, which nobody overwrites.
    let is_said = |error: casemate_integrity::Error| {
        assert!(error.text().contains("the journal can't be read"), "{error}");
    };
    is_said(open(&bytes, &[1; 20], &[8; 32]).unwrap_err());
    let cipher = Some(("ctr(aes)", &[8; 32][..]));
    let seal = JournalSeal::new(Some(("hmac(sha256)", &[1; 20])), cipher, &superblock, &providers).unwrap();
    let tagger = Tagger::new("sha256", None, &superblock, &providers).unwrap().with_journal(seal);
    let disk_of = |bytes: &[u8]| MemoryDevice::new(bytes.to_vec());
    let other = IntegrityDevice::open_damaged(disk_of(&bytes), None::<MemoryDevice>, tagger).unwrap();
    assert!(other.has_unread_journal());
    assert_eq!(other.journalled_blocks(), 0);
    is_said(other.write_at(&[1], 0).unwrap_err());
    // Damage in a section is not the end of the journal.
    let plain = {
        let disk = MemoryDevice::new(image());
        let mut bytes = vec![0; disk.size() as usize];
        disk.read_at(&mut bytes, 0).unwrap();
        bytes[4096 + 3 * 512 - 1] ^= 1;
        bytes
    };
    is_said(How::Plain.open(disk_of(&plain)).unwrap_err());
    assert_eq!(How::Plain.open(Arc::clone(&disk)).unwrap_err().kind(), ErrorKind::Locked);
    assert!(JournalSeal::new(Some(("crc32c", &[1])), None, &superblock, &providers).is_err());
    assert!(
        JournalSeal::new(Some(("hmac-sha256", &[1])), Some(("xts-aes", &[1; 64])), &superblock, &providers)
            .is_err()
    );
}

/// A superblock, a journal or data that were changed without the key: each block is as it was, or an error.
#[test]
fn forged_volumes_with_a_key_show_nothing_else() {
    let (key, mut rng) = ([9; 32], Rng::new(31));
    for block_size in [512, 4096] {
        let mut options = FormatOptions::new(32, [3; 16]);
        (options.block_size, options.journal_size, options.interleave_sectors) =
            (block_size, Some(64 << 10), 64);
        let disk = MemoryDevice::new(vec![0; 256 << 10]);
        let superblock = Superblock::new(disk.size(), &options).unwrap();
        let tagger = |superblock: &Superblock, key: &[u8]| {
            Tagger::new("hmac-sha256", Some(key), superblock, &Providers::default())
        };
        let plain = rng.bytes(superblock.provided_data_sectors as usize * 512);
        let made = tagger(&superblock, &key).unwrap();
        format(&disk, &superblock, &made, Some(&mut &plain[..]), &one_thread()).unwrap();
        let disk = disk.into_bytes();
        let layout = superblock.layout(false).unwrap();
        let data = layout.data(0) as usize;
        let mut shown = 0;
        for byte in 8..64 {
            for value in [0, 1, 2, 3, 4, 5, 7, 8, 0x10, 0x1a, 0x1c, 0x80, 0xff] {
                let mut forged = disk.clone();
                forged[byte] = value;
                // A version that may have all flags, a bitmap that says everything, and data of somebody else.
                if byte != 8 {
                    forged[8] = 5;
                }
                if value % 2 == 0 {
                    forged[4096..8192].fill(0xff);
                }
                forged[data + 100..data + 200].fill(value);
                let open = |key: &[u8]| {
                    let superblock = Superblock::from_bytes(&forged)?;
                    let tagger = tagger(&superblock, key)?;
                    IntegrityDevice::open(MemoryDevice::new(forged.clone()), None::<MemoryDevice>, tagger)
                };
                let mut found = vec![0; 512];
                if let Ok(volume) = open(&key) {
                    for at in (0..volume.size().min(512 << 10)).step_by(512) {
                        if volume.read_at(&mut found, at).is_ok() {
                            let expected = plain.get(at as usize..at as usize + 512);
                            assert!(Some(&found[..]) == expected, "byte {byte} is {value}: at {at}");
                            shown += 1;
                        }
                    }
                }
                if let Ok(volume) = open(&[8; 32]) {
                    for at in (0..volume.size().min(512 << 10)).step_by(512) {
                        assert!(
                            volume.read_at(&mut found, at).is_err(),
                            "byte {byte} is {value}: another key"
                        );
                    }
                }
            }
        }
        assert!(shown > 1000, "{shown}");
    }
}
