//! ECB: each block by itself. Ciphers of names and tweaks are built on it; data never is.

use crate::aes::engine::*;
use crate::aes::schedule::Schedule;
use crate::inout::InOut;

/// En- or decrypts each block of `io`, whose length is a multiple of 16.
#[inline(always)]
pub(in crate::aes) fn ecb<E: Engine, const DECRYPT: bool>(e: E, keys: &Schedule, mut io: InOut<'_>) {
    let mut at = 0;
    while io.len() - at >= wide::<E>() {
        // SAFETY: WIDE vectors from `at` on lie inside the buffer, by the loop's condition.
        let v = unsafe { load_wide(e, io.src(at, wide::<E>())) };
        let v = crypt::<E, DECRYPT, WIDE>(e, keys, v);
        // SAFETY: the same bytes of the destination.
        unsafe { store_wide(e, io.dst(at, wide::<E>()), v) };
        at += wide::<E>();
    }
    let rest = io.len() - at;
    if rest != 0 {
        let v = crypt_some::<E, DECRYPT>(e, keys, read_some(e, &io, at, rest), rest);
        write_some(e, &mut io, at, v, rest);
    }
}
