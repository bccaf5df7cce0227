//! Data units: equal pieces of a buffer, each with its own IV.

use std::fmt;

use crate::inout::InOut;

/// Equal data units and their IVs (XTS: tweaks), for one call on many of them.
///
/// dm-crypt's sectors and fscrypt's file blocks are such units. The buffer's length must be a positive
/// multiple of `size`.
#[derive(Clone, Copy, Debug)]
pub struct Units<'a> {
    /// Bytes of a unit, at least 16.
    pub size: usize,
    /// The units' IVs.
    pub ivs: Ivs<'a>,
}

/// The IVs of data units.
#[derive(Clone, Copy, Debug)]
pub enum Ivs<'a> {
    /// Unit k has `first + k * step`, modulo 2^128, as a little-endian number: `plain64`, fscrypt's block index.
    Little {
        /// The IV of unit 0.
        first: u128,
        /// The step from one unit's IV to the next one's: 1, or 8 for 4096-byte sectors counted in 512 bytes.
        step: u64,
    },
    /// Unit k has the same IV as a big-endian number: `plain64be`, `benbi`.
    Big {
        /// The IV of unit 0.
        first: u128,
        /// The step from one unit's IV to the next one's.
        step: u64,
    },
    /// Each unit has an IV of the list, as it stands.
    List(&'a [[u8; 16]]),
}

impl<'a> Units<'a> {
    /// Units of `size` bytes with little-endian IVs `first`, `first + step`, ...
    pub fn counted(size: usize, first: u128, step: u64) -> Units<'static> {
        Units { size, ivs: Ivs::Little { first, step } }
    }

    /// Units of `size` bytes with an IV each.
    pub fn listed(size: usize, ivs: &'a [[u8; 16]]) -> Units<'a> {
        Units { size, ivs: Ivs::List(ivs) }
    }

    /// Whether `len` bytes are a positive number of whole units, with an IV for each.
    pub(crate) fn check(&self, len: usize) -> Result<(), UnitError> {
        if self.size < 16 {
            return Err(UnitError::Size(self.size));
        }
        if len == 0 || !len.is_multiple_of(self.size) {
            return Err(UnitError::Length { len, unit: self.size });
        }
        match self.ivs {
            Ivs::List(ivs) if ivs.len() != len / self.size => {
                Err(UnitError::Ivs { units: len / self.size, ivs: ivs.len() })
            }
            _ => Ok(()),
        }
    }

    /// Whether units also hold whole blocks only.
    pub(crate) fn check_blocks(&self, len: usize) -> Result<(), UnitError> {
        self.check(len)?;
        if self.size.is_multiple_of(16) { Ok(()) } else { Err(UnitError::Blocks(self.size)) }
    }

    /// Fills `out` with the IVs of the units from `start` on. There must be that many in a list.
    #[inline(always)]
    pub(crate) fn fill(&self, start: usize, out: &mut [[u8; 16]]) {
        match self.ivs {
            Ivs::Little { first, step } => {
                let mut iv = first.wrapping_add((start as u128).wrapping_mul(step.into()));
                for out in out {
                    *out = iv.to_le_bytes();
                    iv = iv.wrapping_add(step.into());
                }
            }
            Ivs::Big { first, step } => {
                let mut iv = first.wrapping_add((start as u128).wrapping_mul(step.into()));
                for out in out {
                    *out = iv.to_be_bytes();
                    iv = iv.wrapping_add(step.into());
                }
            }
            Ivs::List(ivs) => out.copy_from_slice(&ivs[start..][..out.len()]),
        }
    }
}

/// Source and destination as one value, or the error that they differ in length.
pub(crate) fn pair<'a>(src: &'a [u8], dst: &'a mut [u8]) -> Result<InOut<'a>, UnitError> {
    if src.len() != dst.len() {
        return Err(UnitError::Buffers { src: src.len(), dst: dst.len() });
    }
    Ok(InOut::apart(src, dst))
}

/// An error in data units: their size, their IVs or their buffer. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnitError {
    /// A unit smaller than the cipher's block.
    Size(usize),
    /// A unit that is not a multiple of 16 bytes, for a mode without ciphertext stealing.
    Blocks(usize),
    /// A length that is not a positive multiple of the unit.
    Length {
        /// The buffer's length.
        len: usize,
        /// The unit's size.
        unit: usize,
    },
    /// A list of IVs for another number of units.
    Ivs {
        /// How many units the buffer has.
        units: usize,
        /// How many IVs were given.
        ivs: usize,
    },
    /// A source and a destination of different lengths.
    Buffers {
        /// The source's length.
        src: usize,
        /// The destination's length.
        dst: usize,
    },
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnitError::Size(unit) => write!(f, "data units of {unit} bytes; the least is one block of 16"),
            UnitError::Blocks(unit) => {
                write!(f, "data units of {unit} bytes; this mode needs a multiple of 16")
            }
            UnitError::Length { len, unit } => {
                write!(f, "{len} bytes are not a positive multiple of the data unit's {unit}")
            }
            UnitError::Ivs { units, ivs } => write!(f, "{ivs} IVs for {units} data units"),
            UnitError::Buffers { src, dst } => {
                write!(f, "a source of {src} bytes and a destination of {dst}; both must be equally long")
            }
        }
    }
}

impl std::error::Error for UnitError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_carry_through_all_128_bits() {
        let mut ivs = [[0; 16]; 3];
        Units::counted(512, u128::MAX - 7, 8).fill(0, &mut ivs);
        assert_eq!(ivs.map(u128::from_le_bytes), [u128::MAX - 7, 0, 8]);
        Units { size: 512, ivs: Ivs::Big { first: u128::from(u64::MAX), step: 1 } }.fill(1, &mut ivs);
        assert_eq!(ivs.map(u128::from_be_bytes), [1 << 64, (1 << 64) + 1, (1 << 64) + 2]);
    }

    #[test]
    fn impossible_lengths_are_refused() {
        let counted = |size| Units::counted(size, 0, 1);
        assert_eq!(counted(15).check(30), Err(UnitError::Size(15)));
        assert_eq!(counted(0).check(0), Err(UnitError::Size(0)));
        assert_eq!(counted(16).check(0), Err(UnitError::Length { len: 0, unit: 16 }));
        assert_eq!(counted(512).check(513), Err(UnitError::Length { len: 513, unit: 512 }));
        assert_eq!(counted(17).check(34), Ok(()));
        assert_eq!(counted(17).check_blocks(34), Err(UnitError::Blocks(17)));
        assert_eq!(Units::listed(16, &[[0; 16]; 2]).check(48), Err(UnitError::Ivs { units: 3, ivs: 2 }));
    }
}
