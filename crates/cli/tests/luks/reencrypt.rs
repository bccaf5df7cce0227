//! Volumes reencrypted here and by cryptsetup in turn.

use std::path::Path;
use std::process::Command;

use casemate::Providers;
use casemate::luks::luks2::{BinaryHeader, Place as Copy};
use casemate_testkit::{Place, Rng, run, run_any, stderr, stdout, tool};

use serde_json::Value;

use crate::{CASEMATE, says, yes};

const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

/// A volume of 3 MiB in `disk`, made of `plain`, with the passphrase in `key`.
fn volume(options: &str) -> Place {
    volume_with(3 << 20, options)
}

/// A volume of 3 MiB as [`volume`] makes it, of which the first `len` bytes are used, and zeros follow.
fn volume_with(len: usize, options: &str) -> Place {
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    let mut plain = Rng::new(4).bytes(3 << 20);
    plain[len..].fill(0);
    place.file("plain", plain);
    yes(place
        .own(&format!("luks format --from plain disk --key-file key --crypt-offset 1M {CHEAP} {options}")));
    place
}

fn is_whole(place: &Place, len: usize) {
    yes(place.own("luks extract disk out --key-file key"));
    assert!(place.read("out") == place.read("plain")[..len]);
}

#[test]
fn what_is_begun_here_is_finished_there_and_the_reverse() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    for (made, begun, there, len) in [
        ("", "", "", 3 << 20),
        ("--sector-size 4096", "--resilience journal", "--resilience journal", 3 << 20),
        (
            "-c aes-cbc-essiv:sha256",
            "-c aes-xts-plain64 -s 512 --sector-size 4096 --resilience-hash sha512",
            "-c aes-xts-plain64 -s 512 --sector-size 4096 --resilience-hash sha512",
            3 << 20,
        ),
        ("", "--reduce-device-size 1M", "--reduce-device-size 1M", 2 << 20),
        ("", "--resilience none", "--resilience none", 3 << 20),
    ] {
        let place = volume_with(len, made);
        let theirs = |line: &str| {
            let line = format!("{line} -q --key-file key disk");
            run(Command::new(&cryptsetup).args(line.split_whitespace()).current_dir(place.folder()))
        };
        let reencrypt = "luks reencrypt disk --key-file key";
        yes(place.own(&format!("{reencrypt} --init-only {begun}")));
        says(place.own(&format!("{reencrypt} --init-only")), 2, "was begun already");
        is_whole(&place, len);
        if begun.contains("none") {
            // cryptsetup may have been cut off, and would have noted nothing.
            says(place.own(&format!("{reencrypt} --resume-only")), 2, "the header can't tell");
            says(place.own("luks extract disk out --key-file key"), 0, "without protection");
        }
        theirs("reencrypt --resume-only --force-offline-reencrypt");
        is_whole(&place, len);
        says(place.own(&format!("{reencrypt} --resume-only")), 2, "there is nothing to go on with");
        // Of the shift there are no more bytes to give up than were.
        if len == 3 << 20 {
            theirs(&format!("reencrypt --init-only --force-offline-reencrypt {CHEAP} {there}"));
            let metadata = yes(place.own("luks dump --dump-json-metadata disk"));
            assert!(metadata.contains("online-reencrypt-v2"));
            is_whole(&place, len);
            let meant = if begun.contains("none") { "--batch-mode" } else { "" };
            let done = yes(place.own(&format!("{reencrypt} --json {meant}")));
            assert_eq!(done, "{\"done\":true}\n");
            is_whole(&place, len);
        }
        theirs("open --test-passphrase");
        assert_eq!(
            yes(place.own("luks dump disk")),
            run(Command::new(&cryptsetup).args(["luksDump", "disk"]).current_dir(place.folder()))
        );
    }
}

#[test]
fn data_are_encrypted_and_decrypted_here_and_there() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    let plain = Rng::new(6).bytes(3 << 20);
    let there = |place: &Place, line: &str| {
        let line = format!("reencrypt -q --force-offline-reencrypt --key-file key {line} disk");
        run(Command::new(&cryptsetup).args(line.split_whitespace()).current_dir(place.folder()));
    };
    let here = |place: &Place, line: &str| {
        yes(place.own(&format!("luks reencrypt disk --key-file key {line}")));
    };
    type Step<'a> = &'a dyn Fn(&Place, &str);
    for (begin, end) in [(&here as Step<'_>, &there as Step<'_>), (&there, &here)] {
        // cryptsetup calls the header's file so, and so may we.
        for (encrypt, header) in
            [("--reduce-device-size 4M", ""), ("--header header", "--luks-header header")]
        {
            let place = Place::new(CASEMATE);
            place.file("key", "pass");
            let room = if header.is_empty() { 4 << 20 } else { 0 };
            place.file("disk", [&plain[..], &vec![0; room]].concat());
            let is_plain = || {
                yes(place.own(&format!("luks extract disk out --key-file key {header}")));
                assert!(place.read("out").starts_with(&plain));
            };
            begin(&place, &format!("--encrypt --init-only {encrypt} {CHEAP}"));
            is_plain();
            let apart = header.replace("--luks-header", "--header");
            end(&place, &format!("--resume-only {apart}"));
            is_plain();
            let again = place.own(&format!("luks reencrypt disk --encrypt --key-file key {encrypt} {CHEAP}"));
            says(again, 2, "holds a LUKS header already");
            begin(&place, "--decrypt --init-only --header header");
            yes(place.own("luks extract disk out --key-file key --luks-header header"));
            assert!(place.read("out").starts_with(&plain));
            end(&place, "--resume-only --header header");
            assert!(place.read("disk").starts_with(&plain));
        }
    }
}

