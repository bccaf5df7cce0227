//! Images: the one way in which files and devices that exist are opened, and what is read through mappings on them.
//!
//! Each step takes the image so far and lays one device on it, as device-mapper does, but as plain values.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::os::OsStrExt;
use casemate_blockdev::{
    AtFile, BlockDevice, Events, Fetched, FileDevice, InPlaceWork, Medium, MemoryDevice, OutputFile,
    OverlayFile, PartitionId, Trial, Uuid, Window, signatures,
};
use casemate_crypt::CryptDevice;
use casemate_ext4::RecoveryFile;
use casemate_integrity::IntegrityDevice;
use casemate_luks::Protected;
use casemate_providers::{Providers, Work};
use casemate_verity::tree::Verified;

pub use casemate_blockdev::Access;
pub use casemate_crypt::CryptStatistics;
pub use casemate_verity::tree::VerifiedStatistics;

use crate::overlay::Base;
use crate::{Advice, Error};

pub(crate) type Below = Arc<dyn BlockDevice>;

/// An image with what lies on it: a [`Medium`], which is opened once, and locked, if it is, as long as a clone of it is there.
///
/// Name, bytes and locks of an image are the medium's: [`Medium::name`], [`Medium::device`], [`Medium::lease`],
/// [`Medium::commit`].
#[derive(Clone)]
pub struct Image {
    medium: Medium,
    layers: Vec<Layer>,
    /// Root hash of the topmost verity device, to which an overlay is tied.
    root_hash: Option<Vec<u8>>,
    preferred_block: u32,
}

/// Layer on a medium.
#[derive(Clone)]
pub(crate) enum Layer {
    Crypt {
        device: Arc<CryptDevice<Window<Below>>>,
        is_key_verified: bool,
    },
    /// Data of a reencryption that is not finished, read as they will be.
    Reencryption,
    Integrity(Arc<IntegrityDevice<Below, Below>>),
    /// Data of a LUKS2 volume with integrity protection, which are encrypted, too.
    Protected(Arc<Protected>),
    Verity(Verified),
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

/// Reason why data in the middle of a reencryption take no writes.
const REENCRYPTED: &str = "the volume is being reencrypted, and can only be read until that is finished";

impl Image {
    /// Opens an image file or a block device.
    ///
    /// # Errors
    /// `Io`; [`Error::is_busy`] if somebody has it locked, it is mounted, or a loop device stands on it; `Argument` if in-place
    /// work on it is unfinished.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Image, Error> {
        Medium::open(path, access).map(Image::from)
    }

    /// Opens an image as [`Image::open`] does, also one on which in-place work is unfinished: to go on with that work, or to
    /// tell of it.
    ///
    /// # Errors
    /// Errors of [`Image::open`], but for unfinished work.
    pub fn open_unfinished(path: impl AsRef<Path>, access: Access) -> Result<Image, Error> {
        Medium::open_unfinished(path, access).map(Image::from)
    }

    /// Opens a file or block device to be written, or begins a file that is not there: that one gets its name with
    /// [`Medium::commit`], and leaves nothing behind without.
    ///
    /// # Errors
    /// Errors of [`Image::open`].
    pub fn create(path: impl AsRef<Path>) -> Result<Image, Error> {
        Medium::create(path).map(Image::from)
    }

    /// Begins a file that gets its name with [`Medium::commit`], and takes the place of a regular file that has the name; a
    /// link is followed.
    ///
    /// # Errors
    /// `Io`; [`Error::is_busy`] if what has the name is in use.
    pub fn replace(path: impl AsRef<Path>) -> Result<Image, Error> {
        Medium::replace(path).map(Image::from)
    }

    /// Begins a file as [`Image::replace`] does, which its owner alone can read and write: for headers with key slots.
    ///
    /// # Errors
    /// Errors of [`Image::replace`].
    pub fn replace_private(path: impl AsRef<Path>) -> Result<Image, Error> {
        let image = Image::replace(path)?;
        image.narrow(0o600);
        Ok(image)
    }

    /// The image as [`Image::create`] opens it, for a trial: what is written goes to a temporary file without a name, and is
    /// gone with the image.
    ///
    /// # Errors
    /// Errors of [`Image::create`], but for a file that can only be read.
    pub fn create_on_trial(path: impl AsRef<Path>) -> Result<Image, Error> {
        let path = path.as_ref();
        if fs::exists(path).at(path.display())? {
            return Image::open(path, Access::Read)?.on_trial();
        }
        // Whether it could be there.
        drop(Image::replace(path)?);
        Image::over(path.display(), Arc::new(MemoryDevice::new(Vec::new()))).on_trial()
    }

