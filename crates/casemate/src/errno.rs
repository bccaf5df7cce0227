//! Errors as numbers of the system's C library, for other languages.

use crate::{Code, Error, ErrorKind};

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
    if !matches!(error.kind(), ErrorKind::Io | ErrorKind::Busy) {
        return None;
    }
    let number = match error.code() {
        Code::InUse | Code::Changed => libc::EBUSY,
        Code::LinkLoop => libc::ELOOP,
        Code::NotFound => libc::ENOENT,
        Code::NotPermitted => libc::EACCES,
        Code::Exists => libc::EEXIST,
        Code::NotDirectory => libc::ENOTDIR,
        Code::IsDirectory => libc::EISDIR,
        Code::NotEmpty => libc::ENOTEMPTY,
        Code::ReadOnly => libc::EROFS,
        Code::NoRoom => libc::ENOSPC,
        Code::TooLarge => libc::EFBIG,
        Code::BadName => libc::ENAMETOOLONG,
        Code::Invalid => libc::EINVAL,
        Code::TooManyLinks => libc::EMLINK,
        Code::CrossesDevices => libc::EXDEV,
        Code::BrokenPipe => libc::EPIPE,
        _ => libc::EIO,
    };
    Some(number)
}
