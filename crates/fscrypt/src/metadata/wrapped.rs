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

    /// Wraps a key under `wrapping`, which has [`WRAPPING_LEN`] bytes; no IV is used twice with it.
    pub(super) fn wrap(
        providers: &Providers,
        wrapping: &SecretVec,
        key: &SecretVec,
        iv: [u8; 16],
    ) -> Result<WrappedKey> {
        let (encryption, authentication) = keys(providers, wrapping)?;
        let mut encrypted = key.clone();
        providers
            .cipher("ctr(aes)", encryption.expose())?
            .encrypt(&Ivs::List(&iv), encrypted.expose_mut())?;
        let encrypted = encrypted.expose().to_vec();
        let tag = tag(providers, &authentication, &iv, &encrypted)?;
        let mut wrapped = WrappedKey { iv, encrypted, tag: [0; 32] };
        wrapped.tag.copy_from_slice(tag.expose());
        Ok(wrapped)
    }

    pub(super) fn to_data(&self) -> WrappedKeyData {
        let WrappedKey { iv, encrypted, tag } = self;
        WrappedKeyData { iv: iv.to_vec(), encrypted_key: encrypted.clone(), hmac: tag.to_vec() }
    }

    /// The key inside; `None` if the tag was not made with `wrapping`, which has [`WRAPPING_LEN`] bytes.
    pub(super) fn unwrap(&self, providers: &Providers, wrapping: &SecretVec) -> Result<Option<SecretVec>> {
        let (encryption, authentication) = keys(providers, wrapping)?;
        let tag = tag(providers, &authentication, &self.iv, &self.encrypted)?;
        if !constant_time_eq(tag.expose(), &self.tag) {
            return Ok(None);
        }
        let mut key = SecretVec::from(&self.encrypted[..]);
        providers.cipher("ctr(aes)", encryption.expose())?.decrypt(&Ivs::List(&self.iv), key.expose_mut())?;
        Ok(Some(key))
    }
}

/// The keys of the cipher and of the tag.
fn keys(providers: &Providers, wrapping: &SecretVec) -> Result<(SecretVec, SecretVec)> {
    let keys = Hkdf::new(providers.hash("sha256")?, &[], wrapping.expose()).expand(&[], 2 * WRAPPING_LEN);
    let (encryption, authentication) = keys.expose().split_at(WRAPPING_LEN);
    Ok((SecretVec::from(encryption), SecretVec::from(authentication)))
}

fn tag(providers: &Providers, key: &SecretVec, iv: &[u8; 16], encrypted: &[u8]) -> Result<SecretVec> {
    let tagged = [&iv[..], encrypted].concat();
    Ok(Hmac::new(providers.hash("sha256")?, key.expose()).tag(&tagged))
}
