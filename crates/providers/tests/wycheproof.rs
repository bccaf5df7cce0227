//! Project Wycheproof's vectors (C2SP) against every row that they cover.
//!
//! Covered: AES-XTS, CBC of AES, ARIA and Camellia, HMAC, HKDF and SipHash-2-4. The CBC vectors have PKCS #5 padding,
//! which storage never has: it is added here, and vectors about wrong padding are passed over. Not covered, because
//! Wycheproof has none: CTS, ECB, LRW, ESSIV, HCTR2, Adiantum and plain hashes. Its AEADs, CMACs and the rest of it are
//! about things that this project does not have.

use casemate_primitives::Cpu;
use casemate_providers::{Hash, Hkdf, Hmac, Ivs, Policy, Registry, siphash24};
use wycheproof::TestResult;
use wycheproof::{cipher, hkdf, mac};

/// Runs a set against every row of `algorithm`; gives the number of vectors that were checked.
fn ciphers(name: cipher::TestName, algorithm: &str, padded: bool) -> usize {
    let set = cipher::TestSet::load(name).expect("the crate's own file");
    let mut checked = 0;
    for cpu in [Cpu::detect(), Cpu::portable()] {
        let registry = Registry::new(cpu);
        let rows = registry.rows().iter().filter(|row| row.algorithm == algorithm);
        for row in rows {
            let policy = Policy::default().naming(&row.driver);
            let tests = set.test_groups.iter().flat_map(|group| &group.tests);
            for test in tests.filter(|test| test.result == TestResult::Valid) {
                let keyed = registry.cipher(algorithm, &test.key, &policy).expect("a key of the vectors");
                // A short tweak stands for a number.
                let mut iv = test.nonce.to_vec();
                iv.resize(16, 0);
                let mut plaintext = test.pt.to_vec();
                if padded {
                    let padding = 16 - plaintext.len() % 16;
                    plaintext.resize(plaintext.len() + padding, padding as u8);
                }
                let mut data = plaintext.clone();
                keyed.encrypt(&Ivs::List(&iv), &mut data).expect("a whole unit");
                assert_eq!(data, test.ct.to_vec(), "{} test {}", row.driver, test.tc_id);
                keyed.decrypt(&Ivs::List(&iv), &mut data).expect("a whole unit");
                assert_eq!(data, plaintext, "{} test {}", row.driver, test.tc_id);
                checked += 1;
            }
        }
    }
    checked
}

#[test]
fn xts_and_cbc() {
    use cipher::TestName::*;
    for (name, algorithm, padded) in [
        (AesXts, "xts(aes)", false),
        (AesCbcPkcs5, "cbc(aes)", true),
        (AriaCbcPkcs5, "cbc(aria)", true),
        (CamelliaCbcPkcs5, "cbc(camellia)", true),
    ] {
        let checked = ciphers(name, algorithm, padded);
        assert!(checked >= 100, "{algorithm}: {checked} vectors");
    }
}

#[test]
fn hmac_tags() {
    use mac::TestName::*;
    for (name, hash) in [
        (HmacSha1, "sha1"),
        (HmacSha224, "sha224"),
        (HmacSha256, "sha256"),
        (HmacSha384, "sha384"),
        (HmacSha512, "sha512"),
        (HmacSha3_224, "sha3-224"),
        (HmacSha3_256, "sha3-256"),
        (HmacSha3_384, "sha3-384"),
        (HmacSha3_512, "sha3-512"),
        (HmacSm3, "sm3"),
    ] {
        let set = mac::TestSet::load(name).expect("the crate's own file");
        let hash = Hash::named(hash, Cpu::detect()).expect("a hash of the table");
        for group in &set.test_groups {
            for test in &group.tests {
                let tag = Hmac::new(hash.clone(), &test.key).tag(&test.msg);
                let same = tag.expose()[..group.tag_size / 8] == test.tag[..];
                assert_eq!(same, test.result == TestResult::Valid, "{hash:?} test {}", test.tc_id);
            }
        }
    }
}

#[test]
fn siphash_tags() {
    let set = mac::TestSet::load(mac::TestName::SipHash_2_4).expect("the crate's own file");
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let Ok(key) = <&[u8; 16]>::try_from(&test.key[..]) else { continue };
        let same = siphash24(key, &test.msg).to_le_bytes() == test.tag[..];
        assert_eq!(same, test.result == TestResult::Valid, "test {}", test.tc_id);
    }
}

#[test]
fn hkdf_keys() {
    use hkdf::TestName::*;
    for (name, hash) in
        [(HkdfSha1, "sha1"), (HkdfSha256, "sha256"), (HkdfSha384, "sha384"), (HkdfSha512, "sha512")]
    {
        let set = hkdf::TestSet::load(name).expect("the crate's own file");
        let hash = Hash::named(hash, Cpu::detect()).expect("a hash of the table");
        for test in set.test_groups.iter().flat_map(|group| &group.tests) {
            // What is invalid is longer than HKDF can be.
            if test.result != TestResult::Valid {
                assert!(test.size > 255 * hash.digest_len(), "test {}", test.tc_id);
                continue;
            }
            let key = Hkdf::new(hash.clone(), &test.salt, &test.ikm).expand(&test.info, test.size);
            assert_eq!(key.expose(), test.okm.to_vec(), "{hash:?} test {}", test.tc_id);
        }
    }
}
