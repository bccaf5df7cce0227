//! Volumes in windows that begin or end where their file does not, and in files that have got another length: no data are left out
//! unasked.

use std::fs::File;
use std::process::Command;

use casemate_testkit::{Place, Rng, run, run_any, skip, tool};

use crate::{CASEMATE, says, yes};

const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

/// A folder with a passphrase, 2 MiB of plain data, a volume of them, and another one behind a detached header.
fn place() -> Place {
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    place.file("plain", Rng::new(41).bytes(2 << 20));
    yes(place.own(&format!("luks format --from plain vol --crypt-offset 1M --key-file key {CHEAP}")));
    yes(place.own(&format!("luks format --from plain data --luks-header header --key-file key {CHEAP}")));
    place
}

fn is_whole(place: &Place, line: &str) {
    yes(place.own(&format!("luks extract {line} out --overwrite --key-file key")));
    assert!(place.read("out") == place.read("plain"), "{line}");
}

#[test]
fn what_lies_behind_a_window_is_lost_after_a_question_alone() {
    let place = place();
    for (line, device, behind) in [
        ("reencrypt vol,offset=0,size=2M", "vol", 1 << 20),
        ("reencrypt vol,offset=0,size=2M --init-only", "vol", 1 << 20),
        ("reencrypt data,offset=0,size=1M --luks-header header", "data", 1 << 20),
        ("reencrypt data,offset=0,size=1M --device-size 512K --luks-header header", "data", 3 << 19),
        ("reencrypt data,offset=0,size=1M --decrypt --luks-header header", "data", 1 << 20),
        ("reencrypt vol,offset=0,size=2M --decrypt --luks-header new", "vol", 1 << 20),
        ("reencrypt vol,offset=0,size=2M --reduce-device-size 512K", "vol", 1 << 20),
    ] {
        let before = (place.read(device), place.read("header"));
        let line = format!("luks {line} --key-file key");
        says(place.own(&line), 2, &format!("bytes alone; the other {behind} stay"));
        assert!((place.read(device), place.read("header")) == before, "{line}");
        assert!(!place.path("new").exists());
        is_whole(&place, "vol");
        is_whole(&place, "data --luks-header header");
    }
    says(
        place.own("luks reencrypt vol,offset=0,size=2M --verbose --batch-mode --key-file key"),
        0,
        "vol: reencrypted the first 1048576 bytes alone; the other 1048576 stay",
    );
    // The window is all that there is: no data lie behind it.
    for line in [
        "data,offset=0,size=2M",
        "data,offset=0",
        "data,offset=0,size=2M --init-only",
        "data,offset=0,size=2M --resume-only",
    ] {
        yes(place.own(&format!("luks reencrypt {line} --luks-header header --key-file key")));
        is_whole(&place, "data --luks-header header");
    }
}

/// A header in a file of its own does not prove where its data begin: begun elsewhere, each sector would be taken for another one.
#[test]
fn a_window_that_begins_late_is_not_taken_for_the_data_of_a_detached_header() {
    let place = place();
    let asks = "on of the file, device or partition; if they begin elsewhere, all of them are lost";
    let refused = |line: &str, why: &str| {
        let before = (place.read("data"), place.read("header"));
        says(place.own(&format!("{line} --key-file key")), 2, why);
        assert!((place.read("data"), place.read("header")) == before, "{line}");
    };
    for (line, from) in [
        ("luks reencrypt data,offset=1M --luks-header header", "1048576"),
        ("luks reencrypt data --offset 1M --luks-header header", "1048576"),
        ("luks reencrypt data,offset=512B --luks-header header --init-only", "512"),
        ("luks reencrypt data,offset=1M --luks-header header --decrypt", "1048576"),
    ] {
        refused(line, &format!("the data are taken from byte {from} {asks}"));
    }
    // Work that was begun, too, by whomever.
    let begin = |place: &Place| match tool("cryptsetup") {
        Some(cryptsetup) => {
            let line = format!(
                "reencrypt data --header header --init-only -q --force-offline-reencrypt --key-file key {CHEAP}"
            );
            run(Command::new(cryptsetup).args(line.split_whitespace()).current_dir(place.folder()));
        }
        None => drop(yes(place.own("luks reencrypt data --luks-header header --init-only --key-file key"))),
    };
    begin(&place);
    refused("luks reencrypt data,offset=1M --luks-header header --resume-only", asks);
    let serve = "serve --write --reencrypt --exec true data,offset=1M,luks,header=header,key-file=key";
    let before = (place.read("data"), place.read("header"));
    says(place.own(serve), 2, "a window that begins 1048576 bytes behind the beginning");
    assert!((place.read("data"), place.read("header")) == before);
    yes(place.own("luks reencrypt data --luks-header header --resume-only --key-file key"));
    is_whole(&place, "data --luks-header header");
    // A header at the window's beginning proves it, and an answer allows it.
    let behind = |name: &str| [vec![0; 1 << 20], place.read(name)].concat();
    place.file("later", behind("vol"));
    yes(place.own("luks reencrypt later,offset=1M --key-file key"));
    is_whole(&place, "later,offset=1M");
    place.file("later", behind("data"));
    yes(place.own("luks reencrypt later,offset=1M --luks-header header --batch-mode --key-file key"));
    is_whole(&place, "later,offset=1M --luks-header header");
}

