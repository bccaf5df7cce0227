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
        yes(place.own(&format!("crypt encrypt plain disk {crypt} --overwrite")));
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

/// A disk of three partitions with names, each with text all over, and what a GPT takes.
fn partitioned() -> Option<Place> {
    tool("sfdisk")?;
    let place = Place::new(CASEMATE);
    place.file("key", "secret");
    place.file("new", "another");
    place.file("disk", "data ".repeat(8 << 20));
    place.file(
        "table",
        "label: gpt\nfirst-lba: 34\nstart=2048,size=4096\nstart=8192,size=49152,name=vault\nstart=59392,size=2048\n",
    );
    place.sh("sfdisk -q disk < table");
    Some(place)
}

/// Bytes of the disk's second partition.
const SECOND: std::ops::Range<usize> = 8192 * 512..(8192 + 49152) * 512;

const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

#[test]
fn a_new_volume_in_a_specification_asks_and_locks_as_one_of_the_options() {
    let Some(place) = partitioned() else { return };
    let before = place.read("disk");
    let places = [
        "disk -P 2",
        "disk,partition=2",
        "disk,partition=vault",
        "disk,offset=4M,size=24M",
        "disk,offset=8192s,size=49152s",
    ];
    for spec in places {
        let line = format!("luks format {spec} --key-file key {CHEAP}");
        says(place.own(&line), 2, "disk contains data of no known kind; use --overwrite to destroy it");
        let held = fs::File::open(place.path("disk")).unwrap();
        held.lock().unwrap();
        says(place.own(&format!("{line} --overwrite")), 2, "in use by another process");
        drop(held);
        assert!(place.read("disk") == before, "{spec}");
        yes(place.own(&format!("{line} --overwrite")));
        let after = place.read("disk");
        assert!(after[SECOND].starts_with(b"LUKS\xba\xbe"), "{spec}");
        assert!(after[..SECOND.start] == before[..SECOND.start], "{spec}");
        assert!(after[SECOND.end..] == before[SECOND.end..], "{spec}");
        // What is there now is asked for by its name.
        says(place.own(&line), 2, "disk contains a LUKS header; use --overwrite to destroy it");
        fs::write(place.path("disk"), &before).unwrap();
    }
    // All from a partition's start on are other partitions, too, and so is more than it has.
    for spec in ["disk --offset 8192s", "disk,offset=8192s", "disk,offset=4M,size=25M"] {
        let line = format!("luks format {spec} --overwrite --key-file key {CHEAP}");
        says(place.own(&line), 2, "partition 2 begins at offset 4194304");
    }
    for (line, said) in [
        ("luks format disk,partition=2 --size 30M", "--size makes or extends a whole file"),
        ("luks format disk,partition=2 -P 2", "give all of them in one place"),
        ("luks format disk,partition=9", "there is no partition 9; there are: 1, 2, 3"),
        ("luks format disk,partition=2,ext4,superblock=1", "leave ext4 out"),
        ("luks format disk,partition=2,luks", "leave out the last 'luks'"),
        ("luks format disk,partion=2", "did you mean partition?"),
    ] {
        says(place.own(&format!("{line} --overwrite --key-file key {CHEAP}")), 2, said);
    }
    assert!(place.read("disk") == before);
}

