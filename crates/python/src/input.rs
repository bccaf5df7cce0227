//! Bytes that Python hands over.

use std::borrow::Cow;

use casemate::{SecretSource, SecretVec};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyMemoryView;

/// Bytes of any object that has them. Those of `bytes` are used where they lie, others are copied: another thread might
/// change them meanwhile.
pub enum Data {
    Bytes(PyBackedBytes),
    Buffer(PyBuffer<u8>),
}

impl<'py> FromPyObject<'_, 'py> for Data {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Data> {
        if let Ok(bytes) = object.extract() {
            return Ok(Data::Bytes(bytes));
        }
        if let Ok(buffer) = PyBuffer::get(&object) {
            return Ok(Data::Buffer(buffer));
        }
        // Bytes of items of any other type, one behind the other.
        let name = || object.get_type().name().map_or("this".to_owned(), |name| name.to_string());
        let view = PyMemoryView::from(&object);
        let view = view.map_err(|_| {
            PyTypeError::new_err(format!("a bytes-like object is required, not '{}'", name()))
        })?;
        Ok(Data::Buffer(PyBuffer::get(&view.call_method1("cast", ("B",))?)?))
    }
}

impl Data {
    /// The bytes.
    pub fn get(&self, py: Python<'_>) -> PyResult<Cow<'_, [u8]>> {
        match self {
            Data::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
            Data::Buffer(buffer) => buffer.to_vec(py).map(Cow::Owned),
        }
    }

    /// The bytes as a secret, wiped once it is not needed any more; Python's own copy is its owner's business.
    pub fn secret(&self, py: Python<'_>) -> PyResult<SecretVec> {
        match self {
            Data::Bytes(bytes) => Ok(SecretVec::from(&bytes[..])),
            Data::Buffer(buffer) => buffer.to_vec(py).map(SecretVec::new),
        }
    }

    /// The bytes as a source, where a key or a passphrase is read from.
    pub fn source(&self, py: Python<'_>) -> PyResult<SecretSource> {
        Ok(SecretSource::memory(self.secret(py)?))
    }
}
