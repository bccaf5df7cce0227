//! BitLocker's Elephant diffuser around CBC.
//!
//! Source: Niels Ferguson, "AES-CBC + Elephant diffuser: A Disk Encryption Algorithm for Windows Vista" (2006).

use std::fmt;

use casemate_blockdev::u64_of;
use casemate_providers::{Cipher, Direction, Ivs};

use crate::Error;

/// The Elephant diffuser under its own key.
pub(crate) struct Elephant {
    /// ECB under the second half of the key.
    cipher: Cipher,
    sector_size: usize,
}

impl Elephant {
    pub fn new(cipher: Cipher, sector_size: usize) -> Elephant {
        Elephant { cipher, sector_size }
    }

    /// Diffuses a sector before CBC encrypts it; does nothing in the other direction.
    pub fn before(&self, direction: Direction, number: u64, data: &mut [u8]) -> Result<(), Error> {
        if direction == Direction::Encrypt {
            self.add_sector_key(number, data)?;
            diffuse(data, |words| {
                A.undo(words);
                B.undo(words);
            });
        }
        Ok(())
    }

    /// Undoes a sector's diffusion after CBC has decrypted it; does nothing in the other direction.
    pub fn after(&self, direction: Direction, number: u64, data: &mut [u8]) -> Result<(), Error> {
        if direction == Direction::Decrypt {
            diffuse(data, |words| {
                B.run(words);
                A.run(words);
            });
            self.add_sector_key(number, data)?;
        }
        Ok(())
    }

    fn add_sector_key(&self, number: u64, data: &mut [u8]) -> Result<(), Error> {
        let offset = u128::from(number.wrapping_mul(u64_of(self.sector_size))).to_le_bytes();
        let mut key = [0; 32];
        key[..16].copy_from_slice(&offset);
        key[16..].copy_from_slice(&offset);
        key[31] = 0x80;
        self.cipher.run(Direction::Encrypt, &Ivs::List(&[]), &mut key)?;
        for chunk in data.chunks_mut(32) {
            chunk.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        }
        Ok(())
    }
}

/// One of the two diffusers, in the direction that the paper gives: the one for reading.
struct Diffuser {
    /// Word `i` takes from the words this far away, around the sector's end.
    near: isize,
    far: isize,
    rotations: [u32; 4],
    cycles: usize,
}

const A: Diffuser = Diffuser { near: -2, far: -5, rotations: [9, 0, 13, 0], cycles: 5 };
const B: Diffuser = Diffuser { near: 2, far: 5, rotations: [0, 10, 0, 25], cycles: 3 };

impl Diffuser {
    fn run(&self, words: &mut [u32]) {
        for _ in 0..self.cycles {
            for i in 0..words.len() {
                words[i] = words[i].wrapping_add(self.term(words, i));
            }
        }
    }

    fn undo(&self, words: &mut [u32]) {
        for _ in 0..self.cycles {
            for i in (0..words.len()).rev() {
                words[i] = words[i].wrapping_sub(self.term(words, i));
            }
        }
    }

    fn term(&self, words: &[u32], i: usize) -> u32 {
        let at =
            |distance: isize| words[i.wrapping_add_signed(distance).wrapping_add(words.len()) % words.len()];
        at(self.near) ^ at(self.far).rotate_left(self.rotations[i % 4])
    }
}

fn diffuse(data: &mut [u8], work: impl FnOnce(&mut [u32])) {
    let mut words: Vec<u32> = data.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    work(&mut words);
    for (bytes, word) in data.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
}

impl fmt::Debug for Elephant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Elephant")
    }
}
