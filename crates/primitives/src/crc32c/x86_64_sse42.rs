//! CRC-32C by the `crc32` instruction alone: x86 since Nehalem.
//!
//! The instruction takes 8 bytes with a latency of 3 cycles, so long data goes through several registers at
//! once, one for each equal part, which are then joined by algebra.

use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};

use super::portable::shift;

/// How many parts of the data advance together; 6 keep the unit busy even where it starts two a cycle.
const STREAMS: usize = 6;

/// Below this, joining the parts (about 100 ns without carry-less products) costs more than it saves.
const STREAMS_FROM: usize = 4096;

/// What one step takes from each stream.
type Step = [u8; 32];

/// The register after `data`.
#[target_feature(enable = "sse4.2")]
pub(super) fn update(crc: u32, data: &[u8]) -> u32 {
    if data.len() < STREAMS_FROM {
        return chain(crc, data);
    }
    let (steps, _) = data.as_chunks::<{ size_of::<Step>() }>();
    let each = steps.len() / STREAMS;
    let mut streams = steps.chunks_exact(each);
    let parts: [&[Step]; STREAMS] = std::array::from_fn(|_| streams.next().unwrap_or_default());
    let mut crcs = [u64::from(crc), 0, 0, 0, 0, 0];
    for i in 0..each {
        for word in 0..4 {
            for (crc, part) in crcs.iter_mut().zip(&parts) {
                *crc = _mm_crc32_u64(*crc, words(&part[i])[word]);
            }
        }
    }
    let bytes = each * size_of::<Step>();
    let joined = crcs[1..].iter().fold(crcs[0] as u32, |all, next| shift(all, bytes as u64) ^ *next as u32);
    chain(joined, &data[STREAMS * bytes..])
}

/// What replacing `old` by `new`, of equal length and `after` bytes before the end, changes in the checksum.
#[target_feature(enable = "sse4.2")]
pub(super) fn splice(old: &[u8], new: &[u8], after: u64) -> u32 {
    shift(chain_of_difference(old, new), after)
}

/// The register after `data`, one instruction after the other.
#[inline]
#[target_feature(enable = "sse4.2")]
pub(super) fn chain(crc: u32, data: &[u8]) -> u32 {
    let (words, tail) = data.as_chunks::<8>();
    let mut crc = u64::from(crc);
    for word in words {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    }
    chain_tail(crc as u32, tail)
}

/// The register after the XOR of two slices of equal length, started at 0.
#[inline]
#[target_feature(enable = "sse4.2")]
pub(super) fn chain_of_difference(old: &[u8], new: &[u8]) -> u32 {
    let (old_words, old_tail) = old.as_chunks::<8>();
    let (new_words, new_tail) = new.as_chunks::<8>();
    let mut crc = 0;
    for (old, new) in old_words.iter().zip(new_words) {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new));
    }
    let mut tail = [0; 8];
    for (byte, (old, new)) in tail.iter_mut().zip(old_tail.iter().zip(new_tail)) {
        *byte = old ^ new;
    }
    chain_tail(crc as u32, &tail[..old_tail.len()])
}

/// Up to 7 bytes.
#[inline]
#[target_feature(enable = "sse4.2")]
fn chain_tail(mut crc: u32, mut tail: &[u8]) -> u32 {
    if let Some((bytes, rest)) = tail.split_first_chunk() {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*bytes));
        tail = rest;
    }
    if let Some((bytes, rest)) = tail.split_first_chunk() {
        crc = _mm_crc32_u16(crc, u16::from_le_bytes(*bytes));
        tail = rest;
    }
    if let [byte, ..] = tail {
        crc = _mm_crc32_u8(crc, *byte);
    }
    crc
}

#[inline(always)]
fn words(step: &Step) -> [u64; 4] {
    let (words, _) = step.as_chunks::<8>();
    std::array::from_fn(|i| u64::from_le_bytes(words[i]))
}
