//! Images: the one way in which files and devices that exist are opened, and what is read through mappings on them.
//!
//! Each step takes the image so far and lays one device on it, as device-mapper does, but as plain values.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use casemate_blockdev::os::{FileTypeExt, OsStrExt};
use casemate_blockdev::{
    AtFile, BlockDevice, Events, FileDevice, FileId, Lock, MemoryDevice, Named, OutputFile, OverlayFile,
    Trial, Window, is_same_file, is_same_storage, partitions, samples,
};
use casemate_crypt::CryptDevice;
use casemate_ext4::RecoveryFile;
use casemate_integrity::{BlockGuard, IntegrityDevice};
use casemate_providers::{Providers, Work};
use casemate_verity::tree::VerifiedDevice;

pub use casemate_crypt::CryptStatistics;
pub use casemate_verity::tree::VerifiedStatistics;

use crate::crypt::Mapping;
use crate::fsverity::{FileDigest, TREE_OFFSET};
use crate::integrity::IntegrityOptions;
use crate::lease::{Extent, Lease, Leased};
use crate::ranges::Ranges;
use crate::verity::{self, VerityOptions};
use crate::{Error, probe};

type Below = Arc<dyn BlockDevice>;

/// Purpose that an image, or a file of any other kind that exists, is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading, whatever others do with it meanwhile.
    Read,
    /// Reading, while no other process changes it.
    ReadLocked,
    /// Changes, while no other process uses it.
    Change,
}

/// An image with what lies on it: opened once, and locked, if it is, as long as a clone of it is there.
#[derive(Clone)]
pub struct Image {
    name: String,
    file: Option<File>,
    top: Below,
    read_only: bool,
    layers: Vec<Layer>,
    /// What an overlay is tied to, if it is the topmost root hash.
    root_hash: Option<Vec<u8>>,
    preferred_block: u32,
    /// The bytes that are leased to those who write.
    extent: Extent,
    /// A file that has no name yet.
    new: Option<Arc<Mutex<Option<OutputFile>>>>,
    /// Whether nothing of what is written stays.
    is_trial: bool,
    /// Locks beside that of the file itself.
    locks: Vec<Arc<Lock>>,
    /// Devices that stay open, and locked, as long as this one: that with the header of a volume, where it lies apart.
    beside: Vec<Below>,
}

/// The file that an image is.
#[derive(Clone)]
struct File {
    path: PathBuf,
    /// The byte of the file that the device on top begins at.
    start: u64,
    is_block_device: bool,
    /// The file that was opened, whatever has its path now; `None` for one that has no name yet.
    id: Option<FileId>,
    /// Whether nobody can change it meanwhile.
    is_locked: bool,
}

#[derive(Clone)]
enum Layer {
    Crypt {
        device: Arc<CryptDevice<Window<Below>>>,
        is_key_verified: bool,
    },
    /// What a reencryption that is not finished has left, read as it will be.
    Reencryption,
    Integrity(Arc<IntegrityDevice<Below, Below>>),
    Verity(Arc<VerifiedDevice<Below, Below>>),
    Overlay(Arc<OverlayFile<Below, FileDevice>>),
}

/// Work of one layer of an image, counted.
#[derive(Clone, Debug)]
pub enum LayerStatistics {
    /// A dm-crypt mapping, and the driver that does its work.
    Crypt(CryptStatistics, String),
    /// How many blocks of a dm-integrity volume were read with a wrong tag.
    Integrity(u64),
    /// A dm-verity device.
    Verity(VerifiedStatistics),
    /// How many blocks of 4096 bytes an overlay holds.
    Overlay(u64),
}

/// Opens a file or block device.
///
/// # Errors
/// `Io`; [`Error::is_busy`] if somebody has it locked, it is mounted, or a loop device stands on it.
pub(crate) fn open_file(path: &Path, access: Access) -> Result<FileDevice, Error> {
    let opened = match access {
        Access::Read => FileDevice::open(path),
        Access::ReadLocked => FileDevice::open_shared(path),
        Access::Change => FileDevice::open_exclusive(path),
    };
    opened.map_err(|error| Error::io(path.display(), error))
}

