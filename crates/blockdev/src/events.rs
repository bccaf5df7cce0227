//! Reports of long work while it goes on, and the way to stop it.

use std::time::Duration;

use crate::advice::{Advice, ending};
use crate::error::Result;

/// Listener to work that goes on, called from any thread: the one way in which work tells something besides its result.
///
/// Each method does nothing unless the listener says otherwise.
pub trait Events: Sync {
    /// `bytes` more have been worked on.
    ///
    /// # Errors
    /// `Interrupted` asks the work to stop: it cleans up and returns this error.
    fn advance(&self, bytes: u64) -> Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// The work stands still for up to `time`, for a reason that is a sentence without its end.
    fn waiting(&self, time: Duration, reason: &str) {
        let _ = (time, reason);
    }

    /// Something a person should know that is not an error: the text names the file, and says what to do where there is
    /// something to do. It never holds a secret.
    fn note(&self, text: &str) {
        let _ = text;
    }

    /// A note with advice, which a front words as it words that of an [`Error`](crate::Error); others get it as a note.
    fn advise(&self, text: &str, advice: Advice) {
        self.note(&format!("{text}{}", ending(&[advice], &|_| None)));
    }
}

/// A listener that hears nothing and never stops the work.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl Events for NoEvents {}
