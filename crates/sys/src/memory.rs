//! Much memory at once, straight from the kernel.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Memory of its own pages, zeros at first, which the kernel brings in when they are touched: in large pages where it can,
/// so that scattered reads find them without walks through tables. Core dumps leave it out.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages belong to this value alone, and are reached through references to it.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// So many bytes, at least one.
    ///
    /// # Errors
    /// `OutOfMemory`; `InvalidInput` for none.
    pub fn new(len: usize) -> io::Result<Pages> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, wherever the kernel has room, touches no memory that is in use.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let pages = Pages { start, len };
        #[cfg(target_os = "linux")]
        for advice in [rustix::mm::Advice::LinuxHugepage, rustix::mm::Advice::LinuxDontDump] {
            // SAFETY: these kinds of advice change no contents. A kernel that does not know them does without.
            let _ = unsafe { rustix::mm::madvise(pages.start.as_ptr().cast(), len, advice) };
        }
        Ok(pages)
    }

    /// The memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has so many bytes, readable and writable, and is borrowed as this value is.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nothing borrows it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zeros_and_can_be_written() {
        for len in [1, 4096, 5 << 20] {
            let mut pages = Pages::new(len).unwrap();
            assert_eq!(pages.bytes_mut().len(), len);
            assert!(pages.bytes_mut().iter().all(|byte| *byte == 0));
            pages.bytes_mut().fill(0xa5);
            assert!(pages.bytes_mut().iter().all(|byte| *byte == 0xa5));
        }
        assert!(Pages::new(0).is_err());
        assert_eq!(Pages::new(1 << 60).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    }
}
