//! `ext4 diff`: images that differ in one thing, and the line that says so.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use casemate_testkit::{Place, run, status, stderr, stdout, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

/// 16 MiB in two groups, the second of which has copies.
const OPTIONS: &str = "-q -F -t ext4 -b 1024 -N 512 -L base";

struct Images {
    place: Place,
    debugfs: PathBuf,
}

impl Images {
    /// An image `a` of a small tree, made by mke2fs.
    fn new() -> Option<Images> {
        let (mke2fs, debugfs) = (tool("mke2fs")?, tool("debugfs")?);
        let place = Place::new(CASEMATE);
        place.sh("mkdir -p tree/etc/sub tree/many; umask 022; printf '%5000s' x > tree/etc/f; echo y > tree/etc/g; \
            ln -s f tree/etc/l; for i in $(seq 100); do echo $i > tree/many/name$i; done; \
            chmod 644 tree/etc/f; find tree -exec touch -h -d @1700000000 {} +");
        let mut make = Command::new(mke2fs);
        make.args(OPTIONS.split(' ')).args([
            "-U",
            UUID,
            "-E",
            &format!("hash_seed={UUID},root_owner=0:0"),
            "-d",
            "tree",
        ]);
        run(make.args(["a", "16M"]).env("E2FSPROGS_FAKE_TIME", "1700000000").current_dir(place.folder()));
        let images = Images { place, debugfs };
        images.change("ea_set /etc/g user.long 01234567890123456789");
        fs::rename(images.place.path("b"), images.place.path("a")).unwrap();
        Some(images)
    }

    /// Makes `b` a copy of `a`, and changes it with commands of debugfs.
    fn change(&self, commands: &str) {
        let place = &self.place;
        fs::copy(place.path("a"), place.path("b")).unwrap();
        let script = place.file("script", format!("{commands}\n"));
        let mut command = Command::new(&self.debugfs);
        command.args(["-w", "-f"]).arg(script).arg(place.path("b")).current_dir(place.folder());
        run(command.env("E2FSPROGS_FAKE_TIME", "1700000000"));
    }

    /// Makes `b` a copy of `a` with one byte changed.
    fn flip(&self, at: u64) {
        fs::copy(self.place.path("a"), self.place.path("b")).unwrap();
        self.place.flip("b", usize::try_from(at).unwrap(), 1);
    }

    /// The number that a request to debugfs prints.
    fn number(&self, request: &str) -> u64 {
        let told = self.place.sh(&format!("debugfs -R '{request}' a 2>/dev/null"));
        told.trim().parse().unwrap_or_else(|_| panic!("{request}: {told}"))
    }

    /// The lines of a comparison that finds a difference.
    fn lines(&self, options: &str) -> Vec<String> {
        let output = self.place.own(&format!("ext4 diff a b {options}"));
        assert_eq!(status(&output), 1, "{}{}", stdout(&output), stderr(&output));
        stdout(&output).lines().map(str::to_owned).collect()
    }
}

