//! `libfsverity.so.0` in place of fsverity-utils' own: the same eight functions (`libfsverity.h` of version 1.5 is their
//! documentation), so that programs which are linked to it, as rpmsign, run unchanged.
//!
//! Results are what `free` takes, errors negative numbers of errno. Functions of the caller are called on its own thread.
#![allow(unsafe_code, reason = "C's pointers, at the boundary")]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod params;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::{ptr, slice};

use casemate::blockdev::{Pool, u64_of, usize_of};
use casemate::fsverity::{Algorithm, Describer, FileDigest, enable_file};
use casemate::signature::{Certificate, DigestAlgorithm, SigningKey, sign};
use casemate::tree::{Geometry, TreeSink};
use casemate::{Error, Providers, Work};

use params::{Callbacks, MerkleTreeParams, SignatureParams};

/// The callback for error messages.
static TELL: Mutex<Option<unsafe extern "C" fn(*const c_char)>> = Mutex::new(None);

/// Function that reads the next bytes of a file, all that are asked for: 0, or a negative number of errno.
type ReadFn = unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> c_int;

/// The beginning of a digest as C has it; its bytes follow.
#[repr(C)]
pub struct Digest {
    algorithm: u16,
    size: u16,
}

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
}

/// A failure: a number of errno, and words.
struct Failure(i32, String);

/// Numbers of errno, the same on all of Linux.
mod errno {
    pub const EIO: i32 = 5;
    pub const ENOMEM: i32 = 12;
    pub const EINVAL: i32 = 22;
    pub const EBADMSG: i32 = 74;
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure(casemate::errno(&error).unwrap_or(errno::EINVAL), error.to_string())
    }
}

fn invalid(text: &str) -> Failure {
    Failure(errno::EINVAL, text.to_owned())
}

/// Runs a function of the library; the number that it returns to C.
fn run(run: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let fault = || Failure(errno::EIO, "a fault of the library itself".to_owned());
    match catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(fault())) {
        Ok(()) => 0,
        Err(Failure(number, text)) => {
            let tell = *TELL.lock().unwrap_or_else(PoisonError::into_inner);
            if let (Some(tell), Ok(text)) = (tell, std::ffi::CString::new(text)) {
                // SAFETY: who set the function says that it takes a string, which lives until it returns.
                unsafe { tell(text.as_ptr()) };
            }
            -number
        }
    }
}

/// Bytes that C frees.
///
/// # Errors
/// `ENOMEM`.
fn allocated(parts: &[&[u8]]) -> Result<*mut u8, Failure> {
    let bytes = parts.concat();
    // SAFETY: malloc may be called with any size.
    let place = unsafe { malloc(bytes.len().max(1)) }.cast::<u8>();
    if place.is_null() {
        return Err(Failure(errno::ENOMEM, "out of memory".to_owned()));
    }
    // SAFETY: so many bytes were allocated just now, and nobody else has them.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    Ok(place)
}

/// Bytes that are read at once at most: what an int holds.
const MOST_READ: u64 = 0x7fff_ffff;

/// A file of a known size that the caller reads.
struct Input {
    fd: *mut c_void,
    read: ReadFn,
    left: u64,
}

// SAFETY: there is one thread, the caller's: the pool has no other.
unsafe impl Send for Input {}

impl Read for Input {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = usize_of(u64_of(buf.len()).min(self.left).min(MOST_READ));
        if len == 0 {
            return Ok(0);
        }
        // SAFETY: the caller says that the function takes this context and writes so many bytes.
        match unsafe { (self.read)(self.fd, buf.as_mut_ptr().cast(), len) } {
            0 => {
                self.left -= u64_of(len);
                Ok(len)
            }
            number => Err(io::Error::from_raw_os_error(number.saturating_abs())),
        }
    }
}

/// Where the blocks of a tree go: to the caller.
struct Blocks<'a> {
    geometry: &'a Geometry,
    callbacks: &'a Callbacks,
}

// SAFETY: there is one thread, the caller's: the pool has no other.
unsafe impl Sync for Blocks<'_> {}

impl TreeSink for Blocks<'_> {
    fn write(&self, level: usize, first: u64, blocks: &[u8]) -> Result<(), Error> {
        let size = self.geometry.shape().hash_block_size();
        for (block, index) in blocks.chunks(size).zip(first..) {
            self.callbacks.block(block, self.geometry.offset(level, index))?;
        }
        Ok(())
    }
}

/// See `libfsverity.h`.
///
/// # Safety
/// `params` is NULL, or points to parameters whose salt and callbacks are there; `read_fn` takes `fd`; a pointer can be written
/// to `digest_ret`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libfsverity_compute_digest(
    fd: *mut c_void,
    read_fn: Option<ReadFn>,
    params: *const MerkleTreeParams,
    digest_ret: *mut *mut Digest,
) -> c_int {
    run(|| {
        // SAFETY: the caller's promise.
        let (params, out) = unsafe { (params.as_ref(), digest_ret.as_mut()) };
        let (Some(read), Some(params), Some(out)) = (read_fn, params, out) else {
            return Err(invalid("missing required parameters for compute_digest"));
        };
        // SAFETY: the caller's promise.
        let (parameters, callbacks) = unsafe { (params.parameters()?, params.callbacks()) };
        let geometry = parameters.geometry(params.file_size)?;
        let pool = Pool::new(NonZeroUsize::new(1));
        let work = Work { pool, ..Work::default() };
        let mut input = Input { fd, read, left: params.file_size };
        let blocks = callbacks.map(|callbacks| Blocks { geometry: &geometry, callbacks });
        let sink: &dyn TreeSink = match &blocks {
            Some(blocks) => {
                blocks.callbacks.size(geometry.tree_size())?;
                blocks
            }
            None => &(),
        };
        let descriptor = Describer::new(parameters, &work)?.describe_stream(&mut input, sink)?;
        if let Some(callbacks) = callbacks {
            callbacks.descriptor(&descriptor.to_bytes())?;
        }
        let digest = descriptor.digest(&work.providers)?;
        let (algorithm, bytes) = (u16::from(digest.algorithm().number()), digest.bytes());
        let size = u16::try_from(bytes.len()).map_err(|_| invalid("a digest of the wrong size"))?;
        let head = [algorithm.to_ne_bytes(), size.to_ne_bytes()];
        *out = allocated(&[head.as_flattened(), bytes])?.cast();
        Ok(())
    })
}

