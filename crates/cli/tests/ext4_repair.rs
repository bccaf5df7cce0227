//! `casemate ext4 check --repair`, and the links called e2fsck and fsck.ext4, beside e2fsck itself.

#![allow(clippy::disallowed_macros)] // Tests say what they skip.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use casemate_testkit::{Place, mke2fs, run, run_any, status, stderr, stdout, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// Counts that are wrong, and blocks and an inode that nobody has.
const DAMAGE: &str = "set_bg 0 free_blocks_count 9\nset_bg 0 checksum calc\nsetb 5000 20\nseti <40>\n\
    sif / links_count 9\nunlink /lost+found\n";

/// A damaged file system, and the e2fsck of this machine.
fn damaged(place: &Place, damage: &str) -> Option<PathBuf> {
    let (make, debugfs, e2fsck) = (tool("mke2fs")?, tool("debugfs")?, tool("e2fsck")?);
    let image = place.path("image");
    mke2fs::make(&make, "-t ext4 -b 1024 -N 128", &image, "12M");
    let script = place.file("script", damage);
    run(Command::new(debugfs).args(["-w", "-f"]).arg(script).arg(image));
    Some(e2fsck)
}

#[test]
fn a_repair_is_shown_asked_for_and_made() {
    let place = Place::under(CASEMATE, "ext4");
    let Some(e2fsck) = damaged(&place, DAMAGE) else { return };
    let before = place.read("image");
    let found = stdout(&place.own("check image"));
    for kind in ["free-blocks", "block-bitmap", "inode-bitmap", "link-count", "unconnected"] {
        assert!(found.contains(&format!("{kind} (")), "{found}");
    }
    place.is("check --verbose image", 1, "casemate ext4 find image -inum N prints the paths of inode N");
    let tried = place.is("check --repair --dry-run image", 1, "");
    let tried = stdout(&tried);
    assert!(tried.starts_with("Would be fixed:\n") && tried.contains(" would be fixed\n"), "{tried}");
    place.is("check --repair image", 2, "--batch-mode repairs without asking");
    place.is("check --dry-run image", 2, "goes with --repair");
    assert!(place.read("image") == before, "nothing was to be written");
    let json: serde_json::Value =
        serde_json::from_str(&place.yes("check --repair --yes --json image")).unwrap();
    assert!(json["mended"].as_array().unwrap().len() > 4 && json["clean"] == true, "{json}");
    place.yes("check --strict image");
    assert_eq!(status(&run_any(Command::new(e2fsck).arg("-fn").arg(place.path("image")))), 0);
    assert!(place.yes("check --repair --yes image").ends_with(" checked, 0 faults\n"));
}

/// Two files with the same blocks: whose they are would be a guess.
#[test]
fn guesses_are_left_to_others() {
    let place = Place::under(CASEMATE, "ext4");
    let file = place.file("file", [7; 3000]);
    if damaged(&place, "").is_none() {
        return;
    }
    for name in ["a", "b"] {
        place.yes(&format!("put image {} /{name}", file.display()));
    }
    let stat = place.sh("debugfs -R 'blocks /a' image 2>/dev/null");
    let first: u64 = stat.split_whitespace().next().unwrap().parse().unwrap();
    // The start of the first extent of the other file, by its low half.
    place.sh(&format!("debugfs -w -R 'sif /b block[5] {first}' image 2>/dev/null"));
    let output = place.own("check --repair --yes image");
    let text = stdout(&output);
    assert!(status(&output) == 1 && text.contains("claimed-twice ("), "{text}");
    let has_both = || {
        for name in ["a", "b"] {
            assert_eq!(place.own(&format!("cat image /{name}")).stdout, [7; 3000], "{name}");
        }
    };
    has_both();
    // Where everything is to be mended, each has its own afterwards.
    place.yes("check --repair=all --yes image");
    has_both();
    place.yes("check image");
    place.yes("rm image /b");
    place.yes(&format!("put image {} /c", place.file("other", [8; 9000]).display()));
    assert_eq!(place.own("cat image /a").stdout, [7; 3000]);
}

