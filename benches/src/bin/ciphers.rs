//! CBC, HCTR2 and Adiantum over data units, where XTS is not used: older mappings and file names.
//!
//! Peers exist for CBC only (OpenSSL, a call a unit); the wide ciphers run back end against back end.

use std::hint::black_box;

use casemate_benches::Race;
use casemate_primitives::adiantum::{Adiantum, Rounds};
use casemate_primitives::aes::{AesCbc, Units};
use casemate_primitives::hctr2::Hctr2;
use casemate_primitives::testing::Rng;
use casemate_primitives::{Cpu, Feature, WideUnits};
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;

/// What a worker holds at a time, well inside L2.
const LEN: usize = 256 * 1024;

fn main() {
    for unit in [512, 4096] {
        for encrypt in [true, false] {
            cbc(unit, encrypt);
        }
        wide(unit);
    }
}

fn cbc(unit: usize, encrypt: bool) {
    let key = Rng::new(1).bytes(32);
    let src = Rng::new(2).bytes(LEN);
    let title =
        format!("AES-256-CBC, {} of {unit} bytes", if encrypt { "encryptions" } else { "decryptions" });
    let mut race = Race::new(title, LEN).items(LEN / unit).rounds(11);
    let units = Units::counted(unit, 0, 1);
    let mut expected: Option<Vec<u8>> = None;
    for cbc in AesCbc::available(Cpu::detect(), &key).expect("a key of 32 bytes") {
        let mut data = src.clone();
        let run = move |data: &mut [u8]| {
            if encrypt { cbc.encrypt(&units, data) } else { cbc.decrypt(&units, data) }.expect("whole units");
            cbc.name()
        };
        let name = run(&mut data);
        assert!(expected.get_or_insert_with(|| data.clone()) == &data, "{name}: wrong output");
        race.add(format!("casemate {name}"), move || {
            run(black_box(&mut data));
        });
    }
    let mut context = CipherCtx::new().expect("a context");
    let cipher = Some(Cipher::aes_256_cbc());
    if encrypt {
        context.encrypt_init(cipher, Some(&key), None)
    } else {
        context.decrypt_init(cipher, Some(&key), None)
    }
    .expect("a key of 32 bytes");
    context.set_padding(false);
    // The binding wants room for one more block than is ever written without padding.
    let mut roomy = vec![0; unit + 16];
    let mut run = move |out: &mut [u8]| {
        for (k, (src, out)) in src.chunks_exact(unit).zip(out.chunks_exact_mut(unit)).enumerate() {
            let iv = (k as u128).to_le_bytes();
            if encrypt {
                context.encrypt_init(None, None, Some(&iv))
            } else {
                context.decrypt_init(None, None, Some(&iv))
            }
            .expect("an IV of 16 bytes");
            let written = context.cipher_update(src, Some(&mut roomy)).expect("a unit");
            out.copy_from_slice(&roomy[..written]);
        }
    };
    let mut out = vec![0; LEN];
    run(&mut out);
    assert!(Some(&out) == expected.as_ref(), "openssl: wrong output");
    race.add(format!("{} EVP, a call a unit", openssl::version::version()), move || run(black_box(&mut out)));
    race.run();
}

fn wide(unit: usize) {
    let key = Rng::new(1).bytes(32);
    let units = WideUnits::counted(unit, 0, 1);
    let mut race =
        Race::new(format!("wide ciphers, encryptions of {unit} bytes"), LEN).items(LEN / unit).rounds(11);
    let cpus = [Cpu::detect(), Cpu::detect().without(Feature::Avx512), Cpu::portable()];
    for cpu in cpus {
        let hctr2 = Hctr2::new(cpu, &key).expect("a key of 32 bytes");
        let mut data = Rng::new(2).bytes(LEN);
        race.add(format!("hctr2 {}", hctr2.name()), move || {
            hctr2.encrypt_units(&units, black_box(&mut data)).expect("whole units");
        });
    }
    for (rounds, cpu) in [(Rounds::Twelve, cpus[0]), (Rounds::Twelve, cpus[2]), (Rounds::Twenty, cpus[0])] {
        let adiantum = Adiantum::new(cpu, rounds, &key).expect("a key of 32 bytes");
        let mut data = Rng::new(2).bytes(LEN);
        race.add(format!("{adiantum:?}"), move || {
            adiantum.encrypt_units(&units, black_box(&mut data)).expect("whole units");
        });
    }
    race.run();
}
