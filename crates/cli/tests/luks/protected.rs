//! LUKS2 with integrity protection, beside the kernel: what it makes and writes is read and changed here, and it reads that.

use std::fmt::Write;

use casemate::luks::{LuksKey, LuksOptions};
use casemate::{Access, Image, SecretSource, Work};
use casemate_testkit::uml::Uml;
use casemate_testkit::{Place, Rng, slow_tests, tool};

use crate::CASEMATE;

/// Cipher, bits of its key without that of an HMAC, and integrity, as cryptsetup takes them.
type Volume = (&'static str, u32, &'static str);

const VOLUMES: &[Volume] = &[
    ("aes-xts-plain64", 512, "hmac-sha256"),
    ("aes-xts-random", 512, "hmac-sha256"),
    ("aes-cbc-essiv:sha256", 256, "hmac-sha1"),
    ("aes-gcm-random", 256, "aead"),
    ("aes-ccm-random", 152, "aead"),
    ("aegis128-random", 128, "aead"),
    ("chacha20-plain64", 256, "poly1305"),
];

/// Volumes for the same code with other keys.
const MORE: &[Volume] = &[
    ("aes-gcm-random", 128, "aead"),
    ("aes-xts-plain64", 256, "hmac-sha512"),
    ("aes-ccm-random", 280, "aead"),
    ("chacha20-random", 256, "poly1305"),
];

const SCRIPT: &str = r#"
make() {
    truncate -s 3M "$1"
    cryptsetup luksFormat -q --type luks2 -c "$2" -s "$3" --integrity "$4" --sector-size "$5" --pbkdf pbkdf2 \
        --pbkdf-force-iterations 1000 --luks2-metadata-size 16k --luks2-keyslots-size 512k --offset 2048 "$1" key
    cryptsetup open --key-file key "$1" "$1"
    [ -b "/dev/mapper/$1" ] || dmsetup mknodes "$1"
    dd if=payload of="/dev/mapper/$1" bs=65536 conv=fsync 2>/dev/null
    cryptsetup close "$1"
}
take() {
    cryptsetup open --key-file key "$1" "$1"
    [ -b "/dev/mapper/$1" ] || dmsetup mknodes "$1"
    cat "/dev/mapper/$1" >"$1.plain"
    cryptsetup close "$1"
}
"#;

