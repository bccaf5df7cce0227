//! Damage with right checksums, which only a look at the rest of the file system shows: found, mended as e2fsck mends it, and no
//! reason for a change to write over what is in use.

use std::fs;
use std::process::Command;

use casemate_testkit::{Place, mke2fs, run, run_any, status, stderr, stdout, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// Eight flex groups of four, with tables of 256 inodes.
const FLEXIBLE: &str = "-t ext4 -m 0 -b 1024 -g 1024 -G 4 -N 6144 -O metadata_csum,64bit,^has_journal";

/// A file system, and tools of e2fsprogs to look at it and to forge with.
struct Image {
    place: Place,
    debugfs: std::path::PathBuf,
    e2fsck: std::path::PathBuf,
}

impl Image {
    fn new(options: &str, size: &str) -> Option<Image> {
        let (make, debugfs, e2fsck) = (tool("mke2fs")?, tool("debugfs")?, tool("e2fsck")?);
        let place = Place::under(CASEMATE, "ext4");
        mke2fs::make(&make, options, &place.path("image"), size);
        Some(Image { place, debugfs, e2fsck })
    }

    /// Runs commands of debugfs.
    fn forge(&self, commands: &str) {
        let script = self.place.file("script", format!("{commands}\n"));
        run(Command::new(&self.debugfs).args(["-w", "-f"]).arg(script).arg(self.place.path("image")));
    }

    /// The first number that a command of debugfs prints.
    fn number(&self, request: &str) -> usize {
        let told = self.place.sh(&format!("debugfs -R '{request}' image 2>/dev/null"));
        let mut words = told.split(|at: char| !at.is_ascii_digit()).filter(|word| !word.is_empty());
        words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{request}: {told}"))
    }

    /// Puts a file of so many bytes into the image.
    fn put(&self, name: &str, len: usize) {
        let file = self.place.file(name, bytes(len));
        self.place.yes(&format!("put image {} /{name}", file.display()));
    }

    fn theirs(&self) -> (i32, String) {
        let output = run_any(Command::new(&self.e2fsck).arg("-fn").arg(self.place.path("image")));
        (status(&output), stdout(&output))
    }

    /// Asserts that a check finds this kind, e2fsck finds something, too, and both find nothing behind a repair, which changes
    /// nothing when it is made again.
    fn is_found_and_mended(&self, what: &str, kind: &str, repair: &str) {
        let (theirs, told) = self.theirs();
        let found = stdout(&self.place.own("check image"));
        assert!(found.contains(&format!("{kind} (")), "{what}: {found}{told}");
        assert!(theirs & 4 == 4, "{what}: {theirs} {told}");
        self.is_mended(what, repair);
    }

    fn is_mended(&self, what: &str, repair: &str) {
        let line = format!("check --repair={repair} --yes image");
        let repaired = self.place.own(&line);
        assert_eq!(status(&repaired), 0, "{what}: {}{}", stdout(&repaired), stderr(&repaired));
        let (theirs, told) = self.theirs();
        assert_eq!(theirs, 0, "{what}: {}{told}", stdout(&repaired));
        let mended = self.place.read("image");
        assert_eq!(status(&self.place.own(&line)), 0, "{what}");
        assert!(self.place.read("image") == mended, "{what}: a second repair changed something");
    }
}

/// Bytes of a file, which are not zeros.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 + 1).collect()
}

/// Group 4 holds the tables of groups 5 to 7, and says that nobody ever used it.
#[test]
fn a_group_with_tables_of_others_is_never_taken_for_empty() {
    let Some(image) = Image::new(FLEXIBLE, "24M") else { return };
    // So that the bitmaps of others are written.
    image.put("all", 20_000_000);
    image.place.yes("rm image /all");
    let sound = image.place.read("image");
    let forge = || image.forge("set_bg 4 flags 3\nset_bg 4 checksum calc");
    forge();
    image.is_found_and_mended("the flag", "group-flags", "safe");
    fs::write(image.place.path("image"), &sound).unwrap();
    forge();
    image.put("all", 20_000_000);
    assert_eq!(image.theirs().0, 0, "{}", image.theirs().1);
    assert!(image.place.own("cat image /all").stdout == bytes(20_000_000));
    // Groups that hold nothing of others may go unwritten, but for the last one.
    for (group, kind) in [(23, "group-flags"), (5, "")] {
        fs::write(image.place.path("image"), &sound).unwrap();
        image.forge(&format!("set_bg {group} flags 3\nset_bg {group} checksum calc"));
        let found = stdout(&image.place.own("check image"));
        assert_eq!(found.contains("group-flags ("), !kind.is_empty(), "{group}: {found}");
        image.is_mended("the last group", "safe");
    }
}

