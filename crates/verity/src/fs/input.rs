//! Inputs: what is described may have positions, or be read to its end.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::Path;

use casemate_blockdev::os::FileTypeExt;
use casemate_blockdev::{BlockDevice, FileDevice, Stream};

use crate::Error;

/// Input of a description: a file or block device with positions, or a stream that is read to its end.
#[derive(Debug)]
pub enum Input {
    /// A regular file or a block device.
    Device(FileDevice),
    /// A pipe, a socket or a terminal.
    Stream(Stream),
}

impl Input {
    /// Opens what has the name `path`.
    ///
    /// # Errors
    /// `Io`, also for directories and for character devices, which may have no end.
    pub fn open(path: &Path) -> Result<Input, Error> {
        Stream::open(path).and_then(Input::from_stream).map_err(|error| Error::io(path.display(), error))
    }

    /// Uses a file that is open already, such as standard input; a regular file is taken from its beginning.
    ///
    /// # Errors
    /// `IsADirectory` for directories, `InvalidInput` for character devices but terminals, and what asking for the file's kind says.
    pub fn from_file(file: File) -> io::Result<Input> {
        Input::from_stream(Stream::over(file)?)
    }

    fn from_stream(stream: Stream) -> io::Result<Input> {
        let file = stream.file();
        let kind = file.metadata()?.file_type();
        if kind.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if kind.is_file() || kind.is_block_device() {
            return Ok(Input::Device(FileDevice::from_file(stream.into_file())?));
        }
        if kind.is_char_device() && !file.is_terminal() {
            let text =
                "a character device, which may have no end: a file, a block device or a pipe is wanted";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Input::Stream(stream))
    }

    /// The size in bytes, if it is known before reading.
    pub fn size(&self) -> Option<u64> {
        match self {
            Input::Device(device) => Some(device.size()),
            Input::Stream(_) => None,
        }
    }
}
