//! Images that google/fscrypt was used on, read with passphrases.
//!
//! The fixture was made by crates/fscrypt/tests/fixtures/make.sh; the same script makes one afresh where it may.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use casemate::ext4::ReadOptions;
use casemate::{Access, ErrorKind, Image, KdfLimits, Keys, SecretSource, Work};
use casemate_testkit::{TempDir, fixture, run, run_any, skip, stderr, tempdir, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// A folder with disk.img, raw.key and the login protector's file.
struct Place {
    folder: TempDir,
    login: PathBuf,
}

/// Folders of the image, and the secrets that open them; a login passphrase needs its protector, too.
const SECRETS: [(&str, &str); 5] = [
    ("passphrase", "hunter2\n"),
    ("raw", ""),
    ("wide", "other-words"),
    ("old", "old-words\r\nnot this"),
    ("login", "login-secret\n"),
];

impl Place {
    fn of_fixture() -> Place {
        let folder = tempdir().unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fscrypt-tool");
        fs::write(folder.path().join("disk.img"), fixture(from.join("disk.img.xz"))).unwrap();
        fs::copy(from.join("raw.key"), folder.path().join("raw.key")).unwrap();
        Place { login: from.join("login-protector"), folder }.with_secrets()
    }

    /// `None`, and a skip, where the tool or the kernel can't.
    fn afresh() -> Option<Place> {
        for needed in ["fscrypt", "mke2fs", "openssl", "unshare", "losetup"] {
            tool(needed)?;
        }
        if run(Command::new("id").arg("-u")).trim() != "0" {
            skip("not root, so nothing can be mounted");
            return None;
        }
        let folder = tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fscrypt/tests/fixtures/make.sh");
        let made = run_any(Command::new("bash").arg(script).arg(folder.path()));
        let text = String::from_utf8_lossy(&made.stderr).into_owned();
        if !made.status.success() {
            let no_mount = ["mount failed", "failed to setup loop", "permission denied", "not supported"];
            assert!(no_mount.iter().any(|words| text.contains(words)), "{text}");
            skip("no loop mounts of encrypted ext4 here");
            return None;
        }
        let mut logins = fs::read_dir(folder.path().join("root-fscrypt/protectors")).unwrap();
        Some(Place { login: logins.next().unwrap().unwrap().path(), folder }.with_secrets())
    }

    fn with_secrets(self) -> Place {
        for (name, secret) in SECRETS {
            fs::write(self.folder.path().join(name), secret).unwrap();
        }
        fs::copy(self.folder.path().join("raw.key"), self.folder.path().join("raw")).unwrap();
        self
    }

    fn ext4(&self, args: &str) -> Output {
        let mut command = Command::new(CASEMATE);
        run_any(command.arg("ext4").args(args.split_whitespace()).current_dir(self.folder.path()))
    }

    /// Checks everything that is in a folder.
    fn check(&self, folder: &str, options: &str) {
        let numbers: String = (1..=1000).map(|number| format!("{number}\n")).collect();
        for (path, expected) in
            [("note", format!("in {folder}\n")), ("below/again", format!("in {folder}\n")), ("link", numbers)]
        {
            let output = self.ext4(&format!("cat disk.img /{folder}/{path} {options}"));
            assert!(output.status.success(), "{folder}/{path}: {}", stderr(&output));
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{folder}/{path}");
        }
        let output = self.ext4(&format!("ls disk.img /{folder} {options}"));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "below\nlink\nnote\nnumbers\n", "{folder}");
    }

    fn check_all(&self) {
        for (folder, _) in SECRETS {
            if folder != "login" {
                self.check(folder, &format!("--fscrypt-passphrase-file {folder}"));
            }
        }
        let login = format!("--fscrypt-passphrase-file login --protector {}", self.login.display());
        self.check("login", &login);
        // Several at once, and what is not opened stays closed.
        let two = "--fscrypt-passphrase-file passphrase --fscrypt-passphrase-file raw";
        self.check("passphrase", two);
        self.check("raw", two);
        let out = self.folder.path().join("out");
        let output = self.ext4("extract disk.img out --path /wide --fscrypt-passphrase-file wide");
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(fs::read_to_string(out.join("below/again")).unwrap(), "in wide\n");
        let closed = self.ext4(&format!("cat disk.img /old/note {two}"));
        assert!(!closed.status.success());
    }
}

#[test]
fn passphrases_open_what_the_tool_made() {
    Place::of_fixture().check_all();
}

#[test]
fn passphrases_open_what_the_tool_makes_here() {
    if let Some(place) = Place::afresh() {
        place.check_all();
    }
}

/// A protector's file with other costs: a message in field 4, of which this writes what is needed.
fn with_costs(protector: &[u8], memory: u32) -> Vec<u8> {
    let varint = |mut value: u32| {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    };
    let costs = [&[0x10, 1, 0x18][..], &varint(memory), &[0x20, 1, 0x28, 1]].concat();
    // Of two messages of one field the later one counts, field by field.
    [protector, &[0x22, costs.len() as u8], &costs].concat()
}

