//! Commands that read, on images and files that stand for much more than there is of them, with a limit of memory: each
//! row says what it may take. Beside that, SECURITY.md says what memory grows with.

use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use casemate::Providers;
use casemate::luks::luks2::{self, BINARY_LEN, BinaryHeader};
use casemate_testkit::block_map::{self, SIZE};
use casemate_testkit::{Place, mke2fs, run, run_any, stderr, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// Where nothing else lies in an image of 1 GiB.
const FREE: u32 = 100_000;
const LEVELS: u32 = FREE + 50_000;

/// Runs a command with two threads that may have so many MiB of data. What it said on standard error.
fn limited(place: &Place, mebibytes: u64, line: &str) -> String {
    let _ = std::fs::remove_dir_all(place.path("out"));
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -d $0; exec timeout -k 1 1800 \"$@\" > /dev/null"]);
    command.arg((mebibytes << 10).to_string()).arg(CASEMATE).args(["--threads", "2"]);
    let output = run_any(command.args(line.split(' ')).current_dir(place.folder()));
    let said = stderr(&output);
    // An abort is what becomes of an allocation that fails.
    assert!(
        matches!(output.status.code(), Some(0..=2)),
        "{line}: {mebibytes} MiB: {}: {said}",
        output.status
    );
    assert!(!said.contains("Cannot allocate"), "{line}: {mebibytes} MiB: {said}");
    said
}

fn write(image: &Path, offset: u64, bytes: &[u8]) {
    File::options().write(true).open(image).unwrap().write_all_at(bytes, offset).unwrap();
}

/// An ext2 or ext3 image of 1 GiB, all of it holes.
fn image(place: &Place, kind: &str) -> Option<(PathBuf, PathBuf)> {
    let (make, debugfs) = (tool("mke2fs")?, tool("debugfs")?);
    let image = place.path("image");
    mke2fs::make(&make, &format!("-t {kind} -b 4096 -N 1024 -O ^resize_inode,^dir_index"), &image, "1G");
    Some((image, debugfs))
}

