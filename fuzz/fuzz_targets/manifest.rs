#![no_main]
//! A manifest of fs-verity digests.

use casemate_verity::fs::Manifest;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Manifest::from_bytes(bytes);
});
