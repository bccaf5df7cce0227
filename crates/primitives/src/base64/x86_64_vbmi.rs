//! AVX-512 VBMI: 48 bytes to 64 characters, and back, in three or four instructions.
//!
//! The method is Wojciech Muła's and Daniel Lemire's ("Base64 encoding and decoding at almost the speed of a
//! memory copy", 2019). Encoding spreads every 3 bytes over 4, cuts the sextets out with one multi-shift, and
//! looks them up with a byte permutation that looks at 6 bits only. Decoding looks 128 characters up in two
//! registers and packs the sextets by two multiply-adds.
//!
//! Masked loads and stores do not touch what is masked out, so the ends need no copy and nothing outside the
//! slices is read or written. Main loops store 64 bytes where decoding has 48, and the next store mends it.

use core::arch::x86_64::*;

use super::alphabet::Alphabet;

/// Bytes that one register encodes, or decodes to.
const BYTES: usize = 48;
/// Characters in one register.
const CHARS: usize = 64;
/// How many registers a round of the main loops works on.
const UNROLL: usize = 4;

/// For each group of 4: bytes 1 0 2 1 of its block of 3, the order in which the multi-shift finds the sextets.
const SPREAD: [u8; 64] = {
    let mut index = [0; 64];
    let mut i = 0;
    while i < index.len() {
        index[i] = (i / 4 * 3) as u8 + [1, 0, 2, 1][i % 4];
        i += 1;
    }
    index
};

/// For each block of 3: bytes 2 1 0 of its 32-bit sum, most significant first. The last 16 are not used.
const PACK: [u8; 64] = {
    let mut index = [0; 64];
    let mut i = 0;
    while i < BYTES {
        index[i] = (i / 3 * 4 + 2 - i % 3) as u8;
        i += 1;
    }
    index
};

/// Bit offsets of the sextets in 64 bits of spread bytes: 10, 4, 22, 16 for each half.
const SEXTETS: i64 = 0x3036_242a_1016_040a;

/// Encodes `bytes` into exactly ceil(4n / 3) characters, without padding.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,bmi2")]
pub(super) fn encode(alphabet: &Alphabet, bytes: &[u8], chars: &mut [u8]) {
    debug_assert_eq!(chars.len(), (bytes.len() * 4).div_ceil(3));
    let spread = load(&SPREAD);
    let sextets = _mm512_set1_epi64(SEXTETS);
    let table = load(alphabet.characters());
    let convert = |block| {
        let sextets = _mm512_multishift_epi64_epi8(sextets, _mm512_permutexvar_epi8(spread, block));
        _mm512_permutexvar_epi8(sextets, table)
    };

    let (mut from, mut to) = (bytes, chars);
    // Every load takes 64 bytes, of which 48 count.
    while from.len() >= (UNROLL - 1) * BYTES + 64 {
        let (groups, rest) = to.split_at_mut(UNROLL * CHARS);
        for (i, group) in groups.as_chunks_mut().0.iter_mut().enumerate() {
            store(group, convert(load(from[i * BYTES..].first_chunk().unwrap())));
        }
        (from, to) = (&from[UNROLL * BYTES..], rest);
    }
    while let Some(block) = from.first_chunk() {
        let (group, rest) = to.split_first_chunk_mut().unwrap();
        store(group, convert(load(block)));
        (from, to) = (&from[BYTES..], rest);
    }
    while !from.is_empty() {
        let (block, bytes_left) = from.split_at(from.len().min(BYTES));
        let (group, chars_left) = to.split_at_mut(to.len().min(CHARS));
        store_first(group, convert(load_first(_mm512_setzero_si512(), block)));
        (from, to) = (bytes_left, chars_left);
    }
}

/// Decodes `chars`, which have no padding and a length that is possible, into exactly floor(3n / 4) bytes.
///
/// False if a character is not in the alphabet or the last one has left-over bits; `bytes` then holds
/// whatever came out.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,bmi2")]
pub(super) fn decode(alphabet: &Alphabet, chars: &[u8], bytes: &mut [u8]) -> bool {
    debug_assert_eq!(bytes.len(), chars.len() * 3 / 4);
    debug_assert_ne!(chars.len() % 4, 1);
    let [low, high, ..] = alphabet.values().as_chunks().0 else { unreachable!("256 values are four chunks") };
    let (low, high) = (load(low), load(high));
    let pack = load(&PACK);
    let mut seen = _mm512_setzero_si512();
    let mut convert = |group| {
        let values = _mm512_permutex2var_epi8(low, group, high);
        // The lookup ignores bit 7 of a character, so that the character itself joins the collected errors.
        seen = _mm512_ternarylogic_epi64::<0xfe>(seen, group, values);
        let twelves = _mm512_maddubs_epi16(values, _mm512_set1_epi32(0x0140_0140));
        let words = _mm512_madd_epi16(twelves, _mm512_set1_epi32(0x0001_1000));
        _mm512_permutexvar_epi8(pack, words)
    };

    let (mut from, mut to) = (chars, bytes);
    // Every store writes 64 bytes, of which 48 count.
    while to.len() >= (UNROLL - 1) * BYTES + 64 {
        let (groups, rest) = from.split_at(UNROLL * CHARS);
        for (i, group) in groups.as_chunks().0.iter().enumerate() {
            store(to[i * BYTES..].first_chunk_mut().unwrap(), convert(load(group)));
        }
        (from, to) = (rest, &mut to[UNROLL * BYTES..]);
    }
    while let Some(block) = to.first_chunk_mut() {
        let (group, rest) = from.split_first_chunk().unwrap();
        store(block, convert(load(group)));
        (from, to) = (rest, &mut to[BYTES..]);
    }
    let zeros = _mm512_set1_epi8(alphabet.characters()[0].cast_signed());
    let mut rest = 0;
    while !from.is_empty() {
        let (group, chars_left) = from.split_at(from.len().min(CHARS));
        let (block, bytes_left) = to.split_at_mut(to.len().min(BYTES));
        let values = convert(load_first(zeros, group));
        // Absent characters count as zeros: what is not zero after the last byte are left-over bits.
        rest = _mm512_test_epi8_mask(values, values) & !first(block.len()) & first(BYTES);
        store_first(block, values);
        (from, to) = (chars_left, bytes_left);
    }
    _mm512_movepi8_mask(seen) | rest == 0
}

/// A mask of the first `count` of 64 bytes; `count` is at most 64.
#[target_feature(enable = "bmi2")]
fn first(count: usize) -> u64 {
    _bzhi_u64(u64::MAX, count as u32)
}

#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes are readable at `bytes`; the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
fn store(bytes: &mut [u8; 64], value: __m512i) {
    // SAFETY: 64 bytes are writable at `bytes`; the store needs no alignment.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), value) }
}

/// Loads `bytes`, at most 64, and takes the rest from `absent`.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
fn load_first(absent: __m512i, bytes: &[u8]) -> __m512i {
    // SAFETY: the mask covers the bytes of the slice alone; masked-out bytes are not accessed.
    unsafe { _mm512_mask_loadu_epi8(absent, first(bytes.len()), bytes.as_ptr().cast()) }
}

/// Stores the first bytes of `value` into `bytes`, at most 64.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
fn store_first(bytes: &mut [u8], value: __m512i) {
    // SAFETY: the mask covers the bytes of the slice alone; masked-out bytes are not accessed.
    unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), first(bytes.len()), value) }
}
