//! AVX2: 24 bytes to 32 characters, and back, for any alphabet.
//!
//! Sextets are cut out by multiplications and put together by multiply-adds, as in Wojciech Muła's and Daniel
//! Lemire's "Faster base64 encoding and decoding using AVX2 instructions" (2018). Their lookup rests on the
//! order of the standard alphabet; the one here takes any table. A byte shuffle looks 16 entries up by the low
//! nibble and gives zero where bit 7 of the index is set. Of the indices x, x - 16, x - 32... those that are
//! below zero give nothing, so that with tables of the differences between rows, row 0, row 0 ^ row 1,
//! row 1 ^ row 2..., the XOR of all shuffles is the entry: what is added by one row is cancelled by the next.

use core::arch::asm;
use core::arch::x86_64::*;

use super::alphabet::{Alphabet, INVALID};
use super::portable;

/// Bytes that one register encodes, or decodes to.
const BYTES: usize = 24;
/// Characters in one register.
const CHARS: usize = 32;

/// Encodes `bytes` into exactly ceil(4n / 3) characters, without padding.
#[target_feature(enable = "avx2")]
pub(super) fn encode(alphabet: &Alphabet, bytes: &[u8], chars: &mut [u8]) {
    debug_assert_eq!(chars.len(), (bytes.len() * 4).div_ceil(3));
    let differences = differences::<4>(alphabet.characters());
    // Bytes 1 0 2 1 of each block of 3. The upper half's blocks begin at its byte 4: it was loaded 4 bytes
    // early, because 16 bytes more would end outside a block of 24.
    let spread = _mm256_setr_epi8(
        1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10, //
        5, 4, 6, 5, 8, 7, 9, 8, 11, 10, 12, 11, 14, 13, 15, 14,
    );
    let convert = |block: &[u8; BYTES], group: &mut [u8; CHARS]| {
        let block = _mm256_shuffle_epi8(load_24(block), spread);
        // As 16-bit words: sextets 0 and 2 are shifted right by 10 and 6, sextets 1 and 3 left by 4 and 8.
        let even = _mm256_and_si256(block, _mm256_set1_epi32(0x0fc0_fc00));
        let even = multiply_high(even, _mm256_set1_epi32(0x0400_0040));
        let odd = _mm256_and_si256(block, _mm256_set1_epi32(0x003f_03f0));
        let odd = multiply_low(odd, _mm256_set1_epi32(0x0100_0010));
        store_32(group, look_up(&differences, _mm256_or_si256(even, odd)));
    };

    for (block, group) in bytes.as_chunks().0.iter().zip(chars.as_chunks_mut().0) {
        convert(block, group);
    }
    let mut done = bytes.len() / BYTES * BYTES;
    let whole = bytes.len() / 3 * 3;
    // The last whole blocks of 3 once more, with some before them: quicker than one by one.
    if done < whole && done > 0 {
        let group = chars[..whole / 3 * 4].last_chunk_mut().unwrap();
        convert(bytes[..whole].last_chunk().unwrap(), group);
        done = whole;
    }
    if done < whole {
        portable::encode(alphabet, &bytes[done..], &mut chars[done / 3 * 4..]);
    } else if done < bytes.len() {
        portable::encode_rest(alphabet, &bytes[done..], &mut chars[done / 3 * 4..]);
    }
}

/// Decodes `chars`, which have no padding and a length that is possible, into exactly floor(3n / 4) bytes.
///
/// False if a character is not in the alphabet or the last one has left-over bits; `bytes` then holds
/// whatever came out.
#[target_feature(enable = "avx2")]
pub(super) fn decode(alphabet: &Alphabet, chars: &[u8], bytes: &mut [u8]) -> bool {
    debug_assert_eq!(bytes.len(), chars.len() * 3 / 4);
    debug_assert_ne!(chars.len() % 4, 1);
    // With bit 7 flipped, invalid characters have the value zero, which is also what those above 127 get: all
    // their indices, which don't wrap, are negative.
    let invalid = _mm256_set1_epi8(INVALID.cast_signed());
    let mut differences = differences::<8>(&alphabet.values()[..128]);
    differences[0] = _mm256_xor_si256(differences[0], invalid);
    let pack = _mm256_setr_epi8(
        2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1, //
        2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1,
    );
    let mut seen = _mm256_setzero_si256();
    let mut convert = |group: &[u8; CHARS], block: &mut [u8; BYTES]| {
        let values = _mm256_xor_si256(look_up(&differences, load_32(group)), invalid);
        seen = _mm256_or_si256(seen, values);
        let twelves = _mm256_maddubs_epi16(values, _mm256_set1_epi32(0x0140_0140));
        let words = _mm256_madd_epi16(twelves, _mm256_set1_epi32(0x0001_1000));
        let packed = _mm256_shuffle_epi8(words, pack);
        store_24(block, _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7)));
    };

    for (group, block) in chars.as_chunks().0.iter().zip(bytes.as_chunks_mut().0) {
        convert(group, block);
    }
    let mut done = chars.len() / CHARS * CHARS;
    let whole = chars.len() / 4 * 4;
    // The last whole groups of 4 once more, with some before them: quicker than one by one.
    if done < whole && done > 0 {
        let block = bytes[..whole / 4 * 3].last_chunk_mut().unwrap();
        convert(chars[..whole].last_chunk().unwrap(), block);
        done = whole;
    }
    let (chars, bytes) = (&chars[done..], &mut bytes[done / 4 * 3..]);
    let rest = if done == whole { portable::decode_rest } else { portable::decode };
    _mm256_movemask_epi8(seen) == 0 && rest(alphabet, chars, bytes)
}

