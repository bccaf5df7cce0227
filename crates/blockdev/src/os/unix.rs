//! Functions that all Unix systems have.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;

pub use std::os::unix::ffi::{OsStrExt, OsStringExt};
pub use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, OpenOptionsExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::identity::FileId;

/// The path that has these bytes.
pub fn path(bytes: &[u8]) -> Cow<'_, Path> {
    Path::new(OsStr::from_bytes(bytes)).into()
}

/// Gives a file its mode.
///
/// # Errors
/// Errors of the system.
pub fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// The permissions of a file.
///
/// # Errors
/// Those of fstat(2).
pub fn mode(file: &File) -> io::Result<u32> {
    Ok(file.metadata()?.permissions().mode() & 0o7777)
}

/// The device and the inode of a file, as far as its metadata tells them.
pub fn inode(metadata: &Metadata) -> Option<(u64, u64)> {
    Some((metadata.dev(), metadata.ino()))
}

/// The name of this machine.
pub fn host_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

/// Whether files may be given to others.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Standard input as a file.
///
/// # Errors
/// Errors of the system.
pub fn input() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Reads standard input without the standard library's buffer, which nobody wipes.
///
/// # Errors
/// Errors of the system.
pub fn read_input(buffer: &mut [u8]) -> io::Result<usize> {
    super::wait_to_read(io::stdin())?;
    Ok(rustix::io::read(io::stdin(), buffer)?)
}

pub(crate) fn id_of(file: &File) -> io::Result<FileId> {
    Ok(FileId::of(&file.metadata()?))
}

pub(crate) fn id_at(path: &Path) -> io::Result<FileId> {
    Ok(FileId::of(&fs::metadata(path)?))
}

/// Some file systems have no locks, or none for files that are open for reading only.
pub(crate) fn has_no_locks(error: &io::Error) -> bool {
    let without = [Errno::NOSYS, Errno::NOTSUP, Errno::NOLCK, Errno::INVAL, Errno::BADF];
    Errno::from_io_error(error).is_some_and(|error| without.contains(&error))
}

/// Puts what names a folder has on stable storage.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

pub(crate) fn next_data(file: &File, offset: u64, size: u64) -> Option<Range<u64>> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return None,
        // Block devices and some file systems know no holes: everything is data.
        Err(_) => return Some(offset..size),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size);
    Some(start..end)
}
