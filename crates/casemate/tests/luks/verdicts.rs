//! The verdicts of cryptsetup on headers that were changed: which are taken, and which open.

use std::path::Path;

use casemate::luks::luks2::{BinaryHeader, Place};
use casemate::luks::{LuksKey, LuksOptions};
use casemate::{ErrorKind, Providers, Work, hex};
use casemate_testkit::fixture;
use serde_json::Value;

use crate::images::{image, volume};

const HDR_SIZE: usize = 16384;

/// The volume of the corpus with another JSON area in its first header, and zeros for the second.
pub fn with_area(data: &[u8], area: &[u8]) -> Vec<u8> {
    let providers = Providers::default();
    let binary = BinaryHeader::from_bytes(data.first_chunk().unwrap(), Place::Primary, 0).unwrap();
    let copy = binary.to_bytes(Place::Primary, area, &providers).unwrap();
    [&copy[..], &[0; HDR_SIZE], &data[2 * HDR_SIZE..]].concat()
}

#[test]
fn slots_open_where_cryptsetup_opens_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../luks/tests/fixtures/verdicts.json.xz");
    let list: Value = serde_json::from_slice(&fixture(path)).unwrap();
    let volume = volume("json-mutations");
    let (_, key) = volume.passphrases().remove(0);
    for case in list.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let area = match case["json"].as_str() {
            Some(json) => json.as_bytes().to_vec(),
            None => hex::decode(case["area_hex"].as_str().unwrap()).unwrap(),
        };
        let image = image(with_area(&volume.data, &area));
        let found = image.luks_volume(None, &Providers::default());
        assert_eq!(found.is_ok(), case["accepted"].as_bool().unwrap(), "{name}: {found:?}");
        let Ok(found) = found else { continue };
        let opened = found.unlock(&key, &LuksOptions::default(), &Work::default());
        match (name, case["test"].as_i64().unwrap()) {
            // cryptsetup compares no byte, so that any passphrase opens the slot.
            ("digest-no-digest", 0) => assert_eq!(opened.unwrap_err().kind(), ErrorKind::Corrupt),
            (_, 0) => assert_eq!(opened.expect(name).keyslot, Some(0), "{name}"),
            // A slot that cannot be tried does not say that the passphrase is wrong.
            ("keyslot-key-size-other", 2) => assert_eq!(opened.unwrap_err().kind(), ErrorKind::Corrupt),
            (_, 2) => assert_eq!(opened.unwrap_err().kind(), ErrorKind::Mismatch, "{name}"),
            // Out of memory, bad parameters, or the end of the process.
            _ => assert!(opened.is_err(), "{name}"),
        }
    }
}

/// Data that a key opens are still not mapped where a plain mapping would be wrong.
#[test]
fn what_is_no_plain_mapping_is_refused_by_its_name() {
    let volume = volume("json-mutations");
    let (_, key) = volume.passphrases().remove(0);
    let end = volume.data[4096..].iter().position(|byte| *byte == 0).unwrap();
    let json = String::from_utf8(volume.data[4096..4096 + end].to_vec()).unwrap();
    let open = |json: String, key: &LuksKey| {
        let opened = image(with_area(&volume.data, json.as_bytes())).luks(
            None,
            key,
            &LuksOptions::default(),
            &Work::default(),
        );
        opened.map(drop).map_err(|error| (error.kind(), error.text().into_owned()))
    };
    assert_eq!(open(json.clone(), &key), Ok(()));
    let requires = |name: &str| {
        json.replace(r#""json_size""#, &format!(r#""requirements":{{"mandatory":["{name}"]}},"json_size""#))
    };
    let integrity = r#""sector_size":512,"integrity":{"type":"aead","journal_encryption":"none","journal_integrity":"none"}"#;
    for (changed, why) in [
        (requires("offline-reencrypt"), "requires offline-reencrypt: it is being reencrypted"),
        (requires("opal"), "requires opal: it needs a disk that encrypts by itself"),
        (requires("inline-hw-tags"), "requires inline-hw-tags"),
        (requires("tea"), "requires tea: whatever that is"),
        (json.replace(r#""sector_size":512"#, integrity), "integrity protection (aead)"),
        (json.replace(r#""type":"crypt""#, r#""type":"linear""#), "segment 0 is of type 'linear'"),
        (json.replace(r#""iv_tweak":"0""#, r#""iv_tweak":"8""#), "iv_tweak 8, which cryptsetup ignores"),
        (
            json.replace(
                r#""sector_size":512}"#,
                r#""sector_size":512,"integrity":{"type":"none","journal_encryption":"none","journal_integrity":"none"}}"#,
            ),
            "integrity protection (none)",
        ),
        (
            json.replace(r#""encryption":"aes-cbc-essiv:sha256","sector"#, r#""encryption":"cipher_null-ecb","sector"#),
            "which encrypts nothing; only an empty passphrase opens it",
        ),
        (
            json.replace(r#""encryption":"aes-cbc-essiv:sha256","key"#, r#""encryption":"cipher_null-ecb","key"#),
            "key slot 0 was not tried: its cipher is cipher_null-ecb, which hides nothing",
        ),
    ] {
        let (kind, text) = open(changed, &key).unwrap_err();
        assert!(kind == ErrorKind::Unsupported && text.contains(why), "{why}: {text}");
    }
}

/// A header is mended where it is known what it says.
#[test]
fn what_requires_something_unknown_is_not_mended() {
    let volume = volume("json-mutations");
    let end = volume.data[4096..].iter().position(|byte| *byte == 0).unwrap();
    let json = String::from_utf8(volume.data[4096..4096 + end].to_vec()).unwrap();
    let requires = |name: &str| {
        json.replace(r#""json_size""#, &format!(r#""requirements":{{"mandatory":["{name}"]}},"json_size""#))
    };
    for (name, is_known) in
        [("opal", true), ("tea", false), ("online-reencryptx", false), ("online-reencrypt-v3X", false)]
    {
        let image = image(with_area(&volume.data, requires(name).as_bytes()));
        let mended = image.luks_repair(&Work::default());
        assert_eq!(mended.is_ok(), is_known, "{name}: {mended:?}");
        if let Err(error) = mended {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.text().contains(name), "{error}");
        }
    }
}
