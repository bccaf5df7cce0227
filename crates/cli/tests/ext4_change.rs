//! The ext4 commands that change images, run as a user runs them.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

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
    place.no("put image tree /", 2, "recursive");
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
    place.yes("put -P image link /link");
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
    place.no("mkdir image /x", 2, "another program");
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
                Some(2) if text.contains("image: another program is changing it") => {
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
    assert!(text.contains("another program is changing it"), "{text}");
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
