//! Functions that all Unix systems have.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

pub use std::os::unix::ffi::{OsStrExt, OsStringExt};
pub use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, OpenOptionsExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::{Gid, Mode, SeekFrom};
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
/// Errors of fstat(2).
pub fn mode(file: &File) -> io::Result<u32> {
    Ok(permissions(&file.metadata()?))
}

/// The permissions that metadata of a file have.
pub fn permissions(metadata: &Metadata) -> u32 {
    metadata.permissions().mode() & 0o7777
}

/// The permissions of a file that replaces another one: those of the other, if this user owns it. Who prepared a file for another
/// user to replace decides nothing: then they are those of a new file, or fewer.
pub fn permissions_after(file: &File, other: &Metadata) -> u32 {
    let mode = permissions(other) & 0o777;
    if other.uid() != rustix::process::geteuid().as_raw() {
        return mode & 0o666 & !umask();
    }
    let group = rustix::fs::fchown(file, None, Some(Gid::from_raw(other.gid())));
    // The rights of one group are not another's.
    if group.is_ok() { mode } else { mode & !0o070 }
}

/// The permissions that new files of this process do not get.
pub fn umask() -> u32 {
    // Linux tells it without a change.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let told = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    if let Some(umask) = told.and_then(|told| u32::from_str_radix(told.trim(), 8).ok()) {
        return umask;
    }
    static ASKING: Mutex<()> = Mutex::new(());
    let _one = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    // Elsewhere it can be asked for only by setting it. A file that another thread makes in between is its owner's alone.
    let umask = rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::umask(umask);
    umask.as_raw_mode()
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

/// Opens a regular file for reading. Nothing else is opened: a FIFO would wait for somebody at its other end.
///
/// # Errors
/// Errors of the system; `InvalidInput` for a file of another kind.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let is_regular = |metadata: fs::Metadata| match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    };
    is_regular(fs::metadata(path)?)?;
    // Another file may have got the name meanwhile.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    is_regular(file.metadata()?)?;
    Ok(file)
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

/// Whether an open file has no name any more.
pub(crate) fn is_removed(metadata: &Metadata) -> bool {
    metadata.nlink() == 0
}

pub(crate) fn id_of(file: &File) -> io::Result<FileId> {
    Ok(FileId::of(&file.metadata()?))
}

/// The regular file or block device that standard input is.
pub(crate) fn standard_input() -> Option<FileId> {
    stored(io::stdin()).map(|metadata| FileId::of(&metadata))
}

/// The regular file or block device that standard output is, and whether it has contents.
pub(crate) fn standard_output() -> Option<(FileId, bool)> {
    stored(io::stdout()).map(|metadata| (FileId::of(&metadata), !metadata.is_file() || metadata.len() > 0))
}

/// Metadata of a stream that is a regular file or a block device.
fn stored(stream: impl AsFd) -> Option<Metadata> {
    let file = stream.as_fd().try_clone_to_owned().map(File::from).ok()?;
    file.metadata().ok().filter(|metadata| metadata.is_file() || metadata.file_type().is_block_device())
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
