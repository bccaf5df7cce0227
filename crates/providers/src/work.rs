//! Threads and implementations for long work, and its listener.

use std::fmt;

use casemate_blockdev::{Events, NoEvents, Pool};

use crate::providers::Providers;

/// Implementations, threads and a listener: what every function that works long is given.
///
/// ```
/// use casemate_providers::Work;
///
/// assert_eq!(Work::default().providers.hash("sha256")?.digest_len(), 32);
/// # Ok::<(), casemate_providers::ChoiceError>(())
/// ```
#[derive(Clone)]
pub struct Work<'a> {
    /// The implementations of ciphers and hashes, and the choice among them.
    pub providers: Providers,
    /// The threads.
    pub pool: Pool,
    /// The listener, which may stop the work.
    pub events: &'a dyn Events,
}

impl Default for Work<'_> {
    /// Everything that this CPU has, a thread for each core, and nobody who hears.
    fn default() -> Self {
        Work { providers: Providers::default(), pool: Pool::default(), events: &NoEvents }
    }
}

impl fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Work({:?}, {} threads)", self.providers, self.pool.threads())
    }
}
