//! Errors as objects.

use std::ffi::{CString, c_char};
use std::ptr;

use casemate::Error;

use crate::boundary::{Status, free};

/// An error: status, family, number and text.
pub struct CError {
    status: Status,
    kind: i32,
    errno: i32,
    message: CString,
}

impl CError {
    pub fn new(status: Status, error: &Error) -> CError {
        // A name may hold any byte but this.
        let message = error.to_string().replace('\0', "?");
        CError {
            status,
            kind: error.kind() as i32,
            errno: casemate::errno(error).unwrap_or(0),
            message: CString::new(message).unwrap_or_default(),
        }
    }
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn casemate_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The status that came with the error.
///
/// # Safety
/// `error` is NULL or an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_error_status(error: *const CError) -> i32 {
    // SAFETY: the caller says that it is an error, unless it is NULL.
    unsafe { error.as_ref() }.map_or(0, |error| error.status)
}

/// The error's family.
///
/// # Safety
/// `error` is NULL or an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_error_kind(error: *const CError) -> i32 {
    // SAFETY: the caller says that it is an error, unless it is NULL.
    unsafe { error.as_ref() }.map_or(0, |error| error.kind)
}

/// The system's number, or 0.
///
/// # Safety
/// `error` is NULL or an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_error_errno(error: *const CError) -> i32 {
    // SAFETY: the caller says that it is an error, unless it is NULL.
    unsafe { error.as_ref() }.map_or(0, |error| error.errno)
}

/// The error's text.
///
/// # Safety
/// `error` is NULL or an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_error_message(error: *const CError) -> *const c_char {
    // SAFETY: the caller says that it is an error, unless it is NULL.
    unsafe { error.as_ref() }.map_or(ptr::null(), |error| error.message.as_ptr())
}

/// Frees an error.
///
/// # Safety
/// `error` is NULL or an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_error_free(error: *mut CError) {
    // SAFETY: the caller says that it is an error of ours, unless it is NULL.
    unsafe { free(error) }
}
