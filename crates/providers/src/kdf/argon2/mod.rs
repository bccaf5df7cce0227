//! Argon2i and Argon2id (RFC 9106).

use std::num::NonZeroUsize;
use std::sync::LazyLock;

use blake2::Blake2bVarCore;
use digest::block_api::{UpdateCore, VariableOutputCore};
use zeroize::Zeroize;

use casemate_blockdev::{Pool, u32_of, u64_of, usize_of};
use casemate_primitives::Cpu;
use casemate_primitives::argon2::{Block, Compression};
use casemate_primitives::secret::SecretVec;
use casemate_sys::memory::Pages;

use super::{KdfError, KdfLimits};

mod lanes;

/// The variant of Argon2: its way through the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argon2Variant {
    /// By counters alone: old LUKS2 headers.
    I,
    /// By counters first and by the data then: what is chosen today.
    Id,
}

impl Argon2Variant {
    /// Number of the type in the RFC.
    fn number(self) -> u32 {
        match self {
            Argon2Variant::I => 1,
            Argon2Variant::Id => 2,
        }
    }
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
    /// [`KdfError::TooExpensive`] for costs above `limits`; [`KdfError::Invalid`] for costs below the minimum, a salt
    /// of less than 8 bytes, and a passphrase or salt of 4 GiB or more; [`KdfError::Memory`] where there is not so much
    /// memory.
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
        self.check(passphrase, salt, len)?;
        // As many threads as lanes at most: the others would have nothing to do.
        let pool = Pool::new(None);
        let threads = pool.threads().min(usize_of(lanes));
        self.derive_by(*COMPRESSION, Pool::new(NonZeroUsize::new(threads)), passphrase, salt, len)
    }

    fn derive_by(
        &self,
        compression: Compression,
        pool: Pool,
        passphrase: &[u8],
        salt: &[u8],
        len: usize,
    ) -> Result<SecretVec, KdfError> {
        let no_memory = |_| KdfError::Memory(format!("{}: no {} KiB of memory", self.name(), self.memory));
        let mut pages = Pages::new(lanes::memory_len(self)).map_err(no_memory)?;
        let memory = Block::within(pages.bytes_mut());
        let seed = self.seed(passphrase, salt, len);
        let lane_len = memory.len() / usize_of(self.lanes);
        let mut bytes = SecretVec::zeroed(size_of::<Block>());
        for (lane, blocks) in (0_u32..).zip(memory.chunks_mut(lane_len)) {
            for (index, block) in (0_u32..2).zip(blocks) {
                let parts = [seed.expose(), &index.to_le_bytes(), &lane.to_le_bytes()];
                long_hash(&parts, bytes.expose_mut());
                let words = bytes.expose().as_chunks().0;
                block.0 = std::array::from_fn(|k| u64::from_le_bytes(words[k]));
            }
        }
        let last = lanes::fill(self, compression, memory, pool);
        memory.zeroize();
        let mut last = last.ok_or(KdfError::Stopped)?;
        for (word, bytes) in last.0.iter().zip(bytes.expose_mut().as_chunks_mut().0) {
            *bytes = word.to_le_bytes();
        }
        last.zeroize();
        let mut key = SecretVec::zeroed(len);
        long_hash(&[bytes.expose()], key.expose_mut());
        Ok(key)
    }

    /// Refuses what the function is not defined for.
    fn check(&self, passphrase: &[u8], salt: &[u8], len: usize) -> Result<(), KdfError> {
        let Argon2 { passes, memory, lanes, .. } = *self;
        let text = match () {
            () if passes == 0 => "no pass".to_owned(),
            () if lanes == 0 || lanes >= 1 << 24 => format!("{lanes} lanes"),
            () if memory / 8 < lanes => {
                format!("{memory} KiB are too few for {lanes} lanes, which need 8 each")
            }
            () if salt.len() < 8 => format!("a salt of {} bytes", salt.len()),
            () if [passphrase, salt].iter().any(|bytes| u32::try_from(bytes.len()).is_err()) => {
                "a passphrase or a salt of 4 GiB or more".to_owned()
            }
            () if !(4..1 << 20).contains(&len) => format!("a key of {len} bytes"),
            () => return Ok(()),
        };
        Err(KdfError::Invalid(format!("{}: {text}", self.name())))
    }

    /// The seed of all first blocks: the RFC's H0.
    fn seed(&self, passphrase: &[u8], salt: &[u8], len: usize) -> SecretVec {
        let Argon2 { variant, passes, memory, lanes } = *self;
        // None has 4 GiB, as was checked.
        let number = |len: usize| u32_of(len).to_le_bytes();
        let [lanes, memory, passes, variant] =
            [lanes, memory, passes, variant.number()].map(u32::to_le_bytes);
        let version = number(0x13);
        let parts: [&[u8]; 12] = [
            &lanes,
            &number(len),
            &memory,
            &passes,
            &version,
            &variant,
            &number(passphrase.len()),
            passphrase,
            &number(salt.len()),
            salt,
            // Neither a secret nor associated data.
            &number(0),
            &number(0),
        ];
        let mut seed = SecretVec::zeroed(64);
        hash(&parts, seed.expose_mut());
        seed
    }

    /// The function's name, as LUKS2 has it.
    pub fn name(&self) -> &'static str {
        match self.variant {
            Argon2Variant::I => "argon2i",
            Argon2Variant::Id => "argon2id",
        }
    }
}

