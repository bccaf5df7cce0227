//! Files that were deleted, or that no name reaches, come back.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use casemate_testkit::{Place, Rng, mke2fs, run, status, stderr, stdout, tool};

use crate::{CASEMATE, debugfs, own, place, says};

/// The lines of JSON that a command prints.
fn lines(output: &Output) -> Vec<serde_json::Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Names that were removed are found as debugfs finds them.
#[test]
fn names_that_were_removed_are_listed() {
    let (Some(mke2fs), Some(debugfs_tool)) = (tool("mke2fs"), tool("debugfs")) else { return };
    for options in [
        "-t ext2 -b 1024",
        "-t ext4 -b 1024 -O metadata_csum",
        "-t ext4 -b 4096 -O ^metadata_csum,^filetype",
        "-t ext4 -b 1024 -O inline_data -I 256",
    ] {
        let place = Place::new(CASEMATE);
        let mut rng = Rng::new(31);
        let mut script = String::new();
        for folder in ["d", "few"] {
            fs::create_dir_all(place.path("tree").join(folder)).unwrap();
            for number in 0..if folder == "d" { 250 } else { 4 } {
                let name = format!("{number}-{}", "x".repeat(rng.below(30) as usize));
                place.file(format!("tree/{folder}/{name}"), "");
                if rng.below(3) == 0 || number == 1 {
                    script += &format!("rm /{folder}/{name}\n");
                }
            }
        }
        // Some of the room is used again, in part.
        place.file("tree/kept", "");
        (0..20).for_each(|number| script += &format!("ln /kept /d/n{number}\n"));
        let make = format!("{options} -d {}", place.path("tree").display());
        mke2fs::make(&mke2fs, &make, &place.path("image"), "16M");
        let commands = place.file("commands", script);
        run(Command::new(&debugfs_tool).arg("-w").arg("-f").arg(commands).arg(place.path("image")));
        for folder in ["/d", "/few", "/"] {
            let listed = debugfs(&place, &format!("ls -d {folder}"));
            let words: Vec<&str> = listed.split_whitespace().collect();
            let deleted = words.windows(3).filter(|three| three[0].starts_with('<'));
            let path = |name: &str| format!("{}/{name}", folder.trim_end_matches('/'));
            let expected: BTreeSet<String> = deleted
                .map(|three| format!("{} {}", three[0].trim_matches(['<', '>']), path(three[2])))
                .collect();
            let found = own(&place, &format!("ext4 ls --deleted image {folder}"));
            let found: BTreeSet<String> = found.lines().map(str::to_owned).collect();
            assert_eq!(found, expected, "{options}: {folder}");
            assert!(folder == "/" || !found.is_empty(), "{options}: {folder}");
        }
        let json = own(&place, "ext4 ls --deleted image /few --json");
        let first: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        assert!(first["inode"].as_u64() > Some(11) && first["path"].as_str().unwrap().starts_with("/few/"));
        let all = own(&place, "ext4 ls -R --deleted image");
        assert!(all.contains(" /d/") && all.contains(" /few/"), "{all}");
    }
}

