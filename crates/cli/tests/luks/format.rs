//! Volumes that are made here, and opened by cryptsetup.

use std::fs;
use std::process::{Command, Output, Stdio};

use casemate_testkit::{Place, Rng, run, run_any, skip, stderr, stdout, tool};

use crate::{CASEMATE, says, yes};

const CHEAP: &str = "--pbkdf-force-iterations 4 --pbkdf-memory 64K --pbkdf-parallel 1";
const CHEAP1: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

/// A folder with a passphrase in `key`, and 1 MiB and a bit in `plain`.
fn place() -> Place {
    let place = Place::new(CASEMATE);
    place.file("key", "a secret\nwith a line end");
    place.file("plain", Rng::new(1).bytes((1 << 20) + 4096));
    place
}

fn of(place: &Place, program: &std::path::Path, line: &str) -> String {
    run(Command::new(program).args(line.split_whitespace()).current_dir(place.folder()))
}

#[test]
fn cryptsetup_opens_what_is_made() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    let volume = place();
    for options in [
        CHEAP.to_owned(),
        format!("{CHEAP} --pbkdf argon2i --sector-size 4096 --label a.label --hash sha512 --key-slot 3"),
        format!("{CHEAP1} -c aes-cbc-essiv:sha256 --crypt-offset 1M"),
        format!("{CHEAP1} -c capi:xts(aes)-plain64 -s 256"),
        format!("{CHEAP} -c serpent-xts-plain64 --crypt-offset 1M"),
        format!("{CHEAP} -c xchacha20,aes-adiantum-plain64 --sector-size 4096 --hash whirlpool"),
        format!("--type luks1 {CHEAP1}"),
        format!(
            "--type luks1 {CHEAP1} -c aes-cbc-plain64 -s 128 --hash ripemd160 --key-slot 7 --crypt-offset 4M"
        ),
    ] {
        yes(volume.own(&format!("luks format --from plain disk --key-file key {options} --overwrite")));
        of(&volume, &cryptsetup, "open --test-passphrase --key-file key disk");
        assert_eq!(yes(volume.own("luks dump disk")), of(&volume, &cryptsetup, "luksDump disk"), "{options}");
        // The key in the slot is that of the data: dm-crypt's mapping under it is what was encrypted.
        yes(volume.own("luks extract disk out --key-file key"));
        assert!(volume.read("out") == volume.read("plain"), "{options}");
        of(&volume, &cryptsetup, "luksDump -q --dump-volume-key --volume-key-file vk --key-file key disk");
        yes(volume.own("luks test-passphrase disk --volume-key-file vk"));
        fs::remove_file(volume.path("vk")).unwrap();
        // And what cryptsetup does to the header is done to one of its own.
        // Without AF_ALG it has AES alone.
        let is_aes = !["serpent", "adiantum", "capi"].iter().any(|cipher| options.contains(cipher));
        let area = if is_aes { "" } else { "--keyslot-cipher aes-xts-plain64 --keyslot-key-size 512" };
        of(&volume, &cryptsetup, &format!("luksAddKey -q {CHEAP1} {area} --key-file key disk plain -S 5"));
        yes(volume.own("luks test-passphrase disk --key-file plain --key-slot 5"));
    }
}

