//! Key material that wipes itself and never shows itself.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

/// Secret bytes of a length known at run time: wiped on drop, compared in constant time, never printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SecretVec(Vec<u8>);

impl SecretVec {
    /// Takes over `bytes`. The vector must not have been reallocated since the secret went in: an abandoned
    /// allocation can't be wiped from here.
    pub fn new(bytes: Vec<u8>) -> SecretVec {
        SecretVec(bytes)
    }

    /// `len` zero bytes, to be filled through [`SecretVec::expose_mut`].
    pub fn zeroed(len: usize) -> SecretVec {
        SecretVec(vec![0; len])
    }

    /// The secret's bytes, to be changed.
    pub fn expose_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// The secret's bytes. Named so that a reader sees where the secret leaves its wrapper.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The number of the secret's bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the secret has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&[u8]> for SecretVec {
    fn from(bytes: &[u8]) -> SecretVec {
        SecretVec(bytes.to_vec())
    }
}

impl PartialEq for SecretVec {
    fn eq(&self, other: &SecretVec) -> bool {
        constant_time_eq(&self.0, &other.0)
    }
}

impl Eq for SecretVec {}

impl fmt::Debug for SecretVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretVec({} bytes)", self.0.len())
    }
}

/// Whether two byte strings are equal, in a time that depends on their lengths alone.
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let difference = a.iter().zip(b).fold(0, |bits, (a, b)| bits | (a ^ b));
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_only_a_length() {
        assert_eq!(format!("{:?}", SecretVec::from(&b"hunter2"[..])), "SecretVec(7 bytes)");
    }

    #[test]
    fn equality_sees_every_byte() {
        let secret: Vec<u8> = (0..=255).collect();
        for i in 0..secret.len() {
            let mut other = secret.clone();
            other[i] ^= 0x80;
            assert!(!constant_time_eq(&secret, &other), "byte {i}");
        }
        assert!(constant_time_eq(&secret, &secret.clone()));
        assert!(!constant_time_eq(&secret, &secret[1..]));
    }
}
