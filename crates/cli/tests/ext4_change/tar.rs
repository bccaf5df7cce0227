//! Tar streams put into images, beside what GNU tar makes of them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use casemate_testkit::{listing, run, run_any, tool};

use crate::{CASEMATE, Place};

/// A folder with about a thousand files of all kinds.
fn random_tree(top: &Path) {
    let is_root = rustix::process::geteuid().is_root();
    let mut seed = 1u64;
    let mut below = |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % limit
    };
    let mut folders = vec![top.to_owned()];
    let mut files = Vec::new();
    fs::create_dir(top).unwrap();
    for number in 0..1000 {
        let folder = folders[below(folders.len() as u64) as usize].clone();
        let path = match number {
            7 => folder.join("n".repeat(200)),
            8 => folder.join(OsStr::from_bytes(b"\xff\xfe")),
            _ => folder.join(format!("{number:x}")),
        };
        match below(20) {
            _ if number == 8 || number == 7 => fs::write(&path, "named strangely").unwrap(),
            0..=2 => {
                fs::create_dir(&path).unwrap();
                folders.push(path);
                continue;
            }
            3 => symlink("t".repeat(1 + below(180) as usize), &path).unwrap(),
            4 if !files.is_empty() => {
                fs::hard_link(&files[below(files.len() as u64) as usize], &path).unwrap();
            }
            5 => run_quietly("mkfifo", &[path.as_os_str()]),
            6 if is_root => {
                run_quietly("mknod", &[path.as_os_str(), "c".as_ref(), "259".as_ref(), "70000".as_ref()]);
            }
            7 if number % 3 == 0 => {
                let sparse = fs::File::create(&path).unwrap();
                // More ranges than one record of any format has.
                for part in 0..30u64 {
                    let bytes = vec![1 + part as u8; 1 + below(3000) as usize];
                    sparse.write_all_at(&bytes, part * 9000).unwrap();
                }
                sparse.set_len(300_000 + below(30_000)).unwrap();
                files.push(path.clone());
            }
            _ => {
                fs::write(&path, vec![number as u8; below(3000) as usize]).unwrap();
                files.push(path.clone());
            }
        }
        if is_root {
            lchown(&path, Some(below(70_000) as u32), Some(below(5_000_000) as u32)).unwrap();
        }
    }
    // More than a transaction of a small journal has.
    fs::write(top.join("large"), vec![9; 3_000_001]).unwrap();
    for path in files.iter().chain(&folders) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o500 | below(0o7777) as u32)).unwrap();
    }
    for path in files.iter().take(40) {
        let value = format!("{}=%", path.display());
        let attribute = ["-n", "user.a=b%3D%", "-v", &value].map(OsStr::new);
        run_quietly("setfattr", &[&attribute[..], &[path.as_os_str()]].concat());
    }
    for path in files.iter().chain(folders.iter().rev()) {
        let time = UNIX_EPOCH + Duration::new(below(1 << 32), below(1_000_000_000) as u32);
        fs::File::open(path).unwrap().set_modified(time).unwrap();
    }
}

fn run_quietly(program: &str, arguments: &[&OsStr]) {
    run(Command::new(program).args(arguments));
}

fn assert_same(one: &Path, other: &Path, what: &str) {
    let (one_tree, other_tree) = (listing(one, false), listing(other, false));
    for (path, text) in &one_tree {
        assert_eq!(Some(text), other_tree.get(path), "{what}: {}", path.display());
    }
    assert_eq!(one_tree.len(), other_tree.len(), "{what}");
    let attributes = |top: &Path| {
        let output = run_any(Command::new("getfattr").args(["-dhR", "-m", "^user", "."]).current_dir(top));
        let mut blocks: Vec<_> =
            String::from_utf8_lossy(&output.stdout).split("\n\n").map(str::to_owned).collect();
        blocks.sort();
        blocks
    };
    assert_eq!(attributes(one), attributes(other), "{what}");
}

