//! Encrypting or decrypting an image where it lies, so that being killed at any moment loses nothing.
//!
//! The image is worked through in hot zones. For each one, in this order:
//!
//! 1. the transformed bytes are written to one of two slots of a journal file, and flushed;
//! 2. a record that says which zone this is, with the bytes' SHA-256, is written to the journal, and flushed;
//! 3. the bytes are written to their place in the image, and flushed.
//!
//! Before 2 is on stable storage the zone in the image is untouched, so it can be read again. After 2 the journal has
//! what belongs there, and writing it once more does no harm. Records and slots take turns, so a record that is torn
//! while it is written leaves the one before it, whose slot nobody has touched. [`resume`] goes on from the newer of the
//! records that are whole.
//!
//! Journal file, little-endian: two records of 4096 bytes, then two slots of one hot zone each.
//!
//! | offset | size | field of a record |
//! |---|---|---|
//! | 0 | 16 | `casemate-inplace` |
//! | 16 | 4 | version, 1 |
//! | 20 | 4 | 0 encrypt, 1 decrypt |
//! | 24 | 8 | zones whose record was written: 0 at the beginning, then 1, 2, ... |
//! | 32 | 8 | bytes of the image |
//! | 40 | 8 | bytes of a hot zone |
//! | 48 | 32 | SHA-256 of the slot's bytes, zero at the beginning |
//! | 80 | 32 | salt |
//! | 112 | 32 | HMAC-SHA256 under the key, over the salt and the description of the mapping |
//! | 144 | 32 | SHA-256 of the bytes before |

use std::sync::Mutex;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use casemate_blockdev::{BlockDevice, Pool, Progress};
use casemate_primitives::secret::constant_time_eq;
use casemate_providers::Direction;

use crate::image::whole_sectors;
use crate::{Error, SectorCipher};

const MAGIC: &[u8; 16] = b"casemate-inplace";
const VERSION: u32 = 1;
const RECORD: u64 = 4096;
const RECORD_LEN: usize = 176;

/// One piece of a hot zone, the work of one cipher call.
const PIECE: usize = 256 * 1024;

/// The hot zone that is used where none is given: flushing three times for each costs little then.
pub const DEFAULT_HOT_ZONE: u64 = 32 << 20;

/// The largest hot zone: two of them are in the journal, one in memory.
pub const MAX_HOT_ZONE: u64 = 1 << 30;

/// What is to be done to an image.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// The mapping under its key.
    pub cipher: &'a SectorCipher,
    /// Which way.
    pub direction: Direction,
    /// The key again, to tell whether a resumed work has the same one.
    pub key: &'a [u8],
    /// What the mapping is, in words that do not change: a resumed work must have the same.
    pub mapping: &'a str,
    /// The threads.
    pub pool: Pool,
    /// Hears how many bytes are done.
    pub progress: &'a dyn Progress,
}

/// Begins the work with an empty `journal`, which grows to a little over two hot zones.
///
/// # Errors
/// `Argument` for a hot zone that is not whole sectors or too large, or an image that is not whole sectors; `Io`. After
/// an error while zones are worked on the work can be resumed.
pub fn begin(
    work: &Work<'_>,
    image: &dyn BlockDevice,
    journal: &dyn BlockDevice,
    hot_zone: u64,
    salt: [u8; 32],
) -> Result<(), Error> {
    whole_sectors(work.cipher, image.size())?;
    if hot_zone == 0 || hot_zone > MAX_HOT_ZONE || !hot_zone.is_multiple_of(work.cipher.sector_size() as u64)
    {
        return Err(Error::Argument(format!(
            "a hot zone of {hot_zone} bytes: it must be whole sectors of {}, at most {MAX_HOT_ZONE}",
            work.cipher.sector_size()
        )));
    }
    let record = Record {
        decrypt: work.direction == Direction::Decrypt,
        zones: 0,
        image_size: image.size(),
        hot_zone,
        data_digest: [0; 32],
        salt,
        key_tag: key_tag(work, &salt),
    };
    // A journal of an earlier work would leave a record that looks newer.
    journal.write_at(&[0; RECORD as usize], RECORD)?;
    record.write(journal)?;
    go_on(work, image, journal, record)
}

