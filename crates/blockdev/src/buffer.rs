//! Room for what is read, at an address where copying into it and hashing out of it are fastest.

use std::ops::{Deref, DerefMut};

/// A cache line, and the widest vector register.
const ALIGNMENT: usize = 64;

/// Bytes that begin on a cache line, for large reads.
///
/// The allocator puts large vectors 16 bytes behind the start of a page. A copy to an address so little behind that of
/// its source, counted in their pages, is what AMD's string instructions are slow at: the kernel's copy out of the page
/// cache takes four times as long on Zen 3, and 6 % longer on Zen 4. Each wide load touches two lines, too.
#[derive(Debug, Default)]
pub struct Buffer {
    /// `ALIGNMENT` bytes larger than needed.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// A buffer of `len` zero bytes.
    pub fn new(len: usize) -> Buffer {
        let mut buffer = Buffer::default();
        buffer.resize(len);
        buffer
    }

    /// Makes the buffer `len` bytes long, whatever is in them then: it is for reading into.
    pub fn resize(&mut self, len: usize) {
        if self.bytes.len() < len + ALIGNMENT {
            self.bytes = vec![0; len + ALIGNMENT];
            // An offset that can't be had, which the standard library allows, costs speed alone.
            self.start = self.bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        }
        self.len = len;
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_on_a_cache_line_at_every_length() {
        let mut buffer = Buffer::default();
        assert!(buffer.is_empty());
        for len in [1, 64, 0, 4096, 63, 100_000, 1 << 20, 5] {
            buffer.resize(len);
            assert_eq!((buffer.len(), buffer.as_ptr().align_offset(ALIGNMENT)), (len, 0));
            buffer.fill(7);
        }
    }
}
