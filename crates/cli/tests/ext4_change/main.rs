//! The ext4 commands that change images, run as a user runs them.

mod tar;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use casemate_testkit::{TempDir, run, run_any, tempdir, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

struct Place {
    folder: TempDir,
    e2fsck: PathBuf,
}

impl Place {
    /// A folder with an image in it; `None` after a skip.
    fn new(features: &str) -> Option<Place> {
        let (mke2fs, e2fsck) = (tool("mke2fs")?, tool("e2fsck")?);
        let place = Place { folder: tempdir().unwrap(), e2fsck };
        let mut command = Command::new(mke2fs);
        command.args(["-q", "-F", "-t", "ext4"]).args(features.split_whitespace());
        run(command.arg(place.path("image")).arg("16M"));
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ext4(&self, line: &str) -> Output {
        let mut command = Command::new(CASEMATE);
        match line.strip_prefix("fscrypt:") {
            Some(line) => command.arg("fscrypt").args(line.split_whitespace()),
            None => command.arg("ext4").args(line.split_whitespace()),
        };
        command.arg("--no-progress");
        command.env("SOURCE_DATE_EPOCH", "1700000000").current_dir(self.folder.path()).output().unwrap()
    }

    fn yes(&self, line: &str) -> String {
        let output = self.ext4(line);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn no(&self, line: &str, status: i32, what: &str) {
        let output = self.ext4(line);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{line}: {text}");
        assert!(text.contains(what), "{line}: {text}");
    }

    /// Permission bits, and the names of the attributes.
    fn state(&self, path: &str) -> String {
        let stat: serde_json::Value =
            serde_json::from_str(&self.yes(&format!("stat --json image {path}"))).unwrap();
        let names = stat["xattrs"].as_array().unwrap().iter().map(|xattr| xattr["name"].as_str().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        let mode = stat["mode"].as_str().unwrap().trim_start_matches('0');
        [&[mode], &names[..]].concat().join(" ")
    }

    fn assert_clean(&self) {
        let output = run_any(Command::new(&self.e2fsck).arg("-fn").arg(self.path("image")));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    fn tree(&self) {
        let tree = self.path("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/file"), "contents\n").unwrap();
        symlink("../file", tree.join("a/b/link")).unwrap();
        fs::hard_link(tree.join("a/file"), tree.join("hard")).unwrap();
        let sparse = fs::File::create(tree.join("sparse")).unwrap();
        sparse.write_all_at(b"end", 1 << 20).unwrap();
    }
}

#[test]
fn every_command_changes_what_it_says() {
    let Some(place) = Place::new("") else { return };
    place.tree();
    place.yes("put -r image tree/. /");
    assert_eq!(place.yes("cat image /a/file"), "contents\n");
    assert_eq!(place.yes("cat image /hard"), "contents\n");
    place.yes("mkdir -p image /x/y/z -m 750");
    place.yes("mv image /a/file /x/y");
    assert_eq!(place.yes("cat image /x/y/file"), "contents\n");
    place.yes("ln image /x/y/file /x/again");
    place.yes("ln image /x/again /x/third");
    place.yes("mv image /x/again /x/third");
    assert_eq!(place.yes("ls image /x").matches("third").count(), 1);
    place.yes("ln -s image y/file /x/soft");
    assert_eq!(place.yes("cat image /x/soft"), "contents\n");
    place.yes("chmod image g+w,o= /x/y/file");
    place.yes("chown image 1000:70000 /x/y/file");
    place.yes("touch image -d @1234567890 /x/y/file /x/new");
    place.yes("setfattr image -n user.a -v text /x/y/file");
    let stat: serde_json::Value = serde_json::from_str(&place.yes("stat --json image /x/y/file")).unwrap();
    let stat = stat.to_string();
    for part in ["1000", "70000", "user.a", "1234567890"] {
        assert!(stat.contains(part), "{part}: {stat}");
    }
    place.yes("fallocate image /x/large 3M");
    place.yes("truncate image /x/large 1M");
    place.yes("truncate image /x/hole 5G");
    let report = place.yes("put --json --owner 5:6 image tree/a/file /x/new");
    assert!(report.contains("\"files\":1"), "{report}");
    assert_eq!(place.yes("cat image /x/new"), "contents\n");
    place.assert_clean();
    place.yes("setfattr image -x user.a /x/y/file");
    place.yes("rm -r image /x /a /hard /sparse");
    place.no("rm image /x", 2, "no such file");
    place.yes("rm -f image /x");
    place.no("rm image /lost+found", 2, "is a directory");
    place.no("mkdir image /lost+found", 2, "exists");
    place.no("put image tree /", 2, "is a folder; -r copies");
    place.yes("recover image");
    place.assert_clean();
    assert!(!place.yes("check image").is_empty());
}

/// As cp takes them: what a link or a pipe that is named leads to, and not the link or the pipe.
#[test]
fn contents_are_put_wherever_they_come_from() {
    let Some(place) = Place::new("-O encrypt -b 4096") else { return };
    place.tree();
    symlink("tree/a/file", place.path("link")).unwrap();
    symlink("tree", place.path("folder")).unwrap();
    run(Command::new("mkfifo").arg(place.path("pipe")));
    // Longer than what fits into one transaction of the small journal.
    let long: Vec<u8> = (0u32..1_500_000).flat_map(|word| word.to_le_bytes()).take(5_000_001).collect();
    fs::write(place.path("long"), &long).unwrap();
    fs::write(place.path("key"), [7; 64]).unwrap();
    place.yes("mkdir image /secret");
    place.yes("fscrypt: set-policy image /secret --key key");
    let sh = |script: &str| {
        let script = format!("PUT='{CASEMATE} ext4 put --no-progress image'\n{script}");
        let mut command = Command::new("sh");
        run(command.args(["-ec", &script]).current_dir(place.folder.path()));
    };
    let kernel = fs::read("/proc/version").unwrap();
    // What is run, and the contents, mode and owner that it gives.
    let cases: [(&str, &[u8], &str); 9] = [
        ("$PUT link /new", b"contents\n", "-rw-r--r--"),
        ("echo a | $PUT - /new", b"a\n", "-rw-r--r--"),
        ("$PUT - /new < tree/a/file", b"contents\n", "-rw-r--r--"),
        ("echo b | $PUT /dev/stdin /new", b"b\n", "-rw-r--r--"),
        ("$PUT /dev/stdin /new < /dev/null", b"", "-rw-r--r--"),
        ("echo c > pipe & $PUT pipe /new", b"c\n", "-rw-r--r--"),
        ("cat long | $PUT - /new", &long, "-rw-r--r--"),
        ("cat long | $PUT - /secret/new --fscrypt-key key", &long, "-rw-r--r--"),
        ("$PUT /proc/version /new", &kernel, "-r--r--r--"),
    ];
    for (script, contents, mode) in cases {
        sh(script);
        let path = if script.contains("secret") { "/secret/new --fscrypt-key key" } else { "/new" };
        assert!(place.ext4(&format!("cat image {path}")).stdout == contents, "{script}");
        let listed = place.yes(&format!("ls -l image {path}"));
        assert!(listed.starts_with(mode), "{script}: {listed}");
    }
    place.yes("put -d image link /link");
    place.yes("put --no-dereference image pipe /pipe");
    place.yes("put -r image folder /copy");
    place.yes("put -r image tree/. /copy/again");
    let listed = place.yes("ls -l image /") + &place.yes("ls -l image /copy/a/b");
    for what in [" link -> tree/a/file", " link -> ../file", "\nprw", "\ndrwxr-xr-x"] {
        assert!(listed.contains(what), "{what}: {listed}");
    }
    place.no("put image - /", 2, "is a directory; name the new file");
    place.assert_clean();
}

#[test]
fn a_slash_is_behind_directories_only() {
    let Some(place) = Place::new("") else { return };
    place.tree();
    place.yes("put -r image tree /");
    place.yes("mkdir image /dir/");
    place.yes("ln -s image tree /to");
    let cases = [
        "put image tree/a/file /tree/a/file/",
        "put image tree/a/file /new/",
        "rm image /tree/a/file/",
        "rm -r image /tree/a/file/",
        "rm -r image /to/",
        "mv image /tree/a/file/ /new",
        "mv image /tree/a/file /new/",
        "mv image /to/ /new",
        "ln image /tree/a/file/ /new",
        "ln image /tree/a/file /new/",
        "ln -s image x /new/",
        "touch image /new/",
        "truncate image /tree/a/file/ 1",
        "chmod image 600 /tree/a/file/",
        "cat image /tree/a/file/.",
    ];
    for line in cases {
        place.no(line, 2, "not a directory");
    }
    place.yes("mv image /dir/ /moved/");
    place.yes("rm -d image /moved/");
    assert_eq!(place.yes("ls image /to/a/"), "b\nfile\n");
    place.assert_clean();
}

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
    place.no("mkdir -p image /0/below", 2, "no directory");
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
fn what_is_locked_stays_as_it_is() {
    let (Some(place), Some(debugfs)) = (Place::new(""), tool("debugfs")) else { return };
    place.tree();
    place.yes("mkdir image /imd /apd /imd/s /apd/s");
    place.yes("touch image /im /ap /imd/x /apd/x /plain");
    let inodes = [("/im", "0x80010"), ("/ap", "0x80020"), ("/imd", "0x80010"), ("/apd", "0x80020")];
    for (path, flags) in inodes {
        let request = format!("set_inode_field {path} flags {flags}");
        run(Command::new(&debugfs).args(["-w", "-R", &request]).arg(place.path("image")));
    }
    // Each was tried with a kernel (6.18) and chattr +i or +a.
    let refused = [
        "rm image /im",
        "rm image /ap",
        "rm image /imd/x",
        "rm image /apd/x",
        "rm -d image /imd/s",
        "rm -d image /apd/s",
        "rm -r image /imd",
        "rm -r image /apd",
        "touch image /imd/y",
        "mkdir image /imd/z",
        "ln image /plain /imd/l",
        "ln -s image q /imd/q",
        "ln image /im /h",
        "ln image /ap /h",
        "mv image /im /im2",
        "mv image /ap /ap2",
        "mv image /imd/x /y2",
        "mv image /apd/x /y2",
        "mv image /imd /imd2",
        "mv image /apd /apd2",
        "mv image /plain /imd/p",
        "mv image /plain /im",
        "mv image /plain /ap",
        "mv image /plain /apd/x",
        "chmod image 700 /im",
        "chmod image 700 /ap",
        "chmod image 700 /imd",
        "chmod image 700 /apd",
        "chown image 1 /im",
        "chown image 1 /ap",
        "touch image /im",
        "touch image /imd",
        "touch image -a /ap",
        "touch image -d @5 /ap",
        "truncate image /im 5",
        "truncate image /ap 5",
        "fallocate image /im 5",
        "fallocate image /ap 5",
        "setfattr image -n user.a -v b /im",
        "setfattr image -n user.a -v b /ap",
        "setfattr image -n user.a -v b /imd",
        "setfattr image -n user.a -v b /apd",
        "put image tree/a/file /imd/new",
        "put image tree/a/file /im",
        "put image tree/a/file /ap",
        "put -r image tree /imd",
    ];
    for line in refused {
        let what = if line.contains("/im") { "is immutable (chattr -i" } else { "is append-only (chattr -a" };
        place.no(line, 2, what);
    }
    let allowed = [
        "touch image /apd/y",
        "mkdir image /apd/z",
        "ln image /plain /apd/l",
        "mv image /plain /apd/p",
        "ln -s image q /apd/q",
        "touch image /ap",
        "touch image /apd",
        "chmod image 755 /imd/x",
        "touch image -d @5 /imd/x",
        "put -r image tree /apd",
    ];
    for line in allowed {
        place.yes(line);
    }
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

#[test]
fn the_same_change_gives_the_same_image() {
    let Some(place) = Place::new("") else { return };
    place.tree();
    let empty = fs::read(place.path("image")).unwrap();
    let mut images = Vec::new();
    for seed in [5, 5, 6] {
        fs::write(place.path("image"), &empty).unwrap();
        place.yes(&format!("put -r --seed {seed} image tree /"));
        place.yes("rm --seed 6 image /tree/sparse");
        images.push(fs::read(place.path("image")).unwrap());
    }
    assert!(images[0] == images[1]);
    assert!(images[1] != images[2]);
}

#[test]
fn what_is_in_use_or_not_understood_is_left_alone() {
    let Some(place) = Place::new("-O ^metadata_csum") else { return };
    let mut image = fs::read(place.path("image")).unwrap();
    // s_feature_ro_compat: shared_blocks.
    image[1024 + 0x65] |= 0x40;
    fs::write(place.path("image"), image).unwrap();
    place.no("mkdir image /x", 2, "shared_blocks");
    let Some(place) = Place::new("") else { return };
    let image = casemate::blockdev::FileDevice::open_exclusive(place.path("image")).unwrap();
    place.no("mkdir image /x", 2, "another process is working on it");
    drop(image);
    place.yes("mkdir image /x");
}

#[test]
fn of_two_writers_one_changes_and_the_other_is_refused() {
    let Some(place) = Place::new("") else { return };
    place.tree();
    for number in 0..300 {
        fs::write(place.path(&format!("tree/a/{number}")), vec![b'x'; 5000]).unwrap();
    }
    let mut refused = 0;
    for _ in 0..10 {
        let names = ["/one", "/two"];
        let both = names.map(|name| {
            let mut command = Command::new(CASEMATE);
            command.args(["ext4", "put", "-r", "--no-progress", "image", "tree", name]);
            command.current_dir(place.folder.path()).stderr(Stdio::piped()).spawn().unwrap()
        });
        let outputs = both.map(|child| child.wait_with_output().unwrap());
        place.assert_clean();
        let mut changed = 0;
        for (name, output) in names.into_iter().zip(outputs) {
            let text = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => {
                    place.yes(&format!("cat image {name}/a/299"));
                    place.yes(&format!("rm -r image {name}"));
                    changed += 1;
                }
                Some(2) if text.contains("image: another process is working on it") => {
                    place.no(&format!("cat image {name}/a/299"), 2, "no such file");
                    refused += 1;
                }
                _ => panic!("{name}: {text}"),
            }
        }
        assert!(changed > 0);
    }
    // One may have ended before the other began, but not each time.
    assert!(refused > 0);
}

#[test]
fn a_served_or_mounted_image_is_left_alone() {
    let Some(place) = Place::new("") else { return };
    let script = |wrap: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", wrap, CASEMATE]).current_dir(place.folder.path());
        let output = command.output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let mut served = Command::new(CASEMATE);
    served.args(["serve", "image", "--exec", &format!("{CASEMATE} ext4 mkdir image /x")]);
    let output = served.current_dir(place.folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("another process is working on it"), "{text}");
    place.no("ls image /x", 2, "no such file");
    fs::create_dir(place.path("top")).unwrap();
    let said = script(
        "mount -o loop image top || { echo no mount; exit; }; \"$0\" ext4 mkdir image /x; echo $?; umount top",
    );
    if said.contains("no mount") {
        return casemate_testkit::skip("no loop mounts here");
    }
    assert!(said.contains("stands on it; unmount") && said.contains("2\n"), "{said}");
    place.yes("mkdir image /x");
    place.assert_clean();
}

#[test]
fn encrypted_directories_are_filled() {
    let Some(place) = Place::new("-O encrypt -b 4096") else { return };
    place.tree();
    fs::write(place.path("key"), [7; 64]).unwrap();
    fs::write(place.path("other"), [8; 64]).unwrap();
    symlink("t".repeat(300), place.path("tree/long")).unwrap();
    for number in 0..300 {
        fs::write(place.path(&format!("tree/a/{number}-{}", "n".repeat(number % 200))), "x").unwrap();
    }
    place.yes("mkdir image /secret");
    place.yes("fscrypt: set-policy image /secret --key key");
    place.no("mkdir image /secret/x", 2, "needs the key");
    place.no("mkdir image /secret/x --fscrypt-key other", 2, "needs the key");
    place.yes("put -r image tree/. /secret --fscrypt-key key");
    place.assert_clean();
    assert_eq!(place.yes("cat image /secret/a/file --fscrypt-key key"), "contents\n");
    let deep = format!("cat image /secret/a/299-{} --fscrypt-key key", "n".repeat(99));
    assert_eq!(place.yes(&deep), "x");
    place.yes("mv image /secret/a/file /secret/moved --fscrypt-key key");
    place.yes("ln image /secret/moved /secret/a/again --fscrypt-key key");
    place.yes("truncate image /secret/moved 4 --fscrypt-key key");
    place.yes("truncate image /secret/moved 9 --fscrypt-key key");
    assert_eq!(place.yes("cat image /secret/a/again --fscrypt-key key"), "cont\0\0\0\0\0");
    place.yes("mkdir image /plain");
    place.yes("touch image /plain/file");
    place.no("mv image /plain/file /secret --fscrypt-key key", 2, "encrypts in another way");
    place.yes("mv image /secret/moved /plain --fscrypt-key key");
    place.assert_clean();
    place.yes("extract image out --path /secret --fscrypt-key key");
    assert_eq!(fs::read_link(place.path("out/long")).unwrap().as_os_str().len(), 300);
    assert_eq!(fs::read_link(place.path("out/a/b/link")).unwrap().to_str(), Some("../file"));
    assert_eq!(fs::read(place.path("out/sparse")).unwrap(), fs::read(place.path("tree/sparse")).unwrap());
    place.yes("rm -r image /secret");
    place.assert_clean();
}

#[test]
fn killed_commands_lose_nothing_that_was_there() {
    let kills = if casemate_testkit::slow_tests() { 300 } else { 12 };
    for features in ["-b 4096", "-b 1024 -O ^has_journal"] {
        let Some(place) = Place::new(features) else { return };
        place.tree();
        for number in 0..400 {
            fs::write(place.path(&format!("tree/a/b/{number}")), vec![b'y'; number * 37 % 9000]).unwrap();
        }
        fs::write(place.path("keep"), "kept\n".repeat(3000)).unwrap();
        place.yes("put image keep /keep");
        let before = fs::read(place.path("image")).unwrap();
        let mut rng = casemate_testkit::Rng::new(4);
        for kill in 0..kills {
            fs::write(place.path("image"), &before).unwrap();
            let mut command = Command::new(CASEMATE);
            command.args(["ext4", "put", "-r", "image", "tree", "/", "--no-progress"]);
            let mut child = command.current_dir(place.folder.path()).spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_micros(rng.below(150_000)));
            // SIGKILL, unless it has ended.
            let _ = child.kill();
            child.wait().unwrap();
            if features.contains("has_journal") || kill % 2 == 1 {
                place.yes("recover image");
            } else {
                let output = run_any(Command::new(&place.e2fsck).arg("-fp").arg(place.path("image")));
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(matches!(output.status.code(), Some(0 | 1)), "{features}: {text}");
            }
            place.assert_clean();
            assert_eq!(place.yes("cat image /keep"), "kept\n".repeat(3000));
            assert!(!place.path("image.casemate-redo").exists());
        }
    }
}

/// The CRC-32C that recovery files carry, bit by bit and not inverted.
fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let crc = bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    });
    crc.to_le_bytes()
}

