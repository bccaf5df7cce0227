//! Counter modes: data XOR the encryption of a running number.

use crate::aes::engine::*;
use crate::aes::schedule::Schedule;
use crate::inout::InOut;

/// Where the counter blocks come from.
#[derive(Clone, Copy)]
pub(in crate::aes) enum Counter {
    /// Block i is `start + i` modulo 2^128, big-endian: the CTR of NIST SP 800-38A.
    Big(u128),
    /// Block i is `iv` XOR `i + 1`, both little-endian: the XCTR of HCTR2.
    Xor(u128),
}

impl Counter {
    /// Counter block `i`.
    #[inline(always)]
    fn block(self, i: u128) -> [u8; 16] {
        match self {
            Counter::Big(start) => start.wrapping_add(i).to_be_bytes(),
            Counter::Xor(iv) => (iv ^ (i + 1)).to_le_bytes(),
        }
    }
}

/// XORs the key stream into `io`, of any length.
#[inline(always)]
pub(in crate::aes) fn counter<E: Engine>(e: E, keys: &Schedule, start: Counter, mut io: InOut<'_>) {
    let mut at = 0;
    while at < io.len() {
        let mut counters = Scratch([0; WIDEST]);
        for (i, block) in counters.0.as_chunks_mut().0.iter_mut().take(WIDE * E::LANES).enumerate() {
            *block = start.block((at / 16 + i) as u128);
        }
        // SAFETY: the scratch bytes are enough for WIDE vectors of any engine.
        let stream = unsafe { load_wide(e, counters.0.as_ptr()) };
        let rest = io.len() - at;
        if rest >= wide::<E>() {
            let stream = e.encrypt(keys, stream);
            // SAFETY: WIDE vectors from `at` on lie inside the buffer, because `rest` covers them.
            let v = xor_wide(e, unsafe { load_wide(e, io.src(at, wide::<E>())) }, &stream);
            // SAFETY: the same bytes of the destination.
            unsafe { store_wide(e, io.dst(at, wide::<E>()), v) };
            at += wide::<E>();
        } else {
            let stream = crypt_some::<E, false>(e, keys, stream, rest);
            let v = xor_wide(e, read_some(e, &io, at, rest), &stream);
            write_some(e, &mut io, at, v, rest);
            at += rest;
        }
    }
}
