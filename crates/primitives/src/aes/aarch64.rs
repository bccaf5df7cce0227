//! The AArch64 AES instructions: one block in a register.

#![allow(
    inline_always_mismatching_target_features,
    reason = "an engine's functions end up in those that have the features, and the instructions with them"
)]

use core::arch::aarch64::*;

use super::engine::Engine;
use super::functions::{engine_functions, expand_function};
use super::schedule::KeyExpansion;
use super::schedule::Schedule;

expand_function!(ArmAes::new(), "neon,aes");
engine_functions!(ArmAes::new(), "neon,aes");

/// Proof that the CPU has the AES instructions.
#[derive(Clone, Copy)]
struct ArmAes(());

impl ArmAes {
    #[target_feature(enable = "neon,aes")]
    fn new() -> ArmAes {
        ArmAes(())
    }
}

/// Applies one AES round function with each key in turn. An instruction adds the key before the round and not after it
/// as on x86, so the last two keys belong to the last round.
macro_rules! rounds {
    ($v:ident, $keys:expr, $count:expr, $round:ident, $mix:ident) => {{
        // SAFETY: a round key is 16 readable bytes, and an `ArmAes` exists only on a CPU with these instructions.
        unsafe {
            // No closure reads the keys: it would stay a function that is called for each.
            for i in 0..$count - 1 {
                let key = vld1q_u8($keys[i].as_ptr());
                for v in &mut $v {
                    *v = $mix($round(*v, key));
                }
            }
            let (before, after) = (vld1q_u8($keys[$count - 1].as_ptr()), vld1q_u8($keys[$count].as_ptr()));
            for v in &mut $v {
                *v = veorq_u8($round(*v, before), after);
            }
        }
    }};
}

impl Engine for ArmAes {
    type V = uint8x16_t;

    const LANES: usize = 1;

    #[inline(always)]
    unsafe fn load(self, src: *const u8) -> uint8x16_t {
        // SAFETY: the caller vouches for 16 bytes; the load needs no alignment.
        unsafe { vld1q_u8(src) }
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8, v: uint8x16_t) {
        // SAFETY: the caller vouches for 16 bytes; the store needs no alignment.
        unsafe { vst1q_u8(dst, v) }
    }

    #[inline(always)]
    fn splat_block(self, block: [u8; 16]) -> uint8x16_t {
        // SAFETY: an `ArmAes` exists only on a CPU with NEON; the block is 16 readable bytes.
        unsafe { vld1q_u8(block.as_ptr()) }
    }

    #[inline(always)]
    fn first_block(self, v: uint8x16_t) -> [u8; 16] {
        let mut block = [0; 16];
        // SAFETY: an `ArmAes` exists only on a CPU with NEON; the block is 16 writable bytes.
        unsafe { vst1q_u8(block.as_mut_ptr(), v) };
        block
    }

    #[inline(always)]
    fn xor(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        // SAFETY: an `ArmAes` exists only on a CPU with NEON.
        unsafe { veorq_u8(a, b) }
    }

    #[inline(always)]
    fn encrypt<const N: usize>(self, keys: &Schedule, mut v: [uint8x16_t; N]) -> [uint8x16_t; N] {
        rounds!(v, keys.enc, keys.rounds, vaeseq_u8, vaesmcq_u8);
        v
    }

    #[inline(always)]
    fn decrypt<const N: usize>(self, keys: &Schedule, mut v: [uint8x16_t; N]) -> [uint8x16_t; N] {
        rounds!(v, keys.dec, keys.rounds, vaesdq_u8, vaesimcq_u8);
        v
    }

    #[inline(always)]
    fn first_tweaks(self, tweak: [u8; 16]) -> uint8x16_t {
        self.splat_block(tweak)
    }

    #[inline(always)]
    fn next_tweaks(self, v: uint8x16_t) -> uint8x16_t {
        // SAFETY: an `ArmAes` exists only on a CPU with NEON.
        unsafe {
            let v = vreinterpretq_u64_u8(v);
            // The sign of each half, moved to where the bit goes: the high one's to the feedback, the low one's to
            // the lowest bit of the high half.
            let signs = vreinterpretq_u64_s64(vshrq_n_s64::<63>(vreinterpretq_s64_u64(v)));
            let carries =
                vandq_u64(vextq_u64::<1>(signs, signs), vcombine_u64(vdup_n_u64(0x87), vdup_n_u64(1)));
            vreinterpretq_u8_u64(veorq_u64(vshlq_n_u64::<1>(v), carries))
        }
    }
}

impl KeyExpansion for ArmAes {
    #[inline(always)]
    fn sub_word(self, word: u32) -> u32 {
        // SAFETY: an `ArmAes` exists only on a CPU with these instructions.
        unsafe {
            // With four equal columns ShiftRows changes nothing.
            let columns = vreinterpretq_u8_u32(vdupq_n_u32(word));
            vgetq_lane_u32::<0>(vreinterpretq_u32_u8(vaeseq_u8(columns, vdupq_n_u8(0))))
        }
    }

    #[inline(always)]
    fn inv_mix_columns(self, key: [u8; 16]) -> [u8; 16] {
        let key = self.splat_block(key);
        // SAFETY: an `ArmAes` exists only on a CPU with these instructions.
        self.first_block(unsafe { vaesimcq_u8(key) })
    }
}