/// Goes on with a work that was stopped.
///
/// # Errors
/// `Corrupt` if the journal has no whole record or its slot does not have what the record says; `Mismatch` if the key,
/// the mapping, the direction or the image's size is another one; `Io`.
pub fn resume(work: &Work<'_>, image: &dyn BlockDevice, journal: &dyn BlockDevice) -> Result<(), Error> {
    let record = Record::newest(journal)?;
    if record.decrypt != (work.direction == Direction::Decrypt) {
        let begun = if record.decrypt { "a decryption" } else { "an encryption" };
        return Err(Error::Mismatch(format!("the journal belongs to {begun}; resume that")));
    }
    if record.image_size != image.size() {
        return Err(Error::Mismatch(format!(
            "the journal belongs to an image of {} bytes, this one has {}",
            record.image_size,
            image.size()
        )));
    }
    if !constant_time_eq(&record.key_tag, &key_tag(work, &record.salt)) {
        let text = "the key or the mapping's options are not those that the work was begun with";
        return Err(Error::Mismatch(text.to_owned()));
    }
    if !record.hot_zone.is_multiple_of(work.cipher.sector_size() as u64) {
        return Err(Error::Corrupt("in-place journal: the hot zone is not whole sectors".to_owned()));
    }
    if let Some(zone) = record.zones.checked_sub(1) {
        let (offset, len) = record.zone(zone);
        let mut data = vec![0; len];
        journal.read_at(&mut data, record.slot(zone))?;
        if Sha256::digest(&data)[..] != record.data_digest {
            let text = format!("in-place journal: the data of hot zone {zone} is not what its record says");
            return Err(Error::Corrupt(text));
        }
        image.write_at(&data, offset)?;
        image.flush()?;
        work.progress.advance(offset + len as u64)?;
    }
    go_on(work, image, journal, record)
}

/// The record's hot zones from its number on.
fn go_on(
    work: &Work<'_>,
    image: &dyn BlockDevice,
    journal: &dyn BlockDevice,
    mut record: Record,
) -> Result<(), Error> {
    let zones = record.image_size.div_ceil(record.hot_zone);
    // OK to cast: at most MAX_HOT_ZONE.
    let mut data = vec![0; record.hot_zone.min(record.image_size) as usize];
    while record.zones < zones {
        let zone = record.zones;
        let (offset, len) = record.zone(zone);
        let data = &mut data[..len];
        transform_zone(work, image, offset, data)?;
        journal.write_at(data, record.slot(zone))?;
        journal.flush()?;
        record.data_digest = Sha256::digest(&*data).into();
        record.zones = zone + 1;
        record.write(journal)?;
        image.write_at(data, offset)?;
        image.flush()?;
        work.progress.advance(len as u64)?;
    }
    Ok(())
}

/// Reads a zone and transforms it, on all threads.
fn transform_zone(
    work: &Work<'_>,
    image: &dyn BlockDevice,
    offset: u64,
    data: &mut [u8],
) -> Result<(), Error> {
    let pieces: Vec<Mutex<&mut [u8]>> = data.chunks_mut(PIECE).map(Mutex::new).collect();
    work.pool.run(
        pieces.len() as u64,
        || (),
        |(), k| {
            // OK to cast and to unwrap: an index of the vector, locked once.
            let mut piece = pieces[k as usize].lock().unwrap();
            let offset = offset + k * PIECE as u64;
            image.read_at(&mut piece, offset)?;
            work.cipher.run(work.direction, offset / 512, &mut piece)
        },
    )
}

fn key_tag(work: &Work<'_>, salt: &[u8; 32]) -> [u8; 32] {
    // OK to unwrap: HMAC takes keys of any length.
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(work.key).unwrap();
    mac.update(salt);
    mac.update(work.mapping.as_bytes());
    mac.finalize().into_bytes().into()
}

/// How far the work has come.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    decrypt: bool,
    zones: u64,
    image_size: u64,
    hot_zone: u64,
    data_digest: [u8; 32],
    salt: [u8; 32],
    key_tag: [u8; 32],
}

impl Record {
    /// The newer one of the records that are whole.
    fn newest(journal: &dyn BlockDevice) -> Result<Record, Error> {
        let read = |place: u64| {
            let mut bytes = [0; RECORD_LEN];
            journal.read_at(&mut bytes, place * RECORD).ok()?;
            Record::from_bytes(&bytes)
        };
        let newest = [read(0), read(1)].into_iter().flatten().max_by_key(|record| record.zones);
        newest.ok_or_else(|| {
            Error::Corrupt("in-place journal: no whole record; it is no journal, or a damaged one".into())
        })
    }

