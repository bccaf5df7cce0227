//! Overlays beside models: power failures, damage, and devices that somebody has written to.

use std::sync::Arc;

use super::layout::SECTOR;
use super::*;
use crate::{FileDevice, MemoryDevice};

type Model = Vec<u8>;
type Writes = Vec<(u64, Vec<u8>)>;

/// A disk with a cache: after a power failure each write since the last flush is there or not.
#[derive(Debug, Default)]
struct Lossy {
    stable: Mutex<Vec<u8>>,
    cached: Mutex<(Vec<u8>, Writes)>,
}

impl Lossy {
    fn power_failure(&self, mut random: impl FnMut(u64) -> u64) {
        let (mut stable, mut cached) = (self.stable.lock().unwrap(), self.cached.lock().unwrap());
        for (offset, data) in std::mem::take(&mut cached.1) {
            // In whole sectors, some of them.
            for (k, sector) in data.chunks(512).enumerate() {
                if random(2) == 0 {
                    put(&mut stable, sector, offset + k as u64 * 512);
                }
            }
        }
        cached.0 = stable.clone();
    }
}

fn put(bytes: &mut Vec<u8>, data: &[u8], offset: u64) {
    let end = offset as usize + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset as usize..end].copy_from_slice(data);
}

impl BlockDevice for Lossy {
    fn below(&self) -> Option<&dyn BlockDevice> {
        None
    }
    fn size(&self) -> u64 {
        self.cached.lock().unwrap().0.len() as u64
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let cached = self.cached.lock().unwrap();
        let start = cached.0.len().min(offset as usize);
        let there = &cached.0[start..cached.0.len().min(start + buf.len())];
        buf[..there.len()].copy_from_slice(there);
        buf[there.len()..].fill(0);
        Ok(())
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut cached = self.cached.lock().unwrap();
        put(&mut cached.0, buf, offset);
        cached.1.push((offset, buf.to_vec()));
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        let mut cached = self.cached.lock().unwrap();
        cached.1.clear();
        *self.stable.lock().unwrap() = cached.0.clone();
        Ok(())
    }
}

fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed * 2 + 1;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

fn base_of(name: &str) -> ConstantBase {
    ConstantBase(name.as_bytes().to_vec())
}

/// Writes, zeros and flushes at random, then a power failure: what was flushed is there, and each sector written
/// since is old or new.
#[test]
fn what_was_flushed_survives_a_power_failure() {
    const SIZE: u64 = 9 * 4096 + 512;
    for seed in 0..100 {
        let mut random = random(seed);
        let base: Model = (0..SIZE).map(|_| random(256) as u8).collect();
        let below = MemoryDevice::new(base.clone());
        let store = Arc::new(Lossy::default());
        OverlayFile::format(&store, &&below, &base_of("base")).unwrap();
        let mut model = base.clone();
        // Each byte's values since the last flush.
        let mut possible: Vec<Vec<u8>> = base.iter().map(|byte| vec![*byte]).collect();
        for _ in 0..3 {
            let overlay = OverlayFile::open(&below, Arc::clone(&store), Arc::new(base_of("base"))).unwrap();
            for _ in 0..random(20) {
                let offset = random(SIZE / 512) * 512;
                let len = 512 * (1 + random(30)).min((SIZE - offset) / 512);
                match random(8) {
                    0 => {
                        overlay.flush().unwrap();
                        possible = model.iter().map(|byte| vec![*byte]).collect();
                        continue;
                    }
                    1 => {
                        overlay.write_zeroes(offset, len, true).unwrap();
                        model[offset as usize..(offset + len) as usize].fill(0);
                    }
                    _ => {
                        let data: Vec<u8> = (0..len).map(|_| random(256) as u8).collect();
                        overlay.write_at(&data, offset).unwrap();
                        model[offset as usize..(offset + len) as usize].copy_from_slice(&data);
                    }
                }
                for at in offset as usize..(offset + len) as usize {
                    possible[at].push(model[at]);
                }
                let mut found = vec![0; SIZE as usize];
                overlay.read_at(&mut found, 0).unwrap();
                assert!(found == model, "seed {seed}");
            }
            drop(overlay);
            store.power_failure(&mut random);
            let overlay = OverlayFile::open(&below, Arc::clone(&store), Arc::new(base_of("base"))).unwrap();
            let mut found = vec![0; SIZE as usize];
            overlay.read_at(&mut found, 0).unwrap();
            for (at, byte) in found.iter().enumerate() {
                assert!(possible[at].contains(byte), "seed {seed}, byte {at}");
            }
            overlay.flush().unwrap();
            model = found;
            possible = model.iter().map(|byte| vec![*byte]).collect();
        }
        assert!(below.into_bytes() == base);
    }
}

