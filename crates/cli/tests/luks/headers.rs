//! Headers saved, restored, mended and changed beside cryptsetup: the same is done to a copy, and both are compared.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};

use casemate_testkit::{Place, status, stderr, tool};

use crate::twins::{CHEAP, Twins};
use crate::{CASEMATE, place, says, yes};

const LUKS1: &str = "--type luks1 -c aes-cbc-plain64 -s 128";
const LUKS2: &str = "--type luks2 --offset 2048 --sector-size 512";

#[test]
fn backups_are_those_of_cryptsetup_and_go_back() {
    for options in [LUKS1, LUKS2] {
        let Some(twins) = Twins::new(options) else { return };
        let place = &twins.place;
        // What means nothing between a header of LUKS1 and its slots is in no backup.
        if options == LUKS1 {
            fs::File::options()
                .write(true)
                .open(place.path("theirs"))
                .unwrap()
                .write_all_at(&[7; 3072], 1024)
                .unwrap();
            twins.level();
        }
        twins.theirs("luksHeaderBackup theirs --header-backup-file backup.theirs");
        twins.ours("header-backup ours backup");
        assert!(place.read("backup") == place.read("backup.theirs"), "{options}");
        let mode = fs::metadata(place.path("backup")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o400);
        twins.refused("header-backup ours backup", "file exists");
        assert!(place.read("backup") == place.read("backup.theirs"));

        twins.ours("kill-slot ours 0");
        twins.refused(
            "header-restore ours backup",
            "will be lost with its key slots; use --batch-mode to confirm",
        );
        twins.ours("header-restore ours backup --batch-mode");
        twins.theirs("luksHeaderRestore -q theirs --header-backup-file backup");
        assert!(place.read("ours") == place.read("theirs"), "{options}");
        twins.ours("test-passphrase ours --key-file one");
        // A backup by cryptsetup is restored, also onto an image that is not a LUKS volume any more.
        place.file("ours", vec![3; 3 << 20]);
        twins.refused("header-restore ours backup.theirs", "the target has no LUKS header");
        twins.ours("header-restore ours backup.theirs --batch-mode");
        twins.ours("test-passphrase ours --key-file two");
        let other = "0c4fdcf6-3db0-4d0c-9b4c-7f8ad6b1f2a0";
        twins.ours(&format!("uuid ours --uuid {other}"));
        twins.refused("header-restore ours backup", &format!("has another UUID, {other}"));
        twins.ours("header-restore ours backup --batch-mode");
        // Part of a backup is none, and one of a volume whose data begin elsewhere is not for this one.
        let backup = place.read("backup");
        place.file("short", &backup[..backup.len() - 1]);
        twins.refused("header-restore ours short --batch-mode", "cut off: a backup of this header has");
        fs::File::create(place.path("other")).unwrap().set_len(3 << 20).unwrap();
        let elsewhere = options.replace("--offset 2048", "") + " --offset 4096";
        twins.theirs(&format!("luksFormat -q {CHEAP} {elsewhere} other one"));
        twins.theirs("luksHeaderBackup other --header-backup-file backup.other");
        twins.refused("header-restore ours backup.other --batch-mode", "it is of another volume");
        assert_eq!(twins.status("luksHeaderRestore -q ours --header-backup-file backup.other"), 1);
        place.file("small", vec![0; 100_000]);
        says(place.own("luks header-restore small backup --batch-mode"), 2, "no room for the header");
    }
}

#[test]
fn a_reencryption_that_is_not_finished_is_left_alone() {
    let Some(twins) = Twins::new(LUKS2) else { return };
    twins.theirs(&format!(
        "reencrypt -q -S 0 --init-only --force-offline-reencrypt --key-file one {CHEAP} theirs"
    ));
    twins.theirs("luksHeaderBackup theirs --header-backup-file backup");
    twins.refused("header-restore ours backup", "of a reencryption that was not finished");
    twins.ours("header-restore ours backup --batch-mode");
    twins.same("restored");
    for line in ["config ours --label x", "erase ours --batch-mode", "token add ours --key-description x"] {
        twins.refused(line, "requires online-reencrypt");
    }
}

