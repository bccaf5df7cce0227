//! ext4 file systems, read by inode; paths are the package's.

use std::ffi::OsString;
use std::io::BufWriter;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use casemate::blockdev::os::{self, OsStringExt};
use casemate::ext4::{self, ExtractOptions, Inode, InodeNo, Target, Time};
use casemate::{Error, Image, Output, Providers};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::device::Device;
use crate::error::raise;
use crate::work::{Effort, changing, working};

/// An ext4 file system that is open for reading.
#[pyclass(frozen, module = "casemate._casemate")]
pub struct FileSystem {
    fs: ext4::FileSystem,
    /// The image's file, if it is one.
    file: Option<PathBuf>,
}

/// Mode, inode, links, owner, group, size, sectors, numbers of a device, and times in nanoseconds: of access, of the
/// contents, of the inode, and of birth.
type Stat = (u32, u32, u16, u32, u32, u64, u64, (u32, u32), i128, i128, i128, Option<i128>);

/// Files that could not be copied: paths, each with what is wrong, and how many there are besides.
pub type Left = (Vec<(OsString, String)>, u64);

/// An inode's number as Python has it.
fn inode_number(number: u32) -> Result<InodeNo, Error> {
    InodeNo::new(number).ok_or_else(|| Error::corrupt("there is no inode 0"))
}

fn nanoseconds(time: Time) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

/// The files of a report that could not be copied.
pub fn left(report: ext4::ExtractReport) -> Left {
    let row = |failure: ext4::Failure| (OsString::from_vec(failure.path), failure.error.to_string());
    (report.failures.into_iter().map(row).collect(), report.failures_left_out)
}

impl FileSystem {
    /// The file system on an image.
    pub fn new(fs: ext4::FileSystem, image: &Image) -> FileSystem {
        FileSystem { fs, file: image.path().map(Path::to_owned) }
    }

    /// The file system itself.
    pub fn inner(&self) -> &ext4::FileSystem {
        &self.fs
    }

    /// Begins to write a file, which must not replace the image.
    pub fn output(&self, path: &Path) -> Result<Output, Error> {
        let others: Vec<&Path> = self.file.iter().map(PathBuf::as_path).collect();
        Output::create(path, &others)
    }

    fn named<T>(&self, result: Result<T, Error>) -> PyResult<T> {
        result.map_err(|error| raise(error.at(self.fs.name())))
    }

    fn inode(&self, number: u32) -> Result<Inode, Error> {
        self.fs.inode(inode_number(number)?)
    }
}

