//! Key slots changed here and by cryptsetup in turn, on one header.

use std::process::Command;

use casemate_testkit::{run, tool};

use crate::{place, says, yes};

const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

#[test]
fn cryptsetup_and_casemate_change_one_header_in_turn() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    for version in ["luks1", "luks2"] {
        let place = crate::place("l2-meta-128k");
        let theirs = |line: &str| {
            run(Command::new(&cryptsetup).args(line.split_whitespace()).current_dir(place.folder()))
        };
        for key in ["one", "two", "three", "four"] {
            place.file(key, key);
        }
        place.file("plain", vec![5; 65536]);
        yes(place.own(&format!("luks format --type {version} {CHEAP} --from plain disk --key-file one")));
        theirs("luksHeaderBackup disk --header-backup-file before");
        yes(place
            .own(&format!("luks add-key disk --key-file one --new-key-file two --new-key-slot 4 {CHEAP}")));
        theirs("open --test-passphrase --key-file two -S 4 disk");
        theirs(&format!("luksAddKey -q {CHEAP} --key-file two disk three"));
        yes(place.own("luks test-passphrase disk --key-file three --key-slot 1"));
        if version == "luks2" {
            place.file("token", r#"{"type":"foo","keyslots":["1","4"],"kept":[1.50,"a/b"]}"#);
            theirs("token import --json-file token disk");
            theirs(&format!("luksAddKey -q {CHEAP} --unbound --key-size 256 --key-file one disk four -S 7"));
            yes(place.own("luks kill-slot disk 7"));
        }
        yes(place.own(&format!("luks change-key disk --key-file three --new-key-file four {CHEAP}")));
        theirs("open --test-passphrase --key-file four disk");
        says(place.own("luks test-passphrase disk --key-file three"), 1, "no key slot opens");
        yes(place.own("luks remove-key disk --key-file two"));
        yes(place.own("luks kill-slot disk 0"));
        says(place.own("luks remove-key disk --key-file four"), 2, "use --batch-mode to confirm");
        says(place.own("luks kill-slot disk 4"), 2, "key slot 4 is not active");
        says(place.own("luks remove-key disk --key-file one"), 2, "does not open with this passphrase");
        theirs("open --test-passphrase --key-file four disk");
        assert_eq!(yes(place.own("luks dump disk")), theirs("luksDump disk"), "{version}");
        if version == "luks2" {
            let metadata = yes(place.own("luks dump --dump-json-metadata disk"));
            assert_eq!(metadata, theirs("luksDump --dump-json-metadata disk"));
            assert!(metadata.contains("1.50") && metadata.contains("\"kept\""), "{metadata}");
        }
        yes(place.own("luks extract disk out --key-file four"));
        assert!(place.read("out") == place.read("plain"));
        // What was there before is what cryptsetup restores.
        theirs("luksHeaderRestore -q disk --header-backup-file before");
        yes(place.own("luks test-passphrase disk --key-file one"));
    }
}

#[test]
fn a_header_that_lies_apart_is_changed() {
    let place = place("luks2-detached");
    place.file("new", "new");
    let header = "--luks-header header";
    let image = place.read("image");
    let old = format!("luks add-key image {header} --key-file key {CHEAP}");
    says(place.own(&old), 2, "no new passphrase was given; --new-key-file FILE names");
    yes(place.own(&format!("{old} --new-key-file new")));
    yes(place.own(&format!("luks remove-key image {header} --key-file key")));
    yes(place.own(&format!("luks extract image out {header} --key-file new")));
    assert!(place.read("image") == image);
}
