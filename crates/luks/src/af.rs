//! The anti-forensic splitter: a key as many stripes, all of which are needed to have it again.
//!
//! ```text
//! d = 0
//! for each stripe but the last:  d = diffuse(d ^ stripe)
//! key = d ^ last stripe
//! ```
//!
//! `diffuse` hashes its input in pieces of a digest's length, each with its number before it. Wiping any part of the
//! stripes so wipes the key. Source: TKS1, Clemens Fruhwirth, 2004; LUKS on-disk format specification.

use casemate_primitives::secret::SecretVec;
use casemate_providers::{Hash, SaltedHash};

use crate::{Error, Result};

/// How many stripes a key is split into, in both versions of LUKS.
pub const STRIPES: usize = 4000;

/// The bytes of a key's stripes, rounded up to whole sectors of 512 bytes; `None` if that passes what there can be.
pub fn material_len(key_len: usize) -> Option<usize> {
    key_len.checked_mul(STRIPES)?.checked_next_multiple_of(512)
}

/// The key that stripes were made of. Bytes behind them are not looked at.
///
/// # Errors
/// `Corrupt` if there are fewer stripes.
pub fn merge(material: &[u8], key_len: usize, hash: &Hash) -> Result<SecretVec> {
    let stripes = key_len.checked_mul(STRIPES).filter(|_| key_len > 0).and_then(|len| material.get(..len));
    let stripes = stripes.ok_or_else(|| Error::corrupt("a key slot's area is shorter than its stripes"))?;
    let mut key = SecretVec::zeroed(key_len);
    walk(stripes, &mut key, hash);
    Ok(key)
}

/// Stripes of a key, with zeros up to a whole sector behind them; `fill` makes random bytes.
///
/// # Errors
/// Errors of `fill`; `Argument` for a key that is too long, or empty.
pub fn split(
    key: &SecretVec,
    hash: &Hash,
    fill: &mut dyn FnMut(&mut [u8]) -> Result<()>,
) -> Result<SecretVec> {
    let len = material_len(key.len()).filter(|_| !key.is_empty());
    let len = len.ok_or_else(|| Error::argument(format!("a key of {} bytes can't be split", key.len())))?;
    let mut material = SecretVec::zeroed(len);
    let stripes = &mut material.expose_mut()[..key.len() * STRIPES];
    let last = stripes.len() - key.len();
    fill(&mut stripes[..last])?;
    // With a last stripe of zeros the walk ends at what the key must be added to.
    let mut sum = SecretVec::zeroed(key.len());
    walk(stripes, &mut sum, hash);
    xor(&mut stripes[last..], sum.expose());
    xor(&mut stripes[last..], key.expose());
    Ok(material)
}

/// Goes over all stripes, from zeros in `state`, which has the last stripe added at the end.
fn walk(stripes: &[u8], state: &mut SecretVec, hash: &Hash) {
    let (salted, digest_len) = (hash.salted(&[], &[]), hash.digest_len());
    let mut message = SecretVec::zeroed(4 + digest_len);
    let mut digest = SecretVec::zeroed(digest_len);
    let mut stripes = stripes.chunks_exact(state.len()).peekable();
    while let Some(stripe) = stripes.next() {
        xor(state.expose_mut(), stripe);
        if stripes.peek().is_some() {
            diffuse(state.expose_mut(), &salted, &mut message, &mut digest);
        }
    }
}

fn diffuse(state: &mut [u8], hash: &SaltedHash, message: &mut SecretVec, digest: &mut SecretVec) {
    let digest_len = digest.len();
    for (number, piece) in (0u32..).zip(state.chunks_mut(digest_len)) {
        let message = &mut message.expose_mut()[..4 + piece.len()];
        message[..4].copy_from_slice(&number.to_be_bytes());
        message[4..].copy_from_slice(piece);
        hash.hash(message, digest.expose_mut());
        piece.copy_from_slice(&digest.expose()[..piece.len()]);
    }
}

fn xor(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to ^= from);
}

#[cfg(test)]
mod tests {
    use casemate_providers::Providers;
    use casemate_testkit::Rng;

    use super::*;

    #[test]
    fn keys_come_back_from_their_stripes_alone() {
        let mut rng = Rng::new(3);
        for (name, len) in [("sha1", 16), ("sha256", 32), ("sha256", 33), ("sha512", 64), ("whirlpool", 100)]
        {
            let hash = Providers::default().hash(name).unwrap();
            let key = SecretVec::new(rng.bytes(len));
            let mut fill = |bytes: &mut [u8]| {
                bytes.copy_from_slice(&rng.bytes(bytes.len()));
                Ok(())
            };
            let mut material = split(&key, &hash, &mut fill).unwrap();
            assert_eq!(material.len(), (len * 4000usize).next_multiple_of(512));
            assert_eq!(merge(material.expose(), len, &hash).unwrap(), key, "{name}");
            assert_ne!(material.expose()[len * 3999..len * 4000], *key.expose());
            material.expose_mut()[len * 7] ^= 1;
            assert_ne!(merge(material.expose(), len, &hash).unwrap(), key);
            assert!(merge(&material.expose()[..len * 4000 - 1], len, &hash).is_err());
        }
        let hash = Providers::default().hash("sha256").unwrap();
        assert!(merge(&[0; 100], 0, &hash).is_err() && merge(&[0; 100], usize::MAX, &hash).is_err());
    }
}
