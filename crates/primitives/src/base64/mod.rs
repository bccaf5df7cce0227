//! Base64 for any alphabet, padded or not: one codec instead of a private copy in every user.
//!
//! [`Base64`] encodes any bytes and decodes strictly: exactly the texts that it would have written are
//! accepted, so that two different texts never decode to the same bytes. This is what Linux's `lib/base64`
//! accepts since its rework of 2025: no white space, no character of another alphabet, `=` only where it has to
//! be, and no bits left over in the last character (RFC 4648 section 3.5 calls such a text canonical).
//!
//! ```
//! use casemate_primitives::Cpu;
//! use casemate_primitives::base64::{Alphabet, Base64, DecodeErrorKind, Padding};
//!
//! let names = Base64::new(Cpu::detect(), &Alphabet::URL_SAFE, Padding::Unpadded);
//! assert_eq!(names.encode_to_string(b"\xfb\xff\xfe!"), "-__-IQ");
//! assert_eq!(names.decode_to_vec(b"-__-IQ").unwrap(), b"\xfb\xff\xfe!");
//!
//! let error = names.decode_to_vec(b"-__-IR").unwrap_err();
//! assert_eq!((error.position, error.kind), (5, DecodeErrorKind::NonCanonicalTail));
//! ```
//!
//! Nothing outside the given slices is read or written. The time does depend on the data (table lookups): this
//! is a codec for names and headers, not for secrets.

#[cfg(target_arch = "aarch64")]
mod aarch64_neon;
mod alphabet;
mod error;
mod portable;
mod stream;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86_64_avx2;
#[cfg(target_arch = "x86_64")]
mod x86_64_vbmi;

pub use alphabet::{Alphabet, AlphabetError};
pub use error::{DecodeError, DecodeErrorKind};
pub use stream::StreamError;

use std::fmt;
use std::hint::cold_path;

use self::alphabet::PAD;
use crate::{Cpu, Feature, backend};

/// Whether a text is filled up with `=` to a multiple of 4 characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Padding {
    // The bits say which remainders a text's length may leave when it is divided by 4.
    /// Encoding writes the padding; decoding wants it.
    Padded = 0b0001,
    /// Encoding writes none; decoding refuses any.
    Unpadded = 0b1101,
}

impl Padding {
    /// The number of characters that `bytes` bytes become; `usize::MAX` if there is no such number.
    pub const fn encoded_len(self, bytes: usize) -> usize {
        let groups = bytes.saturating_add(2) / 3;
        match self {
            Padding::Padded => groups.saturating_mul(4),
            Padding::Unpadded => groups.saturating_add(bytes),
        }
    }

    /// The most bytes that a text of `chars` characters can hold.
    ///
    /// Without padding a valid text holds exactly this many, with padding it may be one or two less.
    pub const fn decoded_len_max(self, chars: usize) -> usize {
        chars - chars.div_ceil(4)
    }

    /// `text` less the one or two `=` that may end it if there is padding.
    fn body(self, text: &[u8]) -> &[u8] {
        // A branch, not a selection: back ends write by a mask made from the length, and on Zen 5 the next text's
        // first load would wait for a mask that comes out of this one's last load.
        match text {
            [body @ .., a, PAD] if self == Padding::Padded => {
                cold_path();
                if *a == PAD {
                    cold_path();
                    return body;
                }
                &text[..text.len() - 1]
            }
            _ => text,
        }
    }

    /// Whether a text of `chars` characters, padding included, can be complete.
    const fn allows_len(self, chars: usize) -> bool {
        self as u8 >> (chars % 4) & 1 == 1
    }
}

type Encode = unsafe fn(&Alphabet, &[u8], &mut [u8]);
type Decode = unsafe fn(&Alphabet, &[u8], &mut [u8]) -> bool;

/// One way to encode and decode texts without padding.
struct Functions {
    encode: Encode,
    decode: Decode,
}

type Backend = backend::Row<Functions>;

/// Fastest first, as measured; the last one runs anywhere.
static BACKENDS: &[Backend] = &[
    // Intel since Ice Lake, AMD since Zen 4.
    #[cfg(target_arch = "x86_64")]
    Backend::new(
        "x86_64-vbmi",
        &[Feature::Avx512, Feature::Vbmi],
        Functions { encode: x86_64_vbmi::encode, decode: x86_64_vbmi::decode },
    ),
    // Intel since Haswell, AMD since Excavator.
    #[cfg(target_arch = "x86_64")]
    Backend::new(
        "x86_64-avx2",
        &[Feature::Avx2],
        Functions { encode: x86_64_avx2::encode, decode: x86_64_avx2::decode },
    ),
    // Every AArch64 CPU that runs Linux.
    #[cfg(target_arch = "aarch64")]
    Backend::new(
        "aarch64-neon",
        &[Feature::Neon],
        Functions { encode: aarch64_neon::encode, decode: aarch64_neon::decode },
    ),
    Backend::new("portable", &[], Functions { encode: portable::encode, decode: portable::decode }),
];

