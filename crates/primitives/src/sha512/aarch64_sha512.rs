//! SHA-512 with the AArch64 SHA-512 instructions, two messages at a time.
//!
//! `sha512h` and `sha512h2` do two rounds together and depend on the two rounds before them; a second message
//! fills the time that they wait.

use std::arch::aarch64::*;

use super::{BLOCK_LEN, DIGEST_LEN, K, Layout, digest};
use crate::Messages;

/// Messages in flight at a time, as in SHA-256; not measured.
const STREAMS: usize = 2;

/// Takes whole blocks into a chaining value.
#[target_feature(enable = "neon,sha3")]
pub(super) fn compress(state: &mut [u64; 8], blocks: &[u8]) {
    let mut packed = [pack(state)];
    compress_streams(&mut packed, [blocks]);
    *state = unpack(packed[0]);
}

/// Digests of all messages.
#[target_feature(enable = "neon,sha3")]
pub(super) fn hash_many(midstate: &[u64; 8], layout: &Layout<'_>, messages: Messages<'_>, out: &mut [u8]) {
    let mut k = 0;
    while messages.count() - k >= STREAMS {
        hash_streams::<STREAMS>(midstate, layout, messages, k, out);
        k += STREAMS;
    }
    if k < messages.count() {
        hash_streams::<1>(midstate, layout, messages, k, out);
    }
}

/// Digests of messages `first..first + N`.
#[target_feature(enable = "neon,sha3")]
#[inline]
fn hash_streams<const N: usize>(
    midstate: &[u64; 8],
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

/// The chaining value, two words to a register: a and b, c and d, e and f, g and h.
type Packed = [uint64x2_t; 4];

#[target_feature(enable = "neon,sha3")]
#[inline]
fn pack(state: &[u64; 8]) -> Packed {
    let mut packed = [vdupq_n_u64(0); 4];
    for (packed, words) in packed.iter_mut().zip(state.as_chunks::<2>().0) {
        // SAFETY: `words` is 16 readable bytes.
        *packed = unsafe { vld1q_u64(words.as_ptr()) };
    }
    packed
}

#[target_feature(enable = "neon,sha3")]
#[inline]
fn unpack(packed: Packed) -> [u64; 8] {
    let mut state = [0; 8];
    for (words, packed) in state.as_chunks_mut::<2>().0.iter_mut().zip(packed) {
        // SAFETY: `words` is 16 writable bytes.
        unsafe { vst1q_u64(words.as_mut_ptr(), packed) }
    }
    state
}

/// Takes equally many blocks of each stream into its chaining value.
#[target_feature(enable = "neon,sha3")]
#[inline]
fn compress_streams<const N: usize>(states: &mut [Packed; N], streams: [&[u8]; N]) {
    let streams = streams.map(|stream| stream.as_chunks::<BLOCK_LEN>().0);
    for i in 0..streams[0].len() {
        let before = *states;
        let blocks = streams.map(|blocks| &blocks[i]);
        // Sixteen words of each stream's message schedule, two to a register.
        let mut w = [[vdupq_n_u64(0); N]; 8];
        for n in 0..N {
            for (q, bytes) in blocks[n].as_chunks::<16>().0.iter().enumerate() {
                // SAFETY: `bytes` is 16 readable bytes; a load of bytes needs no alignment.
                let bytes = unsafe { vld1q_u8(bytes.as_ptr()) };
                w[q][n] = vreinterpretq_u64_u8(vrev64q_u8(bytes));
            }
        }
        for (q, w) in w.iter().enumerate() {
            two_rounds(states, w, 2 * q);
        }
        for round in [16, 32, 48, 64] {
            for q in 0..8 {
                schedule(&mut w, q);
                two_rounds(states, &w[q], round + 2 * q);
            }
        }
        for (state, before) in states.iter_mut().zip(before) {
            for (state, before) in state.iter_mut().zip(before) {
                *state = vaddq_u64(*state, before);
            }
        }
    }
}

/// Rounds `round` and `round + 1` of every stream, with these two words of its schedule.
#[target_feature(enable = "neon,sha3")]
#[inline]
fn two_rounds<const N: usize>(states: &mut [Packed; N], w: &[uint64x2_t; N], round: usize) {
    // SAFETY: `K[round..][..2]` is 16 readable bytes.
    let k = unsafe { vld1q_u64(K[round..][..2].as_ptr()) };
    for n in 0..N {
        let [ab, cd, ef, gh] = states[n];
        let wk = vaddq_u64(w[n], k);
        // The first of the two rounds takes the upper half.
        let sum = vaddq_u64(vextq_u64::<1>(wk, wk), gh);
        let t = vsha512hq_u64(sum, vextq_u64::<1>(ef, gh), vextq_u64::<1>(cd, ef));
        states[n] = [vsha512h2q_u64(t, cd, ab), ab, vaddq_u64(cd, t), ef];
    }
}

/// Replaces two words of every stream's schedule, `w[q]`, by those sixteen rounds later.
#[target_feature(enable = "neon,sha3")]
#[inline]
fn schedule<const N: usize>(w: &mut [[uint64x2_t; N]; 8], q: usize) {
    let [w2, w8, w10, w14] = [w[(q + 1) % 8], w[(q + 4) % 8], w[(q + 5) % 8], w[(q + 7) % 8]];
    for n in 0..N {
        let w9 = vextq_u64::<1>(w8[n], w10[n]);
        w[q][n] = vsha512su1q_u64(vsha512su0q_u64(w[q][n], w2[n]), w14[n], w9);
    }
}