/// A file is read by its inode's number, as debugfs takes it, also where no name leads to it any more.
#[test]
fn numbers_of_inodes_are_paths() {
    let Some(place) = place("-t ext4 -b 1024", "32M") else { return };
    own(&place, "ext4 mkdir image /d");
    own(&place, "ext4 put image tree/f2 /d/one");
    let number = |path: &str| -> String {
        own(&place, &format!("ext4 ls -di image {path}")).split_whitespace().next().unwrap().to_owned()
    };
    let (file, folder) = (number("/d/one"), number("/d"));
    let plain = place.read("tree/f2");
    assert!(place.own(&format!("ext4 cat image <{file}>")).stdout == plain);
    assert!(place.own(&format!("ext4 cat image <{folder}>/one")).stdout == plain);
    assert_eq!(own(&place, &format!("ext4 ls image <{folder}>")), "one\n");
    assert!(own(&place, &format!("ext4 stat image <{file}>")).contains(&plain.len().to_string()));
    own(&place, &format!("ext4 extract image out --path <{folder}>"));
    assert!(place.read("out/one") == plain);
    own(&place, &format!("ext4 extract image single --path <{file}>"));
    assert!(place.read("single") == plain);
    // A name that looks so is reached by a slash; nothing else is taken for a number.
    own(&place, "ext4 put image tree/f5 /<12>");
    assert_eq!(place.own("ext4 cat image /<12>").stdout, place.read("tree/f5"));
    for path in ["<>", "<x>", "<12", "<-1>", "<12>x", "<99999999>", "<99999999999>"] {
        assert_eq!(status(&place.own(&format!("ext4 cat image {path}"))), 2, "{path}");
    }
    // Changes take names alone.
    assert_eq!(status(&place.own(&format!("ext4 rm image <{file}>"))), 2);
    // Without its root directory.
    let at: u64 = debugfs(&place, "imap <2>")
        .split("offset 0x")
        .nth(1)
        .map(|rest| u64::from_str_radix(rest.split_whitespace().next().unwrap(), 16).unwrap())
        .unwrap();
    let block: u64 = debugfs(&place, "imap <2>")
        .split("located at block ")
        .nth(1)
        .map(|rest| rest.split(',').next().unwrap().parse().unwrap())
        .unwrap();
    let image = OpenOptions::new().write(true).open(place.path("image")).unwrap();
    image.write_all_at(&[0; 256], block * 1024 + at).unwrap();
    assert_eq!(status(&place.own("ext4 ls image")), 2);
    assert_eq!(own(&place, &format!("ext4 ls image <{folder}>")), "one\n");
    let output = place.own("ext4 extract image lost --unreachable --json");
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let told = lines(&output);
    // The files of the root directory, and its folder with what is in it.
    assert_eq!(told.len(), 14, "{told:?}");
    assert!(place.read(format!("lost/#{folder}/one")) == plain);
    let contents = |folder: &Path| -> BTreeSet<Vec<u8>> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_file()).map(|path| fs::read(path).unwrap()).collect()
    };
    let expected = contents(&place.path("tree"));
    assert!(contents(&place.path("lost")) == expected);
    assert_eq!(told.iter().filter(|one| one["type"] == "directory").count(), 1);
}

