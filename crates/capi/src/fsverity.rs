//! fs-verity digests.

use std::ffi::c_char;

use casemate::fsverity::{Algorithm, FileDigest, FileHasher, Parameters, describe_device};
use casemate::{Error, Providers, Work};

use crate::boundary::{Options, Status, YES, bytes, free, get, give, options, place, run, text};
use crate::device::CDevice;
use crate::error::CError;

/// Bytes of the longest digest.
const LONGEST: usize = 64;

/// Options of a tree; what is zero has its usual value.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct FsverityOptions {
    size: u32,
    block_size: u32,
    algorithm: *const c_char,
    salt: *const u8,
    salt_len: usize,
}

// SAFETY: it is `repr(C)`, begins with a `u32`, and numbers and pointers are any bytes.
unsafe impl Options for FsverityOptions {}

/// A digest and its length.
#[repr(C)]
pub struct CDigest {
    len: u32,
    bytes: [u8; LONGEST],
}

/// A digest of bytes that are handed over.
pub struct CHasher(FileHasher);

/// # Safety
/// `how` is NULL or options.
unsafe fn parameters(how: *const FsverityOptions) -> Result<Parameters, Error> {
    // SAFETY: the caller says what this pointer is.
    let how = unsafe { options(how)? };
    // SAFETY: the header says what these pointers are.
    let (name, salt) = unsafe { (text(how.algorithm, "algorithm")?, bytes(how.salt, how.salt_len, "salt")?) };
    let name = name.unwrap_or("sha256");
    let unknown = || Error::argument(format!("fs-verity has no hash algorithm {name}"));
    let algorithm = Algorithm::named(name).ok_or_else(unknown)?;
    Parameters::new(algorithm, if how.block_size == 0 { 4096 } else { how.block_size }, salt)
}

fn store(out: &mut CDigest, digest: &FileDigest) -> Status {
    // OK to cast: 32 or 64.
    *out = CDigest { len: digest.bytes().len() as u32, bytes: [0; LONGEST] };
    out.bytes[..digest.bytes().len()].copy_from_slice(digest.bytes());
    YES
}

/// The digest of all that a device has.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_fsverity_digest(
    device: *const CDevice,
    how: *const FsverityOptions,
    digest: *mut CDigest,
    error: *mut *mut CError,
) -> Status {
    let describe = || {
        // SAFETY: the header says what these pointers are.
        let (device, digest, parameters) =
            unsafe { (get(device, "device")?, place(digest, "digest")?, parameters(how)?) };
        let work = Work::default();
        let made = describe_device(&*device.0.device(), &parameters, &work)
            .and_then(|descriptor| descriptor.digest(&work.providers));
        Ok(store(digest, &made.map_err(|error| error.at(device.0.name()))?))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, describe) }
}

/// A hasher.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_hasher_new(
    how: *const FsverityOptions,
    hasher: *mut *mut CHasher,
    error: *mut *mut CError,
) -> Status {
    let make = || {
        // SAFETY: the header says what these pointers are.
        let (hasher, parameters) = unsafe { (place(hasher, "hasher")?, parameters(how)?) };
        Ok(give(hasher, CHasher(FileHasher::new(parameters, &Providers::default())?)))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, make) }
}

/// Takes bytes.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_hasher_update(
    hasher: *mut CHasher,
    data: *const u8,
    len: usize,
    error: *mut *mut CError,
) -> Status {
    let update = || {
        // SAFETY: the header says what these pointers are.
        let (hasher, data) = unsafe { (place(hasher, "hasher")?, bytes(data, len, "data")?) };
        hasher.0.update(data);
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, update) }
}

/// The digest of all bytes so far.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_hasher_digest(
    hasher: *const CHasher,
    digest: *mut CDigest,
    error: *mut *mut CError,
) -> Status {
    let finish = || {
        // SAFETY: the header says what these pointers are.
        let (hasher, digest) = unsafe { (get(hasher, "hasher")?, place(digest, "digest")?) };
        Ok(store(digest, &hasher.0.clone().finish()?.digest(&Providers::default())?))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, finish) }
}

/// Frees a hasher.
///
/// # Safety
/// As `casemate.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_hasher_free(hasher: *mut CHasher) {
    // SAFETY: the header says what this pointer is.
    unsafe { free(hasher) }
}
