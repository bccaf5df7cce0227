//! cryptsetup's plain mode: a key from a passphrase, without salt or iterations.

use casemate_primitives::secret::SecretVec;
use casemate_providers::Providers;

use crate::Error;

/// The key of `key_len` bytes that `cryptsetup open --type plain` makes of a passphrase.
///
/// `hash` is `plain` (the passphrase itself, cut or filled up with zeros), a hash's name, or `name:len`, which takes
/// only `len` bytes from the hash and fills up with zeros. A key longer than a digest is made of several: the
/// passphrase, "A" and the passphrase, "AA" and the passphrase, and so on.
///
/// # Errors
/// `Argument` for an unknown hash or a length that is not within the key; `Unsupported` if no implementation may be
/// used.
pub fn plain_key(
    passphrase: &[u8],
    hash: &str,
    key_len: usize,
    providers: &Providers,
) -> Result<SecretVec, Error> {
    let (name, len) = match hash.split_once(':') {
        Some((name, len)) => {
            let len = len.parse::<usize>().ok().filter(|len| (1..=key_len).contains(len));
            let wrong = || {
                Error::argument(format!("hash '{hash}': the length must be within the key's {key_len} bytes"))
            };
            (name, len.ok_or_else(wrong)?)
        }
        None => (hash, key_len),
    };
    let mut key = SecretVec::zeroed(key_len);
    let out = &mut key.expose_mut()[..len];
    if name == "plain" {
        let len = len.min(passphrase.len());
        out[..len].copy_from_slice(&passphrase[..len]);
        return Ok(key);
    }
    let hash = providers.hash(name)?;
    for (round, out) in out.chunks_mut(hash.digest_len()).enumerate() {
        let mut digest = SecretVec::zeroed(hash.digest_len());
        hash.salted(&vec![b'A'; round], b"").hash(passphrase, digest.expose_mut());
        out.copy_from_slice(&digest.expose()[..out.len()]);
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_hashes_are_refused() {
        let providers = Providers::default();
        let plain_key = |passphrase, hash, len| plain_key(passphrase, hash, len, &providers);
        for hash in ["sha257", "sha256:0", "sha256:65", "sha256:x"] {
            assert!(plain_key(b"secret", hash, 64).is_err(), "{hash}");
        }
        assert_eq!(plain_key(b"abc", "plain", 5).unwrap().expose(), b"abc\0\0");
        assert_eq!(plain_key(b"abcdef", "plain:2", 4).unwrap().expose(), b"ab\0\0");
    }
}