#[test]
fn tar_streams_are_put_as_tar_unpacks_them() {
    let Some(place) = Place::new("-b 1024 -N 3000") else { return };
    let (Some(tar), Some(_), Some(_)) = (tool("tar"), tool("setfattr"), tool("getfattr")) else { return };
    random_tree(&place.path("tree"));
    let tar = |line: &str| {
        run_any(Command::new(&tar).args(line.split_whitespace()).current_dir(place.folder.path()))
    };
    for format in [
        "pax --xattrs",
        "pax --xattrs --sparse --sparse-version=1.0",
        "pax --sparse --sparse-version=0.1",
        "pax --sparse --sparse-version=0.0",
        "gnu --sparse",
        // Leaves out what has no place in it, and says so.
        "ustar",
        "v7",
    ] {
        tar(&format!("-cf tree.tar --format={format} -C tree ."));
        fs::create_dir(place.path("unpacked")).unwrap();
        assert!(tar("--xattrs -xpf tree.tar -C unpacked").status.success(), "{format}");
        place.yes("put --tar tree.tar image /new");
        place.assert_clean();
        place.yes("extract image copy --path=/new");
        assert_same(&place.path("unpacked"), &place.path("copy"), format);
        place.yes("rm -r image /new");
        fs::remove_dir_all(place.path("unpacked")).unwrap();
        fs::remove_dir_all(place.path("copy")).unwrap();
    }
    // What extract writes comes back the same.
    place.yes("put -r image tree /");
    place.yes("extract image --path=/tree --tar=again.tar");
    place.yes("extract image copy --path=/tree");
    place.yes("rm -r image /tree");
    run(Command::new("sh")
        .current_dir(place.folder.path())
        .args(["-ec", &format!("cat again.tar | {CASEMATE} ext4 put --no-progress --tar=- image /new")]));
    place.assert_clean();
    place.yes("extract image again --path=/new");
    assert_same(&place.path("copy"), &place.path("again"), "round trip");
}

/// A member of a tar stream as it was before all extensions.
fn tar_member(path: &str, kind: u8, link: &str, size: u64, contents: &[u8]) -> Vec<u8> {
    let mut record = vec![0; 512];
    let mut text = |at: usize, value: &[u8]| record[at..at + value.len()].copy_from_slice(value);
    text(0, path.as_bytes());
    text(100, b"0000644\x000000000\x000000000\0");
    text(124, format!("{size:011o}\0{:011o}\0        ", 1_700_000_000).as_bytes());
    text(156, &[kind]);
    text(157, link.as_bytes());
    let sum: u64 = record.iter().map(|byte| u64::from(*byte)).sum();
    record[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    record.extend(contents);
    record.resize(record.len().next_multiple_of(512), 0);
    record
}

fn tar_file(path: &str, contents: &[u8]) -> Vec<u8> {
    tar_member(path, b'0', "", contents.len() as u64, contents)
}

#[test]
fn hostile_tar_streams_stay_in_their_directory() {
    let Some(place) = Place::new("") else { return };
    place.tree();
    place.yes("mkdir image /outside");
    place.yes("put image tree/a/file /outside/file");
    place.yes("mkdir image /top");
    place.yes("ln -s image /outside /top/out");
    place.yes("mkdir image /top/folder");
    let put = |members: &[Vec<u8>], end: usize| {
        let mut bytes = members.concat();
        bytes.resize(bytes.len() + end, 0);
        fs::write(place.path("hostile.tar"), bytes).unwrap();
        "put --tar hostile.tar image /top"
    };
    let link = |path: &str, kind: u8, target: &str| tar_member(path, kind, target, 0, b"");
    let cases: [(&[Vec<u8>], &str); 15] = [
        (&[tar_file("../evil", b"x")], "leads out of the tree"),
        (&[tar_file("a", b"x"), tar_file("a/../../evil", b"x")], "leads out of the tree"),
        (&[tar_file("out/evil", b"x")], "a link to one is not followed"),
        (&[link("x", b'2', "/outside"), tar_file("x/evil", b"x")], "is not a directory"),
        (&[link("x", b'2', "."), tar_member("x/", b'5', "", 0, b"")], "is not a directory"),
        (&[link("x", b'1', "../outside/file")], "leads out of the tree"),
        (&[link("x", b'1', "/outside/file")], "not there to be linked to"),
        (&[link("x", b'1', "out/file")], "not there to be linked to"),
        (&[link("x", b'1', "folder")], "directories have one name"),
        (&[tar_file("folder", b"x")], "a directory has the name of a file"),
        (&[tar_file(".", b"x")], "a file without a name"),
        (&[link("x", b'2', "")], "a link's target"),
        (&[tar_member("x", b'0', "", 1 << 32, b"little")], "ends within a member"),
        (&[tar_member("x", b'M', "", 0, b"")], "a member of type 'M'"),
        (&[b"no tar stream".repeat(99)], "a tar header is missing"),
    ];
    for (members, what) in cases {
        let before = place.yes("tree --json image /");
        place.no(put(members, 1024), 2, what);
        assert_eq!(place.yes("tree --json image /"), before, "{what}");
        place.assert_clean();
    }
    // Behind a member it may end without zeros, which is said; within a header, and before any, not.
    let output = place.ext4(put(&[tar_file("open", b"x")], 0));
    assert!(
        output.status.success()
            && String::from_utf8_lossy(&output.stderr).contains("it may have been cut short")
    );
    place.yes("rm image /top/open");
    place.no(put(&[tar_file("a", b"x")], 100), 2, "ends within a member");
    place.no(put(&[], 0), 2, "ends within a member");
    place.no(put(&[tar_member("././@LongLink", b'L', "", 2, b"a\0")], 0), 2, "ends within a member");
    // Whatever is said twice, the last word counts; a name from the root is one below the top.
    place.yes(put(
        &[
            tar_file("/absolute/file", b"first"),
            tar_file("absolute/./file", b"second"),
            link("again", b'1', "/absolute/file"),
            link("again", b'1', "again"),
            link("absolute/file", b'1', "again"),
            tar_file("folder/x", b"x"),
            link("out", b'2', "elsewhere"),
        ],
        1024,
    ));
    assert_eq!(place.yes("cat image /top/absolute/file"), "second");
    assert_eq!(place.yes("cat image /top/again"), "second");
    assert_eq!(place.yes("ls image /outside"), "file\n");
    assert_eq!(place.yes("cat image /outside/file"), "contents\n");
    place.assert_clean();

    // Damage of any kind leaves the image whole.
    let Some(tar) = tool("tar") else { return };
    run(Command::new(tar)
        .args(["--format=pax", "-Scf", "whole.tar", "tree"])
        .current_dir(place.folder.path()));
    let whole = fs::read(place.path("whole.tar")).unwrap();
    for round in 0..24usize {
        let mut bytes = whole.clone();
        if round.is_multiple_of(3) {
            bytes.truncate(round * 400);
        } else {
            bytes[round * 331 % 8000] ^= 1 << (round % 8);
        }
        fs::write(place.path("hostile.tar"), bytes).unwrap();
        let output = place.ext4("put --tar hostile.tar image /top");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0..=2)) && !text.contains("panicked"), "{text}");
        assert!(!round.is_multiple_of(3) || !output.status.success(), "{text}");
        // Of a large file an inode may wait to be deleted.
        place.yes("recover image");
        place.assert_clean();
    }
}