/// Commands of debugfs, and the line that tells what they changed.
const CHANGES: &[(&str, &str)] = &[
    ("sif /etc/f mode 0100600", "/etc/f: mode: 0644 -> 0600"),
    ("sif /etc/f uid 70000", "/etc/f: owner: 0 -> 70000"),
    ("sif /etc/f gid 7", "/etc/f: owning group: 0 -> 7"),
    ("sif /etc/f links_count 2", "/etc/f: links: 1 -> 2"),
    ("sif /etc/f flags 0x80010", "/etc/f: flags: extents -> immutable extents"),
    ("sif /etc/f size 4999", "/etc/f: size: 5000 -> 4999"),
    (
        "sif /etc/f mtime 20200102030405",
        "/etc/f: modified: 2023-11-14 22:13:20.000000000 +0000 -> 2020-01-02 03:04:05.000000000 +0000",
    ),
    (
        "sif /etc/f mtime_extra 28",
        "/etc/f: modified: 2023-11-14 22:13:20.000000000 +0000 -> 2023-11-14 22:13:20.000000007 +0000",
    ),
    ("sif /etc/f atime 20200102030405", " -> 2020-01-02 03:04:05.000000000 +0000"),
    ("sif /etc/f generation 7", "/etc/f: stored: generation: 0 -> 7"),
    ("sif /etc/f version 7", "/etc/f: stored: version: "),
    ("ea_set /etc/f user.a hello", "/etc/f: attribute user.a: none -> \"hello\" (5 bytes)"),
    (
        "ea_set /etc/g user.long 01234567890123456788",
        "/etc/g: attribute user.long: from byte 19 on: \"9\" (1 byte) -> \"8\" (1 byte)",
    ),
    ("rm /etc/l\nsymlink /etc/l other", "/etc/l: target: f -> other"),
    ("mkdir /etc/new", "/etc/new: only in B (directory, empty)"),
    ("rm /etc/g", "/etc/g: only in A (file)"),
    ("cd /etc\nrmdir sub\nmknod sub p", "/etc/sub: type: directory -> fifo"),
    ("cd /etc\nmknod n c 1 3", "/etc/n: only in B (character device)"),
    ("ssv volume_name other", "superblock: label: base -> other"),
    (
        "ssv uuid 10112233-4455-6677-8899-aabbccddeeff",
        "superblock: uuid: 00112233-4455-6677-8899-aabbccddeeff -> 1",
    ),
    ("ssv mnt_count 7", "superblock: mounts: 0 -> 7"),
    ("ssv max_mnt_count 7", "superblock: most mounts: 65535 -> 7"),
    (
        "ssv mtime 20200102030405",
        "superblock: last mounted: 1970-01-01 00:00:00.000000000 +0000 -> 2020-01-02",
    ),
    ("ssv checkinterval 9", "superblock: check interval: 0 -> 9"),
    ("ssv hash_seed 10112233-4455-6677-8899-aabbccddeeff", "superblock: hash seed: 0"),
    ("ssv r_blocks_count 9", "superblock: reserved blocks: "),
    ("ssv raid_stride 9", "superblock: stride: 0 -> 9"),
    ("ssv last_mounted /mnt", "superblock: last mounted on: none -> /mnt"),
    ("ssv errors 2", "superblock: behaviour on errors: 1 -> 2"),
    ("feature dir_nlink -dir_nlink", "superblock: read-only compatible features: "),
    ("set_bg 1 free_blocks_count 5", "group 1: free clusters: "),
    ("sif <8> mtime 20200102030405", "<8>: modified: "),
];

#[test]
fn one_change_has_one_line() {
    let Some(images) = Images::new() else { return };
    for (commands, expected) in CHANGES {
        images.change(commands);
        let lines = images.lines("");
        assert!(lines.iter().any(|line| line.contains(expected)), "{commands}: {lines:#?}");
        // Nothing is told of other files.
        let is_named = |name: &str| lines.iter().any(|line| line.starts_with(name));
        assert!(!is_named("/many") && !is_named("/lost+found"), "{commands}: {lines:#?}");
    }
}

#[test]
fn bytes_that_no_file_has_are_told_by_areas() {
    let Some(images) = Images::new() else { return };
    let block = images.number("bmap /etc/f 4") * 1024;
    let journal = images.number("bmap <8> 5") * 1024;
    let directory = images.number("bmap /etc 0") * 1024;
    let table = images
        .place
        .sh("dumpe2fs a 2>/dev/null | sed -n 's/.*Inode table at \\([0-9]*\\)-.*/\\1/p' | head -1");
    let table: u64 = table.trim().parse().unwrap();
    let bitmap = images
        .place
        .sh("dumpe2fs a 2>/dev/null | sed -n 's/.*Inode bitmap at \\([0-9]*\\) .*/\\1/p' | head -1");
    let bitmap: u64 = bitmap.trim().parse().unwrap();
    for (at, area) in [
        (0, "boot sector"),
        (1024 + 0x380, "superblock"),
        (8193 * 1024 + 0x380, "copies of the superblock"),
        (2 * 1024 + 0x1e, "group descriptors"),
        (8194 * 1024 + 0x1e, "copies of group descriptors"),
        (2 * 1024 + 1000, "padding"),
        (3 * 1024, "room for group descriptors"),
        (block + 1000, "behind ends of files"),
        (block + 10, "file contents"),
        (journal + 1, "journal"),
        (directory + 1000, "directories"),
        (bitmap * 1024, "inode bitmaps"),
        (bitmap * 1024 + 1000, "padding"),
        (16 * 1024 * 1024 - 5, "unused blocks"),
        (table * 1024 + 250 * 256 + 40, "unused inodes"),
    ] {
        images.flip(at);
        let lines = images.lines("--ignore-checksums");
        let expected = format!("{area}: 1 byte in 1 block, the first at byte {at}");
        assert_eq!(lines.last(), Some(&expected), "{lines:#?}");
        let others = usize::from(["superblock", "file contents"].contains(&area));
        assert_eq!(lines.len(), 1 + others, "{lines:#?}");
    }
    images.flip(block + 10);
    assert_eq!(images.lines("")[0], "/etc/f: contents: 1 block from byte 4106 on");
    images.flip(block + 1000);
    // Nobody sees what lies behind the end of a file.
    images.place.is("ext4 diff --files a b", 0, "");
}