/// A passphrase that opens a volume whose encryption was only begun is a right one, and its last key slot is one of the data.
#[test]
fn the_key_of_an_encryption_that_was_begun_is_a_key() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    for header in ["", "--header header"] {
        let place = Place::new(CASEMATE);
        place.file("key", "pass");
        place.file("wrong", "wrong");
        place.file("disk", [Rng::new(8).bytes(4 << 20), vec![0; 4 << 20]].concat());
        let link = place.link("cryptsetup");
        let reduce = if header.is_empty() { "--reduce-device-size 4M" } else { "" };
        yes(place.own(&format!(
            "luks reencrypt disk --encrypt --init-only --key-file key {header} {reduce} {CHEAP}"
        )));
        for (program, wrong) in [(&cryptsetup, 2), (&link, 2)] {
            let test = format!("open --test-passphrase disk {header} --key-file");
            assert_eq!(casemate_testkit::status(&place.run(program, &format!("{test} key"))), 0);
            assert_eq!(casemate_testkit::status(&place.run(program, &format!("{test} wrong"))), wrong);
        }
        yes(place.own(&format!("luks test-passphrase disk --key-file key {header}")));
        says(place.own(&format!("luks test-passphrase disk --key-file wrong {header}")), 1, "does not open");
    }
}

/// Of a decryption that is done but for its header no key may be left: nothing is read then, and the header goes after a
/// question.
#[test]
fn what_is_decrypted_but_for_its_header_is_ended_after_a_question() {
    let place = volume("");
    place.file("wrong", "wrong");
    yes(place.own("luks reencrypt disk --decrypt --key-file key --luks-header header --init-only"));
    // The header as it is when all is done: without its key slot, too.
    let metadata = yes(place.own("luks dump --dump-json-metadata disk --luks-header header"));
    for has_slot in [true, false] {
        place.file("done", done(&place.read("header"), &metadata, has_slot));
        let before = (place.read("disk"), place.read("done"));
        let (with, wrong) =
            ("disk --luks-header done --key-file key", "disk --luks-header done --key-file wrong");
        let why = if has_slot { "nothing proves that" } else { "no key slot holds a key" };
        for line in ["extract", "reencrypt --resume-only"] {
            let (command, option) = line.split_once(' ').unwrap_or((line, "out"));
            let wrong = place.own(&format!("luks {command} {wrong} {option}"));
            says(wrong, 2, if command == "extract" { why } else { "use --batch-mode to confirm" });
            if !has_slot {
                let right = place.own(&format!("luks {command} {with} {option}"));
                says(right, 2, if command == "extract" { why } else { "use --batch-mode to confirm" });
            }
        }
        says(place.own(&format!("serve --luks {wrong} --write --exec true")), 2, why);
        says(place.own(&format!("serve --luks {wrong} --write --reencrypt --exec true")), 2, "");
        assert!(before == (place.read("disk"), place.read("done")) && !place.path("out").exists());
        yes(place.own(&format!("luks reencrypt {wrong} --resume-only --batch-mode")));
        assert!(place.read("disk") == before.0 && place.read("done") != before.1);
        let ended = yes(place.own("luks dump --dump-json-metadata disk --luks-header done"));
        assert!(!ended.contains("requirements") && ended.contains("linear"), "{ended}");
    }
}

/// In the middle there are two keys, and slots of either: which one is meant is said, and a slot that is named is there.
#[test]
fn in_the_middle_a_key_slot_that_is_named_is_there_and_a_key_is_named_by_its_slot() {
    let place = volume("");
    yes(place.own("luks dump-volume-key disk old --key-file key"));
    yes(place.own(&format!("luks reencrypt disk --key-file key --init-only {CHEAP}")));
    let before = place.read("disk");
    for line in ["luks extract disk out", "luks reencrypt disk --resume-only", "luks test-passphrase disk"] {
        says(place.own(&format!("{line} --key-file key --key-slot 7")), 2, "key slot 7 is not active");
    }
    assert!(!place.path("out").exists() && place.read("disk") == before);

    says(place.own("luks dump-volume-key disk key.out --key-file key"), 2, "has two keys");
    assert!(!place.path("key.out").exists());
    let keys: Vec<Vec<u8>> = (0..3)
        .filter_map(|slot| {
            let line = format!("luks dump-volume-key disk key{slot} --key-file key --key-slot {slot}");
            (place.own(&line).status.success()).then(|| place.read(format!("key{slot}")))
        })
        .collect();
    assert!(keys.len() == 2 && keys[0] != keys[1] && keys.contains(&place.read("old")));
    for slot in ["0", "1", "2"] {
        let line = format!("luks extract disk out{slot} --key-file key --key-slot {slot}");
        if place.own(&line).status.success() {
            assert!(place.read(format!("out{slot}")) == place.read("plain"), "{slot}");
        }
    }
    is_whole(&place, 3 << 20);
}

