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
    for (block, group) in bytes_left.chunks(3).zip(chars_left.chunks_mut(4)) {
        let word =
            block.iter().zip([24, 16, 8]).fold(0, |word, (byte, shift)| word | u32::from(*byte) << shift);
        for (char, shift) in group.iter_mut().zip([26u32, 20, 14, 8]) {
            *char = table[(word >> shift & 63) as usize];
        }
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
    let mut rest = 0;
    if !chars_left.is_empty() {
        let mut word = 0;
        for (char, shift) in chars_left.iter().zip([26u32, 20, 14, 8]) {
            let value = table[usize::from(*char)];
            seen |= value;
            word |= u32::from(value) << shift;
        }
        let block = word.to_be_bytes();
        bytes_left.iter_mut().zip(block).for_each(|(byte, value)| *byte = value);
        // What is not zero after the last byte are left-over bits.
        rest = block[bytes_left.len()];
    }
    seen & INVALID == 0 && rest == 0
}

/// The bytes of 4 characters; their values, valid or not, join what was `seen`.
fn decode_group(table: &[u8; 256], group: [u8; 4], seen: &mut u8) -> [u8; 3] {
    let [a, b, c, d] = group.map(|char| table[usize::from(char)]);
    *seen |= a | b | c | d;
    [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d]
}