fn be(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

/// A commit block of the journal's transaction 1.
fn commit() -> Vec<u8> {
    be([0xc03b_3998, 2, 1])
}

#[test]
fn directories() {
    let place = Place::new(CASEMATE);
    let Some((image, debugfs)) = image(&place, "ext2") else { return };
    // 512000 names of 8 bytes, in 8 MiB.
    const BLOCKS: u32 = 2000;
    for block in 0..BLOCKS {
        let names = (0..SIZE as u32 / 16).flat_map(|entry| {
            let name = format!("{:08x}", block * 256 + entry);
            [&[11, 0, 0, 0, 16, 0, 8, 1], name.as_bytes()].concat()
        });
        write(&image, u64::from(FREE + block) * SIZE, &names.collect::<Vec<_>>());
    }
    run(Command::new(&debugfs).args(["-w", "-R", "mkdir d"]).arg(&image));
    block_map::give(&debugfs, &image, &["d".to_owned()], BLOCKS, |number| FREE + number, LEVELS);
    for line in ["ext4 ls image /d", "ext4 tree image /d", "ext4 find image /d --name x", "ext4 du image /d"]
    {
        limited(&place, 24, line);
    }
    // Each name is one of a directory that has been there before.
    assert!(limited(&place, 48, "ext4 extract --tar=- image").contains("under two names"));
}

/// Directories and files with two names at the end of a path of 3500 bytes.
#[test]
fn long_paths() {
    let Some(make) = tool("mke2fs") else { return };
    let place = Place::new(CASEMATE);
    let tree = place.path("tree");
    let deep = (0..14).fold(tree.clone(), |path, _| path.join("x".repeat(250)));
    for number in 0..3000 {
        let folder = deep.join(number.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a"), b"").unwrap();
        std::fs::hard_link(folder.join("a"), folder.join("b")).unwrap();
    }
    let options = format!("-t ext4 -b 1024 -N 8192 -d {}", tree.display());
    mke2fs::make(&make, &options, &place.path("image"), "32M");
    for line in [
        "ext4 ls -R image",
        "ext4 tree image",
        "ext4 find image",
        "ext4 du image",
        "ext4 digest image",
        "ext4 extract --tar=- image",
        "ext4 extract image out",
        "ext4 extract image out --include=a --exclude=1*",
    ] {
        limited(&place, 16, line);
    }
    // Two of them at once.
    std::fs::copy(place.path("image"), place.path("other")).unwrap();
    place.yes("ext4 chmod other 700 /lost+found");
    limited(&place, 32, "ext4 diff image other");
}

/// Files whose contents are one.
#[test]
fn contents() {
    let place = Place::new(CASEMATE);
    let Some((image, debugfs)) = image(&place, "ext2") else { return };
    let names: Vec<String> = (0..200).map(|number| format!("f{number}")).collect();
    std::fs::write(place.path("page"), vec![1; 4096]).unwrap();
    let page = place.path("page");
    let script: String = names.iter().map(|name| format!("write {} {name}\n", page.display())).collect();
    let commands = place.file("commands", script);
    run(Command::new(&debugfs).arg("-w").arg("-f").arg(commands).arg(&image));
    (0..255).for_each(|block| write(&image, u64::from(FREE + block) * SIZE, &[7; 4096]));
    block_map::give(&debugfs, &image, &names, 256, |number| FREE + (number - 1) % 255, LEVELS);
    for line in ["ext4 extract --tar=- image", "ext4 extract image out"] {
        limited(&place, 48, line);
    }
}

/// Inodes of 32 KiB each, of which the table is read in pieces.
#[test]
fn large_inodes() {
    let Some(make) = tool("mke2fs") else { return };
    let place = Place::new(CASEMATE);
    let options = "-t ext4 -b 65536 -I 32768 -N 2048 -O metadata_csum,^has_journal";
    mke2fs::make(&make, options, &place.path("image"), "1G");
    let Some(debugfs) = tool("debugfs") else { return };
    let commands = place.file("commands", "set_bg 0 itable_unused 0\nset_bg 0 checksum calc\n");
    run(Command::new(debugfs).arg("-w").arg("-f").arg(commands).arg(place.path("image")));
    for line in ["ext4 check image", "ext4 tree image", "ext4 info image"] {
        limited(&place, 24, line);
    }
}

/// Sixteen million groups, which a superblock needs no room to claim.
#[test]
fn groups() {
    let Some(make) = tool("mke2fs") else { return };
    let place = Place::new(CASEMATE);
    let image = place.path("image");
    let options = "-t ext4 -b 1024 -g 256 -N 512 -O meta_bg,^resize_inode,^has_journal,^metadata_csum";
    mke2fs::make(&make, options, &image, "16M");
    let mut superblock = vec![0; 1024];
    File::open(&image).unwrap().read_exact_at(&mut superblock, 1024).unwrap();
    let per_group = u32::from_le_bytes(superblock[0x28..0x2c].try_into().unwrap());
    let groups = (1 << 24) - 1;
    // s_inodes_count, s_blocks_count_lo and _hi, and whether there are 64 bits.
    write(&image, 1024, &(groups * per_group).to_le_bytes());
    let blocks = u64::from(groups) * 256 + 1;
    write(&image, 1024 + 4, &(blocks as u32).to_le_bytes());
    write(&image, 1024 + 0x150, &((blocks >> 32) as u32).to_le_bytes());
    File::options().write(true).open(&image).unwrap().set_len(blocks * 1024).unwrap();
    for line in ["ext4 ls image", "ext4 info image", "ext4 extract --tar=- image"] {
        limited(&place, 12, line);
    }
}

/// Sixteen thousand groups whose descriptors, all holes, name one inode table: the superblock's block is in it.
#[test]
fn groups_that_share_a_table() {
    let Some(make) = tool("mke2fs") else { return };
    let place = Place::new(CASEMATE);
    let image = place.path("image");
    mke2fs::make(&make, "-t ext4 -b 4096 -N 16384 -O ^has_journal,^metadata_csum,64bit", &image, "64M");
    let groups = 1 << 14;
    write(&image, 1024, &(groups * 16384u32).to_le_bytes());
    write(&image, 1024 + 4, &(groups << 15).to_le_bytes());
    File::options().write(true).open(&image).unwrap().set_len(u64::from(groups) << 27).unwrap();
    limited(&place, 96, "ext4 check image");
}

/// Damage everywhere: each of 330 copies of the descriptors of 330 groups.
#[test]
fn findings() {
    let Some(make) = tool("mke2fs") else { return };
    let place = Place::new(CASEMATE);
    let image = place.path("image");
    let options = "-t ext4 -b 1024 -g 256 -N 5280 -O metadata_csum,^sparse_super,^resize_inode,^has_journal";
    mke2fs::make(&make, options, &image, "84480K");
    for group in 1..330 {
        // Two blocks behind the group's start, which is block 1 for the first one.
        write(&image, (1 + group * 256 + 1) * 1024, &[0x55; 20 << 10]);
    }
    let said = run_any(
        Command::new(CASEMATE).args(["ext4", "check", "--json", "image"]).current_dir(place.folder()),
    );
    assert!(said.stdout.len() > 5_000_000, "{} bytes: {}", said.stdout.len(), stderr(&said));
    for line in ["ext4 check image", "ext4 check --json image", "ext4 check --fix-checksums image"] {
        limited(&place, 64, line);
    }
}

/// Attributes of one inode whose values are as large as they may be.
#[test]
fn attributes() {
    let Some(make) = tool("mke2fs") else { return };
    let place = Place::new(CASEMATE);
    mke2fs::make(&make, "-t ext4 -b 4096 -O ea_inode", &place.path("image"), "32M");
    place.own("ext4 touch image /file");
    let value = "x".repeat(65536);
    for number in 0..80 {
        let name = format!("user.{number}");
        run(place.command().args(["ext4", "setfattr", "-n", &name, "-v", &value, "image", "/file"]));
    }
    for line in ["ext4 stat image /file", "ext4 extract --tar=- image", "ext4 extract image out"] {
        assert!(limited(&place, 16, line).contains("attributes of more than 4 MiB"), "{line}");
    }
}

/// Files that are read whole, and can be any size.
#[test]
fn keys_and_lists() {
    let place = Place::new(CASEMATE);
    place.file("data", vec![0; 8192]);
    File::create(place.path("huge")).unwrap().set_len(1 << 40).unwrap();
    for line in [
        "crypt encrypt --key-file huge --key-size 512 data out",
        "crypt encrypt --table-file huge data out",
        "crypt encrypt --passphrase-file huge data out",
        "verity verify data data --root-hash-file huge",
        "verity verify-signature @huge data --cert data",
        "verity dump huge",
        "verity sign @data out --signing-key huge --cert data",
        "fscrypt key-id huge",
        "fscrypt extract huge out",
        "fsverity check huge",
        "info huge",
        "ext4 ls huge",
        "ext4 check huge",
        "serve -r --overlay huge --exec true data",
    ] {
        limited(&place, 24, line);
    }
}

#[test]
fn journals() {
    let place = Place::new(CASEMATE);
    let Some((image, debugfs)) = image(&place, "ext3") else { return };
    // Two million blocks that are revoked, of none of which there is a copy.
    const REVOKING: u32 = 2000;
    for block in 0..REVOKING {
        let head = [0xc03b_3998, 5, 1, SIZE as u32];
        let bytes = be(head.into_iter().chain((0..1020).map(|entry| (block * 1020 + entry) % 260_000)));
        write(&image, u64::from(FREE + block) * SIZE, &bytes);
    }
    write(&image, u64::from(FREE + REVOKING - 1) * SIZE, &commit());
    block_map::journal(&debugfs, &image, REVOKING + 1, |number| FREE + number - 1, LEVELS);
    for line in [
        "ext4 ls image",
        "ext4 info image",
        "ext4 check image",
        "info image",
        "ext4 extract --tar=- image",
        "ext4 recover -n image",
        "ext4 mkdir -n image /d",
        "serve -r --exec true image",
    ] {
        limited(&place, 12, line);
    }
}

/// Half a GiB that goes through each command.
#[test]
fn whole_devices() {
    let place = Place::new(CASEMATE);
    File::create(place.path("data")).unwrap().set_len(512 << 20).unwrap();
    place.file("key", (0..64).collect::<Vec<u8>>());
    for line in [
        "verity format data hash --root-hash-file root",
        "verity verify data hash --root-hash-file root",
        "crypt encrypt data out --key-file key --key-size 512",
        "luks format --from data vault --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000",
        "luks extract vault out --key-file key",
        "integrity format --size 512M tagged",
        "integrity verify tagged",
        "integrity extract tagged out",
        "fsverity digest data",
    ] {
        let said = limited(&place, 24, line);
        assert!(!said.contains("casemate: "), "{line}: {said}");
    }
}

/// A file of 64 MiB with fs-verity, and small ones.
#[test]
fn files_with_trees() {
    let place = Place::new(CASEMATE);
    std::fs::create_dir(place.path("tree")).unwrap();
    File::create(place.path("tree/large")).unwrap().set_len(64 << 20).unwrap();
    for number in 0..300 {
        std::fs::write(place.path(format!("tree/{number}")), b"1").unwrap();
    }
    run(place.command().args("ext4 build --verity --from tree image".split(' ')));
    let said = limited(&place, 16, "ext4 check --verity image");
    assert!(!said.contains("casemate: "), "{said}");
}

/// A client reads all of a server's image in the largest pieces there are.
#[test]
fn served() {
    let Some(_) = tool("qemu-img") else { return };
    let place = Place::new(CASEMATE);
    File::create(place.path("data")).unwrap().set_len(256 << 20).unwrap();
    place.file("key", (0..64).collect::<Vec<u8>>());
    let key = "--key-file key --key-size 512";
    run(place.command().args(format!("crypt encrypt data encrypted {key}").split(' ')));
    let client = "#!/bin/sh\nulimit -S -d unlimited; qemu-img convert -f raw -W -m 16 $uri -O raw copy";
    place.file("client", client);
    let line = format!("serve -r encrypted --crypt aes-xts-plain64 {key} --exec ./client");
    std::fs::set_permissions(place.path("client"), PermissionsExt::from_mode(0o755)).unwrap();
    let said = limited(&place, 64, &line);
    assert!(!said.contains("casemate: "), "{said}");
    assert!(place.read("copy") == place.read("data"));
}

/// Headers of LUKS2 with four million bytes of JSON that says nothing.
#[test]
fn luks_headers() {
    const SIZE: u64 = 4 << 20;
    let room = (SIZE - BINARY_LEN as u64) as usize - 1;
    let binary = BinaryHeader {
        hdr_size: SIZE,
        seqid: 3,
        label: String::new(),
        checksum_alg: "sha256".to_owned(),
        salt: [1; 64],
        uuid: "fc88ce7a-e42f-4827-d46f-604faf9dccfb".to_owned(),
        subsystem: String::new(),
        hdr_offset: 0,
    };
    let place = Place::new(CASEMATE);
    place.file("key", "key");
    let members: Vec<_> = (0..room / 12).map(|number| format!("\"{number:x}\":{{}}")).collect();
    let few: Vec<_> = (0..60_000).map(|number| format!("\"{number:x}\":\"{}\"", "x".repeat(50))).collect();
    for json in [
        "{\"a\":".repeat(room / 5),
        format!("{{\"a\":[{}1]}}", "1,".repeat(room / 2 - 8)),
        format!("{{\"a\":[{}[]]}}", "[],".repeat(room / 3 - 8)),
        format!("{{{}}}", members.join(",")),
        format!("{{{}}}", few.join(",")),
        format!("{{\"a\":\"{}\"}}", "x".repeat(room - 8)),
    ] {
        let mut bytes =
            binary.to_bytes(luks2::Place::Primary, json.as_bytes(), &Providers::default()).unwrap();
        bytes.resize(20 << 20, 0);
        place.file("volume", bytes);
        for line in [
            "luks dump volume",
            "luks dump --json volume",
            "luks test-passphrase volume --key-file key",
            "info volume",
        ] {
            limited(&place, 48, line);
        }
    }
}
