//! Checksums.

use std::ffi::c_void;

use casemate::{Cpu, Crc32c};

use crate::boundary::bytes;

/// The CRC-32C of bytes, going on from that of what came before; 0 at the beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_crc32c(crc: u32, data: *const c_void, len: usize) -> u32 {
    // SAFETY: the header says what this pointer is; no bytes at NULL change nothing.
    let data = unsafe { bytes(data, len, "data") }.unwrap_or_default();
    !Crc32c::new(Cpu::detect()).update(!crc, data)
}

/// The CRC-32C of two parts that are joined, from those of the parts.
#[unsafe(no_mangle)]
pub extern "C" fn casemate_crc32c_combine(first: u32, second: u32, second_len: u64) -> u32 {
    // What both registers began with, and that they are inverted, cancel out.
    Crc32c::new(Cpu::detect()).combine(first, second, second_len)
}
