//! SHA-512 with AVX-512: eight messages to a set, one in each 64-bit lane, and two sets at a time.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{BLOCK_LEN, DIGEST_LEN, K, Layout, portable};
use crate::Messages;
use crate::sha2::lanes::{one_set, two_sets};

type Word = u64;
type Vector = __m512i;

/// Messages of one set of registers.
const LANES: usize = 8;

/// From this many messages on, two sets with idle lanes beat one set and what is left. Zen 5, ns for all of 9
/// messages of 4096 bytes: 9770 against 10 630.
const TWO_SETS: usize = LANES + 1;

/// From this many messages on, one set with idle lanes beats single messages. Zen 5, ns for all of 2 messages of
/// 4096 bytes: 5510 against 10 170; for 1 message 5490 against 5090.
const ONE_SET: usize = 2;

/// Digests of all messages.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn hash_many(midstate: &[u64; 8], layout: &Layout<'_>, messages: Messages<'_>, out: &mut [u8]) {
    let rest = hash_sets(midstate, layout, messages, out, TWO_SETS, ONE_SET);
    let done = out.len() - rest.count() * DIGEST_LEN;
    portable::hash_many(midstate, layout, rest, &mut out[done..]);
}

one_set!("avx512f,avx512bw,avx512dq,avx512vl");
two_sets!("avx512f,avx512bw,avx512dq,avx512vl");

#[target_feature(enable = "avx512f")]
#[inline]
fn splat(word: u64) -> Vector {
    _mm512_set1_epi64(word as i64)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn add(x: Vector, y: Vector) -> Vector {
    _mm512_add_epi64(x, y)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn sub(x: Vector, y: Vector) -> Vector {
    _mm512_sub_epi64(x, y)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn big_sigma0(a: Vector) -> Vector {
    xor3(_mm512_ror_epi64::<28>(a), _mm512_ror_epi64::<34>(a), _mm512_ror_epi64::<39>(a))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn big_sigma1(e: Vector) -> Vector {
    xor3(_mm512_ror_epi64::<14>(e), _mm512_ror_epi64::<18>(e), _mm512_ror_epi64::<41>(e))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn small_sigma0(w: Vector) -> Vector {
    xor3(_mm512_ror_epi64::<1>(w), _mm512_ror_epi64::<8>(w), _mm512_srli_epi64::<7>(w))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn small_sigma1(w: Vector) -> Vector {
    xor3(_mm512_ror_epi64::<19>(w), _mm512_ror_epi64::<61>(w), _mm512_srli_epi64::<6>(w))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn xor3(x: Vector, y: Vector, z: Vector) -> Vector {
    _mm512_ternarylogic_epi64::<0x96>(x, y, z)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn choice(e: Vector, f: Vector, g: Vector) -> Vector {
    _mm512_ternarylogic_epi64::<0xca>(e, f, g)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn majority(a: Vector, b: Vector, c: Vector) -> Vector {
    _mm512_ternarylogic_epi64::<0xe8>(a, b, c)
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
    // The first and the second 64 bytes of each lane's block.
    let mut rows = [[_mm512_setzero_si512(); LANES]; 2];
    if layout.direct().contains(&block) {
        let offset = layout.offset(block);
        for (k, message) in messages.iter().enumerate() {
            let bytes = &message[offset..][..BLOCK_LEN];
            for (half, bytes) in bytes.as_chunks::<64>().0.iter().enumerate() {
                // SAFETY: `bytes` is 64 readable bytes; the load needs no alignment.
                rows[half][k] = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
            }
        }
    } else {
        let template = layout.template(block);
        let hole = &template.hole;
        // The shift is below 128: a full block is direct.
        let mask = ((1 << hole.len()) - 1u128) << hole.start;
        for (half, common) in template.bytes.as_chunks::<64>().0.iter().enumerate() {
            // SAFETY: `common` is 64 readable bytes; the load needs no alignment.
            let common = unsafe { _mm512_loadu_si512(common.as_ptr().cast()) };
            let mask = (mask >> (64 * half)) as u64;
            for (k, message) in messages.iter().enumerate() {
                let bytes = &message[template.from..][..hole.len()];
                let start = bytes.as_ptr().wrapping_sub(hole.start).wrapping_add(64 * half);
                // SAFETY: the masks of both halves together select the bytes from `hole.start` on, as many as
                // `bytes` has; these are readable, and bytes that are not selected are not accessed.
                rows[half][k] = unsafe { _mm512_mask_loadu_epi8(common, mask, start.cast()) };
            }
        }
    }
    let mut words = [_mm512_setzero_si512(); 16];
    for (words, rows) in words.as_chunks_mut::<8>().0.iter_mut().zip(rows) {
        *words = transpose(rows);
        for word in words {
            *word = swap_bytes(*word);
        }
    }
    words
}

/// Each 64-bit word's bytes from the last to the first.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn swap_bytes(words: Vector) -> Vector {
    let order = _mm_set_epi64x(0x0809_0a0b_0c0d_0e0f, 0x0001_0203_0405_0607);
    _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(order))
}

/// Word `i` of row `k` becomes word `k` of row `i`.
#[target_feature(enable = "avx512f")]
#[inline]
fn transpose(rows: [Vector; 8]) -> [Vector; 8] {
    // First within the 128-bit quarters: after this, quarter q of `twos[2 * g + c]` is column 2 * q + c of
    // rows 2 * g and 2 * g + 1.
    let mut twos = [_mm512_setzero_si512(); 8];
    for g in [0, 2, 4, 6] {
        twos[g] = _mm512_unpacklo_epi64(rows[g], rows[g + 1]);
        twos[g + 1] = _mm512_unpackhi_epi64(rows[g], rows[g + 1]);
    }
    // Then the quarters themselves.
    let mut columns = [_mm512_setzero_si512(); 8];
    for c in 0..2 {
        let even01 = _mm512_shuffle_i64x2::<0x88>(twos[c], twos[2 + c]);
        let odd01 = _mm512_shuffle_i64x2::<0xdd>(twos[c], twos[2 + c]);
        let even23 = _mm512_shuffle_i64x2::<0x88>(twos[4 + c], twos[6 + c]);
        let odd23 = _mm512_shuffle_i64x2::<0xdd>(twos[4 + c], twos[6 + c]);
        columns[c] = _mm512_shuffle_i64x2::<0x88>(even01, even23);
        columns[2 + c] = _mm512_shuffle_i64x2::<0x88>(odd01, odd23);
        columns[4 + c] = _mm512_shuffle_i64x2::<0xdd>(even01, even23);
        columns[6 + c] = _mm512_shuffle_i64x2::<0xdd>(odd01, odd23);
    }
    columns
}

/// Writes the digests of the first lanes, as many as `out` has room for.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn store(state: &State, out: &mut [u8]) {
    for (out, lane) in out.as_chunks_mut::<DIGEST_LEN>().0.iter_mut().zip(transpose(*state)) {
        // SAFETY: `out` is 64 writable bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), swap_bytes(lane)) }
    }
}
