//! Serpent with AVX2: eight blocks to a register, in two sets whose instructions fill each other's gaps.

use std::arch::x86_64::*;

use zeroize::Zeroize;

use super::RoundKeys;
use super::rounds::rounds;

const BLOCKS: usize = 16;

#[derive(Clone, Copy)]
struct Vector(__m256i, __m256i);

rounds!(#[target_feature(enable = "avx2")]);

#[target_feature(enable = "avx2")]
#[inline]
fn and(a: Vector, b: Vector) -> Vector {
    Vector(_mm256_and_si256(a.0, b.0), _mm256_and_si256(a.1, b.1))
}

#[target_feature(enable = "avx2")]
#[inline]
fn or(a: Vector, b: Vector) -> Vector {
    Vector(_mm256_or_si256(a.0, b.0), _mm256_or_si256(a.1, b.1))
}

#[target_feature(enable = "avx2")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    Vector(_mm256_xor_si256(a.0, b.0), _mm256_xor_si256(a.1, b.1))
}

#[target_feature(enable = "avx2")]
#[inline]
fn not(a: Vector) -> Vector {
    xor(a, Vector(_mm256_set1_epi32(-1), _mm256_set1_epi32(-1)))
}

#[target_feature(enable = "avx2")]
#[inline]
fn and_not(a: Vector, b: Vector) -> Vector {
    Vector(_mm256_andnot_si256(b.0, a.0), _mm256_andnot_si256(b.1, a.1))
}

#[target_feature(enable = "avx2")]
#[inline]
fn rotate_left<const N: i32>(a: Vector) -> Vector {
    // OK to compute: every rotation is by 1 to 31 bits.
    let one = |a| {
        _mm256_or_si256(
            _mm256_sll_epi32(a, _mm_cvtsi32_si128(N)),
            _mm256_srl_epi32(a, _mm_cvtsi32_si128(32 - N)),
        )
    };
    Vector(one(a.0), one(a.1))
}

#[target_feature(enable = "avx2")]
#[inline]
fn shift_left<const N: i32>(a: Vector) -> Vector {
    Vector(_mm256_slli_epi32::<N>(a.0), _mm256_slli_epi32::<N>(a.1))
}

#[target_feature(enable = "avx2")]
#[inline]
fn splat(word: u32) -> Vector {
    let word = _mm256_set1_epi32(word.cast_signed());
    Vector(word, word)
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(blocks: &[[u8; 16]; BLOCKS]) -> State {
    // SAFETY: half of the blocks are four registers.
    let half = |first: usize| unsafe {
        let at = blocks.as_ptr().add(first).cast::<__m256i>();
        transpose([0, 1, 2, 3].map(|i| _mm256_loadu_si256(at.add(i))))
    };
    let ([a, b, c, d], [e, f, g, h]) = (half(0), half(BLOCKS / 2));
    [Vector(a, e), Vector(b, f), Vector(c, g), Vector(d, h)]
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(state: State, blocks: &mut [[u8; 16]; BLOCKS]) {
    let halves = [state.map(|vector| vector.0), state.map(|vector| vector.1)];
    for (blocks, half) in blocks.as_chunks_mut::<{ BLOCKS / 2 }>().0.iter_mut().zip(halves) {
        let at = blocks.as_mut_ptr().cast::<__m256i>();
        for (i, row) in transpose(half).into_iter().enumerate() {
            // SAFETY: half of the blocks are four registers.
            unsafe { _mm256_storeu_si256(at.add(i), row) };
        }
    }
}

/// Exchanges rows and columns of the four words in each 128 bits. It is its own inverse.
#[target_feature(enable = "avx2")]
#[inline]
fn transpose([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    let (low, high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (low_2, high_2) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    [
        _mm256_unpacklo_epi64(low, low_2),
        _mm256_unpackhi_epi64(low, low_2),
        _mm256_unpacklo_epi64(high, high_2),
        _mm256_unpackhi_epi64(high, high_2),
    ]
}
