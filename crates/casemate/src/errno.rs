//! Errors as numbers of the system's C library, for other languages.

use std::io::ErrorKind as Io;

use crate::{Error, ErrorKind};

/// The C library's number of an error that is one of I/O, or of somebody else's use; none for other families.
///
/// ```
/// use casemate::{Access, Image};
///
/// let error = Image::open("/none", Access::Read).unwrap_err();
/// assert_eq!(casemate::errno(&error), Some(2));
/// assert_eq!(casemate::errno(&casemate::Error::corrupt("a superblock without a magic number")), None);
/// ```
pub fn errno(error: &Error) -> Option<i32> {
    // Windows has numbers of its own, by which C programs know nothing.
    if let (true, Some(number)) = (cfg!(unix), error.raw_os_error()) {
        return Some(number);
    }
    let number = match (error.kind(), error.io_kind()?) {
        (ErrorKind::Interrupted, _) => return None,
        (ErrorKind::Busy, _) => libc::EBUSY,
        _ if error.is_link_loop() => libc::ELOOP,
        (_, Io::NotFound) => libc::ENOENT,
        (_, Io::PermissionDenied) => libc::EACCES,
        (_, Io::AlreadyExists) => libc::EEXIST,
        (_, Io::NotADirectory) => libc::ENOTDIR,
        (_, Io::IsADirectory) => libc::EISDIR,
        (_, Io::DirectoryNotEmpty) => libc::ENOTEMPTY,
        (_, Io::ReadOnlyFilesystem) => libc::EROFS,
        (_, Io::StorageFull) => libc::ENOSPC,
        (_, Io::FileTooLarge) => libc::EFBIG,
        (_, Io::InvalidFilename) => libc::ENAMETOOLONG,
        (_, Io::InvalidInput) => libc::EINVAL,
        (_, Io::TooManyLinks) => libc::EMLINK,
        (_, Io::CrossesDevices) => libc::EXDEV,
        (_, Io::BrokenPipe) => libc::EPIPE,
        _ => libc::EIO,
    };
    Some(number)
}
