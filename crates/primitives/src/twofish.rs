//! Twofish, a block cipher of old volumes, with a table for each byte of a word that is made of the key once.
//!
//! Schneier and others, "Twofish: a 128-bit block cipher" (1998); `twofish` of the kernel. The four S-boxes depend on the key, so
//! that the tables of a key, of 4 KiB, are looked up at addresses that depend on secrets: unlike the other ciphers here, this one
//! does not take the same time for all keys and data on CPUs with caches. The crate that it replaces does the same, block by block.
//!
//! ```
//! use casemate_primitives::twofish::Twofish;
//!
//! let twofish = Twofish::new(&[7; 32])?;
//! let mut blocks = [[1; 16]; 100];
//! twofish.encrypt_blocks(&mut blocks);
//! twofish.decrypt_blocks(&mut blocks);
//! assert_eq!(blocks, [[1; 16]; 100]);
//! # Ok::<(), casemate_primitives::aes::KeyError>(())
//! ```

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::aes::KeyError;

/// The permutation q0.
const Q0: [u8; 256] = permutation([
    [0x8, 0x1, 0x7, 0xd, 0x6, 0xf, 0x3, 0x2, 0x0, 0xb, 0x5, 0x9, 0xe, 0xc, 0xa, 0x4],
    [0xe, 0xc, 0xb, 0x8, 0x1, 0x2, 0x3, 0x5, 0xf, 0x4, 0xa, 0x6, 0x7, 0x0, 0x9, 0xd],
    [0xb, 0xa, 0x5, 0xe, 0x6, 0xd, 0x9, 0x0, 0xc, 0x8, 0xf, 0x3, 0x2, 0x4, 0x7, 0x1],
    [0xd, 0x7, 0xf, 0x4, 0x1, 0x2, 0x6, 0xe, 0x9, 0xb, 0x3, 0x0, 0x8, 0x5, 0xc, 0xa],
]);

/// The permutation q1.
const Q1: [u8; 256] = permutation([
    [0x2, 0x8, 0xb, 0xd, 0xf, 0x7, 0x6, 0xe, 0x3, 0x1, 0x9, 0x4, 0x0, 0xa, 0xc, 0x5],
    [0x1, 0xe, 0x2, 0xb, 0x4, 0xc, 0x3, 0x7, 0x6, 0xd, 0xa, 0x5, 0xf, 0x9, 0x0, 0x8],
    [0x4, 0xc, 0x7, 0x5, 0x1, 0x6, 0x9, 0xa, 0x0, 0xe, 0xd, 0x8, 0x2, 0xb, 0x3, 0xf],
    [0xb, 0x9, 0x5, 0x1, 0xc, 0x3, 0xd, 0xe, 0x6, 0x4, 0x7, 0xf, 0x2, 0x0, 0x8, 0xa],
]);

/// Columns of the MDS matrix, each as a word with the first row lowest.
const MDS: [[u8; 4]; 4] =
    [[0x01, 0x5b, 0xef, 0xef], [0xef, 0xef, 0x5b, 0x01], [0x5b, 0xef, 0x01, 0xef], [0x5b, 0x01, 0xef, 0x5b]];

/// Reduction polynomials of the MDS matrix and of the key's Reed-Solomon code.
const MDS_POLYNOMIAL: u16 = 0x169;
const RS_POLYNOMIAL: u16 = 0x14d;

/// The Reed-Solomon code that makes the S-boxes' keys.
const RS: [[u8; 8]; 4] = [
    [0x01, 0xa4, 0x55, 0x87, 0x5a, 0x58, 0xdb, 0x9e],
    [0xa4, 0x56, 0x82, 0xf3, 0x1e, 0xc6, 0x68, 0xe5],
    [0x02, 0xa1, 0xfc, 0xc1, 0x47, 0xae, 0x3d, 0x19],
    [0xa4, 0x55, 0x87, 0x5a, 0x58, 0xdb, 0x9e, 0x03],
];

/// The permutation before each byte of the key, from the first applied on, for each byte of a word; the last one is before the
/// matrix. A short key leaves out the first ones.
const ORDER: [[&[u8; 256]; 5]; 4] = [
    [&Q1, &Q1, &Q0, &Q0, &Q1],
    [&Q0, &Q1, &Q1, &Q0, &Q0],
    [&Q0, &Q0, &Q0, &Q1, &Q1],
    [&Q1, &Q0, &Q1, &Q1, &Q0],
];

