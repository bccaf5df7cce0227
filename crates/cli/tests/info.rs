//! `casemate info`: what other tools made is named, as far down as it goes, in text, JSON and a page.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use casemate_testkit::{Place, Rng, run, skip, stdout, tool};
use serde_json::Value;

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// A folder with a key and a file.
fn place() -> Place {
    let place = Place::new(CASEMATE);
    place.file("disk.key", (0..64).collect::<Vec<u8>>());
    place.file("file", "hello\n".repeat(1000));
    place
}

#[track_caller]
fn json(place: &Place, line: &str) -> Value {
    serde_json::from_str(&place.yes(&format!("info --json {line}"))).unwrap()
}

/// A disk with two partitions: ext4 with a hash area behind it and an encrypted folder, and LUKS2.
fn disk(place: &Place) -> bool {
    if ["mke2fs", "veritysetup", "cryptsetup", "sfdisk"].into_iter().any(|name| tool(name).is_none()) {
        return false;
    }
    place.sh("truncate -s 8M root; mke2fs -q -t ext4 -O encrypt -L system root");
    place.yes("ext4 mkdir root /home");
    place.yes("fscrypt set-policy --fscrypt-key disk.key root /home");
    place.sh(
        "veritysetup format root root --hash-offset 8388608 --data-blocks 2048 >verity.txt
         truncate -s 4M luks
         echo x | cryptsetup luksFormat -q --type luks2 --label secret --luks2-keyslots-size 256K \
            --luks2-metadata-size 16K --pbkdf pbkdf2 --pbkdf-force-iterations 1000 luks
         truncate -s 20M disk
         printf 'label: gpt\nstart=2048, size=24576, name=root\nstart=28672, size=8192, name=data\n' | sfdisk -q disk
         dd if=root of=disk bs=512 seek=2048 conv=notrunc status=none
         dd if=luks of=disk bs=512 seek=28672 conv=notrunc status=none",
    );
    true
}

#[test]
fn a_disk_is_described_down_to_its_hash_area() {
    let place = place();
    if !disk(&place) {
        return;
    }
    let found = json(&place, "disk");
    assert_eq!((&found["what"], &found["bytes"]), (&"a GPT partition table".into(), &(20 << 20).into()));
    let [root, data] = &found["inside"].as_array().unwrap()[..] else { panic!("{found}") };
    assert_eq!((&root["partition"], &root["start"]), (&1.into(), &(1 << 20).into()));
    let facts = &root["facts"];
    assert_eq!(
        (&facts["version"], &facts["label"], &facts["name"]),
        (&"ext4".into(), &"system".into(), &"root".into())
    );
    assert_eq!((&facts["encrypted"], &facts["state"]), (&"/home".into(), &"clean".into()));
    assert!(root["used_bytes"].as_u64().unwrap() > 0);
    let tree = &root["inside"][0];
    assert_eq!(tree["start"], (1 << 20) + 8_388_608);
    let uuid = place.sh("sed -n 's/^UUID: *\\t*//p' verity.txt");
    assert_eq!(tree["facts"]["uuid"], uuid.trim());
    assert_eq!((&data["facts"]["version"], &data["facts"]["label"]), (&"2".into(), &"secret".into()));
    let uuid = place.sh("cryptsetup luksUUID luks");
    assert_eq!(data["facts"]["uuid"], uuid.trim());

    // Every command that is shown and is ours runs as it is shown.
    let text = place.yes("info disk");
    let shown: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("$ casemate ")).collect();
    assert!(shown.len() >= 3, "{text}");
    assert!(shown.contains(&"info -P 2 --luks disk   # asks for the passphrase"), "{text}");
    for line in shown.into_iter().filter(|line| !line.contains("--luks")) {
        place.yes(line);
    }
    assert!(text.contains("partition 2, at byte 14680064: a LUKS2 header \"secret\""), "{text}");
    // A partition alone, and what is behind dm-crypt.
    assert_eq!(json(&place, "disk -P 1")["facts"]["version"], "ext4");
    place.yes("crypt encrypt root enc --key-file disk.key --key-size 512");
    let unknown = place.is("info --json enc", 1, "").stdout;
    let unknown: Value = serde_json::from_slice(&unknown).unwrap();
    assert_eq!((&unknown["what"], &unknown["content"]), (&Value::Null, &"random".into()));
    let crypt = "--crypt aes-xts-plain64 --key-file disk.key --key-size 512";
    assert_eq!(json(&place, &format!("{crypt} enc"))["facts"]["label"], "system");
}

