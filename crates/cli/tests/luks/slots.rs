//! Key slots that are changed, converted and made for no data; keys that are saved; costs that are measured.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Instant;

use serde_json::Value;

use casemate_testkit::{Place, Rng, run, tool};

use crate::twins::{CHEAP, Twins};
use crate::{CASEMATE, says, yes};

const LUKS1: &str = "--type luks1 -c aes-cbc-plain64 -s 128";
const LUKS2: &str = "--type luks2 --offset 4096 --sector-size 512";

fn metadata(twins: &Twins, file: &str) -> Value {
    serde_json::from_str(&twins.ours(&format!("dump --dump-json-metadata {file}"))).unwrap()
}

#[test]
fn what_begins_behind_the_end_of_a_key_file_is_no_key() {
    let Some(twins) = Twins::new(LUKS2) else { return };
    let add = format!("add-key ours --key-file one --new-key-file two {CHEAP}");
    twins.refused(&format!("{add} --new-keyfile-offset 4"), "ends before byte 4");
    twins.refused(&format!("{add} --new-keyfile-size 0"), "0 bytes");
    twins.refused("test-passphrase ours --key-file one --keyfile-offset 4", "ends before byte 4");
}

#[test]
fn a_new_volumes_key_slot_has_the_cipher_that_is_named() {
    let Some(twins) = Twins::new(LUKS2) else { return };
    twins.ours(&format!(
        "format new --size 20M --key-file one --keyslot-cipher aes-cbc-plain64 --keyslot-key-size 256 {CHEAP}"
    ));
    let dump = twins.theirs("luksDump new");
    assert!(dump.contains("Cipher:     aes-cbc-plain64\n\tCipher key: 256 bits"), "{dump}");
    twins.theirs("open --test-passphrase --key-file one new");
}

#[test]
fn a_changed_key_keeps_its_number_where_cryptsetup_keeps_it() {
    for options in [LUKS1, LUKS2] {
        let Some(twins) = Twins::new(options) else { return };
        if options == LUKS2 {
            twins.theirs("token add --key-description name -S 1 theirs");
            twins.theirs("config --priority prefer -S 0 theirs");
            twins.level();
        }
        twins.ours(&format!("change-key ours --key-file two --new-key-file three {CHEAP}"));
        twins.theirs(&format!("luksChangeKey -q {CHEAP} --key-file two theirs three"));
        let slots = |file: &str| -> Vec<String> {
            let dump = twins.theirs(&format!("luksDump {file}"));
            let is_told = |line: &&str| {
                ["ENABLED", "DISABLED", "luks2", "Priority", "Keyslot:"]
                    .iter()
                    .any(|word| line.contains(word))
            };
            dump.lines().filter(is_told).map(str::to_owned).collect()
        };
        assert_eq!(slots("ours"), slots("theirs"), "{options}");
        twins.theirs("open --test-passphrase --key-file three ours");
        assert_eq!(twins.status("open --test-passphrase --key-file two ours"), 2);
        // The old stripes are gone: nothing of before opens with the header of before.
        if options == LUKS2 {
            twins.ours("config ours --priority prefer --key-slot 1");
        }
        let key = twins.place.read("one");
        twins.place.file("padded", [b"xxx", &key[..], b"yy"].concat());
        twins.ours(&format!(
            "change-key ours --key-file three --new-key-file padded --new-keyfile-offset 3 --new-keyfile-size 3 {CHEAP}"
        ));
        if options == LUKS2 {
            assert_eq!(metadata(&twins, "ours")["keyslots"]["1"]["priority"], 2);
        }
        twins.ours("kill-slot ours 0");
        twins.theirs("open --test-passphrase --key-file one ours");
        twins.refused(&format!("change-key ours --key-file two --new-key-file two {CHEAP}"), "does not open");
    }
}

#[test]
fn passphrases_are_lines_of_one_input() {
    let Some(twins) = Twins::new(LUKS2) else { return };
    let mut command = twins.place.command();
    command.args(format!("luks add-key ours {CHEAP}").split(' ')).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"one\nanother\n").unwrap();
    assert!(child.wait().unwrap().success());
    twins.place.file("another", "another");
    twins.theirs("open --test-passphrase --key-file another ours");
}

