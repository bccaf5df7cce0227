//! ext4 file systems, changed: all of it or nothing.

use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use casemate::ext4::{self, NewNode, PutOptions};
use casemate::{Error, Work};

use crate::boundary::{Status, YES, bytes, c_path, end, get, give, optional, place};
use crate::device::CDevice;
use crate::error::{CError, run};
use crate::keys::{CKeys, to_write};

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
pub unsafe fn change(
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
    Ok(unsafe { c_path(inside, name)? }.as_os_str().as_bytes())
}

/// Opens the file system on a device for changes. Changes stay in memory until casemate_writer_commit(). But contents of
/// 1 MiB and more are committed in steps, and all changes so far are committed before them.
///
/// @param device a writable device; the caller may free it
/// @param keys keys for encrypted folders, which are copied; or NULL
/// @param writer where the writer is stored; the caller frees it with casemate_writer_free(). One thread uses
///   it at a time
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`; its kind is CASEMATE_KIND_BUSY while another writer is open
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_ext4_change(
    device: *const CDevice,
    keys: *const CKeys,
    writer: *mut *mut CWriter,
    error: *mut *mut CError,
) -> Status {
    let open = || {
        // SAFETY: the header says what these pointers are.
        let (device, writer) = unsafe { (get(device, "device")?, place(writer, "writer")?) };
        // SAFETY: the header says what this pointer is.
        let options = unsafe { to_write(keys) };
        let opened = device.0.ext4_writer(&options, &Work::default())?;
        Ok(give(writer, CWriter { name: device.0.name().to_owned(), writer: opened }))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, open) }
}

/// Creates a file with these bytes, or replaces one, whose mode, owner and attributes it keeps.
///
/// @param writer a writer, used by one thread at a time
/// @param path path in the image, ended by a zero
/// @param data the bytes
/// @param len number of bytes
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_write_file(
    writer: *mut CWriter,
    path: *const c_char,
    data: *const c_void,
    len: usize,
    error: *mut *mut CError,
) -> Status {
    let write = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what these pointers are.
        let (path, mut data) = unsafe { (within(path, "path")?, bytes(data, len, "data")?) };
        let (from, options) = (Path::new("memory"), PutOptions::default());
        writer.put_contents(&mut data, from, path, &options, &Work::default()).map(drop)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, write) }
}

/// Copies a file or a folder of the host into the image. A large copy is committed in parts.
///
/// @param writer a writer, used by one thread at a time
/// @param source path on the host; "folder/." copies the contents of the folder into `path`
/// @param path target path in the image
/// @param recursive 1 to copy a folder with its contents
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_put(
    writer: *mut CWriter,
    source: *const c_char,
    path: *const c_char,
    recursive: c_int,
    error: *mut *mut CError,
) -> Status {
    let put = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what these pointers are.
        let (source, path) = unsafe { (c_path(source, "source")?, within(path, "path")?) };
        let mut options = PutOptions::default();
        options.recursive = recursive != 0;
        writer.put(source, path, &options, &Work::default()).map(drop)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, put) }
}

/// Creates a directory.
///
/// @param writer a writer, used by one thread at a time
/// @param path path in the image, ended by a zero
/// @param mode permission bits
/// @param parents 1 to create missing parents, and to accept a directory that exists
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_mkdir(
    writer: *mut CWriter,
    path: *const c_char,
    mode: u32,
    parents: c_int,
    error: *mut *mut CError,
) -> Status {
    let make = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what this pointer is.
        let path = unsafe { within(path, "path")? };
        writer.make_directory(path, &NewNode::new(permissions(mode)?), parents != 0)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, make) }
}

fn permissions(mode: u32) -> Result<u16, Error> {
    let found = u16::try_from(mode).ok().filter(|mode| *mode <= 0o7777);
    found.ok_or_else(|| Error::argument(format!("mode {mode:o} is more than permissions")))
}

/// Creates a symbolic link.
///
/// @param writer a writer, used by one thread at a time
/// @param target what the link contains
/// @param path path of the link in the image
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_symlink(
    writer: *mut CWriter,
    target: *const c_char,
    path: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let make = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what these pointers are.
        let (target, path) = unsafe { (within(target, "target")?, within(path, "path")?) };
        writer.make_symlink(path, target, &NewNode::new(0o777))
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, make) }
}

/// Creates a hard link.
///
/// @param writer a writer, used by one thread at a time
/// @param existing path of the file in the image
/// @param path path of the new name
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_link(
    writer: *mut CWriter,
    existing: *const c_char,
    path: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let link = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what these pointers are.
        let (existing, path) = unsafe { (within(existing, "existing")?, within(path, "path")?) };
        writer.link(existing, path)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, link) }
}

/// Renames a file or directory, as rename(2) does.
///
/// @param writer a writer, used by one thread at a time
/// @param from path in the image
/// @param to new path
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
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

/// Removes a file or an empty directory.
///
/// @param writer a writer, used by one thread at a time
/// @param path path in the image, ended by a zero
/// @param recursive 1 to remove a directory with its contents
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_remove(
    writer: *mut CWriter,
    path: *const c_char,
    recursive: c_int,
    error: *mut *mut CError,
) -> Status {
    let remove = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what this pointer is.
        let path = unsafe { within(path, "path")? };
        if recursive == 0 { writer.remove(path) } else { writer.remove_tree(path) }
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, remove) }
}

/// Sets the permission bits of a file.
///
/// @param writer a writer, used by one thread at a time
/// @param path path in the image, ended by a zero
/// @param mode permission bits, as for chmod(2)
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_chmod(
    writer: *mut CWriter,
    path: *const c_char,
    mode: u32,
    error: *mut *mut CError,
) -> Status {
    let set = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what this pointer is.
        let path = unsafe { within(path, "path")? };
        writer.set_mode(path, permissions(mode)?)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, set) }
}

/// Sets the owner and the group of a file.
///
/// @param writer a writer, used by one thread at a time
/// @param path path in the image, ended by a zero
/// @param uid the owner; UINT32_MAX keeps it
/// @param gid the group; UINT32_MAX keeps it
/// @param follow 1 to follow a symbolic link
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_chown(
    writer: *mut CWriter,
    path: *const c_char,
    uid: u32,
    gid: u32,
    follow: c_int,
    error: *mut *mut CError,
) -> Status {
    let set = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what this pointer is.
        let path = unsafe { within(path, "path")? };
        let [uid, gid] = [uid, gid].map(|id| (id != UNCHANGED).then_some(id));
        writer.set_owner(path, uid, gid, follow != 0)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, set) }
}

/// Sets the size of a regular file. New bytes are zeros.
///
/// @param writer a writer, used by one thread at a time
/// @param path path in the image, ended by a zero
/// @param size the size in bytes
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_truncate(
    writer: *mut CWriter,
    path: *const c_char,
    size: u64,
    error: *mut *mut CError,
) -> Status {
    let set = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what this pointer is.
        let path = unsafe { within(path, "path")? };
        writer.truncate(path, size)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, set) }
}

/// Sets or removes an extended attribute.
///
/// @param writer a writer, used by one thread at a time
/// @param path path in the image, ended by a zero
/// @param name name with its prefix, such as "user.comment"
/// @param value the value; NULL removes the attribute
/// @param len length of the value in bytes
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_set_xattr(
    writer: *mut CWriter,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    len: usize,
    error: *mut *mut CError,
) -> Status {
    let set = |writer: &mut ext4::Writer| {
        // SAFETY: the header says what these pointers are.
        let (path, name) = unsafe { (within(path, "path")?, within(name, "attribute")?) };
        // SAFETY: the header says what this pointer is.
        let bytes = unsafe { optional(value, len, "value")? };
        writer.set_xattr(path, name, bytes, true)
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, set) }
}

/// Commits all changes since the last commit, all at once, and waits for stable storage.
///
/// @param writer a writer, used by one thread at a time
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_commit(writer: *mut CWriter, error: *mut *mut CError) -> Status {
    // SAFETY: the header says what these pointers are.
    unsafe { change(writer, error, ext4::Writer::commit) }
}

/// Frees a writer. Changes that were not committed are dropped.
///
/// @param writer a writer, or NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_writer_free(writer: *mut CWriter) {
    // Where large contents were committed in steps the device has what waits for the end. If this fails, it waits for whoever opens the
    // file system next.
    let abandon = |owned: Box<CWriter>| drop(owned.writer.abandon());
    // SAFETY: the header says what this pointer is.
    unsafe { end(writer, abandon) }
}
