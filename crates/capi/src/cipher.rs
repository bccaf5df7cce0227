//! dm-crypt's sectors, encrypted and decrypted where the caller has them.

use std::ffi::{c_char, c_int, c_void};

use casemate::blockdev::usize_of;
use casemate::crypt::{Direction, Mapping, MappingOptions};
use casemate::{Error, SecretSource, SecretVec, Work};

use crate::boundary::{Options, Status, YES, bytes, c_options, free, get, give, place, room, text};
use crate::error::{CError, run};

/// A dm-crypt cipher with its key.
pub struct CCipher(Mapping);

/// Options of a dm-crypt mapping. A field that is 0 or NULL has its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CryptOptions {
    size: u32,
    /// Sector size in bytes; default 512.
    sector_size: u32,
    /// Cipher specification; default "aes-xts-plain64".
    cipher: *const c_char,
    /// First sector of the data, in sectors of 512 bytes.
    offset: u64,
    iv_offset: u64,
}

// SAFETY: it is `repr(C)`, begins with a `u32`, and numbers and pointers are any bytes.
unsafe impl Options for CryptOptions {}

/// The mapping that options describe.
///
/// # Safety
/// As `casemate.h` says of a key and its length, and of the options.
pub unsafe fn mapping(
    key: *const c_void,
    key_len: usize,
    how: *const CryptOptions,
) -> Result<Mapping, Error> {
    // SAFETY: the caller says what these pointers are.
    let (key, how) = unsafe { (SecretVec::from(bytes(key, key_len, "key")?), c_options(how)?) };
    let mut mapping = MappingOptions::default();
    // SAFETY: the caller says what this pointer is.
    if let Some(cipher) = unsafe { text(how.cipher, "cipher")? } {
        mapping.cipher = cipher.to_owned();
    }
    if how.sector_size != 0 {
        mapping.sector_size = usize_of(how.sector_size);
    }
    (mapping.offset, mapping.iv_offset) = (how.offset, how.iv_offset);
    mapping.key_bits = Some(key.len().saturating_mul(8));
    mapping.with_key(&SecretSource::memory(key), &Work::default())
}

/// Creates a cipher for data that the caller holds in memory.
///
/// @param key the key; it is copied, and wiped when the cipher is freed
/// @param key_len length of the key in bytes
/// @param options options, or NULL for the usual values; `offset` must be 0
/// @param cipher where the new cipher is stored; the caller frees it with casemate_cipher_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_cipher_new(
    key: *const c_void,
    key_len: usize,
    options: *const CryptOptions,
    cipher: *mut *mut CCipher,
    error: *mut *mut CError,
) -> Status {
    let make = || {
        // SAFETY: the header says what these pointers are.
        let (cipher, mapping) = unsafe { (place(cipher, "cipher")?, mapping(key, key_len, options)?) };
        if mapping.offset != 0 {
            return Err(Error::argument("offset is for devices: the caller's data have none"));
        }
        Ok(give(cipher, CCipher(mapping)))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, make) }
}

/// Encrypts or decrypts whole sectors in place. Any number of threads may use one cipher at once.
///
/// @param cipher the cipher
/// @param encrypt 1 to encrypt, 0 to decrypt
/// @param sector number of the first sector, in units of 512 bytes
/// @param data the bytes to transform
/// @param len length of the data in bytes, a multiple of the sector size
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_cipher_run(
    cipher: *const CCipher,
    encrypt: c_int,
    sector: u64,
    data: *mut c_void,
    len: usize,
    error: *mut *mut CError,
) -> Status {
    let work = || {
        // SAFETY: the header says what these pointers are.
        let (cipher, data) = unsafe { (get(cipher, "cipher")?, room(data, len, "data")?) };
        let direction = if encrypt == 0 { Direction::Decrypt } else { Direction::Encrypt };
        cipher.0.cipher().run(direction, sector, data)?;
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, work) }
}

/// Frees a cipher and wipes its key.
///
/// @param cipher the cipher, or NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_cipher_free(cipher: *mut CCipher) {
    // SAFETY: the header says what this pointer is.
    unsafe { free(cipher) }
}
