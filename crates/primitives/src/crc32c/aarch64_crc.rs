//! CRC-32C by the AArch64 `crc32c` instructions alone.
//!
//! They take 8 bytes with a latency of 2 or 3 cycles, one a cycle on most cores, so long data goes through
//! three registers at once, one for each equal part, which are then joined by algebra.

use core::arch::aarch64::{__crc32cb, __crc32cd, __crc32ch, __crc32cw};

use super::portable::shift;

/// How many parts of the data advance together.
pub(super) const STREAMS: usize = 3;

/// Below this, joining the parts without carry-less products would cost more than it saves; not measured on
/// such a core.
const STREAMS_FROM: usize = 2048;

/// The register after `data`.
#[target_feature(enable = "crc")]
pub(super) fn update(crc: u32, data: &[u8]) -> u32 {
    if data.len() < STREAMS_FROM {
        return chain(crc, data);
    }
    let (crcs, each) = streams(crc, data);
    let joined = crcs[1..].iter().fold(crcs[0], |all, next| shift(all, each as u64) ^ next);
    chain(joined, &data[STREAMS * each..])
}

/// The checksum's change by replacing `old` by `new`, of equal length and `after` bytes before the end.
#[target_feature(enable = "crc")]
pub(super) fn splice(old: &[u8], new: &[u8], after: u64) -> u32 {
    shift(update(0, old) ^ update(0, new), after)
}

/// The registers after equal parts of `data`, the first started at `crc` and the others at 0, and the length of
/// a part. Fewer than 24 bytes behind the last part are left.
#[inline]
#[target_feature(enable = "crc")]
pub(super) fn streams(crc: u32, data: &[u8]) -> ([u32; STREAMS], usize) {
    let (words, _) = data.as_chunks::<8>();
    let each = words.len() / STREAMS;
    let parts: [&[[u8; 8]]; STREAMS] = std::array::from_fn(|i| &words[i * each..][..each]);
    let mut crcs = [crc, 0, 0];
    for i in 0..each {
        for (crc, part) in crcs.iter_mut().zip(&parts) {
            *crc = __crc32cd(*crc, u64::from_le_bytes(part[i]));
        }
    }
    (crcs, 8 * each)
}

/// The register after `data`, one instruction after the other.
#[inline]
#[target_feature(enable = "crc")]
pub(super) fn chain(mut crc: u32, data: &[u8]) -> u32 {
    let (words, mut tail) = data.as_chunks::<8>();
    for word in words {
        crc = __crc32cd(crc, u64::from_le_bytes(*word));
    }
    if let Some((bytes, rest)) = tail.split_first_chunk() {
        crc = __crc32cw(crc, u32::from_le_bytes(*bytes));
        tail = rest;
    }
    if let Some((bytes, rest)) = tail.split_first_chunk() {
        crc = __crc32ch(crc, u16::from_le_bytes(*bytes));
        tail = rest;
    }
    if let [byte, ..] = tail {
        crc = __crc32cb(crc, *byte);
    }
    crc
}
