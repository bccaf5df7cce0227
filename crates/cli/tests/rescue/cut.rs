//! Images that are cut off, and those whose superblock is lost, are read as far as they go; digests tell what came out.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use casemate_testkit::{Rng, run, status, stdout, tool};
use serde_json::Value;

use crate::{CASEMATE, debugfs, own, place, says};

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn what_is_there_of_a_cut_image_is_read() {
    let Some(place) = place("-t ext4 -b 1024", "32M") else { return };
    // The highest byte of each file.
    let last = |number: usize| {
        let blocks = debugfs(&place, &format!("blocks /f{number}"));
        blocks.split_whitespace().map(|block| block.parse::<u64>().unwrap() * 1024 + 1024).max().unwrap_or(0)
    };
    let last: Vec<u64> = (0..12).map(last).collect();
    let whole = place.read("image");
    for size in [20 << 20, (9 << 20) + 700] {
        place.file("cut", &whole[..size]);
        let is_there = |number: &usize| last[*number] <= size as u64;
        let there: BTreeSet<String> = (0..12).filter(is_there).map(|number| format!("f{number}")).collect();
        assert!((4..12).contains(&there.len()), "{there:?}");
        let output = place.own("ext4 ls cut");
        says(&output, 0, &format!("note: cut: the image ends at byte {size}, its file system at 33554432"));
        assert_eq!(stdout(&output).lines().count(), 12);
        let out = place.path(format!("out{size}"));
        let output = place.own(&format!("ext4 extract cut {}", out.display()));
        says(&output, 2, "some of it lies behind the end of the image");
        assert_eq!(names(&out), there);
        let output = place.own("ext4 extract cut --tar cut.tar");
        says(&output, 2, "behind the end");
        let listed = run(Command::new("tar").arg("-tf").arg(place.path("cut.tar")));
        assert_eq!(
            listed
                .lines()
                .skip(1)
                .map(|line| line.trim_start_matches("./").to_owned())
                .collect::<BTreeSet<_>>(),
            there
        );
        for number in 0..12 {
            let output = place.own(&format!("ext4 cat cut /f{number}"));
            let name = format!("f{number}");
            match there.contains(&name) {
                true => assert!(output.stdout == place.read(format!("tree/{name}")) && status(&output) == 0),
                false => says(&output, 2, &format!("/{name}: ")),
            }
        }
        let output = place.own("ext4 digest cut");
        assert_eq!((status(&output), stdout(&output).lines().count()), (2, there.len()));
        fs::write(out.join("list"), &output.stdout).unwrap();
        run(Command::new("sha256sum").args(["--quiet", "-c", "list"]).current_dir(&out));
        // It is still no image to change, and no sound one.
        says(&place.own("ext4 mkdir cut /new"), 2, "on a device of");
        says(&place.own("ext4 check cut --repair --batch-mode"), 1, "on a device of");
        says(&place.own("ext4 check cut --fix-checksums"), 1, "");
        assert!(place.read("cut") == whole[..size]);
    }
}

