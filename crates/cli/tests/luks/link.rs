//! The command called through a link with the name cryptsetup, beside that tool: the same command lines, one after the other
//! on two equal volumes, end with the same status and leave the same headers.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use casemate::Providers;
use casemate_testkit::{Place, run_any, tool};

use crate::CASEMATE;
use crate::twins::{CHEAP, Twins};

/// The status of a command line of cryptsetup, on the volume of theirs and ours, with something on standard input.
fn statuses(twins: &Twins, line: &str, input: &str) -> [i32; 2] {
    let link = twins.place.path("cryptsetup");
    let theirs = tool("cryptsetup").unwrap();
    [(theirs, "theirs"), (link, "ours")].map(|(program, volume)| {
        let line = line.replace("DISK", volume);
        let mut command = Command::new(program);
        command.args(line.split_whitespace()).current_dir(twins.place.folder());
        twins.place.file("input", input);
        command.stdin(Stdio::from(std::fs::File::open(twins.place.path("input")).unwrap()));
        let output = run_any(&mut command);
        let status = output.status.code().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            status == 0 || volume == "theirs" || !said.is_empty() || line.starts_with("isLuks"),
            "{line}"
        );
        println!("{line}: {status} {said}");
        status
    })
}

#[test]
fn command_lines_of_cryptsetup_end_as_they_do_there() {
    for options in ["--type luks1", "--type luks2 --offset 4096 --sector-size 512"] {
        let Some(twins) = Twins::new(options) else { return };
        symlink(CASEMATE, twins.place.path("cryptsetup")).unwrap();
        twins.place.file("token.json", r#"{"type":"note","keyslots":["0"]}"#);
        let is_luks2 = options.contains("luks2");
        let both = |line: &str, input: &str| {
            let [theirs, ours] = statuses(&twins, line, input);
            assert_eq!(ours, theirs, "{line}");
            theirs
        };
        for line in [
            "isLuks DISK",
            "isLuks --type luks1 DISK",
            "isLuks one",
            "luksUUID DISK",
            "luksUUID one",
            "luksUUID none",
            "luksDump DISK",
            "luksDump none",
            "luksDump --dump-json-metadata DISK",
            "open --test-passphrase --key-file one DISK",
            "luksOpen --test-passphrase -d two -S 1 DISK",
            "open --test-passphrase -d two -S 0 DISK",
            "open --test-passphrase -d three DISK",
            "open --test-passphrase -d none DISK",
            &format!("luksAddKey -q {CHEAP} -d one DISK three -S 4"),
            &format!("luksAddKey -q {CHEAP} -d one DISK three -S 4"),
            &format!("luksAddKey -q {CHEAP} -d none DISK three"),
            &format!("luksAddKey -q {CHEAP} -d one --new-keyfile three --new-key-slot 5 DISK"),
            "open --test-passphrase -S 4 -d three DISK",
            &format!("luksChangeKey -q {CHEAP} -d three DISK two"),
            "luksRemoveKey -q DISK three",
            "luksRemoveKey -q DISK three",
            "luksKillSlot -q DISK 7",
            // The slot that has been changed.
            if is_luks2 { "luksKillSlot -q DISK 4" } else { "luksKillSlot -q DISK 2" },
            "luksKillSlot DISK",
            "luksUUID -q --uuid 0c4fdcf6-3db0-4d0c-9b4c-7f8ad6b1f2a0 DISK",
            "luksHeaderBackup DISK --header-backup-file DISK.backup",
            "luksHeaderBackup DISK --header-backup-file DISK.backup",
            "luksHeaderBackup DISK",
            "luksDump -q --dump-volume-key -d one --volume-key-file DISK.key DISK",
            "config --label a.label --subsystem sub DISK",
            "config --label b DISK",
            "config --priority prefer -S 1 DISK",
            "config --label b -S 1 DISK",
            "config DISK",
            "token add --key-description name DISK",
            "token import --json-file token.json --token-id 5 DISK",
            "token import --json-file token.json --token-id 5 DISK",
            "token export --token-id 5 DISK",
            "token unassign --token-id 5 -S 0 DISK",
            "token remove --token-id 5 DISK",
            "token remove --token-id 5 DISK",
            "token remove --token-id 0 DISK",
            "token add --key-description name --token-replace DISK",
            "token remove --token-id 0 DISK",
            "token remove --token-id -5 DISK",
            "luksFormat -q --type plain DISK one",
            "token nonsense DISK",
            "repair -q DISK",
            "convert -q DISK",
            "nonsense DISK",
            "luksDump --nonsense DISK",
            "luksFormat",
            "",
            "-V",
            "--help",
        ] {
            both(line, "");
        }
        // Passphrases are lines of standard input.
        assert_eq!(both(&format!("luksAddKey {CHEAP} DISK"), "one\nanother\nanother\n"), 0);
        assert_eq!(both("open --test-passphrase DISK", "another\n"), 0);
        assert_eq!(both("open --test-passphrase DISK", "not that\n"), 2);
        twins.place.file("another", "another");
        if is_luks2 {
            assert_eq!(
                both("luksConvertKey -q -d another --pbkdf pbkdf2 --pbkdf-force-iterations 1001 DISK", ""),
                0
            );
            assert_eq!(both(&format!("luksAddKey -q --unbound --key-size 256 -S 9 {CHEAP} DISK two"), ""), 0);
            assert_eq!(both("luksDump -q --unbound -S 9 -d two --volume-key-file DISK.9 DISK", ""), 0);
            assert_eq!(both("luksKillSlot -q DISK 9", ""), 0);
            assert_eq!(both("config --label= --subsystem= DISK", ""), 0);
        }
        let other = if is_luks2 { "luks1" } else { "luks2" };
        assert_eq!(both(&format!("convert -q --type {other} DISK"), ""), 0);
        assert_eq!(both(&format!("convert -q --type {other} DISK"), ""), 1);
        assert_eq!(both("luksHeaderRestore -q DISK --header-backup-file DISK.backup", ""), 0);
        assert_eq!(both("erase -q DISK", ""), 0);
        // Nothing is left that a passphrase could open.
        for line in ["open --test-passphrase -d one DISK", "open --test-passphrase -d one -S 0 DISK"] {
            assert_eq!(both(line, ""), 1);
        }
        assert_eq!(both("luksAddKey -q -d one DISK two", ""), 1);
        assert_eq!(both(&format!("luksFormat -q {options} {CHEAP} DISK one"), ""), 0);
        assert_eq!(both("open --test-passphrase -d one DISK", ""), 0);
        if is_luks2 {
            let reencrypt = format!("reencrypt -q --force-offline-reencrypt {CHEAP} -S 0 -d one DISK");
            assert_eq!(both(&reencrypt, ""), 0);
            assert_eq!(both("open --test-passphrase -d one DISK", ""), 0);
            // The slot has got another number.
            assert_eq!(both(&reencrypt, ""), 1);
            assert_eq!(both(&reencrypt.replace("-S 0 -d one", "-d three"), ""), 2);
        }
        assert_eq!(both("benchmark -h sha256", ""), 0);
        assert_eq!(both("benchmark -h sha256 -c aes-xts-plain64 -s 256", ""), 0);
    }
}

/// A passphrase that stays is checked wherever one is given: in a file, or on an input that has not ended.
#[test]
fn a_slot_is_killed_by_who_can_still_open_the_volume() {
    for options in ["--type luks1", "--type luks2 --offset 4096 --sector-size 512"] {
        let Some(twins) = Twins::new(options) else { return };
        symlink(CASEMATE, twins.place.path("cryptsetup")).unwrap();
        let both = |line: &str, input: &str, status: i32| {
            assert_eq!(statuses(&twins, line, input), [status; 2], "{line}, {input:?}");
            twins.same(line);
        };
        let before = twins.place.read("theirs");
        for (line, input, status) in [
            ("luksKillSlot DISK 0", "two\nmore", 0),
            ("luksKillSlot DISK 0", "one\n", 2),
            ("luksKillSlot -q DISK 0", "wrong\n", 2),
            ("luksKillSlot DISK 0", "\n", 2),
            ("luksKillSlot DISK 0", "", 0),
            ("luksKillSlot -q DISK 0 -d two", "", 0),
            ("luksKillSlot -q DISK 0 -d one", "", 2),
            // A key file is not a third word.
            ("luksKillSlot DISK 1 two", "", 0),
            ("luksKillSlot DISK 1 one", "two\n", 2),
            ("luksKillSlot DISK 1 -d one --keyfile-size 2", "", 2),
            ("luksKillSlot DISK 1 -d none", "", 1),
            ("luksKillSlot DISK 1 -d -", "one", 0),
            ("luksKillSlot DISK 1 -d -", "one\n", 2),
            ("luksKillSlot DISK 1 -d -", "", 0),
            ("luksKillSlot DISK 7 -d three", "", 1),
        ] {
            both(line, input, status);
            twins.place.file("theirs", &before);
            twins.level();
        }
        // One that is tried only where it is named opens the data too; a key for no data does not.
        if options.contains("luks2") {
            twins.theirs("config --priority ignore -S 1 theirs");
            twins.theirs(&format!("luksAddKey -q --unbound --key-size 256 -S 5 {CHEAP} theirs three"));
            twins.level();
            both("luksKillSlot DISK 5 -d three", "", 2);
            both("luksKillSlot DISK 0 -d three", "", 2);
            both("luksKillSlot DISK 5 -d one", "", 0);
        }
        both("luksKillSlot DISK 0 -d two", "", 0);
        // The last one is opened itself.
        both("luksKillSlot DISK 1", "one\n", 2);
        both("luksKillSlot DISK 1", "two\n", 0);
    }
}

#[test]
fn sizes_of_a_header_are_those_that_cryptsetup_chooses() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    let place = Place::new(CASEMATE);
    symlink(CASEMATE, place.path("cryptsetup")).unwrap();
    place.file("key", "pass");
    let said = |options: &str, program: &Path| {
        let file = std::fs::File::create(place.path("disk")).unwrap();
        file.set_len(160 << 20).unwrap();
        drop(file);
        let made = place.run(program, &format!("luksFormat -q {CHEAP} {options} disk key"));
        let dump = place.run(&cryptsetup, "luksDump disk");
        let is_size = |line: &&str| {
            ["Metadata area:", "Keyslots area:", "offset:", "Payload offset:", "Subsystem:", "Area offset:"]
                .iter()
                .any(|head| line.trim_start().starts_with(head))
        };
        let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
        (made.status.code(), dump.lines().filter(is_size).collect::<Vec<_>>().join("\n"))
    };
    for options in [
        "",
        "--luks2-metadata-size 32k",
        "--luks2-metadata-size 4m",
        "--luks2-metadata-size 4m --luks2-keyslots-size 12m",
        "--luks2-metadata-size 20k",
        "--luks2-metadata-size 8m",
        "--luks2-keyslots-size 1m",
        "--luks2-keyslots-size 300k",
        "--luks2-keyslots-size 128m",
        "--luks2-keyslots-size 129m",
        "--luks2-keyslots-size 5000",
        "--luks2-keyslots-size 1M",
        "--luks2-keyslots-size 1MB",
        "--luks2-keyslots-size 4096KB",
        "--luks2-keyslots-size 1024KiB",
        "--luks2-keyslots-size 2048s",
        "--luks2-keyslots-size 1mib",
        "--luks2-keyslots-size 1x",
        "--offset 8192 --luks2-keyslots-size 1m",
        "--offset 8192 --luks2-metadata-size 1m",
        "--offset 2048 --luks2-keyslots-size 1m",
        "--align-payload 8",
        "--align-payload 3",
        "--align-payload 65536",
        "--align-payload 8 --luks2-keyslots-size 1m",
        "--align-payload 4096 --luks2-keyslots-size 1m",
        "--align-payload 8 --offset 8192",
        "--subsystem sub --label lab",
        "--type luks1",
        "--type luks1 --align-payload 8",
        "--type luks1 --align-payload 1000",
    ] {
        let options =
            if options.contains("--type") { options.to_owned() } else { format!("--type luks2 {options}") };
        assert_eq!(said(&options, &place.path("cryptsetup")), said(&options, &cryptsetup), "{options}");
    }
}

