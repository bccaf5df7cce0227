//! Sizes and places, in bytes, as every option takes them.

pub use casemate::units::{bytes, sectors};

/// A number of bytes with its unit, for what other tools count in KiB: without a unit it would be another number there.
pub fn with_unit(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(number) if number > 0 => {
            let bytes = match number % 1024 {
                0 => format!(", {}K is so many bytes", number / 1024),
                _ => String::new(),
            };
            Err(format!("it needs a unit: {number}K is what cryptsetup takes it for{bytes}"))
        }
        _ => bytes(text),
    }
}

/// A place in bytes with its unit, for what other tools count in sectors: without a unit it would be another place there.
pub fn place_with_unit(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(number) if number > 0 => Err(format!(
            "it needs a unit: {number}s is what cryptsetup takes it for, {number}B is so many bytes"
        )),
        _ => bytes(text),
    }
}

/// A size for people as ls does it: rounded up, with one decimal below ten.
pub fn shown(size: u64) -> String {
    if size < 1024 {
        return size.to_string();
    }
    let in_unit = |(number, letter): (u32, char)| {
        let (unit, size) = (1u128 << (10 * number), u128::from(size));
        let (tenths, whole) = ((size * 10).div_ceil(unit), size.div_ceil(unit));
        match tenths < 100 {
            true => Some(format!("{}.{}{letter}", tenths / 10, tenths % 10)),
            false => (whole < 1024).then(|| format!("{whole}{letter}")),
        }
    };
    // OK to unwrap: 2^64 bytes are 16 of the last unit.
    (1..).zip("KMGTPE".chars()).find_map(in_unit).unwrap()
}

/// A number with a comma between each three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_in_groups() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (67_108_864, "67,108,864")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }

    /// As `numfmt --to=iec --round=up` says it.
    #[test]
    fn sizes_for_people() {
        for (size, text) in [
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_137, "9.9K"),
            (10_138, "10K"),
            (1_047_552, "1023K"),
            (1_047_553, "1.0M"),
            (64 << 20, "64M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(shown(size), text);
        }
    }

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
        assert_eq!((with_unit("64K"), with_unit("1M")), (Ok(65536), Ok(1 << 20)));
        let said = |text: &str| with_unit(text).unwrap_err();
        assert_eq!(
            said("1048576"),
            "it needs a unit: 1048576K is what cryptsetup takes it for, 1024K is so many bytes"
        );
        assert_eq!(said("1000"), "it needs a unit: 1000K is what cryptsetup takes it for");
        assert_eq!(
            (place_with_unit("0"), place_with_unit("8s"), place_with_unit("7B")),
            (Ok(0), Ok(4096), Ok(7))
        );
        let said = place_with_unit("8").unwrap_err();
        assert_eq!(said, "it needs a unit: 8s is what cryptsetup takes it for, 8B is so many bytes");
        assert_eq!((sectors("4K"), sectors("3s"), sectors("3").is_err()), (Ok(8), Ok(3), true));
    }
}