#[test]
fn equal_images_are_equal() {
    let Some(images) = Images::new() else { return };
    let place = &images.place;
    fs::copy(place.path("a"), place.path("b")).unwrap();
    assert!(place.is("ext4 diff a b", 0, "").stdout.is_empty());
    // What lies behind the file system does not count.
    place.sh("echo more >> b");
    assert!(place.is("ext4 diff a b", 0, "").stdout.is_empty());
    let told = place.yes("ext4 diff a b --json");
    assert!(told.contains("\"equal\":true") && told.lines().count() == 1, "{told}");
    // Through layers.
    place.file("key", (0..64).collect::<Vec<u8>>());
    place.yes("crypt encrypt a enc --key-file key --key-size 512");
    place.sh("truncate -s 1M disk && cat a >> disk");
    place.is("ext4 diff disk,offset=1M enc,crypt=aes-xts-plain64,key-file=key,key-size=512", 0, "");
    // What is none.
    place.is("ext4 diff a key", 2, "");
    place.is("ext4 diff a none", 2, "none");
}

#[test]
fn files_alone_are_compared() {
    let Some(images) = Images::new() else { return };
    let place = &images.place;
    // The same tree in other blocks and inodes.
    place.yes("ext4 build a1 --from tree --owner 0:0 --size 16M");
    place.yes(
        "ext4 build a2 --from tree --owner 0:0 --size 24M --block-size 1024 --hash-seed 00112233-4455-6677-8899-aabbccddeeff -L other",
    );
    let output = place.own("ext4 diff --files a1 a2");
    assert_eq!((status(&output), stdout(&output).as_str()), (0, ""), "{}", stderr(&output));
    assert_eq!(status(&place.own("ext4 diff a1 a2")), 1);
    images.change("sif /etc/f mode 0100600\nrm /etc/g");
    assert_eq!(
        images.lines("--files").into_iter().filter(|line| !line.contains("sub")).collect::<Vec<_>>(),
        ["/etc/f: mode: 0644 -> 0600", "/etc/g: only in A (file)"]
    );
    assert_eq!(images.lines("--files --limit 1"), ["/etc/f: mode: 0644 -> 0600"]);
    assert!(stderr(&place.own("ext4 diff a b --limit 1")).contains("more differences"));
    assert_eq!(stderr(&place.own("ext4 diff a b --limit 1 --quiet")), "");
}

/// Options of two builds of one tree, the line that tells of it, and the advice.
const BUILDS: &[(&str, &str, &str, &str)] = &[
    (
        "-U 00112233-4455-6677-8899-aabbccddeeff",
        "",
        "superblock: uuid: 00112233-4455-6677-8899-aabbccddeeff -> ",
        "--uuid 00112233-4455-6677-8899-aabbccddeeff",
    ),
    (
        "--hash-seed 00112233-4455-6677-8899-aabbccddeeff",
        "",
        "superblock: hash seed: 00112233-4455-6677-8899-aabbccddeeff -> ",
        "--hash-seed 00112233-4455-6677-8899-aabbccddeeff",
    ),
    ("-L one", "-L two", "superblock: label: one -> two", "--label 'one'"),
    ("--block-size 1024", "", "superblock: block size: 1024 -> 4096", "--block-size 1024"),
    ("--inode-size 512", "", "superblock: inode size: 512 -> 256", "--inode-size 512"),
    ("--inodes 1000", "", "superblock: inodes: ", "--inodes "),
    ("--size 32M", "", "superblock: blocks: 8192 -> ", "--size 33554432"),
    ("-O ^dir_nlink", "", "superblock: read-only compatible features: ", "--features ^dir_nlink"),
    ("--owner 5:6", "--owner 7:8", "/etc/f: owner: 5 -> 7", "--owner UID:GID"),
    ("--root-mode 700", "--root-mode 755", "/: mode: 0700 -> 0755", ""),
];