/// Damage by debugfs, each in an image of its own, and contents that are there afterwards: the path, and how it begins.
const RULES: [(&str, &str, &str); 16] = [
    ("the mode of a file", "sif /d/a mode 0x01a4", "/d/a"),
    ("the mode of a directory", "sif /d mode 0x01ed", "/d/a"),
    ("a file that is called a socket", "sif /d/a mode 0xc1a4", "/d/a"),
    ("flags of two kinds of contents", "sif /d/a flags 0x10080000", "/d/a"),
    ("a size that is too small", "sif /d/a size 3", "/d/a"),
    ("fields without a meaning", "sif /d/a faddr 77", "/d/a"),
    ("a block of attributes that is none", "sif /d/a file_acl 4000000", "/d/a"),
    ("a map that ends nowhere", "sif /d/b block[3] 0x7fff", "/d/a"),
    ("names that lead nowhere", "link <99> /d/gone", "/d/a"),
    ("a second name of a directory", "link /d /e/second", "/d/a"),
    ("a directory within itself", "link /d /d/e\nunlink /d", "/lost+found/#12/a"),
    ("no lost+found, and an inode without a name", "unlink /lost+found\nunlink /d/a", "/lost+found/#13"),
    (
        "a lost+found that is a file",
        "unlink /lost+found\nlink /d/b /lost+found\nunlink /d/a",
        "/lost+found/#13",
    ),
    ("the root", "sif / mode 0", "/d/a"),
    ("the journal", "sif <8> mode 0", "/d/a"),
    ("the reserve of descriptors", "sif <7> block[13] 9", "/d/a"),
];

#[test]
fn everything_is_mended_by_a_rule() {
    let place = Place::under(CASEMATE, "ext4");
    let Some(e2fsck) = damaged(&place, "") else { return };
    let debugfs = tool("debugfs").unwrap();
    let (a, b) = (place.file("a", [b'a'; 3000]), place.file("b", [b'b'; 5000]));
    place.yes("mkdir image /d");
    place.yes(&format!("put image {} /d/a", a.display()));
    place.yes(&format!("put image {} /d/b", b.display()));
    place.yes("mkdir image /e");
    let sound = place.read("image");
    for (what, damage, path) in RULES {
        fs::write(place.path("image"), &sound).unwrap();
        let script = place.file("script", format!("{damage}\n"));
        run(Command::new(&debugfs).args(["-w", "-f"]).arg(script).arg(place.path("image")));
        let repaired = place.own("check --repair=all --yes image");
        assert_eq!(status(&repaired), 0, "{what}: {}{}", stdout(&repaired), stderr(&repaired));
        let theirs = run_any(Command::new(&e2fsck).arg("-fn").arg(place.path("image")));
        assert_eq!(status(&theirs), 0, "{what}: {}{}", stdout(&repaired), stdout(&theirs));
        let found = place.own(&format!("cat image {path}")).stdout;
        assert!(found.starts_with(b"aaa"), "{what}: {path}: {}", stdout(&repaired));
        let mended = place.read("image");
        assert_eq!(status(&place.own("check --repair=all --yes image")), 0, "{what}");
        assert!(place.read("image") == mended, "{what}: a second repair changed something");
    }
}

/// Directory blocks with bytes that debugfs does not write: records that pass their end, bad names, names that are there twice.
#[test]
fn names_of_damaged_directory_blocks_are_kept() {
    let place = Place::under(CASEMATE, "ext4");
    let Some(e2fsck) = damaged(&place, "") else { return };
    let file = place.file("file", "contents");
    place.yes("mkdir image /d");
    for name in ["first", "other", "third"] {
        place.yes(&format!("put image {} /d/{name}", file.display()));
    }
    let sound = place.read("image");
    let at = |name: &[u8]| sound.windows(name.len()).rposition(|bytes| bytes == name).unwrap();
    let (first, other) = (at(b"first"), at(b"other"));
    let names = |place: &Place| place.yes("ls image /d");
    for (what, offset, bytes, kept) in [
        ("a record's length", first - 4, &[0xff, 0x7f][..], "third"),
        ("a length of a name", first - 2, &[200][..], "third"),
        ("a slash", first + 1, b"/", "f.rst"),
        ("a name that is there twice", other, b"first", "first~0"),
    ] {
        let mut image = sound.clone();
        image[offset..offset + bytes.len()].copy_from_slice(bytes);
        fs::write(place.path("image"), &image).unwrap();
        let repaired = place.own("check --repair=all --yes image");
        assert_eq!(status(&repaired), 0, "{what}: {}", stdout(&repaired));
        let theirs = run_any(Command::new(&e2fsck).arg("-fn").arg(place.path("image")));
        assert_eq!(status(&theirs), 0, "{what}: {}{}", stdout(&repaired), stdout(&theirs));
        assert!(names(&place).contains(kept), "{what}: {}", names(&place));
        // What lost its name has another one.
        let found = place.yes("find image /");
        let count = found.lines().filter(|line| line.starts_with("/d/") || line.contains("/#")).count();
        assert_eq!(count, 3, "{what}: {found}");
    }
}

