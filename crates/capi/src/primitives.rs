//! Checksums.

use std::ffi::c_void;

use casemate::{Cpu, Crc32c};

use crate::boundary::bytes;

/// Continues a CRC-32C over more bytes.
///
/// @param crc CRC of the bytes before; 0 at the beginning
/// @param data the bytes; may be NULL if `len` is 0
/// @param len number of bytes
/// @return the CRC of all bytes
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_crc32c(crc: u32, data: *const c_void, len: usize) -> u32 {
    // SAFETY: the header says what this pointer is; no bytes at NULL change nothing.
    let data = unsafe { bytes(data, len, "data") }.unwrap_or_default();
    !Crc32c::new(Cpu::detect()).update(!crc, data)
}

/// Computes the CRC-32C of two parts that are joined, from the CRCs of the parts.
///
/// @param first CRC of the first part
/// @param second CRC of the second part
/// @param second_len length of the second part in bytes
/// @return the CRC of both parts together
#[unsafe(no_mangle)]
pub extern "C" fn casemate_crc32c_combine(first: u32, second: u32, second_len: u64) -> u32 {
    // What both registers began with, and that they are inverted, cancel out.
    Crc32c::new(Cpu::detect()).combine(first, second, second_len)
}
