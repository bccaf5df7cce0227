//! Losses are asked about, and volumes that are made are opened.

use std::process::Command;

use casemate_testkit::{Place, Rng, run, status, stderr, tool};

use crate::{CASEMATE, says, yes};

const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

fn place() -> Place {
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    place.file("plain", Rng::new(22).bytes(1 << 20));
    place
}

#[test]
fn what_is_written_is_opened_whatever_its_hash() {
    let place = place();
    let opens = |line: &str| {
        yes(place.own(&format!("luks extract {line} out --overwrite --key-file key")));
        assert!(place.read("out") == place.read("plain"), "{line}");
    };
    for hash in ["md5", "blake2s-128", "sha1", "sha512"] {
        yes(place
            .own(&format!("luks format --overwrite --from plain vol --hash {hash} {CHEAP} --key-file key")));
        opens("vol");
        yes(place
            .own(&format!("luks change-key vol --hash {hash} {CHEAP} --key-file key --new-key-file key")));
        opens("vol");
        yes(place.own(&format!("luks format --overwrite --from plain vol {CHEAP} --key-file key")));
        yes(place.own(&format!("luks reencrypt vol --hash {hash} --init-only {CHEAP} --key-file key")));
        opens("vol");
        yes(place.own(&format!("luks reencrypt vol --hash {hash} --resume-only --key-file key")));
        opens("vol");
        place.file("data", place.read("plain"));
        let encrypt = "luks reencrypt --encrypt data --key-file key --luks-header";
        yes(place.own(&format!("{encrypt} {hash} --hash {hash} {CHEAP}")));
        opens(&format!("data --luks-header {hash}"));
        // Digests of LUKS1 have 20 bytes, and cryptsetup opens no header with a hash that makes fewer.
        let line = format!(
            "luks format --type luks1 --overwrite --from plain one --hash {hash} {CHEAP} --key-file key"
        );
        match hash {
            "md5" | "blake2s-128" => {
                says(place.own(&line), 2, "has digests of 16 bytes, and 20 are needed");
                assert!(!place.path("one").exists());
            }
            _ => {
                yes(place.own(&line));
                opens("one");
            }
        }
    }
    yes(place.own(&format!(
        "luks format --overwrite --from plain vol --hash md5 -c aes-cbc-essiv:sha256 {CHEAP} --key-file key"
    )));
    says(place.own("luks convert vol --type luks1 --batch-mode"), 2, "the digests of md5 are too short");
    let null = "--keyslot-cipher cipher_null-ecb --keyslot-key-size 256";
    says(
        place.own(&format!("luks add-key vol --key-file key --new-key-file key {null} {CHEAP}")),
        2,
        "hides nothing",
    );
    if let Some(cryptsetup) = tool("cryptsetup") {
        place.file("theirs", vec![0; 20 << 20]);
        let line = format!("luksFormat -q -h md5 {CHEAP} theirs key");
        run(Command::new(cryptsetup).args(line.split_whitespace()).current_dir(place.folder()));
        yes(place.own("luks test-passphrase theirs --key-file key"));
    }
}

#[test]
fn a_key_slot_that_costs_more_than_is_granted_says_what_opens_it() {
    let place = place();
    let costly = "--pbkdf argon2id --pbkdf-memory 1025M --pbkdf-force-iterations 4 --pbkdf-parallel 4";
    let output = place.own(&format!("luks format --from plain vol {costly} --key-file key"));
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("--kdf-limit 2 opens it"), "{}", stderr(&output));
    says(place.own("luks test-passphrase vol --key-file key"), 2, "are granted");
    // cryptsetup grants as much, and so does its command line here.
    let link = place.link("cryptsetup");
    assert_eq!(status(&place.run(&link, "open --test-passphrase vol --key-file key")), 0);
}

