//! Records of a journal: how far the work has come.

use casemate_blockdev::journal::{FINISHED, MAGIC, RECORD, RECORD_LEN, VERSION};
use casemate_blockdev::{BlockDevice, usize_of};
use casemate_providers::Hash;

use super::end::End;
use super::job::digest;
use crate::Error;

/// The most bytes of a hot zone: two zones are in the journal, one in memory.
pub const MAX_HOT_ZONE: u64 = 1 << 30;

/// Bytes of the journal before its slots: the two records.
pub const RECORDS: u64 = 2 * RECORD;

/// How far the work has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub decrypt: bool,
    /// Whether all of the image is on stable storage: what was written to it since is newer than the slots.
    pub is_finished: bool,
    pub zones: u64,
    pub image_size: u64,
    pub hot_zone: u64,
    pub data_digest: [u8; 32],
    pub salt: [u8; 32],
    pub key_tag: [u8; 32],
    pub image_tag: [u8; 32],
    /// State of the image at the end; `None` of unfinished work, and of finished work of an earlier version.
    pub end: Option<End>,
}

impl Record {
    /// The newer one of the records that are whole; one that says that the work is finished is the last. Without the state of the image
    /// it was torn there, or an earlier version wrote it: as long as the other one is of unfinished work, that ends once more.
    pub fn newest(sha256: &Hash, journal: &dyn BlockDevice) -> Result<Record, Error> {
        let read = |place: u64| {
            let mut bytes = [0; RECORD_LEN];
            journal.read_at(&mut bytes, place * RECORD).ok()?;
            let mut record = Record::from_bytes(sha256, &bytes)?;
            if record.is_finished {
                let mut bytes = vec![0; End::place_len(record.image_size)];
                let is_there = journal.read_at(&mut bytes, place * RECORD).is_ok();
                record.end = if is_there { End::from_place(sha256, &bytes) } else { None };
            }
            Some(record)
        };
        let rank =
            |record: &Record| (record.is_finished == record.end.is_some(), record.is_finished, record.zones);
        let newest = [read(0), read(1)].into_iter().flatten().max_by_key(rank);
        newest.ok_or_else(|| {
            Error::corrupt(
                "in-place journal: it holds no whole record: the file is not a journal, or is damaged",
            )
        })
    }

    /// Writes and flushes the record at its place; the one before stays.
    pub fn write(&self, sha256: &Hash, journal: &dyn BlockDevice) -> Result<(), Error> {
        journal.write_at(&self.to_bytes(sha256), (self.zones % 2) * RECORD)?;
        journal.flush()
    }

    /// Writes that the work is finished in place of both records, the older one first, so that the newer one is there until that is on
    /// stable storage.
    pub fn finish(self, sha256: &Hash, journal: &dyn BlockDevice, end: &End) -> Result<(), Error> {
        let (older, newer) = ((self.zones + 1) % 2, self.zones % 2);
        let finished = Record { is_finished: true, data_digest: [0; 32], ..self };
        let bytes = end.to_place(sha256, &finished.to_bytes(sha256));
        for place in [older, newer] {
            journal.write_at(&bytes, place * RECORD)?;
            journal.flush()?;
        }
        Ok(())
    }

    /// Number of the image's hot zones.
    pub fn all_zones(&self) -> u64 {
        self.image_size.div_ceil(self.hot_zone)
    }

    /// `None` unless the bytes are a record whose checksum holds and whose numbers make sense.
    fn from_bytes(sha256: &Hash, bytes: &[u8; RECORD_LEN]) -> Option<Record> {
        let (body, checksum) = bytes.split_at(RECORD_LEN - 32);
        let u32_at = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
        let array_at = |at: usize| -> [u8; 32] { body[at..at + 32].try_into().unwrap() };
        let record = Record {
            decrypt: u32_at(20) & 1 == 1,
            is_finished: u32_at(20) & FINISHED != 0,
            zones: u64_at(24),
            image_size: u64_at(32),
            hot_zone: u64_at(40),
            data_digest: array_at(48),
            salt: array_at(80),
            key_tag: array_at(112),
            image_tag: array_at(144),
            end: None,
        };
        let sane = body.starts_with(MAGIC)
            && u32_at(16) == VERSION
            && u32_at(20) < 2 * FINISHED
            && (1..=MAX_HOT_ZONE).contains(&record.hot_zone)
            && record.zones <= record.all_zones();
        (sane && digest(sha256, body) == *checksum).then_some(record)
    }

    fn to_bytes(&self, sha256: &Hash) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        let kind = u32::from(self.decrypt) | if self.is_finished { FINISHED } else { 0 };
        bytes[20..24].copy_from_slice(&kind.to_le_bytes());
        for (at, number) in [(24, self.zones), (32, self.image_size), (40, self.hot_zone)] {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let arrays = [&self.data_digest, &self.salt, &self.key_tag, &self.image_tag];
        for (at, array) in [48, 80, 112, 144].into_iter().zip(arrays) {
            bytes[at..at + 32].copy_from_slice(array);
        }
        let checksum = digest(sha256, &bytes[..RECORD_LEN - 32]);
        bytes[RECORD_LEN - 32..].copy_from_slice(&checksum);
        bytes
    }

    /// Where a zone lies in the image, and how long it is.
    pub fn zone(&self, zone: u64) -> (u64, usize) {
        let offset = zone * self.hot_zone;
        (offset, usize_of(self.hot_zone.min(self.image_size - offset)))
    }

    /// Where a zone's slot lies in the journal.
    pub fn slot(&self, zone: u64) -> u64 {
        RECORDS + (zone % 2) * self.hot_zone
    }
}

#[cfg(test)]
mod tests {
    use casemate_providers::Providers;

    use super::*;

    #[test]
    fn records_with_any_damage_are_no_records() {
        let record = Record {
            decrypt: false,
            is_finished: false,
            zones: 2,
            image_size: 1 << 30,
            hot_zone: 1 << 20,
            data_digest: [1; 32],
            salt: [2; 32],
            key_tag: [3; 32],
            image_tag: [4; 32],
            end: None,
        };
        let providers = Providers::default();
        let sha256 = &providers.hash("sha256").unwrap();
        let bytes = record.to_bytes(sha256);
        assert_eq!(Record::from_bytes(sha256, &bytes), Some(record));
        for i in 0..RECORD_LEN {
            let mut damaged = bytes;
            damaged[i] ^= 0x10;
            assert_eq!(Record::from_bytes(sha256, &damaged), None, "byte {i}");
        }
    }
}
