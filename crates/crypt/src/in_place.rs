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
//! A record is bound to the image by what it held at the beginning ([`samples`] of it): [`resume`] transforms back what
//! is done so far and compares. So work goes on when image and journal were copied elsewhere, and is refused when
//! somebody has put the image back as it was.
//!
//! After the last zone both records say that the work is finished. From then on the image may be written to, and nothing
//! of the journal is written to it any more.
//!
//! The journal file, byte by byte: docs/formats/in-place.md.

use std::sync::Mutex;

use casemate_blockdev::journal::RECORD;
use casemate_blockdev::{BlockDevice, MARK_NAME, samples, u64_of, usize_of};
use casemate_primitives::secret::{SecretVec, constant_time_eq};
use casemate_providers::{Direction, Hash, Hmac, Work};

use crate::image::check_size;
use crate::{Error, SectorCipher};

pub use marks::{Marks, Unmarked};
use record::Record;

mod marks;
mod record;

/// One piece of a hot zone, the work of one cipher call.
const PIECE: usize = 256 * 1024;

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// Bytes of a hot zone where none is given: with so many, flushing three times for each zone costs little.
pub const DEFAULT_HOT_ZONE: u64 = 32 << 20;

/// The most bytes of a hot zone: two zones are in the journal, one in memory.
pub const MAX_HOT_ZONE: u64 = 1 << 30;

/// Bytes of the journal before its slots: the two records.
pub const RECORDS: u64 = 2 * RECORD;

/// The transformation of an image in place: mapping, key and direction.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The mapping under its key.
    pub cipher: &'a SectorCipher,
    /// SHA-256, for the journal.
    pub sha256: &'a Hash,
    /// The direction: to ciphertext or to plaintext.
    pub direction: Direction,
    /// The mapping's key, by which resumed work is told from work with another key.
    pub key: &'a [u8],
    /// The mapping's description, in words that do not change: resumed work must have the same.
    pub mapping: &'a str,
    /// The threads, and the listener, which hears of bytes that are done.
    pub work: &'a Work<'a>,
}

/// Begins an image's transformation: writes the first record to an empty `journal`. The image is not touched;
/// [`resume`] does that.
///
/// # Errors
/// `Argument` for a hot zone that is not whole sectors or too large, or an image that is not whole sectors or whose IVs
/// pass 2^64; `Io`. After any error nothing is begun, and the journal is worth nothing.
pub fn begin(
    job: &Job<'_>,
    image: &dyn BlockDevice,
    journal: &dyn BlockDevice,
    hot_zone: u64,
    salt: [u8; 32],
) -> Result<(), Error> {
    check_size(job.cipher, image.size())?;
    if hot_zone == 0 || hot_zone > MAX_HOT_ZONE || !hot_zone.is_multiple_of(u64_of(job.cipher.sector_size()))
    {
        return Err(Error::argument(format!(
            "a hot zone of {hot_zone} bytes: it must be whole sectors of {}, at most {MAX_HOT_ZONE}",
            job.cipher.sector_size()
        )));
    }
    let image_tag = image_tag(job, &salt, image.size(), |buf, offset| image.read_at(buf, offset))?;
    let record = Record {
        decrypt: job.direction == Direction::Decrypt,
        is_finished: false,
        zones: 0,
        image_size: image.size(),
        hot_zone,
        data_digest: [0; 32],
        salt,
        key_tag: key_tag(job, &salt),
        image_tag,
    };
    // A journal of an earlier work would leave a record that looks newer.
    journal.write_at(&vec![0; usize_of(RECORD)], RECORD)?;
    record.write(job.sha256, journal)
}

