//! Why something encrypted can't be read or written.

use std::fmt;

use casemate_providers::{ChoiceError, RequestError};

/// The result of this crate's operations that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Errors of this crate. None of them says anything about a key but its length.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A context, a name or a target contradicts the format.
    Corrupt(String),
    /// A feature, version or mode that this crate does not have, though the format has it or may have it one day.
    Unsupported(String),
    /// A secret does not open what it should.
    Mismatch(String),
    /// An argument that is impossible: a key's length, a mode, a name.
    Argument(String),
    /// A driver of a cipher or hash failed.
    Driver(String),
}

impl From<ChoiceError> for Error {
    fn from(error: ChoiceError) -> Error {
        match error {
            ChoiceError::Key(_) => Error::Argument(error.to_string()),
            _ => Error::Unsupported(error.to_string()),
        }
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Error {
        match error {
            RequestError::Driver(_) => Error::Driver(error.to_string()),
            _ => Error::Argument(error.to_string()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Corrupt(text)
            | Error::Unsupported(text)
            | Error::Mismatch(text)
            | Error::Argument(text)
            | Error::Driver(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}