#[test]
fn a_partition_table_ends_a_volume() {
    let place = place();
    let mut disk = vec![0; 8 << 20];
    let entry = &mut disk[446..][..16];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&2048u32.to_le_bytes());
    entry[12..16].copy_from_slice(&6144u32.to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[1 << 20..4 << 20].copy_from_slice(&place.read("vol"));
    place.file("disk", disk);
    for line in ["disk,partition=1", "disk,offset=1M,size=3M", "disk --partition 1"] {
        yes(place.own(&format!("luks reencrypt {line} --key-file key")));
        is_whole(&place, "disk,partition=1");
    }
    says(place.own("luks reencrypt disk,offset=1M,size=2M --key-file key"), 2, "the other 5242880 stay");
    says(
        place.own("luks reencrypt disk,partition=1,offset=0,size=2M --key-file key"),
        2,
        "the other 1048576 stay",
    );
    is_whole(&place, "disk,partition=1");
}

#[test]
fn work_goes_on_over_the_length_that_it_was_begun_with() {
    let place = place();
    let set_len = |name: &str, len| File::options().write(true).open(place.path(name)).unwrap().set_len(len);
    for (begun, resumed, device) in [
        ("reencrypt vol", "vol", "vol"),
        ("reencrypt data --luks-header header", "data --luks-header header", "data"),
        ("reencrypt --decrypt data --luks-header header", "data --luks-header header", "data"),
    ] {
        yes(place.own(&format!("luks {begun} --init-only --key-file key")));
        let whole = place.read(device);
        let (part, rest) = resumed.split_once(' ').unwrap_or((resumed, ""));
        let end = whole.len() - (1 << 20);
        let refused = |device: &str| {
            let line = format!("luks reencrypt {device} --resume-only --batch-mode {rest} --key-file key");
            says(place.own(&line), 2, "was begun with 2097152 bytes of data");
        };
        let serve = "serve --write --luks --reencrypt --exec true";
        refused(&format!("{part},offset=0,size={end}"));
        let line = format!("{serve} --size {end} {resumed} --key-file key");
        says(place.own(&line), 2, "was begun with 2097152 bytes of data, and there are 1048576 bytes now");
        for len in [end, whole.len() + (1 << 20)] {
            set_len(device, len as u64).unwrap();
            refused(part);
            let line = format!("{serve} {resumed} --key-file key");
            says(place.own(&line), 2, "was begun with 2097152 bytes of data");
        }
        place.file(device, &whole[..]);
        is_whole(&place, resumed);
        // More may have been added since; a window says which data are meant.
        set_len(device, whole.len() as u64 + 4096).unwrap();
        let window = format!("{part},offset=0,size={}", whole.len());
        yes(place.own(&format!("luks reencrypt {window} --resume-only {rest} --key-file key")));
        set_len(device, whole.len() as u64).unwrap();
        if !begun.contains("--decrypt") {
            is_whole(&place, resumed);
        }
    }
    assert!(place.read("data") == place.read("plain"));
}