#[test]
fn volumes_with_integrity_go_to_and_fro() {
    for needed in ["cryptsetup", "dmsetup", "losetup"] {
        if tool(needed).is_none() {
            return;
        }
    }
    let place = Place::new(CASEMATE);
    let mut rng = Rng::new(21);
    let (payload, patch) = (rng.bytes(300 << 10), rng.bytes(40_000));
    place.file("payload", &payload);
    place.file("key", "a passphrase");
    let (mut make, mut take) = (format!("cd {}\n{SCRIPT}", place.folder().display()), String::new());
    take += &make;
    let volumes = if slow_tests() { [VOLUMES, MORE].concat() } else { VOLUMES.to_vec() };
    for (number, (cipher, bits, integrity)) in volumes.iter().enumerate() {
        let sector = if number % 2 == 0 { 4096 } else { 512 };
        writeln!(make, "make v{number} {cipher} {bits} {integrity} {sector}").unwrap();
        writeln!(take, "take v{number}").unwrap();
    }
    let Some(output) = Uml::new(make).run() else { return };
    output.expect_success();
    for (number, volume) in volumes.iter().enumerate() {
        let name = format!("v{number}");
        place.yes(&format!("luks extract {name} out{number} --key-file key"));
        let mut model = place.read(format!("out{number}"));
        assert!(model[..payload.len()] == payload, "{volume:?}");
        assert!(model[payload.len()..].iter().all(|byte| *byte == 0), "{volume:?}");
        let piped = place.is(&format!("luks extract {name} - --key-file key"), 0, "").stdout;
        assert!(piped == model, "{volume:?}");
        let key = LuksKey::file(&SecretSource::file(place.path("key")), None).unwrap();
        let image = Image::open(place.path(&name), Access::Change).unwrap();
        let opened = image.luks(None, &key, &LuksOptions::default(), &Work::default()).unwrap();
        for at in [30_000, model.len() - patch.len() - 1] {
            opened.device().write_at(&patch, at as u64).unwrap();
            model[at..at + patch.len()].copy_from_slice(&patch);
        }
        opened.device().flush().unwrap();
        place.file(format!("model{number}"), model);
        // And one that is made here, with its data or with zeros.
        let (cipher, bits, integrity) = volume;
        // A sector's number for a nonce is read, and not made.
        let cipher = if *integrity == "poly1305" { "chacha20-random" } else { *cipher };
        let sector = if number % 2 == 0 { 512 } else { 4096 };
        let how = format!(
            "-c {cipher} -s {bits} --integrity {integrity} --sector-size {sector} --key-file key --pbkdf pbkdf2 \
             --pbkdf-force-iterations 1000 --crypt-offset 1M"
        );
        match number % 3 {
            0 => {
                place.file(format!("w{number}"), vec![0; 4 << 20]);
                place.yes(&format!("luks format w{number} {how}"));
            }
            1 => drop(place.sh(&format!("cat payload | {CASEMATE} luks format w{number} --from - {how}"))),
            _ => drop(place.yes(&format!("luks format w{number} --from payload {how}"))),
        }
        place.yes(&format!("luks extract w{number} own{number} --key-file key"));
        writeln!(take, "take w{number}").unwrap();
    }
    Uml::new(take).run().unwrap().expect_success();
    for (number, volume) in volumes.iter().enumerate() {
        let (found, model) = (place.read(format!("v{number}.plain")), place.read(format!("model{number}")));
        assert!(found == model, "{volume:?}");
        let made = place.read(format!("w{number}.plain"));
        let data = if number % 3 == 0 { &[][..] } else { &payload[..] };
        assert!(made.starts_with(data) && made[data.len()..].iter().all(|byte| *byte == 0), "{volume:?}");
        assert!(made.len() > 300_000 && made == place.read(format!("own{number}")), "{volume:?}");
    }
}

/// Impossible volumes are refused before anything is written.
#[test]
fn slips_with_integrity_are_refused() {
    let place = Place::new(CASEMATE);
    let payload = Rng::new(22).bytes(100_000);
    place.file("payload", &payload);
    place.file("key", "a passphrase");
    for (line, said) in [
        ("-c aes-gcm-random", "authenticated encryption needs dm-integrity"),
        ("--integrity aead", "integrity protection (aead) of aes-xts-plain64"),
        ("--integrity hmac-md9", "md9"),
        ("--integrity hmac-sha256 --type luks1", "LUKS1 has no integrity protection"),
    ] {
        let cheap = "--key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
        place.is(&format!("luks format new --from payload {cheap} {line}"), 2, said);
        assert!(!place.path("new").exists(), "{line}");
    }
    let cheap = "--key-file key --integrity hmac-sha256 --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    place.is(
        &format!("luks format - --from payload {cheap}"),
        2,
        "it needs a file or a block device to write",
    );
    place.is(&format!("luks format new --from - {cheap}"), 2, "no data came");
    assert!(!place.path("new").exists());
    // In a part of a disk, which a stream fills up to its end; what is there is not lost by a slip.
    place.file("disk", vec![0; 4 << 20]);
    let part = format!("luks format disk --from - --offset 1M --crypt-offset 512K {cheap}");
    place.sh(&format!("cat payload | {CASEMATE} {part}"));
    place.is(&part, 2, "contains a LUKS header; use --overwrite to destroy it");
    place.yes("luks extract disk out --offset 1M --key-file key");
    assert!(place.read("out").starts_with(&payload));
    // Called as cryptsetup, whose data are zeros then.
    let cheap = cheap.replace("--key-file key --integrity hmac-sha256 ", "");
    let tool = format!(
        "luksFormat -q -c aes-gcm-random -s 256 --integrity aead --integrity-no-wipe {cheap} disk key"
    );
    let output = place.run(place.link("cryptsetup"), &format!("{tool} --offset 2048"));
    assert!(output.status.success(), "{output:?}");
    place.yes("luks extract disk out --key-file key");
    let out = place.read("out");
    assert!(out.len() > 1 << 20 && out.iter().all(|byte| *byte == 0));
}
