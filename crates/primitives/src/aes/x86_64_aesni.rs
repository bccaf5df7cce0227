//! AES-NI: one block in a register. For x86-64 CPUs without VAES (Intel before 2019, AMD before Zen 3).

use core::arch::x86_64::*;

use super::engine::Engine;
use super::functions::{engine_functions, expand_function};
use super::schedule::KeyExpansion;
use super::schedule::Schedule;

expand_function!(AesNi::new(), "aes,sse4.1");
engine_functions!(AesNi::new(), "aes,sse4.1");

/// Proof that the CPU has AES-NI.
#[derive(Clone, Copy)]
struct AesNi(());

impl AesNi {
    #[target_feature(enable = "aes,sse4.1")]
    fn new() -> AesNi {
        AesNi(())
    }
}

/// Applies one AES round function with each key in turn.
macro_rules! rounds {
    ($v:ident, $keys:expr, $count:expr, $round:ident, $last:ident) => {{
        // SAFETY: a round key is 16 readable bytes, and an `AesNi` exists only on a CPU with these instructions.
        unsafe {
            let key = |i: usize| _mm_loadu_si128($keys[i].as_ptr().cast());
            let first = key(0);
            for v in &mut $v {
                *v = _mm_xor_si128(*v, first);
            }
            for i in 1..$count {
                let key = key(i);
                for v in &mut $v {
                    *v = $round(*v, key);
                }
            }
            let last = key($count);
            for v in &mut $v {
                *v = $last(*v, last);
            }
        }
    }};
}

impl Engine for AesNi {
    type V = __m128i;

    const LANES: usize = 1;

    #[inline(always)]
    unsafe fn load(self, src: *const u8) -> __m128i {
        // SAFETY: the caller vouches for 16 bytes; the load needs no alignment.
        unsafe { _mm_loadu_si128(src.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8, v: __m128i) {
        // SAFETY: the caller vouches for 16 bytes; the store needs no alignment.
        unsafe { _mm_storeu_si128(dst.cast(), v) }
    }

    #[inline(always)]
    fn splat_block(self, block: [u8; 16]) -> __m128i {
        // SAFETY: SSE2 is part of x86-64; the block is 16 readable bytes.
        unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
    }

    #[inline(always)]
    fn first_block(self, v: __m128i) -> [u8; 16] {
        let mut block = [0; 16];
        // SAFETY: SSE2 is part of x86-64; the block is 16 writable bytes.
        unsafe { _mm_storeu_si128(block.as_mut_ptr().cast(), v) };
        block
    }

    #[inline(always)]
    fn xor(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_xor_si128(a, b) }
    }

    #[inline(always)]
    fn encrypt<const N: usize>(self, keys: &Schedule, mut v: [__m128i; N]) -> [__m128i; N] {
        rounds!(v, keys.enc, keys.rounds, _mm_aesenc_si128, _mm_aesenclast_si128);
        v
    }

    #[inline(always)]
    fn decrypt<const N: usize>(self, keys: &Schedule, mut v: [__m128i; N]) -> [__m128i; N] {
        rounds!(v, keys.dec, keys.rounds, _mm_aesdec_si128, _mm_aesdeclast_si128);
        v
    }

    #[inline(always)]
    fn first_tweaks(self, tweak: [u8; 16]) -> __m128i {
        self.splat_block(tweak)
    }

    #[inline(always)]
    fn next_tweaks(self, v: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe {
            // The sign of each 32-bit word, moved to where the bit goes: word 3 to the feedback in word 0,
            // word 1 to the lowest bit of word 2.
            let signs = _mm_srai_epi32::<31>(_mm_shuffle_epi32::<0b00_01_00_11>(v));
            let carries = _mm_and_si128(signs, _mm_set_epi32(0, 1, 0, 0x87));
            _mm_xor_si128(_mm_add_epi64(v, v), carries)
        }
    }
}

impl KeyExpansion for AesNi {
    #[inline(always)]
    fn sub_word(self, word: u32) -> u32 {
        // SAFETY: an `AesNi` exists only on a CPU with AES-NI.
        unsafe {
            // With four equal columns ShiftRows changes nothing.
            let columns = _mm_set1_epi32(word as i32);
            _mm_cvtsi128_si32(_mm_aesenclast_si128(columns, _mm_setzero_si128())) as u32
        }
    }

    #[inline(always)]
    fn inv_mix_columns(self, key: [u8; 16]) -> [u8; 16] {
        // SAFETY: an `AesNi` exists only on a CPU with AES-NI; both arrays have 16 bytes.
        unsafe {
            let mut out = [0; 16];
            _mm_storeu_si128(out.as_mut_ptr().cast(), _mm_aesimc_si128(_mm_loadu_si128(key.as_ptr().cast())));
            out
        }
    }
}