#[pymethods]
impl FileSystem {
    /// Copies what is below a directory to a folder of the host, or into a tar file. Returns paths with what kept them from
    /// being copied, and how many there are besides.
    #[pyo3(signature = (top, target, *, tar, owners, xattrs, effort))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn extract(
        &self,
        py: Python<'_>,
        top: PathBuf,
        target: PathBuf,
        tar: bool,
        owners: bool,
        xattrs: bool,
        effort: Effort,
    ) -> PyResult<Left> {
        let mut options = ExtractOptions::default();
        (options.owners, options.xattrs) = (owners, xattrs);
        let report = changing(py, effort, |work| {
            if !tar {
                return self.fs.extract(&top, Target::Folder(&target), &options, work);
            }
            let mut output = BufWriter::new(self.output(&target)?);
            let report = self.fs.extract(&top, Target::Tar(&mut output), &options, work)?;
            let output =
                output.into_inner().map_err(|error| Error::io(target.display(), error.into_error()))?;
            output.commit()?;
            Ok(report)
        })?;
        Ok(left(report))
    }

    /// The number of the inode that a path leads to.
    fn lookup(&self, py: Python<'_>, path: PathBuf, follow: bool) -> PyResult<u32> {
        let find = || if follow { self.fs.metadata(&path) } else { self.fs.symlink_metadata(&path) };
        py.detach(find).map(|inode| inode.number().get()).map_err(raise)
    }

    fn stat(&self, py: Python<'_>, number: u32) -> PyResult<Stat> {
        let inode = py.detach(|| self.inode(number)).map_err(raise)?;
        let sectors = inode.sectors(self.fs.inodes().layout().block_size);
        Ok((
            inode.mode().into(),
            inode.number().get(),
            inode.links(),
            inode.uid(),
            inode.gid(),
            inode.size(),
            sectors,
            inode.device().unwrap_or_default(),
            nanoseconds(inode.accessed()),
            nanoseconds(inode.modified()),
            nanoseconds(inode.changed()),
            inode.created().map(nanoseconds),
        ))
    }

    /// Names and inodes of a directory, without "." and "..", and what kinds of files they are: as in modes, or 0 where entries
    /// do not tell.
    fn entries(&self, py: Python<'_>, number: u32) -> PyResult<Vec<(OsString, u32, u16)>> {
        let read = || self.inode(number).and_then(|inode| self.fs.inodes().read_dir(&inode));
        let entries = self.named(py.detach(read))?;
        let row = |entry: ext4::DirEntry| {
            let kind = entry.kind.map_or(0, |kind| kind.mode_bits());
            (OsString::from_vec(entry.name), entry.inode.get(), kind)
        };
        Ok(entries.into_iter().map(row).collect())
    }

    fn readlink(&self, py: Python<'_>, number: u32) -> PyResult<OsString> {
        let read = || self.inode(number).and_then(|inode| self.fs.inodes().symlink_target(&inode));
        self.named(py.detach(read)).map(OsString::from_vec)
    }

    fn open(&self, py: Python<'_>, number: u32, name: PathBuf) -> PyResult<Device> {
        let open = || self.inode(number).and_then(|inode| self.fs.open_inode(&inode));
        let file = py.detach(open).map_err(raise)?;
        let name = format!("{}: {}", self.fs.name(), name.display());
        Ok(Image::over(name, file.into()).make_read_only().into())
    }

    fn read<'py>(&self, py: Python<'py>, number: u32) -> PyResult<Bound<'py, PyBytes>> {
        let read = || self.inode(number).and_then(|inode| self.fs.read_inode(&inode));
        Ok(PyBytes::new(py, &py.detach(read).map_err(raise)?))
    }

    /// The contents of many files, in their order; an exception in the place of one that could not be read.
    fn read_many(&self, py: Python<'_>, numbers: Vec<u32>, effort: Effort) -> PyResult<Vec<Py<PyAny>>> {
        let mut objects = Places::default();
        let numbers = numbers.into_iter().map(inode_number).collect::<Result<Vec<_>, _>>().map_err(raise)?;
        working(py, effort, |work| {
            self.fs.read_many(&numbers, work, |handful| objects.fill(handful, |_, _, object| object))
        })?;
        Ok(objects.0.into_iter().flatten().collect())
    }

    /// All regular files below a directory.
    fn files(&self, py: Python<'_>, number: u32) -> PyResult<Files> {
        let files = py.detach(|| self.inode(number).and_then(|inode| self.fs.files(&inode)));
        files.map(|files| Files(Mutex::new(files))).map_err(raise)
    }

    fn xattrs<'py>(&self, py: Python<'py>, number: u32) -> PyResult<Vec<(OsString, Bound<'py, PyBytes>)>> {
        let read = || self.inode(number).and_then(|inode| self.fs.inodes().xattrs(&inode));
        let found = self.named(py.detach(read))?;
        Ok(found
            .iter()
            .map(|row| (OsString::from_vec(row.name.clone()), PyBytes::new(py, &row.value)))
            .collect())
    }

    /// Where a file's contents lie: bytes in the file and on the device, how many, and whether they were ever written.
    fn extents(&self, py: Python<'_>, number: u32) -> PyResult<Vec<(u64, u64, u64, bool)>> {
        let layout = self.fs.inodes().layout();
        let size = u64::from(layout.block_size);
        let read = || {
            let mut found = Vec::new();
            self.fs.inodes().mappings(&self.inode(number)?, 0, |run| {
                found.push((run.logical * size, layout.offset(run.physical), run.len * size, !run.unwritten));
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(found)
        };
        self.named(py.detach(read))
    }

    /// The encryption context of an inode that is encrypted.
    fn context<'py>(&self, py: Python<'py>, number: u32) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let read = || self.inode(number).and_then(|inode| self.fs.inodes().encrypted(&inode));
        let found = self.named(py.detach(read))?;
        Ok(found.map(|encrypted| PyBytes::new(py, &encrypted.context)))
    }

    /// The fs-verity digest that a file's descriptor says, and its algorithm.
    fn verity<'py>(
        &self,
        py: Python<'py>,
        number: u32,
    ) -> PyResult<Option<(&'static str, Bound<'py, PyBytes>)>> {
        let read = || {
            let info = ext4::verity_info(self.fs.inodes(), &self.inode(number)?)?;
            info.map(|info| info.digest(&Providers::default())).transpose()
        };
        let digest = self.named(py.detach(read))?;
        Ok(digest.map(|digest| (digest.algorithm().name(), PyBytes::new(py, digest.bytes()))))
    }

    #[getter]
    fn name(&self) -> &str {
        self.fs.name()
    }

    #[getter]
    fn uuid(&self) -> String {
        ext4::uuid_text(&self.fs.inodes().superblock().uuid)
    }

    #[getter]
    fn label(&self) -> String {
        self.fs.inodes().superblock().label()
    }

    /// Blocks: all, those that are free, and those that only root may use.
    #[getter]
    fn blocks(&self) -> (u64, u64, u64) {
        let superblock = self.fs.inodes().superblock();
        (superblock.blocks, superblock.blocks_free, superblock.blocks_reserved)
    }

    #[getter]
    fn block_size(&self) -> u32 {
        self.fs.inodes().layout().block_size
    }
}

