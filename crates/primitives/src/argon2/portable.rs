//! Argon2's function in words.

use super::{Block, WORDS};

/// Makes a block of its parents.
pub(super) fn fill(a: &Block, b: &Block, to: &mut Block) {
    to.0 = made(a, b);
}

/// Adds what the parents make to a block.
pub(super) fn add(a: &Block, b: &Block, to: &mut Block) {
    to.0.iter_mut().zip(made(a, b)).for_each(|(to, word)| *to ^= word);
}

/// There is no portable way to say so.
pub(super) fn expect(_: &Block) {}

#[inline]
fn made(a: &Block, b: &Block) -> [u64; WORDS] {
    let sum: [u64; WORDS] = std::array::from_fn(|i| a.0[i] ^ b.0[i]);
    let mut z = sum;
    for row in 0..8 {
        round(&mut z, |i| 16 * row + i);
    }
    for column in 0..8 {
        round(&mut z, |i| 16 * (i / 2) + 2 * column + i % 2);
    }
    std::array::from_fn(|i| z[i] ^ sum[i])
}

/// BLAKE2b's round on 16 words, the places of which are told.
#[inline(always)]
fn round(z: &mut [u64; WORDS], place: impl Fn(usize) -> usize) {
    let mut v: [u64; 16] = std::array::from_fn(|i| z[place(i)]);
    for turn in 0..2 {
        for i in 0..4 {
            mix(&mut v, i, 4 + (i + turn) % 4, 8 + (i + 2 * turn) % 4, 12 + (i + 3 * turn) % 4);
        }
    }
    v.iter().enumerate().for_each(|(i, word)| z[place(i)] = *word);
}

#[inline(always)]
fn mix(v: &mut [u64; 16], a: usize, b: usize, c: usize, d: usize) {
    for [first, second] in [[32, 24], [16, 63]] {
        v[a] = sum(v[a], v[b]);
        v[d] = (v[d] ^ v[a]).rotate_right(first);
        v[c] = sum(v[c], v[d]);
        v[b] = (v[b] ^ v[c]).rotate_right(second);
    }
}

/// The sum, and twice the product of the lower halves.
#[inline(always)]
fn sum(a: u64, b: u64) -> u64 {
    let product = (a & 0xffff_ffff) * (b & 0xffff_ffff);
    a.wrapping_add(b).wrapping_add(product.wrapping_mul(2))
}