#[test]
fn parts_of_one_block_by_many_threads() {
    let below = MemoryDevice::new(vec![7; 8 * 4096]);
    let file = FileDevice::from_file(tempfile::tempfile().unwrap()).unwrap();
    OverlayFile::format(&file, &&below, &base_of("")).unwrap();
    let overlay = OverlayFile::open(&below, file, Arc::new(base_of(""))).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let overlay = &overlay;
            scope.spawn(move || {
                for part in (usize::from(thread)..8 * 64).step_by(4) {
                    overlay.write_at(&[thread; 64], part as u64 * 64).unwrap();
                }
            });
        }
    });
    let mut found = vec![0; 8 * 4096];
    overlay.read_at(&mut found, 0).unwrap();
    assert!(found.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at / 64 % 4));
    assert_eq!(overlay.changed_blocks(), 8);
}

#[test]
#[cfg(unix)]
fn holes_are_those_of_both_files() {
    let below = tempfile::tempfile().unwrap();
    below.set_len(4 << 20).unwrap();
    let below = FileDevice::from_file(below).unwrap();
    below.write_at(&[1; 4096], 1 << 20).unwrap();
    let file = FileDevice::from_file(tempfile::tempfile().unwrap()).unwrap();
    OverlayFile::format(&file, &&below, &base_of("")).unwrap();
    let overlay = OverlayFile::open(&below, file, Arc::new(base_of(""))).unwrap();
    overlay.write_at(&[2; 8192], 2 << 20).unwrap();
    overlay.write_zeroes(1 << 20, 4096, true).unwrap();
    let data = overlay.next_data(0).unwrap().unwrap();
    assert_eq!(data, 2 << 20..(2 << 20) + 8192);
    assert_eq!(overlay.next_data(data.end).unwrap(), None);
    overlay.write_zeroes(3 << 20, 1 << 20, true).unwrap();
    let mut end = [9; 10];
    overlay.read_at(&mut end, (4 << 20) - 10).unwrap();
    assert_eq!(end, [0; 10]);
}

#[test]
fn strangers_are_refused() {
    let below = MemoryDevice::new(vec![0; 10_000]);
    let file = || FileDevice::from_file(tempfile::tempfile().unwrap()).unwrap();
    let message = |store: &FileDevice, base: &str| {
        OverlayFile::open(&below, store, Arc::new(base_of(base))).unwrap_err().to_string()
    };
    let store = file();
    assert_eq!(message(&store, ""), "the file is too short for an overlay");
    OverlayFile::format(&store, &&below, &base_of("one")).unwrap();
    assert!(OverlayFile::open(&below, &store, Arc::new(base_of("one"))).is_ok());
    assert!(message(&store, "two").starts_with("the overlay belongs to another image"));
    store.write_at(&[0x10], 4096).unwrap();
    assert_eq!(message(&store, "one"), "the overlay is damaged: it has blocks behind the device's end");
    store.write_at(&[9], 30).unwrap();
    assert_eq!(message(&store, "one"), "the overlay's header is damaged: its checksum is wrong");
    store.write_at(&[9], 0).unwrap();
    assert_eq!(message(&store, "one"), "the file is not an overlay");
    let other = file();
    OverlayFile::format(&other, &MemoryDevice::new(vec![0; 20_000]), &base_of("")).unwrap();
    assert_eq!(message(&other, ""), "the overlay is of a device of 20000 bytes, not 10000");
    assert!(OverlayFile::format(&other, &MemoryDevice::new(Vec::new()), &base_of("")).is_err());
}