/// Transforms the image, or those of its hot zones that are left, and ends with the journal that says so: of finished work nothing is
/// written, and an image is refused only that was put back as it was before. After an error, or after the process was killed, the transformation can be resumed again.
///
/// An image that has no mark may have been written to since. Then the zone that the journal has must be in the image as it was or as
/// it becomes, sector by sector.
///
/// # Errors
/// `Argument` if the key, the mapping, the direction or the image is another one than the journal tells of, and `Corrupt`
/// if the journal has no whole record or its slot does not have what the record says: nothing is written then. `Io`.
pub fn resume(
    job: &Job<'_>,
    image: &dyn BlockDevice,
    journal: &dyn BlockDevice,
    marks: &dyn Marks,
) -> Result<(), Error> {
    let record = Record::newest(job.sha256, journal)?;
    let refuse = |text: String| Err(Error::argument(text));
    if record.decrypt != (job.direction == Direction::Decrypt) {
        let begun = if record.decrypt { "a decryption" } else { "an encryption" };
        return refuse(format!("the journal belongs to {begun}; resume that"));
    }
    if record.image_size != image.size() {
        return refuse(format!(
            "the journal belongs to an image of {} bytes, this one has {}",
            record.image_size,
            image.size()
        ));
    }
    if !constant_time_eq(&record.key_tag, &key_tag(job, &record.salt)) {
        let text = "the key or the mapping's options are not those that the work was begun with";
        return refuse(text.to_owned());
    }
    if record.is_finished {
        let tag = image_tag(job, &record.salt, record.image_size, |buf, offset| image.read_at(buf, offset))?;
        if constant_time_eq(&record.image_tag, &tag) {
            return Err(changed(&record));
        }
        return marks.check(record.salt);
    }
    check_size(job.cipher, record.image_size)?;
    if !record.hot_zone.is_multiple_of(u64_of(job.cipher.sector_size())) {
        return Err(Error::corrupt("in-place journal: the hot zone is not whole sectors"));
    }
    let Some(zone) = record.zones.checked_sub(1) else {
        check_image(job, &record, image, &[])?;
        marks.set(record.salt)?;
        return go_on(job, image, journal, record);
    };
    let (offset, len) = record.zone(zone);
    let mut data = vec![0; len];
    journal.read_at(&mut data, record.slot(zone))?;
    if digest(job.sha256, &data) != record.data_digest {
        let text = format!("in-place journal: the data of hot zone {zone} is not what its record says");
        return Err(Error::corrupt(text));
    }
    check_image(job, &record, image, &data)?;
    if !marks.is_marked()? {
        check_hot_zone(job, &record, image, &data)?;
    }
    marks.set(record.salt)?;
    image.write_at(&data, offset)?;
    image.flush()?;
    drop(data);
    job.work.events.advance(offset + u64_of(len))?;
    go_on(job, image, journal, record)
}

/// Whether the image is the one that the work was begun with, transformed as far as the record says. `hot` is what
/// belongs to the zone that may be there in part.
fn check_image(job: &Job<'_>, record: &Record, image: &dyn BlockDevice, hot: &[u8]) -> Result<(), Error> {
    let tag = image_tag(job, &record.salt, record.image_size, |mut buf, mut offset| {
        while !buf.is_empty() {
            let zone = offset / record.hot_zone;
            let (start, len) = record.zone(zone);
            let within = usize_of(offset - start);
            let (now, later) = buf.split_at_mut(buf.len().min(len - within));
            match zone + 1 == record.zones {
                true => now.copy_from_slice(&hot[within..within + now.len()]),
                false => image.read_at(now, offset)?,
            }
            if zone < record.zones {
                job.cipher.run(back(job), offset / 512, now)?;
            }
            offset += u64_of(now.len());
            buf = later;
        }
        Ok(())
    })?;
    if constant_time_eq(&record.image_tag, &tag) { Ok(()) } else { Err(changed(record)) }
}

/// Whether each sector of the zone that may be there in part is as it was or as it becomes. One that can't be read was torn.
fn check_hot_zone(job: &Job<'_>, record: &Record, image: &dyn BlockDevice, hot: &[u8]) -> Result<(), Error> {
    let (start, _) = record.zone(record.zones - 1);
    for (offset, new) in (start..).step_by(PIECE).zip(hot.chunks(PIECE)) {
        let (mut there, mut old) = (new.to_vec(), new.to_vec());
        if image.read_at(&mut there, offset).is_err() {
            for (at, sector) in (offset..).step_by(SECTOR).zip(there.chunks_mut(SECTOR)) {
                let mut read = [0; SECTOR];
                let read = &mut read[..sector.len()];
                if image.read_at(read, at).is_ok() {
                    sector.copy_from_slice(read);
                }
            }
        }
        job.cipher.run(back(job), offset / 512, &mut old)?;
        let both = old.chunks(SECTOR).zip(new.chunks(SECTOR));
        if !there.chunks(SECTOR).zip(both).all(|(there, (old, new))| there == old || there == new) {
            return Err(changed(record));
        }
    }
    Ok(())
}

/// The direction that undoes the work.
fn back(job: &Job<'_>) -> Direction {
    match job.direction {
        Direction::Encrypt => Direction::Decrypt,
        Direction::Decrypt => Direction::Encrypt,
    }
}

/// Refusal of an image that is not as the work left it.
fn changed(record: &Record) -> Error {
    let what = "this is not the image as the stopped work left it: it is another one, or was put back or changed since.";
    Error::argument(match record.zones == record.all_zones() {
        true => format!(
            "{what} The work had come to the end of its image, and goes on with nothing: if this image is whole, remove the \
             journal, and the image's attribute {MARK_NAME} if it has one"
        ),
        false => format!(
            "{what} Bring that image back to go on; if this one is whole, remove the journal, and the image's attribute \
             {MARK_NAME} if it has one, and begin anew"
        ),
    })
}

