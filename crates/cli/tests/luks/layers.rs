//! Contents of LUKS volumes, read and changed through them.

use std::fs;
use std::process::{Command, Stdio};

use casemate_testkit::{Place, run, status, tool};

use crate::{CASEMATE, place, says, yes};

/// A volume that cryptsetup made in `disk`, from byte 1 MiB on if it is in a partition of its own, and `key`.
fn formatted(options: &str, size: u64) -> Option<Place> {
    let cryptsetup = tool("cryptsetup")?;
    let place = Place::new(CASEMATE);
    place.file("key", "a secret\nwith a line end");
    fs::File::create(place.path("disk")).unwrap().set_len(size).unwrap();
    let cheap = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    let line = format!("luksFormat -q {cheap} {options} disk key");
    run(Command::new(cryptsetup).args(line.split_whitespace()).current_dir(place.folder()));
    Some(place)
}

/// A recovery file would hold names and structures in plain text, and tags hide none.
#[test]
fn changes_in_a_volume_with_tags_leave_no_plain_text_beside_it() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let place = Place::new(CASEMATE);
    place.file("key", "secret");
    fs::File::create(place.path("plain")).unwrap().set_len(8 << 20).unwrap();
    run(Command::new(mke2fs).args(["-q", "-O", "^has_journal", "plain"]).current_dir(place.folder()));
    let cheap = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    for integrity in ["hmac-sha256", "aead"] {
        let cipher = if integrity == "aead" { "--cipher aes-gcm-random --key-size 256" } else { "" };
        let volume = format!("vault-{integrity}");
        yes(place.own(&format!(
            "luks format {volume} --from plain --integrity {integrity} {cipher} --key-file key {cheap}"
        )));
        says(
            place.own(&format!("ext4 mkdir {volume},luks,key-file=key /secret")),
            2,
            "its recovery file would hold names",
        );
    }
    let names = place.names();
    assert!(!names.iter().any(|name| name.contains("redo")), "{names:?}");
}

#[test]
fn a_file_system_in_a_volume_is_read_and_changed() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    for options in [
        "--type luks1",
        "--type luks2 --sector-size 4096",
        "--type luks2 --sector-size 512 -c aes-cbc-essiv:sha256 -s 256",
    ] {
        let Some(place) = formatted(options, 40 << 20) else { return };
        let volume = yes(place.own("luks extract disk empty --key-file key"));
        assert_eq!(volume, "");
        // The file system is made outside, and goes in through an NBD server's device: put works on what is there.
        let size = place.read("empty").len();
        place.file("plain", vec![0; size]);
        run(Command::new(&mke2fs).args(["-q", "-t", "ext4", "plain"]).current_dir(place.folder()));
        let dump = yes(place.own("luks dump --json disk"));
        let dump: serde_json::Value = serde_json::from_str(&dump).unwrap();
        let offset = match dump["version"].as_u64() {
            Some(1) => dump["data_offset"].as_u64().unwrap(),
            _ => dump["metadata"]["segments"]["0"]["offset"].as_str().unwrap().parse().unwrap(),
        };
        // What is written through the volume is written as dm-crypt would.
        let cipher = if options.contains("essiv") { "aes-cbc-essiv:sha256" } else { "aes-xts-plain64" };
        let sector = if options.contains("4096") { 4096 } else { 512 };
        run(Command::new("cryptsetup")
            .args("luksDump -q --dump-volume-key --volume-key-file vk --key-file key disk".split(' '))
            .current_dir(place.folder()));
        let bits = place.read("vk").len() * 8;
        let crypt = format!(
            "-c {cipher} --key-file vk --key-size {bits} --sector-size {sector} --crypt-offset {offset}"
        );
        yes(place.own(&format!("crypt encrypt plain disk {crypt}")));
        place.file("f", "hello\n");
        yes(place.own("ext4 put --luks --key-file key disk f /f"));
        assert_eq!(yes(place.own("ext4 cat --luks --key-file key disk /f")), "hello\n");
        yes(place.own("luks extract disk out --key-file key"));
        assert_eq!(yes(place.own("ext4 cat out /f")), "hello\n");
        let stream = place.own("luks extract disk - --key-file key");
        assert!(stream.status.success() && stream.stdout == place.read("out"), "{stream:?}");
        // A volume that is there is not lost by a slip.
        says(
            place.own("luks format --from plain disk --key-file key"),
            2,
            "contains a LUKS header; use --overwrite to destroy it",
        );
    }
}

