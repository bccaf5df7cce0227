//! Exit statuses and messages: what is "no", what is "could not", and how each is said.

use std::fs;
use std::process::{Command, Stdio};

use casemate_testkit::{Place, mke2fs, run, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// An image `root.img` with the folder /etc, keys, and a tree over the image with its root hash in `root.txt`.
fn place() -> Option<Place> {
    let (mke2fs, openssl) = (tool("mke2fs")?, tool("openssl")?);
    let place = Place::new(CASEMATE);
    mke2fs::make(&mke2fs, "-t ext4", &place.path("root.img"), "8M");
    place.file("disk.key", (0..64).collect::<Vec<u8>>());
    place.file("wrong.key", (1..65).collect::<Vec<u8>>());
    place.file("f", "hello\n");
    fs::create_dir(place.path("tree")).unwrap();
    let new_key = "req -x509 -newkey rsa:2048 -nodes -subj /CN=example -keyout key.pem -out cert.pem";
    run(Command::new(openssl).args(new_key.split(' ')).current_dir(place.folder()));
    place.is("ext4 mkdir root.img /etc", 0, "");
    place.is("verity format root.img root.hash --root-hash-file root.txt", 0, "");
    place.is("crypt encrypt root.img root.enc --key-file disk.key --key-size 512", 0, "");
    Some(place)
}

#[test]
fn only_a_question_is_answered_with_no() {
    let Some(place) = place() else { return };
    let root = fs::read_to_string(place.path("root.txt")).unwrap();
    let other = root.replace(&root[..1], if root.starts_with('0') { "1" } else { "0" });
    let crypt = "--crypt aes-xts-plain64 --key-size 512 --key-file";
    place.is(&format!("verity sign {root} root.sig --signing-key key.pem --cert cert.pem"), 0, "");

    // No.
    for line in [
        format!("verity verify root.img root.hash {other}"),
        format!("verity verify-signature {other} root.sig --cert cert.pem"),
    ] {
        place.is(&line, 1, "");
    }
    fs::write(place.path("digests"), format!("sha256:{root} f\n")).unwrap();
    place.is("fsverity check digests", 1, "computed digest did NOT match");
    let damaged = fs::read(place.path("root.img")).map(|mut bytes| {
        // The end of the superblock, whose checksum it is.
        bytes[1024 + 1020] ^= 1;
        bytes
    });
    fs::write(place.path("damaged"), damaged.unwrap()).unwrap();
    place.is("ext4 check damaged", 1, "");

    // Could not: what is asked about is not there, or what was given is not what it should be.
    place.is(&format!("ext4 ls --dm-verity root.hash {other} root.img"), 2, "does not match the root hash");
    fs::write(place.path("digests"), format!("sha256:{root} none\n")).unwrap();
    place.is("fsverity check digests", 2, "could not be read");
    for line in [
        "ext4 ls f".to_owned(),
        "ext4 ls damaged".to_owned(),
        "ext4 put f root.img /".to_owned(),
        "verity dump root.img".to_owned(),
        format!("verity verify root.hash root.img {root}"),
        format!("verity verify-signature {root} root.sig --cert key.pem"),
        format!("ext4 ls {crypt} wrong.key root.enc"),
        format!("ext4 check {crypt} wrong.key root.enc"),
        format!("ext4 ls --dm-verity root.hash {other} root.img"),
        "serve --overlay f root.img --exec true".to_owned(),
        format!("serve -r --dm-verity root.hash {other} root.img --exec true"),
        "serve -r --pid-file none/pid root.img --exec true".to_owned(),
        "fsverity check f".to_owned(),
        "base64 decode cert.pem".to_owned(),
        "crypt encrypt f g --hash sha256 --key-file disk.key".to_owned(),
    ] {
        place.is(&line, 2, "casemate: ");
    }
}

#[test]
fn errors_name_what_the_user_named() {
    let Some(place) = place() else { return };
    for (line, said) in [
        ("verity format root.img none/hash", "casemate: none/hash: No such file or directory\n"),
        ("ext4 ls none", "casemate: none: No such file or directory\n"),
        ("ext4 rm -rf root.img /", "casemate: root.img: the root directory can't be removed\n"),
        ("ext4 put root.img tree /", "casemate: tree: is a folder; -r copies it with all that is in it\n"),
        ("ext4 put root.img none /", "casemate: none: No such file or directory\n"),
        ("ext4 cat root.img /none", "casemate: root.img: /none: no such file\n"),
        ("ext4 ls --nonsense", "casemate: unexpected argument '--nonsense' found"),
        ("nonsense", "casemate: unrecognized subcommand 'nonsense'"),
        ("--threads 0 providers", "give a number from 1 on"),
        ("verity sign 00 root.sig", "use --cert, and --signing-key for the private key"),
    ] {
        let output = place.is(line, 2, said);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.starts_with("casemate: ") && !stderr.contains("os error"), "{line}: {stderr}");
        assert!(output.stdout.is_empty(), "{line}");
    }
    let long = format!("serve --socket /tmp/{} root.img", "x".repeat(200));
    place.is(&long, 2, "a Unix socket has at most 107 bytes");
}