/// A backup from before a reencryption opens with its passphrases, and decrypts nothing any more.
#[test]
fn a_backup_of_another_volume_key_is_told() {
    let Some(twins) = Twins::new(LUKS2) else { return };
    twins.ours("header-backup ours before");
    twins.ours("kill-slot ours 1");
    let with = |image: &str, file: &str| {
        let output = twins.place.own(&format!("luks header-restore {image} {file}"));
        String::from_utf8_lossy(&output.stderr).contains("the backup has another volume key")
    };
    assert!(!with("ours", "before"));
    twins.ours(&format!("reencrypt ours --key-slot 0 --key-file one --batch-mode {CHEAP}"));
    assert!(with("ours", "before"));
    twins.place.sh("cp --sparse=always ours copy");
    let batch = twins.place.own("luks header-restore copy before --batch-mode");
    says(batch, 0, "note: copy: the backup has another volume key");
    twins.ours("header-backup ours after");
    assert!(!with("ours", "after"));
}

/// A header that lies apart is erased; one that the device has of its own still opens it.
#[test]
fn a_header_that_stays_is_told() {
    let Some(twins) = Twins::new(LUKS2) else { return };
    twins.ours("header-backup ours apart");
    let output = twins.place.own("luks erase ours --luks-header apart --batch-mode");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && stderr.contains("begins with a LUKS header of its own"), "{stderr}");
    twins.ours("test-passphrase ours --key-file one");
}

#[test]
fn slots_are_erased_to_the_last_one() {
    for options in [LUKS1, LUKS2] {
        let Some(twins) = Twins::new(options) else { return };
        let before = twins.place.read("ours");
        twins.refused("erase ours", "all key slots will be wiped");
        twins.ours("kill-slot ours 0");
        twins.refused("kill-slot ours 1", "key slot 1 is the last one that opens the data");
        twins.refused("remove-key ours --key-file two", "key slot 1 is the last one that opens the data");
        twins.ours("remove-key ours --key-file two --batch-mode");
        twins.theirs("luksErase -q theirs");
        twins.same("one after the other");
        twins.place.file("ours", &before);
        twins.ours("erase ours --batch-mode");
        twins.same("at once");
        // With the old header nothing opens either: the stripes are gone.
        let after = twins.place.read("ours");
        twins.place.file("ours", [&before[..32768], &after[32768..]].concat());
        if options == LUKS2 {
            says(twins.place.own("luks test-passphrase ours --key-file one"), 1, "no key slot opens");
        }
    }
}

/// The mark of a slot may be damaged, and put right later.
#[test]
fn a_slot_whose_mark_is_damaged_is_erased_with_the_others() {
    let Some(twins) = Twins::new(LUKS1) else { return };
    let mut image = twins.place.read("ours");
    // The second slot's mark.
    let mark = 208 + 48 + 3;
    assert_eq!(image[mark], 0xf3);
    image[mark] = 0xf4;
    twins.place.file("ours", &image);
    twins.ours("erase ours --batch-mode");
    let mut erased = twins.place.read("ours");
    assert_eq!(erased[mark - 3..=mark], [0, 0, 0xde, 0xad]);
    // With all that the header said of the slot its stripes are gone, too.
    erased[mark - 3..mark + 45].copy_from_slice(&image[mark - 3..mark + 45]);
    erased[mark] = 0xf3;
    twins.place.file("ours", &erased);
    says(
        twins.place.own("luks test-passphrase ours --key-file two"),
        1,
        "does not open with this passphrase",
    );
}