/// The record's hot zones from its number on, and the end of the work.
fn go_on(
    job: &Job<'_>,
    image: &dyn BlockDevice,
    journal: &dyn BlockDevice,
    mut record: Record,
) -> Result<(), Error> {
    let zones = record.all_zones();
    // At most MAX_HOT_ZONE.
    let mut data = vec![0; usize_of(record.hot_zone.min(record.image_size))];
    while record.zones < zones {
        let zone = record.zones;
        let (offset, len) = record.zone(zone);
        let data = &mut data[..len];
        transform_zone(job, image, offset, data)?;
        journal.write_at(data, record.slot(zone))?;
        journal.flush()?;
        record.data_digest = digest(job.sha256, data);
        record.zones = zone + 1;
        record.write(job.sha256, journal)?;
        image.write_at(data, offset)?;
        image.flush()?;
        job.work.events.advance(u64_of(len))?;
    }
    record.finish(job.sha256, journal)
}

/// Reads a zone and transforms it, on all threads.
fn transform_zone(job: &Job<'_>, image: &dyn BlockDevice, offset: u64, data: &mut [u8]) -> Result<(), Error> {
    let pieces: Vec<Mutex<&mut [u8]>> = data.chunks_mut(PIECE).map(Mutex::new).collect();
    job.work.pool.run(
        u64_of(pieces.len()),
        || (),
        |(), k| {
            // OK to unwrap: an index of the vector, locked once.
            let mut piece = pieces[usize_of(k)].lock().unwrap();
            let offset = offset + k * u64_of(PIECE);
            image.read_at(&mut piece, offset)?;
            job.cipher.run(job.direction, offset / 512, &mut piece)
        },
    )
}

fn key_tag(job: &Job<'_>, salt: &[u8; 32]) -> [u8; 32] {
    tag(job, &[salt, job.mapping.as_bytes()].concat())
}

/// The code that tells the image from others. It is made under the key, so that a reader of the journal can't
/// confirm a guess at what the image holds.
fn image_tag(
    job: &Job<'_>,
    salt: &[u8; 32],
    size: u64,
    mut read: impl FnMut(&mut [u8], u64) -> Result<(), Error>,
) -> Result<[u8; 32], Error> {
    let start = [&b"image"[..], salt].concat();
    // A MiB and a little.
    let sampled: u64 = samples(size).map(|range| range.end - range.start).sum();
    let mut message = SecretVec::zeroed(start.len() + usize_of(sampled));
    let (first, mut rest) = message.expose_mut().split_at_mut(start.len());
    first.copy_from_slice(&start);
    for range in samples(size) {
        let (now, later) = rest.split_at_mut(usize_of(range.end - range.start));
        read(now, range.start)?;
        rest = later;
    }
    Ok(tag(job, message.expose()))
}

/// HMAC-SHA256 under the key.
fn tag(job: &Job<'_>, message: &[u8]) -> [u8; 32] {
    // OK to unwrap: SHA-256's length.
    Hmac::new(job.sha256.clone(), job.key).tag(message).expose().try_into().unwrap()
}

