//! Modes, owners, attributes, projects and names, changed as the kernel changes them.

use std::process::Command;

use casemate_testkit::{run, run_any, tool};

use crate::{CASEMATE, Place};

/// An access ACL of owner, the user 1234, group, mask and others; the same without user and mask.
const ACL: &str =
    "0x0200000001000600ffffffff02000700d204000004000500ffffffff10000700ffffffff20000400ffffffff";
const SHORT_ACL: &str = "0x0200000001000700ffffffff04000500ffffffff20000100ffffffff";
const CAPABILITY: &str = "0x0100000200200000000000000000000000000000";

/// A change of `/x`, which is made as the first word says, and what becomes of its mode and its attributes; or what is
/// said when it is refused.
#[test]
fn modes_and_attributes_change_as_in_the_kernel() {
    let Some(place) = Place::new("-O ea_inode -b 1024") else { return };
    let long = format!("user.{}", "n".repeat(251));
    let cases: &[(&str, &str, Result<&str, &str>)] = &[
        ("file 6755", "chown 1:1 /x", Ok("755")),
        ("file 2745", "chown :1 /x", Ok("2745")),
        ("file 4644", "chown 1 /x", Ok("644")),
        ("dir 6755", "chown 1:1 /x", Ok("6755 security.capability")),
        ("file 6755", "truncate /x 0", Ok("6755")),
        ("file 6755", "fallocate /x 10", Ok("6755")),
        ("file 6755", "touch /x", Ok("6755 security.capability")),
        ("file 700", "fallocate /x 0", Err("0 bytes")),
        ("file 700", "truncate /x 16T", Err("at most 4398046510080 bytes")),
        ("file 700", "truncate /x 4398046510080", Ok("700")),
        ("dir 6755", "chmod 700 /x", Ok("6700 security.capability")),
        (
            "file 600",
            "setfattr -n system.posix_acl_access -v ACL /x",
            Ok("674 security.capability system.posix_acl_access"),
        ),
        ("file 6600", "setfattr -n system.posix_acl_access -v SHORT_ACL /x", Ok("6751 security.capability")),
        ("file 600", "setfattr -n system.posix_acl_access -v 0x02000000 /x", Ok("600 security.capability")),
        ("file 600", "setfattr -x system.posix_acl_access /x", Ok("600 security.capability")),
        (
            "file 600",
            "setfattr -n system.posix_acl_access -v 0x0200000004000500ffffffff01000700ffffffff20000100ffffffff /x",
            Err("no sense"),
        ),
        (
            "file 600",
            "setfattr -n system.posix_acl_access -v 0x0200000001000600ffffffff02000700d204000004000500ffffffff20000400ffffffff /x",
            Err("no sense"),
        ),
        (
            "file 600",
            "setfattr -n system.posix_acl_access -v 0x0200000001000800ffffffff04000500ffffffff20000400ffffffff /x",
            Err("no sense"),
        ),
        ("file 600", "setfattr -n system.posix_acl_default -v SHORT_ACL /x", Err("only directories")),
        (
            "dir 700",
            "setfattr -n system.posix_acl_default -v SHORT_ACL /x",
            Ok("700 security.capability system.posix_acl_default"),
        ),
        ("file 600", "setfattr -x user.none /x", Err("no such attribute")),
        ("file 600", "setfattr -n LONG -v a /x", Err("255 bytes")),
        ("file 600", "setfattr -n user.value -v VALUE /x", Err("65536 bytes")),
        (
            "link 777",
            "setfattr --no-dereference -n user.a -v b /x",
            Err("only regular files and directories"),
        ),
        (
            "link 777",
            "setfattr --no-dereference -n trusted.a -v b /x",
            Ok("777 security.capability trusted.a"),
        ),
        ("link 777", "setfattr --no-dereference -n system.posix_acl_access -v ACL /x", Err("no ACLs")),
        ("link 777", "chown --no-dereference 1 /x", Ok("777")),
    ];
    let value = "v".repeat(65537);
    for (number, (kind, line, expected)) in cases.iter().enumerate() {
        let path = format!("/{number}");
        let (kind, mode) = kind.split_once(' ').unwrap();
        match kind {
            "file" => place.yes(&format!("touch image {path}")),
            "dir" => place.yes(&format!("mkdir image {path}")),
            _ => place.yes(&format!("ln -s image nowhere {path}")),
        };
        if kind != "link" {
            place.yes(&format!("chmod image 0{mode} {path}"));
        }
        place.yes(&format!("setfattr image --no-dereference -n security.capability -v {CAPABILITY} {path}"));
        let (command, rest) = line.split_once(' ').unwrap();
        let rest = rest.replace("/x", &path).replace("LONG", &long).replace("VALUE", &value);
        let rest = rest.replace("SHORT_ACL", SHORT_ACL).replace(" ACL ", &format!(" {ACL} "));
        let changed = format!("{command} image {rest}");
        match expected {
            Err(text) => place.no(&changed, 2, text),
            Ok(expected) => {
                place.yes(&changed);
                assert_eq!(place.state(&path), *expected, "{kind} {mode}: {line}");
            }
        }
    }
    place.assert_clean();
    place.yes("mkdir -p image -m 700 /p/q//r/");
    assert_eq!(["/p", "/p/q", "/p/q/r"].map(|path| place.state(path)), ["755", "755", "700"]);
    place.yes("ln -s image p/q /to");
    place.yes("mkdir -p image /to/./s/../t");
    assert_eq!(place.state("/p/q/t"), "755");
    place.no("mkdir -p image /0/below", 2, "not a directory");
    place.no("mkdir -p image /0", 2, "exists");
    // A file is made where a link leads.
    for (number, line) in
        ["touch image /dangling", "truncate image /dangling 9", "fallocate image /dangling 9"]
            .into_iter()
            .enumerate()
    {
        place.yes(&format!("ln -s image p/{number} /l{number}"));
        place.yes(&line.replace("dangling", &format!("l{number}")));
        assert_eq!(place.state(&format!("/p/{number}")), "644");
    }
    place.no("chown image 4294967295 /p", 2, "not the number");
    place.no("put image image /image", 2, "is the image itself");
    place.assert_clean();
}

