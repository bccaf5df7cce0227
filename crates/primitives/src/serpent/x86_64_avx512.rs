//! Serpent with AVX-512: sixteen blocks to a register, in two sets whose instructions fill each other's gaps.

use std::arch::x86_64::*;

use zeroize::Zeroize;

use super::RoundKeys;
use super::rounds::rounds;

const BLOCKS: usize = 32;

#[derive(Clone, Copy)]
struct Vector(__m512i, __m512i);

rounds!(#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]);

#[target_feature(enable = "avx512f")]
#[inline]
fn and(a: Vector, b: Vector) -> Vector {
    Vector(_mm512_and_si512(a.0, b.0), _mm512_and_si512(a.1, b.1))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn or(a: Vector, b: Vector) -> Vector {
    Vector(_mm512_or_si512(a.0, b.0), _mm512_or_si512(a.1, b.1))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    Vector(_mm512_xor_si512(a.0, b.0), _mm512_xor_si512(a.1, b.1))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn not(a: Vector) -> Vector {
    xor(a, Vector(_mm512_set1_epi32(-1), _mm512_set1_epi32(-1)))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn and_not(a: Vector, b: Vector) -> Vector {
    Vector(_mm512_andnot_si512(b.0, a.0), _mm512_andnot_si512(b.1, a.1))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn rotate_left<const N: i32>(a: Vector) -> Vector {
    Vector(_mm512_rol_epi32::<N>(a.0), _mm512_rol_epi32::<N>(a.1))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn shift_left<const N: u32>(a: Vector) -> Vector {
    Vector(_mm512_slli_epi32::<N>(a.0), _mm512_slli_epi32::<N>(a.1))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn splat(word: u32) -> Vector {
    let word = _mm512_set1_epi32(word.cast_signed());
    Vector(word, word)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(blocks: &[[u8; 16]; BLOCKS]) -> State {
    // SAFETY: half of the blocks are four registers.
    let half = |first: usize| unsafe {
        let at = blocks.as_ptr().add(first).cast::<__m512i>();
        transpose([0, 1, 2, 3].map(|i| _mm512_loadu_si512(at.add(i))))
    };
    let ([a, b, c, d], [e, f, g, h]) = (half(0), half(BLOCKS / 2));
    [Vector(a, e), Vector(b, f), Vector(c, g), Vector(d, h)]
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(state: State, blocks: &mut [[u8; 16]; BLOCKS]) {
    let halves = [state.map(|vector| vector.0), state.map(|vector| vector.1)];
    for (blocks, half) in blocks.as_chunks_mut::<{ BLOCKS / 2 }>().0.iter_mut().zip(halves) {
        let at = blocks.as_mut_ptr().cast::<__m512i>();
        for (i, row) in transpose(half).into_iter().enumerate() {
            // SAFETY: half of the blocks are four registers.
            unsafe { _mm512_storeu_si512(at.add(i), row) };
        }
    }
}

/// Exchanges rows and columns of the four words in each 128 bits. It is its own inverse.
#[target_feature(enable = "avx512f")]
#[inline]
fn transpose([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (low, high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (low_2, high_2) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(low, low_2),
        _mm512_unpackhi_epi64(low, low_2),
        _mm512_unpacklo_epi64(high, high_2),
        _mm512_unpackhi_epi64(high, high_2),
    ]
}
