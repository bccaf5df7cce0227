//! Tests of work in place: power that fails at any operation, and images that are not those of the journal.

use std::io;
use std::num::NonZeroUsize;
use std::sync::{LazyLock, Mutex};

use crate::ErrorKind;
use casemate_blockdev::{MemoryDevice, Pool, Result};
use casemate_providers::{Hash, Providers, Work};
use casemate_testkit::Rng;

use super::*;
use crate::{Params, SectorCipher};

const BLOCK: usize = 512;
pub(super) const KEY: [u8; 64] = {
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

pub(super) fn job<'a>(cipher: &'a SectorCipher, direction: Direction, key: &'a [u8]) -> Job<'a> {
    static WORK: LazyLock<Work<'static>> =
        LazyLock::new(|| Work { pool: Pool::new(NonZeroUsize::new(1)), ..Work::default() });
    let sha256 = sha256();
    Job { cipher, sha256, direction, key, mapping: "aes-xts-plain64 512", work: &WORK }
}

pub(super) fn sha256() -> &'static Hash {
    static SHA256: LazyLock<Hash> = LazyLock::new(|| Providers::default().hash("sha256").unwrap());
    &SHA256
}

pub(super) fn cipher(key: &[u8]) -> SectorCipher {
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
    let mut written = ciphertext.clone();
    written[LEN - 1] ^= 1;
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
        // Another image is not called encrypted.
        let other = MemoryDevice::new(changed.clone());
        assert!(resume(&encrypt, &other, &log(), &Unmarked).is_err());
        assert!(other.into_bytes() == changed);
        // Whatever was written since the end, nothing is written over it.
        let other = MemoryDevice::new(written.clone());
        assert_eq!(resume(&encrypt, &other, &log(), &Unmarked).is_ok(), is_finished, "{operations}");
        assert!(other.into_bytes() == written);
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
    // Records of the version before say that the work is finished, and nothing more. One beside one that goes on may be a torn one.
    let mut untold = finished.clone();
    for place in [0, usize_of(RECORD)] {
        untold[place + 208..place + usize_of(RECORD)].fill(0);
    }
    let (result, left) = resumed(&untold, &encrypted, &Unmarked);
    assert!(result.is_err_and(|text| text.contains("of an earlier version")) && left == encrypted);
    assert!(resumed(&untold, &written, &Marked) == (Ok(()), written.clone()));
    let mut torn = unfinished.clone();
    torn[..512].copy_from_slice(&finished[..512]);
    assert!(Record::newest(sha256(), &MemoryDevice::new(torn.clone())).unwrap().zones == 1);
    assert!(resumed(&torn, &encrypted, &Unmarked) == (Ok(()), encrypted.clone()));
    let (result, left) = resumed(&unfinished, &written, &Unmarked);
    assert!(result.as_ref().is_err_and(|text| text.contains("come to the end of its image")), "{result:?}");
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
