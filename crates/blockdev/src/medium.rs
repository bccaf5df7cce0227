//! Media: files and devices that are open, with the locks and leases that keep others from their bytes.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;
use std::{fmt, fs};

use crate::lease::{Extent, Lease, Leased};
use crate::os::FileTypeExt;
use crate::output_file::WayBack;
use crate::{
    Advice, AtFile, BlockDevice, Code, Error, FileDevice, FileId, Lock, Named, OutputFile, Result, Trial,
    inputs, is_same_file, is_same_storage, journal, mark, u64_of,
};

mod marks;
mod part;

/// Purpose that a file that exists is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading, while no other process changes it: readers share a lock.
    Read,
    /// Reading without a lock, whatever others do with it meanwhile: to look at a header, say, of what is in use. Contents that
    /// somebody writes are read as they never were.
    ReadUnlocked,
    /// Changes, while no other process uses it.
    Change,
}

impl Access {
    /// Opens a file or block device for this purpose.
    ///
    /// # Errors
    /// `Io`; [`Error::is_busy`] if somebody has it locked, it is mounted, or a loop device stands on it; `Argument` if in-place
    /// work on it is unfinished.
    pub fn open(self, path: &Path) -> Result<FileDevice> {
        let device = self.open_unfinished(path)?;
        let check = || journal::check_file(device.file(), device.id()?, path);
        check().at(path.display())?;
        Ok(device)
    }

    fn open_unfinished(self, path: &Path) -> Result<FileDevice> {
        let opened = match self {
            Access::ReadUnlocked => FileDevice::open(path),
            Access::Read => FileDevice::open_shared(path),
            Access::Change => FileDevice::open_exclusive(path),
        };
        opened.map_err(|error| Error::io(path.display(), error))
    }
}

/// A device with its name, and what keeps others from it: opened once, and locked, if it is, as long as a clone of it is there.
///
/// ```
/// use std::sync::Arc;
///
/// use casemate_blockdev::{Medium, MemoryDevice};
///
/// let disk = Medium::over("disk", Arc::new(MemoryDevice::new(vec![0; 8192])));
/// let lease = disk.lease()?;
/// assert!(disk.clone().lease().unwrap_err().is_busy());
/// drop(lease);
/// disk.write_at(b"boot", 4096)?;
/// assert_eq!(disk.window(4096, None)?.top().size(), 4096);
/// # Ok::<(), casemate_blockdev::Error>(())
/// ```
#[derive(Clone)]
pub struct Medium {
    name: String,
    file: Option<File>,
    top: Arc<dyn BlockDevice>,
    /// Windows that the medium lies in, the outermost first.
    windows: Vec<InWindow>,
    /// How many of them are below what was laid on the file last, if something was.
    laid: Option<usize>,
    /// Why it takes no writes, if it takes none, and what helps.
    refusal: Option<Refusal>,
    /// The bytes that are leased to those who write.
    extent: Extent,
    /// A file that has no name yet.
    new: Option<Arc<Mutex<Option<OutputFile>>>>,
    /// Whether nothing of what is written stays.
    is_trial: bool,
    /// Mark of a partition that only the backup GPT at the end of the disk has.
    is_by_backup_table: bool,
    /// Locks beside that of the file itself.
    locks: Vec<Arc<Lock>>,
    /// Devices that stay open, and locked, as long as this one: that with the header of a volume, where it lies apart.
    beside: Vec<Arc<dyn BlockDevice>>,
    /// Other files with a part of the data; `None` for a device that is in no open file.
    shared: Vec<Option<Arc<fs::File>>>,
    /// Bytes of the medium that are missing behind the end of a file that was cut off; `None` where nothing but the file says where
    /// the medium ends.
    missing: Option<u64>,
}

/// A window: the device that it is a part of, and its range there.
pub(crate) type InWindow = (Arc<dyn BlockDevice>, Range<u64>);

