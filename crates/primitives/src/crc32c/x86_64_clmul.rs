//! CRC-32C and the algebra of changes by the `crc32` instruction and PCLMULQDQ: x86 since Westmere.
//!
//! `crc32` of a 64-bit word from 0 is that word times x^32 modulo P, which makes it the reduction as well; no
//! Barrett constants are needed. A carry-less product of two 32-bit values in the low halves of registers is
//! their product as polynomials times x, as a 64-bit word; that of two 64-bit words likewise, in 128 bits.

use core::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
    _mm_extract_epi64, _mm_setzero_si128, _mm_xor_si128,
};

use super::portable::parity_repair;
use super::windows::{SHORT_BITS, WINDOWS, fold, fold_bytes};
use super::x86_64_sse42::{STREAMS, chain, short_word, streams};

/// From here on the parts of the data are worth joining: on Zen 5, 1 KiB takes 41 ns so and 45 in a chain, 512
/// bytes 34 and 17.
const STREAMS_FROM: usize = 1024;

/// From here on two passes over parts take no more time than one chain over the difference.
const CHAIN_BELOW: usize = 1536;

/// The register after `data`, by `crc32` on parts that products join.
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
pub(super) fn update(crc: u32, data: &[u8]) -> u32 {
    if data.len() < STREAMS_FROM { chain(crc, data) } else { blocks(crc, data) }
}

// The longer way stands apart, so that a chain need not save the registers that it uses: 1.2 ns of 7 at 20 bytes on
// Zen 3, and more than 5 % up to 240.
#[inline(never)]
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
fn blocks(crc: u32, data: &[u8]) -> u32 {
    // In blocks, so that no part is moved farther than two windows reach.
    data.chunks(SHORT_BITS as usize / 8).fold(crc, |crc, block| {
        if block.len() < STREAMS_FROM {
            return chain(crc, block);
        }
        let (crcs, each) = streams(crc, block);
        let [moved @ .., last] = crcs;
        let mut lane = _mm_setzero_si128();
        for (i, crc) in moved.iter().enumerate() {
            lane = _mm_xor_si128(lane, product(*crc, short_weight(((STREAMS - 1 - i) * each) as u64)));
        }
        chain(reduce_lane(lane) ^ last, &block[STREAMS * each..])
    })
}

/// The checksum's change by inverting a run of bits, from the number of bits after the run's first bit
/// (inclusive) and after its last.
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
pub(super) fn flip(from_first: u64, after_last: u64) -> u32 {
    let words = if from_first <= SHORT_BITS {
        short::<true>(from_first) ^ short::<true>(after_last)
    } else {
        long::<true>(from_first) ^ long::<true>(after_last)
    };
    reduce(words) ^ parity_repair((from_first ^ after_last) as u32 & 1)
}

/// The checksum's change by inverting scattered bits of a buffer of `total_bits`.
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
pub(super) fn toggle(total_bits: u64, positions: &[u64]) -> u32 {
    let last = total_bits.wrapping_sub(1);
    let mut words = 0;
    if total_bits <= SHORT_BITS {
        for position in positions {
            words ^= short::<false>(last.wrapping_sub(*position));
        }
    } else {
        for position in positions {
            words ^= long::<false>(last.wrapping_sub(*position));
        }
    }
    reduce(words)
}

/// The register `crc` after so many zero bytes: `crc` * x^(8 `bytes`).
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
pub(super) fn shift(crc: u32, bytes: u64) -> u32 {
    if bytes == 0 {
        return crc;
    }
    reduce_lane(product(crc, weight(bytes)))
}

/// The checksum's change by replacing `old` by `new`, of equal length and `after` bytes before the end.
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
pub(super) fn splice(old: &[u8], new: &[u8], after: u64) -> u32 {
    if old.len() < CHAIN_BELOW { splice_short(old, new, after) } else { splice_far(old, new, after) }
}

/// [`splice`] of a region that a chain of `crc32` goes through.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
pub(super) fn splice_short(old: &[u8], new: &[u8], after: u64) -> u32 {
    // The usual case without a call; the others stand apart, so that it need not save their registers.
    if after.wrapping_sub(1) >= SHORT_BITS / 8 {
        return splice_far(old, new, after);
    }
    if old.len() < 8 {
        return splice_word(old, new, after);
    }
    let weight = short_weight(after);
    reduce_lane(product(chain_of_difference(old, new), weight))
}

/// [`splice`] of up to 7 bytes with 1 to 2^16 bytes after them.
#[inline(never)]
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
fn splice_word(old: &[u8], new: &[u8], after: u64) -> u32 {
    let weight = short_weight(after);
    let word = short_word(old) ^ short_word(new);
    // At the upper end of the word; a word of nothing is 0, whatever the shift.
    let crc = reduce(word.wrapping_shl(64 - 8 * old.len() as u32));
    reduce_lane(product(crc, weight))
}

/// [`splice`] of any length with any number of bytes after it.
#[inline(never)]
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
fn splice_far(old: &[u8], new: &[u8], after: u64) -> u32 {
    shift(update(0, old) ^ update(0, new), after)
}

/// The factor that [`product`] needs to shift a register by so many bytes, at least 1.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
pub(super) fn weight(bytes: u64) -> Weight {
    if bytes <= SHORT_BITS / 8 { short_weight(bytes) } else { long_weight(bytes) }
}