/// A base64 codec: a back end that this CPU can run, an alphabet, and padding or not.
///
/// It is a few words, cheap to make and to copy. It is made only for a [`Cpu`], so holding one is the proof that
/// the back end may run.
#[derive(Clone, Copy)]
pub struct Base64<'a> {
    backend: &'static Backend,
    alphabet: &'a Alphabet,
    padding: Padding,
}

impl<'a> Base64<'a> {
    /// The fastest codec that `cpu` can run.
    pub fn new(cpu: Cpu, alphabet: &'a Alphabet, padding: Padding) -> Base64<'a> {
        Base64 { backend: backend::best(BACKENDS, cpu), alphabet, padding }
    }

    /// Every codec that `cpu` can run, fastest first.
    pub fn available(cpu: Cpu, alphabet: &'a Alphabet, padding: Padding) -> impl Iterator<Item = Base64<'a>> {
        backend::available(BACKENDS, cpu).map(move |backend| Base64 { backend, alphabet, padding })
    }

    /// This codec, with padding or without.
    pub fn with_padding(self, padding: Padding) -> Base64<'a> {
        Base64 { padding, ..self }
    }

    /// Encodes `bytes` into the beginning of `text` and returns how many characters were written.
    ///
    /// # Panics
    /// If `text` is shorter than [`Base64::encoded_len`] of the bytes.
    #[inline]
    pub fn encode(&self, bytes: &[u8], text: &mut [u8]) -> usize {
        let len = self.encoded_len(bytes.len());
        let Some(text) = text.get_mut(..len) else { no_room(text.len(), len, "characters") };
        // The characters are written over what is too much.
        if self.padding == Padding::Padded
            && let [.., a, b] = text
        {
            (*a, *b) = (PAD, PAD);
        }
        let text = &mut text[..Padding::Unpadded.encoded_len(bytes.len())];
        // SAFETY: a `Base64` is made only for a `Cpu` that has what its back end needs.
        unsafe { (self.backend.run.encode)(self.alphabet, bytes, text) };
        len
    }

    /// Decodes all of `text` into the beginning of `bytes` and returns how many bytes were written.
    ///
    /// # Errors
    /// The first thing that is wrong with the text; what `bytes` then holds is not specified.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`Base64::decoded_len`] of the text.
    #[inline]
    pub fn decode(&self, text: &[u8], bytes: &mut [u8]) -> Result<usize, DecodeError> {
        let body = self.padding.body(text);
        let len = self.padding.decoded_len_max(body.len());
        let Some(bytes) = bytes.get_mut(..len) else { no_room(bytes.len(), len, "bytes") };
        let decode = self.backend.run.decode;
        // SAFETY: a `Base64` is made only for a `Cpu` that has what its back end needs.
        if self.padding.allows_len(text.len()) && unsafe { decode(self.alphabet, body, bytes) } {
            Ok(len)
        } else {
            Err(error::first_error(self.alphabet, self.padding, text))
        }
    }

    /// The text of `bytes`, as a string of its own.
    pub fn encode_to_string(&self, bytes: &[u8]) -> String {
        let mut text = vec![0; self.encoded_len(bytes.len())];
        self.encode(bytes, &mut text);
        // OK to unwrap: an alphabet is ASCII, and so is the padding.
        String::from_utf8(text).unwrap()
    }

    /// The bytes that `text` stands for.
    ///
    /// # Errors
    /// The first thing that is wrong with the text.
    pub fn decode_to_vec(&self, text: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let mut bytes = vec![0; self.decoded_len(text)];
        self.decode(text, &mut bytes)?;
        Ok(bytes)
    }

    /// The number of characters that `bytes` bytes become, with padding if this codec pads; `usize::MAX` if
    /// there is no such number.
    pub const fn encoded_len(&self, bytes: usize) -> usize {
        self.padding.encoded_len(bytes)
    }

    /// The number of bytes that `text` holds if it is valid; [`Base64::decode`] wants that much room even if
    /// it is not.
    ///
    /// This looks at the length and the last two characters only.
    pub fn decoded_len(&self, text: &[u8]) -> usize {
        self.padding.decoded_len_max(self.padding.body(text).len())
    }

    /// The codec's alphabet.
    pub fn alphabet(&self) -> &'a Alphabet {
        self.alphabet
    }

    /// Whether the codec pads.
    pub fn padding(&self) -> Padding {
        self.padding
    }

    /// The back end's name, such as `x86_64-vbmi`.
    pub fn name(&self) -> &'static str {
        self.backend.name
    }
}

impl fmt::Debug for Base64<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Base64({}, {:?}, {:?})", self.backend.name, self.alphabet, self.padding)
    }
}

/// Out of line, so that callers get no code for a message.
#[cold]
fn no_room(room: usize, needed: usize, of: &str) -> ! {
    panic!("room for {room} {of}, {needed} needed");
}
