//! Long work from Python: without the interpreter meanwhile, and stopped by Ctrl-C.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use casemate::blockdev::{Events, Pool, stop_waiting_when};
use casemate::{Error, ErrorKind, Work, stop_derivations_when};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{RAISED, raise, raised};

/// How often Python is asked whether somebody has pressed Ctrl-C.
const ASK: Duration = Duration::from_millis(50);

/// How many threads work, one for each core if `None`, and who hears how many bytes are done.
#[derive(Default)]
pub struct Effort(Option<NonZeroUsize>, Option<Py<PyAny>>);

impl<'py> FromPyObject<'_, 'py> for Effort {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Effort> {
        let (threads, progress): (Option<i64>, Option<Py<PyAny>>) = object.extract()?;
        let count = |threads: i64| usize::try_from(threads).ok().and_then(NonZeroUsize::new);
        match threads.map(|threads| count(threads).ok_or(threads)).transpose() {
            Ok(threads) => Ok(Effort(threads, progress)),
            Err(threads) => Err(PyValueError::new_err(format!("threads={threads}: at least one"))),
        }
    }
}

/// A listener that asks Python for signals, and tells it of progress, and its logging what a person should know.
struct Signals {
    /// When Python was asked last.
    asked: Mutex<Option<Instant>>,
    done: AtomicU64,
    progress: Option<Py<PyAny>>,
}

impl Events for Signals {
    fn advance(&self, bytes: u64) -> Result<(), Error> {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        // The first time at once: a listener that ends the work does so before anything is done.
        if asked.is_some_and(|asked| asked.elapsed() < ASK) {
            return Ok(());
        }
        *asked = Some(Instant::now());
        // Who waits for the interpreter holds nothing that others want.
        drop(asked);
        let told = Python::attach(|py| {
            py.check_signals()?;
            self.tell(py)
        });
        told.map_err(|exception| raised(ErrorKind::Interrupted, exception))
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

thread_local! {
    /// When this thread asked Python for signals last, while it derived a key or waited for a pipe.
    static ASKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Has whoever waits for a pipe ask Python for signals, from the module's beginning on.
pub fn ask_while_waiting() {
    stop_waiting_when(is_pressed);
}

/// Whether somebody has pressed Ctrl-C while this thread derives a key, or waits for a pipe.
fn is_pressed() -> bool {
    if ASKED.get().is_some_and(|asked| asked.elapsed() < ASK) {
        return false;
    }
    ASKED.set(Some(Instant::now()));
    match Python::attach(|py| py.check_signals()) {
        Ok(()) => false,
        Err(raised) => {
            RAISED.set(Some(raised));
            true
        }
    }
}

impl Signals {
    /// Tells who wants to know how many bytes are done.
    fn tell(&self, py: Python<'_>) -> PyResult<()> {
        match &self.progress {
            Some(progress) => progress.call1(py, (self.done.load(Ordering::Relaxed),)).map(drop),
            None => Ok(()),
        }
    }
}

/// Runs work without the interpreter that changes nothing. What a listener raises ends the work.
pub fn working<T: Send>(
    py: Python<'_>,
    effort: Effort,
    run: impl FnOnce(&Work<'_>) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let (result, told) = run_told(py, effort, run)?;
    told.map(|()| result)
}

/// Runs work without the interpreter that changes something. What a listener raises ends the work as long as that is not done;
/// of the last call, which tells that it is, Python's hook for exceptions that nobody can catch is told.
pub fn changing<T: Send>(
    py: Python<'_>,
    effort: Effort,
    run: impl FnOnce(&Work<'_>) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let (result, told) = run_told(py, effort, run)?;
    if let Err(raised) = told {
        raised.write_unraisable(py, None);
    }
    Ok(result)
}

/// Runs work without the interpreter: its result, and what came of telling the listener that all is done.
fn run_told<T: Send>(
    py: Python<'_>,
    Effort(threads, progress): Effort,
    run: impl FnOnce(&Work<'_>) -> Result<T, Error> + Send,
) -> PyResult<(T, PyResult<()>)> {
    stop_derivations_when(is_pressed);
    let signals = Signals { asked: Mutex::new(None), done: AtomicU64::new(0), progress };
    let result = py.detach(|| {
        let pool = Pool::new(threads);
        run(&Work { pool, events: &signals, ..Work::default() })
    });
    let result = result.map_err(raise)?;
    let told = signals.tell(py);
    Ok((result, told))
}