/// [`weight`] of 1 to 2^16 bytes.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
pub(super) fn short_weight(bytes: u64) -> Weight {
    // Two products add 2 to the exponent, of which the table takes 33; the lane's reduction adds 32.
    let exponent = 8 * bytes - 1;
    let (low, high) = WINDOWS.short::<false>(exponent);
    Weight { factor: clmul32(low, high), exponent }
}

/// Out of line, so that the usual short way stays small enough to be inlined.
#[inline(never)]
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
fn long_weight(bytes: u64) -> Weight {
    // The factor is reduced to the upper half of a word: 32 more, and one product less than 34.
    let exponent = fold_bytes(bytes, 33);
    let factor = reduce_lane(long_product::<false>(exponent));
    Weight { factor: _mm_cvtsi64_si128(i64::from(factor) << 32), exponent }
}

/// A power of x, ready to be multiplied by registers.
#[derive(Clone, Copy)]
pub(super) struct Weight {
    /// In the low half, a word.
    factor: __m128i,
    /// Its lowest five bits are still to be applied.
    exponent: u64,
}

/// The lane of 16 bytes whose register, started at 0, is `crc` times the power. Lanes add up before they are reduced.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
pub(super) fn product(crc: u32, weight: Weight) -> __m128i {
    let word = u64::from(crc) << 32 >> (weight.exponent & 31);
    _mm_clmulepi64_si128::<0x00>(_mm_cvtsi64_si128(word as i64), weight.factor)
}

/// The register after the 16 bytes of a lane, started at 0.
#[inline]
#[target_feature(enable = "sse4.1,sse4.2")]
pub(super) fn reduce_lane(lane: __m128i) -> u32 {
    let first = _mm_crc32_u64(0, _mm_cvtsi128_si64(lane) as u64);
    _mm_crc32_u64(first, _mm_extract_epi64::<1>(lane) as u64) as u32
}

/// The register after the XOR of two slices of equal length, at least 8, started at 0.
#[inline]
#[target_feature(enable = "sse4.2")]
fn chain_of_difference(old: &[u8], new: &[u8]) -> u32 {
    let len = old.len();
    assert!(len >= 8 && len == new.len());
    let word = |at: usize| {
        debug_assert!(at + 8 <= len);
        // SAFETY: `at + 8` is at most the length of both slices; see the steps below.
        unsafe {
            let old = old.as_ptr().add(at).cast::<u64>().read_unaligned();
            old ^ new.as_ptr().add(at).cast::<u64>().read_unaligned()
        }
    };
    // Zero bytes before the data change nothing, so the odd bytes go first, at the upper end of a word.
    let words = (len - 1) / 8;
    let mut at = len - 8 * words;
    let mut crc = _mm_crc32_u64(0, word(0) << (64 - 8 * at));
    // From here on, `at` is the length less 8 for each word still to go.
    if words & 1 == 1 {
        crc = _mm_crc32_u64(crc, word(at));
        at += 8;
    }
    if words & 2 == 2 {
        crc = _mm_crc32_u64(crc, word(at));
        crc = _mm_crc32_u64(crc, word(at + 8));
        at += 16;
    }
    while at < len {
        for i in 0..4 {
            crc = _mm_crc32_u64(crc, word(at + 8 * i));
        }
        at += 32;
    }
    crc as u32
}

/// x^`exponent`, and with `RUN` I times that, as a word, for exponents up to [`SHORT_BITS`].
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
fn short<const RUN: bool>(exponent: u64) -> u64 {
    let (low, high) = WINDOWS.short::<RUN>(exponent);
    position(reduce(_mm_cvtsi128_si64(clmul32(low, high)) as u64), exponent)
}

/// x^`exponent`, and with `RUN` I times that, as a word, for any exponent.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
fn long<const RUN: bool>(exponent: u64) -> u64 {
    let exponent = scalar(fold(exponent));
    position(reduce_lane(long_product::<RUN>(exponent)), exponent)
}

/// Returns the number, kept out of vector registers.
///
/// LLVM would fold the two exponents of a flip as one vector and then wait for the way back: 16 ns, not 11.5.
#[inline(always)]
fn scalar(mut number: u64) -> u64 {
    // SAFETY: there is no instruction; the number stays as it is.
    unsafe {
        core::arch::asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags))
    };
    number
}

/// x^(`exponent` - 32), and with `RUN` I times that, as a lane, without the exponent's lowest five bits.
#[inline]
#[target_feature(enable = "pclmulqdq,sse4.1,sse4.2,popcnt")]
fn long_product<const RUN: bool>(exponent: u64) -> __m128i {
    let [a, b, c, d] = WINDOWS.long::<RUN>(exponent);
    _mm_clmulepi64_si128::<0x00>(clmul32(a, b), clmul32(c, d))
}

/// `value` times x to the lowest five bits of `exponent`, as a word.
#[inline(always)]
fn position(value: u32, exponent: u64) -> u64 {
    (u64::from(value) << 32) >> (exponent & 31)
}

#[inline]
#[target_feature(enable = "pclmulqdq")]
fn clmul32(a: u32, b: u32) -> __m128i {
    _mm_clmulepi64_si128::<0x00>(_mm_cvtsi32_si128(a as i32), _mm_cvtsi32_si128(b as i32))
}

/// The word times x^32 modulo P: the register after these eight bytes, started at 0.
#[inline]
#[target_feature(enable = "sse4.2")]
fn reduce(word: u64) -> u32 {
    _mm_crc32_u64(0, word) as u32
}