/// All regular files below a directory, batch by batch.
#[pyclass(frozen, module = "casemate._casemate")]
pub struct Files(Mutex<ext4::Files>);

/// Files of a directory: its path from where the walk began and its inode; names, their inodes, and contents or exceptions.
type Group = (OsString, u32, Vec<Py<PyString>>, Vec<u32>, Vec<Py<PyAny>>);

#[pymethods]
impl Files {
    /// The next files by their directories; none at the end. A directory that can't be read is one of the names, the empty one
    /// if the walk began there.
    fn read(&self, py: Python<'_>, effort: Effort) -> PyResult<Vec<Group>> {
        let mut found = Places::default();
        working(py, effort, |work| {
            let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            files.read(work, |names, handful| {
                found.fill(handful, |py, index, contents| {
                    let ext4::Found { folder, name, inode } = &names[index];
                    let Ok(name) = os::path(name).as_os_str().into_pyobject(py);
                    (folder.clone(), name.unbind(), *inode, contents)
                })
            })
        })?;
        let mut groups: Vec<Group> = Vec::new();
        let mut last = None;
        for (folder, name, inode, contents) in found.0.into_iter().flatten() {
            if last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, &folder)) {
                groups.push((
                    OsString::from_vec(folder.path()),
                    folder.get(),
                    Vec::new(),
                    Vec::new(),
                    Vec::new(),
                ));
                last = Some(folder);
            }
            if let Some((_, _, names, numbers, objects)) = groups.last_mut() {
                names.push(name);
                numbers.push(inode.get());
                objects.push(contents);
            }
        }
        Ok(groups)
    }
}

/// Results for contents, by their places.
struct Places<T>(Vec<Option<T>>);

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places(Vec::new())
    }
}

impl<T> Places<T> {
    /// Makes objects of contents while their bytes are in the cache, or exceptions.
    fn fill(
        &mut self,
        handful: ext4::Handful<'_>,
        make: impl Fn(Python<'_>, usize, Py<PyAny>) -> T,
    ) -> Result<(), Error> {
        Python::attach(|py| {
            for (index, contents) in handful {
                if self.0.len() <= index {
                    self.0.resize_with(index + 1, || None);
                }
                let object = match contents {
                    Ok(bytes) => PyBytes::new(py, &bytes).into_any().unbind(),
                    Err(error) => raise(error).into_value(py).into_any(),
                };
                self.0[index] = Some(make(py, index, object));
            }
        });
        Ok(())
    }
}
