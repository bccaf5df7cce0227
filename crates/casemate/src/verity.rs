//! dm-verity over images: making hash areas and parity, checking data against them, repairing, and bringing them up
//! to date.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use casemate_blockdev::{AtFile, BlockDevice, Named, OutputFile, Overlay, is_same_file};
use casemate_providers::Work;
use casemate_verity::dm::{self, fec};
use casemate_verity::tree::{Finding, Ranges, Summary};

pub use casemate_verity::dm::fec::{FecDevices, FecLayout, Repaired};
pub use casemate_verity::dm::{
    BlockSize, HashType, Layout, OnFault, Parameters, SUPERBLOCK_SIZE, Salt, Seed, Superblock, Table,
    TableFec, Uuid, partition_uuids, random_salt,
};
pub use casemate_verity::hex;

use crate::image;
use crate::{Error, Image};

/// Where data, a hash area or parity lies.
#[derive(Clone, Debug)]
pub enum Location {
    /// A file or a block device, which is opened for what is done with it, and closed then.
    Path(PathBuf),
    /// An image that is open: a partition, for instance, or what dm-crypt decrypts. Clones of one image are the same
    /// place.
    Image(Image),
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Location {
        Location::Path(path)
    }
}

impl From<&Path> for Location {
    fn from(path: &Path) -> Location {
        Location::Path(path.to_owned())
    }
}

impl From<Image> for Location {
    fn from(image: Image) -> Location {
        Location::Image(image)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Path(path) => path.display().fmt(f),
            Location::Image(image) => f.write_str(image.name()),
        }
    }
}

impl Location {
    fn open(&self, changes: bool) -> Result<Image, Error> {
        match self {
            Location::Path(path) => {
                Image::open(path, if changes { image::Access::Change } else { image::Access::Read })
            }
            Location::Image(image) => {
                if changes {
                    image.check_writable()?;
                }
                Ok(image.clone())
            }
        }
    }

    /// Whether both are the same bytes.
    pub fn is_same(&self, other: &Location) -> bool {
        match (self, other) {
            (Location::Path(one), Location::Path(other)) => is_same_file(one, other),
            (Location::Image(one), Location::Image(other)) => one.is_same(other),
            (Location::Path(path), Location::Image(image))
            | (Location::Image(image), Location::Path(path)) => image.is_whole_file(path),
        }
    }
}

/// What [`format()`] is to make.
#[derive(Clone, Debug)]
pub struct Format {
    /// How blocks are hashed.
    pub parameters: Parameters,
    /// The data.
    pub data: Location,
    /// Where the hash area goes; it may be the same as `data`. A file is made if it is not there.
    pub hash: Location,
    /// How many data blocks are protected; all if not said. A last part block is not.
    pub data_blocks: Option<u64>,
    /// Where the hash area begins in `hash`, in bytes.
    pub hash_offset: u64,
    /// The UUID in the superblock; no superblock is written without.
    pub uuid: Option<Uuid>,
    /// Parity to make for error correction.
    pub fec: Option<Fec>,
}

/// Parity for error correction.
#[derive(Clone, Debug)]
pub struct Fec {
    /// Where the parity is; it may be the hash device. A file is made if it is not there.
    pub device: Location,
    /// Where the parity begins there, in bytes: a multiple of the block size.
    pub offset: u64,
    /// Parity bytes for each codeword of 255: 2 to 24. If not said, it is what the size of parity that exists says, or 2.
    pub roots: Option<u32>,
}

/// What [`format()`] has made.
#[derive(Clone, Debug)]
pub struct Formatted {
    /// Where everything lies.
    pub layout: Layout,
    /// The root hash.
    pub root_hash: Vec<u8>,
    /// What the parity covers, if there is one.
    pub fec: Option<FecLayout>,
}

/// A hash area that exists.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The data.
    pub data: Location,
    /// The hash device; it may be the data device.
    pub hash: Location,
    /// Where the hash area begins, in bytes.
    pub hash_offset: u64,
    /// How to learn about it.
    pub source: Source,
    /// Parity for error correction.
    pub fec: Option<Fec>,
}

/// How to learn about a hash area that exists.
#[derive(Clone, Debug)]
pub enum Source {
    /// From its superblock.
    Superblock,
    /// From the caller; a superblock, if there is one, is not read.
    Given {
        /// How blocks are hashed.
        parameters: Parameters,
        /// How many data blocks are protected; all that the data has if not said.
        data_blocks: Option<u64>,
    },
}

/// What is going to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    Read,
    /// The hash area and the parity.
    Update,
    /// Data and hash area.
    Repair,
}

/// Data with its hash area.
#[derive(Debug)]
pub struct Volume {
    stored: Stored,
    data: Image,
    hash: Image,
    parity: Option<Parity>,
    layout: Layout,
}

