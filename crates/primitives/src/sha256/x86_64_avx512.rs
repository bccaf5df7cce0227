//! SHA-256 with AVX-512: sixteen messages to a set, one in each 32-bit lane, and two sets at a time.
//!
//! Every vector instruction has a latency of two or more cycles, so not their number alone decides but the chain
//! from one round to the next. Two things shorten it. The sums are taken in an order in which the value that
//! arrives last is added last; compilers reassociate integer sums, so [`pin`] holds the order. And two
//! independent sets are interleaved, round by round, so that one fills the gaps of the other.
//!
//! The instructions of 16 blocks (64 rounds of 17, 48 schedule steps of 11, the transposition) are 1696, which
//! four vector pipes could issue in 424 cycles.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{BLOCK_LEN, DIGEST_LEN, K, Layout, x86_64_sha_ni};
use crate::Messages;

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

/// Digests of all messages, with no other instructions than AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn hash_many_alone(
    midstate: &[u32; 8],
    layout: &Layout<'_>,
    messages: Messages<'_>,
    out: &mut [u8],
) {
    hash_sets(midstate, layout, messages, out, LANES + 1, 1);
}

/// Digests of as many messages as there are while at least `one_set` are left. Returns the others.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn hash_sets<'a>(
    midstate: &[u32; 8],
    layout: &Layout<'_>,
    mut messages: Messages<'a>,
    mut out: &mut [u8],
    two_sets: usize,
    one_set: usize,
) -> Messages<'a> {
    while messages.count() >= one_set {
        let two = messages.count() >= two_sets;
        let (group, rest) = messages.split_at(messages.count().min(if two { 2 * LANES } else { LANES }));
        let (group_out, rest_out) = out.split_at_mut(group.count() * DIGEST_LEN);
        if two {
            hash_two_sets(midstate, layout, group, rest, group_out);
        } else {
            hash_one_set(midstate, layout, group, group_out);
        }
        (messages, out) = (rest, rest_out);
    }
    messages
}

/// Digests of up to 32 messages; lanes without one repeat the last. `next` are the messages after them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn hash_two_sets(
    midstate: &[u32; 8],
    layout: &Layout<'_>,
    messages: Messages<'_>,
    next: Messages<'_>,
    out: &mut [u8],
) {
    let last = messages.count() - 1;
    let low: [&[u8]; LANES] = std::array::from_fn(|k| messages.get(k.min(last)));
    let high: [&[u8]; LANES] = std::array::from_fn(|k| messages.get((LANES + k).min(last)));
    let mut states = [broadcast(midstate); 2];
    let mut w = [[_mm512_setzero_si512(); 16]; 2];
    for block in 0..layout.blocks() {
        w[0] = load(layout, block, &low);
        w[1] = load(layout, block, &high);
        prefetch(next.data(), block);
        compress_two(&mut states, &mut w);
    }
    let (out_low, out_high) = out.split_at_mut(out.len().min(LANES * DIGEST_LEN));
    store(&states[0], out_low);
    store(&states[1], out_high);
}

/// Digests of up to 16 messages; lanes without one repeat the last.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn hash_one_set(midstate: &[u32; 8], layout: &Layout<'_>, messages: Messages<'_>, out: &mut [u8]) {
    let last = messages.count() - 1;
    let lanes: [&[u8]; LANES] = std::array::from_fn(|k| messages.get(k.min(last)));
    let mut state = broadcast(midstate);
    for block in 0..layout.blocks() {
        compress_one(&mut state, load(layout, block, &lanes));
    }
    store(&state, out);
}

/// Eight words of each lane's chaining value, word by word.
type State = [__m512i; 8];

/// Expands the body sixteen times, with the number of the expansion as a constant.
macro_rules! sixteen {
    ($i:ident $body:block) => { sixteen!($i $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
    ($i:ident $body:block $($n:literal)+) => { $({ const $i: usize = $n; $body })+ };
}

/// Takes one block of each lane of two sets into their chaining values. The schedules are in memory and are
/// updated one period ahead, so that the way through memory is off the critical path.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn compress_two(states: &mut [State; 2], w: &mut [[__m512i; 16]; 2]) {
    let [mut low, mut high] = *states;
    for k in K[..48].as_chunks::<16>().0 {
        sixteen!(I {
            let k = _mm512_set1_epi32(k[I] as i32);
            round_short(&mut low, I, w[0][I], k);
            round_short(&mut high, I, w[1][I], k);
            w[0][I] = schedule(&w[0], I);
            w[1][I] = schedule(&w[1], I);
        });
    }
    let k = &K[48..];
    sixteen!(I {
        let k = _mm512_set1_epi32(k[I] as i32);
        round_short(&mut low, I, w[0][I], k);
        round_short(&mut high, I, w[1][I], k);
    });
    for i in 0..8 {
        states[0][i] = _mm512_add_epi32(states[0][i], low[i]);
        states[1][i] = _mm512_add_epi32(states[1][i], high[i]);
    }
}

/// Takes one block of each lane into the chaining values. The schedule stays in registers.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn compress_one(state: &mut State, mut w: [__m512i; 16]) {
    let mut s = *state;
    sixteen!(I { round_fast(&mut s, I, w[I], _mm512_set1_epi32(K[I] as i32)); });
    for k in K[16..].as_chunks::<16>().0 {
        sixteen!(I {
            w[I] = schedule(&w, I);
            round_fast(&mut s, I, w[I], _mm512_set1_epi32(k[I] as i32));
        });
    }
    for (state, s) in state.iter_mut().zip(s) {
        *state = _mm512_add_epi32(*state, s);
    }
}

