//! The one error type of the facade.

use std::{fmt, io};

use crate::named::At;

/// Why something could not be done, or what was found to be wrong.
///
/// A caller can tell the families apart; the text is complete without further context.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed. The text says which file.
    Io(String, io::Error),
    /// A structure on disk contradicts its format. The text says which structure and where.
    Corrupt(String),
    /// The format allows it, this project does not have it (yet). The text says which feature.
    Unsupported(String),
    /// Everything could be read and does not match: a root hash, a tag, a signature, a key.
    Mismatch(String),
    /// The caller asked for something that can't be: an option's value, a combination.
    Argument(String),
}

impl Error {
    /// An I/O error with the file or device that it happened on.
    pub fn io(place: impl fmt::Display, error: io::Error) -> Error {
        match error.downcast::<At>() {
            // What is known below is nearer to the place.
            Ok(at) => Error::Io(at.place, at.error),
            Err(error) => Error::Io(place.to_string(), error),
        }
    }

    /// An error of the verity formats, with the file or device that it happened on.
    pub fn at(place: impl fmt::Display, error: casemate_verity::Error) -> Error {
        match error {
            casemate_verity::Error::Io(error) => Error::io(place, error),
            casemate_verity::Error::Corrupt(text) => Error::Corrupt(format!("{place}: {text}")),
            casemate_verity::Error::Unsupported(text) => Error::Unsupported(format!("{place}: {text}")),
            casemate_verity::Error::Mismatch(text) => Error::Mismatch(format!("{place}: {text}")),
            casemate_verity::Error::Argument(text) => Error::Argument(format!("{place}: {text}")),
            other => Error::Unsupported(format!("{place}: {other}")),
        }
    }

    /// An error of a dm-crypt mapping.
    pub(crate) fn crypt(error: casemate_crypt::Error) -> Error {
        match error {
            casemate_crypt::Error::Io(error) => Error::io("input or output", error),
            casemate_crypt::Error::Corrupt(text) => Error::Corrupt(text),
            casemate_crypt::Error::Unsupported(text) => Error::Unsupported(text),
            casemate_crypt::Error::Argument(text) => Error::Argument(text),
            other => Error::Unsupported(other.to_string()),
        }
    }

    /// An error of an ext4 file system, with the image or file that it happened in.
    pub fn ext4(place: impl fmt::Display, error: casemate_ext4::Error) -> Error {
        match error {
            casemate_ext4::Error::Corrupt(corrupt) => Error::Corrupt(format!("{place}: {corrupt}")),
            casemate_ext4::Error::Unsupported(text) => Error::Unsupported(format!("{place}: {text}")),
            casemate_ext4::Error::Io(error) => match error.downcast::<casemate_ext4::Error>() {
                // What went up through a device comes out again as what it was.
                Ok(error) => Error::ext4(place, error),
                Err(error) => match error.downcast::<Error>() {
                    Ok(error) => error.within(place),
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        Error::Mismatch(format!("{place}: {error}"))
                    }
                    Err(error) => Error::io(place, error),
                },
            },
            other => Error::Unsupported(format!("{place}: {other}")),
        }
    }

    /// The same error with a place before it.
    pub fn within(self, place: impl fmt::Display) -> Error {
        match self {
            Error::Io(inner, error) => Error::Io(format!("{place}: {inner}"), error),
            Error::Corrupt(text) => Error::Corrupt(format!("{place}: {text}")),
            Error::Unsupported(text) => Error::Unsupported(format!("{place}: {text}")),
            Error::Mismatch(text) => Error::Mismatch(format!("{place}: {text}")),
            Error::Argument(text) => Error::Argument(format!("{place}: {text}")),
        }
    }

    /// Whether the answer is "no" (something was checked and found wrong) and not "could not".
    pub fn is_negative_answer(&self) -> bool {
        matches!(self, Error::Corrupt(_) | Error::Mismatch(_))
    }

    /// Whether the reader of our output has closed it.
    pub fn is_broken_pipe(&self) -> bool {
        self.is_io(io::ErrorKind::BrokenPipe)
    }

    /// Whether a file is missing.
    pub fn is_not_found(&self) -> bool {
        self.is_io(io::ErrorKind::NotFound)
    }

    /// Whether somebody else is using an image: another process, the kernel or another machine.
    pub fn is_busy(&self) -> bool {
        self.is_io(io::ErrorKind::ResourceBusy)
    }

    /// Whether the user asked to stop.
    pub fn is_interrupt(&self) -> bool {
        self.is_io(io::ErrorKind::Interrupted)
    }

    fn is_io(&self, kind: io::ErrorKind) -> bool {
        matches!(self, Error::Io(_, error) if error.kind() == kind)
    }
}

impl From<casemate_crypt::Error> for Error {
    fn from(error: casemate_crypt::Error) -> Error {
        Error::crypt(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(place, error) => write!(f, "{place}: {error}"),
            Error::Corrupt(text)
            | Error::Unsupported(text)
            | Error::Mismatch(text)
            | Error::Argument(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

impl From<casemate_verity::Error> for Error {
    /// For errors that are about no file, such as a wrong parameter.
    fn from(error: casemate_verity::Error) -> Error {
        match error {
            casemate_verity::Error::Io(error) => Error::io("input or output", error),
            casemate_verity::Error::Corrupt(text) => Error::Corrupt(text),
            casemate_verity::Error::Unsupported(text) => Error::Unsupported(text),
            casemate_verity::Error::Mismatch(text) => Error::Mismatch(text),
            casemate_verity::Error::Argument(text) => Error::Argument(text),
            other => Error::Unsupported(other.to_string()),
        }
    }
}