/// A header that says of a decryption that all is done.
fn done(header: &[u8], metadata: &str, has_slot: bool) -> Vec<u8> {
    let mut metadata: Value = serde_json::from_str(metadata).unwrap();
    let segments = metadata["segments"].as_object().unwrap().clone();
    let of = |flag: &str| {
        let is_it = |one: &&Value| one["flags"].to_string().contains(flag);
        segments.values().find(is_it).unwrap().clone()
    };
    let (previous, last) = (of("backup-previous"), of("backup-final"));
    let mut all = serde_json::json!({ "1": previous, "2": last, "0": last });
    all["0"].as_object_mut().unwrap().remove("flags");
    let mut crypt = vec!["1"];
    if segments.values().any(|one| one["flags"].to_string().contains("backup-moved-segment")) {
        all["3"] = of("backup-moved-segment");
        crypt.push("3");
    }
    metadata["segments"] = all;
    metadata["digests"]["0"]["segments"] = serde_json::json!(crypt);
    if !has_slot {
        metadata["keyslots"].as_object_mut().unwrap().remove("0");
        metadata["digests"]["0"]["keyslots"] = serde_json::json!([]);
    }
    let binary = BinaryHeader::from_bytes(header.first_chunk().unwrap(), Copy::Primary, 0).unwrap();
    let area = serde_json::to_vec(&metadata).unwrap();
    let copy = binary.to_bytes(Copy::Primary, &area, &Providers::default()).unwrap();
    [&copy[..], &vec![0; copy.len()], &header[2 * copy.len()..]].concat()
}

/// Files with key slots, or with the data of an image that not everybody may read, are not for everybody.
#[test]
fn files_with_secrets_are_for_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    let place = volume("");
    let mode = |name: &str| std::fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o777;
    let set = |name: &str, mode| {
        std::fs::set_permissions(place.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for (image, target) in [(0o600, 0o600), (0o640, 0o640), (0o400, 0o400), (0o660, 0o640)] {
        set("disk", image);
        let _ = std::fs::remove_file(place.path("out"));
        place.sh(&format!("umask 022; {CASEMATE} luks extract disk out --key-file key"));
        assert_eq!(mode("out"), target, "{image:o}");
    }
    set("disk", 0o644);
    for line in [
        "reencrypt disk --decrypt --luks-header h1 --key-file key",
        &format!("reencrypt plain --encrypt --luks-header h2 --key-file key {CHEAP}"),
        &format!("format disk --overwrite --luks-header h3 --key-file key {CHEAP}"),
    ] {
        place.sh(&format!("umask 022; {CASEMATE} luks {line}"));
    }
    assert_eq!(["h1", "h2", "h3"].map(mode), [0o600; 3]);
}

#[test]
fn what_can_not_be_encrypted_or_decrypted_stays_as_it_is() {
    let place = volume("");
    let (disk, plain) = (place.read("disk"), place.read("plain"));
    let encrypt = format!("luks reencrypt plain --encrypt --key-file key {CHEAP}");
    says(
        place.own(&encrypt),
        2,
        "the header needs room, at the end of the device or in a file of its own; let the data give up 33554432 bytes",
    );
    says(place.own(&format!("{encrypt} --reduce-device-size 2100000")), 2, "they must be a multiple of 8192");
    says(place.own(&format!("{encrypt} --reduce-device-size 3M")), 2, "too small");
    says(
        place.own(&format!("{encrypt} --reduce-device-size 256K")),
        2,
        "data at byte 131072: they begin at 290816",
    );
    says(place.own(&format!("{encrypt} --luks-header h -c cipher_null-ecb")), 2, "encrypts nothing");
    says(place.own(&format!("{encrypt} --luks-header h --resume-only")), 2, "nothing to go on with");
    place.file("text", "text");
    says(place.own(&format!("{encrypt} --luks-header text")), 2, "no valid LUKS header");
    says(place.own(&format!("{encrypt} --luks-header key")), 2, "this key file is what the command changes");
    let decrypt = "luks reencrypt disk --decrypt --key-file key";
    says(place.own(decrypt), 2, "needs a new file; name the file of the header (--luks-header FILE)");
    place.file("wrong", "wrong");
    says(place.own("luks reencrypt disk --decrypt --key-file wrong --luks-header h"), 2, "does not open");
    says(
        place.own(&format!("{decrypt} --luks-header h --resilience none")),
        2,
        "data that move are protected",
    );
    assert!(place.read("disk") == disk && place.read("plain") == plain && !place.path("h").exists());
}

#[test]
fn a_volume_in_the_middle_is_a_layer_that_takes_no_writes() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    casemate_testkit::mke2fs::make(&mke2fs, "-t ext4", &place.path("fs"), "8M");
    yes(place.own("ext4 mkdir fs /here"));
    yes(place.own(&format!("luks format --from fs disk --key-file key {CHEAP}")));
    yes(place.own("luks reencrypt disk --key-file key --init-only"));
    let before = place.read("disk");
    let layer = "--luks --key-file key disk";
    assert_eq!(yes(place.own(&format!("ext4 ls {layer} /"))), "here\nlost+found\n");
    says(place.own(&format!("ext4 mkdir {layer} /new")), 2, "the volume is being reencrypted");
    says(place.own(&format!("serve --write --exec true {layer}")), 2, "the volume is being reencrypted");
    yes(place.own(&format!("serve --read-only --exec true {layer}")));
    let refused = place.own(&format!("luks add-key disk --key-file key --new-key-file key {CHEAP}"));
    says(
        refused,
        2,
        "the volume is being reencrypted; finish the reencryption (casemate luks reencrypt --resume-only)",
    );
    assert!(place.read("disk") == before);
}