/// A device that somebody may write to: its state is a number, and trust is asked for.
#[derive(Clone, Debug, Default)]
struct Writable {
    state: Option<u8>,
    is_trusted: bool,
}

impl OverlayBase for Writable {
    fn identity(&self, _: &dyn BlockDevice, edition: OverlayEdition) -> Result<Vec<u8>> {
        Ok(format!("{edition:?}").into_bytes())
    }
    fn state(&self) -> Result<Option<[u8; STATE]>> {
        Ok(self.state.map(|state| [state; STATE]))
    }
    fn is_constant(&self) -> bool {
        false
    }
    fn is_trusted(&self) -> bool {
        self.is_trusted
    }
    fn checksums(&self, sectors: &[u8]) -> Vec<u8> {
        sectors.chunks(SECTOR).flat_map(|sector| (u64::from(crc32(sector)) << 32 | 1).to_le_bytes()).collect()
    }
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; usize_of(device.size())];
    device.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn base(state: Option<u8>, is_trusted: bool) -> Writable {
    Writable { state, is_trusted }
}

/// Text of an error, or nothing.
fn text_of<T>(result: Result<T>) -> String {
    result.map_or_else(|error| error.to_string(), |_| String::new())
}

/// A device of ones whose overlay has twos in blocks 1 to 8.
fn written(base: &Writable) -> (MemoryDevice, Arc<Lossy>) {
    let (below, store) = (MemoryDevice::new(vec![1; 20 * 4096 - 100]), Arc::new(Lossy::default()));
    OverlayFile::format(&store, &&below, base).unwrap();
    let overlay = OverlayFile::open(&below, Arc::clone(&store), Arc::new(base.clone())).unwrap();
    overlay.write_at(&[2; 8 * 4096], 4096).unwrap();
    overlay.flush().unwrap();
    drop(overlay);
    (below, store)
}

#[test]
fn a_device_that_was_written_to_is_refused() {
    let (below, store) = written(&base(Some(1), false));
    let open = |base: Writable| text_of(OverlayFile::open(&below, Arc::clone(&store), Arc::new(base)));
    let commit =
        |base| text_of(OverlayFile::commit(&below, Arc::clone(&store), Arc::new(base), &crate::NoEvents));
    assert_eq!(open(base(Some(1), false)), "");
    for state in [Some(2), None] {
        for said in [open(base(state, false)), commit(base(state, false))] {
            assert!(said.starts_with("the image was written to after"), "{said}");
        }
        assert_eq!(open(base(state, true)), "");
    }
    // Who trusts a device has said so from its first new block on.
    let overlay = OverlayFile::open(&below, Arc::clone(&store), Arc::new(base(Some(3), true))).unwrap();
    overlay.flush().unwrap();
    assert_ne!(open(base(Some(3), false)), "");
    overlay.write_at(&[2; 10], 15 * 4096).unwrap();
    overlay.flush().unwrap();
    assert_eq!(open(base(Some(3), false)), "");
    // What lies under the blocks shows it without a state, and to those who trust it.
    below.write_at(&[7], 15 * 4096 + 5000).unwrap();
    assert_eq!(open(base(Some(4), true)), "");
    below.write_at(&[7], 15 * 4096 + 4000).unwrap();
    let before = bytes_of(&below);
    for said in [open(base(Some(4), true)), commit(base(Some(4), true)), commit(base(Some(3), false))] {
        assert!(said.contains("1 blocks of 4096 bytes that the overlay keeps are neither"), "{said}");
    }
    assert!(bytes_of(&below) == before);
    below.write_at(&[1], 15 * 4096 + 4000).unwrap();
    assert_eq!(commit(base(Some(3), false)), "");
    let mut bytes = [0; 3];
    below.read_at(&mut bytes, 9 * 4096 - 2).unwrap();
    assert_eq!(bytes, [2, 2, 1]);
    // An overlay without blocks belongs to whatever is below.
    assert_eq!(open(base(Some(9), false)), "");
}

