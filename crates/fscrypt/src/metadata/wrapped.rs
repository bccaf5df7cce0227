//! Keys wrapped under other keys.

use casemate_primitives::secret::{SecretVec, constant_time_eq};
use casemate_providers::{Hkdf, Hmac, Ivs, Providers};

use super::message::WrappedKeyData;
use crate::{Error, Result};

/// Bytes of every key that wraps another.
pub(super) const WRAPPING_LEN: usize = 32;

/// An encrypted key and its tag.
#[derive(Clone, Debug)]
pub(super) struct WrappedKey {
    iv: [u8; 16],
    encrypted: Vec<u8>,
    tag: [u8; 32],
}

impl WrappedKey {
    /// Checks the lengths; the key inside must have `len` bytes.
    pub(super) fn new(what: &str, data: Option<WrappedKeyData>, len: usize) -> Result<WrappedKey> {
        let WrappedKeyData { iv, encrypted_key, hmac } =
            data.ok_or_else(|| Error::corrupt(format!("{what}: no wrapped key")))?;
        let wrong = |part: &str, found: usize, len: usize| {
            Error::corrupt(format!("{what}: {found} bytes of {part} where there should be {len}"))
        };
        if encrypted_key.len() != len {
            return Err(wrong("encrypted key", encrypted_key.len(), len));
        }
        Ok(WrappedKey {
            iv: iv[..].try_into().map_err(|_| wrong("IV", iv.len(), 16))?,
            encrypted: encrypted_key,
            tag: hmac[..].try_into().map_err(|_| wrong("HMAC", hmac.len(), 32))?,
        })
    }

    /// The key inside; `None` if the tag was not made with `wrapping`, which has [`WRAPPING_LEN`] bytes.
    pub(super) fn unwrap(&self, providers: &Providers, wrapping: &SecretVec) -> Result<Option<SecretVec>> {
        let keys = Hkdf::new(providers.hash("sha256")?, &[], wrapping.expose()).expand(&[], 2 * WRAPPING_LEN);
        let (encryption, authentication) = keys.expose().split_at(WRAPPING_LEN);
        let tagged = [&self.iv[..], &self.encrypted].concat();
        if !constant_time_eq(
            Hmac::new(providers.hash("sha256")?, authentication).tag(&tagged).expose(),
            &self.tag,
        ) {
            return Ok(None);
        }
        let mut key = SecretVec::from(&self.encrypted[..]);
        providers.cipher("ctr(aes)", encryption)?.decrypt(&Ivs::List(&self.iv), key.expose_mut())?;
        Ok(Some(key))
    }
}