/// Contents that only look like a text or a program are told as guesses.
#[test]
fn kinds_of_unreachable_files_are_guesses() {
    let (Some(mke2fs), Some(_)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let place = Place::new(CASEMATE);
    fs::create_dir_all(place.path("tree/d")).unwrap();
    place.file("tree/d/script", "#!/bin/sh\ntrue\n");
    place.file("tree/d/text", "hello\n");
    let make = format!("-t ext4 -b 1024 -d {}", place.path("tree").display());
    mke2fs::make(&mke2fs, &make, &place.path("image"), "8M");
    let number = debugfs(&place, "stat /d").split_whitespace().nth(1).unwrap().to_owned();
    // The name alone is gone: the inode keeps its links.
    run(Command::new(tool("debugfs").unwrap()).args(["-w", "-R", "unlink /d"]).arg(place.path("image")));
    let text = own(&place, "ext4 extract image lost --unreachable");
    assert!(text.contains(&format!("lost/#{number}: directory")), "{text}");
    assert_eq!(place.read(format!("lost/#{number}/text")), b"hello\n");
    run(Command::new(tool("debugfs").unwrap())
        .args(["-w", "-R", &format!("unlink <{number}>/script")])
        .arg(place.path("image")));
    let text = own(&place, "ext4 extract image again --unreachable");
    assert!(text.contains(": file, 15 bytes, perhaps a script"), "{text}");
    says(&place.own("ext4 extract image again --unreachable"), 2, "has something in it");
}

/// Files that debugfs deletes keep their maps.
#[test]
fn files_whose_map_is_left_come_back() {
    let (Some(mke2fs), Some(debugfs_tool)) = (tool("mke2fs"), tool("debugfs")) else { return };
    for options in ["-t ext2 -b 1024", "-t ext4 -b 1024 -O metadata_csum,^has_journal", "-t ext3 -b 4096"] {
        let place = Place::new(CASEMATE);
        let mut rng = Rng::new(17);
        fs::create_dir_all(place.path("tree/d")).unwrap();
        for number in 0..6 {
            place.file(format!("tree/d/f{number}"), rng.bytes(number * 40_000));
        }
        fs::set_permissions(place.path("tree/d/f2"), fs::Permissions::from_mode(0o600)).unwrap();
        let make = format!("{options} -d {}", place.path("tree").display());
        mke2fs::make(&mke2fs, &make, &place.path("image"), "16M");
        let script: String = (1..5).map(|number| format!("rm /d/f{number}\n")).collect();
        let commands = place.file("commands", script);
        run(Command::new(&debugfs_tool).arg("-w").arg("-f").arg(commands).arg(place.path("image")));
        let lsdel = debugfs(&place, "lsdel");
        let theirs: BTreeSet<u64> = lsdel
            .lines()
            .filter(|line| !line.contains("deleted inodes found"))
            .filter_map(|line| line.split_whitespace().next()?.parse().ok())
            .collect();
        let listed = place.own("ext4 ls --deleted -l --json image");
        let listed = lines(&listed);
        let ours: BTreeSet<u64> = listed.iter().map(|file| file["inode"].as_u64().unwrap()).collect();
        assert!(ours.is_superset(&theirs) && ours.len() == 4, "{options}: {listed:?} {lsdel}");
        let output = place.own("ext4 undelete image found --json");
        assert_eq!(status(&output), 0, "{options}: {}", stderr(&output));
        for file in lines(&output) {
            assert_eq!(
                (&file["verdict"], &file["source"]),
                (&"likely whole".into(), &"inode".into()),
                "{file}"
            );
        }
        // As private as it was.
        let mode = fs::metadata(place.path("found/d/f2")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{options}");
        for number in 1..5 {
            let name = format!("d/f{number}");
            assert!(place.read(format!("found/{name}")) == place.read(format!("tree/{name}")), "{options}");
        }
        // Patterns and numbers; a file that is not deleted is none.
        let one = listed.iter().find(|file| file["path"] == "/d/f3").unwrap();
        let output = place.own(&format!("ext4 undelete image some f1 <{}>", one["inode"]));
        assert_eq!((status(&output), stdout(&output).lines().count()), (0, 2), "{}", stdout(&output));
        says(&place.own("ext4 undelete image none f5"), 2, "no deleted file is called so");
        says(&place.own("ext4 undelete image some"), 2, "has something in it");
        // Blocks that another file has now.
        let fills = (1..256_usize).rev().map(|size| size << 16).find(|size| {
            place.file("new", vec![7; *size]);
            status(&place.own("ext4 put image new /new")) == 0
        });
        assert!(fills.is_some(), "{options}");
        let output = place.own("ext4 undelete image later --json");
        assert_eq!(status(&output), 1, "{options}: {}", stdout(&output));
        for file in lines(&output).iter().filter(|file| file["blocks_in_use"] != 0) {
            assert_eq!((&file["verdict"], &file["target"]), (&"doubtful".into(), &serde_json::Value::Null));
        }
    }
}

/// Bits of a damaged block bitmap are noise: they don't say that a deleted file's blocks are in use, nor that they are free.
#[test]
fn a_damaged_bitmap_says_nothing_of_a_deleted_file() {
    let (Some(mke2fs), Some(debugfs_tool)) = (tool("mke2fs"), tool("debugfs")) else { return };
    for (options, is_told) in
        [("-O metadata_csum,^has_journal", true), ("-O ^metadata_csum,^has_journal", false)]
    {
        let place = Place::new(CASEMATE);
        let mut rng = Rng::new(29);
        fs::create_dir_all(place.path("tree")).unwrap();
        let contents = rng.bytes(200_000);
        place.file("tree/f", &contents);
        let make = format!("-t ext4 -b 1024 {options} -d {}", place.path("tree").display());
        mke2fs::make(&mke2fs, &make, &place.path("image"), "6M");
        run(Command::new(&debugfs_tool).args(["-w", "-R", "rm /f"]).arg(place.path("image")));
        let told = debugfs(&place, "stats");
        let bitmap = told.split("block bitmap at ").nth(1).unwrap();
        let bitmap: u64 = bitmap.split(',').next().unwrap().parse().unwrap();
        for filler in [0_u8, 0xff] {
            let mut image = place.read("image");
            let start = bitmap as usize * 1024;
            image[start..start + 700].fill(filler);
            place.file("damaged", image);
            let output = place.own("ext4 undelete damaged found --doubtful --json");
            let file = &lines(&output)[0];
            let expected = match (is_told, filler) {
                (true, _) => ("doubtful", 0, true),
                (false, 0) => ("likely whole", 0, false),
                (false, _) => ("doubtful", file["blocks"].as_u64().unwrap(), false),
            };
            let unknown = file["blocks_unknown"].as_u64().unwrap();
            let found =
                (file["verdict"].as_str().unwrap(), file["blocks_in_use"].as_u64().unwrap(), unknown > 0);
            assert_eq!(found, expected, "{options}: {file}");
            assert!(place.read("found/f") == contents, "{options}");
            fs::remove_dir_all(place.path("found")).unwrap();
            let list = own(&place, "ext4 ls --deleted -l damaged");
            assert_eq!(list.contains("a damaged block bitmap"), is_told, "{list}");
        }
    }
}

/// Files that Linux deleted come back by what the journal has: contents, names and folders.
#[test]
fn files_that_linux_deleted_come_back() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    for (options, from) in [
        ("-t ext4 -b 1024 -J size=4", "ext4"),
        ("-t ext4 -b 4096 -O ^metadata_csum,^64bit -J size=16", "ext4"),
        ("-t ext3 -b 1024 -J size=4", "ext3"),
    ] {
        let place = Place::new(CASEMATE);
        let mut rng = Rng::new(23);
        fs::create_dir_all(place.path("tree/a/b")).unwrap();
        // Large enough for a map with blocks of its own.
        for (number, len) in [3, 5000, 40_000, 700_000, 100_000, 2_000_000].into_iter().enumerate() {
            place.file(format!("tree/a/b/f{number}"), rng.bytes(len));
        }
        mke2fs::make(&mke2fs, options, &place.path("image"), "64M");
        let folder = place.folder().display();
        let script = format!(
            "modprobe ext4 2>/dev/null || true
             mkdir -p /run/m
             mount -t {from} /dev/ubda /run/m
             cp -r {folder}/tree/. /run/m/
             sync
             cp {folder}/tree/a/b/f4 /run/m/kept
             sync
             rm -r /run/m/a/b
             sync
             sleep 1
             umount /run/m"
        );
        let uml = casemate_testkit::uml::Uml::new(script).disk(place.path("image"), false);
        let Some(output) = uml.run() else { return };
        output.expect_success();
        assert_eq!(own(&place, "ext4 ls image"), "a\nkept\nlost+found\n");
        let listed = place.own("ext4 ls --deleted -l image");
        let listed = format!("{}{}", stdout(&listed), stderr(&listed));
        let output = place.own("ext4 undelete image found --json");
        assert_eq!(status(&output), 0, "{options}: {listed}{}", stderr(&output));
        let told = lines(&output);
        for number in 0..6 {
            let name = format!("a/b/f{number}");
            let found = told.iter().find(|file| file["path"] == format!("/{name}"));
            let file = found.unwrap_or_else(|| panic!("{options}: {name}: {listed}"));
            assert_eq!(file["source"], "journal", "{options}: {file}");
            assert!(file["deleted"].as_u64() > Some(1_000_000_000), "{options}: {file}");
            assert!(
                place.read(format!("found/{name}")) == place.read(format!("tree/{name}")),
                "{options}: {name}: {file}"
            );
        }
    }
}

/// A file of which the journal shows that others had its blocks since, though they are free by now: other files, which were deleted,
/// or written anew and shorter, or cut; directories, and blocks of attributes.
#[test]
fn a_file_whose_blocks_others_had_is_not_likely_whole() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let other = "head -c 90000 /dev/zero | tr '\\0' B > other; sync";
    for (what, options, then) in [
        ("deleted", "-b 1024", format!("{other}; head -c 500 /dev/zero > other; sync; rm other; sync")),
        ("shorter", "-b 1024", format!("{other}; head -c 500 /dev/zero > other; sync")),
        ("cut", "-b 1024", format!("{other}; truncate -s 0 other; sync")),
        ("cut, of old maps", "-b 1024 -O ^extent,^64bit,^metadata_csum", format!("{other}; truncate -s 0 other; sync")),
        // Each mount writes the journal from its beginning: the third one takes the second one's transactions away.
        (
            "mounts",
            "-b 1024",
            format!(
                "again() {{ cd /; umount /run/m; mount /dev/ubda /run/m; cd /run/m; }}
                 again; {other}; rm other; sync
                 again; for i in 1 2 3; do touch o$i; sync; done"
            ),
        ),
        ("directories", "-b 1024 -N 200", "mkdir $(seq -f d%.0f 40); sync; rmdir d*; sync".to_owned()),
        (
            "attributes",
            "-b 1024 -N 200",
            "for i in $(seq 30); do : > e$i; setfattr -n user.x -v $i$(head -c 400 /dev/zero | tr '\\0' x) e$i; done; \
             sync; rm e*; sync"
                .to_owned(),
        ),
    ] {
        let place = Place::new(CASEMATE);
        mke2fs::make(&mke2fs, &format!("-t ext4 {options}"), &place.path("image"), "8M");
        let before = if what == "mounts" { "for i in 1 2 3 4 5 6 7 8; do echo > o$i; sync; done" } else { "" };
        let script = format!(
            "modprobe ext4 2>/dev/null || true
             mkdir -p /run/m
             mount /dev/ubda /run/m
             cd /run/m
             head -c 40000 /dev/zero > fill
             {before}
             head -c 90000 /dev/zero | tr '\\0' A > keep; sync
             rm keep; sync
             {then}
             cd /
             umount /run/m"
        );
        let uml = casemate_testkit::uml::Uml::new(script).disk(place.path("image"), false);
        let Some(output) = uml.run() else { return };
        output.expect_success();
        let output = place.own("ext4 undelete image found --json");
        let told = lines(&output);
        let keep = told.iter().find(|file| file["path"] == "/keep");
        let keep = keep.unwrap_or_else(|| panic!("{what}: {told:?}"));
        assert_eq!((status(&output), &keep["verdict"]), (1, &"doubtful".into()), "{what}: {keep}");
        let is_told = keep["why"].as_str().is_some_and(|why| ["blocks w", "in use again", "misses transactions"].iter().any(|text| why.contains(text)));
        assert!(is_told && !place.path("found/keep").exists(), "{what}: {keep}");
    }
}