/// Somebody at a terminal is asked.
#[test]
fn who_answers_yes_means_it() {
    let (Some(twins), Some(script)) = (Twins::new(LUKS2), tool("script")) else { return };
    let answer = |answer: &str| {
        let mut command = Command::new(&script);
        command.args(["-qec", &format!("{CASEMATE} luks erase ours"), "/dev/null"]);
        let mut child = command
            .current_dir(twins.place.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (status, said) = answer("yes\n");
    assert!(status == 2 && said.contains("the answer was not YES; nothing was done"), "{status}: {said}");
    twins.ours("test-passphrase ours --key-file one");
    let (status, said) = answer("YES\n");
    assert!(status == 0 && said.contains("all key slots will be wiped"), "{status}: {said}");
    twins.theirs("luksErase -q theirs");
    twins.same("asked");
}

/// Where in a header of LUKS1 which bytes are changed.
type Damage = &'static [(usize, &'static [u8])];

#[test]
fn headers_of_luks1_are_mended_as_cryptsetup_does() {
    let Some(twins) = Twins::new("--type luks1") else { return };
    let sound = twins.place.read("theirs");
    const fn slot(k: usize) -> usize {
        208 + 48 * k
    }
    const CASES: &[(&str, Damage)] = &[
        ("hash in upper case", &[(72, b"SHA256")]),
        ("signature of a partition table", &[(510, &[0x55, 0xaa])]),
        ("signature, and more", &[(510, &[0x55, 0xaa]), (slot(3) + 44, &[0, 0, 0, 9])]),
        ("state of a free slot", &[(slot(2), &[1, 2, 3, 4])]),
        ("state and place of a free slot", &[(slot(2), &[1, 2, 3, 4]), (slot(2) + 40, &[0, 0, 0, 9])]),
        ("place of a free slot", &[(slot(7) + 40, &[0, 0, 31, 255])]),
        ("stripes of a free slot", &[(slot(5) + 44, &[0, 0, 0, 9])]),
        ("place of a slot with a key", &[(slot(0) + 40, &[255, 255, 255, 255])]),
        ("stripes of a slot with a key", &[(slot(1) + 44, &[0, 0, 0, 9])]),
        ("unknown hash", &[(72, b"bla")]),
        ("data within the slots", &[(104, &[0, 0, 1, 0])]),
        ("no magic", &[(0, &[0])]),
        ("unusual key", &[(108, &[0, 0, 0, 48]), (slot(5) + 44, &[0, 0, 0, 9])]),
        ("first slot too early", &[(slot(0) + 40, &[0, 0, 0, 4]), (slot(5) + 44, &[0, 0, 0, 9])]),
    ];
    let mut mended = 0;
    for (what, damage) in CASES {
        let mut bytes = sound.clone();
        damage.iter().for_each(|(at, new)| bytes[*at..at + new.len()].copy_from_slice(new));
        twins.place.file("theirs", &bytes);
        twins.level();
        let status = twins.status("repair -q --type luks1 theirs");
        let ours = twins.place.own("luks repair ours --batch-mode");
        assert_eq!(ours.status.success(), status == 0, "{what}: {}", casemate_testkit::stderr(&ours));
        let (ours, theirs) = (twins.place.read("ours"), twins.place.read("theirs"));
        assert!(ours[..1024] == theirs[..1024], "{what}");
        mended += usize::from(ours[..1024] != bytes[..1024]);
    }
    assert!(mended >= 5, "{mended}");
    // Cryptsetup leaves a slot with a key alone whose mark is damaged, and its passphrase opens nothing.
    let mut bytes = sound.clone();
    bytes[slot(1)] = 1;
    twins.place.file("ours", &bytes);
    says(twins.place.own("luks test-passphrase ours --key-file two"), 1, "");
    assert!(twins.ours("repair ours").contains("key slot 1 had the mark 01ac71f3"));
    assert!(twins.place.read("ours")[..1024] == sound[..1024]);
    twins.ours("test-passphrase ours --key-file two");
    // This cryptsetup needs the kernel to see that ECB is there. Its keys are half as long as those of XTS.
    let Some(twins) = Twins::new("--type luks1 --cipher aes-cbc-plain --key-size 256") else { return };
    let mut bytes = twins.place.read("ours");
    bytes[40..56].copy_from_slice(b"ecb-plain\0\0\0\0\0\0\0");
    twins.place.file("ours", bytes);
    assert_eq!(twins.ours("repair ours"), "cipher mode ecb-plain is ecb now\n");
    assert_eq!(twins.place.read("ours")[40..56], *b"ecb\0\0\0\0\0\0\0\0\0\0\0\0\0");
}