/// The file that a medium is.
#[derive(Clone)]
struct File {
    path: PathBuf,
    /// All of the file, whatever part of it the medium is.
    whole: Arc<dyn BlockDevice>,
    /// The byte of the file that the device on top begins at.
    start: u64,
    is_block_device: bool,
    /// The file that was opened, whatever has its path now; `None` for one that has no name yet.
    id: Option<FileId>,
    /// Whether nobody can change it meanwhile.
    is_locked: bool,
    /// The open file, for its mark; `None` for one that has no name yet.
    handle: Option<Arc<fs::File>>,
    /// Whether unfinished in-place work keeps it, and each part of it, from being opened.
    is_finished: bool,
}

/// Why a medium takes no writes, and what helps.
type Refusal = (&'static str, Option<Advice>);

/// Reason why a medium takes no writes that was opened so.
const OPENED_FOR_READING: Refusal = ("the image was opened for reading only", None);

impl Medium {
    /// Opens a file or a block device.
    ///
    /// # Errors
    /// Errors of [`Access::open`].
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Medium> {
        let path = path.as_ref();
        let mut medium = Medium::over_file(path, access, access.open(path)?)?;
        if let Some(file) = &mut medium.file {
            file.is_finished = true;
        }
        Ok(medium)
    }

    /// Opens a file or a block device as [`Medium::open`] does, also one on which in-place work is unfinished: to go on with
    /// that work, or to tell of it.
    ///
    /// # Errors
    /// Errors of [`Medium::open`], but for unfinished work.
    pub fn open_unfinished(path: impl AsRef<Path>, access: Access) -> Result<Medium> {
        let path = path.as_ref();
        Medium::over_file(path, access, access.open_unfinished(path)?)
    }

    fn over_file(path: &Path, access: Access, device: FileDevice) -> Result<Medium> {
        let handle = Some(Arc::new(device.file().try_clone().at(path.display())?));
        let is_block_device = device.file().metadata().at(path.display())?.file_type().is_block_device();
        let id = device.id().at(path.display())?;
        inputs::note(id, path);
        let mut medium = Medium::over(path.display(), Arc::new(Named::new(path.display(), device)));
        let (whole, is_locked) = (medium.device(), access != Access::ReadUnlocked);
        medium.file = Some(File {
            path: path.to_owned(),
            whole,
            start: 0,
            is_block_device,
            id: Some(id),
            is_locked,
            handle,
            is_finished: false,
        });
        medium.extent = Extent::medium(Some(path));
        medium.refusal = (access != Access::Change).then_some(OPENED_FOR_READING);
        Ok(medium)
    }

    /// Opens a file or block device to be written, or begins a file that is not there: that one gets its name with
    /// [`Medium::commit`], and leaves nothing behind without.
    ///
    /// # Errors
    /// Errors of [`Medium::open`].
    pub fn create(path: impl AsRef<Path>) -> Result<Medium> {
        let path = path.as_ref();
        match fs::exists(path).at(path.display())? {
            true => Medium::open(path, Access::Change),
            false => Medium::replace(path),
        }
    }

    /// Begins a file that gets its name with [`Medium::commit`], and takes the place of a regular file that has the name; a
    /// link is followed.
    ///
    /// # Errors
    /// `Io`; [`Error::is_busy`] if what has the name is in use.
    pub fn replace(path: impl AsRef<Path>) -> Result<Medium> {
        let path = path.as_ref();
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let new = OutputFile::create(place).at(path.display())?;
        // The same open file once more, so that who writes it and who names it need no lock.
        let device = new.device().try_clone().at(path.display())?;
        let device = Named::new(path.display(), device);
        let mut medium = Medium::over(path.display(), Arc::new(device));
        medium.extent = Extent::medium(Some(path));
        let (path, whole) = (path.to_owned(), medium.device());
        medium.file = Some(File {
            path,
            whole,
            start: 0,
            is_block_device: false,
            id: None,
            is_locked: true,
            handle: None,
            is_finished: true,
        });
        medium.new = Some(Arc::new(Mutex::new(Some(new))));
        Ok(medium)
    }

    /// A device that is open already; errors call it `name`. Of two media that are made of one device neither knows of the
    /// other's writers: clones of one do.
    pub fn over(name: impl fmt::Display, device: Arc<dyn BlockDevice>) -> Medium {
        Medium {
            name: name.to_string(),
            file: None,
            top: device,
            laid: None,
            windows: Vec::new(),
            refusal: None,
            extent: Extent::medium(None),
            new: None,
            is_trial: false,
            is_by_backup_table: false,
            locks: Vec::new(),
            beside: Vec::new(),
            shared: Vec::new(),
            missing: None,
        }
    }

    /// Takes permissions from a new file.
    pub fn narrow(&self, mode: u32) {
        if let Some(new) = self.output().as_ref().and_then(|new| new.as_ref()) {
            new.narrow(mode);
        }
    }

    /// Takes permissions from a new file, so that nobody can read it who could not read the file that `other` is.
    pub fn narrow_to(&self, other: &Medium) {
        self.narrow(other.data_mode());
    }

    /// The most permissions that a new file may have with data of this medium: those of the file that it lies in. All for a
    /// medium that lies in none.
    pub fn data_mode(&self) -> u32 {
        self.path().map_or(0o7777, data_mode)
    }

    fn output(&self) -> Option<MutexGuard<'_, Option<OutputFile>>> {
        self.new.as_deref().map(|new| new.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Brings the contents of a new file to stable storage. What is written in place is as it is.
    ///
    /// # Errors
    /// `Io`.
    pub fn complete(&self) -> Result<()> {
        let new = self.output();
        let new = new.as_ref().and_then(|new| new.as_ref());
        new.map_or(Ok(()), |new| new.device().flush()).at(&self.name)
    }

    /// Looks whether a new file can get its name, before others of the same work get theirs.
    ///
    /// # Errors
    /// Errors of [`OutputFile::check_name`].
    pub fn check_name(&self) -> Result<()> {
        let new = self.output();
        let new = new.as_ref().and_then(|new| new.as_ref());
        new.map_or(Ok(()), OutputFile::check_name).at(&self.name)
    }

    /// The way back for when a new file has its name.
    pub(crate) fn way_back(&self) -> Option<WayBack> {
        self.output()?.as_ref().map(OutputFile::way_back)
    }

    /// Gives a new file its name, once its contents are on stable storage. What has its name already stays as it is.
    ///
    /// # Errors
    /// `Io`; [`Error::is_busy`] if another file has got the name meanwhile and is in use.
    pub fn commit(&self) -> Result<()> {
        self.name_new(true)
    }

    /// Gives a new file its name as [`Medium::commit`] does, without waiting for stable storage, as files are copied.
    ///
    /// # Errors
    /// Errors of [`Medium::commit`].
    pub fn commit_unsynced(&self) -> Result<()> {
        self.name_new(false)
    }

    fn name_new(&self, sync: bool) -> Result<()> {
        match self.output().and_then(|mut new| new.take()) {
            Some(file) => file.commit(sync).at(&self.name),
            None => Ok(()),
        }
    }

    /// Whether the medium is a file that has not got its name yet.
    pub fn is_new(&self) -> bool {
        self.output().is_some_and(|new| new.is_some())
    }

    /// Whether what is written leaves nothing behind, unless all goes well.
    pub fn leaves_nothing(&self) -> bool {
        self.is_trial || self.is_new()
    }

    /// Whether nothing of what is written stays.
    pub fn is_trial(&self) -> bool {
        self.is_trial
    }

    /// Whether the medium lies in a partition that was found by the backup GPT at the end of the disk: the primary one is damaged or
    /// lost.
    pub fn is_by_backup_table(&self) -> bool {
        self.is_by_backup_table
    }

    /// Whether the medium surely keeps its size: a block device, a part of a file, what is laid on something.
    pub fn is_fixed(&self) -> bool {
        let is_part =
            |file: &File| file.is_block_device || file.start > 0 || self.top.size() < file.whole.size();
        self.laid.is_some() || self.file.as_ref().is_some_and(is_part)
    }

    /// Makes a file at least `len` bytes long, if it can be: the end is a hole.
    ///
    /// # Errors
    /// `Io`; a block device can't grow.
    pub fn grow_to(&self, len: u64) -> Result<()> {
        if self.top.size() >= len {
            return Ok(());
        }
        match self.output().as_ref().and_then(|new| new.as_ref()) {
            Some(new) => new.device().set_len(len).at(&self.name),
            None => {
                let size = self.top.size();
                let grown = self.top.write_at(&[0], len - 1).map_err(|error| match error.io_kind() {
                    // A part of a disk has its end.
                    Some(std::io::ErrorKind::UnexpectedEof) => {
                        let text = format!("{len} bytes are needed, and {size} are there");
                        Error::path(std::io::ErrorKind::StorageFull, text)
                    }
                    _ => error,
                });
                grown.at(&self.name)
            }
        }
    }

    /// Cuts a regular file that is longer than `len` bytes, if all of it is the medium. A block device, a part of a file, and what
    /// is laid on one keep their lengths.
    ///
    /// # Errors
    /// `Io`.
    pub fn cut_to(&self, len: u64) -> Result<()> {
        if self.top.size() <= len || self.laid.is_some() || self.is_trial {
            return Ok(());
        }
        if let Some(new) = self.output().as_ref().and_then(|new| new.as_ref()) {
            return new.device().set_len(len).at(&self.name);
        }
        let is_whole =
            |file: &&File| !file.is_block_device && file.start == 0 && file.whole.size() == self.top.size();
        match self.file.as_ref().filter(is_whole).and_then(|file| file.handle.as_ref()) {
            Some(handle) => handle.set_len(len).at(&self.name),
            None => Ok(()),
        }
    }

    /// Keeps others from changing the file that the medium lies in, as long as a clone of it is there. One that was opened
    /// with [`Access::Read`] or [`Access::Change`] is kept from them already.
    ///
    /// # Errors
    /// [`Error::is_busy`] if somebody has it locked; `Io`.
    pub fn locked(mut self) -> Result<Medium> {
        let Some(file) = self.file.as_mut().filter(|file| !file.is_locked) else { return Ok(self) };
        if let Some(id) = file.id {
            self.locks.extend(Lock::shared(&file.path, id).at(&self.name)?.map(Arc::new));
        }
        file.is_locked = true;
        Ok(self)
    }

    /// Holds locks for as long as a clone of this medium is there.
    #[must_use]
    pub fn with_locks(mut self, locks: impl IntoIterator<Item = Arc<Lock>>) -> Medium {
        self.locks.extend(locks);
        self
    }

    /// Keeps another medium open, and its locks, for as long as a clone of this one is there.
    #[must_use]
    pub fn keeping(mut self, other: &Medium) -> Medium {
        self.locks.extend(other.locks.iter().cloned());
        self.beside.push(Arc::clone(&other.top));
        self
    }

    /// Whether the medium lies in a file or block device of this system.
    pub fn is_in_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether the medium lies in a block device.
    pub fn is_in_block_device(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_block_device)
    }

    /// The major and minor number of the block device that begins where this does: the one that was opened, or a partition of it.
    pub fn device_numbers(&self) -> Option<(u32, u32)> {
        let file = self.file.as_ref().filter(|file| file.is_block_device)?;
        file.id?.device_at(file.start)?.device_numbers()
    }

    /// This medium on trial: takes writes, and keeps them in a temporary file without a name until the medium is
    /// gone.
    ///
    /// # Errors
    /// `Io` if there is no temporary file to be had.
    pub fn on_trial(mut self) -> Result<Medium> {
        self.top = Arc::new(Trial::new(self.top)?);
        self.extent = self.extent.apart_from();
        (self.refusal, self.is_trial) = (None, true);
        Ok(self)
    }

    /// Lays a device on this one that only reads it, and is written nowhere else.
    #[must_use]
    pub fn laid_reading(mut self, device: Arc<dyn BlockDevice>) -> Medium {
        (self.top, self.laid) = (device, Some(self.windows.len()));
        self
    }

    /// Lays a device on this one that writes to its bytes from `from` on.
    #[must_use]
    pub fn laid_writing(mut self, device: Arc<dyn BlockDevice>, from: u64) -> Medium {
        self.extent = Extent::over(&[&self.extent.part(from..u64::MAX)]);
        self.laid_reading(device)
    }

    /// Lays a device on this one, and on others beside it, that writes to them and remembers something of what it has written,
    /// such as a journal.
    #[must_use]
    pub fn laid_remembering(mut self, device: Arc<dyn BlockDevice>, beside: Option<&Medium>) -> Medium {
        let below: Vec<&Extent> =
            std::iter::once(&self.extent).chain(beside.map(|other| &other.extent)).collect();
        self.extent = Extent::over_remembering(&below);
        if self.refusal.is_none() {
            self.refusal = beside.and_then(|other| other.refusal.clone());
        }
        self.shared.extend(beside.into_iter().flat_map(Medium::files));
        self.laid_reading(device)
    }

    /// Lays a device on this one that takes writes, and keeps them elsewhere, in what may change unnoticed: no time tells any more when
    /// the data were written to last. What is kept fits this medium as it is: its [`Medium::relied`] goes with the device.
    #[must_use]
    pub fn laid_apart(mut self, device: Arc<dyn BlockDevice>, lease: Lease) -> Medium {
        (self.extent, self.refusal) = (self.extent.apart_from(), None);
        self.shared.push(None);
        self.laid_reading(Arc::new(Leased { device, lease }))
    }

    /// Shows other bytes in place of the same file's, which take no writes.
    #[must_use]
    pub fn shown_as(mut self, device: Arc<dyn BlockDevice>) -> Medium {
        self.top = device;
        self.make_read_only()
    }

    /// The medium as it is, which takes no writes.
    #[must_use]
    pub fn make_read_only(mut self) -> Medium {
        self.refusal.get_or_insert(OPENED_FOR_READING);
        self
    }

    /// Medium that refuses writes, with this reason in the error.
    #[must_use]
    pub fn refusing_writes(mut self, why: &'static str, advice: Option<Advice>) -> Medium {
        self.refusal = Some((why, advice));
        self
    }

    /// The medium's name in errors: its path, if it has one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path of the file that the medium is, or lies in.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| &*file.path)
    }

    /// The byte of its file that the medium begins at: 0 if it is all of it, or no file.
    pub fn start(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.start)
    }

    /// A path beside the medium's file, for what belongs to the part of it that this is; none for a block device. Symbolic links
    /// to the file are followed.
    pub fn beside(&self, suffix: &str) -> Option<PathBuf> {
        let path = self.path().filter(|_| !self.is_in_block_device())?;
        Some(mark::beside(path, suffix, self.start()))
    }

    /// Lengths of the files that the medium's data lie in, and the times when they were last written to: 20 bytes for each, which stay
    /// the same as long as nobody writes. `None` if one of them is no regular file, and has no such time.
    ///
    /// # Errors
    /// `Io`.
    pub fn last_writes(&self) -> Result<Option<Vec<u8>>> {
        let mut all = Vec::new();
        for file in self.files() {
            let Some(metadata) = file.map(|file| file.metadata()).transpose().at(&self.name)? else {
                return Ok(None);
            };
            if !metadata.is_file() {
                return Ok(None);
            }
            let time = metadata.modified().at(&self.name)?;
            let (time, is_before) = match time.duration_since(UNIX_EPOCH) {
                Ok(time) => (time, 0),
                Err(before) => (before.duration(), 1u32 << 31),
            };
            all.extend_from_slice(&metadata.len().to_le_bytes());
            all.extend_from_slice(&time.as_secs().to_le_bytes());
            all.extend_from_slice(&(time.subsec_nanos() | is_before).to_le_bytes());
        }
        Ok(Some(all))
    }

    /// The open files that the medium's data lie in.
    fn files(&self) -> Vec<Option<Arc<fs::File>>> {
        let own = self.file.as_ref().and_then(|file| file.handle.clone());
        std::iter::once(own).chain(self.shared.iter().cloned()).collect()
    }

    /// The device and inode of the regular file that the medium is, or lies in.
    ///
    /// # Errors
    /// `Io`.
    pub fn inode(&self) -> Result<Option<(u64, u64)>> {
        let handle = self.file.as_ref().and_then(|file| file.handle.as_ref());
        let metadata = handle.map(|handle| handle.metadata()).transpose().at(&self.name)?;
        Ok(metadata.filter(fs::Metadata::is_file).and_then(|metadata| crate::os::inode(&metadata)))
    }

    /// Whether a path leads to the file that the medium is.
    pub fn is_file(&self, path: &Path) -> bool {
        self.file.as_ref().is_some_and(|file| is_same_file(&file.path, path))
    }

    /// Whether what is written at a path may change the file that the medium is: it is this one, or one lies on the other.
    pub fn is_stored_at(&self, path: &Path) -> bool {
        self.file.as_ref().is_some_and(|file| is_same_storage(&file.path, path))
    }

    /// Whether both are the same bytes: clones of one medium, or the same part of one file.
    pub fn is_same(&self, other: &Medium) -> bool {
        let part = |medium: &Medium| {
            let file = medium.file.as_ref().filter(|_| medium.laid.is_none());
            file.map(|file| (file.path.clone(), file.start, medium.top.size()))
        };
        Arc::ptr_eq(&self.top, &other.top)
            || match (part(self), part(other)) {
                (Some((one, start, size)), Some((other, at, len))) => {
                    (start, size) == (at, len) && is_same_file(&one, &other)
                }
                _ => false,
            }
    }

    /// Whether writing the bytes `range` of `other` would change some of the first `len` bytes here.
    pub fn is_changed_by(&self, len: u64, other: &Medium, range: Range<u64>) -> bool {
        other.extent.part(range).changes(&self.extent.part(0..len))
    }

    /// Whether writing the bytes `range` of `other` may change some of the first `len` bytes here, under whatever names both were
    /// opened: two devices of the system that lie on one another count, wherever their bytes are.
    pub fn may_be_changed_by(&self, len: u64, other: &Medium, range: Range<u64>) -> bool {
        let is_another_name = |path: &Path| !self.is_file(path) && self.is_stored_at(path);
        self.is_changed_by(len, other, range) || other.path().is_some_and(is_another_name)
    }

    /// The device.
    pub fn top(&self) -> &dyn BlockDevice {
        &*self.top
    }

    /// The device, to be kept. A writer of one's own takes a [`lease`](Medium::lease) first.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.top)
    }

    /// The device, whose errors have the medium's name.
    pub fn named(&self) -> Named<&dyn BlockDevice> {
        Named::new(&self.name, self.top())
    }

    /// Whether the medium takes no writes.
    pub fn is_read_only(&self) -> bool {
        self.refusal.is_some()
    }

    /// Refuses a medium that is going to be written and takes no writes.
    ///
    /// # Errors
    /// `Argument`: why it takes none.
    pub fn check_writable(&self) -> Result<()> {
        let Some((why, advice)) = &self.refusal else { return Ok(()) };
        let error = Error::argument(*why).with_code(Code::ReadOnly).at(&self.name);
        Err(advice.iter().cloned().fold(error, Error::advise))
    }

    /// The right to change the device, which nobody else has through this medium and its clones until it is dropped.
    ///
    /// # Errors
    /// Errors of [`Medium::check_writable`]; [`Error::is_busy`] while another writer has some of these bytes.
    pub fn lease(&self) -> Result<Lease> {
        Medium::lease_all(&[self])
    }

    /// The right to find the bytes as they are, which no writer of this process changes until it is dropped. Others may have it at
    /// the same time.
    ///
    /// # Errors
    /// [`Error::is_busy`] while a writer has some of these bytes.
    pub fn relied(&self) -> Result<Lease> {
        Lease::rely(&self.extent).at(&self.name)
    }

    /// Refuses a medium whose bytes will be others' while something that writes to them is laid on it: the data of a volume whose
    /// header is made anew would go on to be written with the old key.
    ///
    /// # Errors
    /// [`Error::is_busy`].
    pub fn check_no_layer(&self) -> Result<()> {
        self.check_no_layer_in(0..self.top().size())
    }

    /// Refuses some bytes of the medium, as [`Medium::check_no_layer`] does all of them.
    ///
    /// # Errors
    /// [`Error::is_busy`].
    pub fn check_no_layer_in(&self, range: Range<u64>) -> Result<()> {
        match self.extent.part(range).has_layer() {
            true => Err(Error::busy(
                "something that is laid on it, such as the data of a volume, is open and would write to it; close that first",
            )
            .at(&self.name)),
            false => Ok(()),
        }
    }

    /// Lease of some of the bytes.
    ///
    /// # Errors
    /// Errors of [`Medium::lease`].
    pub fn lease_bytes(&self, range: Range<u64>) -> Result<Lease> {
        self.check_writable()?;
        Lease::keep(&[self.extent.part(range)]).at(&self.name)
    }

    /// Lease of several media, which may be clones of one.
    ///
    /// # Errors
    /// Errors of [`Medium::lease`].
    pub fn lease_all<M: AsRef<Medium>>(media: &[&M]) -> Result<Lease> {
        let media: Vec<&Medium> = media.iter().map(|medium| (*medium).as_ref()).collect();
        media.iter().try_for_each(|medium| medium.check_writable())?;
        let extents: Vec<_> = media.iter().map(|medium| medium.extent.clone()).collect();
        Lease::keep(&extents).map_err(|error| match media.first() {
            Some(medium) => error.at(&medium.name),
            None => error,
        })
    }

    /// The device, with the right to change it as long as somebody has it.
    ///
    /// # Errors
    /// Errors of [`Medium::lease`].
    pub fn leased_device(&self) -> Result<Arc<dyn BlockDevice>> {
        Ok(Arc::new(Leased { device: self.device(), lease: self.lease()? }))
    }

    /// Writes all of `buf` from `offset` on, unless a writer is changing what lies there.
    ///
    /// # Errors
    /// Errors of [`Medium::lease`]; `Io`.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check_writable()?;
        let written = self.extent.part(offset..offset.saturating_add(u64_of(buf.len())));
        let _lease = Lease::write(&written).at(&self.name)?;
        self.top.write_at(buf, offset).at(&self.name)
    }
}

/// The most permissions that a new file may have with data of the file at a path: nobody shall read the copy who could not read
/// that.
pub fn data_mode(path: &Path) -> u32 {
    // Who can't tell takes the least. A pipe is not opened a second time.
    fs::metadata(path).map_or(0o600, |metadata| crate::os::permissions(&metadata))
}

impl AsRef<Medium> for Medium {
    fn as_ref(&self) -> &Medium {
        self
    }
}

impl fmt::Debug for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Medium");
        let text = text.field("name", &self.name).field("size", &self.top.size());
        text.field("read_only", &self.is_read_only()).finish_non_exhaustive()
    }
}
