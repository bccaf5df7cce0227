//! Faults of a base64 text, found anew after a back end said that there is one.

use std::fmt;

use super::Padding;
use super::alphabet::{Alphabet, PAD};

/// The first thing that is wrong with a base64 text, reading from left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Index of the character at fault; the text's length if something is missing at the end.
    pub position: usize,
    /// The fault at that position.
    pub kind: DecodeErrorKind,
}

/// The ways in which a text can fail to be strict, canonical base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// A byte that is neither in the alphabet nor `=`.
    InvalidByte,
    /// A `=` where none may stand: without padding anywhere, with padding anywhere but as the last one or two
    /// characters of a text whose length is a multiple of 4.
    Padding,
    /// The text ends early: with padding its length is not a multiple of 4, without padding it leaves a
    /// remainder of 1.
    BadLength,
    /// The last character has bits that belong to no byte, and they are not zero. Another text decodes to the
    /// same bytes.
    NonCanonicalTail,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = self.position;
        match self.kind {
            DecodeErrorKind::InvalidByte => {
                write!(f, "byte {position} of the base64 text is not in the alphabet")
            }
            DecodeErrorKind::Padding => write!(f, "misplaced '=' at byte {position} of the base64 text"),
            DecodeErrorKind::BadLength => {
                write!(f, "the base64 text ends after {position} bytes in the middle of a group")
            }
            DecodeErrorKind::NonCanonicalTail => {
                write!(f, "byte {position}, the last of the base64 text, has unused bits that are not zero")
            }
        }
    }
}

impl std::error::Error for DecodeError {}

/// The first error of `text`, of which a back end or the length rules said that it has one.
#[cold]
pub(super) fn first_error(alphabet: &Alphabet, padding: Padding, text: &[u8]) -> DecodeError {
    let complete = padding.allows_len(text.len());
    // In a text of a wrong length no `=` is at its place.
    let body = if complete { padding.body(text) } else { text };
    if let Some(position) = body.iter().position(|byte| alphabet.value(*byte).is_none()) {
        let kind =
            if body[position] == PAD { DecodeErrorKind::Padding } else { DecodeErrorKind::InvalidByte };
        return DecodeError { position, kind };
    }
    if complete {
        DecodeError { position: body.len() - 1, kind: DecodeErrorKind::NonCanonicalTail }
    } else {
        DecodeError { position: text.len(), kind: DecodeErrorKind::BadLength }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_position() {
        let message = |kind| DecodeError { position: 6, kind }.to_string();
        assert_eq!(message(DecodeErrorKind::InvalidByte), "byte 6 of the base64 text is not in the alphabet");
        assert_eq!(message(DecodeErrorKind::Padding), "misplaced '=' at byte 6 of the base64 text");
        assert_eq!(
            message(DecodeErrorKind::BadLength),
            "the base64 text ends after 6 bytes in the middle of a group"
        );
        assert_eq!(
            message(DecodeErrorKind::NonCanonicalTail),
            "byte 6, the last of the base64 text, has unused bits that are not zero"
        );
    }
}