#[test]
fn a_copy_of_a_header_is_mended_from_the_other() {
    let Some(twins) = Twins::new(LUKS2) else { return };
    let sound = twins.place.read("ours");
    assert_eq!(twins.ours("repair ours"), "");
    assert!(twins.place.read("ours") == sound, "nothing was wrong");
    for (at, which) in
        [(5000, "primary"), (16384 + 5000, "secondary"), (16384, "secondary"), (100, "primary")]
    {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        twins.place.file("ours", bytes);
        let said = twins.ours("repair ours");
        assert!(said.starts_with(&format!("the {which} header was invalid: ")), "{said}");
        let dump: serde_json::Value = serde_json::from_str(&twins.ours("dump --json ours")).unwrap();
        assert!(dump["copies"].as_array().unwrap().iter().all(|copy| copy["state"] == "valid"), "{dump}");
        // Either copy alone is the header then.
        for wiped in [0..4096, 16384..20480] {
            let mut bytes = twins.place.read("ours");
            bytes[wiped].fill(0);
            twins.place.file("copy", bytes);
            yes(twins.place.own("luks test-passphrase copy --key-file two"));
        }
    }
    // What lies before a second copy may be something else by now.
    let mut bytes = sound.clone();
    bytes[..4096].fill(0);
    twins.place.file("ours", bytes);
    twins.refused("repair ours", "the primary LUKS header is lost");
    twins.ours("repair ours --batch-mode");
    twins.same("mended");
    let mut bytes = sound;
    bytes[5000] ^= 1;
    bytes[21000] ^= 1;
    twins.place.file("ours", bytes);
    twins.refused("repair ours", "no valid LUKS header");
}

#[test]
fn settings_are_those_of_cryptsetup() {
    let Some(twins) = Twins::new(LUKS2) else { return };
    let (first, second) = ("0c4fdcf6-3db0-4d0c-9b4c-7f8ad6b1f2a0", "11111111-2222-3333-4444-555555555555");
    for (ours, theirs) in [
        ("config ours --label a.label --subsystem sub", "config theirs --label a.label --subsystem sub"),
        ("config ours --label b", "config theirs --label b --subsystem sub"),
        ("config ours --subsystem=", "config theirs --label b"),
        ("config ours --priority prefer --key-slot 1", "config theirs --priority prefer -S 1"),
        ("config ours --priority ignore --key-slot 0", "config theirs --priority ignore -S 0"),
        ("config ours --priority normal --key-slot 1", "config theirs --priority normal -S 1"),
        (&format!("uuid ours --uuid {first}"), &format!("luksUUID -q theirs --uuid {first}")),
    ] {
        twins.ours(ours);
        twins.theirs(theirs);
        twins.same(ours);
    }
    // Flags are what cryptsetup shows, in its order.
    twins.ours("config ours --persistent no-read-workqueue,allow-discards");
    assert!(twins.theirs("luksDump ours").contains("Flags:       \tallow-discards no-read-workqueue \n"));
    twins.ours("config ours --persistent=");
    assert!(twins.theirs("luksDump ours").contains("(no flags)"));
    twins.refused(
        "config ours --persistent fast",
        "unknown flag 'fast'; mappings have the flags allow-discards",
    );
    twins.refused("config ours --priority prefer --key-slot 5", "key slot 5 is not active");
    twins.refused(&format!("config ours --label {}", "x".repeat(48)), "longer than 47 bytes");
    twins.refused("config ours", "required");
    twins.refused("uuid ours --uuid nonsense", "UUID");

    let Some(twins) = Twins::new(LUKS1) else { return };
    twins.ours(&format!("uuid ours --uuid {second}"));
    twins.theirs(&format!("luksUUID -q theirs --uuid {second}"));
    twins.same("LUKS1");
    twins.refused("config ours --label x", "LUKS1 has no labels");
}