/// Twofish under one key.
pub struct Twofish {
    key: Box<Key>,
}

/// A key's tables and words, wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
struct Key {
    /// The S-boxes with the MDS matrix, for each byte of a word.
    boxes: [[u32; 256]; 4],
    /// Words added before the rounds, after them, and in them.
    words: [u32; 40],
}

impl Twofish {
    /// Key lengths in bytes.
    pub const KEY_LENGTHS: &[usize] = &[16, 24, 32];

    /// Twofish under `key`.
    ///
    /// # Errors
    /// A key of another length than 16, 24 or 32 bytes.
    pub fn new(key: &[u8]) -> Result<Twofish, KeyError> {
        KeyError::check("Twofish", Self::KEY_LENGTHS, key)?;
        let mut made = Box::new(Key { boxes: [[0; 256]; 4], words: [0; 40] });
        let eights = key.as_chunks::<8>().0;
        // Words of the key with even numbers, and with odd ones, the last applied first.
        let (mut even, mut odd, mut codes) = ([[0; 4]; 4], [[0; 4]; 4], [[0; 4]; 4]);
        let count = eights.len();
        for (i, eight) in eights.iter().enumerate() {
            let (low, high) = eight.split_at(4);
            even[i].copy_from_slice(low);
            odd[i].copy_from_slice(high);
            codes[count - 1 - i] = RS
                .map(|row| row.iter().zip(eight).fold(0, |sum, (a, b)| sum ^ product(*a, *b, RS_POLYNOMIAL)));
        }
        for (i, pair) in made.words.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let word = |number: usize, key: &[[u8; 4]]| {
                (0..4).fold(0, |sum, byte| sum ^ column(byte, boxed(byte, number as u8, key)))
            };
            let a: u32 = word(2 * i, &even[..count]);
            let b = word(2 * i + 1, &odd[..count]).rotate_left(8);
            pair[0] = a.wrapping_add(b);
            pair[1] = a.wrapping_add(b).wrapping_add(b).rotate_left(9);
        }
        for (byte, table) in made.boxes.iter_mut().enumerate() {
            for (x, entry) in table.iter_mut().enumerate() {
                *entry = column(byte, boxed(byte, x as u8, &codes[..count]));
            }
        }
        (even, odd, codes).zeroize();
        Ok(Twofish { key: made })
    }

    /// Encrypts every block in place, each by itself.
    pub fn encrypt_blocks(&self, blocks: &mut [[u8; 16]]) {
        blocks.iter_mut().for_each(|block| self.encrypt(block));
    }

    /// Decrypts every block in place, each by itself.
    pub fn decrypt_blocks(&self, blocks: &mut [[u8; 16]]) {
        blocks.iter_mut().for_each(|block| self.decrypt(block));
    }

    fn encrypt(&self, block: &mut [u8; 16]) {
        let words = &self.key.words;
        let mut x = load(block);
        (0..4).for_each(|i| x[i] ^= words[i]);
        for keys in words[8..].as_chunks::<4>().0 {
            let (f, g) = self.round(x[0], x[1], keys[0], keys[1]);
            x[2] = (x[2] ^ f).rotate_right(1);
            x[3] = x[3].rotate_left(1) ^ g;
            let (f, g) = self.round(x[2], x[3], keys[2], keys[3]);
            x[0] = (x[0] ^ f).rotate_right(1);
            x[1] = x[1].rotate_left(1) ^ g;
        }
        x = [x[2], x[3], x[0], x[1]];
        (0..4).for_each(|i| x[i] ^= words[4 + i]);
        store(x, block);
    }

    fn decrypt(&self, block: &mut [u8; 16]) {
        let words = &self.key.words;
        let mut x = load(block);
        (0..4).for_each(|i| x[i] ^= words[4 + i]);
        x = [x[2], x[3], x[0], x[1]];
        for keys in words[8..].as_chunks::<4>().0.iter().rev() {
            let (f, g) = self.round(x[2], x[3], keys[2], keys[3]);
            x[0] = x[0].rotate_left(1) ^ f;
            x[1] = (x[1] ^ g).rotate_right(1);
            let (f, g) = self.round(x[0], x[1], keys[0], keys[1]);
            x[2] = x[2].rotate_left(1) ^ f;
            x[3] = (x[3] ^ g).rotate_right(1);
        }
        (0..4).for_each(|i| x[i] ^= words[i]);
        store(x, block);
    }

    /// The two words that a round adds, of the two that it leaves.
    #[inline]
    fn round(&self, a: u32, b: u32, key: u32, next: u32) -> (u32, u32) {
        let [s0, s1, s2, s3] = &self.key.boxes;
        let look_up = |[a, b, c, d]: [u8; 4]| {
            s0[usize::from(a)] ^ s1[usize::from(b)] ^ s2[usize::from(c)] ^ s3[usize::from(d)]
        };
        let t = look_up(a.to_le_bytes());
        let u = look_up(b.rotate_left(8).to_le_bytes());
        let sum = t.wrapping_add(u);
        (sum.wrapping_add(key), sum.wrapping_add(u).wrapping_add(next))
    }
}