/// Where a group says that it was never used and counts what is in use, nobody knows what that is.
#[test]
fn a_group_that_counts_what_it_has_not_is_left_alone() {
    let Some(image) = Image::new(FLEXIBLE, "24M") else { return };
    image.put("first", 10_000_000);
    image.forge("set_bg 19 flags 7\nset_bg 19 checksum calc");
    let more = image.place.file("more", bytes(11_700_000));
    let refused = image.place.own(&format!("put image {} /more", more.display()));
    let said = stderr(&refused);
    assert!(said.contains("the block bitmap is said never to have been written"), "{said}");
    assert_ne!(status(&refused), 0);
    assert!(image.place.own("cat image /first").stdout == bytes(10_000_000));
    image.is_found_and_mended("data in the group", "block-bitmap", "safe");
    assert!(image.place.own("cat image /first").stdout == bytes(10_000_000));
}

/// Inodes in use among those that were never used by their group's word.
#[test]
fn inodes_in_use_are_not_zeroed_as_unused() {
    let Some(image) = Image::new("-t ext4 -b 1024 -N 128 -O ^has_journal,^metadata_csum_seed", "8M") else {
        return;
    };
    let file = image.place.file("file", "contents");
    let put = |name: &str| image.place.own(&format!("put image {} /{name}", file.display()));
    for number in 12..52 {
        assert_eq!(status(&put(&format!("f{number}"))), 0);
    }
    // As many are free as are said to be unused: e2fsck, too, must look at names to find it.
    for number in 12..32 {
        image.place.yes(&format!("rm image /f{number}"));
    }
    let sound = image.place.read("image");
    let forge = |flags: u32| {
        fs::write(image.place.path("image"), &sound).unwrap();
        image.forge(&format!("set_bg 0 itable_unused 97\nset_bg 0 flags {flags}\nset_bg 0 checksum calc"));
    };
    let kept = || (32..52).all(|number| image.place.yes(&format!("cat image /f{number}")) == "contents");
    forge(4);
    let mut failed = None;
    for number in 0..60 {
        let output = put(&format!("g{number}"));
        if status(&output) != 0 {
            failed = Some(stderr(&output));
            break;
        }
    }
    let said = failed.expect("there is no room for all");
    assert!(said.contains("is in use"), "{said}");
    assert!(kept());
    forge(4);
    // Their checksums would stay those of the old UUID.
    let refused = image.place.own("tune --uuid random image");
    assert!(status(&refused) != 0 && stderr(&refused).contains("is in use"), "{}", stderr(&refused));
    image.is_found_and_mended("unused inodes", "group-flags", "all");
    assert!(kept());
}

/// An inode that holds a value, among those that were never used by their group's word, has no name that would lead to it.
#[test]
fn inodes_of_values_are_not_taken_for_unused() {
    let Some(image) = Image::new("-t ext4 -b 1024 -N 128 -O ea_inode,^has_journal", "8M") else { return };
    for name in (0..21).map(|number| format!("f{number}")) {
        image.put(&name, 10);
    }
    let value = "x".repeat(3000);
    image.place.yes(&format!("setfattr -n user.big -v {value} image /f0"));
    for number in 1..21 {
        image.place.yes(&format!("rm image /f{number}"));
    }
    image.forge("set_bg 0 itable_unused 115\nset_bg 0 flags 4\nset_bg 0 checksum calc");
    let found = stdout(&image.place.own("check image"));
    assert!(found.contains("group-flags ("), "{found}");
    image.is_mended("a value", "all");
    assert!(image.place.yes("getfattr -n user.big image /f0").contains(&value));
}

