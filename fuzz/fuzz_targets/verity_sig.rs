#![no_main]
//! systemd's partition with a root hash's signature.

use casemate_verity::signature::VeritySig;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = VeritySig::from_bytes(bytes, &casemate::Providers::default());
});
