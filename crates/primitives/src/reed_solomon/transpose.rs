//! From rows (one parity symbol of many codewords) to codewords (all parity symbols of one) and back.

use super::{Block, with_roots};

/// Writes the cells of every strip, `roots` blocks each, codeword after codeword.
///
/// `out` holds `roots` bytes a codeword; the last strip may have fewer codewords than 64.
pub(super) fn to_codewords(roots: usize, state: &[Block], out: &mut [u8]) {
    with_roots!(roots, strips_to_codewords(state, out))
}

/// Copies parity from codeword order to rows: byte m of codeword c to `rows[m * width + c]`.
///
/// `codewords` holds `roots` bytes for each of `width` codewords.
pub(super) fn to_rows(roots: usize, codewords: &[u8], rows: &mut [u8]) {
    let width = codewords.len() / roots;
    for (group, rows) in rows.chunks_mut(8 * width).enumerate() {
        let cells = (roots - 8 * group).min(8);
        for (eight, codewords) in codewords.chunks(8 * roots).enumerate() {
            let columns = codewords.len() / roots;
            let mut square = [0; 8];
            for (word, codeword) in square.iter_mut().zip(codewords.chunks_exact(roots)) {
                *word = partial_word(&codeword[8 * group..][..cells]);
            }
            for (word, row) in transpose(square).iter().zip(rows.chunks_exact_mut(width)) {
                row[8 * eight..][..columns].copy_from_slice(&word.to_le_bytes()[..columns]);
            }
        }
    }
}

fn strips_to_codewords<const R: usize>(state: &[Block], out: &mut [u8]) {
    let (strips, _) = state.as_chunks::<R>();
    for (strip, out) in strips.iter().zip(out.chunks_mut(64 * R)) {
        let (codewords, _) = out.as_chunks_mut::<R>();
        for (eight, codewords) in codewords.chunks_mut(8).enumerate() {
            for group in 0..R.div_ceil(8) {
                let cells = (R - 8 * group).min(8);
                let mut square = [0; 8];
                for (word, cell) in square.iter_mut().zip(&strip[8 * group..][..cells]) {
                    *word = partial_word(&cell.0[8 * eight..][..8]);
                }
                for (word, codeword) in transpose(square).iter().zip(codewords.iter_mut()) {
                    codeword[8 * group..][..cells].copy_from_slice(&word.to_le_bytes()[..cells]);
                }
            }
        }
    }
}

/// At most 8 bytes as a little-endian word.
fn partial_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Exchanges rows and columns of 8 x 8 bytes: byte j of word i with byte i of word j.
fn transpose(mut square: [u64; 8]) -> [u64; 8] {
    // Quarters first: the halves of 4 x 4 bytes change places, then 2 x 2, then single bytes.
    for (distance, mask) in
        [(4, 0x0000_0000_ffff_ffff), (2, 0x0000_ffff_0000_ffff), (1, 0x00ff_00ff_00ff_00ff)]
    {
        for i in 0..8 {
            if i & distance == 0 {
                let moved = (square[i] >> (8 * distance) ^ square[i + distance]) & mask;
                square[i + distance] ^= moved;
                square[i] ^= moved << (8 * distance);
            }
        }
    }
    square
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_move_every_byte() {
        for roots in 2..=24 {
            for width in [1, 7, 8, 9, 63, 64, 65, 200] {
                let byte = |m: usize, c: usize| (m * 89 + c * 7 + c / 37) as u8;
                let strips = usize::div_ceil(width, 64);
                let mut state = vec![Block([0xee; 64]); strips * roots];
                let mut expected = vec![0; width * roots];
                let mut rows = vec![0; width * roots];
                for c in 0..width {
                    for m in 0..roots {
                        state[c / 64 * roots + m].0[c % 64] = byte(m, c);
                        expected[c * roots + m] = byte(m, c);
                        rows[m * width + c] = byte(m, c);
                    }
                }
                let mut out = vec![0; width * roots];
                to_codewords(roots, &state, &mut out);
                assert_eq!(out, expected, "{roots} roots, {width} codewords");
                let mut back = vec![0; width * roots];
                to_rows(roots, &out, &mut back);
                assert_eq!(back, rows, "{roots} roots, {width} codewords, back");
            }
        }
    }
}
