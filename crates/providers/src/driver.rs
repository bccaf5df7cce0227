//! The interface of a driver: the work of a cipher under one key, or of a hash.

use std::fmt;

use casemate_blockdev::u64_of;
pub use casemate_primitives::aes::Direction;

/// The IVs of the data units of one request.
#[derive(Clone, Copy, Debug)]
pub enum Ivs<'a> {
    /// Unit `k` has `first + k * step` modulo 2^128 as a little-endian number, filled up with zeros where the
    /// cipher's IV is longer than 16 bytes.
    Little {
        /// The first unit's IV.
        first: u128,
        /// Step from unit to unit.
        step: u64,
    },
    /// A big-endian number, for ciphers whose IV has 16 bytes.
    Big {
        /// The first unit's IV.
        first: u128,
        /// Step from unit to unit.
        step: u64,
    },
    /// The units' IVs one after the other, each as long as the cipher's IV.
    List(&'a [u8]),
}

impl Ivs<'_> {
    /// Writes the IV of unit `k`. A list must have one for it.
    pub fn write(&self, k: usize, iv: &mut [u8]) {
        let counted =
            |first: u128, step: u64| first.wrapping_add(u128::from(u64_of(k)).wrapping_mul(step.into()));
        let bytes = match *self {
            Ivs::Little { first, step } => counted(first, step).to_le_bytes(),
            Ivs::Big { first, step } => counted(first, step).to_be_bytes(),
            Ivs::List(list) => return iv.copy_from_slice(&list[k * iv.len()..][..iv.len()]),
        };
        let len = iv.len().min(16);
        // A shorter IV keeps a number's low end: the first bytes of the little-endian form, the last of the other.
        let from = if matches!(self, Ivs::Big { .. }) { 16 - len } else { 0 };
        iv[..len].copy_from_slice(&bytes[from..from + len]);
        iv[len..].fill(0);
    }
}

/// A driver: what does the work of a cipher under one key.
///
/// Lengths have been checked when these functions are called: a data unit is at least one block.
pub trait Driver: Send + Sync {
    /// Changes one data unit in place.
    ///
    /// # Errors
    /// Only drivers that leave the process fail.
    fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError>;

    /// Changes many data units of `size` bytes in place, with one call for all of them where the driver can.
    ///
    /// This default walks from unit to unit, for drivers that can't.
    ///
    /// # Errors
    /// As [`Driver::one`].
    fn many(
        &self,
        direction: Direction,
        size: usize,
        ivs: &Ivs<'_>,
        iv_len: usize,
        data: &mut [u8],
    ) -> Result<(), DriverError> {
        walk(self, direction, size, ivs, iv_len, data)
    }

    /// A fault under this handle that was worked around, if there was one: an engine that is no longer asked.
    fn trouble(&self) -> Option<&str> {
        None
    }
}

/// Runs a driver unit by unit.
pub(crate) fn walk<D: Driver + ?Sized>(
    driver: &D,
    direction: Direction,
    size: usize,
    ivs: &Ivs<'_>,
    iv_len: usize,
    data: &mut [u8],
) -> Result<(), DriverError> {
    let mut iv = [0; MAX_IV_LEN];
    for (k, unit) in data.chunks_exact_mut(size).enumerate() {
        ivs.write(k, &mut iv[..iv_len]);
        driver.one(direction, &iv[..iv_len], unit)?;
    }
    Ok(())
}

/// The longest IV of any cipher here.
pub const MAX_IV_LEN: usize = 32;

/// A driver of a hash outside this program.
pub trait HashDriver: Send + Sync {
    /// Writes the digest of one message, which is given in `parts`, one after the other.
    ///
    /// # Errors
    /// Errors of the implementation.
    fn digest(&self, parts: &[&[u8]], out: &mut [u8]) -> Result<(), DriverError>;
}

/// Why a driver could not do its work. Says nothing of keys or data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverError(pub String);

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DriverError {}
