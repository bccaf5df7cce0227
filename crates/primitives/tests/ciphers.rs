//! The ciphers against published vectors (vectors/ciphers.json) and against what a kernel wrote through dm-crypt.

use casemate_primitives::adiantum::{Adiantum, Rounds};
use casemate_primitives::aes::{Aes, AesCbc, AesXts, Ivs, UnitError, Units};
use casemate_primitives::hctr2::Hctr2;
use casemate_primitives::polyval::Polyval;
use casemate_primitives::testing::Rng;
use casemate_primitives::{Cpu, Feature, WideUnits};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Everything a CPU can be narrowed to that changes the choice of a back end.
fn cpus() -> Vec<Cpu> {
    use Feature::*;
    let mut cpu = Cpu::detect();
    let mut cpus = vec![cpu];
    for feature in [Avx512, Vaes, Vpclmul, Avx2, AesNi, Pclmul, ArmAes, ArmPmull] {
        if cpu.has(feature) {
            cpu = cpu.without(feature);
            cpus.push(cpu);
        }
    }
    cpus.push(Cpu::portable());
    cpus
}

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../vectors/ciphers.json")).expect("the vector file is JSON")
}

/// Calls `check` with key, IV, plaintext and ciphertext of each vector in `list`.
fn each(list: &str, mut check: impl FnMut(&[u8], &[u8], &[u8], &[u8])) {
    let all = vectors();
    let rows = all[list].as_array().expect("a list of vectors");
    assert!(!rows.is_empty(), "{list}");
    for row in rows {
        let [key, iv, plain, cipher] = [0, 1, 2, 3].map(|i| hex(row[i].as_str().expect("hex text")));
        check(&key, &iv, &plain, &cipher);
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).expect("a hex digit") as u8;
    text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("a field of its proper length")
}

/// Checks that `encrypt` makes `cipher` of `plain` and that `decrypt` undoes it.
fn both_ways(
    context: &str,
    plain: &[u8],
    cipher: &[u8],
    encrypt: impl FnOnce(&mut [u8]) -> Result<(), UnitError>,
    decrypt: impl FnOnce(&mut [u8]) -> Result<(), UnitError>,
) {
    let mut data = plain.to_vec();
    assert_eq!(encrypt(&mut data), Ok(()), "{context}");
    assert!(data == cipher, "encryption of {} bytes, {context}", plain.len());
    assert_eq!(decrypt(&mut data), Ok(()), "{context}");
    assert!(data == plain, "decryption of {} bytes, {context}", plain.len());
}

#[test]
fn xts_vectors_of_nist_and_ieee_1619() {
    each("xts", |key, iv, plain, cipher| {
        let ivs = [array(iv)];
        let units = Units::listed(plain.len(), &ivs);
        for xts in AesXts::available(Cpu::detect(), key).expect("a key of a right length") {
            let (encrypt, decrypt) =
                (|d: &mut [u8]| xts.encrypt(&units, d), |d: &mut [u8]| xts.decrypt(&units, d));
            both_ways(xts.name(), plain, cipher, encrypt, decrypt);
        }
    });
}

#[test]
fn cbc_vectors_of_nist() {
    each("cbc", |key, iv, plain, cipher| {
        let ivs = [array(iv)];
        let units = Units::listed(plain.len(), &ivs);
        for cbc in AesCbc::available(Cpu::detect(), key).expect("a key of a right length") {
            let (encrypt, decrypt) =
                (|d: &mut [u8]| cbc.encrypt(&units, d), |d: &mut [u8]| cbc.decrypt(&units, d));
            both_ways(cbc.name(), plain, cipher, encrypt, decrypt);
        }
    });
}

#[test]
fn cts_vectors_of_rfc_3962() {
    each("cts", |key, iv, plain, cipher| {
        let ivs = [array(iv)];
        let units = Units::listed(plain.len(), &ivs);
        for cbc in AesCbc::available(Cpu::detect(), key).expect("a key of a right length") {
            let encrypt = |d: &mut [u8]| cbc.encrypt_cts(&units, d);
            both_ways(cbc.name(), plain, cipher, encrypt, |d| cbc.decrypt_cts(&units, d));
        }
    });
}

#[test]
fn counter_mode_vectors() {
    for (list, run) in [("ctr", Aes::ctr as fn(&Aes, &[u8; 16], &mut [u8])), ("xctr", Aes::xctr)] {
        each(list, |key, iv, plain, cipher| {
            for aes in Aes::available(Cpu::detect(), key).expect("a key of a right length") {
                let run = |data: &mut [u8]| {
                    run(&aes, &array(iv), data);
                    Ok(())
                };
                both_ways(&format!("{list} on {}", aes.name()), plain, cipher, run, run);
            }
        });
    }
}

#[test]
fn polyval_vectors() {
    each("polyval", |key, _, message, hash| {
        for polyval in Polyval::available(Cpu::detect(), &array(key)) {
            let mut state = [0; 16];
            polyval.absorb(&mut state, message.as_chunks().0);
            assert_eq!(state, array(hash), "{}", polyval.name());
        }
    });
}