#[test]
fn nothing_that_is_made_within_a_disk_erases_the_table_at_its_end() {
    let Some(place) = partitioned() else { return };
    if tool("mke2fs").is_none() {
        return;
    }
    let before = place.read("disk");
    place.file("plain", "plain".repeat(4096 * 16));
    place.file("cipher.key", (0..32).collect::<Vec<u8>>());
    fs::create_dir(place.path("tree")).unwrap();
    let key = "--cipher aes-xts-plain64 --key-size 256 --key-file cipher.key";
    for line in [
        // In the middle of a partition, and in room that no partition has.
        format!("luks format disk,offset=20M --key-file key {CHEAP}"),
        format!("crypt encrypt plain disk,offset=20M {key}"),
        format!("crypt decrypt plain disk,offset=36M {key}"),
        "ext4 build disk --from tree --offset 36M --size 2M".to_owned(),
    ] {
        place.file("disk", &before);
        yes(place.own(&format!("{line} --overwrite")));
        let after = place.read("disk");
        assert!(after != before && after[after.len() - 512..] == before[before.len() - 512..], "{line}");
    }
    // What is transformed where it lies would go over it.
    place.file("disk", &before);
    for line in [
        format!("crypt encrypt --in-place disk,offset=36M {key}"),
        format!("crypt encrypt --in-place disk --crypt-offset 36M {key}"),
        format!("luks reencrypt --encrypt disk,offset=36M --luks-header h --key-file key {CHEAP}"),
        format!("luks reencrypt --encrypt disk --crypt-offset 36M --luks-header h --key-file key {CHEAP}"),
    ] {
        says(place.own(&line), 2, "a size of at most 4177408 bytes");
        assert!(place.read("disk") == before, "{line}");
    }
    // What was encrypted over it before can be decrypted again.
    let mut over = before.clone();
    let end = over.len();
    over[end - 512..].fill(7);
    place.file("disk", &over);
    yes(place.own(&format!("crypt encrypt --in-place disk,offset=36M {key}")));
    yes(place.own(&format!("crypt decrypt --in-place disk,offset=36M {key} --overwrite")));
    assert!(place.read("disk") == over);
    place.file("disk", &before);
    yes(place.own(&format!("crypt encrypt --in-place disk,offset=36M,size=4177408 {key}")));
    let after = place.read("disk");
    assert!(after != before && after[after.len() - 16896..] == before[before.len() - 16896..]);
}

#[test]
fn every_command_of_luks_takes_the_place_of_its_volume_in_a_specification() {
    let Some(place) = partitioned() else { return };
    yes(place.own(&format!("luks format disk,partition=2 --overwrite --key-file key {CHEAP}")));
    let formatted = place.read("disk");
    // IMAGE is the volume; what a line prints and leaves is the same wherever its place is said.
    let lines = [
        "luks is-luks IMAGE",
        "luks uuid IMAGE",
        "luks dump IMAGE",
        "luks check IMAGE",
        "luks check --print-policy IMAGE",
        "luks test-passphrase IMAGE --key-file key",
        "luks header-backup IMAGE backup",
        "luks dump-volume-key IMAGE vk --key-file key",
        "luks extract IMAGE plain --key-file key --overwrite",
        "luks extract IMAGE - --key-file key",
        "luks config IMAGE --label box",
        "luks add-key IMAGE --key-file key --new-key-file new --pbkdf pbkdf2 --pbkdf-force-iterations 1000",
        "luks test-passphrase IMAGE --key-file new",
        "luks convert-key IMAGE --key-file new --pbkdf pbkdf2 --pbkdf-force-iterations 1100",
        "luks token add IMAGE --key-description d --key-slot 0",
        "luks token export IMAGE 0",
        "luks token remove IMAGE 0",
        "luks remove-key IMAGE --key-file new --batch-mode",
        "luks repair IMAGE --batch-mode",
        "luks header-restore IMAGE backup --batch-mode",
        "luks uuid IMAGE --uuid 6c6e4a9f-0b2f-4f0e-a1e3-b1d1d4d2f0aa",
        "luks change-key IMAGE --key-file key --new-key-file new --pbkdf pbkdf2 --pbkdf-force-iterations 1000",
        "luks kill-slot IMAGE 0 --batch-mode",
        "luks header-restore IMAGE backup --batch-mode",
        "luks reencrypt IMAGE --key-file key --resilience none --batch-mode",
        "luks test-passphrase IMAGE --key-file key",
        "luks erase IMAGE --batch-mode",
    ];
    let run = |image: &str| {
        fs::write(place.path("disk"), &formatted).unwrap();
        for name in ["backup", "vk"] {
            drop(fs::remove_file(place.path(name)));
        }
        lines.map(|line| {
            let line = line.replace("IMAGE", image);
            let out = place.own(&line);
            assert_eq!(status(&out), 0, "{line}: {}", String::from_utf8_lossy(&out.stderr));
            out.stdout
        })
    };
    let expected = run("-P 2 disk");
    let after = place.read("disk");
    assert!(
        after[..SECOND.start] == formatted[..SECOND.start] && after[SECOND.end..] == formatted[SECOND.end..]
    );
    for image in ["disk,partition=2", "disk,offset=4M,size=49152s"] {
        let printed = run(image);
        for ((line, one), other) in lines.iter().zip(&expected).zip(&printed) {
            // Salts, times and keys are new each time; what is printed of the first ones is not.
            let is_changed = line.contains("add-key") || line.contains("convert");
            assert!(is_changed || one == other, "{line} {image}");
        }
        let other = place.read("disk");
        assert!(
            other[..SECOND.start] == formatted[..SECOND.start]
                && other[SECOND.end..] == formatted[SECOND.end..]
        );
    }
    // The command itself opens the volume; work in place has no layer below.
    fs::write(place.path("disk"), &formatted).unwrap();
    for (line, said) in [
        ("luks dump disk,partition=2,luks,key-file=key", "leave out the last 'luks'"),
        ("luks extract disk,partition=2,luks,key-file=key plain", "leave out the last 'luks'"),
        ("luks dump -P 2 disk,partition=2", "give all of them in one place"),
        ("luks dump disk,partition=2,key-file=key", "unknown layer or option 'key-file' of partition"),
        (
            "luks reencrypt disk,integrity=crc32c,partition=2 --key-file key",
            "work in place can't go through 'integrity': the words here are partition=, offset= and size=",
        ),
    ] {
        says(place.own(line), 2, said);
    }
    assert!(place.read("disk") == formatted);
}

