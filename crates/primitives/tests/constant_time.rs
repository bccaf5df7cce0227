//! The portable ciphers take no branch and no address from a key or from data: valgrind watches.
//!
//! The method is Langley's (ctgrind): secrets are marked as undefined, and memcheck reports every jump and every address
//! that depends on undefined bits. A test runs itself again under valgrind.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use casemate_primitives::Cpu;
use casemate_primitives::aes::{Aes, AesCbc, AesXts, Units};
use casemate_primitives::hctr2::Hctr2;
use casemate_primitives::secret::constant_time_eq;
use casemate_primitives::testing::{Rng, conceal, reveal};
use casemate_testkit::valgrind::{finds_nothing, is_watched};

#[test]
fn portable_ciphers_do_not_depend_on_secrets() {
    if !is_watched() {
        assert_ne!(finds_nothing("portable_ciphers_do_not_depend_on_secrets"), Some(false));
        return;
    }
    let cpu = Cpu::portable();
    let mut rng = Rng::new(1);
    for half in [16, 24, 32] {
        let key = rng.bytes(2 * half);
        // 100 is not a multiple of a block: ciphertext stealing is among what is watched.
        let plain = rng.bytes(300);
        let mut data = plain.clone();
        conceal(&key);
        conceal(&data);
        let units = Units::counted(100, 5, 1);
        let xts = AesXts::new(cpu, &key).expect("a key of a right length");
        xts.encrypt(&units, &mut data).expect("whole units");
        xts.decrypt(&units, &mut data).expect("whole units");
        let cbc = AesCbc::new(cpu, &key[..half]).expect("a key of a right length");
        cbc.encrypt_cts(&units, &mut data).expect("whole units");
        cbc.decrypt_cts(&units, &mut data).expect("whole units");
        let blocks = Units::counted(48, 5, 1);
        cbc.encrypt(&blocks, &mut data[..288]).expect("whole units");
        cbc.decrypt(&blocks, &mut data[..288]).expect("whole units");
        let aes = Aes::new(cpu, &key[..half]).expect("a key of a right length");
        aes.ctr(&[1; 16], &mut data);
        aes.ctr(&[1; 16], &mut data);
        let hctr2 = Hctr2::new(cpu, &key[..half]).expect("a key of a right length");
        hctr2.encrypt(&[2; 32], &mut data).expect("more than a block");
        hctr2.decrypt(&[2; 32], &mut data).expect("more than a block");
        reveal(&key);
        reveal(&data);
        assert!(data == plain, "keys of {half} bytes");
    }
}

/// Comparisons of tags and of digests of keys: only their answer is public.
#[test]
fn comparisons_of_tags_do_not_depend_on_secrets() {
    if !is_watched() {
        assert_ne!(finds_nothing("comparisons_of_tags_do_not_depend_on_secrets"), Some(false));
        return;
    }
    for len in [0, 1, 8, 16, 20, 31, 32, 64, 4096] {
        let tag = Rng::new(4).bytes(len);
        for at in [None, Some(0), Some(len / 2), len.checked_sub(1)] {
            let mut other = tag.clone();
            if let Some(byte) = at.and_then(|at| other.get_mut(at)) {
                *byte ^= 1;
            }
            let expected = other == tag;
            [&tag, &other].into_iter().for_each(|bytes| conceal(bytes));
            let answer = [u8::from(constant_time_eq(&tag, &other))];
            [&tag[..], &other, &answer].into_iter().for_each(reveal);
            // Read again: a copy in a register is still secret to valgrind.
            let answer = *std::hint::black_box(&answer);
            assert_eq!(answer[0] == 1, expected, "{len} bytes, {at:?}");
        }
    }
}

/// A comparison that ends at the first byte that differs is noticed.
#[test]
fn an_early_end_is_noticed() {
    if !is_watched() {
        assert_ne!(finds_nothing("an_early_end_is_noticed"), Some(true));
        return;
    }
    let (tag, other) = (Rng::new(5).bytes(32), Rng::new(6).bytes(32));
    conceal(&tag);
    std::hint::black_box(tag.iter().zip(&other).position(|(tag, other)| tag != other));
    reveal(&tag);
}

/// The method itself: a table indexed by a secret must be found.
#[test]
fn a_secret_index_is_noticed() {
    if !is_watched() {
        assert_ne!(finds_nothing("a_secret_index_is_noticed"), Some(true));
        return;
    }
    let table = Rng::new(2).bytes(256);
    let secret = Rng::new(3).bytes(1);
    conceal(&secret);
    std::hint::black_box(std::hint::black_box(&table)[usize::from(secret[0])]);
}
