//! The change that one transaction has no room for.

use std::fmt;

use crate::error::Error;

/// Why an operation failed that could be done in steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooLarge;

impl TooLarge {
    pub fn error() -> Error {
        Error::unsupported(TooLarge.to_string()).with_cause(TooLarge)
    }

    pub fn is(error: &Error) -> bool {
        error.cause::<TooLarge>().is_some()
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a change that is too large for the journal")
    }
}

impl std::error::Error for TooLarge {}
