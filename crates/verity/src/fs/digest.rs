//! File digests, as they are printed, compared and signed.

use std::fmt;
use std::str::FromStr;

use casemate_primitives::secret::constant_time_eq;

use crate::fs::Algorithm;
use crate::{Error, hex};

/// The fs-verity digest of a file: the hash of its descriptor.
///
/// It is written `sha256:` and the digest in hex, and read from that form in any case of hex digits.
#[derive(Clone, Eq)]
pub struct FileDigest {
    algorithm: Algorithm,
    bytes: Vec<u8>,
}

impl FileDigest {
    /// The file digest with these bytes.
    ///
    /// # Panics
    /// If `bytes` does not have the length of a digest.
    pub fn new(algorithm: Algorithm, bytes: Vec<u8>) -> FileDigest {
        assert_eq!(bytes.len(), algorithm.digest_len(), "{} digest", algorithm.name());
        FileDigest { algorithm, bytes }
    }

    /// The bytes that the kernel's built-in signatures are made of (`struct fsverity_formatted_digest`):
    /// "FSVerity", the algorithm's number and the digest's length in 16 little-endian bits each, the digest.
    pub fn bytes_to_sign(&self) -> Vec<u8> {
        let mut bytes = b"FSVerity".to_vec();
        bytes.extend_from_slice(&u16::from(self.algorithm.number()).to_le_bytes());
        let len = u16::try_from(self.bytes.len()).unwrap_or(u16::MAX);
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&self.bytes);
        bytes
    }

    /// The algorithm of tree and digest.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The digest's bytes: 32 or 64.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The digest in hex, without the algorithm.
    pub fn hex(&self) -> String {
        hex::encode(&self.bytes)
    }
}

impl FromStr for FileDigest {
    type Err = Error;

    fn from_str(text: &str) -> Result<FileDigest, Error> {
        let wrong = || Error::argument(format!("'{text}' is not a digest such as sha256:... or sha512:..."));
        let (name, digits) = text.split_once(':').ok_or_else(wrong)?;
        let algorithm = Algorithm::named(name).ok_or_else(wrong)?;
        let bytes = hex::decode(digits).filter(|bytes| bytes.len() == algorithm.digest_len());
        Ok(FileDigest { algorithm, bytes: bytes.ok_or_else(wrong)? })
    }
}

impl PartialEq for FileDigest {
    fn eq(&self, other: &FileDigest) -> bool {
        self.algorithm == other.algorithm && constant_time_eq(&self.bytes, &other.bytes)
    }
}

impl fmt::Display for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.name(), self.hex())
    }
}

impl fmt::Debug for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_nonsense_is_refused() {
        let text = format!("sha512:{}", "0f".repeat(64));
        assert_eq!(text.parse::<FileDigest>().unwrap().to_string(), text);
        assert!(text.to_uppercase().parse::<FileDigest>().is_err(), "the name is lower case");
        for wrong in ["", ":", "sha256:", "sha256:0", "md5:00", "sha256", &text[..text.len() - 1]] {
            assert!(wrong.parse::<FileDigest>().is_err(), "{wrong:?}");
        }
        assert!(format!("sha256:{}", "0g".repeat(32)).parse::<FileDigest>().is_err());
        assert!(format!("sha256:{}", "é".repeat(32)).parse::<FileDigest>().is_err());
    }

    #[test]
    fn the_signed_bytes_are_those_of_the_kernel() {
        let digest = FileDigest::new(Algorithm::Sha512, vec![0x5a; 64]);
        let bytes = digest.bytes_to_sign();
        assert_eq!(bytes[..12], *b"FSVerity\x02\x00\x40\x00");
        assert_eq!(bytes[12..], [0x5a; 64]);
    }
}