/// See `libfsverity.h`.
///
/// # Safety
/// `digest` is NULL, or points to a digest with so many bytes behind it as it says; strings of `sig_params` end with zeros; the
/// results can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libfsverity_sign_digest(
    digest: *const Digest,
    sig_params: *const SignatureParams,
    sig_ret: *mut *mut u8,
    sig_size_ret: *mut usize,
) -> c_int {
    run(|| {
        // SAFETY: the caller's promise.
        let found =
            unsafe { (digest.as_ref(), sig_params.as_ref(), sig_ret.as_mut(), sig_size_ret.as_mut()) };
        let (Some(head), Some(params), Some(out), Some(size)) = found else {
            return Err(invalid("missing required parameters for sign_digest"));
        };
        let algorithm = Algorithm::numbered(head.algorithm.into())
            .ok_or_else(|| invalid("unrecognized hash algorithm"))?;
        if usize::from(head.size) != algorithm.digest_len() {
            return Err(invalid("a digest of the wrong size"));
        }
        // SAFETY: the caller says that the digest's bytes follow.
        let bytes = unsafe { slice::from_raw_parts(digest.add(1).cast::<u8>(), algorithm.digest_len()) };
        // SAFETY: the caller's promise.
        let (key, certificate) = unsafe { params.files()? };
        let read = |path: &Path| {
            std::fs::read(path).map(zeroize::Zeroizing::new).map_err(|error| Error::io(path.display(), error))
        };
        let bad = |error: Error| Failure(errno::EBADMSG, error.to_string());
        let key = SigningKey::from_pem(&read(key)?).map_err(bad)?;
        let certificate = Certificate::from_bytes(&read(certificate)?).map_err(bad)?;
        let message = FileDigest::new(algorithm, bytes.to_vec()).bytes_to_sign();
        let hash = DigestAlgorithm::named(algorithm.name())?;
        let signed = sign(&message, &key, &certificate, hash, &Providers::default())?;
        *out = allocated(&[&signed])?;
        *size = signed.len();
        Ok(())
    })
}

/// See `libfsverity.h`.
///
/// # Safety
/// As [`libfsverity_enable_with_sig`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libfsverity_enable(fd: c_int, params: *const MerkleTreeParams) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libfsverity_enable_with_sig(fd, params, ptr::null(), 0) }
}

/// See `libfsverity.h`.
///
/// # Safety
/// `params` is NULL, or points to parameters whose salt is there; `sig` points to so many bytes, or is NULL; `fd` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libfsverity_enable_with_sig(
    fd: c_int,
    params: *const MerkleTreeParams,
    sig: *const u8,
    sig_size: usize,
) -> c_int {
    run(|| {
        // SAFETY: the caller's promise.
        let params =
            unsafe { params.as_ref() }.ok_or_else(|| invalid("missing required parameters for enable"))?;
        // SAFETY: the caller's promise.
        let parameters = unsafe { params.parameters()? };
        let signature = match sig.is_null() {
            true if sig_size > 0 => return Err(invalid("a signature of some bytes at NULL")),
            true => &[][..],
            // SAFETY: the caller says that so many bytes are there.
            false => unsafe { slice::from_raw_parts(sig, sig_size) },
        };
        if fd < 0 {
            return Err(Failure(9, "bad file descriptor".to_owned()));
        }
        // SAFETY: the caller says that the descriptor is open, and it is used during the call alone.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        enable_file(file, &parameters, signature)
            .map_err(|error| Failure(error.raw_os_error().unwrap_or(errno::EIO), error.to_string()))
    })
}

/// See `libfsverity.h`.
///
/// # Safety
/// `name` is NULL, or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libfsverity_find_hash_alg_by_name(name: *const c_char) -> u32 {
    if name.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    let found = name.to_str().ok().and_then(Algorithm::named);
    found.map_or(0, |algorithm| algorithm.number().into())
}

/// See `libfsverity.h`.
#[unsafe(no_mangle)]
pub extern "C" fn libfsverity_get_digest_size(alg_num: u32) -> c_int {
    let size =
        Algorithm::numbered(alg_num).and_then(|algorithm| c_int::try_from(algorithm.digest_len()).ok());
    size.unwrap_or(-1)
}

/// See `libfsverity.h`.
#[unsafe(no_mangle)]
pub extern "C" fn libfsverity_get_hash_name(alg_num: u32) -> *const c_char {
    match Algorithm::numbered(alg_num) {
        Some(Algorithm::Sha256) => c"sha256".as_ptr(),
        Some(Algorithm::Sha512) => c"sha512".as_ptr(),
        None => ptr::null(),
    }
}

/// See `libfsverity.h`.
///
/// # Safety
/// The function takes a string, from any thread that calls this library, as long as the process runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libfsverity_set_error_callback(cb: Option<unsafe extern "C" fn(*const c_char)>) {
    *TELL.lock().unwrap_or_else(PoisonError::into_inner) = cb;
}
