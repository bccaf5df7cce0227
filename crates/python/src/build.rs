//! ext4 images that are made: a specification that is filled in, and run.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use casemate::blockdev::PartitionId;
use casemate::ext4::{
    BuildSize, BuildSpec, BuildTarget, Description, DmVeritySpec, EncryptedFolder, Features, LuksSpec,
    NewMode, NewXattr, ParitySpec, Pattern, SignFn, Signer, Source, VeritySpec, uuid_of, uuid_text,
};
use casemate::fsverity::Algorithm;
use casemate::luks::LuksFormatOptions;
use casemate::signature::{Certificate, SigningKey};
use casemate::target::Loss;
use casemate::{Advice, Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error::{raise, raised};
use crate::input::Data;
use crate::luks::{Costs, pbkdf};
use crate::policy::NamedPolicy;
use crate::work::{Effort, changing};

/// A new file system, and all that is to be in it and around it. It is run once.
#[pyclass(frozen, module = "casemate._casemate")]
pub struct Build(Mutex<Option<BuildSpec>>);

/// Where parity goes: a file, its first byte there, and parity bytes for each codeword.
#[derive(FromPyObject)]
pub struct Parity(PathBuf, u64, Option<u32>);

impl Build {
    /// Changes the specification.
    fn change(&self, change: impl FnOnce(&mut BuildSpec) -> Result<(), Error>) -> PyResult<()> {
        let mut spec = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spec.as_mut().ok_or_else(used).and_then(change).map_err(raise)
    }
}

/// Calls a function of Python with the bytes to sign and the name of the hash; what it raises comes out of the build.
fn elsewhere(function: Py<PyAny>) -> SignFn {
    Box::new(move |message, digest| {
        let signed = Python::attach(|py| {
            let signed = function.call1(py, (PyBytes::new(py, message), digest.name()))?;
            Ok::<_, PyErr>(signed.extract::<Data>(py)?.get(py)?.into_owned())
        });
        signed.map_err(|exception| raised(ErrorKind::Argument, exception))
    })
}

fn used() -> Error {
    Error::argument("this build was run already")
}

#[pymethods]
impl Build {
    #[new]
    fn new(path: PathBuf, offset: Option<u64>, partition: Option<u32>) -> PyResult<Build> {
        let target = match (offset, partition) {
            (None, None) => BuildTarget::File(path),
            (Some(offset), None) => BuildTarget::Within { path, offset },
            (None, Some(number)) => BuildTarget::Partition { path, id: PartitionId::Number(number) },
            (Some(_), Some(_)) => {
                return Err(raise(Error::argument("give offset or partition, not both")));
            }
        };
        Ok(Build(Mutex::new(Some(BuildSpec::new(target)))))
    }

    /// Adds a source: a folder, a tar, a layer, or an oci folder, of which the image may be named.
    fn source(&self, kind: &str, path: PathBuf, name: Option<String>) -> PyResult<()> {
        let source = match kind {
            "folder" => Source::Folder(path),
            "tar" => Source::Tar(path),
            "layer" => Source::Layer(path),
            "oci" => Source::Oci(path, name),
            _ => return Err(raise(Error::argument("a source is a folder, a tar, a layer or an oci folder"))),
        };
        self.change(|spec| {
            spec.sources.push(source);
            Ok(())
        })
    }

    /// Gives everything an owner and a group.
    fn owner(&self, uid: u32, gid: u32) -> PyResult<()> {
        self.change(|spec| {
            spec.reading.owners.all = Some((uid, gid));
            Ok(())
        })
    }

    /// Maps IDs of the source: the first one in the image, the first one of the source, and how many.
    fn map_ids(&self, users: Vec<[u32; 3]>, groups: Vec<[u32; 3]>) -> PyResult<()> {
        self.change(|spec| {
            (spec.reading.owners.users, spec.reading.owners.groups) = (users, groups);
            Ok(())
        })
    }

    /// Copies no extended attributes.
    fn no_xattrs(&self) -> PyResult<()> {
        self.change(|spec| {
            spec.reading.xattrs = false;
            Ok(())
        })
    }

    /// Changes permission bits of files that match a pattern, as chmod does.
    fn mode(&self, py: Python<'_>, pattern: Data, mode: &str) -> PyResult<()> {
        let pattern = pattern.get(py)?;
        self.change(|spec| {
            spec.amendments.modes.push(NewMode::change(Pattern::new(&pattern)?, mode.parse()?));
            Ok(())
        })
    }

    /// Sets an extended attribute on files that match a pattern.
    fn xattr(&self, py: Python<'_>, pattern: Data, name: Data, value: Data) -> PyResult<()> {
        let (pattern, name, value) = (pattern.get(py)?, name.get(py)?, value.get(py)?);
        self.change(|spec| {
            let new = NewXattr::new(Pattern::new(&pattern)?, &name[..], &value[..]);
            spec.amendments.xattrs.push(new);
            Ok(())
        })
    }

    /// Signs digests and the root hash: with a private key in PEM, or with a function that signs elsewhere.
    fn signer(&self, py: Python<'_>, key: Py<PyAny>, certificate: Data) -> PyResult<()> {
        let certificate = Certificate::from_bytes(&certificate.get(py)?).map_err(raise)?;
        let signer = match key.bind(py).is_callable() {
            true => Signer::external(certificate, elsewhere(key)),
            false => {
                let pem = key.extract::<Data>(py)?.secret(py)?;
                Signer::new(SigningKey::from_pem(pem.expose()).map_err(raise)?, certificate)
            }
        };
        self.change(|spec| {
            spec.signer = Some(signer);
            Ok(())
        })
    }

    fn file_system(&self, kind: &str, features: &str, label: String, block_size: u32) -> PyResult<()> {
        self.change(|spec| {
            let options = &mut spec.file_system;
            options.features = Features::of_type(kind)?;
            options.features.change(features)?;
            (options.label, options.block_size) = (label.into_bytes(), block_size);
            Ok(())
        })
    }

    fn uuid(&self, text: &str) -> PyResult<()> {
        let uuid = uuid_of(text).ok_or_else(|| Error::argument(format!("'{text}' is not a UUID")));
        self.change(|spec| {
            spec.file_system.uuid = Some(uuid?.into());
            Ok(())
        })
    }

    fn seed(&self, text: String) -> PyResult<()> {
        self.change(|spec| {
            spec.seed = Some(text);
            Ok(())
        })
    }

    /// So many bytes; or as few as there can be, or all of a device. So many are free then.
    fn size(&self, size: Option<u64>, free: u64) -> PyResult<()> {
        self.change(|spec| {
            (spec.size, spec.file_system.min_free) = (size.map(BuildSize::Bytes), free);
            Ok(())
        })
    }

    fn android_sparse(&self) -> PyResult<()> {
        self.change(|spec| {
            spec.android_sparse = true;
            Ok(())
        })
    }

    /// Puts fs-verity on files that match patterns, all without any, or on those of a manifest.
    fn verity(
        &self,
        py: Python<'_>,
        patterns: Vec<Data>,
        manifest: Option<PathBuf>,
        algorithm: &str,
        salt: Data,
    ) -> PyResult<()> {
        let salt = salt.get(py)?.into_owned();
        let texts =
            patterns.iter().map(|text| Ok(text.get(py)?.into_owned())).collect::<PyResult<Vec<_>>>()?;
        self.change(|spec| {
            let mut verity = VeritySpec::new();
            let unknown = || Error::argument(format!("fs-verity has no hash algorithm {algorithm}"));
            verity.algorithm = Algorithm::named(algorithm).ok_or_else(unknown)?;
            verity.salt = salt;
            verity.manifest = manifest;
            verity.patterns = texts.iter().map(|text| Pattern::new(text)).collect::<Result<_, _>>()?;
            spec.verity = Some(verity);
            Ok(())
        })
    }

    /// Changes attributes of files as a description says.
    fn describe(&self, format: &str, path: PathBuf) -> PyResult<()> {
        self.change(|spec| {
            spec.amendments.descriptions.push(Description::new(format.parse()?, path));
            Ok(())
        })
    }

    /// Labels everything for SELinux.
    fn label(&self, file_contexts: PathBuf) -> PyResult<()> {
        self.change(|spec| {
            spec.amendments.file_contexts = Some(file_contexts);
            Ok(())
        })
    }

    /// Where the file system will be mounted.
    fn mount_point(&self, path: Vec<u8>) -> PyResult<()> {
        self.change(|spec| {
            spec.amendments.mount_point = path;
            Ok(())
        })
    }

    /// Encrypts a directory with a raw key.
    fn encrypt(&self, py: Python<'_>, path: Vec<u8>, key: Data, policy: NamedPolicy) -> PyResult<()> {
        let key = key.source(py)?;
        self.change(|spec| {
            spec.encryption.push(EncryptedFolder::new(path, key).policy(policy.new_policy()?));
            Ok(())
        })
    }

    /// Encrypts a directory with a random key, which a new protector opens with a secret.
    fn protect(
        &self,
        py: Python<'_>,
        path: Vec<u8>,
        secret: Data,
        source: &str,
        policy: NamedPolicy,
    ) -> PyResult<()> {
        let secret = secret.source(py)?;
        self.change(|spec| {
            let folder = EncryptedFolder::protected(path, source.parse()?, secret);
            spec.encryption.push(folder.policy(policy.new_policy()?));
            Ok(())
        })
    }

    /// Makes dm-verity over the file system, with a hash area behind it or in a file, and parity if it is wanted.
    fn dm_verity(&self, hash: Option<PathBuf>, parity: Option<Parity>) -> PyResult<()> {
        self.change(|spec| {
            let mut dm_verity = DmVeritySpec::new();
            dm_verity.hash = hash;
            dm_verity.parity = parity.map(|Parity(path, offset, roots)| {
                let mut parity = ParitySpec::new(path);
                (parity.offset, parity.roots) = (offset, roots);
                parity
            });
            spec.dm_verity = Some(dm_verity);
            Ok(())
        })
    }

    /// Makes a LUKS2 volume around everything.
    fn luks(
        &self,
        py: Python<'_>,
        passphrase: Data,
        volume_key: Option<Data>,
        sector_size: u32,
        costs: Option<Costs>,
    ) -> PyResult<()> {
        let passphrase = passphrase.secret(py)?;
        let volume_key = volume_key.map(|key| key.secret(py)).transpose()?;
        self.change(|spec| {
            let mut format = LuksFormatOptions::default();
            (format.volume_key, format.sector_size) = (volume_key, sector_size);
            format.pbkdf = pbkdf(costs, &format.hash)?;
            spec.luks = Some(LuksSpec::new(passphrase).format(format));
            Ok(())
        })
    }

    /// Plans and writes everything. What was made is told by names.
    fn run<'py>(&self, py: Python<'py>, overwrite: bool, effort: Effort) -> PyResult<Bound<'py, PyDict>> {
        let spec = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let spec = spec.ok_or_else(|| raise(used()))?;
        let built = changing(py, effort, |work| match overwrite {
            true => spec.run(&casemate::target::overwrite, work),
            false => {
                let refuse = |loss: &Loss| {
                    casemate::target::refuse(loss).map_err(|error| error.advise(Advice::Overwrite))
                };
                spec.run(&refuse, work)
            }
        })?;
        let told = PyDict::new(py);
        let report = built.report;
        told.set_item("size", built.size)?;
        told.set_item("files", report.files)?;
        told.set_item("directories", report.directories)?;
        told.set_item("others", report.others)?;
        told.set_item("uuid", uuid_text(&report.uuid))?;
        let root_hash = built.dm_verity.map(|formatted| formatted.root_hash);
        told.set_item("root_hash", root_hash.as_deref().map(|hash| PyBytes::new(py, hash)))?;
        let signature = built.root_hash_signature.as_deref();
        told.set_item("root_hash_signature", signature.map(|bytes| PyBytes::new(py, bytes)))?;
        let by_path = PyDict::new(py);
        for (path, digest) in &built.digests {
            by_path.set_item(PyBytes::new(py, path), digest.to_string())?;
        }
        told.set_item("digests", by_path)?;
        Ok(told)
    }
}