    /// Image that takes writes, and keeps them in a temporary file without a name until it is dropped.
    ///
    /// # Errors
    /// `Io` if there is no temporary file to be had.
    pub fn on_trial(mut self) -> Result<Image, Error> {
        self.medium = self.medium.on_trial()?;
        Ok(self)
    }

    /// A device that is open already; errors call it `name`. Of two images that are made of one device neither knows of the other's
    /// writers: clones of one do.
    pub fn over(name: impl fmt::Display, device: Arc<dyn BlockDevice>) -> Image {
        Image::from(Medium::over(name, device))
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
        Image::over(name, Arc::new(Fetched { size, read })).make_read_only()
    }

    /// The bytes from `offset` on: `len` of them, or all.
    ///
    /// # Errors
    /// `Argument` if they pass the end.
    pub fn window(mut self, offset: u64, len: Option<u64>) -> Result<Image, Error> {
        self.medium = self.medium.window(offset, len)?;
        Ok(self)
    }

    /// A partition of GPT or MBR, counted from 1.
    ///
    /// # Errors
    /// Errors of [`Medium::partition`].
    pub fn partition(mut self, number: u32) -> Result<Image, Error> {
        self.medium = self.medium.partition(number)?;
        Ok(self)
    }

    /// A partition of an image that may be cut off: as far as it is there.
    ///
    /// # Errors
    /// Errors of [`Medium::partition_so_far`].
    pub fn partition_so_far(mut self, number: u32) -> Result<Image, Error> {
        self.medium = self.medium.partition_so_far(number)?;
        Ok(self)
    }

    /// A partition by number, UUID or name; with `so_far` as far as it is there, for an image that may be truncated.
    ///
    /// # Errors
    /// Errors of [`Medium::partition_named`].
    pub fn partition_named(mut self, id: &PartitionId, so_far: bool) -> Result<Image, Error> {
        self.medium = self.medium.partition_named(id, so_far)?;
        Ok(self)
    }

    /// The partition of a GPT that has this UUID.
    ///
    /// # Errors
    /// Errors of [`Medium::partition_of_uuid`].
    pub fn partition_of_uuid(mut self, uuid: Uuid) -> Result<Image, Error> {
        self.medium = self.medium.partition_of_uuid(uuid)?;
        Ok(self)
    }

    /// The image with one more layer, of whose blocks requests should be multiples, on a medium that it was laid on.
    pub(crate) fn with_layer(mut self, layer: Layer, medium: Medium, block: u32) -> Image {
        self.layers.push(layer);
        self.preferred_block = self.preferred_block.max(block);
        self.with_medium(medium)
    }

    /// The image with a layer that checks each block of what is below against a digest, and takes no writes.
    pub(crate) fn with_verity(self, device: Verified, block: u32) -> Image {
        let medium = device.laid_on(self.medium.clone());
        self.with_layer(Layer::Verity(device), medium, block)
    }

    /// The image, whose overlays are tied to a root hash.
    pub(crate) fn with_root_hash(mut self, root_hash: &[u8]) -> Image {
        self.root_hash = Some(root_hash.to_vec());
        self
    }

    /// The plain data in the middle of a reencryption, which can be written while it goes on.
    pub(crate) fn reencrypting(mut self, device: Below, read_only: bool) -> Image {
        self.layers.push(Layer::Reencryption);
        self.medium = self.medium.laid_writing(device, 0);
        if read_only {
            self.medium = self.medium.refusing_writes(REENCRYPTED, Some(Advice::FinishReencryption));
        }
        self
    }

    /// The data of a LUKS2 volume with integrity protection, whose blocks have tags.
    pub(crate) fn protected(mut self, device: Arc<Protected>) -> Image {
        self.preferred_block = self.preferred_block.max(device.superblock().block_size());
        self.layers.push(Layer::Protected(Arc::clone(&device)));
        self.medium = self.medium.laid_remembering(device, None);
        self
    }

