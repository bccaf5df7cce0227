//! Any CPU: one table look-up per message byte gives the feedback of the whole register.
//!
//! A codeword's register is up to three 64-bit words; a step shifts it by one byte and adds the table's
//! words. The strips hold the registers codeword after codeword, in the order in which parity is stored, and
//! unscaled (see `code.rs`).

use super::code::Code;
use super::field::NIBBLES;
use super::{Block, with_roots};

/// See [`super::Backend::absorb`].
pub(super) fn absorb(code: &Code, state: &mut [Block], rows: &[&[u8]], _first: usize) {
    with_roots!(code.roots, absorb_rows(code, state, rows))
}

/// See [`super::Backend::finish`].
pub(super) fn finish(code: &Code, state: &mut [Block], out: &mut [u8]) {
    for (strip, out) in state.chunks_exact(code.roots).zip(out.chunks_mut(64 * code.roots)) {
        for (cells, out) in strip.iter().zip(out.chunks_mut(64)) {
            out.copy_from_slice(&cells.0[..out.len()]);
        }
    }
}

/// See [`super::Backend::multiply_add`].
pub(super) fn multiply_add(factor: u8, src: &[u8], dst: &mut [u8]) {
    let (low, high) = NIBBLES[usize::from(factor)].split_at(16);
    for (src, dst) in src.iter().zip(dst) {
        *dst ^= low[usize::from(src & 15)] ^ high[usize::from(src >> 4)];
    }
}

fn absorb_rows<const R: usize>(code: &Code, state: &mut [Block], rows: &[&[u8]]) {
    let (strips, _) = state.as_chunks_mut::<R>();
    for (index, strip) in strips.iter_mut().enumerate() {
        let mut registers = [[0; R]; 64];
        let cells = registers.as_flattened_mut().chunks_exact_mut(64);
        cells.zip(strip.iter()).for_each(|(bytes, cell)| bytes.copy_from_slice(&cell.0));
        let mut quads = registers.as_chunks_mut::<4>().0.iter_mut().enumerate();
        let width = rows.first().map_or(0, |row| row.len());
        let columns = (width - 64 * index).min(64);
        // Four codewords at a time, because a single one would wait for its table look-ups.
        for (quad, registers) in quads.by_ref().take(columns.div_ceil(4)) {
            let column = 64 * index + 4 * quad;
            let mut words = registers.map(|register| to_words(&register));
            for row in rows {
                let mut symbols = [0; 4];
                let rest = &row[column..];
                let count = rest.len().min(4);
                symbols[..count].copy_from_slice(&rest[..count]);
                for (words, symbol) in words.iter_mut().zip(symbols) {
                    *words = step::<R>(code, *words, symbol);
                }
            }
            *registers = words.map(from_words);
        }
        let cells = registers.as_flattened().chunks_exact(64);
        cells.zip(strip.iter_mut()).for_each(|(bytes, cell)| cell.0.copy_from_slice(bytes));
    }
}

/// One symbol into the register of one codeword. Words that `R` does not need stay zero and cost nothing.
#[inline]
fn step<const R: usize>(code: &Code, words: [u64; 3], symbol: u8) -> [u64; 3] {
    let products = &code.products[usize::from(words[0] as u8 ^ symbol)];
    let mut next = [0; 3];
    for i in 0..R.div_ceil(8) {
        let carry = if i < 2 { words[i + 1] << 56 } else { 0 };
        next[i] = words[i] >> 8 ^ carry ^ products[i];
    }
    next
}

fn to_words<const R: usize>(register: &[u8; R]) -> [u64; 3] {
    let mut bytes = [[0; 8]; 3];
    bytes.as_flattened_mut()[..R].copy_from_slice(register);
    bytes.map(u64::from_le_bytes)
}

fn from_words<const R: usize>(words: [u64; 3]) -> [u8; R] {
    let bytes = words.map(u64::to_le_bytes);
    *bytes.as_flattened().first_chunk().expect("no more than 24 symbols")
}
