//! Libraries with one call for a data unit: the key set once, the IV for each unit.

use std::ffi::c_int;
use std::ptr;

use openssl::cipher::CipherRef;
use openssl::cipher_ctx::CipherCtx;

/// The system's OpenSSL.
pub struct OpenSsl {
    context: CipherCtx,
    encrypt: bool,
    /// The binding wants room for a block more than is ever written without padding.
    roomy: Vec<u8>,
}

impl OpenSsl {
    /// A cipher under a key of its length.
    pub fn new(cipher: &CipherRef, key: &[u8], encrypt: bool) -> OpenSsl {
        let mut context = CipherCtx::new().expect("a context");
        if encrypt {
            context.encrypt_init(Some(cipher), Some(key), None).expect("a key of the cipher's length");
        } else {
            context.decrypt_init(Some(cipher), Some(key), None).expect("a key of the cipher's length");
        }
        context.set_padding(false);
        OpenSsl { context, encrypt, roomy: Vec::new() }
    }

    /// Unit by unit, the IV being the unit's number.
    pub fn run(&mut self, unit: usize, src: &[u8], out: &mut [u8]) {
        let padded = self.context.block_size() > 1;
        self.roomy.resize(unit + 16, 0);
        for (k, (src, out)) in src.chunks_exact(unit).zip(out.chunks_exact_mut(unit)).enumerate() {
            let iv = (k as u128).to_le_bytes();
            if self.encrypt {
                self.context.encrypt_init(None, None, Some(&iv)).expect("an IV of 16 bytes");
            } else {
                self.context.decrypt_init(None, None, Some(&iv)).expect("an IV of 16 bytes");
            }
            if padded {
                self.context.cipher_update(src, Some(&mut self.roomy)).expect("a unit");
                out.copy_from_slice(&self.roomy[..unit]);
            } else {
                self.context.cipher_update(src, Some(out)).expect("a unit");
            }
        }
    }
}

/// A cipher of AWS-LC's by its constructor, such as `EVP_aes_256_xts`.
pub type AwsLcCipher = unsafe extern "C" fn() -> *const aws_lc_sys::EVP_CIPHER;

/// AWS-LC.
pub struct AwsLc {
    context: *mut aws_lc_sys::EVP_CIPHER_CTX,
    encrypt: bool,
}

impl AwsLc {
    /// A cipher under a key of its length.
    pub fn new(cipher: AwsLcCipher, key: &[u8], encrypt: bool) -> AwsLc {
        // SAFETY: the context is new, and the key has the bytes that the cipher reads, which is asserted.
        let context = unsafe {
            let (context, cipher) = (aws_lc_sys::EVP_CIPHER_CTX_new(), cipher());
            assert_eq!(key.len(), aws_lc_sys::EVP_CIPHER_key_length(cipher) as usize);
            let (engine, key) = (ptr::null_mut(), key.as_ptr());
            let made =
                aws_lc_sys::EVP_CipherInit_ex(context, cipher, engine, key, ptr::null(), encrypt.into());
            assert_eq!(made, 1);
            aws_lc_sys::EVP_CIPHER_CTX_set_padding(context, 0);
            context
        };
        AwsLc { context, encrypt }
    }

    /// Unit by unit, the IV being the unit's number.
    pub fn run(&mut self, unit: usize, src: &[u8], out: &mut [u8]) {
        for (k, (src, out)) in src.chunks_exact(unit).zip(out.chunks_exact_mut(unit)).enumerate() {
            let iv = (k as u128).to_le_bytes();
            let mut written: c_int = 0;
            // SAFETY: the context lives, the IV has 16 bytes, and source and target have `unit` bytes each.
            unsafe {
                let (cipher, engine, key) = (ptr::null(), ptr::null_mut(), ptr::null());
                let encrypt = self.encrypt.into();
                aws_lc_sys::EVP_CipherInit_ex(self.context, cipher, engine, key, iv.as_ptr(), encrypt);
                let (out, len) = (out.as_mut_ptr(), unit as c_int);
                aws_lc_sys::EVP_CipherUpdate(self.context, out, &raw mut written, src.as_ptr(), len);
            }
        }
    }
}

impl Drop for AwsLc {
    fn drop(&mut self) {
        // SAFETY: the context came from EVP_CIPHER_CTX_new and is freed once.
        unsafe { aws_lc_sys::EVP_CIPHER_CTX_free(self.context) }
    }
}
