//! AVX-512 with GFNI: a product with a constant is one affine map of 64 bytes.
//!
//! The register cells of 64 neighbouring codewords (a strip) stay in up to 24 vector registers while all
//! given rows pass through them, two rows a step: then each cell takes its two products in one three-way XOR.
//! With 24 parity symbols a row costs 13 products and about 13 XORs per 64 bytes.

use core::arch::x86_64::*;

use super::code::Code;
use super::field::AFFINE;
use super::{Block, for_halves, with_roots};

/// How many bytes of a row ahead of the strip at work are fetched into the cache.
const PREFETCH: usize = 4 * 64;

/// See [`super::Backend::absorb`].
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn absorb(code: &Code, state: &mut [Block], rows: &[&[u8]], first: usize) {
    with_roots!(code.roots, absorb_rows(code, state, rows, first))
}

/// See [`super::Backend::finish`].
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn finish(code: &Code, state: &mut [Block], out: &mut [u8]) {
    with_roots!(code.roots, finish_strips(code, state, out))
}

/// See [`super::Backend::multiply_add`].
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn multiply_add(factor: u8, src: &[u8], dst: &mut [u8]) {
    let matrix = constant(factor);
    let (src, src_tail) = src.as_chunks::<64>();
    let (dst, dst_tail) = dst.as_chunks_mut::<64>();
    for (src, dst) in src.iter().zip(dst) {
        let sum = _mm512_xor_si512(load(dst), times(load(src), matrix));
        store(dst, sum);
    }
    if !src_tail.is_empty() {
        let mut block = [0; 64];
        block[..src_tail.len()].copy_from_slice(src_tail);
        let product = times(load(&block), matrix);
        store(&mut block, product);
        dst_tail.iter_mut().zip(block).for_each(|(dst, product)| *dst ^= product);
    }
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn absorb_rows<const R: usize>(code: &Code, state: &mut [Block], rows: &[&[u8]], first: usize) {
    let Some(width) = rows.first().map(|row| row.len()) else { return };
    assert!(rows.iter().all(|row| row.len() == width), "rows must have the same width");
    let h: [__m512i; R] = std::array::from_fn(|i| constant(code.feedback[i]));
    let whole = width / 64;
    let (state, tail) = state.split_at_mut(whole * R);
    let (strips, _) = state.as_chunks_mut::<R>();
    let factors = &code.input[first..][..rows.len()];
    let whole_strip = |row: &[u8], strip: usize| {
        debug_assert!(row.len() >= 64 * strip + 64);
        // Dozens of rows advance by one cache line each, which is more streams than the hardware follows.
        _mm_prefetch::<_MM_HINT_T0>(row.as_ptr().wrapping_add(64 * strip + PREFETCH).cast());
        // SAFETY: every row is `width` bytes, by the assertion above, and strips below width/64 are asked for.
        load(unsafe { row.as_ptr().add(64 * strip).cast::<[u8; 64]>().as_ref().unwrap_unchecked() })
    };
    // With few cells a strip's chain of dependent products leaves the units idle: run several at once.
    let mut done = 0;
    if R <= 6 {
        let (groups, _) = strips.as_chunks_mut::<4>();
        for group in groups {
            absorb_strips::<R, 4>(group, rows, factors, &h, |row, strip| whole_strip(row, done + strip));
            done += 4;
        }
    }
    if R <= 12 {
        let (groups, _) = strips[done..].as_chunks_mut::<2>();
        for group in groups {
            absorb_strips::<R, 2>(group, rows, factors, &h, |row, strip| whole_strip(row, done + strip));
            done += 2;
        }
    }
    for strip in &mut strips[done..] {
        let strip = std::array::from_mut(strip);
        absorb_strips::<R, 1>(strip, rows, factors, &h, |row, _| whole_strip(row, done));
        done += 1;
    }
    if let (Some(strip), rest @ 1..) = (tail.first_chunk_mut::<R>(), width % 64) {
        let mask = (1 << rest) - 1;
        let strip = std::array::from_mut(strip);
        absorb_strips::<R, 1>(strip, rows, factors, &h, |row, _| load_masked(&row[whole * 64..], mask));
    }
}

/// Sends all rows through `N` neighbouring strips; `load(row, n)` gives a row's symbols for strip n.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn absorb_strips<const R: usize, const N: usize>(
    strips: &mut [[Block; R]; N],
    rows: &[&[u8]],
    factors: &[u8],
    h: &[__m512i; R],
    load_symbols: impl Fn(&[u8], usize) -> __m512i,
) {
    let scaled = |row: &[u8], factor: u8, strip: usize| times(load_symbols(row, strip), constant(factor));
    let mut s = [[_mm512_setzero_si512(); R]; N];
    for (s, strip) in s.iter_mut().zip(strips.iter()) {
        *s = std::array::from_fn(|m| load(&strip[m].0));
    }
    // A step moves the cells by two places. Eight rows are written out, so that the compiler need not move
    // them between registers in every step.
    let (eights, rows) = rows.as_chunks::<8>();
    let (eight_factors, factors) = factors.as_chunks::<8>();
    for (row, factor) in eights.iter().zip(eight_factors) {
        let mut step = |i: usize| {
            for (n, s) in s.iter_mut().enumerate() {
                *s = step_two(*s, h, [scaled(row[i], factor[i], n), scaled(row[i + 1], factor[i + 1], n)]);
            }
        };
        step(0);
        step(2);
        step(4);
        step(6);
    }
    for (row, factor) in rows.iter().zip(factors) {
        for (n, s) in s.iter_mut().enumerate() {
            *s = step_one(*s, h, scaled(row, *factor, n));
        }
    }
    for (s, strip) in s.iter().zip(strips.iter_mut()) {
        for (s, cell) in s.iter().zip(strip) {
            store(&mut cell.0, *s);
        }
    }
}

