//! The header of LUKS1: cipher, digest of the volume key, and eight key slots.
//!
//! Source: LUKS on-disk format specification 1.2.3, and cryptsetup's behaviour for what it leaves open. The bytes are in
//! docs/formats/luks.md.

use std::ops::Range;

use casemate_blockdev::{BlockDevice, u32_of, u64_of, usize_of};

use crate::af::{self, STRIPES};
use crate::{Error, MAGIC, Result, changed, field_text};

mod repair;

/// Bytes of a header that are read and written; 592 of them mean something.
pub const HEADER_LEN: usize = 1024;

/// How many key slots there are.
pub const SLOTS: usize = 8;

/// Bytes of the volume key's digest.
pub const DIGEST_LEN: usize = 20;

/// Bytes of a salt.
pub const SALT_LEN: usize = 32;

const ENABLED: u32 = 0x00ac_71f3;
const DISABLED: u32 = 0x0000_dead;

// Where the fields lie.
const CIPHER_NAME: Range<usize> = 8..40;
const CIPHER_MODE: Range<usize> = 40..72;
const HASH: Range<usize> = 72..104;
const PAYLOAD_OFFSET: usize = 104;
const KEY_BYTES: usize = 108;
const MK_DIGEST: usize = 112;
const MK_DIGEST_SALT: usize = 132;
const MK_DIGEST_ITERATIONS: usize = 164;
const UUID: Range<usize> = 168..208;
const KEY_SLOTS: usize = 208;
const SLOT_LEN: usize = 48;

/// A header of LUKS1.
#[derive(Clone, Debug)]
pub struct Header {
    /// The cipher's name, such as `aes`.
    pub cipher_name: String,
    /// The cipher's mode with its IVs, such as `xts-plain64`.
    pub cipher_mode: String,
    /// The hash of slots, stripes and digest.
    pub hash: String,
    /// Sectors of 512 bytes before the data; 0 of a detached header.
    pub payload_offset: u32,
    /// Bytes of the volume key.
    pub key_bytes: u32,
    /// The digest of the volume key: PBKDF2 with the header's hash.
    pub digest: [u8; DIGEST_LEN],
    /// The digest's salt.
    pub digest_salt: [u8; SALT_LEN],
    /// The digest's iterations.
    pub digest_iterations: u32,
    /// The UUID's text.
    pub uuid: String,
    /// The key slots.
    pub slots: [Slot; SLOTS],
    /// The bytes that were read, for those that mean nothing.
    raw: Box<[u8; HEADER_LEN]>,
    /// Whether these bytes lie on the disk, as far as is known.
    is_on_disk: bool,
}

/// A key slot of LUKS1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Whether the slot holds a key.
    pub state: SlotState,
    /// Iterations of PBKDF2.
    pub iterations: u32,
    /// The salt of PBKDF2.
    pub salt: [u8; SALT_LEN],
    /// The sector of 512 bytes that the slot's stripes begin at.
    pub offset: u32,
    /// The number of stripes: 4000.
    pub stripes: u32,
}

impl Slot {
    /// Makes it one without a key; its place stays.
    pub fn disable(&mut self) {
        (self.state, self.iterations, self.salt) = (SlotState::Disabled, 0, [0; SALT_LEN]);
    }
}

/// The state of a key slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// The slot holds a key.
    Enabled,
    /// The slot is free.
    Disabled,
    /// The slot has a state that means nothing, and is of no use.
    Invalid(u32),
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    // OK to unwrap: four bytes.
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    // OK to unwrap: N bytes.
    bytes[at..at + N].try_into().unwrap()
}

fn put_text(field: &mut [u8], text: &str) {
    if field_text(field) != text {
        field.fill(0);
        let len = text.len().min(field.len() - 1);
        field[..len].copy_from_slice(&text.as_bytes()[..len]);
    }
}

impl Slot {
    /// Sectors of 512 bytes that the stripes of a key take.
    fn sectors(key_bytes: u32) -> u64 {
        (u64::from(key_bytes) * u64_of(STRIPES)).div_ceil(512)
    }
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// `Corrupt` for what is none, or contradicts itself.
    pub fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Result<Header> {
        let header = Header::parse(bytes)?;
        header.check()?;
        Ok(header)
    }

