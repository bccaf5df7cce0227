//! Conversion of this crate's errors to the one of all crates.

use casemate_blockdev::{Error, ErrorKind};

use crate::cipher::RequestError;
use crate::kdf::KdfError;
use crate::registry::ChoiceError;

impl From<ChoiceError> for Error {
    fn from(error: ChoiceError) -> Error {
        match error {
            ChoiceError::Key(_) | ChoiceError::UnknownHash(_) => Error::argument(error.to_string()),
            ChoiceError::Unknown { .. } | ChoiceError::Refused(_) => Error::unsupported(error.to_string()),
        }
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Error {
        match error {
            // An engine outside the CPU that fails is a device that fails.
            RequestError::Driver(_) => Error::from(std::io::Error::other(error)),
            _ => Error::argument(error.to_string()),
        }
    }
}

impl From<KdfError> for Error {
    fn from(error: KdfError) -> Error {
        match error {
            KdfError::TooExpensive(_) => Error::unsupported(error.to_string()),
            KdfError::Invalid(_) => Error::argument(error.to_string()),
            KdfError::Stopped => Error::new(ErrorKind::Interrupted, error.to_string()),
            KdfError::Memory(_) => Error::path(std::io::ErrorKind::OutOfMemory, error.to_string()),
        }
    }
}
