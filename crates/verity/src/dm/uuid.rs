//! UUIDs, as superblocks and partition tables have them.

use std::fmt;

use crate::{Error, hex};

/// A UUID: 16 bytes, and their usual form in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// The UUID with these bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Uuid {
        Uuid(bytes)
    }

    /// The UUID with these bytes, marked as a random one (RFC 9562 version 4).
    pub fn v4(mut bytes: [u8; 16]) -> Uuid {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(bytes)
    }

    /// A new random UUID.
    ///
    /// # Errors
    /// `Io` if the system has no random bytes.
    pub fn random() -> Result<Uuid, Error> {
        let mut bytes = [0; 16];
        super::seed::fill_random(&mut bytes)?;
        Ok(Uuid::v4(bytes))
    }

    /// Reads a UUID in the form 8-4-4-4-12, in any case.
    ///
    /// # Errors
    /// `Argument` if it is none.
    pub fn from_text(text: &str) -> Result<Uuid, Error> {
        let parts: Vec<_> = text.split('-').collect();
        let right = parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]);
        let bytes = hex::decode(&parts.concat()).and_then(|bytes| bytes.try_into().ok());
        match bytes.filter(|_| right) {
            Some(bytes) => Ok(Uuid(bytes)),
            None => Err(Error::argument(format!("'{text}' is no UUID"))),
        }
    }

    /// The UUID's 16 bytes, in the order of the text.
    pub fn bytes(&self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.0[..4], &self.0[4..6], &self.0[6..8], &self.0[8..10], &self.0[10..]];
        f.write_str(&parts.map(hex::encode).join("-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let text = "5e34f531-3859-825c-fad6-33289ccfcb92";
        assert_eq!(Uuid::from_text(text).unwrap().to_string(), text);
        assert_eq!(Uuid::from_text(&text.to_uppercase()).unwrap().to_string(), text);
        for wrong in ["", "5e34f5313859825cfad633289ccfcb92", "5e34f53-13859-825c-fad6-33289ccfcb92", "-"] {
            assert!(Uuid::from_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn random_ones_are_marked_and_differ() {
        let (one, other) = (Uuid::random().unwrap(), Uuid::random().unwrap());
        assert_ne!(one, other);
        let text = one.to_string();
        assert!(&text[14..15] == "4" && "89ab".contains(&text[19..20]), "{text}");
    }
}