#[test]
fn every_slot_that_stays_needs_its_passphrase() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    let place = volume("-s 256");
    place.file("second", "second");
    yes(place.own(&format!("luks add-key disk --key-file key --new-key-file second {CHEAP}")));
    place.file("token", r#"{"type":"foo","keyslots":["1"],"kept":[1.50]}"#);
    let theirs =
        |line: &str| run(Command::new(&cryptsetup).args(line.split_whitespace()).current_dir(place.folder()));
    theirs("token import --json-file token disk");
    let before = place.read("disk");
    place.file("wrong", "wrong");
    says(place.own("luks reencrypt disk --key-file wrong"), 2, "no key slot opens with this passphrase");
    says(place.own("luks reencrypt disk --key-file key"), 2, "key slot 1 would be lost");
    says(
        place.own("luks reencrypt disk --key-file key --key-slot 7"),
        2,
        "key slot 7 is not one of the data",
    );
    assert!(place.read("disk") == before);
    // Passphrases by lines, one for each slot.
    let mut child = place.command();
    let lines = std::fs::File::open(place.file("lines", "pass\nsecond\n")).unwrap();
    yes(child.args(["luks", "reencrypt", "disk"]).stdin(lines).output().unwrap());
    is_whole(&place, 3 << 20);
    for key in ["key", "second"] {
        theirs(&format!("open --test-passphrase --key-file {key} disk"));
    }
    // What belonged to a slot belongs to the one in its place.
    let metadata = yes(place.own("luks dump --dump-json-metadata disk"));
    assert!(
        metadata.contains("1.50")
            && metadata.contains("\"3\"")
            && !metadata.contains("\"0\":{\"type\":\"luks2\"")
    );
    let after = place.read("disk");
    // Or each in a file; other commands take one.
    says(
        place.own("luks reencrypt disk --key-file key --key-file wrong"),
        2,
        "would be lost, which no passphrase",
    );
    yes(place.own("luks reencrypt disk --key-file second --key-file key --init-only"));
    yes(place.own("luks reencrypt disk --key-file second --key-file key"));
    is_whole(&place, 3 << 20);
    let twice = "--key-file key --key-file second";
    says(place.own(&format!("luks extract disk plain {twice}")), 2, "cannot be used multiple times");
    let line = format!("luks reencrypt disk --decrypt --luks-header header {twice}");
    says(place.own(&line), 2, "one passphrase is wanted here");
    assert!(!place.path("header").exists());
    for key in ["key", "second"] {
        theirs(&format!("open --test-passphrase --key-file {key} disk"));
    }
    place.file("disk", after);
    // A slot that is named stays alone.
    yes(place.own("luks reencrypt disk --key-file second --key-slot 3 --batch-mode"));
    says(place.own("luks test-passphrase disk --key-file key"), 1, "does not open");
    yes(place.own("luks extract disk out --key-file second"));
    assert!(place.read("out") == place.read("plain"));
}

#[test]
fn bad_input_is_one_line_and_changes_nothing() {
    let place = volume("");
    let before = place.read("disk");
    says(place.own("luks reencrypt disk --key-file key --hotzone-size x"), 2, "--hotzone-size");
    says(place.own("luks reencrypt disk --key-file key -c aes-ecb -s 256"), 2, "equal blocks of data");
    says(
        place.own("luks reencrypt disk --key-file key --device-size 1000 --batch-mode"),
        2,
        "the first 1000 bytes alone",
    );
    says(place.own("luks reencrypt disk --key-file key --reduce-device-size 4M"), 2, "too small");
    says(place.own("luks reencrypt disk --key-file key --init-only --resume-only"), 2, "cannot be used with");
    says(place.own("luks reencrypt none --key-file key"), 2, "none");
    says(place.own("luks reencrypt plain --key-file key"), 2, "no valid LUKS header");
    assert!(place.read("disk") == before);
    yes(place.own(&format!("luks format --type luks1 --from plain old --key-file key {CHEAP}")));
    says(place.own("luks reencrypt old --key-file key"), 2, "LUKS1 has no reencryption");
    // Somebody else has it.
    let held = std::fs::File::open(place.path("disk")).unwrap();
    held.lock().unwrap();
    says(place.own("luks reencrypt disk --key-file key"), 2, "in use by another process");
    assert!(place.read("disk") == before);
}

