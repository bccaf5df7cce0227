//! fscrypt: master keys, and what they encrypt.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::PathBuf;

use casemate::blockdev::os::OsStrExt;
use casemate::crypt::Direction;
use casemate::fscrypt::{self, Context, InodeInfo, KeyId};
use casemate::{Error, Providers, backup, hex};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::raise;
use crate::ext4::{FileSystem, Left, left};
use crate::input::Data;
use crate::policy::NamedPolicy;
use crate::work::{Effort, changing};
use crate::writer::Writer;

/// The fields of a context: the policy's version, modes of contents and names, IVs, padding and bytes of a data unit;
/// then the key's name in hexadecimal digits, and the nonce.
type Described<'py> =
    ((u8, &'static str, &'static str, &'static str, usize, Option<u32>), String, Bound<'py, PyBytes>);

/// Reads a context, as ext4 stores it.
#[pyfunction]
pub fn fscrypt_context<'py>(py: Python<'py>, context: Data) -> PyResult<Described<'py>> {
    let Context { policy, nonce } = Context::from_bytes(&context.get(py)?).map_err(raise)?;
    let unit = (policy.log2_data_unit_size != 0).then(|| 1 << policy.log2_data_unit_size);
    let key = match &policy.key {
        KeyId::Descriptor(bytes) => hex::encode(bytes),
        KeyId::Identifier(bytes) => hex::encode(bytes),
    };
    let words = (
        policy.version(),
        policy.contents.name(),
        policy.names.name(),
        policy.ivs.name(),
        policy.padding,
        unit,
    );
    Ok((words, key, PyBytes::new(py, &nonce)))
}

/// A master key.
#[pyclass(frozen, module = "casemate._casemate")]
pub struct MasterKey(fscrypt::MasterKey);

/// An inode: its context, number, the file system's UUID and block size.
type Where = (Data, u32, Data, u32);

fn inode_info(py: Python<'_>, (context, number, uuid, block_size): Where) -> PyResult<InodeInfo> {
    let info = || {
        let wrong = |_| raise(Error::argument("a UUID has 16 bytes"));
        let uuid = <[u8; 16]>::try_from(&*uuid.get(py)?).map_err(wrong)?;
        if !block_size.is_power_of_two() || !(512..=1 << 16).contains(&block_size) {
            let text = format!("blocks of {block_size} bytes: a power of two from 512 to 65536");
            return Err(raise(Error::argument(text)));
        }
        let context = Context::from_bytes(&context.get(py)?).map_err(raise)?;
        Ok(InodeInfo { context, number, uuid, block_size })
    };
    info()
}

#[pymethods]
impl MasterKey {
    #[new]
    fn new(py: Python<'_>, key: Data) -> PyResult<MasterKey> {
        let key = fscrypt::MasterKey::new(&Providers::default(), key.secret(py)?);
        key.map(MasterKey).map_err(raise)
    }

    /// The name in policies of version 2, in hexadecimal digits.
    #[getter]
    fn identifier(&self) -> String {
        hex::encode(&self.0.identifier())
    }

    /// The name in policies of version 1.
    #[getter]
    fn descriptor(&self) -> String {
        hex::encode(&self.0.descriptor())
    }

    /// The context of an inode under this key.
    fn context<'py>(
        &self,
        py: Python<'py>,
        policy: NamedPolicy,
        nonce: Data,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let wrong = |_| raise(Error::argument("a nonce has 16 bytes"));
        let nonce = <[u8; 16]>::try_from(&*nonce.get(py)?).map_err(wrong)?;
        let policy = policy.new_policy().and_then(|policy| policy.policy(&self.0)).map_err(raise)?;
        Ok(PyBytes::new(py, &Context { policy, nonce }.to_bytes()))
    }

    /// The cipher of names in a directory, and of a link's target.
    fn names(&self, py: Python<'_>, inode: Where) -> PyResult<NameCipher> {
        self.0.names(&inode_info(py, inode)?).map(NameCipher).map_err(raise)
    }

    /// The cipher of a file's contents.
    fn contents(&self, py: Python<'_>, inode: Where) -> PyResult<ContentCipher> {
        self.0.contents(&inode_info(py, inode)?).map(ContentCipher).map_err(raise)
    }
}

/// A cipher of names.
#[pyclass(frozen, module = "casemate._casemate")]
pub struct NameCipher(fscrypt::NameCipher);

#[pymethods]
impl NameCipher {
    fn encrypt<'py>(&self, py: Python<'py>, name: Data, limit: usize) -> PyResult<Bound<'py, PyBytes>> {
        let made = self.0.encrypt(&name.get(py)?, limit).map_err(raise)?;
        Ok(PyBytes::new(py, &made))
    }

    fn decrypt<'py>(&self, py: Python<'py>, ciphertext: Data) -> PyResult<Bound<'py, PyBytes>> {
        let made = self.0.decrypt(&ciphertext.get(py)?).map_err(raise)?;
        Ok(PyBytes::new(py, &made))
    }
}

/// A cipher of contents.
#[pyclass(frozen, module = "casemate._casemate")]
pub struct ContentCipher(fscrypt::ContentCipher);

#[pymethods]
impl ContentCipher {
    #[getter]
    fn data_unit_size(&self) -> usize {
        self.0.data_unit_size()
    }

    fn run<'py>(
        &self,
        py: Python<'py>,
        encrypt: bool,
        data: Data,
        first: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let data = data.get(py)?;
        let direction = if encrypt { Direction::Encrypt } else { Direction::Decrypt };
        PyBytes::new_with(py, data.len(), |out| {
            out.copy_from_slice(&data);
            py.detach(|| self.0.run(direction, first, out)).map_err(raise)
        })
    }
}

/// Saves a directory as it is stored, without keys.
#[pyfunction]
pub fn fscrypt_backup(
    py: Python<'_>,
    fs: PyRef<'_, FileSystem>,
    path: PathBuf,
    target: PathBuf,
    effort: Effort,
) -> PyResult<Left> {
    let fs = &*fs;
    let report = changing(py, effort, |work| {
        let mut output = BufWriter::with_capacity(1 << 20, fs.output(&target)?);
        let report = backup::write(fs.inner(), &path, &mut output, work)?;
        let output = output.into_inner().map_err(|error| Error::io(target.display(), error.into_error()))?;
        output.commit()?;
        Ok(report)
    })?;
    Ok(left(report))
}

/// Puts back what was saved, without keys.
#[pyfunction]
pub fn fscrypt_restore(
    py: Python<'_>,
    writer: PyRef<'_, Writer>,
    source: PathBuf,
    path: PathBuf,
    effort: Effort,
) -> PyResult<()> {
    writer.with(py, effort, |writer, work| {
        let file = File::open(&source).map_err(|error| Error::io(source.display(), error))?;
        let name = source.display().to_string();
        let mut input = BufReader::with_capacity(1 << 20, file);
        backup::restore(&mut input, &name, writer, path.as_os_str().as_bytes(), work).map(drop)
    })
}
