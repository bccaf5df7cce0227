//! ext4 images that are made: a specification that is filled in, and run.

mod amend;
mod encryption;
mod luks;
mod options;
mod signer;
mod sources;
mod verity;

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;

use casemate::blockdev::PartitionId;
use casemate::ext4::{BuildSpec, BuildTarget};
use casemate::{Error, Work};

use crate::boundary::{Status, YES, c_path, free, get, give, place, room};
use crate::error::{CError, run};
use crate::fsverity::{CDigest, store};

/// A specification of a new file system, its contents, and layers around it. It is built once; the signature of its root hash stays.
pub struct CBuild(Option<BuildSpec>, Option<Vec<u8>>);

/// Numbers of a new file system, and its digests.
#[repr(C)]
pub struct CBuilt {
    /// Bytes of the file system.
    size: u64,
    files: u64,
    directories: u64,
    others: u64,
    uuid: [u8; 16],
    /// Of dm-verity; without it of no bytes.
    root_hash: CDigest,
    /// Zeros, for what comes later.
    reserved: [u64; 4],
}

/// Changes a specification.
///
/// # Safety
/// `build` is NULL or a build that nobody else uses meanwhile, and `error` is NULL or a place for a pointer.
unsafe fn change(
    build: *mut CBuild,
    error: *mut *mut CError,
    change: impl FnOnce(&mut BuildSpec) -> Result<(), Error>,
) -> Status {
    let changed = || {
        // SAFETY: the caller says what this pointer is.
        let build = unsafe { place(build, "build")? };
        change(build.0.as_mut().ok_or_else(used)?)?;
        Ok(YES)
    };
    // SAFETY: the caller says what this pointer is.
    unsafe { run(error, changed) }
}

fn used() -> Error {
    Error::argument("this build was run already")
}

/// Begins to specify an image in a file, which appears only when it is complete, or on a block device.
///
/// @param path the file or block device
/// @param build where the specification is stored; the caller frees it with casemate_build_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_new(
    path: *const c_char,
    build: *mut *mut CBuild,
    error: *mut *mut CError,
) -> Status {
    let new = || {
        // SAFETY: the header says what these pointers are.
        let (path, build) = unsafe { (c_path(path, "path")?, place(build, "build")?) };
        Ok(give(build, CBuild(Some(BuildSpec::new(path)), None)))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, new) }
}

/// Puts the file system into an existing file or device, from a byte on; the other bytes stay.
///
/// @param build the specification
/// @param offset first byte of the file system
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_at(
    build: *mut CBuild,
    offset: u64,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| within(spec, |path| BuildTarget::Within { path, offset });
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Puts the file system into a partition, counted from 1, of an existing file or device.
///
/// @param build the specification
/// @param number number of the partition
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_in_partition(
    build: *mut CBuild,
    number: u32,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        within(spec, |path| BuildTarget::Partition { path, id: PartitionId::Number(number) })
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Makes a part of the target the target.
fn within(spec: &mut BuildSpec, part: impl FnOnce(PathBuf) -> BuildTarget) -> Result<(), Error> {
    let path = spec
        .target
        .path()
        .ok_or_else(|| Error::argument("the target is a stream; name a file or block device first"))?;
    spec.target = part(path.to_owned());
    Ok(())
}

/// Makes the image with all threads. Other contents of the target are refused without `overwrite`. `built` may be NULL.
///
/// @param build the specification
/// @param overwrite whether something else at the target may be lost
/// @param built where numbers, UUID and root hash are stored, or NULL
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_run(
    build: *mut CBuild,
    overwrite: c_int,
    built: *mut CBuilt,
    error: *mut *mut CError,
) -> Status {
    let make = || {
        // SAFETY: the header says what this pointer is.
        let build = unsafe { place(build, "build")? };
        let spec = build.0.take().ok_or_else(used)?;
        let made = match overwrite {
            0 => spec.run(&casemate::target::refuse, &Work::default())?,
            _ => spec.run(&casemate::target::overwrite, &Work::default())?,
        };
        build.1.clone_from(&made.root_hash_signature);
        // SAFETY: the header says what this pointer is.
        if let Some(out) = unsafe { built.as_mut() } {
            let report = &made.report;
            (out.size, out.files, out.directories, out.others) =
                (made.size, report.files, report.directories, report.others);
            (out.uuid, out.reserved) = (report.uuid, [0; 4]);
            let root_hash = made.dm_verity.as_ref().map_or(&[][..], |formatted| &formatted.root_hash);
            store(&mut out.root_hash, root_hash);
        }
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, make) }
}

/// Copies the PKCS#7 signature of the root hash in DER, once casemate_build_run() has returned CASEMATE_YES for a build with dm-verity
/// and a signer.
///
/// @param build the specification
/// @param signature where the signature is stored, or NULL to ask for its length alone
/// @param len room at `signature` in bytes; the length of the signature is stored there
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`; its kind is CASEMATE_KIND_ARGUMENT without a signature, or without room
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_root_hash_signature(
    build: *const CBuild,
    signature: *mut c_void,
    len: *mut usize,
    error: *mut *mut CError,
) -> Status {
    let copy = || {
        // SAFETY: the header says what these pointers are.
        let (build, len) = unsafe { (get(build, "build")?, place(len, "len")?) };
        let Some(made) = &build.1 else {
            return Err(Error::argument("this build has made no signature of a root hash"));
        };
        let has_room = *len;
        *len = made.len();
        if signature.is_null() {
            return Ok(YES);
        }
        if has_room < made.len() {
            return Err(Error::argument(format!(
                "the signature has {} bytes; there is room for {has_room}",
                made.len()
            )));
        }
        // SAFETY: the header says what this pointer is.
        unsafe { room(signature, made.len(), "signature")? }.copy_from_slice(made);
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, copy) }
}

/// Frees a specification, and wipes its keys.
///
/// @param build the specification, or NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_free(build: *mut CBuild) {
    // SAFETY: the header says what this pointer is.
    unsafe { free(build) }
}
