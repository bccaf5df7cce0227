//! The 64 characters that a base64 text is made of.

use std::fmt;

/// The character that fills up the last group; no alphabet may contain it.
pub(super) const PAD: u8 = b'=';

/// The value that [`Alphabet::value`] and the decoding table hold for a byte that is not in the alphabet.
///
/// Bit 7 is the mark: the OR of many table entries has it as soon as one of them was invalid.
pub(super) const INVALID: u8 = 0x80;

/// The 64 characters of a base64 text in the order of their values, and the reverse table.
///
/// The three alphabets that Linux uses are constants; any other one is checked when it is made. Making one
/// costs about as much as encoding a few hundred bytes, so make it once and lend it to every handle.
///
/// ```
/// use casemate_primitives::base64::Alphabet;
///
/// const CRYPT: Alphabet =
///     match Alphabet::new(b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
///         Ok(alphabet) => alphabet,
///         Err(_) => panic!("64 distinct characters"),
///     };
/// assert_eq!(CRYPT.characters()[2], b'0');
/// ```
#[derive(Clone, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Alphabet {
    /// The character of each value.
    encode: [u8; 64],
    /// The value of each byte, or [`INVALID`]. Only the lower half can hold values.
    decode: [u8; 256],
}

impl Alphabet {
    /// RFC 4648 section 4: letters, digits, `+` and `/`.
    pub const STANDARD: Alphabet = Alphabet::built_in(*b"+/");

    /// RFC 4648 section 5: letters, digits, `-` and `_`. The kernel's fscrypt shows names in it, unpadded.
    pub const URL_SAFE: Alphabet = Alphabet::built_in(*b"-_");

    /// RFC 3501 section 5.1.3: letters, digits, `+` and `,`. Allowed in file names; the kernel's ceph uses it.
    pub const IMAP: Alphabet = Alphabet::built_in(*b"+,");

    /// The alphabet in which `characters[v]` stands for the value `v`.
    ///
    /// # Errors
    /// There must be exactly 64 distinct ASCII characters, none of them the pad `=`.
    pub const fn new(characters: &[u8]) -> Result<Alphabet, AlphabetError> {
        if characters.len() != 64 {
            return Err(AlphabetError::Length(characters.len()));
        }
        let mut alphabet = Alphabet { encode: [0; 64], decode: [INVALID; 256] };
        let mut value = 0;
        while value < 64 {
            let character = characters[value];
            if !character.is_ascii() {
                return Err(AlphabetError::NotAscii { position: value });
            }
            if character == PAD {
                return Err(AlphabetError::Pad { position: value });
            }
            if alphabet.decode[character as usize] != INVALID {
                return Err(AlphabetError::Repeated { position: value });
            }
            alphabet.encode[value] = character;
            alphabet.decode[character as usize] = value as u8;
            value += 1;
        }
        Ok(alphabet)
    }

    const fn built_in(last: [u8; 2]) -> Alphabet {
        let mut characters = *b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789..";
        characters[62] = last[0];
        characters[63] = last[1];
        match Alphabet::new(&characters) {
            Ok(alphabet) => alphabet,
            Err(_) => panic!("letters, digits and two other characters are an alphabet"),
        }
    }

    /// The characters in the order of their values.
    pub const fn characters(&self) -> &[u8; 64] {
        &self.encode
    }

    /// The value of `character`, 0 to 63, or `None` for a byte that is not in the alphabet.
    pub const fn value(&self, character: u8) -> Option<u8> {
        match self.decode[character as usize] {
            INVALID => None,
            value => Some(value),
        }
    }

    /// The value of every byte, or [`INVALID`].
    pub(super) const fn values(&self) -> &[u8; 256] {
        &self.decode
    }
}

impl fmt::Debug for Alphabet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alphabet({})", self.encode.escape_ascii())
    }
}

/// An error in characters that are to be an alphabet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlphabetError {
    /// There are so many characters instead of 64.
    Length(usize),
    /// The byte at this position is above 127.
    NotAscii {
        /// Index of the byte.
        position: usize,
    },
    /// The character at this position is the pad `=`.
    Pad {
        /// Index of the character.
        position: usize,
    },
    /// The character at this position has occurred before.
    Repeated {
        /// Index of the second occurrence.
        position: usize,
    },
}

impl fmt::Display for AlphabetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AlphabetError::Length(found) => write!(f, "a base64 alphabet has 64 characters, not {found}"),
            AlphabetError::NotAscii { position } => {
                write!(f, "byte {position} of the base64 alphabet is not ASCII")
            }
            AlphabetError::Pad { position } => {
                write!(f, "character {position} of the base64 alphabet is '=', which is kept for padding")
            }
            AlphabetError::Repeated { position } => {
                write!(f, "character {position} of the base64 alphabet has occurred before")
            }
        }
    }
}

impl std::error::Error for AlphabetError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_alphabets_differ_in_the_last_two_characters() {
        for (alphabet, last) in
            [(Alphabet::STANDARD, b"+/"), (Alphabet::URL_SAFE, b"-_"), (Alphabet::IMAP, b"+,")]
        {
            let (first, end) = alphabet.characters().split_at(62);
            assert_eq!(first, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789");
            assert_eq!(end, last);
        }
    }

    #[test]
    fn value_reverses_characters_and_refuses_the_rest() {
        for alphabet in [Alphabet::STANDARD, Alphabet::URL_SAFE, Alphabet::IMAP] {
            for byte in 0..=255 {
                let place = alphabet.characters().iter().position(|character| *character == byte);
                assert_eq!(alphabet.value(byte).map(usize::from), place, "{alphabet:?} byte {byte}");
            }
        }
    }

    #[test]
    fn bad_alphabets_are_refused_with_the_position() {
        let good = *Alphabet::STANDARD.characters();
        assert_eq!(Alphabet::new(&good), Ok(Alphabet::STANDARD));
        assert_eq!(Alphabet::new(&good[..63]), Err(AlphabetError::Length(63)));
        assert_eq!(Alphabet::new(&[good.as_slice(), b"."].concat()), Err(AlphabetError::Length(65)));
        for position in 0..64 {
            let with = |byte| {
                let mut characters = good;
                characters[position] = byte;
                Alphabet::new(&characters)
            };
            assert_eq!(with(b'='), Err(AlphabetError::Pad { position }));
            assert_eq!(with(0x80), Err(AlphabetError::NotAscii { position }));
            assert_eq!(with(0xff), Err(AlphabetError::NotAscii { position }));
            let other = (position + 1) % 64;
            let second = position.max(other);
            assert_eq!(with(good[other]), Err(AlphabetError::Repeated { position: second }));
            // Control characters are ASCII too: unusual, but nothing forbids them.
            assert!(with(0).is_ok() && with(0x7f).is_ok());
        }
    }
}
