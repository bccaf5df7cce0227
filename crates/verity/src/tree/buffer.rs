//! Room for blocks, at an address where copying into it and hashing out of it are fastest.

use std::ops::{Deref, DerefMut};

/// A cache line, and the widest vector register.
const ALIGNMENT: usize = 64;

/// Bytes that begin on a cache line.
///
/// The allocator puts large buffers 16 bytes behind one. Then the kernel's copy out of the page cache takes 6 % longer
/// on Zen 4, and each wide load touches two lines.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// `ALIGNMENT` bytes larger than needed.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Makes it `len` bytes long. What was in it is lost if it has never been so long.
    pub(super) fn resize(&mut self, len: usize) {
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
