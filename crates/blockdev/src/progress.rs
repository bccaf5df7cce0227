//! How far long work has come, and whether it should stop.

use crate::error::Result;

/// Hears about work done, from any thread.
pub trait Progress: Sync {
    /// `bytes` more have been worked on.
    ///
    /// # Errors
    /// `Interrupted` asks the work to stop: whoever works returns this error and cleans up.
    fn advance(&self, bytes: u64) -> Result<()>;
}

/// Tells nobody and never stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn advance(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}
