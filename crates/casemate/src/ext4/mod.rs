//! ext4 images by path: opening, reading, copying out, checking and changing.

mod change;
mod contents;
mod encrypted;

use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileDevice, Pool, Progress, Window, partitions};
use casemate_ext4::{Compat, RecoveryFile, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use casemate_fscrypt::{Crypto, Keyring};
use casemate_primitives::Cpu;

pub use casemate_ext4::Error as ReadError;
pub use casemate_ext4::csum::Kind as ChecksumKind;
pub use casemate_ext4::{
    CheckReport, Corrupt, DirEntry, Ext4, ExtractReport, Failure, FileReader, FileType, Inode, InodeFlags,
    Place, Problem, SeenDirectories, Structure, Superblock, Time, Xattr, check_size, uuid_text,
};

use crate::Error;
use crate::image::{self, Access};

pub use change::{
    Changing, Interrupted, Locked, NewNode, NewPolicy, PutOptions, PutReport, Writer, lock_for_change,
    open_for_change, set_policy,
};
pub use contents::{VerityInfo, VerityPolicy, open_file, verity_info};
pub use encrypted::{EncryptionInfo, encryption_info};

/// Where a file system lies.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The image file or block device.
    pub path: PathBuf,
    /// The byte that it begins at.
    pub offset: u64,
    /// The partition that it lies in, counted from 1, instead of an offset.
    pub partition: Option<u32>,
}

/// How to read a file system.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Whose instructions to use.
    pub cpu: Cpu,
    /// Whether damaged metadata is refused.
    pub verify_checksums: bool,
    /// Whether a journal that must be replayed is, in memory, and a change that was kept beside the image.
    pub replay_journal: bool,
    /// The keys of encrypted files, if there are any. Without a file's key its name is shown as the kernel shows
    /// it then.
    pub keys: Option<Arc<Keyring>>,
}

impl Reading {
    fn options(&self) -> casemate_ext4::OpenOptions {
        let keys = match &self.keys {
            Some(keys) => Arc::clone(keys),
            None => Arc::new(Keyring::new(Crypto::new(self.cpu))),
        };
        casemate_ext4::OpenOptions {
            cpu: self.cpu,
            verify_checksums: self.verify_checksums,
            replay_journal: self.replay_journal,
            encryption: Some(Arc::new(encrypted::Unlocked(keys))),
        }
    }
}

/// What [`extract`] restores, and from where it takes contents.
#[derive(Clone, Copy, Debug)]
pub struct Extracting {
    /// Whether owners are restored. In a folder only root can; for others this changes nothing there.
    pub owners: bool,
    /// Whether extended attributes are restored.
    pub xattrs: bool,
    /// What is demanded of files with and without fs-verity.
    pub verity: VerityPolicy,
}

