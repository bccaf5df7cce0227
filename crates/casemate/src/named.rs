//! Devices and streams whose errors say which file they are about.

use std::io;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;

use casemate_blockdev::{BlockDevice, Error, FileDevice, Result};

/// A file with its name.
pub(crate) struct Named<'a> {
    pub(crate) path: &'a Path,
    pub(crate) device: &'a FileDevice,
}

/// A stream with its name.
pub(crate) struct NamedStream<'a, S: ?Sized> {
    pub(crate) name: &'a str,
    pub(crate) stream: &'a mut S,
}

impl Named<'_> {
    fn name<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.at(self.path.display()))
    }
}

impl BlockDevice for Named<'_> {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.name(self.device.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.name(self.device.write_at(buf, offset))
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_punch: bool) -> Result<()> {
        self.name(self.device.write_zeroes(offset, len, may_punch))
    }

    fn zero_fast(&self, offset: u64, len: u64, may_punch: bool) -> Result<()> {
        self.name(self.device.zero_fast(offset, len, may_punch))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.name(self.device.discard(offset, len))
    }

    fn can_discard(&self) -> bool {
        self.device.can_discard()
    }

    fn flush(&self) -> Result<()> {
        self.name(self.device.flush())
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        self.name(self.device.next_data(offset))
    }
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
