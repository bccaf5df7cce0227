//! Headers held against policies: each rule, and every way in.

use std::fs;

use casemate::Providers;
use casemate::luks::luks2::{BinaryHeader, Place as Copy};
use casemate_testkit::{Place, run, status, stderr, stdout, tool};
use serde_json::Value;

use crate::{manifests, place, says, yes};

const FORMAT: &str = "luks format volume --key-file key --pbkdf-force-iterations";

/// Every volume of the fixtures keeps the policy that is made of its header; with an HMAC no other header does.
#[test]
fn headers_keep_their_own_policies() {
    let mut printed = 0;
    for manifest in manifests() {
        let name = manifest["name"].as_str().unwrap();
        let place = place(name);
        let apart = if manifest["detached"] == true { " --luks-header header" } else { "" };
        let own = place.own(&format!("luks check image --print-policy --mac-key-file key{apart}"));
        if status(&own) == 1 {
            let said = stdout(&own);
            assert!(
                ["null: ", "segment: ", "requirement: "].iter().any(|rule| said.contains(rule)),
                "{name}: {said}"
            );
            continue;
        }
        place.file("policy", yes(own));
        let check = format!("luks check image --luks-policy policy{apart}");
        assert_eq!(yes(place.own(&format!("{check} --mac-key-file key"))), "", "{name}");
        says(place.own(&check), 2, "the policy has a mac");
        place.file("other", "another key");
        let output = place.own(&format!("{check} --mac-key-file other"));
        assert_eq!(
            (status(&output), &*stdout(&output)),
            (1, "mac: the header was changed, or the key is another one\n")
        );
        printed += 1;
    }
    assert!(printed > 10, "{printed}");
}

