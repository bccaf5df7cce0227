//! A keyed cipher and what a driver has to offer to be one.

use std::fmt;

use crate::row::Flags;

pub use casemate_primitives::aes::Direction;

/// The IVs of the data units of one request.
#[derive(Clone, Copy, Debug)]
pub enum Ivs<'a> {
    /// Unit `k` has `first + k * step` modulo 2^128 as a little-endian number, filled up with zeros where the
    /// cipher's IV is longer than 16 bytes.
    Little {
        /// The first unit's IV.
        first: u128,
        /// What is added from unit to unit.
        step: u64,
    },
    /// The same as a big-endian number, for ciphers whose IV has 16 bytes.
    Big {
        /// The first unit's IV.
        first: u128,
        /// What is added from unit to unit.
        step: u64,
    },
    /// The units' IVs one after the other, each as long as the cipher's IV.
    List(&'a [u8]),
}

impl Ivs<'_> {
    /// Writes the IV of unit `k`. A list must have one for it.
    pub fn write(&self, k: usize, iv: &mut [u8]) {
        let counted = |first: u128, step: u64| first.wrapping_add((k as u128).wrapping_mul(step.into()));
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

/// What does the work of a cipher under one key.
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

    /// What went wrong under this handle and was mended, if anything: an engine that is no longer asked.
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

/// A cipher of the registry under one key: what the kernel calls a tfm.
///
/// `data_unit_size`, once set, holds for the handle's life: a request may then carry many units. Without it a
/// request is one unit.
pub struct Cipher {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) algorithm: String,
    pub(crate) driver_name: String,
    pub(crate) iv_len: usize,
    pub(crate) block_len: usize,
    pub(crate) whole_blocks: bool,
    pub(crate) flags: Flags,
    pub(crate) data_unit_size: Option<usize>,
}

impl Cipher {
    /// Fixes the size of the data units of every request.
    ///
    /// # Errors
    /// A size below the cipher's block, or not whole blocks where the mode needs them.
    pub fn with_data_unit_size(mut self, size: usize) -> Result<Cipher, RequestError> {
        self.check_unit(size)?;
        self.data_unit_size = Some(size);
        Ok(self)
    }

    /// Encrypts `data` in place.
    ///
    /// # Errors
    /// A length that is no positive multiple of the data unit, IVs that do not fit, or a driver's failure; nothing
    /// is promised about `data` after the last.
    pub fn encrypt(&self, ivs: &Ivs<'_>, data: &mut [u8]) -> Result<(), RequestError> {
        self.run(Direction::Encrypt, ivs, data)
    }

    /// Decrypts `data` in place.
    ///
    /// # Errors
    /// As [`Cipher::encrypt`].
    pub fn decrypt(&self, ivs: &Ivs<'_>, data: &mut [u8]) -> Result<(), RequestError> {
        self.run(Direction::Decrypt, ivs, data)
    }

    /// The same in the direction given.
    ///
    /// # Errors
    /// As [`Cipher::encrypt`].
    pub fn run(&self, direction: Direction, ivs: &Ivs<'_>, data: &mut [u8]) -> Result<(), RequestError> {
        let size = self.data_unit_size.unwrap_or(data.len());
        self.check_unit(size)?;
        if data.is_empty() || !data.len().is_multiple_of(size) {
            return Err(RequestError::Length { len: data.len(), unit: size });
        }
        let units = data.len() / size;
        match ivs {
            Ivs::List(list) if list.len() != units * self.iv_len => {
                return Err(RequestError::Ivs { given: list.len(), needed: units * self.iv_len });
            }
            Ivs::Big { .. } if self.iv_len > 16 => return Err(RequestError::BigEndianIv(self.iv_len)),
            _ => {}
        }
        if self.flags.contains(Flags::MULTI_DATA_UNIT) {
            self.driver.many(direction, size, ivs, self.iv_len, data)?;
        } else {
            walk(&*self.driver, direction, size, ivs, self.iv_len, data)?;
        }
        Ok(())
    }

    /// The algorithm's name, such as `xts(aes)`.
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// The name of the driver that does the work.
    pub fn driver_name(&self) -> &str {
        &self.driver_name
    }

    /// What went wrong under this handle and was mended, if anything: an engine that is no longer asked.
    pub fn trouble(&self) -> Option<&str> {
        self.driver.trouble()
    }

    /// Bytes of an IV; 0 for ciphers without.
    pub fn iv_len(&self) -> usize {
        self.iv_len
    }

    /// The least size of a data unit.
    pub fn block_len(&self) -> usize {
        self.block_len
    }

    /// Whether one call does many data units.
    pub fn batches(&self) -> bool {
        self.flags.contains(Flags::MULTI_DATA_UNIT)
    }

    fn check_unit(&self, unit: usize) -> Result<(), RequestError> {
        if unit < self.block_len {
            return Err(RequestError::UnitBelowBlock { unit, block: self.block_len });
        }
        if self.whole_blocks && !unit.is_multiple_of(self.block_len) {
            return Err(RequestError::PartBlock { unit, block: self.block_len });
        }
        Ok(())
    }
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cipher({} by {})", self.algorithm, self.driver_name)
    }
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

/// Why a request was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// A data unit smaller than the cipher's block.
    UnitBelowBlock {
        /// The unit's size.
        unit: usize,
        /// The block's.
        block: usize,
    },
    /// A data unit that is not whole blocks, for a mode that can't end within a block.
    PartBlock {
        /// The unit's size.
        unit: usize,
        /// The block's.
        block: usize,
    },
    /// A length that is no positive multiple of the data unit.
    Length {
        /// The request's length.
        len: usize,
        /// The unit's size.
        unit: usize,
    },
    /// A list of IVs of another length.
    Ivs {
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Big-endian counters for a cipher with a longer IV.
    BigEndianIv(usize),
    /// The driver failed.
    Driver(DriverError),
}

impl From<DriverError> for RequestError {
    fn from(error: DriverError) -> RequestError {
        RequestError::Driver(error)
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::UnitBelowBlock { unit, block } => {
                write!(f, "a data unit of {unit} bytes is smaller than the cipher's block of {block}")
            }
            RequestError::PartBlock { unit, block } => {
                write!(f, "a data unit of {unit} bytes is not made of whole blocks of {block}")
            }
            RequestError::Length { len, unit } => {
                write!(f, "{len} bytes are no positive multiple of the data unit's {unit}")
            }
            RequestError::Ivs { given, needed } => {
                write!(f, "{given} bytes of IVs where {needed} are needed")
            }
            RequestError::BigEndianIv(len) => {
                write!(f, "big-endian counters need an IV of at most 16 bytes, this cipher's has {len}")
            }
            RequestError::Driver(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RequestError {}
