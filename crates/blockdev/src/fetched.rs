//! Devices whose bytes somebody fetches, range by range: an object store, a program in another language.

use std::io;

use crate::{BlockDevice, Code, Error, Result, u64_of};

/// A device that can't be written, and whose reads are calls of a function.
pub struct Fetched<F> {
    /// Bytes of the device.
    pub size: u64,
    /// Fills a buffer with the bytes from an offset on; it is never called with ones behind the end.
    pub read: F,
}

impl<F: Fn(&mut [u8], u64) -> Result<()> + Send + Sync> BlockDevice for Fetched<F> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        None
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if offset.checked_add(u64_of(buf.len())).is_none_or(|end| end > self.size) {
            let (len, size) = (buf.len(), self.size);
            let text = format!("read of {len} bytes at {offset} passes the end of the device at {size}");
            return Err(Error::path(io::ErrorKind::UnexpectedEof, text));
        }
        if buf.is_empty() { Ok(()) } else { (self.read)(buf, offset).map_err(of_store) }
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// An error of what fetches the bytes, as one of reading: an object that a store does not find is no answer about the files in the
/// image, which callers would take it for.
fn of_store(error: Error) -> Error {
    match error.code() {
        Code::NotFound
        | Code::NotDirectory
        | Code::IsDirectory
        | Code::Exists
        | Code::LinkLoop
        | Code::BadName => io::Error::other(format!("the bytes could not be fetched: {error}")).into(),
        _ => error,
    }
}
