//! Exit statuses and messages: what is "no", what is "could not", and how each is said.

use std::fs::{self, File};
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::thread;

use casemate_testkit::{Place, mke2fs, run, run_any, status, stderr, tool};

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

    // The signature in a part of an image.
    place.is(&format!("verity sign {root} root.json --systemd --signing-key key.pem --cert cert.pem"), 0, "");
    let signed = fs::read(place.path("root.json")).unwrap();
    fs::write(place.path("signed.disk"), [&[0; 4096][..], &signed].concat()).unwrap();
    place.is(&format!("verity verify-signature {root} signed.disk,offset=4096 --cert cert.pem"), 0, "");
    place.is(&format!("verity verify-signature {other} signed.disk,offset=4096 --cert cert.pem"), 1, "");

    for size in ["0", "18446744073709551615", "9223372036854775807"] {
        let line =
            format!("verity sign {root} q --systemd --fill-to {size} --signing-key key.pem --cert cert.pem");
        place.is(&line, 2, "--fill-to");
    }

    // No.
    for line in [
        format!("verity verify root.img root.hash {other}"),
        format!("verity verify-signature {other} root.sig --cert cert.pem"),
    ] {
        place.is(&line, 1, "");
    }
    fs::write(place.path("digests"), format!("sha256:{root} f\n")).unwrap();
    place.is("fsverity check digests", 1, "computed digest did NOT match");
    fs::write(place.path("digests"), format!("sha256:{root} none\n")).unwrap();
    place.is("fsverity check digests", 1, "could not be read");
    let damaged = fs::read(place.path("root.img")).map(|mut bytes| {
        // The end of the superblock, whose checksum it is.
        bytes[1024 + 1020] ^= 1;
        bytes
    });
    fs::write(place.path("damaged"), damaged.unwrap()).unwrap();
    place.is("ext4 check damaged", 1, "");

    // Could not: what is asked about is not there, or what was given is not what it should be.
    place.is(&format!("ext4 ls --dm-verity root.hash {other} root.img"), 2, "does not match the root hash");
    fs::create_dir(place.path("folder")).unwrap();
    fs::write(place.path("digests"), format!("sha256:{root} folder\n")).unwrap();
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
        "ext4 check f".to_owned(),
        "ext4 check root.hash".to_owned(),
        "ext4 check root.enc".to_owned(),
        "ext4 check disk.key --json".to_owned(),
        "ext4 extract root.img out --fsverity require".to_owned(),
        "ext4 extract root.img --tar=out.tar --fsverity require".to_owned(),
        format!("ext4 ls --dm-verity root.hash {other} root.img"),
        "serve --overlay f root.img --exec true".to_owned(),
        format!("serve -r --dm-verity root.hash {other} root.img --exec true"),
        "serve -r --pid-file none/pid root.img --exec true".to_owned(),
        "fsverity check f".to_owned(),
        "base64 decode cert.pem".to_owned(),
        "crypt encrypt f g --hash sha256 --key-file disk.key".to_owned(),
    ] {
        let said = if line.contains("--json") { "\"error\"" } else { "casemate: " };
        place.is(&line, 2, said);
    }
}

/// The writing end of a pipe whose reader is gone.
fn closed_pipe() -> io::PipeWriter {
    let mut writer = io::pipe().unwrap().1;
    // Another test's child may hold the reader until it has become another program.
    while writer.write(&[0]).is_ok() {
        thread::yield_now();
    }
    writer
}

/// A line of this command, or of another tool that it is called as, without input.
fn line_of(place: &Place, line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(place.link(words.next().unwrap()));
    command.args(words).current_dir(place.folder()).stdin(Stdio::null());
    command
}

/// Makes a damaged image, a list of wrong digests, and a LUKS volume that is open to nobody's policy.
fn add_wrong_ones(place: &Place) -> String {
    let root = fs::read_to_string(place.path("root.txt")).unwrap();
    let mut bytes = fs::read(place.path("root.img")).unwrap();
    bytes[1024 + 1020] ^= 1;
    place.file("damaged", bytes);
    place.file("digests", format!("sha256:{root} f\n").repeat(3));
    place.file("pass", "secret");
    place.is("luks format volume --size 20M --key-file pass --pbkdf pbkdf2 --iter-time 1", 0, "");
    place.file("policy", place.yes("luks check volume --print-policy").replace("aes-", "serpent-"));
    root
}

