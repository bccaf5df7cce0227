//! The ext4 commands that change images, run as a user runs them.

mod attributes;
mod encryption;
mod in_use;
mod interrupted;
mod locked;
mod resize;
mod tar;
mod tune;

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Output};

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
        self.yes("check image");
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

/// As mv(1), where rename(2) would do nothing.
#[test]
fn of_two_names_of_a_file_mv_removes_one() {
    let Some(place) = Place::new("-O casefold") else { return };
    place.yes("touch image /a");
    place.yes("mkdir image /dir");
    place.yes("ln image /a /b");
    place.yes("ln image /a /dir/a");
    place.yes("mv image /a /b");
    assert_eq!(place.yes("ls image /"), "b\ndir\nlost+found\n");
    place.yes("mv image /b /dir/a");
    assert_eq!(place.yes("ls image /"), "dir\nlost+found\n");
    for line in ["mv image /dir/a /dir/a", "mv image /dir/a /dir", "mv image dir/a /dir//a"] {
        place.no(line, 2, "the new name is the old one");
    }
    place.no("mv image /dir /dir", 2, "can't be moved into itself");
    assert_eq!(place.yes("ls image /dir"), "a\n");
    place.assert_clean();
}

/// As the kernel and `build` store them: e2fsck 1.47.0 miscounts the blocks of a link in its inode that has a block of attributes.
#[test]
fn links_are_never_inline() {
    let Some(place) = Place::new("-O inline_data -b 4096") else { return };
    let link =
        |name: &str, len: usize| symlink("t".repeat(len), place.path(&format!("tree/{name}"))).unwrap();
    fs::create_dir(place.path("tree")).unwrap();
    for (name, len) in [("short", 59), ("long", 60), ("longer", 80)] {
        link(name, len);
    }
    place.yes("put -r image tree/. /");
    run(Command::new("tar").args(["-cf", "tar", "tree"]).current_dir(place.folder.path()));
    place.yes("put --tar tar image /");
    place.yes(&format!("ln -s image {} /made", "t".repeat(100)));
    for path in ["/long", "/longer", "/tree/long", "/made"] {
        place.yes(&format!("setfattr image --no-dereference -n trusted.a -v {} {path}", "v".repeat(2000)));
    }
    place.assert_clean();
    let sectors = |path: &str| {
        let stat: serde_json::Value =
            serde_json::from_str(&place.yes(&format!("stat --json image {path}"))).unwrap();
        stat["sectors"].as_u64().unwrap()
    };
    assert_eq!([sectors("/short"), sectors("/long"), sectors("/tree/longer")], [0, 16, 8]);
}

#[test]
fn times_that_small_inodes_cannot_hold_are_told() {
    let Some(place) = Place::new("-I 128") else { return };
    fs::create_dir(place.path("tree")).unwrap();
    for (name, date) in [("late", "2050-01-01"), ("now", "2020-01-01")] {
        let path = place.path(&format!("tree/{name}"));
        fs::write(&path, name).unwrap();
        run(Command::new("touch").args(["-d", date]).arg(path));
    }
    run(Command::new("touch").args(["-d", "2020-01-01"]).arg(place.path("tree")));
    run(Command::new("tar").args(["--format=posix", "-cf", "tar", "tree"]).current_dir(place.folder.path()));
    let told = |line: &str, files: Option<u32>| {
        let mut command = Command::new(CASEMATE);
        command.arg("ext4").args(line.split_whitespace()).arg("--no-progress");
        // Which would be the latest time of a build.
        command.env_remove("SOURCE_DATE_EPOCH");
        let output = command.current_dir(place.folder.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {text}");
        let wanted = files.map(|files| {
            format!(
                "files with a time that is cut: {files}; inodes of 128 bytes can hold times from 1901-12-13 to 2038-01-19, and the nearest is stored"
            )
        });
        match wanted {
            Some(wanted) => assert!(text.contains(&wanted), "{line}: {text}"),
            None => assert_eq!(text, "", "{line}"),
        }
    };
    told("put -r image tree/. /", Some(1));
    told("put --tar tar image /", Some(1));
    told("touch image -d @3000000000 /now", Some(1));
    told("touch image -d @2000000000 /now", None);
    told("build new --from tree --size 8M --inode-size 128", Some(1));
    told("build more --from tree --size 8M", None);
    place.assert_clean();
}
