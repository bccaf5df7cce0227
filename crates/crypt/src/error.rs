//! Why a mapping can't be made or used.

use std::{fmt, io};

use casemate_providers::{ChoiceError, RequestError};

/// Errors of this crate. None of them says anything about a key but its length.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed.
    Io(io::Error),
    /// A journal on disk contradicts its format.
    Corrupt(String),
    /// A feature that dm-crypt has and this crate does not.
    Unsupported(String),
    /// An argument that is impossible: a specification, an offset, a length.
    Argument(String),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}

impl From<ChoiceError> for Error {
    fn from(error: ChoiceError) -> Error {
        match error {
            ChoiceError::Key(_) | ChoiceError::UnknownHash(_) => Error::Argument(error.to_string()),
            _ => Error::Unsupported(error.to_string()),
        }
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Error {
        Error::Io(io::Error::other(error))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => error.fmt(f),
            Error::Corrupt(text) | Error::Unsupported(text) | Error::Argument(text) => f.write_str(text),
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
