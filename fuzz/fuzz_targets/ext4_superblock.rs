#![no_main]
//! An ext4 superblock.

use casemate_ext4::Superblock;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Superblock::from_bytes(bytes);
});
