//! The ext4 commands, run as a user runs them, on images that a kernel made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use casemate_testkit::{Place, fixture, run, run_any, stderr, stdout, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// Where `verity-4k-qemu` has byte 7 of the file `size528384`.
const VERITY_DATA: usize = 4_145_159;

/// Where `4k-default` has the time of change of inode 27.
const INODE_TIME: usize = 150_032;

/// Where `1k-dirty-journal` has the checksum in the commit block of transaction 22, one of many.
const COMMIT_CHECKSUM: usize = 302_096;

/// A folder for `casemate ext4`.
fn place() -> Place {
    Place::under(CASEMATE, "ext4")
}

/// Unpacks an image, with a byte changed if `damage` says where.
fn image(place: &Place, name: &str, damage: Option<usize>) -> PathBuf {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext4/tests/fixtures").join(name);
    let mut bytes = fixture(packed);
    if let Some(at) = damage {
        bytes[at] ^= 1;
    }
    place.file("image", bytes)
}

fn json(line: &str) -> serde_json::Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn listing_and_describing() {
    let place = place();
    image(&place, "4k-default.img.xz", None);
    let names = "chr\ndir\nfifo\nfragmented\nhardlink\nlost+found\nmany\nprealloc\nsparse\nsym-short\nsym59\n\
                 sym60\nsym600\nxattr-block\nxattr-inode\nxattr-shared\n";
    assert_eq!(place.yes("ls image"), names);
    assert_eq!(place.yes("ls -l image /chr"), "crw------- 1 0 0 5, 1 2026-11-20 23:46 /chr\n");
    // The sizes that ls -lh gives, and the same lines otherwise.
    let (exact, human) = (place.yes("ls -ld image /sparse /dir"), place.yes("ls -dlh image /sparse /dir"));
    let column = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().nth(4).unwrap().to_owned()).collect()
    };
    let sizes = column(&exact).join(" ");
    let iec =
        casemate_testkit::run(Command::new("numfmt").args(["--to=iec", "--round=up"]).args(sizes.split(' ')));
    assert_eq!(column(&human).join("\n") + "\n", iec);
    // -h alone shows the help; beside an image it is --human-readable.
    assert!(place.yes("ls -h").contains("--human-readable"));
    assert_eq!(place.own("cat image -h").status.code(), Some(2));
    assert!(place.yes("ls --help").contains("--human-readable"));
    let lines = place.yes("ls --json image /");
    let found: Vec<_> = lines.lines().map(|line| json(line)["path"].as_str().unwrap().to_owned()).collect();
    assert_eq!(found.len(), 16);
    assert_eq!(found[1], "/dir");
    let tree = place.yes("tree image /dir -L 1");
    assert!(tree.starts_with("/dir\n\u{251c}\u{2500}\u{2500} size0\n"), "{tree}");
    assert!(tree.ends_with(" files\n"), "{tree}");
    // The manifest has everything but lost+found.
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext4/tests/fixtures/4k-default.json.xz");
    let manifest: serde_json::Value = serde_json::from_slice(&fixture(manifest)).unwrap();
    let count = manifest["entries"].as_array().unwrap().len() + 1;
    assert_eq!(place.yes("tree --json image").lines().count(), count);
    let stat = json(&place.yes("stat --json image /xattr-inode"));
    assert_eq!((&stat["inode"], &stat["xattrs"][0]["value_hex"]), (&41.into(), &"76".into()));
    assert!(place.yes("stat image /sym-short").starts_with("  File: /sym-short -> short\n"));
    let info = json(&place.yes("info --json image"));
    assert_eq!((&info["block_size"], &info["inodes"]), (&4096.into(), &256.into()));
    assert!(place.yes("info image").contains("e608f14b-9b25-0e5f-a764-ef80ad1ac1d3"));
}

#[test]
fn what_is_not_there() {
    let place = place();
    image(&place, "4k-default.img.xz", None);
    let output = place.own("cat image /dir/none");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output), "casemate: image: /dir/none: no such file\n");
    assert_eq!(place.own("cat image /dir").status.code(), Some(2));
    assert_eq!(place.own("ls image --partition=1").status.code(), Some(2));
    fs::write(place.folder().join("image"), [0; 5000]).unwrap();
    let output = place.own("info image");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no magic number 0xef53"), "{}", stderr(&output));
}

