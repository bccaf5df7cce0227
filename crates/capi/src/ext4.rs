//! ext4 file systems, read.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;

use casemate::ext4::{FileSystem, Finding, Inode, Time};
use casemate::{Error, Work};

use crate::boundary::{NO, Status, YES, c_path, free, get, give, place, room};
use crate::device::CDevice;
use crate::error::{CError, run};
use crate::keys::{CKeys, to_read};

/// A file system that is open for reading.
pub struct CExt4(FileSystem);

/// The fields of an inode.
#[repr(C)]
pub struct CStat {
    size: u64,
    /// Allocated space, in sectors of 512 bytes.
    blocks: u64,
    modified_seconds: i64,
    accessed_seconds: i64,
    changed_seconds: i64,
    modified_nanoseconds: u32,
    accessed_nanoseconds: u32,
    changed_nanoseconds: u32,
    inode: u32,
    /// File type and permissions, as st_mode of stat(2).
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    /// Major number of a device node; otherwise 0.
    device_major: u32,
    device_minor: u32,
    /// Reserved; 0.
    reserved: [u64; 4],
}

/// Receives an entry of a directory: its name, of `len` bytes without a zero at the end, and its inode number.
/// Returns 0 to continue.
pub type NameFn =
    Option<unsafe extern "C" fn(context: *mut c_void, name: *const u8, len: usize, inode: u32) -> c_int>;

/// Parameters of a file system.
#[repr(C)]
pub struct CExt4Info {
    /// Bytes of a block.
    block_size: u32,
    inodes: u32,
    free_inodes: u32,
    /// Reserved; 0.
    reserved: u32,
    /// Size in blocks.
    blocks: u64,
    free_blocks: u64,
    /// Blocks that only root may use.
    reserved_blocks: u64,
    uuid: [u8; 16],
    /// Label in UTF-8, ended by a zero; bytes that are not UTF-8 are replaced.
    label: [c_char; 64],
    /// Reserved; 0.
    reserved_numbers: [u64; 4],
}

/// Opens the ext2, ext3 or ext4 file system on a device for reading. A journal that needs it is replayed in
/// memory.
///
/// @param device the device; the caller may free it
/// @param keys keys for encrypted folders, which are copied; NULL for none: names are then as the kernel shows
///   them without the key
/// @param fs where the file system is stored; the caller frees it with casemate_ext4_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_open(
    device: *const CDevice,
    keys: *const CKeys,
    fs: *mut *mut CExt4,
    error: *mut *mut CError,
) -> Status {
    let open = || {
        // SAFETY: the header says what these pointers are.
        let (device, fs) = unsafe { (get(device, "device")?, place(fs, "fs")?) };
        // SAFETY: the header says what this pointer is.
        let options = unsafe { to_read(keys) };
        Ok(give(fs, CExt4(device.0.ext4(&options, &Work::default())?)))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, open) }
}

/// Reads parameters of a file system from its superblock.
///
/// @param fs the file system
/// @param info where the result is stored
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_get_info(
    fs: *const CExt4,
    info: *mut CExt4Info,
    error: *mut *mut CError,
) -> Status {
    let read = || {
        // SAFETY: the header says what these pointers are.
        let (fs, info) = unsafe { (get(fs, "fs")?, place(info, "info")?) };
        let superblock = fs.0.inodes().superblock();
        let mut label = [0; 64];
        // 16 bytes become at most 48, and the last byte stays zero.
        for (to, byte) in label[..63].iter_mut().zip(superblock.label().bytes()) {
            *to = c_char::from_ne_bytes([byte]);
        }
        *info = CExt4Info {
            block_size: superblock.block_size,
            inodes: superblock.inodes,
            free_inodes: superblock.inodes_free,
            reserved: 0,
            blocks: superblock.blocks,
            free_blocks: superblock.blocks_free,
            reserved_blocks: superblock.blocks_reserved,
            uuid: superblock.uuid,
            label,
            reserved_numbers: [0; 4],
        };
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, read) }
}

