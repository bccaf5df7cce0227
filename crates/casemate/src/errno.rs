//! Errors as the system's numbers, for other languages.

use std::io::ErrorKind as Io;

use rustix::io::Errno;

use crate::{Error, ErrorKind};

/// The system's number of an error that is one of I/O, or of somebody else's use; none for other families.
///
/// ```
/// use casemate::{Access, Image};
///
/// let error = Image::open("/none", Access::Read).unwrap_err();
/// assert_eq!(casemate::errno(&error), Some(2));
/// assert_eq!(casemate::errno(&casemate::Error::corrupt("a superblock without a magic number")), None);
/// ```
pub fn errno(error: &Error) -> Option<i32> {
    if let Some(number) = error.raw_os_error() {
        return Some(number);
    }
    let number = match (error.kind(), error.io_kind()?) {
        (ErrorKind::Interrupted, _) => return None,
        (ErrorKind::Busy, _) => Errno::BUSY,
        (_, Io::NotFound) => Errno::NOENT,
        (_, Io::PermissionDenied) => Errno::ACCESS,
        (_, Io::AlreadyExists) => Errno::EXIST,
        (_, Io::NotADirectory) => Errno::NOTDIR,
        (_, Io::IsADirectory) => Errno::ISDIR,
        (_, Io::DirectoryNotEmpty) => Errno::NOTEMPTY,
        (_, Io::ReadOnlyFilesystem) => Errno::ROFS,
        (_, Io::StorageFull) => Errno::NOSPC,
        (_, Io::FileTooLarge) => Errno::FBIG,
        (_, Io::InvalidFilename) => Errno::NAMETOOLONG,
        (_, Io::InvalidInput) => Errno::INVAL,
        (_, Io::TooManyLinks) => Errno::MLINK,
        (_, Io::CrossesDevices) => Errno::XDEV,
        (_, Io::BrokenPipe) => Errno::PIPE,
        _ => Errno::IO,
    };
    Some(number.raw_os_error())
}