    /// Writes and flushes the record at its place; the one before stays.
    fn write(&self, journal: &dyn BlockDevice) -> Result<(), Error> {
        journal.write_at(&self.to_bytes(), (self.zones % 2) * RECORD)?;
        Ok(journal.flush()?)
    }

    /// `None` unless the bytes are a record whose checksum holds and whose numbers make sense.
    fn from_bytes(bytes: &[u8; RECORD_LEN]) -> Option<Record> {
        let (body, checksum) = bytes.split_at(RECORD_LEN - 32);
        let u32_at = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
        let array_at = |at: usize| -> [u8; 32] { body[at..at + 32].try_into().unwrap() };
        let record = Record {
            decrypt: u32_at(20) == 1,
            zones: u64_at(24),
            image_size: u64_at(32),
            hot_zone: u64_at(40),
            data_digest: array_at(48),
            salt: array_at(80),
            key_tag: array_at(112),
        };
        let sane = body.starts_with(MAGIC)
            && u32_at(16) == VERSION
            && u32_at(20) <= 1
            && (1..=MAX_HOT_ZONE).contains(&record.hot_zone)
            && record.zones <= record.image_size.div_ceil(record.hot_zone);
        (sane && Sha256::digest(body)[..] == *checksum).then_some(record)
    }

    fn to_bytes(&self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        bytes[20..24].copy_from_slice(&u32::from(self.decrypt).to_le_bytes());
        for (at, number) in [(24, self.zones), (32, self.image_size), (40, self.hot_zone)] {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        for (at, array) in [(48, &self.data_digest), (80, &self.salt), (112, &self.key_tag)] {
            bytes[at..at + 32].copy_from_slice(array);
        }
        let checksum = Sha256::digest(&bytes[..RECORD_LEN - 32]);
        bytes[RECORD_LEN - 32..].copy_from_slice(&checksum);
        bytes
    }

    /// Where a zone lies in the image, and how long it is.
    fn zone(&self, zone: u64) -> (u64, usize) {
        let offset = zone * self.hot_zone;
        // OK to cast: at most MAX_HOT_ZONE.
        (offset, self.hot_zone.min(self.image_size - offset) as usize)
    }

    /// Where a zone's slot lies in the journal.
    fn slot(&self, zone: u64) -> u64 {
        2 * RECORD + (zone % 2) * self.hot_zone
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::num::NonZeroUsize;
    use std::sync::Mutex;

    use casemate_blockdev::{MemoryDevice, NoProgress};
    use casemate_primitives::Cpu;
    use casemate_providers::{Policy, Registry};
    use casemate_testkit::Rng;

    use super::*;
    use crate::Params;

    const BLOCK: usize = 512;
    const KEY: [u8; 64] = {
        let mut key = [9; 64];
        key[0] = 1;
        key
    };

    /// A disk that forgets: what was not flushed is there, gone or there in part after the power fails.
    struct Disk {
        state: Mutex<DiskState>,
        power: std::sync::Arc<Mutex<i64>>,
    }

    struct DiskState {
        stable: Vec<u8>,
        cached: Vec<u8>,
    }

    impl Disk {
        fn new(bytes: Vec<u8>, power: &std::sync::Arc<Mutex<i64>>) -> Disk {
            let state = DiskState { stable: bytes.clone(), cached: bytes };
            Disk { state: Mutex::new(state), power: power.clone() }
        }

        /// One more operation, if there is still power.
        fn spend(&self) -> io::Result<()> {
            let mut power = self.power.lock().unwrap();
            *power -= 1;
            if *power < 0 { Err(io::Error::other("the power failed")) } else { Ok(()) }
        }

        /// What is there when the power comes back: each block old or new.
        fn after_power_failure(self, rng: &mut Rng) -> Vec<u8> {
            let DiskState { mut stable, cached } = self.state.into_inner().unwrap();
            stable.resize(cached.len(), 0);
            for (old, new) in stable.chunks_mut(BLOCK).zip(cached.chunks(BLOCK)) {
                if rng.below(2) == 0 {
                    old.copy_from_slice(new);
                }
            }
            stable
        }
    }

    impl BlockDevice for Disk {
        fn size(&self) -> u64 {
            self.state.lock().unwrap().cached.len() as u64
        }

        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
            let state = self.state.lock().unwrap();
            let bytes = state.cached.get(offset as usize..offset as usize + buf.len());
            buf.copy_from_slice(bytes.ok_or_else(|| io::Error::other("past the end"))?);
            Ok(())
        }

        fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
            // A write that the power failure interrupts has done part of its work.
            let whole = self.spend();
            let part = if whole.is_ok() { buf.len() } else { buf.len() / 2 / BLOCK * BLOCK };
            let mut state = self.state.lock().unwrap();
            let end = offset as usize + part;
            if state.cached.len() < end {
                state.cached.resize(end, 0);
            }
            state.cached[offset as usize..end].copy_from_slice(&buf[..part]);
            whole
        }

        fn flush(&self) -> io::Result<()> {
            self.spend()?;
            let mut state = self.state.lock().unwrap();
            state.stable = state.cached.clone();
            Ok(())
        }
    }

