//! AVX2: a product with a constant is two look-ups in 16 bytes (`vpshufb`), one for each half of a byte.
//!
//! The register cells of 32 neighbouring codewords (half a strip) pass all given rows before they go back to
//! memory. 24 of them do not fit in 16 vector registers, so the cells live in the first-level cache; their
//! way through it takes about as long as the look-ups.

use core::arch::x86_64::*;

use super::code::Code;
use super::field::NIBBLES;
use super::{Block, for_halves, transpose, with_roots};

/// The products of a constant with the 16 low halves of bytes and with the 16 high ones, both of them twice.
type Factor = (__m256i, __m256i);

/// See [`super::Backend::absorb`].
#[target_feature(enable = "avx2")]
pub(super) fn absorb(code: &Code, state: &mut [Block], rows: &[&[u8]], first: usize) {
    with_roots!(code.roots, absorb_rows(code, state, rows, first))
}

/// See [`super::Backend::finish`].
#[target_feature(enable = "avx2")]
pub(super) fn finish(code: &Code, state: &mut [Block], out: &mut [u8]) {
    for strip in state.chunks_exact_mut(code.roots) {
        for (cell, factor) in strip.iter_mut().zip(code.output) {
            let (halves, _) = cell.0.as_chunks_mut::<32>();
            halves.iter_mut().for_each(|half| store(half, times(load(half), constant(factor))));
        }
    }
    transpose::to_codewords(code.roots, state, out);
}

/// See [`super::Backend::multiply_add`].
#[target_feature(enable = "avx2")]
pub(super) fn multiply_add(factor: u8, src: &[u8], dst: &mut [u8]) {
    let factor = constant(factor);
    let (src, src_tail) = src.as_chunks::<32>();
    let (dst, dst_tail) = dst.as_chunks_mut::<32>();
    for (src, dst) in src.iter().zip(dst) {
        let sum = _mm256_xor_si256(load(dst), times(load(src), factor));
        store(dst, sum);
    }
    let mut block = [0; 32];
    block[..src_tail.len()].copy_from_slice(src_tail);
    let product = times(load(&block), factor);
    store(&mut block, product);
    dst_tail.iter_mut().zip(block).for_each(|(dst, product)| *dst ^= product);
}

#[target_feature(enable = "avx2")]
fn absorb_rows<const R: usize>(code: &Code, state: &mut [Block], rows: &[&[u8]], first: usize) {
    let (strips, _) = state.as_chunks_mut::<R>();
    let factors = &code.input[first..][..rows.len()];
    let mut h = [constant(0); 13];
    h[1..].iter_mut().zip(&code.feedback[1..]).for_each(|(h, factor)| *h = constant(*factor));
    for (index, strip) in strips.iter_mut().enumerate() {
        for half in 0..2 {
            let column = 64 * index + 32 * half;
            let mut s: [__m256i; R] = std::array::from_fn(|m| load(half_of(&strip[m], half)));
            for (row, factor) in rows.iter().zip(factors) {
                let symbols = match row.get(column..).and_then(|rest| rest.first_chunk()) {
                    Some(symbols) => load(symbols),
                    None => {
                        let rest = row.get(column..).unwrap_or_default();
                        let mut symbols = [0; 32];
                        symbols[..rest.len()].copy_from_slice(rest);
                        load(&symbols)
                    }
                };
                s = step(s, &h, times(symbols, constant(*factor)));
            }
            for (cell, s) in strip.iter_mut().zip(s) {
                store(half_of_mut(cell, half), s);
            }
        }
    }
}

/// One scaled symbol into the register.
#[target_feature(enable = "avx2")]
#[inline]
fn step<const R: usize>(s: [__m256i; R], h: &[Factor; 13], symbol: __m256i) -> [__m256i; R] {
    let f = _mm256_xor_si256(symbol, s[0]);
    let halves = halves(f);
    let mut next = [f; R];
    for_halves!(i, R, {
        let product = look_up(halves, h[i]);
        next[i - 1] = _mm256_xor_si256(s[i], product);
        next[R - 1 - i] = _mm256_xor_si256(s[R - i], product);
    });
    next
}

#[target_feature(enable = "avx2")]
#[inline]
fn times(symbols: __m256i, factor: Factor) -> __m256i {
    look_up(halves(symbols), factor)
}

/// The low and the high four bits of each byte.
#[target_feature(enable = "avx2")]
#[inline]
fn halves(symbols: __m256i) -> (__m256i, __m256i) {
    let mask = _mm256_set1_epi8(15);
    (_mm256_and_si256(symbols, mask), _mm256_and_si256(_mm256_srli_epi64::<4>(symbols), mask))
}

#[target_feature(enable = "avx2")]
#[inline]
fn look_up((low, high): (__m256i, __m256i), factor: Factor) -> __m256i {
    _mm256_xor_si256(_mm256_shuffle_epi8(factor.0, low), _mm256_shuffle_epi8(factor.1, high))
}

#[target_feature(enable = "avx2")]
#[inline]
fn constant(factor: u8) -> Factor {
    let both = load(&NIBBLES[usize::from(factor)]);
    (_mm256_permute2x128_si256::<0x00>(both, both), _mm256_permute2x128_si256::<0x11>(both, both))
}

fn half_of(block: &Block, half: usize) -> &[u8; 32] {
    &block.0.as_chunks().0[half]
}

fn half_of_mut(block: &mut Block, half: usize) -> &mut [u8; 32] {
    &mut block.0.as_chunks_mut().0[half]
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: `bytes` is 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(bytes: &mut [u8; 32], symbols: __m256i) {
    // SAFETY: `bytes` is 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), symbols) }
}
