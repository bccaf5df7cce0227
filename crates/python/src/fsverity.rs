//! fs-verity: digests of files, devices, and bytes that are handed over.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

#[cfg(target_os = "linux")]
use casemate::fsverity::KernelError;
use casemate::fsverity::{self, Algorithm, Beside, FileDigest, FileHasher, Parameters, WholeFile};
use casemate::part::Part;
use casemate::{Error, Providers, target, tree};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::device::Device;
use crate::error::raise;
use crate::input::Data;
use crate::part::{Sent, received, sent};
use crate::work::{Effort, changing, working};

/// A digest with the name of its algorithm.
type Named<'py> = (&'static str, Bound<'py, PyBytes>);

/// The data of a digest.
#[derive(FromPyObject)]
pub enum Subject<'py> {
    Device(PyRef<'py, Device>),
    Path(PathBuf),
}

fn unknown(algorithm: &str) -> Error {
    Error::argument(format!("algorithm '{algorithm}': fs-verity has sha256 and sha512"))
}

fn parameters(py: Python<'_>, algorithm: &str, block_size: u32, salt: &Data) -> PyResult<Parameters> {
    let algorithm = Algorithm::named(algorithm).ok_or_else(|| unknown(algorithm)).map_err(raise)?;
    Parameters::new(algorithm, block_size, &salt.get(py)?).map_err(raise)
}

fn named<'py>(py: Python<'py>, digest: &FileDigest) -> Named<'py> {
    (digest.algorithm().name(), PyBytes::new(py, digest.bytes()))
}

/// The digest of a file or a device.
#[pyfunction]
pub fn fsverity_digest<'py>(
    py: Python<'py>,
    subject: Subject<'py>,
    algorithm: &str,
    block_size: u32,
    salt: Data,
    effort: Effort,
) -> PyResult<Named<'py>> {
    let parameters = parameters(py, algorithm, block_size, &salt)?;
    let digest = match subject {
        Subject::Path(path) => working(py, effort, |work| fsverity::digest(path, &parameters, work)),
        Subject::Device(device) => {
            let image = device.image().clone();
            working(py, effort, |work| {
                let descriptor = fsverity::describe_device(&*image.device(), &parameters, work);
                descriptor
                    .and_then(|made| made.digest(&work.providers))
                    .map_err(|error| error.at(image.name()))
            })
        }
    }?;
    Ok(named(py, &digest))
}

/// The digests of many files in their order; an exception in the place of one that could not be read.
#[pyfunction]
pub fn fsverity_digests<'py>(
    py: Python<'py>,
    paths: Vec<PathBuf>,
    algorithm: &str,
    block_size: u32,
    salt: Data,
    effort: Effort,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let parameters = parameters(py, algorithm, block_size, &salt)?;
    let mut all = Vec::with_capacity(paths.len());
    working(py, effort, |work| {
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        fsverity::describe_many(&paths, &parameters, work, |results| {
            for (_, described) in results {
                all.push(described.and_then(|descriptor| descriptor.digest(&work.providers)));
            }
            Ok(())
        })
    })?;
    let object = |result: Result<FileDigest, Error>| match result {
        Ok(digest) => Ok(named(py, &digest).into_pyobject(py)?.into_any()),
        Err(error) => Ok(raise(error).into_value(py).into_bound(py).into_any()),
    };
    all.into_iter().map(object).collect()
}

/// The digest of an algorithm's name and its bytes.
pub fn file_digest(py: Python<'_>, algorithm: &str, digest: &Data) -> PyResult<FileDigest> {
    let digest = digest.get(py)?.into_owned();
    let found = Algorithm::named(algorithm).ok_or_else(|| unknown(algorithm)).map_err(raise)?;
    let wrong = || Error::argument(format!("digest: {} bytes are not one of {algorithm}", digest.len()));
    let found = Some(found).filter(|found| found.digest_len() == digest.len());
    Ok(FileDigest::new(found.ok_or_else(wrong).map_err(raise)?, digest))
}

/// Makes a tree beside a file; returns the digest.
#[pyfunction]
pub fn fsverity_tree<'py>(
    py: Python<'py>,
    file: &Device,
    tree: &Device,
    algorithm: &str,
    block_size: u32,
    salt: Data,
    effort: Effort,
) -> PyResult<Named<'py>> {
    let parameters = parameters(py, algorithm, block_size, &salt)?;
    let (file, tree) = (file.image(), tree.image());
    let digest = changing(py, effort, |work| file.fsverity_tree(tree, &parameters, work))?;
    Ok(named(py, &digest))
}