#[test]
fn a_partition_and_an_offset() {
    let place = place();
    let bytes = fs::read(image(&place, "4k-default.img.xz", None)).unwrap();
    let mut disk = vec![0; (1 << 20) + bytes.len()];
    disk[1 << 20..].copy_from_slice(&bytes);
    // The second entry of a boot record: Linux, from sector 2048 on.
    disk[446 + 16 + 4] = 0x83;
    disk[446 + 16 + 8..][..4].copy_from_slice(&2048u32.to_le_bytes());
    disk[446 + 16 + 12..][..4].copy_from_slice(&(bytes.len() as u32 / 512).to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(place.folder().join("disk"), disk).unwrap();
    let expected = place.yes("ls -li image");
    assert_eq!(place.yes("ls -li disk --partition=2"), expected);
    assert_eq!(place.yes("ls -li disk --offset=1048576"), expected);
    let output = place.own("ls disk --partition=1");
    assert!(stderr(&output).contains("no partition 1; there are: 2"), "{}", stderr(&output));
}

#[test]
fn checking_and_rewriting() {
    let place = place();
    let image = image(&place, "4k-default.img.xz", Some(INODE_TIME));
    let damaged = fs::read(&image).unwrap();
    let output = place.own("check image");
    assert_eq!(output.status.code(), Some(1));
    let fault = "checksum (1 fault): The checksum of a structure does not fit its contents.\n\
                 \u{20} inode 27: wrong checksum: expected 0xe7752319, found 0x18ad71df\n";
    assert!(stdout(&output).starts_with(fault), "{}", stdout(&output));
    let output = place.own("check --json image");
    let report = json(&stdout(&output));
    assert_eq!((&report["faults"][0]["inode"], &report["clean"]), (&27.into(), &false.into()));
    let output = place.own("check --fix-checksums --dry-run image");
    assert!(stdout(&output).contains("inode 27: 0x18ad71df becomes 0xe7752319"), "{}", stdout(&output));
    assert!(fs::read(&image).unwrap() == damaged, "a dry run writes nothing");
    // The damaged inode can't be read, unless somebody insists.
    assert_eq!(place.own("stat image /dir/size4096").status.code(), Some(2));
    place.yes("stat --ignore-checksums image /dir/size4096");
    assert!(place.yes("check --fix-checksums image").contains("1 checksum rewritten\n"));
    assert!(place.yes("check image").ends_with(" checksums checked, 0 faults\n"));
    place.yes("stat image /dir/size4096");
    if let Some(e2fsck) = tool("e2fsck") {
        run(Command::new(e2fsck).arg("-fn").arg(&image));
    }
}

#[test]
fn notes_are_no_faults_but_to_strict_ones() {
    let (Some(mke2fs), Some(e2fsck)) = (tool("mke2fs"), tool("e2fsck")) else { return };
    let place = place();
    let image = place.path("image");
    casemate_testkit::mke2fs::make(&mke2fs, "-t ext4 -b 1024 -O metadata_csum", &image, "20M");
    assert!(place.yes("check --strict image").ends_with(" checksums checked, 0 faults\n"));
    // The copy of the first descriptor.
    place.flip("image", 8194 * 1024 + 12, 1);
    run(Command::new(e2fsck).arg("-fn").arg(&image));
    let text = place.yes("check image");
    assert!(
        text.starts_with("backup-checksum (1 note): ") && text.ends_with(", 0 faults, 1 note\n"),
        "{text}"
    );
    assert_eq!(place.own("check --strict image").status.code(), Some(1));
    let report = json(&place.yes("check --json image"));
    assert_eq!((&report["clean"], &report["notes"][0]["name"]), (&true.into(), &"backup-checksum".into()));
}

#[test]
fn many_findings_of_a_kind_are_shown_by_their_first() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let place = place();
    let image = place.path("image");
    casemate_testkit::mke2fs::make(&mke2fs, "-t ext4 -b 1024 -O metadata_csum,^flex_bg -g 256", &image, "4M");
    // Counts of free inodes in descriptors of 64 bytes.
    (0..9).for_each(|group| place.flip("image", 2048 + 64 * group + 14, 1));
    let text = stdout(&place.own("check image"));
    let start = text.lines().take(7).collect::<Vec<_>>();
    assert!(start[0].starts_with("checksum (9 faults): "), "{text}");
    assert!(start[5].starts_with("  group descriptor 4: wrong checksum"), "{text}");
    assert_eq!(start[6], "  and 4 more; --verbose shows all", "{text}");
    assert!(stdout(&place.own("check -v image")).contains("  group descriptor 8: wrong checksum"));
    let report = json(&stdout(&place.own("check --json image")));
    assert!(report["faults"].as_array().unwrap().len() >= 9, "{report}");
}