impl fmt::Debug for Twofish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Twofish")
    }
}

fn load(block: &[u8; 16]) -> [u32; 4] {
    let words = block.as_chunks::<4>().0;
    std::array::from_fn(|i| u32::from_le_bytes(words[i]))
}

fn store(words: [u32; 4], block: &mut [u8; 16]) {
    for (bytes, word) in block.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
}

/// A byte of a word through the permutations and the key's words, of which the first is applied last.
fn boxed(byte: usize, x: u8, key: &[[u8; 4]]) -> u8 {
    let order = &ORDER[byte];
    let mut x = x;
    for (i, word) in key.iter().enumerate().rev() {
        x = order[3 - i][usize::from(x)] ^ word[byte];
    }
    order[4][usize::from(x)]
}

/// Product of a byte of a word and the MDS matrix.
fn column(byte: usize, x: u8) -> u32 {
    u32::from_le_bytes(MDS[byte].map(|factor| product(factor, x, MDS_POLYNOMIAL)))
}

/// Product in GF(2^8), without branches on its factors.
fn product(a: u8, b: u8, polynomial: u16) -> u8 {
    let (mut a, mut sum) = (u16::from(a), 0);
    for bit in 0..8 {
        sum ^= a & 0_u16.wrapping_sub(u16::from(b >> bit & 1));
        a = (a << 1) ^ (polynomial & 0_u16.wrapping_sub(a >> 7 & 1));
    }
    sum as u8
}

/// A permutation of bytes made of four of half bytes.
const fn permutation(halves: [[u8; 16]; 4]) -> [u8; 256] {
    let mut all = [0; 256];
    let mut x = 0;
    while x < 256 {
        let (mut a, mut b) = ((x >> 4) as u8, (x & 15) as u8);
        let mut turn = 0;
        while turn < 4 {
            let mixed = a ^ b;
            let rotated = (b >> 1) | (b << 3 & 15);
            let other = a ^ rotated ^ (a << 3 & 15);
            (a, b) = (halves[turn][mixed as usize], halves[turn + 1][other as usize]);
            turn += 2;
        }
        all[x] = b << 4 | a;
        x += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    #[test]
    fn blocks_are_as_another_implementation_has_them() {
        use twofish::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
        let mut rng = Rng::new(1);
        for len in [16, 24, 32] {
            for _ in 0..20 {
                let key = rng.bytes(len);
                let oracle = twofish::Twofish::new_from_slice(&key).expect("a key of a right length");
                let mine = Twofish::new(&key).expect("a key of a right length");
                let plain = rng.bytes(16 * 7);
                let mut data = plain.clone();
                mine.encrypt_blocks(data.as_chunks_mut().0);
                let mut expected = plain.clone();
                for block in expected.as_chunks_mut::<16>().0 {
                    oracle.encrypt_block(block.into());
                }
                assert!(data == expected, "a key of {len} bytes");
                mine.decrypt_blocks(data.as_chunks_mut().0);
                assert!(data == plain, "a key of {len} bytes, back");
                for block in data.as_chunks_mut::<16>().0 {
                    oracle.decrypt_block(block.into());
                }
                let mut mine_decrypted = plain;
                mine.decrypt_blocks(mine_decrypted.as_chunks_mut().0);
                assert!(data == mine_decrypted, "a key of {len} bytes, decrypted");
            }
        }
    }
}