#[test]
fn a_volume_that_somebody_uses_is_busy() {
    let Some(twins) = Twins::new("--type luks1") else { return };
    symlink(CASEMATE, twins.place.path("cryptsetup")).unwrap();
    let held = std::fs::File::open(twins.place.path("ours")).unwrap();
    held.lock().unwrap();
    let mut command = Command::new(twins.place.path("cryptsetup"));
    let output = run_any(command.args(["erase", "-q", "ours"]).current_dir(twins.place.folder()));
    assert_eq!(output.status.code(), Some(5));
}

/// A LUKS2 header whose metadata are changed as text, with checksums that are right.
fn edited(image: &mut [u8], change: impl Fn(&str) -> String) {
    for start in [0, 16 << 10] {
        let text = image[start + 4096..start + (16 << 10)].split(|byte| *byte == 0).next().unwrap();
        let text = change(std::str::from_utf8(text).unwrap());
        image[start + 4096..start + (16 << 10)].fill(0);
        image[start + 4096..][..text.len()].copy_from_slice(text.as_bytes());
        image[start + 448..start + 512].fill(0);
        let sha256 = Providers::default().hash("sha256").unwrap();
        let digest = sha256.digest(&image[start..start + (16 << 10)]);
        image[start + 448..][..32].copy_from_slice(&digest);
    }
}

