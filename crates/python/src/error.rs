//! Errors as exceptions: `OSError` with its number where the system or a path is what failed, and a family of
//! `casemate.errors` for everything else.

use casemate::{Error, ErrorKind};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError};
use pyo3::prelude::*;

/// The exception of an error. What a Python function has raised comes out again as what it was.
pub fn raise(error: Error) -> PyErr {
    Python::attach(|py| exception(py, &error).unwrap_or_else(|other| other))
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    if let Some(raised) = error.cause::<PyErr>() {
        return Ok(raised.clone_ref(py));
    }
    if let Some(number) = casemate::errno(error) {
        let file = error.place().file.clone();
        return Ok(PyOSError::new_err((number, error.text().into_owned(), file)));
    }
    let class = match error.kind() {
        ErrorKind::Interrupted => return Ok(PyKeyboardInterrupt::new_err(())),
        ErrorKind::Corrupt => "CorruptError",
        ErrorKind::Unsupported => "UnsupportedError",
        ErrorKind::Mismatch => "MismatchError",
        ErrorKind::Locked => "LockedError",
        ErrorKind::Argument => "ArgumentError",
        _ => "Error",
    };
    let class = py.import("casemate.errors")?.getattr(class)?;
    Ok(PyErr::from_value(class.call1((error.to_string(),))?))
}

/// An error that carries what a Python function has raised.
pub fn raised(kind: ErrorKind, exception: PyErr) -> Error {
    Error::new(kind, "a Python function has failed").with_cause(exception)
}