/// A full header takes no more keys; one that is changed is in the place of the old one then, as with cryptsetup.
#[test]
fn full_headers_are_told_and_stay() {
    for (options, more, room) in [
        (LUKS1, 6, "no key slot is free"),
        ("--offset 1536 --sector-size 512", 0, "the area for key slots has no room for another one"),
    ] {
        let Some(twins) = Twins::new(options) else { return };
        for _ in 0..more {
            twins.ours(&format!("add-key ours --key-file one --new-key-file three {CHEAP}"));
        }
        fs::copy(twins.place.path("ours"), twins.place.path("theirs")).unwrap();
        twins.refused(&format!("add-key ours --key-file one --new-key-file three {CHEAP}"), room);
        twins.ours(&format!("change-key ours --key-file one --new-key-file three {CHEAP}"));
        twins.theirs(&format!("luksChangeKey -q {CHEAP} --key-file one theirs three"));
        for file in ["ours", "theirs"] {
            twins.theirs(&format!("open --test-passphrase -S 0 --key-file three {file}"));
            twins.theirs(&format!("open --test-passphrase -S 1 --key-file two {file}"));
            assert_eq!(
                twins.status(&format!("open --test-passphrase --key-file one {file}")),
                2,
                "{options}"
            );
        }
    }
    let place = Place::under(CASEMATE, "luks");
    for (name, bytes) in [("one", &b"one"[..]), ("plain", &[0; 4096])] {
        place.file(name, bytes);
    }
    place.yes(&format!("format ours --from plain --key-file one --crypt-offset 512K {CHEAP}"));
    let before = place.read("ours");
    let lost = "has no room for another one, and it must not be lost if power fails now";
    place.is(&format!("change-key ours --key-file one --new-key-file plain {CHEAP}"), 2, lost);
    place.is(&format!("convert-key ours --key-file one {CHEAP}"), 2, lost);
    assert!(place.read("ours") == before);
}

#[test]
fn keys_for_no_data_are_those_of_cryptsetup() {
    let Some(twins) = Twins::new(LUKS2) else { return };
    twins.ours(&format!("add-key ours --unbound --key-size 256 --new-key-file three {CHEAP}"));
    twins.theirs(&format!("luksAddKey -q --unbound --key-size 256 {CHEAP} theirs three"));
    let shape = |file: &str| {
        let mut value = metadata(&twins, file);
        for pointer in ["/keyslots/2/kdf/salt", "/digests/1/salt", "/digests/1/digest"] {
            assert!(value.pointer(pointer).unwrap().as_str().unwrap().len() > 40);
            *value.pointer_mut(pointer).unwrap() = Value::Null;
        }
        value
    };
    assert_eq!(shape("ours"), shape("theirs"));
    twins.theirs("luksDump -q --unbound -S 2 --key-file three --volume-key-file key.theirs ours");
    twins.ours("dump-volume-key ours key --key-slot 2 --key-file three");
    assert!(twins.place.read("key") == twins.place.read("key.theirs") && twins.place.read("key").len() == 32);
    // It opens no data, and its listing is that of its slot alone.
    says(twins.place.own("luks test-passphrase ours --key-file three"), 1, "no key slot opens");
    let dump = twins.ours("dump --unbound ours");
    assert!(dump.contains("  2: luks2 (unbound)") && !dump.contains("  0: luks2"), "{dump}");
    twins.place.file("raw", [5; 24]);
    twins.ours(&format!(
        "add-key ours --unbound --volume-key-file raw --new-key-file two --new-key-slot 9 {CHEAP}"
    ));
    twins.ours("dump-volume-key ours raw.out --key-slot 9 --key-file two");
    assert!(twins.place.read("raw.out") == [5; 24]);
    // Named, it opens no data either: they would be read and written as noise. Nor does another passphrase of it.
    let before = twins.place.read("ours");
    for line in [
        "luks extract ours out --key-slot 2 --key-file three".to_owned(),
        "luks extract ours out --key-slot 9 --key-file two".to_owned(),
        "ext4 build ours,luks,key-file=three,key-slot=2 --overwrite --size 1M".to_owned(),
        "serve -w ours,luks,key-file=three,key-slot=2 --exec true".to_owned(),
        format!("luks add-key ours --key-slot 2 --key-file three --new-key-file raw {CHEAP}"),
    ] {
        says(twins.place.own(&line), 2, "the key is unbound, and does not open the data");
    }
    assert!(twins.place.read("ours") == before && !twins.place.path("out").exists());
    twins.ours("test-passphrase ours --key-slot 2 --key-file three");
    twins.theirs("open --test-passphrase --key-slot 2 --key-file three ours");
    let unbound = "add-key ours --unbound --new-key-file two";
    twins.refused(&format!("{unbound} {CHEAP}"), "needs a key, or its size in bits");
    twins.refused(&format!("{unbound} {CHEAP} --key-size 129"), "a key of 129 bits");
    twins.refused(&format!("{unbound} {CHEAP} --key-size 256 --new-key-slot 9"), "key slot 9 is not free");
    twins.refused(&format!("{unbound} {CHEAP} --key-size 256 --key-file one"), "cannot be used with");
    let Some(twins) = Twins::new(LUKS1) else { return };
    twins.refused(&format!("{unbound} {CHEAP} --key-size 256"), "LUKS2 has");
}

