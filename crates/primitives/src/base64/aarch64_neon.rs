//! AArch64 SIMD: 48 bytes to 64 characters, and back, for any alphabet.
//!
//! Structure loads and stores take the bytes apart (every third) and put the characters together (every
//! fourth), and the table lookup has 64 entries as the alphabet does, so there is nothing to be clever about.

use core::arch::aarch64::*;

use super::alphabet::{Alphabet, INVALID};

/// Bytes that one round encodes, or decodes to.
const BYTES: usize = 48;
/// Characters of one round.
const CHARS: usize = 64;

/// Encodes `bytes` into exactly ceil(4n / 3) characters, without padding.
#[target_feature(enable = "neon")]
pub(super) fn encode(alphabet: &Alphabet, bytes: &[u8], chars: &mut [u8]) {
    debug_assert_eq!(chars.len(), (bytes.len() * 4).div_ceil(3));
    let table = load_table(alphabet.characters());
    let low_6 = vdupq_n_u8(0x3f);
    let convert = |block: &[u8; BYTES], group: &mut [u8; CHARS]| {
        let uint8x16x3_t(a, b, c) = load_thirds(block);
        let sextets = [
            vshrq_n_u8::<2>(a),
            // The upper bits of one byte go in front of the lower ones of the other.
            vandq_u8(vsliq_n_u8::<4>(vshrq_n_u8::<4>(b), a), low_6),
            vandq_u8(vsliq_n_u8::<2>(vshrq_n_u8::<6>(c), b), low_6),
            vandq_u8(c, low_6),
        ];
        let [a, b, c, d] = sextets.map(|values| vqtbl4q_u8(table, values));
        store_fourths(group, uint8x16x4_t(a, b, c, d));
    };

    let (blocks, bytes_left) = bytes.as_chunks();
    let (groups, chars_left) = chars.split_at_mut(blocks.len() * CHARS);
    for (block, group) in blocks.iter().zip(groups.as_chunks_mut().0) {
        convert(block, group);
    }
    if !bytes_left.is_empty() {
        let (mut block, mut group) = ([0; BYTES], [0; CHARS]);
        block[..bytes_left.len()].copy_from_slice(bytes_left);
        convert(&block, &mut group);
        chars_left.copy_from_slice(&group[..chars_left.len()]);
    }
}

/// Decodes `chars`, which have no padding and a length that is possible, into exactly floor(3n / 4) bytes.
///
/// False if a character is not in the alphabet or the last one has left-over bits; `bytes` then holds
/// whatever came out.
#[target_feature(enable = "neon")]
pub(super) fn decode(alphabet: &Alphabet, chars: &[u8], bytes: &mut [u8]) -> bool {
    debug_assert_eq!(bytes.len(), chars.len() * 3 / 4);
    debug_assert_ne!(chars.len() % 4, 1);
    let [low, high, ..] = alphabet.values().as_chunks().0 else { unreachable!("256 values are four chunks") };
    let (low, high) = (load_table(low), load_table(high));
    let invalid = vdupq_n_u8(INVALID);
    let mut seen = vdupq_n_u8(0);
    let mut convert = |group: &[u8; CHARS], block: &mut [u8; BYTES]| {
        let uint8x16x4_t(a, b, c, d) = load_fourths(group);
        let [a, b, c, d] = [a, b, c, d].map(|characters| {
            // The first lookup gives zero above 63, the second keeps what it has outside of 64 to 127; a
            // character above 127 joins the collected errors by itself.
            let values = vqtbl4q_u8(low, characters);
            let values = vqtbx4q_u8(values, high, veorq_u8(characters, vdupq_n_u8(64)));
            seen = vorrq_u8(seen, vorrq_u8(values, characters));
            values
        });
        let first = vorrq_u8(vshlq_n_u8::<2>(a), vshrq_n_u8::<4>(b));
        let second = vorrq_u8(vshlq_n_u8::<4>(b), vshrq_n_u8::<2>(c));
        let third = vorrq_u8(vshlq_n_u8::<6>(c), d);
        store_thirds(block, uint8x16x3_t(first, second, third));
    };

    let (groups, chars_left) = chars.as_chunks();
    let (blocks, bytes_left) = bytes.split_at_mut(groups.len() * BYTES);
    for (group, block) in groups.iter().zip(blocks.as_chunks_mut().0) {
        convert(group, block);
    }
    let mut rest = 0;
    if !chars_left.is_empty() {
        let (mut group, mut block) = ([alphabet.characters()[0]; CHARS], [0; BYTES]);
        group[..chars_left.len()].copy_from_slice(chars_left);
        convert(&group, &mut block);
        let (used, unused) = block.split_at(bytes_left.len());
        bytes_left.copy_from_slice(used);
        // Absent characters count as zeros: what is not zero after the last byte are left-over bits.
        rest = unused.iter().fold(0, |bits, byte| bits | byte);
    }
    vmaxvq_u8(vandq_u8(seen, invalid)) == 0 && rest == 0
}

#[target_feature(enable = "neon")]
fn load_table(table: &[u8; 64]) -> uint8x16x4_t {
    // SAFETY: 64 bytes are readable at `table`; the load needs no alignment.
    unsafe { vld1q_u8_x4(table.as_ptr()) }
}

/// Every third byte of `bytes` in a register of its own.
#[target_feature(enable = "neon")]
fn load_thirds(bytes: &[u8; BYTES]) -> uint8x16x3_t {
    // SAFETY: 48 bytes are readable at `bytes`; the load needs no alignment.
    unsafe { vld3q_u8(bytes.as_ptr()) }
}

#[target_feature(enable = "neon")]
fn store_thirds(bytes: &mut [u8; BYTES], values: uint8x16x3_t) {
    // SAFETY: 48 bytes are writable at `bytes`; the store needs no alignment.
    unsafe { vst3q_u8(bytes.as_mut_ptr(), values) }
}

/// Every fourth byte of `bytes` in a register of its own.
#[target_feature(enable = "neon")]
fn load_fourths(bytes: &[u8; CHARS]) -> uint8x16x4_t {
    // SAFETY: 64 bytes are readable at `bytes`; the load needs no alignment.
    unsafe { vld4q_u8(bytes.as_ptr()) }
}

#[target_feature(enable = "neon")]
fn store_fourths(bytes: &mut [u8; CHARS], values: uint8x16x4_t) {
    // SAFETY: 64 bytes are writable at `bytes`; the store needs no alignment.
    unsafe { vst4q_u8(bytes.as_mut_ptr(), values) }
}
