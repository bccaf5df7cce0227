//! What can go wrong, in families that a caller can tell apart.

use std::{fmt, io};

/// Why a tree, a descriptor or a signature could not be made, read or accepted.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed.
    Io(io::Error),
    /// A structure contradicts its format; the text says which structure and where.
    Corrupt(String),
    /// A feature that the format or the kernel allows and this crate does not have; the text says which.
    Unsupported(String),
    /// A hash, digest, signature or key that could be read and does not match.
    Mismatch(String),
    /// An argument that is impossible: a value outside its range, a combination.
    Argument(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => error.fmt(f),
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
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}
