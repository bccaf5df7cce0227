//! What making files below a folder needs: paths, and attributes as system calls take them.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, Timespec, Timestamps, openat};
use rustix::io::Errno;

use super::tar::{Member, Time};
use crate::Error;

/// Opens the folder at a path below `root`, following no link.
pub(super) fn open_folder(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |folder: BorrowedFd<'_>, name: &[u8]| {
        openat(folder, c_name(name)?, flags, Mode::empty()).map_err(|error| host(path, error))
    };
    let mut folder = open(root, b".")?;
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        folder = open(folder.as_fd(), part)?;
    }
    Ok(folder)
}

/// The path of a name in a folder.
pub(super) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

/// A name as system calls take it.
pub(super) fn c_name(name: &[u8]) -> Result<CString, Error> {
    CString::new(name).map_err(|_| Error::corrupt("a name with a NUL"))
}

/// An error of the host at a path.
pub(super) fn host(path: &[u8], error: Errno) -> Error {
    Error::io(String::from_utf8_lossy(path), error)
}

/// Bits of the mode that files keep.
pub(super) fn mode(member: &Member) -> Mode {
    Mode::from_raw_mode(member.mode & 0o7777)
}

/// Access and modification; the second stands for the first where that is not told.
pub(super) fn times(member: &Member) -> Timestamps {
    let time = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    let modified = member.modified;
    Timestamps { last_access: time(member.accessed.unwrap_or(modified)), last_modification: time(modified) }
}
