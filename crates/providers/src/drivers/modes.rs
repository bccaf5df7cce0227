//! Modes of operation over any block cipher, block by block: for the cold ciphers.

use crate::driver::{Direction, Driver, DriverError};

/// A block cipher under a key. Blocks have 8 or 16 bytes.
pub trait BlockCipher: Send + Sync {
    fn block_len(&self) -> usize;
    fn encrypt(&self, block: &mut [u8]);
    fn decrypt(&self, block: &mut [u8]);
}

type Block = Box<dyn BlockCipher>;

fn apply(cipher: &dyn BlockCipher, direction: Direction, block: &mut [u8]) {
    match direction {
        Direction::Encrypt => cipher.encrypt(block),
        Direction::Decrypt => cipher.decrypt(block),
    }
}

fn xor(into: &mut [u8], from: &[u8]) {
    into.iter_mut().zip(from).for_each(|(a, b)| *a ^= b);
}

/// Electronic code book mode: no chaining.
pub struct Ecb(pub Block);

impl Driver for Ecb {
    fn one(&self, direction: Direction, _iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        unit.chunks_exact_mut(self.0.block_len()).for_each(|block| apply(&*self.0, direction, block));
        Ok(())
    }
}

/// Cipher block chaining (NIST SP 800-38A).
pub struct Cbc(pub Block);

impl Driver for Cbc {
    fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        let mut last = iv.to_vec();
        for block in unit.chunks_exact_mut(self.0.block_len()) {
            match direction {
                Direction::Encrypt => {
                    xor(block, &last);
                    self.0.encrypt(block);
                    last.copy_from_slice(block);
                }
                Direction::Decrypt => {
                    let ciphertext = block.to_vec();
                    self.0.decrypt(block);
                    xor(block, &last);
                    last = ciphertext;
                }
            }
        }
        Ok(())
    }
}

/// CBC with ciphertext stealing, variant CS3: the last two blocks change places, whole or not.
pub struct Cts(pub Cbc);

impl Driver for Cts {
    fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        let (cipher, block_len, len) = (&self.0.0, self.0.0.block_len(), unit.len());
        if len == block_len {
            return self.0.one(direction, iv, unit);
        }
        let whole = (len - 1) / block_len * block_len;
        let rest = len - whole;
        match direction {
            Direction::Encrypt => {
                self.0.one(direction, iv, &mut unit[..whole])?;
                let before = unit[whole - block_len..whole].to_vec();
                let mut last = vec![0; block_len];
                last[..rest].copy_from_slice(&unit[whole..]);
                xor(&mut last, &before);
                cipher.encrypt(&mut last);
                unit[whole - block_len..whole].copy_from_slice(&last);
                unit[whole..].copy_from_slice(&before[..rest]);
            }
            Direction::Decrypt => {
                let mut last = unit[whole - block_len..whole].to_vec();
                cipher.decrypt(&mut last);
                // What was stolen fills up the short block.
                let mut before = last.clone();
                before[..rest].copy_from_slice(&unit[whole..]);
                xor(&mut last[..rest], &before[..rest]);
                unit[whole - block_len..whole].copy_from_slice(&before);
                unit[whole..].copy_from_slice(&last[..rest]);
                self.0.one(direction, iv, &mut unit[..whole])?;
            }
        }
        Ok(())
    }
}

/// Counter mode: the IV is the first counter block, a big-endian number.
pub struct Ctr(pub Block);

impl Driver for Ctr {
    fn one(&self, _direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        let mut counter = iv.to_vec();
        for block in unit.chunks_mut(self.0.block_len()) {
            let mut stream = counter.clone();
            self.0.encrypt(&mut stream);
            xor(block, &stream);
            for byte in counter.iter_mut().rev() {
                *byte = byte.wrapping_add(1);
                if *byte != 0 {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// XTS with ciphertext stealing (IEEE 1619), for blocks of 16 bytes.
pub struct Xts {
    pub data: Block,
    pub tweak: Block,
}

impl Driver for Xts {
    fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        let mut first = [0; 16];
        first.copy_from_slice(iv);
        self.tweak.encrypt(&mut first);
        let mut tweak = u128::from_le_bytes(first);
        let next = |tweak: u128| (tweak << 1) ^ (0x87 & 0u128.wrapping_sub(tweak >> 127));
        let block = |block: &mut [u8], tweak: u128| {
            xor(block, &tweak.to_le_bytes());
            apply(&*self.data, direction, block);
            xor(block, &tweak.to_le_bytes());
        };
        let rest = unit.len() % 16;
        let whole = if rest == 0 { unit.len() } else { unit.len() - rest - 16 };
        let (blocks, tail) = unit.split_at_mut(whole);
        for data in blocks.chunks_exact_mut(16) {
            block(data, tweak);
            tweak = next(tweak);
        }
        if rest > 0 {
            // The last two tweaks change places when decrypting.
            let (one, two) = match direction {
                Direction::Encrypt => (tweak, next(tweak)),
                Direction::Decrypt => (next(tweak), tweak),
            };
            let (full, short) = tail.split_at_mut(16);
            block(full, one);
            short.swap_with_slice(&mut full[..rest]);
            block(full, two);
        }
        Ok(())
    }
}

/// LRW (Liskov, Rivest, Wagner), for blocks of 16 bytes: the tweak is the block's number times a key in GF(2^128).
pub struct Lrw {
    pub data: Block,
    /// The tweak key as a big-endian number.
    pub tweak: u128,
}

impl Driver for Lrw {
    fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        let mut first = [0; 16];
        first.copy_from_slice(iv);
        let mut number = u128::from_be_bytes(first);
        for block in unit.chunks_exact_mut(16) {
            let tweak = product(self.tweak, number).to_be_bytes();
            xor(block, &tweak);
            apply(&*self.data, direction, block);
            xor(block, &tweak);
            number = number.wrapping_add(1);
        }
        Ok(())
    }
}

/// The product modulo x^128 + x^7 + x^2 + x + 1, without branches on the key.
fn product(key: u128, number: u128) -> u128 {
    let mut sum = 0;
    for bit in (0..128).rev() {
        sum = (sum << 1) ^ (0x87 & 0u128.wrapping_sub(sum >> 127));
        sum ^= key & 0u128.wrapping_sub((number >> bit) & 1);
    }
    sum
}