#[test]
fn what_is_cut_off_or_damaged_is_said() {
    let place = place();
    if !disk(&place) {
        return;
    }
    let root = fs::read(place.path("root")).unwrap();
    fs::write(place.path("cut"), &root[..5 << 20]).unwrap();
    let damage = json(&place, "cut")["damage"].to_string();
    assert!(damage.contains("cut off: 5242880 of 8388608 bytes are left"), "{damage}");
    let image = fs::File::options().write(true).open(place.path("root")).unwrap();
    image.write_all_at(&[0xff; 64], 2048).unwrap();
    assert!(json(&place, "root")["damage"][0].as_str().unwrap().contains("group descriptor"));
    let disk = fs::File::options().write(true).open(place.path("disk")).unwrap();
    disk.write_all_at(&[1; 64], 1024).unwrap();
    disk.write_all_at(&[1; 64], (20 << 20) - 512).unwrap();
    assert_ne!(json(&place, "disk")["damage"], serde_json::json!([]));
}

/// Writes bytes over a file's.
fn overwrite(place: &Place, name: &str, bytes: &[u8], offset: u64) {
    let file = fs::File::options().write(true).open(place.path(name)).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

/// Where the beginning is lost, what formats keep twice is found, as the commands find it that read them.
#[test]
fn backups_are_found_where_the_beginning_is_lost() {
    let place = place();
    if !disk(&place) {
        return;
    }
    let run_all = |text: &str| {
        let shown = text.lines().filter_map(|line| line.trim().strip_prefix("$ casemate "));
        for line in shown.filter(|line| !line.contains("ext4 check") && !line.contains("--luks")) {
            place.is(line, 0, "");
        }
    };
    // The GPT: all of it, and all but the record that leads to it.
    for (first, said) in [(0, "the backup GPT at the end"), (512, "the primary GPT is damaged")] {
        place.sh("cp disk headless");
        overwrite(&place, "headless", &vec![0; 34 * 512 - first], first as u64);
        let text = place.yes("info headless");
        assert!(text.starts_with("headless: a GPT partition table with partitions 1, 2"), "{text}");
        assert!(text.contains(said) && text.contains("a LUKS2 header \"secret\""), "{text}");
        assert!(text.contains("$ casemate ext4 ls -P 1 headless /"), "{text}");
        run_all(&text);
        // By number who reads goes by it, and says so; who writes is refused.
        place.is(
            "ext4 ls headless,partition=1 /",
            0,
            "note: headless: the primary partition table is damaged or lost",
        );
        let before = place.read("headless");
        for line in [
            "ext4 mkdir headless,partition=1 /new",
            "ext4 check --repair headless,partition=1",
            "luks erase -q headless,partition=2",
        ] {
            place.is(line, 2, "headless: the primary partition table is lost");
        }
        assert!(place.read("headless") == before);
    }
    // The superblock, zeros or noise in its place, and the first MiB.
    place.sh("truncate -s 32M large; mke2fs -q -t ext4 -b 1024 -L system large");
    for (bytes, at) in [(vec![0; 1024], 1024), (Rng::new(1).bytes(2048), 0), (vec![0; 1 << 20], 0)] {
        place.sh("cp large headless");
        overwrite(&place, "headless", &bytes, at);
        let text = place.yes("info headless");
        assert!(text.contains("an ext4 file system \"system\"") && text.contains("block 8193"), "{text}");
        // Behind the first MiB there is no root directory.
        let reads = match bytes.len() < 1 << 20 {
            true => "ext4 ls --superblock 8193 headless",
            false => "ext4 extract --superblock 8193 --no-replay --unreachable headless FOLDER",
        };
        assert!(text.contains(reads), "{text}");
        if bytes.len() < 1 << 20 {
            run_all(&text);
        }
    }
    // The primary header of LUKS2.
    overwrite(&place, "luks", &Rng::new(2).bytes(2048), 0);
    let text = place.yes("info luks");
    assert!(
        text.starts_with("luks: a LUKS2 header \"secret\"") && text.contains("the primary header: "),
        "{text}"
    );
    run_all(&text);
}

/// No more is said of bytes than was read of them, and the exit status says whether anything was found.
#[test]
fn bytes_of_no_format_are_not_called_more_than_they_are() {
    let place = place();
    let mut behind = vec![0; 8 << 20];
    // Between all that is read of it.
    behind[(3 << 20) + 9000] = 1;
    place.file("empty", "");
    place.file("small", vec![0; 5000]);
    place.file("large", behind);
    place.file("random", Rng::new(3).bytes(1 << 20));
    place.file("few", Rng::new(3).bytes(100));
    place.file("text", "hello\n".repeat(10_000));
    for (name, said, content) in [
        ("empty", "nothing: there are no bytes", "empty"),
        ("small", "nothing but zeros", "zeros"),
        ("large", "bytes that were read are zero, the rest was not read", "zeros"),
        ("random", "it looks random, and may be encrypted without a header", "random"),
        ("few", "few: nothing known, 100 bytes", "other"),
        ("text", "text: nothing known, 60000 bytes", "other"),
    ] {
        let text = stdout(&place.is(&format!("info {name}"), 1, ""));
        assert!(text.contains(said), "{text}");
        assert_eq!(text.contains("may be encrypted"), content == "random", "{text}");
        assert_eq!(text.contains("--crypt"), content == "random", "{text}");
        let value: Value =
            serde_json::from_slice(&place.is(&format!("info --json {name}"), 1, "").stdout).unwrap();
        assert_eq!((&value["what"], &value["content"]), (&Value::Null, &content.into()), "{name}");
    }
    place.is("info empty --html page", 1, "");
}

/// A change that was interrupted is told, wherever it is noted.
#[test]
fn changes_under_way_are_told() {
    let place = place();
    if !disk(&place) {
        return;
    }
    place.file("root.casemate-journal", "");
    let text = place.yes("info root");
    assert!(text.contains("damaged: an encryption or decryption in place was interrupted"), "{text}");
    assert!(text.contains("root.casemate-journal"), "{text}");
    place.sh("rm luks; truncate -s 20M luks; cheap='-q --pbkdf pbkdf2 --pbkdf-force-iterations 1000'
         echo x | cryptsetup luksFormat --type luks2 $cheap luks
         echo x | cryptsetup reencrypt --init-only $cheap luks >&2");
    let text = place.yes("info luks");
    assert!(text.contains("under way: reencryption, 0 of "), "{text}");
    assert!(text.contains("$ casemate luks reencrypt luks"), "{text}");
    let told = &json(&place, "luks")["reencryption"];
    assert_eq!((&told["mode"], &told["direction"]), (&"reencrypt".into(), &"forward".into()));
    assert_eq!((&told["done_bytes"], &told["all_bytes"]), (&0.into(), &(4 << 20).into()));
}

/// A page is as wide as its window, wherever a table says that partitions are.
#[test]
fn partitions_behind_the_end_stand_at_the_edge() {
    let place = place();
    if !disk(&place) {
        return;
    }
    place.sh("truncate -s 8M disk");
    let page = place.yes("info --html - disk");
    for part in page.split("style=\"left:").skip(1) {
        let numbers = part.split('"').next().unwrap().replace('%', "").replace("width:", "");
        let (left, width) = numbers.split_once(';').unwrap();
        let (left, width): (f64, f64) = (left.parse().unwrap(), width.parse().unwrap());
        assert!(left <= 99.5 && left + width <= 100.01, "{part}");
    }
    assert!(page.contains("class=\"gone\""), "{page}");
    let text = place.yes("info disk");
    assert_eq!(text.matches("damaged: cut off: 0 of 4194304 bytes are left").count(), 1, "{text}");
    assert!(!text.contains("--crypt"), "{text}");
}

/// A GPT says how long its disk was, and where its backup lies.
#[test]
fn a_disk_is_compared_with_its_gpt() {
    let place = place();
    if !disk(&place) {
        return;
    }
    assert_eq!(json(&place, "disk")["damage"], serde_json::json!([]));
    // Behind the last partition; a copy that ended early.
    place.sh("cp disk short; truncate -s 19M short");
    let short = json(&place, "short");
    assert_eq!((&short["bytes"], &short["full_bytes"]), (&(19 << 20).into(), &(20 << 20).into()));
    let damage = "cut off: 19922944 of 20971520 bytes are left; the backup GPT is not there";
    assert_eq!(short["damage"], serde_json::json!([damage]));
    let page = place.yes("info --html - short");
    assert!(page.contains("<i class=\"gone\" style=\"width:5.000%\">"), "{page}");
    assert!(page.contains("left:5.0000%;width:60.0000%") && page.contains("If it is a copy, copy it again"));
    // The backup alone.
    place.sh("cp disk half");
    overwrite(&place, "half", &[1; 64], (20 << 20) - 512);
    let text = place.yes("info half");
    assert!(text.contains("damaged: the backup GPT, at byte 20971008, is damaged or missing"), "{text}");
    let other = "cp disk other; sfdisk -q --part-label other 1 renamed; dd if=disk of=other bs=512 skip=40927 seek=40927 conv=notrunc";
    place.sh(&format!("{other} status=none"));
    let fault = "the backup GPT, at byte 20971008, has other partitions, or is of another disk";
    assert_eq!(json(&place, "other")["damage"], serde_json::json!([fault]));
    // A disk that grew is no damage.
    place.sh("cp disk grown; truncate -s 24M grown");
    let grown = json(&place, "grown");
    let place_of_backup = "at byte 20971008, 4194304 bytes before the end";
    assert_eq!(
        (&grown["damage"], &grown["facts"]["backup_gpt"]),
        (&serde_json::json!([]), &place_of_backup.into())
    );
}

/// Where nothing known is at the beginning, a search may find what lies further behind.
#[test]
fn a_search_is_proposed_where_nothing_is_known() {
    let place = place();
    if !disk(&place) {
        return;
    }
    place.sh("truncate -s 3M shifted; cat root >> shifted; truncate -s 20M zeros; printf zeros > small");
    let proposed = |line: &str| stdout(&place.is(line, 1, "")).contains("casemate info --scan ");
    assert!(proposed("info shifted") && proposed("info zeros") && proposed("info small"));
    assert!(
        stdout(&place.is("info shifted,offset=1M", 1, "")).contains("info --offset 1048576 --scan shifted")
    );
    assert!(!place.yes("info root").contains("--scan"));
    place.sh("truncate -s 0 empty");
    assert!(!proposed("info empty"));
}

/// The kernel has its own names for parts of disks, and a hash area in a partition is not one behind the data.
#[test]
fn partitions_are_no_devices_of_the_whole_disk() {
    let place = place();
    if !disk(&place) {
        return;
    }
    place.sh(
        "veritysetup format root tree >tree.txt; sed -n 's/^Root hash: *\\t*//p' tree.txt > hash
         truncate -s 24M parts
         printf 'label: gpt\nstart=2048, size=24576, name=root\nstart=28672, size=8192, name=tree\n' | sfdisk -q parts
         dd if=root of=parts bs=512 seek=2048 conv=notrunc status=none
         dd if=tree of=parts bs=512 seek=28672 conv=notrunc status=none",
    );
    place.is("verity verify parts @hash", 2, "this is a GPT partition table");
    place.yes("verity verify parts,partition=root parts,partition=tree @hash");
    let line = "verity table parts,partition=root parts,partition=tree @hash";
    place.is(line, 2, "give the kernel's name of that part with --data-name");
    place.is(&format!("{line} --data-name PARTUUID=1"), 2, "with --hash-name");
    let text = place.yes(&format!("{line} --data-name PARTUUID=1 --hash-name PARTUUID=2"));
    assert!(text.contains("verity 1 PARTUUID=1 PARTUUID=2 4096 4096 "), "{text}");
    place.yes(&format!("{line} --print=data-uuid"));
}

/// Logical partitions are a chain of records: those before one that is lost are told.
#[test]
fn a_chain_of_logical_partitions_that_breaks_hides_only_its_rest() {
    let place = place();
    if tool("sfdisk").is_none() {
        return;
    }
    place.file("table", b"label: dos\nstart=2048,size=2048,type=83\nstart=4096,size=20000,type=5\nstart=6144,size=2048\nstart=10240,size=2048\n");
    place.sh("truncate -s 16M disk; sfdisk -q disk < table >&2");
    let numbers = |name: &str| -> Vec<u64> {
        let found = json(&place, name);
        found["inside"].as_array().unwrap().iter().map(|part| part["partition"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers("disk"), [1, 2, 5, 6]);
    overwrite(&place, "disk", &[0; 512], 8192 * 512);
    assert_eq!(numbers("disk"), [1, 2, 5]);
    let text = place.yes("info disk");
    let said = "the record of logical partition 6, at byte 4194304, can't be read: it has no signature";
    assert!(text.contains(said), "{text}");
    place.is("ext4 ls -P 6 disk", 2, said);
}

/// A digest of all bytes, as sha256sum has it.
#[test]
fn the_digest_is_that_of_the_image() {
    let place = place();
    place.file("noise", Rng::new(3).bytes(3_000_001));
    let expected = place.sh("sha256sum noise | cut -d' ' -f1");
    let expected = expected.trim();
    assert!(stdout(&place.is("info --sha256 noise", 1, "")).ends_with(&format!("sha256: {expected}\n")));
    let value: Value = serde_json::from_slice(&place.is("info --sha256 --json noise", 1, "").stdout).unwrap();
    assert_eq!(value["sha256"], expected);
    assert!(
        stdout(&place.is("info --sha256 --html - noise", 1, "")).contains(&format!("SHA-256 {expected}"))
    );
    place.is("info --sha256 --scan noise", 2, "cannot be used with");
}

/// A hash area behind its file system is named where one is looked for at the beginning, with the option that leads there.
#[test]
fn a_hash_area_behind_a_file_system_is_pointed_to() {
    let place = place();
    if !disk(&place) {
        return;
    }
    let root = place.sh("sed -n 's/^Root hash: *\\t*//p' verity.txt");
    let root = root.trim();
    for (line, option) in [
        ("verity dump root".to_owned(), "--hash-offset 8388608"),
        (format!("ext4 ls --dm-verity root {root} root /"), "--verity-hash-offset 8388608"),
    ] {
        place.is(&line, 2, &format!("hash area at byte 8388608 ({option})"));
        place.is(&format!("{line} {option}"), 0, "");
    }
    // Advice is in the words that the user has.
    let line = format!("ext4 ls root,verity,root-hash={root}");
    place.is(&format!("{line} /"), 2, "hash area at byte 8388608 (hash-offset=8388608)");
    place.is(&format!("{line},hash-offset=8388608 /"), 0, "");
    // Where both are one file there is no question where it is.
    place.is(&format!("verity verify root root {root}"), 0, "");
}

/// Commands that read the files of a damaged file system are those that can.
#[test]
fn commands_for_damaged_file_systems_are_those_that_work() {
    let place = place();
    let Some(debugfs) = tool("debugfs") else { return };
    place.sh("truncate -s 8M sound; mke2fs -q -t ext4 sound");
    place.yes("ext4 put sound file /file");
    for (damage, reads) in [
        ("", "ext4 ls root /"),
        ("clri <8>", "ext4 ls root /"),
        ("feature needs_recovery\nclri <8>", "ext4 ls --no-replay root /"),
        ("clri <2>", "ext4 extract --unreachable root FOLDER"),
        ("feature needs_recovery\nclri <8>\nclri <2>", "ext4 extract --no-replay --unreachable root FOLDER"),
    ] {
        place.sh("cp sound root; rm -rf FOLDER");
        place.file("script", damage);
        run(Command::new(&debugfs).args(["-w", "-f"]).arg(place.path("script")).arg(place.path("root")));
        let text = place.yes("info root");
        let shown: Vec<&str> =
            text.lines().filter_map(|line| line.trim().strip_prefix("$ casemate ")).collect();
        assert_eq!(shown, [reads, "ext4 check root"], "{damage}: {text}");
        place.is(reads, 0, "");
        if damage.contains("clri <2>") {
            assert!(place.sh("grep -rl hello FOLDER").contains("FOLDER/#"), "{damage}");
        }
    }
    // A file system that does not open is checked alone.
    place.sh(
        "cp sound root; printf '\\377\\377\\377\\377' | dd of=root bs=1 seek=1060 conv=notrunc status=none",
    );
    let text = place.yes("info root");
    assert!(!text.contains("$ casemate ext4 ls"), "{text}");
}

/// A pipe that nobody writes to is not an image, and is not waited for.
#[test]
fn a_pipe_is_no_image() {
    let place = place();
    place.sh("mkfifo pipe");
    for line in [
        "info pipe",
        "ext4 ls pipe /",
        "luks dump pipe",
        "verity format pipe hash",
        "serve -r pipe --exec true",
    ] {
        place.is(line, 2, "pipe: neither a regular file nor a block device");
    }
}

/// Names in an image can't pass for words of ours, nor move a terminal's cursor.
#[test]
fn what_an_image_says_is_shown_without_control_characters() {
    let place = place();
    if !disk(&place) {
        return;
    }
    place.sh("truncate -s 8M odd; mke2fs -q -t ext4 -O ^metadata_csum odd");
    let image = fs::File::options().write(true).open(place.path("odd")).unwrap();
    image.write_all_at(b"\x1b[2J\nroot: \xc2\x9b1m", 1024 + 120).unwrap();
    image.write_all_at(b"/a\nb", 1024 + 136).unwrap();
    for line in ["info odd", "info --json odd", "info --html - odd"] {
        let text = place.yes(line);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{line}: {text:?}");
        assert!(!text.contains("\nroot:") && text.contains("root: "), "{line}: {text:?}");
    }
    assert_eq!(json(&place, "odd")["facts"]["label"], "\u{fffd}[2J\u{fffd}root: \u{fffd}1m");
}

#[test]
fn errors_about_a_wrong_image_say_what_it_is() {
    let place = place();
    for (program, script, said) in [
        (
            "cryptsetup",
            "echo x | cryptsetup luksFormat -q --type luks1 --pbkdf-force-iterations 1000 image",
            "this is a LUKS1 header (see casemate info)",
        ),
        ("qemu-img", "qemu-img create -q -f qcow2 image 1M", "this is a qcow2 image"),
        ("gzip", "gzip <file >image", "this is gzip data"),
        ("mkswap", "mkswap image", "this is swap space"),
        (
            "sfdisk",
            "printf 'label: gpt\nsize=2048\n' | sfdisk -q image",
            "with partitions 1 (see casemate info); choose a partition (--partition N)",
        ),
    ] {
        if tool(program).is_none() {
            continue;
        }
        place.sh(&format!("rm -f image; truncate -s 16M image; {{ {script}\n}} >&2"));
        for command in ["ext4 ls image", "ext4 mkdir image /x", "verity dump image"] {
            let output = place.own(command);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.code() == Some(2) && stderr.contains(said),
                "{script}: {command}: {stderr}"
            );
        }
        let text = place.yes("info image");
        let what = said.trim_start_matches("this is ").split(" (").next().unwrap();
        assert!(text.contains(what.split(';').next().unwrap()), "{script}: {text}");
    }
}

/// JSON has the names and values that blkid and lsblk have; what was there before stands beside them.
#[test]
fn json_has_the_names_of_blkid() {
    let place = place();
    let Some(blkid) = tool("blkid") else { return };
    if !disk(&place) {
        return;
    }
    place.sh("truncate -s 20M dos; printf 'label: dos\nsize=8M, type=82\nsize=8M\n' | sfdisk -q dos >&2
              truncate -s 8M fat swap; mkswap -L pages swap >&2
              if command -v mkfs.fat; then mkfs.fat fat; else cp swap fat; fi >&2");
    let theirs = |name: &str, offset: u64| -> Vec<(String, String)> {
        let mut command = Command::new(&blkid);
        command.args(["-p", "-o", "export", "--offset", &offset.to_string()]).arg(place.path(name));
        let text = run(&mut command);
        text.lines()
            .filter_map(|line| line.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    };
    let check = |ours: &Value, theirs: Vec<(String, String)>| {
        let mut compared = 0;
        for (name, value) in theirs {
            let text = match &ours[&name] {
                Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            if ["TYPE", "UUID", "LABEL", "PTTYPE", "PTUUID", "BLOCK_SIZE"].contains(&&*name) {
                // blkid has a size of blocks for more formats.
                if name != "BLOCK_SIZE" || ours["what"] == "an ext2, ext3 or ext4 file system" {
                    assert_eq!(text, value, "{name}: {ours}");
                    compared += 1;
                }
            }
        }
        assert!(compared >= 2, "{ours}");
    };
    for name in ["root", "luks", "disk", "dos", "swap", "fat"] {
        check(&json(&place, name), theirs(name, 0));
    }
    check(&json(&place, "root --offset 8388608"), theirs("root", 8 << 20));
    for name in ["disk", "dos"] {
        let table: Value = serde_json::from_str(&place.sh(&format!("sfdisk -J {name}"))).unwrap();
        let found = json(&place, name);
        for (ours, theirs) in found["inside"]
            .as_array()
            .unwrap()
            .iter()
            .zip(table["partitiontable"]["partitions"].as_array().unwrap())
        {
            let upper = |value: &Value| value.as_str().unwrap_or_default().to_uppercase();
            assert_eq!(upper(&ours["PARTTYPE"]), upper(&theirs["type"]));
            if name == "disk" {
                assert_eq!(upper(&ours["PARTUUID"]), upper(&theirs["uuid"]));
                assert_eq!(ours["PARTLABEL"], theirs["name"]);
            }
        }
    }
    let found = json(&place, "dos");
    let id = found["PTUUID"].as_str().unwrap();
    assert_eq!(found["inside"][1]["PARTUUID"], format!("{id}-02"));
    assert_eq!(found["inside"][0]["PARTTYPENAME"], "Linux swap");
    let found = json(&place, "disk");
    assert_eq!(found["inside"][0]["PARTTYPENAME"], "Linux filesystem");
    assert_eq!(found["inside"][0]["values"]["block_size"], 1024);
    assert_eq!(found["inside"][0]["facts"]["block_size"], "1024");
}

/// A secondary header, or a backup GPT, of what was here before is told, and is not taken for what is here.
#[test]
fn what_is_left_over_is_named_and_not_used() {
    let place = place();
    if !disk(&place) {
        return;
    }
    let uuid = place.sh("cryptsetup luksUUID luks");
    // As mkfs leaves it: the beginning is written, and nothing else is wiped.
    place.sh("mke2fs -q -t ext2 -F new 4M; dd if=luks of=stale bs=1k status=none
              dd if=new of=stale bs=1k count=10 conv=notrunc status=none");
    let found = json(&place, "stale");
    assert_eq!(found["TYPE"], "ext2", "{found}");
    assert_eq!(found["stale"][0]["start"], 16384, "{found}");
    assert_eq!(found["stale"][0]["uuid"], uuid.trim());
    let text = place.yes("info stale");
    assert!(text.contains("left over from earlier: a LUKS2 secondary header"), "{text}");
    assert!(!text.contains("luks dump"), "{text}");
    // A file system over a whole disk.
    place.sh("dd if=root of=disk conv=notrunc bs=1M count=8 status=none");
    let found = json(&place, "disk");
    assert_eq!(
        (&found["TYPE"], &found["stale"][0]["what"]),
        (&"ext4".into(), &"a backup GPT".into()),
        "{found}"
    );
    for name in ["root", "luks"] {
        assert_eq!(json(&place, name)["stale"], serde_json::json!([]));
    }
}

/// A search finds without a table what the table led to, with the options that read each.
#[test]
fn a_search_finds_what_no_table_leads_to() {
    let place = place();
    if !disk(&place) {
        return;
    }
    let scan = |name: &str| -> Value {
        let output = place.is(&format!("info --scan --json {name}"), 0, "");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let uuids = |found: &Value| -> Vec<(u64, String)> {
        let found = found["found"].as_array().unwrap().iter();
        found
            .map(|one| (one["start"].as_u64().unwrap(), one["TYPE"].as_str().unwrap_or("gpt").to_owned()))
            .collect()
    };
    let places = [(1 << 20, "ext4"), ((1 << 20) + (8 << 20), "DM_verity_hash"), (14_680_064, "crypto_LUKS")];
    let places = places.map(|(start, what)| (start, what.to_owned()));
    let mut with_table = vec![(0, "gpt".to_owned())];
    with_table.extend(places.clone());
    let found = scan("disk");
    assert_eq!(uuids(&found), with_table, "{found}");
    let table = &found["found"][0];
    let roles: Vec<&str> =
        table["copies"].as_array().unwrap().iter().map(|copy| copy["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["primary", "backup"]);
    assert_eq!(table["inside"][1]["start"], 14_680_064);
    // Neither copy of the table, and not the primary header of the volume.
    overwrite(&place, "disk", &[0; 34 * 512], 0);
    overwrite(&place, "disk", &[0; 512], (20 << 20) - 512);
    overwrite(&place, "disk", &Rng::new(5).bytes(4096), 14_680_064);
    let found = scan("disk");
    assert_eq!(uuids(&found), places, "{found}");
    let luks = &found["found"][2];
    assert_eq!((&luks["copies"][0]["role"], &luks["LABEL"]), (&"secondary".into(), &"secret".into()));
    let text = place.yes("info --scan disk");
    let shown: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("$ casemate ")).collect();
    assert!(shown.len() >= 4, "{text}");
    for line in shown.into_iter().filter(|line| !line.contains("--luks")) {
        place.is(line, 0, "");
    }
    assert!(text.contains("ext4 ls --offset 1048576 disk /"), "{text}");
    // In part of a disk, and behind layers.
    place.yes("crypt encrypt root enc --key-file disk.key --key-size 512");
    place.is("info --scan enc", 1, "");
    let crypt = "--crypt aes-xts-plain64 --key-file disk.key --key-size 512";
    assert!(
        place.yes(&format!("info --scan {crypt} enc")).contains("at byte 0: an ext4 file system \"system\"")
    );
}

/// Copies of one superblock belong together, and one of them is enough.
#[test]
fn copies_that_a_search_finds_belong_together() {
    if ["mke2fs", "debugfs"].into_iter().any(|name| tool(name).is_none()) {
        return;
    }
    let place = place();
    // At a place that no partition would have, and another one behind.
    place.sh("truncate -s 32M one; mke2fs -q -t ext4 -b 1024 -L one one
              truncate -s 160M two; mke2fs -q -t ext3 -b 4096 -L two two
              truncate -s 5635584 gap
              cat gap one gap two >disk");
    let (one, two) = (5_635_584_u64, 2 * 5_635_584 + (32 << 20));
    let scan = || -> Value {
        let output = place.is("info --scan --json disk", 0, "");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let found = scan();
    let starts: Vec<u64> =
        found["found"].as_array().unwrap().iter().map(|one| one["start"].as_u64().unwrap()).collect();
    assert_eq!(starts, [one, two], "{found}");
    let blocks = |found: &Value| -> Vec<u64> {
        found["copies"].as_array().unwrap().iter().filter_map(|copy| copy["block"].as_u64()).collect()
    };
    assert_eq!(blocks(&found["found"][0]), [8193, 24577]);
    assert_eq!((&found["found"][1]["TYPE"], blocks(&found["found"][1])), (&"ext3".into(), vec![32768]));
    overwrite(&place, "disk", &vec![0; 5000], one);
    overwrite(&place, "disk", &vec![0; 5000], two);
    let found = scan();
    for (number, (start, block)) in [(one, 8193), (two, 32768)].into_iter().enumerate() {
        let found = &found["found"][number];
        assert_eq!((&found["start"], &found["superblock"]), (&start.into(), &block.into()), "{found}");
        let command = found["commands"][0].as_str().unwrap();
        assert_eq!(command, format!("casemate ext4 ls --offset {start} --superblock {block} disk /"));
        place.yes(command.strip_prefix("casemate ").unwrap());
    }
    // The beginning is cut off.
    let bytes = place.read("disk");
    place.file("tail", &bytes[one as usize + 20_480..]);
    let text = place.is("info --scan tail", 0, "").stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("begins 20480 bytes before the image: an ext4 file system \"one\""), "{text}");
}

/// Bytes that only look like the beginning of something are nothing.
#[test]
fn a_search_believes_no_magic_number_alone() {
    let place = place();
    let mut rng = Rng::new(9);
    let mut bytes = rng.bytes(4 << 20);
    let magics: [(usize, &[u8]); 14] = [
        (0, b"LUKS\xba\xbe\0\x01"),
        (0, b"LUKS\xba\xbe\0\x02"),
        (0, b"SKUL\xba\xbe\0\x02"),
        (0, b"verity\0\0\x01\0\0\0"),
        (0, b"integrt\0"),
        (0, b"EFI PART\0\0\x01\0\x5c\0\0\0"),
        (0, b"LABELONE"),
        (0, b"XFSB\0\0\x10\0"),
        (56, b"\x53\xef"),
        (64, b"_BHRfS_M"),
        (0, b"hsqs"),
        (0, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
        (502, b"SWAPSPACE2"),
        (0, b"\xeb\x58\x90NTFS    "),
    ];
    for (number, sector) in bytes.chunks_mut(512).enumerate() {
        let (at, magic) = magics[number % magics.len()];
        sector[at..at + magic.len()].copy_from_slice(magic);
    }
    place.file("noise", &bytes);
    let text = stdout(&place.is("info --scan noise", 1, ""));
    assert!(text.starts_with("noise: nothing known was found, 4194304 bytes searched"), "{text}");
    place.is("info --scan file", 1, "");
}

/// A browser that is nobody's shows the page: it is whole, to scale, and needs nothing from elsewhere.
#[test]
fn the_page_is_shown_by_a_browser() {
    let place = place();
    if !disk(&place) {
        return;
    }
    place.yes("info --html page.html disk");
    let page = fs::read_to_string(place.path("page.html")).unwrap();
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("<script"), "{page}");
    assert!(
        page.contains("left:5.0000%;width:60.0000%") && page.contains("left:70.0000%;width:20.0000%"),
        "{page}"
    );
    let made = place
        .command()
        .args(["info", "--html", "-", "disk"])
        .env("SOURCE_DATE_EPOCH", "86399")
        .output()
        .unwrap();
    let made = String::from_utf8(made.stdout).unwrap();
    assert!(made.contains(", 1970-01-01T23:59:59Z") && made.contains("<dt>What protects it</dt>"), "{made}");
    let body = |page: &str| page.split_once("</p>").unwrap().1.to_owned();
    assert_eq!(body(&made), body(&page));
    // What an image says of itself is text, whatever it looks like.
    if tool("tune2fs").is_some() {
        place.sh("tune2fs -L '<b>&\"x' root >&2");
        let page = place.yes("info --html - root");
        assert!(page.contains("&lt;b&gt;&amp;&quot;x") && !page.contains("<b>"), "{page}");
        place.sh("tune2fs -L \"$(printf 'a\\342\\200\\256b')\" root >&2");
        assert!(!place.yes("info --html - root").contains('\u{202e}'));
    }
    let names = ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"];
    let Some(browser) = names.into_iter().find_map(casemate_testkit::find_program) else {
        return skip("no chromium, to show the page");
    };
    let mut command = Command::new(browser);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--window-size=1200,1600",
    ]);
    command.args(["--screenshot=shot.png", "--user-data-dir=profile", "page.html"]);
    let home = place.folder();
    run(command.current_dir(home).env("HOME", home));
    let shot = fs::read(place.path("shot.png")).unwrap();
    assert!(shot.starts_with(b"\x89PNG") && shot.len() > 10_000, "{} bytes", shot.len());
}

/// Bytes of an overlay are of no use by themselves.
#[test]
fn an_overlay_comes_with_the_commands_that_take_one() {
    let place = Place::new(CASEMATE);
    let image = vec![7; 1 << 20];
    place.file("image", &image);
    let mut server = place.command();
    server.args(["serve", "image", "--overlay", "changes.ovl", "--exec", "true", "-U", "-"]);
    run(&mut server);
    let text = stdout(&place.own("info changes.ovl"));
    assert!(text.contains("$ casemate serve -r --overlay changes.ovl -U - IMAGE"), "{text}");
    assert!(text.contains("$ casemate overlay commit -n changes.ovl IMAGE"), "{text}");
    assert!(!text.contains("- changes.ovl"), "{text}");
}
