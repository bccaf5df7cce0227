//! Backups of encrypted trees: made without a key, restored with it, equal to what is copied out of the image.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use casemate_testkit::{Rng, TempDir, fixture, listing, run, run_any, skip, tempdir, tool};
use serde_json::Value;

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// A folder with an image that a kernel wrote, its keys in files and the options that name them.
struct Place {
    folder: TempDir,
    keys: Vec<String>,
}

impl Place {
    fn new(name: &str) -> Place {
        let folder = tempdir().unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../casemate/tests/fscrypt/fixtures");
        fs::write(folder.path().join("image"), fixture(from.join(format!("{name}.img.xz")))).unwrap();
        let manifest: Value = serde_json::from_slice(&fixture(from.join(format!("{name}.json.xz")))).unwrap();
        let mut keys = Vec::new();
        for (number, key) in manifest["keys"].as_array().unwrap().iter().enumerate() {
            let hex = key["key_hex"].as_str().unwrap();
            let bytes: Vec<u8> =
                (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
            fs::write(folder.path().join(format!("key{number}")), bytes).unwrap();
            keys.push(format!("--fscrypt-key=key{number}"));
        }
        Place { folder, keys }
    }

    fn casemate(&self, args: &[&str], keys: &[String]) -> Output {
        run_any(Command::new(CASEMATE).args(args).args(keys).current_dir(self.folder.path()))
    }

    fn yes(&self, args: &[&str], keys: &[String]) -> String {
        let output = self.casemate(args, keys);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Everything about the files below a folder.
fn tree(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = listing(top, true);
    found.remove(Path::new(""));
    found
}

fn check(name: &str) {
    let place = Place::new(name);
    let out = place.yes(&["fscrypt", "backup", "image", "/", "backup.tar", "--json"], &[]);
    let made: Value = serde_json::from_str(&out).unwrap();
    assert!(made["files"].as_u64().unwrap() > 5, "{name}: {out}");
    place.yes(&["ext4", "extract", "image", "expected"], &place.keys);
    let out = place.yes(&["fscrypt", "extract", "backup.tar", "restored", "--json"], &place.keys);
    let report: Value = serde_json::from_str(&out).unwrap();
    for count in ["files", "directories"] {
        assert!(report[count].as_u64() >= Some(1), "{name}: {out}");
    }
    let expected = tree(&place.path("expected"));
    let restored = tree(&place.path("restored"));
    for (path, text) in &expected {
        assert_eq!(restored.get(path), Some(text), "{name}: {}", path.display());
    }
    assert_eq!(restored.len(), expected.len(), "{name}");
    if let Some(getfattr) = tool("getfattr") {
        let list = |folder: &str| {
            let mut command = Command::new(&getfattr);
            run(command.args(["-Rhd", "-m", "-", "--encoding=hex", "."]).current_dir(place.path(folder)))
        };
        assert_eq!(list("restored"), list("expected"), "{name}");
    }
    // Ciphertext has no key in it: the same bytes, whoever makes them, with the key or without.
    place.yes(&["fscrypt", "backup", "image", "/", "again.tar"], &place.keys);
    assert!(
        fs::read(place.path("again.tar")).unwrap() == fs::read(place.path("backup.tar")).unwrap(),
        "{name}"
    );
}

#[test]
fn what_is_restored_is_what_the_image_has() {
    for name in ["v1-xts-cts-1k", "v2-lblk64-4k", "v2-adiantum-1k", "v2-casefold-hctr2-4k"] {
        check(name);
    }
}

#[test]
fn whatever_the_policy() {
    if !casemate_testkit::slow_tests() {
        return;
    }
    for name in ["v1-cbc-essiv-4k", "v2-hctr2-lblk-4k", "v2-htree-1k", "v2-xts-cts-1k"] {
        check(name);
    }
}

#[test]
fn other_programs_read_the_stream() {
    let Some(tar) = tool("tar") else { return };
    let place = Place::new("v2-xts-cts-1k");
    place.yes(&["fscrypt", "backup", "image", "/", "backup.tar"], &[]);
    let list = run(Command::new(&tar)
        .args(["--warning=no-unknown-keyword", "-tf", "backup.tar"])
        .current_dir(place.folder.path()));
    assert!(list.starts_with("./\nenc/\n") && list.lines().count() > 10, "{list}");
    // A part of it, from within the encrypted tree, by the name that the kernel shows without the key.
    let names = place.yes(&["ext4", "ls", "image", "/enc"], &[]);
    assert!(names.lines().count() > 3);
    place.yes(&["fscrypt", "backup", "image", "/enc", "part.tar"], &[]);
    place.yes(&["fscrypt", "extract", "part.tar", "part"], &place.keys);
    place.yes(&["ext4", "extract", "image", "whole", "--path=/enc"], &place.keys);
    assert_eq!(tree(&place.path("part")), tree(&place.path("whole")));
}

/// An empty file system; `None` after a skip.
fn fresh(place: &Place, name: &str, options: &str) -> Option<()> {
    let mut command = Command::new(tool("mke2fs")?);
    command.args(["-q", "-F", "-t", "ext4"]).args(options.split_whitespace());
    run(command.arg(place.path(name)).arg("32M"));
    Some(())
}

fn assert_clean(place: &Place, image: &str) {
    let Some(e2fsck) = tool("e2fsck") else { return };
    let output = run_any(Command::new(e2fsck).arg("-fn").arg(place.path(image)));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    place.yes(&["ext4", "check", image], &[]);
}

/// Restores a whole image's backup into another image, and compares what both extract to.
fn check_image(name: &str, options: &str) -> Option<Place> {
    let place = Place::new(name);
    fresh(&place, "fresh", options)?;
    place.yes(&["fscrypt", "backup", "image", "/", "backup.tar"], &[]);
    let out = place.yes(&["fscrypt", "restore", "backup.tar", "fresh", "/", "--json"], &[]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert!(report["files"].as_u64() > Some(5) && report["directories"].as_u64() > Some(0), "{name}: {out}");
    assert_clean(&place, "fresh");
    for (image, folder) in [("image", "expected"), ("fresh", "restored")] {
        place.yes(&["ext4", "extract", image, folder], &place.keys);
    }
    assert_eq!(tree(&place.path("restored")), tree(&place.path("expected")), "{name}");
    if let Some(getfattr) = tool("getfattr") {
        let list = |folder: &str| {
            let mut command = Command::new(&getfattr);
            run(command.args(["-Rhd", "-m", "-", "--encoding=hex", "."]).current_dir(place.path(folder)))
        };
        assert_eq!(list("restored"), list("expected"), "{name}");
    }
    Some(place)
}

#[test]
fn images_get_back_what_they_had() {
    for (name, options) in [
        ("v1-xts-cts-1k", "-O encrypt -b 1024"),
        ("v2-xts-cts-1k", "-O encrypt,^has_journal,inline_data -b 1024"),
        ("v2-htree-1k", "-O encrypt -b 1024"),
    ] {
        let Some(place) = check_image(name, options) else { return };
        // The image backs up to what it was made from, but for the numbers of inodes and the UUID.
        place.yes(&["fscrypt", "backup", "fresh", "/", "again.tar"], &[]);
        let files = |tar: &str, folder: &str| {
            place.yes(&["fscrypt", "extract", tar, folder], &place.keys);
            tree(&place.path(folder))
        };
        assert_eq!(files("again.tar", "again"), files("backup.tar", "once"), "{name}");
    }
}

#[test]
fn the_kernel_reads_what_was_restored() {
    let Some(python) = tool("python3") else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fscrypt_copy.py");
    for name in ["v1-xts-cts-1k", "v2-xts-cts-1k"] {
        let Some(place) = check_image(name, "-O encrypt -b 1024") else { return };
        fs::create_dir(place.path("top")).unwrap();
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "slave"]).arg(&python).arg(&script);
        command.args(["fresh", "top", "copy"]).args((0..place.keys.len()).map(|key| format!("key{key}")));
        let output = run_any(command.current_dir(place.folder.path()));
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => {}
            Some(77 | 1) if !said.contains("Traceback") => {
                return skip(&format!("fscrypt mount: {}", said.trim()));
            }
            _ => panic!("{name}: {said}"),
        }
        // Who reads a file changes its time of access.
        place.yes(&["ext4", "extract", "image", "unread"], &place.keys);
        assert_eq!(tree(&place.path("copy")), tree(&place.path("unread")), "{name}");
    }
}

#[test]
fn images_get_back_any_policy() {
    if !casemate_testkit::slow_tests() {
        return;
    }
    for (name, options) in [
        ("v1-cbc-essiv-4k", "-O encrypt -b 4096"),
        ("v2-adiantum-1k", "-O encrypt -b 1024 -I 512"),
        ("v2-xts-cts-1k", "-O encrypt,bigalloc -b 1024 -C 8192"),
    ] {
        check_image(name, options);
    }
}

/// A backup that is cut short in every fourth round, and has one wrong bit in the others.
fn damaged(whole: &[u8], round: usize, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    if round.is_multiple_of(4) {
        bytes.truncate(rng.below(whole.len() as u64 - 2048) as usize);
    } else {
        // Near the beginning, where headers and contexts are dense.
        let at = rng.below(20_000) as usize;
        bytes[at] ^= 1 << rng.below(8);
    }
    bytes
}

#[test]
fn what_no_image_can_have_changes_nothing() {
    let refuse = |place: &Place, image: &str, path: &str, status: i32, what: &str| {
        let before = place.yes(&["ext4", "tree", image], &[]);
        let output = place.casemate(&["fscrypt", "restore", "backup.tar", image, path], &[]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert!(text.contains(what), "{text}");
        assert_eq!(place.yes(&["ext4", "tree", image], &[]), before);
        assert_clean(place, image);
    };
    for (name, what) in
        [("v2-lblk64-4k", "IV_INO_LBLK_64"), ("v2-casefold-hctr2-4k", "without regard to case")]
    {
        let place = Place::new(name);
        let Some(()) = fresh(&place, "fresh", "-O encrypt -b 4096") else { return };
        place.yes(&["fscrypt", "backup", "image", "/", "backup.tar"], &[]);
        refuse(&place, "fresh", "/new", 2, what);
    }
    let place = Place::new("v2-xts-cts-1k");
    for (name, options) in
        [("plain", "-b 1024"), ("large", "-O encrypt -b 4096"), ("right", "-O encrypt -b 1024")]
    {
        fresh(&place, name, options);
    }
    place.yes(&["fscrypt", "backup", "image", "/enc", "backup.tar"], &[]);
    refuse(&place, "plain", "/new", 2, "ext4 tune --features encrypt");
    refuse(&place, "large", "/new", 2, "blocks of 1024 bytes");
    refuse(&place, "right", "/none/new", 2, "no such file");
    place.yes(&["fscrypt", "restore", "backup.tar", "right", "/new"], &[]);
    assert_clean(&place, "right");
    refuse(&place, "right", "/new", 2, "exists");
    refuse(&place, "right", "/new/below", 2, "encrypted itself");
    place.yes(&["ext4", "extract", "right", "part", "--path=/new"], &place.keys);
    place.yes(&["ext4", "extract", "image", "whole", "--path=/enc"], &place.keys);
    assert_eq!(tree(&place.path("part")), tree(&place.path("whole")));

    let whole = fs::read(place.path("backup.tar")).unwrap();
    let mut rng = Rng::new(9);
    let mut refused = 0;
    for round in 0..16 {
        fs::write(place.path("damaged.tar"), damaged(&whole, round, &mut rng)).unwrap();
        let names = place.yes(&["ext4", "ls", "right", "/"], &[]);
        let new = format!("/new{round}");
        let output = place.casemate(&["fscrypt", "restore", "damaged.tar", "right", &new], &[]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0..=2)) && !text.contains("panicked"), "{text}");
        if !output.status.success() {
            refused += 1;
            assert_eq!(place.yes(&["ext4", "ls", "right", "/"], &[]), names, "{text}");
        }
    }
    assert!(refused >= 5, "{refused}");
    assert_clean(&place, "right");

