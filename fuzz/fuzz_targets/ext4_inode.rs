#![no_main]
//! An ext4 inode.

use casemate_ext4::{Inode, InodeNo};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Inode::from_bytes(InodeNo::ROOT, bytes);
});
