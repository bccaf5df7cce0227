//! Headers of one version that become those of the other, and headers that lie apart.

use std::fs;
use std::os::unix::fs::FileExt;

use casemate_testkit::{Place, Rng, run, tool};

use crate::twins::{CHEAP, Twins};
use crate::{CASEMATE, says, yes};

const LUKS1: &str = "--type luks1 -c aes-xts-plain64 -s 512";

#[test]
fn volumes_become_the_other_version_and_back() {
    for (options, slots) in [
        (LUKS1, &[][..]),
        // The first slot is free, others are not; and with the fewest that can be.
        ("--type luks1 -c aes-cbc-essiv:sha256 -s 256 --hash sha512", &[3, 7]),
        (LUKS1, &[2, 3, 4, 5]),
        // Nothing but one of the last two is free.
        (LUKS1, &[2, 3, 4, 5, 6]),
        ("--type luks1 -c aes-cbc-plain64 -s 128 --offset 2048", &[2, 3, 4, 5, 6, 7]),
    ] {
        let Some(twins) = Twins::new(options) else { return };
        for slot in slots {
            twins.theirs(&format!("luksAddKey -q {CHEAP} --key-file one theirs three -S {slot}"));
        }
        if slots == [3, 7] {
            twins.theirs("luksKillSlot -q theirs 0");
        }
        twins.level();
        yes(twins.place.own("luks extract ours plain --key-file two"));
        let opens = |what: &str| {
            let keys: &[&str] = if slots.is_empty() { &["one", "two"] } else { &["two", "three"] };
            for key in keys {
                twins.theirs(&format!("open --test-passphrase --key-file {key} ours"));
            }
            yes(twins.place.own("luks extract ours out --key-file two"));
            assert!(twins.place.read("out") == twins.place.read("plain"), "{options} {what}");
        };
        let uuid = twins.ours("uuid ours");
        twins.ours("convert ours --type luks2 --batch-mode");
        opens("LUKS2");
        assert_eq!(twins.ours("uuid ours"), uuid);
        twins.theirs("convert -q --type luks2 theirs");
        // Only where the slots lie is another choice.
        let said = |file: &str| {
            let dump = twins.theirs(&format!("luksDump {file}"));
            let is_same = |line: &&str| !line.starts_with("Epoch:") && !line.contains("Area offset:");
            dump.lines().filter(is_same).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(said("ours"), said("theirs"), "{options}");
        twins.ours("test-passphrase theirs --key-file two");
        // Back, ours by cryptsetup and theirs by us.
        let converted = twins.place.read("ours");
        twins.ours("convert ours --type luks1 --batch-mode");
        opens("LUKS1 again");
        twins.ours("convert theirs --type luks1 --batch-mode");
        twins.theirs("open --test-passphrase --key-file two theirs");
        twins.place.file("ours", converted);
        // With fewer it can bring all of them to where it wants them.
        if slots.len() < 4 {
            twins.theirs("convert -q --type luks1 ours");
            opens("LUKS1 by cryptsetup");
        }
        // And it goes on as any other.
        if slots.len() < 6 {
            twins.ours(&format!("add-key theirs --key-file two --new-key-file one {CHEAP}"));
            twins.theirs("open --test-passphrase --key-file one theirs");
        }
    }
}

#[test]
fn what_can_not_be_converted_stays() {
    let refused = |twins: &Twins, kind: &str, why: &str| {
        twins.level();
        twins.refused(&format!("convert ours --type {kind} --batch-mode"), why);
        assert_ne!(twins.status(&format!("convert -q --type {kind} theirs")), 0, "{why}");
        twins.level();
    };
    let Some(twins) = Twins::new("--type luks2 --sector-size 512") else { return };
    refused(&twins, "luks2", "it is LUKS2 already");
    let sound = twins.place.read("theirs");
    for (lines, why) in [
        (vec!["token add --key-description x theirs"], "it has token 0, of type 'luks2-keyring'"),
        (vec!["luksAddKey -q --key-file one theirs three -S 8"], "it has key slot 8"),
        (vec!["luksAddKey -q --unbound --key-size 512 theirs three"], "2 digests"),
        (
            vec![
                "luksConvertKey -q --key-file one --pbkdf argon2id --pbkdf-force-iterations 4 --pbkdf-memory 64 theirs",
            ],
            "key slot 0 has no PBKDF2, which convert-key gives it",
        ),
        (
            vec!["luksConvertKey -q --key-file one --hash sha512 theirs"],
            "key slot 0 has another hash or cipher",
        ),
        (
            vec![
                "luksConvertKey -q --key-file one --keyslot-cipher aes-cbc-plain64 --keyslot-key-size 256 theirs",
            ],
            "key slot 0 has another hash or cipher",
        ),
    ] {
        twins.place.file("theirs", &sound);
        for line in lines {
            let cheap = if line.contains("--pbkdf-force") || line.contains("token") { "" } else { CHEAP };
            twins.theirs(&format!("{line} {cheap}"));
        }
        refused(&twins, "luks1", why);
    }
    let Some(twins) = Twins::new("--type luks2 --sector-size 4096") else { return };
    refused(&twins, "luks1", "its sectors have 4096 bytes");
    // Larger copies of a header do not matter.
    let Some(twins) = Twins::new("--type luks2 --sector-size 512 --luks2-metadata-size 32k") else { return };
    twins.ours("convert ours --type luks1 --batch-mode");
    twins.theirs("open --test-passphrase --key-file one ours");
    let Some(twins) = Twins::new(LUKS1) else { return };
    refused(&twins, "luks1", "it is LUKS1 already");
    let file = fs::File::options().write(true).open(twins.place.path("theirs")).unwrap();
    file.write_all_at(b"LUKSMETA", 4096 + 8 * 258_048).unwrap();
    refused(&twins, "luks2", "luksmeta");
    file.write_all_at(&[0; 8], 4096 + 8 * 258_048).unwrap();
    twins.level();
    twins.refused("convert ours --type luks2", "use --batch-mode to confirm");
    // cryptsetup would move all slots at once, and lose all of them where it is cut off.
    for slot in 2..8 {
        twins.theirs(&format!("luksAddKey -q {CHEAP} --key-file one theirs three -S {slot}"));
    }
    twins.level();
    twins.refused("convert ours --type luks2 --batch-mode", "all key slots hold keys");
}

#[test]
fn headers_that_lie_apart_are_made() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    let place = Place::new(CASEMATE);
    place.file("key", "secret");
    place.file("plain", Rng::new(3).bytes(1 << 20));
    let theirs = |line: &str| {
        run(std::process::Command::new(&cryptsetup).args(line.split_whitespace()).current_dir(place.folder()))
    };
    for options in ["--type luks1", "", "--crypt-offset 1M", "--type luks1 --crypt-offset 4M"] {
        let apart = format!("--luks-header header --key-file key {options} {CHEAP}");
        yes(place.own(&format!("luks format --from plain disk {apart}")));
        let offset = if options.contains("4M") {
            4 << 20
        } else if options.contains("1M") {
            1 << 20
        } else {
            0
        };
        assert_eq!(place.read("disk").len(), offset + (1 << 20), "{options}");
        theirs("open --test-passphrase --key-file key --header header disk");
        assert_eq!(yes(place.own("luks dump header")), theirs("luksDump header"));
        yes(place.own("luks extract disk out --luks-header header --key-file key"));
        assert!(place.read("out") == place.read("plain"), "{options}");
        // A stream is the same; the header's name is there when its end is written.
        let bytes = fs::File::open(place.path("plain")).unwrap();
        let mut command = place.command();
        command.args(format!("luks format --from - - {apart} --overwrite").split_whitespace());
        let output = command.stdin(std::process::Stdio::from(bytes)).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        place.file("disk", &output.stdout);
        yes(place.own("luks extract disk out --luks-header header --key-file key"));
        assert!(place.read("out") == place.read("plain"), "{options}, as a stream");
        // Data that are there stay as they are.
        yes(place.own(&format!("luks format disk {apart} --overwrite")));
        assert!(place.read("disk") == output.stdout);
        says(
            place.own(&format!("luks format disk {apart}")),
            2,
            "contains a LUKS header; use --overwrite to destroy it",
        );
        for name in ["header", "disk"] {
            fs::remove_file(place.path(name)).unwrap();
        }
    }
    let apart = format!("--key-file key {CHEAP}");
    says(place.own(&format!("luks format plain {apart} --luks-header plain --overwrite")), 2, "plain");
    says(place.own(&format!("luks format plain {apart} --luks-header key --overwrite")), 2, "key");
    says(place.own(&format!("luks format --from plain disk {apart} --luks-header none/h")), 2, "none/h");
    assert!(!place.path("disk").exists());
}
