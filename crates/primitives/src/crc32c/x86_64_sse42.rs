//! CRC-32C by the `crc32` instruction alone: x86 since Nehalem.
//!
//! The instruction takes 8 bytes with a latency of 3 cycles, so long data goes through several registers at
//! once, one for each equal part, which are then joined by algebra.

use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u64};

use super::portable::shift;

/// How many parts of the data advance together; 6 keep the unit busy even where it starts two a cycle.
pub(super) const STREAMS: usize = 6;

/// Below this, joining the parts (about 100 ns without carry-less products) costs more than it saves.
const STREAMS_FROM: usize = 4096;

/// The register after `data`.
#[target_feature(enable = "sse4.2")]
pub(super) fn update(crc: u32, data: &[u8]) -> u32 {
    if data.len() < STREAMS_FROM {
        return chain(crc, data);
    }
    let (crcs, each) = streams(crc, data);
    let joined = crcs[1..].iter().fold(crcs[0], |all, next| shift(all, each as u64) ^ next);
    chain(joined, &data[STREAMS * each..])
}

/// The registers after equal parts of `data`, the first started at `crc` and the others at 0, and the length of
/// a part. Fewer than 192 bytes behind the last part are left.
#[inline]
#[target_feature(enable = "sse4.2")]
pub(super) fn streams(crc: u32, data: &[u8]) -> ([u32; STREAMS], usize) {
    /// Bytes that one step takes from each stream; by steps of one word it would take 1.6 times as long.
    type Step = [u8; 32];
    let (steps, _) = data.as_chunks::<{ size_of::<Step>() }>();
    let each = steps.len() / STREAMS;
    let parts: [&[Step]; STREAMS] = std::array::from_fn(|i| &steps[i * each..][..each]);
    let mut crcs = [u64::from(crc), 0, 0, 0, 0, 0];
    for i in 0..each {
        for word in 0..4 {
            for (crc, part) in crcs.iter_mut().zip(&parts) {
                let (words, _) = part[i].as_chunks::<8>();
                *crc = _mm_crc32_u64(*crc, u64::from_le_bytes(words[word]));
            }
        }
    }
    (crcs.map(|crc| crc as u32), each * size_of::<Step>())
}

/// The checksum's change by replacing `old` by `new`, of equal length and `after` bytes before the end.
#[target_feature(enable = "sse4.2")]
pub(super) fn splice(old: &[u8], new: &[u8], after: u64) -> u32 {
    shift(chain(0, old) ^ chain(0, new), after)
}

/// The register after `data`, one instruction after the other.
#[inline]
#[target_feature(enable = "sse4.2")]
pub(super) fn chain(crc: u32, data: &[u8]) -> u32 {
    // Up to a word, a table's entry for each byte would be as fast as all the tests below: on Zen 3, one byte takes 3.7 ns
    // so and took 6.7 here. For 3 to 5 bytes the table still is, by 1 to 2 ns where calls overlap.
    if data.len() <= 8 {
        return match *data {
            [] => crc,
            [byte] => _mm_crc32_u8(crc, byte),
            [first, last] => _mm_crc32_u16(crc, u16::from_le_bytes([first, last])),
            _ => match data.first_chunk() {
                Some(word) => _mm_crc32_u64(crc.into(), u64::from_le_bytes(*word)) as u32,
                None => chain_bytes(crc, short_word(data), data.len()),
            },
        };
    }
    // Four words a turn: the end of a loop of eight turns and more is often not foreseen, which costs as much as four
    // words.
    let (blocks, rest) = data.as_chunks::<32>();
    let mut crc = u64::from(crc);
    for block in blocks {
        for word in block.as_chunks::<8>().0 {
            crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
        }
    }
    let (words, tail) = rest.as_chunks::<8>();
    for word in words {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    }
    if tail.is_empty() {
        return crc as u32;
    }
    // The last bytes as the low end of a word.
    // OK to unwrap: shorter data was dealt with above.
    let last = u64::from_le_bytes(*data.last_chunk().unwrap());
    chain_bytes(crc as u32, last >> (64 - 8 * tail.len()), tail.len())
}

/// The register after the lowest 1 to 7 bytes of `word`; what lies above them does not matter.
///
/// The bytes meet as much of the register as they reach; the rest of it moves down. One instruction instead
/// of one each for 4, 2 and 1 bytes.
#[inline]
#[target_feature(enable = "sse4.2")]
pub(super) fn chain_bytes(crc: u32, word: u64, bytes: usize) -> u32 {
    let (crc, bits) = (u64::from(crc), 8 * bytes as u32);
    (_mm_crc32_u64(0, (crc ^ word) << (64 - bits)) ^ crc >> bits) as u32
}

/// Up to 7 bytes as the low end of a word.
#[inline]
pub(super) fn short_word(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u64::from(first) | u64::from(last) << (8 * (bytes.len() - 4));
    }
    match bytes {
        [] => 0,
        // The middle byte is the first or the last one when there are fewer than three.
        _ => {
            let (middle, last) = (bytes.len() / 2, bytes.len() - 1);
            u64::from(bytes[0])
                | u64::from(bytes[middle]) << (8 * middle)
                | u64::from(bytes[last]) << (8 * last)
        }
    }
}
