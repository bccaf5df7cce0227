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
use super::portable::parity_repair;
use super::windows::WINDOWS;
use super::x86_64_clmul::{reduce_lane, shift, splice_short};
use super::x86_64_sse42::chain;

const LANE: usize = 16;
const VECTOR: usize = 64;

/// Below this, a chain of `crc32` takes no longer than the reduction of a vector: for 96 bytes 4 ns against 6
/// where calls overlap, 8 against 9 where each waits for the last.
const CHAIN_BELOW: usize = 128;

/// The same for a difference, which has two loads a word and whose vector way has no head.
const CHAIN_DIFFERENCE_BELOW: usize = 96;

/// What one step of the vector part takes: four vectors.
const FOLD: usize = 4 * VECTOR;

/// The factors that carry an accumulator over one step.
const FOLD_FACTORS: Factors = factors(8 * FOLD as i64);

/// How many streams go through `crc32` beside the vectors.
const STREAMS: usize = 6;

/// What one step takes from each stream.
const STREAM_STEP: usize = 40;

/// What one step takes altogether.
const STEP: usize = FOLD + STREAMS * STREAM_STEP;

const _: () =
    assert!((STREAMS * STREAM_STEP).is_multiple_of(LANE), "the vector part and the tail are whole lanes");

/// Below this, joining the streams costs more than they bring.
const HYBRID_FROM: usize = 2048;

/// The longest block that is cut in two: nothing in it is moved farther than two windows reach.
const BLOCK: usize = 1 << 16;

/// The register after `data`, by vectors and `crc32` at once.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,sse4.2,popcnt")]
pub(super) fn update_hybrid(crc: u32, data: &[u8]) -> u32 {
    if data.len() < CHAIN_BELOW {
        return chain(crc, data);
    }
    if data.len() < HYBRID_FROM { vectors(crc, data) } else { blocks(crc, data) }
}

/// The register after `data`, by vectors alone.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,sse4.2,popcnt")]
pub(super) fn update(crc: u32, data: &[u8]) -> u32 {
    if data.len() < CHAIN_BELOW { chain(crc, data) } else { vectors(crc, data) }
}

/// What replacing `old` by `new`, of equal length and `after` bytes before the end, changes in the checksum.
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
    let (crc, lanes) = head(crc, data);
    reduce_lane(lane::<false>(crc, lanes, lanes))
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,sse4.2,popcnt")]
fn blocks(crc: u32, data: &[u8]) -> u32 {
    let (mut crc, mut lanes) = head(crc, data);
    while lanes.len() >= FOLD + STEP {
        let (block, rest) = lanes.split_at(lanes.len().min(BLOCK));
        crc = hybrid(crc, block);
        lanes = rest;
    }
    if lanes.is_empty() { crc } else { reduce_lane(lane::<false>(crc, lanes, lanes)) }
}

/// Takes the first bytes so that whole lanes are left.
#[inline]
#[target_feature(enable = "sse4.2")]
fn head(crc: u32, data: &[u8]) -> (u32, &[u8]) {
    let (head, lanes) = data.split_at(data.len() % LANE);
    (chain(crc, head), lanes)
}

