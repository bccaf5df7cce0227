//! The one handle: whatever holds bytes, opened and nested.

use std::path::PathBuf;
use std::sync::Arc;

use casemate::blockdev::signatures::ZEROS;
use casemate::blockdev::{self, BlockDevice, u64_of, usize_of};
use casemate::ext4::{ReadOptions, Resize, ResizeReport, Tail, VerityPolicy, WriteOptions};
use casemate::image_spec::{ImageSpec, Opening};
use casemate::luks::LuksOptions;
use casemate::{Access, Advice, Error, ErrorKind, Image, Keys, Work, probe};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::crypt::{Wanted, keyed};
use crate::error::{raise, raised};
use crate::ext4::FileSystem;
use crate::input::Data;
use crate::repair::{Found, Repaired, found, repair};
use crate::work::{Effort, changing, working};
use crate::writer::Writer;
use crate::{fsverity, luks, verity};

/// A partition: its number, first byte, length, type and name.
type Row = (u32, u64, u64, String, String);

/// Bytes that are read without asking Python whether somebody has pressed Ctrl-C.
const READ: usize = 16 << 20;

/// An image and the devices that are laid on it.
#[pyclass(frozen, module = "casemate._casemate")]
pub struct Device {
    image: Image,
    top: Arc<dyn BlockDevice>,
}

impl From<Image> for Device {
    fn from(image: Image) -> Device {
        Device { top: image.device(), image }
    }
}

impl Device {
    /// The image.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// How many of the bytes from `at` on there are.
    fn available(&self, at: u64, len: usize) -> usize {
        usize_of(self.top.size().saturating_sub(at)).min(len)
    }

    fn named<T>(&self, result: Result<T, Error>) -> PyResult<T> {
        result.map_err(|error| raise(error.at(self.image.name())))
    }
}

fn access_of(writable: bool, locked: bool) -> Access {
    match (writable, locked) {
        (true, _) => Access::Change,
        (false, true) => Access::Read,
        (false, false) => Access::ReadUnlocked,
    }
}

