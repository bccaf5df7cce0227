//! Tools for the tests of every back end: guarded buffers, a seeded generator, and a count of AES key
//! schedules.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

pub use crate::rng::Rng;

const PAGE: usize = 4096;

thread_local! {
    static KEY_SCHEDULES: Cell<usize> = const { Cell::new(0) };
}

/// The number of AES key schedules that this thread has expanded so far.
pub fn key_schedules() -> usize {
    KEY_SCHEDULES.get()
}

pub(crate) fn count_key_schedule() {
    KEY_SCHEDULES.set(KEY_SCHEDULES.get() + 1);
}

/// memcheck's requests, from its header memcheck.h: `'M' << 24 | 'C' << 16`, plus one and two.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
const MAKE_UNDEFINED: u64 = 0x4d43_0001;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
const MAKE_DEFINED: u64 = 0x4d43_0002;

/// Makes bytes secret, as valgrind's memcheck sees them: it reports each jump and each address that depends on them. The method
/// is Langley's (ctgrind). Without valgrind nothing happens.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub fn conceal(bytes: &[u8]) {
    request(MAKE_UNDEFINED, bytes);
}

/// Makes bytes public, which secrets went into: a result that the caller decides by, such as whether a tag is right.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub fn reveal(bytes: &[u8]) {
    request(MAKE_DEFINED, bytes);
}

/// Asks valgrind something about `bytes`.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn request(code: u64, bytes: &[u8]) {
    let arguments = [code, bytes.as_ptr() as u64, bytes.len() as u64, 0, 0, 0];
    // SAFETY: four rotations by 128 bits in all and an exchange of a register with itself change nothing but flags;
    // valgrind takes them for a request, reads the six words at rax and writes its answer to rdx.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inout("rdx") 0_u64 => _,
            options(nostack),
        );
    }
}

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
        let map = guarded::map(map_len);
        let body = map.wrapping_add(PAGE);
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
        unsafe { guarded::unmap(self.map, self.map_len) };
    }
}

/// Pages between two that may not be touched.
#[cfg(unix)]
mod guarded {
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    use super::PAGE;

    pub fn map(len: usize) -> *mut u8 {
        // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps nothing.
        let map = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE) };
        let map = map.expect("an anonymous mapping").cast::<u8>();
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: all but the outer pages of the mapping made above, which nobody else knows.
        unsafe { mprotect(map.wrapping_add(PAGE).cast(), len - 2 * PAGE, access) }
            .expect("access to the mapping's inner pages");
        map
    }

    /// # Safety
    /// The mapping is used no more.
    pub unsafe fn unmap(map: *mut u8, len: usize) {
        // SAFETY: as the caller promises.
        let _ = unsafe { munmap(map.cast(), len) };
    }
}

/// Unguarded buffers: the back ends are those of Unix.
#[cfg(not(unix))]
mod guarded {
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    use super::PAGE;

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, PAGE).expect("a layout")
    }

    pub fn map(len: usize) -> *mut u8 {
        // SAFETY: a mapping has three pages at least.
        let map = unsafe { alloc_zeroed(layout(len)) };
        assert!(!map.is_null(), "memory");
        map
    }

    /// # Safety
    /// The mapping is used no more.
    pub unsafe fn unmap(map: *mut u8, len: usize) {
        // SAFETY: `map` made it with this layout.
        unsafe { dealloc(map, layout(len)) };
    }
}
