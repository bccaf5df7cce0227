//! A part of another device.

use std::ops::Range;

use crate::device::{BlockDevice, past_end};
use crate::error::{Error, Result};
use crate::u64_of;

/// A range of a device as a device of its own: a partition, the data before a hash tree, a header.
#[derive(Debug)]
pub struct Window<D> {
    inner: D,
    start: u64,
    len: u64,
}

impl<D: BlockDevice> Window<D> {
    /// The bytes `start .. start + len` of `inner`.
    ///
    /// # Errors
    /// `InvalidInput` when the range passes the end of `inner`.
    pub fn new(inner: D, start: u64, len: u64) -> Result<Window<D>> {
        let size = inner.size();
        if start.checked_add(len).is_none_or(|end| end > size) {
            let text = format!("{len} bytes at {start} pass the end of the device at {size}");
            return Err(Error::argument(text));
        }
        Ok(Window { inner, start, len })
    }

    fn position(&self, offset: u64, len: usize) -> Result<u64> {
        self.position_of(offset, u64_of(len))
    }

    fn position_of(&self, offset: u64, len: u64) -> Result<u64> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.start + offset),
            _ => Err(past_end(offset, len, self.len)),
        }
    }
}

impl<D: BlockDevice> BlockDevice for Window<D> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.inner)
    }

    fn size(&self) -> u64 {
        self.len
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, self.position(offset, buf.len())?)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, self.position(offset, buf.len())?)
    }

    fn write_from(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.write_from(buf, self.position(offset, buf.len())?)
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_punch: bool) -> Result<()> {
        self.inner.write_zeroes(self.position_of(offset, len)?, len, may_punch)
    }

    fn zero_fast(&self, offset: u64, len: u64, may_punch: bool) -> Result<()> {
        self.inner.zero_fast(self.position_of(offset, len)?, len, may_punch)
    }

    fn is_unwritten(&self) -> Result<bool> {
        self.inner.is_unwritten()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(self.position_of(offset, len)?, len)
    }

    fn can_discard(&self) -> bool {
        self.inner.can_discard()
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn forget_cached(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.forget_cached(self.position_of(offset, len)?, len)
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        if offset >= self.len {
            return Ok(None);
        }
        let data = self.inner.next_data(self.start + offset)?;
        Ok(data.and_then(|data| {
            let start = data.start - self.start;
            let end = (data.end - self.start).min(self.len);
            (start < end).then_some(start..end)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn a_window_shows_its_range_alone() {
        let inner = MemoryDevice::new((0..10).collect());
        let window = Window::new(&inner, 3, 4).unwrap();
        let mut buf = [0; 4];
        window.read_at(&mut buf, 0).unwrap();
        assert_eq!(buf, [3, 4, 5, 6]);
        assert!(window.read_at(&mut buf, 1).is_err());
        assert!(window.write_at(&[9], 4).is_err());
        window.write_at(&[9], 3).unwrap();
        window.write_zeroes(1, 1, true).unwrap();
        assert!(window.write_zeroes(3, 2, true).is_err());
        assert!(window.discard(u64::MAX, 2).is_err());
        assert_eq!(window.next_data(1).unwrap(), Some(1..4));
        assert_eq!(inner.into_bytes(), [0, 1, 2, 3, 0, 5, 9, 7, 8, 9]);
    }

    #[test]
    fn a_window_past_the_end_is_refused() {
        let inner = MemoryDevice::new(vec![0; 10]);
        assert!(Window::new(&inner, 10, 0).is_ok());
        assert!(Window::new(&inner, 9, 2).is_err());
        assert!(Window::new(&inner, u64::MAX, 2).is_err());
    }
}