#[test]
fn going_on_does_what_was_begun_and_says_so() {
    let begun = "luks reencrypt disk --key-file key";
    for (begin, refused, done) in [
        (
            format!("{CHEAP} -c aes-xts-plain64 -s 512 --sector-size 512 --resilience journal --hash sha512"),
            vec![
                ("--encrypt", "a reencryption was begun here, not an encryption"),
                ("--decrypt", "a reencryption was begun here, not a decryption"),
                ("-c aes-cbc-essiv:sha256", "with the cipher aes-xts-plain64, not aes-cbc-essiv:sha256"),
                ("-s 256", "with a key of 512 bits, not 256"),
                ("--sector-size 4096", "with sectors of 512 bytes, not 4096"),
                ("--resilience checksum", "with a journal, not checksums"),
                ("--resilience-hash sha256", "with a journal, not checksums of sha256"),
                ("--hash sha256", "with the hash sha512, not sha256"),
                ("--pbkdf argon2id", "with key slots of pbkdf2, not argon2id"),
                ("--reduce-device-size 1M", "give up 0 bytes at the end, not 1048576"),
                ("--device-size 1M --batch-mode", "for all 3145728 bytes of the data, not 1048576"),
                (
                    "--resume-only --device-size 1M --batch-mode",
                    "for all 3145728 bytes of the data, not 1048576",
                ),
                ("--resume-only -s 256", "with a key of 512 bits, not 256"),
            ],
            "disk: reencrypted",
        ),
        (
            "--reduce-device-size 1M".to_owned(),
            vec![
                ("--reduce-device-size 512K", "give up 1048576 bytes at the end, not 524288"),
                ("--resilience journal", "with data that move, not a journal"),
            ],
            "disk: reencrypted",
        ),
        (
            "--decrypt --luks-header header".to_owned(),
            vec![
                ("--luks-header header", "a decryption was begun here, not a reencryption"),
                ("--luks-header header --key-size 256", "a decryption was begun here, not a reencryption"),
                ("--luks-header header --decrypt -c aes-xts-plain64", "which leads to no cipher"),
            ],
            "disk: decrypted",
        ),
    ] {
        let place = volume_with(if begin.contains("reduce") { 2 << 20 } else { 3 << 20 }, "");
        yes(place.own(&format!("{begun} --init-only {begin}")));
        let header = if begin.contains("header") { "--luks-header header" } else { "" };
        let before = (place.read("disk"), header.is_empty() || place.read("header").len() > 1);
        for (line, why) in refused {
            says(place.own(&format!("{begun} {line}")), 2, why);
        }
        assert!(before == (place.read("disk"), true));
        // The same again, and what nobody says anything of, go on.
        let again =
            format!("--verbose {begun} {}", if begin.len() % 2 == 0 { &begin } else { "--resume-only" });
        let again = if again.contains("--luks-header") { again } else { format!("{again} {header}") };
        let output = place.own(&again);
        assert!(stderr(&output).contains(done) || stdout(&output).contains(done), "{}", stderr(&output));
        yes(output);
    }
}

#[test]
fn a_part_of_the_data_is_gone_on_with_if_it_was_begun_with() {
    let place = volume("");
    let begun = "luks reencrypt disk --key-file key --batch-mode";
    yes(place.own(&format!("{begun} --init-only --device-size 1M")));
    says(place.own(&format!("{begun} --device-size 2M")), 2, "for 1048576 bytes of the data, not 2097152");
    if let Some(cryptsetup) = tool("cryptsetup") {
        // The note does not disturb others.
        run(Command::new(&cryptsetup).args(["luksDump", "disk"]).current_dir(place.folder()));
        let line = "config disk --label other";
        assert!(Command::new(&cryptsetup).args(line.split(' ')).current_dir(place.folder()).output().is_ok());
    }
    yes(place.own(&format!("{begun} --device-size 1M")));
    yes(place.own("luks extract disk out --key-file key"));
    assert!(place.read("out")[..1 << 20] == place.read("plain")[..1 << 20]);
    // What was begun for a part is gone on with for all where nothing else is said.
    let place = volume("");
    yes(place.own(&format!("{begun} --init-only --device-size 1M")));
    yes(place.own(&format!("{begun} --resume-only")));
    is_whole(&place, 3 << 20);
}

#[test]
fn a_volume_is_not_encrypted_once_more() {
    let place = volume("");
    let encrypt =
        |options: &str| place.own(&format!("luks reencrypt disk --encrypt --key-file key {CHEAP} {options}"));
    let here = ["--luks-header new", "--reduce-device-size 2M"];
    for damaged in [&[][..], &[0x2000], &[0x2000, 0x6000], &[0]] {
        for at in damaged {
            place.flip("disk", *at, 0xff);
        }
        let before = place.read("disk");
        for options in here {
            says(encrypt(options), 2, "holds a LUKS header already");
        }
        assert!(place.read("disk") == before && !place.path("new").exists());
        for at in damaged {
            place.flip("disk", *at, 0xff);
        }
    }
    is_whole(&place, 3 << 20);
    yes(place.own(&format!("luks format --type luks1 --from plain disk --overwrite --key-file key {CHEAP}")));
    says(encrypt("--luks-header new"), 2, "holds a LUKS header already");
}

#[test]
fn what_does_not_fit_is_not_cut_off() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    casemate_testkit::mke2fs::make(&mke2fs, "-t ext4", &place.path("fs"), "8M");
    let before = place.read("fs");
    let encrypt = format!("luks reencrypt fs --encrypt --key-file key {CHEAP}");
    says(
        place.own(&format!("{encrypt} --reduce-device-size 4M")),
        2,
        "ends at byte 8388608 of the data, of which 4194304",
    );
    assert!(place.read("fs") == before);
    place.file("fs", [before, vec![0; 4 << 20]].concat());
    yes(place.own(&format!("{encrypt} --reduce-device-size 4M")));
    let again = "luks reencrypt fs --key-file key --reduce-device-size 4M";
    says(place.own(again), 2, "ends at byte 8388608 of the data");
    yes(place.own("ext4 ls --luks --key-file key fs /"));
}