    // Files in an encrypted directory are encrypted as it is.
    let mut bytes = whole.clone();
    let record = b"user.casemate.fscrypt.context=";
    let found = bytes.windows(record.len()).enumerate().filter(|(_, window)| window == record);
    let second = found.map(|(at, _)| at).nth(1).unwrap();
    bytes[second] = b'U';
    fs::write(place.path("backup.tar"), bytes).unwrap();
    refuse(&place, "right", "/foreign", 2, "encrypts in another way");

    // What is not encrypted may come from any program.
    let Some(tar) = tool("tar") else { return };
    fs::create_dir(place.path("many")).unwrap();
    for number in 0..6000 {
        fs::write(place.path(&format!("many/{number}")), "").unwrap();
    }
    run(Command::new(&tar)
        .args(["--format=pax", "-cf", "backup.tar", "-C", "many", "."])
        .current_dir(place.folder.path()));
    fresh(&place, "small", "-b 1024 -J size=1");
    // The journal has no room for all of them at once.
    for image in ["small", "right"] {
        place.yes(&["fscrypt", "restore", "backup.tar", image, "/many"], &[]);
        assert_clean(&place, image);
        assert_eq!(place.yes(&["ext4", "ls", image, "/many"], &[]).lines().count(), 6000, "{image}");
    }
}

