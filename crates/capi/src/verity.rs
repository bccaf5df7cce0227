//! dm-verity: data checked against a hash area.

use std::ffi::{c_char, c_void};

use casemate::verity::{BlockSize, FormatOptions, Salt, Uuid, VerityOptions};
use casemate::{Error, Work};

use crate::boundary::{NO, Options, Status, YES, bytes, c_options, get, optional, place, text};
use crate::device::CDevice;
use crate::error::{CError, run};
use crate::fsverity::{CDigest, store};

/// Options of a hash area. A field that is 0 or NULL has its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CVerityOptions {
    size: u32,
    /// 4096
    data_block_size: u32,
    /// 4096
    hash_block_size: u32,
    /// 0
    reserved: u32,
    /// "sha256"
    algorithm: *const c_char,
    /// NULL: 32 random bytes.
    salt: *const c_void,
    salt_len: usize,
    /// NULL: a random one.
    uuid: *const c_char,
    /// 0: as many as the data have.
    data_blocks: u64,
    /// Of the superblock, in bytes.
    hash_offset: u64,
}

// SAFETY: it is `repr(C)`, begins with a `u32`, and numbers and pointers are any bytes.
unsafe impl Options for CVerityOptions {}

/// # Safety
/// `how` is NULL or options.
unsafe fn format_options(how: *const CVerityOptions) -> Result<FormatOptions, Error> {
    // SAFETY: the caller says what this pointer is.
    let how = unsafe { c_options(how)? };
    if how.reserved != 0 {
        return Err(Error::unsupported(
            "the options have a field that only newer versions of the library know",
        ));
    }
    let block_size = |size: u32| (size != 0).then(|| BlockSize::new(size.into())).transpose();
    let mut options = FormatOptions::default();
    // SAFETY: the header says what this pointer is.
    options.area.algorithm = unsafe { text(how.algorithm, "algorithm")? }.map(str::to_owned);
    options.area.data_block_size = block_size(how.data_block_size)?;
    options.area.hash_block_size = block_size(how.hash_block_size)?;
    // SAFETY: the header says what these pointers are.
    let salt = unsafe { optional(how.salt, how.salt_len, "salt")? };
    options.area.salt = salt.map(|salt| Salt::new(salt.to_vec())).transpose()?;
    options.area.data_blocks = (how.data_blocks != 0).then_some(how.data_blocks);
    options.area.hash_offset = how.hash_offset;
    // SAFETY: the header says what this pointer is.
    options.uuid = unsafe { text(how.uuid, "uuid")? }.map(Uuid::from_text).transpose()?;
    Ok(options)
}

/// Writes a dm-verity hash area, as veritysetup does, with all threads.
///
/// @param data the device with the data
/// @param hash the device for the hash area; may be `data`, with an offset in the options
/// @param options options, or NULL for the usual values
/// @param root_hash where the root hash is stored
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_verity_format(
    data: *const CDevice,
    hash: *const CDevice,
    options: *const CVerityOptions,
    root_hash: *mut CDigest,
    error: *mut *mut CError,
) -> Status {
    let format = || {
        // SAFETY: the header says what these pointers are.
        let (data, hash) = unsafe { (get(data, "data")?, get(hash, "hash")?) };
        // SAFETY: the header says what these pointers are.
        let (root_hash, options) = unsafe { (place(root_hash, "root_hash")?, format_options(options)?) };
        let made = data.0.verity_format(&hash.0, &options, &Work::default())?;
        Ok(store(root_hash, &made.root_hash))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, format) }
}

/// Verifies all data and hash blocks, with all threads.
///
/// @param data the device with the data
/// @param hash the device with the hash area; may be `data`
/// @param root_hash the trusted root hash
/// @param root_hash_len its length in bytes
/// @param hash_offset first byte of the superblock on `hash`
/// @param bad_blocks where the number of wrong blocks is stored, or NULL
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES if all blocks match, CASEMATE_NO if some do not (no error is stored then), or the
///   status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_verity_verify(
    data: *const CDevice,
    hash: *const CDevice,
    root_hash: *const c_void,
    root_hash_len: usize,
    hash_offset: u64,
    bad_blocks: *mut u64,
    error: *mut *mut CError,
) -> Status {
    let verify = || {
        // SAFETY: the header says what these pointers are.
        let (data, hash) = unsafe { (get(data, "data")?, get(hash, "hash")?) };
        // SAFETY: the header says what these pointers are.
        let (root_hash, bad) =
            unsafe { (bytes(root_hash, root_hash_len, "root_hash")?, bad_blocks.as_mut()) };
        let mut options = VerityOptions::default();
        options.hash_offset = hash_offset;
        let volume = data.0.verity_volume(&hash.0, &options)?;
        let mut found = 0;
        volume.verify(root_hash, &Work::default(), &mut |finding| {
            found += 1;
            finding.unreadable().map_or(Ok(()), Err)
        })?;
        if let Some(bad) = bad {
            *bad = found;
        }
        Ok(if found == 0 { YES } else { NO })
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, verify) }
}
