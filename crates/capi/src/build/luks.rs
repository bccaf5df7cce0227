//! LUKS2 volumes around a new file system.

use std::ffi::{c_char, c_void};

use casemate::ext4::{BuildSpec, LuksSpec};
use casemate::luks::{LuksFormatOptions, Pbkdf};
use casemate::{Error, SecretVec};

use super::{CBuild, change};
use crate::boundary::{Options, Status, bytes, c_options, optional, text};
use crate::error::CError;

/// Options of a LUKS2 volume around a new file system. A field that is 0 or NULL has its default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CLuksOptions {
    size: u32,
    /// 512
    sector_size: u32,
    /// NULL, with a length of 0: a random one. With one the volume follows from the seed of the build.
    volume_key: *const c_void,
    volume_key_len: usize,
    /// "argon2id", or "argon2i", "pbkdf2"
    kdf: *const c_char,
    /// Of the KDF.
    iterations: u32,
    /// Of Argon2, in KiB; 0 with "pbkdf2".
    memory: u32,
    /// Of Argon2; 0 with "pbkdf2".
    lanes: u32,
    /// 0
    reserved: u32,
}

// SAFETY: it is `repr(C)`, begins with a `u32`, and numbers and pointers are any bytes.
unsafe impl Options for CLuksOptions {}

/// Makes a LUKS2 volume around everything, which a passphrase opens.
///
/// @param build the specification
/// @param passphrase the passphrase; it is copied, and wiped by casemate_build_free()
/// @param passphrase_len its length in bytes
/// @param options options, or NULL for the usual values
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_luks(
    build: *mut CBuild,
    passphrase: *const c_void,
    passphrase_len: usize,
    options: *const CLuksOptions,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (passphrase, how) =
            unsafe { (bytes(passphrase, passphrase_len, "passphrase")?, c_options(options)?) };
        if how.reserved != 0 {
            return Err(Error::unsupported(
                "the options have a field that only newer versions of the library know",
            ));
        }
        let mut format = LuksFormatOptions::default();
        if how.sector_size != 0 {
            format.sector_size = how.sector_size;
        }
        // SAFETY: the header says what these pointers are.
        let key = unsafe { optional(how.volume_key, how.volume_key_len, "volume_key")? };
        format.volume_key = key.map(SecretVec::from);
        // SAFETY: the header says what this pointer is.
        let kdf = unsafe { text(how.kdf, "kdf")? };
        format.pbkdf = Some(pbkdf(kdf.unwrap_or("argon2id"), &how, &format.hash)?);
        spec.luks = Some(LuksSpec::new(SecretVec::from(passphrase)).format(format));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// The KDF, with its usual costs where they are zero.
fn pbkdf(name: &str, how: &CLuksOptions, hash: &str) -> Result<Pbkdf, Error> {
    let given = |cost: u32| Some(cost).filter(|cost| *cost != 0);
    Pbkdf::named(name, hash, given(how.iterations), given(how.memory), given(how.lanes))
}
