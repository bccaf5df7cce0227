//! Pipes, terminals and other files that are waited for, in a way that can be stopped.
//!
//! The system waits in open(2) until a named pipe has its other end, and in read(2) until there is something to read; a signal
//! that is only noted begins either anew. So both are asked whether they would wait, and in between somebody else is asked
//! whether to go on ([`stop_waiting_when`]).

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::OnceLock;

use crate::{inputs, journal, os};

static STOP: OnceLock<fn() -> bool> = OnceLock::new();

/// Has all that wait for others in this process ask this from time to time, and give up with `Interrupted` where it says `true`.
/// The first such function stays.
pub fn stop_waiting_when(stop: fn() -> bool) {
    let _ = STOP.set(stop);
}

/// Whether there is somebody to be asked.
pub(crate) fn is_stoppable() -> bool {
    STOP.get().is_some()
}

/// Refuses to wait any longer where that is asked for. The error is of a kind that nobody takes for "once more".
pub(crate) fn check_stop() -> io::Result<()> {
    match STOP.get().is_some_and(|stop| stop()) {
        true => Err(io::Error::other(crate::Error::new(crate::ErrorKind::Interrupted, "interrupted"))),
        false => Ok(()),
    }
}

/// A file that is read or written from its beginning to its end, of any kind. What waits for others can be stopped.
#[derive(Debug)]
pub struct Stream {
    file: File,
    /// Whether a read or a write may take as long as others want.
    waits: bool,
}

impl Stream {
    /// Opens a file for reading; a named pipe as soon as there is something to read, or its end.
    ///
    /// # Errors
    /// Errors of the system; an image that in-place work has left unfinished, and `Interrupted`, as an [`Error`](crate::Error) of this crate.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Stream> {
        let path = path.as_ref();
        let file = os::open_stream(path)?;
        journal::check_stream(&file, path)?;
        if let Ok(id) = os::id_of(&file) {
            inputs::note_file(id, path);
        }
        Stream::over(file)
    }

    /// Opens a file that is there for writing; a named pipe as soon as somebody reads it.
    ///
    /// # Errors
    /// Errors of [`Stream::open`].
    pub fn open_for_writing(path: impl AsRef<Path>) -> io::Result<Stream> {
        Stream::over(os::open_stream_for_writing(path.as_ref())?)
    }

    /// Standard input, without the standard library's buffer.
    ///
    /// # Errors
    /// Errors of the system; an image that in-place work has left unfinished, as for [`Stream::open`].
    pub fn input() -> io::Result<Stream> {
        let file = os::input()?;
        if file.metadata()?.is_file() {
            journal::check_stream(&file, Path::new("/dev/stdin"))?;
        }
        Stream::over(file)
    }

    /// A file that is open already.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn over(file: File) -> io::Result<Stream> {
        let waits = !file.metadata()?.is_file();
        Ok(Stream { file, waits })
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file itself, which does not wait for others.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// Errors of [`Stream::open`].
    pub fn read_all(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        Stream::open(path)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.waits {
                os::wait_to_read(&self.file)?;
            }
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.waits => {}
                read => return read,
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        loop {
            if self.waits {
                os::wait_to_write(&self.file)?;
            }
            match self.file.write(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.waits => {}
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
