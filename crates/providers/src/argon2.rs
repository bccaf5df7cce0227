//! Argon2id (RFC 9106): keys from passphrases, at a cost.

use std::fmt;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use zeroize::Zeroize;

use casemate_primitives::secret::SecretVec;

/// What one derivation costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argon2id {
    /// Passes over the memory, at least 1.
    pub passes: u32,
    /// KiB of memory, at least 8 for each lane.
    pub memory: u32,
    /// Lanes that may be filled at the same time, at least 1.
    pub lanes: u32,
}

/// Costs that can't be, or memory that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argon2Error(String);

impl Argon2id {
    /// Derives `len` bytes. The memory is wiped afterwards.
    ///
    /// # Errors
    /// [`Argon2Error`] for costs below the minimum, a salt of less than 8 bytes, and where there is not so much
    /// memory. How much a stranger's file may demand is the caller's decision.
    pub fn derive(&self, passphrase: &[u8], salt: &[u8], len: usize) -> Result<SecretVec, Argon2Error> {
        let failed = |error: argon2::Error| Argon2Error(error.to_string());
        let params = Params::new(self.memory, self.passes, self.lanes, Some(len)).map_err(failed)?;
        let count = params.block_count();
        let mut memory: Vec<Block> = Vec::new();
        if memory.try_reserve_exact(count).is_err() {
            return Err(Argon2Error(format!("no {} KiB of memory", self.memory)));
        }
        memory.resize(count, Block::default());
        let mut key = SecretVec::zeroed(len);
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let done = argon2.hash_password_into_with_memory(passphrase, salt, key.expose_mut(), &mut memory);
        memory.zeroize();
        done.map_err(failed)?;
        Ok(key)
    }
}

impl fmt::Display for Argon2Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "argon2id: {}", self.0)
    }
}

impl std::error::Error for Argon2Error {}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the tests of the reference implementation.
    #[test]
    fn keys_are_those_of_the_reference_implementation() {
        for (passes, memory, lanes, expected) in [
            (2, 1 << 16, 1, "09316115d5cf24ed5a15a31a3ba326e5cf32edc24702987c02b6566f61913cf7"),
            (2, 1 << 8, 1, "9dfeb910e80bad0311fee20f9c0e2b12c17987b4cac90c2ef54d5b3021c68bfe"),
            (2, 1 << 8, 2, "6d093c501fd5999645e0ea3bf620d7b8be7fd2db59c20d9fff9539da2bf57037"),
        ] {
            let key = Argon2id { passes, memory, lanes }.derive(b"password", b"somesalt", 32).unwrap();
            let hex: String = key.expose().iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, expected, "{passes} passes, {memory} KiB, {lanes} lanes");
        }
    }

    #[test]
    fn costs_that_cannot_be_are_refused() {
        for (passes, memory, lanes) in [(0, 64, 1), (1, 7, 1), (1, 64, 0), (1, 64, 9), (1, 64, u32::MAX)] {
            assert!(Argon2id { passes, memory, lanes }.derive(b"", &[0; 16], 32).is_err());
        }
        assert!(Argon2id { passes: 1, memory: 64, lanes: 1 }.derive(b"", &[0; 7], 32).is_err());
    }
}
