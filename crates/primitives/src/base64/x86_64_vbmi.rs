//! AVX-512 VBMI: 48 bytes to 64 characters, and back, in three or four instructions.
//!
//! The method is Wojciech Muła's and Daniel Lemire's ("Base64 encoding and decoding at almost the speed of a
//! memory copy", 2019). Encoding spreads every 3 bytes over 4, cuts the sextets out with one multi-shift, and
//! looks them up with a byte permutation that looks at 6 bits only. Decoding looks 128 characters up in two
//! registers and packs the sextets by two multiply-adds.
//!
//! Four registers of characters are three of bytes. Where so many are left, spreading and packing also move bytes
//! from register to register, so that every load and store is a full one and none overlaps another. At the ends,
//! masked loads and stores do not touch what is masked out: nothing is copied, and nothing outside the slices is
//! read or written.
//!
//! The lengths of texts and bytes agree (`debug_assert`), so that the `else`s that find no room are never taken;
//! leaving there instead of panicking keeps the code free of what a panic needs.

use core::arch::x86_64::*;
use core::mem;

use super::alphabet::Alphabet;

/// Bytes that one register encodes, or decodes to.
const BYTES: usize = 48;
/// Characters in one register.
const CHARS: usize = 64;
/// From how many bytes on encoding leaves the first cache. There loads that overlap are the faster ones (64 KiB in
/// 732 ns, not 750), below it loads that don't (16 KiB in 93 ns, not 117; Zen 5).
const OUT_OF_L1: usize = 32 * 1024;

/// Encodes `bytes` into exactly ceil(4n / 3) characters, without padding.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,bmi2")]
pub(super) fn encode(alphabet: &Alphabet, bytes: &[u8], chars: &mut [u8]) {
    debug_assert_eq!(chars.len(), (bytes.len() * 4).div_ceil(3));
    // Names are shorter: they would feel every jump and every constant of the loops.
    if bytes.len() >= 2 * BYTES {
        return encode_long(alphabet, bytes, chars);
    }
    let table = load(alphabet.characters());
    let (mut from, mut to) = (bytes, chars);
    if let Some((block, bytes_left)) = from.split_first_chunk::<BYTES>() {
        let Some((group, chars_left)) = mem::take(&mut to).split_first_chunk_mut() else { return };
        encode_one(table, block, group);
        (from, to) = (bytes_left, chars_left);
    }
    encode_last(table, from, to);
}

/// Decodes `chars`, which have no padding and a length that is possible, into exactly floor(3n / 4) bytes.
///
/// False if a character is not in the alphabet or the last one has left-over bits; `bytes` then holds
/// whatever came out.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,bmi2")]
pub(super) fn decode(alphabet: &Alphabet, chars: &[u8], bytes: &mut [u8]) -> bool {
    debug_assert_eq!(bytes.len(), chars.len() * 3 / 4);
    debug_assert_ne!(chars.len() % 4, 1);
    if chars.len() >= 2 * CHARS {
        return decode_long(alphabet, chars, bytes);
    }
    let values = load_values(alphabet);
    decode_few(alphabet, &values, _mm512_setzero_si512(), chars, bytes)
}