#[test]
fn volumes_nest() {
    let Some(place) =
        formatted("--luks2-metadata-size 16k --luks2-keyslots-size 512k --offset 2048", 3 << 20)
    else {
        return;
    };
    // At an offset, in a partition's place, with the passphrase as a line.
    let disk = place.read("disk");
    place.file("shifted", [vec![9; 1 << 20], disk.clone()].concat());
    yes(place.own("luks extract disk one --key-file key"));
    yes(place.own("luks extract --offset 1M shifted two --key-file key"));
    assert!(place.read("one") == place.read("two") && place.read("one").len() == 2 << 20);
    // With dm-verity over what is decrypted, and over what is encrypted.
    yes(place.own("verity format one hash --root-hash-file root"));
    let verity = "--dm-verity hash @root";
    yes(place.own("verity format disk hash2 --root-hash-file root2"));
    for line in [
        format!("info --luks --key-file key {verity} disk"),
        "info --dm-verity hash2 @root2 --luks --key-file key disk".to_owned(),
        "info --offset 1M --luks --key-file key shifted".to_owned(),
    ] {
        // The data are random: the volume opens, and nothing known is found in it.
        assert_eq!(status(&place.own(&line)), 1, "{line}");
    }
    let mut damaged = disk;
    damaged[(1 << 20) + 5] ^= 1;
    place.file("damaged", damaged);
    says(
        place.own(&format!("info --luks --key-file key {verity} damaged")),
        2,
        "does not match its hash tree",
    );
}

#[test]
fn keys_come_from_files_descriptors_and_lines() {
    let place = place("l2-hash-whirlpool");
    let whole = place.read("key");
    let test = |line: &str| place.own(&format!("luks test-passphrase image {line}"));
    place.file("padded", [b"xx", &whole[..], b"yy"].concat());
    yes(test(&format!("--key-file padded --keyfile-offset 2 --keyfile-size {}", whole.len())));
    says(test("--key-file padded"), 1, "does not open");
    place.file("line", [&whole[..], b"\n"].concat());
    says(test("--key-file line"), 1, "does not open");
    let mut child = place.command();
    let line = fs::File::open(place.path("line")).unwrap();
    let output = child.args(["luks", "test-passphrase", "image"]).stdin(Stdio::from(line)).output().unwrap();
    yes(output);
    // A mapping in the volume, which has no key file of its own.
    says(
        place.own("ext4 ls --luks --key-file key --crypt aes-xts-plain64 image"),
        2,
        "no passphrase was given",
    );
    says(place.own("ext4 ls --luks-header key image"), 2, "--luks");
    says(place.own("ext4 ls --key-file key image"), 2, "required");
    says(place.own("ext4 ls --luks --key-file key image"), 2, "image");
}

#[test]
fn a_header_may_lie_apart() {
    let place = place("luks2-detached");
    yes(place.own("luks extract --luks-header header image out --key-file key"));
    assert_eq!(place.read("out").len(), 4096);
    says(place.own("luks extract image out2 --key-file key"), 2, "no valid LUKS header");
    for (target, input) in [("header", "header"), ("key", "key")] {
        let before = place.read(target);
        let line = format!("luks extract --luks-header header image {target} --key-file key");
        says(place.own(&line), 2, &format!("this would replace {input}"));
        assert!(place.read(target) == before);
    }
    // What is at its own beginning is the header, and nobody writes through it.
    says(place.own("luks extract header out2 --key-file key"), 2, "--luks-header");
    says(place.own("ext4 ls header --luks --key-file key"), 2, "--luks-header");
}
