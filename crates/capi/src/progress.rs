//! Reports of long work to a function of the caller, which may stop it.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use casemate::blockdev::Events;
use casemate::{Error, ErrorKind, Work};

/// How often the caller's function is called.
const EVERY: Duration = Duration::from_millis(50);

/// Receives how many bytes have been worked on, at most 20 times a second. Any thread calls it, one call at a time.
/// Returns 0 to continue; another value stops the work with the status CASEMATE_INTERRUPTED.
pub type ProgressFn = Option<unsafe extern "C" fn(context: *mut c_void, bytes: u64) -> c_int>;

/// A listener that passes progress on to the caller's function.
pub struct Progress {
    tell: ProgressFn,
    context: *mut c_void,
    /// Bytes so far, and when they were told last.
    state: Mutex<(u64, Option<Instant>)>,
}

// SAFETY: the header says that any thread calls the function with its context.
unsafe impl Send for Progress {}
// SAFETY: as above; the lock lets one thread at a time call it.
unsafe impl Sync for Progress {}

impl Progress {
    pub fn new(tell: ProgressFn, context: *mut c_void) -> Progress {
        Progress { tell, context, state: Mutex::new((0, None)) }
    }

    /// Work of all threads that is told to the caller's function.
    pub fn work(&self) -> Work<'_> {
        Work { events: self, ..Work::default() }
    }
}

impl Events for Progress {
    fn advance(&self, bytes: u64) -> Result<(), Error> {
        let Some(tell) = self.tell else { return Ok(()) };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, told) = &mut *state;
        *done = done.saturating_add(bytes);
        if told.is_some_and(|told| told.elapsed() < EVERY) {
            return Ok(());
        }
        *told = Some(Instant::now());
        // SAFETY: the caller gave this function and its context for such calls.
        match unsafe { tell(self.context, *done) } {
            0 => Ok(()),
            _ => Err(Error::new(ErrorKind::Interrupted, "the caller stopped the work")),
        }
    }
}
