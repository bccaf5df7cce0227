//! Seeds, which make what is usually random the same each time.

use casemate_blockdev::Uuid;
use casemate_primitives::secret::SecretVec;

use crate::{ChoiceError, Hmac, Providers};

/// A seed from which salts, UUIDs and keys follow, so that an image can be made again bit by bit.
///
/// Each is HMAC-SHA256 (RFC 2104) of a label under the seed. The labels and the form of the seed are those of
/// systemd-repart, whose `--seed=` is a UUID: the same UUID gives the same salt here and there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed(Vec<u8>);

impl Seed {
    /// Reads a seed: a UUID stands for its 16 bytes, any other text for itself.
    pub fn from_text(text: &str) -> Seed {
        match Uuid::from_text(text) {
            Ok(uuid) => Seed(uuid.bytes().to_vec()),
            Err(_) => Seed(text.as_bytes().to_vec()),
        }
    }

    /// The UUID of version 4 that follows from the seed: the first half of its HMAC-SHA256.
    ///
    /// # Errors
    /// The reasons, if no implementation of SHA-256 may be used.
    pub fn uuid(&self, providers: &Providers) -> Result<Uuid, ChoiceError> {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.tag(b"verity-uuid", providers)?.expose()[..16]);
        Ok(Uuid::v4(bytes))
    }

    /// The 32 bytes that follow from the seed for what is called `label`.
    ///
    /// # Errors
    /// As [`Seed::uuid`].
    pub fn tag(&self, label: &[u8], providers: &Providers) -> Result<SecretVec, ChoiceError> {
        Ok(Hmac::new(providers.hash("sha256")?, &self.0).tag(label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_everything() {
        let providers = Providers::default();
        let tag = |seed: &Seed| seed.tag(b"salt", &providers).unwrap().expose().to_vec();
        let seed = Seed::from_text("5e34f531-3859-825c-fad6-33289ccfcb92");
        assert_eq!(seed, Seed::from_text("5E34F531-3859-825C-FAD6-33289CCFCB92"));
        assert_eq!(tag(&seed), tag(&seed.clone()));
        assert_ne!(tag(&seed), tag(&Seed::from_text("another")));
        assert_ne!(tag(&seed)[..16], seed.uuid(&providers).unwrap().bytes());
    }
}
