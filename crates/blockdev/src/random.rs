//! Random bytes of the system.

use std::io;

use crate::{Error, Result};

/// Fills a buffer with random bytes of the system, fit for keys.
///
/// # Errors
/// `Io` if the system has none.
pub fn fill_random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|error| Error::io("random numbers", io::Error::from(error)))
}