#[test]
fn work_that_cryptsetup_began_is_not_ended_by_a_window() {
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    let place = place();
    let theirs = |line: &str| {
        let line = format!("{line} -q --key-file key vol");
        run(Command::new(&cryptsetup).args(line.split_whitespace()).current_dir(place.folder()))
    };
    theirs("reencrypt --init-only --force-offline-reencrypt --pbkdf pbkdf2 --pbkdf-force-iterations 1000");
    let window = "vol,offset=0,size=2M";
    says(
        place.own(&format!("luks reencrypt {window} --resume-only --key-file key")),
        2,
        "the first 1048576 bytes alone; the other 1048576 stay",
    );
    says(
        place.own("serve --write --luks --reencrypt --exec true --size 2M vol --key-file key"),
        2,
        "the image is a window that ends 1048576 bytes before",
    );
    is_whole(&place, "vol");
    yes(place.own("luks reencrypt vol --resume-only --key-file key"));
    is_whole(&place, "vol");
    // The note of the length does not disturb it.
    yes(place.own("luks reencrypt vol --init-only --key-file key"));
    theirs("luksDump");
    theirs("reencrypt --resume-only --force-offline-reencrypt");
    is_whole(&place, "vol");
}

/// A file system of 4 MiB, whose superblock is known.
fn file_system(place: &Place, name: &str, seed: u64) {
    place.file(name, Rng::new(seed).bytes(4 << 20));
    let tar = place.folder().join("tree");
    std::fs::create_dir_all(&tar).unwrap();
    std::fs::write(tar.join("file"), Rng::new(seed).bytes(3 << 20)).unwrap();
    yes(place.own(&format!("ext4 build --from tree {name} --size 4M --overwrite")));
}

#[test]
fn a_file_system_that_reaches_behind_a_window_is_cut_after_a_question_alone() {
    let place = place();
    place.file("long", Rng::new(5).bytes(64));
    file_system(&place, "fs", 42);
    let before = place.read("fs");
    let cipher = "--key-file long --key-size 512";
    let encrypt = format!("luks reencrypt --encrypt --key-file key {CHEAP}");
    let window = "fs,offset=0,size=3M";
    for (line, why) in [
        (format!("{encrypt} {window} --luks-header new"), "the other 1048576 stay in plain text"),
        (format!("{encrypt} {window} --reduce-device-size 1M"), "the other 1048576 stay in plain text"),
        (format!("crypt encrypt --in-place {window} {cipher}"), "the other 1048576 bytes of it stay"),
    ] {
        says(place.own(&line), 2, why);
        assert!(place.read("fs") == before && !place.path("new").exists(), "{line}");
    }
    yes(place.own(&format!("crypt encrypt --in-place fs {cipher}")));
    let line = format!("crypt decrypt --in-place {window} {cipher}");
    says(place.own(&line), 2, "only what lies before byte 3145728 would be decrypted");
    yes(place.own(&format!("crypt decrypt --in-place fs,offset=0,size=4M {cipher}")));
    assert!(place.read("fs") == before);
    yes(place.own(&format!("{encrypt} {window} --luks-header new --batch-mode")));
    assert!(place.read("fs")[3 << 20..] == before[3 << 20..]);
    // Work that was begun with a window goes on with it, unasked, and with nothing else.
    place.file("fs", &before[..]);
    yes(place.own(&format!("{encrypt} {window} --luks-header other --init-only --batch-mode")));
    let resume = "luks reencrypt --resume-only --luks-header other --key-file key";
    says(place.own(&format!("{resume} fs")), 2, "an encryption was begun with 3145728 bytes of data");
    yes(place.own(&format!("{resume} {window}")));
    yes(place.own(&format!("luks extract {window} out --overwrite --luks-header other --key-file key")));
    assert!(place.read("out") == before[..3 << 20]);
    // Data of no known kind have no end that is cut.
    place.file("noise", Rng::new(43).bytes(2 << 20));
    yes(place.own(&format!("crypt encrypt --in-place noise,offset=0,size=1M {cipher}")));
}