/// A key in the file that is changed would be gone with it.
#[test]
fn keys_are_not_read_from_what_is_changed() {
    for options in [LUKS1, LUKS2] {
        let Some(twins) = Twins::new(options) else { return };
        twins.place.sh("ln ours name; head -c 4194304 /dev/zero >plain");
        let before = twins.place.read("ours");
        for line in [
            format!("change-key ours --key-file one --new-key-file ours --new-keyfile-size 64 {CHEAP}"),
            format!("add-key ours --key-file one --new-key-file name --new-keyfile-size 64 {CHEAP}"),
            format!("reencrypt ours --key-file ours --keyfile-size 64 --batch-mode {CHEAP}"),
            format!("reencrypt --encrypt plain --luks-header apart --key-file plain --batch-mode {CHEAP}"),
        ] {
            twins.refused(&line, "this key file is what the command changes");
        }
        assert!(twins.place.read("ours") == before && !twins.place.path("apart").exists());
        assert!(twins.place.read("plain").iter().all(|byte| *byte == 0));
        // In a part of a disk, by the name of the disk; other parts of it may have keys.
        let mut disk = vec![7; 1 << 20];
        disk.extend(&before);
        twins.place.file("disk", &disk);
        let within = "--new-key-file disk --new-keyfile-size 64 --new-keyfile-offset";
        for line in [
            format!("change-key disk --offset 1M --key-file one {within} 1M {CHEAP}"),
            format!("add-key disk,offset=1M --key-file one {within} 1M {CHEAP}"),
            format!("change-key disk,offset=1M --key-file one {within} 1048575 {CHEAP}"),
        ] {
            twins.refused(&line, "this key file is what the command changes");
        }
        assert!(twins.place.read("disk") == disk);
        twins.ours(&format!("change-key disk,offset=1M --key-file one {within} 1048512 {CHEAP}"));
        twins.ours(
            "test-passphrase disk,offset=1M --key-file disk --keyfile-size 64 --keyfile-offset 1048512",
        );
    }
}

/// A key that lies below is read once: from a pipe it comes only once.
#[test]
fn a_layer_below_is_opened_once() {
    let place = Place::new(CASEMATE);
    for key in ["one", "two", "three"] {
        place.file(key, key);
    }
    place.yes(&format!("luks format outer --size 40M --key-file one {CHEAP}"));
    place.yes(&format!("luks format outer,luks,key-file=one,offset=0 --key-file two --overwrite {CHEAP}"));
    let inner = "outer,luks,key-file=-,offset=0";
    for line in [
        format!("luks add-key {inner} --key-file two --new-key-file three {CHEAP}"),
        format!("luks change-key {inner} --key-file three --new-key-file one {CHEAP}"),
    ] {
        place.sh(&format!("printf one | {CASEMATE} {line}"));
    }
    place.yes("luks test-passphrase outer,luks,key-file=one,offset=0 --key-file one");
}