/// Reads the inode at a path.
///
/// @param fs the file system
/// @param path path in the image, ended by a zero
/// @param follow 1 to follow a symbolic link at the end of the path
/// @param stat where the result is stored
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_stat(
    fs: *const CExt4,
    path: *const c_char,
    follow: c_int,
    stat: *mut CStat,
    error: *mut *mut CError,
) -> Status {
    let stat = || {
        // SAFETY: the header says what these pointers are.
        let (fs, path, stat) = unsafe { (get(fs, "fs")?, c_path(path, "path")?, place(stat, "stat")?) };
        let inode = if follow == 0 { fs.0.symlink_metadata(path) } else { fs.0.metadata(path) }?;
        *stat = stat_of(&fs.0, &inode);
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, stat) }
}

fn stat_of(fs: &FileSystem, inode: &Inode) -> CStat {
    let Time { seconds, nanoseconds } = inode.modified();
    let (accessed, changed) = (inode.accessed(), inode.changed());
    let (device_major, device_minor) = inode.device().unwrap_or_default();
    CStat {
        size: inode.size(),
        blocks: inode.sectors(fs.inodes().layout().block_size),
        modified_seconds: seconds,
        accessed_seconds: accessed.seconds,
        changed_seconds: changed.seconds,
        modified_nanoseconds: nanoseconds,
        accessed_nanoseconds: accessed.nanoseconds,
        changed_nanoseconds: changed.nanoseconds,
        inode: inode.number().get(),
        mode: inode.mode().into(),
        links: inode.links().into(),
        uid: inode.uid(),
        gid: inode.gid(),
        device_major,
        device_minor,
        reserved: [0; 4],
    }
}

/// Opens a regular file as a device. A file with fs-verity is verified while it is read.
///
/// @param fs the file system; the caller may free it
/// @param path path in the image, ended by a zero
/// @param device where the new handle is stored; the caller frees it with casemate_device_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_open_file(
    fs: *const CExt4,
    path: *const c_char,
    device: *mut *mut CDevice,
    error: *mut *mut CError,
) -> Status {
    let open = || {
        // SAFETY: the header says what these pointers are.
        let (fs, path, device) = unsafe { (get(fs, "fs")?, c_path(path, "path")?, place(device, "device")?) };
        Ok(give(device, CDevice(fs.0.image(path)?)))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, open) }
}

/// Calls a function for each entry of a directory, except "." and "..".
///
/// @param fs the file system
/// @param path path in the image, ended by a zero
/// @param each called by this thread; a value other than 0 ends the list, which is CASEMATE_YES, too
/// @param context passed to `each`
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_read_dir(
    fs: *const CExt4,
    path: *const c_char,
    each: NameFn,
    context: *mut c_void,
    error: *mut *mut CError,
) -> Status {
    let read = || {
        // SAFETY: the header says what these pointers are.
        let (fs, path) = unsafe { (get(fs, "fs")?, c_path(path, "path")?) };
        let each = each.ok_or_else(|| Error::argument("each is NULL"))?;
        for entry in fs.0.read_dir(path)? {
            // SAFETY: the caller gave this function and its context for such calls; the name has so many bytes.
            if unsafe { each(context, entry.name.as_ptr(), entry.name.len(), entry.inode.get()) } != 0 {
                break;
            }
        }
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, read) }
}

/// Reads the target of a symbolic link, without a zero at its end.
///
/// @param fs the file system
/// @param path path in the image, ended by a zero
/// @param buf where the target is stored
/// @param len in: size of `buf`; out: length of the target. Too small a buffer is an error
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_readlink(
    fs: *const CExt4,
    path: *const c_char,
    buf: *mut c_void,
    len: *mut usize,
    error: *mut *mut CError,
) -> Status {
    let read = || {
        // SAFETY: the header says what these pointers are.
        let (fs, path, len) = unsafe { (get(fs, "fs")?, c_path(path, "path")?, place(len, "len")?) };
        let target = fs.0.read_link(path)?;
        // SAFETY: the header says what this pointer is.
        unsafe { copy(target.as_os_str().as_bytes(), buf, len) }
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, read) }
}

