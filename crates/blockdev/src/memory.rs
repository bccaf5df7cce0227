//! A device in memory.

use std::sync::{PoisonError, RwLock};

use crate::device::{BlockDevice, past_end};
use crate::error::Result;
use crate::u64_of;

/// A device of fixed size whose bytes lie in memory; for tests and small structures.
#[derive(Debug, Default)]
pub struct MemoryDevice(RwLock<Vec<u8>>);

impl MemoryDevice {
    /// A device with these bytes.
    pub fn new(bytes: Vec<u8>) -> MemoryDevice {
        MemoryDevice(RwLock::new(bytes))
    }

    /// The bytes as they are now.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockDevice for MemoryDevice {
    fn below(&self) -> Option<&dyn BlockDevice> {
        None
    }

    fn size(&self) -> u64 {
        u64_of(self.0.read().unwrap_or_else(PoisonError::into_inner).len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let bytes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let from = range(offset, buf.len(), bytes.len())?;
        buf.copy_from_slice(&bytes[from]);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut bytes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let to = range(offset, buf.len(), bytes.len())?;
        bytes[to].copy_from_slice(buf);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

fn range(offset: u64, len: usize, size: usize) -> Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok();
    let end = start.and_then(|start| start.checked_add(len)).filter(|end| *end <= size);
    match (start, end) {
        (Some(start), Some(end)) => Ok(start..end),
        _ => Err(past_end(offset, len, u64_of(size))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_can_be_touched() {
        let device = MemoryDevice::new(vec![7; 10]);
        device.write_at(&[1, 2], 8).unwrap();
        assert!(device.write_at(&[1, 2], 9).is_err());
        assert!(device.read_at(&mut [0], u64::MAX).is_err());
        assert_eq!(device.into_bytes(), [7, 7, 7, 7, 7, 7, 7, 7, 1, 2]);
    }
}
