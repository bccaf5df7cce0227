//! Images that are cut off, and those whose superblock is lost, are read as far as they go; digests tell what came out.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use casemate_testkit::{Place, Rng, mke2fs, run, status, stderr, stdout, tool};
use serde_json::Value;

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

#[track_caller]
fn own(place: &Place, line: &str) -> String {
    let output = place.own(line);
    assert_eq!(status(&output), 0, "{line}: {}", stderr(&output));
    stdout(&output)
}

#[track_caller]
fn says(output: &Output, rc: i32, said: &str) {
    assert!(status(output) == rc && stderr(output).contains(said), "{}: {}", status(output), stderr(output));
}

/// An image of 32 MiB with 12 files of different sizes in it, some with metadata at its end; `None` after a skip.
fn place(options: &str, size: &str) -> Option<Place> {
    let mke2fs = tool("mke2fs")?;
    tool("debugfs")?;
    let place = Place::new(CASEMATE);
    mke2fs::make(&mke2fs, options, &place.path("image"), size);
    let mut rng = Rng::new(4);
    fs::create_dir(place.path("tree")).unwrap();
    for number in 0..12 {
        place.file(
            format!("tree/f{number}"),
            rng.bytes(if number % 3 == 1 { 5 << 20 } else { 70_000 * (number % 3) }),
        );
    }
    own(&place, "ext4 put -r image tree/. /");
    own(&place, "ext4 rm -r image /lost+found");
    Some(place)
}

fn debugfs(place: &Place, request: &str) -> String {
    run(Command::new(tool("debugfs").unwrap()).args(["-R", request]).arg(place.path("image")))
}

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