/// A reader that takes the first line alone gets the answer; `true` at the end of a pipeline tells nothing of what was
/// not done.
#[test]
fn an_answer_survives_a_closed_pipe() {
    let Some(place) = place() else { return };
    let root = add_wrong_ones(&place);
    let other = root.replace(&root[..1], if root.starts_with('0') { "1" } else { "0" });
    for (line, answer) in [
        (format!("casemate verity verify root.img root.hash {root}"), 0),
        (format!("casemate verity verify root.img root.hash {root} --json"), 0),
        (format!("casemate verity verify root.img root.hash {other}"), 1),
        (format!("casemate verity verify root.img root.hash {other} --json"), 1),
        (format!("casemate verity verify damaged root.hash {root}"), 1),
        ("casemate fsverity check digests".to_owned(), 1),
        ("casemate fsverity check digests --json".to_owned(), 1),
        ("casemate ext4 check root.img".to_owned(), 0),
        ("casemate ext4 check damaged".to_owned(), 1),
        ("casemate ext4 check damaged --json".to_owned(), 1),
        ("casemate luks check volume --luks-policy policy".to_owned(), 1),
        ("casemate luks check volume --luks-policy policy --json".to_owned(), 1),
        ("casemate luks test-passphrase volume --key-file pass --json".to_owned(), 0),
        ("casemate luks test-passphrase volume --key-file f --json".to_owned(), 1),
        ("casemate luks is-luks volume".to_owned(), 0),
        ("casemate luks is-luks f".to_owned(), 1),
        // Other tools' command lines have their own numbers.
        (format!("veritysetup verify root.img root.hash {root} -v"), 0),
        (format!("veritysetup verify root.img root.hash {other} -v"), 1),
        ("e2fsck -fn damaged".to_owned(), 4),
        ("cryptsetup isLuks volume".to_owned(), 0),
        ("cryptsetup open --test-passphrase volume --key-file f -v".to_owned(), 2),
    ] {
        let output = run_any(line_of(&place, &line).stdout(closed_pipe()));
        assert_eq!(status(&output), answer, "{line}: {}", stderr(&output));
        assert!(!stderr(&output).contains("pipe"), "{line}: {}", stderr(&output));
    }
}

/// Output that could not be printed in full is a failure: the exit status is that of coreutils.
#[test]
fn what_was_not_all_printed_is_not_done() {
    let Some(place) = place() else { return };
    add_wrong_ones(&place);
    for line in [
        "casemate ext4 ls root.img /",
        "casemate ext4 find root.img /",
        "casemate ext4 tree root.img",
        "casemate ext4 du root.img",
        "casemate ext4 stat root.img /etc",
        "casemate ext4 ls --json root.img /",
        "casemate ext4 extract root.img -",
        "casemate ext4 extract root.img --tar=-",
        "casemate ext4 build - --size 8M",
        "casemate ext4 build - --android-sparse --size 8M",
        "casemate crypt decrypt root.enc - --key-file disk.key --key-size 512",
        "casemate luks extract volume - --key-file pass",
        "casemate luks dump volume",
        "casemate luks check volume --print-policy",
        "casemate luks check volume --print-policy --json",
        "casemate info volume",
        "casemate info volume --json",
        "casemate info volume --scan",
        "casemate info volume --html -",
        "casemate fsverity digest f",
        "casemate base64 encode f",
        "casemate verity dump root.hash --json",
        "casemate verity format root.img new.hash",
        "casemate providers --help",
        "casemate help layers",
        "fsverity digest f",
        "cryptsetup luksDump volume",
        "cryptsetup luksUUID volume",
        "veritysetup dump root.hash",
        "veritysetup format root.img new.hash",
        "mke2fs new.img 1M",
    ] {
        let output = run_any(line_of(&place, line).stdout(closed_pipe()));
        assert_eq!((status(&output), &*stderr(&output)), (141, ""), "{line}");
    }
    // The same where the disk is full: small data is not an exception.
    for line in [
        "casemate ext4 ls root.img /",
        "casemate ext4 extract root.img -",
        "casemate ext4 build - --size 8M",
        "casemate crypt decrypt f - --key-file disk.key --hash plain",
        "casemate luks extract volume - --key-file pass",
        "casemate fsverity digest f",
        "casemate base64 encode f",
    ] {
        let output = run_any(line_of(&place, line).stdout(File::create("/dev/full").unwrap()));
        assert_eq!(status(&output), 2, "{line}: {}", stderr(&output));
    }
}

/// A line of this command without one of its standard streams, which the shell closes.
#[cfg(target_os = "linux")]
fn run_without(place: &Place, line: &str, stream: &str) -> std::process::Output {
    let words: Vec<&str> = line.split_whitespace().collect();
    let script = format!("exec \"$0\" \"$@\" {stream}");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(place.link(words[0])).args(&words[1..]).current_dir(place.folder());
    command.stdin(Stdio::null());
    run_any(&mut command)
}

