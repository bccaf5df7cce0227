//! CRC-32C and the algebra of changes by the AArch64 `crc32c` instructions and PMULL.
//!
//! As on x86 (`x86_64_clmul.rs` explains it), `crc32c` of a 64-bit word from 0 is the reduction of a product.

use core::arch::aarch64::{__crc32cd, vmull_p64};

use super::aarch64_crc::{STREAMS, chain, streams};
use super::portable::parity_repair;
use super::windows::{SHORT_BITS, WINDOWS, fold, fold_bytes};

/// From here on the parts of the data are taken to be worth joining; not measured on such a core.
const STREAMS_FROM: usize = 512;

/// The register after `data`, by `crc32c` on parts that products join.
#[target_feature(enable = "crc,neon,aes")]
pub(super) fn update(crc: u32, data: &[u8]) -> u32 {
    if data.len() < STREAMS_FROM {
        return chain(crc, data);
    }
    let (crcs, each) = streams(crc, data);
    let [moved @ .., last] = crcs;
    let mut lane = 0;
    for (i, crc) in moved.iter().enumerate() {
        lane ^= product(*crc, ((STREAMS - 1 - i) * each) as u64);
    }
    chain(reduce_lane(lane) ^ last, &data[STREAMS * each..])
}

/// The checksum's change by inverting a run of bits, from the number of bits after the run's first bit
/// (inclusive) and after its last.
#[target_feature(enable = "crc,neon,aes")]
pub(super) fn flip(from_first: u64, after_last: u64) -> u32 {
    let words = if from_first <= SHORT_BITS {
        short::<true>(from_first) ^ short::<true>(after_last)
    } else {
        long::<true>(from_first) ^ long::<true>(after_last)
    };
    reduce(words) ^ parity_repair((from_first ^ after_last) as u32 & 1)
}

/// The checksum's change by inverting scattered bits of a buffer of `total_bits`.
#[target_feature(enable = "crc,neon,aes")]
pub(super) fn toggle(total_bits: u64, positions: &[u64]) -> u32 {
    let last = total_bits.wrapping_sub(1);
    let mut words = 0;
    for position in positions {
        let exponent = last.wrapping_sub(*position);
        words ^= if total_bits <= SHORT_BITS { short::<false>(exponent) } else { long::<false>(exponent) };
    }
    reduce(words)
}

/// The register `crc` after so many zero bytes: `crc` * x^(8 `bytes`).
#[target_feature(enable = "crc,neon,aes")]
pub(super) fn shift(crc: u32, bytes: u64) -> u32 {
    if bytes == 0 {
        return crc;
    }
    reduce_lane(product(crc, bytes))
}

/// The checksum's change by replacing `old` by `new`, of equal length and `after` bytes before the end.
#[target_feature(enable = "crc,neon,aes")]
pub(super) fn splice(old: &[u8], new: &[u8], after: u64) -> u32 {
    shift(update(0, old) ^ update(0, new), after)
}

/// The lane whose register, started at 0, is `crc` * x^(8 `bytes`); at least 1 byte.
#[inline]
#[target_feature(enable = "crc,neon,aes")]
fn product(crc: u32, bytes: u64) -> u128 {
    let (factor, exponent) = if bytes <= SHORT_BITS / 8 {
        // Two products add 2 to the exponent, of which the table takes 33; the lane's reduction adds 32.
        let exponent = 8 * bytes - 1;
        let (low, high) = WINDOWS.short::<false>(exponent);
        (clmul32(low, high), exponent)
    } else {
        // The factor is reduced to the upper half of a word: 32 more, and one product less than 34.
        let exponent = fold_bytes(bytes, 33);
        (u64::from(reduce_lane(long_product::<false>(exponent))) << 32, exponent)
    };
    vmull_p64(u64::from(crc) << 32 >> (exponent & 31), factor)
}

/// x^`exponent`, and with `RUN` I times that, as a word, for exponents up to [`SHORT_BITS`].
#[inline]
#[target_feature(enable = "crc,neon,aes")]
fn short<const RUN: bool>(exponent: u64) -> u64 {
    let (low, high) = WINDOWS.short::<RUN>(exponent);
    position(reduce(clmul32(low, high)), exponent)
}

/// x^`exponent`, and with `RUN` I times that, as a word, for any exponent.
#[inline]
#[target_feature(enable = "crc,neon,aes")]
fn long<const RUN: bool>(exponent: u64) -> u64 {
    let exponent = fold(exponent);
    position(reduce_lane(long_product::<RUN>(exponent)), exponent)
}

/// x^(`exponent` - 32), and with `RUN` I times that, as a lane, without the exponent's lowest five bits.
#[inline]
#[target_feature(enable = "crc,neon,aes")]
fn long_product<const RUN: bool>(exponent: u64) -> u128 {
    let [a, b, c, d] = WINDOWS.long::<RUN>(exponent);
    vmull_p64(clmul32(a, b), clmul32(c, d))
}

/// `value` times x to the lowest five bits of `exponent`, as a word.
#[inline(always)]
fn position(value: u32, exponent: u64) -> u64 {
    (u64::from(value) << 32) >> (exponent & 31)
}

/// The carry-less product, which has 63 bits.
#[inline]
#[target_feature(enable = "neon,aes")]
fn clmul32(a: u32, b: u32) -> u64 {
    vmull_p64(a.into(), b.into()) as u64
}

/// The word times x^32 modulo P: the register after these eight bytes, started at 0.
#[inline]
#[target_feature(enable = "crc")]
fn reduce(word: u64) -> u32 {
    __crc32cd(0, word)
}

/// The register after the 16 bytes of a lane, started at 0.
#[inline]
#[target_feature(enable = "crc")]
fn reduce_lane(lane: u128) -> u32 {
    __crc32cd(__crc32cd(0, lane as u64), (lane >> 64) as u64)
}
