//! AArch64 SIMD: a product with a constant is two look-ups in 16 bytes (`tbl`), one for each half of a byte.
//!
//! The register cells of 16 neighbouring codewords (a quarter of a strip) pass all given rows before they go
//! back to memory.

use core::arch::aarch64::*;

use super::code::Code;
use super::field::NIBBLES;
use super::{Block, for_halves, transpose, with_roots};

/// The products of a constant with the 16 low halves of bytes, and with the 16 high ones.
type Factor = (uint8x16_t, uint8x16_t);

/// See [`super::Backend::absorb`].
#[target_feature(enable = "neon")]
pub(super) fn absorb(code: &Code, state: &mut [Block], rows: &[&[u8]], first: usize) {
    with_roots!(code.roots, absorb_rows(code, state, rows, first))
}

/// See [`super::Backend::finish`].
#[target_feature(enable = "neon")]
pub(super) fn finish(code: &Code, state: &mut [Block], out: &mut [u8]) {
    for strip in state.chunks_exact_mut(code.roots) {
        for (cell, factor) in strip.iter_mut().zip(code.output) {
            let (quarters, _) = cell.0.as_chunks_mut::<16>();
            quarters.iter_mut().for_each(|quarter| store(quarter, times(load(quarter), constant(factor))));
        }
    }
    transpose::to_codewords(code.roots, state, out);
}

/// See [`super::Backend::multiply_add`].
#[target_feature(enable = "neon")]
pub(super) fn multiply_add(factor: u8, src: &[u8], dst: &mut [u8]) {
    let factor = constant(factor);
    let (src, src_tail) = src.as_chunks::<16>();
    let (dst, dst_tail) = dst.as_chunks_mut::<16>();
    for (src, dst) in src.iter().zip(dst) {
        let sum = veorq_u8(load(dst), times(load(src), factor));
        store(dst, sum);
    }
    let mut block = [0; 16];
    block[..src_tail.len()].copy_from_slice(src_tail);
    let product = times(load(&block), factor);
    store(&mut block, product);
    dst_tail.iter_mut().zip(block).for_each(|(dst, product)| *dst ^= product);
}

#[target_feature(enable = "neon")]
fn absorb_rows<const R: usize>(code: &Code, state: &mut [Block], rows: &[&[u8]], first: usize) {
    let (strips, _) = state.as_chunks_mut::<R>();
    let factors = &code.input[first..][..rows.len()];
    let mut h = [constant(0); 13];
    h[1..].iter_mut().zip(&code.feedback[1..]).for_each(|(h, factor)| *h = constant(*factor));
    for (index, strip) in strips.iter_mut().enumerate() {
        for quarter in 0..4 {
            let column = 64 * index + 16 * quarter;
            let mut s: [uint8x16_t; R] = std::array::from_fn(|m| load(quarter_of(&strip[m], quarter)));
            for (row, factor) in rows.iter().zip(factors) {
                let symbols = match row.get(column..).and_then(|rest| rest.first_chunk()) {
                    Some(symbols) => load(symbols),
                    None => {
                        let rest = row.get(column..).unwrap_or_default();
                        let mut symbols = [0; 16];
                        symbols[..rest.len()].copy_from_slice(rest);
                        load(&symbols)
                    }
                };
                s = step(s, &h, times(symbols, constant(*factor)));
            }
            for (cell, s) in strip.iter_mut().zip(s) {
                store(quarter_of_mut(cell, quarter), s);
            }
        }
    }
}

/// One scaled symbol into the register.
#[target_feature(enable = "neon")]
#[inline]
fn step<const R: usize>(s: [uint8x16_t; R], h: &[Factor; 13], symbol: uint8x16_t) -> [uint8x16_t; R] {
    let f = veorq_u8(symbol, s[0]);
    let halves = halves(f);
    let mut next = [f; R];
    for_halves!(i, R, {
        let product = look_up(halves, h[i]);
        next[i - 1] = veorq_u8(s[i], product);
        next[R - 1 - i] = veorq_u8(s[R - i], product);
    });
    next
}

#[target_feature(enable = "neon")]
#[inline]
fn times(symbols: uint8x16_t, factor: Factor) -> uint8x16_t {
    look_up(halves(symbols), factor)
}

/// The low and the high four bits of each byte.
#[target_feature(enable = "neon")]
#[inline]
fn halves(symbols: uint8x16_t) -> (uint8x16_t, uint8x16_t) {
    (vandq_u8(symbols, vdupq_n_u8(15)), vshrq_n_u8::<4>(symbols))
}

#[target_feature(enable = "neon")]
#[inline]
fn look_up((low, high): (uint8x16_t, uint8x16_t), factor: Factor) -> uint8x16_t {
    veorq_u8(vqtbl1q_u8(factor.0, low), vqtbl1q_u8(factor.1, high))
}

#[target_feature(enable = "neon")]
#[inline]
fn constant(factor: u8) -> Factor {
    let (tables, _) = NIBBLES[usize::from(factor)].as_chunks();
    (load(&tables[0]), load(&tables[1]))
}

fn quarter_of(block: &Block, quarter: usize) -> &[u8; 16] {
    &block.0.as_chunks().0[quarter]
}

fn quarter_of_mut(block: &mut Block, quarter: usize) -> &mut [u8; 16] {
    &mut block.0.as_chunks_mut().0[quarter]
}

#[target_feature(enable = "neon")]
#[inline]
fn load(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: `bytes` is 16 readable bytes; the load needs no alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[target_feature(enable = "neon")]
#[inline]
fn store(bytes: &mut [u8; 16], symbols: uint8x16_t) {
    // SAFETY: `bytes` is 16 writable bytes; the store needs no alignment.
    unsafe { vst1q_u8(bytes.as_mut_ptr(), symbols) }
}
