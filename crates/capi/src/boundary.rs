//! C's pointers as Rust values, and Rust's results as C's.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::{mem, ptr, slice};

use casemate::Error;
use casemate::blockdev::usize_of;

/// The status that every function returns: the command's exit status, and 101 for a fault of the library itself.
pub type Status = i32;

pub const YES: Status = 0;
/// A mismatch or damage was found.
pub const NO: Status = 1;
pub const COULD_NOT: Status = 2;
/// A fault of the library itself.
pub const FAULT: Status = 101;
pub const INTERRUPTED: Status = 130;

/// Bytes of a structure of options at most: those of today have some hundred, and newer ones grow by fields. More is a number that
/// somebody forgot to set.
const MOST_OPTIONS: usize = 4096;

/// Structure of options that begins with its size in the caller's eyes, so that it can grow.
///
/// # Safety
/// It is `repr(C)`, begins with a `u32`, and any bytes make one.
pub unsafe trait Options: Copy {}

fn is_null(name: &str) -> Error {
    Error::argument(format!("{name} is NULL"))
}

/// The value behind a pointer.
///
/// # Safety
/// `value` is NULL, or points to a value that lives as long as the call.
pub unsafe fn get<'a, T>(value: *const T, name: &str) -> Result<&'a T, Error> {
    // SAFETY: the caller says that it points to a value, unless it is NULL.
    unsafe { value.as_ref() }.ok_or_else(|| is_null(name))
}

/// The place that a result goes to.
///
/// # Safety
/// `out` is NULL, or a value can be written there that nobody else uses meanwhile.
pub unsafe fn place<'a, T>(out: *mut T, name: &str) -> Result<&'a mut T, Error> {
    // SAFETY: the caller says that a value can be written there, unless it is NULL.
    unsafe { out.as_mut() }.ok_or_else(|| is_null(name))
}

/// Bytes; none at all may lie at NULL.
///
/// # Safety
/// `data` points to `len` bytes that nobody changes during the call, unless it is NULL.
pub unsafe fn bytes<'a>(data: *const c_void, len: usize, name: &str) -> Result<&'a [u8], Error> {
    match (data.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(is_null(name)),
        // SAFETY: the caller says that so many bytes are there, and there are no more than a slice can have.
        (false, _) => check_len(len, name).map(|()| unsafe { slice::from_raw_parts(data.cast(), len) }),
    }
}

/// Bytes that may be missing: `None` at NULL, which has no length.
///
/// # Safety
/// As of [`bytes`].
pub unsafe fn optional<'a>(data: *const c_void, len: usize, name: &str) -> Result<Option<&'a [u8]>, Error> {
    // SAFETY: the caller says what this pointer is.
    let found = unsafe { bytes(data, len, name)? };
    Ok((!data.is_null()).then_some(found))
}

/// Room for bytes.
///
/// # Safety
/// `data` points to `len` bytes that nobody else uses during the call, unless it is NULL.
pub unsafe fn room<'a>(data: *mut c_void, len: usize, name: &str) -> Result<&'a mut [u8], Error> {
    match (data.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(is_null(name)),
        // SAFETY: the caller says that so many bytes are there, and there are no more than a slice can have.
        (false, _) => check_len(len, name).map(|()| unsafe { slice::from_raw_parts_mut(data.cast(), len) }),
    }
}

/// Refuses a number of bytes that no memory has, such as a negative one.
pub fn check_len(len: usize, name: &str) -> Result<(), Error> {
    match isize::try_from(len) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::argument(format!("{name} has {len} bytes, which no memory has"))),
    }
}

/// A string; `None` for NULL.
///
/// # Safety
/// `text` is NULL, or ends with a zero byte.
pub unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>, Error> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller says that it ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Error::argument(format!("{name} is not valid UTF-8")))
}

/// A path of any bytes.
///
/// # Safety
/// `path` is NULL, or ends with a zero byte.
pub unsafe fn c_path<'a>(path: *const c_char, name: &str) -> Result<&'a Path, Error> {
    // SAFETY: the caller says what this pointer is.
    unsafe { path_if_any(path) }.ok_or_else(|| is_null(name))
}

/// A path of any bytes; `None` for NULL.
///
/// # Safety
/// `path` is NULL, or ends with a zero byte.
pub unsafe fn path_if_any<'a>(path: *const c_char) -> Option<&'a Path> {
    // SAFETY: the caller says that it ends with a zero byte.
    let bytes = |path: *const c_char| unsafe { CStr::from_ptr(path) }.to_bytes();
    (!path.is_null()).then(|| Path::new(OsStr::from_bytes(bytes(path))))
}

/// The caller's options; all zeros where it knows less than this library.
///
/// # Safety
/// `options` is NULL, or points to as many bytes as the number says that they begin with.
pub unsafe fn c_options<T: Options>(options: *const T) -> Result<T, Error> {
    // SAFETY: any bytes make one, so zeros do.
    let mut own: T = unsafe { mem::zeroed() };
    if options.is_null() {
        return Ok(own);
    }
    // SAFETY: it begins with its size, and that may not be aligned for more.
    let size = usize_of(unsafe { options.cast::<u32>().read_unaligned() });
    if size < mem::size_of::<u32>() {
        return Err(Error::argument("a structure of options does not begin with its size"));
    }
    if size > MOST_OPTIONS {
        let text = format!(
            "a structure of options begins with a size of {size} bytes; none has more than {MOST_OPTIONS}"
        );
        return Err(Error::argument(text));
    }
    let known = size.min(mem::size_of::<T>());
    // SAFETY: so many bytes are there on both sides, and any bytes make one.
    unsafe { ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut own).cast::<u8>(), known) };
    // SAFETY: so many bytes are there.
    let behind = unsafe { slice::from_raw_parts(options.cast::<u8>(), size) };
    match behind[known..].iter().all(|byte| *byte == 0) {
        true => Ok(own),
        false => {
            Err(Error::unsupported("the options have a field that only newer versions of the library know"))
        }
    }
}

/// A new handle.
pub fn give<T>(out: &mut *mut T, value: T) -> Status {
    *out = Box::into_raw(Box::new(value));
    YES
}

/// Gives a handle back; NULL is none.
///
/// # Safety
/// `handle` is NULL, or was made by [`give`] and is used by nobody any more.
pub unsafe fn free<T>(handle: *mut T) {
    // SAFETY: as the caller says.
    unsafe { end(handle, drop) }
}

/// Gives a handle back, of which something has still to be done; NULL is none.
///
/// # Safety
/// As of [`free`].
pub unsafe fn end<T>(handle: *mut T, last: impl FnOnce(Box<T>)) {
    if !handle.is_null() {
        // SAFETY: the caller says that it was made by `give`, and is not used any more.
        let owned = unsafe { Box::from_raw(handle) };
        // A fault in what it drops stays here.
        let _ = catch_unwind(AssertUnwindSafe(|| last(owned)));
    }
}
