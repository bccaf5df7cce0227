//! Images that real kernels wrote, read and written again.

use std::path::Path;

use casemate_crypt::{Params, SectorCipher, Table, plain_key};
use casemate_primitives::Cpu;
use casemate_providers::Providers;
use casemate_testkit::fixture;

/// SHA-256 of `SEED:0`, of `SEED:1`, ... joined.
fn stream(seed: &str, len: usize) -> Vec<u8> {
    let hash = Providers::default().hash("sha256").unwrap();
    (0..len.div_ceil(32)).flat_map(|i| hash.digest(format!("{seed}:{i}").as_bytes())).take(len).collect()
}

#[test]
fn kernels_images_are_read_and_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let manifest: serde_json::Value = serde_json::from_slice(&fixture(folder.join("images.json"))).unwrap();
    let images = manifest["images"].as_array().unwrap();
    assert!(images.len() > 20);
    for cpu in [Cpu::detect(), Cpu::portable()] {
        let providers = Providers::new(cpu);
        for entry in images {
            let name = entry["name"].as_str().unwrap();
            let table: Table = entry["table"].as_str().unwrap().parse().unwrap();
            if let Some(passphrase) = entry["passphrase"].as_str() {
                let hash = entry["hash"].as_str().unwrap();
                let key = plain_key(passphrase.as_bytes(), hash, table.key.len(), &providers).unwrap();
                assert_eq!(key, table.key, "{name}: the passphrase's key");
            }
            let image = fixture(folder.join(entry["image"].as_str().unwrap()));
            let offset = table.offset as usize * 512;
            let ciphertext = &image[offset..][..table.sectors as usize * 512];
            let plaintext = stream(entry["plaintext_seed"].as_str().unwrap(), ciphertext.len());
            let cipher = match SectorCipher::new(&table.params, table.key.expose(), &providers) {
                Ok(cipher) => cipher,
                Err(error) => panic!("{name}: {error}"),
            };
            let mut data = ciphertext.to_vec();
            cipher.decrypt(0, &mut data).unwrap();
            assert!(data == plaintext, "{name} on {cpu:?}: decrypted");
            cipher.encrypt(0, &mut data).unwrap();
            assert!(data == ciphertext, "{name} on {cpu:?}: encrypted");
        }
    }
}

#[test]
fn a_run_is_the_same_as_its_sectors() {
    let providers = Providers::default();
    let specs = [
        "aes-xts-plain64",
        "aes-xts-plain",
        "aes-xts-plain64be",
        "aes-cbc-essiv:sha256",
        "aes-cbc-benbi",
        "aes-cbc-eboiv",
        "aes-cbc-null",
        "aes:4-cbc-plain64",
        "aes-lrw-benbi",
        "aes-ctr-plain64",
        "serpent-xts-plain64",
        "twofish-cbc-essiv:sha256",
        "des3_ede-cbc-plain64",
        "blowfish-cbc-plain",
        "aes-ecb",
    ];
    for spec in specs {
        for (sector_size, iv_large_sectors) in [(512, false), (1024, false), (4096, false), (4096, true)] {
            for iv_offset in [0, (1 << 32) - 8, (1 << 32) - 40, u64::MAX - 200] {
                let iv_offset = iv_offset / 8 * 8;
                let params =
                    Params { sector_size, iv_large_sectors, iv_offset, ..Params::new(spec.parse().unwrap()) };
                let key_len = match spec {
                    "aes-xts-plain64" | "aes-xts-plain" | "aes-xts-plain64be" | "serpent-xts-plain64" => 64,
                    "aes:4-cbc-plain64" => 128,
                    "aes-lrw-benbi" => 48,
                    "des3_ede-cbc-plain64" => 24,
                    _ => 32,
                };
                let key: Vec<u8> = (0..key_len).map(|i: usize| (i * 11 + 1) as u8).collect();
                let cipher = SectorCipher::new(&params, &key, &providers).unwrap();
                let mut run = stream(spec, 10 * sector_size);
                let plaintext = run.clone();
                let mut sectors = run.clone();
                cipher.encrypt(16, &mut run).unwrap();
                for (k, sector) in sectors.chunks_mut(sector_size).enumerate() {
                    cipher.encrypt(16 + (k * sector_size / 512) as u64, sector).unwrap();
                }
                let what =
                    format!("{spec}, {sector_size} bytes, large {iv_large_sectors}, IV offset {iv_offset}");
                assert!(run == sectors, "{what}");
                cipher.decrypt(16, &mut run).unwrap();
                assert!(run == plaintext, "{what}: back");
            }
        }
    }
}

#[test]
fn impossible_mappings_are_refused() {
    let providers = Providers::default();
    let new = |spec: &str, sector_size, iv_offset, key: usize| {
        let params = Params { sector_size, iv_offset, ..Params::new(spec.parse().unwrap()) };
        SectorCipher::new(&params, &(0..key).map(|i| i as u8).collect::<Vec<_>>(), &providers)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    assert!(new("aes-xts-plain64", 513, 0, 64).contains("sector size 513"));
    assert!(new("aes-xts-plain64", 8192, 0, 64).contains("sector size 8192"));
    assert!(new("aes-xts-plain64", 4096, 7, 64).contains("not a multiple of the sector size"));
    assert!(
        new("aes-xts-plain64", 512, 0, 63)
            .contains("keys of 64 or 32 or 48 bytes (512 or 256 or 384 bits), not of 63")
    );
    assert!(new("aes-cbc-tcw", 512, 0, 16).contains("can't be split"));
    assert!(new("aes-cbc-tcw", 4096, 0, 64).contains("512 bytes only"));
    assert!(new("aes:64-cbc-lmk", 512, 0, 100).contains("can't be split"));
    assert!(new("rot13-xts-plain64", 512, 0, 64).contains("no implementation of 'xts(rot13)'"));
    let params = Params::new("aes-xts-plain64".parse().unwrap());
    let cipher =
        SectorCipher::new(&params, &std::array::from_fn::<u8, 64, _>(|i| i as u8), &providers).unwrap();
    assert!(cipher.encrypt(0, &mut [0; 513]).unwrap_err().to_string().contains("not whole sectors"));
}