#[test]
fn streams_and_parts_become_the_same_volume() {
    let place = place();
    place.file("vk", (0..64).collect::<Vec<u8>>());
    let options =
        format!("{CHEAP} --volume-key-file vk --seed 5e34f531-3859-825c-fad6-33289ccfcb92 --key-file key");
    yes(place.own(&format!("luks format --from plain one {options}")));
    let one = place.read("one");
    assert_eq!(one.len(), (16 << 20) + (1 << 20) + 4096);
    let stream = |from: &str, to: &str| {
        let mut command = place.command();
        command.args(format!("luks format --from {from} {to} {options}").split_whitespace());
        let plain = fs::File::open(place.path("plain")).unwrap();
        command.stdin(Stdio::from(plain)).output().unwrap()
    };
    yes(stream("-", "two"));
    assert!(place.read("two") == one, "standard input");
    let output = stream("-", "-");
    assert!(output.stdout == one, "standard input to standard output");
    assert!(stream("plain", "-").stdout == one, "standard output");
    // At an offset of an image that is there, what lies before stays.
    place.file("three", vec![7; (1 << 20) + one.len()]);
    yes(place.own(&format!("luks format --from plain --offset 1M three --overwrite {options}")));
    let three = place.read("three");
    assert!(three[..1 << 20] == vec![7; 1 << 20] && three[1 << 20..] == one, "offset");
    // Another seed, other stripes; a random volume key, other data.
    yes(place.own(&format!(
        "luks format --from plain four {} --seed x",
        options.replace("--seed 5e34f531-3859-825c-fad6-33289ccfcb92", "")
    )));
    let four = place.read("four");
    assert!(four[32768..40000] != one[32768..40000] && four[16 << 20..] == one[16 << 20..]);
    says(
        place.own(&format!("luks format --from plain five {CHEAP} --key-file key --seed x")),
        2,
        "--volume-key-file",
    );
    assert!(!place.path("five").exists());
}

#[test]
fn a_volume_of_a_size_is_a_new_file_or_one_that_grows() {
    let place = place();
    let line = format!("luks format new --size 20M --key-file key {CHEAP}");
    yes(place.own(&line));
    assert_eq!(place.read("new").len(), 20 << 20);
    yes(place.own("luks extract new out --key-file key"));
    assert_eq!(place.read("out").len(), 4 << 20);
    // What is there is kept, also in its size.
    says(place.own(&line), 2, "new contains a LUKS header");
    fs::write(place.path("short"), "data").unwrap();
    says(place.own(&line.replace("new", "short")), 2, "short contains data of no known kind");
    yes(place.own(&format!("{} --overwrite", line.replace("new", "short"))));
    assert_eq!(place.read("short").len(), 20 << 20);
    says(place.own(&line.replace("20M", "40M")), 2, "new contains a LUKS header");
    assert_eq!(place.read("new").len(), 20 << 20, "what is refused does not grow");
    says(place.own(&line.replace("new", "none").replace("20M", "1M")), 2, "none");
    assert!(!place.path("none").exists());
}

#[test]
fn what_is_there_is_not_lost_by_mistake() {
    let place = place();
    fs::File::create(place.path("disk")).unwrap().set_len(20 << 20).unwrap();
    let format = format!("luks format disk --key-file key {CHEAP}");
    yes(place.own(&format));
    says(place.own(&format), 2, "disk contains a LUKS header; use --overwrite to destroy it");
    let before = yes(place.own("luks uuid disk"));
    yes(place.own(&format!("{format} --overwrite")));
    assert_ne!(yes(place.own("luks uuid disk")), before);
    yes(place.own("luks test-passphrase disk --key-file key"));
    says(
        place.own(&format!("luks format --from disk disk --key-file key {CHEAP}")),
        2,
        "this would replace disk",
    );
    says(
        place.own(&format!("luks format plain --overwrite --key-file key {CHEAP}")),
        2,
        "no room for data behind the header",
    );
    let costly = "--iter-time 1000000000";
    says(place.own(&format!("luks format disk --key-file key {costly}")), 2, "use --overwrite to destroy it");
    says(place.own(&format!("luks format plain --overwrite --key-file key {costly}")), 2, "no room for data");
    says(place.own(&format!("luks format none --key-file key {CHEAP}")), 2, "none");
    let line = format!("luks format disk --key-file key --overwrite --json --type luks1 {CHEAP1}");
    let value: serde_json::Value = serde_json::from_str(&yes(place.own(&line))).unwrap();
    assert_eq!(value["data_offset"], 2 << 20);
}