/// A reencryption without a proof is protected, a forged one is refused, and neither passes for sound.
#[test]
fn a_reencryption_is_repaired_as_it_is_there_or_refused() {
    let Some(twins) = Twins::new("--type luks2 --offset 4096 --sector-size 512") else { return };
    symlink(CASEMATE, twins.place.path("cryptsetup")).unwrap();
    let begin = "reencrypt -q -S 0 --init-only --force-offline-reencrypt -d one";
    twins.theirs(&format!("{begin} {CHEAP} theirs"));
    let begun = twins.place.read("theirs");
    let old = |text: &str| text.replace("online-reencrypt-v2", "online-reencrypt");
    let is_hex = |text: &str| text.starts_with("{\"type\":\"pbkdf2\"");
    // The digest of the reencryption is the last one.
    let unproven = |text: &str| {
        let (before, digest) = text.rsplit_once(",\"2\":").unwrap();
        assert!(is_hex(digest), "{digest}");
        format!("{before}}}{}", &digest[digest.find('}').unwrap() + 1..][1..])
    };
    let forged = |text: &str| {
        text.replace("\"resilience\"", "").replace("\"type\":\"checksum\"", "\"type\":\"journal\"")
    };
    type Case<'a> = (&'a str, &'a dyn Fn(&str) -> String, i32);
    let cases: [Case<'_>; 5] = [
        ("as it was begun", &|text| text.to_owned(), 0),
        ("of an old version", &old, 0),
        ("without its digest", &unproven, 0),
        ("forged", &forged, 2),
        ("of a later version", &|text| text.replace("reencrypt-v2", "reencrypt-v9"), 1),
    ];
    for (what, change, expected) in cases {
        let mut image = begun.clone();
        edited(&mut image, change);
        twins.place.file("theirs", &image);
        twins.level();
        let both = |line: &str, status: i32| {
            assert_eq!(statuses(&twins, line, ""), [status; 2], "{what}: {line}");
        };
        both("repair -q -d one DISK", expected);
        let is_whole = expected == 0;
        assert!(is_whole || twins.place.read("ours") == image, "{what}: changed");
        if is_whole {
            twins.level();
            both("reencrypt -q --resume-only --force-offline-reencrypt -d one DISK", 0);
            both("open --test-passphrase -d one DISK", 0);
        }
    }
    // Natively nothing that nobody proves is taken without a word, and nothing is asked where nothing is to be done.
    let mut image = begun;
    edited(&mut image, old);
    twins.place.file("ours", &image);
    twins.refused("repair ours", "nothing proves that the reencryption in this header is genuine");
    twins.refused("repair ours --batch-mode --key-file two", "does not open");
    twins.ours("repair ours --batch-mode --key-file one");
    twins.ours("reencrypt ours --key-file one --resume-only");
}

