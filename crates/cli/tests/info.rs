//! `casemate info`: what other tools made is named, as far down as it goes, in text, JSON and a page.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use casemate_testkit::{Place, run, skip, tool};
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
    assert_eq!(json(&place, "enc")["what"], Value::Null);
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
    assert!(damage.contains("cut off: it has 8388608 bytes, and 5242880 are here"), "{damage}");
    let image = fs::File::options().write(true).open(place.path("root")).unwrap();
    image.write_all_at(&[0xff; 64], 2048).unwrap();
    assert!(json(&place, "root")["damage"][0].as_str().unwrap().contains("group descriptor"));
    let disk = fs::File::options().write(true).open(place.path("disk")).unwrap();
    disk.write_all_at(&[1; 64], 1024).unwrap();
    disk.write_all_at(&[1; 64], (20 << 20) - 512).unwrap();
    assert_ne!(json(&place, "disk")["damage"], serde_json::json!([]));
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
            "with partitions 1; give --partition",
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