/// The runtime puts the null device in the place of a stream that is closed, where everything is taken and nothing is kept.
#[cfg(target_os = "linux")]
#[test]
fn a_standard_output_that_is_closed_takes_no_results() {
    let Some(place) = place() else { return };
    let root = add_wrong_ones(&place);
    for line in [
        &*format!("casemate verity verify root.img root.hash {root} --json"),
        "casemate ext4 check root.img",
        "casemate ext4 ls root.img /",
        "casemate ext4 extract root.img -",
        "casemate ext4 extract root.img --tar=-",
        "casemate ext4 extract root.img --tar=/dev/stdout",
        "casemate ext4 build - --size 8M",
        "casemate ext4 build - --android-sparse --size 8M",
        "casemate luks dump volume",
        "casemate luks extract volume - --key-file pass",
        "casemate base64 encode f",
        "casemate --version",
        "casemate verity update root.img root.hash --changed=0+1",
        "casemate --help",
        "casemate help layers",
        "casemate ext4 --help",
        "cryptsetup luksDump volume",
        "veritysetup dump root.hash",
        "fsverity digest f",
    ] {
        let output = run_without(&place, line, ">&-");
        assert!(![0, 141].contains(&status(&output)), "{line}: {}", stderr(&output));
        assert!(!stderr(&output).is_empty(), "{line}");
        // The null device of the caller takes what it is given.
        assert_eq!(status(&run_without(&place, line, ">/dev/null")), 0, "{line}");
        assert_eq!(status(&run_without(&place, line, "1<>/dev/null")), 0, "{line}");
    }
    // What has nothing to say is not asked whether it could.
    assert_eq!(status(&run_without(&place, "casemate luks is-luks volume", ">&-")), 0);
}

/// A closed standard input is an error, not an empty input; and no file that is opened takes the number of a stream that is closed.
#[cfg(target_os = "linux")]
#[test]
fn a_standard_input_that_is_closed_is_not_an_empty_one() {
    let Some(place) = place() else { return };
    add_wrong_ones(&place);
    for line in [
        "casemate base64 encode -",
        "casemate fsverity digest -",
        "casemate fsverity check -",
        "casemate ext4 put root.img - /new",
        "casemate ext4 build new.img --tar - --size 8M",
        "casemate crypt encrypt - new.enc --key-file disk.key --key-size 512",
        "casemate luks test-passphrase volume --key-file -",
        "casemate luks test-passphrase volume",
        "cryptsetup open --test-passphrase volume --key-file -",
    ] {
        let output = run_without(&place, line, "<&-");
        assert!(
            ![0, 1].contains(&status(&output)) || line.starts_with("crypts"),
            "{line}: {}",
            stderr(&output)
        );
        assert_ne!(status(&output), 0, "{line}");
        assert!(!stderr(&output).is_empty(), "{line}");
    }
    let before = fs::read(place.path("root.img")).unwrap();
    place.is("ext4 check root.img", 0, "");
    for streams in ["<&- >&-", "<&- >&- 2>&-", ">&- 2>&-", "2>&-"] {
        run_without(&place, "casemate ext4 ls -l root.img /", streams);
        run_without(&place, "casemate ext4 mkdir none.img /new", streams);
        run_without(&place, "casemate ext4 mkdir root.img /etc --progress-json", streams);
        assert!(fs::read(place.path("root.img")).unwrap() == before, "{streams}");
    }
}

/// Where nobody takes messages, the exit status is what it is otherwise.
#[test]
fn messages_that_nobody_takes_change_nothing() {
    let Some(place) = place() else { return };
    add_wrong_ones(&place);
    for (line, expected) in [
        ("casemate nonsense", 2),
        ("casemate ext4 ls none", 2),
        ("casemate ext4 ls none --json", 2),
        ("casemate ext4 cat -h root.img", 2),
        ("casemate ext4 check damaged -v", 1),
        ("casemate fsverity check digests", 1),
        ("casemate crypt decrypt root.enc plain --key-file disk.key --progress-json", 0),
        ("cryptsetup nonsense", 1),
        ("cryptsetup open --test-passphrase volume --key-file f", 2),
        ("fsverity nonsense", 2),
        ("integritysetup nonsense", 1),
        ("mke2fs -V", 0),
        ("mke2fs --nonsense", 1),
        ("e2fsck -V", 0),
        ("e2fsck none", 8),
        ("veritysetup nonsense", 1),
        ("veritysetup dump none", 4),
        ("mount.casemate none none", 32),
    ] {
        for full in [false, true] {
            let sink: Stdio = match full {
                true => File::create("/dev/full").unwrap().into(),
                false => closed_pipe().into(),
            };
            let output = run_any(line_of(&place, line).stderr(sink));
            assert_eq!(status(&output), expected, "{line}, full: {full}");
        }
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
        (
            "verity sign 00000000000000000000000000000000 root.sig",
            "use --cert, and --signing-key for the private key",
        ),
    ] {
        let output = place.is(line, 2, said);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.starts_with("casemate: ") && !stderr.contains("os error"), "{line}: {stderr}");
        assert!(output.stdout.is_empty(), "{line}");
    }
    let long = format!("serve --socket /tmp/{} root.img", "x".repeat(200));
    place.is(&long, 2, "a Unix socket has at most 107 bytes");
}