#[test]
fn a_project_keeps_its_files() {
    let (Some(place), Some(debugfs)) = (Place::new("-O project"), tool("debugfs")) else { return };
    place.yes("mkdir image /p /q");
    for field in ["flags 0x20080000", "projid 77"] {
        let request = format!("set_inode_field /p {field}");
        run(Command::new(&debugfs).args(["-w", "-R", &request]).arg(place.path("image")));
    }
    place.yes("touch image /q/f /p/own");
    for line in ["ln image /q/f /p/f", "mv image /q/f /p/g", "mv image /q /p/"] {
        place.no(line, 2, "belongs to project 0");
    }
    for line in
        ["ln image /p/own /p/again", "mv image /p/again /p/more", "mv image /p/own /q/", "mkdir image /p/d"]
    {
        place.yes(line);
    }
    place.yes("mv image /p/more /p/d");
    place.assert_clean();
}

#[test]
fn strict_directories_take_text_only() {
    use std::os::unix::ffi::OsStrExt;
    let (Some(place), Some(debugfs)) = (Place::new("-O casefold -E encoding_flags=strict"), tool("debugfs"))
    else {
        return;
    };
    place.yes("mkdir image /cf");
    place.yes("touch image /file");
    let request = "set_inode_field /cf flags 0x40080000";
    run(Command::new(&debugfs).args(["-w", "-R", request]).arg(place.path("image")));
    let bad = std::ffi::OsStr::from_bytes(b"/cf/\xff\xfe");
    for line in
        ["touch image", "mkdir image", "ln image /file", "ln -s image x", "mv image /file", "put image image"]
    {
        let mut command = Command::new(CASEMATE);
        command.arg("ext4").args(line.split(' ')).arg(bad).current_dir(place.folder.path());
        let output = run_any(&mut command);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {text}");
        assert!(text.contains("UTF-8") || text.contains("itself"), "{line}: {text}");
    }
    place.yes("touch image /cf/Ä");
    place.assert_clean();
}

/// A stream has no mode and no owner: in place of a file it takes those of that one, as `cp /dev/stdin FILE` does.
#[test]
fn a_stream_in_place_of_a_file_keeps_what_is_not_contents() {
    let Some(place) = Place::new("-b 1024") else { return };
    let sh = |line: &str| run(Command::new("sh").args(["-c", line]).current_dir(place.folder.path()));
    let put = |line: &str| sh(&format!("echo new | {CASEMATE} ext4 put -q {line}"));
    let owner = |path: &str| {
        let text = place.yes(&format!("stat --json image {path}"));
        let stat: serde_json::Value = serde_json::from_str(&text).unwrap();
        (stat["uid"].as_u64().unwrap(), stat["gid"].as_u64().unwrap())
    };
    let acl = || place.yes("getfattr image -n system.posix_acl_access -e hex /x");
    put("image - /x");
    assert_eq!((place.state("/x"), owner("/x")), ("644".to_owned(), (0, 0)));
    place.yes("chown image 3:42 /x");
    for (name, value) in
        [("user.origin", "7"), ("system.posix_acl_access", ACL), ("security.capability", CAPABILITY)]
    {
        place.yes(&format!("setfattr image -n {name} -v {value} /x"));
    }
    place.yes("chmod image 6710 /x");
    let before = (String::from("6710 system.posix_acl_access user.origin"), (3, 42), acl());
    let found = || (place.state("/x"), owner("/x"), acl());
    sh("mkfifo pipe");
    for (line, text) in [("image - /x", "new\n"), ("image pipe /x", "piped\n"), ("image - /x", "new\n")] {
        if line.contains("pipe") {
            sh(&format!("echo piped >pipe & {CASEMATE} ext4 put -q {line}"));
        } else {
            put(line);
        }
        assert_eq!(place.yes("cat image /x"), text);
        assert_eq!(found(), before, "{line}");
    }
    // More than one transaction holds.
    sh(&format!("head -c 9000000 /dev/zero | tr '\\0' x | {CASEMATE} ext4 put -q image - /x"));
    assert_eq!(found(), before);
    place.assert_clean();
    // A new owner lends nobody the old one's rights.
    put("--owner 5:6 image - /x");
    assert_eq!((place.state("/x"), owner("/x")), (before.0.replace("6710", "710"), (5, 6)));
    // A link has no permissions to hand on.
    place.yes("ln -s image /x /link");
    put("image - /link");
    assert_eq!(place.state("/link"), "644");
    place.assert_clean();
}

/// As in the kernel, which moves the value that is set where it has no room.
#[test]
fn a_value_moves_to_an_inode_when_the_block_is_full() {
    let Some(place) = Place::new("-O ea_inode -b 4096 -I 256") else { return };
    place.yes("touch image /x");
    let set = |name: &str, len: usize| {
        place.yes(&format!("setfattr image -n user.{name} -v {} /x", "v".repeat(len)));
    };
    for (name, len) in [("inside", 60), ("a", 200), ("b", 200), ("a", 4040)] {
        set(name, len);
    }
    place.assert_clean();
    for (name, len) in [("inside", 60), ("a", 4040), ("b", 200)] {
        let value = place.yes(&format!("getfattr image -n user.{name} --only-values /x"));
        assert_eq!(value.trim_end().len(), len, "{name}");
    }
}