    /// Reads a header that may contradict itself.
    fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Header> {
        if bytes[..6] != *MAGIC || bytes[6..8] != [0, 1] {
            return Err(Error::corrupt("no LUKS1 header"));
        }
        let slot = |k: usize| {
            let bytes = &bytes[KEY_SLOTS + k * SLOT_LEN..][..SLOT_LEN];
            let state = match be32(bytes, 0) {
                ENABLED => SlotState::Enabled,
                DISABLED => SlotState::Disabled,
                other => SlotState::Invalid(other),
            };
            let (iterations, salt) = (be32(bytes, 4), array(bytes, 8));
            Slot { state, iterations, salt, offset: be32(bytes, 40), stripes: be32(bytes, 44) }
        };
        Ok(Header {
            cipher_name: field_text(&bytes[CIPHER_NAME]),
            cipher_mode: field_text(&bytes[CIPHER_MODE]),
            hash: field_text(&bytes[HASH]),
            payload_offset: be32(bytes, PAYLOAD_OFFSET),
            key_bytes: be32(bytes, KEY_BYTES),
            digest: array(bytes, MK_DIGEST),
            digest_salt: array(bytes, MK_DIGEST_SALT),
            digest_iterations: be32(bytes, MK_DIGEST_ITERATIONS),
            uuid: field_text(&bytes[UUID]),
            slots: std::array::from_fn(slot),
            raw: Box::new(*bytes),
            is_on_disk: true,
        })
    }

    /// A header without keys: slots one behind the other from byte 4096 on, each rounded up to 4096.
    ///
    /// # Errors
    /// `Argument` for a key of no bytes, or more than fit.
    pub fn new(cipher_name: &str, cipher_mode: &str, hash: &str, key_bytes: u32) -> Result<Header> {
        let sectors = Slot::sectors(key_bytes).next_multiple_of(8);
        let end = 8 + u64_of(SLOTS) * sectors;
        if key_bytes == 0 || u32::try_from(end).is_err() {
            return Err(Error::argument(format!("a volume key of {key_bytes} bytes")));
        }
        let slot = |k: usize| Slot {
            state: SlotState::Disabled,
            iterations: 0,
            salt: [0; SALT_LEN],
            offset: u32_of(8 + u64_of(k) * sectors),
            stripes: u32_of(STRIPES),
        };
        Ok(Header {
            cipher_name: cipher_name.to_owned(),
            cipher_mode: cipher_mode.to_owned(),
            hash: hash.to_owned(),
            payload_offset: 0,
            key_bytes,
            digest: [0; DIGEST_LEN],
            digest_salt: [0; SALT_LEN],
            digest_iterations: 0,
            uuid: String::new(),
            slots: std::array::from_fn(slot),
            raw: Box::new([0; HEADER_LEN]),
            is_on_disk: false,
        })
    }

