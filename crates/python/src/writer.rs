//! ext4 file systems changed, all of it or nothing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use casemate::blockdev::os::{OsStrExt, OsStringExt};
use casemate::ext4::{self, NewNode, PutOptions, Tuning, new_uuid};
use casemate::{Error, Work};
use pyo3::prelude::*;

use crate::input::Data;
use crate::policy::NamedPolicy;
use crate::work::{Effort, changing};

/// Changes of an ext4 file system, in memory until they are committed.
#[pyclass(frozen, module = "casemate._casemate")]
pub struct Writer {
    name: String,
    open: Mutex<Option<ext4::Writer>>,
}

impl Writer {
    /// The changes of the image of this name.
    pub fn new(writer: ext4::Writer, name: &str) -> Writer {
        Writer { name: name.to_owned(), open: Mutex::new(Some(writer)) }
    }

    /// Changes something, unless the writer is closed.
    pub fn with<T: Send>(
        &self,
        py: Python<'_>,
        effort: Effort,
        change: impl FnOnce(&mut ext4::Writer, &Work<'_>) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        changing(py, effort, |work| {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let writer = open.as_mut().ok_or_else(|| Error::argument("the writer is closed"));
            writer.and_then(|writer| change(writer, work)).map_err(|error| error.at(&self.name))
        })
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

#[pymethods]
impl Writer {
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Effort::default(), |writer, _| writer.commit())
    }

    /// Forgets what was not committed, and deletes what waits for that on the device because large contents were committed in steps.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            if let Some(writer) = self.open.lock().unwrap_or_else(PoisonError::into_inner).take() {
                // Where that fails it waits for whoever opens the file system next.
                let _ = writer.abandon();
            }
        });
    }

    fn put(
        &self,
        py: Python<'_>,
        source: PathBuf,
        to: PathBuf,
        recursive: bool,
    ) -> PyResult<(u64, u64, u64, u64)> {
        let mut options = PutOptions::default();
        options.recursive = recursive;
        let report =
            self.with(py, Effort::default(), |writer, work| writer.put(&source, bytes(&to), &options, work))?;
        Ok((report.files, report.directories, report.others, report.bytes))
    }

    fn write_bytes(&self, py: Python<'_>, path: PathBuf, data: Data) -> PyResult<()> {
        let data = data.get(py)?;
        self.with(py, Effort::default(), |writer, work| {
            let (from, options) = (&mut &*data, PutOptions::default());
            writer.put_contents(from, Path::new("memory"), bytes(&path), &options, work).map(drop)
        })
    }

    fn mkdir(&self, py: Python<'_>, path: PathBuf, mode: u16, parents: bool) -> PyResult<()> {
        self.with(py, Effort::default(), |writer, _| {
            writer.make_directory(bytes(&path), &NewNode::new(mode), parents)
        })
    }

    fn symlink(&self, py: Python<'_>, path: PathBuf, target: OsString) -> PyResult<()> {
        let target = target.as_bytes();
        self.with(py, Effort::default(), |writer, _| {
            writer.make_symlink(bytes(&path), target, &NewNode::new(0o777))
        })
    }

    fn link(&self, py: Python<'_>, existing: PathBuf, path: PathBuf) -> PyResult<()> {
        self.with(py, Effort::default(), |writer, _| writer.link(bytes(&existing), bytes(&path)))
    }

    fn rename(&self, py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<()> {
        self.with(py, Effort::default(), |writer, _| writer.rename(bytes(&from), bytes(&to)))
    }

    fn remove(&self, py: Python<'_>, path: PathBuf, tree: bool) -> PyResult<()> {
        self.with(py, Effort::default(), |writer, _| match tree {
            true => writer.remove_tree(bytes(&path)),
            false => writer.remove(bytes(&path)),
        })
    }

    fn chmod(&self, py: Python<'_>, path: PathBuf, mode: u16) -> PyResult<()> {
        self.with(py, Effort::default(), |writer, _| writer.set_mode(bytes(&path), mode))
    }

    fn chown(
        &self,
        py: Python<'_>,
        path: PathBuf,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> PyResult<()> {
        self.with(py, Effort::default(), |writer, _| writer.set_owner(bytes(&path), uid, gid, follow))
    }

    /// Makes an empty directory an encrypted one.
    fn set_policy(&self, py: Python<'_>, path: PathBuf, key: Data, policy: NamedPolicy) -> PyResult<()> {
        let key = key.secret(py)?;
        self.with(py, Effort::default(), |writer, work| {
            let policy = policy.new_policy()?;
            ext4::set_policy(writer, path.display(), bytes(&path), key, &policy, &work.providers)
        })
    }

    /// Changes parameters of the file system. Names and values are tune2fs' own.
    #[pyo3(signature = (
        *, label, uuid, features, mount_options, extended, on_errors, last_mounted, journal_size, reserved_blocks,
        reserved_percent, reserved_user, reserved_group, max_mounts, mounts, check_interval, last_check
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn tune(
        &self,
        py: Python<'_>,
        label: Option<OsString>,
        uuid: Option<String>,
        features: &str,
        mount_options: &str,
        extended: &str,
        on_errors: Option<String>,
        last_mounted: Option<PathBuf>,
        journal_size: Option<u64>,
        reserved_blocks: Option<u64>,
        reserved_percent: Option<f64>,
        reserved_user: Option<u16>,
        reserved_group: Option<u16>,
        max_mounts: Option<i32>,
        mounts: Option<u16>,
        check_interval: Option<u32>,
        last_check: Option<i64>,
    ) -> PyResult<()> {
        self.with(py, Effort::default(), |writer, _| {
            let mut tuning = Tuning::default();
            tuning.label = label.map(OsString::into_vec);
            tuning.uuid = uuid.as_deref().map(new_uuid).transpose()?;
            tuning.features.change(features)?;
            if journal_size.is_some() {
                tuning.features.change("has_journal")?;
            }
            tuning.journal_size = journal_size;
            tuning.change_mount_options(mount_options)?;
            tuning.set_extended(extended)?;
            on_errors.map_or(Ok(()), |action| tuning.set_on_errors(&action))?;
            tuning.last_mounted = last_mounted.map(|path| path.into_os_string().into_vec());
            let blocks = writer.fs().superblock().blocks;
            tuning.set_reserved(reserved_blocks, reserved_percent, blocks)?;
            (tuning.reserved_user, tuning.reserved_group) = (reserved_user, reserved_group);
            max_mounts.map_or(Ok(()), |count| tuning.set_most_mounts(count))?;
            (tuning.mounts, tuning.check_interval, tuning.checked) = (mounts, check_interval, last_check);
            writer.tune(&tuning)
        })
    }

    fn truncate(&self, py: Python<'_>, path: PathBuf, size: u64) -> PyResult<()> {
        self.with(py, Effort::default(), |writer, _| writer.truncate(bytes(&path), size))
    }

    fn setxattr(&self, py: Python<'_>, path: PathBuf, name: OsString, value: Option<Data>) -> PyResult<()> {
        let value = match &value {
            Some(value) => Some(value.get(py)?),
            None => None,
        };
        let (name, value) = (name.as_bytes(), value.as_deref());
        self.with(py, Effort::default(), |writer, _| writer.set_xattr(bytes(&path), name, value, true))
    }
}