/// Parity that exists.
#[derive(Debug)]
struct Parity {
    image: Image,
    layout: FecLayout,
    /// The number of roots whose parity has just the size of this one.
    fitting: Option<u32>,
}

/// How many bytes [`format()`] will work on.
///
/// # Errors
/// `Io` if the data can't be opened.
pub fn work_size(format: &Format) -> Result<u64, Error> {
    let size = format.data.open(false)?.top().size();
    let block_size = u64::from(format.parameters.data_block_size.bytes());
    let size = format.data_blocks.map_or(size, |blocks| blocks.saturating_mul(block_size));
    Ok(if format.fec.is_some() { size.saturating_mul(2) } else { size })
}

/// Makes a hash area, and parity if it is wanted.
///
/// A file that does not exist is there whole or not at all. One that exists, or a block device, is written in
/// place, the superblock last.
///
/// # Errors
/// `Argument` for what can't be, `Io` says which file; if an existing file was left with half a hash area, it
/// says this too.
pub fn format(format: &Format, work: &Work<'_>) -> Result<Formatted, Error> {
    let data = format.data.open(false)?;
    let block_size = u64::from(format.parameters.data_block_size.bytes());
    let data_blocks = format.data_blocks.unwrap_or(data.top().size() / block_size);
    let layout = Layout::new(format.parameters.clone(), data_blocks, format.hash_offset, format.uuid);
    let layout = layout.map_err(|error| error.at(data.name()))?;
    if format.data.is_same(&format.hash) {
        layout.check_one_device()?;
    }
    let on_hash_device = match &format.fec {
        Some(fec) => check_parity_place(fec, &layout, &format.data, &format.hash)?,
        None => false,
    };
    // With a parity that can't be, nothing should be written at all.
    if let Some(fec) = &format.fec {
        FecLayout::new(&layout, fec.roots.unwrap_or(ROOTS), layout.hash_device_size())?;
    }
    let hash = Target::open(&format.hash)?;
    let parity = match &format.fec {
        Some(fec) if !on_hash_device => Some(Target::open(&fec.device)?),
        _ => None,
    };
    let named_data = named(&data);
    let named_hash = Named::new(&format.hash, hash.device());
    let root_hash = dm::format(&layout, &named_data, &named_hash, work);
    let root_hash = root_hash.map_err(|error| hash.left_behind(error, &format.hash))?;
    let mut fec_layout = None;
    if let Some(fec) = &format.fec {
        let metadata_end = if on_hash_device { fec.offset } else { hash.device().size() };
        let target = parity.as_ref().unwrap_or(&hash);
        let named_parity = Named::new(&fec.device, target.device());
        if on_hash_device && hash.device().size() < fec.offset {
            // What lies between hash area and parity is covered, so it must be there.
            let filled = named_hash.write_at(&[0], fec.offset - 1);
            filled.map_err(|error| hash.left_behind(Error::io("", error), &format.hash))?;
        }
        let made = FecLayout::new(&layout, fec.roots.unwrap_or(ROOTS), metadata_end)?;
        let devices = FecDevices {
            data: &named_data,
            hash: &named_hash,
            parity: &named_parity,
            parity_offset: fec.offset,
        };
        let encoded = fec::encode(&made, &devices, work).and_then(|()| named_parity.flush());
        encoded.map_err(|error| target.left_behind(error, &fec.device))?;
        fec_layout = Some(made);
    }
    if let (Some(parity), Some(fec)) = (parity, &format.fec) {
        parity.commit(&fec.device)?;
    }
    hash.commit(&format.hash)?;
    Ok(Formatted { layout, root_hash, fec: fec_layout })
}

/// Reads the superblock at byte `hash_offset` of a hash device.
///
/// # Errors
/// `Corrupt` or `Unsupported` if there is none that makes sense, `Io`.
pub fn read_superblock(hash: &Image, hash_offset: u64) -> Result<Layout, Error> {
    layout_of(hash.name(), hash.top(), hash_offset)
}

