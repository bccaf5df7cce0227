//! ext4 file systems, changed: all of it or nothing.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use casemate::ext4::{self, NewNode, PutOptions, WriteOptions};
use casemate::{Error, Work};

use crate::boundary::{Status, YES, bytes, free, get, give, path, place, run};
use crate::device::CDevice;
use crate::error::CError;
use crate::keys::{CKeys, keys};

/// An owner that stays as it is.
const UNCHANGED: u32 = u32::MAX;

/// Changes of a file system, in memory until they are committed.
pub struct CWriter {
    name: String,
    writer: ext4::Writer,
}

/// Changes something, and names the image in errors.
///
/// # Safety
/// `writer` is NULL or a writer that nobody else uses meanwhile, and `error` is NULL or a place for a pointer.
unsafe fn change(
    writer: *mut CWriter,
    error: *mut *mut CError,
    change: impl FnOnce(&mut ext4::Writer) -> Result<(), Error>,
) -> Status {
    let changed = || {
        // SAFETY: the caller says what this pointer is.
        let CWriter { name, writer } = unsafe { place(writer, "writer")? };
        change(writer).map_err(|error| error.at(name))?;
        Ok(YES)
    };
    // SAFETY: the caller says what this pointer is.
    unsafe { run(error, changed) }
}

/// A path inside the file system.
///
/// # Safety
/// `inside` is NULL, or ends with a zero byte.
unsafe fn within<'a>(inside: *const c_char, name: &str) -> Result<&'a [u8], Error> {
    // SAFETY: the caller says what this pointer is.
    Ok(unsafe { path(inside, name)? }.as_os_str().as_bytes())
}

/// Begins to change the file system on a device.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_change(
    device: *const CDevice,
    with: *const CKeys,
    writer: *mut *mut CWriter,
    error: *mut *mut CError,
) -> Status {
    let open = || {
        // SAFETY: the header says what these pointers are.
        let (device, writer) = unsafe { (get(device, "device")?, place(writer, "writer")?) };
        let mut options = WriteOptions::default();
        // SAFETY: the header says what this pointer is.
        options.keys = unsafe { keys(with) };
        let opened = device.0.ext4_writer(&options, &Work::default())?;
        Ok(give(writer, CWriter { name: device.0.name().to_owned(), writer: opened }))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, open) }
}

/// Makes a file of bytes.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_write_file(
    writer: *mut CWriter,
    name: *const c_char,
    data: *const u8,
    len: usize,
    error: *mut *mut CError,
) -> Status {
    let write = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what these pointers are.
        let (name, mut data) = unsafe { (within(name, "path")?, bytes(data, len, "data")?) };
        let (from, options) = (Path::new("memory"), PutOptions::default());
        writer.put_contents(&mut data, from, name, &options, &Work::default()).map(drop)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, write) }
}

/// Copies a file or a folder of the host.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_put(
    writer: *mut CWriter,
    source: *const c_char,
    name: *const c_char,
    recursive: c_int,
    error: *mut *mut CError,
) -> Status {
    let put = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what these pointers are.
        let (source, name) = unsafe { (path(source, "source")?, within(name, "path")?) };
        let mut options = PutOptions::default();
        options.recursive = recursive != 0;
        writer.put(source, name, &options, &Work::default()).map(drop)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, put) }
}

/// Makes a directory.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_mkdir(
    writer: *mut CWriter,
    name: *const c_char,
    mode: u32,
    parents: c_int,
    error: *mut *mut CError,
) -> Status {
    let make = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what this pointer is.
        let name = unsafe { within(name, "path")? };
        writer.make_directory(name, &NewNode::new(permissions(mode)?), parents != 0)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, make) }
}

fn permissions(mode: u32) -> Result<u16, Error> {
    let found = u16::try_from(mode).ok().filter(|mode| *mode <= 0o7777);
    found.ok_or_else(|| Error::argument(format!("mode {mode:o} is more than permissions")))
}

/// Makes a symbolic link.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_symlink(
    writer: *mut CWriter,
    target: *const c_char,
    name: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let make = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what these pointers are.
        let (target, name) = unsafe { (within(target, "target")?, within(name, "path")?) };
        writer.make_symlink(name, target, &NewNode::new(0o777))
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, make) }
}

/// Gives a file another name.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_link(
    writer: *mut CWriter,
    existing: *const c_char,
    name: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let link = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what these pointers are.
        let (existing, name) = unsafe { (within(existing, "existing")?, within(name, "path")?) };
        writer.link(existing, name)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, link) }
}

/// Renames.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_rename(
    writer: *mut CWriter,
    from: *const c_char,
    to: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let rename = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what these pointers are.
        let (from, to) = unsafe { (within(from, "from")?, within(to, "to")?) };
        writer.rename(from, to)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, rename) }
}

/// Removes a name, or a directory with all that it has.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_remove(
    writer: *mut CWriter,
    name: *const c_char,
    recursive: c_int,
    error: *mut *mut CError,
) -> Status {
    let remove = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what this pointer is.
        let name = unsafe { within(name, "path")? };
        if recursive == 0 { writer.remove(name) } else { writer.remove_tree(name) }
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, remove) }
}

/// Sets permissions.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_chmod(
    writer: *mut CWriter,
    name: *const c_char,
    mode: u32,
    error: *mut *mut CError,
) -> Status {
    let set = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what this pointer is.
        let name = unsafe { within(name, "path")? };
        writer.set_mode(name, permissions(mode)?)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, set) }
}

/// Sets the owner and the group.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_chown(
    writer: *mut CWriter,
    name: *const c_char,
    uid: u32,
    gid: u32,
    follow: c_int,
    error: *mut *mut CError,
) -> Status {
    let set = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what this pointer is.
        let name = unsafe { within(name, "path")? };
        let [uid, gid] = [uid, gid].map(|id| (id != UNCHANGED).then_some(id));
        writer.set_owner(name, uid, gid, follow != 0)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, set) }
}

/// Sets a file's size.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_truncate(
    writer: *mut CWriter,
    name: *const c_char,
    size: u64,
    error: *mut *mut CError,
) -> Status {
    let set = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what this pointer is.
        let name = unsafe { within(name, "path")? };
        writer.truncate(name, size)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, set) }
}

/// Sets an extended attribute, or removes it.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_set_xattr(
    writer: *mut CWriter,
    name: *const c_char,
    attribute: *const c_char,
    value: *const u8,
    len: usize,
    error: *mut *mut CError,
) -> Status {
    let set = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what these pointers are.
        let (name, attribute) = unsafe { (within(name, "path")?, within(attribute, "attribute")?) };
        // SAFETY: the header says what this pointer is.
        let bytes = unsafe { bytes(value, len, "value")? };
        writer.set_xattr(name, attribute, (!value.is_null()).then_some(bytes), true)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, set) }
}

/// Makes all changes so far permanent.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_commit(writer: *mut CWriter, error: *mut *mut CError) -> Status {
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, ext4::Writer::commit) }
}

/// Frees a writer; what was not committed has not happened.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_free(writer: *mut CWriter) {
    // SAFETY: the header says what this pointer is.
    unsafe { free(writer) }
}