#[test]
fn the_middle_of_something_known_is_encrypted_after_a_question_alone() {
    let place = place();
    place.file("long", Rng::new(5).bytes(64));
    file_system(&place, "fs", 42);
    let mut disk = vec![0; 8 << 20];
    let entry = &mut disk[446..][..16];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&2048u32.to_le_bytes());
    entry[12..16].copy_from_slice(&6144u32.to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    place.file("disk", &disk[..]);
    let crypt = "crypt encrypt --in-place --key-file long --key-size 512";
    let encrypt = format!("luks reencrypt --encrypt --key-file key {CHEAP}");
    for (line, device, what) in [
        (format!("{encrypt} fs,offset=1M --luks-header new"), "fs", "an ext2, ext3 or ext4 file system"),
        (format!("{encrypt} fs --offset 1M --luks-header new"), "fs", "an ext2, ext3 or ext4 file system"),
        (
            format!("{encrypt} fs --crypt-offset 1M --luks-header new"),
            "fs",
            "an ext2, ext3 or ext4 file system",
        ),
        (
            format!("{encrypt} fs,offset=1M,size=3M --reduce-device-size 1M"),
            "fs",
            "an ext2, ext3 or ext4 file system",
        ),
        (format!("{encrypt} vol,offset=1M --luks-header new"), "vol", "a LUKS volume"),
        (format!("{encrypt} disk,offset=2M --luks-header new"), "disk", "partition 1"),
        (format!("{crypt} fs,offset=1M"), "fs", "an ext2, ext3 or ext4 file system"),
        (format!("{crypt} fs,offset=1M,size=1M"), "fs", "an ext2, ext3 or ext4 file system"),
        (format!("{crypt} fs --crypt-offset 1M"), "fs", "an ext2, ext3 or ext4 file system"),
        (format!("{crypt} disk,offset=2M"), "disk", "partition 1"),
    ] {
        let before = place.read(device);
        let verb = if what == "a LUKS volume" { "may be" } else { "are" };
        says(place.own(&line), 2, &format!("{device}: the data {verb} only a part of {what}: nothing reads"));
        assert!(place.read(device) == before && !place.path("new").exists(), "{line}");
    }
    // A volume, wherever it lies.
    disk[1 << 20..4 << 20].copy_from_slice(&place.read("vol"));
    place.file("disk", &disk[..]);
    for image in ["vol", "disk,partition=1", "disk,offset=1M,size=3M"] {
        says(place.own(&format!("{crypt} {image}")), 2, "contains a LUKS header, which will be encrypted");
    }
    assert!(place.read("disk") == disk);
    yes(place.own(&format!("{crypt} disk,partition=1 --overwrite")));
    // Behind the file system there is nothing.
    place.file("fs", [place.read("fs"), vec![7; 1 << 20]].concat());
    yes(place.own(&format!("{encrypt} fs,offset=4M --luks-header new")));
    yes(place.own(&format!("{encrypt} disk,partition=1,offset=1M --luks-header other")));
}