/// A device with a block that can't be read.
#[derive(Debug)]
struct Bad<'a>(&'a MemoryDevice, u64);

impl BlockDevice for Bad<'_> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(self.0)
    }
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let bad = self.1 * 4096..self.1 * 4096 + 4096;
        match offset < bad.end && bad.start < offset + u64_of(buf.len()) {
            true => Err(Error::io("below", std::io::Error::other("a bad sector"))),
            false => self.0.read_at(buf, offset),
        }
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.0.write_at(buf, offset)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// Nothing tells how a block was that could not be read: once it can, somebody has written it, or the caller knows better.
#[test]
fn a_block_that_could_not_be_read_is_overwritten_while_it_can_not_or_on_trust() {
    for (is_bad, is_trusted, is_refused) in [(true, false, false), (false, false, true), (false, true, false)]
    {
        let below = MemoryDevice::new(vec![1; 20 * 4096]);
        let (bad, store) = (Bad(&below, 3), Arc::new(Lossy::default()));
        let base = base(Some(1), is_trusted);
        OverlayFile::format(&store, &&below, &base).unwrap();
        let overlay = OverlayFile::open(&bad, Arc::clone(&store), Arc::new(base.clone())).unwrap();
        // Good blocks beside it, which are read together with it.
        overlay.write_at(&[2; 5 * 4096], 4096).unwrap();
        overlay.flush().unwrap();
        drop(overlay);
        let below: &dyn BlockDevice = if is_bad { &bad } else { &below };
        let said = text_of(OverlayFile::commit(below, Arc::clone(&store), Arc::new(base), &crate::NoEvents));
        assert_eq!(said.contains("1 blocks of 4096 bytes that the overlay keeps"), is_refused, "{said}");
        assert_eq!(said.is_empty(), !is_refused, "{said}");
    }
}

/// The bitmap has no checksum, but a block without one of what lies below it was never written.
#[test]
fn a_bit_that_nobody_set_commits_nothing() {
    let (below, store) = written(&base(Some(1), false));
    let before = bytes_of(&below);
    store.write_at(&[0xff, 0x01], u64_of(HEADER)).unwrap();
    for is_trusted in [false, true] {
        let base = Arc::new(base(Some(1), is_trusted));
        let said = text_of(OverlayFile::commit(&below, Arc::clone(&store), base, &crate::NoEvents));
        assert!(said.contains("1 blocks of 4096 bytes that the overlay keeps are neither"), "{said}");
    }
    assert!(bytes_of(&below) == before);
}

/// Blocks that are missing must not become zeros once somebody writes behind it.
#[test]
#[cfg(unix)]
fn a_store_that_was_cut_off_is_refused() {
    let below = MemoryDevice::new(vec![1; 20 * 4096 - 100]);
    let file = tempfile::tempfile().unwrap();
    let store = FileDevice::from_file(file.try_clone().unwrap()).unwrap();
    let base = || Arc::new(base(Some(1), true));
    OverlayFile::format(&store, &&below, &*base()).unwrap();
    for written in [4096, 19 * 4096] {
        let overlay = OverlayFile::open(&below, &store, base()).unwrap();
        overlay.write_at(&[2; 4096 - 100], written).unwrap();
        overlay.flush().unwrap();
        drop(overlay);
        let len = file.metadata().unwrap().len();
        assert!(OverlayFile::open(&below, &store, base()).is_ok());
        file.set_len(len - 1).unwrap();
        let short = FileDevice::from_file(file.try_clone().unwrap()).unwrap();
        let said = [
            text_of(OverlayFile::open(&below, &short, base())),
            text_of(OverlayFile::commit(&below, &short, base(), &crate::NoEvents)),
        ];
        assert!(said.iter().all(|said| said.starts_with("the overlay is cut off: it has")), "{said:?}");
        file.set_len(len).unwrap();
    }
}

