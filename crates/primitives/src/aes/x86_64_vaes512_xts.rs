//! XTS on 512-bit registers for the units that occur: 512 bytes and multiples of 1024.
//!
//! The AES instruction limits XTS: two in a cycle, each for four blocks, so 7 cycles for 64 bytes under a
//! 256-bit key. To reach that, everything else has to hide behind it:
//!
//! - 16 registers (1 KiB, a "chunk") are in flight. 8 would do if nothing ever stalled: latency 4, two in a cycle.
//! - The tweaks of chunk n + 1 are made between the rounds of chunk n and go through memory, 16 registers each way.
//!   Nothing else fits into 32 registers, and a load is free beside AES.
//! - The tweaks of 4 units are encrypted together, beside the data of a chunk: as a seventeenth register that costs
//!   nothing but its own 14 instructions.
//! - The tweaks are kept XORed with the last round key ("whitened"): then AES's last round adds both at once. As
//!   multiplication is linear, a whitened tweak's multiple only needs another constant XORed in, which is free where
//!   a three-way XOR takes the place of a two-way one.
//! - Loads come in bursts, so memory is prefetched explicitly: without that, buffers beyond the caches run at a third.

use core::arch::asm;
use core::arch::x86_64::*;

use crate::inout::InOut;

use super::Direction;
use super::engine::Engine;
use super::modes;
use super::schedule::XtsKeys;
use super::units::Units;
use super::x86_64_vaes512::Vaes512;

/// Bytes that are in flight together.
const CHUNK: usize = 1024;

/// How many units' tweaks are encrypted together: a register's worth.
const BATCH: usize = 4;

/// How far ahead of the loads the source is fetched, and how far ahead of the stores the destination.
const SOURCE_AHEAD: usize = 8192;
const TARGET_AHEAD: usize = 4096;

/// From this length on a separate destination is written past the caches.
///
/// Measured on Zen 5 with 32 MiB of L3, through the caches against past them: 4 MiB 30.5 and 32.6 GB/s, 16 MiB 27 and
/// 22 to 29, 32 MiB 23.0 and 24.5, 64 MiB 20.4 and 22.9 to 25. Below, the gain is smaller than what the next reader
/// loses.
const STREAMING_FROM: usize = 16 << 20;

/// The whitened tweaks of a chunk.
#[repr(C, align(64))]
struct Tweaks([__m512i; 16]);

/// Constants of a call.
///
/// With the last round key L in all lanes, `by_x4` is L times x^4 plus L, and so on: the multiple of a whitened tweak
/// plus that is the whitened multiple. `first` is the first round key plus L, for data plus a whitened tweak.
#[repr(C, align(64))]
struct Constants {
    first: __m512i,
    last: __m512i,
    by_x4: __m512i,
    by_x8: __m512i,
    by_x16: __m512i,
    by_x24: __m512i,
    by_x32: __m512i,
    by_x64: __m512i,
    streaming: bool,
}

/// Work that a chunk does for later units.
#[repr(C, align(64))]
struct Ahead {
    /// IVs that it encrypts.
    ivs: [[u8; 16]; BATCH],
    /// Their ciphertexts.
    encrypted: [[u8; 16]; BATCH],
    /// The encrypted tweaks of the units that the next chunk begins.
    begun: [[u8; 16]; 2],
}

/// The next chunk goes on in the same unit.
const CONTINUES: u8 = 0;
/// The next chunk begins a unit of one or several chunks.
const BEGINS_ONE: u8 = 1;
/// The next chunk is two units.
const BEGINS_TWO: u8 = 2;

/// En- or decrypts units of any size from 16 on.
#[target_feature(enable = "aes,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,vaes,vpclmulqdq")]
pub(super) fn xts(keys: &XtsKeys, direction: Direction, units: &Units<'_>, io: InOut<'_>) {
    match direction {
        Direction::Encrypt => run::<false>(keys, units, io),
        Direction::Decrypt => run::<true>(keys, units, io),
    }
}

