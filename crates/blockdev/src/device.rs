//! The one interface of everything that holds blocks.

use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes at positions, read and written through `&self` by any number of threads.
///
/// Reads and writes are exact: they move the whole buffer or fail. Two threads that write overlapping ranges
/// leave either one's bytes in the overlap.
pub trait BlockDevice: Send + Sync {
    /// The device's size in bytes at this moment.
    fn size(&self) -> u64;

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` when the device ends before the buffer is full; otherwise what the layer below says.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` from `offset` on.
    ///
    /// # Errors
    /// `ReadOnlyFilesystem` for devices that can't be written; otherwise what the layer below says.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Returns when everything written before is on stable storage.
    fn flush(&self) -> io::Result<()>;

    /// The next range at or after `offset` that may hold anything but zeros; `None` if only zeros follow.
    ///
    /// A device that knows nothing about holes calls everything data, which is always right.
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let size = self.size();
        Ok((offset < size).then_some(offset..size))
    }
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<D: BlockDevice + ?Sized> BlockDevice for $pointer {
            fn size(&self) -> u64 {
                (**self).size()
            }
            fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
                (**self).read_at(buf, offset)
            }
            fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
                (**self).write_at(buf, offset)
            }
            fn flush(&self) -> io::Result<()> {
                (**self).flush()
            }
            fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
                (**self).next_data(offset)
            }
        }
    )*};
}

forward!(&D, Box<D>, Arc<D>);

/// The error for a read past the end.
pub(crate) fn past_end(offset: u64, len: usize, size: u64) -> io::Error {
    let text = format!("read of {len} bytes at {offset} passes the end of the device at {size}");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}
