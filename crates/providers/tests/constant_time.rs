//! Keys from passphrases and tags of messages take no branch and no address from a secret: valgrind watches, as in the
//! primitives' test of this name. Argon2id is the exception by design, in the second half of its first pass and in all later
//! ones.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use casemate_primitives::Cpu;
use casemate_primitives::secret::constant_time_eq;
use casemate_primitives::testing::{Rng, conceal, reveal};
use casemate_providers::{Argon2, Argon2Variant, Hash, Hkdf, Hmac, KdfLimits, pbkdf2};
use casemate_testkit::valgrind::{finds_nothing, is_watched};

/// Hashes with code of our own, in its portable form.
const HASHES: [&str; 2] = ["sha256", "sha512"];

#[test]
fn tags_do_not_depend_on_secrets() {
    if !is_watched() {
        assert_ne!(finds_nothing("tags_do_not_depend_on_secrets"), Some(false));
        return;
    }
    let mut rng = Rng::new(1);
    for hash in HASHES.map(|name| Hash::named(name, Cpu::portable()).unwrap()) {
        // A key that is longer than a block is hashed first.
        for key_len in [20, 64, 200] {
            let (key, message) = (rng.bytes(key_len), rng.bytes(300));
            [&key, &message].into_iter().for_each(|bytes| conceal(bytes));
            let tag = Hmac::new(hash.clone(), &key).tag(&message);
            let expected = tag.clone();
            let answer = [u8::from(constant_time_eq(tag.expose(), expected.expose()))];
            let derived = Hkdf::new(hash.clone(), &[], &key).expand(b"info", 100);
            [&key, &message, &answer[..], tag.expose(), expected.expose(), derived.expose()]
                .into_iter()
                .for_each(reveal);
            // Read again: a copy in a register is still secret to valgrind.
            assert_eq!(*std::hint::black_box(&answer), [1]);
        }
    }
}

#[test]
fn pbkdf2_does_not_depend_on_the_passphrase() {
    if !is_watched() {
        assert_ne!(finds_nothing("pbkdf2_does_not_depend_on_the_passphrase"), Some(false));
        return;
    }
    for hash in HASHES.map(|name| Hash::named(name, Cpu::portable()).unwrap()) {
        let passphrase = Rng::new(2).bytes(21);
        conceal(&passphrase);
        let key = pbkdf2(hash, &passphrase, b"salt", 50, 80, &KdfLimits::default()).unwrap();
        reveal(&passphrase);
        reveal(key.expose());
    }
}

/// Derives a key from a secret passphrase, in two passes over 64 KiB.
fn argon2(variant: Argon2Variant) {
    let passphrase = Rng::new(3).bytes(21);
    conceal(&passphrase);
    let argon2 = Argon2 { variant, passes: 2, memory: 64, lanes: 1 };
    let key = argon2.derive(&passphrase, b"salt of 16 bytes", 64, &KdfLimits::default()).unwrap();
    reveal(&passphrase);
    reveal(key.expose());
}

#[test]
fn argon2i_does_not_depend_on_the_passphrase() {
    match is_watched() {
        true => argon2(Argon2Variant::I),
        false => assert_ne!(finds_nothing("argon2i_does_not_depend_on_the_passphrase"), Some(false)),
    }
}

/// Argon2id is not claimed to be more than it is: which blocks it reads depends on the passphrase.
#[test]
fn argon2id_reads_where_the_passphrase_says() {
    match is_watched() {
        true => argon2(Argon2Variant::Id),
        false => assert_ne!(finds_nothing("argon2id_reads_where_the_passphrase_says"), Some(true)),
    }
}
