//! Source and destination of a cipher's bytes.

use std::marker::PhantomData;

/// One buffer that is changed in place, or two of equal length that don't overlap.
///
/// Back ends take this one type, so that neither form needs a copy of the other's code. It holds raw pointers
/// because a shared and an exclusive reference to one buffer must not exist together; the lifetime is that of
/// the exclusive one. The source and the destination of one offset are either the same address or belong to
/// different allocations.
pub(crate) struct InOut<'a> {
    src: *const u8,
    dst: *mut u8,
    len: usize,
    buffers: PhantomData<(&'a [u8], &'a mut [u8])>,
}

impl<'a> InOut<'a> {
    /// Source and destination in one: `data` is read and written.
    pub fn in_place(data: &'a mut [u8]) -> InOut<'a> {
        let dst = data.as_mut_ptr();
        InOut { src: dst, dst, len: data.len(), buffers: PhantomData }
    }

    /// Source and destination apart: `src` is read, and `dst`, which must be equally long, is written.
    pub fn apart(src: &'a [u8], dst: &'a mut [u8]) -> InOut<'a> {
        assert_eq!(src.len(), dst.len(), "source and destination are equally long");
        InOut { src: src.as_ptr(), dst: dst.as_mut_ptr(), len: src.len(), buffers: PhantomData }
    }

    /// The `len` bytes from `start` on.
    #[inline(always)]
    pub fn part(&mut self, start: usize, len: usize) -> InOut<'_> {
        assert!(start <= self.len && len <= self.len - start, "{start} + {len} of {}", self.len);
        let (src, dst) = (self.src.wrapping_add(start), self.dst.wrapping_add(start));
        InOut { src, dst, len, buffers: PhantomData }
    }

    /// The number of bytes of the source, which is that of the destination too.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether source and destination are one buffer.
    #[cfg(target_arch = "x86_64")]
    pub fn is_in_place(&self) -> bool {
        std::ptr::eq(self.src, self.dst)
    }

    /// The address of `len` readable bytes at `start`.
    #[inline(always)]
    pub fn src(&self, start: usize, len: usize) -> *const u8 {
        assert!(start <= self.len && len <= self.len - start, "{start} + {len} of {}", self.len);
        self.src.wrapping_add(start)
    }

    /// The address of `len` writable bytes at `start`.
    #[inline(always)]
    pub fn dst(&mut self, start: usize, len: usize) -> *mut u8 {
        assert!(start <= self.len && len <= self.len - start, "{start} + {len} of {}", self.len);
        self.dst.wrapping_add(start)
    }

    /// Copies source bytes from `start` on into `out`.
    #[inline(always)]
    pub fn read(&self, start: usize, out: &mut [u8]) {
        assert!(start <= self.len && out.len() <= self.len - start);
        // SAFETY: `out.len()` source bytes are readable at `start`, and `out` is borrowed exclusively, so it
        // can't overlap them.
        unsafe { self.src.add(start).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) }
    }

    /// Copies `bytes` to the destination from `start` on.
    #[inline(always)]
    pub fn write(&mut self, start: usize, bytes: &[u8]) {
        assert!(start <= self.len && bytes.len() <= self.len - start);
        // SAFETY: `bytes.len()` destination bytes are writable at `start`, and the destination is borrowed
        // exclusively, so `bytes` can't overlap it.
        unsafe { self.dst.add(start).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// The source block at `start`.
    #[inline(always)]
    pub fn block(&self, start: usize) -> [u8; 16] {
        let mut block = [0; 16];
        self.read(start, &mut block);
        block
    }
}
