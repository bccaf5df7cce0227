//! Argon2's function in 256-bit registers: two rounds at a time, each on four of them.

use core::arch::x86_64::*;

use super::Block;

/// Four registers of a block's words, twice: a, b, c and d of two rounds.
type Pair = [__m256i; 2];

/// Makes a block of its parents.
#[target_feature(enable = "avx2")]
pub(super) fn fill(a: &Block, b: &Block, to: &mut Block) {
    make::<false>(a, b, to);
}

/// Adds what the parents make to a block.
#[target_feature(enable = "avx2")]
pub(super) fn add(a: &Block, b: &Block, to: &mut Block) {
    make::<true>(a, b, to);
}

/// Has a block's cache lines fetched.
pub(super) fn expect(block: &Block) {
    for line in block.0.as_chunks::<8>().0 {
        // SAFETY: every CPU of x86-64 has the instruction, and it takes any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn make<const ADD: bool>(a: &Block, b: &Block, to: &mut Block) {
    let [a, b] = [a, b].map(|block| block.0.as_chunks::<4>().0);
    let to = to.0.as_chunks_mut::<4>().0;
    let mut z = [_mm256_setzero_si256(); 32];
    for i in 0..32 {
        z[i] = _mm256_xor_si256(load(&a[i]), load(&b[i]));
        // What is left to be added to it in the end.
        let left = if ADD { _mm256_xor_si256(z[i], load(&to[i])) } else { z[i] };
        store(&mut to[i], left);
    }
    for rows in z.as_chunks_mut::<8>().0 {
        let [a0, b0, c0, d0, a1, b1, c1, d1] = *rows;
        let (mut a, mut b, mut c, mut d) = ([a0, a1], [b0, b1], [c0, c1], [d0, d1]);
        half(&mut a, &mut b, &mut c, &mut d);
        turn::<0b00_11_10_01>(&mut b);
        turn::<0b01_00_11_10>(&mut c);
        turn::<0b10_01_00_11>(&mut d);
        half(&mut a, &mut b, &mut c, &mut d);
        turn::<0b10_01_00_11>(&mut b);
        turn::<0b01_00_11_10>(&mut c);
        turn::<0b00_11_10_01>(&mut d);
        *rows = [a[0], b[0], c[0], d[0], a[1], b[1], c[1], d[1]];
    }
    // A register has two words of two columns; a round's first words lie in rows 0 and 1, and so on.
    for k in 0..4 {
        let at = |row: usize| k + 4 * row;
        let (mut a, mut b) = ([z[at(0)], z[at(1)]], [z[at(2)], z[at(3)]]);
        let (mut c, mut d) = ([z[at(4)], z[at(5)]], [z[at(6)], z[at(7)]]);
        half(&mut a, &mut b, &mut c, &mut d);
        (b, c, d) = (next(b[0], b[1]), [c[1], c[0]], next(d[1], d[0]));
        half(&mut a, &mut b, &mut c, &mut d);
        // The other way round.
        (b, c, d) = (next(b[1], b[0]), [c[1], c[0]], next(d[0], d[1]));
        for (row, words) in [a, b, c, d].as_flattened().iter().enumerate() {
            let sum = _mm256_xor_si256(load(&to[at(row)]), *words);
            store(&mut to[at(row)], sum);
        }
    }
}

/// Half a round: each word of `a` with those of `b`, `c` and `d` in the same place.
#[inline]
#[target_feature(enable = "avx2")]
fn half(a: &mut Pair, b: &mut Pair, c: &mut Pair, d: &mut Pair) {
    for i in 0..2 {
        a[i] = sum(a[i], b[i]);
        d[i] = _mm256_shuffle_epi32::<0b10_11_00_01>(_mm256_xor_si256(d[i], a[i]));
        c[i] = sum(c[i], d[i]);
        b[i] = right_24(_mm256_xor_si256(b[i], c[i]));
    }
    for i in 0..2 {
        a[i] = sum(a[i], b[i]);
        d[i] = right_16(_mm256_xor_si256(d[i], a[i]));
        c[i] = sum(c[i], d[i]);
        b[i] = right_63(_mm256_xor_si256(b[i], c[i]));
    }
}

/// The sum, and twice the product of the lower halves.
#[inline]
#[target_feature(enable = "avx2")]
fn sum(a: __m256i, b: __m256i) -> __m256i {
    let product = _mm256_mul_epu32(a, b);
    _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(product, product))
}

#[inline]
#[target_feature(enable = "avx2")]
fn right_24(v: __m256i) -> __m256i {
    let low = _mm_setr_epi8(3, 4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10);
    _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(low))
}

#[inline]
#[target_feature(enable = "avx2")]
fn right_16(v: __m256i) -> __m256i {
    let low = _mm_setr_epi8(2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9);
    _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(low))
}

#[inline]
#[target_feature(enable = "avx2")]
fn right_63(v: __m256i) -> __m256i {
    _mm256_xor_si256(_mm256_srli_epi64::<63>(v), _mm256_add_epi64(v, v))
}

#[inline]
#[target_feature(enable = "avx2")]
fn turn<const ORDER: i32>(pair: &mut Pair) {
    *pair = pair.map(|v| _mm256_permute4x64_epi64::<ORDER>(v));
}

/// The words one further in the run of `a` and `b`, in each half: the upper of `a` and the lower of `b`, and the reverse.
#[inline]
#[target_feature(enable = "avx2")]
fn next(a: __m256i, b: __m256i) -> Pair {
    [_mm256_alignr_epi8::<8>(b, a), _mm256_alignr_epi8::<8>(a, b)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(words: &[u64; 4]) -> __m256i {
    // SAFETY: four words are 32 readable bytes.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(words: &mut [u64; 4], v: __m256i) {
    // SAFETY: four words are 32 writable bytes.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), v) };
}