#[test]
fn a_damaged_transaction_is_said_and_never_dropped() {
    let place = place();
    let image = image(&place, "1k-dirty-journal.img.xz", Some(COMMIT_CHECKSUM));
    let damaged = fs::read(&image).unwrap();
    let cut = "transaction 22 of the journal was committed and is damaged (journal block 165: wrong checksum";
    for line in
        ["info image", "ls image", "tree image", "stat image /", "extract image out", "info --json image"]
    {
        place.is(line, 0, cut);
    }
    assert!(stdout(&place.own("info image")).contains(cut));
    let info = json(&stdout(&place.own("info --json image")));
    assert!(info["journal_cut"].as_str().unwrap().starts_with(cut), "{info}");
    assert_eq!(info["replayed_transactions"], 20);
    assert_eq!(place.own("check image").status.code(), Some(1));
    for line in ["recover image", "mkdir image /new"] {
        let output = place.own(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", stderr(&output));
        let text = stderr(&output);
        assert!(
            text.contains("transaction 22 was committed") && text.contains("e2fsck -f"),
            "{line}: {text}"
        );
        assert!(fs::read(&image).unwrap() == damaged, "{line} changed the image");
    }
    let Some(e2fsck) = tool("e2fsck") else { return };
    let output = run_any(Command::new(e2fsck).arg("-fy").arg(&image));
    assert!(stdout(&output).contains("transaction 22 was corrupt"), "{}", stdout(&output));
    assert_eq!(stderr(&place.own("ls image")), "");
    place.yes("mkdir image /new");
}

#[test]
fn verity_files_are_checked_while_they_are_read() {
    let place = place();
    image(&place, "verity/verity-4k-qemu.img.xz", None);
    let whole = place.own("cat image /size528384 --verity=require");
    assert_eq!((whole.status.code(), whole.stdout.len()), (Some(0), 528_384), "{}", stderr(&whole));
    let stat = json(&place.yes("stat --json image /size0"));
    let empty = "sha256:3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95";
    assert_eq!(stat["verity"]["digest"], empty);
    image(&place, "verity/verity-4k-qemu.img.xz", Some(VERITY_DATA));
    let output = place.own("cat image /size528384");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(stderr(&output).contains("data block 0 does not match its hash tree"), "{}", stderr(&output));
    assert_eq!(place.own("cat image /size528384 --verity=ignore").stdout.len(), 528_384);
    let output = place.own("extract image out");
    assert_eq!(output.status.code(), Some(2));
    let out = place.folder().join("out");
    assert!(!out.join("size528384").exists() && out.join("size1").exists());
    image(&place, "4k-default.img.xz", None);
    let output = place.own("cat image /dir/size1 --verity=require");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
}

#[test]
fn a_file_without_its_owner_lends_nobodys_rights() {
    let place = place();
    place.sh("mkdir -p tree/dir; echo a > tree/user; echo b > tree/group; chmod 4755 tree/user; chmod 2755 tree/group tree/dir");
    place.yes("build image --from tree");
    place.yes("chown image 4242:4242 /user /group /dir");
    place.yes("chmod image 4755 /user");
    place.yes("chmod image 2755 /group /dir");
    place.yes("extract image out --no-owners");
    assert_eq!(place.sh("cd out; stat -c '%a %n' user group dir"), "755 user\n755 group\n2755 dir\n");
    if casemate::blockdev::os::is_root() {
        place.yes("extract image all");
        assert_eq!(place.sh("cd all; stat -c '%a %u %n' user group"), "4755 4242 user\n2755 4242 group\n");
    }
}

/// Pipes, devices, sockets and symbolic links keep their attributes: the group of a pipe has no more rights than its ACL gives.
#[test]
fn files_that_are_not_opened_keep_their_attributes() {
    let place = place();
    let [Some(_), Some(_)] = [tool("setfacl"), tool("setfattr")] else { return };
    if !casemate::blockdev::os::is_root() {
        return casemate_testkit::skip("devices, and attributes of the name space trusted: only root");
    }
    let made = "mkdir -p tree/dir; mkfifo -m 600 tree/dir/pipe; mknod -m 600 tree/dir/device c 1 3; ln -s nowhere tree/dir/link
                python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"tree/dir/socket\")'; chmod 600 tree/dir/socket
                for name in pipe device socket; do setfacl -m u:1000:rw,g::---,m::rw tree/dir/$name; done
                for name in pipe device socket link; do setfattr -h -n trusted.of -v $name tree/dir/$name; done; echo yes";
    if place.sh(&format!("({made}) 2>/dev/null || true")) != "yes\n" {
        return casemate_testkit::skip("the host's file system has no such attributes");
    }
    let all = |folder: &str| {
        place.sh(&format!("cd {folder}/dir; getfattr -h -d -m - pipe device socket link; stat -c '%n %a' *"))
    };
    let wanted = all("tree");
    assert_eq!(wanted.matches("posix_acl_access").count(), 3, "{wanted}");
    place.yes("build image --from tree");
    place.yes("extract image out");
    assert_eq!(all("out"), wanted);
    place.yes("extract image plain --no-xattrs");
    assert!(!all("plain").contains("trusted"));
    let backup = Place::under(CASEMATE, "fscrypt");
    place.sh("cp image less");
    place.yes("rm less /dir/socket");
    backup.yes(&format!("backup {} / backup.tar", place.path("less").display()));
    backup.yes(&format!("extract backup.tar {}", place.path("back").display()));
    // Tar streams have no sockets.
    place.sh("cp -a out/dir/socket back/dir; touch -r out/dir back/dir");
    assert_eq!(all("back"), wanted);
    // What a link cannot have is told.
    if tool("debugfs").is_some() {
        place.sh("debugfs -w -R 'ea_set dir/link user.of x' image 2>/dev/null");
        let said = stderr(&place.is("extract image odd", 2, "dir/link: user.of not restored"));
        assert_eq!(said.lines().filter(|line| line.contains("not restored")).count(), 1, "{said}");
        assert_eq!(all("odd"), wanted);
    }
}

/// The kernel has no such user: it takes the number for none.
#[test]
fn owners_that_nobody_is_are_not_restored() {
    let place = place();
    if tool("debugfs").is_none() || !casemate::blockdev::os::is_root() {
        return casemate_testkit::skip("debugfs, as root");
    }
    place.sh("mkdir -p tree/dir; for name in a b c dir/in; do echo $name >tree/$name; done; chmod 4755 tree/a; chmod 2755 tree/b
              mkfifo tree/pipe; ln -s x tree/link");
    place.yes("build image --from tree --owner 5:6");
    place.sh(
        "for name in a dir pipe link; do debugfs -w -R \"sif $name uid 0xffffffff\" image 2>/dev/null; done
              debugfs -w -R 'sif b gid 0xffffffff' image 2>/dev/null",
    );
    let backup = Place::under(CASEMATE, "fscrypt");
    backup.yes(&format!("backup {} / backup.tar", place.path("image").display()));
    for (folder, output) in [
        ("out", place.own("extract image out")),
        ("back", backup.own(&format!("extract backup.tar {}", place.path("back").display()))),
    ] {
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        for name in ["a", "b", "dir", "pipe", "link"] {
            let line = format!("{name}: owner not restored: 4294967295 is not the number of a");
            assert!(said.contains(&line), "{name}: {said}");
        }
        assert_eq!(
            place.sh(&format!("cd {folder}; stat -c '%n %a %u %g' a b c dir dir/in pipe link")),
            "a 755 0 6\nb 755 5 0\nc 644 5 6\ndir 755 0 6\ndir/in 644 5 6\npipe 644 0 6\nlink 777 0 6\n"
        );
        assert_eq!(fs::read(place.path(folder).join("c")).unwrap(), b"c\n");
    }
}

#[test]
fn extracting() {
    let place = place();
    image(&place, "4k-default.img.xz", None);
    let report = json(&place.yes("extract image out --path=/dir --no-owners --json"));
    assert!(
        report["files"].as_u64().unwrap() > 15 && report["failures"] == serde_json::json!([]),
        "{report}"
    );
    let file = place.own("cat image /dir/size4097");
    assert_eq!(fs::read(place.folder().join("out/size4097")).unwrap(), file.stdout);
    place.yes("extract image --path=/dir --tar=dir.tar");
    let stream = place.own("extract image --path=/dir --tar=-");
    assert!(stream.stdout == fs::read(place.folder().join("dir.tar")).unwrap());
    let Some(tar) = tool("tar") else { return };
    let list = run(Command::new(tar).arg("-tf").arg(place.folder().join("dir.tar")));
    assert!(list.starts_with("./\nsize0\nsize1\n"), "{list}");
}
