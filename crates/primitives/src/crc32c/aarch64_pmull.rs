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
    let parity = moved.iter().fold(0, |sum, crc| sum ^ crc).count_ones() & 1;
    chain(reduce_lane(lane) ^ parity_repair(parity) ^ last, &data[STREAMS * each..])
}

/// What inverting the bits changes in the checksum, from the number of bits after the run's first bit
/// (inclusive) and after its last.
#[target_feature(enable = "crc,neon,aes")]
pub(super) fn flip(from_first: u64, after_last: u64) -> u32 {
    let words = if from_first <= SHORT_BITS {
        short(from_first) ^ short(after_last)
    } else {
        long(from_first) ^ long(after_last)
    };
    reduce(words) ^ parity_repair((from_first ^ after_last) as u32 & 1)
}

/// What inverting scattered bits of a buffer of `total_bits` changes in the checksum.
#[target_feature(enable = "crc,neon,aes")]
pub(super) fn toggle(total_bits: u64, positions: &[u64]) -> u32 {
    let last = total_bits.wrapping_sub(1);
    let mut words = 0;
    for position in positions {
        let exponent = last.wrapping_sub(*position);
        words ^= if total_bits <= SHORT_BITS { short(exponent) } else { long(exponent) };
    }
    // Times x+1, against the factor 1/(x+1) of the tables. Bit 0 of the words is 0.
    reduce(words ^ words >> 1) ^ parity_repair(positions.len() as u32 & 1)
}

/// The register `crc` after so many zero bytes: `crc` * x^(8 `bytes`).
#[target_feature(enable = "crc,neon,aes")]
pub(super) fn shift(crc: u32, bytes: u64) -> u32 {
    if bytes == 0 {
        return crc;
    }
    reduce_lane(product(crc, bytes)) ^ parity_repair(crc.count_ones() & 1)
}

/// What replacing `old` by `new`, of equal length and `after` bytes before the end, changes in the checksum.
#[target_feature(enable = "crc,neon,aes")]
pub(super) fn splice(old: &[u8], new: &[u8], after: u64) -> u32 {
    shift(update(0, old) ^ update(0, new), after)
}

/// The lane whose register, started at 0, is `crc` * x^(8 `bytes`) up to a wrong parity; at least 1 byte.
#[inline]
#[target_feature(enable = "crc,neon,aes")]
fn product(crc: u32, bytes: u64) -> u128 {
    let (factor, exponent) = if bytes <= SHORT_BITS / 8 {
        // Two products add 2 to the exponent, of which the table takes 33; the lane's reduction adds 32.
        let exponent = 8 * bytes - 1;
        let (low, high) = WINDOWS.short(exponent);
        (clmul32(low, high), exponent)
    } else {
        // The factor is reduced to the upper half of a word: 32 more, and one product less than 34.
        let exponent = fold_bytes(bytes, 33);
        (u64::from(reduce_lane(long_product(exponent))) << 32, exponent)
    };
    // Times x+1, against the factor 1/(x+1) of the tables; no bit is lost for shifts up to 31.
    let word = u64::from(crc) << 32;
    vmull_p64((word ^ word >> 1) >> (exponent & 31), factor)
}

/// I * x^`exponent` as a word, for exponents up to [`SHORT_BITS`]. Its bit 0 is 0.
#[inline]
#[target_feature(enable = "crc,neon,aes")]
fn short(exponent: u64) -> u64 {
    let (low, high) = WINDOWS.short(exponent);
    position(reduce(clmul32(low, high)), exponent)
}

/// I * x^`exponent` as a word, for any exponent. Its bit 0 is 0.
#[inline]
#[target_feature(enable = "crc,neon,aes")]
fn long(exponent: u64) -> u64 {
    let exponent = fold(exponent);
    position(reduce_lane(long_product(exponent)), exponent)
}

/// I * x^(`exponent` - 32) as a lane, without the exponent's lowest five bits.
#[inline]
#[target_feature(enable = "crc,neon,aes")]
fn long_product(exponent: u64) -> u128 {
    let [a, b, c, d] = WINDOWS.long(exponent);
    vmull_p64(clmul32(a, b), clmul32(c, d))
}

/// `value` times x to the lowest five bits of `exponent`, as a word whose bit 0 is 0.
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
