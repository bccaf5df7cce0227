//! HCTR2 with AES: a cipher as wide as the message, for names and small records.
//!
//! Crowley, Huckleberry and Biggers, "Length-preserving encryption with HCTR2" (2021); `hctr2(aes)` of the kernel.
//! Every bit of the ciphertext depends on every bit of the plaintext. With M the first block and N the rest:
//!
//! ```text
//! h = E(0), L = E(1)                the hash key and a mask, once for a key
//! MM = M ^ H(tweak, N)              H is POLYVAL of the lengths, the tweak and the padded rest
//! UU = E(MM)
//! V = N ^ XCTR(MM ^ UU ^ L)
//! U = UU ^ H(tweak, V)              and the ciphertext is U, V
//! ```
//!
//! # Errors
//! A message below 16 bytes is refused.

use std::fmt;

use zeroize::Zeroize;

use crate::aes::{Aes, Direction, KeyError, UnitError};
use crate::cpu::Cpu;
use crate::polyval::Polyval;
use crate::wide::{WideUnits, xor};

/// AES-HCTR2 under one key, with tweaks of 32 bytes.
pub struct Hctr2 {
    aes: Aes,
    polyval: Polyval,
    /// E(1), which is added to XCTR's IV.
    mask: [u8; 16],
}

impl Hctr2 {
    /// Key lengths in bytes. Linux uses 32.
    pub const KEY_LENGTHS: &[usize] = Aes::KEY_LENGTHS;

    /// AES-HCTR2 under `key`, on the fastest back ends that `cpu` can run.
    ///
    /// # Errors
    /// A key of another length than 16, 24 or 32 bytes.
    pub fn new(cpu: Cpu, key: &[u8]) -> Result<Hctr2, KeyError> {
        KeyError::check("AES-HCTR2", Self::KEY_LENGTHS, key)?;
        let aes = Aes::new(cpu, key)?;
        let mut blocks = [[0; 16], u128::to_le_bytes(1)];
        aes.encrypt_blocks(&mut blocks);
        let polyval = Polyval::new(cpu, &blocks[0]);
        let mask = blocks[1];
        blocks.zeroize();
        Ok(Hctr2 { aes, polyval, mask })
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
    /// As [`Hctr2::encrypt`].
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
    /// As [`Hctr2::encrypt_units`].
    pub fn decrypt_units(&self, units: &WideUnits, data: &mut [u8]) -> Result<(), UnitError> {
        units.each(data, |tweak, unit| self.run(Direction::Decrypt, tweak, unit))
    }

    /// The name of the block cipher's back end.
    pub fn name(&self) -> &'static str {
        self.aes.name()
    }

    fn run(&self, direction: Direction, tweak: &[u8; 32], data: &mut [u8]) -> Result<(), UnitError> {
        let Some((first, rest)) = data.split_first_chunk_mut::<16>() else {
            return Err(UnitError::Size(data.len()));
        };
        // Both directions are the same but for the block cipher's: XCTR's IV is MM ^ UU ^ L either way.
        let mut outer = xor(*first, self.hash(tweak, rest));
        let mut iv = xor(outer, self.mask);
        match direction {
            Direction::Encrypt => self.aes.encrypt_blocks(std::slice::from_mut(&mut outer)),
            Direction::Decrypt => self.aes.decrypt_blocks(std::slice::from_mut(&mut outer)),
        }
        iv = xor(iv, outer);
        self.aes.xctr(&iv, rest);
        *first = xor(outer, self.hash(tweak, rest));
        Ok(())
    }

    /// The paper's H: lengths in bits; a rest that is not a whole number of blocks is marked and ended with a 1 bit.
    fn hash(&self, tweak: &[u8; 32], rest: &[u8]) -> [u8; 16] {
        let (blocks, end) = rest.as_chunks();
        let kind = if end.is_empty() { 2 } else { 3 };
        let length = (2 * 8 * tweak.len() as u128 + kind).to_le_bytes();
        let [a, b] = *tweak.as_chunks().0 else { unreachable!("32 bytes are two blocks") };
        let mut state = [0; 16];
        self.polyval.absorb(&mut state, &[length, a, b]);
        self.polyval.absorb(&mut state, blocks);
        if !end.is_empty() {
            let mut padded = [0; 16];
            padded[..end.len()].copy_from_slice(end);
            padded[end.len()] = 1;
            self.polyval.absorb(&mut state, &[padded]);
        }
        state
    }
}

impl Drop for Hctr2 {
    fn drop(&mut self) {
        self.mask.zeroize();
    }
}

impl fmt::Debug for Hctr2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hctr2({})", self.name())
    }
}
