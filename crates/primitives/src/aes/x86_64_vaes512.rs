//! VAES on 512-bit registers: four blocks in a register. For Intel from Ice Lake on and AMD from Zen 4 on.
//!
//! XTS of common unit sizes has its own file, `x86_64_vaes512_xts.rs`.

use core::arch::x86_64::*;

use super::engine::{Engine, WIDE};
use super::functions::engine_functions;
use super::schedule::Schedule;

engine_functions!(Vaes512::new(), "aes,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,vaes,vpclmulqdq");

/// Proof that the CPU has VAES, VPCLMULQDQ and AVX-512 with VBMI2.
#[derive(Clone, Copy)]
pub(super) struct Vaes512(());

impl Vaes512 {
    #[target_feature(enable = "aes,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,vaes,vpclmulqdq")]
    pub fn new() -> Vaes512 {
        Vaes512(())
    }

    /// Each block times x^(8 BYTES), for BYTES below 8 and REST = 16 - BYTES.
    #[inline(always)]
    fn times_bytes<const BYTES: i32, const REST: i32>(self, z: __m512i) -> __m512i {
        // SAFETY: a `Vaes512` exists only on a CPU with these instructions.
        unsafe {
            let out =
                _mm512_clmulepi64_epi128::<0x00>(_mm512_bsrli_epi128::<REST>(z), _mm512_set1_epi64(0x87));
            _mm512_xor_si512(_mm512_bslli_epi128::<BYTES>(z), out)
        }
    }
}

/// A round key in each lane. No closure in the macro: those that are not inlined lack the CPU's features.
///
/// # Safety
/// The CPU has AVX-512.
#[inline(always)]
unsafe fn load_key(key: &[u8; 16]) -> __m512i {
    // SAFETY: 16 readable bytes, and the caller vouches for the instructions.
    unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(key.as_ptr().cast())) }
}

/// Applies one AES round function with each key in turn.
macro_rules! rounds {
    ($v:ident, $keys:expr, $count:expr, $round:ident, $last:ident) => {{
        // SAFETY: a round key is 16 readable bytes, and a `Vaes512` exists only on a CPU with these instructions.
        unsafe {
            let first = load_key(&$keys[0]);
            for v in &mut $v {
                *v = _mm512_xor_si512(*v, first);
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

impl Engine for Vaes512 {
    type V = __m512i;

    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn load(self, src: *const u8) -> __m512i {
        // SAFETY: the caller vouches for 64 bytes, and a `Vaes512` exists only on a CPU with AVX-512.
        unsafe { _mm512_loadu_si512(src.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8, v: __m512i) {
        // SAFETY: the caller vouches for 64 bytes, and a `Vaes512` exists only on a CPU with AVX-512.
        unsafe { _mm512_storeu_si512(dst.cast(), v) }
    }

    #[inline(always)]
    unsafe fn load_part(self, src: *const u8, len: usize) -> __m512i {
        // SAFETY: the caller vouches for `len` bytes; a byte whose mask bit is 0 is not touched.
        unsafe { _mm512_maskz_loadu_epi8((1 << len) - 1, src.cast()) }
    }

    #[inline(always)]
    unsafe fn store_part(self, dst: *mut u8, v: __m512i, len: usize) {
        // SAFETY: the caller vouches for `len` bytes; a byte whose mask bit is 0 is not touched.
        unsafe { _mm512_mask_storeu_epi8(dst.cast(), (1 << len) - 1, v) }
    }

    #[inline(always)]
    fn splat_block(self, block: [u8; 16]) -> __m512i {
        // SAFETY: a `Vaes512` exists only on a CPU with AVX-512; the block is 16 readable bytes.
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(block.as_ptr().cast())) }
    }

    #[inline(always)]
    fn first_block(self, v: __m512i) -> [u8; 16] {
        let mut block = [0; 16];
        // SAFETY: a `Vaes512` exists only on a CPU with AVX-512; the block is 16 writable bytes.
        unsafe { _mm_storeu_si128(block.as_mut_ptr().cast(), _mm512_castsi512_si128(v)) };
        block
    }

    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: a `Vaes512` exists only on a CPU with AVX-512.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    fn encrypt<const N: usize>(self, keys: &Schedule, mut v: [__m512i; N]) -> [__m512i; N] {
        rounds!(v, keys.enc, keys.rounds, _mm512_aesenc_epi128, _mm512_aesenclast_epi128);
        v
    }

    #[inline(always)]
    fn decrypt<const N: usize>(self, keys: &Schedule, mut v: [__m512i; N]) -> [__m512i; N] {
        rounds!(v, keys.dec, keys.rounds, _mm512_aesdec_epi128, _mm512_aesdeclast_epi128);
        v
    }

    #[inline(always)]
    fn first_tweaks(self, tweak: [u8; 16]) -> __m512i {
        // SAFETY: a `Vaes512` exists only on a CPU with these instructions; the tweak is 16 readable bytes.
        unsafe {
            // Each lane is shifted left by its number; what leaves a qword at the top goes into the next one,
            // or from the last one through the feedback. A shift by 64 gives 0.
            let all = _mm512_broadcast_i32x4(_mm_loadu_si128(tweak.as_ptr().cast()));
            let left = _mm512_sllv_epi64(all, _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0));
            let carry = _mm512_srlv_epi64(all, _mm512_set_epi64(61, 61, 62, 62, 63, 63, 64, 64));
            let feedback = _mm512_clmulepi64_epi128::<0x01>(carry, _mm512_set1_epi64(0x87));
            _mm512_ternarylogic_epi64::<0x96>(left, _mm512_bslli_epi128::<8>(carry), feedback)
        }
    }

    #[inline(always)]
    fn next_tweaks(self, v: __m512i) -> __m512i {
        // SAFETY: a `Vaes512` exists only on a CPU with these instructions.
        unsafe {
            let left = _mm512_shldi_epi64::<4>(v, _mm512_bslli_epi128::<8>(v));
            let feedback =
                _mm512_clmulepi64_epi128::<0x01>(_mm512_srli_epi64::<60>(v), _mm512_set1_epi64(0x87));
            _mm512_xor_si512(left, feedback)
        }
    }

    #[inline(always)]
    fn tweaks(self, first: __m512i) -> [__m512i; WIDE] {
        // Three multiplications deep instead of seven: what waits for a short unit's last tweaks is its data.
        let mut z = [first; WIDE];
        z[1] = self.next_tweaks(first);
        for i in 2..4 {
            z[i] = self.times_bytes::<1, 15>(z[i - 2]);
        }
        for i in 4..8 {
            z[i] = self.times_bytes::<2, 14>(z[i - 4]);
        }
        z
    }
}