/// The lane that stands for all of `data`, or with `DIFFERENCE` for its XOR with `other` of the same length.
///
/// `data` is not empty; it is whole lanes unless `crc`, the register before it, is 0: from register 0 leading
/// zero bytes change nothing, so the first vector may begin before the data, masked.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,sse4.2,popcnt")]
fn lane<const DIFFERENCE: bool>(crc: u32, data: &[u8], other: &[u8]) -> __m128i {
    assert!(data.len() == other.len() && !data.is_empty());
    let vectors = data.len().div_ceil(VECTOR);
    let missing = vectors * VECTOR - data.len();
    let load = |i: usize| {
        let at = i * VECTOR - missing;
        // SAFETY: vector `i`, not the first, is 64 bytes from `at` on and ends within both slices.
        unsafe {
            let vector = _mm512_loadu_si512(data.as_ptr().add(at).cast());
            if !DIFFERENCE {
                return vector;
            }
            _mm512_xor_si512(vector, _mm512_loadu_si512(other.as_ptr().add(at).cast()))
        }
    };
    let mask = !0 << missing;
    // SAFETY: the mask keeps the bytes before the slices from being read.
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
    if vectors <= LANES * LANE / VECTOR {
        let mut sum = times(first, positions(4 * vectors));
        for i in 1..vectors {
            sum = add_times(sum, load(i), positions(4 * (vectors - i)));
        }
        return add_lanes(sum);
    }
    let mut sums = [first, load(1), load(2), load(3)];
    let step = broadcast(FOLD_FACTORS);
    let mut next = 4;
    while next + 4 <= vectors {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = add_times(load(next + i), *sum, step);
        }
        next += 4;
    }
    let mut sum = at_distance(sums, 4 * (vectors - next));
    for i in next..vectors {
        sum = add_times(sum, load(i), positions(4 * (vectors - i)));
    }
    add_lanes(sum)
}

/// The register after `data`, whole lanes of at least one step and at most [`BLOCK`] bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,sse4.2,popcnt")]
fn hybrid(crc: u32, data: &[u8]) -> u32 {
    assert!(data.len() >= FOLD + STEP && data.len() <= BLOCK && data.len().is_multiple_of(LANE));
    // The vector part has one step more: the accumulators begin with data.
    let steps = (data.len() - FOLD) / STEP;
    let each = steps * STREAM_STEP;
    let (streams, vectors) = data.split_at(STREAMS * each);
    let (vectors, tail) = vectors.split_at((steps + 1) * FOLD);
    // Independent of the data, so the CPU works them out beside the loop.
    let weights = Weights::new(std::array::from_fn(|i| data.len() - (i + 1) * each));

    let vector = |i: usize| {
        debug_assert!((i + 1) * VECTOR <= vectors.len());
        // SAFETY: `i` is below 4 * (steps + 1), the number of vectors in `vectors`.
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
        for i in 0..STREAM_STEP / 8 {
            if let Some(sum) = sums.get_mut(i) {
                *sum = add_times(vector(4 * (k + 1) + i), *sum, step);
            }
            for (stream, crc) in crcs.iter_mut().enumerate() {
                *crc = _mm_crc32_u64(*crc, word(stream, k * STREAM_STEP + 8 * i));
            }
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

    let crcs = crcs.map(|crc| crc as u32);
    let parity = crcs.iter().fold(0, |sum, crc| sum ^ crc).count_ones() & 1;
    reduce_lane(add_lanes(weights.add_products(sum, crcs))) ^ parity_repair(parity)
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
            let (factor, other) = WINDOWS.short(8 * *bytes as u64 - 1);
            (low[i][0], high[i][0]) = (factor.into(), other.into());
        }
        // SAFETY: four pairs begin at 0 and at 4 in arrays of eight.
        let load =
            |pairs: &[[u64; 2]; 8], i: usize| unsafe { _mm512_loadu_si512(pairs[4 * i..].as_ptr().cast()) };
        Weights([0, 1].map(|i| _mm512_clmulepi64_epi128::<0x00>(load(&low, i), load(&high, i))))
    }

    /// `sum` and the lanes that stand for the registers, up to the parity that all registers have together.
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn add_products(&self, sum: __m512i, crcs: [u32; STREAMS]) -> __m512i {
        // Times x+1, against the factor 1/(x+1) of the tables. The exponent's lowest five bits are ones, as
        // the bytes are multiples of 4 and 1 was taken off: that shift by 31 is in it, too.
        let word = |i: usize| {
            let crc = crcs.get(i).map_or(0, |crc| u64::from(*crc));
            (crc << 1 ^ crc) as i64
        };
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

/// The same factors for four lanes.
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