/// Refuses to replace what a device holds by an fs-verity tree, or by a hash area of dm-verity, where something else would be lost.
#[pyfunction]
pub fn check_replaced(py: Python<'_>, held: &Device, is_area: bool) -> PyResult<()> {
    let beside = if is_area { Beside::Area } else { Beside::Tree };
    py.detach(|| held.image().look_before(beside, true, &target::refuse)).map_err(raise)
}

/// Whether a device has the whole tree of a file with this digest, and nothing behind it.
#[pyfunction]
pub fn fsverity_is_whole_tree(
    py: Python<'_>,
    tree: &Device,
    algorithm: &str,
    digest: Data,
    effort: Effort,
) -> PyResult<bool> {
    let digest = file_digest(py, algorithm, &digest)?;
    let tree = tree.image();
    working(py, effort, |work| tree.is_whole_fsverity_tree(&digest, work))
}

/// Bytes of a file that parts of its tree begin at multiples of.
#[pyfunction]
pub fn fsverity_unit(py: Python<'_>, algorithm: &str, block_size: u32, salt: Data) -> PyResult<u64> {
    Ok(tree::unit(&parameters(py, algorithm, block_size, &salt)?.shape()))
}

/// The part of a file's tree that a device's bytes are, from byte `start` on; with its hash blocks if they are wanted.
#[pyfunction]
#[pyo3(signature = (data, *, size, start, algorithm, block_size, salt, with_tree, effort))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub fn fsverity_part<'py>(
    py: Python<'py>,
    data: &Device,
    size: u64,
    start: u64,
    algorithm: &str,
    block_size: u32,
    salt: Data,
    with_tree: bool,
    effort: Effort,
) -> PyResult<Sent<'py>> {
    let parameters = parameters(py, algorithm, block_size, &salt)?;
    let image = data.image();
    let whole = WholeFile { parameters, size };
    let built = working(py, effort, |work| image.tree_part(whole, start, with_tree, work))?;
    // The descriptor lies before the tree.
    Ok(sent(py, &built.0, &built.1, 4096))
}

/// The digest of a file from the parts of its tree; the levels above them go to `tree`, if it is given.
#[pyfunction]
pub fn fsverity_join<'py>(
    py: Python<'py>,
    parts: Vec<Data>,
    tree: Option<PyRef<'py, Device>>,
) -> PyResult<Named<'py>> {
    let parts = received::<WholeFile>(py, &parts)?;
    let tree = tree.map(|tree| tree.image().clone());
    let digest = working(py, Effort::default(), |work| match &tree {
        Some(tree) => tree.fsverity_join(&parts, work),
        None => Part::join(&parts, &(), work)?.digest(&work.providers),
    })?;
    Ok(named(py, &digest))
}

/// The digest that the kernel has for a file.
#[cfg(target_os = "linux")]
#[pyfunction]
pub fn fsverity_measure(py: Python<'_>, path: PathBuf) -> PyResult<Named<'_>> {
    let digest = py.detach(|| fsverity::measure(&path)).map_err(refused)?;
    Ok(named(py, &digest))
}

/// Makes the kernel protect a file.
#[cfg(target_os = "linux")]
#[pyfunction]
pub fn fsverity_enable(
    py: Python<'_>,
    path: PathBuf,
    algorithm: &str,
    block_size: u32,
    salt: Data,
    signature: Data,
) -> PyResult<()> {
    let parameters = parameters(py, algorithm, block_size, &salt)?;
    let signature = signature.get(py)?;
    py.detach(|| fsverity::enable(&path, &parameters, &signature)).map_err(refused)
}

/// The error for a request that the kernel refused.
#[cfg(target_os = "linux")]
fn refused(error: KernelError) -> PyErr {
    raise(Error::io(&error.file, error.error))
}

/// A digest of bytes that are handed over, as hashlib's objects take them.
#[pyclass(frozen, module = "casemate._casemate")]
pub struct Hasher(Mutex<FileHasher>);

impl Hasher {
    fn now(&self) -> FileHasher {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[pymethods]
impl Hasher {
    #[new]
    fn new(py: Python<'_>, algorithm: &str, block_size: u32, salt: Data) -> PyResult<Hasher> {
        let parameters = parameters(py, algorithm, block_size, &salt)?;
        let hasher = FileHasher::new(parameters, &Providers::default()).map_err(raise)?;
        Ok(Hasher(Mutex::new(hasher)))
    }

    fn update(&self, py: Python<'_>, data: Data) -> PyResult<()> {
        let data = data.get(py)?;
        py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).update(&data));
        Ok(())
    }

    fn digest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let digest = py.detach(|| self.now().finish()?.digest(&Providers::default())).map_err(raise)?;
        Ok(PyBytes::new(py, digest.bytes()))
    }

    fn copy(&self, py: Python<'_>) -> Hasher {
        Hasher(Mutex::new(py.detach(|| self.now())))
    }
}
