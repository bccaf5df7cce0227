//! CBC, CTR, HCTR2 and Adiantum over data units, where XTS is not used: older mappings and file names.
//!
//! Peers exist for CBC and CTR (OpenSSL and AWS-LC, a call a unit); the wide ciphers run back end against back end.

use std::hint::black_box;

use casemate_benches::Race;
use casemate_benches::peers::{AwsLc, AwsLcCipher, OpenSsl};
use casemate_primitives::adiantum::{Adiantum, Rounds};
use casemate_primitives::aes::{Aes, AesCbc, Units};
use casemate_primitives::hctr2::Hctr2;
use casemate_primitives::testing::Rng;
use casemate_primitives::{Cpu, Feature, WideUnits};
use openssl::cipher::{Cipher, CipherRef};

/// What a worker holds at a time, well inside L2.
const LEN: usize = 256 * 1024;

fn main() {
    for unit in [512, 4096] {
        for encrypt in [true, false] {
            cbc(unit, encrypt);
        }
        ctr(unit);
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
    let expected = expected.expect("a back end");
    let peers = (Cipher::aes_256_cbc(), aws_lc_sys::EVP_aes_256_cbc as AwsLcCipher);
    add_peers(&mut race, peers, &key, encrypt, unit, &src, &expected);
    race.run();
}

/// Counter mode is one call a unit here too, the start being the unit's number.
fn ctr(unit: usize) {
    let key = Rng::new(1).bytes(32);
    let src = Rng::new(2).bytes(LEN);
    let mut race =
        Race::new(format!("AES-256-CTR, {unit} bytes at a time"), LEN).items(LEN / unit).rounds(11);
    let mut expected: Option<Vec<u8>> = None;
    for aes in Aes::available(Cpu::detect(), &key).expect("a key of 32 bytes") {
        let mut data = src.clone();
        let run = move |data: &mut [u8]| {
            for (k, unit) in data.chunks_exact_mut(unit).enumerate() {
                aes.ctr(&(k as u128).to_le_bytes(), unit);
            }
            aes.name()
        };
        let name = run(&mut data);
        assert!(expected.get_or_insert_with(|| data.clone()) == &data, "{name}: wrong output");
        race.add(format!("casemate {name}"), move || {
            run(black_box(&mut data));
        });
    }
    let expected = expected.expect("a back end");
    let peers = (Cipher::aes_256_ctr(), aws_lc_sys::EVP_aes_256_ctr as AwsLcCipher);
    add_peers(&mut race, peers, &key, true, unit, &src, &expected);
    race.run();
}

fn add_peers(
    race: &mut Race<'_>,
    (openssl_cipher, aws_lc_cipher): (&CipherRef, AwsLcCipher),
    key: &[u8],
    encrypt: bool,
    unit: usize,
    src: &[u8],
    expected: &[u8],
) {
    let mut aws_lc = AwsLc::new(aws_lc_cipher, key, encrypt);
    let (from, mut out) = (src.to_vec(), vec![0; LEN]);
    aws_lc.run(unit, &from, &mut out);
    assert!(out == expected, "aws-lc: wrong output");
    race.add("aws-lc EVP, a call a unit", move || aws_lc.run(unit, black_box(&from), black_box(&mut out)));
    let mut ssl = OpenSsl::new(openssl_cipher, key, encrypt);
    let (from, mut out) = (src.to_vec(), vec![0; LEN]);
    ssl.run(unit, &from, &mut out);
    assert!(out == expected, "openssl: wrong output");
    let name = format!("{} EVP, a call a unit", openssl::version::version());
    race.add(name, move || ssl.run(unit, black_box(&from), black_box(&mut out)));
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
