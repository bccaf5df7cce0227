//! CRC-32C by 512-bit carry-less multiplication, and together with the `crc32` instruction: Ice Lake, Zen 4 and
//! later.
//!
//! The multiplier takes 16 bytes a cycle, and `crc32` as many on other ports. Long data is therefore cut in
//! two: six equal streams for `crc32`, whose latency they hide, and a vector part behind them that four
//! accumulators fold. The streams' registers become lanes by a product each, so that one reduction serves all.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_crc32_u64, _mm_xor_si128, _mm256_castsi256_si128, _mm256_extracti128_si256,
    _mm256_xor_si256, _mm512_castsi512_si256, _mm512_clmulepi64_epi128, _mm512_extracti64x4_epi64,
    _mm512_loadu_si512, _mm512_maskz_loadu_epi8, _mm512_maskz_set1_epi32, _mm512_set_epi64,
    _mm512_setzero_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use super::lanes::{Factors, LANES, POSITIONS, factors};
use super::windows::WINDOWS;
use super::x86_64_clmul::{reduce_lane, shift, splice_short};
use super::x86_64_sse42::{chain, chain_bytes};

const LANE: usize = 16;
const VECTOR: usize = 64;

/// Up to so many vectors need no folding: the table has factors for each of their lanes.
const DIRECT: usize = LANES * LANE / VECTOR;

/// Below this, a chain of `crc32` takes no longer than the reduction of a vector: for 96 bytes 4 ns against 6
/// where calls overlap, 8 against 9 where each waits for the last.
const CHAIN_BELOW: usize = 128;

/// The threshold for a difference, which has two loads a word and whose vector way has no head.
const CHAIN_DIFFERENCE_BELOW: usize = 96;

/// Bytes of one step of the vector part: four vectors.
const FOLD: usize = 4 * VECTOR;

/// The factors that carry an accumulator over one step.
const FOLD_FACTORS: Factors = factors(8 * FOLD as i64);

/// How many streams go through `crc32` beside the vectors.
const STREAMS: usize = 6;

/// Words that one step takes from each stream where three `crc32` start a cycle.
const WORDS_OF_THREE: usize = 5;

/// Words that one step takes from each stream where one `crc32` starts a cycle, at half the multiplier's rate.
const WORDS_OF_ONE: usize = 2;

/// Bytes of a whole step.
const fn step(words: usize) -> usize {
    let streams = STREAMS * words * 8;
    assert!(streams.is_multiple_of(LANE), "the vector part and the tail are whole lanes");
    FOLD + streams
}

/// Below this, joining the streams costs more than they bring: on Zen 5, 33 ns against 31 at 2 KiB.
const HYBRID_FROM: usize = 3072;

/// The threshold where one `crc32` starts a cycle: on Zen 4, 83 ns against 80 at 4 KiB, 144 against 150 at 8 KiB.
const HYBRID_OF_ONE_FROM: usize = 6144;

/// The longest block that is cut in two: nothing in it is moved farther than two windows reach.
const BLOCK: usize = 1 << 16;

/// The register after `data`, by vectors and `crc32` at once, where three of those start a cycle: Zen 5.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,sse4.2,popcnt")]
pub(super) fn update_hybrid(crc: u32, data: &[u8]) -> u32 {
    if data.len() < CHAIN_BELOW {
        return chain(crc, data);
    }
    if data.len() < HYBRID_FROM { vectors(crc, data) } else { blocks::<WORDS_OF_THREE>(crc, data) }
}

/// Updates a CRC where one `crc32` starts a cycle.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,sse4.2,popcnt")]
pub(super) fn update_hybrid_of_one(crc: u32, data: &[u8]) -> u32 {
    if data.len() < CHAIN_BELOW {
        return chain(crc, data);
    }
    if data.len() < HYBRID_OF_ONE_FROM { vectors(crc, data) } else { blocks::<WORDS_OF_ONE>(crc, data) }
}

/// The register after `data`, by vectors alone.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,sse4.2,popcnt")]
pub(super) fn update(crc: u32, data: &[u8]) -> u32 {
    if data.len() < CHAIN_BELOW { chain(crc, data) } else { vectors(crc, data) }
}