#[test]
fn tokens_are_kept_as_they_are() {
    let Some(twins) = Twins::new(LUKS2) else { return };
    let foreign = [
        r#"{"type":"systemd-tpm2","keyslots":["1"],"tpm2-blob":"AAA/+A==","tpm2-policy-hash":"00ff","tpm2-pcrs":[7],"tpm2-pcr-bank":"sha256","tpm2-primary-alg":"ecc","tpm2-pin":false,"n":1.50}"#,
        r#"{"type":"clevis","keyslots":["0"],"jwe":{"ciphertext":"","encrypted_key":"x/y","iv":"\u001f","protected":{"alg":"dir","a":[1,[],{}]},"tag":"t"}}"#,
        r#"{"type":"ssh","keyslots":[],"ssh_server":"s","ssh_user":"u","ssh_path":"p","ssh_keypath":"k"}"#,
    ];
    for (k, token) in foreign.iter().enumerate() {
        twins.place.file("token", token);
        twins.ours("token import ours token");
        twins.theirs("token import theirs --json-file token");
        twins.same(token);
        assert_eq!(twins.ours(&format!("token export ours {k}")), format!("{token}\n"));
    }
    for (ours, theirs) in [
        ("token add ours --key-description a.key", "token add theirs --key-description a.key"),
        (
            "token add ours --key-description b --key-slot 1 --token-id 9",
            "token add theirs --key-description b -S 1 --token-id 9",
        ),
        ("token add ours --key-description c --unbound", "token add theirs --key-description c --unbound"),
        ("token unassign ours 0 1", "token unassign theirs --token-id 0 -S 1"),
        (
            "token import ours token --key-slot 1 --token-id 20",
            "token import theirs --json-file token -S 1 --token-id 20",
        ),
        (
            "token import ours token --token-id 20 --overwrite",
            "token import theirs --json-file token --token-replace --token-id 20",
        ),
        ("kill-slot ours 0", "luksKillSlot -q theirs 0"),
        ("token remove ours 1", "token remove theirs --token-id 1"),
    ] {
        twins.ours(ours);
        twins.theirs(theirs);
        twins.same(ours);
    }
    twins.refused(
        "token import ours token --token-id 9",
        "token 9 exists; allow it to be replaced (--overwrite)",
    );
    twins.refused("token import ours token --token-id 32", "0 to 31");
    twins.refused("token remove ours 1", "token 1 is not there");
    twins.refused("token unassign ours 9 5", "not of key slot 5");
    twins.refused("token add ours --key-description x --key-slot 5", "key slot 5 is not active");
    for (text, why) in [
        ("[]", "is a JSON object"),
        ("{\"type\":\"x\"}", "no 'keyslots'"),
        ("{\"type\":\"x\",\"keyslots\":[\"4\"]}", "which is not there"),
        ("{\"keyslots\":[]}", "no string 'type'"),
        ("{\"type\":\"luks2-ssh\",\"keyslots\":[]}", "luks2-keyring alone"),
        ("{\"type\":\"luks2-keyring\",\"keyslots\":[]}", "key_description"),
        (&format!("{{\"type\":\"{}\",\"keyslots\":[]}}", "x".repeat(13_000)), "do not fit"),
    ] {
        twins.place.file("bad", text);
        twins.refused("token import ours bad", why);
        assert_ne!(twins.status("token import theirs --json-file bad"), 0, "{text}");
    }
    let Some(twins) = Twins::new(LUKS1) else { return };
    twins.refused("token add ours --key-description x", "LUKS2 has");
    twins.refused("token export ours 0", "LUKS1 has no tokens");
}

