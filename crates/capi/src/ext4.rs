//! ext4 file systems, read.

use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

use casemate::ext4::{FileSystem, Inode, ReadOptions, Time};
use casemate::{Error, Work};

use crate::boundary::{Status, YES, free, get, give, path, place, room, run};
use crate::device::CDevice;
use crate::error::CError;

/// A file system that is open for reading.
pub struct CExt4(FileSystem);

/// What an inode says.
#[repr(C)]
pub struct CStat {
    size: u64,
    blocks: u64,
    modified_seconds: i64,
    modified_nanoseconds: u32,
    inode: u32,
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
}

/// The caller's function that hears of names: it returns 0 to go on.
type Each = unsafe extern "C" fn(*mut c_void, *const u8, usize, u32) -> c_int;

/// Opens the file system on a device.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_open(
    device: *const CDevice,
    fs: *mut *mut CExt4,
    error: *mut *mut CError,
) -> Status {
    let open = || {
        // SAFETY: the header says what these pointers are.
        let (device, fs) = unsafe { (get(device, "device")?, place(fs, "fs")?) };
        Ok(give(fs, CExt4(device.0.ext4(&ReadOptions::default(), &Work::default())?)))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, open) }
}

/// What the inode at a path says.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_stat(
    fs: *const CExt4,
    name: *const c_char,
    follow: c_int,
    found: *mut CStat,
    error: *mut *mut CError,
) -> Status {
    let stat = || {
        // SAFETY: the header says what these pointers are.
        let (fs, name, found) = unsafe { (get(fs, "fs")?, path(name, "path")?, place(found, "stat")?) };
        let inode = if follow == 0 { fs.0.symlink_metadata(name) } else { fs.0.metadata(name) }?;
        *found = stat_of(&fs.0, &inode);
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, stat) }
}

fn stat_of(fs: &FileSystem, inode: &Inode) -> CStat {
    let Time { seconds, nanoseconds } = inode.modified();
    CStat {
        size: inode.size(),
        blocks: inode.sectors(fs.inodes().layout().block_size),
        modified_seconds: seconds,
        modified_nanoseconds: nanoseconds,
        inode: inode.number(),
        mode: inode.mode().into(),
        links: inode.links().into(),
        uid: inode.uid(),
        gid: inode.gid(),
    }
}

/// A file as a device.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_open_file(
    fs: *const CExt4,
    name: *const c_char,
    device: *mut *mut CDevice,
    error: *mut *mut CError,
) -> Status {
    let open = || {
        // SAFETY: the header says what these pointers are.
        let (fs, name, device) = unsafe { (get(fs, "fs")?, path(name, "path")?, place(device, "device")?) };
        Ok(give(device, CDevice(fs.0.image(name)?)))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, open) }
}

/// Tells the names of a directory.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_read_dir(
    fs: *const CExt4,
    name: *const c_char,
    each: Option<Each>,
    context: *mut c_void,
    error: *mut *mut CError,
) -> Status {
    let read = || {
        // SAFETY: the header says what these pointers are.
        let (fs, name) = unsafe { (get(fs, "fs")?, path(name, "path")?) };
        let each = each.ok_or_else(|| Error::argument("each is NULL"))?;
        for entry in fs.0.read_dir(name)? {
            // SAFETY: the caller gave this function and its context for such calls; the name has so many bytes.
            if unsafe { each(context, entry.name.as_ptr(), entry.name.len(), entry.inode) } != 0 {
                break;
            }
        }
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, read) }
}

/// The target of a symbolic link.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_readlink(
    fs: *const CExt4,
    name: *const c_char,
    buf: *mut u8,
    len: *mut usize,
    error: *mut *mut CError,
) -> Status {
    let read = || {
        // SAFETY: the header says what these pointers are.
        let (fs, name, len) = unsafe { (get(fs, "fs")?, path(name, "path")?, place(len, "len")?) };
        let target = fs.0.read_link(name)?;
        let target = target.as_os_str().as_bytes();
        let available = std::mem::replace(len, target.len());
        if available < target.len() {
            let text = format!("the target has {} bytes, and there is room for {available}", target.len());
            return Err(Error::argument(text));
        }
        // SAFETY: the header says what this pointer is.
        unsafe { room(buf, target.len(), "buf")? }.copy_from_slice(target);
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, read) }
}

/// Frees a file system.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_free(fs: *mut CExt4) {
    // SAFETY: the header says what this pointer is.
    unsafe { free(fs) }
}
