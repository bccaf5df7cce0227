//! Contents of headers, as cryptsetup prints them.

use casemate_testkit::{Place, fixture, run, stdout, tool};

use crate::{CASEMATE, fixtures, hex, manifests, place, says, yes};

#[test]
fn dumps_are_those_of_cryptsetup() {
    let mut count = 0;
    for manifest in manifests() {
        let Some(expected) = manifest["luksDump"].as_str() else { continue };
        let name = manifest["name"].as_str().unwrap();
        let place = place(name);
        let file = if manifest["detached"] == true { "header" } else { "image" };
        let found = place.own(&format!("luks dump {file}"));
        // Its second copy was still damaged then.
        let found = stdout(&found).replace(&format!("for {file}\n"), "for IMAGE\n");
        assert_eq!(found, expected, "{name}");
        count += 1;
    }
    assert!(count > 10);
}

/// Headers with everything that cryptsetup puts there.
#[test]
fn dumps_are_those_of_the_cryptsetup_that_is_here() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    let place = Place::new(CASEMATE);
    let cryptsetup = |line: &str| {
        run(std::process::Command::new(&cryptsetup).args(line.split_whitespace()).current_dir(place.folder()))
    };
    let cheap = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    let argon2 = "--pbkdf argon2i --pbkdf-force-iterations 4 --pbkdf-memory 64 --pbkdf-parallel 1";
    place.file("k", "secret");
    place.file("k2", "other");
    place.file(
        "token",
        r#"{"type":"foo","keyslots":["0","1"],"x":{"y":[],"z":[1.50,{"a":{}}],"s":"a/b\u001f\"é"}}"#,
    );
    for file in ["two", "one", "integrity"] {
        std::fs::File::create(place.path(file)).unwrap().set_len(20 << 20).unwrap();
    }
    cryptsetup(&format!("luksFormat -q {cheap} --label a.label --subsystem sub two k"));
    cryptsetup(&format!("luksAddKey -q --unbound --key-size 256 -S 5 {argon2} --key-file k two k2"));
    cryptsetup(&format!("luksAddKey -q {cheap} --key-file k two k2"));
    cryptsetup("config -S 1 --priority prefer two");
    cryptsetup("config -S 0 --priority ignore two");
    cryptsetup("token add --key-description desc -S 1 two");
    cryptsetup("token import --json-file token two");
    cryptsetup(&format!("luksFormat -q --type luks1 {cheap} one k"));
    let same = |file: &str| {
        assert_eq!(yes(place.own(&format!("luks dump {file}"))), cryptsetup(&format!("luksDump {file}")))
    };
    same("two");
    same("one");
    for options in ["", "--dump-json-metadata", "--json"] {
        assert_eq!(
            yes(place.own(&format!("luks dump {options} --luks-header two integrity"))),
            yes(place.own(&format!("luks dump {options} two"))),
        );
    }
    assert_eq!(yes(place.own("luks dump --luks-header one two")), cryptsetup("luksDump --header one two"));
    assert_eq!(
        yes(place.own("luks dump --dump-json-metadata two")),
        cryptsetup("luksDump --dump-json-metadata two")
    );
    assert_eq!(yes(place.own("luks uuid two")), cryptsetup("luksUUID two"));
    assert_eq!(yes(place.own("luks uuid one")), cryptsetup("luksUUID one"));
    // In the middle of a reencryption.
    cryptsetup(
        "reencrypt -q --init-only --force-offline-reencrypt --key-file k2 -S 1 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 two",
    );
    same("two");
    yes(place.own("luks extract two out --key-file k2"));
}

#[test]
fn json_has_everything_and_text_has_no_control_characters() {
    let place = place("luks2-label-token");
    let value: serde_json::Value = serde_json::from_str(&yes(place.own("luks dump --json image"))).unwrap();
    assert_eq!((&value["version"], &value["label"]), (&2.into(), &"LAB é".into()));
    assert_eq!(value["metadata"]["tokens"]["3"]["type"], "lab");
    assert_eq!(value["copies"][1]["state"], "valid");
    let place = crate::place("luks1-cbc-plain-slots");
    let value: serde_json::Value = serde_json::from_str(&yes(place.own("luks dump --json image"))).unwrap();
    assert_eq!((&value["cipher"], &value["data_offset"]), (&"aes-cbc-plain64".into(), &528_384.into()));
    let mut bytes = place.read("image");
    bytes[168..172].copy_from_slice(b"\x1b[2J");
    place.file("image", bytes);
    assert!(!yes(place.own("luks dump image")).contains('\u{1b}'));
    assert!(yes(place.own("luks uuid image")).starts_with("\u{fffd}[2J"));
}

#[test]
fn questions_are_answered_by_the_exit_status() {
    let place = place("l2-hash-sha512");
    place.file("wrong", "wrong");
    place.file("zeros", [0; 100_000]);
    place.file("one", fixture(fixtures().join("l1-aes-ecb.img.xz")));
    let answers = |line: &str, expected: i32| {
        let output = place.own(line);
        assert_eq!(
            casemate_testkit::status(&output),
            expected,
            "{line}: {}",
            casemate_testkit::stderr(&output)
        );
    };
    answers("luks is-luks image", 0);
    answers("luks is-luks --type luks2 image", 0);
    answers("luks is-luks --type luks1 image", 1);
    answers("luks is-luks --type luks1 one", 0);
    answers("luks is-luks zeros", 1);
    answers("luks is-luks nothing", 2);
    answers("luks test-passphrase image --key-file key", 0);
    says(
        place.own("luks test-passphrase image --key-file wrong"),
        1,
        "key slot 0 does not open with this passphrase",
    );
    answers("luks test-passphrase zeros --key-file key", 2);
    answers("luks extract image out --key-file wrong", 2);
    assert!(!place.path("out").exists());
    let manifest = manifests().into_iter().find(|manifest| manifest["name"] == "l2-hash-sha512").unwrap();
    place.file("volume.key", hex(manifest["volume_key_hex"].as_str().unwrap()));
    answers("luks test-passphrase image --volume-key-file volume.key", 0);
    answers("luks test-passphrase image --volume-key-file wrong", 1);
    // A key is given once, and no option is without an effect.
    for (line, said) in [
        ("luks test-passphrase image --key-file wrong --volume-key-file volume.key", "cannot be used with"),
        ("luks test-passphrase image --key-slot 5 --volume-key-file volume.key", "cannot be used with"),
        ("luks test-passphrase image --key-file key --mac-key-file nothing", "--luks-policy"),
        ("luks extract image out --key-file key --mac-key-file nothing", "--luks-policy"),
    ] {
        says(place.own(line), 2, said);
    }
    says(place.own("luks dump zeros"), 2, "no valid LUKS header");
    assert!(yes(place.own("info image")).contains("casemate luks dump image"));
}