/// Round `i` of a set that has a companion: the fewest instructions, 9 cycles from `e` to the next `e`.
///
/// Instead of moving the eight words by one place each round, the places move: word a is at `-i`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn round_short(s: &mut State, i: usize, w: __m512i, k: __m512i) {
    let at = |word: usize| (word + 16 - i) % 8;
    let [a, b, c, e, f, g] = [s[at(0)], s[at(1)], s[at(2)], s[at(4)], s[at(5)], s[at(6)]];
    let t = pin(_mm512_add_epi32(pin(_mm512_add_epi32(s[at(7)], w)), k));
    let t = pin(_mm512_add_epi32(t, choice(e, f, g)));
    let t = pin(_mm512_add_epi32(t, sigma1(e)));
    s[at(3)] = _mm512_add_epi32(s[at(3)], t);
    s[at(7)] = _mm512_add_epi32(t, pin(_mm512_add_epi32(sigma0(a), majority(a, b, c))));
}

/// Round `i` of a set on its own: one addition more, but 7 cycles from `e` to the next `e`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn round_fast(s: &mut State, i: usize, w: __m512i, k: __m512i) {
    let at = |word: usize| (word + 16 - i) % 8;
    let [a, b, c, d, e, f, g] = [s[at(0)], s[at(1)], s[at(2)], s[at(3)], s[at(4)], s[at(5)], s[at(6)]];
    let t = pin(_mm512_add_epi32(pin(_mm512_add_epi32(s[at(7)], w)), k));
    let t = pin(_mm512_add_epi32(t, d));
    let t = pin(_mm512_add_epi32(t, choice(e, f, g)));
    let next = pin(_mm512_add_epi32(t, sigma1(e)));
    s[at(3)] = next;
    let u = pin(_mm512_sub_epi32(next, d));
    let u = pin(_mm512_add_epi32(u, majority(a, b, c)));
    s[at(7)] = _mm512_add_epi32(u, sigma0(a));
}

/// The word that takes the place of `w[i]`, sixteen rounds later.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn schedule(w: &[__m512i; 16], i: usize) -> __m512i {
    let (w1, w14) = (w[(i + 1) % 16], w[(i + 14) % 16]);
    let t = pin(_mm512_add_epi32(w[i], w[(i + 9) % 16]));
    let s0 = xor3(_mm512_ror_epi32::<7>(w1), _mm512_ror_epi32::<18>(w1), _mm512_srli_epi32::<3>(w1));
    let t = pin(_mm512_add_epi32(t, s0));
    let s1 = xor3(_mm512_ror_epi32::<17>(w14), _mm512_ror_epi32::<19>(w14), _mm512_srli_epi32::<10>(w14));
    _mm512_add_epi32(t, s1)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn sigma0(a: __m512i) -> __m512i {
    xor3(_mm512_ror_epi32::<2>(a), _mm512_ror_epi32::<13>(a), _mm512_ror_epi32::<22>(a))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn sigma1(e: __m512i) -> __m512i {
    xor3(_mm512_ror_epi32::<6>(e), _mm512_ror_epi32::<11>(e), _mm512_ror_epi32::<25>(e))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn xor3(x: __m512i, y: __m512i, z: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0x96>(x, y, z)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn choice(e: __m512i, f: __m512i, g: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0xca>(e, f, g)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn majority(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0xe8>(a, b, c)
}

/// Brings as many bytes of the next messages near as one block of all lanes has.
///
/// Messages a page apart defeat the prefetcher of the hardware, so these lines are asked for in the order of
/// their addresses. From memory, this takes 4096-byte messages from 5.6 to 6.5 GB/s on Zen 5; when they are in
/// the L2 cache already it costs nothing that can be measured.
#[target_feature(enable = "avx512f")]
#[inline]
fn prefetch(next: &[u8], block: usize) {
    const STEP: usize = 2 * LANES * BLOCK_LEN;
    let lines = next.get(block * STEP..).unwrap_or_default();
    for line in lines[..lines.len().min(STEP)].as_chunks::<64>().0 {
        _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
    }
}

/// The same value, but the compiler can't see that: it will not reorder the sum that `x` is part of.
#[target_feature(enable = "avx512f")]
#[inline]
fn pin(mut x: __m512i) -> __m512i {
    // SAFETY: the template is a comment; it changes no register, memory or flag.
    unsafe { asm!("/* {0} */", inout(zmm_reg) x, options(pure, nomem, nostack, preserves_flags)) }
    x
}

#[target_feature(enable = "avx512f")]
#[inline]
fn broadcast(midstate: &[u32; 8]) -> State {
    let mut state = [_mm512_setzero_si512(); 8];
    for (state, word) in state.iter_mut().zip(midstate) {
        *state = _mm512_set1_epi32(*word as i32);
    }
    state
}

/// Word `i` of each lane's block in element `i`.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load(layout: &Layout<'_>, block: usize, messages: &[&[u8]; LANES]) -> [__m512i; 16] {
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
fn swap_bytes(words: __m512i) -> __m512i {
    let order = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(order))
}

/// Word `i` of row `k` becomes word `k` of row `i`.
#[target_feature(enable = "avx512f")]
#[inline]
fn transpose(rows: [__m512i; 16]) -> [__m512i; 16] {
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