/// The present part of a cut image is checked; of the missing part only its absence is reported.
#[test]
fn what_is_there_of_a_cut_image_is_checked() {
    let options = [
        "-t ext4 -b 1024",
        "-t ext4 -b 1024 -O ^flex_bg,inline_data",
        "-t ext3 -b 1024 -g 1024",
        "-t ext2 -b 1024",
    ];
    for options in options {
        let Some(place) = place(options, "32M") else { return };
        place.sh("for k in $(seq 0 6); do mkdir -p more/d$k; done");
        for number in 0..60 {
            place.file(format!("more/d{}/file{number}", number % 7), vec![b'x'; number * 100]);
        }
        place.sh("ln -s $(printf %0200d 1) more/link");
        own(&place, "ext4 put -r image more /");
        let mut whole = place.read("image");
        let found = |size: usize| -> BTreeSet<String> {
            let output = place.own("ext4 check cut --json");
            let value: Value = serde_json::from_slice(&output.stdout).unwrap();
            let name = |finding: &Value| finding["name"].as_str().unwrap().to_owned();
            let faults = value["faults"].as_array().unwrap_or_else(|| panic!("{options} {size}: {value}"));
            assert_eq!(status(&output), 1, "{options} {size}");
            faults.iter().map(name).collect()
        };
        let sizes = [31 << 20, 20 << 20, (9 << 20) + 700, (8 << 20) + 4096, 3 << 20, 1 << 20, 100 << 10];
        for size in sizes {
            place.file("cut", &whole[..size]);
            assert_eq!(found(size), BTreeSet::from(["cut-off".to_owned()]), "{options} {size}");
        }
        // A damaged inode is found.
        let told = debugfs(&place, "imap /");
        let after =
            |text: &str| told.split(text).nth(1).unwrap().split([',', '\n']).next().unwrap().to_owned();
        let block: usize = after("at block ").parse().unwrap();
        let offset = usize::from_str_radix(&after("offset 0x"), 16).unwrap();
        whole[block * 1024 + offset + 1] ^= 0x40;
        place.file("cut", &whole[..20 << 20]);
        assert!(found(20 << 20).len() > 1, "{options}");
        let damaged = place.read("cut");
        for repair in ["--repair --batch-mode", "--fix-checksums"] {
            assert_eq!(status(&place.own(&format!("ext4 check cut {repair}"))), 1, "{options} {repair}");
        }
        assert!(place.read("cut") == damaged, "{options}");
    }
}

#[test]
fn a_journal_that_was_cut_off_is_told() {
    let Some(place) = place("-t ext4 -b 1024 -J size=4,location=20000", "32M") else { return };
    let blocks = debugfs(&place, "blocks <8>");
    let first: u64 = blocks.split_whitespace().map(|block| block.parse::<u64>().unwrap()).min().unwrap();
    run(Command::new(tool("debugfs").unwrap())
        .args(["-w", "-R", "feature needs_recovery"])
        .arg(place.path("image")));
    let image = place.read("image");
    assert!(first * 1024 > 2 << 20, "the journal begins at block {first}");
    place.file("cut", &image[..first as usize * 1024]);
    let output = place.own("ext4 ls cut");
    says(&output, 0, "may be from the middle of a change, because the journal lies behind the end");
    assert_eq!(stdout(&output).lines().count(), 12);
    assert!(own(&place, "ext4 info cut").contains("the journal lies behind the end of the image"));
}

#[test]
fn partitions_are_read_as_far_as_they_go() {
    let Some(sfdisk) = tool("sfdisk") else { return };
    let Some(place) = place("-t ext4 -b 1024", "32M") else { return };
    let mut disk = vec![0; 1 << 20];
    disk.extend(place.read("image"));
    disk.resize(80 << 20, 0);
    place.file("disk", &disk);
    place.file("parts", "label: gpt\nstart=2048, size=65536\nstart=67584, size=65536\n");
    let parts = fs::File::open(place.path("parts")).unwrap();
    run(Command::new(sfdisk).arg("-q").arg(place.path("disk")).stdin(parts));
    fs::File::options().write(true).open(place.path("disk")).unwrap().set_len(24 << 20).unwrap();
    let output = place.own("ext4 ls -P 1 disk");
    says(&output, 0, "the image ends at byte 24117248, its file system at 33554432");
    assert_eq!(stdout(&output).lines().count(), 12);
    says(&place.own("ext4 ls -P 2 disk"), 2, "partition 2 passes the end of the image, which is cut off");
    says(
        &place.own("ext4 mkdir -P 1 disk /new"),
        2,
        "partition 1 passes the end of the image, which is cut off",
    );
    // A copy is as long as the partition, and says what it lacks.
    let output = place.own("rescue -P 1 disk copy");
    says(&output, 1, "9437184 bytes are missing at the end: the partition table has them");
    says(&output, 1, "sectors 47104 to 65535: can't be read; zeros in the copy");
    assert_eq!(place.read("copy").len(), 32 << 20);
    let found = own(&place, "info disk");
    assert_eq!(found.matches(" of 33554432 bytes are left").count(), 2, "{found}");
    place.file("key", Rng::new(1).bytes(32));
    says(&place.own("crypt decrypt -P 1 disk out --key-file key"), 2, "cut off");
}

