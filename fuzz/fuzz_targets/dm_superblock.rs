#![no_main]
//! A dm-verity superblock: what is read is written back as it was.

use casemate_verity::dm::{SUPERBLOCK_SIZE, Superblock};

libfuzzer_sys::fuzz_target!(|bytes: [u8; SUPERBLOCK_SIZE]| {
    if let Ok(superblock) = Superblock::from_bytes(&bytes) {
        let again = Superblock::from_bytes(&superblock.to_bytes()).expect("what was written can be read");
        assert_eq!(again.to_bytes(), superblock.to_bytes());
    }
});
