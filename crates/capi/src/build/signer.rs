//! Signers of digests and root hashes.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;

use casemate::Error;
use casemate::ext4::{BuildSpec, Signer};
use casemate::signature::{Certificate, DigestAlgorithm, SigningKey};

use super::{CBuild, change};
use crate::boundary::{Status, bytes};
use crate::error::CError;

/// Signs the digests of files with fs-verity, and the root hash of dm-verity, with a private key.
///
/// @param build the specification
/// @param key the private key in PEM: RSA of 2048 to 4096 bits, or ECDSA on P-256 or P-384; it is copied, and wiped by
///   casemate_build_free()
/// @param key_len its length in bytes
/// @param certificate the certificate in PEM or DER
/// @param certificate_len its length in bytes
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_signing_key(
    build: *mut CBuild,
    key: *const c_void,
    key_len: usize,
    certificate: *const c_void,
    certificate_len: usize,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        // SAFETY: the header says what these pointers are.
        let (key, certificate) =
            unsafe { (bytes(key, key_len, "key")?, bytes(certificate, certificate_len, "certificate")?) };
        spec.signer = Some(Signer::new(SigningKey::from_pem(key)?, Certificate::from_bytes(certificate)?));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Has a function of the caller sign the digests of files with fs-verity, and the root hash of dm-verity, such as with a token.
/// Each signature is verified with the certificate.
///
/// @param build the specification
/// @param sign called by any thread, and by several at the same time
/// @param context passed to `sign`; must live until casemate_build_run() returns
/// @param certificate the certificate in PEM or DER
/// @param certificate_len its length in bytes
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_build_signer(
    build: *mut CBuild,
    sign: SignatureFn,
    context: *mut c_void,
    certificate: *const c_void,
    certificate_len: usize,
    error: *mut *mut CError,
) -> Status {
    let set = |spec: &mut BuildSpec| {
        let sign = sign.ok_or_else(|| Error::argument("sign is NULL"))?;
        // SAFETY: the header says what this pointer is.
        let certificate = unsafe { bytes(certificate, certificate_len, "certificate")? };
        let elsewhere = Elsewhere { sign, context };
        let signed = Box::new(move |message: &[u8], digest: DigestAlgorithm| elsewhere.sign(message, digest));
        spec.signer = Some(Signer::external(Certificate::from_bytes(certificate)?, signed));
        Ok(())
    };
    // SAFETY: the header says what these pointers are.
    unsafe { change(build, error, set) }
}

/// Signs `message` with a hash, "sha256" or "sha512": stores an RSA PKCS#1 v1.5 block, or ECDSA's (r, s) in DER, in `signature`,
/// which has room for `*signature_len` bytes, and its length there. Returns 0, or a number of errno.h.
pub type SignatureFn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        hash: *const c_char,
        message: *const c_void,
        message_len: usize,
        signature: *mut c_void,
        signature_len: *mut usize,
    ) -> c_int,
>;

/// The caller's function that signs, with what it is called with.
struct Elsewhere {
    sign: unsafe extern "C" fn(
        *mut c_void,
        *const c_char,
        *const c_void,
        usize,
        *mut c_void,
        *mut usize,
    ) -> c_int,
    context: *mut c_void,
}

// SAFETY: the header says that the function is called by any thread, and at the same time.
unsafe impl Send for Elsewhere {}

// SAFETY: as above.
unsafe impl Sync for Elsewhere {}

/// Bytes of a signature at most: RSA of 4096 bits has 512.
const SIGNATURE: usize = 1024;

impl Elsewhere {
    fn sign(&self, message: &[u8], digest: DigestAlgorithm) -> Result<Vec<u8>, Error> {
        let hash = CString::new(digest.name()).map_err(|_| Error::argument("the name of the hash"))?;
        let (mut signature, mut len) = (vec![0; SIGNATURE], SIGNATURE);
        let (message, size) = (message.as_ptr().cast(), message.len());
        // SAFETY: the caller gave this function and its context for such calls; the buffers have so many bytes.
        let number = unsafe {
            (self.sign)(self.context, hash.as_ptr(), message, size, signature.as_mut_ptr().cast(), &mut len)
        };
        if number != 0 {
            return Err(Error::io("the function that signs", io::Error::from_raw_os_error(number)));
        }
        if len > SIGNATURE {
            return Err(Error::argument(
                "the function that signs says that its signature is longer than its room",
            ));
        }
        signature.truncate(len);
        Ok(signature)
    }
}