#[test]
fn a_protector_costs_no_more_than_is_granted() {
    let place = Place::of_fixture();
    let costly = with_costs(&fs::read(&place.login).unwrap(), (1 << 20) + 8);
    fs::write(place.folder.path().join("costly"), costly).unwrap();
    let line = "ls disk.img / --fscrypt-passphrase-file login --protector costly";
    let output = place.ext4(line);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("over 1048584 KiB")
            && text.contains("allow protectors more work (--fscrypt-kdf-limit TIMES)"),
        "{text}"
    );
    // More is granted; with other costs the passphrase makes another key.
    let text = stderr(&place.ext4(&format!("{line} --fscrypt-kdf-limit 2")));
    assert!(text.contains("it does not open protector"), "{text}");

    // What all tries together cost counts.
    let keys = |limits: KdfLimits| {
        fs::write(place.folder.path().join("wrong"), "hunter3").unwrap();
        let secret = SecretSource::file(place.folder.path().join("wrong"));
        let mut options = ReadOptions::default();
        options.keys = Keys::default().with_secret(&secret).unwrap().with_kdf_limits(limits);
        let image = Image::open(place.folder.path().join("disk.img"), Access::Read).unwrap();
        image.ext4(&options, &Work::default()).map(drop).unwrap_err()
    };
    let error = keys(KdfLimits::default());
    assert!(error.kind() == ErrorKind::Mismatch, "{error}");
    // Each protector alone is cheap enough.
    let error = keys(KdfLimits { work: 10_000, ..KdfLimits::default() });
    assert!(
        error.kind() == ErrorKind::Unsupported && error.text().contains("tried before filled"),
        "{error}"
    );
}

#[test]
fn what_does_not_open_says_why() {
    let place = Place::of_fixture();
    fs::write(place.folder.path().join("wrong"), "hunter3").unwrap();
    let output = place.ext4("ls disk.img / --fscrypt-passphrase-file wrong");
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for part in [
        "casemate: disk.img: wrong: it does not open protector ",
        "(passphrase \"words\")",
        "(raw key \"file\")",
        "lies on another file system (PATH=/mnt/root): give its file /.fscrypt/protectors/",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let login = place.login.display();
    let output = place.ext4(&format!("ls disk.img / --fscrypt-passphrase-file wrong --protector {login}"));
    let text = stderr(&output);
    assert!(text.contains("(login passphrase of user 0)") && !text.contains("words"), "{text}");
    // A protector's file that is none, and an image that the tool was never used on.
    let output = place.ext4("ls disk.img / --fscrypt-passphrase-file wrong --protector raw.key");
    assert!(
        stderr(&output).contains("raw.key: protector: the protobuf message can't be decoded"),
        "{}",
        stderr(&output)
    );
    if let Some(mke2fs) = tool("mke2fs") {
        run(Command::new(mke2fs).args(["-q", "plain.img", "2M"]).current_dir(place.folder.path()));
        let output = place.ext4("ls plain.img / --fscrypt-passphrase-file wrong");
        assert!(stderr(&output).contains("no policies in /.fscrypt/policies"), "{}", stderr(&output));
    }
}

/// A backup of the root has the tool's files; any other needs them from elsewhere.
#[test]
fn passphrases_open_backups() {
    let place = Place::of_fixture();
    let path = |name: &str| place.folder.path().join(name);
    let casemate = |args: &str| {
        run_any(Command::new(CASEMATE).args(args.split_whitespace()).current_dir(place.folder.path()))
    };
    let yes = |args: &str| {
        let output = casemate(args);
        assert!(output.status.success(), "{args}: {}", stderr(&output));
    };
    yes("fscrypt backup disk.img / all.tar");
    yes("fscrypt backup disk.img /wide wide.tar");
    yes("ext4 extract disk.img metadata --path /.fscrypt");
    let login = format!("--fscrypt-passphrase-file login --protector {}", place.login.display());
    for (folder, options) in [
        ("passphrase", "--fscrypt-passphrase-file passphrase"),
        ("raw", "--fscrypt-passphrase-file raw"),
        ("old", "--fscrypt-passphrase-file old --fscrypt-metadata metadata"),
        ("login", &login),
    ] {
        // What no key was given for is left out, and told.
        let output = casemate(&format!("fscrypt extract all.tar out-{folder} {options}"));
        assert_eq!(output.status.code(), Some(2), "{folder}: {}", stderr(&output));
        let note = fs::read_to_string(path(&format!("out-{folder}")).join(folder).join("note"));
        assert_eq!(note.unwrap(), format!("in {folder}\n"));
    }
    let wide = "fscrypt extract wide.tar wide --fscrypt-passphrase-file wide";
    fs::rename(path("wide"), path("other-words")).unwrap();
    let wide = wide.replace("file wide", "file other-words");
    let output = casemate(&wide);
    assert!(stderr(&output).contains("no policies in /.fscrypt/policies"), "{}", stderr(&output));
    yes(&format!("{wide} --fscrypt-metadata metadata"));
    assert_eq!(fs::read_to_string(path("wide/below/again")).unwrap(), "in wide\n");
    let output = casemate(&wide.replace("wide.tar", "-"));
    assert!(stderr(&output).contains("--fscrypt-metadata says where else"), "{}", stderr(&output));
    let output =
        casemate("fscrypt extract all.tar none --fscrypt-passphrase-file other-words --protector raw.key");
    assert_eq!(output.status.code(), Some(2));
}
