//! Modes of operation over any block cipher, some blocks at a time: for the cold ciphers.

use crate::driver::{Direction, Driver, DriverError};

/// A block cipher under a key. Blocks have 8 or 16 bytes.
pub trait BlockCipher: Send + Sync {
    fn block_len(&self) -> usize;
    fn encrypt(&self, block: &mut [u8]);
    fn decrypt(&self, block: &mut [u8]);

    /// Encrypts blocks that lie one behind the other, each by itself.
    fn encrypt_all(&self, blocks: &mut [u8]) {
        blocks.chunks_exact_mut(self.block_len()).for_each(|block| self.encrypt(block));
    }

    /// Decrypts blocks that lie one behind the other, each by itself.
    fn decrypt_all(&self, blocks: &mut [u8]) {
        blocks.chunks_exact_mut(self.block_len()).for_each(|block| self.decrypt(block));
    }
}

/// Bytes of blocks that are worked on at once: as many as any cipher takes.
const GROUP: usize = 32 * 16;

type Block = Box<dyn BlockCipher>;

fn apply(cipher: &dyn BlockCipher, direction: Direction, block: &mut [u8]) {
    match direction {
        Direction::Encrypt => cipher.encrypt(block),
        Direction::Decrypt => cipher.decrypt(block),
    }
}

fn apply_all(cipher: &dyn BlockCipher, direction: Direction, blocks: &mut [u8]) {
    match direction {
        Direction::Encrypt => cipher.encrypt_all(blocks),
        Direction::Decrypt => cipher.decrypt_all(blocks),
    }
}

/// Changes whole blocks of 16 bytes, each under its own mask, which is added before the cipher and after it.
fn masked(
    cipher: &dyn BlockCipher,
    direction: Direction,
    blocks: &mut [u8],
    mut mask: impl FnMut() -> [u8; 16],
) {
    let mut masks = [0; GROUP];
    for group in blocks.chunks_mut(GROUP) {
        let masks = &mut masks[..group.len()];
        masks.chunks_exact_mut(16).for_each(|place| place.copy_from_slice(&mask()));
        xor(group, masks);
        apply_all(cipher, direction, group);
        xor(group, masks);
    }
}

fn xor(into: &mut [u8], from: &[u8]) {
    into.iter_mut().zip(from).for_each(|(a, b)| *a ^= b);
}

/// Electronic code book mode: no chaining.
pub struct Ecb(pub Block);

impl Driver for Ecb {
    fn one(&self, direction: Direction, _iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        apply_all(&*self.0, direction, unit);
        Ok(())
    }
}

/// Cipher block chaining (NIST SP 800-38A).
pub struct Cbc(pub Block);

impl Driver for Cbc {
    fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        let mut last = iv.to_vec();
        let len = last.len();
        match direction {
            Direction::Encrypt => {
                for block in unit.chunks_exact_mut(self.0.block_len()) {
                    xor(block, &last);
                    self.0.encrypt(block);
                    last.copy_from_slice(block);
                }
            }
            Direction::Decrypt => {
                // The ciphertext before each block, moved up by one block.
                let mut before = [0; GROUP + 16];
                for group in unit.chunks_mut(GROUP) {
                    before[..len].copy_from_slice(&last);
                    before[len..len + group.len()].copy_from_slice(group);
                    last.copy_from_slice(&before[group.len()..group.len() + len]);
                    self.0.decrypt_all(group);
                    xor(group, &before);
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
        let mut stream = [0; GROUP];
        for group in unit.chunks_mut(GROUP) {
            let stream = &mut stream[..group.len().next_multiple_of(counter.len())];
            for block in stream.chunks_exact_mut(counter.len()) {
                block.copy_from_slice(&counter);
                for byte in counter.iter_mut().rev() {
                    *byte = byte.wrapping_add(1);
                    if *byte != 0 {
                        break;
                    }
                }
            }
            self.0.encrypt_all(stream);
            xor(group, stream);
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
        masked(&*self.data, direction, blocks, || {
            let this = tweak;
            tweak = next(tweak);
            this.to_le_bytes()
        });
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
        masked(&*self.data, direction, unit, || {
            let this = number;
            number = number.wrapping_add(1);
            product(self.tweak, this).to_be_bytes()
        });
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
