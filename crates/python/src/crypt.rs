//! dm-crypt's sectors, encrypted and decrypted where Python has them.

use casemate::Error;
use casemate::crypt::{Direction, Mapping, MappingOptions};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::raise;
use crate::input::Data;
use casemate::{SecretSource, Work};

/// A cipher under its key, as a mapping has it.
#[pyclass(frozen, module = "casemate._casemate")]
pub struct Sectors(Mapping);

/// The options of a mapping, and its key.
pub struct Keyed {
    pub options: MappingOptions,
    pub key: Option<SecretSource>,
    pub passphrase: Option<SecretSource>,
}

impl Keyed {
    /// The mapping; `of` is what errors and questions call it.
    pub fn mapping(self, of: &str) -> Result<Mapping, Error> {
        match (self.key, self.passphrase) {
            (Some(key), None) => self.options.with_key(&key, &Work::default()),
            (None, Some(passphrase)) => self.options.with_passphrase(&passphrase, of, &Work::default()),
            (None, None) => Err(Error::argument("give key or passphrase")),
            (Some(_), Some(_)) => Err(Error::argument("give key or passphrase, not both")),
        }
    }
}

/// A mapping as Python asks for it: cipher, key, passphrase, bytes of the key, hash of the passphrase, offset, offset of IVs,
/// bytes of a sector, and whether IVs count large sectors.
pub type Wanted = (String, Option<Data>, Option<Data>, Option<usize>, String, u64, u64, usize, bool);

/// The options of a mapping, and its key.
pub fn keyed(py: Python<'_>, wanted: Wanted) -> PyResult<Keyed> {
    let mut options = MappingOptions::default();
    let (cipher, key, passphrase, len, hash, offset, iv_offset, sector_size, iv_large_sectors) = wanted;
    (options.cipher, options.passphrase_hash) = (cipher, hash);
    (options.offset, options.iv_offset) = (offset, iv_offset);
    (options.sector_size, options.iv_large_sectors) = (sector_size, iv_large_sectors);
    let key = key.map(|key| key.secret(py)).transpose()?;
    let len = len.or(key.as_ref().map(|key| key.len()));
    options.key_bits = len.map(|len| len.saturating_mul(8));
    let passphrase = passphrase.map(|passphrase| passphrase.source(py)).transpose()?;
    Ok(Keyed { options, key: key.map(SecretSource::memory), passphrase })
}

#[pymethods]
impl Sectors {
    #[new]
    fn new(py: Python<'_>, wanted: Wanted) -> PyResult<Sectors> {
        keyed(py, wanted)?.mapping("mapping").map(Sectors).map_err(raise)
    }

    #[getter]
    fn driver(&self) -> &str {
        self.0.cipher().driver_name()
    }

    fn run<'py>(
        &self,
        py: Python<'py>,
        encrypt: bool,
        data: Data,
        sector: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let data = data.get(py)?;
        PyBytes::new_with(py, data.len(), |out| {
            out.copy_from_slice(&data);
            py.detach(|| self.0.cipher().run(direction(encrypt), sector, out)).map_err(raise)
        })
    }

    fn run_into(
        &self,
        py: Python<'_>,
        encrypt: bool,
        data: Data,
        sector: u64,
        out: PyBuffer<u8>,
    ) -> PyResult<()> {
        let mut bytes = data.get(py)?.into_owned();
        if out.item_count() != bytes.len() {
            let text = format!("out has {} bytes, and data has {}", out.item_count(), bytes.len());
            return Err(raise(Error::argument(text)));
        }
        py.detach(|| self.0.cipher().run(direction(encrypt), sector, &mut bytes)).map_err(raise)?;
        out.copy_from_slice(py, &bytes)
    }
}

fn direction(encrypt: bool) -> Direction {
    if encrypt { Direction::Encrypt } else { Direction::Decrypt }
}
