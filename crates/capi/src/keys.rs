//! Keys of encrypted folders.

use std::ffi::c_void;

use casemate::ext4::{ReadOptions, WriteOptions};
use casemate::{Error, Keys, SecretSource, SecretVec};

use crate::boundary::{Status, YES, bytes, free, give, place};
use crate::error::{CError, run};

/// Keys that open encrypted folders.
pub struct CKeys(Keys);

/// The keys behind a pointer; none at all for NULL.
///
/// # Safety
/// `keys` is NULL, or keys that were not freed.
unsafe fn c_keys(keys: *const CKeys) -> Keys {
    // SAFETY: the caller says what this pointer is.
    unsafe { keys.as_ref() }.map_or_else(Keys::default, |keys| keys.0.clone())
}

/// Options of reading a file system with keys.
///
/// # Safety
/// As [`c_keys`].
pub unsafe fn to_read(keys: *const CKeys) -> ReadOptions {
    let mut options = ReadOptions::default();
    // SAFETY: the caller says what this pointer is.
    options.keys = unsafe { c_keys(keys) };
    options
}

/// Options of changing a file system with keys.
///
/// # Safety
/// As [`c_keys`].
pub unsafe fn to_write(keys: *const CKeys) -> WriteOptions {
    let mut options = WriteOptions::default();
    // SAFETY: the caller says what this pointer is.
    options.keys = unsafe { c_keys(keys) };
    options
}

/// Creates an empty set of keys.
///
/// @param keys where the set is stored; the caller frees it with casemate_keys_free(). One thread uses it at a
///   time
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_keys_new(keys: *mut *mut CKeys, error: *mut *mut CError) -> Status {
    // SAFETY: the header says what these pointers are.
    unsafe { run(error, || Ok(give(place(keys, "keys")?, CKeys(Keys::default())))) }
}

/// Adds a raw master key.
///
/// @param keys the set
/// @param key the key; it is copied, and wiped when the last user of the set is freed
/// @param key_len its length, 16 to 64 bytes
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_keys_add_raw(
    keys: *mut CKeys,
    key: *const c_void,
    key_len: usize,
    error: *mut *mut CError,
) -> Status {
    // SAFETY: the header says what these pointers are.
    unsafe { add(keys, key, key_len, "key", error, |keys, key| keys.with_raw(key)) }
}

/// Adds a secret that opens protectors of google/fscrypt in the file system.
///
/// @param keys the set
/// @param passphrase a passphrase, or the 32 bytes of a raw key; it is copied and wiped as raw keys are
/// @param passphrase_len its length in bytes
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_keys_add_passphrase(
    keys: *mut CKeys,
    passphrase: *const c_void,
    passphrase_len: usize,
    error: *mut *mut CError,
) -> Status {
    // SAFETY: the header says what these pointers are.
    unsafe {
        add(keys, passphrase, passphrase_len, "passphrase", error, |keys, secret| keys.with_secret(secret))
    }
}

/// # Safety
/// `keys` is NULL or keys, `secret` points to so many bytes unless it is NULL, and `error` is NULL or a place for a pointer.
unsafe fn add(
    keys: *mut CKeys,
    secret: *const c_void,
    len: usize,
    name: &str,
    error: *mut *mut CError,
    add: impl FnOnce(Keys, &SecretSource) -> Result<Keys, Error>,
) -> Status {
    let added = || {
        // SAFETY: the caller says what these pointers are.
        let (keys, secret) = unsafe { (place(keys, "keys")?, bytes(secret, len, name)?) };
        keys.0 = add(keys.0.clone(), &SecretSource::memory(SecretVec::from(secret)))?;
        Ok(YES)
    };
    // SAFETY: the caller says what this pointer is.
    unsafe { run(error, added) }
}

/// Frees a set of keys and wipes them.
///
/// @param keys a set, or NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_keys_free(keys: *mut CKeys) {
    // SAFETY: the header says what this pointer is.
    unsafe { free(keys) }
}
