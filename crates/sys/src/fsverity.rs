//! The three ioctls of fs-verity, as safe functions.
//!
//! They are here because they need `unsafe`, and because no crate has them all: `composefs-ioctls` 0.9 can pass
//! neither a salt nor read metadata, `fs-verity` 0.2 passes the salt wrongly.
//!
//! Source: `include/uapi/linux/fsverity.h`. What errors mean is said in
//! Documentation/filesystems/fsverity.rst; `NOTTY` and `OPNOTSUPP` are a kernel or file system without fs-verity.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};

/// `FS_VERITY_METADATA_TYPE_*`: what [`read_metadata`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Metadata {
    /// The hash tree, root level first.
    MerkleTree = 1,
    /// The descriptor, without a signature.
    Descriptor = 2,
    /// The built-in signature.
    Signature = 3,
}

impl Metadata {
    #[expect(clippy::as_conversions, reason = "a discriminant of `repr(u64)`")]
    fn number(self) -> u64 {
        self as u64
    }
}

#[repr(C)]
struct EnableArg {
    version: u32,
    hash_algorithm: u32,
    block_size: u32,
    salt_size: u32,
    salt_ptr: u64,
    sig_size: u32,
    reserved1: u32,
    sig_ptr: u64,
    reserved2: [u64; 11],
}

/// `struct fsverity_digest` without its bytes: the size that is part of the request's number.
#[repr(C)]
struct DigestHeader {
    digest_algorithm: u16,
    digest_size: u16,
}

#[repr(C)]
struct Digest {
    header: DigestHeader,
    digest: [u8; MAX_DIGEST],
}

#[repr(C)]
struct ReadMetadataArg {
    metadata_type: u64,
    offset: u64,
    length: u64,
    buf_ptr: u64,
    reserved: u64,
}

const MAX_DIGEST: usize = 64;
const ENABLE: Opcode = opcode::write::<EnableArg>(b'f', 133);
const MEASURE: Opcode = opcode::read_write::<DigestHeader>(b'f', 134);
const READ_METADATA: Opcode = opcode::read_write::<ReadMetadataArg>(b'f', 135);

/// Makes the kernel build the tree of a file that is open for reading, and protect it from then on. An empty
/// signature is none.
///
/// # Errors
/// Errors of the kernel, and `InvalidInput` for lengths that do not fit in 32 bits.
pub fn enable(
    file: impl AsFd,
    algorithm: u32,
    block_size: u32,
    salt: &[u8],
    signature: &[u8],
) -> io::Result<()> {
    let size = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput);
    // The kernel wants no address where there are no bytes. It finds them by a number, so their provenance must
    // be known to the compiler.
    let address =
        |bytes: &[u8]| if bytes.is_empty() { 0 } else { number(bytes.as_ptr().expose_provenance()) };
    let mut arg = EnableArg {
        version: 1,
        hash_algorithm: algorithm,
        block_size,
        salt_size: size(salt)?,
        salt_ptr: address(salt),
        sig_size: size(signature)?,
        reserved1: 0,
        sig_ptr: address(signature),
        reserved2: [0; 11],
    };
    // SAFETY: ENABLE reads one `EnableArg`, and through it `salt_size` bytes of `salt` and `sig_size` bytes of
    // `signature`, which both live until the call returns; it writes nothing.
    unsafe { call(file.as_fd(), ENABLE, &mut arg) }?;
    Ok(())
}

/// The number of the hash algorithm, and the digest, of a file that has verity.
///
/// # Errors
/// Errors of the kernel; `NODATA` if the file does not have verity.
pub fn measure(file: impl AsFd) -> io::Result<(u16, Vec<u8>)> {
    let header = DigestHeader {
        digest_algorithm: 0,
        digest_size: u16::try_from(MAX_DIGEST).map_err(io::Error::other)?,
    };
    let mut arg = Digest { header, digest: [0; MAX_DIGEST] };
    // SAFETY: MEASURE writes a `DigestHeader` and after it at most the `digest_size` bytes that the header
    // announces, all of them inside `arg`.
    unsafe { call(file.as_fd(), MEASURE, &mut arg) }?;
    let len = usize::from(arg.header.digest_size).min(MAX_DIGEST);
    Ok((arg.header.digest_algorithm, arg.digest[..len].to_vec()))
}

/// Reads metadata of a file that has verity, from byte `offset` of it on. Returns how many bytes came: 0 at the
/// end.
///
/// # Errors
/// Errors of the kernel; `NODATA` if the file does not have verity or no signature.
pub fn read_metadata(file: impl AsFd, kind: Metadata, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut arg = ReadMetadataArg {
        metadata_type: kind.number(),
        offset,
        length: number(buf.len()),
        buf_ptr: number(buf.as_mut_ptr().expose_provenance()),
        reserved: 0,
    };
    // SAFETY: READ_METADATA reads one `ReadMetadataArg` and writes at most `length` bytes to `buf_ptr`: the
    // buffer, which is borrowed for writing until the call returns.
    let count = unsafe { call(file.as_fd(), READ_METADATA, &mut arg) }?;
    usize::try_from(count).map(|count| count.min(buf.len())).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Length or address as the kernel takes it, in 64 bits on every machine. Nothing is lost.
fn number(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

/// Calls `request` with a pointer to `arg`.
///
/// # Safety
/// The request must touch no other memory than `arg` and what it points to, as those may be borrowed.
unsafe fn call<T>(file: BorrowedFd<'_>, request: Opcode, arg: &mut T) -> io::Result<IoctlOutput> {
    // SAFETY: the caller promises that this request fits this argument.
    unsafe { rustix::ioctl::ioctl(file, Request { request, arg }) }.map_err(io::Error::from)
}

/// One ioctl of any of the kinds above.
struct Request<'a, T> {
    request: Opcode,
    arg: &'a mut T,
}

// SAFETY: the pointer is to a live `T`; its contents may change, and nothing is read from it by `output_from_ptr`.
unsafe impl<T> Ioctl for Request<'_, T> {
    type Output = IoctlOutput;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.request
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self.arg).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _arg: *mut c_void) -> rustix::io::Result<IoctlOutput> {
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// The numbers that a C program gets from the kernel's header.
    #[test]
    fn requests_have_the_numbers_of_the_header() {
        assert_eq!((ENABLE, MEASURE, READ_METADATA), (0x4080_6685, 0xc004_6686, 0xc028_6687));
    }

    /// A file system without fs-verity says so; it does not call the arguments wrong.
    #[test]
    fn a_file_without_verity_is_told_from_a_wrong_call() {
        let file = File::open("/proc/self/status").unwrap();
        let kinds = [
            enable(&file, 1, 4096, b"salt", b"signature").unwrap_err().kind(),
            measure(&file).unwrap_err().kind(),
            read_metadata(&file, Metadata::Descriptor, 0, &mut [0; 256]).unwrap_err().kind(),
        ];
        for kind in kinds {
            assert_ne!(kind, io::ErrorKind::InvalidInput);
        }
    }
}
