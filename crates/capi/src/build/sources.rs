//! Sources of a new file system, and how they are read.

use std::ffi::c_char;
use std::path::PathBuf;

use casemate::ext4::{BuildSpec, Source};

use super::{CBuild, change};
use crate::boundary::{Status, c_path, text};
use crate::error::CError;

/// Adds the contents of a folder of the host. They replace files of earlier sources.
///
/// @param build the specification
/// @param folder the folder
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_add_folder(
    build: *mut CBuild,
    folder: *const c_char,
    error: *mut *mut CError,
) -> Status {
    // SAFETY: the header says what these pointers are.
    unsafe { add(build, folder, Source::Folder, error) }
}

/// Adds the contents of a tar stream, plain or compressed with gzip or zstd; "-" is standard input.
///
/// @param build the specification
/// @param tar the file, or "-"
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_add_tar(
    build: *mut CBuild,
    tar: *const c_char,
    error: *mut *mut CError,
) -> Status {
    // SAFETY: the header says what these pointers are.
    unsafe { add(build, tar, Source::Tar, error) }
}

/// Adds a layer of an OCI image: a tar stream whose whiteouts remove files of earlier sources.
///
/// @param build the specification
/// @param layer the file
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_add_layer(
    build: *mut CBuild,
    layer: *const c_char,
    error: *mut *mut CError,
) -> Status {
    // SAFETY: the header says what these pointers are.
    unsafe { add(build, layer, Source::Layer, error) }
}

/// Adds all layers of an image in an OCI layout folder: the only one for NULL, or the one with this name, digest or platform.
///
/// @param build the specification
/// @param folder the folder
/// @param image name, digest or platform of the image, or NULL
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_add_oci(
    build: *mut CBuild,
    folder: *const c_char,
    image: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (folder, image) = unsafe { (c_path(folder, "folder")?, text(image, "image")?) };
        spec.sources.push(Source::Oci(folder.to_owned(), image.map(str::to_owned)));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// # Safety
/// As [`change`]; `path` is NULL, or ends with a zero byte.
unsafe fn add(
    build: *mut CBuild,
    path: *const c_char,
    source: fn(PathBuf) -> Source,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the caller says what this pointer is.
        spec.sources.push(source(unsafe { c_path(path, "path")? }.to_owned()));
        Ok(())
    };
    // SAFETY: the caller says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Maps user IDs of the sources. Each call adds a range.
///
/// @param build the specification
/// @param to first ID in the image
/// @param from first ID of the source
/// @param count how many IDs
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_map_users(
    build: *mut CBuild,
    to: u32,
    from: u32,
    count: u32,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        spec.reading.owners.users.push([to, from, count]);
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Maps group IDs of the sources. Each call adds a range.
///
/// @param build the specification
/// @param to first ID in the image
/// @param from first ID of the source
/// @param count how many IDs
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_map_groups(
    build: *mut CBuild,
    to: u32,
    from: u32,
    count: u32,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        spec.reading.owners.groups.push([to, from, count]);
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Copies no extended attributes of the sources.
///
/// @param build the specification
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_no_xattrs(build: *mut CBuild, error: *mut *mut CError) -> Status {
    let set = |spec: &mut BuildSpec| {
        spec.reading.xattrs = false;
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}