/// Decodes what is left register by register; false if that or anything `seen` before was invalid.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,bmi2")]
#[inline]
fn decode_few(
    alphabet: &Alphabet,
    values: &[__m512i; 2],
    mut seen: __m512i,
    mut from: &[u8],
    mut to: &mut [u8],
) -> bool {
    // Where there is room a whole register is stored, of which the next one overwrites the end: without a mask.
    while let (Some((group, chars_left)), Some(block)) = (from.split_first_chunk(), to.first_chunk_mut()) {
        store(block, _mm512_permutexvar_epi8(load(&PACK[0]), sums(values, &mut seen, load(group))));
        (from, to) = (chars_left, &mut mem::take(&mut to)[BYTES..]);
    }
    if let Some((group, chars_left)) = from.split_first_chunk() {
        let Some((block, bytes_left)) = mem::take(&mut to).split_first_chunk_mut() else { return false };
        decode_one(values, &mut seen, group, block);
        (from, to) = (chars_left, bytes_left);
    }
    decode_last(alphabet, values, seen, from, to)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,bmi2")]
#[inline(never)]
fn encode_long(alphabet: &Alphabet, bytes: &[u8], chars: &mut [u8]) {
    let table = load(alphabet.characters());
    let [spread_0, spread_16, spread_32, spread_48] =
        [load(&SPREAD[0]), load(&SPREAD[1]), load(&SPREAD[2]), load(&SPREAD[3])];

    let (mut from, mut to) = (bytes, chars);
    if bytes.len() >= OUT_OF_L1 {
        while let Some(blocks) = from.first_chunk::<{ 4 * BYTES + 16 }>() {
            let Some((groups, chars_left)) = mem::take(&mut to).split_first_chunk_mut::<{ 4 * CHARS }>()
            else {
                return;
            };
            for (i, group) in groups.as_chunks_mut().0.iter_mut().enumerate() {
                let block = load(blocks[i * BYTES..].first_chunk().unwrap());
                store(group, characters(table, _mm512_permutexvar_epi8(spread_0, block)));
            }
            (from, to) = (&from[4 * BYTES..], chars_left);
        }
    }
    let four = |block: &[u8; 4 * BYTES], group: &mut [u8; 4 * CHARS]| {
        let (block, _) = block.as_chunks();
        let (a, b, c) = (load(&block[0]), load(&block[1]), load(&block[2]));
        let (group, _) = group.as_chunks_mut();
        store(&mut group[0], characters(table, _mm512_permutexvar_epi8(spread_0, a)));
        store(&mut group[1], characters(table, _mm512_permutex2var_epi8(a, spread_48, b)));
        store(&mut group[2], characters(table, _mm512_permutex2var_epi8(b, spread_32, c)));
        store(&mut group[3], characters(table, _mm512_permutexvar_epi8(spread_16, c)));
    };
    while let Some((blocks, bytes_left)) = from.split_first_chunk::<{ 8 * BYTES }>() {
        let Some((groups, chars_left)) = mem::take(&mut to).split_first_chunk_mut::<{ 8 * CHARS }>() else {
            return;
        };
        let ((blocks, _), (groups, _)) = (blocks.as_chunks(), groups.as_chunks_mut());
        four(&blocks[0], &mut groups[0]);
        four(&blocks[1], &mut groups[1]);
        (from, to) = (bytes_left, chars_left);
    }
    if let Some((block, bytes_left)) = from.split_first_chunk() {
        let Some((group, chars_left)) = mem::take(&mut to).split_first_chunk_mut() else { return };
        four(block, group);
        (from, to) = (bytes_left, chars_left);
    }
    // 64 bytes where they are there: a load without a mask.
    while let Some(block) = from.first_chunk() {
        let Some((group, chars_left)) = mem::take(&mut to).split_first_chunk_mut() else { return };
        store(group, characters(table, _mm512_permutexvar_epi8(spread_0, load(block))));
        (from, to) = (&from[BYTES..], chars_left);
    }
    if let Some((block, bytes_left)) = from.split_first_chunk::<BYTES>() {
        let Some((group, chars_left)) = mem::take(&mut to).split_first_chunk_mut() else { return };
        encode_one(table, block, group);
        (from, to) = (bytes_left, chars_left);
    }
    encode_last(table, from, to);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,bmi2")]
#[inline]
fn encode_one(table: __m512i, block: &[u8; BYTES], group: &mut [u8; CHARS]) {
    let block = load_first(_mm512_setzero_si512(), block);
    store(group, characters(table, _mm512_permutexvar_epi8(load(&SPREAD[0]), block)));
}

/// Encodes what fits in one register, perhaps nothing.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,bmi2")]
#[inline]
fn encode_last(table: __m512i, bytes: &[u8], chars: &mut [u8]) {
    if !bytes.is_empty() {
        let block = load_first(_mm512_setzero_si512(), bytes);
        store_first(chars, characters(table, _mm512_permutexvar_epi8(load(&SPREAD[0]), block)));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,bmi2")]
#[inline(never)]
fn decode_long(alphabet: &Alphabet, chars: &[u8], bytes: &mut [u8]) -> bool {
    let values = load_values(alphabet);
    let mut seen = _mm512_setzero_si512();
    let [pack_0, pack_16, pack_32] = [load(&PACK[0]), load(&PACK[1]), load(&PACK[2])];

    let (mut from, mut to) = (chars, bytes);
    while let Some((group, chars_left)) = from.split_first_chunk::<{ 4 * CHARS }>() {
        let Some((block, bytes_left)) = mem::take(&mut to).split_first_chunk_mut::<{ 4 * BYTES }>() else {
            return false;
        };
        let (group, _) = group.as_chunks();
        let a = sums(&values, &mut seen, load(&group[0]));
        let b = sums(&values, &mut seen, load(&group[1]));
        let c = sums(&values, &mut seen, load(&group[2]));
        let d = sums(&values, &mut seen, load(&group[3]));
        let (block, _) = block.as_chunks_mut();
        store(&mut block[0], _mm512_permutex2var_epi8(a, pack_0, b));
        store(&mut block[1], _mm512_permutex2var_epi8(b, pack_16, c));
        store(&mut block[2], _mm512_permutex2var_epi8(c, pack_32, d));
        (from, to) = (chars_left, bytes_left);
    }
    decode_few(alphabet, &values, seen, from, to)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,bmi2")]
#[inline]
fn decode_one(values: &[__m512i; 2], seen: &mut __m512i, group: &[u8; CHARS], block: &mut [u8; BYTES]) {
    let sums = sums(values, seen, load(group));
    store_first(block, _mm512_permutexvar_epi8(load(&PACK[0]), sums));
}

/// Decodes what does not fill a register, perhaps nothing; false if that or anything `seen` before was invalid.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,bmi2")]
#[inline]
fn decode_last(
    alphabet: &Alphabet,
    values: &[__m512i; 2],
    mut seen: __m512i,
    chars: &[u8],
    bytes: &mut [u8],
) -> bool {
    let mut rest = 0;
    if !chars.is_empty() {
        let zeros = _mm512_set1_epi8(alphabet.characters()[0].cast_signed());
        let sums = sums(values, &mut seen, load_first(zeros, chars));
        let block = _mm512_permutexvar_epi8(load(&PACK[0]), sums);
        store_first(bytes, block);
        // Absent characters count as zeros: if the byte after the last one is not zero, it has left-over bits.
        rest = _mm512_test_epi8_mask(block, block) >> bytes.len() & 1;
    }
    _mm512_movepi8_mask(seen) | rest == 0
}

/// The characters for spread bytes: two bytes in reach of each sextet, as [`SPREAD`] puts them.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn characters(table: __m512i, spread: __m512i) -> __m512i {
    // Bit offsets of the sextets in 32 bits: 10, 4, 22, 16. The lookup ignores the upper two bits.
    let sextets = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x3036_242a_1016_040a), spread);
    _mm512_permutexvar_epi8(sextets, table)
}

/// The 24-bit sums of each 4 characters' values. What is invalid leaves a bit 7 in `seen`.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn sums(values: &[__m512i; 2], seen: &mut __m512i, group: __m512i) -> __m512i {
    let values = _mm512_permutex2var_epi8(values[0], group, values[1]);
    // The lookup ignores bit 7 of a character, so that the character itself joins the collected errors.
    *seen = _mm512_ternarylogic_epi64::<0xfe>(*seen, group, values);
    let twelves = _mm512_maddubs_epi16(values, _mm512_set1_epi32(0x0140_0140));
    _mm512_madd_epi16(twelves, _mm512_set1_epi32(0x0001_1000))
}

/// The values of the 128 ASCII characters.
#[target_feature(enable = "avx512f")]
#[inline]
fn load_values(alphabet: &Alphabet) -> [__m512i; 2] {
    let (values, _) = alphabet.values().as_chunks();
    [load(&values[0]), load(&values[1])]
}

/// Which bytes of two registers the multi-shift wants, for the groups that begin at byte 0, 16, 32 and 48: bytes
/// 1 0 2 1 of each block of 3, so that every sextet lies within 16 bits.
static SPREAD: [[u8; 64]; 4] = {
    let mut index = [[0; 64]; 4];
    let mut i = 0;
    while i < 4 * 64 {
        let (row, byte) = (i / 64, i % 64);
        index[row][byte] = (16 * row + byte / 4 * 3) as u8 + [1, 0, 2, 1][byte % 4];
        i += 1;
    }
    index
};

/// Which bytes of the 32-bit sums in two registers become the decoded bytes from byte 0, 16 and 32 on. Each sum
/// holds 3 bytes, of which the most significant comes first.
static PACK: [[u8; 64]; 3] = {
    let mut index = [[0; 64]; 3];
    let mut i = 0;
    while i < 3 * 64 {
        let (row, byte) = (i / 64, i % 64 + i / 64 * 16);
        index[row][i % 64] = (byte / 3 * 4 + 2 - byte % 3) as u8;
        i += 1;
    }
    index
};

/// A mask of the first `count` of 64 bytes; `count` is at most 64.
#[target_feature(enable = "bmi2")]
#[inline]
fn first(count: usize) -> u64 {
    _bzhi_u64(u64::MAX, count as u32)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes are readable at `bytes`; the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(bytes: &mut [u8; 64], value: __m512i) {
    // SAFETY: 64 bytes are writable at `bytes`; the store needs no alignment.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), value) }
}

/// Loads `bytes`, at most 64, and takes the rest from `absent`.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
#[inline]
fn load_first(absent: __m512i, bytes: &[u8]) -> __m512i {
    // SAFETY: the mask covers the bytes of the slice alone; masked-out bytes are not accessed.
    unsafe { _mm512_mask_loadu_epi8(absent, first(bytes.len()), bytes.as_ptr().cast()) }
}

/// Stores the first bytes of `value` into `bytes`, at most 64.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
#[inline]
fn store_first(bytes: &mut [u8], value: __m512i) {
    // SAFETY: the mask covers the bytes of the slice alone; masked-out bytes are not accessed.
    unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), first(bytes.len()), value) }
}
