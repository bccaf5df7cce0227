//! SHA-256 with the SHA-NI instructions, several messages at a time.
//!
//! `sha256rnds2` does two rounds with a latency of four cycles and depends on the one before it, so one message
//! leaves half of the unit idle. Interleaving independent messages fills it.

use std::arch::x86_64::*;

use super::{BLOCK_LEN, DIGEST_LEN, K, Layout, digest};
use crate::Messages;

/// Messages in flight at a time. Four need more registers than there are. Zen 4 at 3.69 GHz, 4096 bytes each: one 1.85
/// GB/s, two 3.29, three 3.68, four 3.35, where `sha256rnds2` once in two cycles allows 3.69.
const STREAMS: usize = 3;

/// Takes whole blocks into a chaining value.
#[target_feature(enable = "sha,sse4.1,ssse3")]
pub(super) fn compress(state: &mut [u32; 8], blocks: &[u8]) {
    let mut packed = [pack(state)];
    compress_streams(&mut packed, [blocks]);
    *state = unpack(packed[0]);
}

/// Digests of all messages.
///
/// Not inlined: `sha256rnds2` has no VEX form, and between AVX instructions it would depend on registers' upper
/// halves on some CPUs.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline(never)]
pub(super) fn hash_many(midstate: &[u32; 8], layout: &Layout<'_>, messages: Messages<'_>, out: &mut [u8]) {
    let mut k = 0;
    while k < messages.count() {
        // Four are done sooner as two and two than as three and one.
        let streams = match messages.count() - k {
            4 => 2,
            left => left.min(STREAMS),
        };
        match streams {
            1 => hash_streams::<1>(midstate, layout, messages, k, out),
            2 => hash_streams::<2>(midstate, layout, messages, k, out),
            _ => hash_streams::<STREAMS>(midstate, layout, messages, k, out),
        }
        k += streams;
    }
}

/// Digests of messages `first..first + N`.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn hash_streams<const N: usize>(
    midstate: &[u32; 8],
    layout: &Layout<'_>,
    messages: Messages<'_>,
    first: usize,
    out: &mut [u8],
) {
    let mut states = [pack(midstate); N];
    let group: [&[u8]; N] = std::array::from_fn(|k| messages.get(first + k));
    let mut block = 0;
    while block < layout.blocks() {
        let mut stage = [[0; BLOCK_LEN]; N];
        let run = layout.run(block, group, &mut stage);
        compress_streams(&mut states, run);
        block += run[0].len() / BLOCK_LEN;
    }
    let out = out[first * DIGEST_LEN..].chunks_exact_mut(DIGEST_LEN);
    for (out, state) in out.zip(states) {
        out.copy_from_slice(&digest(&unpack(state)));
    }
}

/// The chaining value in the order of `sha256rnds2`: words a, b, e, f and c, d, g, h, each from the top down.
type Packed = [__m128i; 2];

#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn pack(state: &[u32; 8]) -> Packed {
    let [a, b, c, d, e, f, g, h] = state.map(|word| word as i32);
    [_mm_set_epi32(a, b, e, f), _mm_set_epi32(c, d, g, h)]
}

#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn unpack([abef, cdgh]: Packed) -> [u32; 8] {
    let words = |x| {
        let words: [i32; 4] = [
            _mm_extract_epi32::<3>(x),
            _mm_extract_epi32::<2>(x),
            _mm_extract_epi32::<1>(x),
            _mm_extract_epi32::<0>(x),
        ];
        words.map(|word| word as u32)
    };
    let ([a, b, e, f], [c, d, g, h]) = (words(abef), words(cdgh));
    [a, b, c, d, e, f, g, h]
}

/// Takes equally many blocks of each stream into its chaining value.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn compress_streams<const N: usize>(states: &mut [Packed; N], streams: [&[u8]; N]) {
    let swap = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    let streams = streams.map(|stream| stream.as_chunks::<BLOCK_LEN>().0);
    for i in 0..streams[0].len() {
        let before = *states;
        // Sixteen words of each stream's message schedule, four to a register.
        let mut w = [[_mm_setzero_si128(); N]; 4];
        let blocks = streams.map(|blocks| &blocks[i]);
        for n in 0..N {
            for (q, quarter) in blocks[n].as_chunks::<16>().0.iter().enumerate() {
                // SAFETY: `quarter` is 16 readable bytes; the load needs no alignment.
                let words = unsafe { _mm_loadu_si128(quarter.as_ptr().cast()) };
                w[q][n] = _mm_shuffle_epi8(words, swap);
            }
        }
        four_rounds(states, &w[0], 0);
        four_rounds(states, &w[1], 4);
        four_rounds(states, &w[2], 8);
        four_rounds(states, &w[3], 12);
        for round in [16, 32, 48] {
            schedule(&mut w, 0);
            four_rounds(states, &w[0], round);
            schedule(&mut w, 1);
            four_rounds(states, &w[1], round + 4);
            schedule(&mut w, 2);
            four_rounds(states, &w[2], round + 8);
            schedule(&mut w, 3);
            four_rounds(states, &w[3], round + 12);
        }
        for (state, before) in states.iter_mut().zip(before) {
            *state = [_mm_add_epi32(state[0], before[0]), _mm_add_epi32(state[1], before[1])];
        }
    }
}

/// Rounds `round..round + 4` of every stream, with these four words of its schedule.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn four_rounds<const N: usize>(states: &mut [Packed; N], w: &[__m128i; N], round: usize) {
    // SAFETY: `K[round..][..4]` is 16 readable bytes; the load needs no alignment.
    let k = unsafe { _mm_loadu_si128(K[round..][..4].as_ptr().cast()) };
    for n in 0..N {
        let wk = _mm_add_epi32(w[n], k);
        let [abef, cdgh] = states[n];
        // Two rounds turn c, d, g, h into the new a, b, e, f; the old a, b, e, f are the new c, d, g, h.
        let new = _mm_sha256rnds2_epu32(cdgh, abef, wk);
        let next = _mm_sha256rnds2_epu32(abef, new, _mm_shuffle_epi32::<0x0e>(wk));
        states[n] = [next, new];
    }
}

/// Replaces four words of every stream's schedule, `w[q]`, by those sixteen rounds later.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn schedule<const N: usize>(w: &mut [[__m128i; N]; 4], q: usize) {
    let [w4, w8, w12] = [w[(q + 1) % 4], w[(q + 2) % 4], w[(q + 3) % 4]];
    for n in 0..N {
        let w9 = _mm_alignr_epi8::<4>(w12[n], w8[n]);
        let sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[q][n], w4[n]), w9);
        w[q][n] = _mm_sha256msg2_epu32(sum, w12[n]);
    }
}
