//! Much memory at once, from the allocator.

use std::io;

/// Bytes that pages begin at multiples of.
const PAGE: usize = 4096;

/// Memory of its own pages, zeros at first.
#[derive(Debug)]
pub struct Pages {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Pages {
    /// So many bytes, at least one.
    ///
    /// # Errors
    /// `OutOfMemory`; `InvalidInput` for none.
    pub fn new(len: usize) -> io::Result<Pages> {
        if len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let all = len.checked_add(PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(all).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.resize(all, 0);
        let start = bytes.as_ptr().align_offset(PAGE);
        Ok(Pages { bytes, start, len })
    }

    /// The memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}
