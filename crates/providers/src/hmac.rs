//! HMAC (RFC 2104) and HKDF (RFC 5869) over any of the hashes.

use std::fmt;

use zeroize::Zeroize;

use casemate_primitives::secret::SecretVec;

use crate::hash::{Hash, SaltedHash};

/// HMAC under one key; wiped when dropped.
///
/// The hash's states behind the two padded keys are kept, so that a tag costs no more than the two hashes.
#[derive(Clone)]
pub struct Hmac {
    inner: SaltedHash,
    outer: SaltedHash,
}

impl Hmac {
    /// HMAC with `hash` under a key of any length.
    pub fn new(hash: Hash, key: &[u8]) -> Hmac {
        let mut block = SecretVec::zeroed(hash.block_len());
        if key.len() > hash.block_len() {
            let digest = SecretVec::new(hash.digest(key));
            block.expose_mut()[..digest.len()].copy_from_slice(digest.expose());
        } else {
            block.expose_mut()[..key.len()].copy_from_slice(key);
        }
        block.expose_mut().iter_mut().for_each(|byte| *byte ^= 0x36);
        let inner = hash.salted(block.expose(), &[]);
        block.expose_mut().iter_mut().for_each(|byte| *byte ^= 0x36 ^ 0x5c);
        Hmac { inner, outer: hash.salted(block.expose(), &[]) }
    }

    /// The tag of a message. It is as secret as what it is used for.
    pub fn tag(&self, message: &[u8]) -> SecretVec {
        let mut digest = SecretVec::zeroed(self.inner.digest_len());
        let mut tag = SecretVec::zeroed(self.outer.digest_len());
        self.tag_into(message, &mut digest, tag.expose_mut());
        tag
    }

    /// As [`Hmac::tag`], with buffers that are used again: `digest` is the inner hash's, `tag` gets the tag.
    pub(crate) fn tag_into(&self, message: &[u8], digest: &mut SecretVec, tag: &mut [u8]) {
        self.inner.hash(message, digest.expose_mut());
        self.outer.hash(digest.expose(), tag);
    }

    /// Replaces a tag by the tag of it.
    pub(crate) fn again(&self, digest: &mut SecretVec, tag: &mut [u8]) {
        self.inner.hash(tag, digest.expose_mut());
        self.outer.hash(digest.expose(), tag);
    }

    /// The length of a tag in bytes.
    pub fn tag_len(&self) -> usize {
        self.outer.digest_len()
    }
}

impl Drop for Hmac {
    fn drop(&mut self) {
        self.inner.zeroize();
        self.outer.zeroize();
    }
}

impl fmt::Debug for Hmac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hmac({} bytes)", self.tag_len())
    }
}

/// HKDF with its key extracted: what is left is to expand it for each purpose.
#[derive(Clone, Debug)]
pub struct Hkdf(Hmac);

impl Hkdf {
    /// Extracts a key from `material`. An empty salt stands for one of zeros.
    pub fn new(hash: Hash, salt: &[u8], material: &[u8]) -> Hkdf {
        let key = Hmac::new(hash.clone(), salt).tag(material);
        Hkdf(Hmac::new(hash, key.expose()))
    }

    /// Expands it to `len` bytes for the purpose that `info` names.
    ///
    /// # Panics
    /// If `len` passes 255 digests, where HKDF ends.
    pub fn expand(&self, info: &[u8], len: usize) -> SecretVec {
        assert!(len.div_ceil(self.0.tag_len()) <= 255, "{len} bytes are more than HKDF has");
        let mut out = SecretVec::zeroed(len);
        let mut last = SecretVec::zeroed(0);
        for (round, out) in (1..=255).zip(out.expose_mut().chunks_mut(self.0.tag_len())) {
            let message = SecretVec::new([last.expose(), info, &[round]].concat());
            last = self.0.tag(message.expose());
            out.copy_from_slice(&last.expose()[..out.len()]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use casemate_primitives::{Cpu, hex};

    use super::*;

    fn bytes(digits: &str) -> Vec<u8> {
        hex::decode(digits).unwrap()
    }

    fn hash(name: &str) -> Hash {
        Hash::named(name, Cpu::detect()).unwrap()
    }

    #[test]
    fn tags_are_those_of_rfc_4231() {
        // Key, message, tag with SHA-256 and the first half of the tag with SHA-512.
        #[rustfmt::skip]
        let cases: [(&[u8], &[u8], &str, &str); 3] = [
            (&[0x0b; 20], b"Hi There",
             "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
             "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde"),
            (b"Jefe", b"what do ya want for nothing?",
             "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
             "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554"),
            (&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First",
             "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
             "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352"),
        ];
        for (key, message, sha256, sha512) in cases {
            assert_eq!(Hmac::new(hash("sha256"), key).tag(message).expose(), bytes(sha256));
            assert_eq!(&Hmac::new(hash("sha512"), key).tag(message).expose()[..32], bytes(sha512));
        }
    }

    #[test]
    fn keys_are_those_of_rfc_5869() {
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let salt: Vec<u8> = (0..=12).collect();
        let hkdf = Hkdf::new(hash("sha256"), &salt, &[0x0b; 22]);
        let okm = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        assert_eq!(hkdf.expand(&info, 42).expose(), bytes(okm));
        let hkdf = Hkdf::new(hash("sha256"), &[], &[0x0b; 22]);
        let okm = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8";
        assert_eq!(hkdf.expand(&[], 42).expose(), bytes(okm));
    }
}
