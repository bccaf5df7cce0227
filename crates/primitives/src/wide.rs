//! Data units of the wide-block ciphers, whose tweaks have 32 bytes.

use crate::aes::UnitError;

/// Equal data units and their 32-byte tweaks, for one call on many of them.
///
/// Unit k has the tweak `first` with `k * step` added to its first eight bytes, little-endian and modulo 2^64. That
/// is dm-crypt's `plain64` with 24 zero bytes after the number, and fscrypt's block index with the file's nonce after
/// it.
#[derive(Clone, Copy, Debug)]
pub struct WideUnits {
    /// Bytes of a unit, at least 16.
    pub size: usize,
    /// The tweak of unit 0.
    pub first: [u8; 32],
    /// The step from one unit's tweak to the next one's.
    pub step: u64,
}

impl WideUnits {
    /// Units of `size` bytes whose tweaks are the numbers `first`, `first + step`, ... with nothing after them.
    pub fn counted(size: usize, first: u64, step: u64) -> WideUnits {
        let mut tweak = [0; 32];
        tweak[..8].copy_from_slice(&first.to_le_bytes());
        WideUnits { size, first: tweak, step }
    }

    /// Calls `run` with every unit and its tweak, after checking that `data` is a positive number of units.
    pub(crate) fn each(
        &self,
        data: &mut [u8],
        mut run: impl FnMut(&[u8; 32], &mut [u8]) -> Result<(), UnitError>,
    ) -> Result<(), UnitError> {
        if self.size < 16 {
            return Err(UnitError::Size(self.size));
        }
        if data.is_empty() || !data.len().is_multiple_of(self.size) {
            return Err(UnitError::Length { len: data.len(), unit: self.size });
        }
        let mut tweak = self.first;
        for unit in data.chunks_exact_mut(self.size) {
            run(&tweak, unit)?;
            if let Some(number) = tweak.first_chunk_mut() {
                *number = u64::from_le_bytes(*number).wrapping_add(self.step).to_le_bytes();
            }
        }
        Ok(())
    }
}

/// XORs 16 bytes.
pub(crate) fn xor(a: [u8; 16], b: [u8; 16]) -> [u8; 16] {
    (u128::from_ne_bytes(a) ^ u128::from_ne_bytes(b)).to_ne_bytes()
}