/// A word that is no command is answered with what does it, or with a name that a slip of the finger explains, and never
/// with a command that destroys something.
#[test]
fn no_command_that_destroys_is_proposed() {
    let Some(place) = place() else { return };
    for (line, said) in [
        ("luks resume root.img", "did you mean: casemate luks reencrypt --resume-only"),
        ("luks continue root.img", "did you mean: casemate luks reencrypt --resume-only"),
        ("luks status root.img", "did you mean: casemate info, casemate luks dump"),
        ("luks delete root.img", "casemate luks remove-key for a passphrase"),
        ("luks dunp root.img", "a similar subcommand exists: 'dump'"),
        ("ext4 extract root.img --pth /", "a similar argument exists: '--path'"),
    ] {
        place.is(line, 2, said);
    }
    for (line, said) in [
        ("ext4 build new.img tree", "'--from tree' takes it"),
        ("luks add-key root.img new.key", "'--new-key-file new.key' takes it"),
    ] {
        place.is(line, 2, said);
    }
    // Where -h has another meaning it is help, too, if nothing else is said.
    for command in ["ls", "df", "du"] {
        let help = place.is(&format!("ext4 {command} -h"), 0, "");
        assert_eq!(help.stdout, place.is(&format!("ext4 {command} --help"), 0, "").stdout);
    }
    for line in [
        "luks erasse root.img",
        "luks reraise root.img",
        "luks kil-slot root.img",
        "luks remov-key root.img",
        "luks fromat root.img",
        "luks header-restor root.img",
        "integrity formt root.img",
        "verity fromat root.img",
        "ext4 rn root.img",
        "ext4 truncat3 root.img",
        "ext4 extract --to out root.img",
    ] {
        let output = place.is(line, 2, "");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("similar") && !stderr.contains("--sector-size"), "{line}: {stderr}");
        assert!(!stderr.contains("\n\n\n"), "{line}: {stderr}");
    }
}

