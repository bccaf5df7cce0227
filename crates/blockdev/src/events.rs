//! What long work tells meanwhile, and how it is stopped.

use crate::error::Result;

/// Hears about long work while it goes on, from any thread.
///
/// Each method does nothing unless the listener says otherwise.
pub trait Events: Sync {
    /// `bytes` more have been worked on.
    ///
    /// # Errors
    /// `Interrupted` asks the work to stop: whoever works returns this error and cleans up.
    fn advance(&self, bytes: u64) -> Result<()> {
        let _ = bytes;
        Ok(())
    }
}

/// Tells nobody and never stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl Events for NoEvents {}
