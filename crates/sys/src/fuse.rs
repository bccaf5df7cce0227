//! An ioctl of FUSE's device, as a safe function.
//!
//! Source: `include/uapi/linux/fuse.h`.

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE`.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// Whether threads can read the requests of one mounted folder through a file each (`FUSE_DEV_IOC_CLONE`), of two files of
/// the device that belong to no folder: a kernel that knows it takes none such (`EINVAL`). Sandboxes and emulators may have FUSE
/// without it.
pub fn can_clone(device: &File, other: &File) -> bool {
    let number = u32::try_from(device.as_raw_fd()).unwrap_or_default();
    // SAFETY: it reads the number of a file, which is open, and writes nothing.
    let said = unsafe { ioctl(other, Setter::<CLONE, u32>::new(number)) };
    matches!(said, Ok(()) | Err(Errno::INVAL))
}
