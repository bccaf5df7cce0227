//! Devices and streams whose errors say which file they are about.

use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::{fmt, io};

use casemate_blockdev::{BlockDevice, FileDevice};

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

/// An error with the place where it happened, inside an [`io::Error`] of the same kind.
#[derive(Debug)]
pub(crate) struct At {
    pub(crate) place: String,
    pub(crate) error: io::Error,
}

impl Named<'_> {
    fn name<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| at(self.path.display(), error))
    }
}

impl BlockDevice for Named<'_> {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.name(self.device.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.name(self.device.write_at(buf, offset))
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_punch: bool) -> io::Result<()> {
        self.name(self.device.write_zeroes(offset, len, may_punch))
    }

    fn zero_fast(&self, offset: u64, len: u64, may_punch: bool) -> io::Result<()> {
        self.name(self.device.zero_fast(offset, len, may_punch))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.name(self.device.discard(offset, len))
    }

    fn can_discard(&self) -> bool {
        self.device.can_discard()
    }

    fn flush(&self) -> io::Result<()> {
        self.name(self.device.flush())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.name(self.device.next_data(offset))
    }
}

impl<S: Read + ?Sized> Read for NamedStream<'_, S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buf).map_err(|error| at(self.name, error))
    }
}

impl<S: Write + ?Sized> Write for NamedStream<'_, S> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.write(buf).map_err(|error| at(self.name, error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush().map_err(|error| at(self.name, error))
    }
}

fn at(place: impl fmt::Display, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), At { place: place.to_string(), error })
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.error)
    }
}

impl std::error::Error for At {}