/// A slip of the finger that names an input as the output is told, and costs nothing.
#[test]
fn what_is_read_is_not_replaced() {
    let Some(place) = place() else { return };
    place.is("integrity format tagged --size 8M -I hmac-sha256 --integrity-key-file disk.key", 0, "");
    place.is("integrity format plain --size 8M", 0, "");
    place.is(
        "luks format vault --size 20M --key-file disk.key --pbkdf pbkdf2 --pbkdf-force-iterations 1000",
        0,
        "",
    );
    place.file("policy", place.yes("luks check vault --print-policy"));
    place.file("mac", "the key of a code");
    for name in ["root.img", "root.hash", "f", "key.pem", "root.enc", "root.txt", "disk.key", "policy"] {
        fs::hard_link(place.path(name), place.path(format!("{name}.other"))).unwrap();
    }
    let root = fs::read_to_string(place.path("root.txt")).unwrap();
    let names =
        ["root.img", "root.hash", "f", "key.pem", "root.enc", "root.txt", "disk.key", "policy", "mac"];
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
        // Keys and policies are read, too, whatever layer they are of.
        "integrity extract tagged disk.key.other -I hmac-sha256 --integrity-key-file disk.key",
        "integrity extract plain disk.key --journal-integrity hmac-sha256 --journal-integrity-key-file disk.key",
        "integrity format disk.key --integrity-key-file disk.key -I hmac-sha256 --overwrite",
        "luks extract vault policy.other --luks-policy policy --key-file disk.key",
        "luks extract vault mac --luks-policy policy --mac-key-file mac --key-file disk.key",
        "luks dump-volume-key vault disk.key --key-file disk.key --batch-mode",
        "serve vault --luks --key-file disk.key --pid-file disk.key --exec true",
        "serve root.enc --crypt --key-file disk.key --key-size 512 --pid-file disk.key.other --exec true",
        "ext4 extract root.enc --crypt --key-file disk.key --key-size 512 --tar disk.key",
        "info root.enc --crypt --key-file disk.key --key-size 512 --html disk.key",
        // Paths behind something else.
        "ext4 extract root.img --tar disk.key --fscrypt-key disk.key.other",
        "ext4 extract root.img --tar disk.key --fscrypt-key 0123456789abcdef:disk.key",
        "ext4 extract root.img disk.key --path /etc/hostname --overwrite --fscrypt-key disk.key",
        "ext4 extract root.img --dm-verity root.hash @root.txt --tar root.txt.other",
        "verity sign @root.txt root.txt --signing-key key.pem --cert cert.pem",
        // Lists of what was made, in the folder that it was made of.
        "ext4 build new.img --from . --verity --manifest f",
        "ext4 build new.img --from . --dm-verity root.hash.other",
        "ext4 build new.img --from . --dm-verity append --root-hash-file f.other",
    ] {
        place.is(line, 2, "casemate: ");
        for (name, before) in names.iter().zip(&before) {
            assert!(fs::read(place.path(name)).unwrap() == *before, "{line}: {name}");
        }
    }
    place.is("info --html root.img.other root.img", 2, "this would replace root.img");
    // Names of new files that read as parts of an image.
    for line in [
        "luks extract vault root.img,partition=2 --key-file disk.key",
        "rescue root.img root.img,offset=1M",
        "verity format root.img new.hash --fec-device root.img,offset=4M",
        "verity sign @root.txt root.img,offset=4M --signing-key key.pem --cert cert.pem",
    ] {
        place.is(line, 2, "takes the name of a file, not a specification of root.img");
    }
}

/// Standard output may lead to a file that is read, as `>>` and `1<>` have it: what is written would be read in its turn, or take the
/// place of what is still to be read.
#[test]
fn standard_output_is_not_an_input() {
    let Some(place) = place() else { return };
    place.is("integrity format volume --size 8M --from f", 0, "");
    place.is("verity format root.img new.hash", 0, "");
    fs::create_dir(place.path("folder")).unwrap();
    place.file("folder/new", "");
    fs::hard_link(place.path("f"), place.path("f.other")).unwrap();
    let key = "--key-file disk.key --key-size 512";
    let luks = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    place.is(&format!("luks format vault --size 20M --key-file disk.key {luks}"), 0, "");
    let before = |name: &str| fs::read(place.path(name)).unwrap();
    for (line, file) in [
        (format!("crypt encrypt f - {key}"), "f"),
        (format!("crypt encrypt f - {key}"), "f.other"),
        (format!("crypt decrypt root.enc - {key}"), "root.enc"),
        (format!("crypt encrypt f - {key}"), "disk.key"),
        (format!("crypt encrypt - - {key} <f"), "f"),
        ("integrity extract volume -".to_owned(), "volume"),
        ("luks extract vault - --key-file disk.key".to_owned(), "vault"),
        (format!("luks format --from f - --key-file disk.key {luks}"), "f"),
        ("rescue root.img -".to_owned(), "root.img"),
        ("ext4 extract root.img --tar -".to_owned(), "root.img"),
        ("ext4 cat root.img /etc/hostname".to_owned(), "root.img"),
        ("ext4 build - --from folder".to_owned(), "folder/new"),
        ("fscrypt backup root.img / -".to_owned(), "root.img"),
    ] {
        for redirection in [">>", "1<>"] {
            let contents = before(file);
            let mut shell = std::process::Command::new("sh");
            // A failure must not fill the disk.
            let script =
                format!("ulimit -f 131072; {} {line} {redirection}{file}", env!("CARGO_BIN_EXE_casemate"));
            let output = run_any(shell.args(["-c", &script]).current_dir(place.folder()));
            let said = stderr(&output);
            assert!(before(file) == contents, "{line} {redirection}{file}: it was changed");
            assert_eq!(status(&output), 2, "{line} {redirection}{file}: {said}");
            assert!(said.contains("/dev/stdout: this would replace"), "{line} {redirection}{file}: {said}");
        }
    }
    // Another file may be appended to.
    place.sh(&format!("{} crypt encrypt root.img - {key} >>folder/new", env!("CARGO_BIN_EXE_casemate")));
    assert_eq!(before("folder/new").len(), before("root.img").len());
}

