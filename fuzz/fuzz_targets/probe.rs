#![no_main]
//! The first blocks of an image of any kind: what it is said to hold, down to what lies in its partitions.

use std::sync::Arc;

use casemate::{Image, probe};
use casemate_blockdev::MemoryDevice;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let device = Arc::new(MemoryDevice::new(bytes.to_vec()));
    let _ = probe::device(&*device);
    let _ = probe::look(&Image::over("image", device));
});