/// The command line that began the work goes on with it, and so does one that says nothing of it.
#[test]
fn work_that_was_begun_goes_on_as_there() {
    let Some(twins) = Twins::new("--type luks2 --offset 4096 --sector-size 512") else { return };
    symlink(CASEMATE, twins.place.path("cryptsetup")).unwrap();
    let volume = twins.place.read("theirs");
    let begin = format!("--init-only -q --force-offline-reencrypt {CHEAP} -d one");
    for (work, size, lines) in [
        ("-S 0", 0, &["", "-s 512"][..]),
        (
            "--encrypt --reduce-device-size 8m",
            16 << 20,
            &["", "--encrypt", "--encrypt --reduce-device-size 8m"],
        ),
        ("--decrypt --header HEADER", 0, &["--header HEADER", "--decrypt --header HEADER"]),
    ] {
        let line = |options: &str, volume: &str| {
            options.replace("HEADER", if volume == "DISK" { "DISK.header" } else { "theirs.header" })
        };
        twins.place.file("theirs", if size > 0 { vec![7; size] } else { volume.clone() });
        twins.theirs(&format!("reencrypt {} {begin} theirs", line(work, "theirs")));
        let begun = twins.place.read("theirs");
        let header = work.contains("--header").then(|| twins.place.read("theirs.header"));
        for options in lines {
            twins.place.file("theirs", &begun);
            twins.level();
            for name in ["theirs.header", "ours.header"] {
                if let Some(header) = &header {
                    twins.place.file(name, header);
                }
            }
            let options = line(options, "DISK");
            let line = format!("reencrypt {options} -q --force-offline-reencrypt -d one DISK");
            assert_eq!(statuses(&twins, &line, ""), [0; 2], "{work}: {options}");
            let still = format!("reencrypt -q --resume-only --force-offline-reencrypt -d one {options} DISK");
            assert_ne!(
                statuses(&twins, &still, "").map(|status| status == 0),
                [true; 2],
                "{options}: not done"
            );
        }
        // Other options than it was begun with are refused, and it is not begun again.
        if header.is_none() {
            twins.place.file("ours", &begun);
            let [_, ours] = ["-c aes-cbc-essiv:sha256", "--init-only"].map(|options| {
                statuses(&twins, &format!("reencrypt -q {options} --force-offline-reencrypt -d one DISK"), "")
                    [1]
            });
            assert_eq!((ours, twins.place.read("ours") == begun), (1, true), "{work}");
        }
    }
}