/// Once it is under way, cryptsetup's work on the first bytes alone says nothing of the others, which stay as they are.
#[test]
fn work_that_cryptsetup_began_for_the_first_bytes_alone_goes_on() {
    let (Some(cryptsetup), Some(strace)) = (tool("cryptsetup"), tool("strace")) else { return };
    let place = place();
    let begin = format!(
        "reencrypt vol --device-size 1M --hotzone-size 256K -q --force-offline-reencrypt --key-file key {CHEAP}"
    );
    let has_begun = |at: u32| {
        let mut killed = Command::new(&strace);
        killed.args(["-f", "-o", "notes", "-e", &format!("inject=write,pwrite64:signal=KILL:when={at}")]);
        run_any(killed.arg(&cryptsetup).args(begin.split_whitespace()).current_dir(place.folder()));
        let dump = yes(place.own("luks dump --dump-json-metadata vol"));
        let json: serde_json::Value = serde_json::from_str(&dump).unwrap();
        // Of the regular segments none is without an end.
        dump.contains("online-reencrypt")
            && json["segments"]
                .as_object()
                .unwrap()
                .values()
                .all(|one| one["size"] != "dynamic" || one["flags"].is_array())
    };
    let sound = place.read("vol");
    let begun = (1..400).find(|at| {
        place.file("vol", &sound[..]);
        has_begun(*at)
    });
    if begun.is_none() {
        return skip("cryptsetup was not stopped between two zones");
    }
    let cut = place.read("vol");
    is_whole(&place, "vol");
    // All of the data, as cryptsetup goes on, which takes the same keys from the header.
    let finished = |program: &std::ffi::OsStr, lines: &[&str]| {
        place.file("vol", &cut[..]);
        for line in lines {
            run(Command::new(program).args(line.split_whitespace()).current_dir(place.folder()));
        }
        place.read("vol")
    };
    let theirs = finished(
        cryptsetup.as_os_str(),
        &[
            "repair vol -q --key-file key",
            "reencrypt vol --resume-only -q --force-offline-reencrypt --key-file key",
        ],
    );
    let resume = "luks reencrypt vol --resume-only --batch-mode --key-file key";
    let ours = finished(CASEMATE.as_ref(), &[resume]);
    assert!(ours[1 << 20..] == theirs[1 << 20..], "the data");
    place.file("vol", &cut[..]);
    says(place.own(&format!("{resume} --device-size 512K")), 2, "for 1048576 bytes of the data");
    // All of it, or a part at a time.
    place.file("vol", &cut[..]);
    yes(place.own(resume));
    is_whole(&place, "vol");
}

/// A loop device may be a window of its file.
#[test]
fn a_loop_device_of_a_part_of_a_file_is_a_window() {
    let Some(losetup) = tool("losetup") else { return };
    let place = place();
    let set_up = |options: &[&str], file: &str| {
        let mut command = Command::new(&losetup);
        run_any(command.args(["--find", "--show"]).args(options).arg(place.path(file)))
    };
    for (options, file, line, why) in [
        (["--sizelimit", "2M"], "vol", "", "the first 1048576 bytes alone; the other 1048576 stay"),
        (["--offset", "1M"], "data", "--luks-header header", "the data are taken from byte 1048576 on"),
    ] {
        let output = set_up(&options, file);
        if !output.status.success() {
            return skip("no loop devices here");
        }
        let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        let said = place.own(&format!("luks reencrypt {device} {line} --key-file key"));
        run(Command::new(&losetup).args(["-d", &device]));
        says(said, 2, why);
    }
    is_whole(&place, "vol");
    is_whole(&place, "data --luks-header header");
}

