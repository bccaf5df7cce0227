//! POLYVAL with integer multiplications, in constant time where those are.

use super::{GROUP, Powers};

/// x^57 + x^62 + x^63: what is left of the field's polynomial, shifted, when a word is reduced from below.
const REDUCTION: u64 = 0xc200_0000_0000_0000;

/// Takes blocks into a state, one at a time.
pub(super) fn absorb(powers: &Powers, state: &mut [u8; 16], blocks: &[[u8; 16]]) {
    let key = u128::from_le_bytes(powers[GROUP - 1]);
    let mut sum = u128::from_le_bytes(*state);
    for block in blocks {
        sum = dot(sum ^ u128::from_le_bytes(*block), key);
    }
    *state = sum.to_le_bytes();
}

/// The product times x^-128.
fn dot(a: u128, b: u128) -> u128 {
    let (a, b) = ([a as u64, (a >> 64) as u64], [b as u64, (b >> 64) as u64]);
    let middle = clmul(a[0], b[1]) ^ clmul(a[1], b[0]);
    let low = clmul(a[0], b[0]) ^ (middle << 64);
    let high = clmul(a[1], b[1]) ^ (middle >> 64);
    // Twice the lowest word w is made 0 by adding w times the polynomial, which ends in 1.
    let once = low.rotate_left(64) ^ clmul(low as u64, REDUCTION);
    let twice = once.rotate_left(64) ^ clmul(once as u64, REDUCTION);
    high ^ twice
}

/// The product of polynomials over GF(2).
fn clmul(a: u64, b: u64) -> u128 {
    let low = clmul_low(a, b);
    let high = clmul_low(a.reverse_bits(), b.reverse_bits()).reverse_bits() >> 1;
    (u128::from(high) << 64) | u128::from(low)
}

/// The low half of the product.
///
/// Every fourth bit is kept at a time, so that carries of the integer product die in the three bits between, below
/// the top ones, which leave the word. (Pornin, BearSSL, "constant-time GHASH".)
fn clmul_low(a: u64, b: u64) -> u64 {
    const MASKS: [u64; 4] =
        [0x1111_1111_1111_1111, 0x2222_2222_2222_2222, 0x4444_4444_4444_4444, 0x8888_8888_8888_8888];
    let mut sum = 0;
    for i in 0..4 {
        let part = (0..4).fold(0, |part, j| part ^ (a & MASKS[j]).wrapping_mul(b & MASKS[(4 + i - j) % 4]));
        sum |= part & MASKS[i];
    }
    sum
}
