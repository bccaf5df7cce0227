//! LUKS headers: read, made, and their keys changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use casemate::luks::{
    Header, LuksFormatOptions, LuksKey, LuksOptions, LuksVersion, NewKeyOptions, Pbkdf, Uuid, Volume,
};
use casemate::{Error, Image, Providers, SecretVec, Work};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::device::Device;
use crate::error::raise;
use crate::input::Data;
use crate::work::{Effort, changing, working};

/// A key derivation function: its name, iterations or passes, KiB of memory, and lanes.
pub type Costs = (String, u32, u32, u32);

/// A header with the data that it is of.
#[pyclass(frozen, module = "casemate._casemate")]
pub struct LuksVolume(Mutex<Volume>);

/// A key that was given: a passphrase or a volume key.
pub fn key(py: Python<'_>, passphrase: Option<Data>, volume_key: Option<Data>) -> PyResult<LuksKey> {
    match (passphrase, volume_key) {
        (Some(passphrase), None) => Ok(LuksKey::Passphrase(passphrase.secret(py)?)),
        (None, Some(key)) => Ok(LuksKey::VolumeKey(key.secret(py)?)),
        (None, None) => Err(raise(Error::argument("give passphrase or volume_key"))),
        (Some(_), Some(_)) => Err(raise(Error::argument("give passphrase or volume_key, not both"))),
    }
}

pub fn pbkdf(costs: Option<Costs>, hash: &str) -> Result<Option<Pbkdf>, Error> {
    let Some((name, count, memory, lanes)) = costs else { return Ok(None) };
    let (memory, lanes) = match &*name {
        // What Python has where nothing was said.
        "pbkdf2" => (Some(memory).filter(|memory| *memory > 0), Some(lanes).filter(|lanes| *lanes > 1)),
        _ => (Some(memory), Some(lanes)),
    };
    Pbkdf::named(&name, hash, Some(count), memory, lanes).map(Some)
}

impl LuksVolume {
    fn volume(&self) -> MutexGuard<'_, Volume> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl LuksVolume {
    #[new]
    fn new(py: Python<'_>, device: &Device, header: Option<PyRef<'_, Device>>) -> PyResult<LuksVolume> {
        let header = header.map(|header| header.image().clone());
        let read = || device.image().luks_volume(header.as_ref(), &Providers::default());
        py.detach(read).map(|volume| LuksVolume(Mutex::new(volume))).map_err(raise)
    }

    #[getter]
    fn version(&self) -> u32 {
        self.volume().header().version()
    }

    #[getter]
    fn uuid(&self) -> String {
        self.volume().header().uuid().to_owned()
    }

    #[getter]
    fn keyslots(&self) -> Vec<u32> {
        self.volume().slots()
    }

    /// The metadata of LUKS2 as JSON; `None` for LUKS1.
    fn metadata<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        match self.volume().header() {
            Header::Luks1(_) => None,
            Header::Luks2(header) => Some(PyBytes::new(py, &header.metadata.json().to_plain())),
        }
    }

    /// The key slot that a key opens, and the volume key.
    fn unlock<'py>(
        &self,
        py: Python<'py>,
        passphrase: Option<Data>,
        volume_key: Option<Data>,
        keyslot: Option<u32>,
        effort: Effort,
    ) -> PyResult<(Option<u32>, Bound<'py, PyBytes>)> {
        let key = key(py, passphrase, volume_key)?;
        let options = options(keyslot);
        let unlocked = working(py, effort, |work| self.volume().unlock(&key, &options, work))?;
        Ok((unlocked.keyslot, PyBytes::new(py, unlocked.volume_key().expose())))
    }

    #[pyo3(signature = (new, *, replace, passphrase, volume_key, keyslot, costs, effort))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn set_key(
        &self,
        py: Python<'_>,
        new: Data,
        replace: bool,
        passphrase: Option<Data>,
        volume_key: Option<Data>,
        keyslot: Option<u32>,
        costs: Option<Costs>,
        effort: Effort,
    ) -> PyResult<u32> {
        let (key, new) = (key(py, passphrase, volume_key)?, new.secret(py)?);
        let mut made = NewKeyOptions::default();
        made.pbkdf = pbkdf(costs, "sha256").map_err(raise)?;
        if !replace {
            made.keyslot = keyslot;
        }
        let options = options(keyslot.filter(|_| replace));
        changing(py, effort, |work| {
            let mut volume = self.volume();
            let unlocked = volume.unlock(&key, &options, work)?;
            match replace {
                true => volume.change_key(&unlocked, &new, &made, work),
                false => volume.add_key(&unlocked, &new, &made, work),
            }
        })
    }

    fn kill_slot(&self, py: Python<'_>, keyslot: u32, last: bool) -> PyResult<()> {
        changing(py, Effort::default(), |work| match last {
            true => self.volume().erase_slots(&[keyslot], work),
            false => self.volume().kill_slot(keyslot, work),
        })
    }
}

fn options(keyslot: Option<u32>) -> LuksOptions {
    let mut options = LuksOptions::default();
    options.keyslot = keyslot;
    options
}

/// Makes a volume on a device; what was there becomes noise.
#[pyfunction]
#[pyo3(signature = (
    device, passphrase, *, version, cipher, key_size, integrity, hash, costs, sector_size, offset, label, uuid, keyslot,
    volume_key, header, overwrite, effort
))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub fn luks_format(
    py: Python<'_>,
    device: &Device,
    passphrase: Data,
    version: u32,
    cipher: String,
    key_size: Option<usize>,
    integrity: Option<String>,
    hash: String,
    costs: Option<Costs>,
    sector_size: u32,
    offset: Option<u64>,
    label: String,
    uuid: Option<&str>,
    keyslot: u32,
    volume_key: Option<Data>,
    header: Option<PyRef<'_, Device>>,
    overwrite: bool,
    effort: Effort,
) -> PyResult<()> {
    let mut options = LuksFormatOptions::default();
    options.version = match version {
        1 => LuksVersion::One,
        2 => LuksVersion::Two,
        _ => return Err(raise(Error::argument(format!("version {version}: LUKS has the versions 1 and 2")))),
    };
    options.pbkdf = pbkdf(costs, &hash).map_err(raise)?;
    (options.cipher, options.integrity, options.hash) = (cipher, integrity, hash);
    options.key_bits = key_size.map(|len| len.saturating_mul(8));
    (options.sector_size, options.offset) = (sector_size, offset);
    (options.label, options.keyslot, options.detached) = (label, keyslot, header.is_some());
    options.uuid = uuid.map(Uuid::from_text).transpose().map_err(raise)?;
    options.volume_key = volume_key.map(|key| key.secret(py)).transpose()?;
    let passphrase = passphrase.secret(py)?;
    let (image, header) = (device.image(), header.map(|header| header.image().clone()));
    changing(py, effort, |work| format(image, header.as_ref(), &passphrase, &options, overwrite, work))
}

fn format(
    image: &Image,
    header: Option<&Image>,
    passphrase: &SecretVec,
    options: &LuksFormatOptions,
    overwrite: bool,
    work: &Work<'_>,
) -> Result<(), Error> {
    // What is refused costs no key derivation.
    options.check_image(image, header, overwrite, work)?;
    options.prepare(passphrase, work)?.format(image, header, overwrite, work)
}