/// A group whose whole table was never used by its word has inodes in use.
#[test]
fn a_table_in_use_is_not_taken_for_a_new_one() {
    let Some(image) = Image::new("-t ext4 -b 1024 -g 1024 -N 128 -O ^has_journal", "8M") else { return };
    let file = image.place.file("file", "contents");
    for number in 0..40 {
        image.place.yes(&format!("put image {} /f{number}", file.display()));
    }
    // Sixteen inodes a group: the fourth one has three of them.
    let sound = image.place.read("image");
    for (what, forged) in
        [("the flag", ""), ("counts", "\nset_bg 3 free_inodes_count 16\nset_bg 3 itable_unused 16")]
    {
        fs::write(image.place.path("image"), &sound).unwrap();
        image.forge(&format!("set_bg 3 flags 5{forged}\nset_bg 3 checksum calc"));
        let mut failed = None;
        for number in 0..100 {
            let output = image.place.own(&format!("put image {} /g{number}", file.display()));
            if status(&output) != 0 {
                failed = Some(stderr(&output));
                break;
            }
        }
        let said = failed.expect("there is no room for all");
        assert!(said.contains("group descriptor 3"), "{what}: {said}");
        for number in 0..40 {
            assert_eq!(image.place.yes(&format!("cat image /f{number}")), "contents", "{what}: {number}");
        }
        image.is_found_and_mended(what, "group-flags", "all");
        for number in 0..40 {
            assert_eq!(image.place.yes(&format!("cat image /f{number}")), "contents", "{what}: {number}");
        }
    }
}

/// Wrong first bytes of an inner node of a hash tree, which are for whoever does not know of trees.
#[test]
fn nodes_of_hash_trees_begin_with_an_empty_record() {
    for features in ["metadata_csum", "^metadata_csum,^uninit_bg"] {
        let options = format!("-t ext4 -b 1024 -N 2500 -O ^has_journal,{features}");
        let Some(image) = Image::new(&options, "8M") else { return };
        let tree = image.place.path("tree");
        fs::create_dir(&tree).unwrap();
        for number in 0..1200 {
            fs::write(tree.join(format!("n{number:05}{}", "y".repeat(200))), "").unwrap();
        }
        image.place.yes(&format!("put -r image {} /d", tree.display()));
        run(Command::new(&image.e2fsck).args(["-fyD"]).arg(image.place.path("image")));
        let sound = image.place.read("image");
        let is_node = |block: &[u8]| {
            let room = if features.starts_with('^') { 127u16 } else { 126 };
            block[..8] == [0, 0, 0, 0, 0, 4, 0, 0] && block[8..10] == room.to_le_bytes() && block[10] > 1
        };
        let node = 1024 * sound.chunks_exact(1024).position(is_node).unwrap();
        for (what, at, value, repair) in [
            ("a length of a name", 6, 1, "safe"),
            ("a kind", 7, 1, "safe"),
            ("an inode", 0, 9, "safe"),
            ("a length", 4, 8, "all"),
        ] {
            let what = format!("{features}: {what}");
            let mut forged = sound.clone();
            forged[node + at] = value;
            fs::write(image.place.path("image"), &forged).unwrap();
            if features == "metadata_csum" && at != 4 {
                assert_eq!(status(&image.place.own("check --fix-checksums image")), 1, "{what}");
            }
            let names = || image.place.yes("ls image /d").lines().count();
            if at != 4 {
                assert_eq!(names(), 1200, "{what}");
            }
            // Without checksums nobody minds a kind.
            if at != 7 || features == "metadata_csum" {
                image.is_found_and_mended(&what, "htree-node", repair);
            }
            assert_eq!(names(), 1200, "{what}");
        }
    }
}

