//! VAES on 256-bit registers: two blocks in a register. For Intel from Alder Lake on, which has no AVX-512, and AMD Zen 3.

use core::arch::x86_64::*;

use super::engine::Engine;
use super::functions::engine_functions;
use super::schedule::Schedule;

engine_functions!(Vaes256::new(), "aes,avx2,vaes,vpclmulqdq");

/// Proof that the CPU has VAES, VPCLMULQDQ and AVX2.
#[derive(Clone, Copy)]
pub(super) struct Vaes256(());

impl Vaes256 {
    #[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
    pub fn new() -> Vaes256 {
        Vaes256(())
    }

    /// Adds what left each qword at its top: to the next qword, or from the last one through the feedback.
    #[inline(always)]
    fn carry(self, left: __m256i, carry: __m256i) -> __m256i {
        // SAFETY: a `Vaes256` exists only on a CPU with these instructions.
        unsafe {
            let feedback = _mm256_clmulepi64_epi128::<0x01>(carry, _mm256_set1_epi64x(0x87));
            _mm256_xor_si256(_mm256_xor_si256(left, _mm256_bslli_epi128::<8>(carry)), feedback)
        }
    }
}

/// A round key in each lane. No closure in the macro: those that are not inlined lack the CPU's features.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn load_key(key: &[u8; 16]) -> __m256i {
    // SAFETY: 16 readable bytes, and the caller vouches for the instructions.
    unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(key.as_ptr().cast())) }
}

/// Applies one AES round function with each key in turn.
macro_rules! rounds {
    ($v:ident, $keys:expr, $count:expr, $round:ident, $last:ident) => {{
        // SAFETY: a round key is 16 readable bytes, and a `Vaes256` exists only on a CPU with these instructions.
        unsafe {
            let first = load_key(&$keys[0]);
            for v in &mut $v {
                *v = _mm256_xor_si256(*v, first);
            }
            for i in 1..$count {
                let key = load_key(&$keys[i]);
                for v in &mut $v {
                    *v = $round(*v, key);
                }
            }
            let last = load_key(&$keys[$count]);
            for v in &mut $v {
                *v = $last(*v, last);
            }
        }
    }};
}

impl Engine for Vaes256 {
    type V = __m256i;

    const LANES: usize = 2;

    #[inline(always)]
    unsafe fn load(self, src: *const u8) -> __m256i {
        // SAFETY: the caller vouches for 32 bytes, and a `Vaes256` exists only on a CPU with AVX2.
        unsafe { _mm256_loadu_si256(src.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8, v: __m256i) {
        // SAFETY: the caller vouches for 32 bytes, and a `Vaes256` exists only on a CPU with AVX2.
        unsafe { _mm256_storeu_si256(dst.cast(), v) }
    }

    #[inline(always)]
    fn splat_block(self, block: [u8; 16]) -> __m256i {
        // SAFETY: a `Vaes256` exists only on a CPU with AVX2; the block is 16 readable bytes.
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(block.as_ptr().cast())) }
    }

    #[inline(always)]
    fn first_block(self, v: __m256i) -> [u8; 16] {
        let mut block = [0; 16];
        // SAFETY: a `Vaes256` exists only on a CPU with AVX2; the block is 16 writable bytes.
        unsafe { _mm_storeu_si128(block.as_mut_ptr().cast(), _mm256_castsi256_si128(v)) };
        block
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: a `Vaes256` exists only on a CPU with AVX2.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn encrypt<const N: usize>(self, keys: &Schedule, mut v: [__m256i; N]) -> [__m256i; N] {
        rounds!(v, keys.enc, keys.rounds, _mm256_aesenc_epi128, _mm256_aesenclast_epi128);
        v
    }

    #[inline(always)]
    fn decrypt<const N: usize>(self, keys: &Schedule, mut v: [__m256i; N]) -> [__m256i; N] {
        rounds!(v, keys.dec, keys.rounds, _mm256_aesdec_epi128, _mm256_aesdeclast_epi128);
        v
    }

    #[inline(always)]
    fn first_tweaks(self, tweak: [u8; 16]) -> __m256i {
        let both = self.splat_block(tweak);
        // SAFETY: a `Vaes256` exists only on a CPU with these instructions.
        unsafe {
            // The second lane is shifted left by one. A shift by 64 gives 0.
            let left = _mm256_sllv_epi64(both, _mm256_set_epi64x(1, 1, 0, 0));
            self.carry(left, _mm256_srlv_epi64(both, _mm256_set_epi64x(63, 63, 64, 64)))
        }
    }

    #[inline(always)]
    fn next_tweaks(self, v: __m256i) -> __m256i {
        // SAFETY: a `Vaes256` exists only on a CPU with these instructions.
        unsafe { self.carry(_mm256_slli_epi64::<2>(v), _mm256_srli_epi64::<62>(v)) }
    }
}
