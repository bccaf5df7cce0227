//! Salts and UUIDs: random ones, and ones that a seed makes the same each time.

use std::io;

use casemate_primitives::secret::SecretVec;
use casemate_providers::{Hmac, Providers};

use super::{Salt, Uuid};
use crate::Error;

/// A seed from which salt and UUID follow, so that an image can be made again bit by bit.
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

    /// The salt that follows from the seed: the 32 bytes of its HMAC-SHA256.
    ///
    /// # Errors
    /// `Unsupported` with the reasons, if no implementation of SHA-256 may be used.
    pub fn salt(&self, providers: &Providers) -> Result<Salt, Error> {
        Salt::new(self.tag(b"verity-salt", providers)?.expose().to_vec())
    }

    /// The UUID of version 4 that follows from the seed: the first half of its HMAC-SHA256.
    ///
    /// # Errors
    /// As [`Seed::salt`].
    pub fn uuid(&self, providers: &Providers) -> Result<Uuid, Error> {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.tag(b"verity-uuid", providers)?.expose()[..16]);
        Ok(Uuid::v4(bytes))
    }

    /// The 32 bytes that follow from the seed for what is called `label`.
    ///
    /// # Errors
    /// As [`Seed::salt`].
    pub fn tag(&self, label: &[u8], providers: &Providers) -> Result<SecretVec, Error> {
        Ok(Hmac::new(providers.hash("sha256")?, &self.0).tag(label))
    }
}

/// A random salt of 32 bytes.
///
/// # Errors
/// `Io` if the system has no random bytes.
pub fn random_salt() -> Result<Salt, Error> {
    let mut bytes = vec![0; 32];
    fill_random(&mut bytes)?;
    Salt::new(bytes)
}

pub(super) fn fill_random(bytes: &mut [u8]) -> Result<(), Error> {
    getrandom::fill(bytes).map_err(|error| Error::from(io::Error::other(format!("no random bytes: {error}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_everything() {
        let providers = Providers::default();
        let salt = |seed: &Seed| seed.salt(&providers).unwrap();
        let seed = Seed::from_text("5e34f531-3859-825c-fad6-33289ccfcb92");
        assert_eq!(seed, Seed::from_text("5E34F531-3859-825C-FAD6-33289CCFCB92"));
        assert_eq!(salt(&seed).bytes().len(), 32);
        assert_ne!(salt(&seed), salt(&Seed::from_text("another")));
        assert_ne!(salt(&seed).bytes()[..16], seed.uuid(&providers).unwrap().bytes());
    }
}