/// A name with commas is a file's, by the rule of specifications and for cryptsetup's command line, which knows none.
#[test]
fn a_volume_whose_file_has_a_comma_in_its_name_is_found() {
    let place = place("luks2-label-token");
    fs::copy(place.path("image"), place.path("a,b")).unwrap();
    fs::copy(place.path("image"), place.path("image,offset=0")).unwrap();
    let expected = yes(place.own("luks uuid image"));
    assert_eq!(yes(place.own("luks uuid a,b")), expected);
    assert_eq!(yes(place.own("luks uuid a,,b")), expected);
    says(place.own("luks uuid image,offset=0"), 2, "is the name of a file, and says layers of another one");
    assert_eq!(yes(place.own("luks uuid image,,offset=0")), expected);
    let cryptsetup = place.link("cryptsetup");
    for name in ["a,b", "image,offset=0"] {
        assert_eq!(yes(place.run(&cryptsetup, &format!("luksUUID {name}"))), expected, "{name}");
    }
    says(place.own(&format!("luks format new,one --size 20M --key-file key {CHEAP}")), 2, "is written twice");
    yes(place.own(&format!("luks format new,,one --size 20M --key-file key {CHEAP}")));
    assert!(place.names().contains(&"new,one".to_owned()));
}

#[test]
fn a_volume_lies_in_a_partition_of_a_disk_that_dm_integrity_protects() {
    let Some(place) = partitioned() else { return };
    yes(place.own("integrity format prot --size 45M --from disk -I sha256"));
    let volume = "prot,integrity=sha256,partition=2";
    says(place.own(&format!("luks format {volume} --key-file key {CHEAP}")), 2, "data of no known kind");
    yes(place.own(&format!("luks format {volume} --overwrite --key-file key {CHEAP}")));
    yes(place.own(&format!("luks add-key {volume} --key-file key --new-key-file new {CHEAP}")));
    yes(place.own(&format!("luks test-passphrase {volume} --key-file new")));
    yes(place.own(&format!("luks extract {volume} plain --key-file new")));
    // All tags are right, and what was written is a volume for whoever reads the disk.
    yes(place.own("integrity verify prot -I sha256"));
    yes(place.own("integrity extract prot copy -I sha256"));
    let uuid = yes(place.own(&format!("luks uuid {volume}")));
    assert_eq!(yes(place.own("luks uuid copy,partition=2")), uuid);
    yes(place.own("luks extract copy,partition=2 again --key-file key"));
    assert!(place.read("plain") == place.read("again"));
    says(place.own(&format!("luks reencrypt {volume} --key-file key")), 2, "can't go through 'integrity'");
}
