#![no_main]
//! An X.509 certificate, in PEM or DER.

use casemate_verity::signature::Certificate;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Certificate::from_bytes(bytes);
});
