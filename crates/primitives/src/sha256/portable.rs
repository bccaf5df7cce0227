//! SHA-256 in plain integer arithmetic, one message after the other.

use super::{BLOCK_LEN, DIGEST_LEN, K, Layout, digest};
use crate::Messages;
use crate::sha2::sixteen;

/// Takes whole blocks into a chaining value.
pub(super) fn compress(state: &mut [u32; 8], blocks: &[u8]) {
    for block in blocks.as_chunks::<BLOCK_LEN>().0 {
        let mut w = [0; 16];
        for (word, bytes) in w.iter_mut().zip(block.as_chunks().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        let mut s = *state;
        sixteen!(I { round(&mut s, I, K[I].wrapping_add(w[I])); });
        for k in K[16..].as_chunks::<16>().0 {
            sixteen!(I {
                let (w1, w14) = (w[(I + 1) % 16], w[(I + 14) % 16]);
                let s0 = w1.rotate_right(7) ^ w1.rotate_right(18) ^ (w1 >> 3);
                let s1 = w14.rotate_right(17) ^ w14.rotate_right(19) ^ (w14 >> 10);
                w[I] = w[I].wrapping_add(s0).wrapping_add(w[(I + 9) % 16]).wrapping_add(s1);
                round(&mut s, I, k[I].wrapping_add(w[I]));
            });
        }
        for (word, new) in state.iter_mut().zip(s) {
            *word = word.wrapping_add(new);
        }
    }
}

/// Round `i` of sixteen. Instead of moving the eight words by one place, the places move: word a is at `-i`.
#[inline]
fn round(s: &mut [u32; 8], i: usize, wk: u32) {
    let at = |word: usize| (word + 16 - i) % 8;
    let [a, b, c, e, f, g] = [0, 1, 2, 4, 5, 6].map(|word| s[at(word)]);
    let sigma1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
    let choice = g ^ (e & (f ^ g));
    let t = s[at(7)].wrapping_add(wk).wrapping_add(choice).wrapping_add(sigma1);
    let sigma0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
    let majority = (a & b) | (c & (a | b));
    s[at(3)] = s[at(3)].wrapping_add(t);
    s[at(7)] = t.wrapping_add(sigma0).wrapping_add(majority);
}

/// Digests of all messages.
pub(super) fn hash_many(midstate: &[u32; 8], layout: &Layout<'_>, messages: Messages<'_>, out: &mut [u8]) {
    for (k, out) in out.chunks_exact_mut(DIGEST_LEN).enumerate() {
        let mut state = *midstate;
        let mut block = 0;
        while block < layout.blocks() {
            let mut stage = [[0; BLOCK_LEN]];
            let [run] = layout.run(block, [messages.get(k)], &mut stage);
            compress(&mut state, run);
            block += run.len() / BLOCK_LEN;
        }
        out.copy_from_slice(&digest(&state));
    }
}