/// A key, a list or data may come from standard input: no output takes the place of its file.
#[test]
fn standard_input_is_not_an_output() {
    let Some(place) = place() else { return };
    place.file("f", casemate_testkit::Rng::new(5).bytes(4096));
    let before = fs::read(place.path("f")).unwrap();
    fs::hard_link(place.path("f"), place.path("f.other")).unwrap();
    for line in [
        "fsverity digest - --out-merkle-tree f",
        "fsverity digest - --out-descriptor f.other",
        "crypt encrypt root.img f --key-file - --overwrite",
        "integrity format f --from - --overwrite",
        "luks format f --size 20M --overwrite --key-file - --pbkdf pbkdf2 --pbkdf-force-iterations 1000",
    ] {
        let mut shell = std::process::Command::new("sh");
        let script = format!("{} {line} <f", env!("CARGO_BIN_EXE_casemate"));
        let output = run_any(shell.args(["-c", &script]).current_dir(place.folder()));
        let said = stderr(&output);
        assert!(fs::read(place.path("f")).unwrap() == before, "{line}: it was changed");
        assert_eq!(status(&output), 2, "{line}: {said}");
        assert!(said.contains("standard input is this file"), "{line}: {said}");
    }
}

/// A key may come through any descriptor, whose file has any name: no output takes the place of that file, nor is anything added to
/// it.
#[cfg(target_os = "linux")]
#[test]
fn the_file_of_a_descriptor_is_not_an_output() {
    let Some(place) = place() else { return };
    let cheap = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    place.is(&format!("luks format vault --size 20M --key-file disk.key {cheap}"), 0, "");
    fs::hard_link(place.path("disk.key"), place.path("another")).unwrap();
    place.is("ext4 put root.img f /key", 0, "");
    place.is("crypt encrypt root.img tree.enc --key-file disk.key --key-size 512", 0, "");
    fs::create_dir(place.path("out")).unwrap();
    fs::hard_link(place.path("disk.key"), place.path("out/key")).unwrap();
    let (before, image) = (fs::read(place.path("disk.key")).unwrap(), fs::read(place.path("vault")).unwrap());
    let serve = "--exec true";
    for line in [
        "luks extract vault disk.key --key-fd 7".to_owned(),
        "luks extract vault another --key-fd 7".to_owned(),
        "luks extract vault,luks,key-fd=7 disk.key".to_owned(),
        "luks extract vault plain --key-fd 7 --map disk.key --keep-going".to_owned(),
        "rescue vault,luks,key-fd=7 disk.key".to_owned(),
        "rescue vault,luks,key-fd=7 plain --map another".to_owned(),
        "crypt encrypt f disk.key --key-fd 7 --key-size 512".to_owned(),
        "crypt encrypt f another,offset=0 --overwrite --key-fd 7 --key-size 512".to_owned(),
        format!("luks format new --size 20M --luks-header disk.key --key-fd 7 {cheap}"),
        format!("luks format disk.key --size 20M --overwrite --key-fd 7 {cheap}"),
        "luks dump-volume-key vault disk.key --key-fd 7 --batch-mode".to_owned(),
        format!("ext4 build disk.key --from folder --luks --key-fd 7 {cheap}"),
        format!("ext4 build new --from folder --luks --key-fd 7 {cheap} --dm-verity disk.key"),
        "info vault --luks --key-fd 7 --html disk.key".to_owned(),
        // Messages are added, and the number of a process is written.
        format!("serve vault,luks,key-fd=7 --log disk.key {serve}"),
        format!("serve vault --luks --key-fd 7 --log another {serve}"),
        format!("serve --export a=vault,luks,key-fd=7 --log disk.key {serve}"),
        format!("serve vault,luks,key-fd=7 --pid-file disk.key {serve}"),
        format!("serve vault,luks,key-fd=7 --overlay disk.key {serve}"),
        // Standard input is a descriptor, too.
        format!("serve vault,luks,key-file=- --log disk.key {serve} <disk.key"),
        format!("serve vault --luks --key-file - --log another {serve} <disk.key"),
        format!("serve vault,luks,key-file=- --pid-file disk.key {serve} <disk.key"),
        "rescue vault,luks,key-file=- plain --map disk.key <disk.key".to_owned(),
        "info vault --luks --key-file - --html disk.key <disk.key".to_owned(),
        // What is unpacked has names of its own, and standard output leads anywhere.
        "ext4 extract tree.enc,crypt=aes-xts-plain64,key-fd=7,key-size=512 out --overwrite".to_owned(),
        "info vault --luks --key-fd 7 >>disk.key".to_owned(),
        "luks extract vault - --key-fd 7 1<>another".to_owned(),
    ] {
        let _ = fs::create_dir(place.path("folder"));
        let mut shell = std::process::Command::new("sh");
        let script = format!("{} {line} 7<disk.key", env!("CARGO_BIN_EXE_casemate"));
        let output = run_any(shell.args(["-c", &script]).current_dir(place.folder()));
        let said = stderr(&output);
        assert!(fs::read(place.path("disk.key")).unwrap() == before, "{line}: the key was changed");
        assert!(fs::read(place.path("another")).unwrap() == before, "{line}: the key was replaced");
        assert!(fs::read(place.path("out/key")).unwrap() == before, "{line}: the key was unpacked over");
        assert!(fs::read(place.path("vault")).unwrap() == image, "{line}: the image was changed");
        assert_eq!(status(&output), 2, "{line}: {said}");
        let reasons = ["is this file", "would replace", "not a PID file", "is read by this command"];
        assert!(reasons.iter().any(|reason| said.contains(reason)), "{line}: {said}");
    }
    // Another file is free, and a pipe is nobody's.
    let program = env!("CARGO_BIN_EXE_casemate");
    place.sh(&format!("{program} luks extract vault plain --key-fd 7 7<disk.key"));
    place.sh(&format!("cat disk.key | {program} luks extract vault another --key-file - --overwrite"));
}

