//! The header of a hash area.

use casemate_blockdev::Uuid;

use super::{BlockSize, HashType, Parameters, Salt};
use crate::{Code, Error, ErrorKind};

/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 512;

const SIGNATURE: &[u8; 8] = b"verity\0\0";

/// The superblock of a hash area: everything about a dm-verity device but its root hash.
///
/// `struct verity_sb` of cryptsetup, in little-endian order:
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 8 | signature, `verity` and two NUL |
/// | 8 | 4 | version, 1 |
/// | 12 | 4 | hash type |
/// | 16 | 16 | UUID |
/// | 32 | 32 | algorithm, NUL padded |
/// | 64 | 4 | data block size |
/// | 68 | 4 | hash block size |
/// | 72 | 8 | number of data blocks |
/// | 80 | 2 | salt size |
/// | 82 | 6 | zero |
/// | 88 | 256 | salt, zero padded |
/// | 344 | 168 | zero |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The hash area's UUID.
    pub uuid: Uuid,
    /// The hash parameters: type, block sizes, salt and algorithm.
    pub parameters: Parameters,
    /// The number of data blocks; at least 1.
    pub data_blocks: u64,
}

impl Superblock {
    /// Reads a superblock, and checks every byte.
    ///
    /// # Errors
    /// `Corrupt` if it contradicts the format, `Unsupported` if it has another version or an algorithm that
    /// this crate does not have.
    pub fn from_bytes(bytes: &[u8; SUPERBLOCK_SIZE]) -> Result<Superblock, Error> {
        let u32_at = |offset: usize| u32::from_le_bytes([0, 1, 2, 3].map(|k| bytes[offset + k]));
        let u64_at = |offset: usize| u64::from(u32_at(offset)) | u64::from(u32_at(offset + 4)) << 32;
        if bytes[..8] != *SIGNATURE {
            return Err(
                corrupt("bad magic: no hash area of dm-verity begins here").with_code(Code::NotThisFormat)
            );
        }
        if u32_at(8) != 1 {
            return Err(Error::unsupported(format!("verity superblock: version {}", u32_at(8))));
        }
        let in_superblock = |error: Error| match error.kind() {
            ErrorKind::Unsupported => error.map_text(|text| format!("verity superblock: {text}")),
            _ => error,
        };
        let name = &bytes[32..64];
        let len = name.iter().position(|byte| *byte == 0);
        let text = len.map(|len| &name[..len]).filter(|text| !text.is_empty());
        let text = text.filter(|text| text.iter().all(u8::is_ascii_graphic));
        let text = text.and_then(|text| str::from_utf8(text).ok());
        let text = text.ok_or_else(|| corrupt("the algorithm's name is not one"))?;
        zeros(&bytes[32 + text.len()..64], "the algorithm's name is followed by other bytes")?;
        let mut parameters = Parameters::new(text).map_err(in_superblock)?;
        parameters.hash_type = HashType::numbered(u32_at(12).into()).map_err(in_superblock)?;
        let block_size = |offset: usize| {
            BlockSize::new(u32_at(offset).into())
                .map_err(|_| corrupt(&format!("the block size is {}", u32_at(offset))))
        };
        parameters.data_block_size = block_size(64)?;
        parameters.hash_block_size = block_size(68)?;
        let data_blocks = u64_at(72);
        if data_blocks == 0 || data_blocks.checked_mul(parameters.data_block_size.bytes().into()).is_none() {
            return Err(corrupt(&format!("{data_blocks} data blocks")));
        }
        let salt_size = usize::from(u16::from_le_bytes([bytes[80], bytes[81]]));
        let salt = bytes[88..88 + Salt::MAX].get(..salt_size);
        let salt = salt.ok_or_else(|| corrupt(&format!("the salt has {salt_size} bytes")))?;
        parameters.salt = Salt::new(salt.to_vec())?;
        zeros(&bytes[82..88], "bytes 82 to 87, which are reserved, are not zero")?;
        zeros(&bytes[88 + salt_size..344], "the salt is followed by other bytes")?;
        zeros(&bytes[344..], "bytes 344 to 511, which are reserved, are not zero")?;
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[16..32]);
        Ok(Superblock { uuid: Uuid::from_bytes(uuid), parameters, data_blocks })
    }

    /// The superblock's 512 bytes as they are stored.
    pub fn to_bytes(&self) -> [u8; SUPERBLOCK_SIZE] {
        let parameters = &self.parameters;
        let (name, salt) = (parameters.algorithm().as_bytes(), parameters.salt.bytes());
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let mut put = |offset: usize, field: &[u8]| {
            bytes[offset..offset + field.len()].copy_from_slice(field);
        };
        put(0, SIGNATURE);
        put(8, &1u32.to_le_bytes());
        put(12, &parameters.hash_type.number().to_le_bytes());
        put(16, &self.uuid.bytes());
        put(32, name);
        put(64, &parameters.data_block_size.bytes().to_le_bytes());
        put(68, &parameters.hash_block_size.bytes().to_le_bytes());
        put(72, &self.data_blocks.to_le_bytes());
        // A salt has at most 256 bytes.
        put(80, &u16::try_from(salt.len()).unwrap_or(u16::MAX).to_le_bytes());
        put(88, salt);
        bytes
    }
}