/// A device that takes a number of writes.
#[derive(Debug)]
struct Ending<'a>(&'a MemoryDevice, AtomicU64);

impl BlockDevice for Ending<'_> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(self.0)
    }
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        // The power fails within the second sector.
        self.0.write_at(&buf[..1024], offset)?;
        match self.1.fetch_sub(1, Ordering::Relaxed) {
            0 => Err(Error::io("below", std::io::Error::other("power failure"))),
            _ => self.0.write_at(buf, offset),
        }
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn what_was_written_during_a_commit_stays() {
    for is_old_edition in [false, true] {
        let (below, store) = written(&base(Some(1), false));
        if is_old_edition {
            make_old(&store, &below);
        }
        let ending = Ending(&below, AtomicU64::new(0));
        let trusted = |is_trusted| Arc::new(base(Some(1), is_trusted || is_old_edition));
        let said =
            text_of(OverlayFile::commit(&ending, Arc::clone(&store), trusted(false), &crate::NoEvents));
        assert!(said.contains("power failure"), "{said}");
        let commit = |is_trusted| {
            let base = Arc::new(base(Some(2), is_trusted));
            text_of(OverlayFile::commit(&below, Arc::clone(&store), base, &crate::NoEvents))
        };
        let open = text_of(OverlayFile::open(&below, Arc::clone(&store), trusted(true)));
        assert!(open.contains("a commit of the overlay was interrupted"), "{open}");
        if !is_old_edition {
            // Somebody writes between, among what was written, and behind it.
            for at in [4096, 5 * 4096] {
                let mut old = [0];
                below.read_at(&mut old, at).unwrap();
                below.write_at(b"x", at).unwrap();
                let before = bytes_of(&below);
                let said = commit(false);
                assert!(
                    said.contains("1 blocks of 4096 bytes") && said.contains("take the image as it is"),
                    "{said}"
                );
                assert!(bytes_of(&below) == before);
                below.write_at(&old, at).unwrap();
            }
            below.write_at(b"x", 4096).unwrap();
            assert_ne!(commit(false), "");
        }
        if is_old_edition {
            // It notes nothing of what was below.
            let said = commit(false);
            assert!(said.starts_with("the overlay was made by an earlier version"), "{said}");
        }
        assert_eq!(commit(true), "");
        let mut bytes = vec![0; 8 * 4096];
        below.read_at(&mut bytes, 4096).unwrap();
        assert!(bytes == vec![2; 8 * 4096]);
    }
}

/// Makes a store one of the first edition, which has the same block size and bitmap.
fn make_old(store: &Lossy, below: &MemoryDevice) {
    let [first, second] = [OverlayEdition::First, OverlayEdition::Second]
        .map(|edition| Layout::new(edition, below.size()).unwrap());
    let mut blocks = vec![0; usize_of(below.size())];
    store.read_at(&mut blocks, second.data_start).unwrap();
    store.write_at(&blocks, first.data_start).unwrap();
    let identity = padded(b"First").unwrap();
    let head = Head { is_committed: false, identity, state: None, number: None };
    store.write_at(&first.header(&head), 0).unwrap();
}

#[test]
fn overlays_of_earlier_versions_are_read_on_trust() {
    let (below, store) = written(&base(Some(1), false));
    make_old(&store, &below);
    let open =
        |is_trusted| OverlayFile::open(&below, Arc::clone(&store), Arc::new(base(Some(1), is_trusted)));
    assert!(text_of(open(false)).starts_with("the overlay was made by an earlier version"));
    let overlay = open(true).unwrap();
    overlay.write_at(&[3; 4096], 10 * 4096).unwrap();
    overlay.flush().unwrap();
    drop(overlay);
    let overlay = open(true).unwrap();
    let mut bytes = vec![0; 11 * 4096];
    overlay.read_at(&mut bytes, 0).unwrap();
    let expected = |at: usize| match at / 4096 {
        1..=8 => 2,
        10 => 3,
        _ => 1,
    };
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    assert!(below.into_bytes().iter().all(|byte| *byte == 1));
}