/// A pipe stands for all that has a name and is not a file. A block device is written where it is.
#[test]
fn what_is_no_file_keeps_its_name() {
    use std::os::unix::fs::FileTypeExt;
    let place = place();
    for name in ["pipe", "header"] {
        place.sh(&format!("mkfifo {name}"));
    }
    for line in ["format --from plain pipe", "format --from plain disk --luks-header header"] {
        let line = format!("luks {line} --key-file key {CHEAP} --overwrite");
        says(place.own(&line), 2, "not a regular file, and only regular files are replaced");
    }
    let is_pipe = |name: &str| fs::metadata(place.path(name)).unwrap().file_type().is_fifo();
    assert!(is_pipe("pipe") && is_pipe("header") && !place.path("disk").exists());
    fs::File::create(place.path("under")).unwrap().set_len(20 << 20).unwrap();
    let Some(losetup) = tool("losetup") else { return };
    let output = run_any(Command::new(&losetup).args(["--find", "--show"]).arg(place.path("under")));
    if !output.status.success() {
        return skip(&format!("no loop device: {}", stderr(&output)));
    }
    let device = stdout(&output);
    let device = device.trim_end();
    let made = place.own(&format!("luks format --from plain {device} --key-file key {CHEAP}"));
    let is_kept = fs::metadata(device).is_ok_and(|metadata| metadata.file_type().is_block_device());
    run(Command::new(&losetup).args(["-d", device]));
    yes(made);
    assert!(is_kept, "{device} is a file now");
    yes(place.own("luks extract under out --key-file key"));
    assert!(place.read("out").starts_with(&place.read("plain")));
}

#[test]
fn what_no_cryptsetup_would_take_is_not_made() {
    let place = place();
    let refused = |options: &str, why: &str| {
        says(
            place.own(&format!("luks format --from plain disk --key-file key {options} --overwrite")),
            2,
            why,
        );
        assert!(!place.path("disk").exists());
    };
    refused("--pbkdf pbkdf2 --pbkdf-force-iterations 999", "at least 1000");
    refused("--pbkdf-force-iterations 3", "at least 4 passes");
    refused("--pbkdf-memory 31K", "32 KiB to 4 GiB");
    refused("--pbkdf-parallel 5", "1 to 4 lanes");
    refused(&format!("{CHEAP1} --crypt-offset 256K"), "data at byte 262144: they begin at 290816 or later");
    refused(&format!("{CHEAP1} --crypt-offset 1000001B"), "data at byte 1000001");
    // cryptsetup counts its --offset in sectors.
    refused(&format!("{CHEAP1} --crypt-offset 32768"), "it needs a unit: 32768s is what cryptsetup");
    refused(&format!("{CHEAP1} --offset 32768"), "it needs a unit: 32768s is what cryptsetup");
    refused(&format!("{CHEAP1} --sector-size 513"), "sector size 513");
    refused(&format!("{CHEAP1} --key-size 100"), "multiple of 8 bits");
    refused(&format!("{CHEAP1} --key-slot 32"), "LUKS2 has slots 0 to 31");
    refused(&format!("{CHEAP1} -c aes-xts-plain65"), "unknown IV mode");
    // What would tell of the data, though they are encrypted.
    for (cipher, instead) in [
        ("aes-gcm-plain64 --integrity aead", "aes-gcm-random hides that"),
        ("chacha20-plain64 --integrity poly1305", "chacha20-random hides that"),
        ("aes-ecb", "equal blocks"),
        ("capi:ecb(aes)-plain64", "equal blocks"),
        ("aes-cbc-null", "equal blocks"),
        ("aes-ctr-plain64", "the same nonce"),
    ] {
        refused(&format!("{CHEAP1} -s 256 -c {cipher}"), instead);
    }
    refused(&format!("{CHEAP1} --hash md6"), "md6");
    refused(&format!("{CHEAP1} --label {}", "x".repeat(48)), "longer than 47 bytes");
    refused("--type luks1 --pbkdf argon2id", "LUKS1 has PBKDF2");
    // Nothing is measured before: that would take much longer than the test.
    refused("-c aes-xts-plain65 --iter-time 1000000000", "unknown IV mode");
    refused("--type luks1 --sector-size 4096 --iter-time 1000000000", "LUKS1 has sectors of 512 bytes");
    refused("--luks-header key --iter-time 1000000000", "this would replace key");
    refused(&format!("--type luks1 {CHEAP1} --sector-size 4096"), "LUKS1 has sectors of 512 bytes");
    place.file("short", "short");
    refused(
        &format!("{CHEAP1} --volume-key-file short --key-size 512"),
        "the volume key has 5 bytes, and 64 are needed",
    );
    place.file("odd", vec![1; 1000]);
    says(
        place.own(&format!("luks format --from odd disk --key-file key {CHEAP1} --overwrite")),
        2,
        "not a multiple of the sector size",
    );
    assert!(!place.path("disk").exists());
}

