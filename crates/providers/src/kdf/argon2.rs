//! Argon2i and Argon2id (RFC 9106).

use ::argon2::{Algorithm, Block, Params, Version};
use zeroize::Zeroize;

use casemate_primitives::secret::SecretVec;

use super::{KdfError, KdfLimits};

/// The variant of Argon2: its way through the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argon2Variant {
    /// By counters alone: old LUKS2 headers.
    I,
    /// By counters first and by the data then: what is chosen today.
    Id,
}

/// Argon2 with its costs, version 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argon2 {
    /// The variant: the way through the memory.
    pub variant: Argon2Variant,
    /// The number of passes over the memory, at least 1.
    pub passes: u32,
    /// The memory in KiB, at least 8 for each lane.
    pub memory: u32,
    /// The number of lanes, which may be filled at the same time, at least 1.
    pub lanes: u32,
}

impl Argon2 {
    /// Derives `len` bytes. The memory is wiped afterwards.
    ///
    /// # Errors
    /// [`KdfError::TooExpensive`] for costs above `limits`; [`KdfError::Invalid`] for costs below the minimum and a salt
    /// of less than 8 bytes; [`KdfError::Memory`] where there is not so much memory.
    pub fn derive(
        &self,
        passphrase: &[u8],
        salt: &[u8],
        len: usize,
        limits: &KdfLimits,
    ) -> Result<SecretVec, KdfError> {
        let Argon2 { passes, memory, lanes, .. } = *self;
        if memory > limits.memory || u64::from(passes) * u64::from(memory) > limits.work {
            return Err(KdfError::TooExpensive(format!(
                "it demands {passes} passes over {memory} KiB; at most {} KiB, and {} KiB in all passes, are granted",
                limits.memory, limits.work
            )));
        }
        let invalid = |error: ::argon2::Error| KdfError::Invalid(format!("{}: {error}", self.name()));
        let params = Params::new(memory, passes, lanes, Some(len)).map_err(invalid)?;
        let count = params.block_count();
        let mut blocks: Vec<Block> = Vec::new();
        if blocks.try_reserve_exact(count).is_err() {
            return Err(KdfError::Memory(format!("{}: no {memory} KiB of memory", self.name())));
        }
        blocks.resize(count, Block::default());
        let algorithm = match self.variant {
            Argon2Variant::I => Algorithm::Argon2i,
            Argon2Variant::Id => Algorithm::Argon2id,
        };
        let mut key = SecretVec::zeroed(len);
        let argon2 = ::argon2::Argon2::new(algorithm, Version::V0x13, params);
        let done = argon2.hash_password_into_with_memory(passphrase, salt, key.expose_mut(), &mut blocks);
        blocks.zeroize();
        done.map_err(invalid)?;
        Ok(key)
    }

    /// The function's name, as LUKS2 has it.
    pub fn name(&self) -> &'static str {
        match self.variant {
            Argon2Variant::I => "argon2i",
            Argon2Variant::Id => "argon2id",
        }
    }
}

#[cfg(test)]
mod tests {
    use casemate_primitives::hex;

    use super::*;

    /// From the tests of the reference implementation.
    #[test]
    fn keys_are_those_of_the_reference_implementation() {
        use Argon2Variant::{I, Id};
        for (variant, passes, memory, lanes, expected) in [
            (Id, 2, 1 << 16, 1, "09316115d5cf24ed5a15a31a3ba326e5cf32edc24702987c02b6566f61913cf7"),
            (Id, 2, 1 << 8, 1, "9dfeb910e80bad0311fee20f9c0e2b12c17987b4cac90c2ef54d5b3021c68bfe"),
            (Id, 2, 1 << 8, 2, "6d093c501fd5999645e0ea3bf620d7b8be7fd2db59c20d9fff9539da2bf57037"),
            (I, 2, 1 << 16, 1, "c1628832147d9720c5bd1cfd61367078729f6dfb6f8fea9ff98158e0d7816ed0"),
            (I, 2, 1 << 8, 1, "89e9029f4637b295beb027056a7336c414fadd43f6b208645281cb214a56452f"),
            (I, 2, 1 << 8, 2, "4ff5ce2769a1d7f4c8a491df09d41a9fbe90e5eb02155a13e4c01e20cd4eab61"),
        ] {
            let argon2 = Argon2 { variant, passes, memory, lanes };
            let key = argon2.derive(b"password", b"somesalt", 32, &KdfLimits::default()).unwrap();
            assert_eq!(hex::encode(key.expose()), expected, "{argon2:?}");
        }
    }

    #[test]
    fn costs_that_cannot_be_are_refused() {
        let derive = |passes, memory, lanes, salt: &[u8], limits: &KdfLimits| {
            let argon2 = Argon2 { variant: Argon2Variant::Id, passes, memory, lanes };
            argon2.derive(b"", salt, 32, limits).map(|_| ())
        };
        let all = KdfLimits::default();
        for (passes, memory, lanes) in [(0, 64, 1), (1, 7, 1), (1, 64, 0), (1, 64, 9), (1, 64, u32::MAX)] {
            assert!(matches!(derive(passes, memory, lanes, &[0; 16], &all), Err(KdfError::Invalid(_))));
        }
        assert!(matches!(derive(1, 64, 1, &[0; 7], &all), Err(KdfError::Invalid(_))));
        for (passes, memory) in [(1, 1025), (5, 1000), (u32::MAX, 8), (1, u32::MAX)] {
            let limits = KdfLimits { memory: 1024, work: 4096, iterations: 0 };
            let error = derive(passes, memory, 1, &[0; 16], &limits).unwrap_err();
            assert!(matches!(error, KdfError::TooExpensive(_)), "{passes} passes over {memory} KiB: {error}");
        }
    }
}
