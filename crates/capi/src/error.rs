//! Errors as objects, and as statuses of functions.

use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use casemate::{Code, Error, ErrorKind};

use crate::boundary::{COULD_NOT, FAULT, INTERRUPTED, NO, Status, free};

/// The system or a path failed; casemate_error_errno() has its number.
pub const KIND_IO: i32 = 1;
/// A structure contradicts its format, or its checksum does not fit.
pub const KIND_CORRUPT: i32 = 2;
/// The library lacks a feature that the format allows.
pub const KIND_UNSUPPORTED: i32 = 3;
/// All was read, and a digest, signature or secret does not match.
pub const KIND_MISMATCH: i32 = 4;
/// A key is missing.
pub const KIND_LOCKED: i32 = 5;
/// Another process or handle uses the file or device.
pub const KIND_BUSY: i32 = 6;
/// An argument is outside its range, or arguments exclude each other.
pub const KIND_ARGUMENT: i32 = 7;
/// A signal or a callback stopped the work.
pub const KIND_INTERRUPTED: i32 = 8;

// The numbers stay, here and in the library below.
const _: () = {
    assert!(KIND_IO == of_kind(ErrorKind::Io) && KIND_CORRUPT == of_kind(ErrorKind::Corrupt));
    assert!(KIND_UNSUPPORTED == of_kind(ErrorKind::Unsupported));
    assert!(KIND_MISMATCH == of_kind(ErrorKind::Mismatch));
    assert!(KIND_LOCKED == of_kind(ErrorKind::Locked) && KIND_BUSY == of_kind(ErrorKind::Busy));
    assert!(KIND_ARGUMENT == of_kind(ErrorKind::Argument));
    assert!(KIND_INTERRUPTED == of_kind(ErrorKind::Interrupted));
};

/// The number of a kind.
#[expect(clippy::as_conversions, reason = "a discriminant, each of which is written out")]
const fn of_kind(kind: ErrorKind) -> i32 {
    kind as i32
}

/// The number of a code.
#[expect(clippy::as_conversions, reason = "a discriminant, each of which is written out")]
const fn of_code(code: Code) -> i32 {
    code as i32
}

/// An error: status, family, number and text.
pub struct CError {
    status: Status,
    kind: i32,
    errno: i32,
    code: i32,
    code_name: CString,
    message: CString,
}

impl CError {
    pub fn new(status: Status, error: &Error) -> CError {
        // A name may hold any byte but this.
        let message = error.to_string().replace('\0', "?");
        CError {
            status,
            kind: of_kind(error.kind()),
            errno: casemate::errno(error).unwrap_or(0),
            code: of_code(error.code()),
            code_name: CString::new(error.code().name()).unwrap_or_default(),
            message: CString::new(message).unwrap_or_default(),
        }
    }
}

/// Runs a function of the library; its error goes to `out` unless that is NULL.
///
/// # Safety
/// `out` is NULL, or a pointer can be written there.
pub unsafe fn run(out: *mut *mut CError, run: impl FnOnce() -> Result<Status, Error>) -> Status {
    let (status, error) = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(status)) => return status,
        Ok(Err(error)) => (status_of(&error), error),
        Err(_) => (
            FAULT,
            Error::unsupported("a fault of casemate itself; its message on standard error tells the place"),
        ),
    };
    // SAFETY: the caller says that a pointer can be written there, unless it is NULL.
    if let Some(out) = unsafe { out.as_mut() } {
        *out = Box::into_raw(Box::new(CError::new(status, &error)));
    }
    status
}

/// The exit status that an error stands for.
pub fn status_of(error: &Error) -> Status {
    match error.kind() {
        ErrorKind::Mismatch | ErrorKind::Corrupt => NO,
        ErrorKind::Interrupted => INTERRUPTED,
        _ => COULD_NOT,
    }
}

/// The library's version that a program is compiled for: the first number.
pub const VERSION_MAJOR: i32 = 0;
/// The second number.
pub const VERSION_MINOR: i32 = 1;
/// The third number.
pub const VERSION_PATCH: i32 = 0;

const _: () = {
    assert!(matches!(i32::from_str_radix(env!("CARGO_PKG_VERSION_MAJOR"), 10), Ok(VERSION_MAJOR)));
    assert!(matches!(i32::from_str_radix(env!("CARGO_PKG_VERSION_MINOR"), 10), Ok(VERSION_MINOR)));
    assert!(matches!(i32::from_str_radix(env!("CARGO_PKG_VERSION_PATCH"), 10), Ok(VERSION_PATCH)));
};

/// Returns the version of the library that is running, such as "0.1.0". The string is static.
#[unsafe(no_mangle)]
pub extern "C" fn casemate_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the status that a function returned with this error.
///
/// @param error an error, or NULL
/// @return the status; CASEMATE_YES for NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_error_status(error: *const CError) -> Status {
    // SAFETY: the caller says that it is an error, unless it is NULL.
    unsafe { error.as_ref() }.map_or(0, |error| error.status)
}

/// Returns the kind of an error.
///
/// @param error an error, or NULL
/// @return a CASEMATE_KIND value; 0 for NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_error_kind(error: *const CError) -> i32 {
    // SAFETY: the caller says that it is an error, unless it is NULL.
    unsafe { error.as_ref() }.map_or(0, |error| error.kind)
}

/// Returns the system error of an error.
///
/// @param error an error, or NULL
/// @return a number of errno.h; 0 if there is none
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_error_errno(error: *const CError) -> i32 {
    // SAFETY: the caller says that it is an error, unless it is NULL.
    unsafe { error.as_ref() }.map_or(0, |error| error.errno)
}

/// Returns the code of an error: what happened, for programs that branch on it. Numbers stay. docs/errors.md lists
/// all codes with their names.
///
/// @param error an error, or NULL
/// @return the code; 0 for NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_error_code(error: *const CError) -> i32 {
    // SAFETY: the caller says that it is an error, unless it is NULL.
    unsafe { error.as_ref() }.map_or(0, |error| error.code)
}

/// Returns the name of the code of an error, such as "no-room" or "wrong-key".
///
/// @param error an error, or NULL
/// @return a string that lives as long as the error; empty for NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_error_code_name(error: *const CError) -> *const c_char {
    // SAFETY: the caller says that it is an error, unless it is NULL.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.code_name.as_ptr())
}

/// Returns the message of an error: complete without context, in English, UTF-8.
///
/// @param error an error, or NULL
/// @return a string that lives as long as the error; empty for NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_error_message(error: *const CError) -> *const c_char {
    // SAFETY: the caller says that it is an error, unless it is NULL.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// Frees an error and its message.
///
/// @param error an error, or NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_error_free(error: *mut CError) {
    // SAFETY: the caller says that it is an error of ours, unless it is NULL.
    unsafe { free(error) }
}
