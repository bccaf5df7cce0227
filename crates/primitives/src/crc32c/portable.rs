//! CRC-32C without special instructions: slicing by 8, carry-less products by integer multiplication.

use super::poly::{ORDER, POLY, Q};
use super::windows::{SHORT_BITS, WINDOWS, fold, fold_bytes};

/// `SLICES[k][b]` is the register after byte b and k zero bytes, started at 0 (8 KiB).
static SLICES: [[u32; 256]; 8] = slices();

/// The register after `data`, eight bytes a step (slicing by 8; Kounavis and Berry, 2005).
pub(super) fn update(mut crc: u32, data: &[u8]) -> u32 {
    let (words, tail) = data.as_chunks::<8>();
    for word in words {
        crc = reduce(u64::from_le_bytes(*word) ^ u64::from(crc));
    }
    for byte in tail {
        crc = (crc >> 8) ^ SLICES[0][usize::from(crc as u8 ^ byte)];
    }
    crc
}

/// The checksum's change by inverting a run of bits, from the number of bits after the run's first bit
/// (inclusive) and after its last.
pub(super) fn flip(from_first: u64, after_last: u64) -> u32 {
    let words = power::<true>(from_first) ^ power::<true>(after_last);
    reduce(words) ^ parity_repair((from_first ^ after_last) as u32 & 1)
}

/// The checksum's change by inverting scattered bits of a buffer of `total_bits`.
pub(super) fn toggle(total_bits: u64, positions: &[u64]) -> u32 {
    reduce(positions.iter().fold(0, |words, position| words ^ power::<false>(total_bits - 1 - position)))
}

/// The register `crc` after so many zero bytes: `crc` * x^(8 `bytes`).
pub(super) fn shift(crc: u32, bytes: u64) -> u32 {
    // The product and two reductions add 1 + 32 + 32 to the exponent.
    let power = reduce(power::<false>(fold_bytes(bytes, 65)));
    reduce(clmul(crc, power))
}

/// The checksum's change by replacing `old` by `new`, of equal length and `after` bytes before the end.
pub(super) fn splice(old: &[u8], new: &[u8], after: u64) -> u32 {
    let (old_words, old_tail) = old.as_chunks::<8>();
    let (new_words, new_tail) = new.as_chunks::<8>();
    let mut crc = 0;
    for (old, new) in old_words.iter().zip(new_words) {
        crc = reduce(u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new) ^ u64::from(crc));
    }
    for (old, new) in old_tail.iter().zip(new_tail) {
        crc = (crc >> 8) ^ SLICES[0][usize::from(crc as u8 ^ old ^ new)];
    }
    shift(crc, after)
}

/// A factor that is right modulo Q and 0 modulo x+1 becomes right modulo P: add Q if the parity is `odd`.
#[inline(always)]
pub(super) fn parity_repair(odd: u32) -> u32 {
    Q & odd.wrapping_neg()
}

/// x^`exponent`, and with `RUN` I times that, as a 64-bit word, not reduced.
#[inline]
fn power<const RUN: bool>(exponent: u64) -> u64 {
    if exponent <= SHORT_BITS {
        let (low, high) = WINDOWS.short::<RUN>(exponent);
        return position(reduce(clmul(low, high)), exponent);
    }
    // Every product is reduced here, which adds 66 more to the exponent than one reduction at the end, less
    // the 2 that the long windows are scaled by.
    let exponent = fold(fold(exponent) + ORDER - 64);
    let [a, b, c, d] = WINDOWS.long::<RUN>(exponent);
    position(reduce(clmul(reduce(clmul(a, b)), reduce(clmul(c, d)))), exponent)
}

/// `value` times x to the lowest five bits of `exponent`, as a 64-bit word.
#[inline(always)]
fn position(value: u32, exponent: u64) -> u64 {
    u64::from(value) << (32 - (exponent & 31))
}

/// The 64-bit word times x^32 modulo P: the register after these eight bytes, started at 0.
#[inline]
fn reduce(word: u64) -> u32 {
    let bytes = word.to_le_bytes();
    let mut crc = 0;
    for (slice, byte) in SLICES.iter().rev().zip(bytes) {
        crc ^= slice[usize::from(byte)];
    }
    crc
}

/// The carry-less product of the two integers; as polynomials it is `a` * `b` * x.
///
/// Each operand is split into four with one bit in four, so that a column of the integer product, at most 8
/// ones, has four bits of room; its lowest bit is the sum without carries.
#[inline]
fn clmul(a: u32, b: u32) -> u64 {
    const MASK: u64 = 0x1111_1111_1111_1111;
    let part = |word: u32, i: u32| u64::from(word) & MASK << i;
    let mut product = 0;
    for i in 0..4 {
        let column = (0..4).fold(0, |sum, j| sum ^ part(a, j).wrapping_mul(part(b, (i + 4 - j) % 4)));
        product ^= column & MASK << i;
    }
    product
}

const fn slices() -> [[u32; 256]; 8] {
    let mut slices = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (POLY & (crc & 1).wrapping_neg());
            bit += 1;
        }
        slices[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = slices[k - 1][byte];
            slices[k][byte] = (before >> 8) ^ slices[0][before as usize & 255];
            byte += 1;
        }
        k += 1;
    }
    slices
}
