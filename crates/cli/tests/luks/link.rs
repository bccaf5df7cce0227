//! The command called through a link with the name cryptsetup, beside that tool: the same command lines, one after the other
//! on two equal volumes, end with the same status and leave the same headers.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

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
            "config DISK",
            "token add --key-description name DISK",
            "token import --json-file token.json --token-id 5 DISK",
            "token import --json-file token.json --token-id 5 DISK",
            "token export --token-id 5 DISK",
            "token unassign --token-id 5 -S 0 DISK",
            "token remove --token-id 5 DISK",
            "token remove --token-id 5 DISK",
            "token remove --token-id 0 DISK",
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