/// A specification is the name of no file that a new header is written to.
#[test]
fn a_new_header_has_the_name_of_a_file() {
    let Some(twins) = Twins::new(LUKS2) else { return };
    twins.place.sh("head -c 4194304 /dev/zero >plain");
    let said = "this argument takes the name of a file, not a specification of ours";
    for line in [
        format!("format plain --luks-header ours,offset=1M --key-file one {CHEAP}"),
        format!("reencrypt --encrypt plain --luks-header ours,offset=1M --key-file one --batch-mode {CHEAP}"),
        "reencrypt --decrypt ours --luks-header ours,offset=1M --key-file one --batch-mode".to_owned(),
    ] {
        twins.refused(&line, said);
    }
    assert!(!twins.place.path("ours,offset=1M").exists());
}

#[test]
fn volume_keys_are_saved_for_their_owner() {
    for options in [LUKS1, LUKS2] {
        let Some(twins) = Twins::new(options) else { return };
        twins.ours("dump-volume-key ours key --key-file two");
        twins.theirs("luksDump -q --dump-volume-key --key-file one --volume-key-file key.theirs theirs");
        assert!(twins.place.read("key") == twins.place.read("key.theirs"));
        let mode = fs::metadata(twins.place.path("key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        twins.refused("dump-volume-key ours key --key-file two", "file exists");
        says(twins.place.own("luks dump-volume-key ours k --key-file three"), 2, "no key slot opens");
        assert!(!twins.place.path("k").exists());
    }
}

#[test]
fn slots_are_converted_as_cryptsetup_does() {
    let Some(twins) = Twins::new(LUKS2) else { return };
    let argon2 = "--pbkdf argon2i --pbkdf-force-iterations 4 --pbkdf-parallel 1";
    for (ours, theirs) in [
        (format!("{argon2} --pbkdf-memory 64K"), format!("{argon2} --pbkdf-memory 64")),
        ("--pbkdf pbkdf2 --pbkdf-force-iterations 1234 --hash sha512".to_owned(), String::new()),
        (format!("{CHEAP} --keyslot-cipher aes-cbc-plain64 --keyslot-key-size 256"), String::new()),
    ] {
        let theirs = if theirs.is_empty() { ours.clone() } else { theirs };
        twins.ours(&format!("convert-key ours --key-file two {ours}"));
        twins.theirs(&format!("luksConvertKey -q --key-file two {theirs} theirs"));
        let slot = |file: &str| {
            let mut slot = metadata(&twins, file)["keyslots"]["1"].take();
            slot["kdf"]["salt"] = Value::Null;
            slot["area"]["offset"] = Value::Null;
            slot
        };
        assert_eq!(slot("ours"), slot("theirs"), "{ours}");
        twins.theirs("open --test-passphrase -S 1 --key-file two ours");
        twins.theirs("open --test-passphrase -S 0 --key-file one ours");
    }
    twins.refused(&format!("convert-key ours --key-file three {CHEAP}"), "no key slot opens");
    let Some(twins) = Twins::new(LUKS1) else { return };
    twins.refused(&format!("convert-key ours --key-file one {CHEAP}"), "LUKS1 has one KDF");
}

#[test]
fn every_hash_makes_keys() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    let place = Place::new(CASEMATE);
    place.file("key", "secret");
    place.file("plain", vec![1; 4096]);
    for hash in
        ["sha1", "sha224", "sha256", "sha384", "sha512", "sha3-256", "ripemd160", "whirlpool", "blake2b-512"]
    {
        for version in ["luks1", "luks2"] {
            let line = format!(
                "luks format --type {version} --hash {hash} {CHEAP} --from plain disk --key-file key --overwrite"
            );
            yes(place.own(&line));
            let open = "open --test-passphrase --key-file key disk";
            run(std::process::Command::new(&cryptsetup).args(open.split(' ')).current_dir(place.folder()));
        }
    }
}

/// The number of a cost that was chosen so that it takes a time.
fn chosen(place: &Place, options: &str) -> (u64, u64, u64) {
    yes(place.own(&format!("luks format --from plain disk --key-file key --overwrite {options}")));
    let value: Value = serde_json::from_str(&yes(place.own("luks dump --json disk"))).unwrap();
    let kdf = &value["metadata"]["keyslots"]["0"]["kdf"];
    let number = |name: &str| kdf[name].as_u64().unwrap_or(0);
    (number("iterations").max(number("time")), number("memory"), number("cpus"))
}

#[test]
fn costs_take_the_time_that_was_asked_for() {
    let place = Place::new(CASEMATE);
    place.file("key", "secret");
    place.file("plain", Rng::new(1).bytes(4096));
    // Other work beside this may slow one of them down.
    let fits = || {
        let (few, ..) = chosen(&place, "--pbkdf pbkdf2 --iter-time 20");
        let (many, ..) = chosen(&place, "--pbkdf pbkdf2 --iter-time 600");
        let start = Instant::now();
        yes(place.own("luks test-passphrase disk --key-file key"));
        println!("{few} in 20 ms, {many} in 600 ms, which took {:?}", start.elapsed());
        few >= 1000 && many > 5 * few && start.elapsed().as_millis() > 100
    };
    assert!((0..6).any(|_| fits()));
    let (passes, memory, lanes) = chosen(&place, "--iter-time 300 --pbkdf-memory 4M");
    // More passes only where there is no more memory.
    assert!(passes > 4 && memory == 4096 && (1..=4).contains(&lanes), "{passes}, {memory}, {lanes}");
    let (passes, memory, lanes) = chosen(&place, "--iter-time 1 --pbkdf argon2i --pbkdf-parallel 1");
    assert!(passes == 4 && (32..65536).contains(&memory) && lanes == 1, "{passes}, {memory}, {lanes}");
    let (passes, memory, lanes) =
        chosen(&place, "--pbkdf-force-iterations 5 --pbkdf-memory 96K --pbkdf-parallel 3");
    assert_eq!((passes, memory, lanes), (5, 96, 3));
    says(
        place.own("luks format --from plain disk --key-file key --iter-time 5 --pbkdf-force-iterations 5"),
        2,
        "cannot be used with",
    );
}

#[test]
fn the_benchmark_is_a_table() {
    let place = Place::new(CASEMATE);
    let lines = yes(place.own("luks benchmark --crypt aes-xts-plain64 --key-size 512"));
    let row = lines.lines().last().unwrap();
    let rates: Vec<f64> = row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(
        row.starts_with("        aes-xts        512b  ") && rates.len() == 2 && rates[0] > 1.0,
        "{lines}"
    );
    let lines = yes(place.own("luks benchmark --hash sha256 --iter-time 50"));
    let rate = lines.lines().last().unwrap().strip_prefix("PBKDF2-sha256    ").unwrap();
    let rate = rate.strip_suffix(" iterations per second for 256-bit key").unwrap();
    assert!(rate.trim().parse::<u64>().unwrap() > 1000, "{lines}");
    let value: Value = serde_json::from_str(&yes(
        place.own("luks benchmark --json --pbkdf argon2i --iter-time 50 --pbkdf-memory 1M")
    ))
    .unwrap();
    let kdf = &value["kdfs"][0];
    assert!(kdf["kdf"] == "argon2i" && kdf["memory_kib"].as_u64().unwrap() <= 1024, "{value}");
    says(place.own("luks benchmark --crypt nonsense-xts"), 2, "nonsense");
}

/// A slot that is tried only where it is named may be the passphrase's: the answer is not no.
#[test]
fn a_passphrase_that_may_be_an_ignored_slots_is_not_called_wrong() {
    let place = casemate_testkit::Place::new(CASEMATE);
    place.file("one", "first");
    place.file("two", "second");
    place.file("other", "third");
    yes(place.own(&format!("luks format image --size 20M --key-file one {CHEAP}")));
    yes(place.own(&format!("luks add-key image --key-file one --new-key-file two {CHEAP}")));
    let test = |key: &str| place.own(&format!("luks test-passphrase image --key-file {key}"));
    assert_eq!(casemate_testkit::status(&test("other")), 1);
    yes(place.own("luks config image --key-slot 0 --priority ignore"));
    for key in ["one", "other"] {
        says(test(key), 2, "key slot 0 was not tried: its priority is 'ignore'");
    }
    yes(test("two"));
    yes(test("one --key-slot 0"));
    assert_eq!(casemate_testkit::status(&test("other --key-slot 0")), 1);
    yes(place.own("luks config image --key-slot 1 --priority ignore"));
    says(test("one"), 2, "key slots 0, 1 were not tried");
}