/// Compares a copy with what should be in it: what is lost is zeros and is told in JSON, in the map and on standard error; all else is
/// right. Returns the ranges that are lost.
#[track_caller]
fn rescued(place: &Place, line: &str, plain: &[u8]) -> Vec<(u64, u64)> {
    let output = place.own(&format!("{line} --map copy.map --overwrite --json"));
    assert_eq!(status(&output), 1, "{line}: {}", stderr(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let pair = |range: &serde_json::Value| (range[0].as_u64().unwrap(), range[1].as_u64().unwrap());
    let lost: Vec<(u64, u64)> = told["lost"].as_array().unwrap().iter().map(pair).collect();
    assert_eq!(told["lost_bytes"], lost.iter().map(|(start, end)| end - start).sum::<u64>());
    let copy = place.read("copy");
    assert!(copy.len() >= plain.len() && told["bytes"] == copy.len(), "{told}");
    for (at, (is, was)) in copy.iter().zip(plain).enumerate() {
        let is_lost = lost.iter().any(|(start, end)| (*start..*end).contains(&(at as u64)));
        assert_eq!(*is, if is_lost { 0 } else { *was }, "{line}: byte {at}");
    }
    let map = String::from_utf8(place.read("copy.map")).unwrap();
    for (start, end) in &lost {
        let line = format!("0x{start:08X}  0x{:08X}  -", end - start);
        assert!(map.lines().any(|one| one == line), "{line}: {map}");
        let said = format!("{}", start / 512);
        assert!(stderr(&output).contains(&said), "{said}: {}", stderr(&output));
    }
    lost
}

/// Reading goes on behind what is damaged, and only that is zeros.
#[test]
fn a_copy_goes_on_behind_wrong_tags_and_digests() {
    let place = Place::new(CASEMATE);
    let plain = Rng::new(8).bytes(3 << 20);
    place.file("plain", &plain);
    place.file("key", "secret");
    own(
        &place,
        "luks format vault --from plain --integrity hmac-sha256 --sector-size 4096 --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000",
    );
    own(&place, "integrity format volume --size 6M --from plain -I sha256 --sector-size 1024");
    own(&place, "verity format plain hash --root-hash-file root");
    fs::set_permissions(place.path("vault"), fs::Permissions::from_mode(0o644)).unwrap();
    // The data lie near the end of what holds them.
    for (name, line, granule) in [
        ("vault", "luks extract --keep-going vault copy --key-file key", 4096),
        ("volume", "integrity extract --keep-going volume copy -I sha256", 1024),
        ("vault", "rescue vault copy --luks --key-file key", 4096),
        ("plain", "rescue plain copy --dm-verity hash @root", 4096),
    ] {
        let whole = place.own(&line.replace(" copy", " whole"));
        assert_eq!(status(&whole), 0, "{line}: {}", stderr(&whole));
        if name == "vault" {
            let mode = fs::metadata(place.path("whole")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{line}: plain data are nobody else's");
        }
        let expected = place.read("whole");
        assert_eq!(&expected[..plain.len()], plain);
        let bytes = place.read(name);
        // In the middle of what is written of the data.
        let (at, behind) = match name {
            "plain" => (1 << 20, 100_000),
            "vault" => (bytes.len() - (5 << 19), 100_000),
            _ => (5 << 19, 300_000),
        };
        place.flip(name, at, 1);
        place.flip(name, at + behind, 0x80);
        let lost = rescued(&place, line, &expected);
        assert!((1..=2).contains(&lost.len()), "{line}: {lost:?}");
        assert!(lost.iter().all(|(start, end)| end - start == granule), "{line}: {lost:?}");
        let strict = place.own(&line.replace(" --keep-going", "").replace(" copy", " strict"));
        assert!(
            status(&strict) == if line.starts_with("rescue") { 1 } else { 2 },
            "{line}: {}",
            stderr(&strict)
        );
        place.file(name, &bytes);
    }
    // Tags that were still to be computed excuse a wrong one, and call nothing finished.
    let bytes = place.read("volume");
    let mut changed = bytes.clone();
    changed[24] |= 2;
    let at = changed.windows(512).position(|window| window == &plain[51200..51712]).unwrap();
    changed[at..at + 512].fill(b'X');
    place.file("volume", &changed);
    for line in [
        "integrity extract --keep-going volume unsure -I sha256 --map unsure.map",
        "rescue volume,integrity=sha256 unsure --map unsure.map",
    ] {
        let output = place.own(line);
        says(&output, 1, "sectors 100 to 101: copied and not checked");
        let map = String::from_utf8(place.read("unsure.map")).unwrap();
        assert!(map.contains("0x0000C800  0x00000400  -"), "{line}: {map}");
        assert_eq!(place.read("unsure")[51200..51712], [b'X'; 512]);
        fs::remove_file(place.path("unsure.map")).unwrap();
    }
    place.file("volume", &bytes);
    // A forged number of data blocks cuts nothing off in silence.
    let mut fewer = place.read("hash");
    assert_eq!(fewer[72..80], 768u64.to_le_bytes());
    fewer[72..80].copy_from_slice(&767u64.to_le_bytes());
    place.file("fewer", &fewer);
    for line in ["rescue plain cut --dm-verity fewer @root", "ext4 check plain --dm-verity fewer @root"] {
        says(&place.own(line), 2, "over more data blocks than the 767");
    }
    says(&place.own("luks extract vault copy --key-file key --map x"), 2, "--keep-going");
    says(&place.own("rescue vault none --map ./none"), 2, "would replace");
    says(&place.own("rescue plain copy --map plain"), 2, "would replace");
}

/// Parts that a map of ddrescue does not call finished are not read, and are lost through a mapping in whole sectors.
#[test]
fn what_a_map_calls_unread_is_no_zeros() {
    let place = Place::new(CASEMATE);
    let plain = Rng::new(8).bytes(1 << 20);
    place.file("plain", &plain);
    place.file("key", "secret");
    own(&place, "luks format vault --from plain --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000");
    let dump: serde_json::Value = serde_json::from_str(&own(&place, "luks dump --json vault")).unwrap();
    let offset: u64 = dump["metadata"]["segments"]["0"]["offset"].as_str().unwrap().parse().unwrap();
    let size = place.read("vault").len() as u64;
    let blocks = [(offset + 5000, 100, '-'), (offset + 20_480, 512, '*'), (size - 1000, 500, '?')];
    let mut map = "# a comment\n0x0 + 1\n".to_owned();
    let mut at = 0;
    for (start, len, status) in blocks {
        map += &format!("{at:#x} {:#x} +\n{start:#x} {len:#x} {status}\n", start - at);
        at = start + len;
    }
    // The map ends before the image: nobody asked for the rest.
    place.file("map", &map);
    // ddrescue leaves zeros there.
    let image = OpenOptions::new().write(true).open(place.path("vault")).unwrap();
    image.write_all_at(&[0; 100], offset + 5000).unwrap();
    let lost = rescued(&place, "luks extract --keep-going vault copy --key-file key --image-map map", &plain);
    let data = size - offset;
    let tail = (data - 1000) / 512 * 512;
    assert_eq!(lost, [(4608, 5120), (20_480, 20_992), (tail, data)]);
    let lost = rescued(&place, "rescue vault copy --image-map map", &place.read("vault"));
    assert_eq!(lost.len(), 3);
    assert_eq!(lost[1], (offset + 20_480, offset + 20_992));
    // Where the header was not read there is nothing to open.
    place.file("map", "0 + 1\n0 4096 ?\n4096 100 +\n");
    says(
        &place.own("luks extract --keep-going vault copy2 --key-file key --image-map map"),
        2,
        "were not read",
    );
    place.file("map", "hello");
    says(&place.own("rescue vault copy2 --image-map map"), 2, "map: rescue map: line 1");
}

/// A drive that fails is read as far as it can be.
#[test]
fn a_drive_with_bad_sectors_is_copied() {
    let Some(cc) = tool("cc") else { return };
    let place = Place::new(CASEMATE);
    let plain = Rng::new(8).bytes(3 << 20);
    place.file("drive", &plain);
    // Reads of this file fail where they touch two sectors.
    place.file(
        "shim.c",
        r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
static int bad(int fd, size_t n, off_t o) {
    struct stat s;
    if (fstat(fd, &s) || s.st_size != 3 << 20) return 0;
    return (o < 70144 && o + (off_t)n > 69632) || (o < 3145728 && o + (off_t)n > 3145216);
}
ssize_t pread64(int fd, void *b, size_t n, off_t o) {
    static ssize_t (*next)(int, void *, size_t, off_t);
    if (!next) next = dlsym(RTLD_NEXT, "pread64");
    if (bad(fd, n, o)) { errno = EIO; return -1; }
    return next(fd, b, n, o);
}
ssize_t pread(int fd, void *b, size_t n, off_t o) { return pread64(fd, b, n, o); }
"#,
    );
    place.sh(&format!("{} -shared -fPIC -o shim.so shim.c -ldl", cc.display()));
    let failing = |line: &str| {
        let mut command = place.command();
        command.args(line.split_whitespace()).env("LD_PRELOAD", place.path("shim.so"));
        casemate_testkit::run_any(&mut command)
    };
    let output = failing("rescue drive copy --map copy.map --json");
    assert_eq!(status(&output), 1, "{}", stderr(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["lost"], serde_json::json!([[69_632, 70_144], [3_145_216, 3_145_728]]));
    let mut expected = plain.clone();
    expected[69_632..70_144].fill(0);
    expected[3_145_216..].fill(0);
    assert!(place.read("copy") == expected);
    // A search passes over them, and says so.
    let output = failing("info --scan drive");
    assert_eq!(status(&output), 2);
    assert!(stdout(&output).contains("can't be read: bytes 69632 to 73727"), "{}", stdout(&output));
}

/// The lines of JSON that a command prints.
fn lines(output: &Output) -> Vec<serde_json::Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
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
