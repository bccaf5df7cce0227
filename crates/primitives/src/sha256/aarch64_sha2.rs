//! SHA-256 with the AArch64 SHA-2 instructions, two messages at a time.
//!
//! `sha256h` and `sha256h2` do four rounds on one half of the chaining value each and depend on the four rounds
//! before them; a second message fills the time that they wait.

use std::arch::aarch64::*;

use super::{BLOCK_LEN, DIGEST_LEN, K, Layout, digest};
use crate::Messages;

/// Messages in flight at a time. Linux gained 25 to 70 % by two on the larger Cortex cores (patch series "SHA-256,
/// two messages at a time"); not measured by us.
const STREAMS: usize = 2;

/// Takes whole blocks into a chaining value.
#[target_feature(enable = "neon,sha2")]
pub(super) fn compress(state: &mut [u32; 8], blocks: &[u8]) {
    let mut packed = [pack(state)];
    compress_streams(&mut packed, [blocks]);
    *state = unpack(packed[0]);
}

/// Digests of all messages.
#[target_feature(enable = "neon,sha2")]
pub(super) fn hash_many(midstate: &[u32; 8], layout: &Layout<'_>, messages: Messages<'_>, out: &mut [u8]) {
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
#[target_feature(enable = "neon,sha2")]
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

/// The chaining value: words a to d, and words e to h.
type Packed = [uint32x4_t; 2];

#[target_feature(enable = "neon,sha2")]
#[inline]
fn pack(state: &[u32; 8]) -> Packed {
    let (abcd, efgh) = state.split_at(4);
    // SAFETY: both halves are 16 readable bytes.
    unsafe { [vld1q_u32(abcd.as_ptr()), vld1q_u32(efgh.as_ptr())] }
}

#[target_feature(enable = "neon,sha2")]
#[inline]
fn unpack(packed: Packed) -> [u32; 8] {
    let mut state = [0; 8];
    let (abcd, efgh) = state.split_at_mut(4);
    // SAFETY: both halves are 16 writable bytes.
    unsafe {
        vst1q_u32(abcd.as_mut_ptr(), packed[0]);
        vst1q_u32(efgh.as_mut_ptr(), packed[1]);
    }
    state
}

/// Takes equally many blocks of each stream into its chaining value.
#[target_feature(enable = "neon,sha2")]
#[inline]
fn compress_streams<const N: usize>(states: &mut [Packed; N], streams: [&[u8]; N]) {
    let streams = streams.map(|stream| stream.as_chunks::<BLOCK_LEN>().0);
    for i in 0..streams[0].len() {
        let before = *states;
        let blocks = streams.map(|blocks| &blocks[i]);
        // Sixteen words of each stream's message schedule, four to a register.
        let mut w = [[vdupq_n_u32(0); N]; 4];
        for n in 0..N {
            for (q, quarter) in blocks[n].as_chunks::<16>().0.iter().enumerate() {
                // SAFETY: `quarter` is 16 readable bytes; a load of bytes needs no alignment.
                let bytes = unsafe { vld1q_u8(quarter.as_ptr()) };
                w[q][n] = vreinterpretq_u32_u8(vrev32q_u8(bytes));
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
            *state = [vaddq_u32(state[0], before[0]), vaddq_u32(state[1], before[1])];
        }
    }
}

/// Rounds `round..round + 4` of every stream, with these four words of its schedule.
#[target_feature(enable = "neon,sha2")]
#[inline]
fn four_rounds<const N: usize>(states: &mut [Packed; N], w: &[uint32x4_t; N], round: usize) {
    // SAFETY: `K[round..][..4]` is 16 readable bytes.
    let k = unsafe { vld1q_u32(K[round..][..4].as_ptr()) };
    for n in 0..N {
        let wk = vaddq_u32(w[n], k);
        let [abcd, efgh] = states[n];
        states[n] = [vsha256hq_u32(abcd, efgh, wk), vsha256h2q_u32(efgh, abcd, wk)];
    }
}

/// Replaces four words of every stream's schedule, `w[q]`, by those sixteen rounds later.
#[target_feature(enable = "neon,sha2")]
#[inline]
fn schedule<const N: usize>(w: &mut [[uint32x4_t; N]; 4], q: usize) {
    let [w4, w8, w12] = [w[(q + 1) % 4], w[(q + 2) % 4], w[(q + 3) % 4]];
    for n in 0..N {
        w[q][n] = vsha256su1q_u32(vsha256su0q_u32(w[q][n], w4[n]), w8[n], w12[n]);
    }
}
