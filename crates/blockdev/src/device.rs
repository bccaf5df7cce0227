//! The one interface of everything that holds blocks.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::{u64_of, usize_of};

/// Bytes at positions, read and written through `&self` by any number of threads.
///
/// Reads and writes are exact: they move the whole buffer or fail. Two threads that write overlapping ranges
/// leave either one's bytes in the overlap.
///
/// A device over another one states what it changes, and nothing else: a method that it leaves out is done by those that it
/// has, or asked of what lies [`below`](BlockDevice::below), never skipped where that would be wrong.
pub trait BlockDevice: Send + Sync {
    /// The device whose bytes this one shows or is made from; `None` for a medium.
    fn below(&self) -> Option<&dyn BlockDevice>;

    /// The device's size in bytes at this moment.
    fn size(&self) -> u64;

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `Io` (`UnexpectedEof`) when the device ends before the buffer is full; otherwise what the layer below says.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Writes all of `buf` from `offset` on.
    ///
    /// # Errors
    /// `Io` (`ReadOnlyFilesystem`) for devices that can't be written; otherwise what the layer below says.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;

    /// As [`BlockDevice::write_at`], from a buffer whose contents are not needed any more: a layer that changes bytes
    /// on their way down may do it in there.
    fn write_from(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)
    }

    /// Makes `len` bytes from `offset` on read as zeros. With `may_punch` the space below may be given back.
    ///
    /// # Errors
    /// As [`BlockDevice::write_at`].
    fn write_zeroes(&self, offset: u64, len: u64, _may_punch: bool) -> Result<()> {
        let mut zeroes = vec![0; usize_of(len.min(ZEROES))];
        let mut done = 0;
        while done < len {
            let now = usize_of((len - done).min(ZEROES));
            let place = offset.checked_add(done).ok_or_else(|| past_end(offset, len, self.size()))?;
            self.write_from(&mut zeroes[..now], place)?;
            // The layer below may have left something else in it.
            zeroes.fill(0);
            done += u64_of(now);
        }
        Ok(())
    }

    /// As [`BlockDevice::write_zeroes`], if it is quicker than writing the zeros would be.
    ///
    /// # Errors
    /// `Unsupported` if it is not: then nothing was changed.
    fn zero_fast(&self, _offset: u64, _len: u64, _may_punch: bool) -> Result<()> {
        Err(Error::unsupported("zeros are not quicker than other bytes"))
    }

    /// Discards bytes that are not needed any more. Later reads of them may return anything.
    ///
    /// # Errors
    /// Errors of the layer below. A device that can't discard does nothing.
    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    /// Whether [`BlockDevice::discard`] does something.
    fn can_discard(&self) -> bool {
        false
    }

    /// Returns when everything written before is on stable storage.
    ///
    /// # Errors
    /// Errors that keep it from being there. A system reports lost writes once, to one caller. So a device keeps failing for
    /// all callers after that, as [`FileDevice`](crate::FileDevice) does, and no commit is called whole that is not.
    fn flush(&self) -> Result<()>;

    /// Drops caches, so that the next read of a range comes from the medium: another machine may have written it. Media
    /// without a cache do nothing. A device that does not know where the range lies below drops the caches of all of
    /// it.
    ///
    /// # Errors
    /// Errors of the layer below.
    fn forget_cached(&self, _offset: u64, _len: u64) -> Result<()> {
        self.below().map_or(Ok(()), |below| below.forget_cached(0, below.size()))
    }

    /// The next range at or after `offset` that may hold anything but zeros; `None` if only zeros follow.
    ///
    /// A device that knows nothing about holes calls everything data, which is always right.
    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        let size = self.size();
        Ok((offset < size).then_some(offset..size))
    }

    /// Whether the device decrypts bytes that nobody wrote, zeros, to what it shows. Any other device shows what somebody wrote.
    ///
    /// # Errors
    /// Errors of reading.
    fn is_unwritten(&self) -> Result<bool> {
        Ok(false)
    }
}

/// Copies what may be anything but zeros in a range of a device, and passes over holes. `name` says of an error which device was
/// read; `write` gets bytes and their place. Returns where the last of them ends.
///
/// # Errors
/// Errors of reading, and those of `write`.
pub fn copy_data<E>(
    from: &dyn BlockDevice,
    range: Range<u64>,
    buffer: &mut [u8],
    name: impl Fn(Error) -> E,
    mut write: impl FnMut(&[u8], u64) -> Result<(), E>,
) -> Result<u64, E> {
    let mut at = range.start;
    while let Some(data) = from.next_data(at).map_err(&name)?.filter(|data| data.start < range.end) {
        let end = data.end.min(range.end);
        at = data.start;
        while at < end {
            let len = usize_of(end - at).min(buffer.len());
            from.read_at(&mut buffer[..len], at).map_err(&name)?;
            write(&buffer[..len], at)?;
            at += u64_of(len);
        }
    }
    Ok(at)
}

/// How many zeros are written at a time where nothing better can be done.
const ZEROES: u64 = 256 * 1024;

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<D: BlockDevice + ?Sized> BlockDevice for $pointer {
            fn below(&self) -> Option<&dyn BlockDevice> {
                (**self).below()
            }
            fn size(&self) -> u64 {
                (**self).size()
            }
            fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
                (**self).read_at(buf, offset)
            }
            fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
                (**self).write_at(buf, offset)
            }
            fn write_from(&self, buf: &mut [u8], offset: u64) -> Result<()> {
                (**self).write_from(buf, offset)
            }
            fn write_zeroes(&self, offset: u64, len: u64, may_punch: bool) -> Result<()> {
                (**self).write_zeroes(offset, len, may_punch)
            }
            fn zero_fast(&self, offset: u64, len: u64, may_punch: bool) -> Result<()> {
                (**self).zero_fast(offset, len, may_punch)
            }
            fn discard(&self, offset: u64, len: u64) -> Result<()> {
                (**self).discard(offset, len)
            }
            fn can_discard(&self) -> bool {
                (**self).can_discard()
            }
            fn flush(&self) -> Result<()> {
                (**self).flush()
            }
            fn forget_cached(&self, offset: u64, len: u64) -> Result<()> {
                (**self).forget_cached(offset, len)
            }
            fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
                (**self).next_data(offset)
            }
            fn is_unwritten(&self) -> Result<bool> {
                (**self).is_unwritten()
            }
        }
    )*};
}

forward!(&D, Box<D>, Arc<D>);

/// The error for a read past the end.
pub(crate) fn past_end(offset: u64, len: impl std::fmt::Display, size: u64) -> Error {
    let text = format!("read of {len} bytes at {offset} passes the end of the device at {size}");
    Error::path(io::ErrorKind::UnexpectedEof, text)
}
