#![no_main]
//! A PKCS#7 signature, in PEM or DER.

use casemate_verity::signature::Signature;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Signature::from_bytes(bytes);
});