fn zeros(bytes: &[u8], otherwise: &str) -> Result<(), Error> {
    match bytes.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(corrupt(otherwise)),
    }
}

fn corrupt(text: &str) -> Error {
    Error::corrupt(format!("verity superblock: {text}"))
}

#[cfg(test)]
mod tests {
    use casemate_testkit::Rng;

    use super::*;

    fn example() -> Superblock {
        let mut parameters = Parameters::new("sha256").unwrap();
        parameters.salt = Salt::from_text("00112233").unwrap();
        let uuid = Uuid::from_text("5e34f531-3859-825c-fad6-33289ccfcb92").unwrap();
        Superblock { uuid, parameters, data_blocks: 3 }
    }

    fn error_of(change: impl FnOnce(&mut [u8; SUPERBLOCK_SIZE])) -> String {
        let mut bytes = example().to_bytes();
        change(&mut bytes);
        Superblock::from_bytes(&bytes).unwrap_err().to_string()
    }

    #[test]
    fn bytes_and_back() {
        let bytes = example().to_bytes();
        assert_eq!(Superblock::from_bytes(&bytes).unwrap(), example());
        assert_eq!(bytes[72..80], [3, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn each_field_is_checked() {
        for (offset, value, text) in [
            (0, b'V', "verity superblock: bad magic: no hash area of dm-verity begins here"),
            (8, 2, "verity superblock: version 2"),
            (12, 2, "verity superblock: verity hash type 2; there are 0 and 1"),
            (32, 0, "verity superblock: the algorithm's name is not one"),
            (40, b'x', "verity superblock: the algorithm's name is followed by other bytes"),
            (64, 1, "verity superblock: the block size is 4097"),
            (69, 0, "verity superblock: the block size is 0"),
            (72, 0, "verity superblock: 0 data blocks"),
            (79, 0xff, "verity superblock: 18374686479671623683 data blocks"),
            (81, 2, "verity superblock: the salt has 516 bytes"),
            (87, 1, "verity superblock: bytes 82 to 87, which are reserved, are not zero"),
            (92, 1, "verity superblock: the salt is followed by other bytes"),
            (344, 1, "verity superblock: bytes 344 to 511, which are reserved, are not zero"),
        ] {
            assert_eq!(error_of(|bytes| bytes[offset] = value), text);
        }
        assert!(error_of(|bytes| bytes[37] = b'7').contains("unknown hash algorithm 'sha257'"));
        assert!(error_of(|bytes| bytes[32..64].fill(b'a')).contains("the algorithm's name is not one"));
    }

    #[test]
    fn no_bytes_panic_and_what_is_read_is_written_again() {
        let mut rng = Rng::new(3);
        let mut read = 0;
        for round in 0..20_000 {
            let mut bytes = example().to_bytes();
            for _ in 0..rng.below(4) {
                let offset = rng.below(if round % 2 == 0 { 100 } else { 512 }) as usize;
                bytes[offset] = [0, 1, 0xff, rng.next_u64() as u8][rng.below(4) as usize];
            }
            if let Ok(superblock) = Superblock::from_bytes(&bytes) {
                // Only the case of the algorithm's name may differ.
                assert!(superblock.to_bytes().eq_ignore_ascii_case(&bytes), "round {round}");
                read += 1;
            }
        }
        assert!(read > 1000, "{read}");
    }
}
