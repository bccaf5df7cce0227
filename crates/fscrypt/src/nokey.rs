//! No-key names: what is shown of encrypted names without the key, and how files are found by it.
//!
//! ```text
//! base64url( le32 hash, le32 minor hash, first 149 bytes of ciphertext, SHA-256 of the rest if there is one )
//! ```
//!
//! The kernel may change this form at any time: it is good for showing and for looking up, not for storing.

use casemate_primitives::base64::{Alphabet, Base64, Padding};
use casemate_providers::Providers;

use crate::names::LONGEST_NAME;
use crate::{Error, Result};

/// An encrypted name in the form that is shown without its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoKeyName {
    /// The name's hash in its directory, and its minor hash; zeros where a directory has no hashes.
    pub hash: [u32; 2],
    /// The ciphertext, or its first 149 bytes.
    pub ciphertext: Vec<u8>,
    /// SHA-256 of the ciphertext behind its first 149 bytes, if there is more.
    pub rest_sha256: Option<[u8; 32]>,
}

/// Bytes of ciphertext that are shown: with the hashes and a digest they fill a name.
const SHOWN: usize = 149;

const HASHES: usize = 8;
const DIGEST: usize = 32;

impl NoKeyName {
    /// The no-key name of a ciphertext that has `hash` in its directory's tree.
    ///
    /// # Errors
    /// `Unsupported` if no implementation of SHA-256 may be used.
    pub fn new(providers: &Providers, hash: [u32; 2], ciphertext: &[u8]) -> Result<NoKeyName> {
        let (shown, rest) = ciphertext.split_at(ciphertext.len().min(SHOWN));
        let rest_sha256 = match rest {
            [] => None,
            _ => Some(digest(providers, rest)?),
        };
        Ok(NoKeyName { hash, ciphertext: shown.to_vec(), rest_sha256 })
    }

    /// Reads a no-key name from its text.
    ///
    /// # Errors
    /// `Argument` for a text that is never shown.
    pub fn from_text(providers: &Providers, text: &[u8]) -> Result<NoKeyName> {
        let bad =
            |what: String| Error::argument(format!("not a name as it is shown without the key: {what}"));
        if text.len() > LONGEST_NAME {
            return Err(bad(format!("{} bytes", text.len())));
        }
        let bytes = base64(providers).decode_to_vec(text).map_err(|error| bad(error.to_string()))?;
        let len = bytes.len();
        if len <= HASHES || len > HASHES + SHOWN && len != HASHES + SHOWN + DIGEST {
            return Err(bad(format!("it stands for {len} bytes")));
        }
        let (hashes, rest) = bytes.split_at(HASHES);
        let (ciphertext, digest) = rest.split_at(rest.len().min(SHOWN));
        let word =
            |at: usize| u32::from_le_bytes(hashes[at..at + 4].try_into().expect("4 bytes are 4 bytes"));
        Ok(NoKeyName {
            hash: [word(0), word(4)],
            ciphertext: ciphertext.to_vec(),
            rest_sha256: digest.try_into().ok(),
        })
    }

    /// The no-key name's text: unpadded URL-safe base64.
    pub fn text(&self, providers: &Providers) -> String {
        let mut bytes = Vec::with_capacity(HASHES + SHOWN + DIGEST);
        for word in self.hash {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(&self.ciphertext);
        bytes.extend(self.rest_sha256.iter().flatten());
        base64(providers).encode_to_string(&bytes)
    }

    /// Whether the no-key name stands for this ciphertext. The hashes are only a hint where to look.
    ///
    /// # Errors
    /// As [`NoKeyName::new`].
    pub fn matches(&self, providers: &Providers, ciphertext: &[u8]) -> Result<bool> {
        let (shown, rest) = ciphertext.split_at(ciphertext.len().min(SHOWN));
        Ok(self.ciphertext == shown
            && match self.rest_sha256 {
                None => rest.is_empty(),
                Some(sha256) => !rest.is_empty() && sha256 == digest(providers, rest)?,
            })
    }
}

fn digest(providers: &Providers, bytes: &[u8]) -> Result<[u8; DIGEST]> {
    // OK to unwrap: a digest of SHA-256 has 32 bytes.
    Ok(providers.hash("sha256")?.digest(bytes).try_into().unwrap())
}

/// The codec of names without a key.
fn base64(providers: &Providers) -> Base64<'static> {
    Base64::new(providers.cpu(), &Alphabet::URL_SAFE, Padding::Unpadded)
}
