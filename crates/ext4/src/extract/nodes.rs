//! Making single files in a folder, by the descriptor of the folder and never by a path.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType as HostType, Mode, OFlags, Timespec, Timestamps, XattrFlags, chmodat, chownat, fchmod,
    fchown, fsetxattr, futimens, linkat, mkdirat, mknodat, openat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::error::{Error, Result};
use crate::extract::ExtractOptions;
use crate::inode::{FileType, Inode, Time};
use crate::xattr::Xattr;

/// A name as system calls take it; names from directories hold no NUL.
pub(crate) fn c_name(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|error| std::io::Error::from(error).into())
}

/// Opens the folder at a path below `root`, following no link.
pub(crate) fn open_folder(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = open(root, c".", flags)?;
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        folder = open(folder.as_fd(), &c_name(part)?, flags)?;
    }
    Ok(folder)
}

fn open(folder: BorrowedFd<'_>, name: &std::ffi::CStr, flags: OFlags) -> Result<OwnedFd> {
    openat(folder, name, flags, Mode::empty()).map_err(host)
}

/// Makes a folder that only we can enter until its attributes are set.
pub(crate) fn make_folder(parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    match mkdirat(parent, c_name(name)?, Mode::RWXU) {
        // One that is there already is used, as tar does; a link to one is not.
        Err(Errno::EXIST) => open_folder(parent, name).map(|_| ()),
        result => result.map_err(host),
    }
}

/// Makes a regular file that was not there before.
pub(crate) fn make_file(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, c_name(name)?, flags, Mode::RUSR | Mode::WUSR).map_err(host)
}

/// Removes a file whose contents were not to be had.
pub(crate) fn remove(parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    unlinkat(parent, c_name(name)?, AtFlags::empty()).map_err(host)
}

/// Makes another name for a file.
pub(crate) fn make_link(from: BorrowedFd<'_>, old: &[u8], parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    linkat(from, c_name(old)?, parent, c_name(name)?, AtFlags::empty()).map_err(host)
}

/// Makes a symbolic link.
pub(crate) fn make_symlink(target: &[u8], parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    symlinkat(c_name(target)?, parent, c_name(name)?).map_err(host)
}

/// Makes a device node, fifo or socket.
pub(crate) fn make_special(inode: &Inode, parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    let kind = match inode.kind() {
        FileType::CharacterDevice => HostType::CharacterDevice,
        FileType::BlockDevice => HostType::BlockDevice,
        FileType::Fifo => HostType::Fifo,
        _ => HostType::Socket,
    };
    let device = inode.device().map_or(0, |(major, minor)| rustix::fs::makedev(major, minor));
    mknodat(parent, c_name(name)?, kind, Mode::RUSR | Mode::WUSR, device).map_err(host)
}

/// Restores owner, attributes, mode and times of an open file or folder, in this order: a new owner clears
/// bits of the mode, and everything changes the times.
///
/// What could not be restored is returned, and the rest is.
pub(crate) fn restore(
    file: BorrowedFd<'_>,
    inode: &Inode,
    xattrs: &[Xattr],
    options: &ExtractOptions<'_>,
) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut note = |what: &str, result: rustix::io::Result<()>| {
        if let Err(error) = result {
            errors.push(with_context(what, error));
        }
    };
    if options.owners {
        note("owner", fchown(file, Some(Uid::from_raw(inode.uid())), Some(Gid::from_raw(inode.gid()))));
    }
    for xattr in xattrs {
        let shown = String::from_utf8_lossy(&xattr.name);
        if let Ok(name) = CString::new(xattr.name.clone()) {
            note(&shown, fsetxattr(file, name, &xattr.value, XattrFlags::empty()));
        }
    }
    note("mode", fchmod(file, mode(inode)));
    note("times", futimens(file, &times(inode)));
    errors
}

/// The same for what can't be opened: links (whose mode and attributes nobody has) and special files.
pub(crate) fn restore_at(
    parent: BorrowedFd<'_>,
    name: &[u8],
    inode: &Inode,
    options: &ExtractOptions<'_>,
) -> Result<Vec<Error>> {
    let name = c_name(name)?;
    let mut errors = Vec::new();
    let mut note = |what: &str, result: rustix::io::Result<()>| {
        if let Err(error) = result {
            errors.push(with_context(what, error));
        }
    };
    if options.owners {
        let (uid, gid) = (Uid::from_raw(inode.uid()), Gid::from_raw(inode.gid()));
        note("owner", chownat(parent, &name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW));
    }
    if inode.kind() != FileType::Symlink {
        // We made this node a moment ago in a folder of ours: it is no link.
        note("mode", chmodat(parent, &name, mode(inode), AtFlags::empty()));
    }
    note("times", utimensat(parent, &name, &times(inode), AtFlags::SYMLINK_NOFOLLOW));
    Ok(errors)
}

/// An error of the host, as the rest of this crate has them.
pub(crate) fn host(error: Errno) -> Error {
    error.into()
}

fn with_context(what: &str, error: Errno) -> Error {
    Error::from(error).map_text(|text| format!("{what} not restored: {text}"))
}

fn mode(inode: &Inode) -> Mode {
    Mode::from_raw_mode(u32::from(inode.mode() & 0o7777))
}

fn times(inode: &Inode) -> Timestamps {
    let time = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: time(inode.accessed()), last_modification: time(inode.modified()) }
}
