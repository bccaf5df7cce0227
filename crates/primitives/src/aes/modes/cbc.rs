//! CBC (NIST SP 800-38A) over many units, and CBC with ciphertext stealing.
//!
//! Decryption is parallel by nature. Encryption is a chain within a unit, so units go side by side.

use crate::aes::engine::*;
use crate::aes::schedule::Schedule;
use crate::aes::units::Units;
use crate::inout::InOut;

/// How many units' IVs are made together, and the most units that are encrypted side by side.
const BATCH: usize = WIDEST / 16;

/// Encrypts units of whole blocks.
#[inline(always)]
pub(in crate::aes) fn cbc_encrypt<E: Engine>(e: E, keys: &Schedule, units: &Units<'_>, mut io: InOut<'_>) {
    let mut chains = [[0; 16]; BATCH];
    let all = io.len() / units.size;
    let mut done = 0;
    while done < all {
        let count = (WIDE * E::LANES).min(all - done);
        units.fill(done, &mut chains[..count]);
        encrypt_abreast(
            e,
            keys,
            &chains[..count],
            units.size,
            io.part(done * units.size, count * units.size),
        );
        done += count;
    }
}

/// A cache line of 64 bytes in blocks.
const LINE: usize = 4;

/// How many blocks of each unit are fetched together.
///
/// Units that lie a page apart share one set of the first-level cache. Where more of them are side by side than it has
/// ways, a line is gone before the next block of its unit is wanted, so all of it is taken at once. Zen 4, units of 4096
/// bytes, a block against a line at a time: 32 abreast 2.3 and 6.9 GB/s, 16 abreast 3.1 and 6.6, 8 abreast 7.4 and 5.1.
const fn fetched<E: Engine>() -> usize {
    if E::LANES == 1 { 1 } else { LINE }
}

/// Encrypts at most [`WIDE`] vectors' worth of units, one block of each at a time.
#[inline(always)]
fn encrypt_abreast<E: Engine>(e: E, keys: &Schedule, ivs: &[[u8; 16]], size: usize, mut io: InOut<'_>) {
    let ivs_bytes = ivs.as_flattened();
    // SAFETY: as many readable bytes as the slice has.
    let mut chain = unsafe { load_some(e, ivs_bytes.as_ptr(), ivs_bytes.len()) };
    // The first, second, third and fourth blocks of all units.
    let mut lines = [const { Scratch([0; WIDEST]) }; LINE];
    for at in (0..size).step_by(16 * fetched::<E>()) {
        let blocks = fetched::<E>().min((size - at) / 16);
        for k in 0..ivs.len() {
            for (j, line) in lines.iter_mut().enumerate().take(blocks) {
                io.read(k * size + at + 16 * j, &mut line.0[16 * k..][..16]);
            }
        }
        for line in &mut lines[..blocks] {
            // SAFETY: the scratch bytes are enough for WIDE vectors of any engine.
            let v = unsafe { load_wide(e, line.0.as_ptr()) };
            chain = crypt_some::<E, false>(e, keys, xor_wide(e, v, &chain), 16 * ivs.len());
            // SAFETY: as above.
            unsafe { store_wide(e, line.0.as_mut_ptr(), chain) };
        }
        for k in 0..ivs.len() {
            for (j, line) in lines.iter().enumerate().take(blocks) {
                io.write(k * size + at + 16 * j, &line.0[16 * k..][..16]);
            }
        }
    }
}

/// Decrypts units of whole blocks.
#[inline(always)]
pub(in crate::aes) fn cbc_decrypt<E: Engine>(e: E, keys: &Schedule, units: &Units<'_>, mut io: InOut<'_>) {
    let mut ivs = [[0; 16]; BATCH];
    let all = io.len() / units.size;
    for k in 0..all {
        if k % BATCH == 0 {
            units.fill(k, &mut ivs[..BATCH.min(all - k)]);
        }
        decrypt_chain(e, keys, ivs[k % BATCH], io.part(k * units.size, units.size));
    }
}