impl Volume {
    /// Opens data, its hash area, and its parity.
    ///
    /// # Errors
    /// Those of [`read_superblock`]; `Argument` for given parameters that can't be.
    pub fn open(stored: Stored, access: Access) -> Result<Volume, Error> {
        // What is opened for changes is opened once, whatever it is for.
        let data = stored.data.open(access == Access::Repair)?;
        let hash = match access == Access::Repair && stored.data.is_same(&stored.hash) {
            true => data.clone(),
            false => stored.hash.open(access != Access::Read)?,
        };
        let layout = match &stored.source {
            Source::Superblock => read_superblock(&hash, stored.hash_offset)?,
            Source::Given { parameters, data_blocks } => {
                let block_size = u64::from(parameters.data_block_size.bytes());
                let data_blocks = data_blocks.unwrap_or(data.top().size() / block_size);
                Layout::new(parameters.clone(), data_blocks, stored.hash_offset, None)
                    .map_err(|error| error.at(data.name()))?
            }
        };
        let parity = match &stored.fec {
            None => None,
            Some(fec) => {
                let on_hash_device = check_parity_place(fec, &layout, &stored.data, &stored.hash)?;
                let metadata_end = if on_hash_device { fec.offset } else { hash.top().size() };
                let image = match on_hash_device {
                    true => hash.clone(),
                    false => fec.device.open(access == Access::Update)?,
                };
                let fitting = roots_of(&layout, metadata_end, image.top().size().saturating_sub(fec.offset));
                let roots = fec.roots.or(fitting).unwrap_or(ROOTS);
                let fec_layout =
                    FecLayout::new(&layout, roots, metadata_end).map_err(|error| error.at(image.name()))?;
                Some(Parity { image, layout: fec_layout, fitting })
            }
        };
        Ok(Volume { stored, data, hash, parity, layout })
    }

    /// Checks everything below `root_hash`; `report` hears of each wrong block.
    ///
    /// # Errors
    /// `Argument` if the root hash has a wrong length, `Corrupt` if a file is cut off, `Io`.
    pub fn verify(
        &self,
        root_hash: &[u8],
        work: &Work<'_>,
        report: &mut (dyn FnMut(Finding) -> Result<(), Error> + Send),
    ) -> Result<Summary, Error> {
        dm::verify(&self.layout, &self.named_data(), &self.named_hash(), root_hash, work, report)
    }

    /// Compares the parity with data and hash device; returns the numbers of the rounds that differ.
    ///
    /// # Errors
    /// `Argument` if the volume was opened without parity, `Corrupt` if it is cut off, `Io`.
    pub fn check_parity(&self, work: &Work<'_>) -> Result<Ranges, Error> {
        let (data, hash) = (self.named_data(), self.named_hash());
        self.with_parity(&data, &hash, |layout, devices| fec::check(layout, devices, work))
    }

    /// Restores damaged data and hash blocks in place.
    ///
    /// # Errors
    /// `Argument` if the volume was opened without parity or the root hash has a wrong length, `Corrupt` if
    /// something is cut off, `Io`.
    pub fn repair(&self, root_hash: &[u8], work: &Work<'_>) -> Result<Repaired, Error> {
        let (data, hash) = (self.named_data(), self.named_hash());
        self.with_parity(&data, &hash, |layout, devices| {
            fec::repair(&self.layout, layout, devices, root_hash, work)
        })
    }

    /// What [`Volume::repair`] would do, and how many bytes it would change; nothing is written.
    ///
    /// # Errors
    /// Those of [`Volume::repair`].
    pub fn try_repair(&self, root_hash: &[u8], work: &Work<'_>) -> Result<(Repaired, u64), Error> {
        let (data, hash) = (Overlay::new(self.named_data()), Overlay::new(self.named_hash()));
        let repaired = self.with_parity(&data, &hash, |layout, devices| {
            fec::repair(&self.layout, layout, devices, root_hash, work)
        })?;
        let changed = data.changed_bytes().and_then(|bytes| Ok(bytes + hash.changed_bytes()?));
        Ok((repaired, changed.map_err(|error| Error::io("input", error))?))
    }

    /// Brings the hash area up to date after the data blocks in `changed` have changed, and all of the parity;
    /// returns the new root hash. With `old_root` the hash blocks that will change are checked against it first.
    ///
    /// # Errors
    /// `Mismatch` if they do not belong to `old_root`; nothing is changed then. `Argument`, `Corrupt`, `Io`.
    pub fn update(
        &self,
        changed: &Ranges,
        old_root: Option<&[u8]>,
        work: &Work<'_>,
    ) -> Result<Vec<u8>, Error> {
        let (data, hash) = (self.named_data(), self.named_hash());
        let root_hash = dm::update(&self.layout, &data, &hash, changed, old_root, work);
        let path = self.hash.name();
        let remains =
            || format!("{path} may be changed in part, do the update again without the old root hash");
        let root_hash = root_hash.map_err(|error| with_remains(error, remains))?;
        if self.parity.is_some() {
            self.with_parity(&data, &hash, |layout, devices| {
                fec::encode(layout, devices, work)?;
                devices.parity.flush().map_err(|error| Error::io("parity", error))
            })?;
        }
        Ok(root_hash)
    }

    /// The data blocks that these bytes are part of.
    pub fn blocks_of(&self, bytes: &Ranges) -> Ranges {
        let block_size = u64::from(self.layout.parameters().data_block_size.bytes());
        bytes.iter().map(|range| range.start / block_size..range.end.div_ceil(block_size)).collect()
    }

