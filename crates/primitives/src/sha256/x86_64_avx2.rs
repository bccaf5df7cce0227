//! SHA-256 with AVX2: eight messages at a time, one in each 32-bit lane.
//!
//! For CPUs without SHA-NI; with it, single messages are faster. There are no rotations and too few registers:
//! a rotation is two shifts and an OR, and part of the schedule lives in memory.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{BLOCK_LEN, DIGEST_LEN, K, Layout, portable};
use crate::Messages;
use crate::sha2::lanes::one_set;

type Word = u32;
type Vector = __m256i;

/// Messages of one set of registers.
const LANES: usize = 8;

/// From this many messages on, lanes with idle ones among them beat single messages. Zen 5, ns for all of
/// 2 messages of 4096 bytes: 15 700 against 15 900.
const ONE_SET: usize = 2;

/// Digests of all messages.
#[target_feature(enable = "avx2")]
pub(super) fn hash_many(midstate: &[Word; 8], layout: &Layout<'_>, messages: Messages<'_>, out: &mut [u8]) {
    let (mut messages, mut out) = (messages, out);
    while messages.count() >= ONE_SET {
        let (group, rest) = messages.split_at(messages.count().min(LANES));
        let (group_out, rest_out) = out.split_at_mut(group.count() * DIGEST_LEN);
        hash_one_set(midstate, layout, group, group_out);
        (messages, out) = (rest, rest_out);
    }
    portable::hash_many(midstate, layout, messages, out);
}

one_set!("avx2");

#[target_feature(enable = "avx2")]
#[inline]
fn splat(word: Word) -> Vector {
    _mm256_set1_epi32(word as i32)
}

#[target_feature(enable = "avx2")]
#[inline]
fn add(x: Vector, y: Vector) -> Vector {
    _mm256_add_epi32(x, y)
}

#[target_feature(enable = "avx2")]
#[inline]
fn sub(x: Vector, y: Vector) -> Vector {
    _mm256_sub_epi32(x, y)
}

#[target_feature(enable = "avx2")]
#[inline]
fn big_sigma0(a: Vector) -> Vector {
    xor3(ror::<2, 30>(a), ror::<13, 19>(a), ror::<22, 10>(a))
}

#[target_feature(enable = "avx2")]
#[inline]
fn big_sigma1(e: Vector) -> Vector {
    xor3(ror::<6, 26>(e), ror::<11, 21>(e), ror::<25, 7>(e))
}

#[target_feature(enable = "avx2")]
#[inline]
fn small_sigma0(w: Vector) -> Vector {
    xor3(ror::<7, 25>(w), ror::<18, 14>(w), _mm256_srli_epi32::<3>(w))
}

#[target_feature(enable = "avx2")]
#[inline]
fn small_sigma1(w: Vector) -> Vector {
    xor3(ror::<17, 15>(w), ror::<19, 13>(w), _mm256_srli_epi32::<10>(w))
}

/// Rotates by `RIGHT` bits to the right; `LEFT` is the rest of the word.
#[target_feature(enable = "avx2")]
#[inline]
fn ror<const RIGHT: i32, const LEFT: i32>(x: Vector) -> Vector {
    const { assert!(RIGHT + LEFT == Word::BITS as i32) };
    _mm256_or_si256(_mm256_srli_epi32::<RIGHT>(x), _mm256_slli_epi32::<LEFT>(x))
}

#[target_feature(enable = "avx2")]
#[inline]
fn xor3(x: Vector, y: Vector, z: Vector) -> Vector {
    _mm256_xor_si256(_mm256_xor_si256(x, y), z)
}

#[target_feature(enable = "avx2")]
#[inline]
fn choice(e: Vector, f: Vector, g: Vector) -> Vector {
    _mm256_xor_si256(g, _mm256_and_si256(e, _mm256_xor_si256(f, g)))
}

/// In this form `b ^ c` is `a ^ b` of the round before.
#[target_feature(enable = "avx2")]
#[inline]
fn majority(a: Vector, b: Vector, c: Vector) -> Vector {
    _mm256_xor_si256(b, _mm256_and_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(b, c)))
}

/// Returns the same value in a way that the compiler cannot see through: it will not reorder the sum that `x` is part
/// of.
#[target_feature(enable = "avx2")]
#[inline]
fn pin(mut x: Vector) -> Vector {
    // SAFETY: the template is a comment; it changes no register, memory or flag.
    unsafe { asm!("/* {0} */", inout(ymm_reg) x, options(pure, nomem, nostack, preserves_flags)) }
    x
}

/// Word `i` of each lane's block in element `i`.
#[target_feature(enable = "avx2")]
#[inline]
fn load(layout: &Layout<'_>, block: usize, messages: &[&[u8]; LANES]) -> [Vector; 16] {
    let mut stage = [[0; BLOCK_LEN]; LANES];
    let blocks = layout.run(block, *messages, &mut stage);
    let mut words = [_mm256_setzero_si256(); 16];
    for (part, words) in words.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let mut rows = [_mm256_setzero_si256(); LANES];
        for (row, block) in rows.iter_mut().zip(blocks) {
            let bytes = &block[32 * part..][..32];
            // SAFETY: `bytes` is 32 readable bytes; the load needs no alignment.
            *row = swap_bytes(unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) });
        }
        *words = transpose(rows);
    }
    words
}

/// Each 32-bit word's bytes from the last to the first.
#[target_feature(enable = "avx2")]
#[inline]
fn swap_bytes(words: Vector) -> Vector {
    let order = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(order))
}

/// Word `i` of row `k` becomes word `k` of row `i`.
#[target_feature(enable = "avx2")]
#[inline]
fn transpose(rows: [Vector; 8]) -> [Vector; 8] {
    // First within the 128-bit halves: after this, half q of `fours[4 * g + c]` is column 4 * q + c of rows
    // 4 * g .. 4 * g + 4.
    let mut fours = [_mm256_setzero_si256(); 8];
    for g in [0, 4] {
        let low01 = _mm256_unpacklo_epi32(rows[g], rows[g + 1]);
        let high01 = _mm256_unpackhi_epi32(rows[g], rows[g + 1]);
        let low23 = _mm256_unpacklo_epi32(rows[g + 2], rows[g + 3]);
        let high23 = _mm256_unpackhi_epi32(rows[g + 2], rows[g + 3]);
        fours[g] = _mm256_unpacklo_epi64(low01, low23);
        fours[g + 1] = _mm256_unpackhi_epi64(low01, low23);
        fours[g + 2] = _mm256_unpacklo_epi64(high01, high23);
        fours[g + 3] = _mm256_unpackhi_epi64(high01, high23);
    }
    // Then the halves themselves.
    let mut columns = [_mm256_setzero_si256(); 8];
    for c in 0..4 {
        columns[c] = _mm256_permute2x128_si256::<0x20>(fours[c], fours[4 + c]);
        columns[4 + c] = _mm256_permute2x128_si256::<0x31>(fours[c], fours[4 + c]);
    }
    columns
}

/// Writes the digests of the first lanes, as many as `out` has room for.
#[target_feature(enable = "avx2")]
#[inline]
fn store(state: &State, out: &mut [u8]) {
    for (out, lane) in out.as_chunks_mut::<DIGEST_LEN>().0.iter_mut().zip(transpose(*state)) {
        // SAFETY: `out` is 32 writable bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), swap_bytes(lane)) }
    }
}