/// The upper halves of the products of unsigned 16-bit words.
///
/// Written out because the compiler makes nine instructions of the intrinsic with a constant, three of the other
/// one: it knows how to shift by multiplying, but here multiplying is how to shift each word by its own count.
#[target_feature(enable = "avx2")]
fn multiply_high(a: __m256i, b: __m256i) -> __m256i {
    let high;
    // SAFETY: AVX2 is enabled, and the instruction works on registers alone.
    unsafe {
        asm!("vpmulhuw {}, {}, {}", lateout(ymm_reg) high, in(ymm_reg) a, in(ymm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    high
}

/// The lower halves of the products of 16-bit words.
#[target_feature(enable = "avx2")]
fn multiply_low(a: __m256i, b: __m256i) -> __m256i {
    let low;
    // SAFETY: AVX2 is enabled, and the instruction works on registers alone.
    unsafe {
        asm!("vpmullw {}, {}, {}", lateout(ymm_reg) low, in(ymm_reg) a, in(ymm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    low
}

/// Row 0 of a table, and the XOR of each other row with the one before, each in both halves of a register.
#[target_feature(enable = "avx2")]
fn differences<const ROWS: usize>(table: &[u8]) -> [__m256i; ROWS] {
    let rows = table.as_chunks().0;
    debug_assert_eq!(rows.len(), ROWS);
    let mut differences = [_mm256_setzero_si256(); ROWS];
    for row in 0..ROWS {
        let mut value = load_16(&rows[row]);
        if row > 0 {
            value = _mm_xor_si128(value, load_16(&rows[row - 1]));
        }
        differences[row] = _mm256_broadcastsi128_si256(value);
    }
    differences
}

/// The table's entry for each byte of `index`; zero for a byte above 127.
#[target_feature(enable = "avx2")]
fn look_up<const ROWS: usize>(differences: &[__m256i; ROWS], index: __m256i) -> __m256i {
    let mut found = _mm256_shuffle_epi8(differences[0], index);
    for (row, difference) in differences.iter().enumerate().skip(1) {
        // Saturating: an index above 127, which is negative here, must not wrap to a small one.
        let index = _mm256_subs_epi8(index, _mm256_set1_epi8(row as i8 * 16));
        found = _mm256_xor_si256(found, _mm256_shuffle_epi8(*difference, index));
    }
    found
}

#[target_feature(enable = "avx2")]
fn load_16(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: 16 bytes are readable at `bytes`; the load needs no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// Bytes 0 to 15 in the lower half, bytes 8 to 23 in the upper half.
#[target_feature(enable = "avx2")]
fn load_24(bytes: &[u8; BYTES]) -> __m256i {
    let lower = load_16(bytes.first_chunk().unwrap());
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(lower), load_16(bytes.last_chunk().unwrap()))
}

#[target_feature(enable = "avx2")]
fn load_32(bytes: &[u8; CHARS]) -> __m256i {
    // SAFETY: 32 bytes are readable at `bytes`; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Stores the lower 24 bytes of `value`.
#[target_feature(enable = "avx2")]
fn store_24(bytes: &mut [u8; BYTES], value: __m256i) {
    let (lower, upper) = (_mm256_castsi256_si128(value), _mm256_extracti128_si256::<1>(value));
    let at = bytes.as_mut_ptr();
    // SAFETY: 16 bytes are writable at `bytes`; the store needs no alignment.
    unsafe { _mm_storeu_si128(at.cast(), lower) };
    // SAFETY: 8 bytes are writable 16 bytes further on; the store needs no alignment.
    unsafe { _mm_storel_epi64(at.add(16).cast(), upper) };
}

#[target_feature(enable = "avx2")]
fn store_32(bytes: &mut [u8; CHARS], value: __m256i) {
    // SAFETY: 32 bytes are writable at `bytes`; the store needs no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), value) }
}