#[test]
fn a_copy_of_the_superblock_is_read_by() {
    for (options, size, block_size, copies) in [
        ("-t ext4 -b 1024", "32M", 1024, [8193, 24577]),
        ("-t ext4 -b 1024 -O ^metadata_csum,^64bit,sparse_super2", "32M", 1024, [8193, 24577]),
        ("-t ext4 -b 1024 -O meta_bg,^resize_inode", "32M", 1024, [8193, 24577]),
        ("-t ext4 -b 4096", "160M", 4096, [32768, 32768]),
    ] {
        let Some(place) = place(options, size) else { return };
        let list = own(&place, "ext4 ls -l image");
        let digests = own(&place, "ext4 digest image");
        let image = OpenOptions::new().write(true).open(place.path("image")).unwrap();
        // The superblock, and the descriptors behind it.
        image.write_all_at(&[0xff; 1024], 1024).unwrap();
        image.write_all_at(&vec![0xff; block_size], 2048.max(block_size as u64)).unwrap();
        let lost = place.own("ext4 ls image");
        says(
            &lost,
            2,
            &format!("read by the copy of the superblock in block {0} (--superblock {0})", copies[0]),
        );
        for copy in copies {
            if options.contains("sparse_super2") && copy != copies[0] {
                continue;
            }
            assert_eq!(own(&place, &format!("ext4 ls -l image --superblock {copy}")), list, "{options}");
            assert_eq!(own(&place, &format!("ext4 digest image --superblock {copy}")), digests, "{options}");
        }
        says(&place.own("ext4 ls image --superblock 5"), 2, "there is no copy of a superblock there");
        says(&place.own("ext4 check image --superblock 8193"), 2, "by itself");
    }
}

#[test]
fn a_journal_is_replayed_by_a_copy_too() {
    let Some(place) = place("-t ext4 -b 1024", "32M") else { return };
    // A change that is in the journal alone: the block that chmod has written, put there by debugfs.
    let before = place.read("image");
    own(&place, "ext4 chmod image 4711 /f0");
    let after = place.read("image");
    let list = own(&place, "ext4 ls -l image");
    let differ = |block: &usize| before[block * 1024..][..1024] != after[block * 1024..][..1024];
    let journal = debugfs(&place, "blocks <8>");
    let journal: BTreeSet<usize> = journal.split_whitespace().map(|block| block.parse().unwrap()).collect();
    let changed: Vec<usize> =
        (2..32 << 10).filter(|block| differ(block) && !journal.contains(block)).collect();
    place.file("image", &before);
    let mut requests = String::from("jo\n");
    for block in changed {
        place.file(format!("block{block}"), &after[block * 1024..][..1024]);
        requests += &format!("jw -b {block} {}\n", place.path(format!("block{block}")).display());
    }
    place.file("requests", requests + "jc\n");
    let mut command = Command::new(tool("debugfs").unwrap());
    run(command.args(["-w", "-f"]).args([place.path("requests"), place.path("image")]));
    assert!(place.own("ext4 ls -l image --no-replay").stdout != list.as_bytes());
    assert_eq!(own(&place, "ext4 ls -l image"), list);
    let image = OpenOptions::new().write(true).open(place.path("image")).unwrap();
    image.write_all_at(&[0; 1024], 1024).unwrap();
    assert_eq!(own(&place, "ext4 ls -l image --superblock 8193"), list);
}

#[test]
fn digests_are_those_of_the_files() {
    let Some(place) = place("", "32M") else { return };
    own(&place, "ext4 extract image out");
    place.file("list", own(&place, "ext4 digest image"));
    run(Command::new("sha256sum")
        .args(["--quiet", "--strict", "-c", "../list"])
        .current_dir(place.path("out")));
    place.file("trees", own(&place, "ext4 digest --tree image"));
    let checked = Command::new(CASEMATE)
        .args(["fsverity", "check", "../trees"])
        .current_dir(place.path("out"))
        .output();
    assert_eq!(stdout(&checked.unwrap()).matches(": OK").count(), 12);
    assert_eq!(
        own(&place, "ext4 digest image /f0"),
        format!("{}  f0\n", own(&place, "ext4 digest image /f0 --json").split('"').nth(3).unwrap())
    );
}