fn digest(sha256: &Hash, message: &[u8]) -> [u8; 32] {
    // OK to unwrap: SHA-256's length.
    sha256.digest(message).try_into().unwrap()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::num::NonZeroUsize;
    use std::sync::{LazyLock, Mutex};

    use crate::ErrorKind;
    use casemate_blockdev::{MemoryDevice, Pool, Result};
    use casemate_providers::Providers;
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
        fn spend(&self) -> Result<()> {
            let mut power = self.power.lock().unwrap();
            *power -= 1;
            if *power < 0 { Err(io::Error::other("the power failed").into()) } else { Ok(()) }
        }

        /// The device after a power cut: each block old or new.
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
        fn below(&self) -> Option<&dyn BlockDevice> {
            None
        }

        fn size(&self) -> u64 {
            self.state.lock().unwrap().cached.len() as u64
        }

        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            let state = self.state.lock().unwrap();
            let bytes = state.cached.get(offset as usize..offset as usize + buf.len());
            buf.copy_from_slice(bytes.ok_or_else(|| io::Error::other("past the end"))?);
            Ok(())
        }

        fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
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

        fn flush(&self) -> Result<()> {
            self.spend()?;
            let mut state = self.state.lock().unwrap();
            state.stable = state.cached.clone();
            Ok(())
        }
    }

    fn job<'a>(cipher: &'a SectorCipher, direction: Direction, key: &'a [u8]) -> Job<'a> {
        static WORK: LazyLock<Work<'static>> =
            LazyLock::new(|| Work { pool: Pool::new(NonZeroUsize::new(1)), ..Work::default() });
        let sha256 = sha256();
        Job { cipher, sha256, direction, key, mapping: "aes-xts-plain64 512", work: &WORK }
    }

    fn sha256() -> &'static Hash {
        static SHA256: LazyLock<Hash> = LazyLock::new(|| Providers::default().hash("sha256").unwrap());
        &SHA256
    }

    fn cipher(key: &[u8]) -> SectorCipher {
        let params = Params::new("aes-xts-plain64".parse().unwrap());
        SectorCipher::new(&params, key, &Providers::default()).unwrap()
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
                let job = job(&cipher, Direction::Encrypt, &key);
                let first = if begun { Ok(()) } else { begin(&job, &disk, &log, 4096, [3; 32]) };
                let result = first.and_then(|()| resume(&job, &disk, &log, &Unmarked));
                image = disk.after_power_failure(&mut rng);
                journal = log.after_power_failure(&mut rng);
                match result {
                    Ok(()) => break,
                    // A journal that never became whole means that the image was never touched.
                    Err(error) if error.kind() == ErrorKind::Corrupt && image == plaintext => begun = false,
                    Err(error) if error.kind() == ErrorKind::Io => begun = true,
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
        let encrypt = job(&cipher, Direction::Encrypt, &key);
        begin(&encrypt, &image, &journal, 4096, [3; 32]).unwrap();
        resume(&encrypt, &image, &journal, &Unmarked).unwrap_err();
        *power.lock().unwrap() = i64::MAX;
        let fails = |job: &Job<'_>, image: &dyn BlockDevice| {
            resume(job, image, &journal, &Unmarked).unwrap_err().to_string()
        };
        assert!(fails(&job(&cipher, Direction::Decrypt, &key), &image).contains("belongs to an encryption"));
        assert!(
            fails(&job(&cipher, Direction::Encrypt, &KEY[1..]), &image)
                .contains("not those that the work was begun")
        );
        assert!(
            fails(&Job { mapping: "other", ..encrypt }, &image).contains("not those that the work was begun")
        );
        assert!(fails(&encrypt, &MemoryDevice::new(vec![0; 512])).contains("an image of 20480 bytes"));
        resume(&encrypt, &image, &journal, &Unmarked).unwrap();
    }

    /// Work that is stopped after each number of operations goes on with what it left, a copy of it too; with the image
    /// as it was, or another, only where that gives the right result.
    #[test]
    fn only_what_the_work_left_is_gone_on_with() {
        const LEN: usize = 5 * 4096 + 512;
        let key = KEY;
        let cipher = cipher(&key);
        let encrypt = job(&cipher, Direction::Encrypt, &key);
        let plaintext = Rng::new(2).bytes(LEN);
        let mut ciphertext = plaintext.clone();
        cipher.encrypt(0, &mut ciphertext).unwrap();
        let (mut refused, mut changed) = (0, plaintext.clone());
        changed[LEN - 1] ^= 1;
        for operations in 3.. {
            let power = std::sync::Arc::new(Mutex::new(operations));
            let (image, journal) = (Disk::new(plaintext.clone(), &power), Disk::new(Vec::new(), &power));
            begin(&encrypt, &image, &journal, 4096, [3; 32]).unwrap();
            let whole = resume(&encrypt, &image, &journal, &Unmarked).is_ok();
            *power.lock().unwrap() = i64::MAX;
            let log = || {
                let mut bytes = journal.state.lock().unwrap().cached.clone();
                bytes.resize(4 * 4096, 0);
                MemoryDevice::new(bytes)
            };
            let left = MemoryDevice::new(image.state.lock().unwrap().cached.clone());
            resume(&encrypt, &left, &log(), &Unmarked).unwrap();
            assert!(left.into_bytes() == ciphertext, "{operations}");
            let is_finished = Record::newest(sha256(), &log()).unwrap().is_finished;
            let restored = MemoryDevice::new(plaintext.clone());
            match resume(&encrypt, &restored, &log(), &Unmarked) {
                Ok(()) => assert!(restored.into_bytes() == ciphertext, "{operations}"),
                Err(error) => {
                    assert!(error.to_string().contains("put back or changed since"), "{error}");
                    assert!(restored.into_bytes() == plaintext, "{operations}");
                    refused += 1;
                }
            }
            // Whatever was written since the end, nothing is written over it.
            let other = MemoryDevice::new(changed.clone());
            assert_eq!(resume(&encrypt, &other, &log(), &Unmarked).is_ok(), is_finished);
            assert!(other.into_bytes() == changed);
            if whole {
                break;
            }
        }
        // From the second zone's record on.
        assert!(refused > 10, "{refused}");
    }

    /// An image that nobody else has written to, by its mark.
    struct Marked;

    impl Marks for Marked {
        fn is_marked(&self) -> Result<bool> {
            Ok(true)
        }

        fn check(&self, _id: [u8; 32]) -> Result<()> {
            Ok(())
        }

        fn set(&self, _id: [u8; 32]) -> Result<()> {
            Ok(())
        }
    }

    /// Work that is stopped at its end, with a journal that says so and with one that does not, and an image that was written to.
    #[test]
    fn what_came_after_the_end_stays() {
        const LEN: usize = 2 << 20;
        let key = KEY;
        let cipher = cipher(&key);
        let encrypt = job(&cipher, Direction::Encrypt, &key);
        let image = MemoryDevice::new(Rng::new(3).bytes(LEN));
        let journal = MemoryDevice::new(vec![0; usize_of(RECORDS) + 2 * LEN]);
        begin(&encrypt, &image, &journal, u64_of(LEN), [3; 32]).unwrap();
        let begun = journal.into_bytes();
        let journal = MemoryDevice::new(begun);
        resume(&encrypt, &image, &journal, &Unmarked).unwrap();
        let encrypted = image.into_bytes();
        let finished = journal.into_bytes();
        let record = Record::newest(sha256(), &MemoryDevice::new(finished.clone())).unwrap();
        assert!(record.is_finished && record.zones == 1);
        // As it was before the end.
        let unfinished = MemoryDevice::new(finished.clone());
        let data_digest = digest(sha256(), &finished[usize_of(RECORDS)..][..LEN]);
        Record { is_finished: false, data_digest, ..record.clone() }.write(sha256(), &unfinished).unwrap();
        unfinished.write_at(&[0; 4096], 0).unwrap();
        let unfinished = unfinished.into_bytes();
        // No sample tells of it.
        let at = (1 << 20) + 4096 + 512;
        let mut written = encrypted.clone();
        written[at..at + 512].fill(7);
        let resumed = |journal: &[u8], image: &[u8], marks: &dyn Marks| {
            let image = MemoryDevice::new(image.to_vec());
            let result = resume(&encrypt, &image, &MemoryDevice::new(journal.to_vec()), marks);
            (result.map_err(|error| error.to_string()), image.into_bytes())
        };
        for marks in [&Unmarked as &dyn Marks, &Marked] {
            assert!(resumed(&finished, &written, marks) == (Ok(()), written.clone()));
            assert!(resumed(&unfinished, &encrypted, marks) == (Ok(()), encrypted.clone()));
        }
        let (result, left) = resumed(&unfinished, &written, &Unmarked);
        assert!(
            result.as_ref().is_err_and(|text| text.contains("come to the end of its image")),
            "{result:?}"
        );
        assert!(left == written);
        // A mark has kept others from it: what is there was torn.
        assert!(resumed(&unfinished, &written, &Marked) == (Ok(()), encrypted));
        let other = Job { direction: Direction::Decrypt, ..encrypt };
        let result = resume(&other, &MemoryDevice::new(written), &MemoryDevice::new(finished), &Unmarked);
        assert!(result.is_err_and(|error| error.text().contains("belongs to an encryption")));
    }

    #[test]
    fn what_can_not_be_ended_is_not_begun() {
        let mut params = Params::new("aes-xts-plain64".parse().unwrap());
        params.iv_offset = u64::MAX - 47;
        let cipher = SectorCipher::new(&params, &KEY, &Providers::default()).unwrap();
        let encrypt = job(&cipher, Direction::Encrypt, &KEY);
        let (image, journal) = (MemoryDevice::new(vec![1; 48 * 512]), MemoryDevice::new(vec![0; 4 * 4096]));
        let error = begin(&encrypt, &image, &journal, 4096, [3; 32]).unwrap_err();
        assert!(error.kind() == ErrorKind::Argument && error.text().contains("pass 2^64"), "{error}");
        assert!(journal.into_bytes() == vec![0; 4 * 4096]);
        let smaller = MemoryDevice::new(vec![1; 47 * 512]);
        let journal = MemoryDevice::new(vec![0; 4 * 4096]);
        begin(&encrypt, &smaller, &journal, 4096, [3; 32]).unwrap();
        resume(&encrypt, &smaller, &journal, &Unmarked).unwrap();
    }
}
