#![no_main]
//! The first blocks of an image of any kind: what it is said to hold, and its partitions.

use casemate::probe;
use casemate_blockdev::{BlockDevice, MemoryDevice, Window, partitions};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let device = MemoryDevice::new(bytes.to_vec());
    let _ = probe::device(&device);
    for partition in partitions(&device).unwrap_or_default() {
        if let Ok(window) = Window::new(&device as &dyn BlockDevice, partition.start, partition.len) {
            let _ = probe::device(&window);
        }
    }
});
