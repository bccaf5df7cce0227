//! The binary header of LUKS2: the 4096 bytes before the JSON area.

use std::ops::Range;

use casemate_blockdev::usize_of;
use casemate_primitives::secret::constant_time_eq;
use casemate_providers::Providers;

use crate::{Error, MAGIC, Result, field_text};

/// Bytes of a binary header.
pub const BINARY_LEN: usize = 4096;

/// Bytes of a copy's salt, which makes the checksums of two disks differ.
pub const SALT_LEN: usize = 64;

/// Bytes of the smallest header with its JSON area.
pub const SMALLEST_HEADER: u64 = 16 << 10;

/// Bytes of the largest header with its JSON area.
pub const LARGEST_HEADER: u64 = 4 << 20;

const MAGIC_2ND: &[u8; 6] = b"SKUL\xba\xbe";

// Where the fields lie.
const HDR_SIZE: usize = 8;
const SEQID: usize = 16;
const LABEL: Range<usize> = 24..72;
const CHECKSUM_ALG: Range<usize> = 72..104;
const SALT: Range<usize> = 104..168;
const UUID: Range<usize> = 168..208;
const SUBSYSTEM: Range<usize> = 208..256;
const HDR_OFFSET: usize = 256;
const CSUM: Range<usize> = 448..512;

/// Which of the two copies a header is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The copy at the beginning.
    Primary,
    /// The copy behind it.
    Secondary,
}

/// A binary header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryHeader {
    /// Bytes of this header with its JSON area.
    pub hdr_size: u64,
    /// The number that grows with every update.
    pub seqid: u64,
    /// The label.
    pub label: String,
    /// The name of the hash that the checksum is made with.
    pub checksum_alg: String,
    /// Random bytes, others in each copy.
    pub salt: [u8; SALT_LEN],
    /// The UUID's text.
    pub uuid: String,
    /// A second label.
    pub subsystem: String,
    /// Where the header says that it lies, in bytes.
    pub hdr_offset: u64,
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    // OK to unwrap: eight bytes.
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl BinaryHeader {
    /// Reads a binary header that lies at byte `offset`.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are not such a copy, or does not belong where it lies.
    pub fn from_bytes(bytes: &[u8; BINARY_LEN], place: Place, offset: u64) -> Result<BinaryHeader> {
        let bad = |text: String| Err(Error::corrupt(text));
        let magic = if place == Place::Primary { MAGIC } else { MAGIC_2ND };
        if bytes[..6] != *magic {
            return bad("no magic number".to_owned());
        }
        if bytes[6..8] != [0, 2] {
            return bad(format!("version {}", u16::from_be_bytes([bytes[6], bytes[7]])));
        }
        let header = BinaryHeader {
            hdr_size: be64(bytes, HDR_SIZE),
            seqid: be64(bytes, SEQID),
            label: field_text(&bytes[LABEL]),
            checksum_alg: field_text(&bytes[CHECKSUM_ALG]),
            // OK to unwrap: the field has so many bytes.
            salt: bytes[SALT].try_into().unwrap(),
            uuid: field_text(&bytes[UUID]),
            subsystem: field_text(&bytes[SUBSYSTEM]),
            hdr_offset: be64(bytes, HDR_OFFSET),
        };
        if header.hdr_offset != offset {
            return bad(format!("it says that it lies at byte {}", header.hdr_offset));
        }
        if !(SMALLEST_HEADER..=LARGEST_HEADER).contains(&header.hdr_size) {
            return bad(format!("a size of {} bytes", header.hdr_size));
        }
        if place == Place::Secondary && header.hdr_size != offset {
            return bad(format!("a size of {} bytes, which a primary header can't have", header.hdr_size));
        }
        Ok(header)
    }

    /// The copy as it lies on the disk: header and JSON area, with its checksum.
    ///
    /// # Errors
    /// `Argument` if `json` does not fit; `Unsupported` where the checksum's hash can't be made.
    pub fn to_bytes(&self, place: Place, json: &[u8], providers: &Providers) -> Result<Vec<u8>> {
        let size = usize_of(self.hdr_size.min(LARGEST_HEADER));
        // A NUL ends the text.
        if size < BINARY_LEN || json.len() >= size - BINARY_LEN {
            let room = size.saturating_sub(BINARY_LEN + 1);
            return Err(Error::argument(format!(
                "the metadata have {} bytes of JSON, and the header has room for {room}",
                json.len()
            )));
        }
        let mut bytes = vec![0; size];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, if place == Place::Primary { MAGIC } else { MAGIC_2ND });
        put(6, &[0, 2]);
        put(HDR_SIZE, &self.hdr_size.to_be_bytes());
        put(SEQID, &self.seqid.to_be_bytes());
        put(SALT.start, &self.salt);
        put(HDR_OFFSET, &self.hdr_offset.to_be_bytes());
        put(BINARY_LEN, json);
        for (field, text) in [
            (LABEL, &self.label),
            (CHECKSUM_ALG, &self.checksum_alg),
            (UUID, &self.uuid),
            (SUBSYSTEM, &self.subsystem),
        ] {
            if text.len() >= field.len() {
                return Err(Error::argument(format!("'{text}' is longer than {} bytes", field.len() - 1)));
            }
            if text.contains('\0') {
                return Err(Error::argument(format!("{text:?} has a NUL, at which a header's text ends")));
            }
            put(field.start, text.as_bytes());
        }
        let checksum = checksum(&bytes, &self.checksum_alg, providers)?;
        bytes[CSUM.start..CSUM.start + checksum.len()].copy_from_slice(&checksum);
        Ok(bytes)
    }

    /// Whether the checksum of a copy, header and JSON area, is right.
    ///
    /// # Errors
    /// `Argument`, `Unsupported` if its hash is not known, or may not be used.
    pub fn checksum_is_right(&self, copy: &[u8], providers: &Providers) -> Result<bool> {
        let found = checksum(copy, &self.checksum_alg, providers)?;
        Ok(constant_time_eq(&found, &copy[CSUM.start..CSUM.start + found.len()]))
    }
}