/// A volume whose data move gives up the end of its data, as plain data do that are encrypted.
#[test]
fn a_volume_gives_up_the_end_of_its_data_only_where_that_is_free() {
    let reduce = "luks reencrypt disk --key-file key --reduce-device-size 1M";
    let place = volume("");
    let before = place.read("disk");
    for line in [reduce.to_owned(), format!("{reduce} --batch-mode"), format!("{reduce} --init-only")] {
        says(place.own(&line), 2, "are not all zeros, and no file system shows that they are free");
    }
    assert!(place.read("disk") == before);
    // A volume in it uses all of its device.
    yes(place.own(&format!("luks format inner --size 3M --key-file key --crypt-offset 1M {CHEAP}")));
    yes(place.own(&format!("luks format --from inner disk --overwrite --key-file key {CHEAP}")));
    says(place.own(reduce), 2, "LUKS header ends at byte 3145728 of the data");
    // Behind a file system there may be noise, so somebody has to say that nothing else is there.
    let Some(mke2fs) = tool("mke2fs") else { return };
    let _ = std::fs::remove_file(place.path("plain"));
    casemate_testkit::mke2fs::make(&mke2fs, "-t ext4", &place.path("plain"), "2M");
    place.file("plain", [place.read("plain"), Rng::new(3).bytes(1 << 20)].concat());
    yes(place.own(&format!("luks format --from plain disk --overwrite --key-file key {CHEAP}")));
    let before = place.read("disk");
    says(
        place.own(reduce),
        2,
        "hold data behind the file system that would be lost; use --batch-mode to confirm",
    );
    assert!(place.read("disk") == before);
    yes(place.own(&format!("{reduce} --batch-mode")));
    is_whole(&place, 2 << 20);
}