/// `e2undo` of e2fsprogs gives the image back as it was before the repair.
#[test]
fn a_repair_can_be_undone() {
    let place = Place::new(CASEMATE);
    let (Some(_), Some(e2undo)) = (damaged(&place, DAMAGE), tool("e2undo")) else { return };
    let before = place.read("image");
    let undo = || {
        let output = run_any(Command::new(&e2undo).arg(place.path("undo")).arg(place.path("image")));
        assert_eq!(status(&output), 0, "{}{}", stdout(&output), stderr(&output));
        assert!(place.read("image") == before, "another image than before");
    };
    let casemate = PathBuf::from(CASEMATE);
    let ours = place.run(&casemate, "ext4 check --repair --yes --undo undo image");
    assert_eq!(status(&ours), 0, "{}", stderr(&ours));
    assert!(place.read("image") != before);
    undo();
    let refused = place.run(&casemate, "ext4 check --repair --yes --undo undo image");
    assert_eq!(status(&refused), 2, "an undo file that is there already: {}", stdout(&refused));
    assert!(place.read("image") == before);
    fs::remove_file(place.path("undo")).unwrap();
    assert_eq!(status(&place.run(place.link("e2fsck"), "-f -y -z undo image")), 1);
    undo();
}

/// A repair whose undo file has no room says whether the image was changed, and leaves an undo file where it was.
#[test]
fn an_undo_file_without_room_gives_back_what_was_changed() {
    let place = Place::new(CASEMATE);
    let Some(e2undo) = tool("e2undo") else { return };
    let mut damage: String = (13..60).map(|number| format!("seti <{number}>\n")).collect();
    damage += "setb 3000 2000\nsif / links_count 9\nset_bg 1 free_blocks_count 9\nclri <11>\n";
    if damaged(&place, &damage).is_none() {
        return;
    }
    fs::create_dir(place.path("small")).unwrap();
    // Sizes of the file system that the undo file lies in, from that of its head on.
    let script = "mount -t tmpfs -o size=1m none small 2>/dev/null || exit 77\n\
        for size in 8 12 16 20 24 28 32 36 44 60 80; do\n\
        rm -f small/undo; mount -o remount,size=${size}k none small; cp image cut; said=$(\"$CASEMATE\" ext4 check --repair=all --yes --undo small/undo cut 2>&1 >/dev/null); status=$?\n\
        cmp -s image cut && state=same || state=other; back=none\n\
        if test -e small/undo; then \"$E2UNDO\" small/undo cut >/dev/null 2>&1; back=$?; cmp -s image cut || back=wrong; fi\n\
        echo \"$size $status $state $back $said\"; done";
    let mut command = Command::new("unshare");
    command.args(["-rm", "--propagation", "slave", "sh", "-c", script]).current_dir(place.folder());
    let output = run_any(command.env("CASEMATE", CASEMATE).env("E2UNDO", e2undo));
    if !output.status.success() {
        println!("skipped: no tmpfs can be mounted here: {}", stderr(&output));
        return;
    }
    let said = stdout(&output);
    let mut met = [false; 2];
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[1..4] {
            ["2", "same", "none"] => {
                assert!(line.contains("the image was not changed, and no undo file is left"), "{said}");
                met[0] = true;
            }
            ["2", "other", "0"] => {
                assert!(line.contains("the image was changed before that, and e2undo puts back"), "{said}");
                met[1] = true;
            }
            ["0", "other", "0"] => {}
            _ => panic!("{said}"),
        }
    }
    assert_eq!(met, [true; 2], "{said}");
}

