//! The calls as Unix has them.

use std::ffi::CStr;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
pub use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub use rustix::fs::{
    AtFlags, Dir, FileType as HostType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
    chmodat, chownat, fchmod, fchown, fgetxattr, flistxattr, fsetxattr, fstat, futimens, lgetxattr, linkat,
    llistxattr, major, makedev, minor, mkdirat, open, openat, readlinkat, stat, statat, symlinkat, unlinkat,
    utimensat,
};
pub use rustix::io::{Errno, Result};

/// How a folder is opened that is only gone through.
#[cfg(target_os = "linux")]
pub const WAY: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
pub const WAY: OFlags = OFlags::RDONLY;

/// The device and inode of a file.
#[allow(clippy::as_conversions, clippy::unnecessary_cast)] // Their types are each system's own.
pub fn inode(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// The number of the device that a node is.
#[allow(clippy::as_conversions, clippy::unnecessary_cast)] // Its type is each system's own.
pub fn device(stat: &Stat) -> u64 {
    stat.st_rdev as u64
}

/// Sets an attribute of a file that was opened for nothing but its name, a symbolic link among them.
#[cfg(target_os = "linux")]
pub fn set_xattr_of(file: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> Result<()> {
    // The path leads to the file itself, also if that is a link. No call takes such a descriptor before Linux 6.13.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::setxattr(path, name, value, XattrFlags::empty())
}

/// There is no such call.
#[cfg(not(target_os = "linux"))]
pub fn set_xattr_of(_: BorrowedFd<'_>, _: &CStr, _: &[u8]) -> Result<()> {
    Err(Errno::NOTSUP)
}

#[cfg(not(target_vendor = "apple"))]
pub use rustix::fs::mknodat;

/// There is no such call by folder.
#[cfg(target_vendor = "apple")]
pub fn mknodat<N>(_: BorrowedFd<'_>, _: std::ffi::CString, _: HostType, _: Mode, _: N) -> Result<()> {
    Err(Errno::NOTSUP)
}
