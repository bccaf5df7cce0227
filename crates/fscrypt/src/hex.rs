//! Bytes as people write them.

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `N` bytes from exactly twice as many hexadecimal digits.
pub(crate) fn parse<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        // OK to unwrap, twice: all are digits, so they are ASCII and a number.
        *byte = u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
    }
    Some(bytes)
}
