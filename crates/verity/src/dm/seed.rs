//! Salts and UUIDs: random ones, and ones that a seed makes the same each time.

use std::io;

use casemate_primitives::Cpu;
use casemate_primitives::sha256::Sha256;

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

    /// The salt of 32 bytes that follows from the seed.
    pub fn salt(&self) -> Salt {
        // OK to unwrap: 32 bytes are allowed.
        Salt::new(hmac_sha256(&self.0, b"verity-salt").to_vec()).unwrap()
    }

    /// The UUID of version 4 that follows from the seed: the first half of the code.
    pub fn uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hmac_sha256(&self.0, b"verity-uuid")[..16]);
        Uuid::v4(bytes)
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
    getrandom::fill(bytes).map_err(|error| Error::Io(io::Error::other(format!("no random bytes: {error}"))))
}

fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let sha = Sha256::new(Cpu::detect());
    let mut block = [0; 64];
    match key.len() {
        0..=64 => block[..key.len()].copy_from_slice(key),
        _ => block[..32].copy_from_slice(&sha.hash(key)),
    }
    let pad = |with: u8| block.map(|byte| byte ^ with);
    let inner = sha.hash(&[&pad(0x36), message].concat());
    sha.hash(&[&pad(0x5c)[..], &inner].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex;

    #[test]
    fn hmac_is_that_of_rfc_4231() {
        let cases: [(&[u8], &[u8], &str); 3] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, message, expected) in cases {
            assert_eq!(hex::encode(&hmac_sha256(key, message)), expected);
        }
    }

    #[test]
    fn a_seed_says_everything() {
        let seed = Seed::from_text("5e34f531-3859-825c-fad6-33289ccfcb92");
        assert_eq!(seed, Seed::from_text("5E34F531-3859-825C-FAD6-33289CCFCB92"));
        assert_eq!(seed.salt().bytes().len(), 32);
        assert_ne!(seed.salt(), Seed::from_text("another").salt());
        assert_ne!(seed.salt().bytes()[..16], seed.uuid().bytes());
    }
}
