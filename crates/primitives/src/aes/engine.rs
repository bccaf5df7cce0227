//! Engines: what the instructions of a back end must be able to do, and how all engines work through a
//! buffer.
//!
//! The modes are written once, for any [`Engine`]; a back end's file makes functions for its instruction set
//! out of them with [`engine_functions`](super::functions). Everything on the way is `inline(always)`, so that the code of a
//! mode is compiled with the instructions of the function it ends up in.

use crate::inout::InOut;

use super::schedule::Schedule;

/// How many vectors are in flight: AES instructions take 3 to 5 cycles and two can start in each, so 8 of them
/// keep both units busy.
pub(super) const WIDE: usize = 8;

/// The most bytes that [`WIDE`] vectors of any engine have.
pub(super) const WIDEST: usize = WIDE * 4 * 16;

/// AES on vectors of blocks. A value of the type proves that the CPU has the instructions.
pub(super) trait Engine: Copy {
    /// [`Self::LANES`] blocks.
    type V: Copy;

    /// How many blocks a vector has: 1, 2 or 4.
    const LANES: usize;

    /// Reads a vector.
    ///
    /// # Safety
    /// `16 * LANES` bytes at `src` are readable.
    unsafe fn load(self, src: *const u8) -> Self::V;

    /// Writes a vector.
    ///
    /// # Safety
    /// `16 * LANES` bytes at `dst` are writable.
    unsafe fn store(self, dst: *mut u8, v: Self::V);

    /// Reads `len` bytes, fewer than a vector; the rest is zero.
    ///
    /// # Safety
    /// `len` bytes at `src` are readable.
    #[inline(always)]
    unsafe fn load_part(self, src: *const u8, len: usize) -> Self::V {
        let mut scratch = Scratch([0; 64]);
        // SAFETY: the caller vouches for the source, and a vector has at most 64 bytes.
        unsafe { src.copy_to_nonoverlapping(scratch.0.as_mut_ptr(), len) };
        // SAFETY: the scratch bytes are enough for one vector of any engine.
        unsafe { self.load(scratch.0.as_ptr()) }
    }

    /// Writes the first `len` bytes of a vector, fewer than all.
    ///
    /// # Safety
    /// `len` bytes at `dst` are writable.
    #[inline(always)]
    unsafe fn store_part(self, dst: *mut u8, v: Self::V, len: usize) {
        let mut scratch = Scratch([0; 64]);
        // SAFETY: the scratch bytes are enough for one vector of any engine.
        unsafe { self.store(scratch.0.as_mut_ptr(), v) };
        // SAFETY: the caller vouches for the destination, and a vector has at most 64 bytes.
        unsafe { dst.copy_from_nonoverlapping(scratch.0.as_ptr(), len) };
    }

    /// A vector whose first block is `block`; what the others are is of no interest.
    fn splat_block(self, block: [u8; 16]) -> Self::V;

    /// The first block of a vector.
    fn first_block(self, v: Self::V) -> [u8; 16];

    fn xor(self, a: Self::V, b: Self::V) -> Self::V;

    /// Encrypts `N` vectors, at most [`WIDE`].
    fn encrypt<const N: usize>(self, keys: &Schedule, v: [Self::V; N]) -> [Self::V; N];

    /// Decrypts `N` vectors, at most [`WIDE`].
    fn decrypt<const N: usize>(self, keys: &Schedule, v: [Self::V; N]) -> [Self::V; N];

    /// Lane i is `tweak` times x^i in XTS's field.
    fn first_tweaks(self, tweak: [u8; 16]) -> Self::V;

    /// Multiplies each block by x^LANES in XTS's field.
    fn next_tweaks(self, v: Self::V) -> Self::V;

    /// The tweaks of [`WIDE`] vectors, from the first one's on.
    #[inline(always)]
    fn tweaks(self, first: Self::V) -> [Self::V; WIDE] {
        let mut tweaks = [first; WIDE];
        for i in 1..WIDE {
            tweaks[i] = self.next_tweaks(tweaks[i - 1]);
        }
        tweaks
    }
}

/// Bytes on the stack in which a vector of any engine can be stored whole.
#[repr(C, align(64))]
pub(super) struct Scratch<const N: usize>(pub [u8; N]);

/// The bytes of [`WIDE`] vectors.
#[inline(always)]
pub(super) const fn wide<E: Engine>() -> usize {
    WIDE * E::LANES * 16
}

#[inline(always)]
pub(super) fn crypt<E: Engine, const DECRYPT: bool, const N: usize>(
    e: E,
    keys: &Schedule,
    v: [E::V; N],
) -> [E::V; N] {
    if DECRYPT { e.decrypt(keys, v) } else { e.encrypt(keys, v) }
}

/// En- or decrypts those of `v` that hold the first `len` bytes; what the others become is of no interest.
#[inline(always)]
pub(super) fn crypt_some<E: Engine, const DECRYPT: bool>(
    e: E,
    keys: &Schedule,
    mut v: [E::V; WIDE],
    len: usize,
) -> [E::V; WIDE] {
    let vectors = len.div_ceil(16 * E::LANES);
    if vectors <= 1 {
        [v[0]] = crypt::<E, DECRYPT, 1>(e, keys, [v[0]]);
    } else if vectors <= 4 {
        [v[0], v[1], v[2], v[3]] = crypt::<E, DECRYPT, 4>(e, keys, [v[0], v[1], v[2], v[3]]);
    } else {
        v = crypt::<E, DECRYPT, WIDE>(e, keys, v);
    }
    v
}