#[target_feature(enable = "aes,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,vaes,vpclmulqdq")]
fn run<const DECRYPT: bool>(keys: &XtsKeys, units: &Units<'_>, mut io: InOut<'_>) {
    let all = io.len() / units.size;
    if units.size.is_multiple_of(CHUNK) {
        chunks::<DECRYPT, BEGINS_ONE>(keys, units, io);
    } else if units.size == CHUNK / 2 && all >= 2 {
        let pairs = io.len() / CHUNK * CHUNK;
        chunks::<DECRYPT, BEGINS_TWO>(keys, units, io.part(0, pairs));
        if pairs != io.len() {
            let mut tweak = [[0; 16]];
            units.fill(all - 1, &mut tweak);
            modes::encrypt_tweaks(Vaes512::new(), &keys.tweak, &mut tweak);
            let rest = io.part(pairs, CHUNK / 2);
            modes::xts_unit::<_, DECRYPT>(Vaes512::new(), &keys.data, tweak[0], rest);
        }
    } else {
        modes::xts::<_, DECRYPT>(Vaes512::new(), keys, units, io);
    }
}

/// En- or decrypts whole chunks, each of which is part of a unit, or two units.
#[target_feature(enable = "aes,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,vaes,vpclmulqdq")]
fn chunks<const DECRYPT: bool, const BEGINS: u8>(keys: &XtsKeys, units: &Units<'_>, mut io: InOut<'_>) {
    let chunks = io.len() / CHUNK;
    let chunks_each = units.size.div_ceil(CHUNK);
    let units_each = CHUNK.div_ceil(units.size);
    let all = io.len() / units.size;
    let streaming =
        io.len() >= STREAMING_FROM && !io.is_in_place() && (io.dst(0, CHUNK) as usize).is_multiple_of(64);

    let mut both = [Tweaks([_mm512_setzero_si512(); 16]), Tweaks([_mm512_setzero_si512(); 16])];
    let [mut now, mut next] = both.each_mut();
    let mut ahead = Ahead { ivs: [[0; 16]; BATCH], encrypted: [[0; 16]; BATCH], begun: [[0; 16]; 2] };
    // The encrypted tweaks of units up to `made`, of which those before `begun` were used.
    let mut ring = [[[0; 16]; BATCH]; 2];
    units.fill(0, &mut ring[0][..BATCH.min(all)]);
    modes::encrypt_tweaks(Vaes512::new(), &keys.tweak, &mut ring[0]);
    let (mut made, mut begun) = (BATCH, units_each);
    units.fill(made.min(all), &mut ahead.ivs[..BATCH.min(all.saturating_sub(made))]);
    let constants = &constants::<DECRYPT>(keys, streaming);
    tweaks::<BEGINS>(&[ring[0][0], ring[0][1]], constants, now);
    let mut left = chunks_each;
    for chunk in 0..chunks {
        left -= 1;
        let (src, dst) = (io.src(chunk * CHUNK, CHUNK), io.dst(chunk * CHUNK, CHUNK));
        if left != 0 || chunk + 1 == chunks {
            // SAFETY: both are CHUNK bytes inside the buffers; `streaming` implies that `dst` is a multiple of 64,
            // because the first chunk's is.
            unsafe { crypt::<DECRYPT, CONTINUES, false>(keys, src, dst, constants, now, next, &mut ahead) };
        } else {
            left = chunks_each;
            let tweaks = ring.as_flattened();
            ahead.begun = [tweaks[begun % tweaks.len()], tweaks[(begun + 1) % tweaks.len()]];
            begun += units_each;
            if made < all && made - begun < units_each {
                // SAFETY: as above.
                unsafe { crypt::<DECRYPT, BEGINS, true>(keys, src, dst, constants, now, next, &mut ahead) };
                ring[made / BATCH % 2] = ahead.encrypted;
                made += BATCH;
                // Long before they are read: a load of bytes that several stores wrote waits for all of them.
                units.fill(made.min(all), &mut ahead.ivs[..BATCH.min(all.saturating_sub(made))]);
            } else {
                // SAFETY: as above.
                unsafe { crypt::<DECRYPT, BEGINS, false>(keys, src, dst, constants, now, next, &mut ahead) };
            }
        }
        (now, next) = (next, now);
    }
    if streaming {
        // Streaming stores become visible in order with what the caller does next.
        _mm_sfence();
    }
}

