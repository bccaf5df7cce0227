//! What the tests of every back end share: guarded buffers and a seeded generator.

use std::ops::{Deref, DerefMut};
use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

const PAGE: usize = 4096;

/// Bytes whose last one is followed by a page that may not be touched, or whose first one is preceded by one.
///
/// A back end that reads or writes outside its slice dies at once instead of passing by luck.
pub struct Guarded {
    map: *mut u8,
    map_len: usize,
    start: *mut u8,
    len: usize,
}

impl Guarded {
    /// `len` zero bytes that end where a forbidden page begins.
    pub fn at_end(len: usize) -> Guarded {
        Guarded::new(len, true)
    }

    /// `len` zero bytes that begin where a forbidden page ends.
    pub fn at_start(len: usize) -> Guarded {
        Guarded::new(len, false)
    }

    /// A copy of `bytes` that ends where a forbidden page begins.
    pub fn copy_at_end(bytes: &[u8]) -> Guarded {
        let mut guarded = Guarded::at_end(bytes.len());
        guarded.copy_from_slice(bytes);
        guarded
    }

    /// A copy of `bytes` that begins where a forbidden page ends.
    pub fn copy_at_start(bytes: &[u8]) -> Guarded {
        let mut guarded = Guarded::at_start(bytes.len());
        guarded.copy_from_slice(bytes);
        guarded
    }

    fn new(len: usize, at_end: bool) -> Guarded {
        let inner = len.next_multiple_of(PAGE).max(PAGE);
        let map_len = inner + 2 * PAGE;
        let flags = MapFlags::PRIVATE;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps nothing.
        let map = unsafe { mmap_anonymous(ptr::null_mut(), map_len, ProtFlags::empty(), flags) };
        let map = map.expect("an anonymous mapping").cast::<u8>();
        let body = map.wrapping_add(PAGE);
        // SAFETY: `body .. body + inner` lies inside the mapping made above, which nobody else knows.
        unsafe { mprotect(body.cast(), inner, MprotectFlags::READ | MprotectFlags::WRITE) }
            .expect("access to the mapping's inner pages");
        let start = if at_end { body.wrapping_add(inner - len) } else { body };
        Guarded { map, map_len, start, len }
    }
}

impl Deref for Guarded {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is the first of `len` readable bytes of the mapping that `self` owns.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl DerefMut for Guarded {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `start` is the first of `len` writable bytes of the mapping that `self` owns alone.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the whole mapping is unmapped once, by its only owner.
        let _ = unsafe { munmap(self.map.cast(), self.map_len) };
    }
}

/// A small seeded generator (SplitMix64), so that a failing test can be repeated from its seed.
pub struct Rng(u64);

impl Rng {
    /// A generator whose whole output follows from `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..end`; `end` must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.fill(&mut out);
        out
    }
}
