//! AES-CBC handles, with and without ciphertext stealing.

use std::fmt;

use crate::cpu::Cpu;
use crate::inout::InOut;

use super::schedule::{KeyError, Schedule};
use super::units::{UnitError, Units, pair};
use super::{AesBackend, Direction};

/// AES-CBC under one key: NIST SP 800-38A; `cbc(aes)` and `cts(cbc(aes))` of the kernel.
///
/// Several units in one call are encrypted side by side, because encryption is a chain within a unit.
pub struct AesCbc {
    keys: Box<Schedule>,
    backend: AesBackend,
}

impl AesCbc {
    /// Key lengths in bytes.
    pub const KEY_LENGTHS: &[usize] = &[16, 24, 32];

    /// AES-CBC under `key`, on the fastest back end that `cpu` can run.
    ///
    /// # Errors
    /// A key of another length than 16, 24 or 32 bytes.
    pub fn new(cpu: Cpu, key: &[u8]) -> Result<AesCbc, KeyError> {
        AesCbc::with_backend(AesBackend::new(cpu), key)
    }

    /// Every back end that `cpu` can run, fastest first.
    ///
    /// # Errors
    /// A key of another length than 16, 24 or 32 bytes.
    pub fn available(cpu: Cpu, key: &[u8]) -> Result<Vec<AesCbc>, KeyError> {
        AesBackend::available(cpu).map(|backend| AesCbc::with_backend(backend, key)).collect()
    }

    /// AES-CBC under `key`, on a back end that was chosen.
    ///
    /// # Errors
    /// A key of another length than 16, 24 or 32 bytes.
    pub fn with_backend(backend: AesBackend, key: &[u8]) -> Result<AesCbc, KeyError> {
        KeyError::check("AES-CBC", Self::KEY_LENGTHS, key)?;
        let mut keys = Box::new(Schedule::empty());
        backend.expand_into(key, &mut keys);
        Ok(AesCbc { keys, backend })
    }

    /// Encrypts `data` in place, without padding: units are whole blocks.
    ///
    /// # Errors
    /// A length that is not a positive multiple of the unit, a unit that is not a positive multiple of 16 bytes, or
    /// too few or too many IVs. Nothing is written then.
    pub fn encrypt(&self, units: &Units<'_>, data: &mut [u8]) -> Result<(), UnitError> {
        self.run(Direction::Encrypt, units, InOut::in_place(data))
    }

    /// Decrypts `data` in place.
    ///
    /// # Errors
    /// As [`AesCbc::encrypt`].
    pub fn decrypt(&self, units: &Units<'_>, data: &mut [u8]) -> Result<(), UnitError> {
        self.run(Direction::Decrypt, units, InOut::in_place(data))
    }

    /// Encrypts `src` to the equally long `dst`.
    ///
    /// # Errors
    /// As [`AesCbc::encrypt`], and for different lengths.
    pub fn encrypt_to(&self, units: &Units<'_>, src: &[u8], dst: &mut [u8]) -> Result<(), UnitError> {
        self.run(Direction::Encrypt, units, pair(src, dst)?)
    }

    /// Decrypts `src` to the equally long `dst`.
    ///
    /// # Errors
    /// As [`AesCbc::encrypt`], and for different lengths.
    pub fn decrypt_to(&self, units: &Units<'_>, src: &[u8], dst: &mut [u8]) -> Result<(), UnitError> {
        self.run(Direction::Decrypt, units, pair(src, dst)?)
    }

    /// Encrypts `data` in place with ciphertext stealing (CBC-CS3): units of any size from 16 bytes on.
    ///
    /// The last two blocks of a unit always change places; a unit of exactly 16 bytes is one plain CBC block.
    /// This is what fscrypt calls AES-CTS (RFC 3962, NIST SP 800-38A addendum).
    ///
    /// # Errors
    /// A length that is not a positive multiple of the unit, a unit below 16 bytes, or too few or too many IVs.
    /// Nothing is written then.
    pub fn encrypt_cts(&self, units: &Units<'_>, data: &mut [u8]) -> Result<(), UnitError> {
        self.run_cts(Direction::Encrypt, units, InOut::in_place(data))
    }

    /// Decrypts `data` in place, as [`AesCbc::encrypt_cts`] encrypted it.
    ///
    /// # Errors
    /// As [`AesCbc::encrypt_cts`].
    pub fn decrypt_cts(&self, units: &Units<'_>, data: &mut [u8]) -> Result<(), UnitError> {
        self.run_cts(Direction::Decrypt, units, InOut::in_place(data))
    }

    /// The back end's name.
    pub fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn run(&self, direction: Direction, units: &Units<'_>, io: InOut<'_>) -> Result<(), UnitError> {
        units.check_blocks(io.len())?;
        // SAFETY: an `AesBackend` comes from `crate::backend` alone, so the CPU has what it needs.
        unsafe { (self.backend.run().cbc)(&self.keys, direction, units, io) }
        Ok(())
    }

    fn run_cts(&self, direction: Direction, units: &Units<'_>, io: InOut<'_>) -> Result<(), UnitError> {
        units.check(io.len())?;
        // SAFETY: an `AesBackend` comes from `crate::backend` alone, so the CPU has what it needs.
        unsafe { (self.backend.run().cts)(&self.keys, direction, units, io) }
        Ok(())
    }
}

impl fmt::Debug for AesCbc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AesCbc({})", self.name())
    }
}