    /// Where everything lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What the parity covers, if the volume was opened with one.
    pub fn fec_layout(&self) -> Option<&FecLayout> {
        self.parity.as_ref().map(|parity| &parity.layout)
    }

    /// The number of roots that the parity seems to have been made with, if the volume was opened with another one.
    pub fn other_fec_roots(&self) -> Option<u32> {
        let parity = self.parity.as_ref()?;
        parity.fitting.filter(|roots| *roots != parity.layout.roots())
    }

    fn named_data(&self) -> Named<&dyn BlockDevice> {
        named(&self.data)
    }

    fn named_hash(&self) -> Named<&dyn BlockDevice> {
        named(&self.hash)
    }

    fn with_parity<T>(
        &self,
        data: &dyn BlockDevice,
        hash: &dyn BlockDevice,
        work: impl FnOnce(&FecLayout, &FecDevices<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (Some(Parity { image, layout, .. }), Some(fec)) = (&self.parity, &self.stored.fec) else {
            return Err(Error::argument("there is no device with parity"));
        };
        let parity = named(image);
        work(layout, &FecDevices { data, hash, parity: &parity, parity_offset: fec.offset })
    }
}

/// A file that is written: in place if it was there before, else aside.
enum Target {
    Existing(Image),
    New(OutputFile),
}

impl Target {
    fn open(location: &Location) -> Result<Target, Error> {
        match location {
            Location::Path(path) if !fs::exists(path).at(path.display())? => {
                Ok(Target::New(OutputFile::create(path).at(path.display())?))
            }
            _ => Ok(Target::Existing(location.open(true)?)),
        }
    }

    fn device(&self) -> &dyn BlockDevice {
        match self {
            Target::Existing(image) => image.top(),
            Target::New(output) => output.device(),
        }
    }

    fn commit(self, location: &Location) -> Result<(), Error> {
        match self {
            Target::Existing(_) => Ok(()),
            Target::New(output) => output.commit(true).at(location),
        }
    }

    /// Adds to an error what it has left of a file that was there before.
    fn left_behind(&self, error: Error, location: &Location) -> Error {
        match self {
            Target::Existing(_) => {
                with_remains(error, || format!("{location} was begun and is not whole, format it again"))
            }
            Target::New(_) => error,
        }
    }
}

/// Adds to an I/O error, or an interruption, what it has left on disk.
fn with_remains(error: Error, remains: impl FnOnce() -> String) -> Error {
    match error.io_kind() {
        Some(_) => error.map_text(|text| format!("{text}; {}", remains())),
        None => error,
    }
}

fn named(image: &Image) -> Named<&dyn BlockDevice> {
    Named::new(image.name(), image.top())
}

pub(crate) fn layout_of(
    name: impl fmt::Display,
    hash: &dyn BlockDevice,
    hash_offset: u64,
) -> Result<Layout, Error> {
    if !hash_offset.is_multiple_of(512) {
        return Err(Error::argument(format!("hash offset {hash_offset} is no multiple of 512")));
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    hash.read_at(&mut bytes, hash_offset).map_err(|error| match error.io_kind() {
        Some(io::ErrorKind::UnexpectedEof) => {
            let size = hash.size();
            Error::corrupt(format!(
                "{name}: no verity superblock at {hash_offset}: the file has {size} bytes"
            ))
        }
        _ => error.at(&name),
    })?;
    let layout = Superblock::from_bytes(&bytes).and_then(|found| Layout::from_superblock(found, hash_offset));
    layout.map_err(|error| error.at(&name))
}

/// The number of roots whose parity has so many bytes; more roots always need more.
fn roots_of(layout: &Layout, metadata_end: u64, size: u64) -> Option<u32> {
    (2..=24).find(|roots| {
        FecLayout::new(layout, *roots, metadata_end).is_ok_and(|layout| layout.parity_size() == size)
    })
}

/// As many as veritysetup takes where nothing is said.
const ROOTS: u32 = 2;

/// Checks that the parity overlaps nothing, and says whether it is on the hash device.
fn check_parity_place(fec: &Fec, layout: &Layout, data: &Location, hash: &Location) -> Result<bool, Error> {
    let block_size = u64::from(layout.parameters().data_block_size.bytes());
    if !fec.offset.is_multiple_of(block_size) {
        let text = format!("parity offset {} is no multiple of the block size {block_size}", fec.offset);
        return Err(Error::argument(text));
    }
    let on_hash_device = fec.device.is_same(hash);
    let mut free = if on_hash_device { layout.hash_device_size() } else { 0 };
    if fec.device.is_same(data) {
        free = free.max(layout.geometry().data_size());
    }
    if fec.offset < free {
        return Err(Error::argument(format!(
            "the parity at {} overlaps the data or the hash area in {}; it can begin at {free}",
            fec.offset, fec.device
        )));
    }
    Ok(on_hash_device)
}