#[test]
fn hctr2_vectors() {
    for cpu in cpus() {
        each("hctr2", |key, tweak, plain, cipher| {
            let (hctr2, tweak) = (Hctr2::new(cpu, key).expect("a key of a right length"), array(tweak));
            let encrypt = |d: &mut [u8]| hctr2.encrypt(&tweak, d);
            both_ways(&format!("{cpu:?}"), plain, cipher, encrypt, |d| hctr2.decrypt(&tweak, d));
        });
    }
}

#[test]
fn adiantum_vectors() {
    for (list, rounds) in [("adiantum12", Rounds::Twelve), ("adiantum20", Rounds::Twenty)] {
        for cpu in cpus() {
            each(list, |key, tweak, plain, cipher| {
                let adiantum = Adiantum::new(cpu, rounds, key).expect("a key of 32 bytes");
                let tweak = array(tweak);
                let encrypt = |d: &mut [u8]| adiantum.encrypt(&tweak, d);
                both_ways(&format!("{list}, {cpu:?}"), plain, cipher, encrypt, |d| {
                    adiantum.decrypt(&tweak, d)
                });
            });
        }
    }
}

/// A dm-crypt device of the vector file.
struct Device {
    name: String,
    ivs: String,
    key: Vec<u8>,
    first: u64,
    step: u64,
    sector: usize,
    plain: Vec<u8>,
    cipher_sha256: Vec<u8>,
}

impl Device {
    /// All devices in `mode`.
    fn all(mode: &str) -> Vec<Device> {
        let vectors = vectors();
        let rows = vectors["kernel"].as_array().expect("a list of devices");
        let devices: Vec<Device> = rows.iter().filter(|row| row["mode"] == mode).map(Device::read).collect();
        assert!(!devices.is_empty(), "{mode}");
        devices
    }

    fn read(row: &Value) -> Device {
        let text = |name: &str| row[name].as_str().expect("text").to_owned();
        let number = |name: &str| row[name].as_u64().expect("a number");
        let stream = |i| Sha256::digest(format!("{}:{i}", text("seed")));
        let plain: Vec<u8> = (0..number("size") / 32).flat_map(stream).collect();
        assert_eq!(Sha256::digest(&plain).as_slice(), hex(&text("plain_sha256")), "{}", text("name"));
        Device {
            name: text("name"),
            ivs: text("ivs"),
            key: hex(&text("key")),
            first: number("first"),
            step: number("step"),
            sector: number("sector") as usize,
            plain,
            cipher_sha256: hex(&text("cipher_sha256")),
        }
    }

    /// The IV numbers of all sectors.
    fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        (0..(self.plain.len() / self.sector) as u64).map(|k| self.first + k * self.step)
    }

    /// Checks what `run` makes of the plaintext against the kernel's ciphertext, and the way back.
    fn check(&self, context: &str, mut run: impl FnMut(bool, &mut [u8])) {
        let mut data = self.plain.clone();
        run(true, &mut data);
        let context = format!("{} with {context}", self.name);
        assert_eq!(Sha256::digest(&data).as_slice(), self.cipher_sha256, "encryption, {context}");
        run(false, &mut data);
        assert!(data == self.plain, "decryption, {context}");
    }

    /// The IVs as dm-crypt's documentation defines them, S being the sector's number.
    fn with_units(&self, cpu: Cpu, run: impl FnOnce(&Units<'_>)) {
        let (size, first, step) = (self.sector, u128::from(self.first), self.step);
        let list = match self.ivs.as_str() {
            "little" => return run(&Units::counted(size, first, step)),
            "big" => return run(&Units { size, ivs: Ivs::Big { first, step } }),
            "null" => return run(&Units::counted(size, 0, 0)),
            // S times 32 blocks, counted from 1.
            "benbi" => return run(&Units { size, ivs: Ivs::Big { first: 32 * first + 1, step: 32 * step } }),
            // S modulo 2^32.
            "wrapping" => self.numbers().map(|s| u128::from(s as u32).to_le_bytes()).collect(),
            // S encrypted under the key's hash; S times 512 encrypted under the key.
            "essiv" | "eboiv" => {
                let essiv = self.ivs == "essiv";
                let key = if essiv { Sha256::digest(&self.key).to_vec() } else { self.key.clone() };
                let scale = if essiv { 1 } else { 512 };
                let mut ivs: Vec<[u8; 16]> =
                    self.numbers().map(|s| u128::from(s * scale).to_le_bytes()).collect();
                Aes::new(cpu, &key).expect("a key of 32 bytes").encrypt_blocks(&mut ivs);
                ivs
            }
            other => unreachable!("IVs called {other}"),
        };
        run(&Units::listed(size, &list));
    }

    fn wide_units(&self) -> WideUnits {
        WideUnits::counted(self.sector, self.first, self.step)
    }
}