#[test]
fn an_interrupted_change_is_read_as_complete_or_not_at_all() {
    const BLOCK: usize = 1024;
    const STATE: usize = 1024 + 0x3a;
    let Some(place) = Place::new("-b 1024 -O ^has_journal,^metadata_csum") else { return };
    place.tree();
    place.yes("mkdir image /old");
    let before = fs::read(place.path("image")).unwrap();
    place.yes("put -r image tree /new");
    place.yes("rm -r image /old");
    let after = fs::read(place.path("image")).unwrap();
    // Half of the blocks are written, and the file beside the image has all of them.
    let mut image = before;
    image[STATE] &= !1;
    let (mut records, mut count) = (Vec::new(), 0u64);
    for (block, new) in after.chunks_exact(BLOCK).enumerate() {
        let old = &mut image[block * BLOCK..][..BLOCK];
        if old == new {
            continue;
        }
        records.extend((block as u64).to_le_bytes());
        old.chunks_exact(512).for_each(|sector| records.extend(crc32c(sector)));
        records.extend_from_slice(new);
        count += 1;
        if count % 2 == 0 && block > 1 {
            old.copy_from_slice(new);
        }
    }
    let mut kept = [b"casemate redo 2\n", &image[1024 + 0x68..1024 + 0x78]].concat();
    kept.extend((BLOCK as u32).to_le_bytes());
    kept.extend(count.to_le_bytes());
    let sum = crc32c(&[&kept[..], &records].concat());
    kept.extend(sum);
    kept.extend(records);
    fs::write(place.path("image"), &image).unwrap();
    fs::write(place.path("image.casemate-redo"), &kept).unwrap();

    assert_eq!(place.yes("cat image /new/a/file"), "contents\n");
    let output = place.ext4("ls image /");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is shown as complete"));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("old"));
    place.yes("check image");
    place.yes("extract image out");
    assert_eq!(fs::read(place.path("out/new/sparse")).unwrap(), fs::read(place.path("tree/sparse")).unwrap());
    // Served, it is whole for readers; whoever could write has to complete it first.
    let serve = |options: &[&str]| {
        let mut command = Command::new(CASEMATE);
        let script = "nbdcopy \"$uri\" served";
        run_any(
            command
                .arg("serve")
                .arg("image")
                .args(options)
                .args(["--exec", script])
                .current_dir(place.folder.path()),
        )
    };
    if tool("nbdcopy").is_some() {
        let output = serve(&["--read-only"]);
        assert!(
            output.status.success()
                && String::from_utf8_lossy(&output.stderr).contains("is shown as complete")
        );
        assert!(fs::read(place.path("served")).unwrap() == after);
    }
    let output = serve(&["--write"]);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("must be completed before others write"),
        "{output:?}"
    );
    assert_eq!(output.status.code(), Some(2));
    let output = place.ext4("info image --no-replay");
    assert!(String::from_utf8_lossy(&output.stderr).contains("was not left clean"));
    assert_eq!(fs::read(place.path("image")).unwrap(), image);

    // One block is as nobody left it.
    let mut changed = image.clone();
    let bitmap =
        (2 * BLOCK..image.len()).step_by(BLOCK).find(|at| image[*at..][..BLOCK] != after[*at..][..BLOCK]);
    changed[bitmap.unwrap()] ^= 0x80;
    fs::write(place.path("image"), &changed).unwrap();
    for line in ["cat image /new/a/file", "extract image other", "check image", "check --fix-checksums image"]
    {
        place.no(line, 2, "was changed since; run e2fsck");
    }
    place.no("mkdir image /x", 2, "was changed since; run e2fsck");
    assert_eq!(fs::read(place.path("image")).unwrap(), changed);

    fs::write(place.path("image"), &image).unwrap();
    fs::rename(place.path("image.casemate-redo"), place.path("redo")).unwrap();
    assert_eq!(place.yes("cat image /new/a/file --recovery-file redo"), "contents\n");
    let output = place.ext4("recover image --recovery-file redo");
    assert!(String::from_utf8_lossy(&output.stderr).contains("completed a change that was interrupted"));
    assert_eq!(fs::read(place.path("image")).unwrap(), after);
    assert!(!place.path("redo").exists());
    place.assert_clean();
    assert_eq!(place.ext4("recover image").stderr, b"");
}