/// Text is printed into no file that the command reads: at its end it would be a part of the image, at its beginning a header is lost.
#[test]
fn text_is_not_printed_into_an_input() {
    let Some(place) = place() else { return };
    let cheap = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    place.is(&format!("luks format vault --size 20M --key-file disk.key {cheap}"), 0, "");
    place.is("luks format head-less --size 20M --luks-header head --key-file disk.key --pbkdf pbkdf2 --pbkdf-force-iterations 1000", 0, "");
    fs::hard_link(place.path("root.img"), place.path("root.other")).unwrap();
    place.file("list", "f\n");
    place.file("sums", place.yes("fsverity digest f"));
    let program = env!("CARGO_BIN_EXE_casemate");
    for (line, file) in [
        ("luks dump vault", "vault"),
        ("luks check vault --print-policy", "vault"),
        ("luks check head-less --luks-header head --print-policy", "head"),
        ("luks uuid vault", "vault"),
        ("info vault", "vault"),
        ("info vault --json", "vault"),
        #[cfg(target_os = "linux")]
        ("serve vault -r --fork --socket s", "vault"),
        ("ext4 ls root.img /", "root.img"),
        ("ext4 ls root.img /", "root.other"),
        ("ext4 ls root.img,ext4 /", "root.img"),
        ("ext4 check root.img", "root.img"),
        ("ext4 tree root.img", "root.img"),
        ("ext4 du root.img", "root.img"),
        ("ext4 stat root.img /etc", "root.img"),
        ("ext4 find root.img", "root.img"),
        ("verity dump root.hash", "root.hash"),
        ("verity verify root.img root.hash @root.txt --json", "root.txt"),
        ("fsverity digest f", "f"),
        // The first lines are printed before the last file is read.
        ("fsverity digest root.txt list f", "f"),
        ("fsverity digest - <f", "f"),
        ("info vault --luks --key-file disk.key", "disk.key"),
        // No argument names it.
        ("fsverity check sums", "f"),
    ] {
        for redirection in [">>", "1<>"] {
            let before = fs::read(place.path(file)).unwrap();
            let mut shell = std::process::Command::new("sh");
            let script = format!("{program} {line} {redirection}{file}");
            let output = run_any(shell.args(["-c", &script]).current_dir(place.folder()));
            let said = stderr(&output);
            assert!(fs::read(place.path(file)).unwrap() == before, "{script}: it was changed");
            assert_eq!(status(&output), 2, "{script}: {said}");
            assert!(said.contains("/dev/stdout") && said.contains("this would replace"), "{script}: {said}");
        }
    }
    // So it is where the command has the name and the words of another tool.
    for (tool, words, file) in [
        ("cryptsetup", "luksDump vault", "vault"),
        ("tune2fs", "-l root.img", "root.img"),
        ("e2fsck", "-fn root.img", "root.img"),
        ("veritysetup", "dump root.hash", "root.hash"),
        ("fsverity", "digest root.txt f", "f"),
    ] {
        let before = fs::read(place.path(file)).unwrap();
        let script = format!("{} {words} >>{file}", place.link(tool).display());
        let output =
            run_any(std::process::Command::new("sh").args(["-c", &script]).current_dir(place.folder()));
        let said = stderr(&output);
        assert!(fs::read(place.path(file)).unwrap() == before, "{script}: it was changed");
        assert!(status(&output) != 0 && said.contains("this would replace"), "{script}: {said}");
    }
    // What prints nothing may read it, what is an output takes messages of the same kind, and a list of files may have its own
    // name.
    for script in [
        "{} ext4 put root.img list /list >>list",
        "{} serve root.img --exec true --log log >>log",
        "{} fsverity digest f root.txt >>digests && {} fsverity digest f >>digests",
        "{} fsverity digest f digests >digests",
    ] {
        place.sh(&script.replace("{}", program));
    }
}