/// An image made of `tree`, and changed by debugfs.
fn changed(place: &Place, options: &str, size: &str, requests: &[&str]) {
    let make = format!("{options} -d {}", place.path("tree").display());
    mke2fs::make(&tool("mke2fs").unwrap(), &make, &place.path("image"), size);
    for request in requests {
        run(Command::new(tool("debugfs").unwrap()).args(["-w", "-R", request]).arg(place.path("image")));
    }
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A file that all may read is private by the directory that it lies in.
#[test]
fn files_from_private_directories_stay_private() {
    let (Some(_), Some(_)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let tree = || {
        let place = Place::new(CASEMATE);
        fs::create_dir_all(place.path("tree/private/inner")).unwrap();
        fs::create_dir_all(place.path("tree/public")).unwrap();
        for name in ["private/inner/secret", "private/inner/kept", "public/file", "public/kept"] {
            place.file(format!("tree/{name}"), "of some use\n");
            fs::set_permissions(place.path(format!("tree/{name}")), fs::Permissions::from_mode(0o644))
                .unwrap();
        }
        for (name, mode) in [("private/inner", 0o755), ("private", 0o700), ("public", 0o755)] {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(place.path(format!("tree/{name}")), mode).unwrap();
        }
        place
    };
    let place = tree();
    let options = "-t ext4 -O ^has_journal -b 1024";
    changed(&place, options, "2M", &["rm /private/inner/secret", "rm /public/file"]);
    own(&place, "ext4 undelete image found");
    assert_eq!(mode(place.path("found/private/inner/secret")), 0o644);
    for (folder, expected) in
        [("found", 0o700), ("found/private", 0o700), ("found/private/inner", 0o755), ("found/public", 0o755)]
    {
        assert_eq!(mode(place.path(folder)), expected, "{folder}");
    }
    // A folder that was prepared for them is made private, too.
    fs::create_dir(place.path("prepared")).unwrap();
    fs::set_permissions(place.path("prepared"), fs::Permissions::from_mode(0o755)).unwrap();
    own(&place, "ext4 undelete image prepared");
    assert_eq!(mode(place.path("prepared")), 0o700);
    // Directories that were deleted themselves have modes, too.
    let place = tree();
    changed(
        &place,
        options,
        "2M",
        &["rm /private/inner/secret", "rm /private/inner/kept", "rmdir /private/inner", "rmdir /private"],
    );
    let text = own(&place, "ext4 undelete image found");
    assert_eq!(mode(place.path("found")), 0o700, "{text}");
    if place.path("found/private").exists() {
        assert_eq!(mode(place.path("found/private")), 0o700, "{text}");
    }
    let place = tree();
    changed(&place, options, "2M", &["clri /private/inner"]);
    fs::create_dir(place.path("prepared")).unwrap();
    fs::set_permissions(place.path("prepared"), fs::Permissions::from_mode(0o755)).unwrap();
    for folder in ["found", "prepared"] {
        let text = own(&place, &format!("ext4 extract image {folder} --unreachable"));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert_eq!(mode(place.path(folder)), 0o700);
    }
}

/// The contents of all files below a folder.
fn contents_below(folder: &Path) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.append(&mut contents_below(&entry.path())),
            false => drop(found.insert(fs::read(entry.path()).unwrap())),
        }
    }
    found
}

