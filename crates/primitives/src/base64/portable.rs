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
        *group = [58, 52, 46, 40, 34, 28, 22, 16].map(|shift| table[(word >> shift & 63) as usize]);
    }
    for (block, group) in bytes_left.chunks(3).zip(chars_left.chunks_mut(4)) {
        let word =
            block.iter().zip([16, 8, 0]).fold(0, |word, (byte, shift)| word | u32::from(*byte) << shift);
        for (char, shift) in group.iter_mut().zip([18, 12, 6, 0]) {
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
    let (groups, chars_left) = chars.as_chunks::<8>();
    let (blocks, bytes_left) = bytes.split_at_mut(groups.len() * 6);
    let mut seen = 0;
    for (group, block) in groups.iter().zip(blocks.as_chunks_mut::<6>().0) {
        let values = group.map(|char| table[usize::from(char)]);
        seen |= values.iter().fold(0, |bits, value| bits | value);
        let shifts = [58, 52, 46, 40, 34, 28, 22, 16];
        // An invalid value spills into its neighbour's bits, but then nobody may look at the bytes.
        let word =
            values.iter().zip(shifts).fold(0, |word, (value, shift)| word | u64::from(*value) << shift);
        let [a, b, c, d, e, f, ..] = word.to_be_bytes();
        *block = [a, b, c, d, e, f];
    }
    let mut rest = 0;
    for (group, block) in chars_left.chunks(4).zip(bytes_left.chunks_mut(3)) {
        let mut word = 0;
        for (char, shift) in group.iter().zip([18, 12, 6, 0]) {
            let value = table[usize::from(*char)];
            seen |= value;
            word |= u32::from(value) << shift;
        }
        let [_, values @ ..] = word.to_be_bytes();
        let (used, unused) = values.split_at(block.len());
        block.copy_from_slice(used);
        rest = unused.iter().fold(0, |bits, byte| bits | byte);
    }
    seen & INVALID == 0 && rest == 0
}
