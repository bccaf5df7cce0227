//! dm-verity by path: making hash areas, checking data against them, and bringing them up to date.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use casemate_blockdev::{BlockDevice, FileDevice, OutputFile};
use casemate_verity::dm;
use casemate_verity::tree::{Finding, Ranges, Summary};

pub use casemate_verity::dm::{
    BlockSize, HashType, Layout, OnFault, Parameters, SUPERBLOCK_SIZE, Salt, Seed, Superblock, Table,
    TableFec, Uuid, Worker, partition_uuids, random_salt,
};
pub use casemate_verity::hex;

use crate::Error;
use crate::named::Named;

/// What [`format()`] is to make.
#[derive(Clone, Debug)]
pub struct Format {
    /// How blocks are hashed.
    pub parameters: Parameters,
    /// The data: a file or a block device.
    pub data: PathBuf,
    /// Where the hash area goes; it may be the same as `data`.
    pub hash: PathBuf,
    /// How many data blocks are protected; all if not said. A last part block is not.
    pub data_blocks: Option<u64>,
    /// Where the hash area begins in `hash`, in bytes.
    pub hash_offset: u64,
    /// The UUID in the superblock; no superblock is written without.
    pub uuid: Option<Uuid>,
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

/// Data with its hash area.
#[derive(Debug)]
pub struct Volume {
    data_path: PathBuf,
    data: FileDevice,
    hash_path: PathBuf,
    hash: FileDevice,
    layout: Layout,
}

/// How many bytes of data will be protected.
///
/// # Errors
/// `Io` if the data can't be opened.
pub fn data_size(format: &Format) -> Result<u64, Error> {
    let size = open(&format.data, false)?.size();
    let block_size = u64::from(format.parameters.data_block_size.bytes());
    Ok(format.data_blocks.map_or(size, |blocks| blocks.saturating_mul(block_size)))
}

/// Makes a hash area. Returns where everything lies, and the root hash.
///
/// A hash file that does not exist is there whole or not at all. One that exists, or a block device, is written
/// in place, the superblock last.
///
/// # Errors
/// `Argument` for what can't be, `Io` says which file; if an existing file was left with half a hash area, it
/// says this too.
pub fn format(format: &Format, worker: &Worker<'_>) -> Result<(Layout, Vec<u8>), Error> {
    let data = open(&format.data, false)?;
    let block_size = u64::from(format.parameters.data_block_size.bytes());
    let data_blocks = format.data_blocks.unwrap_or(data.size() / block_size);
    let layout = Layout::new(format.parameters.clone(), data_blocks, format.hash_offset, format.uuid);
    let layout = layout.map_err(|error| Error::at(format.data.display(), error))?;
    let on_hash = |error| Error::io(format.hash.display(), error);
    let named_data = Named { path: &format.data, device: &data };
    let make = |hash: &FileDevice| {
        let named_hash = Named { path: &format.hash, device: hash };
        Ok(dm::format(&layout, &named_data, &named_hash, worker)?)
    };
    let root_hash = if fs::exists(&format.hash).map_err(on_hash)? {
        let hash = open(&format.hash, true)?;
        if is_same(&format.data, &format.hash)? {
            layout.check_one_device()?;
        }
        make(&hash).map_err(|error| left_behind(error, &format.hash))?
    } else {
        let output = OutputFile::create(&format.hash).map_err(on_hash)?;
        let root_hash = make(output.device())?;
        output.commit(true).map_err(on_hash)?;
        root_hash
    };
    Ok((layout, root_hash))
}

/// Reads the superblock at byte `hash_offset` of a file.
///
/// # Errors
/// `Corrupt` or `Unsupported` if there is none that makes sense, `Io`.
pub fn read_superblock(hash: &Path, hash_offset: u64) -> Result<Layout, Error> {
    layout_of(hash, &open(hash, false)?, hash_offset)
}

impl Volume {
    /// Opens data and its hash area; with `writable`, the hash area can be updated.
    ///
    /// # Errors
    /// Those of [`read_superblock`]; `Argument` for given parameters that can't be.
    pub fn open(
        data: &Path,
        hash: &Path,
        hash_offset: u64,
        source: Source,
        writable: bool,
    ) -> Result<Volume, Error> {
        let data_device = open(data, false)?;
        let hash_device = open(hash, writable)?;
        let layout = match source {
            Source::Superblock => layout_of(hash, &hash_device, hash_offset)?,
            Source::Given { parameters, data_blocks } => {
                let block_size = u64::from(parameters.data_block_size.bytes());
                let data_blocks = data_blocks.unwrap_or(data_device.size() / block_size);
                Layout::new(parameters, data_blocks, hash_offset, None)
                    .map_err(|error| Error::at(data.display(), error))?
            }
        };
        Ok(Volume {
            data_path: data.to_owned(),
            data: data_device,
            hash_path: hash.to_owned(),
            hash: hash_device,
            layout,
        })
    }