/// Reads the value of an extended attribute.
///
/// @param fs the file system
/// @param path path in the image, ended by a zero
/// @param name name with its prefix, such as "user.comment"
/// @param buf where the value is stored
/// @param len in: size of `buf`; out: length of the value. Too small a buffer is an error
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`; casemate_error_errno() is ENODATA if there is no such
///   attribute
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_get_xattr(
    fs: *const CExt4,
    path: *const c_char,
    name: *const c_char,
    buf: *mut c_void,
    len: *mut usize,
    error: *mut *mut CError,
) -> Status {
    let read = || {
        // SAFETY: the header says what these pointers are.
        let (fs, path, len) = unsafe { (get(fs, "fs")?, c_path(path, "path")?, place(len, "len")?) };
        // SAFETY: the header says what this pointer is.
        let wanted = unsafe { c_path(name, "attribute")? }.as_os_str().as_bytes();
        let all = fs.0.inodes().xattrs(&fs.0.metadata(path)?)?;
        let found = all.iter().find(|xattr| *xattr.name == *wanted);
        let found = found.ok_or_else(|| {
            let error = io::Error::from_raw_os_error(NO_ATTRIBUTE);
            Error::io(format!("{}: {}", path.display(), String::from_utf8_lossy(wanted)), error)
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
unsafe fn copy(bytes: &[u8], buf: *mut c_void, len: &mut usize) -> Result<Status, Error> {
    let available = std::mem::replace(len, bytes.len());
    if available < bytes.len() {
        let text = format!("there are {} bytes, and there is room for {available}", bytes.len());
        return Err(Error::argument(text));
    }
    // SAFETY: the caller says what this pointer is.
    unsafe { room(buf, bytes.len(), "buf")? }.copy_from_slice(bytes);
    Ok(YES)
}

/// A finding that is an oddity and does no harm.
pub const LEVEL_NOTE: i32 = 0;
/// A finding that is damage.
pub const LEVEL_FAULT: i32 = 1;
/// Damage that a repair has fixed.
pub const LEVEL_FIXED: i32 = 2;

/// Receives a finding: a CASEMATE_LEVEL value, its kind, its place, and a text. The strings live as long as the call.
pub type FindingFn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        level: c_int,
        kind: *const c_char,
        place: *const c_char,
        text: *const c_char,
    ),
>;

/// Passes findings on to the caller's function, each with its level.
///
/// # Safety
/// `each` is NULL, or may be called with `context`.
pub unsafe fn tell(each: FindingFn, context: *mut c_void, levels: &[(i32, &[Finding])]) {
    let Some(each) = each else { return };
    let findings =
        levels.iter().flat_map(|(level, findings)| findings.iter().map(move |finding| (*level, finding)));
    for (level, finding) in findings {
        let words =
            [finding.kind().name().to_owned(), finding.place().to_string(), finding.problem().to_string()];
        let [kind, place, text] = words.map(|word| CString::new(word.replace('\0', "?")).unwrap_or_default());
        // SAFETY: the caller gave this function and its context for such calls.
        unsafe { each(context, level, kind.as_ptr(), place.as_ptr(), text.as_ptr()) };
    }
}

/// Checks the file system on a device with all threads. Nothing is written.
///
/// @param device the device
/// @param keys keys for encrypted folders, or NULL
/// @param each called for each finding, one call at a time; or NULL
/// @param context passed to `each`
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES if the file system is sound, CASEMATE_NO if there are faults (no error is stored then),
///   or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_check(
    device: *const CDevice,
    keys: *const CKeys,
    each: FindingFn,
    context: *mut c_void,
    error: *mut *mut CError,
) -> Status {
    let check = || {
        // SAFETY: the header says what this pointer is.
        let device = unsafe { get(device, "device")? };
        // SAFETY: the header says what this pointer is.
        let options = unsafe { to_read(keys) };
        let report = device.0.ext4_check(&options, &Work::default())?;
        // SAFETY: the caller gave this function and its context for such calls.
        unsafe { tell(each, context, &[(LEVEL_FAULT, &report.faults), (LEVEL_NOTE, &report.notes)]) };
        Ok(if report.faults.is_empty() { YES } else { NO })
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, check) }
}

/// Frees a file system. Files that were opened as devices stay usable.
///
/// @param fs a file system, or NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_free(fs: *mut CExt4) {
    // SAFETY: the header says what this pointer is.
    unsafe { free(fs) }
}