/// Each line of a policy refuses what is not as it says, alone, and by its name.
#[test]
fn each_rule_is_broken_alone() {
    let place = place("l2-hash-whirlpool");
    place.file("volume", vec![0; 20 << 20]);
    yes(place.own(&format!("{FORMAT} 1000 --pbkdf pbkdf2")));
    let policy = yes(place.own("luks check volume --print-policy"));
    for (line, other) in [
        ("version 2", "version 1"),
        ("cipher aes-xts-plain64", "cipher serpent-xts-plain64\nkey-slot-cipher aes-xts-plain64"),
        ("key-size 512", "key-size 256"),
        ("key-slot-cipher aes-xts-plain64", "key-slot-cipher aes-cbc-essiv:sha256"),
        ("sector-size 512", "sector-size 4096"),
        ("hash sha256", "hash sha512"),
        ("pbkdf pbkdf2 iterations=1000..1000", "pbkdf pbkdf2 iterations=1001..2000"),
        ("pbkdf pbkdf2 iterations=1000..1000", "pbkdf argon2id time=1..9 memory=1..9 parallel=1..9"),
        ("key-slots 1..1", "key-slots 2..3"),
        ("digest pbkdf2-", "digest pbkdf2-x"),
        // Of a kind of protection that the header has not; strangers take it away.
        ("sector-size 512", "integrity hmac(sha256)\nintegrity aead"),
    ] {
        assert!(policy.contains(line), "{line}: {policy}");
        place.file("policy", policy.replace(line, other));
        let output = place.own("luks check volume --luks-policy policy --json");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rules: Vec<_> = answer["broken_rules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|broken| broken["rule"].as_str().unwrap())
            .collect();
        let rule = if other.starts_with("integrity") { "integrity" } else { line.split(' ').next().unwrap() };
        assert_eq!((status(&output), &*rules), (1, &[rule][..]), "{other}: {answer}");
        // No way in takes it, and none asks a key slot first.
        let broken = format!("breaks the policy: {rule}: ");
        let with = "--key-file key --luks-policy policy volume";
        says(place.own(&format!("luks test-passphrase {with}")), 1, &broken);
        says(place.own(&format!("luks extract {with} out")), 2, &broken);
        says(place.own(&format!("info --luks {with}")), 2, &broken);
        says(place.own(&format!("serve -r --luks {with} --exec true")), 2, &broken);
        assert!(!place.path("out").exists());
    }
    place.file("policy", format!("{policy}integrity aead\nintegrity none\n"));
    yes(place.own("luks check volume --luks-policy policy"));
    place.file("policy", &policy);
    yes(place.own("luks test-passphrase --key-file key --luks-policy policy volume"));
    for (text, said) in [
        ("cipher aes", "a policy without key-size"),
        ("cipher a b", "line 1: cipher: 2 values"),
        ("colour blue", "line 1: colour: there is no such rule"),
        ("\n# a word\nkey-size many", "line 3: key-size: 'many' is not a number"),
        ("key-slots 3..2", "is not a range; write LEAST..MOST"),
        ("pbkdf scrypt n=1", "pbkdf2, argon2i or argon2id"),
        ("pbkdf pbkdf2", "needs bounds"),
        ("pbkdf pbkdf2 iterations=1 time=2", "has these bounds"),
        ("mac hmac-sha256:00", "64 hexadecimal"),
    ] {
        place.file("policy", text);
        says(place.own("luks check volume --luks-policy policy"), 2, said);
    }
    says(place.own("luks check volume --mac-key-file key"), 2, "required");
    says(place.own("ext4 ls --luks-policy policy volume"), 2, "--luks");
}

/// Changes the metadata of the header in `volume`, in both copies.
fn change(place: &Place, change: impl FnOnce(&mut Value)) {
    let dumped = yes(place.own("luks dump --dump-json-metadata volume"));
    let mut metadata: Value = serde_json::from_str(&dumped).unwrap();
    change(&mut metadata);
    let (mut volume, area) = (place.read("volume"), serde_json::to_vec(&metadata).unwrap());
    let binary = BinaryHeader::from_bytes(volume.first_chunk().unwrap(), Copy::Primary, 0).unwrap();
    let copies = [Copy::Primary, Copy::Secondary]
        .map(|copy| binary.to_bytes(copy, &area, &Providers::default()).unwrap())
        .concat();
    volume[..copies.len()].copy_from_slice(&copies);
    place.file("volume", volume);
}

/// A header's names are anybody's text: none is a line of ours, steers a terminal, or adds a rule to a policy.
#[test]
fn names_of_a_header_are_neither_lines_nor_rules() {
    let place = place("l2-hash-whirlpool");
    let made = format!("{FORMAT} 1000 --pbkdf pbkdf2 --size 20M");
    yes(place.own(&made));
    let before = place.read("volume");
    change(&place, |metadata| {
        metadata["config"]["requirements"] =
            serde_json::json!({ "mandatory": ["\x1b[2J\nall rules are kept"] });
    });
    let output = place.own("luks check volume");
    assert_eq!((status(&output), &*stdout(&output)), (1, "requirement: there is ?[2J?all rules are kept\n"));

    for evil in ["sha256\nkey-slots 0..32\ncipher null", "sha256 # sha1", "sha\x1b[2J"] {
        place.file("volume", &before);
        change(&place, |metadata| metadata["keyslots"]["0"]["kdf"]["hash"] = evil.into());
        for json in ["", " --json"] {
            let output = place.own(&format!("luks check volume --print-policy{json}"));
            assert!(stdout(&output).is_empty(), "{evil:?}: {}", stdout(&output));
            says(output, 2, "hash '");
        }
        // A policy is there to say no.
        place.file(
            "policy",
            "cipher aes-xts-plain64\nkey-size 512\npbkdf pbkdf2 iterations=1..9999\nhash sha256\n",
        );
        assert_eq!(status(&place.own("luks check volume --luks-policy policy")), 1, "{evil:?}");
    }

    place.file("volume", &before);
    change(&place, |metadata| {
        let slot = metadata["keyslots"]["0"].clone();
        metadata["keyslots"]["\x1b[31m\nstate: clean"] = slot;
    });
    let shown = stdout(&place.own("info volume"));
    assert!(shown.contains("[31m") && !shown.contains('\x1b') && !shown.contains("\nstate"), "{shown:?}");
}

/// Changes that a stranger can make to a header with the real tool.
#[test]
fn headers_that_were_changed_are_refused() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    let place = place("l2-hash-whirlpool");
    place.file("volume", vec![0; 20 << 20]);
    yes(place.own(&format!("{FORMAT} 4 --pbkdf argon2id --pbkdf-memory 32K --pbkdf-parallel 1")));
    place.file("policy", yes(place.own("luks check volume --print-policy")));
    place.file("sealed", yes(place.own("luks check volume --print-policy --mac-key-file key")));
    let cryptsetup = |line: &str| {
        let mut command = std::process::Command::new(&cryptsetup);
        run(command.args(line.split(' ')).current_dir(place.folder()))
    };
    let broken = |line: &str| stdout(&place.own(&format!("luks check volume --luks-policy {line}")));
    assert_eq!(broken("policy") + &broken("sealed --mac-key-file key"), "");
    let before = place.read("volume");
    let new = "--key-file key --disable-locks -q";
    for (line, rule) in [
        (format!("luksAddKey volume key {new} --pbkdf pbkdf2 --pbkdf-force-iterations 1000"), "pbkdf: "),
        (
            format!(
                "luksFormat volume {new} --pbkdf argon2id --pbkdf-memory 32 --pbkdf-force-iterations 4 --pbkdf-parallel 1"
            ),
            "digest: ",
        ),
        ("config volume --label x --disable-locks".to_owned(), "mac: "),
        (format!("luksFormat volume {new} --type luks1 --pbkdf-force-iterations 1000"), "version: "),
        (
            "token add --key-description k volume --disable-locks".to_owned(),
            "token: token 0 is of type luks2-keyring",
        ),
    ] {
        cryptsetup(&line);
        let found = match rule {
            "mac: " => broken("policy"),
            _ => String::new(),
        };
        assert_eq!(found, "", "{line}");
        let sealed = broken("sealed --mac-key-file key");
        assert!(sealed.contains(rule) && sealed.contains("mac: "), "{line}: {sealed}");
        fs::write(place.path("volume"), &before).unwrap();
    }
    // A damaged copy is none of this: the other one is used, and has the same HMAC.
    place.flip("volume", 4096, 1);
    assert_eq!(broken("sealed --mac-key-file key"), "");
    assert!(stderr(&place.own("luks check volume")).is_empty());
}

/// The change that talks a machine into writing in plain text. Nothing in a header of LUKS1 tells it.
#[test]
fn null_ciphers_are_refused_without_any_policy() {
    let place = place("luks1-xts-sha256");
    assert_eq!(yes(place.own("luks check image")), "");
    let mut image = place.read("image");
    image[8..72].fill(0);
    image[8..19].copy_from_slice(b"cipher_null");
    image[40..43].copy_from_slice(b"ecb");
    place.file("image", image);
    let output = place.own("luks check image");
    let said = stdout(&output);
    assert_eq!(status(&output), 1);
    assert!(
        said.starts_with("null: the data's cipher is cipher_null-ecb\nnull: the cipher of key slot "),
        "{said}"
    );
}