/// A directory that lost a block, as a file of blocks or by its map.
#[test]
fn directories_have_no_holes() {
    for features in ["large_dir", "^large_dir"] {
        let options = format!("-t ext4 -b 1024 -N 512 -O ^has_journal,^dir_index,{features}");
        let Some(image) = Image::new(&options, "8M") else { return };
        let tree = image.place.path("tree");
        fs::create_dir(&tree).unwrap();
        for number in 0..100 {
            fs::write(tree.join(format!("n{number:05}{}", "y".repeat(100))), "").unwrap();
        }
        image.place.yes(&format!("put -r image {} /d", tree.display()));
        image.forge("punch /d 3 3");
        let found = stdout(&image.place.own("check image"));
        assert!(found.contains("directory-hole ("), "{features}: {found}");
        image.is_mended(features, "all");
        assert!(image.place.yes("ls image /d").lines().count() > 80, "{features}");

        let options = format!("-t ext4 -b 1024 -O ^has_journal,^extent,^64bit,{features}");
        let Some(image) = Image::new(&options, "8M") else { return };
        image.put("file", 100);
        let block = image.number("blocks /");
        image.forge(&format!("sif / block[0] 0\nsif / block[1] {block}\nsif / size 2048"));
        let found = stdout(&image.place.own("check image"));
        assert!(found.contains("directory-hole ("), "{features}: {found}");
        image.is_mended(features, "all");
        assert!(image.place.own("cat image /file").stdout == bytes(100), "{features}");
    }
}

/// An inode that holds an attribute's value has one link, however many attributes have it.
#[test]
fn inodes_of_values_count_one_link() {
    let Some(image) = Image::new("-t ext4 -b 1024 -O metadata_csum,ea_inode", "8M") else { return };
    image.put("file", 100);
    let value = "x".repeat(3000);
    image.place.yes(&format!("setfattr -n user.big -v {value} image /file"));
    // The file has the first inode behind the reserved ones and lost+found, the value the next.
    for links in [2, 3] {
        image.forge(&format!("sif <13> links_count {links}"));
        image.is_found_and_mended(&format!("{links} links"), "link-count", "safe");
        assert!(image.place.yes("getfattr -n user.big image /file").contains(&value));
    }
}

/// A second entry of an owner in a quota file.
#[test]
fn quota_files_have_one_entry_of_an_owner() {
    let Some(image) = Image::new("-t ext4 -b 1024 -O quota,^has_journal", "8M") else { return };
    let entries = image.number("bmap <3> 5") * 1024;
    let mut forged = image.place.read("image");
    forged[entries + 0x243] = 8;
    fs::write(image.place.path("image"), forged).unwrap();
    image.is_found_and_mended("a time in a free entry", "quota-file", "all");
}

/// An attribute whose value lies in an inode of its own has no place for it with the entry.
#[test]
fn values_elsewhere_have_no_place_here() {
    let options = "-t ext4 -b 1024 -I 256 -O ^has_journal,^metadata_csum,^uninit_bg,ea_inode,inline_data";
    let Some(image) = Image::new(options, "8M") else { return };
    image.put("file", 6);
    image.place.yes(&format!("setfattr -n user.v -v {} image /file", "x".repeat(2500)));
    let told = image.place.sh("debugfs -R 'imap /file' image 2>/dev/null");
    let words: Vec<usize> = told
        .rsplit("located at")
        .next()
        .unwrap()
        .split(|at: char| !at.is_ascii_alphanumeric())
        .filter_map(|word| match word.strip_prefix("0x") {
            Some(hex) => usize::from_str_radix(hex, 16).ok(),
            None => word.parse().ok(),
        })
        .collect();
    let inode = words[0] * 1024 + words[1];
    let mut forged = image.place.read("image");
    // Behind the fields and the magic number: the entry of the inline data, then that of the value.
    let area = &forged[inode..inode + 256];
    let entry = area.windows(3).position(|bytes| bytes == b"v\0\0").unwrap() - 16;
    assert_eq!(area[entry..entry + 2], [1, 1], "{area:?}");
    forged[inode + entry + 2..inode + entry + 4].copy_from_slice(&[1, 0xff]);
    fs::write(image.place.path("image"), forged).unwrap();
    image.is_found_and_mended("a place", "xattr", "all");
    assert!(image.place.own("cat image /file").stdout == bytes(6));
    assert!(image.place.yes("getfattr -n user.v image /file").contains("xxx"));
}
