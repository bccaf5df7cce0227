//! Encrypted images and the fscrypt commands as a user meets them, on an image that a kernel made.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use casemate_testkit::{TempDir, fixture, tempdir};
use serde_json::Value;

const IMAGE: &str = "v2-xts-cts-1k";

/// A folder with an image, its key in `key`, and another key in `other`.
struct Place {
    folder: TempDir,
    manifest: Value,
}

impl Place {
    fn new(image: &str) -> Place {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../casemate/tests/fscrypt/fixtures");
        let manifest: Value =
            serde_json::from_slice(&fixture(fixtures.join(format!("{image}.json.xz")))).unwrap();
        let folder = tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
        write("image", &fixture(fixtures.join(format!("{image}.img.xz"))));
        write("key", &bytes(manifest["keys"][0]["key_hex"].as_str().unwrap()));
        write("other", &[0x5a; 64]);
        Place { folder, manifest }
    }

    fn run(&self, line: &str, input: &[u8]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
        command.current_dir(self.folder.path()).args(line.split_whitespace()).arg("--no-progress");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that needs no input closes the pipe.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    fn yes(&self, line: &str) -> String {
        let output = self.run(line, &[]);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Error text of a command that must fail with status 2.
    fn cannot(&self, line: &str) -> String {
        let output = self.run(line, &[]);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    fn entry(&self, path: &str) -> &Value {
        let entries = self.manifest["entries"].as_array().unwrap();
        entries.iter().find(|entry| entry["path"] == path).unwrap()
    }

    fn identifier(&self) -> &str {
        self.manifest["keys"][0]["identifier"].as_str().unwrap()
    }

    fn stat(&self, line: &str) -> Value {
        serde_json::from_str(&self.yes(&format!("ext4 stat --json image {line}"))).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_image_with_and_without_its_key() {
    let place = Place::new(IMAGE);
    let names = place.yes("ext4 ls image /enc --fscrypt-key key");
    assert!(names.lines().any(|name| name == "alldrop"), "{names}");
    let both = place.run("ext4 ls image /enc --fscrypt-key other --fscrypt-key key", &[]);
    assert_eq!((text(&both.stdout), text(&both.stderr)), (names.clone(), String::new()));
    // Where nothing encrypted was looked at, there is nothing to say.
    let plain = place.run("ext4 ls image /plaindir --fscrypt-key other", &[]);
    assert_eq!((plain.status.code(), text(&plain.stderr)), (Some(0), String::new()));
    let shown = place.entry("enc/alldrop")["nokey_name"].as_str().unwrap();
    for keys in ["", "--fscrypt-key other"] {
        let names = place.yes(&format!("ext4 ls image /enc {keys}"));
        assert!(names.lines().any(|name| name == shown), "{names}");
        assert!(place.yes(&format!("ext4 tree image {keys}")).contains(shown));
        let said = text(&place.run(&format!("ext4 ls image /enc {keys}"), &[]).stderr);
        let needed = format!("; needed is identifier {}", place.identifier());
        let is_told = said.contains("note: image: no key that was given fits: other has identifier ");
        assert_eq!((is_told, said.contains(&needed)), (!keys.is_empty(), !keys.is_empty()), "{said}");
        let error = place.cannot(&format!("ext4 cat image /enc/{shown} {keys}"));
        let missing = format!("needs the key with identifier {}, which was not given", place.identifier());
        assert!(error.contains(&missing), "{error}");
        let error = place.cannot(&format!("ext4 extract image out {keys}"));
        assert!(error.contains(&missing), "{error}");
        assert!(place.folder.path().join("out/plaindir/plainfile").exists());
        assert!(!place.folder.path().join("out/enc").join(shown).exists(), "a name that is none");
        fs::remove_dir_all(place.folder.path().join("out")).unwrap();
    }
    place.yes("ext4 extract image out --fscrypt-key key --no-owners --no-xattrs");
    let size = fs::metadata(place.folder.path().join("out/enc/alldrop")).unwrap().len();
    assert_eq!(size, place.entry("enc/alldrop")["size"]);
    let cat = place.run(
        "ext4 cat image /enc/alldrop --fscrypt-key -",
        &fs::read(place.folder.path().join("key")).unwrap(),
    );
    assert_eq!(cat.stdout, fs::read(place.folder.path().join("out/enc/alldrop")).unwrap());
}

#[test]
fn a_check_with_a_key_of_no_file_is_not_passed() {
    let place = Place::new(IMAGE);
    place.yes("ext4 check image --fscrypt-key key");
    place.yes("ext4 check image --fscrypt-key other --fscrypt-key key");
    place.yes("ext4 check image");
    let checked = place.run("ext4 check image --fscrypt-key other", &[]);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    assert!(text(&checked.stdout).contains("no key that was given is that of a file"), "{checked:?}");
    // Neither is one of an image without any encrypted file.
    fs::create_dir(place.folder.path().join("tree")).unwrap();
    place.yes("ext4 build plain --from tree");
    let checked = place.run("ext4 check plain --fscrypt-key key --json", &[]);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    assert!(text(&checked.stdout).contains("key-useless"), "{checked:?}");
}

#[test]
fn stat_tells_the_policy() {
    let place = Place::new(IMAGE);
    for (keys, readable) in [("--fscrypt-key key", true), ("", false)] {
        let shown = place.entry("enc/emptydir")["nokey_name"].as_str().unwrap();
        let path = if readable { "/enc/emptydir" } else { &format!("/enc/{shown}") };
        let value = place.stat(&format!("{path} {keys}"));
        let encryption = &value["encryption"];
        assert_eq!(encryption["key_identifier"], place.identifier());
        assert_eq!(encryption["nonce"], place.entry("enc/emptydir")["nonce"]);
        assert_eq!((&encryption["contents"], &encryption["padding"]), (&"aes-256-xts".into(), &16.into()));
        assert_eq!(encryption["readable"], readable);
        let text = place.yes(&format!("ext4 stat image {path} {keys}"));
        let state = if readable { "given" } else { "missing" };
        assert!(text.contains(&format!("key identifier {} ({state})", place.identifier())), "{text}");
    }
    // As the kernel does: a link is as long as its target.
    assert_eq!(place.stat("/enc/sym17 --fscrypt-key key")["size"], 17);
    let plain = place.stat("/plaindir");
    assert!(plain["encryption"].is_null(), "{plain}");
}

#[test]
fn keys_have_names() {
    let place = Place::new(IMAGE);
    assert_eq!(place.yes("fscrypt key-id key").trim(), place.identifier());
    let old = Place::new("v1-xts-cts-1k");
    let descriptor = old.manifest["keys"][0]["descriptor"].as_str().unwrap();
    assert_eq!(old.yes("fscrypt key-id --descriptor key").trim(), descriptor);
    // A key under the descriptor that somebody chose, and one that has another.
    let names = old.yes("ext4 ls image /enc --fscrypt-key key");
    assert_eq!(old.yes(&format!("ext4 ls image /enc --fscrypt-key {descriptor}:key")), names);
    assert_ne!(old.yes("ext4 ls image /enc --fscrypt-key 0011223344556677:key"), names);
    let error = old.cannot("ext4 cat image /enc/2 --fscrypt-key image");
    assert!(error.contains("image: a raw key has at most 64 bytes, and this one is longer"), "{error}");
    fs::write(old.folder.path().join("short"), [1; 15]).unwrap();
    let error = old.cannot("ext4 ls image --fscrypt-key short");
    assert!(error.contains("short: a master key has 16 to 64 bytes, not 15"), "{error}");
    assert!(old.cannot("ext4 ls image --fscrypt-key absent").contains("absent: "));
}

#[test]
fn names_and_contents_in_both_directions() {
    let place = Place::new(IMAGE);
    let context = place.stat("/enc --fscrypt-key key")["encryption_context"].as_str().unwrap().to_owned();
    let shown = place.entry("enc/alldrop")["nokey_name"].as_str().unwrap();
    let decoded = place.yes(&format!("fscrypt nokey-name --decode {shown}"));
    let [hash, minor, ciphertext] = decoded.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("{decoded}");
    };
    let options = format!("--fscrypt-key key --context {context}");
    assert_eq!(place.yes(&format!("fscrypt encrypt-name {options} alldrop")).trim(), ciphertext);
    assert_eq!(place.yes(&format!("fscrypt decrypt-name {options} {ciphertext}")).trim(), "alldrop");
    let words = format!("fscrypt nokey-name --hash {hash} --minor-hash {minor} {ciphertext}");
    assert_eq!(place.yes(&words).trim(), shown);
    // The same policy in words.
    let nonce = place.entry("enc")["nonce"].as_str().unwrap();
    let words = format!("fscrypt encrypt-name --key key --nonce {nonce} --padding 16 alldrop");
    assert_eq!(place.yes(&words).trim(), ciphertext);
    let piped = place
        .run(&format!("fscrypt decrypt-name {options}"), format!("{ciphertext}\n{ciphertext}\n").as_bytes());
    assert_eq!(text(&piped.stdout), "alldrop\nalldrop\n");
    let error = place.cannot(&format!("fscrypt encrypt-name --key other --context {context} x"));
    assert!(error.contains(&format!("not the policy's {}", place.identifier())), "{error}");
    let error = place.run(&format!("fscrypt decrypt-name {options} 00112233"), &[]);
    assert_eq!(
        (error.status.code(), &*text(&error.stderr)),
        (Some(2), "casemate: an encrypted name has 4 bytes, less than a block\n")
    );
    for line in [
        "fscrypt decrypt-name --key key --context 0201",
        "fscrypt encrypt-name --key key --nonce 00 x",
        "fscrypt encrypt-name --key key --nonce 00112233445566778899aabbccddeeff --filenames sm4-cts x",
        "fscrypt encrypt-name --key key --nonce 00112233445566778899aabbccddeeff --padding 5 x",
        "fscrypt nokey-name --decode xyz",
        "fscrypt nokey-name xyz",
    ] {
        let output = place.run(line, &[]);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{line}: {}", text(&output.stdout));
    }

    let contents = place.run("ext4 cat image /enc/size4097 --fscrypt-key key", &[]).stdout;
    assert_eq!(contents.len(), 4097);
    let context =
        place.stat("/enc/size4097 --fscrypt-key key")["encryption_context"].as_str().unwrap().to_owned();
    let options = format!("--key key --context {context} --block-size 1024");
    let ciphertext = place.run(&format!("fscrypt encrypt {options} -"), &contents).stdout;
    assert_eq!(ciphertext.len(), 5 * 1024);
    let image = fs::read(place.folder.path().join("image")).unwrap();
    for block in ciphertext.chunks(1024) {
        assert!(image.chunks(1024).any(|stored| stored == block), "the kernel stored something else");
    }
    fs::write(place.folder.path().join("ciphertext"), &ciphertext[1024..]).unwrap();
    place.yes(&format!("fscrypt decrypt {options} ciphertext --first 1 --size 3073 --output plain"));
    assert_eq!(fs::read(place.folder.path().join("plain")).unwrap(), contents[1024..]);
    let cut = place.run(&format!("fscrypt decrypt {options} -"), &ciphertext[..1000]);
    assert!(text(&cut.stderr).contains("its last data unit has 1000 bytes of 1024"), "{}", text(&cut.stderr));
    // Derived keys are printed for other programs.
    for purpose in ["contents", "filenames", "dirhash", "inode-hash"] {
        let key = place.yes(&format!("fscrypt derive {purpose} {options}"));
        let len = match purpose {
            "contents" => 64,
            "filenames" => 32,
            _ => 16,
        };
        assert_eq!(bytes(key.trim()).len(), len, "{purpose}");
        assert_eq!(hex(&bytes(key.trim())), key.trim());
    }
}

/// A context with a wrong byte: names as without a key, everything else a clear error, never a panic.
#[test]
fn damaged_contexts() {
    let place = Place::new(IMAGE);
    let context = bytes(place.stat("/enc --fscrypt-key key")["encryption_context"].as_str().unwrap());
    let image = fs::read(place.folder.path().join("image")).unwrap();
    // In the inode, and in the journal.
    let places = image.windows(context.len()).enumerate().filter(|(_, bytes)| *bytes == context);
    let places: Vec<usize> = places.map(|(at, _)| at).collect();
    for (byte, value, what) in [
        (0, 9, "version 9 is unknown"),
        (1, 99, "contents encryption mode 99 is unknown"),
        (2, 1, "can't be combined"),
        (3, 0x1c, "policy flags 0x1c make no sense"),
        (4, 40, "data units of 2^40 bytes"),
        (5, 1, "reserved bytes are set"),
    ] {
        let mut damaged = image.clone();
        places.iter().for_each(|at| damaged[at + byte] = value);
        fs::write(place.folder.path().join("image"), damaged).unwrap();
        let names = place.yes("ext4 ls image /enc --fscrypt-key key --ignore-checksums");
        assert!(!names.contains("alldrop") && names.lines().count() > 20, "{what}: {names}");
        let stat = place.stat("/enc --fscrypt-key key --ignore-checksums");
        assert!(stat["encryption_error"].as_str().unwrap().contains(what), "{what}: {stat}");
        let output = place.run("ext4 extract image out --fscrypt-key key --ignore-checksums", &[]);
        assert!(text(&output.stderr).contains(what), "{what}: {}", text(&output.stderr));
        assert!(matches!(output.status.code(), Some(1 | 2)), "{what}");
        fs::remove_dir_all(place.folder.path().join("out")).unwrap();
    }
}
