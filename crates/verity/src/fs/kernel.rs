//! Ioctls of the kernel for fs-verity.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::{fmt, io};

use casemate_blockdev::u32_of;
use casemate_sys::fsverity as ioctl;

pub use casemate_sys::fsverity::Metadata;

use crate::fs::{Algorithm, FileDigest, Parameters};
use crate::{Code, Error};

/// A request that the kernel did not grant.
#[derive(Debug)]
pub struct KernelError {
    /// The request's name in the kernel's header; empty if it was opening the file.
    pub request: &'static str,
    /// The file.
    pub file: String,
    /// The kernel's error.
    pub error: io::Error,
}

/// The digest that the kernel has for a file.
///
/// # Errors
/// `NODATA` if the file does not have verity.
pub fn measure(path: &Path) -> Result<FileDigest, KernelError> {
    let failed = KernelError::of("FS_IOC_MEASURE_VERITY", path);
    let (number, digest) = ioctl::measure(&open(path)?).map_err(&failed)?;
    match Algorithm::numbered(number.into()) {
        Some(algorithm) if algorithm.digest_len() == digest.len() => Ok(FileDigest::new(algorithm, digest)),
        _ => Err(failed(io::Error::other(format!("unknown hash algorithm number {number}")))),
    }
}

/// Makes the kernel build a file's tree and protect the file. An empty signature is none.
///
/// # Errors
/// `KEYREJECTED` and others if the kernel refuses the signature; see [`KernelError`] for more.
pub fn enable(path: &Path, parameters: &Parameters, signature: &[u8]) -> Result<(), KernelError> {
    let enabled = enable_file(open(path)?, parameters, signature);
    enabled.map_err(KernelError::of("FS_IOC_ENABLE_VERITY", path))
}

/// Enables fs-verity on a file that is open for reading.
///
/// # Errors
/// Errors of the kernel.
pub fn enable_file(file: impl AsFd, parameters: &Parameters, signature: &[u8]) -> io::Result<()> {
    let number = parameters.algorithm().number();
    let block_size = u32_of(parameters.block_size());
    ioctl::enable(file, number.into(), block_size, parameters.salt(), signature)
}

/// Reads metadata that the kernel keeps for a file, from byte `offset` of it on; 0 bytes are its end.
///
/// # Errors
/// `NODATA` if the file does not have verity, or has no signature.
pub fn read_metadata(
    path: &Path,
    file: &File,
    kind: Metadata,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize, KernelError> {
    let read = ioctl::read_metadata(file, kind, offset, buf);
    read.map_err(KernelError::of("FS_IOC_READ_VERITY_METADATA", path))
}

impl KernelError {
    fn of(request: &'static str, path: &Path) -> impl Fn(io::Error) -> KernelError {
        move |error| KernelError { request, file: path.display().to_string(), error }
    }
}

/// The error in words that say what to do (Documentation/filesystems/fsverity.rst lists the numbers).
impl From<KernelError> for Error {
    fn from(error: KernelError) -> Error {
        let KernelError { file, error, .. } = error;
        let unsupported = |what: &str| Error::unsupported(format!("{file}: {what} ({error})"));
        match error.raw_os_error() {
            Some(libc::ENOTTY) => unsupported("this kernel or file system does not support fs-verity"),
            Some(libc::EOPNOTSUPP) => unsupported(
                "fs-verity is not enabled here; it needs CONFIG_FS_VERITY, and for ext4 'tune2fs -O verity DEVICE'",
            ),
            Some(libc::ENODATA) => unsupported("the file has no fs-verity, or lacks this metadata"),
            Some(libc::EEXIST) => unsupported("the file has fs-verity already"),
            Some(libc::ETXTBSY) => unsupported("a process has the file open for writing"),
            Some(libc::EKEYREJECTED | libc::EBADMSG) => Error::coded(
                Code::BadSignature,
                format!("{file}: the kernel refuses the signature ({error})"),
            ),
            Some(libc::ENOKEY) => Error::coded(
                Code::BadSignature,
                format!(
                    "{file}: the signer's certificate is not in the kernel's .fs-verity keyring ({error})"
                ),
            ),
            _ => Error::io(file, error),
        }
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.request {
            "" => write!(f, "{}: {}", self.file, self.error),
            request => write!(f, "{request} failed on '{}': {}", self.file, self.error),
        }
    }
}

impl std::error::Error for KernelError {}

fn open(path: &Path) -> Result<File, KernelError> {
    File::open(path).map_err(KernelError::of("", path))
}
