//! Table lookups in plain Rust: the back end for any CPU, and what the others end their texts with.
//!
//! By definition the bits of the bytes, most significant first, are cut into groups of six, and each group
//! becomes a character. Bit by bit that is one step per bit or two; here a word holds 6 bytes and gives 8
//! characters by shifts alone, and a bit that no valid table entry has collects the errors of a whole text.

use super::alphabet::{Alphabet, INVALID};

/// Encodes `bytes` into exactly ceil(4n / 3) characters, without padding.
pub(super) fn encode(alphabet: &Alphabet, bytes: &[u8], chars: &mut [u8]) {
    debug_assert_eq!(chars.len(), (bytes.len() * 4).div_ceil(3));
    let table = alphabet.characters();
    let (blocks, bytes_left) = bytes.as_chunks::<6>();
    let (groups, chars_left) = chars.split_at_mut(blocks.len() * 8);
    for ([a, b, c, d, e, f], group) in blocks.iter().zip(groups.as_chunks_mut::<8>().0) {
        let word = u64::from_be_bytes([*a, *b, *c, *d, *e, *f, 0, 0]);
        let char = |shift: u32| table[(word >> shift & 63) as usize];
        *group = [char(58), char(52), char(46), char(40), char(34), char(28), char(22), char(16)];
    }
    encode_rest(alphabet, bytes_left, chars_left);
}

/// Encodes less than 6 bytes.
#[inline]
pub(super) fn encode_rest(alphabet: &Alphabet, bytes: &[u8], chars: &mut [u8]) {
    let char = |value: u8| alphabet.characters()[usize::from(value & 63)];
    match (bytes, chars) {
        ([a, b, c, bytes @ ..], [w, x, y, z, chars @ ..]) => {
            (*w, *x, *y, *z) = (char(a >> 2), char(a << 4 | b >> 4), char(b << 2 | c >> 6), char(*c));
            encode_rest(alphabet, bytes, chars);
        }
        ([a], [w, x]) => (*w, *x) = (char(a >> 2), char(a << 4)),
        ([a, b], [w, x, y]) => (*w, *x, *y) = (char(a >> 2), char(a << 4 | b >> 4), char(b << 2)),
        _ => {}
    }
}

/// Decodes `chars`, which have no padding and a length that is possible, into exactly floor(3n / 4) bytes.
///
/// False if a character is not in the alphabet or the last one has left-over bits; `bytes` then holds
/// whatever came out.
pub(super) fn decode(alphabet: &Alphabet, chars: &[u8], bytes: &mut [u8]) -> bool {
    debug_assert_eq!(bytes.len(), chars.len() * 3 / 4);
    debug_assert_ne!(chars.len() % 4, 1);
    let table = alphabet.values();
    let (groups, chars_left) = chars.as_chunks();
    let (blocks, bytes_left) = bytes.as_chunks_mut();
    let mut seen = 0;
    for (group, block) in groups.iter().zip(blocks) {
        *block = decode_group(table, *group, &mut seen);
    }
    seen & INVALID == 0 && decode_rest(alphabet, chars_left, bytes_left)
}

/// Decodes the 2 or 3 characters that are not a group, or none.
#[inline]
pub(super) fn decode_rest(alphabet: &Alphabet, chars: &[u8], bytes: &mut [u8]) -> bool {
    let value = |char: u8| alphabet.values()[usize::from(char)];
    match (chars, bytes) {
        (&[a, b], [x]) => {
            let (a, b) = (value(a), value(b));
            *x = a << 2 | b >> 4;
            // Both values are valid, and no bit is left over.
            (a | b) & INVALID | b & 15 == 0
        }
        (&[a, b, c], [x, y]) => {
            let (a, b, c) = (value(a), value(b), value(c));
            (*x, *y) = (a << 2 | b >> 4, b << 4 | c >> 2);
            (a | b | c) & INVALID | c & 3 == 0
        }
        _ => true,
    }
}

/// The bytes of 4 characters; their values, valid or not, join what was `seen`.
fn decode_group(table: &[u8; 256], group: [u8; 4], seen: &mut u8) -> [u8; 3] {
    let [a, b, c, d] = group.map(|char| table[usize::from(char)]);
    *seen |= a | b | c | d;
    [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d]
}