/// Names in an image are its maker's choice: they are not those of the files that the command reads.
#[test]
fn a_tree_replaces_none_of_the_files_that_it_is_read_from() {
    let Some(place) = place() else { return };
    fs::create_dir_all(place.path("inner/secret")).unwrap();
    let names = ["tree.img", "tree.key", "tree.hash", "tree.txt"];
    for name in names {
        fs::write(place.path("inner").join(name), "another").unwrap();
    }
    fs::write(place.path("tree.key"), [7; 64]).unwrap();
    place.is(
        "ext4 build tree.img --from inner --encrypt secret=tree.key --dm-verity tree.hash --root-hash-file tree.txt",
        0,
        "",
    );
    let before = names.map(|name| fs::read(place.path(name)).unwrap());
    for line in [
        "ext4 extract --overwrite --fscrypt-key tree.key tree.img --dm-verity tree.hash @tree.txt .",
        "ext4 extract --overwrite tree.img,verity,hash-device=tree.hash,root-hash=@tree.txt,ext4,fscrypt-key=tree.key .",
    ] {
        place.is(line, 2, "/tree.key: the host's file is read by this command");
    }
    for (name, before) in names.iter().zip(&before) {
        assert!(fs::read(place.path(name)).unwrap() == *before, "{name}");
    }
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
        (
            format!("verity verify root.img root.hash {root}"),
            "casemate: root.img: verified, 2048 data blocks\n",
        ),
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
    // A note is not a result: --quiet drops it.
    let short = "crypt decrypt root.enc plain --overwrite --key-file disk.key";
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

/// Names and labels in an image are anybody's text: on a terminal none of it moves the cursor, or looks like a line of ours.
#[test]
fn no_text_of_an_image_steers_a_terminal() {
    let Some(place) = place() else { return };
    let (Some(script), Some(_)) = (tool("script"), tool("tune2fs")) else { return };
    let evil = "\x1b[31mred\u{9b}2J\u{202e}x";
    place.sh(&format!(
        "tune2fs -L '\x1b[2J\nstate:' root.img >&2; mkdir -p 'tree/{evil}'; echo > 'tree/{evil}/f'"
    ));
    fs::copy(place.path("root.img"), place.path("plain.img")).unwrap();
    place.is("ext4 mkdir plain.img /tree", 0, "");
    place.is("ext4 put -r root.img tree /", 0, "");
    place.file("name", evil);
    for line in [
        "info root.img",
        "info --json root.img",
        "ext4 info root.img",
        "ext4 info --json root.img",
        "ext4 ls -l root.img /tree",
        "ext4 ls --json root.img /tree",
        "ext4 find root.img /",
        "ext4 tree root.img",
        "ext4 du -a root.img",
        "ext4 stat root.img \"/tree/$(cat name)\"",
        "ext4 digest --tree root.img",
        "ext4 diff root.img plain.img",
        "ext4 diff --json root.img plain.img",
        // Errors and notes.
        "ext4 cat root.img \"/tree/$(cat name)\"",
        "ext4 cat --json root.img \"/tree/$(cat name)\"",
        "ext4 rm root.img \"/tree/$(cat name)\"",
        "ext4 ls \"$(cat name)\"",
        "info \"$(cat name)\"",
    ] {
        let mut command = Command::new(&script);
        command.args(["-qec", &format!("{CASEMATE} {line}"), "/dev/null"]).current_dir(place.folder());
        let output = command.stdin(Stdio::null()).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(!shown.contains(['\x1b', '\u{9b}', '\u{202e}']), "{line}: {shown:?}");
        assert!(shown.contains("red") || line.contains("info"), "{line}: {shown:?}");
        assert!(!shown.contains("\nstate:\r"), "{line}: {shown:?}");
    }
    // Into a pipe names are printed raw, as ls does, and labels are not lines.
    assert!(place.yes("ext4 ls root.img /tree").contains(evil));
    assert_eq!(place.yes("ext4 info root.img").lines().filter(|line| line.starts_with("state:")).count(), 1);
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
