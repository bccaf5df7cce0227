//! Encrypted directories of a new file system.

use std::ffi::{c_char, c_void};
use std::os::unix::ffi::OsStrExt;

use casemate::blockdev::usize_of;
use casemate::ext4::{BuildSpec, EncryptedFolder, NewPolicy};
use casemate::{Error, SecretSource, SecretVec};

use super::{CBuild, change};
use crate::boundary::{Options, Status, bytes, c_options, c_path, text};
use crate::error::CError;

/// Policy of an encrypted directory, but for its key; a field that is 0 or NULL has its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CPolicyOptions {
    size: u32,
    /// 2, or 1
    version: u32,
    /// Bytes that names are padded to a multiple of: 32, or 4, 8, 16
    padding: u32,
    /// Bytes of a data unit; 0: of a block.
    data_unit_size: u32,
    /// "aes-256-xts"
    contents_mode: *const c_char,
    /// "aes-256-cts"
    names_mode: *const c_char,
    /// "file": a key for each file; or "direct", "inode64", "inode32": one for all, and IVs with the nonce or the inode's number
    ivs: *const c_char,
}

// SAFETY: it is `repr(C)`, begins with a `u32`, and numbers and pointers are any bytes.
unsafe impl Options for CPolicyOptions {}

/// Encrypts a directory, with its contents, with a raw master key of 16 to 64 bytes.
///
/// @param build the specification
/// @param directory the directory in the file system
/// @param key the key; it is copied, and wiped by casemate_build_free()
/// @param key_len its length in bytes
/// @param policy the policy, or NULL for the usual values
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_encrypt(
    build: *mut CBuild,
    directory: *const c_char,
    key: *const c_void,
    key_len: usize,
    policy: *const CPolicyOptions,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (directory, key) = unsafe { (c_path(directory, "directory")?, bytes(key, key_len, "key")?) };
        let key = SecretSource::memory(SecretVec::from(key));
        let folder = EncryptedFolder::new(directory.as_os_str().as_bytes(), key);
        // SAFETY: the header says what this pointer is.
        spec.encryption.push(folder.policy(unsafe { new_policy(policy)? }));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Encrypts a directory, with its contents, with a random key that google/fscrypt opens with a secret. The files of that tool
/// are put into the file system.
///
/// @param build the specification
/// @param directory the directory in the file system
/// @param source "custom_passphrase", or "raw_key" for a key of 32 bytes; NULL is a passphrase
/// @param secret the passphrase or key; it is copied, and wiped by casemate_build_free()
/// @param secret_len its length in bytes
/// @param policy the policy, or NULL for the usual values
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_protect(
    build: *mut CBuild,
    directory: *const c_char,
    source: *const c_char,
    secret: *const c_void,
    secret_len: usize,
    policy: *const CPolicyOptions,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (directory, source) = unsafe { (c_path(directory, "directory")?, text(source, "source")?) };
        // SAFETY: the header says what this pointer is.
        let secret = SecretVec::from(unsafe { bytes(secret, secret_len, "secret")? });
        let source = source.map_or(Ok(Default::default()), str::parse)?;
        let secret = SecretSource::memory(secret);
        let folder = EncryptedFolder::protected(directory.as_os_str().as_bytes(), source, secret);
        // SAFETY: the header says what this pointer is.
        spec.encryption.push(folder.policy(unsafe { new_policy(policy)? }));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// The policy that options say.
///
/// # Safety
/// `options` is NULL, or options whose strings are NULL or end with a zero byte.
unsafe fn new_policy(options: *const CPolicyOptions) -> Result<NewPolicy, Error> {
    // SAFETY: the caller says what this pointer is.
    let how = unsafe { c_options(options)? };
    let mut policy = NewPolicy::default();
    // SAFETY: the caller says what these pointers are.
    let (contents, names) =
        unsafe { (text(how.contents_mode, "contents_mode")?, text(how.names_mode, "names_mode")?) };
    policy.contents = contents.map_or(Ok(policy.contents), str::parse)?;
    policy.names = names.map_or(Ok(policy.names), str::parse)?;
    // SAFETY: the caller says what this pointer is.
    policy.ivs = unsafe { text(how.ivs, "ivs")? }.map_or(Ok(policy.ivs), str::parse)?;
    if how.version != 0 {
        policy.set_version(how.version)?;
    }
    if how.padding != 0 {
        policy.padding = usize_of(how.padding);
    }
    policy.data_unit_size = Some(how.data_unit_size).filter(|size| *size != 0);
    Ok(policy)
}
