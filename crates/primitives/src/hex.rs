//! Hexadecimal digits, as all tools for digests, keys and salts print and take them.

/// Lower-case digits, two for each byte.
pub fn encode(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    // One allocation of the right size: what is encoded may be a key, of which no copy must be left behind.
    let mut text = String::with_capacity(2 * bytes.len());
    bytes.iter().for_each(|byte| text.extend([digit(byte >> 4), digit(byte & 15)]));
    text
}

/// The bytes of a string of digits in any case; `None` if their number is odd or something else is there.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = vec![0; text.len() / 2];
    fill(text, &mut bytes).then_some(bytes)
}

/// `N` bytes from exactly twice as many digits in any case; `None` for anything else.
pub fn decode_array<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    fill(text, &mut bytes).then_some(bytes)
}

/// Whether `text` was exactly the digits of `bytes`, which have their values then.
fn fill(text: &str, bytes: &mut [u8]) -> bool {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks();
    let mut all = rest.is_empty() && pairs.len() == bytes.len();
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        match (value(*high), value(*low)) {
            // OK to cast: two digits make at most 255.
            (Some(high), Some(low)) => *byte = (high << 4 | low) as u8,
            _ => all = false,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_and_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
        assert_eq!(encode(&[0x0f, 0xa0]), "0fa0");
        assert_eq!((decode("Ab"), decode_array("Ab")), (Some(vec![0xab]), Some([0xab])));
        assert_eq!((decode(""), decode_array("")), (Some(vec![]), Some([])));
        for wrong in ["a", "abc", "0g", "é", "+1", "0x12", "0é"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
        for wrong in ["ab", "abcde", "abcdef", "abcg", ""] {
            assert_eq!(decode_array::<2>(wrong), None, "{wrong}");
        }
    }
}
