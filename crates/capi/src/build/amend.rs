//! Attributes of files that differ from those of the sources.

use std::ffi::{c_char, c_void};
use std::os::unix::ffi::OsStrExt;

use casemate::Error;
use casemate::ext4::{BuildSpec, Description, NewMode, NewXattr, Pattern};

use super::{CBuild, change};
use crate::boundary::{Status, bytes, c_path, path_if_any, text};
use crate::error::CError;

/// Changes permission bits of files that match a pattern, of which there must be one. Each call adds a rule.
///
/// @param build the specification
/// @param pattern a pattern, or NULL for all files
/// @param mode octal bits, or changes as of chmod(1), such as "u+x,go=r"
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_mode(
    build: *mut CBuild,
    pattern: *const c_char,
    mode: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (pattern, mode) = unsafe { (matching(pattern)?, text(mode, "mode")?) };
        let mode = mode.ok_or_else(|| Error::argument("mode is NULL"))?;
        spec.amendments.modes.push(NewMode::change(pattern, mode.parse()?));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Sets an extended attribute on files that match a pattern, of which there must be one. Each call adds a rule.
///
/// @param build the specification
/// @param pattern a pattern, or NULL for all files
/// @param name name of the attribute, such as "user.origin"
/// @param value its value
/// @param value_len length of the value in bytes
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_xattr(
    build: *mut CBuild,
    pattern: *const c_char,
    name: *const c_char,
    value: *const c_void,
    value_len: usize,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (pattern, name) = unsafe { (matching(pattern)?, c_path(name, "name")?) };
        // SAFETY: the header says what this pointer is.
        let value = unsafe { bytes(value, value_len, "value")? };
        spec.amendments.xattrs.push(NewXattr::new(pattern, name.as_os_str().as_bytes(), value));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// A pattern; that of all files for NULL.
///
/// # Safety
/// `pattern` is NULL, or ends with a zero byte.
pub unsafe fn matching(pattern: *const c_char) -> Result<Pattern, Error> {
    // SAFETY: the caller says what this pointer is.
    Pattern::new(unsafe { path_if_any(pattern) }.map_or(&b"*"[..], |pattern| pattern.as_os_str().as_bytes()))
}

/// Changes owners, modes and other attributes of files as a description in a file says; each call adds one.
///
/// @param build the specification
/// @param format "fs_config", "device_table", "mtree" or "composefs_dump"
/// @param description the file
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_describe(
    build: *mut CBuild,
    format: *const c_char,
    description: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (format, path) = unsafe { (text(format, "format")?, c_path(description, "description")?) };
        let format = format.ok_or_else(|| Error::argument("format is NULL"))?.parse()?;
        spec.amendments.descriptions.push(Description::new(format, path));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Labels everything for SELinux as a file in the format of file_contexts says.
///
/// @param build the specification
/// @param file_contexts the file
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_label(
    build: *mut CBuild,
    file_contexts: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what this pointer is.
        spec.amendments.file_contexts = Some(unsafe { c_path(file_contexts, "file_contexts")? }.to_owned());
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Tells where the file system will be mounted: paths of descriptions in the format fs_config, and of labels, begin there.
///
/// @param build the specification
/// @param mount_point the path; without this call it is "/"
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_mount_point(
    build: *mut CBuild,
    mount_point: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what this pointer is.
        let path = unsafe { c_path(mount_point, "mount_point")? };
        spec.amendments.mount_point = path.as_os_str().as_bytes().to_vec();
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}
