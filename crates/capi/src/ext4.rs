//! ext4 file systems, read.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;

use casemate::ext4::{FileSystem, Finding, Inode, ReadOptions, Time};
use casemate::{Error, Work};

use crate::boundary::{NO, Status, YES, free, get, give, path, place, room, run};
use crate::device::CDevice;
use crate::error::CError;
use crate::keys::{CKeys, keys};

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
    with: *const CKeys,
    fs: *mut *mut CExt4,
    error: *mut *mut CError,
) -> Status {
    let open = || {
        // SAFETY: the header says what these pointers are.
        let (device, fs) = unsafe { (get(device, "device")?, place(fs, "fs")?) };
        let mut options = ReadOptions::default();
        // SAFETY: the header says what this pointer is.
        options.keys = unsafe { keys(with) };
        Ok(give(fs, CExt4(device.0.ext4(&options, &Work::default())?)))
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
        // SAFETY: the header says what this pointer is.
        unsafe { copy(target.as_os_str().as_bytes(), buf, len) }
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, read) }
}

/// The value of an extended attribute.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_get_xattr(
    fs: *const CExt4,
    name: *const c_char,
    attribute: *const c_char,
    buf: *mut u8,
    len: *mut usize,
    error: *mut *mut CError,
) -> Status {
    let read = || {
        // SAFETY: the header says what these pointers are.
        let (fs, name, len) = unsafe { (get(fs, "fs")?, path(name, "path")?, place(len, "len")?) };
        // SAFETY: the header says what this pointer is.
        let wanted = unsafe { path(attribute, "attribute")? }.as_os_str().as_bytes();
        let all = fs.0.inodes().xattrs(&fs.0.metadata(name)?)?;
        let found = all.iter().find(|xattr| *xattr.name == *wanted);
        let found = found.ok_or_else(|| {
            let error = io::Error::from_raw_os_error(NO_ATTRIBUTE);
            Error::io(format!("{}: {}", name.display(), String::from_utf8_lossy(wanted)), error)
        })?;
        // SAFETY: the header says what this pointer is.
        unsafe { copy(&found.value, buf, len) }
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, read) }
}

/// ENODATA of Linux, which getxattr(2) gives.
const NO_ATTRIBUTE: i32 = 61;

/// Copies bytes to where there is room for `*len`.
///
/// # Safety
/// `buf` points to so many bytes that nobody else uses meanwhile, unless it is NULL.
unsafe fn copy(bytes: &[u8], buf: *mut u8, len: &mut usize) -> Result<Status, Error> {
    let available = std::mem::replace(len, bytes.len());
    if available < bytes.len() {
        let text = format!("there are {} bytes, and there is room for {available}", bytes.len());
        return Err(Error::argument(text));
    }
    // SAFETY: the caller says what this pointer is.
    unsafe { room(buf, bytes.len(), "buf")? }.copy_from_slice(bytes);
    Ok(YES)
}

/// The caller's function that hears of findings.
type Found = unsafe extern "C" fn(*mut c_void, c_int, *const c_char, *const c_char, *const c_char);

/// All that is wrong with a file system.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_check(
    device: *const CDevice,
    with: *const CKeys,
    each: Option<Found>,
    context: *mut c_void,
    error: *mut *mut CError,
) -> Status {
    let check = || {
        // SAFETY: the header says what this pointer is.
        let device = unsafe { get(device, "device")? };
        let mut options = ReadOptions::default();
        // SAFETY: the header says what this pointer is.
        options.keys = unsafe { keys(with) };
        let report = device.0.ext4_check(&options, &Work::default())?;
        let tell = |is_fault: c_int, finding: &Finding| {
            let words = [
                finding.kind().name().to_owned(),
                finding.place().to_string(),
                finding.problem().to_string(),
            ];
            let [kind, place, text] =
                words.map(|word| CString::new(word.replace('\0', "?")).unwrap_or_default());
            if let Some(each) = each {
                // SAFETY: the caller gave this function and its context for such calls.
                unsafe { each(context, is_fault, kind.as_ptr(), place.as_ptr(), text.as_ptr()) };
            }
        };
        report.faults.iter().for_each(|finding| tell(1, finding));
        report.notes.iter().for_each(|finding| tell(0, finding));
        Ok(if report.faults.is_empty() { YES } else { NO })
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, check) }
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
