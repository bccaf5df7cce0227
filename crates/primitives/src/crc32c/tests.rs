//! The template that every back end passes, against an oracle that goes bit by bit.

use serde_json::Value;

use super::poly::{ORDER, POLY, multiply, power_of_x};
use super::*;
use crate::testing::{Guarded, Rng};

/// The definition: one bit after the other, the least significant of each byte first.
fn oracle(crc: u32, data: &[u8]) -> u32 {
    data.iter().fold(crc, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| times_x(crc)))
}

/// The register after so many zero bits.
fn oracle_shift(crc: u32, bits: u128) -> u32 {
    multiply(crc, power_of_x((bits % u128::from(ORDER)) as i64))
}

fn times_x(crc: u32) -> u32 {
    if crc & 1 == 1 { crc >> 1 ^ POLY } else { crc >> 1 }
}

/// Every back end of this CPU; prints which, so that a log shows what was exercised.
fn backends() -> Vec<Crc32c> {
    let all: Vec<Crc32c> = Crc32c::available(Cpu::detect()).collect();
    println!("crc32c back ends: {all:?}");
    all
}

fn flip_bits(data: &mut [u8], bits: impl IntoIterator<Item = u64>) {
    for bit in bits {
        data[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

#[test]
fn every_length_and_alignment_agrees_with_the_definition() {
    let data = Rng::new(1).bytes(4096 + 64);
    let mut wanted = [0; 4097];
    for seed in [0, !0, 0x1234_5678] {
        wanted[0] = seed;
        for len in 1..=4096 {
            wanted[len] = oracle(wanted[len - 1], &data[len - 1..len]);
        }
        for crc32c in backends() {
            for len in 0..=4096 {
                let got = crc32c.update(seed, &data[..len]);
                assert_eq!(got, wanted[len], "{} of {len} bytes, seed {seed:#x}", crc32c.name());
            }
        }
    }
    for crc32c in backends() {
        for start in 0..64 {
            for len in [1, 7, 15, 16, 63, 64, 65, 100, 255, 1000, 4000] {
                let part = &data[start..start + len];
                assert_eq!(crc32c.update(5, part), oracle(5, part), "{} {start}+{len}", crc32c.name());
            }
        }
    }
}

#[test]
fn nothing_outside_the_slice_is_touched() {
    for len in (0..300).chain([511, 512, 1023, 1024, 1025, 2047, 4095, 4096, 4097, 8191, 12_345]) {
        let bytes = Rng::new(len as u64).bytes(len);
        let wanted = oracle(!0, &bytes);
        for (place, guarded) in
            [("end", Guarded::copy_at_end(&bytes)), ("start", Guarded::copy_at_start(&bytes))]
        {
            for crc32c in backends_quietly() {
                let name = crc32c.name();
                assert_eq!(crc32c.update(!0, &guarded), wanted, "{name} of {len} bytes at the {place}");
                let unchanged = crc32c.splice(wanted, len as u64, 0, &guarded, &guarded);
                assert_eq!(unchanged, Ok(wanted), "{name} splice of {len} bytes at the {place}");
            }
        }
    }
}

fn backends_quietly() -> impl Iterator<Item = Crc32c> {
    Crc32c::available(Cpu::detect())
}

#[test]
fn long_data_splits_and_joins_anywhere() {
    let mut rng = Rng::new(2);
    let data = rng.bytes(1_200_000);
    let wanted = oracle(!0, &data);
    for crc32c in backends() {
        assert_eq!(crc32c.update(!0, &data), wanted, "{}", crc32c.name());
        for _ in 0..20 {
            let (a, b) = data.split_at(rng.below(data.len() as u64 + 1) as usize);
            let name = crc32c.name();
            let crc_a = crc32c.update(!0, a);
            assert_eq!(crc32c.update(crc_a, b), wanted, "{name} split at {}", a.len());
            let joined = crc32c.combine(crc_a, crc32c.update(0, b), b.len() as u64);
            assert_eq!(joined, wanted, "{name} joined at {}", a.len());
            let other_start = crc32c.combine(crc_a ^ 77, crc32c.update(77, b), b.len() as u64);
            assert_eq!(other_start, wanted, "{name} joined at {}, b from 77", a.len());
        }
        for chunk in [100_000, 65_536, 4096, 1_200_000] {
            let mut parts: Vec<(u32, u64)> =
                data.chunks(chunk).map(|part| (crc32c.update(0, part), part.len() as u64)).collect();
            parts[0].0 = crc32c.update(!0, &data[..chunk]);
            assert_eq!(crc32c.combine_many(&parts), wanted, "{} parts of {chunk}", crc32c.name());
        }
        assert_eq!(crc32c.combine_many(&[]), 0);
    }
}

#[test]
fn combine_shifts_by_any_length() {
    let mut rng = Rng::new(3);
    for crc32c in backends() {
        let mut check = |bytes: u64| {
            let crc = rng.next_u64() as u32;
            let wanted = oracle_shift(crc, 8 * u128::from(bytes)) ^ 99;
            assert_eq!(crc32c.combine(crc, 99, bytes), wanted, "{} {bytes} bytes", crc32c.name());
        };
        (0..70_000).step_by(7).for_each(&mut check);
        (0..300).for_each(&mut check);
        interesting_lengths().for_each(&mut check);
    }
}

/// Lengths around every place where a window or a fold begins, in bits and in bytes.
fn interesting_lengths() -> impl Iterator<Item = u64> {
    let powers = (0..64).map(|k| 1u64 << k);
    let orders = [ORDER, 2 * ORDER, 3 * ORDER, ORDER * ORDER, (1 << 62) + ORDER, 7 * ORDER + 1];
    let last = [u64::MAX, u64::MAX / 3, u64::MAX / 8];
    powers.chain(orders).chain(last).flat_map(|middle| middle.saturating_sub(70)..=middle.saturating_add(70))
}

#[test]
fn flip_range_agrees_with_computing_anew() {
    for crc32c in backends() {
        let mut rng = Rng::new(4);
        for round in 0..2000 {
            let len = 1 + rng.below(if round % 10 == 0 { 1 << 16 } else { 2000 });
            let mut data = rng.bytes(len as usize);
            let old = crc32c.update(!0, &data);
            let first = rng.below(8 * len + 1);
            let bits = if round % 3 == 0 {
                rng.below(2.min(8 * len - first) + 1)
            } else {
                rng.below(8 * len - first + 1)
            };
            flip_bits(&mut data, first..first + bits);
            let wanted = crc32c.update(!0, &data);
            let got = crc32c.flip_range(old, 8 * len, first, bits);
            assert_eq!(
                got,
                Ok(wanted),
                "{} round {round}: {bits} bits from {first} of {len} bytes",
                crc32c.name()
            );
        }
        // All of the largest bitmap, whose first exponent is 2^19 itself.
        let old = crc32c.update(7, &[0; 1 << 16]);
        let wanted = crc32c.update(7, &[0xff; 1 << 16]);
        assert_eq!(crc32c.flip_range(old, 1 << 19, 0, 1 << 19), Ok(wanted), "{}", crc32c.name());
    }
}

#[test]
fn toggle_agrees_with_computing_anew() {
    for crc32c in backends() {
        let mut rng = Rng::new(5);
        for round in 0..1000 {
            let len = 1 + rng.below(if round % 10 == 0 { 1 << 17 } else { 2000 });
            let mut data = rng.bytes(len as usize);
            let old = crc32c.update(!0, &data);
            let positions: Vec<u64> = (0..rng.below(40)).map(|_| rng.below(8 * len)).collect();
            flip_bits(&mut data, positions.iter().copied());
            let wanted = crc32c.update(!0, &data);
            let got = crc32c.toggle(old, 8 * len, &positions);
            assert_eq!(got, Ok(wanted), "{} round {round}: {positions:?} of {len} bytes", crc32c.name());
        }
    }
}

/// Of buffers that fit no memory: a run is a sum of single bits, and a single bit is a power of x.
#[test]
fn bits_of_huge_buffers_are_powers_of_x() {
    for crc32c in backends() {
        let name = crc32c.name();
        let mut rng = Rng::new(6);
        for total in interesting_lengths() {
            let one = rng.below(total.max(1));
            if one < total {
                let wanted = 9 ^ oracle_shift(power_of_x(32), u128::from(total - 1 - one));
                assert_eq!(crc32c.toggle(9, total, &[one]), Ok(wanted), "{name} bit {one} of {total}");
                assert_eq!(crc32c.flip_range(9, total, one, 1), Ok(wanted), "{name} bit {one} of {total}");
            }
            // Two runs that meet are the run of both.
            let first = rng.below(total);
            let middle = first + rng.below(total - first);
            let end = middle + rng.below(total - middle);
            let left = crc32c.flip_range(1, total, first, middle - first).unwrap();
            let both = crc32c.flip_range(left, total, middle, end - middle);
            let whole = crc32c.flip_range(1, total, first, end - first);
            assert_eq!(both, whole, "{name} {first}..{middle}..{end} of {total}");
            // A short run far from the end is a shifted run at the end.
            let bits = rng.below(total.min(64) + 1);
            let run = crc32c.flip_range(0, bits, 0, bits).unwrap();
            let wanted = oracle_shift(run, u128::from(total - bits));
            assert_eq!(crc32c.flip_range(0, total, 0, bits), Ok(wanted), "{name} {bits} bits of {total}");
            let positions: Vec<u64> = (0..bits).collect();
            assert_eq!(crc32c.toggle(0, total, &positions), Ok(wanted), "{name} {bits} bits of {total}");
        }
    }
}

#[test]
fn splice_and_patch_agree_with_computing_anew() {
    for crc32c in backends() {
        let mut rng = Rng::new(7);
        for round in 0..3000 {
            let len = rng.below(if round % 10 == 0 { 1 << 16 } else { 2000 }) as usize;
            let before = rng.bytes(len);
            let old = crc32c.update(!0, &before);
            let offset = rng.below(len as u64 + 1) as usize;
            let longest = if round % 4 == 0 { 70 } else { len };
            let bytes = rng.below(longest.min(len - offset) as u64 + 1) as usize;
            let mut data = before.clone();
            rng.fill(&mut data[offset..offset + bytes]);
            let (from, to) = (&before[offset..offset + bytes], &data[offset..offset + bytes]);
            let wanted = Ok(crc32c.update(!0, &data));
            let what = format!("{} round {round}: {bytes} bytes at {offset} of {len}", crc32c.name());
            let at = offset as u64;
            assert_eq!(crc32c.splice(old, len as u64, at, from, to), wanted, "{what}");
            assert_eq!(crc32c.patch(!0, old, &data, offset, from), wanted, "patch, {what}");
            let (from, to) = (crc32c.update(3, from), crc32c.update(3, to));
            assert_eq!(
                crc32c.splice_crcs(old, len as u64, at, bytes as u64, from, to),
                wanted,
                "crcs, {what}"
            );
        }
        for after in interesting_lengths().filter(|after| *after <= u64::MAX - 100) {
            let (from, to) = (rng.bytes(100), rng.bytes(100));
            let delta = oracle(0, &from) ^ oracle(0, &to);
            let wanted = Ok(1 ^ oracle_shift(delta, 8 * u128::from(after)));
            let what = format!("{} with {after} bytes after it", crc32c.name());
            assert_eq!(crc32c.splice(1, after + 100, 0, &from, &to), wanted, "{what}");
        }
    }
}

#[test]
fn every_length_of_a_splice() {
    let mut rng = Rng::new(8);
    let (from, to) = (rng.bytes(4096), rng.bytes(4096));
    for crc32c in backends() {
        for len in 0..=4096 {
            let wanted = crc32c.update(!0, &to[..len]);
            let old = crc32c.update(!0, &from[..len]);
            let got = crc32c.splice(old, len as u64, 0, &from[..len], &to[..len]);
            assert_eq!(got, Ok(wanted), "{} of {len} bytes", crc32c.name());
        }
    }
}

/// The file is made by Python's integers, see `vectors/crc32c.py`.
#[test]
fn every_back_end_reproduces_the_vectors() {
    let json: Value = serde_json::from_str(include_str!("../../../../vectors/crc32c.json")).unwrap();
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap());
    let cases = |kind: &str| json[kind].as_array().filter(|cases| cases.len() > 9).unwrap().iter();
    for crc32c in backends() {
        let name = crc32c.name();
        for case in cases("update") {
            let fill = |i: u64| (31 * i + ((i * i) >> 7)) as u8;
            let data: Vec<u8> = (0..number(&case["length"])).map(fill).collect();
            let got = crc32c.update(number(&case["seed"]) as u32, &data);
            assert_eq!(u64::from(got), case["crc"], "{name} {case}");
        }
        for case in cases("combine") {
            let crc = |key: &str| number(&case[key]) as u32;
            let got = crc32c.combine(crc("crc_a"), crc("crc_b"), number(&case["len_b"]));
            assert_eq!(got, crc("crc"), "{name} {case}");
        }
        for case in cases("flip") {
            let [total, first, bits, change] =
                ["total_bits", "first_bit", "bits", "change"].map(|key| number(&case[key]));
            assert_eq!(crc32c.flip_range(0, total, first, bits), Ok(change as u32), "{name} {case}");
        }
        for case in cases("toggle") {
            let positions: Vec<u64> = case["positions"].as_array().unwrap().iter().map(number).collect();
            let got = crc32c.toggle(0, number(&case["total_bits"]), &positions);
            assert_eq!(got, Ok(number(&case["change"]) as u32), "{name} {case}");
        }
        for case in cases("splice") {
            let bytes = |key: &str| -> Vec<u8> {
                let (pairs, _) = case[key].as_str().unwrap().as_bytes().as_chunks::<2>();
                let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
                pairs.iter().map(byte).collect()
            };
            let (old, new, after) = (bytes("old"), bytes("new"), number(&case["after"]));
            let got = crc32c.splice(0, old.len() as u64 + after, 0, &old, &new);
            assert_eq!(got, Ok(number(&case["change"]) as u32), "{name} {case}");
        }
    }
}

#[test]
fn ranges_outside_are_errors() {
    let crc32c = Crc32c::new(Cpu::detect());
    let bits = |first, count, total| Err(RangeError::Bits { first, count, total });
    let bytes = |first, count, total| Err(RangeError::Bytes { first, count, total });
    assert_eq!(crc32c.flip_range(1, 8, 0, 9), bits(0, 9, 8));
    assert_eq!(crc32c.flip_range(1, 8, 9, 0), bits(9, 0, 8));
    assert_eq!(crc32c.flip_range(1, 8, 8, 0), Ok(1));
    assert_eq!(crc32c.flip_range(1, 0, 0, 0), Ok(1));
    assert_eq!(crc32c.flip_range(1, u64::MAX, u64::MAX, 1), bits(u64::MAX, 1, u64::MAX));
    assert_eq!(crc32c.flip_range(1, u64::MAX, 2, u64::MAX), bits(2, u64::MAX, u64::MAX));
    assert_eq!(crc32c.toggle(1, 8, &[0, 8]), bits(8, 1, 8));
    assert_eq!(crc32c.toggle(1, 0, &[0]), bits(0, 1, 0));
    assert_eq!(crc32c.toggle(1, 0, &[]), Ok(1));
    assert_eq!(crc32c.toggle(1, 8, &[3, 3]), Ok(1));
    assert_eq!(crc32c.splice(1, 8, 7, &[0; 2], &[0; 2]), bytes(7, 2, 8));
    assert_eq!(crc32c.splice(1, 8, u64::MAX, &[0; 2], &[0; 2]), bytes(u64::MAX, 2, 8));
    assert_eq!(crc32c.splice(1, 8, 0, &[0; 2], &[0; 3]), Err(RangeError::Lengths { old: 2, new: 3 }));
    assert_eq!(crc32c.splice_crcs(1, 8, 8, 1, 2, 3), bytes(8, 1, 8));
    assert_eq!(crc32c.splice_crcs(1, 8, 8, 0, 2, 2), Ok(1));
    assert_eq!(crc32c.patch(1, 1, &[0; 8], 7, &[0; 2]), bytes(7, 2, 8));
    assert_eq!(crc32c.patch(1, 1, &[0; 8], usize::MAX, &[0; 2]), bytes(usize::MAX as u64, 2, 8));
    let error = RangeError::Bits { first: 0, count: 9, total: 8 };
    assert_eq!(error.to_string(), "9 bits from bit 0 reach beyond a buffer of 8 bits");
}
