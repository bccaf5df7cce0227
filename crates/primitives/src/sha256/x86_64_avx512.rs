//! SHA-256 with AVX-512: sixteen messages to a set, one in each 32-bit lane, and two sets at a time.
//!
//! The instructions of 16 blocks (64 rounds of 17, 48 schedule steps of 11, the transposition) are 1696, which
//! four vector pipes could issue in 424 cycles.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{BLOCK_LEN, DIGEST_LEN, K, Layout, portable, x86_64_sha_ni};
use crate::Messages;
use crate::sha2::lanes::{one_set, two_sets};

type Word = u32;
type Vector = __m512i;

/// Messages of one set of registers.
const LANES: usize = 16;

/// From this many messages on, two sets with idle lanes beat one set and single messages. Zen 5, ns for all of
/// 22 messages of 4096 bytes: 16 240 against 16 730; for 21 messages both 16 090.
const TWO_SETS: usize = 22;

/// From this many messages on, one set with idle lanes beats four SHA-NI streams. Zen 5, ns for all of 9
/// messages of 4096 bytes: 9000 against 10 800; for 8 messages 8920 against 8790.
const ONE_SET: usize = 9;

/// Digests of all messages; the last few by SHA-NI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,sha,sse4.1,ssse3")]
pub(super) fn hash_many(midstate: &[u32; 8], layout: &Layout<'_>, messages: Messages<'_>, out: &mut [u8]) {
    let rest = hash_sets(midstate, layout, messages, out, TWO_SETS, ONE_SET);
    let done = out.len() - rest.count() * DIGEST_LEN;
    x86_64_sha_ni::hash_many(midstate, layout, rest, &mut out[done..]);
}

/// Digests of all messages, for CPUs without SHA-NI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn hash_many_alone(
    midstate: &[u32; 8],
    layout: &Layout<'_>,
    messages: Messages<'_>,
    out: &mut [u8],
) {
    // One message takes 8900 ns in a set and 8300 by itself; two take 8900 and 16 600.
    let rest = hash_sets(midstate, layout, messages, out, LANES + 1, 2);
    let done = out.len() - rest.count() * DIGEST_LEN;
    portable::hash_many(midstate, layout, rest, &mut out[done..]);
}

one_set!("avx512f,avx512bw,avx512dq,avx512vl");
two_sets!("avx512f,avx512bw,avx512dq,avx512vl");

