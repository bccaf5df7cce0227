//! Adiantum: a cipher as wide as the message, for CPUs without AES instructions.
//!
//! Crowley and Biggers, "Adiantum: length-preserving encryption for entry-level processors" (2018);
//! `adiantum(xchacha12,aes)` of the kernel and fscrypt's mode 9. XChaCha does the bulk, NH and Poly1305 hash, and AES
//! encrypts one block of each message. With R the last 16 bytes and L what is before:
//!
//! ```text
//! P = R + H(tweak, L)               sums modulo 2^128, little-endian
//! C = E(P)
//! L' = L ^ XChaCha(C, 1)            the nonce is C, a byte of 1 and seven of 0
//! R' = C - H(tweak, L')
//! ```
//!
//! ChaCha comes from a RustCrypto crate, which chooses by the CPU itself: `Cpu` narrows AES and NH only.
//!
//! # Errors
//! A message below 16 bytes is refused.

#[cfg(target_arch = "aarch64")]
mod aarch64_neon;
mod key;
mod nh;
mod poly;
#[cfg(target_arch = "x86_64")]
mod x86_64_avx2;
#[cfg(target_arch = "x86_64")]
mod x86_64_avx512;

use std::fmt;

use chacha20::cipher::{KeyIvInit, StreamCipher};
use chacha20::{XChaCha12, XChaCha20};
use zeroize::Zeroize;

use crate::aes::{Aes, Direction, KeyError, UnitError};
use crate::cpu::Cpu;
use crate::wide::WideUnits;

use key::{KEY, MESSAGE, NhKey};
use nh::Nh;
use poly::Poly;

/// The rounds of Adiantum's XChaCha.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounds {
    /// XChaCha12: fscrypt's Adiantum, and dm-crypt's `xchacha12,aes-adiantum`.
    Twelve,
    /// XChaCha20: dm-crypt's `xchacha20,aes-adiantum`.
    Twenty,
}

/// Adiantum under one key, with tweaks of 32 bytes.
pub struct Adiantum {
    keys: Box<Keys>,
    aes: Aes,
    nh: Nh,
    rounds: Rounds,
}

/// All keys but the block cipher's.
struct Keys {
    stream: [u8; 32],
    /// Poly1305's r for the length and the tweak.
    header: [u8; 16],
    /// Poly1305's r for NH's sums.
    message: [u8; 16],
    nh: NhKey,
}

impl Adiantum {
    /// The key's length in bytes.
    pub const KEY_LENGTHS: &[usize] = &[32];

    /// Adiantum under `key`, on the fastest back ends that `cpu` can run.
    ///
    /// # Errors
    /// A key of another length than 32 bytes.
    pub fn new(cpu: Cpu, rounds: Rounds, key: &[u8]) -> Result<Adiantum, KeyError> {
        KeyError::check("Adiantum", Self::KEY_LENGTHS, key)?;
        let mut keys =
            Box::new(Keys { stream: [0; 32], header: [0; 16], message: [0; 16], nh: NhKey([0; KEY]) });
        keys.stream.copy_from_slice(key);
        // The other keys are key stream under the nonce 1, in this order.
        let mut cipher_key = [0; 32];
        {
            let mut nonce = [0; 24];
            nonce[0] = 1;
            let keys = &mut *keys;
            let parts: [&mut [u8]; 4] =
                [&mut cipher_key, &mut keys.header, &mut keys.message, &mut keys.nh.0];
            stream(rounds, &keys.stream, &nonce, parts);
        }
        let aes = Aes::new(cpu, &cipher_key);
        cipher_key.zeroize();
        Ok(Adiantum { keys, aes: aes?, nh: Nh::new(cpu), rounds })
    }

    /// Encrypts `data`, of 16 bytes or more, in place.
    ///
    /// # Errors
    /// A message below 16 bytes; nothing is written then.
    pub fn encrypt(&self, tweak: &[u8; 32], data: &mut [u8]) -> Result<(), UnitError> {
        self.run(Direction::Encrypt, tweak, data)
    }

    /// Decrypts `data`, of 16 bytes or more, in place.
    ///
    /// # Errors
    /// As [`Adiantum::encrypt`].
    pub fn decrypt(&self, tweak: &[u8; 32], data: &mut [u8]) -> Result<(), UnitError> {
        self.run(Direction::Decrypt, tweak, data)
    }