/// The function of two blocks that is used: the fastest one that makes what the portable one makes.
static COMPRESSION: LazyLock<Compression> = LazyLock::new(|| {
    let made = |compression: &Compression| {
        let block = |start: u64| {
            Block(std::array::from_fn(|k| (start + u64_of(k)).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        };
        let mut to = block(3000);
        compression.add(&block(1000), &block(2000), &mut to);
        to.0
    };
    let mut all: Vec<Compression> = Compression::available(Cpu::detect()).collect();
    // OK to index: the last one, which is portable, is always there.
    let expected = made(&all[all.len() - 1]);
    all.retain(|compression| made(compression) == expected);
    all[0]
});

/// BLAKE2b of parts one after the other, of at most 64 bytes.
fn hash(parts: &[&[u8]], out: &mut [u8]) {
    // OK to unwrap: callers ask for 1 to 64 bytes.
    let mut core = Blake2bVarCore::new(out.len()).unwrap();
    let mut buffer = digest::block_api::Buffer::<Blake2bVarCore>::default();
    parts.iter().for_each(|part| buffer.digest_blocks(part, |blocks| core.update_blocks(blocks)));
    let mut whole = digest::Output::<Blake2bVarCore>::default();
    core.finalize_variable_core(&mut buffer, &mut whole);
    out.copy_from_slice(&whole[..out.len()]);
    whole.zeroize();
}

/// The RFC's hash of any length: halves of hashes of hashes, and the last one whole.
fn long_hash(parts: &[&[u8]], out: &mut [u8]) {
    // At most a block, or a key.
    let len = u32_of(out.len()).to_le_bytes();
    let parts: Vec<&[u8]> = std::iter::once(&len[..]).chain(parts.iter().copied()).collect();
    if out.len() <= 64 {
        return hash(&parts, out);
    }
    let mut link = SecretVec::zeroed(64);
    hash(&parts, link.expose_mut());
    let mut left = out;
    while left.len() > 64 {
        let (now, later) = left.split_at_mut(32);
        now.copy_from_slice(&link.expose()[..32]);
        let last = link.clone();
        // The last link is as long as what is left.
        let len = later.len().min(64);
        link = SecretVec::zeroed(len);
        hash(&[last.expose()], link.expose_mut());
        left = later;
    }
    left.copy_from_slice(link.expose());
}

#[cfg(test)]
mod tests {
    use casemate_primitives::hex;
    use casemate_primitives::testing::Rng;

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

    /// Other lengths, lanes, passes and slices' lengths than the reference's, by every back end and number of threads.
    #[test]
    fn keys_are_those_of_another_implementation() {
        let mut rng = Rng::new(1);
        for (memory, passes, lanes, len) in [
            (8, 1, 1, 4),
            (16, 3, 2, 16),
            (37, 2, 1, 32),
            (2100, 1, 4, 64),
            (3000, 4, 3, 65),
            (4200, 2, 4, 129),
        ] {
            for variant in [Argon2Variant::I, Argon2Variant::Id] {
                let (passphrase, salt) = (rng.bytes(lanes as usize * 11), rng.bytes(8 + len));
                let algorithm =
                    [::argon2::Algorithm::Argon2i, ::argon2::Algorithm::Argon2id][variant as usize];
                let params = ::argon2::Params::new(memory, passes, lanes, Some(len)).unwrap();
                let mut expected = vec![0; len];
                ::argon2::Argon2::new(algorithm, ::argon2::Version::V0x13, params)
                    .hash_password_into(&passphrase, &salt, &mut expected)
                    .unwrap();
                let argon2 = Argon2 { variant, passes, memory, lanes };
                for compression in Compression::available(Cpu::detect()) {
                    for threads in [1, 2, 4] {
                        let pool = Pool::new(NonZeroUsize::new(threads));
                        let key = argon2.derive_by(compression, pool, &passphrase, &salt, len).unwrap();
                        assert_eq!(key.expose(), expected, "{argon2:?}, {compression:?}, {threads} threads");
                    }
                }
            }
        }
    }

    /// Lengths are hashed in 32 bits, in which this one is 0.
    #[cfg(target_pointer_width = "64")]
    #[test]
    fn a_passphrase_whose_length_has_33_bits_is_refused() {
        let argon2 = Argon2 { variant: Argon2Variant::Id, passes: 1, memory: 8, lanes: 1 };
        // Zeros that are never touched take no memory.
        let error = argon2.derive(&vec![0; 1 << 32], &[0; 16], 32, &KdfLimits::default()).unwrap_err();
        assert!(matches!(error, KdfError::Invalid(_)), "{error}");
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
