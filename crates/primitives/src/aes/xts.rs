//! AES-XTS handles.

use std::fmt;

use crate::cpu::Cpu;
use crate::inout::InOut;
use crate::secret::constant_time_eq;

use super::schedule::{KeyError, Schedule, XtsKeys};
use super::units::{UnitError, Units, pair};
use super::{AesBackend, Direction};

/// AES-XTS under one key: IEEE 1619, NIST SP 800-38E; `xts(aes)` of the kernel.
///
/// The key is the data key followed by the equally long tweak key: 32, 48 or 64 bytes in all for AES-128, -192
/// and -256. Each unit's tweak is its IV from [`Units`]. A unit that is not a multiple of 16 bytes ends with
/// ciphertext stealing.
pub struct AesXts {
    keys: Box<XtsKeys>,
    backend: AesBackend,
}

impl AesXts {
    /// Key lengths in bytes.
    pub const KEY_LENGTHS: &[usize] = &[32, 48, 64];

    /// AES-XTS under `key`, on the fastest back end that `cpu` can run.
    ///
    /// Equal halves are taken, as the kernel takes them outside FIPS mode: see [`AesXts::halves_equal`].
    ///
    /// # Errors
    /// A key of another length than 32, 48 or 64 bytes.
    pub fn new(cpu: Cpu, key: &[u8]) -> Result<AesXts, KeyError> {
        AesXts::with_backend(AesBackend::new(cpu), key)
    }

    /// Every back end that `cpu` can run, fastest first.
    ///
    /// # Errors
    /// A key of another length than 32, 48 or 64 bytes.
    pub fn available(cpu: Cpu, key: &[u8]) -> Result<Vec<AesXts>, KeyError> {
        AesBackend::available(cpu).map(|backend| AesXts::with_backend(backend, key)).collect()
    }

    /// AES-XTS under `key`, on a back end that was chosen.
    ///
    /// # Errors
    /// A key of another length than 32, 48 or 64 bytes.
    pub fn with_backend(backend: AesBackend, key: &[u8]) -> Result<AesXts, KeyError> {
        KeyError::check("AES-XTS", Self::KEY_LENGTHS, key)?;
        let mut keys = Box::new(XtsKeys { data: Schedule::empty(), tweak: Schedule::empty() });
        let (data, tweak) = key.split_at(key.len() / 2);
        backend.expand_into(data, &mut keys.data);
        backend.expand_into(tweak, &mut keys.tweak);
        Ok(AesXts { keys, backend })
    }

    /// Whether the data key and the tweak key in `key` are the same, in constant time.
    ///
    /// Such a key makes XTS weaker (Rogaway 2004). FIPS 140 implementations must refuse it, the kernel
    /// otherwise takes it; callers decide.
    pub fn halves_equal(key: &[u8]) -> bool {
        let (data, tweak) = key.split_at(key.len() / 2);
        constant_time_eq(data, tweak)
    }

    /// Encrypts `data` in place.
    ///
    /// # Errors
    /// A length that is not a positive multiple of the unit, a unit below 16 bytes, or too few or too many IVs.
    /// Nothing is written then.
    pub fn encrypt(&self, units: &Units<'_>, data: &mut [u8]) -> Result<(), UnitError> {
        self.run(Direction::Encrypt, units, InOut::in_place(data))
    }

    /// Decrypts `data` in place.
    ///
    /// # Errors
    /// As [`AesXts::encrypt`].
    pub fn decrypt(&self, units: &Units<'_>, data: &mut [u8]) -> Result<(), UnitError> {
        self.run(Direction::Decrypt, units, InOut::in_place(data))
    }

    /// Encrypts `src` to the equally long `dst`.
    ///
    /// # Errors
    /// As [`AesXts::encrypt`], and for different lengths.
    pub fn encrypt_to(&self, units: &Units<'_>, src: &[u8], dst: &mut [u8]) -> Result<(), UnitError> {
        self.run(Direction::Encrypt, units, pair(src, dst)?)
    }

    /// Decrypts `src` to the equally long `dst`.
    ///
    /// # Errors
    /// As [`AesXts::encrypt`], and for different lengths.
    pub fn decrypt_to(&self, units: &Units<'_>, src: &[u8], dst: &mut [u8]) -> Result<(), UnitError> {
        self.run(Direction::Decrypt, units, pair(src, dst)?)
    }

    /// The back end's name.
    pub fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn run(&self, direction: Direction, units: &Units<'_>, io: InOut<'_>) -> Result<(), UnitError> {
        units.check(io.len())?;
        // SAFETY: an `AesBackend` comes from `crate::backend` alone, so the CPU has what it needs.
        unsafe { (self.backend.run().xts)(&self.keys, direction, units, io) }
        Ok(())
    }
}

impl fmt::Debug for AesXts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AesXts({})", self.name())
    }
}