/// A file that was put in steps has no name before the last of them, which is not committed when a later one fails.
#[test]
fn a_stream_that_fails_leaves_no_file_without_a_name() {
    let Some(python) = tool("python3") else { return };
    for features in ["", "-O ^has_journal", "-O orphan_file"] {
        let Some(place) = Place::new(features) else { return };
        let code = "import io, tarfile\n\
                    with tarfile.open('tar', 'w', format=tarfile.PAX_FORMAT) as tar:\n\
                    \x20for name, size, value in ('big', 3 << 20, 9), ('bad', 1, 9000):\n\
                    \x20 member = tarfile.TarInfo(name)\n\
                    \x20 member.size = size\n\
                    \x20 member.pax_headers = {'SCHILY.xattr.user.a': 'v' * value}\n\
                    \x20 tar.addfile(member, io.BytesIO(bytes(size)))";
        run(Command::new(&python).args(["-c", code]).current_dir(place.folder.path()));
        place.no("put --tar tar image /", 2, "bad: no free room for the file's attributes");
        let said = place.ext4("check image");
        let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
        assert!(!said.contains("will be deleted"), "{features}: {said}");
        assert_eq!(place.yes("ls image /"), "lost+found\n");
        place.assert_clean();
    }
}

/// No name of it is written as a link to a member that is not there.
#[test]
fn a_socket_is_left_out_of_streams_with_all_its_names() {
    let Some(place) = Place::new("") else { return };
    fs::create_dir(place.path("tree")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.path("tree/a")).unwrap();
    fs::hard_link(place.path("tree/a"), place.path("tree/b")).unwrap();
    fs::write(place.path("tree/c"), "text").unwrap();
    place.yes("put -r image tree/. /");
    for line in ["extract image --tar=out", "fscrypt: backup image / out"] {
        let output = place.ext4(line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        for name in ["/a", "/b"] {
            assert!(
                text.contains(&format!("{name}: sockets have no place in a tar stream")),
                "{line}: {text}"
            );
        }
        let names = run(Command::new("tar").args(["-tf", "out"]).current_dir(place.folder.path()));
        assert!(names.contains("c\n") && !names.contains("a\n") && !names.contains("b\n"), "{line}: {names}");
    }
}