/// `e2undo` is given the whole image, in which the file system lies at an offset.
#[test]
fn a_repair_of_a_partition_can_be_undone() {
    let place = Place::new(CASEMATE);
    let (Some(_), Some(e2undo)) = (damaged(&place, DAMAGE), tool("e2undo")) else { return };
    let image = place.read("image");
    let mut disk = vec![0; 1 << 20];
    // An MBR with one partition.
    disk[450] = 0x83;
    disk[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    disk[458..462].copy_from_slice(&u32::try_from(image.len() / 512).unwrap().to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend(&image);
    for part in ["disk,partition=1", "disk,offset=1M", "disk --partition 1"] {
        place.file("disk", &disk);
        let casemate = PathBuf::from(CASEMATE);
        let ours = place.run(&casemate, &format!("ext4 check --repair --yes --undo undo {part}"));
        assert_eq!(status(&ours), 0, "{}", stderr(&ours));
        assert!(place.read("disk") != disk);
        let output = run_any(Command::new(&e2undo).arg(place.path("undo")).arg(place.path("disk")));
        assert_eq!(status(&output), 0, "{part}: {}{}", stdout(&output), stderr(&output));
        assert!(place.read("disk") == disk, "{part}: another image than before");
        fs::remove_file(place.path("undo")).unwrap();
    }
}

#[test]
fn an_undo_file_of_a_volume_is_told_as_what_it_is() {
    let place = Place::new(CASEMATE);
    let (Some(_), Some(e2undo)) = (damaged(&place, DAMAGE), tool("e2undo")) else { return };
    let casemate = PathBuf::from(CASEMATE);
    let plain = place.read("image");
    place.file("key", Vec::from_iter(0..64_u8));
    let run = |line: &str| {
        let output = place.run(&casemate, line);
        assert_eq!(status(&output), 0, "{line}: {}", stderr(&output));
        stderr(&output)
    };
    run("crypt encrypt image volume --key-file key --key-size 512");
    let said =
        run("ext4 check --repair --yes --undo undo volume,crypt=aes-xts-plain64,key-file=key,key-size=512");
    assert!(said.contains("DECRYPTED; e2undo puts them back on a device that shows it so"), "{said}");
    run("crypt decrypt volume opened --key-file key --key-size 512");
    let output = run_any(Command::new(&e2undo).arg(place.path("undo")).arg(place.path("opened")));
    assert_eq!(status(&output), 0, "{}{}", stdout(&output), stderr(&output));
    assert!(place.read("opened") == plain);
}

/// A journal with a transaction, and a superblock that does not say so: `-p` leaves it to somebody, as e2fsck's does.
#[test]
fn a_journal_that_nothing_tells_of_is_left_to_somebody() {
    let place = Place::new(CASEMATE);
    let Some(e2fsck) = damaged(&place, "jo\njw -b 5000 /dev/zero\njc\nfeature ^needs_recovery\n") else {
        return;
    };
    let before = place.read("image");
    let link = place.link("e2fsck");
    assert_eq!(status(&place.run(&e2fsck, "-p image")), 4);
    std::fs::write(place.path("image"), &before).unwrap();
    assert_eq!(status(&place.run(&link, "-p image")), 4);
    let casemate = PathBuf::from(CASEMATE);
    for line in ["check --repair --yes image", "label image other", "recover image", "resize image 8M"] {
        let refused = place.run(&casemate, &format!("ext4 {line}"));
        assert_ne!(status(&refused), 0, "{line}: {}", stdout(&refused));
        assert!(place.read("image") == before, "{line}");
    }
    assert_eq!(status(&place.run(&link, "-y image")), 1);
    assert_eq!(status(&place.run(&link, "-p image")), 0);
}

#[test]
fn an_undo_file_is_there_only_if_something_was_changed() {
    let place = Place::new(CASEMATE);
    if damaged(&place, "").is_none() {
        return;
    }
    let (casemate, undo) = (PathBuf::from(CASEMATE), place.path("undo"));
    for _ in 0..2 {
        let sound = place.run(&casemate, "ext4 check --repair=all --yes --undo undo image");
        assert!(status(&sound) == 0 && !undo.exists(), "{}", stderr(&sound));
    }
    let before = place.read("image");
    fs::write(place.path("none"), [7; 9000]).unwrap();
    let refused = place.run(&casemate, "ext4 check --repair=all --yes --undo undo none");
    assert!(status(&refused) != 0 && !undo.exists(), "{}", stderr(&refused));
    for name in ["image.casemate-redo", "./image.casemate-redo"] {
        let refused = place.run(&casemate, &format!("ext4 check --repair --yes --undo {name} image"));
        let text = stderr(&refused);
        assert!(status(&refused) == 2 && text.contains("name of the recovery file"), "{name}: {text}");
        assert!(!place.path("image.casemate-redo").exists() && place.read("image") == before);
    }
}

/// Output of a repair names the files that are not what they were.
#[test]
fn files_with_other_contents_are_named() {
    let place = Place::under(CASEMATE, "ext4");
    if damaged(&place, "").is_none() {
        return;
    }
    for name in ["a", "b"] {
        place.yes(&format!("put image {} /{name}", place.file("file", name.repeat(3000)).display()));
    }
    place.sh("debugfs -w -R 'sif /a block[4] 40' image 2>/dev/null");
    let number = place.sh("debugfs -R 'stat /a' image 2>/dev/null");
    let number = number.split_whitespace().nth(1).unwrap().to_owned();
    let tried = stdout(&place.is("check --repair=all --dry-run image", 1, ""));
    assert!(tried.contains(&format!("  <{number}> lost blocks behind its end")), "{tried}");
    let json: serde_json::Value =
        serde_json::from_str(&place.yes("check --repair=all --yes --json image")).unwrap();
    let altered = &json["altered"][0];
    assert!(altered["inode"].as_u64() == number.parse().ok() && altered["name"] == "cut", "{json}");
    for name in ["a", "b"] {
        assert_eq!(place.own(&format!("cat image /{name}")).stdout, name.repeat(3000).as_bytes());
    }
}

#[test]
fn scripts_call_it_fsck() {
    let place = Place::new(CASEMATE);
    let Some(e2fsck) = damaged(&place, DAMAGE) else { return };
    let before = place.read("image");
    let link = place.link("fsck.ext4");
    for (line, expected) in [
        ("-V", 0),
        ("", 16),
        ("-n -y image", 8),
        ("--nonsense image", 16),
        ("-p missing", 8),
        ("-fn script", 8),
        ("-f image", 8),
        // It is said to be clean, and nobody looks.
        ("-n image", 0),
        ("-fn image", 4),
        ("-f -n -C 0 -b 8193 -B 1024 -v -t -E nodiscard,readahead_kb=64 image", 4),
        ("-E fragcheck,bogus -fy image", 1),
    ] {
        // The real one asks for more before it says these.
        let theirs = run_any(Command::new(&e2fsck).args(line.split_whitespace()).current_dir(place.folder()));
        let ours = place.run(&link, line);
        assert_eq!(status(&ours), expected, "{line}: {}{}", stdout(&ours), stderr(&ours));
        if !line.contains("-b ") {
            assert_eq!(status(&theirs), expected, "{line}: e2fsck: {}", stderr(&theirs));
        }
    }
    let refused = place.run(&link, "-E journal_only -fy image");
    assert!(status(&refused) == 16 && stderr(&refused).contains("-E journal_only"), "{refused:?}");
    assert!(place.read("image") == before, "nothing was to be written");
    assert!(stdout(&place.run(&link, "-p image")).starts_with("image: clean, 1"));
    assert_eq!(status(&place.run(&link, "-f -y -C -1 image")), 1);
    assert_eq!(status(&run_any(Command::new(&e2fsck).arg("-fn").arg(place.path("image")))), 0);
    for name in ["e2fsck", "fsck.ext2", "fsck.ext3"] {
        let text = stdout(&place.run(place.link(name), "-f -y image"));
        assert!(text.contains("/128 files, "), "{name}: {text}");
    }
    fs::write(place.path("image"), [0; 5000]).unwrap();
    assert_eq!(status(&place.run(&link, "-fy image")), 8);
}

/// The copy that a script names is gone by, and made the primary superblock.
#[test]
fn scripts_name_copies_of_the_superblock() {
    let place = Place::new(CASEMATE);
    let Some(e2fsck) = damaged(&place, "") else { return };
    place.link("e2fsck");
    let sound = place.read("image");
    let mut lost = sound.clone();
    lost[1024..2048].fill(0);
    fs::write(place.path("image"), &lost).unwrap();
    let ours = |line: &str| {
        status(&run_any(Command::new(place.path("e2fsck")).args(line.split(' ')).current_dir(place.folder())))
    };
    assert_eq!(ours("-fn -b 8193 -B 1024 image"), 0);
    assert_eq!(ours("-fn -b 8193 -B 4096 image"), 8);
    assert_eq!(ours("-fn -b 5000 image"), 8);
    assert!(place.read("image") == lost);
    assert_eq!(ours("-fy -b 8193 image"), 1);
    assert_eq!(ours("-fn image"), 0);
    assert_eq!(status(&run_any(Command::new(e2fsck).arg("-fn").arg(place.path("image")))), 0);
}

/// With -p a system starts without anybody at it: it goes on only from what e2fsck itself mends then.
#[test]
fn nothing_is_mended_unasked_that_stops_e2fsck() {
    let place = Place::new(CASEMATE);
    let from = place.file("f", [7; 5000]);
    let Some(e2fsck) = damaged(&place, &format!("mkdir /d\nmkdir /d/e\nwrite {} f\n", from.display())) else {
        return;
    };
    let (link, debugfs) = (place.link("e2fsck"), tool("debugfs").unwrap());
    let sound = place.read("image");
    let counts = "set_bg 0 free_blocks_count 9\nset_bg 0 checksum calc\nsetb 5000 20\nsif / links_count 9\n";
    for (damage, expected) in [
        (counts.to_owned(), 1),
        ("freei <12>\nsif /d checksum 5\n".to_owned(), 1),
        // A name of a deleted file or directory, and of an inode that was never used.
        ("clri /f\n".to_owned(), 1),
        ("sif /f links_count 0\nsif /f dtime 1700000000\n".to_owned(), 1),
        (format!("{counts}clri /d/e\n"), 1),
        ("sif /f size 100\n".to_owned(), 1),
        ("sif /d size 100\n".to_owned(), 1),
        ("sif /d flags 0x81000\n".to_owned(), 1),
        // What was in it has no name then.
        ("clri /d\n".to_owned(), 4),
        ("ln <9> /d/nine\n".to_owned(), 4),
        ("clri /f\nsif /d faddr 5\n".to_owned(), 4),
        ("unlink /lost+found\n".to_owned(), 4),
        ("sif /d mode 0x01ed\n".to_owned(), 4),
        ("sif /d dtime 5\n".to_owned(), 4),
        (format!("{counts}sif /d faddr 5\n"), 4),
        ("ssv r_blocks_count 999999\n".to_owned(), 8),
    ] {
        fs::write(place.path("image"), &sound).unwrap();
        let script = place.file("script", &damage);
        run(Command::new(&debugfs).args(["-w", "-f"]).arg(script).arg(place.path("image")));
        let bytes = place.read("image");
        let theirs = run_any(Command::new(&e2fsck).arg("-fp").arg(place.path("image")));
        assert_eq!(status(&theirs), expected, "{damage}: {}", stdout(&theirs));
        fs::rename(place.path("image"), place.path("theirs")).unwrap();
        fs::write(place.path("image"), &bytes).unwrap();
        let ours = place.run(&link, "-f -p image");
        let text = stdout(&ours) + &stderr(&ours);
        assert_eq!(status(&ours), expected, "{damage}: {text}");
        let by_hand = text.contains("image: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.");
        assert_eq!(by_hand, expected == 4, "{damage}: {text}");
        if expected > 1 && damage != "clri /d\n" {
            assert!(place.read("image") == bytes, "{damage}");
            continue;
        }
        assert!(place.read("image") != bytes, "{damage}");
        if expected == 1 {
            assert_eq!(
                status(&run_any(Command::new(&e2fsck).arg("-fn").arg(place.path("image")))),
                0,
                "{damage}"
            );
            let differ = run_any(
                Command::new(CASEMATE)
                    .args(["ext4", "diff", "--files"])
                    .args([place.path("image"), place.path("theirs")]),
            );
            let times = |line: &&str| line.contains(": changed: ") || line.contains(": modified: ");
            let lines = stdout(&differ);
            assert_eq!(lines.lines().filter(|line| !times(line)).collect::<Vec<_>>(), [""; 0], "{damage}");
        }
    }
    // Where a copy could be taken, somebody has to say so.
    let mut lost = sound.clone();
    lost[1024..2048].fill(0x55);
    fs::write(place.path("image"), &lost).unwrap();
    let ours = place.run(&link, "-f -p image");
    assert!(status(&ours) == 8 && stdout(&ours).contains("e2fsck -b 8193 <device>"), "{}", stdout(&ours));
    assert!(place.read("image") == lost);
    assert_eq!(status(&place.run(&link, "-f -y image")), 1);
    for option in ["-c", "-D", "-k"] {
        let ours = place.run(&link, &format!("{option} -f image"));
        assert!(status(&ours) == 16 && stderr(&ours).contains(" is not supported here"), "{}", stderr(&ours));
    }
}

/// A hash tree is made anew unasked where e2fsck does so: its root or the order of its hashes is damaged, and no block is lost.
#[test]
fn hash_trees_are_mended_unasked_where_e2fsck_mends_them() {
    let place = Place::new(CASEMATE);
    let (Some(debugfs), Some(e2fsck), Some(_)) = (tool("debugfs"), tool("e2fsck"), tool("mke2fs")) else {
        return;
    };
    let link = place.link("e2fsck");
    place.sh("mkdir -p from/many; for i in $(seq 300); do : > from/many/some-rather-long-name-$i; done
         mke2fs -q -t ext4 -O ^metadata_csum -b 1024 -d from image 8M; e2fsck -fyD image >&2 || test $? = 1");
    let sound = place.read("image");
    let blocks = run(Command::new(debugfs).args(["-R", "blocks many"]).arg(place.path("image")));
    let root = 1024 * blocks.split_whitespace().next().unwrap().parse::<usize>().unwrap();
    for (what, at, bytes, expected) in [
        ("version", 0x1c, &[9][..], 1),
        ("levels", 0x1e, &[5], 1),
        ("order", 0x30, &[0xff; 4], 1),
        ("block", 0x2c, &[0xff, 0xff, 0xff, 0], 4),
    ] {
        let mut damaged = sound.clone();
        damaged[root + at..][..bytes.len()].copy_from_slice(bytes);
        fs::write(place.path("theirs"), &damaged).unwrap();
        fs::write(place.path("image"), &damaged).unwrap();
        assert_eq!(
            status(&run_any(Command::new(&e2fsck).arg("-fp").arg(place.path("theirs")))),
            expected,
            "{what}"
        );
        let ours = place.run(&link, "-f -p image");
        assert_eq!(status(&ours), expected, "{what}: {}", stdout(&ours));
        let sound = run_any(Command::new(&e2fsck).arg("-fn").arg(place.path("image")));
        assert_eq!(status(&sound), if expected == 1 { 0 } else { 4 }, "{what}: {}", stdout(&sound));
    }
}

/// Nobody is told of a mark that the file system was being changed, beyond the status.
#[test]
fn a_mark_that_is_set_right_is_told_by_the_status_of_e2fsck() {
    let place = Place::under(CASEMATE, "ext4");
    for (state, expected) in [(0, 1), (2, 1), (1, 0), (3, 0)] {
        for mode in ["-y", "-p", "-fy"] {
            let Some(e2fsck) = damaged(&place, &format!("ssv state {state}\n")) else { return };
            fs::copy(place.path("image"), place.path("theirs")).unwrap();
            let link = place.path("e2fsck");
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(CASEMATE, &link).unwrap();
            let own = status(&run_any(Command::new(link).arg(mode).arg(place.path("image"))));
            let theirs = status(&run_any(Command::new(e2fsck).arg(mode).arg(place.path("theirs"))));
            assert_eq!((own, theirs), (expected, expected), "state {state}, {mode}");
        }
    }
}

/// A journal on a device of its own has a superblock, and no files: it is no damaged file system.
#[test]
fn an_external_journal_is_named() {
    let place = Place::under(CASEMATE, "ext4");
    let Some(make) = tool("mke2fs") else { return };
    for size in ["1024", "4096"] {
        let mut make = Command::new(&make);
        let uuid = "00112233-4455-6677-8899-aabbccddeeff";
        make.args(["-q", "-F", "-O", "journal_dev", "-U", uuid, "-b", size]);
        run(make.arg(place.path("image")).arg("8M"));
        let told = run_any(Command::new(CASEMATE).arg("info").arg(place.path("image")));
        let text = stdout(&told);
        assert_eq!(status(&told), 0, "{text}");
        for part in ["an external journal of an ext3 or ext4 file system", uuid, size] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("damaged") && !text.contains("casemate ext4"), "{text}");
        for command in ["check image", "check --repair=all --batch-mode image", "ls image /"] {
            let failed = place.is(command, 2, "this is an external journal, which holds no files");
            assert_eq!(stderr(&failed).lines().count(), 1, "{command}: {}", stderr(&failed));
        }
    }
}