/// A partition, and a file system that says where it ends, are encrypted and decrypted as a whole, or after a question.
#[test]
fn a_part_of_a_partition_or_of_any_file_system_is_transformed_after_a_question_alone() {
    let place = place();
    place.file("long", Rng::new(5).bytes(64));
    let mut disk = Rng::new(6).bytes(8 << 20);
    disk[..512].fill(0);
    for (slot, start, len) in [(0, 2048_u32, 4096_u32), (1, 6144, 8192)] {
        let entry = &mut disk[446 + 16 * slot..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..16].copy_from_slice(&len.to_le_bytes());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    // A FAT of 4 MiB, whose first sector looks like an MBR without partitions.
    let mut fat = vec![0; 4 << 20];
    fat[..3].copy_from_slice(&[0xeb, 0x3c, 0x90]);
    fat[11..13].copy_from_slice(&512_u16.to_le_bytes());
    fat[19..21].copy_from_slice(&8192_u16.to_le_bytes());
    fat[54..62].copy_from_slice(b"FAT16   ");
    // Code of the boot sector, where entries of partitions would be.
    fat[446..462].copy_from_slice(b"Press any key to");
    fat[510..512].copy_from_slice(&[0x55, 0xaa]);
    let encrypt = format!("luks reencrypt --encrypt --luks-header new --key-file key {CHEAP}");
    let crypt = |direction: &str| format!("crypt {direction} --in-place --key-file long --key-size 512");
    let lines = [encrypt, crypt("encrypt"), crypt("decrypt")];
    for (device, bytes, what) in [
        // What begins with the table, and ends in a partition or between two.
        ("disk,offset=0,size=2M", &disk, "partition "),
        ("disk,offset=0,size=4M", &disk, "partition 2"),
        ("disk,offset=1M,size=1M", &disk, "partition 1"),
        ("disk,partition=1,offset=0,size=1M", &disk, "partition 1"),
        ("disk,partition=2,offset=1M,size=1M", &disk, "partition 2"),
        ("disk,offset=2M,size=1M", &disk, "partition 1"),
        ("fat,offset=1M", &fat, "a FAT file system"),
        ("fat,offset=0,size=1M", &fat, "a FAT file system"),
    ] {
        let file = device.split(',').next().unwrap();
        for line in &lines {
            place.file(file, bytes);
            let output = place.own(&format!("{line} {device}"));
            let said = casemate_testkit::stderr(&output);
            assert!(
                said.contains(what) || said.contains("bytes alone; the other"),
                "{line} {device}: {said}"
            );
            says(output, 2, "");
            assert!(place.read(file) == *bytes && !place.path("new").exists(), "{line} {device}");
        }
    }
    // What holds a size of its own gives no bytes up.
    place.file("fat", &fat);
    says(
        place.own(&format!("luks reencrypt --encrypt fat --reduce-device-size 1M --key-file key {CHEAP}")),
        2,
        "a FAT file system ends at byte 4194304 of the data, of which 3145728 are left",
    );
    // All of a partition, wherever that is said.
    for device in ["disk,partition=1", "disk,offset=1M,size=2M", "disk,partition=2,offset=1M"] {
        place.file("disk", &disk);
        yes(place.own(&format!("{} {device}", lines[1])));
        yes(place.own(&format!("{} {device}", lines[2])));
        assert!(place.read("disk") == disk, "{device}");
    }
}

#[test]
fn zeros_of_a_file_system_are_not_free_under_a_cipher_either() {
    let place = place();
    let mut fs = vec![0; 16 << 20];
    fs[..4].copy_from_slice(b"hsqs");
    fs[28..30].copy_from_slice(&4_u16.to_le_bytes());
    fs[40..48].copy_from_slice(&(12_u64 << 20).to_le_bytes());
    place.file("long", Rng::new(5).bytes(64));
    let crypt = "crypt=aes-xts-plain64,key-size=512,key-file=long";
    place.file("apart", vec![0; 1 << 20]);
    yes(place.own(&format!("luks format --luks-header head apart --key-file key {CHEAP}")));
    for (to, is_free) in [
        (format!("fs,offset=8M,size=1M,{crypt}"), false),
        (format!("fs,{crypt},crypt-offset=8M"), false),
        ("fs,offset=8M,size=1M,luks,header=head,key-file=key".to_owned(), false),
        (format!("fs,offset=13M,size=2M,{crypt}"), true),
        (format!("fs,{crypt},crypt-offset=13M"), true),
    ] {
        place.file("fs", &fs);
        let output = place.own(&format!("integrity format {to}"));
        match is_free {
            true => drop(yes(output)),
            false => {
                says(output, 2, "contains a squashfs file system; use --overwrite to destroy it");
                assert!(place.read("fs") == fs, "{to}");
            }
        }
    }
}

#[test]
fn what_is_known_is_not_encrypted_so_it_is_decrypted_after_a_question_alone() {
    let place = place();
    place.file("long", Rng::new(5).bytes(64));
    file_system(&place, "fs", 42);
    let decrypt = "crypt decrypt --in-place --key-file long --key-size 512";
    for (file, what) in [("fs", "an ext2, ext3 or ext4 file system"), ("vol", "a LUKS header")] {
        let before = place.read(file);
        says(place.own(&format!("{decrypt} {file}")), 2, &format!("contains {what}, so it is not encrypted"));
        assert!(place.read(file) == before);
        yes(place.own(&format!("{decrypt} {file} --overwrite")));
        assert!(place.read(file) != before);
    }
}
