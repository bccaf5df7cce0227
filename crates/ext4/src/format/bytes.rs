//! Bytes of a buffer, and what they say.

use casemate_blockdev::Uuid;

/// `N` bytes from `at` on; the caller has checked the length.
pub(in crate::format) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// The text of a fixed-size field: up to its first NUL, what is no UTF-8 replaced.
pub(in crate::format) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Sixteen bytes as a UUID is written.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    Uuid::from_bytes(*uuid).to_string()
}