/// Warning of what a new volume overwrites, in the words of the tool.
#[test]
fn a_new_volume_warns_of_what_it_overwrites() {
    let (Some(cryptsetup), Some(_), Some(_)) = (tool("cryptsetup"), tool("sfdisk"), tool("mke2fs")) else {
        return;
    };
    let place = Place::new(CASEMATE);
    symlink(CASEMATE, place.path("cryptsetup")).unwrap();
    let contents = [
        ":",
        "printf 'label: gpt\nstart=2048, size=2048\n' | sfdisk -q disk",
        "mke2fs -q -F -t ext4 disk",
        "printf one | cryptsetup luksFormat -q --type luks1 --pbkdf-force-iterations 1000 disk -",
    ];
    for content in contents {
        place.sh(&format!("rm -f disk; truncate -s 20M disk; {content}; cp disk before"));
        for options in ["", "-q"] {
            let said = [cryptsetup.clone(), "./cryptsetup".into()].map(|program| {
                place.sh("cp before disk");
                let program = program.display();
                place.sh(&format!("printf one | {program} luksFormat {options} {CHEAP} disk - 2>&1"))
            });
            assert_eq!(said[0], said[1], "{content}");
            assert_eq!(said[0].is_empty(), content == ":" || options == "-q", "{content}");
        }
    }
}