/// Replaces the only copy of some bytes in an image.
fn replace(image: &Path, old: &[u8], new: &[u8]) {
    let mut bytes = fs::read(image).unwrap();
    let places: Vec<usize> =
        (0..=bytes.len() - old.len()).filter(|at| bytes[*at..].starts_with(old)).collect();
    assert_eq!(places.len(), 1);
    bytes[places[0]..][..new.len()].copy_from_slice(new);
    fs::write(image, bytes).unwrap();
}

/// Files that a copy leaves out for a directory's names are found by the search for what no name reaches.
#[test]
fn a_copy_and_what_it_leaves_out_are_all_files() {
    let (Some(_), Some(_)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let options = "-t ext4 -O ^metadata_csum,^has_journal -b 1024";
    type Change = (&'static [u8], &'static [u8]);
    let changes: [(&str, &[&str], Option<Change>); 5] = [
        ("a slash", &[], Some((b"victimAAAAAAAAAAA1", b"../../../ESCAPED01"))),
        ("a NUL", &[], Some((b"victimAAAAAAAAAAA2", b"victim\0AAAAAAAAAA2"))),
        ("one name twice", &[], Some((b"victimAAAAAAAAAAA3", b"victimAAAAAAAAAAA2"))),
        ("a length of a record", &[], Some((b"\x1c\0\x12\x01victimAAAAAAAAAAA2", b"\xff\x7f"))),
        ("within itself", &["link /d /d/sub/up", "unlink /d"], None),
    ];
    for (what, requests, bytes) in changes {
        let place = Place::new(CASEMATE);
        fs::create_dir_all(place.path("tree/d/sub/below")).unwrap();
        for name in [
            "d/victimAAAAAAAAAAA1",
            "d/victimAAAAAAAAAAA2",
            "d/victimAAAAAAAAAAA3",
            "d/sub/deep",
            "d/sub/below/x",
        ] {
            place.file(format!("tree/{name}"), format!("{}\n", name.replace("victim", "contents of ")));
        }
        changed(&place, options, "2M", requests);
        if let Some((old, new)) = bytes {
            replace(&place.path("image"), old, new);
        }
        let output = place.own("ext4 extract image copy");
        assert!(matches!(status(&output), 0 | 2), "{what}: {}", stderr(&output));
        let output = place.own("ext4 extract image lost --unreachable");
        assert!(matches!(status(&output), 0 | 2), "{what}: {}", stderr(&output));
        let mut found = contents_below(&place.path("copy"));
        found.append(&mut contents_below(&place.path("lost")));
        assert_eq!(found, contents_below(&place.path("tree")), "{what}: {}", stdout(&output));
    }
}

/// A search that could not read part of the inode tables is not called complete.
#[test]
fn a_search_tells_which_inodes_it_could_not_read() {
    let (Some(_), Some(_)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let place = Place::new(CASEMATE);
    fs::create_dir_all(place.path("tree/d")).unwrap();
    for number in 0..20 {
        place.file(format!("tree/d/f{number:02}"), format!("{number}\n"));
    }
    changed(&place, "-t ext4 -O ^has_journal -b 1024", "8M", &["rm /d/f03", "unlink /d/f07"]);
    let commands =
        ["ext4 ls --deleted -l image", "ext4 undelete image found", "ext4 extract image lost --unreachable"];
    for command in commands {
        own(&place, command);
    }
    let image = fs::read(place.path("image")).unwrap();
    let clean = |place: &Place| {
        for folder in ["found", "lost"] {
            let _ = fs::remove_dir_all(place.path(folder));
        }
    };
    // One inode that its checksum does not fit.
    let imap = debugfs(&place, "imap /d/f10");
    let number =
        |after: &str| imap.split(after).nth(1).unwrap().split([',', '\n']).next().unwrap().to_owned();
    let block: usize = number("located at block ").parse().unwrap();
    let offset = usize::from_str_radix(number("offset 0x").trim(), 16).unwrap();
    let mut damaged = image.clone();
    damaged[block * 1024 + offset + 0x20] ^= 1;
    fs::write(place.path("image"), damaged).unwrap();
    for command in commands {
        clean(&place);
        says(&place.own(command), 2, "the inode table of group 0: 1 inodes can't be read, the first: ");
    }
    // Blocks that a layer below refuses.
    fs::write(place.path("image"), &image).unwrap();
    own(&place, "verity format image hashes --root-hash-file root --data-block-size 1024");
    let mut damaged = image.clone();
    damaged[block * 1024] ^= 1;
    fs::write(place.path("image"), damaged).unwrap();
    for command in commands {
        clean(&place);
        let command = format!("{command} --dm-verity hashes @root");
        says(&place.own(&command), 2, "the inode table of group 0: 1 of ");
    }
    // An image that is cut off before them.
    fs::write(place.path("image"), &image[..block * 1024]).unwrap();
    for command in commands {
        clean(&place);
        says(&place.own(command), 2, "the inode table of group 0: ");
    }
}

/// A deleted file with fs-verity says by its tree whether its blocks still are its own.
#[test]
fn a_deleted_file_that_contradicts_its_tree_is_doubtful() {
    let Some(_) = tool("debugfs") else { return };
    let place = Place::new(CASEMATE);
    fs::create_dir(place.path("tree")).unwrap();
    let text: String = (1..5000).map(|number| format!("{number}\n")).collect();
    place.file("tree/v", &text);
    own(&place, "ext4 build image --from tree --verity --size 4M");
    run(Command::new(tool("debugfs").unwrap()).args(["-w", "-R", "kill_file /v"]).arg(place.path("image")));
    own(&place, "ext4 undelete image sound");
    assert_eq!(contents_below(&place.path("sound")), BTreeSet::from([text.clone().into_bytes()]));
    replace(&place.path("image"), b"\n101\n", b"\nX01\n");
    let listed = own(&place, "ext4 ls --deleted -l image");
    assert!(listed.contains("doubtful (") && listed.contains("does not match its hash tree"), "{listed}");
    let output = place.own("ext4 undelete image found");
    assert_eq!(status(&output), 1, "{}", stderr(&output));
    assert!(stdout(&output).contains("not copied: "), "{}", stdout(&output));
    assert!(contents_below(&place.path("found")).is_empty());
    let output = place.own("ext4 undelete image taken --doubtful");
    assert_eq!(status(&output), 1, "{}", stderr(&output));
    let found = contents_below(&place.path("taken"));
    assert_eq!(found, BTreeSet::from([text.replace("\n101\n", "\nX01\n").into_bytes()]));
}

/// Files that undelete does not copy are told, and those that it copies as something else.
#[test]
fn deleted_files_of_other_kinds_are_told() {
    let (Some(_), Some(_)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let place = Place::new(CASEMATE);
    fs::create_dir_all(place.path("tree/d/empty")).unwrap();
    place.file("tree/d/file", "text\n");
    std::os::unix::fs::symlink("a target that is short", place.path("tree/d/link")).unwrap();
    run(Command::new("mkfifo").arg(place.path("tree/d/fifo")));
    changed(&place, "-t ext2 -b 1024", "2M", &["rm /d/file", "rm /d/link"]);
    let text = own(&place, "ext4 undelete image found");
    assert!(text.contains("found/d/link (a text, the target of the symbolic link): "), "{text}");
    assert_eq!(place.read("found/d/link"), b"a target that is short");
    assert_eq!(mode(place.path("found/d/link")), 0o644);
    run(Command::new(tool("debugfs").unwrap()).args(["-w", "-R", "rm /d/fifo"]).arg(place.path("image")));
    run(Command::new(tool("debugfs").unwrap()).args(["-w", "-R", "rmdir /d/empty"]).arg(place.path("image")));
    let output = place.own("ext4 undelete image again");
    assert_eq!(status(&output), 1, "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("not copied: ") && text.contains(" has no contents)"), "{text}");
    assert!(place.path("again/d/empty").is_dir(), "{text}");
    assert_eq!(status(&place.own("ext4 undelete image some file")), 0);
    // Nothing is made for what is not there.
    says(&place.own("ext4 undelete image none nothing*"), 2, "no deleted file is called so");
    assert!(!place.path("none").exists());
    // The target of a link without its key is no target.
    fs::create_dir_all(place.path("keyed/enc")).unwrap();
    std::os::unix::fs::symlink("a secret target", place.path("keyed/enc/link")).unwrap();
    place.file("key", vec![7; 64]);
    own(&place, "ext4 build locked --from keyed --encrypt enc=key");
    let number = own(&place, "ext4 ls -di locked /enc/link --fscrypt-key key");
    let number = number.split_whitespace().next().unwrap();
    run(Command::new(tool("debugfs").unwrap())
        .args(["-w", "-R", &format!("kill_file <{number}>")])
        .arg(place.path("locked")));
    let output = place.own("ext4 undelete locked without");
    assert_eq!(status(&output), 2, "{} {}", stdout(&output), stderr(&output));
    assert!(contents_below(&place.path("without")).is_empty());
    own(&place, "ext4 undelete locked with --fscrypt-key key");
    assert_eq!(contents_below(&place.path("with")), BTreeSet::from([b"a secret target".to_vec()]));
}

/// Writes files of one inode number after the other, each step a transaction of the journal: debugfs's requests, and whether
/// the block with the inode is in it beside the root directory's.
fn in_steps(place: &Place, steps: &[(&[&str], bool)]) {
    let debugfs_tool = tool("debugfs").unwrap();
    let write = |requests: String| {
        let commands = place.file("commands", requests);
        run(Command::new(&debugfs_tool).arg("-w").arg("-f").arg(commands).arg(place.path("image")));
    };
    mke2fs::make(&tool("mke2fs").unwrap(), "-t ext4 -b 1024 -O metadata_csum", &place.path("image"), "16M");
    let number = |text: &str| text.trim().trim_end_matches(',').parse::<usize>().unwrap();
    let root = number(&debugfs(place, "blocks /"));
    let imap = debugfs(place, "imap <12>");
    let table = number(imap.split("located at block ").nth(1).unwrap().split(',').next().unwrap());
    let mut journal = "jo\n".to_owned();
    for (step, (requests, has_inode)) in steps.iter().enumerate() {
        write(requests.join("\n") + "\n");
        let image = place.read("image");
        let blocks = if *has_inode { vec![root, table] } else { vec![root] };
        let bytes: Vec<u8> = blocks.iter().flat_map(|block| image[block * 1024..][..1024].to_vec()).collect();
        let list: Vec<String> = blocks.iter().map(usize::to_string).collect();
        let copies = place.file(format!("copies{step}"), bytes);
        journal += &format!("jw -b {} {}\n", list.join(","), copies.display());
    }
    write(journal + "jc\n");
}

/// A file gets no name that another file of its inode number had.
#[test]
fn no_deleted_file_gets_the_name_of_another() {
    let (Some(_), Some(_)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let place = Place::new(CASEMATE);
    for (number, name) in ["alpha", "beta", "gamma"].into_iter().enumerate() {
        place.file(name, vec![b'x'; 100 * (number + 1)]);
    }
    let add = |name: &str, generation: u32| -> Vec<String> {
        vec![
            format!("write {} {name}", place.path(name).display()),
            format!("sif <12> generation {generation}"),
        ]
    };
    let (alpha, beta, gamma) = (add("alpha", 1), add("beta", 2), add("gamma", 3));
    fn texts(list: &[String]) -> Vec<&str> {
        list.iter().map(String::as_str).collect()
    }
    let names = |place: &Place| -> Vec<(u64, serde_json::Value, serde_json::Value)> {
        let listed = lines(&place.own("ext4 ls --deleted -l --json image"));
        let name = |file: &serde_json::Value| {
            (file["size"].as_u64().unwrap(), file["path"].clone(), file["other_paths"].clone())
        };
        let mut names: Vec<_> = listed.iter().map(name).collect();
        names.sort_by_key(|(size, ..)| *size);
        names
    };
    // The directory is logged once more before the last one is deleted.
    let (keep, none) = (["mkdir keep"], serde_json::json!([]));
    let steps: [(&[&str], bool); 7] = [
        (&texts(&alpha), true),
        (&["rm alpha"], true),
        (&texts(&beta), true),
        (&["rm beta"], true),
        (&texts(&gamma), true),
        (&keep, false),
        (&["rm gamma"], true),
    ];
    in_steps(&place, &steps);
    let expected = [(100, "/alpha"), (200, "/beta"), (300, "/gamma")];
    let expected: Vec<_> =
        expected.iter().map(|(size, path)| (*size, (*path).into(), none.clone())).collect();
    assert_eq!(names(&place), expected);
    // Nothing tells which of them the last inode is.
    let steps: [(&[&str], bool); 4] =
        [(&texts(&alpha), false), (&["rm alpha"], false), (&texts(&beta), false), (&["rm beta"], true)];
    in_steps(&place, &steps);
    assert_eq!(names(&place), [(200, serde_json::Value::Null, serde_json::json!(["/beta", "/alpha"]))]);
    let text = own(&place, "ext4 undelete image found");
    assert!(text.contains("(no name, perhaps /beta or /alpha)"), "{text}");
    assert!(place.read("found/#12") == place.read("beta"), "{text}");
    // It is found by each of them.
    let text = own(&place, "ext4 undelete image again alpha");
    assert!(text.contains("again/#12: "), "{text}");
    // A file that was renamed had both names, the last one at last.
    let renamed = ["ln alpha omega", "unlink alpha"];
    let steps: [(&[&str], bool); 3] = [(&texts(&alpha), true), (&renamed, true), (&["rm omega"], true)];
    in_steps(&place, &steps);
    assert_eq!(names(&place), [(100, "/omega".into(), serde_json::json!(["/alpha"]))]);
    let text = own(&place, "ext4 undelete image renamed");
    assert!(text.contains(" /omega (or /alpha)"), "{text}");
}