    /// Opens another image for the same purpose as this one: also one that has the mark of the same unfinished work.
    ///
    /// # Errors
    /// Errors of [`Image::open`].
    pub fn open_alike(&self, path: impl AsRef<Path>) -> Result<Image, Error> {
        let access = if self.is_trial() || self.is_read_only() { Access::Read } else { Access::Change };
        let other = match self.medium.mark()? {
            None => Image::open(path, access)?,
            Some(mark) => {
                let other = Image::open_unfinished(path, access)?;
                if let Some(found) = other.mark()?.filter(|found| !found.is_of_same_work(&mark)) {
                    return Err(found.refusal()).at(other.name());
                }
                other
            }
        };
        if self.is_trial() { other.on_trial() } else { Ok(other) }
    }

    /// Takes writes, and keeps them in the file `path`, which is made if it is not there: nobody can read it who could not read
    /// the image, and its owner alone if the image is decrypted.
    ///
    /// # Errors
    /// `Argument` if the file is not an overlay, belongs to another image, or if somebody has written to the image since;
    /// `Corrupt` if it is a damaged one; `Io`, [`Error::is_busy`] if it is in use.
    pub fn overlay(self, path: &Path, providers: &Providers) -> Result<Image, Error> {
        self.overlaid(path, false, providers)
    }

    /// Takes writes as [`Image::overlay`] does, where the caller answers for the image: it is a copy of that which the overlay was
    /// made over, with another time of modification. One whose samples differ is refused all the same, and one with other contents
    /// under the overlay's blocks.
    ///
    /// # Errors
    /// Errors of [`Image::overlay`].
    pub fn overlay_on_trust(self, path: &Path, providers: &Providers) -> Result<Image, Error> {
        self.overlaid(path, true, providers)
    }

    fn overlaid(mut self, path: &Path, is_trusted: bool, providers: &Providers) -> Result<Image, Error> {
        type Store = OverlayFile<Below, FileDevice>;
        if self.is_stored_at(path) {
            let text = format!("{}: changes of an image can't be kept in the image itself", path.display());
            return Err(Error::argument(text));
        }
        // What it keeps belongs to the image as it is now.
        self.medium = self.medium.locked()?;
        let lease = self.relied()?;
        let base = self.overlay_base(is_trusted, None, providers)?;
        if !fs::exists(path).at(path.display())? {
            let new = OutputFile::create(path).at(path.display())?;
            // It has what clients write, in plaintext if the image is decrypted.
            new.narrow(self.copy_mode());
            Store::format(new.device(), &self.device(), &base).at(path.display())?;
            new.commit(true).at(path.display())?;
        }
        let store = Access::Change.open(path)?;
        let device = Arc::new(Store::open(self.device(), store, Arc::new(base)).at(path.display())?);
        self.layers.push(Layer::Overlay(Arc::clone(&device)));
        self.medium = self.medium.laid_apart(device, lease);
        Ok(self)
    }

    /// Writes what the overlay in the file `path` keeps for the device on top into that, and empties the overlay. Returns how
    /// many blocks of 4096 bytes it had. What was interrupted is completed by the same again.
    ///
    /// # Errors
    /// `Argument` if the image was opened for reading, the file is not an overlay of it, or somebody has written to the image
    /// since, before anything is written; `Corrupt` if it is a damaged one; `Io`, [`Error::is_busy`] if it is in use.
    pub fn commit_overlay(&self, path: &Path, work: &Work<'_>) -> Result<u64, Error> {
        self.commit_overlaid(path, false, work)
    }

    /// Writes what an overlay keeps as [`Image::commit_overlay`] does, where the caller answers for the image: it is a copy of that
    /// which the overlay was made over, with another time of modification. An interrupted commit is completed also over blocks that
    /// somebody has changed since.
    ///
    /// # Errors
    /// Errors of [`Image::commit_overlay`].
    pub fn commit_overlay_on_trust(&self, path: &Path, work: &Work<'_>) -> Result<u64, Error> {
        self.commit_overlaid(path, true, work)
    }

    fn commit_overlaid(&self, path: &Path, is_trusted: bool, work: &Work<'_>) -> Result<u64, Error> {
        let _lease = self.lease()?;
        if self.is_stored_at(path) {
            return Err(Error::argument(format!(
                "{}: the overlay can't be the image itself",
                path.display()
            )));
        }
        let others = self.medium.mark()?.filter(|mark| mark.work != InPlaceWork::Commit);
        if let Some(mark) = others {
            return Err(mark.refusal()).at(self.name());
        }
        let store: Below = match self.is_trial() {
            true => Arc::new(Trial::new(Access::Read.open(path)?)?),
            false => Arc::new(Access::Change.open(path)?),
        };
        let marked = Some(path.to_owned()).filter(|_| !self.is_trial());
        let base = Arc::new(self.overlay_base(is_trusted, marked, &work.providers)?);
        OverlayFile::commit(self.device(), store, base, work.events).at(path.display())
    }