/// En- or decrypts one chunk with the tweaks `now`, and makes those of the next one between its rounds.
///
/// Not inlined: with the loop around it in sight the compiler keeps all round keys in registers, of which there
/// are not enough, and moves the making of tweaks to one place.
///
/// # Safety
/// CHUNK bytes are readable at `src` and writable at `dst`, which is a multiple of 64 if `constants.streaming` is true.
#[inline(never)]
#[target_feature(enable = "aes,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,vaes,vpclmulqdq")]
unsafe fn crypt<const DECRYPT: bool, const NEXT: u8, const ENCRYPTS_IVS: bool>(
    keys: &XtsKeys,
    src: *const u8,
    dst: *mut u8,
    constants: &Constants,
    now: &Tweaks,
    next: &mut Tweaks,
    ahead: &mut Ahead,
) {
    let round_keys = if DECRYPT { &keys.data.dec } else { &keys.data.enc };
    let rounds = keys.data.rounds;
    let key = |i: usize| load_key(&round_keys[i]);
    if !constants.streaming && !std::ptr::eq(src, dst) {
        for i in 0..16 {
            prefetch_to_write(dst.wrapping_add(TARGET_AHEAD + 64 * i));
        }
    }
    let first = constants.first;
    let mut x = now.0;
    for (i, x) in x.iter_mut().enumerate() {
        // SAFETY: the caller vouches for CHUNK readable bytes, which are 16 vectors.
        let data = unsafe { _mm512_loadu_si512(src.add(64 * i).cast()) };
        *x = _mm512_ternarylogic_epi64::<0x96>(data, first, *x);
    }
    let tweak_key = |i: usize| load_key(&keys.tweak.enc[i]);
    let mut ivs = _mm512_setzero_si512();
    if ENCRYPTS_IVS {
        // SAFETY: the IVs are 64 readable bytes.
        ivs = _mm512_xor_si512(unsafe { _mm512_loadu_si512(ahead.ivs.as_ptr().cast()) }, tweak_key(0));
    }
    macro_rules! round {
        ($i:literal) => {
            let key = key($i);
            for x in &mut x {
                *x = if DECRYPT { _mm512_aesdec_epi128(*x, key) } else { _mm512_aesenc_epi128(*x, key) };
            }
            if ENCRYPTS_IVS {
                ivs = _mm512_aesenc_epi128(ivs, tweak_key($i));
            }
            if $i <= 8 {
                step::<NEXT, $i>(&ahead.begun, constants, forget(now), next);
                for line in [128 * ($i - 1), 128 * ($i - 1) + 64] {
                    _mm_prefetch::<_MM_HINT_T0>(src.wrapping_add(SOURCE_AHEAD + line).cast());
                }
            }
        };
    }
    round!(1);
    round!(2);
    round!(3);
    round!(4);
    round!(5);
    round!(6);
    round!(7);
    round!(8);
    round!(9);
    if rounds > 10 {
        round!(10);
        round!(11);
        if rounds > 12 {
            round!(12);
            round!(13);
        }
    }
    if ENCRYPTS_IVS {
        let out = _mm512_aesenclast_epi128(ivs, tweak_key(rounds));
        // SAFETY: the encrypted tweaks are 64 writable bytes.
        unsafe { _mm512_storeu_si512(ahead.encrypted.as_mut_ptr().cast(), out) };
    }
    for (i, (x, tweak)) in x.into_iter().zip(&forget(now).0).enumerate() {
        let out =
            if DECRYPT { _mm512_aesdeclast_epi128(x, *tweak) } else { _mm512_aesenclast_epi128(x, *tweak) };
        // SAFETY: the caller vouches for CHUNK writable bytes, and for their alignment where it matters.
        unsafe {
            if constants.streaming {
                _mm512_stream_si512(dst.add(64 * i).cast(), out);
            } else {
                _mm512_storeu_si512(dst.add(64 * i).cast(), out);
            }
        }
    }
}

