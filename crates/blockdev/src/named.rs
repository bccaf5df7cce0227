//! Devices and streams whose errors say what they are about.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::ops::Range;

use crate::device::BlockDevice;
use crate::error::{Error, Result};

/// A device whose errors name the file or image that it is.
#[derive(Debug)]
pub struct Named<D> {
    name: String,
    inner: D,
}

impl<D: BlockDevice> Named<D> {
    /// A device that errors call `name`.
    pub fn new(name: impl Display, inner: D) -> Named<D> {
        Named { name: name.to_string(), inner }
    }

    fn name<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.at(&self.name))
    }
}

impl<D: BlockDevice> BlockDevice for Named<D> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.inner)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.name(self.inner.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.name(self.inner.write_at(buf, offset))
    }

    fn write_from(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.name(self.inner.write_from(buf, offset))
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_punch: bool) -> Result<()> {
        self.name(self.inner.write_zeroes(offset, len, may_punch))
    }

    fn zero_fast(&self, offset: u64, len: u64, may_punch: bool) -> Result<()> {
        self.name(self.inner.zero_fast(offset, len, may_punch))
    }

    fn is_unwritten(&self) -> Result<bool> {
        self.name(self.inner.is_unwritten())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.name(self.inner.discard(offset, len))
    }

    fn can_discard(&self) -> bool {
        self.inner.can_discard()
    }

    fn flush(&self) -> Result<()> {
        self.name(self.inner.flush())
    }

    fn forget_cached(&self, offset: u64, len: u64) -> Result<()> {
        self.name(self.inner.forget_cached(offset, len))
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        self.name(self.inner.next_data(offset))
    }
}

/// A stream whose errors name the file that it is.
pub struct NamedStream<'a, S: ?Sized> {
    /// The name that errors have.
    pub name: &'a str,
    /// The stream.
    pub stream: &'a mut S,
}

impl<S: Read + ?Sized> Read for NamedStream<'_, S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buf).map_err(|error| Error::io(self.name, error).into())
    }
}

impl<S: Write + ?Sized> Write for NamedStream<'_, S> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.write(buf).map_err(|error| Error::io(self.name, error).into())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush().map_err(|error| Error::io(self.name, error).into())
    }
}