    /// Proof for an overlay of the image that this is the one that it was made over.
    fn overlay_base(
        &self,
        is_trusted: bool,
        overlay: Option<PathBuf>,
        providers: &Providers,
    ) -> Result<Base, Error> {
        let is_verified = self.root_hash.is_some() && matches!(self.topmost(), Some(Layer::Verity(_)));
        Ok(Base {
            medium: self.medium.clone(),
            root_hash: self.root_hash.clone(),
            is_sampled: !is_verified,
            is_trusted,
            overlay,
            sha256: providers.hash("sha256")?,
        })
    }

    /// The image as it will be once a change of its file system that was interrupted is complete; `None` if there was none.
    /// Nothing is written. The change is kept in `recovery_file`, beside the image if `None`.
    ///
    /// # Errors
    /// `Unsupported` if the file system is not clean, and the file does not fit it.
    pub fn completed(
        &self,
        recovery_file: Option<&Path>,
        providers: &Providers,
    ) -> Result<Option<Image>, Error> {
        let Some(file) = self.recovery(recovery_file)? else { return Ok(None) };
        let over = file.over(&self.device(), providers).at(self.name())?;
        Ok(over.map(|over| self.clone().with_medium(self.medium.clone().shown_as(over))))
    }

    /// The first byte of a part of the whole image whose file system has a change that was interrupted.
    pub(crate) fn part_interrupted(&self, providers: &Providers) -> Result<Option<u64>, Error> {
        if self.start() != 0 || !self.layers.is_empty() {
            return Ok(None);
        }
        let mut starts = self.medium.recovery_starts()?;
        starts.extend(self.recovery_file().into_iter().flat_map(|beside| starts_beside(&beside)));
        for start in starts.into_iter().filter(|start| (1..self.top().size()).contains(start)) {
            let part = self.clone().window(start, None)?;
            if part.completed(None, providers)?.is_some() {
                return Ok(Some(start));
            }
        }
        Ok(None)
    }

    /// Refuses an image whose bytes are going to be protected as they lie there, if a change of a file system in it was interrupted: the
    /// rest of the change is kept beside the image, and would not fit it any more.
    ///
    /// # Errors
    /// `Unsupported`; `Io`.
    pub fn check_settled(&self, providers: &Providers) -> Result<(), Error> {
        self.check_parts_settled("its bytes are encrypted or hashed", providers)?;
        if self.completed(None, providers)?.is_none() {
            return Ok(());
        }
        let text = "a change of the file system in it was interrupted, and must be completed before its bytes are encrypted or hashed";
        Err(Error::unsupported(text).advise(Advice::Recover).within(self.name()))
    }

    /// Refuses an image with a part whose file system has a change that was interrupted, before `what` is done.
    pub(crate) fn check_parts_settled(&self, what: &str, providers: &Providers) -> Result<(), Error> {
        let Some(start) = self.part_interrupted(providers)? else { return Ok(()) };
        let text = format!(
            "a change of the file system at byte {start} was interrupted, and must be completed before {what}"
        );
        Err(Error::unsupported(text).advise(Advice::RecoverAt(start)).within(self.name()))
    }

    /// The recovery file of the file system on the image: the given one, that beside the image, or for a block device that to
    /// which the file below leads.
    fn recovery(&self, path: Option<&Path>) -> Result<Option<RecoveryFile>, Error> {
        let is_noted = self.layers.is_empty();
        let path = match path.map(Path::to_owned).or_else(|| self.recovery_file()) {
            None if is_noted => self.medium.recovery_path()?,
            path => path,
        };
        let file = path.map(RecoveryFile::new);
        Ok(if is_noted { file.map(|file| file.noted_on(self.medium.clone())) } else { file })
    }

    /// The file that keeps changes of a file system until they are complete, noted on the image if that is where they are made.
    pub(crate) fn keeping(&self, path: PathBuf) -> RecoveryFile {
        let file = RecoveryFile::new(path);
        if self.layers.is_empty() && !self.is_trial() { file.noted_on(self.medium.clone()) } else { file }
    }

    /// Where changes of a file system without a journal are kept until they are complete: beside the image, unless it
    /// is a block device, or something lies on it; what is encrypted must not lie there in plain text.
    pub(crate) fn recovery_file(&self) -> Option<PathBuf> {
        if self.layers.is_empty() { self.beside(".casemate-redo") } else { None }
    }

