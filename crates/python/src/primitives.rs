//! Checksums and codes.

use std::borrow::Cow;

use casemate::base64::{Alphabet, Base64, Padding};
use casemate::primitives::Messages;
use casemate::primitives::sha256::Sha256;
use casemate::{Cpu, Crc32c};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::input::Data;

/// Bytes from which on it pays to let others have the interpreter meanwhile. 64 KiB take half a microsecond, and two threads that
/// hand the interpreter over for that take 2 us each (Zen 5).
const WORTH_IT: usize = 256 << 10;

/// The package's version.
#[pyfunction]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

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

/// The CRC-32C of bytes of which some were replaced, from that of before.
#[pyfunction]
#[pyo3(signature = (old, total_len, offset, old_region, new_region, /))]
pub fn crc32c_patch(
    py: Python<'_>,
    old: u32,
    total_len: u64,
    offset: u64,
    old_region: Data,
    new_region: Data,
) -> PyResult<u32> {
    let (before, after) = (old_region.get(py)?, new_region.get(py)?);
    let crc = Crc32c::new(Cpu::detect());
    // What both registers began with, and that they are inverted, cancel out.
    let patched = crc.splice(old, total_len, offset, &before, &after);
    patched.map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The SHA-256 digests of messages of one length, one behind the other; `data` is whole messages.
#[pyfunction]
#[pyo3(signature = (data, length, *, prefix=None))]
pub fn sha256_many<'py>(
    py: Python<'py>,
    data: Data,
    length: usize,
    prefix: Option<Data>,
) -> PyResult<Bound<'py, PyBytes>> {
    let data = data.get(py)?;
    let prefix = match &prefix {
        Some(prefix) => prefix.get(py)?,
        None => Cow::Borrowed(&[][..]),
    };
    if length == 0 || !data.len().is_multiple_of(length) {
        let text = format!("{} bytes are not whole messages of {length} bytes", data.len());
        return Err(PyValueError::new_err(text));
    }
    let count = data.len() / length;
    PyBytes::new_with(py, count * 32, |out| {
        py.detach(|| {
            let sha256 = Sha256::new(Cpu::detect());
            sha256.hash_many(
                &sha256.midstate(&prefix),
                Messages::strided(&data, length, length, count),
                &[],
                out,
            );
        });
        Ok(())
    })
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
