#![no_main]
//! An fs-verity descriptor.

use casemate_verity::fs::Descriptor;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(descriptor) = Descriptor::from_bytes(bytes) {
        Descriptor::from_bytes(&descriptor.to_bytes()).expect("what was written can be read");
    }
});