impl Image {
    /// Opens an image file or a block device.
    ///
    /// # Errors
    /// `Io`; [`Error::is_busy`] if somebody has it locked, it is mounted, or a loop device stands on it.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Image, Error> {
        let path = path.as_ref();
        let device = open_file(path, access)?;
        let is_block_device = device.file().metadata().at(path.display())?.file_type().is_block_device();
        let id = Some(device.id().at(path.display())?);
        let mut image = Image::over(path.display(), Arc::new(Named::new(path.display(), device)));
        let is_locked = access != Access::Read;
        image.file = Some(File { path: path.to_owned(), start: 0, is_block_device, id, is_locked });
        image.extent = Extent::medium(Some(path));
        image.read_only = access != Access::Change;
        Ok(image)
    }

    /// Opens a file or block device to be written, or begins a file that is not there: that one gets its name with
    /// [`Image::commit`], and leaves nothing behind without.
    ///
    /// # Errors
    /// Those of [`Image::open`].
    pub fn create(path: impl AsRef<Path>) -> Result<Image, Error> {
        let path = path.as_ref();
        match fs::exists(path).at(path.display())? {
            true => Image::open(path, Access::Change),
            false => Image::replace(path),
        }
    }

    /// Begins a file that gets its name with [`Image::commit`], and takes the place of a regular file that has the name; a
    /// link is followed.
    ///
    /// # Errors
    /// `Io`; [`Error::is_busy`] if what has the name is in use.
    pub fn replace(path: impl AsRef<Path>) -> Result<Image, Error> {
        let path = path.as_ref();
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let new = OutputFile::create(place).at(path.display())?;
        // The same open file once more, so that who writes it and who names it need no lock.
        let device = new.device().try_clone().at(path.display())?;
        let device = Named::new(path.display(), device);
        let mut image = Image::over(path.display(), Arc::new(device));
        image.extent = Extent::medium(Some(path));
        let (path, start, is_block_device, id, is_locked) = (path.to_owned(), 0, false, None, true);
        image.file = Some(File { path, start, is_block_device, id, is_locked });
        image.new = Some(Arc::new(Mutex::new(Some(new))));
        Ok(image)
    }

    /// Begins a file as [`Image::replace`] does, which its owner alone can read and write: for headers with key slots.
    ///
    /// # Errors
    /// Those of [`Image::replace`].
    pub fn replace_private(path: impl AsRef<Path>) -> Result<Image, Error> {
        let image = Image::replace(path)?;
        image.narrow(0o600)?;
        Ok(image)
    }

    /// Takes permissions from a new file, so that nobody can read it who could not read the file that `other` is.
    pub(crate) fn narrow_to(&self, other: &Image) -> Result<(), Error> {
        let Some(path) = other.path() else { return Ok(()) };
        let mode = fs::File::open(path).and_then(|file| casemate_blockdev::os::mode(&file));
        // Who can't tell takes the least.
        self.narrow(mode.unwrap_or(0o600))
    }

    fn narrow(&self, mode: u32) -> Result<(), Error> {
        let Some(new) = &self.new else { return Ok(()) };
        match &*new.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(file) => file.narrow(mode).at(&self.name),
            None => Ok(()),
        }
    }

    /// The image as [`Image::create`] opens it, for a trial: what is written goes to a temporary file without a name, and is
    /// gone with the image.
    ///
    /// # Errors
    /// Those of [`Image::create`], but for a file that can only be read.
    pub fn create_on_trial(path: impl AsRef<Path>) -> Result<Image, Error> {
        let path = path.as_ref();
        if fs::exists(path).at(path.display())? {
            return Image::open(path, Access::ReadLocked)?.on_trial();
        }
        // Whether it could be there.
        drop(Image::replace(path)?);
        Image::over(path.display(), Arc::new(MemoryDevice::new(Vec::new()))).on_trial()
    }

    /// The same image, which takes writes, and keeps them in a temporary file without a name until it is gone.
    ///
    /// # Errors
    /// `Io` if there is no temporary file to be had.
    pub fn on_trial(mut self) -> Result<Image, Error> {
        self.top = Arc::new(Trial::new(self.top)?);
        self.extent = self.extent.apart_from();
        (self.read_only, self.is_trial) = (false, true);
        Ok(self)
    }

    /// Gives a new file its name, once its contents are on stable storage. What has its name already stays as it is.
    ///
    /// # Errors
    /// `Io`; [`Error::is_busy`] if another file has got the name meanwhile and is in use.
    pub fn commit(&self) -> Result<(), Error> {
        self.name_new(true)
    }

    /// The same without waiting for stable storage, as files are copied.
    pub(crate) fn commit_unsynced(&self) -> Result<(), Error> {
        self.name_new(false)
    }

    fn name_new(&self, sync: bool) -> Result<(), Error> {
        let Some(new) = &self.new else { return Ok(()) };
        match new.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(file) => file.commit(sync).at(&self.name),
            None => Ok(()),
        }
    }

    /// Whether the image is a file that has not got its name yet.
    pub(crate) fn is_new(&self) -> bool {
        let new = self.new.as_deref().map(|new| new.lock().unwrap_or_else(PoisonError::into_inner));
        new.is_some_and(|new| new.is_some())
    }

    /// Makes a file at least `len` bytes long, if it can be: the end is a hole.
    ///
    /// # Errors
    /// `Io`; a block device can't grow.
    pub fn grow_to(&self, len: u64) -> Result<(), Error> {
        if self.top.size() >= len {
            return Ok(());
        }
        let new = self.new.as_deref().map(|new| new.lock().unwrap_or_else(PoisonError::into_inner));
        match new.as_ref().and_then(|new| new.as_ref()) {
            Some(new) => new.device().file().set_len(len).at(&self.name),
            None => self.top.write_at(&[0], len - 1).at(&self.name),
        }
    }

    /// A device that is open already; errors call it `name`. Of two images that are made of one device neither knows of the other's
    /// writers: clones of one do.
    pub fn over(name: impl fmt::Display, device: Arc<dyn BlockDevice>) -> Image {
        Image {
            name: name.to_string(),
            file: None,
            top: device,
            read_only: false,
            layers: Vec::new(),
            root_hash: None,
            preferred_block: 4096,
            extent: Extent::medium(None),
            new: None,
            is_trial: false,
            locks: Vec::new(),
            beside: Vec::new(),
        }
    }

    /// Keeps others from changing the file that the image lies in, as long as a clone of it is there. One that was opened
    /// with [`Access::ReadLocked`] or [`Access::Change`] is kept from them already.
    ///
    /// # Errors
    /// [`Error::is_busy`] if somebody has it locked; `Io`.
    pub(crate) fn locked(mut self) -> Result<Image, Error> {
        let Some(file) = self.file.as_mut().filter(|file| !file.is_locked) else { return Ok(self) };
        if let Some(id) = file.id {
            self.locks.extend(Lock::shared(&file.path, id).at(&self.name)?.map(Arc::new));
        }
        file.is_locked = true;
        Ok(self)
    }

    /// Keeps what the image was opened with locked for as long as a clone of this one is there.
    pub(crate) fn with_locks(mut self, locks: impl IntoIterator<Item = Arc<Lock>>) -> Image {
        self.locks.extend(locks);
        self
    }

    /// Keeps another image open, and its locks, for as long as a clone of this one is there.
    pub(crate) fn keeping(mut self, other: &Image) -> Image {
        self.locks.extend(other.locks.iter().cloned());
        self.beside.push(Arc::clone(&other.top));
        self
    }

    /// Whether the image lies in a file or block device of this system.
    pub(crate) fn is_in_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether it lies in a block device.
    pub(crate) fn is_in_block_device(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_block_device)
    }

    /// The major and minor number of the block device that the image is, from its first byte on.
    pub(crate) fn device_numbers(&self) -> Option<(u32, u32)> {
        let file = self.file.as_ref().filter(|file| file.start == 0 && file.is_block_device)?;
        file.id?.device_numbers()
    }

    /// Bytes in memory.
    ///
    /// ```
    /// use casemate::Image;
    ///
    /// let image = Image::of_bytes("boot", vec![7; 1 << 20]).window(4096, Some(512))?;
    /// assert_eq!(image.device().size(), 512);
    /// # Ok::<(), casemate::Error>(())
    /// ```
    pub fn of_bytes(name: impl fmt::Display, bytes: Vec<u8>) -> Image {
        Image::over(name, Arc::new(MemoryDevice::new(bytes)))
    }

    /// `size` bytes that a function reads, such as those of an object in a store: it fills a buffer with the bytes from an
    /// offset on. It may be called by several threads at once, and never with an offset behind the end.
    ///
    /// ```
    /// use casemate::Image;
    ///
    /// let numbers = |buf: &mut [u8], offset: u64| {
    ///     for (byte, at) in buf.iter_mut().zip(offset..) {
    ///         *byte = at as u8;
    ///     }
    ///     Ok(())
    /// };
    /// let mut two = [0; 2];
    /// Image::of_ranges("numbers", 1 << 30, numbers).device().read_at(&mut two, 513)?;
    /// assert_eq!(two, [1, 2]);
    /// # Ok::<(), casemate::Error>(())
    /// ```
    pub fn of_ranges(
        name: impl fmt::Display,
        size: u64,
        read: impl Fn(&mut [u8], u64) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Image {
        Image::over(name, Arc::new(Ranges { size, read })).make_read_only()
    }

    /// The bytes from `offset` on: `len` of them, or all.
    ///
    /// # Errors
    /// `Argument` if they pass the end.
    pub fn window(mut self, offset: u64, len: Option<u64>) -> Result<Image, Error> {
        let size = self.top.size();
        let len = len.unwrap_or(size.saturating_sub(offset));
        if (offset, len) == (0, size) {
            return Ok(self);
        }
        self.top = Arc::new(Window::new(self.top, offset, len).at(&self.name)?);
        // OK to add: both lie within the device.
        self.extent = self.extent.part(offset..offset + len);
        if let Some(file) = &mut self.file {
            // Both lie within the file.
            file.start = file.start.saturating_add(offset);
        }
        Ok(self)
    }

    /// A partition of GPT or MBR, counted from 1.
    ///
    /// # Errors
    /// `Argument` if there is none of this number; `Corrupt` for a damaged table, or a partition that passes the image's end.
    pub fn partition(self, number: u32) -> Result<Image, Error> {
        let (start, len) = self.find_partition(number)?;
        if start.checked_add(len).is_none_or(|end| end > self.top.size()) {
            let text = format!("partition {number} passes the end of the image, which is cut off");
            return Err(Error::corrupt(text).at(self.name));
        }
        self.window(start, Some(len))
    }

    /// The same of an image that may be cut off: as far as the partition is there.
    ///
    /// # Errors
    /// Those of [`Image::partition`], where nothing of the partition is there.
    pub fn partition_so_far(self, number: u32) -> Result<Image, Error> {
        let (start, len) = self.find_partition(number)?;
        match self.top.size().checked_sub(start) {
            None | Some(0) => self.partition(number),
            Some(there) => self.window(start, Some(len.min(there))),
        }
    }

    fn find_partition(&self, number: u32) -> Result<(u64, u64), Error> {
        let list = partitions(&*self.top).at(&self.name)?;
        let Some(found) = list.iter().find(|partition| partition.number == number) else {
            let all: Vec<_> = list.iter().map(|partition| partition.number.to_string()).collect();
            let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
            return Err(
                Error::argument(format!("there is no partition {number}; there are: {all}")).at(&self.name)
            );
        };
        Ok((found.start, found.len))
    }

    /// A dm-crypt mapping. Discards reach the image only with [`Mapping::allow_discards`].
    ///
    /// # Errors
    /// `Argument` if the device below is not whole sectors.
    pub fn crypt(mut self, mapping: Mapping) -> Result<Image, Error> {
        let is_key_verified = mapping.is_key_verified;
        let allow_discards = mapping.allow_discards;
        let extent = self.extent.part(mapping.offset.saturating_mul(512)..u64::MAX);
        let mut device = mapping.over(self.top).at(&self.name)?;
        if allow_discards {
            device = device.allowing_discards();
        }
        let device = Arc::new(device);
        self.layers.push(Layer::Crypt { device: Arc::clone(&device), is_key_verified });
        self.top = device;
        self.extent = Extent::over(&[&extent]);
        Ok(self)
    }

    /// The plain data in the middle of a reencryption, which can be written while it goes on.
    pub(crate) fn reencrypting(mut self, device: Below, read_only: bool) -> Image {
        self.layers.push(Layer::Reencryption);
        (self.top, self.read_only) = (device, self.read_only || read_only);
        self.extent = Extent::over(&[&self.extent]);
        self
    }

    /// The data of the dm-integrity volume whose superblock the image begins with; `data` has the data, if they lie apart.
    /// Each block is checked when it is read, and what is written goes through the volume's journal once it is flushed.
    ///
    /// # Errors
    /// Those of [`Image::integrity_volume`].
    pub fn integrity(
        mut self,
        data: Option<&Image>,
        options: &IntegrityOptions,
        providers: &Providers,
    ) -> Result<Image, Error> {
        let device = self.integrity_device(data, options, providers)?;
        self.preferred_block = self.preferred_block.max(device.superblock().block_size());
        self.layers.push(Layer::Integrity(Arc::clone(&device)));
        self.top = device;
        let below = std::iter::once(&self.extent).chain(data.map(|data| &data.extent));
        self.extent = Extent::over_remembering(&below.collect::<Vec<_>>());
        self.read_only |= data.is_some_and(Image::is_read_only);
        Ok(self)
    }

    /// The data of the dm-integrity volume that the image begins with, whose blocks are read and written through a guard.
    pub(crate) fn guarded(mut self, guard: impl BlockGuard + 'static) -> Result<Image, Error> {
        let device = Arc::new(IntegrityDevice::open(self.top, None, guard).at(&self.name)?);
        self.preferred_block = self.preferred_block.max(device.superblock().block_size());
        self.layers.push(Layer::Integrity(Arc::clone(&device)));
        self.top = device;
        self.extent = Extent::over_remembering(&[&self.extent]);
        Ok(self)
    }

    /// Opens another image for the same purpose as this one.
    ///
    /// # Errors
    /// Those of [`Image::open`].
    pub fn open_alike(&self, path: impl AsRef<Path>) -> Result<Image, Error> {
        match (self.is_trial, self.read_only) {
            (true, _) => Image::open(path, Access::ReadLocked)?.on_trial(),
            (_, true) => Image::open(path, Access::ReadLocked),
            (_, false) => Image::open(path, Access::Change),
        }
    }

    /// A dm-verity device, which can't be written: every block is checked when it is read. `hash` may be a clone of this
    /// image, for a hash area that lies behind the data.
    ///
    /// # Errors
    /// Those of [`Image::verity_volume`]; `Argument` for a root hash of a wrong length, data that are too short, or a driver
    /// that does not make the hash; `Mismatch` for the root hash of another tree.
    pub fn verity(
        mut self,
        hash: &Image,
        root_hash: &[u8],
        options: &VerityOptions,
        providers: &Providers,
    ) -> Result<Image, Error> {
        let layout = options.found(&self, hash)?;
        let algorithm = layout.parameters().algorithm();
        let providers = verity::naming(providers, algorithm, options.driver.as_deref())?;
        let geometry = layout.geometry();
        if root_hash.len() != geometry.shape().digest_len() {
            let (found, right) = (root_hash.len(), geometry.shape().digest_len());
            let text = format!("the root hash has {found} bytes; digests have {right}");
            return Err(Error::argument(text));
        }
        if geometry.data_size() > self.top.size() {
            let (needed, size) = (geometry.data_size(), self.top.size());
            let text = format!("the hash tree is over {needed} bytes, and there are {size}");
            return Err(Error::argument(text).at(self.name));
        }
        self.preferred_block = self.preferred_block.max(layout.parameters().data_block_size.bytes());
        let device = Arc::new(VerifiedDevice::new(
            geometry.clone(),
            layout.parameters().salted_hash(&providers)?,
            self.top,
            Arc::clone(&hash.top),
            layout.tree_offset(),
            root_hash,
        ));
        device.check_root().map_err(|error| error.at(hash.name()))?;
        self.layers.push(Layer::Verity(Arc::clone(&device)));
        self.top = device;
        self.read_only = true;
        self.root_hash = Some(root_hash.get(..64).unwrap_or(root_hash).to_vec());
        Ok(self)
    }

    /// The same bytes, each read of which is compared with the fs-verity tree that [`Image::fsverity_tree`] has made in
    /// `tree`. They can't be written.
    ///
    /// # Errors
    /// `Corrupt` if there is no tree; `Mismatch` for a tree of another digest, or a file of another size.
    pub fn fsverity(
        mut self,
        tree: &Image,
        digest: &FileDigest,
        providers: &Providers,
    ) -> Result<Image, Error> {
        let descriptor = tree.fsverity_descriptor(digest, providers)?;
        let below = Arc::clone(&tree.top);
        let device = descriptor.verified(providers, self.top, below, TREE_OFFSET).at(&self.name)?;
        device.check_root().map_err(|error| error.at(tree.name()))?;
        let device = Arc::new(device);
        self.layers.push(Layer::Verity(Arc::clone(&device)));
        self.top = device;
        self.read_only = true;
        Ok(self)
    }

    /// Takes writes, and keeps them in the file `path`, which is made if it is not there.
    ///
    /// # Errors
    /// `Argument` if the file is no overlay or belongs to another image, `Corrupt` if it is a damaged one; `Io`,
    /// [`Error::is_busy`] if it is in use.
    pub fn overlay(mut self, path: &Path, providers: &Providers) -> Result<Image, Error> {
        type Store = OverlayFile<Below, FileDevice>;
        if self.is_stored_at(path) {
            let text = format!("{}: changes of an image can't be kept in the image itself", path.display());
            return Err(Error::argument(text));
        }
        let identity = match &self.root_hash {
            Some(root_hash) => root_hash.clone(),
            None => sampled(&*self.top, providers).at(&self.name)?,
        };
        if !fs::exists(path).at(path.display())? {
            let new = OutputFile::create(path).at(path.display())?;
            Store::format(new.device(), self.top.size(), &identity).at(path.display())?;
            new.commit(true).at(path.display())?;
        }
        let store = open_file(path, Access::Change)?;
        let device = Arc::new(Store::open(self.top, store, &identity).at(path.display())?);
        self.layers.push(Layer::Overlay(Arc::clone(&device)));
        self.top = device;
        self.extent = self.extent.apart_from();
        self.read_only = false;
        Ok(self)
    }

    /// Writes what the overlay in the file `path` keeps for the device on top into that, and empties the overlay. Returns how
    /// many blocks of 4096 bytes it had. What was interrupted is completed by the same again.
    ///
    /// # Errors
    /// `Argument` if the image was opened for reading, or the file is no overlay of it; `Corrupt` if it is a damaged one;
    /// `Io`, [`Error::is_busy`] if it is in use.
    pub fn commit_overlay(&self, path: &Path, work: &Work<'_>) -> Result<u64, Error> {
        let _lease = self.lease()?;
        if self.is_stored_at(path) {
            return Err(Error::argument(format!(
                "{}: the overlay can't be the image itself",
                path.display()
            )));
        }
        let store: Below = match self.is_trial {
            true => Arc::new(Trial::new(open_file(path, Access::ReadLocked)?)?),
            false => Arc::new(open_file(path, Access::Change)?),
        };
        let sampled = |device: &dyn BlockDevice| sampled(device, &work.providers);
        OverlayFile::commit(Arc::clone(&self.top), store, sampled, work.events).at(path.display())
    }

    /// The image as it will be once a change of its file system that was interrupted is complete, and whether there
    /// was one; nothing is written. The change is kept in `recovery_file`, beside the image if `None`.
    ///
    /// # Errors
    /// `Unsupported` if the file system is not clean, and the file does not fit it.
    pub fn completed(
        mut self,
        recovery_file: Option<&Path>,
        providers: &Providers,
    ) -> Result<(Image, bool), Error> {
        let Some(path) = recovery_file.map(Path::to_owned).or_else(|| self.recovery_file()) else {
            return Ok((self, false));
        };
        let over = RecoveryFile::new(path).over(&self.top, providers).at(&self.name)?;
        let is_interrupted = over.is_some();
        if let Some(over) = over {
            self.top = over;
            self.read_only = true;
        }
        Ok((self, is_interrupted))
    }

    /// The first byte of a part of the whole image whose file system has a change that was interrupted, and is kept beside
    /// the image.
    pub(crate) fn part_interrupted(&self, providers: &Providers) -> Result<Option<u64>, Error> {
        let Some(whole) = self.file.as_ref().filter(|file| file.start == 0 && self.layers.is_empty()) else {
            return Ok(None);
        };
        let Some(beside) = self.recovery_file() else { return Ok(None) };
        let folder = whole.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        // Where names can't be listed nothing else is known either.
        let Ok(entries) = fs::read_dir(folder.unwrap_or(Path::new("."))) else { return Ok(None) };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let start = beside
                .file_name()
                .and_then(|beside| name.as_bytes().strip_prefix(beside.as_bytes())?.strip_prefix(b"."));
            let start = start.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
            let Some(start) = start.filter(|start| *start < self.top.size()) else { continue };
            let part = self.clone().window(start, None)?;
            if part.completed(None, providers)?.1 {
                return Ok(Some(start));
            }
        }
        Ok(None)
    }

    /// Where changes of a file system without a journal are kept until they are complete: beside the image, unless it
    /// is a block device, or something lies on it; what is encrypted must not lie there in plain text.
    pub(crate) fn recovery_file(&self) -> Option<PathBuf> {
        if self.layers.is_empty() { self.beside(".casemate-redo") } else { None }
    }

    /// A path beside the image's file, for what belongs to the part of it that this is; none for a block device.
    pub(crate) fn beside(&self, suffix: &str) -> Option<PathBuf> {
        let file = self.file.as_ref().filter(|file| !file.is_block_device)?;
        let mut path = OsString::from(&file.path);
        path.push(suffix);
        if file.start > 0 {
            path.push(format!(".{}", file.start));
        }
        Some(path.into())
    }

    /// The same image, which takes no writes.
    #[must_use]
    pub fn make_read_only(mut self) -> Image {
        self.read_only = true;
        self
    }

    /// The image's name in errors: its path, if it has one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path of the file that the image is, or lies in.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| &*file.path)
    }

    /// Whether a path leads to the file that the image is.
    pub fn is_file(&self, path: &Path) -> bool {
        self.file.as_ref().is_some_and(|file| is_same_file(&file.path, path))
    }

    /// Whether what is written at a path may change the file that the image is: it is this one, or one lies on the other.
    pub fn is_stored_at(&self, path: &Path) -> bool {
        self.file.as_ref().is_some_and(|file| is_same_storage(&file.path, path))
    }

    /// Whether both are the same bytes: clones of one image, or the same part of one file.
    pub(crate) fn is_same(&self, other: &Image) -> bool {
        let part = |image: &Image| {
            let file = image.file.as_ref().filter(|_| image.layers.is_empty());
            file.map(|file| (file.path.clone(), file.start, image.top.size()))
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
    pub(crate) fn is_changed_by(&self, len: u64, other: &Image, range: Range<u64>) -> bool {
        other.extent.part(range).changes(&self.extent.part(0..len))
    }

    /// Whether what is written leaves nothing behind, unless all goes well.
    pub(crate) fn leaves_nothing(&self) -> bool {
        let is_open =
            |file: &Mutex<Option<OutputFile>>| file.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        self.is_trial || self.new.as_deref().is_some_and(is_open)
    }

    /// The device on top.
    pub(crate) fn top(&self) -> &dyn BlockDevice {
        &*self.top
    }

    /// The device on top, to be kept. A writer of one's own takes a [`lease`](Image::lease) first.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.top)
    }

    /// Whether the image takes no writes.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether something is decrypted.
    pub fn is_decrypted(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer, Layer::Crypt { .. } | Layer::Reencryption))
    }

    /// Whether something is decrypted with a key that nothing has told from a wrong one, so that this may be what is wrong.
    pub(crate) fn is_key_in_doubt(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer, Layer::Crypt { is_key_verified: false, .. }))
    }

    /// Tells the listener that a key may be wrong, where what was decrypted with it begins as nothing that is known. Nothing
    /// else tells a wrong key from a right one.
    pub fn note_noise(&self, events: &dyn Events) {
        if self.is_key_in_doubt() {
            probe::note_noise(self.top(), &self.name, events);
        }
    }

    /// Bytes that requests should be multiples of, for speed.
    pub fn preferred_block(&self) -> u32 {
        self.preferred_block
    }

    /// Work of each layer so far, from the image upwards.
    pub fn statistics(&self) -> Vec<LayerStatistics> {
        let of = |layer: &Layer| match layer {
            Layer::Crypt { device, .. } => {
                let driver = device.cipher().driver_name().to_owned();
                Some(LayerStatistics::Crypt(device.statistics(), driver))
            }
            Layer::Reencryption => None,
            Layer::Verity(device) => Some(LayerStatistics::Verity(device.statistics())),
            Layer::Overlay(device) => Some(LayerStatistics::Overlay(device.changed_blocks())),
            Layer::Integrity(device) => Some(LayerStatistics::Integrity(device.wrong_blocks())),
        };
        self.layers.iter().filter_map(of).collect()
    }

    /// The right to change the device on top, which nobody else has through this image and its clones until it is dropped.
    /// Everything here that changes an image takes one: a writer of a file system as long as it is open, a service that
    /// takes writes until it has stopped, all else while it works.
    ///
    /// ```
    /// use casemate::Image;
    ///
    /// let image = Image::of_bytes("disk", vec![0; 1 << 20]);
    /// let lease = image.lease()?;
    /// assert!(image.clone().lease().unwrap_err().is_busy());
    /// drop(lease);
    /// image.write_at(b"boot", 0)?;
    /// # Ok::<(), casemate::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Image::check_writable`]; [`Error::is_busy`] while another writer has some of these bytes.
    pub fn lease(&self) -> Result<Lease, Error> {
        Image::lease_all(&[self])
    }

    /// Lease of some of the bytes.
    pub(crate) fn lease_bytes(&self, range: Range<u64>) -> Result<Lease, Error> {
        self.check_writable()?;
        Lease::keep(&[self.extent.part(range)]).at(&self.name)
    }

    /// Lease of several images, which may be clones of one.
    pub(crate) fn lease_all(images: &[&Image]) -> Result<Lease, Error> {
        images.iter().try_for_each(|image| image.check_writable())?;
        let extents: Vec<_> = images.iter().map(|image| image.extent.clone()).collect();
        Lease::keep(&extents).map_err(|error| match images.first() {
            Some(image) => error.at(&image.name),
            None => error,
        })
    }

    /// The device on top, with the right to change it as long as somebody has it.
    pub(crate) fn leased_device(&self) -> Result<Arc<dyn BlockDevice>, Error> {
        Ok(Arc::new(Leased { device: self.device(), _lease: self.lease()? }))
    }

    /// Writes all of `buf` from `offset` on, unless a writer is changing what lies there.
    ///
    /// # Errors
    /// Those of [`Image::lease`]; `Io`.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), Error> {
        self.check_writable()?;
        let written = self.extent.part(offset..offset.saturating_add(buf.len() as u64));
        let _lease = Lease::write(&written).at(&self.name)?;
        self.top.write_at(buf, offset).at(&self.name)
    }

    /// Refuses an image that is going to be written and takes no writes.
    ///
    /// # Errors
    /// `Argument`: why it takes none.
    pub fn check_writable(&self) -> Result<(), Error> {
        let why = match self.layers.iter().any(|layer| matches!(layer, Layer::Reencryption)) {
            _ if !self.read_only => return Ok(()),
            true => {
                "the volume is being reencrypted, and is read only until casemate luks reencrypt --resume-only is done"
            }
            false if self.layers.iter().any(|layer| matches!(layer, Layer::Verity(_))) => {
                "what dm-verity verifies can't be changed: its root hash would not fit any more"
            }
            false => "the image was opened for reading only",
        };
        Err(Error::argument(why).at(&self.name))
    }
}

/// What tells a device from others: the SHA-256 of samples of it.
fn sampled(device: &dyn BlockDevice, providers: &Providers) -> Result<Vec<u8>, Error> {
    let mut data = Vec::new();
    for range in samples(device.size()) {
        let start = data.len();
        // OK to cast: a few MiB altogether.
        data.resize(start + (range.end - range.start) as usize, 0);
        device.read_at(&mut data[start..], range.start)?;
    }
    Ok(providers.hash("sha256")?.digest(&data))
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Image");
        text.field("name", &self.name).field("size", &self.top.size()).field("read_only", &self.read_only);
        text.finish_non_exhaustive()
    }
}
