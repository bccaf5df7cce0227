//! fs-verity digests.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::{ptr, slice};

use casemate::blockdev::u32_of;
use casemate::fsverity::{Algorithm, FileDigest, FileHasher, Parameters, describe_device, describe_many};
use casemate::{Error, ErrorKind, Providers, Work};

use crate::boundary::{Options, Status, YES, bytes, c_options, c_path, free, get, give, place, text};
use crate::device::CDevice;
use crate::error::{CError, run, status_of};

/// Bytes of the longest digest.
const LONGEST: usize = 64;

/// Options of an fs-verity tree. A field that is 0 or NULL has its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct FsverityOptions {
    size: u32,
    /// Block size in bytes; default 4096.
    block_size: u32,
    /// "sha256" (default) or "sha512".
    algorithm: *const c_char,
    salt: *const c_void,
    salt_len: usize,
}

// SAFETY: it is `repr(C)`, begins with a `u32`, and numbers and pointers are any bytes.
unsafe impl Options for FsverityOptions {}

impl FsverityOptions {
    /// Algorithm and salt, where the block size follows from something else.
    ///
    /// # Safety
    /// `how` is NULL or options.
    pub unsafe fn of_tree(how: *const FsverityOptions) -> Result<(Algorithm, Vec<u8>), Error> {
        // SAFETY: the caller says what this pointer is.
        let how = unsafe { c_options(how)? };
        if how.block_size != 0 {
            return Err(Error::argument("the block size of fs-verity follows from the file system's"));
        }
        // SAFETY: the header says what these pointers are.
        let (name, salt) =
            unsafe { (text(how.algorithm, "algorithm")?, bytes(how.salt, how.salt_len, "salt")?) };
        Ok((algorithm(name)?, salt.to_vec()))
    }
}

fn algorithm(name: Option<&str>) -> Result<Algorithm, Error> {
    let name = name.unwrap_or("sha256");
    Algorithm::named(name)
        .ok_or_else(|| Error::argument(format!("fs-verity does not know the hash algorithm {name}")))
}

/// A digest and its length.
#[repr(C)]
pub struct CDigest {
    len: u32,
    bytes: [u8; 64],
}

/// A hasher: the fs-verity digest of a stream of bytes.
pub struct CHasher(FileHasher);

/// # Safety
/// `how` is NULL or options.
unsafe fn parameters(how: *const FsverityOptions) -> Result<Parameters, Error> {
    // SAFETY: the caller says what this pointer is.
    let how = unsafe { c_options(how)? };
    // SAFETY: the header says what these pointers are.
    let (name, salt) = unsafe { (text(how.algorithm, "algorithm")?, bytes(how.salt, how.salt_len, "salt")?) };
    Parameters::new(algorithm(name)?, if how.block_size == 0 { 4096 } else { how.block_size }, salt)
}

/// Stores a digest of at most 64 bytes.
pub fn store(out: &mut CDigest, digest: &[u8]) -> Status {
    *out = CDigest { len: u32_of(digest.len()), bytes: [0; LONGEST] };
    out.bytes[..digest.len()].copy_from_slice(digest);
    YES
}

/// Computes the fs-verity digest of all bytes of a device, with all threads.
///
/// @param device the device
/// @param options options, or NULL for the usual values
/// @param digest where the digest is stored
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_fsverity_digest(
    device: *const CDevice,
    options: *const FsverityOptions,
    digest: *mut CDigest,
    error: *mut *mut CError,
) -> Status {
    let describe = || {
        // SAFETY: the header says what these pointers are.
        let (device, digest, parameters) =
            unsafe { (get(device, "device")?, place(digest, "digest")?, parameters(options)?) };
        let work = Work::default();
        let made = describe_device(&*device.0.device(), &parameters, &work)
            .and_then(|descriptor| descriptor.digest(&work.providers));
        Ok(store(digest, made.map_err(|error| error.at(device.0.name()))?.bytes()))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, describe) }
}

/// Receives the result of the file at `index`: its digest, or the error that kept it from being read; the other one
/// is NULL. The callee frees neither. Returns 0 to continue.
pub type DigestFn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        index: usize,
        digest: *const CDigest,
        error: *const CError,
    ) -> c_int,
>;