/// The checksum's change by replacing `old` by `new`, of equal length and `after` bytes before the end.
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,sse4.2,popcnt,bmi1,bmi2"
)]
pub(super) fn splice(old: &[u8], new: &[u8], after: u64) -> u32 {
    if old.len() < CHAIN_DIFFERENCE_BELOW {
        return splice_short(old, new, after);
    }
    splice_vectors(old, new, after)
}

// The longer ways stand apart, so that the short ones need not save the registers that those use.

#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,sse4.2,popcnt")]
fn splice_vectors(old: &[u8], new: &[u8], after: u64) -> u32 {
    shift(reduce_lane(lane::<true>(0, old, new)), after)
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,sse4.2,popcnt")]
fn vectors(crc: u32, data: &[u8]) -> u32 {
    let (crc, words) = head::<4>(crc, data);
    reduce_lane(lane::<false>(crc, words, words))
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,sse4.2,popcnt")]
fn blocks<const WORDS: usize>(crc: u32, data: &[u8]) -> u32 {
    let (mut crc, mut lanes) = head::<LANE>(crc, data);
    while lanes.len() >= FOLD + step(WORDS) {
        let (block, rest) = lanes.split_at(lanes.len().min(BLOCK));
        crc = hybrid::<WORDS>(crc, block);
        lanes = rest;
    }
    if lanes.is_empty() { crc } else { reduce_lane(lane::<false>(crc, lanes, lanes)) }
}

/// Takes the first bytes so that whole units of `UNIT` bytes are left, 4 or 16. There are at least 24 bytes.
#[inline]
#[target_feature(enable = "sse4.2")]
fn head<const UNIT: usize>(crc: u32, data: &[u8]) -> (u32, &[u8]) {
    let (head, units) = data.split_at(data.len() % UNIT);
    let Some((first, rest)) = data.split_first_chunk::<8>() else { unreachable!("24 bytes at least") };
    let (mut crc, mut word) = (crc, u64::from_le_bytes(*first));
    if head.len() >= 8 {
        crc = _mm_crc32_u64(crc.into(), word) as u32;
        let Some(next) = rest.first_chunk() else { unreachable!("24 bytes at least") };
        word = u64::from_le_bytes(*next);
    }
    match head.len() % 8 {
        0 => (crc, units),
        bytes => (chain_bytes(crc, word, bytes), units),
    }
}

/// The lane that stands for all of `data`, or with `DIFFERENCE` for its XOR with `other` of the same length.
///
/// `data` is not empty; it is whole units of 4 bytes unless `crc`, the register before it, is 0: from register 0
/// leading zero bytes change nothing, so the first vector may begin before the data, masked.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,sse4.2,popcnt")]
fn lane<const DIFFERENCE: bool>(crc: u32, data: &[u8], other: &[u8]) -> __m128i {
    assert!(data.len() == other.len() && !data.is_empty());
    let missing = data.len().next_multiple_of(VECTOR) - data.len();
    let mask = !0 << missing;
    // SAFETY: the mask keeps the bytes before the slices from being read; those behind are in them.
    let mut first = unsafe {
        let vector = _mm512_maskz_loadu_epi8(mask, data.as_ptr().wrapping_sub(missing).cast());
        if DIFFERENCE {
            let other = _mm512_maskz_loadu_epi8(mask, other.as_ptr().wrapping_sub(missing).cast());
            _mm512_xor_si512(vector, other)
        } else {
            vector
        }
    };
    if !DIFFERENCE {
        first = _mm512_xor_si512(first, _mm512_maskz_set1_epi32(1 << (missing / 4), crc as i32));
    }
    let (rest, _) = data[VECTOR - missing..].as_chunks::<VECTOR>();
    let (other, _) = other[VECTOR - missing..].as_chunks::<VECTOR>();
    // As long as `rest`, which the compiler can see now.
    let other = &other[..rest.len()];
    let load = |i: usize| {
        if DIFFERENCE { _mm512_xor_si512(vector(&rest[i]), vector(&other[i])) } else { vector(&rest[i]) }
    };
    if rest.len() < DIRECT {
        let table = &POSITIONS.0.as_chunks::<4>().0[DIRECT - 1 - rest.len()..];
        let mut sum = times(first, factors_of(&table[0]));
        for (i, factors) in table[1..].iter().enumerate() {
            sum = add_times(sum, load(i), factors_of(factors));
        }
        return add_lanes(sum);
    }
    let mut sums = [first, load(0), load(1), load(2)];
    let step = broadcast(FOLD_FACTORS);
    let mut next = 3;
    while next + 4 <= rest.len() {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = add_times(load(next + i), *sum, step);
        }
        next += 4;
    }
    let mut sum = at_distance(sums, 4 * (rest.len() - next));
    for i in next..rest.len() {
        sum = add_times(sum, load(i), positions(4 * (rest.len() - i)));
    }
    add_lanes(sum)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn vector(bytes: &[u8; VECTOR]) -> __m512i {
    // SAFETY: `bytes` are 64 readable bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn factors_of(lanes: &[Factors; 4]) -> __m512i {
    // SAFETY: `lanes` are 64 readable bytes.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

/// The register after `data`, whole lanes of at least one step and at most [`BLOCK`] bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,sse4.2,popcnt")]
fn hybrid<const WORDS: usize>(crc: u32, data: &[u8]) -> u32 {
    let whole_step = const { step(WORDS) };
    assert!(data.len() >= FOLD + whole_step && data.len() <= BLOCK && data.len().is_multiple_of(LANE));
    // The vector part has one step more: the accumulators begin with data.
    let steps = (data.len() - FOLD) / whole_step;
    let each = steps * WORDS * 8;
    let (streams, vectors) = data.split_at(STREAMS * each);
    // What is left is short enough for the table of positions.
    let more = vectors.len() - (steps + 1) * FOLD >= FOLD;
    let (vectors, tail) = vectors.split_at((steps + 1 + usize::from(more)) * FOLD);
    // Independent of the data, so the CPU works them out beside the loop.
    let weights = Weights::new(std::array::from_fn(|i| data.len() - (i + 1) * each));

    let vector = |i: usize| {
        debug_assert!((i + 1) * VECTOR <= vectors.len());
        // SAFETY: `i` is below 4 * (steps + 1 + more), the number of vectors in `vectors`.
        unsafe { _mm512_loadu_si512(vectors.as_ptr().add(i * VECTOR).cast()) }
    };
    let word = |stream: usize, at: usize| {
        debug_assert!(stream * each + at + 8 <= streams.len());
        // SAFETY: `at` is a multiple of 8 below `each`, and there are `STREAMS` streams of `each` bytes.
        unsafe { streams.as_ptr().add(stream * each + at).cast::<u64>().read_unaligned() }
    };
    let mut crcs = [0; STREAMS];
    crcs[0] = u64::from(crc);
    let mut sums = [vector(0), vector(1), vector(2), vector(3)];
    let step = broadcast(FOLD_FACTORS);
    for k in 0..steps {
        for i in 0..const { if WORDS > 4 { WORDS } else { 4 } } {
            if let Some(sum) = sums.get_mut(i) {
                *sum = add_times(vector(4 * (k + 1) + i), *sum, step);
            }
            if i < WORDS {
                for (stream, crc) in crcs.iter_mut().enumerate() {
                    *crc = _mm_crc32_u64(*crc, word(stream, 8 * (k * WORDS + i)));
                }
            }
        }
    }

    if more {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = add_times(vector(4 * (steps + 1) + i), *sum, step);
        }
    }
    let tail_lanes = tail.len() / LANE;
    let mut sum = at_distance(sums, tail_lanes);
    let (whole, last) = tail.as_chunks::<VECTOR>();
    for (i, vector) in whole.iter().enumerate() {
        // SAFETY: `vector` is 64 readable bytes.
        let vector = unsafe { _mm512_loadu_si512(vector.as_ptr().cast()) };
        sum = add_times(sum, vector, positions(tail_lanes - 4 * i));
    }
    if !last.is_empty() {
        // SAFETY: the data ends 64 bytes after this address and is longer than that.
        let last_vector = unsafe {
            _mm512_maskz_loadu_epi8(!(!0 >> last.len()), data.as_ptr().add(data.len() - VECTOR).cast())
        };
        sum = add_times(sum, last_vector, positions(4));
    }

    reduce_lane(add_lanes(weights.add_products(sum, crcs)))
}

/// Powers of x for the registers of all streams, four to a vector: see `x86_64_clmul::Weight`.
struct Weights([__m512i; 2]);

impl Weights {
    /// For registers with so many bytes after them, multiples of 4 from 4 to 2^16.
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn new(bytes_after: [usize; STREAMS]) -> Weights {
        let (mut low, mut high) = ([[0u64; 2]; 8], [[0u64; 2]; 8]);
        for (i, bytes) in bytes_after.iter().enumerate() {
            let (factor, other) = WINDOWS.short::<false>(8 * *bytes as u64 - 1);
            (low[i][0], high[i][0]) = (factor.into(), other.into());
        }
        // SAFETY: four pairs begin at 0 and at 4 in arrays of eight.
        let load =
            |pairs: &[[u64; 2]; 8], i: usize| unsafe { _mm512_loadu_si512(pairs[4 * i..].as_ptr().cast()) };
        Weights([0, 1].map(|i| _mm512_clmulepi64_epi128::<0x00>(load(&low, i), load(&high, i))))
    }

    /// `sum` and the lanes that stand for the registers.
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn add_products(&self, sum: __m512i, crcs: [u64; STREAMS]) -> __m512i {
        // The exponent's lowest five bits are ones, as the bytes are multiples of 4 and 1 was taken off: of a
        // register in the upper half of a word, that shift by 31 leaves 1 to the left.
        let word = |i: usize| crcs.get(i).map_or(0, |crc| crc << 1) as i64;
        let first = _mm512_set_epi64(0, word(3), 0, word(2), 0, word(1), 0, word(0));
        let last = _mm512_set_epi64(0, word(7), 0, word(6), 0, word(5), 0, word(4));
        let first = _mm512_clmulepi64_epi128::<0x00>(first, self.0[0]);
        let last = _mm512_clmulepi64_epi128::<0x00>(last, self.0[1]);
        _mm512_ternarylogic_epi64::<0x96>(sum, first, last)
    }
}

/// The sum of four accumulators, the last of which is followed by so many lanes, with each lane moved to the end.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn at_distance(sums: [__m512i; 4], lanes_after: usize) -> __m512i {
    let moved = |i: usize| times(sums[i], positions(lanes_after + 16 - 4 * i));
    _mm512_xor_si512(_mm512_xor_si512(moved(0), moved(1)), _mm512_xor_si512(moved(2), moved(3)))
}

/// The factors of four lanes, given how many lanes there are from the first of them to the end.
#[inline]
#[target_feature(enable = "avx512f")]
fn positions(lanes: usize) -> __m512i {
    assert!((4..=LANES).contains(&lanes));
    // SAFETY: four of the table's lanes begin at `LANES - lanes`.
    unsafe { _mm512_loadu_si512(POSITIONS.0.as_ptr().add(LANES - lanes).cast()) }
}

/// The factors for four lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn broadcast([first, last]: Factors) -> __m512i {
    let (first, last) = (first as i64, last as i64);
    _mm512_set_epi64(last, first, last, first, last, first, last, first)
}

/// Each lane of `lanes` times its factors.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn times(lanes: __m512i, factors: __m512i) -> __m512i {
    add_times(_mm512_setzero_si512(), lanes, factors)
}

/// `sum` and each lane of `lanes` times its factors.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn add_times(sum: __m512i, lanes: __m512i, factors: __m512i) -> __m512i {
    let first = _mm512_clmulepi64_epi128::<0x00>(lanes, factors);
    let last = _mm512_clmulepi64_epi128::<0x11>(lanes, factors);
    _mm512_ternarylogic_epi64::<0x96>(sum, first, last)
}

/// The sum of four lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn add_lanes(sum: __m512i) -> __m128i {
    let half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum));
    _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half))
}