/// Inverts the checksum in a copy's first bytes: nobody takes the copy for whole, and what it says can still be proven.
pub(super) fn invert_checksum(head: &mut [u8]) {
    head[CSUM].iter_mut().for_each(|byte| *byte = !*byte);
}

/// The checksum of a copy, whose own field counts as zeros.
fn checksum(copy: &[u8], algorithm: &str, providers: &Providers) -> Result<Vec<u8>> {
    let hash = providers.hash(algorithm)?;
    let mut copy = copy.to_vec();
    copy[CSUM].fill(0);
    let mut digest = hash.digest(&copy);
    digest.truncate(CSUM.len());
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(place: Place) -> BinaryHeader {
        BinaryHeader {
            hdr_size: 16384,
            seqid: 3,
            label: "label".to_owned(),
            checksum_alg: "sha256".to_owned(),
            salt: [7; SALT_LEN],
            uuid: "fc88ce7a-e42f-4827-d46f-604faf9dccfb".to_owned(),
            subsystem: "sub".to_owned(),
            hdr_offset: if place == Place::Primary { 0 } else { 16384 },
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let providers = Providers::default();
        for (place, offset) in [(Place::Primary, 0), (Place::Secondary, 16384)] {
            let mut bytes = header(place).to_bytes(place, b"{}", &providers).unwrap();
            assert_eq!((bytes.len(), &bytes[4096..4099]), (16384, &b"{}\0"[..]));
            let read = BinaryHeader::from_bytes(bytes.first_chunk().unwrap(), place, offset).unwrap();
            assert_eq!(read, header(place));
            assert!(read.checksum_is_right(&bytes, &providers).unwrap());
            bytes[16383] = 1;
            assert!(!read.checksum_is_right(&bytes, &providers).unwrap());
        }
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        let write = |json: &[u8], label: &str| {
            let header = BinaryHeader { label: label.to_owned(), ..header(Place::Primary) };
            header.to_bytes(Place::Primary, json, &Providers::default())
        };
        assert!(write(&[b' '; 12287], &"x".repeat(47)).is_ok());
        assert!(write(&[b' '; 12288], "").is_err());
        assert!(write(b"{}", &"x".repeat(48)).is_err());
    }

    #[test]
    fn copies_that_do_not_belong_where_they_lie_are_refused() {
        let providers = Providers::default();
        let refused = |change: &dyn Fn(&mut BinaryHeader), place, offset, why: &str| {
            let mut header = header(place);
            change(&mut header);
            let mut bytes = header.to_bytes(place, b"{}", &providers).unwrap();
            bytes.resize(16384, 0);
            let error = BinaryHeader::from_bytes(bytes.first_chunk().unwrap(), place, offset).unwrap_err();
            assert!(error.text().contains(why), "{error}");
        };
        refused(&|_| (), Place::Primary, 512, "lies at byte 0");
        refused(&|header| header.hdr_size = 8192, Place::Primary, 0, "a size of 8192 bytes");
        refused(&|header| header.hdr_size = 1 << 23, Place::Primary, 0, "a size of 8388608 bytes");
        refused(&|header| header.hdr_size = 32768, Place::Secondary, 16384, "a size of 32768 bytes");
        let other = header(Place::Primary).to_bytes(Place::Primary, b"{}", &providers).unwrap();
        assert!(BinaryHeader::from_bytes(other.first_chunk().unwrap(), Place::Secondary, 0).is_err());
    }
}