/// Computes the fs-verity digests of many files. Small files are read by all threads at once.
///
/// @param paths array of paths on the host
/// @param count number of paths
/// @param options options, or NULL for the usual values
/// @param each called by this thread, in the order of `paths`; a value other than 0 ends the work
/// @param context passed to `each`
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES if `each` was called for every file, or the status of `error`; its kind is CASEMATE_KIND_INTERRUPTED if
///   `each` ended the work
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_fsverity_digest_files(
    paths: *const *const c_char,
    count: usize,
    options: *const FsverityOptions,
    each: DigestFn,
    context: *mut c_void,
    error: *mut *mut CError,
) -> Status {
    let describe = || {
        let each = each.ok_or_else(|| Error::argument("each is NULL"))?;
        let paths = match paths.is_null() {
            true if count > 0 => return Err(Error::argument("paths is NULL")),
            true => &[],
            false if count > isize::MAX.cast_unsigned() / size_of::<*const c_char>() => {
                return Err(Error::argument(format!("{count} paths, which no memory has")));
            }
            // SAFETY: the header says that there are so many pointers, and there are no more than a slice can have.
            false => unsafe { slice::from_raw_parts(paths, count) },
        };
        // SAFETY: the header says what these pointers are.
        let paths = paths.iter().map(|name| unsafe { c_path(*name, "a path") });
        let paths: Vec<&Path> = paths.collect::<Result<_, _>>()?;
        // SAFETY: the header says what these pointers are.
        let (parameters, work) = (unsafe { parameters(options)? }, Work::default());
        let mut told = 0;
        let tell = |found: Result<FileDigest, Error>, index: usize| match found {
            Ok(found) => {
                let mut digest = CDigest { len: 0, bytes: [0; LONGEST] };
                store(&mut digest, found.bytes());
                // SAFETY: the caller gave this function and its context for such calls.
                unsafe { each(context, index, &raw const digest, ptr::null()) }
            }
            Err(wrong) => {
                let wrong = CError::new(status_of(&wrong), &wrong);
                // SAFETY: as above.
                unsafe { each(context, index, ptr::null(), &raw const wrong) }
            }
        };
        let done = describe_many(&paths, &parameters, &work, |found| {
            for (_, found) in found {
                if tell(found.and_then(|descriptor| descriptor.digest(&work.providers)), told) != 0 {
                    return Err(Error::new(ErrorKind::Interrupted, "the caller wants no more digests"));
                }
                told += 1;
            }
            Ok(())
        });
        done.map(|()| YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, describe) }
}

/// Creates a hasher for the fs-verity digest of a stream of bytes.
///
/// @param options options, or NULL for the usual values
/// @param hasher where the hasher is stored; the caller frees it with casemate_hasher_free(). One thread uses
///   it at a time
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_hasher_new(
    options: *const FsverityOptions,
    hasher: *mut *mut CHasher,
    error: *mut *mut CError,
) -> Status {
    let make = || {
        // SAFETY: the header says what these pointers are.
        let (hasher, parameters) = unsafe { (place(hasher, "hasher")?, parameters(options)?) };
        Ok(give(hasher, CHasher(FileHasher::new(parameters, &Providers::default())?)))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, make) }
}

/// Adds bytes to a hasher.
///
/// @param hasher the hasher
/// @param data the bytes
/// @param len number of bytes
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_hasher_update(
    hasher: *mut CHasher,
    data: *const c_void,
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

/// Returns the digest of all bytes so far. The hasher is unchanged, and takes more bytes.
///
/// @param hasher the hasher
/// @param digest where the digest is stored
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_hasher_digest(
    hasher: *const CHasher,
    digest: *mut CDigest,
    error: *mut *mut CError,
) -> Status {
    let finish = || {
        // SAFETY: the header says what these pointers are.
        let (hasher, digest) = unsafe { (get(hasher, "hasher")?, place(digest, "digest")?) };
        Ok(store(digest, hasher.0.clone().finish()?.digest(&Providers::default())?.bytes()))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, finish) }
}

/// Frees a hasher.
///
/// @param hasher a hasher, or NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_hasher_free(hasher: *mut CHasher) {
    // SAFETY: the header says what this pointer is.
    unsafe { free(hasher) }
}
