//! AES-256-XTS over data units, beside what encrypts sectors today.
//!
//! `xts [peers|backends|single|memory|threshold]`: 256 KiB of units against other libraries, back end against back
//! end, one unit in a call, and buffers larger than the caches. Without an argument: `peers`.

use std::hint::black_box;

use casemate_benches::Race;
use casemate_benches::peers::{AwsLc, OpenSsl};
use casemate_primitives::Cpu;
use casemate_primitives::aes::{AesXts, Units};
use casemate_primitives::testing::Rng;
use openssl::cipher::Cipher;

/// What a worker holds at a time, well inside L2.
const CACHED: usize = 256 * 1024;

/// A buffer that no cache holds.
const LARGE: usize = 64 << 20;

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_else(|| "peers".into());
    let both = [(512, true), (512, false), (4096, true), (4096, false)];
    match mode.as_str() {
        "peers" => both.into_iter().for_each(|(unit, encrypt)| peers(unit, encrypt, CACHED)),
        "single" => both.into_iter().for_each(|(unit, encrypt)| peers(unit, encrypt, unit)),
        "backends" => [16, 512, 520, 1024, 1536, 4096].into_iter().for_each(backends),
        "memory" => [512, 4096].into_iter().for_each(|unit| memory(unit, LARGE)),
        "threshold" => (18..=26).for_each(|bits| memory(4096, 1 << bits)),
        other => panic!("{other} is none of peers, single, backends, memory, threshold"),
    }
}

fn peers(unit: usize, encrypt: bool, len: usize) {
    let key = Rng::new(1).bytes(64);
    let mut data = Rng::new(2).bytes(len);
    let expected = {
        let mut out = data.clone();
        let xts = AesXts::new(Cpu::portable(), &key).expect("a key of 64 bytes");
        run(&xts, encrypt, unit, &mut out);
        out
    };
    let check = |name: &str, out: &[u8]| assert!(out == expected, "{name}: wrong output");
    let title =
        format!("{} {} of {unit} bytes", len / unit, if encrypt { "encryptions" } else { "decryptions" });
    let mut race = Race::new(title, len).items(len / unit);

    let xts = AesXts::new(Cpu::detect(), &key).expect("a key of 64 bytes");
    let mut own = data.clone();
    run(&xts, encrypt, unit, &mut own);
    check(xts.name(), &own);
    race.add(format!("casemate {}, one call", xts.name()), move || {
        run(&xts, encrypt, unit, black_box(&mut own))
    });
    if len != unit {
        let xts = AesXts::new(Cpu::detect(), &key).expect("a key of 64 bytes");
        let mut own = data.clone();
        race.add(format!("casemate {}, a call a unit", xts.name()), move || {
            for (k, unit_data) in black_box(&mut own).chunks_exact_mut(unit).enumerate() {
                let units = Units::counted(unit, k as u128, 1);
                if encrypt { xts.encrypt(&units, unit_data) } else { xts.decrypt(&units, unit_data) }
                    .expect("whole units");
            }
        });
    }

    let mut aws = AwsLc::new(aws_lc_sys::EVP_aes_256_xts, &key, encrypt);
    let (src, mut out) = (data.clone(), vec![0; len]);
    aws.run(unit, &src, &mut out);
    check("aws-lc", &out);
    race.add("aws-lc EVP, a call a unit", move || aws.run(unit, black_box(&src), black_box(&mut out)));

    let mut ssl = OpenSsl::new(Cipher::aes_256_xts(), &key, encrypt);
    let (src, mut out) = (data.clone(), vec![0; len]);
    ssl.run(unit, &src, &mut out);
    check("openssl", &out);
    let name = format!("{} EVP, a call a unit", openssl::version::version());
    race.add(name, move || ssl.run(unit, black_box(&src), black_box(&mut out)));

    let rust_crypto = xts_mode::Xts128::<aes::Aes256>::new(cipher(&key[..32]), cipher(&key[32..]));
    rust_crypto_run(&rust_crypto, encrypt, unit, &mut data);
    check("xts-mode", &data);
    race.add("RustCrypto xts-mode + aes", move || {
        rust_crypto_run(&rust_crypto, encrypt, unit, black_box(&mut data));
    });
    race.run();
}

fn run(xts: &AesXts, encrypt: bool, unit: usize, data: &mut [u8]) {
    let units = Units::counted(unit, 0, 1);
    if encrypt { xts.encrypt(&units, data) } else { xts.decrypt(&units, data) }.expect("whole units");
}

fn backends(unit: usize) {
    let key = Rng::new(1).bytes(64);
    let len = CACHED / unit * unit;
    for encrypt in [true, false] {
        let title = format!("{} of {unit} bytes", if encrypt { "encryptions" } else { "decryptions" });
        let mut race = Race::new(title, len).items(len / unit).rounds(11);
        for xts in AesXts::available(Cpu::detect(), &key).expect("a key of 64 bytes") {
            let mut data = Rng::new(2).bytes(len);
            race.add(xts.name(), move || run(&xts, encrypt, unit, black_box(&mut data)));
        }
        race.run();
    }
}

fn memory(unit: usize, len: usize) {
    let key = Rng::new(1).bytes(64);
    let xts = AesXts::new(Cpu::detect(), &key).expect("a key of 64 bytes");
    let src = Rng::new(2).bytes(len);
    let mut in_place = src.clone();
    let whole_lines = |buffer: &[u8]| buffer.as_ptr().align_offset(64);
    let (mut copied, mut out) = (vec![1; len + 64], vec![1; len + 64]);
    let (copied_at, out_at) = (whole_lines(&copied), whole_lines(&out));
    let mut race = Race::new(format!("{} KiB in units of {unit} bytes", len >> 10), len).rounds(15);
    race.add("memcpy", || black_box(&mut copied)[copied_at..][..len].copy_from_slice(black_box(&src)));
    race.add(format!("casemate {}, in place", xts.name()), || {
        run(&xts, true, unit, black_box(&mut in_place));
    });
    race.add(format!("casemate {}, out of place", xts.name()), || {
        let units = Units::counted(unit, 0, 1);
        xts.encrypt_to(&units, black_box(&src), &mut black_box(&mut out)[out_at..][..len])
            .expect("whole units");
    });
    race.run();
}

fn cipher(key: &[u8]) -> aes::Aes256 {
    aes::cipher::KeyInit::new_from_slice(key).expect("a key of 32 bytes")
}

fn rust_crypto_run(xts: &xts_mode::Xts128<aes::Aes256>, encrypt: bool, unit: usize, data: &mut [u8]) {
    for (k, unit) in data.chunks_exact_mut(unit).enumerate() {
        let tweak = (k as u128).to_le_bytes().into();
        if encrypt { xts.encrypt_sector(unit, tweak) } else { xts.decrypt_sector(unit, tweak) }
    }
}