#[test]
fn data_behind_a_file_system_are_given_up_after_a_question_alone() {
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    // A squashfs of 1 MiB by its superblock; behind it what another file system may have there.
    let mut bytes = vec![0; 8 << 20];
    bytes[..4].copy_from_slice(b"hsqs");
    bytes[28..30].copy_from_slice(&4_u16.to_le_bytes());
    bytes[40..48].copy_from_slice(&(1_u64 << 20).to_le_bytes());
    bytes[(6 << 20) + 7] = 1;
    place.file("disk", &bytes);
    let encrypt = format!("luks reencrypt disk --encrypt --key-file key {CHEAP} --reduce-device-size 4M");
    says(
        place.own(&encrypt),
        2,
        "hold data behind the file system that would be lost; use --batch-mode to confirm",
    );
    assert!(place.read("disk") == bytes);
    yes(place.own(&format!("{encrypt} --batch-mode")));
    yes(place.own("luks extract disk out --key-file key"));
    assert!(place.read("out")[..4 << 20] == bytes[..4 << 20]);
    // A size that no file system has shows nothing.
    bytes[40..48].copy_from_slice(&[0; 8]);
    place.file("disk", &bytes);
    says(place.own(&format!("{encrypt} --batch-mode")), 2, "are not all zeros, and no file system shows");
    // Partitions count beside a file system.
    bytes[40..48].copy_from_slice(&(1_u64 << 20).to_le_bytes());
    bytes[6 << 20..].fill(0);
    bytes[450] = 0x83;
    bytes[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    bytes[458..462].copy_from_slice(&12288_u32.to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    place.file("disk", &bytes);
    says(place.own(&format!("{encrypt} --batch-mode")), 2, "partition 1 ends at byte 7340032 of the data");
    assert!(place.read("disk") == bytes);
}

/// A volume in `disk` whose encryption was killed in its last step: what was moved is still there.
fn cut_off_in_its_last_step(place: &Place, strace: &Path, plain: &[u8]) {
    place.file("key", "pass");
    let encrypt = format!("luks reencrypt disk --encrypt --reduce-device-size 2M --key-file key {CHEAP}");
    let start = [plain, &vec![0; 2 << 20]].concat();
    let run = |options: &[&str]| {
        place.file("disk", &start);
        let mut traced = Command::new(strace);
        traced.args(["-f", "-qq", "-o", "log"]).args(options).arg(CASEMATE).args(encrypt.split(' '));
        run_any(traced.current_dir(place.folder()))
    };
    run(&["-e", "trace=pwrite64"]);
    let writes = place.read("log").iter().filter(|byte| **byte == b'\n').count();
    for at in (1..=writes).rev() {
        run(&["-e", "trace=pwrite64", "-e", &format!("inject=pwrite64:signal=KILL:when={at}")]);
        // The end is wiped last.
        let is_there = place.read("disk").windows(64).any(|bytes| bytes == &plain[plain.len() - 64..]);
        let repair = place.own("luks repair disk --batch-mode");
        if is_there && stderr(&repair).contains("still to be wiped") {
            return;
        }
    }
    panic!("never cut off in its last step");
}

#[test]
fn nothing_forgets_what_the_last_step_has_still_to_wipe() {
    let Some(strace) = tool("strace") else { return };
    let place = Place::new(CASEMATE);
    let plain = Rng::new(8).bytes(1 << 20);
    cut_off_in_its_last_step(&place, &strace, &plain);
    place.file("new", "other");
    let state = place.read("disk");
    let has_plain =
        |place: &Place| place.read("disk").windows(64).any(|bytes| bytes == &plain[plain.len() - 64..]);
    for line in [
        "luks config disk --label x".to_owned(),
        format!("luks add-key disk --key-file key --new-key-file new {CHEAP}"),
        format!("luks change-key disk --key-file key --new-key-file new {CHEAP}"),
        format!("luks convert-key disk --key-file key {CHEAP}"),
        "luks token add disk --key-description x".to_owned(),
        "luks convert disk --type luks1 --batch-mode".to_owned(),
    ] {
        says(place.own(&line), 2, "");
        assert!(place.read("disk") == state, "{line}");
    }
    // A backup of this state says so, and nothing takes the state's place.
    says(
        place.own("luks header-backup disk ending"),
        0,
        "is not finished, and the backup has its present state",
    );
    says(place.own("luks header-restore disk ending --batch-mode"), 2, "--resume-only");
    assert!(place.read("disk") == state);
    says(place.own("serve -w --reencrypt disk,luks,key-file=key --exec true"), 2, "--resume-only");
    // It is read, and takes no writes that the wiping would destroy.
    yes(place.own("luks extract disk out --key-file key"));
    assert!(place.read("out")[..1 << 20] == plain);
    says(place.own("integrity format disk,luks,key-file=key --overwrite"), 2, "--resume-only");
    assert!(place.read("disk") == state);
    // Nor on a device that has lost its end, where the work can't go on.
    place.file("disk", &state[..state.len() - (64 << 10)]);
    says(place.own("integrity format disk,luks,key-file=key --overwrite"), 2, "--resume-only");
    says(place.own("luks config disk --label x"), 2, "--resume-only");
    let resume = "luks reencrypt disk --resume-only --key-file key";
    says(place.own(resume), 2, "was begun with 1048576 bytes of data, and there are");
    yes(place.own("luks erase disk --batch-mode"));
    assert!(!has_plain(&place));
    place.file("disk", &state);
    // Who destroys all keys destroys that as well.
    yes(place.own("luks erase disk --batch-mode"));
    assert!(!has_plain(&place));
    place.file("disk", &state);
    yes(place.own("luks reencrypt disk --resume-only --key-file key"));
    assert!(!has_plain(&place));
    says(
        place.own("luks header-restore disk ending"),
        2,
        "the backup is of a reencryption that was not finished",
    );
    yes(place.own("luks config disk --label x"));
    // For cryptsetup the volume is done, and a reencryption begins another one.
    place.file("disk", &state);
    let key = |to: &str| {
        yes(place.own(&format!("luks dump-volume-key disk {to} --key-file key")));
        place.read(to)
    };
    let before = key("before");
    std::os::unix::fs::symlink(CASEMATE, place.path("cryptsetup")).unwrap();
    let link = place.run(
        place.path("cryptsetup"),
        "reencrypt -q disk --key-file key --pbkdf-force-iterations 1000 --pbkdf pbkdf2",
    );
    assert!(link.status.success(), "{}", stderr(&link));
    assert!(key("after") != before && !has_plain(&place));
    yes(place.own("luks extract disk again --key-file key"));
    assert!(place.read("again")[..1 << 20] == plain);
}

#[test]
fn what_lies_before_the_data_stays_as_it_is() {
    let plain = Rng::new(3).bytes(3 << 20);
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    place.file("disk", &plain);
    let encrypt = format!("luks reencrypt disk --encrypt --key-file key {CHEAP}");
    says(place.own(&format!("{encrypt} --luks-header h --crypt-offset 1000B")), 2, "a multiple of 4096");
    for option in ["--crypt-offset", "--offset"] {
        says(place.own(&format!("{encrypt} --luks-header h {option} 2048")), 2, "it needs a unit: 2048s");
    }
    yes(place.own(&format!("{encrypt} --luks-header h --crypt-offset 1M")));
    let disk = place.read("disk");
    assert!(disk[..1 << 20] == plain[..1 << 20] && disk[1 << 20..] != plain[1 << 20..]);
    yes(place.own("luks extract disk out --luks-header h --key-file key"));
    assert!(place.read("out") == plain[1 << 20..]);
    // With a header before the data it is the room for that.
    place.file("disk", [&plain[..], &vec![0; 4 << 20]].concat());
    says(
        place.own(&format!("{encrypt} --reduce-device-size 4M --crypt-offset 3M")),
        2,
        "half as much at the most",
    );
    yes(place.own(&format!("{encrypt} --reduce-device-size 4M --crypt-offset 1M")));
    assert!(yes(place.own("luks dump disk")).contains("offset: 1048576"));
    yes(place.own("luks extract disk out --key-file key"));
    assert!(place.read("out")[..plain.len()] == plain);
    if let Some(cryptsetup) = tool("cryptsetup") {
        let theirs = place.run(cryptsetup, "open --test-passphrase --key-file key disk");
        assert!(theirs.status.success());
    }
    says(place.own("luks reencrypt disk --key-file key --crypt-offset 2M"), 2, "--encrypt");
}

#[test]
fn options_without_an_effect_are_refused() {
    let place = volume("");
    place.file("policy", "version 2");
    place.file("image", place.read("plain"));
    let encrypt = format!("luks reencrypt image --encrypt --luks-header h --key-file key {CHEAP}");
    let decrypt = "luks reencrypt disk --decrypt --luks-header h --key-file key";
    for (line, why) in [
        (format!("{encrypt} --key-slot 3"), "--key-slot: there is no volume yet"),
        (format!("{encrypt} --luks-policy policy"), "--luks-policy: there is no volume yet"),
        (format!("{decrypt} -c aes-xts-plain64"), "no use for a cipher"),
        (format!("{decrypt} -s 512"), "no use for a size of the key"),
        (format!("{decrypt} --sector-size 4096"), "no use for a size of sectors"),
        (format!("{decrypt} --pbkdf pbkdf2"), "no use for a KDF"),
        (format!("{decrypt} --reduce-device-size 1M"), "no use for bytes that are given up"),
        (
            "luks reencrypt disk --key-file key --reduce-device-size 1M --resilience journal".into(),
            "name no protection",
        ),
        (
            "luks reencrypt disk --key-file key --resilience journal --resilience-hash sha1".into(),
            "without them",
        ),
    ] {
        says(place.own(&line), 2, why);
    }
    assert!(!place.path("h").exists());
    is_whole(&place, 3 << 20);
}

/// Where a data unit depends on all of itself, a torn one can't be told from its checksum.
#[test]
fn wide_modes_get_a_journal() {
    for (cipher, kind) in [
        ("aes-xts-plain64 -s 512", "checksum"),
        ("aes-cbc-essiv:sha256 -s 256", "checksum"),
        ("aes-cbc-elephant -s 512", "journal"),
        ("xchacha12,aes-adiantum-plain64 -s 256", "journal"),
    ] {
        let place = volume("");
        yes(place
            .own(&format!("luks reencrypt disk --key-file key --init-only --sector-size 4096 -c {cipher}")));
        let metadata = yes(place.own("luks dump --dump-json-metadata disk"));
        assert!(metadata.contains(&format!("\"type\":\"{kind}\"")), "{cipher}: {metadata}");
    }
}

#[test]
fn a_backup_in_the_middle_of_a_reencryption_is_told() {
    let place = volume("");
    assert_eq!(stderr(&place.own("luks header-backup disk before")), "");
    yes(place.own("luks reencrypt disk --key-file key --init-only"));
    says(place.own("luks header-backup disk between"), 0, "a reencryption is not finished");
}

/// Data that are fewer than the room of their header are moved as a whole.
#[test]
fn less_data_than_the_header_has_room_for_are_encrypted() {
    let place = Place::new(CASEMATE);
    let plain = Rng::new(12).bytes(512 << 10);
    place.file("key", "pass");
    place.file("disk", [&plain[..], &vec![0; 4 << 20]].concat());
    let encrypt = format!("luks reencrypt disk --encrypt --reduce-device-size 4M --key-file key {CHEAP}");
    yes(place.own(&format!("{encrypt} --init-only")));
    for line in ["luks extract disk out --key-file key", &encrypt, "luks extract disk out --key-file key"] {
        yes(place.own(line));
        assert!(!line.contains("extract") || place.read("out")[..plain.len()] == plain);
    }
}

/// An offset reaches to the disk's end: where it is a partition's start, those behind it would change too.
#[test]
fn an_offset_that_is_a_partition_s_start_is_no_place_for_a_volume() {
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    place.file("plain", Rng::new(3).bytes(1 << 20));
    let mut disk = vec![0; 8 << 20];
    for (k, (start, len)) in [(2048u32, 8192u32), (10240, 2048)].into_iter().enumerate() {
        let entry = &mut disk[446 + 16 * k..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..16].copy_from_slice(&len.to_le_bytes());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    place.file("disk", disk);
    let own = |line: &str| place.own(&format!("luks {line} --key-file key {CHEAP}"));
    says(own("format disk --offset 1M --crypt-offset 1M"), 2, "partition 1 begins at offset 1048576");
    yes(own("format disk --partition 1 --crypt-offset 1M"));
    let before = place.read("disk");
    for line in [
        "reencrypt disk --offset 1M",
        "reencrypt disk --offset 1M --init-only",
        "reencrypt disk --offset 1M --resume-only",
        "reencrypt disk --offset 1M --decrypt --luks-header head",
        "reencrypt disk --offset 5M --encrypt --luks-header head",
        "reencrypt disk --offset 5M --encrypt --reduce-device-size 512K",
        "reencrypt disk --encrypt --luks-header head --crypt-offset 5M",
        "format disk --offset 5M --overwrite --crypt-offset 64K --from plain",
    ] {
        let number = if line.contains("5M") { 2 } else { 1 };
        says(own(line), 2, &format!("give partition {number} alone (--partition {number})"));
        assert!(place.read("disk") == before, "{line}");
    }
    for line in [
        "integrity format disk --offset 5M --overwrite",
        "integrity format disk --offset 5M --overwrite --from plain",
        "crypt encrypt --in-place disk --crypt-offset 5M --key-file long --key-size 512",
    ] {
        place.file("long", Rng::new(5).bytes(64));
        says(place.own(line), 2, "give partition 2 alone (--partition 2)");
        assert!(place.read("disk") == before, "{line}");
    }
    // A partition of a file is asked about before a hash area goes there.
    let noise = Rng::new(4).bytes(1 << 20);
    let mut filled = before.clone();
    filled[5 << 20..6 << 20].copy_from_slice(&noise);
    place.file("filled", filled.clone());
    says(place.own("verity format plain filled --hash-partition 2"), 2, "data of no known kind");
    says(
        place.own("verity format filled filled --partition 1 --hash-partition 2"),
        2,
        "data of no known kind",
    );
    assert!(place.read("filled") == filled);
    yes(own("reencrypt disk --partition 1"));
    assert!(place.read("disk")[5 << 20..] == before[5 << 20..]);
}