#[test]
fn xts_and_cbc_are_what_the_kernel_wrote() {
    let cpu = Cpu::detect();
    for device in Device::all("xts") {
        device.with_units(cpu, |units| {
            for xts in AesXts::available(cpu, &device.key).expect("a key of a right length") {
                device.check(xts.name(), |encrypt, data| {
                    if encrypt { xts.encrypt(units, data) } else { xts.decrypt(units, data) }
                        .expect("whole units");
                });
            }
        });
    }
    for device in Device::all("cbc") {
        device.with_units(cpu, |units| {
            for cbc in AesCbc::available(cpu, &device.key).expect("a key of a right length") {
                device.check(cbc.name(), |encrypt, data| {
                    if encrypt { cbc.encrypt(units, data) } else { cbc.decrypt(units, data) }
                        .expect("whole units");
                });
            }
        });
    }
}

#[test]
fn ctr_is_what_the_kernel_wrote() {
    for device in Device::all("ctr") {
        for aes in Aes::available(Cpu::detect(), &device.key).expect("a key of a right length") {
            device.check(aes.name(), |_, data| {
                for (sector, number) in data.chunks_mut(device.sector).zip(device.numbers()) {
                    aes.ctr(&u128::from(number).to_le_bytes(), sector);
                }
            });
        }
    }
}

#[test]
fn hctr2_and_adiantum_are_what_the_kernel_wrote() {
    for cpu in cpus() {
        for device in Device::all("hctr2") {
            let (hctr2, units) = (Hctr2::new(cpu, &device.key).expect("a key"), device.wide_units());
            device.check(&format!("{cpu:?}"), |encrypt, data| {
                if encrypt { hctr2.encrypt_units(&units, data) } else { hctr2.decrypt_units(&units, data) }
                    .expect("whole units");
            });
        }
        for device in Device::all("adiantum12") {
            let adiantum = Adiantum::new(cpu, Rounds::Twelve, &device.key).expect("a key of 32 bytes");
            let units = device.wide_units();
            device.check(&format!("{cpu:?}"), |encrypt, data| {
                if encrypt {
                    adiantum.encrypt_units(&units, data)
                } else {
                    adiantum.decrypt_units(&units, data)
                }
                .expect("whole units");
            });
        }
    }
}

#[test]
fn wide_ciphers_agree_across_cpus_at_every_length() {
    let mut rng = Rng::new(1);
    let (key, tweak) = (rng.bytes(32), array(&rng.bytes(32)));
    let ciphers: Vec<(Hctr2, Adiantum)> = cpus()
        .into_iter()
        .map(|cpu| {
            let adiantum = Adiantum::new(cpu, Rounds::Twenty, &key).expect("a key of 32 bytes");
            (Hctr2::new(cpu, &key).expect("a key of 32 bytes"), adiantum)
        })
        .collect();
    for len in (16..300).chain([1023, 1024, 1039, 1040, 1041, 2064, 4096, 4097]) {
        let plain = rng.bytes(len);
        let mut expected: Option<(Vec<u8>, Vec<u8>)> = None;
        for (hctr2, adiantum) in &ciphers {
            let (mut a, mut b) = (plain.clone(), plain.clone());
            hctr2.encrypt(&tweak, &mut a).expect("16 bytes or more");
            adiantum.encrypt(&tweak, &mut b).expect("16 bytes or more");
            let out = (a.clone(), b.clone());
            assert!(expected.get_or_insert(out.clone()) == &out, "{len} bytes, {hctr2:?} {adiantum:?}");
            hctr2.decrypt(&tweak, &mut a).expect("16 bytes or more");
            adiantum.decrypt(&tweak, &mut b).expect("16 bytes or more");
            assert!(a == plain && b == plain, "decryption of {len} bytes, {hctr2:?} {adiantum:?}");
        }
    }
}

#[test]
fn wide_ciphers_refuse_what_is_too_short() {
    let hctr2 = Hctr2::new(Cpu::detect(), &[1; 32]).expect("a key of 32 bytes");
    let adiantum = Adiantum::new(Cpu::detect(), Rounds::Twelve, &[1; 32]).expect("a key of 32 bytes");
    let mut data = [7; 48];
    for len in 0..16 {
        assert_eq!(hctr2.encrypt(&[0; 32], &mut data[..len]), Err(UnitError::Size(len)));
        assert_eq!(adiantum.decrypt(&[0; 32], &mut data[..len]), Err(UnitError::Size(len)));
    }
    let units = WideUnits::counted(32, 0, 1);
    assert_eq!(hctr2.encrypt_units(&units, &mut data), Err(UnitError::Length { len: 48, unit: 32 }));
    assert_eq!(adiantum.encrypt_units(&units, &mut []), Err(UnitError::Length { len: 0, unit: 32 }));
    assert_eq!(data, [7; 48]);
    assert!(Adiantum::new(Cpu::detect(), Rounds::Twelve, &[1; 31]).is_err());
    assert!(Hctr2::new(Cpu::detect(), &[1; 64]).is_err());
}
