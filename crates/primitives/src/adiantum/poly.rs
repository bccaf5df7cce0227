//! Poly1305's polynomial, for the few blocks that Adiantum hashes in each message.
//!
//! With blocks m of 16 bytes, little-endian, each with 2^128 added: ((m0 r + m1) r + ...) r modulo p = 2^130 - 5, then
//! modulo 2^128. RFC 8439 without the number that it adds at the end. A message has 3 blocks, and 2 more for each
//! KiB: too few to pay for a vectorized implementation's powers of r.
//!
//! Numbers have three limbs of 44, 44 and 42 bits. All steps are integer additions, shifts and multiplications,
//! which take the same time whatever the numbers are.

use zeroize::{Zeroize, ZeroizeOnDrop};

/// The polynomial as far as it was given, at a secret place.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct Poly {
    r: [u64; 3],
    h: [u64; 3],
}

const LOW_44: u64 = (1 << 44) - 1;
const LOW_42: u64 = (1 << 42) - 1;

impl Poly {
    /// The polynomial at `r`, some of whose bits don't count.
    pub fn new(r: &[u8; 16]) -> Poly {
        let r = u128::from_le_bytes(*r) & 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;
        Poly { r: limbs(r), h: [0; 3] }
    }

    /// Adds a block and multiplies by r.
    #[inline]
    pub fn block(&mut self, block: [u8; 16]) {
        let m = limbs(u128::from_le_bytes(block));
        // 2^128 is bit 40 of the third limb.
        let h = [self.h[0] + m[0], self.h[1] + m[1], self.h[2] + m[2] + (1 << 40)];
        let r = self.r;
        // What passes 2^132 comes back times 4 * 5, because 2^130 is 5 modulo p.
        let (s1, s2) = (20 * r[1], 20 * r[2]);
        let times = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let d0 = times(h[0], r[0]) + times(h[1], s2) + times(h[2], s1);
        let d1 = times(h[0], r[1]) + times(h[1], r[0]) + times(h[2], s2) + (d0 >> 44);
        let d2 = times(h[0], r[2]) + times(h[1], r[1]) + times(h[2], r[0]) + (d1 >> 44);
        // OK to cut, here and below: the limbs are what is wanted, and the last carry has less than 64 bits.
        let h0 = (d0 as u64 & LOW_44) + 5 * (d2 >> 42) as u64;
        self.h = [h0 & LOW_44, (d1 as u64 & LOW_44) + (h0 >> 44), d2 as u64 & LOW_42];
    }

    /// The polynomial's value, modulo p and then 2^128.
    pub fn value(&self) -> u128 {
        let [mut h0, mut h1, mut h2] = self.h;
        // Twice around, so that no limb is too large.
        for _ in 0..2 {
            h1 += h0 >> 44;
            h0 &= LOW_44;
            h2 += h1 >> 44;
            h1 &= LOW_44;
            h0 += 5 * (h2 >> 42);
            h2 &= LOW_42;
        }
        h1 += h0 >> 44;
        h0 &= LOW_44;
        // Below 2^130 now; the number is p or more just if adding 5 carries out of it.
        let carry = ((((h0 + 5) >> 44) + h1) >> 44) + h2;
        let h0 = h0 + 5 * (carry >> 42);
        let join = |limb: u64, shift: u32| u128::from(limb) << shift;
        join(h0, 0).wrapping_add(join(h1, 44)).wrapping_add(join(h2, 88))
    }
}

/// 44, 44 and the rest of the bits.
fn limbs(number: u128) -> [u64; 3] {
    // OK to cut: masked, and 128 - 88 bits.
    [number as u64 & LOW_44, (number >> 44) as u64 & LOW_44, (number >> 88) as u64]
}

#[cfg(test)]
mod tests {
    use poly1305::Poly1305;
    use poly1305::universal_hash::{KeyInit, UniversalHash};

    use super::*;
    use crate::testing::Rng;

    #[test]
    fn values_are_those_of_the_vetted_crate() {
        let mut rng = Rng::new(5);
        for round in 0..20_000 {
            let mut r: [u8; 16] = rng.bytes(16).try_into().unwrap();
            if round % 7 == 0 {
                r = [0xff; 16];
            }
            let mut key = [0; 32];
            key[..16].copy_from_slice(&r);
            let mut theirs = Poly1305::new(&key.into());
            let mut ours = Poly::new(&r);
            for _ in 0..rng.below(12) {
                // Extreme blocks reach sums next to p.
                let block: [u8; 16] = match rng.below(4) {
                    0 => [0xff; 16],
                    1 => [0; 16],
                    2 => (u128::MAX - u128::from(rng.below(8))).to_le_bytes(),
                    _ => rng.bytes(16).try_into().unwrap(),
                };
                theirs.update(&[block.into()]);
                ours.block(block);
            }
            assert_eq!(ours.value().to_le_bytes()[..], theirs.finalize()[..], "round {round}");
        }
        // At r = 1 three blocks are 3 * 2^128 and their sum: with these, p - 7 to p + 4.
        for low in 0..12 {
            let mut key = [0; 32];
            key[0] = 1;
            let blocks = [u128::MAX - 11 + low, 0, 0].map(u128::to_le_bytes);
            let mut theirs = Poly1305::new(&key.into());
            let mut ours = Poly::new(&1u128.to_le_bytes());
            for block in blocks {
                theirs.update(&[block.into()]);
                ours.block(block);
            }
            assert_eq!(ours.value().to_le_bytes()[..], theirs.finalize()[..], "{low}");
        }
    }
}
