//! AES on eight blocks as bits: plane b holds bit b of every byte of every block.
//!
//! A byte of a plane belongs to one byte of the state; its eight bits are the eight blocks. So the S-box is a
//! circuit of word operations, and neither a table nor a branch depends on a secret. The S-box is the circuit
//! of Boyar and Peralta, "A depth-16 circuit for the AES S-box" (2011), straight line by straight line.

use std::array;

/// One bit of each of 128 bytes; the four words are the columns of the state.
type Plane = [u32; 4];

/// A block as four little-endian words, the columns of the state.
pub(super) type Block = [u32; 4];

/// Eight blocks as bit planes.
#[derive(Clone, Copy)]
pub(super) struct Planes([Plane; 8]);

impl Planes {
    /// Transposes eight blocks to planes.
    #[inline(always)]
    pub fn from_blocks(blocks: [Block; 8]) -> Planes {
        let mut planes = Planes(blocks);
        planes.transpose();
        planes
    }

    /// Transposes planes to eight blocks.
    #[inline(always)]
    pub fn into_blocks(mut self) -> [Block; 8] {
        self.transpose();
        self.0
    }

    /// The 8 x 8 bits of each byte's position, mirrored: three rounds of exchanges.
    #[inline(always)]
    fn transpose(&mut self) {
        for (distance, mask) in [(1, 0x5555_5555), (2, 0x3333_3333), (4, 0x0f0f_0f0f)] {
            for low in (0..8).filter(|i| i & distance == 0) {
                let high = low + distance;
                for column in 0..4 {
                    let (a, b) = (self.0[low][column], self.0[high][column]);
                    let differ = ((a >> distance) ^ b) & mask;
                    self.0[low][column] = a ^ (differ << distance);
                    self.0[high][column] = b ^ differ;
                }
            }
        }
    }

    /// XORs one round key into all eight blocks.
    #[inline(always)]
    pub fn add_round_key(&mut self, key: &[u8; 16]) {
        for (bit, plane) in self.0.iter_mut().enumerate() {
            for (column, bytes) in plane.iter_mut().zip(key.as_chunks().0) {
                let ones = (u32::from_le_bytes(*bytes) >> bit) & 0x0101_0101;
                *column ^= (ones << 8).wrapping_sub(ones);
            }
        }
    }

    /// ShiftRows: row r, which is byte r of each column, moves r columns to the left.
    #[inline(always)]
    pub fn shift_rows(&mut self) {
        self.rotate_rows(1);
    }

    /// The inverse of [`Planes::shift_rows`].
    #[inline(always)]
    pub fn inv_shift_rows(&mut self) {
        self.rotate_rows(3);
    }

    #[inline(always)]
    fn rotate_rows(&mut self, by: usize) {
        for plane in &mut self.0 {
            let old = *plane;
            *plane = array::from_fn(|column| {
                (0..4).fold(0, |word, row| word | old[(column + by * row) % 4] & (0xff << (8 * row)))
            });
        }
    }

    /// MixColumns: byte r of a column becomes 2 (a_r + a_{r+1}) + a_{r+1} + a_{r+2} + a_{r+3}.
    #[inline(always)]
    pub fn mix_columns(&mut self) {
        let pairs: [Plane; 8] = self.0.map(|plane| plane.map(|word| word ^ word.rotate_right(8)));
        for bit in 0..8 {
            let doubled = double(&pairs, bit);
            for column in 0..4 {
                self.0[bit][column] = doubled[column]
                    ^ self.0[bit][column].rotate_right(8)
                    ^ pairs[bit][column].rotate_right(16);
            }
        }
    }

    /// InvMixColumns, as MixColumns after adding 4 (a_r + a_{r+2}) to each byte.
    #[inline(always)]
    pub fn inv_mix_columns(&mut self) {
        let pairs = self.0.map(|plane| plane.map(|word| word ^ word.rotate_right(16)));
        let doubled = array::from_fn(|bit| double(&pairs, bit));
        for bit in 0..8 {
            self.0[bit] = xor(self.0[bit], double(&doubled, bit));
        }
        self.mix_columns();
    }

    /// The inverse S-box on every byte: the affine map's inverse around the S-box, because the S-box is an
    /// inversion followed by the affine map, and the inversion is its own inverse.
    #[inline(always)]
    pub fn inv_sub_bytes(&mut self) {
        self.inv_affine();
        self.sub_bytes();
        self.inv_affine();
    }

