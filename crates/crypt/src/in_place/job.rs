//! The work that is to be done, and the codes and digests by which it is known.

use casemate_providers::{Direction, Hash, Hmac, Work};

use crate::SectorCipher;

/// The transformation of an image in place: mapping, key and direction.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The mapping under its key.
    pub cipher: &'a SectorCipher,
    /// SHA-256, for the journal.
    pub sha256: &'a Hash,
    /// The direction: to ciphertext or to plaintext.
    pub direction: Direction,
    /// The mapping's key, by which resumed work is told from work with another key.
    pub key: &'a [u8],
    /// The mapping's description, in words that do not change: resumed work must have the same.
    pub mapping: &'a str,
    /// The threads, and the listener, which hears of bytes that are done.
    pub work: &'a Work<'a>,
}

/// HMAC-SHA256 under the key.
pub(super) fn tag(job: &Job<'_>, message: &[u8]) -> [u8; 32] {
    // OK to unwrap: SHA-256's length.
    Hmac::new(job.sha256.clone(), job.key).tag(message).expose().try_into().unwrap()
}

pub(super) fn digest(sha256: &Hash, message: &[u8]) -> [u8; 32] {
    // OK to unwrap: SHA-256's length.
    sha256.digest(message).try_into().unwrap()
}
