//! Hexadecimal digits, as all of these tools print and take them.

/// Lower-case hexadecimal digits, two for each byte.
pub fn encode(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of hexadecimal digits in any case; `None` for an odd number of them, or for other characters.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let pair = |pair: &[u8]| match *pair {
        // OK to cast: two digits make at most 255.
        [high, low] => Some((value(high)? << 4 | value(low)?) as u8),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_and_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
        assert_eq!(encode(&[0x0f, 0xa0]), "0fa0");
        assert_eq!(decode("Ab"), Some(vec![0xab]));
        assert_eq!(decode(""), Some(vec![]));
        for wrong in ["a", "abc", "0g", "é", "+1", "0x12"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