/// A header that its reader refuses would lose the volume: no command would open, mend or change it again.
#[test]
fn a_token_never_makes_a_header_that_nothing_reads() {
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    let own = |line: &str| place.own(&format!("luks {line} --key-file key"));
    yes(own(&format!("format vol --size 12M --crypt-offset 4M --luks2-metadata-size 1M {CHEAP}")));
    let token = |value: &str| {
        place.file("token", format!("{{\"type\":\"a\",\"keyslots\":[\"0\"],\"x\":{value}}}"));
        let before = place.read("vol");
        let imported = place.own("luks token import vol token");
        assert!(status(&imported) == 0 || place.read("vol") == before);
        yes(own("test-passphrase vol"));
        imported
    };
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let zeros = |number: usize| format!("[0{}]", ",0".repeat(number - 1));
    for depth in 27..=32 {
        let imported = token(&nested(depth));
        assert_eq!(status(&imported), if depth < 30 { 0 } else { 2 }, "{depth}: {}", stderr(&imported));
    }
    for number in [30_000, 30_000] {
        yes(token(&zeros(number)));
    }
    says(token(&zeros(2_000)), 2, "61440 are supported");
    // The rest is for slots and a reencryption.
    place.file("new", "another");
    yes(place.own(&format!("luks add-key vol --key-file key --new-key-file new {CHEAP}")));
    yes(place.own("luks kill-slot vol 1"));
    yes(own(&format!("reencrypt vol --init-only {CHEAP}")));
    yes(own("test-passphrase vol"));
    yes(own("reencrypt vol --resume-only"));
    yes(own("test-passphrase vol"));
}

#[test]
fn a_header_apart_is_what_changes() {
    let Some(twins) = Twins::new(LUKS2) else { return };
    twins.place.file("data", vec![7; 1 << 20]);
    twins.ours("config data --luks-header ours --label apart");
    twins.ours("kill-slot data --luks-header ours 0");
    twins.ours("header-backup data --luks-header ours backup");
    assert!(twins.theirs("luksDump ours").contains("apart"));
    assert!(twins.place.read("data") == vec![7; 1 << 20]);
    // Somebody else is at it.
    let held = fs::File::open(twins.place.path("ours")).unwrap();
    held.lock().unwrap();
    twins.refused("config ours --label x", "in use by another process");
    twins.refused("erase ours --batch-mode", "in use by another process");
    twins.refused("header-restore ours backup --batch-mode", "in use by another process");
}