/// Reads [`WIDE`] vectors.
///
/// # Safety
/// `wide::<E>()` bytes at `src` are readable.
#[inline(always)]
pub(super) unsafe fn load_wide<E: Engine>(e: E, src: *const u8) -> [E::V; WIDE] {
    // SAFETY: the caller vouches for WIDE vectors from `src` on; the first is among them.
    let mut v = [unsafe { e.load(src) }; WIDE];
    for (i, v) in v.iter_mut().enumerate().skip(1) {
        // SAFETY: the caller vouches for WIDE vectors from `src` on, and `i` is below WIDE.
        *v = unsafe { e.load(src.add(i * E::LANES * 16)) };
    }
    v
}

/// Writes [`WIDE`] vectors.
///
/// # Safety
/// `wide::<E>()` bytes at `dst` are writable.
#[inline(always)]
pub(super) unsafe fn store_wide<E: Engine>(e: E, dst: *mut u8, v: [E::V; WIDE]) {
    for (i, v) in v.into_iter().enumerate() {
        // SAFETY: the caller vouches for WIDE vectors from `dst` on, and `i` is below WIDE.
        unsafe { e.store(dst.add(i * E::LANES * 16), v) };
    }
}

/// [`WIDE`] vectors that begin with `len` bytes, of which there are at most that many; the rest is zero.
///
/// # Safety
/// `len` bytes at `src` are readable.
#[inline(always)]
pub(super) unsafe fn load_some<E: Engine>(e: E, src: *const u8, len: usize) -> [E::V; WIDE] {
    let step = E::LANES * 16;
    let mut v = [e.splat_block([0; 16]); WIDE];
    for (i, v) in v.iter_mut().enumerate().take_while(|(i, _)| i * step < len) {
        // SAFETY: the bytes from `i * step` on that are read lie below `len`.
        *v = unsafe {
            let (src, left) = (src.add(i * step), len - i * step);
            if left >= step { e.load(src) } else { e.load_part(src, left) }
        };
    }
    v
}

/// Writes the first `len` bytes of [`WIDE`] vectors.
///
/// # Safety
/// `len` bytes at `dst` are writable.
#[inline(always)]
pub(super) unsafe fn store_some<E: Engine>(e: E, dst: *mut u8, v: [E::V; WIDE], len: usize) {
    let step = E::LANES * 16;
    for (i, v) in v.into_iter().enumerate().take_while(|(i, _)| i * step < len) {
        // SAFETY: the bytes from `i * step` on that are written lie below `len`.
        unsafe {
            let (dst, left) = (dst.add(i * step), len - i * step);
            if left >= step { e.store(dst, v) } else { e.store_part(dst, v, left) }
        }
    }
}

/// As [`load_some`], from the source of `io`.
#[inline(always)]
pub(super) fn read_some<E: Engine>(e: E, io: &InOut<'_>, at: usize, len: usize) -> [E::V; WIDE] {
    assert!(len <= wide::<E>());
    // SAFETY: `src` checks that `len` bytes from `at` on are part of the buffer.
    unsafe { load_some(e, io.src(at, len), len) }
}

/// As [`store_some`], to the destination of `io`.
#[inline(always)]
pub(super) fn write_some<E: Engine>(e: E, io: &mut InOut<'_>, at: usize, v: [E::V; WIDE], len: usize) {
    assert!(len <= wide::<E>());
    // SAFETY: `dst` checks that `len` bytes from `at` on are part of the buffer.
    unsafe { store_some(e, io.dst(at, len), v, len) }
}

/// The bytes of [`WIDE`] vectors.
#[inline(always)]
pub(super) fn bytes_of<E: Engine>(e: E, v: [E::V; WIDE]) -> Scratch<WIDEST> {
    let mut scratch = Scratch([0; WIDEST]);
    // SAFETY: the scratch bytes are enough for WIDE vectors of any engine.
    unsafe { store_wide(e, scratch.0.as_mut_ptr(), v) };
    scratch
}

/// XORs vectors pairwise.
#[inline(always)]
pub(super) fn xor_wide<E: Engine>(e: E, mut a: [E::V; WIDE], b: &[E::V; WIDE]) -> [E::V; WIDE] {
    for (a, b) in a.iter_mut().zip(b) {
        *a = e.xor(*a, *b);
    }
    a
}

/// En- or decrypts one block.
#[inline(always)]
pub(super) fn crypt_block<E: Engine, const DECRYPT: bool>(
    e: E,
    keys: &Schedule,
    block: [u8; 16],
) -> [u8; 16] {
    let [v] = crypt::<E, DECRYPT, 1>(e, keys, [e.splat_block(block)]);
    e.first_block(v)
}

/// XORs 16 bytes.
#[inline(always)]
pub(super) fn xor_block(a: [u8; 16], b: [u8; 16]) -> [u8; 16] {
    (u128::from_ne_bytes(a) ^ u128::from_ne_bytes(b)).to_ne_bytes()
}
