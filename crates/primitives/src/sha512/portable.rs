//! SHA-512 in plain integer arithmetic, one message after the other.

use super::{BLOCK_LEN, DIGEST_LEN, K, Layout, digest};
use crate::Messages;

/// Takes whole blocks into a chaining value.
pub(super) fn compress(state: &mut [u64; 8], blocks: &[u8]) {
    for block in blocks.chunks_exact(BLOCK_LEN) {
        let mut w = [0; 16];
        for (word, bytes) in w.iter_mut().zip(block.as_chunks().0) {
            *word = u64::from_be_bytes(*bytes);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
        for i in 0..80 {
            if i >= 16 {
                let (w1, w14) = (w[(i + 1) % 16], w[(i + 14) % 16]);
                let s0 = w1.rotate_right(1) ^ w1.rotate_right(8) ^ (w1 >> 7);
                let s1 = w14.rotate_right(19) ^ w14.rotate_right(61) ^ (w14 >> 6);
                w[i % 16] = w[i % 16].wrapping_add(s0).wrapping_add(w[(i + 9) % 16]).wrapping_add(s1);
            }
            let s1 = e.rotate_right(14) ^ e.rotate_right(18) ^ e.rotate_right(41);
            let choice = g ^ (e & (f ^ g));
            let t = h.wrapping_add(K[i]).wrapping_add(w[i % 16]).wrapping_add(choice).wrapping_add(s1);
            let s0 = a.rotate_right(28) ^ a.rotate_right(34) ^ a.rotate_right(39);
            let majority = (a & b) | (c & (a | b));
            (h, g, f, e, d, c, b) = (g, f, e, d.wrapping_add(t), c, b, a);
            a = t.wrapping_add(s0).wrapping_add(majority);
        }
        for (word, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *word = word.wrapping_add(new);
        }
    }
}

/// Digests of all messages.
pub(super) fn hash_many(midstate: &[u64; 8], layout: &Layout<'_>, messages: Messages<'_>, out: &mut [u8]) {
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