    /// Checks everything below `root_hash`; `report` hears of each wrong block.
    ///
    /// # Errors
    /// `Argument` if the root hash has a wrong length, `Corrupt` if a file is cut off, `Io`.
    pub fn verify(
        &self,
        root_hash: &[u8],
        worker: &Worker<'_>,
        report: &mut (dyn FnMut(Finding) -> io::Result<()> + Send),
    ) -> Result<Summary, Error> {
        let (data, hash) = self.named();
        Ok(dm::verify(&self.layout, &data, &hash, root_hash, worker, report)?)
    }

    /// Brings the hash area up to date after the data blocks in `changed` have changed; returns the new root
    /// hash. With `old_root` the hash blocks that will change are checked against it first.
    ///
    /// # Errors
    /// `Mismatch` if they do not belong to `old_root`; nothing is changed then. `Argument`, `Corrupt`, `Io`.
    pub fn update(
        &self,
        changed: &Ranges,
        old_root: Option<&[u8]>,
        worker: &Worker<'_>,
    ) -> Result<Vec<u8>, Error> {
        let (data, hash) = self.named();
        Ok(dm::update(&self.layout, &data, &hash, changed, old_root, worker)?)
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

    fn named(&self) -> (Named<'_>, Named<'_>) {
        let data = Named { path: &self.data_path, device: &self.data };
        (data, Named { path: &self.hash_path, device: &self.hash })
    }
}

fn open(path: &Path, writable: bool) -> Result<FileDevice, Error> {
    let opened = if writable { FileDevice::open_writable(path) } else { FileDevice::open(path) };
    opened.map_err(|error| Error::io(path.display(), error))
}

fn layout_of(path: &Path, hash: &FileDevice, hash_offset: u64) -> Result<Layout, Error> {
    if !hash_offset.is_multiple_of(512) {
        return Err(Error::Argument(format!("hash offset {hash_offset} is no multiple of 512")));
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    hash.read_at(&mut bytes, hash_offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            let size = hash.size();
            Error::Corrupt(format!(
                "{}: no verity superblock at {hash_offset}: the file has {size} bytes",
                path.display()
            ))
        }
        _ => Error::io(path.display(), error),
    })?;
    let layout = Superblock::from_bytes(&bytes).and_then(|found| Layout::from_superblock(found, hash_offset));
    layout.map_err(|error| Error::at(path.display(), error))
}

/// Whether two paths lead to the same file or block device.
fn is_same(one: &Path, other: &Path) -> Result<bool, Error> {
    let identity = |path: &Path| {
        let metadata = fs::metadata(path).map_err(|error| Error::io(path.display(), error))?;
        Ok::<_, Error>(match metadata.file_type().is_block_device() {
            true => (metadata.rdev(), 0),
            false => (metadata.dev(), metadata.ino()),
        })
    };
    Ok(identity(one)? == identity(other)?)
}

/// Adds to an error what it has left of a file that was there before.
fn left_behind(error: Error, path: &Path) -> Error {
    match error {
        Error::Io(place, error) => {
            let text = format!("{error}; the hash area in {} is not whole, format it again", path.display());
            Error::Io(place, io::Error::new(error.kind(), text))
        }
        other => other,
    }
}
