//! fs-verity of files in a new file system, and dm-verity over it.

use std::ffi::c_char;
use std::path::Path;

use casemate::Error;
use casemate::ext4::{BuildSpec, ParitySpec, VeritySpec};

use super::amend::matching;
use super::{CBuild, change};
use crate::boundary::{Status, c_path, path_if_any};
use crate::error::CError;
use crate::fsverity::FsverityOptions;

/// Enables fs-verity on regular files that match a pattern, of which there must be one, or on all for NULL. Each call adds a
/// pattern. The block size follows from the file system: it is 0 in the options, of which the last ones count.
///
/// @param build the specification
/// @param pattern a pattern, or NULL for all files
/// @param options options, or NULL for the usual values
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_verity(
    build: *mut CBuild,
    pattern: *const c_char,
    options: *const FsverityOptions,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what this pointer is.
        let (algorithm, salt) = unsafe { FsverityOptions::of_tree(options)? };
        // SAFETY: the header says what this pointer is.
        let pattern = unsafe { matching(pattern)? };
        let verity = spec.verity.take().unwrap_or_default();
        spec.verity = Some(verity.pattern(pattern).algorithm(algorithm).salt(salt));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Enables fs-verity on the files of a manifest. Files with other digests are refused.
///
/// @param build the specification
/// @param manifest the file
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_verity_manifest(
    build: *mut CBuild,
    manifest: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what this pointer is.
        let manifest = unsafe { c_path(manifest, "manifest")? };
        let verity: VeritySpec = spec.verity.take().unwrap_or_default();
        spec.verity = Some(verity.manifest(manifest));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Makes dm-verity over the file system, with a hash area in a file or on a device, or behind the file system for NULL.
///
/// @param build the specification
/// @param hash the file or block device, or NULL
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_dm_verity(
    build: *mut CBuild,
    hash: *const c_char,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what this pointer is.
        spec.dm_verity.get_or_insert_default().hash = unsafe { path_if_any(hash) }.map(Path::to_owned);
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Makes parity for error correction of dm-verity, which was asked for before, in a file or on a device.
///
/// @param build the specification
/// @param parity the file or block device
/// @param offset first byte of the parity there
/// @param roots parity bytes for each codeword of 255: 2 to 24; 0 is 2
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_parity(
    build: *mut CBuild,
    parity: *const c_char,
    offset: u64,
    roots: u32,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        let Some(dm_verity) = &mut spec.dm_verity else {
            return Err(Error::argument("parity is of dm-verity, which was not asked for"));
        };
        // SAFETY: the header says what this pointer is.
        let mut place = ParitySpec::new(unsafe { c_path(parity, "parity")? });
        (place.offset, place.roots) = (offset, Some(roots).filter(|roots| *roots != 0));
        dm_verity.parity = Some(place);
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}