    /// Encrypts every unit of `data` in place under its own tweak.
    ///
    /// # Errors
    /// A length that is not a positive multiple of the unit, or a unit below 16 bytes; nothing is written then.
    pub fn encrypt_units(&self, units: &WideUnits, data: &mut [u8]) -> Result<(), UnitError> {
        units.each(data, |tweak, unit| self.run(Direction::Encrypt, tweak, unit))
    }

    /// Decrypts every unit of `data` in place under its own tweak.
    ///
    /// # Errors
    /// As [`Adiantum::encrypt_units`].
    pub fn decrypt_units(&self, units: &WideUnits, data: &mut [u8]) -> Result<(), UnitError> {
        units.each(data, |tweak, unit| self.run(Direction::Decrypt, tweak, unit))
    }

    /// The names of the block cipher's back end and of NH's.
    pub fn name(&self) -> String {
        format!("{}, nh {}", self.aes.name(), self.nh.name())
    }

    fn run(&self, direction: Direction, tweak: &[u8; 32], data: &mut [u8]) -> Result<(), UnitError> {
        let len = data.len();
        let Some((left, right)) = data.split_last_chunk_mut::<16>() else {
            return Err(UnitError::Size(len));
        };
        let mut middle = u128::from_le_bytes(*right).wrapping_add(self.hash(tweak, left)).to_le_bytes();
        let mut nonce = [0; 24];
        nonce[16] = 1;
        // The nonce is the encrypted block: what decryption begins with, and what encryption ends with.
        if direction == Direction::Encrypt {
            self.aes.encrypt_blocks(std::slice::from_mut(&mut middle));
            nonce[..16].copy_from_slice(&middle);
        } else {
            nonce[..16].copy_from_slice(&middle);
            self.aes.decrypt_blocks(std::slice::from_mut(&mut middle));
        }
        stream(self.rounds, &self.keys.stream, &nonce, [&mut *left]);
        *right = u128::from_le_bytes(middle).wrapping_sub(self.hash(tweak, left)).to_le_bytes();
        Ok(())
    }

    /// The paper's H: Poly1305 of the length in bits and the tweak, plus Poly1305 of NH of each 1024 bytes.
    fn hash(&self, tweak: &[u8; 32], left: &[u8]) -> u128 {
        let length = (8 * left.len() as u128).to_le_bytes();
        let [a, b] = *tweak.as_chunks().0 else { unreachable!("32 bytes are two blocks") };
        let mut header = Poly::new(&self.keys.header);
        [length, a, b].into_iter().for_each(|block| header.block(block));
        let mut sums = Poly::new(&self.keys.message);
        for message in left.chunks(MESSAGE) {
            let (blocks, end) = message.as_chunks();
            let hashed = if end.is_empty() {
                self.nh.hash(&self.keys.nh, blocks)
            } else {
                let mut padded = [[0; 16]; MESSAGE / 16];
                padded.as_flattened_mut()[..message.len()].copy_from_slice(message);
                self.nh.hash(&self.keys.nh, &padded[..blocks.len() + 1])
            };
            hashed.as_chunks().0.iter().for_each(|block| sums.block(*block));
        }
        header.value().wrapping_add(sums.value())
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.stream.zeroize();
        self.header.zeroize();
        self.message.zeroize();
    }
}

impl fmt::Debug for Adiantum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Adiantum({:?}, {})", self.rounds, self.name())
    }
}

/// XORs XChaCha's key stream into the buffers, one after the other.
fn stream<const N: usize>(rounds: Rounds, key: &[u8; 32], nonce: &[u8; 24], buffers: [&mut [u8]; N]) {
    match rounds {
        Rounds::Twelve => {
            let mut cipher = XChaCha12::new(key.into(), nonce.into());
            buffers.into_iter().for_each(|buffer| cipher.apply_keystream(buffer));
        }
        Rounds::Twenty => {
            let mut cipher = XChaCha20::new(key.into(), nonce.into());
            buffers.into_iter().for_each(|buffer| cipher.apply_keystream(buffer));
        }
    }
}