#[test]
fn advice_names_the_options_of_builds() {
    let Some(images) = Images::new() else { return };
    let place = &images.place;
    for (options_a, options_b, line, advice) in BUILDS {
        for (name, options) in [("a", options_a), ("b", options_b)] {
            place.sh("rm -f a b.new");
            place.yes(&format!("ext4 build {name}.new --from tree {options} --overwrite"));
            place.sh(&format!("mv {name}.new {name}.img"));
        }
        let output = place.own("ext4 diff a.img b.img");
        assert_eq!(status(&output), 1, "{options_a} {options_b}");
        assert!(stdout(&output).contains(line), "{options_a}: {line}: {}", stdout(&output));
        assert!(stderr(&output).contains(advice), "{options_a}: {}", stderr(&output));
    }
    // Equal but for one file's mode: what is made of the files is not to blame.
    place.yes("ext4 build a.img --from tree --overwrite");
    place.sh("chmod 600 tree/etc/f");
    place.yes("ext4 build b.img --from tree --overwrite");
    let output = place.own("ext4 diff a.img b.img");
    assert!(stdout(&output).contains("superblock: uuid: "), "{}", stdout(&output));
    assert!(stderr(&output).contains("build both of equal files"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("UUID") && !stderr(&output).contains("seed"), "{}", stderr(&output));
    // Nor is a build, where one image was changed later.
    place.sh("cp a.img c.img");
    place.yes("ext4 chmod c.img 640 /etc/f");
    let output = place.own("ext4 diff a.img c.img");
    assert!(stdout(&output).contains("/etc/f: changed: "), "{}", stdout(&output));
    assert_eq!(stderr(&output), "");
    // Builds at two times: of the superblock, and of files that are later.
    for (name, time) in [("a", "1600000000"), ("b", "1500000000")] {
        let mut command = place.command();
        command.args(["ext4", "build", &format!("{name}.time"), "--from", "tree"]);
        run(command.env("SOURCE_DATE_EPOCH", time));
    }
    let output = place.own("ext4 diff a.time b.time");
    assert!(stdout(&output).contains("/etc/f: modified: 2020-09-13 12:26:40"), "{}", stdout(&output));
    assert!(stderr(&output).contains("SOURCE_DATE_EPOCH"), "{}", stderr(&output));
}

/// One tree in two images: each thing that is stored in another way has its line.
#[test]
fn places_and_orders_are_told() {
    let Some(images) = Images::new() else { return };
    images.change("cd /etc\nwrite tree/etc/f first\nrm f\nwrite tree/etc/g gap\nwrite tree/etc/f f");
    let lines = images.lines("");
    let has = |text: &str| lines.iter().any(|line| line.starts_with(text));
    assert!(has("/etc/f: stored: inode: ") && has("/etc/f: stored: blocks: "), "{lines:#?}");
    // Directories that are indexed by another seed have another order.
    let place = &images.place;
    place.yes("ext4 build a --from tree --overwrite --block-size 1024");
    place.yes(&format!("ext4 build b --from tree --overwrite --block-size 1024 --hash-seed {UUID}"));
    let lines = images.lines("");
    assert!(lines.iter().any(|line| line.starts_with("/many: stored: order of names: ")), "{lines:#?}");
}

/// Images that are cut off at the same byte, before what differs.
#[test]
fn images_without_their_ends_are_not_equal() {
    let Some(images) = Images::new() else { return };
    let place = &images.place;
    place.sh("head -c 300000 /dev/zero | tr '\\0' a > tree/large; touch -d @1700000000 tree/large tree");
    place.yes(&format!("ext4 build a.whole --from tree -U {UUID}"));
    place.sh("printf b | dd of=tree/large bs=1 seek=299000 conv=notrunc status=none; touch -d @1700000000 tree/large tree");
    place.yes(&format!("ext4 build b.whole --from tree -U {UUID}"));
    let block = place.sh("debugfs -R 'bmap /large 70' a.whole 2>/dev/null");
    let block: u64 = block.trim().parse().unwrap();
    for name in ["a", "b"] {
        place.sh(&format!("head -c {} {name}.whole > {name}", block * 4096));
    }
    place.sh("cmp a b");
    for (options, first) in [
        (
            "",
            vec![
                "could not be read in A: the device ends at ",
                "could not be read in B: the device ends at ",
            ],
        ),
        ("--files", vec!["/etc/f: could not be read in A: "]),
    ] {
        let output = place.own(&format!("ext4 diff a b {options}"));
        let lines: Vec<_> = stdout(&output).lines().map(str::to_owned).collect();
        assert_eq!(status(&output), 2, "{options}: {lines:#?}");
        assert!(
            lines.iter().zip(first).all(|(line, first)| line.starts_with(first)),
            "{options}: {lines:#?}"
        );
        assert!(lines.iter().all(|line| line.contains("could not be read in ")), "{options}: {lines:#?}");
        let of_large = lines.iter().filter(|line| line.starts_with("/large: could not be read in A: "));
        assert_eq!(of_large.count(), 1, "{options}: {lines:#?}");
    }
}