    /// The header's bytes. What means nothing is as it was read.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = *self.raw;
        bytes[..6].copy_from_slice(MAGIC);
        bytes[6..8].copy_from_slice(&[0, 1]);
        put_text(&mut bytes[CIPHER_NAME], &self.cipher_name);
        put_text(&mut bytes[CIPHER_MODE], &self.cipher_mode);
        put_text(&mut bytes[HASH], &self.hash);
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(PAYLOAD_OFFSET, &self.payload_offset.to_be_bytes());
        put(KEY_BYTES, &self.key_bytes.to_be_bytes());
        put(MK_DIGEST, &self.digest);
        put(MK_DIGEST_SALT, &self.digest_salt);
        put(MK_DIGEST_ITERATIONS, &self.digest_iterations.to_be_bytes());
        for (k, slot) in self.slots.iter().enumerate() {
            let at = KEY_SLOTS + k * SLOT_LEN;
            let state = match slot.state {
                SlotState::Enabled => ENABLED,
                SlotState::Disabled => DISABLED,
                SlotState::Invalid(state) => state,
            };
            put(at, &state.to_be_bytes());
            put(at + 4, &slot.iterations.to_be_bytes());
            put(at + 8, &slot.salt);
            put(at + 40, &slot.offset.to_be_bytes());
            put(at + 44, &slot.stripes.to_be_bytes());
        }
        put_text(&mut bytes[UUID], &self.uuid);
        bytes
    }

    /// Writes the header, until it is on stable storage: its second sector first. Slot 6 lies in both, and the first sector
    /// says that it holds a key.
    ///
    /// # Errors
    /// Errors of [`Header::check_unchanged`], and nothing is written then; errors of the device.
    pub fn write(&mut self, device: &dyn BlockDevice) -> Result<()> {
        self.check_unchanged(device)?;
        let bytes = self.to_bytes();
        let (first, second) = bytes.split_at(512);
        self.is_on_disk = false;
        for (offset, sector) in [(512, second), (0, first)] {
            device.write_at(sector, offset)?;
            device.flush()?;
        }
        (*self.raw, self.is_on_disk) = (bytes, true);
        Ok(())
    }

    /// Checks that the header is on the device as it was read, or written last.
    ///
    /// # Errors
    /// `Busy` if another program has changed it meanwhile; `Io`.
    pub fn check_unchanged(&self, device: &dyn BlockDevice) -> Result<()> {
        let mut now = [0; HEADER_LEN];
        if self.is_on_disk && device.size() >= u64_of(now.len()) {
            device.read_at(&mut now, 0)?;
        }
        match self.is_on_disk && now != *self.raw {
            true => Err(changed()),
            false => Ok(()),
        }
    }

    /// The specification of the data's cipher, and of the slots': `aes-xts-plain64`.
    pub fn encryption(&self) -> String {
        match self.cipher_mode.is_empty() {
            true => self.cipher_name.clone(),
            false => format!("{}-{}", self.cipher_name, self.cipher_mode),
        }
    }

    /// The bytes of a slot's stripes on the device.
    pub fn area(&self, slot: &Slot) -> Range<u64> {
        let start = u64::from(slot.offset) * 512;
        start..start + Slot::sectors(self.key_bytes) * 512
    }

    /// Where header and slots end, in bytes.
    pub fn metadata_end(&self) -> u64 {
        let ends = self.slots.iter().map(|slot| self.area(slot).end);
        ends.fold(u64_of(HEADER_LEN), u64::max)
    }

    fn check(&self) -> Result<()> {
        let bad = |text: String| Err(Error::corrupt(format!("LUKS1 header: {text}")));
        if af::material_len(usize_of(self.key_bytes)).is_none() || self.key_bytes == 0 {
            return bad(format!("a volume key of {} bytes", self.key_bytes));
        }
        let payload = u64::from(self.payload_offset) * 512;
        let mut areas = Vec::new();
        for (k, slot) in self.slots.iter().enumerate() {
            let area = self.area(slot);
            if slot.stripes != u32_of(STRIPES) {
                return bad(format!("key slot {k} has {} stripes, not {STRIPES}", slot.stripes));
            }
            if area.start < u64_of(HEADER_LEN) {
                return bad(format!("key slot {k} begins at byte {}, within the header", area.start));
            }
            if payload != 0 && area.end > payload {
                return bad(format!("key slot {k} ends at byte {}, behind the data's first", area.end));
            }
            areas.push((area, k));
        }
        areas.sort_by_key(|(area, k)| (area.start, *k));
        match areas.windows(2).find(|pair| pair[0].0.end > pair[1].0.start) {
            Some(pair) => bad(format!("key slots {} and {} overlap", pair[0].1, pair[1].1)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let mut header = Header::new("aes", "xts-plain64", "sha256", 64).unwrap();
        header.payload_offset = 4096;
        header.uuid = "fc88ce7a-e42f-4827-d46f-604faf9dccfb".to_owned();
        (header.digest, header.digest_salt, header.digest_iterations) = ([1; 20], [2; 32], 3000);
        header.slots[1].state = SlotState::Enabled;
        (header.slots[1].iterations, header.slots[1].salt) = (1000, [4; 32]);
        header
    }

    #[test]
    fn what_is_written_is_read() {
        let header = header();
        let bytes = header.to_bytes();
        let read = Header::from_bytes(&bytes).unwrap();
        assert_eq!(read.to_bytes(), bytes);
        assert_eq!((read.slots, read.digest), (header.slots, header.digest));
        assert_eq!(read.encryption(), "aes-xts-plain64");
        // As cryptsetup places them: 256000 bytes are rounded up to 258048.
        assert_eq!(read.area(&read.slots[1]), 262_144..518_144);
        assert_eq!(read.slots[7].offset, 8 + 7 * 504);
    }

    #[test]
    fn bytes_that_mean_nothing_stay() {
        let mut bytes = header().to_bytes();
        bytes[39] = 0;
        bytes[30] = 7;
        bytes[600..1024].fill(9);
        assert_eq!(Header::from_bytes(&bytes).unwrap().to_bytes(), bytes);
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = |change: &dyn Fn(&mut Header), why: &str| {
            let mut header = header();
            change(&mut header);
            let error = Header::from_bytes(&header.to_bytes()).unwrap_err();
            assert!(error.text().contains(why), "{error}");
        };
        refused(&|header| header.key_bytes = 0, "a volume key of 0 bytes");
        refused(&|header| header.slots[7].stripes = 3999, "key slot 7 has 3999 stripes");
        refused(&|header| header.slots[0].offset = 1, "key slot 0 begins at byte 512");
        refused(&|header| header.slots[3].offset = header.slots[2].offset + 499, "key slots 2 and 3 overlap");
        refused(&|header| header.payload_offset = 4000, "key slot 7 ends at byte");
        refused(&|header| header.key_bytes = u32::MAX, "");
    }
}
