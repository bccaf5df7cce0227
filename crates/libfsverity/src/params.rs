//! Structures of `libfsverity.h`.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

use casemate::Error;
use casemate::blockdev::usize_of;
use casemate::fsverity::{Algorithm, Parameters};

use crate::{Failure, invalid};

/// Parameters of a tree.
#[repr(C)]
pub struct MerkleTreeParams {
    version: u32,
    hash_algorithm: u32,
    pub(crate) file_size: u64,
    block_size: u32,
    salt_size: u32,
    salt: *const u8,
    reserved1: [u64; 8],
    metadata_callbacks: *const Callbacks,
    reserved2: [usize; 7],
}

/// Functions of the caller that get what belongs to a tree.
#[repr(C)]
pub struct Callbacks {
    ctx: *mut c_void,
    merkle_tree_size: Option<unsafe extern "C" fn(*mut c_void, u64) -> c_int>,
    merkle_tree_block: Option<unsafe extern "C" fn(*mut c_void, *const c_void, usize, u64) -> c_int>,
    descriptor: Option<unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int>,
}

/// The signer.
#[repr(C)]
pub struct SignatureParams {
    keyfile: *const c_char,
    certfile: *const c_char,
    reserved1: [u64; 8],
    pkcs11_engine: *const c_char,
    pkcs11_module: *const c_char,
    pkcs11_keyid: *const c_char,
    reserved2: [usize; 5],
}

impl MerkleTreeParams {
    /// The parameters, checked; zeros stand for defaults.
    ///
    /// # Safety
    /// The salt points to so many bytes, or is NULL.
    pub(crate) unsafe fn parameters(&self) -> Result<Parameters, Failure> {
        if self.version != 1 {
            return Err(invalid("unsupported version of the Merkle tree's parameters"));
        }
        if self.reserved1 != [0; 8] || self.reserved2 != [0; 7] {
            return Err(invalid("reserved bits of the Merkle tree's parameters are set"));
        }
        let algorithm = match self.hash_algorithm {
            0 => Algorithm::Sha256,
            number => Algorithm::numbered(number).ok_or_else(|| invalid("unrecognized hash algorithm"))?,
        };
        let salt = match (self.salt.is_null(), usize_of(self.salt_size)) {
            (_, 0) => &[][..],
            (true, _) => return Err(invalid("a salt of some bytes at NULL")),
            // SAFETY: the caller says that so many bytes are there; what is too long is refused below.
            (false, len) => unsafe { slice::from_raw_parts(self.salt, len) },
        };
        let block_size = if self.block_size == 0 { 4096 } else { self.block_size };
        Ok(Parameters::new(algorithm, block_size, salt)?)
    }

    /// Where what belongs to the tree goes.
    ///
    /// # Safety
    /// The callbacks are there, unless they are NULL.
    pub(crate) unsafe fn callbacks(&self) -> Option<&Callbacks> {
        // SAFETY: the caller's promise.
        unsafe { self.metadata_callbacks.as_ref() }
    }
}

impl Callbacks {
    /// The tree's size in bytes.
    pub fn size(&self, size: u64) -> Result<(), Error> {
        // SAFETY: who set the function says that it takes this context.
        self.merkle_tree_size.map_or(Ok(()), |tell| answered(unsafe { tell(self.ctx, size) }))
    }

    /// A block of the tree, and where it lies in it.
    pub fn block(&self, block: &[u8], offset: u64) -> Result<(), Error> {
        self.merkle_tree_block.map_or(Ok(()), |tell| {
            // SAFETY: who set the function says that it takes this context, and reads so many bytes.
            answered(unsafe { tell(self.ctx, block.as_ptr().cast(), block.len(), offset) })
        })
    }

    /// The descriptor.
    pub fn descriptor(&self, bytes: &[u8]) -> Result<(), Error> {
        self.descriptor.map_or(Ok(()), |tell| {
            // SAFETY: who set the function says that it takes this context, and reads so many bytes.
            answered(unsafe { tell(self.ctx, bytes.as_ptr().cast(), bytes.len()) })
        })
    }
}

fn answered(number: c_int) -> Result<(), Error> {
    match number {
        0 => Ok(()),
        number => Err(std::io::Error::from_raw_os_error(number.saturating_abs()).into()),
    }
}

impl SignatureParams {
    /// The files of the private key and of the certificate.
    ///
    /// # Safety
    /// Strings end with zeros, or are NULL.
    pub(crate) unsafe fn files(&self) -> Result<(&Path, &Path), Failure> {
        if self.reserved1 != [0; 8] || self.reserved2 != [0; 5] {
            return Err(invalid("reserved bits of the signature's parameters are set"));
        }
        let tokens = [self.pkcs11_engine, self.pkcs11_module, self.pkcs11_keyid];
        if tokens.iter().any(|token| !token.is_null()) {
            return Err(invalid("keys in PKCS#11 tokens are not there yet"));
        }
        let path = |text: *const c_char| match text.is_null() {
            true => None,
            // SAFETY: the caller says that it ends with a zero.
            false => Some(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()))),
        };
        path(self.keyfile)
            .zip(path(self.certfile))
            .ok_or_else(|| invalid("key and certificate are files here"))
    }
}
