//! Sizes and places, in bytes, as every option takes them.

/// A number of bytes; K, M, G and T stand for powers of 1024, and s for sectors of 512 bytes.
pub fn bytes<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" => 1,
        "s" => 512,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        other => return Err(format!("{other}: not a unit of K, M, G, T (powers of 1024), s (sectors)")),
    };
    let number: u64 =
        digits.parse().map_err(|_| "not a number of bytes such as 4096, 4K or 8s".to_owned())?;
    let bytes = number.checked_mul(unit).and_then(|bytes| T::try_from(bytes).ok());
    bytes.ok_or_else(|| "too large".to_owned())
}

/// A number of bytes that are whole sectors: how many sectors.
pub fn sectors(text: &str) -> Result<u64, String> {
    match bytes::<u64>(text)? {
        whole if whole.is_multiple_of(512) => Ok(whole / 512),
        _ => Err(format!("no multiple of 512 bytes; {text}s are so many sectors")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, size) in
            [("0", 0), ("4096", 4096), ("4K", 4096), ("8s", 4096), ("1M", 1 << 20), ("3T", 3 << 40)]
        {
            assert_eq!(bytes::<u64>(text), Ok(size), "{text}");
        }
        for text in ["", "K", "-1", "1.5K", "1 K", "1k", "1KB", "18446744073709551615K", "0x10", "ſ"] {
            assert!(bytes::<u64>(text).is_err(), "{text}");
        }
        assert!(bytes::<u32>("4G").is_err());
        assert_eq!((sectors("4K"), sectors("3s"), sectors("3").is_err()), (Ok(8), Ok(3), true));
    }
}
