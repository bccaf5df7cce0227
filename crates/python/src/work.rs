//! Long work from Python: without the interpreter meanwhile, and stopped by Ctrl-C.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use casemate::blockdev::{Events, Pool};
use casemate::{Error, ErrorKind, Work};
use pyo3::prelude::*;

use crate::error::{raise, raised};

/// How often Python is asked whether somebody has pressed Ctrl-C.
const ASK: Duration = Duration::from_millis(50);

/// A listener that asks Python for signals, and tells its logging what a person should know.
struct Signals(Mutex<Instant>);

impl Events for Signals {
    fn advance(&self, _bytes: u64) -> Result<(), Error> {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.elapsed() < ASK {
            return Ok(());
        }
        *asked = Instant::now();
        // Who waits for the interpreter holds nothing that others want.
        drop(asked);
        let signals = Python::attach(|py| py.check_signals());
        signals.map_err(|exception| raised(ErrorKind::Interrupted, exception))
    }

    fn note(&self, text: &str) {
        let log = |py: Python<'_>| {
            let logger = py.import("logging")?.call_method1("getLogger", ("casemate",))?;
            logger.call_method1("warning", ("%s", text)).map(drop)
        };
        // Nobody could be told that telling has failed.
        let _: PyResult<()> = Python::attach(log);
    }
}

/// Runs work with so many threads, one for each core if `None`.
pub fn working<T: Send>(
    py: Python<'_>,
    threads: Option<usize>,
    run: impl FnOnce(&Work<'_>) -> Result<T, Error> + Send,
) -> PyResult<T> {
    py.detach(|| {
        let signals = Signals(Mutex::new(Instant::now()));
        let pool = Pool::new(threads.and_then(NonZeroUsize::new));
        run(&Work { pool, events: &signals, ..Work::default() })
    })
    .map_err(raise)
}
