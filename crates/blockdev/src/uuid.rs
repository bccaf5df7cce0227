//! UUIDs, as superblocks and partition tables have them.

use std::fmt;

use crate::{Error, Result, fill_random};

/// A UUID (RFC 9562): 16 bytes, written as 8-4-4-4-12 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uuid(uuid::Uuid);

impl Uuid {
    /// The UUID with these bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Uuid {
        Uuid(uuid::Uuid::from_bytes(bytes))
    }

    /// The UUID with the bytes that a GPT has for it: the first three fields are little-endian.
    pub fn from_guid(bytes: [u8; 16]) -> Uuid {
        Uuid(uuid::Uuid::from_bytes_le(bytes))
    }

    /// The UUID with these bytes, marked as a random one (version 4).
    pub fn v4(bytes: [u8; 16]) -> Uuid {
        Uuid(uuid::Builder::from_random_bytes(bytes).into_uuid())
    }

    /// A new random UUID.
    ///
    /// # Errors
    /// `Io` if the system has no random bytes.
    pub fn random() -> Result<Uuid> {
        let mut bytes = [0; 16];
        fill_random(&mut bytes)?;
        Ok(Uuid::v4(bytes))
    }

    /// Reads a UUID in the form 8-4-4-4-12, in upper or lower case.
    ///
    /// # Errors
    /// `Argument` for another form.
    pub fn from_text(text: &str) -> Result<Uuid> {
        // The crate reads forms of other systems too: without hyphens, in braces, as a URN.
        match uuid::Uuid::try_parse(text) {
            Ok(uuid) if text.len() == uuid::fmt::Hyphenated::LENGTH => Ok(Uuid(uuid)),
            _ => Err(Error::argument(format!("'{text}' is not a UUID"))),
        }
    }

    /// The UUID's 16 bytes, in the order of the text.
    pub fn bytes(&self) -> [u8; 16] {
        self.0.into_bytes()
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
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
        for wrong in [
            "",
            "-",
            "5e34f5313859825cfad633289ccfcb92",
            "5e34f53-13859-825c-fad6-33289ccfcb92",
            "{5e34f531-3859-825c-fad6-33289ccfcb92}",
            "urn:uuid:5e34f531-3859-825c-fad6-33289ccfcb92",
            "5e34f531-3859-825c-fad6-33289ccfcb9\u{e9}",
        ] {
            assert!(Uuid::from_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_gpt_has_the_first_three_fields_little_endian() {
        let root = *b"\xe3\xbc\x68\x4f\xcd\xe8\xb1\x4d\x96\xe7\xfb\xca\xf9\x84\xb7\x09";
        assert_eq!(Uuid::from_guid(root).to_string(), "4f68bce3-e8cd-4db1-96e7-fbcaf984b709");
    }

    #[test]
    fn random_ones_are_marked_and_differ() {
        let (one, other) = (Uuid::random().unwrap(), Uuid::random().unwrap());
        assert_ne!(one, other);
        let text = one.to_string();
        assert!(&text[14..15] == "4" && "89ab".contains(&text[19..20]), "{text}");
    }
}