/// A second copy that is left behind something else is not a header of that.
#[test]
fn a_second_copy_behind_other_contents_is_no_volume() {
    let place = place("l2-hash-sha512");
    let whole = place.read("image");
    let with = |pieces: &[(usize, &[u8])]| {
        let mut image = whole.clone();
        image[..4096].fill(0);
        for (at, bytes) in pieces {
            image[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        place.file("image", &image);
        image
    };
    let commands = [
        "luks is-luks image",
        "luks dump image",
        "luks uuid image",
        "luks test-passphrase image --key-file key",
        "luks config image --label x",
        "luks uuid image --uuid 0c4fdcf6-3db0-4d0c-9b4c-7f8ad6b1f2a0",
        "luks erase image --batch-mode",
        "luks kill-slot image 0 --batch-mode",
        "luks add-key image --key-file key --new-key-file new --pbkdf pbkdf2 --pbkdf-force-iterations 1000",
        "luks header-backup image backup",
        "luks extract image out --key-file key",
        "luks reencrypt image --key-file key",
    ];
    place.file("new", "new");
    type Signatures<'a> = &'a [(usize, &'a [u8])];
    let others: &[(&str, Signatures<'_>)] = &[
        ("LVM", &[(512, b"LABELONE")]),
        ("MBR", &[(446, &[0x80, 0, 0, 0, 0x83, 0, 0, 0, 0, 8]), (510, &[0x55, 0xaa])]),
        ("squashfs", &[(0, b"hsqs")]),
        ("EROFS", &[(1024, b"\xe2\xe1\xf5\xe0")]),
        ("MD", &[(0, b"\xfc\x4e\x2b\xa9\x01\0\0\0")]),
    ];
    for (name, pieces) in others {
        let image = with(pieces);
        for line in commands {
            let output = place.own(line);
            let expected = if line.contains("is-luks") { 1 } else { 2 };
            assert_eq!(status(&output), expected, "{name}: {line}: {}", stderr(&output));
            assert!(place.read("image") == image, "{name}: {line}");
        }
        says(place.own("luks dump image"), 2, "only a repair takes it");
        assert!(!place.path("backup").exists() && !place.path("out").exists(), "{name}");
    }
    // With nothing else there it is the volume's, and so it is with noise in place of the first copy.
    for pieces in [&[][..], &[(0, &b"noise"[..])]] {
        with(pieces);
        yes(place.own("luks is-luks image"));
        yes(place.own("luks test-passphrase image --key-file key"));
        yes(place.own("luks config image --label x"));
    }
    // Whoever says so has the first one back.
    with(&[(512, b"LABELONE")]);
    says(place.own("luks repair image"), 2, "an LVM physical volume");
    yes(place.own("luks repair image --batch-mode"));
    yes(place.own("luks test-passphrase image --key-file key"));
}

#[test]
fn a_backup_of_the_other_version_is_restored_where_the_data_are_the_same_alone() {
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    let own = |line: &str| place.own(&format!("luks {line}"));
    let make = |line: &str| yes(own(&format!("format {line} --key-file key {CHEAP}")));
    place.file("plain", vec![7; 1 << 20]);
    make("volume --from plain --crypt-offset 1M");
    make("older --from plain --type luks1 --crypt-offset 2M");
    yes(own("header-backup older older.backup"));
    let before = place.read("volume");
    says(own("header-restore volume older.backup --batch-mode"), 2, "it is of another volume");
    assert!(place.read("volume") == before);
    // A conversion leaves the data where they are.
    yes(own("convert older --type luks2 --batch-mode"));
    says(own("header-restore older older.backup"), 2, "the present header will be lost with its key slots");
    yes(own("header-restore older older.backup --batch-mode"));
    yes(own("test-passphrase older --key-file key"));
}

/// A header is looked after while data that lie elsewhere are reencrypted.
#[test]
fn a_header_alone_is_mended_and_saved_in_the_middle_of_a_reencryption() {
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    let plain = vec![7; 2 << 20];
    place.file("data", &plain);
    let encrypt = "luks reencrypt data --luks-header header --key-file key";
    yes(place.own(&format!("{encrypt} --encrypt --init-only {CHEAP}")));
    let sound = place.read("header");
    let elsewhere = "a reencryption is not finished, and its data lie elsewhere";
    says(place.own("luks repair header"), 0, elsewhere);
    assert!(place.read("header") == sound);
    fs::File::options().write(true).open(place.path("header")).unwrap().write_all_at(&[7; 4], 100).unwrap();
    let mended = place.own("luks repair header");
    says(mended.clone(), 0, elsewhere);
    assert!(yes(mended).contains("the primary header was invalid"));
    says(place.own("luks header-backup header saved"), 0, "restoring the backup would destroy data");
    says(place.own("luks config header --label x"), 2, "the volume is being reencrypted");
    says(
        place.own("luks extract header out --key-file key"),
        2,
        "this is the header of data that lie elsewhere",
    );
    yes(place.own(&format!("{encrypt} --resume-only")));
    yes(place.own("luks extract data out --luks-header header --key-file key"));
    assert!(place.read("out") == plain);
    // A decryption that is done leaves a header that nobody needs.
    yes(place.own(&format!("{encrypt} --decrypt")));
    assert!(place.read("data") == plain);
}