/// Signatures that a disk keeps would be found by the next tool.
#[test]
fn a_volume_leaves_nothing_known_of_what_was_there() {
    let place = place();
    let Some(wipefs) = tool("wipefs") else { return };
    let mut disk = vec![0; 20 << 20];
    disk[510..520].copy_from_slice(b"\x55\xaaEFI PART");
    let end = disk.len() - 512;
    disk[end..end + 8].copy_from_slice(b"EFI PART");
    disk[end - 512..end - 488].copy_from_slice(b"Intel Raid ISM Cfg Sig. ");
    for options in ["", "--from plain --offset 1M", "--integrity hmac-sha256"] {
        place.file("disk", &disk);
        let line = format!("luks format disk --key-file key {CHEAP1} {options}");
        says(place.own(&line), 2, "a GPT partition table");
        // What lies before a part stays, and so does the end of the disk that it belongs to.
        let (is_part, offset) = match options.contains("offset") {
            true => (true, "--offset 1M"),
            false => (false, ""),
        };
        let said = if is_part { "" } else { "erased the signature of a member of a firmware RAID" };
        says(place.own(&(line + " --overwrite")), 0, said);
        let left = of(&place, &wipefs, "--noheadings -p disk");
        assert!((is_part || !left.contains("gpt")) && left.contains("isw") == is_part, "{options}: {left}");
        yes(place.own(&format!("luks test-passphrase disk --key-file key {offset}")));
    }
}

/// qemu-img makes LUKS1 of its own, and reads ours.
#[test]
fn qemu_reads_what_is_made() {
    let Some(qemu) = tool("qemu-img") else { return };
    let place = place();
    yes(place.own(&format!("luks format --type luks1 {CHEAP1} --from plain disk --key-file key --overwrite")));
    let plain = format!("driver=luks,key-secret=s,file.filename={}", place.path("disk").display());
    let output = casemate_testkit::run_any(Command::new(&qemu).current_dir(place.folder()).args([
        "convert",
        "-O",
        "raw",
        "--object",
        "secret,id=s,file=key",
        "--image-opts",
        &plain,
        "out",
    ]));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(place.read("out") == place.read("plain"), "{}", stdout(&output));
    let options = ["-O", "luks", "--object", "secret,id=s,file=key", "-o", "key-secret=s,iter-time=10"];
    let make = || {
        let mut command = Command::new(&qemu);
        command.current_dir(place.folder()).arg("convert").args(options).args(["plain", "theirs"]);
        run_any(&mut command)
    };
    // It measures what the key costs, and gives up where it finds that no time has passed.
    let is_unlucky = |made: &Output| stderr(made).contains("Unable to get accurate CPU usage");
    let made = (0..100).map(|_| make()).find(|made| !is_unlucky(made)).expect("a cost that can be measured");
    assert!(made.status.success(), "{}", stderr(&made));
    yes(place.own("luks extract theirs out2 --key-file key"));
    assert!(place.read("out2") == place.read("plain"));
}