    /// Image that refuses writes.
    #[must_use]
    pub fn make_read_only(mut self) -> Image {
        self.medium = self.medium.make_read_only();
        self
    }

    /// The image with another medium in place of its own, on which the same lies: with more locks, or kept.
    pub(crate) fn with_medium(mut self, medium: Medium) -> Image {
        self.medium = medium;
        self
    }

    /// Layers on the medium, the lowest first.
    pub(crate) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The layer on top, if there is one.
    pub(crate) fn topmost(&self) -> Option<&Layer> {
        self.layers.last()
    }

    /// Whether something is decrypted.
    pub fn is_decrypted(&self) -> bool {
        let decrypts = |layer: &Layer| match layer {
            Layer::Crypt { .. } | Layer::Reencryption | Layer::Protected(_) => true,
            Layer::Integrity(_) | Layer::Verity(_) | Layer::Overlay(_) => false,
        };
        self.layers.iter().any(decrypts)
    }

    /// The most permissions that a new file may have with data of the image: those of its file, and its owner's alone if something is
    /// decrypted.
    pub(crate) fn copy_mode(&self) -> u32 {
        self.data_mode() & if self.is_decrypted() { 0o600 } else { 0o7777 }
    }

    /// Whether something is decrypted with a key that nothing has told from a wrong one, so that this may be what is wrong.
    pub(crate) fn is_key_in_doubt(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer, Layer::Crypt { is_key_verified: false, .. }))
    }

    /// Tells the listener that a key may be wrong, where what was decrypted with it begins as nothing that is known. Nothing
    /// else tells a wrong key from a right one.
    pub fn note_noise(&self, events: &dyn Events) {
        if self.is_key_in_doubt() {
            signatures::note_noise(self.top(), self.name(), events);
        }
    }

    /// Bytes that requests should be multiples of, for speed.
    pub fn preferred_block(&self) -> u32 {
        self.preferred_block
    }

    /// Whether a layer of dm-integrity has blocks whose tags were still to be computed by its superblock, and that are read
    /// without being checked.
    pub fn has_unknown_blocks(&self) -> bool {
        let has = |layer: &Layer| matches!(layer, Layer::Integrity(device) | Layer::Protected(device) if device.has_unknown_blocks());
        self.layers.iter().any(has)
    }

    /// Whether a layer of dm-integrity has a journal that can't be read, and that may have newer blocks than are shown.
    pub fn has_unread_journal(&self) -> bool {
        let has = |layer: &Layer| matches!(layer, Layer::Integrity(device) if device.has_unread_journal());
        self.layers.iter().any(has)
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
            Layer::Integrity(device) | Layer::Protected(device) => {
                Some(LayerStatistics::Integrity(device.wrong_blocks()))
            }
        };
        self.layers.iter().filter_map(of).collect()
    }
}

/// An image is read and written as its medium.
impl Deref for Image {
    type Target = Medium;

    fn deref(&self) -> &Medium {
        &self.medium
    }
}

impl AsRef<Medium> for Image {
    fn as_ref(&self) -> &Medium {
        &self.medium
    }
}

impl From<Image> for Medium {
    fn from(image: Image) -> Medium {
        image.medium
    }
}

impl From<Medium> for Image {
    fn from(medium: Medium) -> Image {
        Image { medium, layers: Vec::new(), root_hash: None, preferred_block: 4096 }
    }
}

/// The bytes at which parts of an image begin that have a recovery file, by the names beside that of the image itself.
fn starts_beside(beside: &Path) -> Vec<u64> {
    let folder = beside.parent().filter(|folder| !folder.as_os_str().is_empty());
    // Where names can't be listed nothing else is known either.
    let Ok(entries) = fs::read_dir(folder.unwrap_or(Path::new("."))) else { return Vec::new() };
    let Some(beside) = beside.file_name() else { return Vec::new() };
    let start = |name: &OsStr| {
        let end = name.as_bytes().strip_prefix(beside.as_bytes())?.strip_prefix(b".")?;
        str::from_utf8(end).ok()?.parse().ok()
    };
    entries.flatten().filter_map(|entry| start(&entry.file_name())).collect()
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Image");
        text.field("name", &self.name()).field("size", &self.top().size());
        text.field("read_only", &self.is_read_only());
        text.finish_non_exhaustive()
    }
}