/// Returns the tweaks, of which the compiler no longer knows that it has read them: otherwise it keeps them in
/// registers, and spills them, rather than to read them again.
#[inline(always)]
fn forget(tweaks: &Tweaks) -> &Tweaks {
    let mut address: *const Tweaks = tweaks;
    // SAFETY: no instruction at all; the address stays what it was, so it may be used as the reference it came from.
    unsafe {
        asm!("/* {0} */", inout(reg) address, options(pure, readonly, nostack, preserves_flags));
        &*address
    }
}

/// Asks for a cache line that is about to be written.
#[inline(always)]
fn prefetch_to_write(line: *const u8) {
    // SAFETY: the instruction never faults and changes nothing that can be seen; every CPU with AVX-512 has it.
    // The intrinsic would become a prefetch for reading, because the target has no feature for this one.
    unsafe { asm!("prefetchw [{0}]", in(reg) line, options(nostack, preserves_flags, readonly)) }
}

/// The constants of one direction of a key.
#[target_feature(enable = "aes,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,vaes,vpclmulqdq")]
fn constants<const DECRYPT: bool>(keys: &XtsKeys, streaming: bool) -> Constants {
    let round_keys = if DECRYPT { &keys.data.dec } else { &keys.data.enc };
    let last = load_key(&round_keys[keys.data.rounds]);
    Constants {
        first: _mm512_xor_si512(load_key(&round_keys[0]), last),
        last,
        by_x4: times_x4(last, last),
        by_x8: times_bytes::<1, 15>(last, last),
        by_x16: times_bytes::<2, 14>(last, last),
        by_x24: times_bytes::<3, 13>(last, last),
        by_x32: times_bytes::<4, 12>(last, last),
        by_x64: times_x64(last, last),
        streaming,
    }
}

/// All tweaks of a chunk that begins a unit or two.
#[target_feature(enable = "aes,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,vaes,vpclmulqdq")]
fn tweaks<const BEGINS: u8>(begun: &[[u8; 16]; 2], constants: &Constants, next: &mut Tweaks) {
    let now = Tweaks([_mm512_setzero_si512(); 16]);
    step::<BEGINS, 1>(begun, constants, &now, next);
    step::<BEGINS, 2>(begun, constants, &now, next);
    step::<BEGINS, 3>(begun, constants, &now, next);
    step::<BEGINS, 4>(begun, constants, &now, next);
    step::<BEGINS, 5>(begun, constants, &now, next);
    step::<BEGINS, 6>(begun, constants, &now, next);
    step::<BEGINS, 7>(begun, constants, &now, next);
    step::<BEGINS, 8>(begun, constants, &now, next);
}