/// Where [`extract`] copies to.
pub enum Target<'a> {
    /// A folder, made if it is not there.
    Folder(&'a Path),
    /// A tar stream.
    Tar(&'a mut dyn std::io::Write),
}

/// The device that a file system lies on, for reading.
///
/// # Errors
/// `Io` if it can't be opened; `Argument` for a partition or an offset that does not exist.
pub fn device(source: &Source) -> Result<Arc<dyn BlockDevice>, Error> {
    within(source, image::open(&source.path, Access::Read)?).map(|(device, _)| device)
}

/// The device that a file system lies on, for reading, as it will be once a change that was interrupted is complete,
/// and whether there was one. It is kept in `recovery_file`, beside the image if `None`.
///
/// # Errors
/// As [`device`]; `Unsupported` if the file system is not clean, and the file does not fit it.
pub fn completed(
    source: &Source,
    recovery_file: Option<&Path>,
) -> Result<(Arc<dyn BlockDevice>, bool), Error> {
    let name = source.path.display();
    let file = image::open(&source.path, Access::Read)?;
    let is_image = is_image(&file).map_err(|error| Error::io(&name, error))?;
    let (device, start) = within(source, file)?;
    let beside = || is_image.then(|| beside(&source.path, start));
    let Some(path) = recovery_file.map(Path::to_owned).or_else(beside) else { return Ok((device, false)) };
    let over = RecoveryFile::new(path).over(&device).map_err(|error| error.at(&name))?;
    let is_interrupted = over.is_some();
    Ok((over.unwrap_or(device), is_interrupted))
}

/// Where changes of a file system that begins at byte `start` of an image are kept until they are complete.
fn beside(image: &Path, start: u64) -> PathBuf {
    let mut path = OsString::from(image);
    path.push(".casemate-redo");
    if start > 0 {
        path.push(format!(".{start}"));
    }
    path.into()
}

/// Whether it is a file: beside a block device is no place for others.
fn is_image(file: &FileDevice) -> std::io::Result<bool> {
    Ok(!file.file().metadata()?.file_type().is_block_device())
}

/// The part of an opened image that a file system lies on, and the byte that it begins at.
fn within(source: &Source, file: FileDevice) -> Result<(Arc<dyn BlockDevice>, u64), Error> {
    let name = source.path.display();
    let (start, len) = match source.partition {
        None => (source.offset, file.size().saturating_sub(source.offset)),
        Some(number) => {
            let list = partitions(&file).map_err(|error| Error::argument(format!("{name}: {error}")))?;
            let found = list.iter().find(|partition| partition.number == number);
            let Some(found) = found else {
                let all: Vec<_> = list.iter().map(|partition| partition.number.to_string()).collect();
                let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
                return Err(Error::argument(format!("{name}: no partition {number}; there are: {all}")));
            };
            (found.start, found.len)
        }
    };
    if start == 0 && len == file.size() {
        return Ok((Arc::new(file), 0));
    }
    let window =
        Window::new(file, start, len).map_err(|error| Error::argument(format!("{name}: {error}")))?;
    Ok((Arc::new(window), start))
}

/// Opens a file system for reading.
///
/// # Errors
/// `Corrupt` if it is none or damaged, `Unsupported` for features that a reader must know.
pub fn open(source: &Source, reading: &Reading) -> Result<Ext4, Error> {
    let device = if reading.replay_journal { completed(source, None)?.0 } else { device(source)? };
    open_device(device, source.path.display(), reading)
}

/// Whether a file system without a journal was left in the middle of changes. Damaged ones are for others to tell.
pub fn is_half_changed(device: &Arc<dyn BlockDevice>) -> bool {
    let mut raw = [0; SUPERBLOCK_SIZE];
    let superblock =
        device.read_at(&mut raw, SUPERBLOCK_OFFSET).ok().and_then(|()| Superblock::from_bytes(&raw).ok());
    superblock.is_some_and(|superblock| !superblock.compat.has(Compat::HAS_JOURNAL) && !superblock.is_clean())
}

/// Opens the file system on any device for reading; errors call it `name`.
///
/// # Errors
/// As [`open`].
pub fn open_device(
    device: Arc<dyn BlockDevice>,
    name: impl fmt::Display,
    reading: &Reading,
) -> Result<Ext4, Error> {
    Ext4::open(device, &reading.options()).map_err(|error| error.at(name))
}

/// Copies what is below `top` out of a file system.
///
/// # Errors
/// What ends the whole copy; what keeps single files from being copied is in the report.
pub fn extract(
    fs: &Ext4,
    top: &Inode,
    target: Target<'_>,
    extracting: &Extracting,
    cpu: Cpu,
    pool: Pool,
    progress: &dyn Progress,
) -> Result<ExtractReport, Error> {
    let contents = contents::Checked { policy: extracting.verity, cpu };
    let can_give = matches!(target, Target::Tar(_)) || rustix::process::geteuid().is_root();
    let options = casemate_ext4::ExtractOptions {
        owners: extracting.owners && can_give,
        xattrs: extracting.xattrs,
        contents: &contents,
        pool,
        progress,
    };
    match target {
        Target::Folder(folder) => casemate_ext4::extract_to_folder(fs, top, folder, &options)
            .map_err(|error| error.at(folder.display())),
        Target::Tar(out) => {
            casemate_ext4::extract_to_tar(fs, top, out, &options).map_err(|error| error.at("tar stream"))
        }
    }
}

/// Checks every metadata checksum of the file system on a device, which errors call `name`.
///
/// # Errors
/// Whatever keeps the check from being done; damage is in the report.
pub fn check(
    device: Arc<dyn BlockDevice>,
    name: impl fmt::Display,
    reading: &Reading,
    pool: Pool,
    progress: &dyn Progress,
) -> Result<CheckReport, Error> {
    casemate_ext4::check(device, &reading.options(), pool, progress).map_err(|error| error.at(name))
}

/// Rewrites all metadata checksums that do not fit, and nothing else. Returns what was rewritten and what is
/// still wrong.
///
/// # Errors
/// `Unsupported` if the journal must be replayed first, or a change completed that is kept beside the image, or for
/// features that a writer must know; as [`lock_for_change`].
pub fn fix_checksums(
    source: &Source,
    reading: &Reading,
    pool: Pool,
    progress: &dyn Progress,
) -> Result<(Vec<Corrupt>, CheckReport), Error> {
    if completed(source, None)?.1 {
        return Err(Error::unsupported(format!(
            "{}: a change was interrupted, and must be completed before checksums are rewritten: casemate ext4 recover",
            source.path.display()
        )));
    }
    let device = lock_for_change(source)?.device();
    casemate_ext4::fix_checksums(device, &reading.options(), pool, progress)
        .map_err(|error| error.at(source.path.display()))
}