/// Scales the cells to parity symbols and writes them codeword after codeword.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn finish_strips<const R: usize>(code: &Code, state: &[Block], out: &mut [u8]) {
    let (strips, _) = state.as_chunks::<R>();
    for (strip, out) in strips.iter().zip(out.chunks_mut(64 * R)) {
        let (codewords, _) = out.as_chunks_mut::<R>();
        for first in (0..R).step_by(8) {
            let cell = |m: usize| match strip.get(m) {
                Some(cell) => times(load(&cell.0), constant(code.output[m])),
                None => _mm512_setzero_si512(),
            };
            let words = transpose(std::array::from_fn(|m| cell(first + m)));
            let count = (R - first).min(8);
            for (column, codeword) in codewords.iter_mut().enumerate() {
                let word = words[column / 2 % 8 * 8 + column / 16 * 2 + column % 2];
                codeword[first..first + count].copy_from_slice(&word.to_le_bytes()[..count]);
            }
        }
    }
}

/// Gathers the 8 cells of each of 64 columns in a word, little-endian.
///
/// The unpacking works within 16 columns, so column 16a + 2b + c comes out as word 8b + 2a + c.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn transpose(cells: [__m512i; 8]) -> [u64; 64] {
    let pair = |i: usize| {
        let (even, odd) = (cells[2 * i], cells[2 * i + 1]);
        [_mm512_unpacklo_epi8(even, odd), _mm512_unpackhi_epi8(even, odd)]
    };
    let pairs: [[__m512i; 2]; 4] = std::array::from_fn(pair);
    let mut words = [[0; 64]; 8];
    for half in 0..2 {
        let [one, two, three, four] = pairs.map(|pair| pair[half]);
        let left = [_mm512_unpacklo_epi16(one, two), _mm512_unpackhi_epi16(one, two)];
        let right = [_mm512_unpacklo_epi16(three, four), _mm512_unpackhi_epi16(three, four)];
        for i in 0..2 {
            store(&mut words[4 * half + 2 * i], _mm512_unpacklo_epi32(left[i], right[i]));
            store(&mut words[4 * half + 2 * i + 1], _mm512_unpackhi_epi32(left[i], right[i]));
        }
    }
    let (words, _) = words.as_flattened().as_chunks::<8>();
    std::array::from_fn(|i| u64::from_le_bytes(words[i]))
}

/// One scaled symbol into the register.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn step_one<const R: usize>(s: [__m512i; R], h: &[__m512i; R], symbol: __m512i) -> [__m512i; R] {
    let f = _mm512_xor_si512(symbol, s[0]);
    let mut next = [f; R];
    for_halves!(i, R, {
        let product = times(f, h[i]);
        next[i - 1] = _mm512_xor_si512(s[i], product);
        next[R - 1 - i] = _mm512_xor_si512(s[R - i], product);
    });
    next
}

/// Two scaled symbols into the register: [`step_one`] twice, written out so that each cell needs one XOR.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
#[expect(unused_assignments, reason = "the last of the written-out blocks prepares one more")]
fn step_two<const R: usize>(s: [__m512i; R], h: &[__m512i; R], [one, two]: [__m512i; 2]) -> [__m512i; R] {
    let f1 = _mm512_xor_si512(one, s[0]);
    let mut a = times(f1, h[1]);
    let f2 = xor3(two, s[1], a);
    // The products of f2 with h[i-1], h[i] and h[i+1]; h[0] is 1.
    let mut before = f2;
    let mut b = times(f2, h[1]);
    let mut next = [f2; R];
    next[R - 2] = _mm512_xor_si512(f1, b);
    for_halves!(i, R, {
        // h[R-i] = h[i], so the middle one's follower is its predecessor or itself.
        let after = match i + 1 {
            j if j <= R / 2 => times(f2, h[j]),
            j if j == R - i => b,
            _ => before,
        };
        if i >= 2 {
            next[i - 2] = xor3(s[i], a, before);
        }
        // With an even R the middle cell was the one above.
        if R - i >= 2 && 2 * i != R {
            next[R - 2 - i] = xor3(s[R - i], a, after);
        }
        before = b;
        b = after;
        if i < R / 2 {
            a = times(f1, h[i + 1]);
        }
    });
    next
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn times(symbols: __m512i, matrix: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(symbols, matrix)
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn constant(factor: u8) -> __m512i {
    _mm512_set1_epi64(AFFINE[usize::from(factor)] as i64)
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: `bytes` is 64 readable bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// The first bytes of `bytes`, as many as `mask` has low ones, and zeros behind them.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn load_masked(bytes: &[u8], mask: u64) -> __m512i {
    assert!(64 - mask.leading_zeros() as usize <= bytes.len());
    // SAFETY: the bytes that the mask selects lie in `bytes`, by the line above; others are not touched.
    unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn store(bytes: &mut [u8; 64], symbols: __m512i) {
    // SAFETY: `bytes` is 64 writable bytes; the store needs no alignment.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), symbols) }
}