/// Makes the tweaks of the next chunk that belong to round `ROUND`; rounds 1 to 8 in turn make all 16.
#[inline]
#[target_feature(enable = "aes,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,vaes,vpclmulqdq")]
fn step<const NEXT: u8, const ROUND: usize>(
    begun: &[[u8; 16]; 2],
    constants: &Constants,
    now: &Tweaks,
    next: &mut Tweaks,
) {
    let (now, next) = (&now.0, &mut next.0);
    let first = |tweak| _mm512_xor_si512(Vaes512::new().first_tweaks(tweak), constants.last);
    match (NEXT, ROUND) {
        (CONTINUES, 1..=8) => {
            let i = 2 * (ROUND - 1);
            next[i] = times_x64(now[i], constants.by_x64);
            next[i + 1] = times_x64(now[i + 1], constants.by_x64);
        }
        (BEGINS_ONE, 1) => next[0] = first(begun[0]),
        (BEGINS_TWO, 1) => {
            next[0] = first(begun[0]);
            next[8] = first(begun[1]);
        }
        (BEGINS_ONE, 2) => next[1] = times_x4(next[0], constants.by_x4),
        (BEGINS_TWO, 2) => {
            next[1] = times_x4(next[0], constants.by_x4);
            next[9] = times_x4(next[8], constants.by_x4);
        }
        (BEGINS_ONE | BEGINS_TWO, 3) => pair::<1, 15>(next, 0, 2, constants.by_x8),
        (BEGINS_ONE | BEGINS_TWO, 4) => pair::<2, 14>(next, 0, 4, constants.by_x16),
        (BEGINS_ONE | BEGINS_TWO, 5) => pair::<3, 13>(next, 0, 6, constants.by_x24),
        (BEGINS_ONE, 6) => {
            pair::<4, 12>(next, 0, 8, constants.by_x32);
            next[10] = times_bytes::<4, 12>(next[2], constants.by_x32);
        }
        (BEGINS_ONE, 7) => {
            next[11] = times_bytes::<4, 12>(next[3], constants.by_x32);
            pair::<4, 12>(next, 4, 12, constants.by_x32);
        }
        (BEGINS_ONE, 8) => pair::<4, 12>(next, 6, 14, constants.by_x32),
        (BEGINS_TWO, 6) => pair::<1, 15>(next, 8, 10, constants.by_x8),
        (BEGINS_TWO, 7) => pair::<2, 14>(next, 8, 12, constants.by_x16),
        (BEGINS_TWO, 8) => pair::<3, 13>(next, 8, 14, constants.by_x24),
        _ => {}
    }
}

/// Makes two neighbouring tweaks at `to` out of those at `from`, times x^(8 BYTES).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
fn pair<const BYTES: i32, const REST: i32>(w: &mut [__m512i; 16], from: usize, to: usize, constant: __m512i) {
    w[to] = times_bytes::<BYTES, REST>(w[from], constant);
    w[to + 1] = times_bytes::<BYTES, REST>(w[from + 1], constant);
}

/// Each lane times x^4, plus a constant.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vpclmulqdq")]
fn times_x4(z: __m512i, constant: __m512i) -> __m512i {
    let left = _mm512_shldi_epi64::<4>(z, _mm512_bslli_epi128::<8>(z));
    let out = _mm512_clmulepi64_epi128::<0x01>(_mm512_srli_epi64::<60>(z), _mm512_set1_epi64(0x87));
    _mm512_ternarylogic_epi64::<0x96>(left, out, constant)
}

/// Each lane times x^(8 BYTES), for BYTES below 8 and REST = 16 - BYTES, plus a constant.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
fn times_bytes<const BYTES: i32, const REST: i32>(z: __m512i, constant: __m512i) -> __m512i {
    let out = _mm512_clmulepi64_epi128::<0x00>(_mm512_bsrli_epi128::<REST>(z), _mm512_set1_epi64(0x87));
    _mm512_ternarylogic_epi64::<0x96>(_mm512_bslli_epi128::<BYTES>(z), out, constant)
}

/// Each lane times x^64, plus a constant.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn times_x64(z: __m512i, constant: __m512i) -> __m512i {
    let out = _mm512_clmulepi64_epi128::<0x01>(z, _mm512_set1_epi64(0x87));
    _mm512_ternarylogic_epi64::<0x96>(_mm512_unpacklo_epi64(_mm512_setzero_si512(), z), out, constant)
}

/// A round key in all four lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_key(key: &[u8; 16]) -> __m512i {
    // SAFETY: the key is 16 readable bytes.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(key.as_ptr().cast()) })
}