#[pymethods]
impl Device {
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, writable: bool, locked: bool) -> PyResult<Device> {
        let access = access_of(writable, locked);
        py.detach(|| Image::open(path, access)).map(Device::from).map_err(raise)
    }

    #[staticmethod]
    fn open_spec(
        py: Python<'_>,
        spec: PathBuf,
        writable: bool,
        locked: bool,
        passphrase: Option<Data>,
        effort: Effort,
    ) -> PyResult<Device> {
        let access = access_of(writable, locked);
        let passphrase = passphrase.map(|passphrase| passphrase.secret(py)).transpose()?;
        let open = |work: &Work<'_>| {
            let spec = ImageSpec::parse(spec)?;
            spec.check_passphrase(passphrase.as_ref())?;
            spec.open(access, &Opening { work, passphrase })
        };
        working(py, effort, open).map(Device::from)
    }

    #[staticmethod]
    fn create(py: Python<'_>, path: PathBuf) -> PyResult<Device> {
        py.detach(|| Image::create(path)).map(Device::from).map_err(raise)
    }

    #[staticmethod]
    fn of_bytes(py: Python<'_>, data: Data) -> PyResult<Device> {
        Ok(Image::of_bytes("memory", data.get(py)?.into_owned()).into())
    }

    #[staticmethod]
    fn of_ranges(name: String, size: u64, read: Py<PyAny>) -> Device {
        let fetch = move |buf: &mut [u8], offset: u64| {
            Python::attach(|py| {
                let fetched: Data = read.call1(py, (offset, offset + u64_of(buf.len())))?.extract(py)?;
                PyResult::Ok(match &*fetched.get(py)? {
                    bytes if bytes.len() == buf.len() => {
                        buf.copy_from_slice(bytes);
                        None
                    }
                    bytes => Some(format!("{} bytes came of {} at {offset}", bytes.len(), buf.len())),
                })
            })
            .map_err(|exception| {
                // Ctrl-C ends the work, not only this read.
                let is_failure = Python::attach(|py| exception.is_instance_of::<PyException>(py));
                raised(if is_failure { ErrorKind::Io } else { ErrorKind::Interrupted }, exception)
            })
            .and_then(|short| match short {
                None => Ok(()),
                Some(text) => Err(Error::path(std::io::ErrorKind::UnexpectedEof, text)),
            })
        };
        Image::of_ranges(name, size, fetch).into()
    }

    #[getter]
    fn name(&self) -> &str {
        self.image.name()
    }

    #[getter]
    fn size(&self) -> u64 {
        self.top.size()
    }

    #[getter]
    fn read_only(&self) -> bool {
        self.image.is_read_only()
    }

    fn read<'py>(&self, py: Python<'py>, len: usize, at: u64) -> PyResult<Bound<'py, PyBytes>> {
        let len = self.available(at, len);
        if isize::try_from(len).is_err() {
            return Err(PyMemoryError::new_err(format!("{len} bytes at once")));
        }
        PyBytes::new_with(py, len, |buf| {
            for (piece, at) in buf.chunks_mut(READ).zip((at..).step_by(READ)) {
                self.named(py.detach(|| self.top.read_at(piece, at)))?;
                py.check_signals()?;
            }
            Ok(())
        })
    }

    fn readinto(&self, py: Python<'_>, buffer: PyBuffer<u8>, at: u64) -> PyResult<usize> {
        let len = self.available(at, buffer.item_count());
        if len == 0 {
            return Ok(0);
        }
        let mut bytes = vec![0; len];
        for (piece, at) in bytes.chunks_mut(READ).zip((at..).step_by(READ)) {
            self.named(py.detach(|| self.top.read_at(piece, at)))?;
            py.check_signals()?;
        }
        if len < buffer.item_count() {
            // What lies behind stays as it is.
            bytes.extend_from_slice(&buffer.to_vec(py)?[len..]);
        }
        buffer.copy_from_slice(py, &bytes)?;
        Ok(len)
    }

    fn write(&self, py: Python<'_>, data: Data, at: u64) -> PyResult<usize> {
        let data = data.get(py)?;
        py.detach(|| self.image.write_at(&data, at)).map_err(raise)?;
        Ok(data.len())
    }

    fn grow_to(&self, py: Python<'_>, len: u64) -> PyResult<()> {
        py.detach(|| self.image.grow_to(len)).map_err(raise)
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.named(py.detach(|| self.top.flush()))
    }

    fn next_data(&self, py: Python<'_>, at: u64) -> PyResult<Option<(u64, u64)>> {
        let found = self.named(py.detach(|| self.top.next_data(at)))?;
        Ok(found.map(|range| (range.start, range.end)))
    }

    fn window(&self, offset: u64, size: Option<u64>) -> PyResult<Device> {
        self.image.clone().window(offset, size).map(Device::from).map_err(raise)
    }

    fn partitions(&self, py: Python<'_>) -> PyResult<Vec<Row>> {
        let table = self.named(py.detach(|| blockdev::table_to_read(&*self.top)))?;
        if let Some(damage) = table.damage {
            // A list that lacks some would pass for all of them.
            return self.named(Err(Error::corrupt(damage)));
        }
        let row = |found: blockdev::Partition| (found.number, found.start, found.len, found.kind, found.name);
        Ok(table.partitions.into_iter().map(row).collect())
    }

    fn partition(&self, py: Python<'_>, number: u32) -> PyResult<Device> {
        py.detach(|| self.image.clone().partition(number)).map(Device::from).map_err(raise)
    }

    fn crypt(&self, py: Python<'_>, wanted: Wanted) -> PyResult<Device> {
        let keyed = keyed(py, wanted)?;
        let mapping = keyed.mapping(self.image.name());
        mapping.and_then(|mapping| self.image.clone().crypt(mapping)).map(Device::from).map_err(raise)
    }

    fn luks(
        &self,
        py: Python<'_>,
        passphrase: Option<Data>,
        volume_key: Option<Data>,
        keyslot: Option<u32>,
        header: Option<PyRef<'_, Device>>,
        effort: Effort,
    ) -> PyResult<Device> {
        let key = luks::key(py, passphrase, volume_key)?;
        let mut options = LuksOptions::default();
        options.keyslot = keyslot;
        let header = header.map(|header| header.image.clone());
        let open = |work: &Work<'_>| {
            self.explained(self.image.clone().luks(header.as_ref(), &key, &options, work), probe::LUKS)
        };
        working(py, effort, open).map(Device::from)
    }

    fn verity(&self, py: Python<'_>, hash: &Device, root_hash: Data, hash_offset: u64) -> PyResult<Device> {
        let root_hash = root_hash.get(py)?;
        let (image, options) = (self.image.clone(), verity::options(hash_offset));
        let open = || image.verity(&hash.image, &root_hash, &options, &casemate::Providers::default());
        py.detach(open).map(Device::from).map_err(raise)
    }

    fn fsverity(&self, py: Python<'_>, tree: &Device, algorithm: &str, digest: Data) -> PyResult<Device> {
        let digest = fsverity::file_digest(py, algorithm, &digest)?;
        let open = || self.image.clone().fsverity(&tree.image, &digest, &casemate::Providers::default());
        py.detach(open).map(Device::from).map_err(raise)
    }

    fn overlay(&self, py: Python<'_>, path: PathBuf, trust_image: bool) -> PyResult<Device> {
        let (image, providers) = (self.image.clone(), casemate::Providers::default());
        let open = || match trust_image {
            true => image.overlay_on_trust(&path, &providers),
            false => image.overlay(&path, &providers),
        };
        py.detach(open).map(Device::from).map_err(raise)
    }

    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn ext4(
        &self,
        py: Python<'_>,
        keys: Vec<Data>,
        passphrases: Vec<Data>,
        verity: &str,
        verify_checksums: bool,
        replay_journal: bool,
        superblock: Option<u64>,
    ) -> PyResult<FileSystem> {
        let mut options = ReadOptions::default();
        options.keys = self.keys(py, keys, passphrases)?;
        options.verity = match verity {
            "require" => VerityPolicy::Require,
            "check" => VerityPolicy::Check,
            "ignore" => VerityPolicy::Ignore,
            _ => {
                return Err(raise(Error::argument(format!(
                    "verity '{verity}': 'require', 'check' or 'ignore'"
                ))));
            }
        };
        (options.verify_checksums, options.replay_journal) = (verify_checksums, replay_journal);
        options.superblock = superblock;
        working(py, Effort::default(), |work| self.explained(self.image.ext4(&options, work), probe::EXT))
            .map(|fs| FileSystem::new(fs, &self.image))
    }

    /// The faults and notes of a check: level, kind, place and what it is.
    fn ext4_check(
        &self,
        py: Python<'_>,
        keys: Vec<Data>,
        passphrases: Vec<Data>,
        verity: bool,
        effort: Effort,
    ) -> PyResult<Vec<Found>> {
        let mut options = ReadOptions::default();
        (options.keys, options.check_verity) = (self.keys(py, keys, passphrases)?, verity);
        let report =
            working(py, effort, |work| self.explained(self.image.ext4_check(&options, work), probe::EXT))?;
        Ok(found(&report))
    }

    /// The faults that a repair has fixed, what a check finds afterwards, the faults of these that other damage makes unsure,
    /// how many faults there are beyond those listed, and files whose contents were changed.
    #[pyo3(signature = (*, keys, passphrases, depth, undo, superblock, approve, effort))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn ext4_repair(
        &self,
        py: Python<'_>,
        keys: Vec<Data>,
        passphrases: Vec<Data>,
        depth: &str,
        undo: Option<PathBuf>,
        superblock: Option<u64>,
        approve: Option<Py<PyAny>>,
        effort: Effort,
    ) -> PyResult<Repaired> {
        let mut options = WriteOptions::default();
        (options.keys, options.superblock) = (self.keys(py, keys, passphrases)?, superblock);
        repair(py, &self.image, &options, (depth, undo), approve, effort)
    }

    /// Gives the file system another size: bytes of a block, blocks before and now, and how many blocks and inodes were moved.
    #[pyo3(signature = (*, size, least, truncate, overwrite, keys, passphrases, effort))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn ext4_resize(
        &self,
        py: Python<'_>,
        size: Option<u64>,
        least: bool,
        truncate: bool,
        overwrite: bool,
        keys: Vec<Data>,
        passphrases: Vec<Data>,
        effort: Effort,
    ) -> PyResult<(u32, u64, u64, u64, u64)> {
        let mut options = WriteOptions::default();
        options.keys = self.keys(py, keys, passphrases)?;
        let mut resize = Resize::default();
        (resize.size, resize.least, resize.overwrite) = (size, least, overwrite);
        resize.tail = match (least, truncate) {
            (true, _) => Tail::CutIfEmpty,
            (false, true) => Tail::Cut,
            (false, false) => Tail::Keep,
        };
        let report = changing(py, effort, |work| self.image.ext4_resize(&options, resize, work))?;
        let ResizeReport { block_size, blocks_before, blocks, blocks_moved, inodes_moved, .. } = report;
        Ok((block_size, blocks_before, blocks, blocks_moved, inodes_moved))
    }

    /// The fewest bytes that the file system can have, estimated.
    fn ext4_minimum_size(&self, py: Python<'_>, keys: Vec<Data>, passphrases: Vec<Data>) -> PyResult<u64> {
        let mut options = ReadOptions::default();
        options.keys = self.keys(py, keys, passphrases)?;
        working(py, Effort::default(), |work| self.image.ext4_least_size(&options, work))
    }

    fn ext4_writer(
        &self,
        py: Python<'_>,
        keys: Vec<Data>,
        passphrases: Vec<Data>,
        seed: Option<u64>,
    ) -> PyResult<Writer> {
        let mut options = WriteOptions::default();
        (options.keys, options.seed) = (self.keys(py, keys, passphrases)?, seed);
        let open = |work: &Work<'_>| self.explained(self.image.ext4_writer(&options, work), probe::EXT);
        let writer = working(py, Effort::default(), open)?;
        Ok(Writer::new(writer, self.image.name()))
    }
}

impl Device {
    /// A result whose error says what the device holds in place of the `wanted` format.
    fn explained<T>(&self, result: Result<T, Error>, wanted: &str) -> Result<T, Error> {
        result.map_err(|error| {
            if error.kind() != ErrorKind::Corrupt {
                return error;
            }
            let what = match probe::device(&*self.top) {
                Ok(Some(what)) if what != ZEROS && what != wanted => what,
                _ => return error,
            };
            let error = error.map_text(|text| format!("{text}; this is {what}"));
            match what {
                probe::GPT | probe::MBR => error.advise(Advice::Partition),
                probe::LUKS => error.advise(Advice::OpenLuks),
                _ => error,
            }
        })
    }

    fn keys(&self, py: Python<'_>, raw: Vec<Data>, passphrases: Vec<Data>) -> PyResult<Keys> {
        let mut keys = Keys::default();
        for key in raw {
            keys = keys.with_raw(&key.source(py)?).map_err(raise)?;
        }
        for passphrase in passphrases {
            keys = keys.with_secret(&passphrase.source(py)?).map_err(raise)?;
        }
        Ok(keys)
    }
}
