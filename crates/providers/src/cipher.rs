//! A cipher under a key, run by one implementation.

use std::fmt;

use crate::driver::{Direction, Driver, DriverError, Ivs, walk};
use crate::flags::Flags;
use crate::row::{BadKey, CipherSpec, Row};

/// A cipher of the registry under one key: what the kernel calls a tfm.
///
/// `data_unit_size`, once set, holds for the handle's life: a request may then carry many units. Without it a
/// request is one unit.
pub struct Cipher {
    pub(crate) driver: Box<dyn Driver>,
    algorithm: String,
    driver_name: String,
    iv_len: usize,
    block_len: usize,
    whole_blocks: bool,
    flags: Flags,
    data_unit_size: Option<usize>,
}

impl Cipher {
    /// A row under a key; `spec` is the row's.
    pub(crate) fn keyed(row: &Row, spec: &CipherSpec, key: &[u8]) -> Result<Cipher, BadKey> {
        if !spec.key_lens.contains(&key.len()) {
            let lens = |factor: usize| {
                let lens: Vec<_> = spec.key_lens.iter().map(|len| (len * factor).to_string()).collect();
                lens.join(" or ")
            };
            let (algorithm, bytes, bits, len) = (&row.algorithm, lens(1), lens(8), key.len());
            let text = format!(
                "{algorithm} takes keys of {bytes} bytes ({bits} bits), not of {len} ({} bits)",
                8 * len
            );
            return Err(BadKey(text));
        }
        Ok(Cipher {
            driver: (spec.make)(key)?,
            algorithm: row.algorithm.clone(),
            driver_name: row.driver.clone(),
            iv_len: spec.iv_len,
            block_len: spec.block_len,
            whole_blocks: spec.whole_blocks,
            flags: row.flags,
            data_unit_size: None,
        })
    }

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
    /// A length that is not a positive multiple of the data unit, IVs that do not fit, or a driver's failure; nothing
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

    /// Encrypts or decrypts `data` in place.
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

    /// The fault of an engine under this handle, if there was one: it was mended, and the engine is no longer asked.
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
    /// A length that is not a positive multiple of the data unit.
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
                write!(f, "{len} bytes are not a positive multiple of the data unit's {unit}")
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