#[test]
fn missing_keys_and_damage_are_told() {
    let place = Place::new("v2-xts-cts-1k");
    place.yes(&["fscrypt", "backup", "image", "/", "backup.tar"], &[]);
    let output = place.casemate(&["fscrypt", "extract", "backup.tar", "nothing"], &[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("casemate: enc/: it needs the key with identifier "), "{text}");
    assert!(place.path("nothing/plaindir").is_dir() && !place.path("nothing/enc").exists());

    let whole = fs::read(place.path("backup.tar")).unwrap();
    let mut rng = Rng::new(8);
    let mut refused = 0;
    for round in 0..40 {
        fs::write(place.path("damaged.tar"), damaged(&whole, round, &mut rng)).unwrap();
        let folder = format!("damaged{round}");
        let output = place.casemate(&["fscrypt", "extract", "damaged.tar", &folder], &place.keys);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0..=2)) && !text.contains("panicked"), "{text}");
        refused += usize::from(!output.status.success());
    }
    assert!(refused >= 10, "{refused}");
    let output = place.casemate(&["fscrypt", "extract", "image", "none"], &place.keys);
    assert_eq!(output.status.code(), Some(2));
    let output = place.casemate(&["fscrypt", "backup", "image", "/plaindir/none", "-"], &[]);
    assert_eq!(output.status.code(), Some(2));
}