/// A slip of the finger that names an input as the output is told, and costs nothing.
#[test]
fn what_is_read_is_not_replaced() {
    let Some(place) = place() else { return };
    for name in ["root.img", "root.hash", "f", "key.pem", "root.enc", "root.txt", "disk.key"] {
        fs::hard_link(place.path(name), place.path(format!("{name}.other"))).unwrap();
    }
    let root = fs::read_to_string(place.path("root.txt")).unwrap();
    let names = ["root.img", "root.hash", "f", "key.pem", "root.enc", "disk.key"];
    let before = names.map(|name| fs::read(place.path(name)).unwrap());
    for line in [
        "info --html root.img root.img",
        "info --html root.img.other root.img",
        "ext4 extract root.img --tar root.img.other",
        "ext4 extract root.img --path /etc/hostname root.img",
        "fscrypt backup root.img /etc root.img",
        "verity format root.img root.hash --root-hash-file root.img",
        "verity format root.img root.hash --root-hash-file root.hash.other",
        "verity update root.img root.hash --changed 0-4096 --root-hash-file root.img",
        "fsverity digest f --out-merkle-tree f.other",
        "fsverity digest f --out-descriptor f",
        "fsverity sign f key.pem.other --signing-key key.pem --cert cert.pem",
        "crypt decrypt root.enc root.enc.other --key-file disk.key --key-size 512",
        "crypt decrypt root.enc disk.key.other --key-file disk.key --key-size 512",
        "crypt encrypt root.img disk.key --key-file disk.key --key-size 512",
        "crypt encrypt - disk.key --key-file disk.key --key-size 512",
        "luks format --from root.img disk.key.other --key-file disk.key",
        "luks format --from root.img root.img.other --key-file disk.key --overwrite",
        "luks format disk.key --key-file disk.key",
        "serve --pid-file root.img.other root.img --exec true",
        &format!("verity sign {root} key.pem --signing-key key.pem --cert cert.pem"),
    ] {
        place.is(line, 2, "casemate: ");
        for (name, before) in names.iter().zip(&before) {
            assert!(fs::read(place.path(name)).unwrap() == *before, "{line}: {name}");
        }
    }
    place.is("info --html root.img.other root.img", 2, "this would replace root.img");
}

#[test]
fn with_json_errors_are_objects() {
    let Some(place) = place() else { return };
    for (line, kind, file) in [
        ("ext4 ls none", "io", Some("none")),
        ("ext4 ls f", "corrupt", Some("f")),
        ("ext4 ls root.img /none", "io", Some("root.img")),
        ("ext4 ls --nonsense root.img", "argument", None),
        ("ext4 ls --dm-verity root.hash 00 root.img", "argument", None),
    ] {
        let output = place.is(&format!("{line} --json"), 2, "");
        let value: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        let error = &value["error"];
        assert_eq!(error["kind"], kind, "{line}: {error}");
        assert_eq!(error["place"]["file"].as_str(), file, "{line}: {error}");
        assert!(!error["text"].as_str().unwrap().is_empty(), "{line}: {error}");
    }
}

#[test]
fn who_waits_hears_of_success_and_scripts_do_not() {
    let Some(place) = place() else { return };
    let root = fs::read_to_string(place.path("root.txt")).unwrap();
    for (line, said) in [
        (format!("verity verify root.img root.hash {root}"), "casemate: root.img: verified\n"),
        ("ext4 put root.img f /etc/f".to_owned(), "casemate: root.img: 1 files, 6 bytes put\n"),
        ("ext4 setfattr root.img -n user.a -v b /etc/f".to_owned(), "casemate: root.img: changed\n"),
        ("ext4 extract root.img out".to_owned(), "casemate: out: 1 files, 6 bytes\n"),
        (
            "crypt decrypt root.enc plain --key-file disk.key --key-size 512".to_owned(),
            "casemate: plain: decrypted\n",
        ),
    ] {
        let _ = fs::remove_dir_all(place.path("out"));
        let output = place.is(&line, 0, "");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
        let _ = fs::remove_dir_all(place.path("out"));
        let output = place.is(&format!("{line} --verbose"), 0, "");
        assert_eq!(String::from_utf8_lossy(&output.stderr), said, "{line}");
    }
    // A note is no result: whoever wants to hear nothing does not.
    let short = "crypt decrypt root.enc plain --key-file disk.key";
    place.is(short, 0, "note: disk.key has 64 bytes, 32 are used");
    let output = place.is(&format!("{short} -q"), 0, "");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn data_go_into_no_terminal() {
    let Some(place) = place() else { return };
    let Some(script) = tool("script") else { return };
    for line in ["crypt decrypt root.enc - --key-file disk.key", "ext4 extract root.img -"] {
        let mut command = Command::new(&script);
        command.args(["-qec", &format!("{CASEMATE} {line}"), "/dev/null"]).current_dir(place.folder());
        let output = command.stdin(Stdio::null()).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.code() == Some(2) && shown.contains("is a terminal"), "{line}: {shown}");
    }
    // Into a pipe they go.
    let tar = place.is("ext4 extract root.img -", 0, "").stdout;
    assert_eq!(&tar[257..262], b"ustar");
}

#[test]
fn text_that_encode_wrote_is_decoded_strictly() {
    let place = Place::new(CASEMATE);
    fs::write(place.path("f"), "hello\n").unwrap();
    place.is("base64 encode f -o text", 0, "");
    assert_eq!(fs::read(place.path("text")).unwrap(), b"aGVsbG8K\n");
    assert_eq!(place.is("base64 decode --strict text", 0, "").stdout, b"hello\n");
    fs::write(place.path("text"), "aGVs\nbG8K\n").unwrap();
    place.is("base64 decode --strict text", 2, "byte 4 of the base64 text is not in the alphabet");
}

#[test]
fn manual_pages_get_their_folder() {
    let place = Place::new(CASEMATE);
    place.is("man a/b", 0, "");
    assert!(place.path("a/b/casemate.1").exists());
}
