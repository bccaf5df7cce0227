//! AES as a block cipher: single blocks, counter modes and the IVs of ESSIV.

use std::fmt;

use crate::cpu::Cpu;
use crate::inout::InOut;

use super::modes::Counter;
use super::schedule::{KeyError, Schedule};
use super::units::{UnitError, pair};
use super::{AesBackend, Direction};

/// AES under one key, block by block: FIPS 197.
///
/// Independent blocks in one call are done side by side. ESSIV's IVs are blocks of counters encrypted under the
/// hash of the data key: `Aes::new(cpu, &hash)`, then [`Aes::encrypt_blocks`] of the counters, and the result is
/// a list for [`super::Units::listed`].
pub struct Aes {
    keys: Box<Schedule>,
    backend: AesBackend,
}

impl Aes {
    /// Key lengths in bytes.
    pub const KEY_LENGTHS: &[usize] = &[16, 24, 32];

    /// AES under `key`, on the fastest back end that `cpu` can run.
    ///
    /// # Errors
    /// A key of another length than 16, 24 or 32 bytes.
    pub fn new(cpu: Cpu, key: &[u8]) -> Result<Aes, KeyError> {
        Aes::with_backend(AesBackend::new(cpu), key)
    }

    /// Every back end that `cpu` can run, fastest first.
    ///
    /// # Errors
    /// A key of another length than 16, 24 or 32 bytes.
    pub fn available(cpu: Cpu, key: &[u8]) -> Result<Vec<Aes>, KeyError> {
        AesBackend::available(cpu).map(|backend| Aes::with_backend(backend, key)).collect()
    }

    /// AES under `key`, on a back end that was chosen.
    ///
    /// # Errors
    /// A key of another length than 16, 24 or 32 bytes.
    pub fn with_backend(backend: AesBackend, key: &[u8]) -> Result<Aes, KeyError> {
        KeyError::check("AES", Self::KEY_LENGTHS, key)?;
        let mut keys = Box::new(Schedule::empty());
        backend.expand_into(key, &mut keys);
        Ok(Aes { keys, backend })
    }

    /// Encrypts each block by itself (ECB).
    pub fn encrypt_blocks(&self, blocks: &mut [[u8; 16]]) {
        self.blocks(Direction::Encrypt, blocks);
    }

    /// Decrypts each block by itself (ECB).
    pub fn decrypt_blocks(&self, blocks: &mut [[u8; 16]]) {
        self.blocks(Direction::Decrypt, blocks);
    }

    /// Encrypts or decrypts `data`, of any length, in counter mode (NIST SP 800-38A).
    ///
    /// Block i is XORed with the encryption of `start + i` modulo 2^128 as a big-endian number.
    pub fn ctr(&self, start: &[u8; 16], data: &mut [u8]) {
        self.counter(Counter::Big(u128::from_be_bytes(*start)), InOut::in_place(data));
    }

    /// As [`Aes::ctr`], from `src` to the equally long `dst`.
    ///
    /// # Errors
    /// Different lengths; nothing is written then.
    pub fn ctr_to(&self, start: &[u8; 16], src: &[u8], dst: &mut [u8]) -> Result<(), UnitError> {
        self.counter(Counter::Big(u128::from_be_bytes(*start)), pair(src, dst)?);
        Ok(())
    }

    /// Encrypts or decrypts `data`, of any length, in HCTR2's XCTR mode.
    ///
    /// Block i, counted from 1, is XORed with the encryption of `iv` XOR i, a little-endian number.
    pub fn xctr(&self, iv: &[u8; 16], data: &mut [u8]) {
        self.counter(Counter::Xor(u128::from_le_bytes(*iv)), InOut::in_place(data));
    }

    /// The back end's name.
    pub fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn blocks(&self, direction: Direction, blocks: &mut [[u8; 16]]) {
        // SAFETY: an `AesBackend` comes from `crate::backend` alone, so the CPU has what it needs.
        unsafe { (self.backend.run().ecb)(&self.keys, direction, InOut::in_place(blocks.as_flattened_mut())) }
    }

    fn counter(&self, start: Counter, io: InOut<'_>) {
        // SAFETY: an `AesBackend` comes from `crate::backend` alone, so the CPU has what it needs.
        unsafe { (self.backend.run().counter)(&self.keys, start, io) }
    }
}

impl fmt::Debug for Aes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aes({})", self.name())
    }
}
