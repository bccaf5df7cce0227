//! Checksums and codes.

use casemate::base64::{Alphabet, Base64, Padding};
use casemate::{Cpu, Crc32c};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::input::Data;

/// Bytes from which on it pays to let others have the interpreter meanwhile, as in hashlib.
const WORTH_IT: usize = 2048;

/// The CRC-32C of data, going on from that of what came before.
#[pyfunction]
#[pyo3(signature = (data, value=0, /))]
pub fn crc32c(py: Python<'_>, data: Data, value: u32) -> PyResult<u32> {
    let data = data.get(py)?;
    let run = || !Crc32c::new(Cpu::detect()).update(!value, &data);
    Ok(if data.len() < WORTH_IT { run() } else { py.detach(run) })
}

/// The CRC-32C of two parts that are joined, from those of the parts.
#[pyfunction]
#[pyo3(signature = (first, second, second_len, /))]
pub fn crc32c_combine(first: u32, second: u32, second_len: u64) -> u32 {
    // What both registers began with, and that they are inverted, cancel out.
    Crc32c::new(Cpu::detect()).combine(first, second, second_len)
}

fn codec(url_safe: bool, padding: bool) -> Base64<'static> {
    let alphabet = if url_safe { &Alphabet::URL_SAFE } else { &Alphabet::STANDARD };
    Base64::new(Cpu::detect(), alphabet, if padding { Padding::Padded } else { Padding::Unpadded })
}

/// Data as base64.
#[pyfunction]
#[pyo3(signature = (data, /, *, url_safe=false, padding=true))]
pub fn base64_encode<'py>(
    py: Python<'py>,
    data: Data,
    url_safe: bool,
    padding: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let (data, codec) = (data.get(py)?, codec(url_safe, padding));
    PyBytes::new_with(py, codec.encoded_len(data.len()), |text| {
        py.detach(|| codec.encode(&data, text));
        Ok(())
    })
}

/// The data of base64, which must be the one text that stands for them.
#[pyfunction]
#[pyo3(signature = (text, /, *, url_safe=false, padding=true))]
pub fn base64_decode<'py>(
    py: Python<'py>,
    text: Data,
    url_safe: bool,
    padding: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let (text, codec) = (text.get(py)?, codec(url_safe, padding));
    let decoded = py.detach(|| codec.decode_to_vec(&text));
    let data = decoded.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &data))
}
