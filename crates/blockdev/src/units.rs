//! Sizes and places in bytes, as people write them.

/// A number of bytes; K, M, G and T stand for powers of 1024, s for sectors of 512 bytes, and B for bytes.
///
/// # Errors
/// Text that says why it is refused.
pub fn bytes<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" | "B" => 1,
        "s" => 512,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        other => {
            return Err(format!(
                "{other}: not a unit of K, M, G, T (powers of 1024), s (sectors), B (bytes)"
            ));
        }
    };
    // A sign would be a change, such as "+10M" is to truncate(1), and no size.
    let number =
        Some(digits).filter(|digits| !digits.starts_with('+')).and_then(|digits| digits.parse::<u64>().ok());
    let number = number.ok_or_else(|| "not a number of bytes such as 4096, 4K or 8s".to_owned())?;
    let bytes = number.checked_mul(unit).and_then(|bytes| T::try_from(bytes).ok());
    bytes.ok_or_else(|| "too large".to_owned())
}

/// A number of bytes that are whole sectors of 512 bytes: how many sectors.
///
/// # Errors
/// Text that says why it is refused.
pub fn sectors(text: &str) -> Result<u64, String> {
    match bytes::<u64>(text)? {
        whole if whole.is_multiple_of(512) => Ok(whole / 512),
        _ => Err(format!("not a multiple of 512 bytes; {text}s are so many sectors")),
    }
}
