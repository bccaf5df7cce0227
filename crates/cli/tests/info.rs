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
    for line in shown {
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
        for line in shown.filter(|line| !line.contains("ext4 check")) {
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
        run_all(&text);
    }
    // The superblock, zeros or noise in its place, and the first MiB.
    place.sh("truncate -s 32M large; mke2fs -q -t ext4 -b 1024 -L system large");
    for (bytes, at) in [(vec![0; 1024], 1024), (Rng::new(1).bytes(2048), 0), (vec![0; 1 << 20], 0)] {
        place.sh("cp large headless");
        overwrite(&place, "headless", &bytes, at);
        let text = place.yes("info headless");
        assert!(text.contains("an ext4 file system \"system\"") && text.contains("block 8193"), "{text}");
        assert!(text.contains("ext4 ls --superblock 8193 headless"), "{text}");
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
    let text = place.yes("info disk");
    assert_eq!(text.matches("damaged: cut off: 0 of 4194304 bytes are left").count(), 1, "{text}");
    assert!(!text.contains("--crypt"), "{text}");
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
        (format!("verity verify root root {root}"), "--hash-offset 8388608"),
        (format!("ext4 ls --dm-verity root {root} root /"), "--verity-hash-offset 8388608"),
    ] {
        place.is(&line, 2, &format!("hash area at byte 8388608 ({option})"));
        place.is(&format!("{line} {option}"), 0, "");
    }
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
    assert_eq!(place.yes("info --html - disk"), page);
    // What an image says of itself is text, whatever it looks like.
    if tool("tune2fs").is_some() {
        place.sh("tune2fs -L '<b>&\"x' root >&2");
        let page = place.yes("info --html - root");
        assert!(page.contains("&lt;b&gt;&amp;&quot;x") && !page.contains("<b>"), "{page}");
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
