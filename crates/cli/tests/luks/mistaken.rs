//! Headers beside data that visibly are not theirs.

use casemate_testkit::{Place, Rng, stderr};

use crate::{CASEMATE, says, yes};

const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

/// A folder with a passphrase, 2 MiB of plain data, and a detached header for them with the encrypted data.
fn place() -> Place {
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    let mut plain = Rng::new(21).bytes(2 << 20);
    // The superblock of ext4, as far as it is known by.
    plain[1024..2048].fill(0);
    plain[1080..1082].copy_from_slice(&[0x53, 0xef]);
    plain[1100] = 1;
    place.file("plain", plain);
    yes(place.own(&format!("luks format --from plain data --luks-header header --key-file key {CHEAP}")));
    place
}

/// Runs a command, which must refuse, on a copy of a device, with a copy of a header; nothing of both changes.
fn is_refused(place: &Place, line: &str, device: &str, header: &str, why: &str) {
    let before = (place.read(device), place.read(header));
    place.file("copy", before.0.clone());
    place.file("copy.header", before.1.clone());
    let output = place.own(&format!("{line} copy --luks-header copy.header --key-file key"));
    assert!(place.read("copy") == before.0, "{line} on {device}: {}", stderr(&output));
    assert!(place.read("copy.header") == before.1, "{line} on {device}");
    says(output, 2, why);
}

#[test]
fn a_detached_header_changes_no_device_that_is_something_else() {
    let place = place();
    yes(place.own(&format!("luks format --from plain vol --crypt-offset 2M --key-file key {CHEAP}")));
    for (device, what) in [("vol", "a LUKS header"), ("plain", "an ext2, ext3 or ext4 file system")] {
        let why = format!("where the encrypted data of the detached header should be, lies {what}");
        for line in [
            format!("luks reencrypt {CHEAP}"),
            "luks reencrypt --init-only".to_owned(),
            "luks reencrypt --decrypt".to_owned(),
            "serve --write --luks --exec true".to_owned(),
        ] {
            is_refused(&place, &line, device, "header", &why);
        }
    }
    // Whatever is only read is seen to be noise, and what is meant can be done.
    yes(place.own("luks extract plain noise --luks-header header --key-file key"));
    place.file("copy", place.read("plain"));
    yes(place
        .own("serve --write --luks --luks-overwrite --exec true copy --luks-header header --key-file key"));
    yes(place
        .own(&format!("luks reencrypt copy --luks-header header --luks-overwrite --key-file key {CHEAP}")));
}

#[test]
fn data_are_decrypted_once() {
    let place = place();
    place.file("saved", place.read("header"));
    yes(place.own("luks reencrypt --decrypt data --luks-header header --key-file key"));
    assert!(place.read("data") == place.read("plain"));
    let why = "or the data are decrypted already";
    is_refused(&place, "luks reencrypt --decrypt", "data", "saved", why);
}

#[test]
fn work_on_one_device_does_not_go_on_with_another() {
    let place = place();
    // Of a reencryption and a decryption that were begun the beginning is ciphertext.
    for begun in
        [format!("luks reencrypt --init-only {CHEAP}"), "luks reencrypt --decrypt --init-only".to_owned()]
    {
        place.file("begun", place.read("header"));
        yes(place.own(&format!("{begun} data --luks-header begun --key-file key")));
        let resume = "luks reencrypt --resume-only";
        is_refused(&place, resume, "plain", "begun", "an ext2, ext3 or ext4 file system");
        yes(place.own("luks extract data out --overwrite --luks-header begun --key-file key"));
        assert!(place.read("out") == place.read("plain"));
    }
    // Of an encryption it is plain, and may be a file system; but no volume is encrypted in place.
    yes(place.own(&format!("luks format --from plain vol --crypt-offset 2M --key-file key {CHEAP}")));
    yes(place.own(&format!(
        "luks reencrypt --encrypt --init-only plain --luks-header new --key-file key {CHEAP}"
    )));
    is_refused(&place, "luks reencrypt --resume-only", "vol", "new", "a LUKS header");
    let plain = place.read("plain");
    yes(place.own("luks reencrypt --resume-only plain --luks-header new --key-file key"));
    yes(place.own("luks extract plain out --overwrite --luks-header new --key-file key"));
    assert!(place.read("out") == plain);
    yes(place.own("luks reencrypt --decrypt plain --luks-header new --key-file key"));
    assert!(place.read("plain") == plain);
}

#[test]
fn a_header_backup_does_not_make_the_volumes_own_header_a_stale_one() {
    let place = place();
    yes(place.own(&format!("luks format --from plain vol --crypt-offset 2M --key-file key {CHEAP}")));
    yes(place.own("luks header-backup vol backup"));
    let why = "begins with a LUKS header of the same UUID";
    is_refused(&place, &format!("luks reencrypt {CHEAP}"), "vol", "backup", why);
    // It has the same key, so what is written by it is read without it.
    yes(place.own("serve --write --luks --exec true vol --luks-header backup --key-file key"));
    // Where the own header is damaged the backup takes its place.
    place.file("damaged", [vec![0; 2 << 20], place.read("vol")[2 << 20..].to_vec()].concat());
    place.file("copy.header", place.read("backup"));
    yes(place.own(&format!("luks reencrypt damaged --luks-header copy.header --key-file key {CHEAP}")));
    yes(place.own("luks extract damaged out --luks-header copy.header --key-file key"));
    assert!(place.read("out") == place.read("plain"));
    yes(place.own(&format!("luks reencrypt vol --key-file key {CHEAP}")));
    is_refused(&place, "serve --write --luks --exec true", "vol", "backup", why);
    // Behind another volume's header nothing is of this one.
    yes(place.own(&format!("luks format --from plain other --crypt-offset 2M --key-file key {CHEAP}")));
    let why = "begins with a LUKS header of another volume";
    is_refused(&place, "serve --write --luks --exec true", "other", "backup", why);
}

#[test]
fn a_volume_in_cryptsetups_reencryption_is_seen_to_be_one() {
    let place = place();
    yes(place.own(&format!("luks format --type luks1 --from plain old --key-file key {CHEAP}")));
    let mut old = place.read("old");
    old[4..6].copy_from_slice(&[0xde, 0xad]);
    place.file("old", old.clone());
    let known = yes(place.own("info old"));
    assert!(known.contains("a LUKS1 header that cryptsetup was reencrypting"), "{known}");
    for (line, why) in [
        (format!("luks format --from plain old {CHEAP}"), "use --overwrite to destroy it"),
        (format!("luks reencrypt --encrypt --luks-header new old {CHEAP}"), "holds a LUKS header already"),
        ("luks extract data old --luks-header header".to_owned(), "use --overwrite to destroy it"),
    ] {
        says(place.own(&format!("{line} --key-file key")), 2, why);
        assert!(place.read("old") == old);
    }
}
