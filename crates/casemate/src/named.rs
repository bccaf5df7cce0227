//! Streams whose errors say which file they are about.

use std::io;
use std::io::{Read, Write};

use casemate_blockdev::Error;

/// A stream with its name.
pub(crate) struct NamedStream<'a, S: ?Sized> {
    pub(crate) name: &'a str,
    pub(crate) stream: &'a mut S,
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