#[test]
fn a_part_of_the_data_is_lost_after_a_question_alone() {
    let place = place();
    yes(place.own(&format!("luks reencrypt --encrypt plain --luks-header header {CHEAP} --key-file key")));
    yes(place.own(&format!("luks format --from plain vol {CHEAP} --key-file key")));
    place.file("fresh", Rng::new(3).bytes(1 << 20));
    for (line, asked, done) in [
        (
            format!("luks reencrypt vol {CHEAP}"),
            "the first 524288 bytes alone; the other 524288 stay as they are, and can never be read",
            "reencrypted the first 524288 bytes alone",
        ),
        (
            "luks reencrypt --decrypt plain --luks-header header".to_owned(),
            "the other 524288 stay encrypted, and can never be read again",
            "decrypted the first 524288 bytes alone",
        ),
        (
            format!("luks reencrypt --encrypt fresh --luks-header new {CHEAP}"),
            "the other 524288 stay in plain text",
            "encrypted the first 524288 bytes alone",
        ),
    ] {
        let device = line.split(' ').find(|word| ["vol", "plain", "fresh"].contains(word)).unwrap();
        let before = place.read(device);
        let line = format!("{line} --key-file key --device-size 512K");
        says(place.own(&line), 2, asked);
        assert!(place.read(device) == before, "{line}");
        says(place.own(&format!("{line} --batch-mode --verbose")), 0, done);
    }
}

#[test]
fn passphrases_are_dropped_after_a_question_alone() {
    let place = place();
    place.file("second", "second");
    yes(place.own(&format!("luks format --from plain vol {CHEAP} --key-file key")));
    yes(place.own(&format!("luks add-key vol {CHEAP} --key-file key --new-key-file second")));
    let line = format!("luks reencrypt vol --key-file key --key-slot 0 {CHEAP}");
    says(place.own(&line), 2, "only the passphrase of key slot 0 stays; key slot 1 would be removed");
    yes(place.own("luks test-passphrase vol --key-file second"));
    yes(place.own(&format!("{line} --batch-mode")));
    says(place.own("luks test-passphrase vol --key-file second"), 1, "does not open");
}

#[test]
fn a_passphrase_is_not_called_wrong_while_a_key_slot_was_not_tried() {
    let place = place();
    yes(place.own(&format!("luks format --from plain vol {CHEAP} --key-file key")));
    for k in 1..9 {
        place.file(format!("key{k}"), format!("another {k}"));
        yes(place.own(&format!("luks add-key vol {CHEAP} --key-file key --new-key-file key{k}")));
    }
    says(place.own("luks test-passphrase vol --key-file key8"), 2, "key slot 8 was not tried");
    yes(place.own("luks test-passphrase vol --key-file key8 --kdf-limit 2"));
    says(place.own("luks test-passphrase vol --key-file plain --kdf-limit 2"), 1, "no key slot opens");
    // cryptsetup tries all of them, and so does its command line here.
    let link = place.link("cryptsetup");
    assert_eq!(status(&place.run(&link, "open --test-passphrase vol --key-file key8")), 0);
    assert_eq!(status(&place.run(&link, "open --test-passphrase vol --key-file plain")), 2);
}

#[test]
fn a_cipher_of_luks1_has_a_mode() {
    let place = place();
    yes(place.own(&format!("luks format --type luks1 -c aes --from plain vol {CHEAP} --key-file key")));
    assert!(place.read("vol")[40..50] == *b"cbc-plain\0");
    yes(place.own("luks extract vol out --key-file key"));
    assert!(place.read("out") == place.read("plain"));
}

#[test]
fn a_repair_of_luks1_tells_of_damage_that_it_does_not_mend() {
    let place = place();
    yes(place.own(&format!("luks format --type luks1 --from plain vol {CHEAP} --key-file key")));
    let sound = place.read("vol");
    yes(place.own("luks repair vol --batch-mode"));
    for (at, byte, why) in [(104, 0x51, "behind the device's end"), (9, b'd', "ads")] {
        let mut damaged = sound.clone();
        damaged[at] = byte;
        place.file("vol", damaged);
        says(place.own("luks repair vol --batch-mode"), 2, why);
    }
}

/// cryptsetup opens no volume without room for data either.
#[test]
fn a_volume_that_is_cut_off_to_its_header_is_not_an_empty_one() {
    let place = place();
    for kind in ["luks1", "luks2"] {
        yes(place
            .own(&format!("luks format --type {kind} --from plain vol --overwrite {CHEAP} --key-file key")));
        let whole = place.read("vol");
        place.file("vol", &whole[..whole.len() - (1 << 20)]);
        says(place.own("luks extract vol out --key-file key"), 2, "has no data");
        assert!(!place.path("out").exists(), "{kind}");
        says(place.own("serve vol,luks,key-file=key -r --exec true"), 2, "has no data");
    }
}