/// Decrypts one chain of whole blocks.
///
/// From the end to the beginning: a block needs the ciphertext before it, which in place is only there as long
/// as it was not decrypted.
#[inline(always)]
fn decrypt_chain<E: Engine>(e: E, keys: &Schedule, iv: [u8; 16], mut io: InOut<'_>) {
    let mut at = io.len() / wide::<E>() * wide::<E>();
    let rest = io.len() - at;
    if rest != 0 {
        let mut before = Scratch([0; WIDEST]);
        if at == 0 {
            before.0[..16].copy_from_slice(&iv);
            io.read(0, &mut before.0[16..rest]);
        } else {
            io.read(at - 16, &mut before.0[..rest]);
        }
        let v = crypt_some::<E, true>(e, keys, read_some(e, &io, at, rest), rest);
        // SAFETY: the scratch bytes are enough for WIDE vectors of any engine.
        let v = xor_wide(e, v, &unsafe { load_wide(e, before.0.as_ptr()) });
        write_some(e, &mut io, at, v, rest);
    }
    while at != 0 {
        at -= wide::<E>();
        let mut first = Scratch([0; 64]);
        let lanes = &mut first.0[..16 * E::LANES];
        if at == 0 {
            lanes[..16].copy_from_slice(&iv);
            io.read(0, &mut lanes[16..]);
        } else {
            io.read(at - 16, lanes);
        }
        let step = 16 * E::LANES;
        // SAFETY: the scratch bytes are enough for one vector of any engine.
        let mut before = [unsafe { e.load(first.0.as_ptr()) }; WIDE];
        for (i, before) in before.iter_mut().enumerate().skip(1) {
            // SAFETY: this vector ends 16 bytes before the end of those that are loaded below.
            *before = unsafe { e.load(io.src(at + i * step - 16, step)) };
        }
        // SAFETY: `at` is at least one width below the buffer's end.
        let v = unsafe { load_wide(e, io.src(at, wide::<E>())) };
        let v = xor_wide(e, e.decrypt(keys, v), &before);
        // SAFETY: the same bytes of the destination.
        unsafe { store_wide(e, io.dst(at, wide::<E>()), v) };
    }
}

/// CBC with ciphertext stealing, variant CS3 (NIST SP 800-38A addendum): the last two blocks always change
/// places, except that a single block is plain CBC. Units of any size from 16 on.
#[inline(always)]
pub(in crate::aes) fn cts<E: Engine, const DECRYPT: bool>(
    e: E,
    keys: &Schedule,
    units: &Units<'_>,
    mut io: InOut<'_>,
) {
    for k in 0..io.len() / units.size {
        let mut iv = [[0; 16]];
        units.fill(k, &mut iv);
        cts_unit::<E, DECRYPT>(e, keys, iv[0], io.part(k * units.size, units.size));
    }
}

#[inline(always)]
fn cts_unit<E: Engine, const DECRYPT: bool>(e: E, keys: &Schedule, iv: [u8; 16], mut io: InOut<'_>) {
    let len = io.len();
    // What goes before the last two blocks, of which the second may be short.
    let head = if len == 16 { 16 } else { len.next_multiple_of(16) - 32 };
    let mut chain = iv;
    if DECRYPT {
        // In place the head's last ciphertext block is gone once the head is decrypted.
        let after = if head == 0 { iv } else { io.block(head - 16) };
        if head != 0 {
            decrypt_chain(e, keys, iv, io.part(0, head));
        }
        chain = after;
    } else {
        for at in (0..head).step_by(16) {
            chain = crypt_block::<E, false>(e, keys, xor_block(io.block(at), chain));
            io.write(at, &chain);
        }
    }
    if len == 16 {
        return;
    }
    let short = len - head - 16;
    let mut tail = [0; 16];
    io.read(head + 16, &mut tail[..short]);
    if DECRYPT {
        // The block that stands first is D^-1 of (last plaintext, zero-filled, XOR the stolen block).
        let filled = crypt_block::<E, true>(e, keys, io.block(head));
        let mut stolen = filled;
        stolen[..short].copy_from_slice(&tail[..short]);
        let last = xor_block(filled, stolen);
        io.write(head, &xor_block(crypt_block::<E, true>(e, keys, stolen), chain));
        io.write(head + 16, &last[..short]);
    } else {
        let stolen = crypt_block::<E, false>(e, keys, xor_block(io.block(head), chain));
        io.write(head, &crypt_block::<E, false>(e, keys, xor_block(tail, stolen)));
        io.write(head + 16, &stolen[..short]);
    }
}