    fn work<'a>(cipher: &'a SectorCipher, direction: Direction, key: &'a [u8]) -> Work<'a> {
        let pool = Pool::new(NonZeroUsize::new(1));
        Work { cipher, direction, key, mapping: "aes-xts-plain64 512", pool, progress: &NoProgress }
    }

    fn cipher(key: &[u8]) -> SectorCipher {
        let params = Params::new("aes-xts-plain64".parse().unwrap());
        SectorCipher::new(&params, key, &Registry::new(Cpu::detect()), &Policy::default()).unwrap()
    }

    #[test]
    fn power_may_fail_at_any_operation_any_number_of_times() {
        let key = KEY;
        let cipher = cipher(&key);
        let plaintext = Rng::new(1).bytes(11 * 4096 + 512);
        let mut ciphertext = plaintext.clone();
        cipher.encrypt(0, &mut ciphertext).unwrap();
        for seed in 0..400 {
            let mut rng = Rng::new(seed);
            let (mut image, mut journal) = (plaintext.clone(), Vec::new());
            let mut begun = false;
            for attempt in 0.. {
                // The first attempts are short, so that several failures hit one run.
                let power = std::sync::Arc::new(Mutex::new(rng.below(20 + attempt * 10) as i64));
                let (disk, log) = (Disk::new(image, &power), Disk::new(journal, &power));
                let work = work(&cipher, Direction::Encrypt, &key);
                let result =
                    if begun { resume(&work, &disk, &log) } else { begin(&work, &disk, &log, 4096, [3; 32]) };
                image = disk.after_power_failure(&mut rng);
                journal = log.after_power_failure(&mut rng);
                match result {
                    Ok(()) => break,
                    // A journal that never became whole means that the image was never touched.
                    Err(Error::Corrupt(_)) if image == plaintext => begun = false,
                    Err(Error::Io(_)) => begun = true,
                    Err(error) => panic!("seed {seed}, attempt {attempt}: {error}"),
                }
            }
            assert!(image == ciphertext, "seed {seed}");
        }
    }

    #[test]
    fn only_the_same_work_is_resumed() {
        let key = KEY;
        let cipher = cipher(&key);
        let power = std::sync::Arc::new(Mutex::new(9));
        let (image, journal) = (Disk::new(vec![1; 5 * 4096], &power), Disk::new(Vec::new(), &power));
        let encrypt = work(&cipher, Direction::Encrypt, &key);
        begin(&encrypt, &image, &journal, 4096, [3; 32]).unwrap_err();
        *power.lock().unwrap() = i64::MAX;
        let fails =
            |work: &Work<'_>, image: &dyn BlockDevice| resume(work, image, &journal).unwrap_err().to_string();
        assert!(fails(&work(&cipher, Direction::Decrypt, &key), &image).contains("belongs to an encryption"));
        assert!(
            fails(&work(&cipher, Direction::Encrypt, &KEY[1..]), &image)
                .contains("not those that the work was begun")
        );
        assert!(
            fails(&Work { mapping: "other", ..encrypt }, &image)
                .contains("not those that the work was begun")
        );
        assert!(fails(&encrypt, &MemoryDevice::new(vec![0; 512])).contains("an image of 20480 bytes"));
        resume(&encrypt, &image, &journal).unwrap();
    }

    #[test]
    fn records_with_any_damage_are_no_records() {
        let record = Record {
            decrypt: false,
            zones: 2,
            image_size: 1 << 30,
            hot_zone: 1 << 20,
            data_digest: [1; 32],
            salt: [2; 32],
            key_tag: [3; 32],
        };
        let bytes = record.to_bytes();
        assert_eq!(Record::from_bytes(&bytes), Some(record));
        for i in 0..RECORD_LEN {
            let mut damaged = bytes;
            damaged[i] ^= 0x10;
            assert_eq!(Record::from_bytes(&damaged), None, "byte {i}");
        }
    }
}
