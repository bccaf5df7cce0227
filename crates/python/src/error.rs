//! Errors as exceptions: `OSError` with its number where the system or a path is what failed, and a family of
//! `casemate.errors` for everything else.

use std::cell::Cell;

use casemate::{Advice, Error, ErrorKind};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

thread_local! {
    /// The exception that a signal has raised on this thread, while it derived a key or waited for a pipe.
    pub static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

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
        let exception = PyOSError::new_err((number, error.text_worded(&argument), file));
        return told(py, exception, error);
    }
    let class = match error.kind() {
        ErrorKind::Interrupted => {
            return Ok(RAISED.take().unwrap_or_else(|| PyKeyboardInterrupt::new_err(())));
        }
        ErrorKind::Corrupt => "CorruptError",
        ErrorKind::Unsupported => "UnsupportedError",
        ErrorKind::Mismatch => "MismatchError",
        ErrorKind::Locked => "LockedError",
        ErrorKind::Argument => "ArgumentError",
        _ => "Error",
    };
    let class = py.import("casemate.errors")?.getattr(class)?;
    told(py, PyErr::from_value(class.call1((error.worded(&argument),))?), error)
}

/// An exception with the error's code and the names of its advice.
fn told(py: Python<'_>, exception: PyErr, error: &Error) -> PyResult<PyErr> {
    exception.value(py).setattr("code", error.code().name())?;
    let names: Vec<&str> = error.advice().iter().map(Advice::name).collect();
    exception.value(py).setattr("advice", PyTuple::new(py, names)?)?;
    Ok(exception)
}

/// Argument of Python that does what an advice recommends, with its value; `None` if there is none.
pub fn argument(advice: &Advice) -> Option<String> {
    let argument = match advice {
        Advice::Overwrite => "overwrite=True",
        Advice::DataBlocks => "data_blocks=N",
        Advice::HashOffset(offset) | Advice::HashAreaBehind(offset) | Advice::LayerHashOffset(offset) => {
            return Some(format!("hash_offset={offset}"));
        }
        Advice::Superblock(block) => return Some(format!("superblock={block}")),
        Advice::Partition => "Device.partition(N)",
        Advice::OpenLuks => "Device.luks(passphrase=...)",
        Advice::KeyFile => "passphrase=..., or key-file=FILE in a specification",
        Advice::KeySlot => "keyslot=N",
        Advice::VolumeKey => "volume_key=...",
        Advice::LuksHeader => "header=...",
        Advice::KeySize(bits) => return Some(format!("key_size={}", bits / 8)),
        Advice::CheckLayers => "cipher, key_size, offset, iv_offset, sector_size",
        Advice::Recover => "Device.ext4_writer()",
        Advice::TrustImage => "trust_image=True",
        Advice::AddFeature(name) => return Some(format!("Writer.tune(features=\"{name}\")")),
        Advice::OnePartition(number) => return Some(format!("Device.partition({number})")),
        _ => return None,
    };
    Some(argument.to_owned())
}

/// An error that carries what a Python function has raised, and tells it where errors become text.
pub fn raised(kind: ErrorKind, exception: PyErr) -> Error {
    Error::new(kind, format!("a Python function has failed: {exception}")).with_cause(exception)
}
