//! XTS (IEEE 1619, NIST SP 800-38E): block j of a unit is E(data XOR T x^j) XOR T x^j, where T is the unit's
//! tweak encrypted under a second key and x^j multiplies in GF(2^128).

use crate::aes::engine::*;
use crate::aes::schedule::{Schedule, XtsKeys};
use crate::aes::units::Units;
use crate::inout::InOut;

/// How many units' tweaks are encrypted together.
const BATCH: usize = WIDEST / 16;

/// En- or decrypts units of any size from 16 on.
#[inline(always)]
pub(in crate::aes) fn xts<E: Engine, const DECRYPT: bool>(
    e: E,
    keys: &XtsKeys,
    units: &Units<'_>,
    mut io: InOut<'_>,
) {
    if units.size == 16 {
        return single_blocks::<E, DECRYPT>(e, keys, units, io);
    }
    let all = io.len() / units.size;
    if all == 1 {
        let mut tweak = [[0; 16]];
        units.fill(0, &mut tweak);
        return unit::<E, DECRYPT>(e, &keys.data, crypt_block::<E, false>(e, &keys.tweak, tweak[0]), io);
    }
    let mut tweaks = [[0; 16]; BATCH];
    for k in 0..all {
        if k % BATCH == 0 {
            let count = BATCH.min(all - k);
            units.fill(k, &mut tweaks[..count]);
            encrypt_tweaks(e, &keys.tweak, &mut tweaks[..count]);
        }
        unit::<E, DECRYPT>(e, &keys.data, tweaks[k % BATCH], io.part(k * units.size, units.size));
    }
}

/// Units of one block: as many tweaks are encrypted as data.
#[inline(always)]
fn single_blocks<E: Engine, const DECRYPT: bool>(e: E, keys: &XtsKeys, units: &Units<'_>, mut io: InOut<'_>) {
    let mut tweaks = Scratch([0; WIDEST]);
    for at in (0..io.len()).step_by(wide::<E>()) {
        let len = wide::<E>().min(io.len() - at);
        units.fill(at / 16, &mut tweaks.0.as_chunks_mut().0[..len / 16]);
        // SAFETY: the scratch bytes are enough for WIDE vectors of any engine.
        let t = crypt_some::<E, false>(e, &keys.tweak, unsafe { load_wide(e, tweaks.0.as_ptr()) }, len);
        let v = xor_wide(e, read_some(e, &io, at, len), &t);
        let v = xor_wide(e, crypt_some::<E, DECRYPT>(e, &keys.data, v, len), &t);
        write_some(e, &mut io, at, v, len);
    }
}

/// Encrypts tweaks in place.
#[inline(always)]
pub(in crate::aes) fn encrypt_tweaks<E: Engine>(e: E, keys: &Schedule, tweaks: &mut [[u8; 16]]) {
    super::ecb::<E, false>(e, keys, InOut::in_place(tweaks.as_flattened_mut()));
}

/// En- or decrypts one unit of at least 16 bytes, given its encrypted tweak.
#[inline(always)]
pub(in crate::aes) fn unit<E: Engine, const DECRYPT: bool>(
    e: E,
    keys: &Schedule,
    tweak: [u8; 16],
    mut io: InOut<'_>,
) {
    // With ciphertext stealing the last whole block is not done in its turn.
    let stolen = io.len() % 16;
    let bulk = if stolen == 0 { io.len() } else { io.len() - stolen - 16 };
    let mut next = e.first_tweaks(tweak);
    let mut at = 0;
    while bulk - at >= wide::<E>() {
        let tweaks = e.tweaks(next);
        next = e.next_tweaks(tweaks[WIDE - 1]);
        // SAFETY: WIDE vectors from `at` on lie inside the buffer, by the loop's condition.
        let v = xor_wide(e, unsafe { load_wide(e, io.src(at, wide::<E>())) }, &tweaks);
        let v = xor_wide(e, crypt::<E, DECRYPT, WIDE>(e, keys, v), &tweaks);
        // SAFETY: the same bytes of the destination.
        unsafe { store_wide(e, io.dst(at, wide::<E>()), v) };
        at += wide::<E>();
    }
    let rest = bulk - at;
    if rest == 0 && stolen == 0 {
        return;
    }
    let tweaks = e.tweaks(next);
    if rest != 0 {
        let v = xor_wide(e, read_some(e, &io, at, rest), &tweaks);
        let v = xor_wide(e, crypt_some::<E, DECRYPT>(e, keys, v, rest), &tweaks);
        write_some(e, &mut io, at, v, rest);
    }
    if stolen != 0 {
        let tweak = bytes_of(e, tweaks).0.as_chunks().0[rest / 16];
        steal::<E, DECRYPT>(e, keys, tweak, io.part(bulk, 16 + stolen));
    }
}

/// The last 17 to 31 bytes of a unit, where `tweak` belongs to the whole block.
///
/// The whole block is encrypted, lends its end to fill up the short one, and the filled-up block is encrypted
/// into the whole one's place. Decryption therefore meets the two tweaks in the other order.
#[inline(always)]
fn steal<E: Engine, const DECRYPT: bool>(e: E, keys: &Schedule, tweak: [u8; 16], mut io: InOut<'_>) {
    let after = double(u128::from_le_bytes(tweak)).to_le_bytes();
    let (first, second) = if DECRYPT { (after, tweak) } else { (tweak, after) };
    let whole = tweaked_block::<E, DECRYPT>(e, keys, io.block(0), first);
    let short = io.len() - 16;
    let mut filled = whole;
    io.read(16, &mut filled[..short]);
    io.write(16, &whole[..short]);
    io.write(0, &tweaked_block::<E, DECRYPT>(e, keys, filled, second));
}

/// A function and no closure: one that is called twice stands alone, without the engine's CPU features, and then calls
/// each AES round.
#[inline(always)]
fn tweaked_block<E: Engine, const DECRYPT: bool>(
    e: E,
    keys: &Schedule,
    data: [u8; 16],
    tweak: [u8; 16],
) -> [u8; 16] {
    xor_block(crypt_block::<E, DECRYPT>(e, keys, xor_block(data, tweak)), tweak)
}

/// Multiplies by x modulo x^128 + x^7 + x^2 + x + 1, where bit i is the coefficient of x^i.
#[inline(always)]
fn double(tweak: u128) -> u128 {
    (tweak << 1) ^ ((tweak >> 127) * 0x87)
}