#[target_feature(enable = "avx512f")]
#[inline]
fn splat(word: u32) -> Vector {
    _mm512_set1_epi32(word as i32)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn add(x: Vector, y: Vector) -> Vector {
    _mm512_add_epi32(x, y)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn sub(x: Vector, y: Vector) -> Vector {
    _mm512_sub_epi32(x, y)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn big_sigma0(a: Vector) -> Vector {
    xor3(_mm512_ror_epi32::<2>(a), _mm512_ror_epi32::<13>(a), _mm512_ror_epi32::<22>(a))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn big_sigma1(e: Vector) -> Vector {
    xor3(_mm512_ror_epi32::<6>(e), _mm512_ror_epi32::<11>(e), _mm512_ror_epi32::<25>(e))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn small_sigma0(w: Vector) -> Vector {
    xor3(_mm512_ror_epi32::<7>(w), _mm512_ror_epi32::<18>(w), _mm512_srli_epi32::<3>(w))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn small_sigma1(w: Vector) -> Vector {
    xor3(_mm512_ror_epi32::<17>(w), _mm512_ror_epi32::<19>(w), _mm512_srli_epi32::<10>(w))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn xor3(x: Vector, y: Vector, z: Vector) -> Vector {
    _mm512_ternarylogic_epi32::<0x96>(x, y, z)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn choice(e: Vector, f: Vector, g: Vector) -> Vector {
    _mm512_ternarylogic_epi32::<0xca>(e, f, g)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn majority(a: Vector, b: Vector, c: Vector) -> Vector {
    _mm512_ternarylogic_epi32::<0xe8>(a, b, c)
}

/// Returns the same value in a way that the compiler cannot see through: it will not reorder the sum that `x` is part
/// of.
#[target_feature(enable = "avx512f")]
#[inline]
fn pin(mut x: Vector) -> Vector {
    // SAFETY: the template is a comment; it changes no register, memory or flag.
    unsafe { asm!("/* {0} */", inout(zmm_reg) x, options(pure, nomem, nostack, preserves_flags)) }
    x
}

/// Word `i` of each lane's block in element `i`.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load(layout: &Layout<'_>, block: usize, messages: &[&[u8]; LANES]) -> [Vector; 16] {
    let mut rows = [_mm512_setzero_si512(); LANES];
    if layout.direct().contains(&block) {
        let offset = layout.offset(block);
        for (row, message) in rows.iter_mut().zip(messages) {
            let bytes = &message[offset..][..BLOCK_LEN];
            // SAFETY: `bytes` is 64 readable bytes; the load needs no alignment.
            *row = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
        }
    } else {
        let template = layout.template(block);
        // SAFETY: `template.bytes` is 64 readable bytes; the load needs no alignment.
        let common = unsafe { _mm512_loadu_si512(template.bytes.as_ptr().cast()) };
        let hole = &template.hole;
        // The shifts are below 64: an empty hole makes an empty mask, a full block is direct.
        let mask = if hole.is_empty() { 0 } else { (u64::MAX >> (64 - hole.len())) << hole.start };
        for (row, message) in rows.iter_mut().zip(messages) {
            let bytes = &message[template.from..][..hole.len()];
            let start = bytes.as_ptr().wrapping_sub(hole.start);
            // SAFETY: the mask selects the bytes from `hole.start` on, as many as `bytes` has; these are
            // readable, and bytes that are not selected are not accessed.
            *row = unsafe { _mm512_mask_loadu_epi8(common, mask, start.cast()) };
        }
    }
    for row in &mut rows {
        *row = swap_bytes(*row);
    }
    transpose(rows)
}

/// Each 32-bit word's bytes from the last to the first.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn swap_bytes(words: Vector) -> Vector {
    let order = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(order))
}

/// Word `i` of row `k` becomes word `k` of row `i`.
#[target_feature(enable = "avx512f")]
#[inline]
fn transpose(rows: [Vector; 16]) -> [Vector; 16] {
    // First within the 128-bit quarters: after this, quarter q of `fours[4 * g + c]` is column 4 * q + c of
    // rows 4 * g .. 4 * g + 4.
    let mut fours = [_mm512_setzero_si512(); 16];
    for g in [0, 4, 8, 12] {
        let low01 = _mm512_unpacklo_epi32(rows[g], rows[g + 1]);
        let high01 = _mm512_unpackhi_epi32(rows[g], rows[g + 1]);
        let low23 = _mm512_unpacklo_epi32(rows[g + 2], rows[g + 3]);
        let high23 = _mm512_unpackhi_epi32(rows[g + 2], rows[g + 3]);
        fours[g] = _mm512_unpacklo_epi64(low01, low23);
        fours[g + 1] = _mm512_unpackhi_epi64(low01, low23);
        fours[g + 2] = _mm512_unpacklo_epi64(high01, high23);
        fours[g + 3] = _mm512_unpackhi_epi64(high01, high23);
    }
    // Then the quarters themselves.
    let mut columns = [_mm512_setzero_si512(); 16];
    for c in 0..4 {
        let even01 = _mm512_shuffle_i32x4::<0x88>(fours[c], fours[4 + c]);
        let odd01 = _mm512_shuffle_i32x4::<0xdd>(fours[c], fours[4 + c]);
        let even23 = _mm512_shuffle_i32x4::<0x88>(fours[8 + c], fours[12 + c]);
        let odd23 = _mm512_shuffle_i32x4::<0xdd>(fours[8 + c], fours[12 + c]);
        columns[c] = _mm512_shuffle_i32x4::<0x88>(even01, even23);
        columns[4 + c] = _mm512_shuffle_i32x4::<0x88>(odd01, odd23);
        columns[8 + c] = _mm512_shuffle_i32x4::<0xdd>(even01, even23);
        columns[12 + c] = _mm512_shuffle_i32x4::<0xdd>(odd01, odd23);
    }
    columns
}

/// Writes the digests of the first lanes, as many as `out` has room for.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn store(state: &State, out: &mut [u8]) {
    let mut rows = [_mm512_setzero_si512(); 16];
    rows[..8].copy_from_slice(state);
    for (out, lane) in out.as_chunks_mut::<DIGEST_LEN>().0.iter_mut().zip(transpose(rows)) {
        let digest = _mm512_castsi512_si256(swap_bytes(lane));
        // SAFETY: `out` is 32 writable bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), digest) }
    }
}