    #[inline(always)]
    fn inv_affine(&mut self) {
        let x = self.0;
        for bit in 0..8 {
            let sum = xor(xor(x[(bit + 2) % 8], x[(bit + 5) % 8]), x[(bit + 7) % 8]);
            self.0[bit] = if 0x05 >> bit & 1 == 1 { sum.map(|word| !word) } else { sum };
        }
    }

    /// The S-box on every byte.
    #[inline(always)]
    pub fn sub_bytes(&mut self) {
        for column in 0..4 {
            let out = sub_bytes(self.0.map(|plane| plane[column]));
            for (plane, word) in self.0.iter_mut().zip(out) {
                plane[column] = word;
            }
        }
    }
}

#[inline(always)]
fn xor(a: Plane, b: Plane) -> Plane {
    array::from_fn(|column| a[column] ^ b[column])
}

/// Plane `bit` of twice the bytes, modulo x^8 + x^4 + x^3 + x + 1.
#[inline(always)]
fn double(planes: &[Plane; 8], bit: usize) -> Plane {
    match bit {
        0 => planes[7],
        1 | 3 | 4 => xor(planes[bit - 1], planes[7]),
        _ => planes[bit - 1],
    }
}

/// The S-box circuit on one word of each plane; names as in the paper, whose bit 0 is the highest.
#[inline(always)]
fn sub_bytes([x7, x6, x5, x4, x3, x2, x1, x0]: [u32; 8]) -> [u32; 8] {
    let y14 = x3 ^ x5;
    let y13 = x0 ^ x6;
    let y9 = x0 ^ x3;
    let y8 = x0 ^ x5;
    let t0 = x1 ^ x2;
    let y1 = t0 ^ x7;
    let y4 = y1 ^ x3;
    let y12 = y13 ^ y14;
    let y2 = y1 ^ x0;
    let y5 = y1 ^ x6;
    let y3 = y5 ^ y8;
    let t1 = x4 ^ y12;
    let y15 = t1 ^ x5;
    let y20 = t1 ^ x1;
    let y6 = y15 ^ x7;
    let y10 = y15 ^ t0;
    let y11 = y20 ^ y9;
    let y7 = x7 ^ y11;
    let y17 = y10 ^ y11;
    let y19 = y10 ^ y8;
    let y16 = t0 ^ y11;
    let y21 = y13 ^ y16;
    let y18 = x0 ^ y16;

    let t2 = y12 & y15;
    let t4 = (y3 & y6) ^ t2;
    let t6 = (y4 & x7) ^ t2;
    let t7 = y13 & y16;
    let t9 = (y5 & y1) ^ t7;
    let t11 = (y2 & y7) ^ t7;
    let t12 = y9 & y11;
    let t14 = (y14 & y17) ^ t12;
    let t16 = (y8 & y10) ^ t12;
    let t21 = t4 ^ t14 ^ y20;
    let t22 = t6 ^ t16 ^ y19;
    let t23 = t9 ^ t14 ^ y21;
    let t24 = t11 ^ t16 ^ y18;
    let t25 = t21 ^ t22;
    let t26 = t21 & t23;
    let t27 = t24 ^ t26;
    let t29 = (t25 & t27) ^ t22;
    let t30 = t23 ^ t24;
    let t31 = t22 ^ t26;
    let t33 = (t31 & t30) ^ t24;
    let t34 = t23 ^ t33;
    let t35 = t27 ^ t33;
    let t36 = t24 & t35;
    let t37 = t36 ^ t34;
    let t38 = t27 ^ t36;
    let t40 = t25 ^ (t29 & t38);
    let t41 = t40 ^ t37;
    let t42 = t29 ^ t33;
    let t43 = t29 ^ t40;
    let t44 = t33 ^ t37;
    let t45 = t42 ^ t41;

    let z0 = t44 & y15;
    let z1 = t37 & y6;
    let z2 = t33 & x7;
    let z3 = t43 & y16;
    let z4 = t40 & y1;
    let z5 = t29 & y7;
    let z6 = t42 & y11;
    let z7 = t45 & y17;
    let z8 = t41 & y10;
    let z9 = t44 & y12;
    let z10 = t37 & y3;
    let z11 = t33 & y4;
    let z12 = t43 & y13;
    let z13 = t40 & y5;
    let z14 = t29 & y2;
    let z15 = t42 & y9;
    let z16 = t45 & y14;
    let z17 = t41 & y8;

    let t46 = z15 ^ z16;
    let t47 = z10 ^ z11;
    let t48 = z5 ^ z13;
    let t49 = z9 ^ z10;
    let t50 = z2 ^ z12;
    let t51 = z2 ^ z5;
    let t52 = z7 ^ z8;
    let t53 = z0 ^ z3;
    let t54 = z6 ^ z7;
    let t55 = z16 ^ z17;
    let t56 = z12 ^ t48;
    let t57 = t50 ^ t53;
    let t58 = z4 ^ t46;
    let t59 = z3 ^ t54;
    let t60 = t46 ^ t57;
    let t61 = z14 ^ t57;
    let t62 = t52 ^ t58;
    let t63 = t49 ^ t58;
    let t64 = z4 ^ t59;
    let t65 = t61 ^ t62;
    let t66 = z1 ^ t63;
    let s0 = t59 ^ t63;
    let s6 = t56 ^ !t62;
    let s7 = t48 ^ !t60;
    let t67 = t64 ^ t65;
    let s3 = t53 ^ t66;
    let s4 = t51 ^ t66;
    let s5 = t47 ^ t65;
    let s1 = t64 ^ !s3;
    let s2 = t55 ^ !t67;
    [s7, s6, s5, s4, s3, s2, s1, s0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 197, section 5.1.1, from its definition.
    fn s_box(byte: u8) -> u8 {
        let inverse = (0..=255u8).find(|other| product(byte, *other) == 1).unwrap_or(0);
        (0..5).fold(0x63, |sum, turn| sum ^ inverse.rotate_left(turn))
    }

    fn product(a: u8, b: u8) -> u8 {
        let wide = (0..8).filter(|i| b >> i & 1 == 1).fold(0u16, |sum, i| sum ^ (u16::from(a) << i));
        (8..15).rev().fold(wide, |sum, i| if sum >> i & 1 == 1 { sum ^ (0x11b << (i - 8)) } else { sum })
            as u8
    }

    fn all_bytes(half: u8) -> [[u8; 16]; 8] {
        array::from_fn(|block| array::from_fn(|byte| half * 128 + 16 * block as u8 + byte as u8))
    }

    fn map(blocks: [[u8; 16]; 8], change: impl Fn(&mut Planes)) -> [[u8; 16]; 8] {
        let words = |block: [u8; 16]| array::from_fn(|i| u32::from_le_bytes(block.as_chunks().0[i]));
        let mut planes = Planes::from_blocks(blocks.map(words));
        change(&mut planes);
        planes.into_blocks().map(|block| array::from_fn(|i| block[i / 4].to_le_bytes()[i % 4]))
    }

    #[test]
    fn the_circuit_is_the_s_box() {
        for half in 0..2 {
            let bytes = all_bytes(half);
            let mapped = map(bytes, Planes::sub_bytes);
            assert_eq!(mapped, bytes.map(|block| block.map(s_box)), "half {half}");
            assert_eq!(map(mapped, Planes::inv_sub_bytes), bytes, "half {half}");
        }
    }

    #[test]
    fn columns_mix_as_defined() {
        let bytes = all_bytes(1);
        let mixed = map(bytes, Planes::mix_columns);
        for (block, mixed) in bytes.iter().zip(&mixed) {
            for (column, mixed) in block.as_chunks::<4>().0.iter().zip(mixed.as_chunks::<4>().0) {
                let expected: [u8; 4] = array::from_fn(|r| {
                    let a = |i| column[(r + i) % 4];
                    product(2, a(0)) ^ product(3, a(1)) ^ a(2) ^ a(3)
                });
                assert_eq!(*mixed, expected);
            }
        }
        assert_eq!(map(mixed, Planes::inv_mix_columns), bytes);
    }

    #[test]
    fn rows_shift_left() {
        let bytes = all_bytes(0);
        let shifted = map(bytes, Planes::shift_rows);
        assert_eq!(shifted[0], [0, 5, 10, 15, 4, 9, 14, 3, 8, 13, 2, 7, 12, 1, 6, 11]);
        assert_eq!(map(shifted, Planes::inv_shift_rows), bytes);
    }
}
