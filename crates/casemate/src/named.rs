//! Devices whose errors say which file they are about.

use std::ops::Range;
use std::path::Path;
use std::{fmt, io};

use casemate_blockdev::{BlockDevice, FileDevice};

/// A file with its name.
pub(crate) struct Named<'a> {
    pub(crate) path: &'a Path,
    pub(crate) device: &'a FileDevice,
}

/// An error with the place where it happened, inside an [`io::Error`] of the same kind.
#[derive(Debug)]
pub(crate) struct At {
    pub(crate) place: String,
    pub(crate) error: io::Error,
}

impl Named<'_> {
    fn name<T>(&self, result: io::Result<T>) -> io::Result<T> {
        let place = || self.path.display().to_string();
        result.map_err(|error| io::Error::new(error.kind(), At { place: place(), error }))
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

    fn flush(&self) -> io::Result<()> {
        self.name(self.device.flush())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.name(self.device.next_data(offset))
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.error)
    }
}

impl std::error::Error for At {}