/// Prompts at a terminal, and how often they come.
#[test]
fn passphrases_are_asked_for_in_the_words_of_the_tool() {
    let (Some(twins), Some(script)) = (Twins::new("--type luks1"), tool("script")) else { return };
    symlink(CASEMATE, twins.place.path("cryptsetup")).unwrap();
    let said = |line: &str, input: &str| {
        let mut command = Command::new(&script);
        command.args(["-qec", &format!("./cryptsetup {line}"), "/dev/null"]);
        command.current_dir(twins.place.folder()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n"))
    };
    let wrong = "No key available with this passphrase.";
    for (line, input, status, expected) in [
        (
            "open --test-passphrase ours -v",
            "bad\nworse\none\n",
            0,
            &[wrong, wrong, "Enter passphrase for ours: ", "Key slot 0 unlocked.", "Command successful."][..],
        ),
        (
            "open --test-passphrase ours -v -T 2",
            "bad\nworse\none\n",
            2,
            &[wrong, "Command failed with code -2 (no permission or bad passphrase)."],
        ),
        (
            &format!("luksAddKey {CHEAP} ours"),
            "one\nnew\nnew\n",
            0,
            &[
                "Enter any existing passphrase: ",
                "Enter new passphrase for key slot: ",
                "Verify passphrase: ",
            ],
        ),
        (&format!("luksAddKey {CHEAP} ours"), "one\nnew\nother\n", 2, &["Passphrases do not match."]),
        (
            &format!("luksChangeKey {CHEAP} ours"),
            "new\nnewer\nnewer\n",
            0,
            &["Enter passphrase to be changed: ", "Enter new passphrase: "],
        ),
        ("luksRemoveKey ours", "newer\n", 0, &["Enter passphrase to be deleted: "]),
        ("luksKillSlot ours 7", "", 1, &["Keyslot 7 is not active."]),
        ("luksKillSlot ours 1", "one\n", 0, &["Enter any remaining passphrase: "]),
        (
            "luksKillSlot ours 0",
            "no\n",
            2,
            &[
                "\nWARNING!\n========\n",
                "\n\nAre you sure? (Type 'yes' in capital letters): ",
                "Operation aborted, the keyslot was NOT wiped.\n",
            ],
        ),
        (
            "luksFormat ours",
            "no\n",
            1,
            &[
                "\nWARNING!\n========\nThis will overwrite data on ours irrevocably.\n\nAre you sure? \
               (Type 'yes' in capital letters): ",
                "Operation aborted.\n",
            ],
        ),
        (
            "luksUUID ours --uuid 00112233-4455-6677-8899-aabbccddeeff",
            "no\n",
            2,
            &[
                "========\nDo you really want to change UUID of device?\n\nAre you sure?",
                "Operation aborted.\n",
            ],
        ),
    ] {
        let (found, text) = said(line, input);
        assert_eq!(found, status, "{line}: {text}");
        expected.iter().for_each(|words| assert!(text.contains(words), "{line}: {words:?} in {text}"));
    }
}

#[test]
fn command_lines_are_judged_as_there() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    let place = Place::new(CASEMATE);
    symlink(CASEMATE, place.path("cryptsetup")).unwrap();
    for line in [
        "open DEV N --deferred",
        "close N --deferred",
        "close N --deferred --cancel-deferred",
        "open DEV N --type plain --shared",
        "open DEV N --type luks1 --shared",
        "open DEV N --allow-discards",
        "open DEV N --persistent --test-passphrase",
        "luksFormat DEV --serialize-memory-hard-pbkdf",
        "open DEV N --serialize-memory-hard-pbkdf",
        "luksFormat DEV --key-size 31",
        "luksFormat DEV --key-size 32",
        "benchmark --key-size 31",
        "benchmark --pbkdf-force-iterations 1000",
        "luksAddKey DEV --key-size 32",
        "luksUUID DEV --key-size 32",
        "luksFormat DEV --integrity-no-wipe",
        "luksFormat DEV --keyfile-size -1 --key-file F",
        "luksAddKey DEV --new-keyfile-size 1x NF",
        "open DEV N --key-file F0 --key-file F1",
        "open DEV N --key-file F0 --key-file F1 --type tcrypt",
        "luksFormat DEV --align-payload 8192 --offset 16384",
        "luksFormat DEV --skip 8192",
        "open DEV N --skip 8192",
        "open DEV N --skip 8192 --type plain",
        "open DEV N --offset 16384",
        "open DEV N --offset 16384 --type loopaes",
        "open DEV N --tcrypt-hidden",
        "open DEV N --tcrypt-hidden --type tcrypt",
        "tcryptDump DEV --tcrypt-backup",
        "tcryptDump DEV --allow-discards",
        "open DEV N --veracrypt",
        "open DEV N --type tcrypt --veracrypt --veracrypt-pim 1",
        "open DEV N --type tcrypt --disable-veracrypt --veracrypt-pim 1",
        "config DEV --priority normal",
        "config DEV -S1 --priority norma",
        "config DEV -S1 --priority prefer",
        "luksFormat DEV --pbkdf blah",
        "luksFormat DEV --pbkdf-force-iterations 4 -i1",
        "open DEV N --sector-size 1024",
        "open DEV N --type plain --sector-size 1024",
        "luksFormat DEV --sector-size 511",
        "open DEV --type plain --iv-large-sectors --sector-size 512",
        "open DEV --type plain --iv-large-sectors --sector-size 1024",
        "luksAddKey DEV --unbound",
        "luksAddKey DEV --unbound --key-size 0",
        "luksAddKey DEV --unbound --key-size 8",
        "luksDump DEV --unbound",
        "luksDump DEV --unbound -S5",
        "open DEV --unbound --test-passphrase",
        "open DEV --unbound N",
        "resize N --refresh",
        "refresh DEV N",
        "refresh DEV N --test-passphrase",
        "open DEV N --refresh --shared",
        "reencrypt DEV --reduce-device-size 2G",
        "reencrypt DEV --reduce-device-size 64m",
        "reencrypt DEV --reduce-device-size 67108865",
        "reencrypt DEV --reduce-device-size 64m --device-size 100g",
        "reencrypt DEV --device-size 33554433",
        "reencrypt DEV --hotzone-size 0",
        "reencrypt DEV --keep-key --use-fsync --use-directio --write-log -B 4",
        "reencrypt DEV --active-name N --type luks1",
        "reencrypt DEV --active-name N --force-offline-reencrypt",
        "open DEV N --size 100 --type plain --device-size 51200",
        "luksFormat DEV --keyslot-cipher ks",
        "luksFormat DEV --keyslot-cipher ks --keyslot-key-size 32",
        "luksAddKey DEV --new-token-id 3",
        "luksFormat DEV --new-token-id 3",
        "open DEV N --token-only --token-id 3 --token-type x",
        "token add DEV",
        "token remove DEV",
        "token unassign DEV --token-id 3",
        "token add DEV --key-description d --unbound -S 1",
        "token nonsense DEV",
        "luksKillSlot DEV",
        "luksFormat",
        "nonsense",
    ] {
        let status = |program: &Path| place.run(program, &format!("--test-args {line}")).status.code();
        assert_eq!(status(&place.path("cryptsetup")), status(&cryptsetup), "{line}");
    }
}

/// A link with the name of a tool that is not there does not do something else instead.
#[test]
fn names_of_other_tools_are_refused() {
    let place = Place::new(CASEMATE);
    for name in ["dumpe2fs", "debugfs", "e2image", "e4defrag", "cryptsetup-reencrypt", "fsck.xfs"] {
        symlink(CASEMATE, place.path(name)).unwrap();
        let output = place.run(place.path(name), "-h image");
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(output.stdout.is_empty() && String::from_utf8_lossy(&output.stderr).contains(name), "{name}");
    }
    symlink(CASEMATE, place.path("casemate-1.0")).unwrap();
    assert!(place.run(place.path("casemate-1.0"), "--version").status.success());
}
