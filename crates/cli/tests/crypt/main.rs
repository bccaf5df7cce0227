//! The crypt commands as a user runs them.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use casemate_testkit::{Place, Rng, TempDir, heeding_signals, run, stderr, tempdir, tool, wait_until};

#[cfg(target_os = "linux")]
mod unmarked;

const KEY: &[&str] = &["--key-file", "key", "--key-size", "512"];

/// A folder with a key and a plaintext image of `size` bytes.
fn folder(size: usize) -> TempDir {
    let folder = tempdir().unwrap();
    let mut rng = Rng::new(7);
    fs::write(folder.path().join("key"), rng.bytes(64)).unwrap();
    fs::write(folder.path().join("plain"), rng.bytes(size)).unwrap();
    folder
}

fn crypt(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
    command.current_dir(folder).arg("crypt").args(args).stdin(Stdio::null());
    command
}

fn with_key(folder: &Path, args: &[&str]) -> Command {
    let mut command = crypt(folder, args);
    command.args(KEY);
    command
}

fn failure(command: &mut Command, input: &[u8]) -> (i32, String) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that fails before it reads closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input);
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    (status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn files_streams_and_places_agree() {
    let folder = folder((1 << 20) + 512);
    let at = |name: &str| fs::read(folder.path().join(name)).unwrap();
    run(&mut with_key(folder.path(), &["encrypt", "plain", "cipher"]));
    assert_ne!(at("plain"), at("cipher"));
    run(&mut with_key(folder.path(), &["decrypt", "cipher", "back"]));
    assert!(at("back") == at("plain"));
    let mut stream = with_key(folder.path(), &["encrypt", "-", "-"]);
    let input = fs::File::open(folder.path().join("plain")).unwrap();
    let output = stream.stdin(input).output().unwrap();
    assert!(output.stdout == at("cipher"), "{}", String::from_utf8_lossy(&output.stderr));
    fs::copy(folder.path().join("plain"), folder.path().join("place")).unwrap();
    run(&mut with_key(folder.path(), &["encrypt", "--in-place", "place", "--hotzone-size", "65536"]));
    assert!(at("place") == at("cipher"));
    assert!(!folder.path().join("place.casemate-journal").exists());

    // The same mapping as a table line; the data after an offset.
    let line = run(&mut with_key(folder.path(), &["table", "cipher", "--show-key"]));
    fs::write(folder.path().join("table"), line).unwrap();
    run(&mut crypt(folder.path(), &["decrypt", "cipher", "back", "--table-file", "table"]));
    assert!(at("back") == at("plain"));
    run(&mut with_key(folder.path(), &["encrypt", "plain", "later", "-o", "24"]));
    assert!(at("later")[24 * 512..] == at("cipher"));
    run(&mut with_key(folder.path(), &["decrypt", "later", "back", "--crypt-offset", "12K"]));
    assert!(at("back") == at("plain"));
    let hidden = run(&mut with_key(folder.path(), &["table", "cipher"]));
    assert!(hidden.contains(&format!(" {} 0 cipher 0", "00".repeat(64))), "{hidden}");
}

#[test]
fn a_table_line_is_as_long_as_it_says() {
    let folder = folder(64 * 512);
    let at = |name: &str| fs::read(folder.path().join(name)).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    run(&mut with_key(folder.path(), &["encrypt", "plain", "cipher"]));
    let (plain, cipher) = (at("plain"), at("cipher"));
    let key: String = at("key").iter().map(|byte| format!("{byte:02x}")).collect();
    let table = |start: u64, sectors: u64, offset: u64, options: &str| {
        // An IV offset like the offset: each sector keeps its IV.
        format!("{start} {sectors} crypt aes-xts-plain64 {key} {offset} /dev/sda {offset} {options}\n")
    };
    // The 16 sectors from 8 on, whatever lies behind them.
    write("table", table(0, 16, 8, "").as_bytes());
    let mapped = 8 * 512..24 * 512;
    run(&mut crypt(folder.path(), &["decrypt", "cipher", "back", "--table-file", "table"]));
    assert!(at("back") == plain[mapped.clone()]);
    run(&mut crypt(folder.path(), &["decrypt", "--in-place", "cipher", "--table-file", "table"]));
    let mut expected = cipher.clone();
    expected[mapped.clone()].copy_from_slice(&plain[mapped]);
    assert!(at("cipher") == expected);
    write("table", table(0, 16, 0, "").as_bytes());
    let mut stream = crypt(folder.path(), &["decrypt", "-", "-", "--table-file", "table"]);
    write("cipher", &cipher);
    let output = stream.stdin(fs::File::open(folder.path().join("cipher")).unwrap()).output().unwrap();
    assert!(output.stdout == plain[..16 * 512], "{}", String::from_utf8_lossy(&output.stderr));
    write("half", &plain[..8 * 512]);
    run(&mut crypt(folder.path(), &["encrypt", "half", "back", "--table-file", "table"]));
    assert!(at("back") == cipher[..8 * 512]);

    let cases = [
        (table(8, 16, 0, ""), "decrypt", "cipher", "begins at sector 8"),
        (table(0, 0, 0, ""), "decrypt", "cipher", "a size of 0 sectors"),
        (table(0, 15, 0, "1 sector_size:4096"), "decrypt", "cipher", "whole sectors of 4096"),
        (table(0, 57, 8, ""), "decrypt", "cipher", "cipher: the mapping has 57 sectors"),
        (table(0, 57, 8, ""), "table", "cipher", "cipher: the mapping has 57 sectors"),
        (table(0, 16, 0, "") + &table(16, 16, 16, ""), "decrypt", "cipher", "several"),
        (table(0, 16, 0, ""), "encrypt", "plain", "plain: it has more data than the mapping's 16 sectors"),
        (table(0, 16, 0, ""), "encrypt", "-", "standard input: it has more data than the mapping's 16"),
        (table(0, 65, 0, ""), "decrypt", "-", "standard input: the mapping has 65 sectors"),
    ];
    for (table, action, source, why) in cases {
        write("table", table.as_bytes());
        let mut command = crypt(folder.path(), &[action, source]);
        command.args((action != "table").then_some("out")).args(["--table-file", "table"]);
        let (status, stderr) = failure(&mut command, &cipher);
        assert!(status == 2 && stderr.contains(why), "{why}: {status} {stderr}");
        assert!(!stderr.contains(&key) && !folder.path().join("out").exists(), "{why}: {stderr}");
    }
}

#[test]
fn passphrases_make_cryptsetups_keys() {
    let folder = folder(1 << 16);
    let args = ["encrypt", "plain", "cipher", "--hash", "sha256", "--key-size", "512"];
    let (status, stderr) = failure(&mut crypt(folder.path(), &args), b"battery staple\n");
    assert_eq!((status, &*stderr), (0, ""));
    let key = "11e2b7895e7b3dca8df8d0cf965fde793b82cd39242774277ca90d72d09bfd591e5b7cf53405e37057ee1111bbbb8339aa528ea\
               bc30b672399586b31fd6b50b7";
    fs::write(folder.path().join("table"), format!("0 128 crypt aes-xts-plain64 {key} 0 7:0 0\n")).unwrap();
    run(&mut crypt(folder.path(), &["decrypt", "cipher", "back", "--table-file", "table"]));
    assert_eq!(fs::read(folder.path().join("back")).unwrap(), fs::read(folder.path().join("plain")).unwrap());
}

/// Runs a shell command on a terminal, where each prompt that is expected gets its answer; gives all that was shown.
fn on_a_terminal(folder: &Path, line: &str, answers: &[(&str, &str)]) -> Option<String> {
    let mut command = Command::new(tool("script")?);
    command.args(["-qec", line, "/dev/null"]).current_dir(folder).env("SHELL", "/bin/sh");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut keyboard, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut shown, mut seen) = (Vec::new(), 0);
    for (prompt, answer) in answers {
        let is_there = |shown: &[u8]| shown.windows(prompt.len()).rposition(|part| part == prompt.as_bytes());
        seen = loop {
            if let Some(at) = is_there(&shown[seen..]) {
                break seen + at + prompt.len();
            }
            let mut piece = [0; 256];
            let len = screen.read(&mut piece).unwrap();
            assert!(len > 0, "{prompt} is not in {}", String::from_utf8_lossy(&shown));
            shown.extend(&piece[..len]);
        };
        keyboard.write_all(answer.as_bytes()).unwrap();
    }
    screen.read_to_end(&mut shown).unwrap();
    child.wait().unwrap();
    Some(String::from_utf8(shown).unwrap())
}

/// Once work has begun signals are noted, and a question ends by them all the same.
#[test]
fn an_interrupt_ends_a_question() {
    let folder = folder(4096);
    let casemate = env!("CARGO_BIN_EXE_casemate");
    // A squashfs of 1 MiB by its superblock, and data behind it.
    let mut bytes = vec![1; 8 << 20];
    bytes[..96].fill(0);
    bytes[..4].copy_from_slice(b"hsqs");
    bytes[28..30].copy_from_slice(&4_u16.to_le_bytes());
    bytes[40..48].copy_from_slice(&(1_u64 << 20).to_le_bytes());
    fs::write(folder.path().join("disk"), &bytes).unwrap();
    let line = format!(
        "trap : INT; {casemate} luks reencrypt disk --encrypt --key-file key --reduce-device-size 4M --pbkdf pbkdf2 \
         --pbkdf-force-iterations 1000; echo status $?"
    );
    let Some(shown) = on_a_terminal(folder.path(), &line, &[("in capital letters): ", "\x03")]) else {
        return;
    };
    assert!(shown.contains("status 130"), "{shown}");
    assert!(fs::read(folder.path().join("disk")).unwrap() == bytes);
}

#[test]
fn a_passphrase_that_encrypts_is_asked_for_twice() {
    let folder = folder(4096);
    let casemate = env!("CARGO_BIN_EXE_casemate");
    let at = |name: &str| folder.path().join(name);
    fs::copy(at("plain"), at("place")).unwrap();
    let first = ("Enter passphrase for plain: ", "secret\n");
    let encrypt = format!("{casemate} crypt encrypt plain cipher; echo status $?");
    let slip = [first, ("Verify passphrase: ", "sceret\n")];
    let Some(shown) = on_a_terminal(folder.path(), &encrypt, &slip) else { return };
    assert!(shown.contains("are not the same") && shown.contains("status 2"), "{shown}");
    assert!(!at("cipher").exists());
    let shown =
        on_a_terminal(folder.path(), &encrypt, &[first, ("Verify passphrase: ", "secret\n")]).unwrap();
    assert!(shown.contains("status 0") && !shown.contains("secret"), "{shown}");
    let place = encrypt.replace("plain cipher", "--in-place place");
    let twice = [("Enter passphrase for place: ", "secret\n"), ("Verify passphrase: ", "secret\n")];
    let shown = on_a_terminal(folder.path(), &place, &twice).unwrap();
    assert!(shown.contains("status 0"), "{shown}");
    assert!(fs::read(at("place")).unwrap() == fs::read(at("cipher")).unwrap());
    // What can be read shows whether it was right.
    let decrypt = format!("{casemate} crypt decrypt cipher back; echo status $?");
    let shown =
        on_a_terminal(folder.path(), &decrypt, &[("Enter passphrase for cipher: ", "secret\n")]).unwrap();
    assert!(shown.contains("status 0") && !shown.contains("Verify"), "{shown}");
    assert!(fs::read(at("back")).unwrap() == fs::read(at("plain")).unwrap());
}

#[test]
fn an_interrupt_at_the_prompt_brings_the_echo_back() {
    let folder = folder(4096);
    let line = format!(
        "trap : INT; {} crypt encrypt plain cipher; echo status $?; stty -a",
        env!("CARGO_BIN_EXE_casemate")
    );
    let interrupt = [("Enter passphrase for plain: ", "\u{3}")];
    let Some(shown) = on_a_terminal(folder.path(), &line, &interrupt) else { return };
    assert!(shown.contains("status 130"), "{shown}");
    assert!(shown.contains(" echo ") && !shown.contains("-echo "), "{shown}");
    assert!(!folder.path().join("cipher").exists());
}

/// Nothing else tells that the key was cut or is another one.
#[test]
fn what_may_be_wrong_with_a_key_is_mentioned() {
    let folder = folder(4096);
    let plain = [b"\x1f\x8b\x08".to_vec(), Rng::new(2).bytes(4093)].concat();
    fs::write(folder.path().join("plain"), plain).unwrap();
    fs::write(folder.path().join("long"), Rng::new(3).bytes(4096)).unwrap();
    let rest = "casemate: note: key has 64 bytes, 32 are used; use all of it as a key of 512 bits (--key-size 512)\n";
    let noise = "the decrypted data have no known signature: the key or its options may be wrong\n";
    for (line, said) in [
        ("encrypt plain cipher --key-file key", rest.to_owned()),
        ("decrypt cipher back --key-file key --key-size 256", String::new()),
        ("decrypt cipher back --key-file key", rest.to_owned()),
        (
            "decrypt cipher back --overwrite --key-file key --keyfile-offset 32",
            format!("casemate: note: back: {noise}"),
        ),
        ("decrypt cipher back --key-file key --key-size 512", format!("casemate: note: back: {noise}")),
        (
            "decrypt cipher back --key-file long",
            format!("casemate: note: long has 4096 bytes, 32 are used\ncasemate: note: back: {noise}"),
        ),
        (
            "decrypt --in-place cipher --key-file key --key-size 512",
            format!("casemate: note: cipher: {noise}"),
        ),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        assert_eq!(failure(&mut crypt(folder.path(), &args), b""), (0, said), "{line}");
    }
}

#[test]
fn holes_are_data_unless_said_otherwise() {
    let folder = folder(4096);
    let sparse = fs::File::create(folder.path().join("sparse")).unwrap();
    sparse.set_len(8 << 20).unwrap();
    run(&mut with_key(folder.path(), &["encrypt", "sparse", "full"]));
    assert!(fs::read(folder.path().join("full")).unwrap().chunks(512).all(|sector| sector != [0; 512]));
    run(&mut with_key(folder.path(), &["encrypt", "--sparse", "sparse", "kept"]));
    assert!(fs::read(folder.path().join("kept")).unwrap() == vec![0; 8 << 20]);
}

#[test]
fn bad_input_is_one_line_and_no_file() {
    let folder = folder(1000);
    fs::write(folder.path().join("equal"), [7; 64]).unwrap();
    fs::write(folder.path().join("whole"), [7; 1024]).unwrap();
    fs::write(folder.path().join("hex"), format!("0 {} crypt aes-xts-plain64 0 0", "2a".repeat(32))).unwrap();
    let key = ["--key-file", "key", "--key-size", "512"];
    let cases: &[(&[&str], &str)] = &[
        (&["plain", "out", key[0], key[1], key[2], key[3]], "not a multiple of the sector size 512"),
        (&["whole", "out", "--key-file", "key", "--key-size", "1024"], "has fewer than the 128 bytes"),
        (&["whole", "out", "--key-file", "none"], "none: No such file"),
        (&["whole", "out", "--key-file", "equal", "--key-size", "512"], "equal"),
        (
            &["whole", "out", "--key-file", "key", "--cipher", "rot13-xts-plain64"],
            "no implementation of 'xts(rot13)'; known are adiantum(",
        ),
        (&["whole", "out", "--key-file", "key", "--cipher", "aes-xts-random"], "dm-integrity"),
        (&["whole", "out", "--key-file", "key", "--key-size", "200"], "keys of 64 or 32 or 48 bytes"),
        (&["whole", "out", "--key-file", "key", "--sector-size", "1000"], "sector size 1000"),
        (&["whole", "out", "--key-file", "key", "-o", "36028797018963968"], "passes 2^64"),
        (&["none", "out", key[0], key[1], key[2], key[3]], "none: No such file"),
        (&["whole", "none/out", key[0], key[1], key[2], key[3]], "none/out: No such file"),
        (&["whole", "whole", key[0], key[1], key[2], key[3]], "transform it in place (--in-place)"),
        (
            &["whole", "out", "--key-file", "key", "--provider", "sha256-crate"],
            "but aes-xts-plain64 does not use it",
        ),
        (&["whole", "out", "--table-file", "key"], "not a table line"),
        (&["whole", "out", "--table-file", "hex"], "hex: table line: word 2, of 64 bytes, is not the size"),
        (&["whole", "out", "--key-file", "key", "--provider", "xts-aes-rocket"], "xts-aes-rocket"),
        (&["--in-place", "--resume", "whole", key[0], key[1], key[2], key[3]], "nothing to resume"),
        (&["-", "out", "--key-file", "-"], "standard input can't be both"),
    ];
    for (args, why) in cases {
        let mut command = crypt(folder.path(), &["encrypt"]);
        command.args(*args);
        let (status, stderr) = failure(&mut command, b"");
        assert_eq!((status, stderr.lines().count()), (2, 1), "{args:?}: {stderr}");
        assert!(stderr.contains(why), "{args:?}: {stderr}");
        assert!(!folder.path().join("out").exists(), "{args:?}");
    }
    let mut allowed =
        crypt(folder.path(), &["encrypt", "whole", "out", "--key-file", "equal", "--allow-equal-halves"]);
    run(allowed.args(["--key-size", "512"]));
    let mut part = with_key(folder.path(), &["encrypt", "-", "out2"]);
    let (status, stderr) = failure(&mut part, &[1; 700]);
    assert!(status == 2 && stderr.contains("188 bytes are left over"), "{stderr}");
    assert!(!folder.path().join("out2").exists());
}

/// A partition is encrypted and decrypted as a file of its own, and nothing beside it changes.
#[test]
fn a_partition_is_the_encrypted_side() {
    let Some(sfdisk) = tool("sfdisk") else { return };
    let folder = folder(1 << 20);
    let at = |name: &str| fs::read(folder.path().join(name)).unwrap();
    let parts = "printf 'label: gpt\\nstart=2048,size=2048\\nstart=4096,size=2048\\n'";
    let script = format!("truncate -s 4M disk; {parts} | {} -q disk", sfdisk.display());
    run(Command::new("sh").args(["-ec", &script]).current_dir(folder.path()));
    let mut expected = at("disk");
    run(&mut with_key(folder.path(), &["encrypt", "plain", "cipher"]));
    expected[2 << 20..3 << 20].copy_from_slice(&at("cipher"));
    run(&mut with_key(folder.path(), &["encrypt", "plain", "disk", "-P", "2"]));
    assert!(at("disk") == expected);
    run(&mut with_key(folder.path(), &["decrypt", "disk", "back", "--partition", "2"]));
    assert!(at("back") == at("plain"));
    run(&mut with_key(folder.path(), &["decrypt", "--in-place", "disk", "-P", "2"]));
    expected[2 << 20..3 << 20].copy_from_slice(&at("plain"));
    assert!(at("disk") == expected);

    // A specification says the place of either side, and layers below.
    run(&mut with_key(folder.path(), &["encrypt", "disk,partition=2", "cipher"]));
    for target in ["disk,partition=2", "disk,offset=2M,size=1M"] {
        run(&mut with_key(folder.path(), &["encrypt", "plain", target, "--overwrite"]));
        expected[2 << 20..3 << 20].copy_from_slice(&at("cipher"));
        assert!(at("disk") == expected, "{target}");
        fs::remove_file(folder.path().join("back")).unwrap();
        run(&mut with_key(folder.path(), &["decrypt", target, "back"]));
        assert!(at("back") == at("plain"), "{target}");
        run(&mut with_key(folder.path(), &["decrypt", "--in-place", target]));
        expected[2 << 20..3 << 20].copy_from_slice(&at("plain"));
        assert!(at("disk") == expected, "{target}");
    }
    let (status, stderr) =
        failure(&mut with_key(folder.path(), &["decrypt", "cipher", "disk,partition=2"]), b"");
    assert!(status == 2 && stderr.contains("contains data of no known kind"), "{stderr}");
    assert!(at("disk") == expected);
    run(&mut with_key(folder.path(), &["decrypt", "cipher", "disk,partition=2", "--overwrite"]));
    assert!(at("disk") == expected);

    // An offset alone reaches to the end of the disk, and to the table there.
    for (command, source) in [("encrypt", "plain"), ("decrypt", "cipher"), ("encrypt", "-")] {
        let mut overwriting = with_key(folder.path(), &[command, source, "disk,offset=2M", "--overwrite"]);
        let (status, stderr) = failure(&mut overwriting, &at("plain"));
        assert!(status == 2 && stderr.contains("partition 2 begins at offset 2097152"), "{stderr}");
        assert!(at("disk") == expected);
    }

    // With a stream on the other side.
    for source in ["disk,partition=2", "disk,offset=2M,size=1M"] {
        let output = with_key(folder.path(), &["encrypt", source, "-"]).output().unwrap();
        assert!(output.status.success() && output.stdout == at("cipher"), "{source}");
    }
    let (status, stderr) =
        failure(&mut with_key(folder.path(), &["encrypt", "-", "disk", "-P", "2"]), &at("plain"));
    assert!(status == 2 && stderr.contains("contains data of no known kind"), "{stderr}");
    assert!(at("disk") == expected);
    let mut into = with_key(folder.path(), &["encrypt", "-", "disk", "-P", "2", "--overwrite"]);
    assert_eq!(failure(&mut into, &at("plain")).0, 0);
    expected[2 << 20..3 << 20].copy_from_slice(&at("cipher"));
    assert!(at("disk") == expected);
    let output = with_key(folder.path(), &["decrypt", "disk,partition=2", "-"]).output().unwrap();
    assert!(output.status.success() && output.stdout == at("plain"));
    let mut into = with_key(folder.path(), &["decrypt", "-", "disk,partition=2", "--overwrite"]);
    let (status, stderr) = failure(&mut into, &at("cipher"));
    assert!(status == 0, "{stderr}");
    expected[2 << 20..3 << 20].copy_from_slice(&at("plain"));
    assert!(at("disk") == expected);
    // Behind the encrypted side's first sectors, and no byte behind the partition.
    let mut into =
        with_key(folder.path(), &["encrypt", "-", "disk", "-P", "2", "--overwrite", "--crypt-offset", "8s"]);
    let (status, stderr) = failure(&mut into, &at("plain"));
    assert!(status == 2 && stderr.contains("the data do not end before byte 1048576"), "{stderr}");
    let mut plain = expected[2 << 20..][..4096].to_vec();
    plain.extend(&at("cipher")[..(1 << 20) - 4096]);
    expected[2 << 20..3 << 20].copy_from_slice(&plain);
    assert!(at("disk") == expected);
    expected[2 << 20..3 << 20].copy_from_slice(&at("plain"));
    fs::write(folder.path().join("disk"), &expected).unwrap();

    // What is stopped goes on, with a journal for this partition.
    run(&mut with_key(folder.path(), &["encrypt", "--in-place", "disk", "-P", "2", "--journal", "other"]));
    for (args, said) in [
        (
            &["encrypt", "--in-place", "disk", "-P", "2", "--resume"][..],
            "disk.casemate-journal.2097152: no journal",
        ),
        (&["encrypt", "plain", "disk", "-P", "3"], "there is no partition 3; there are: 1, 2"),
        (&["decrypt", "disk", "disk", "-P", "2"], "source and target are the same file"),
        (&["encrypt", "disk,partition=1", "disk,partition=2"], "source and target are the same file"),
        (&["encrypt", "plain", "-", "-P", "2"], "a stream has none"),
        (&["decrypt", "-", "out", "-P", "2"], "a stream has none"),
        (&["decrypt", "disk,partition=2", "out", "-P", "2"], "give all of them in one place"),
        (&["decrypt", "disk,partition=2,crypt=aes-xts-plain64", "out"], "leave out the last 'crypt'"),
        (&["encrypt", "--in-place", "disk,integrity=crc32c"], "work in place can't go through 'integrity'"),
        (&["encrypt", "--in-place", "disk,partition=2,crypt=aes-xts-plain64"], "leave out the last 'crypt'"),
    ] {
        let (status, stderr) = failure(&mut with_key(folder.path(), args), b"");
        assert!(status == 2 && stderr.contains(said), "{args:?}: {stderr}");
    }
}

#[test]
fn work_in_place_survives_being_killed() {
    let folder = folder(3 << 20);
    let at = |name: &str| folder.path().join(name);
    run(&mut with_key(folder.path(), &["encrypt", "plain", "cipher"]));
    let expected = fs::read(at("cipher")).unwrap();
    let mut rng = Rng::new(99);
    let (mut kills, mut rounds, mut delay) = (0, 0, 20_000);
    while kills < 300 {
        fs::copy(at("plain"), at("image")).unwrap();
        loop {
            let resume = at("image.casemate-journal").exists();
            let mut command =
                with_key(folder.path(), &["encrypt", "--in-place", "image", "--hotzone-size", "32768"]);
            command.args(resume.then_some("--resume")).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            sleep(Duration::from_micros(rng.below(delay)));
            // SIGKILL; where the child was quicker there is nothing to kill.
            let _ = child.kill();
            let output = child.wait_with_output().unwrap();
            if output.status.success() {
                // Fast machines finish a round before they are killed often enough.
                delay = (delay * 3 / 4).max(1000);
                break;
            }
            let killed = output.status.code().is_none();
            let stderr = String::from_utf8_lossy(&output.stderr);
            if killed {
                kills += 1;
                delay += 300;
                // The journal is removed at the very end: without one the image is as before, or done.
                if !at("image.casemate-journal").exists() && fs::read(at("image")).unwrap() == expected {
                    break;
                }
            } else {
                panic!("a journal that is there is resumed: {stderr}");
            }
        }
        rounds += 1;
        assert!(fs::read(at("image")).unwrap() == expected, "round {rounds}, {kills} kills");
    }
}

#[test]
fn what_told_of_old_contents_behind_the_data_is_erased() {
    let folder = folder(1 << 20);
    let at = |name: &str| folder.path().join(name);
    let mut disk = vec![0; 4 << 20];
    let (array, table) = ((4 << 20) - 8192, (4 << 20) - 512);
    disk[array..array + 8].copy_from_slice(b"\xfc\x4e\x2b\xa9\x01\0\0\0");
    disk[table..table + 8].copy_from_slice(b"EFI PART");
    fs::write(at("disk"), &disk).unwrap();
    run(&mut with_key(folder.path(), &["encrypt", "plain", "disk", "--crypt-offset", "1M", "--overwrite"]));
    let disk = fs::read(at("disk")).unwrap();
    assert!(disk.len() == 4 << 20 && disk[..1 << 20].iter().all(|byte| *byte == 0));
    assert!(disk[2 << 20..].iter().all(|byte| *byte == 0));
    run(&mut with_key(folder.path(), &["decrypt", "disk", "back", "--crypt-offset", "1M"]));
    assert!(fs::read(at("back")).unwrap()[..1 << 20] == fs::read(at("plain")).unwrap());
}

/// Kills an encryption of `image` in place in the middle of its work.
fn half_encrypted(folder: &Path) {
    let at = |name: &str| folder.join(name);
    let journal = at("image.casemate-journal");
    loop {
        // A file of its own: a mark stays with the file.
        let _ = fs::remove_file(at("image"));
        fs::copy(at("plain"), at("image")).unwrap();
        let mut command = with_key(folder, &["encrypt", "--in-place", "image", "--hotzone-size", "65536"]);
        let mut child = command.args(["--cpu", "portable", "--threads", "1"]).spawn().unwrap();
        // The second hot zone is under way.
        let is_begun = || fs::metadata(&journal).is_ok_and(|journal| journal.len() > 8192 + 65536);
        wait_until(|| is_begun() || child.try_wait().unwrap().is_some());
        let _ = child.kill();
        // Where the child was quicker there is nothing half done.
        if !child.wait().unwrap().success() && journal.exists() {
            return;
        }
    }
}

/// Whether files in a folder may have extended attributes.
#[cfg(target_os = "linux")]
fn has_attributes(folder: &Path) -> bool {
    let key = folder.join("key");
    rustix::fs::setxattr(&key, "user.test", b"", rustix::fs::XattrFlags::empty()).is_ok()
}

/// Parts of one image may be alike, as two slots of one system are: work goes on where it was begun.
#[cfg(target_os = "linux")]
#[test]
fn work_on_a_part_is_not_gone_on_with_on_another() {
    let Some(strace) = casemate_testkit::tool("strace") else { return };
    let folder = folder(2 << 20);
    if !has_attributes(folder.path()) {
        return casemate_testkit::skip("this folder's file system has no extended attributes");
    }
    let at = |name: &str| folder.path().join(name);
    let part = fs::read(at("plain")).unwrap();
    fs::write(at("image"), [&part[..], &part].concat()).unwrap();
    let line = |start: &str, rest: &str| {
        format!(
            "{} crypt encrypt --in-place image,offset={start},size=2M --key-file key --overwrite --hotzone-size 64K {rest}",
            env!("CARGO_BIN_EXE_casemate")
        )
    };
    // The first hot zone is on its way.
    let mut killed = Command::new(strace);
    killed.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync"]);
    killed.args(["-e", "inject=fdatasync,fsync:signal=KILL:when=5"]).args(line("0", "").split_whitespace());
    assert!(!killed.current_dir(folder.path()).output().unwrap().status.success());
    let half = fs::read(at("image")).unwrap();
    let resume = |start: &str| {
        let (start, option) = start.split_once(' ').unwrap_or((start, ""));
        let line = line(start, &format!("--resume --journal image.casemate-journal {option}"));
        Command::new("sh").args(["-c", &line]).current_dir(folder.path()).output().unwrap()
    };
    for start in ["2M", "2M --dry-run"] {
        let other = resume(start);
        let said = String::from_utf8(other.stderr).unwrap();
        assert_eq!(other.status.code(), Some(2), "{said}");
        assert!(said.contains("begun on the part of it from byte 0 on, not 2097152"), "{said}");
        assert!(fs::read(at("image")).unwrap() == half);
    }
    assert!(resume("0").status.success());
    assert!(fs::read(at("image")).unwrap()[2 << 20..] == part);
}

/// Half of the image is encrypted. By whatever name it is found, nothing begins anew or reads it, and the work goes on.
#[cfg(target_os = "linux")]
#[test]
fn unfinished_work_is_known_by_every_name_of_the_image() {
    use std::os::unix::fs::symlink;
    let folder = folder(4 << 20);
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("run")).unwrap();
    symlink("image", at("soft")).unwrap();
    symlink("../soft", at("run/soft")).unwrap();
    run(&mut with_key(folder.path(), &["encrypt", "plain", "cipher"]));
    let expected = fs::read(at("cipher")).unwrap();
    half_encrypted(folder.path());
    let half = fs::read(at("image")).unwrap();
    let refused = |args: &[&str]| {
        let (status, stderr) = failure(&mut with_key(folder.path(), args), b"");
        assert_eq!(status, 2, "{args:?}: {stderr}");
        assert!(stderr.contains("image.casemate-journal"), "{args:?}: {stderr}");
        assert!(fs::read(at("image")).unwrap() == half, "{args:?}");
    };
    // These are found beside the image, everywhere.
    for name in ["image", "soft", "run/soft"] {
        refused(&["encrypt", "--in-place", name]);
    }
    if !has_attributes(folder.path()) {
        return casemate_testkit::skip("this folder's file system has no extended attributes");
    }
    fs::hard_link(at("image"), at("run/hard")).unwrap();
    for name in ["image", "soft", "run/soft", "run/hard"] {
        refused(&["encrypt", "--in-place", name, "--journal", "another"]);
        refused(&["encrypt", "--in-place", name, "--dry-run", "--journal", "another"]);
        refused(&["decrypt", "--in-place", name]);
        refused(&["decrypt", name, "out"]);
        refused(&["decrypt", name, "-"]);
        // Its other half may be in the journal alone, so nothing takes its name either.
        refused(&["encrypt", "plain", name]);
        refused(&["encrypt", "plain", name, "--overwrite"]);
        assert!(!at("another").exists() && !at("out").exists());
        // Nor is anything of another sort written there.
        for line in [
            "serve -r plain --exec true --log",
            "fsverity digest plain --out-merkle-tree",
            "info plain --html",
            "verity format plain",
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
            let output = command.current_dir(folder.path()).args(line.split(' ')).arg(name).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{line} {name}: {text}");
            assert!(text.contains("image.casemate-journal"), "{line} {name}: {text}");
            assert!(fs::read(at("image")).unwrap() == half, "{line} {name}");
        }
        let output = Command::new(env!("CARGO_BIN_EXE_casemate"))
            .current_dir(folder.path())
            .args(["info", name])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("an encryption in place was interrupted"), "{name}: {text}");
        assert_eq!(text.matches("casemate-journal").count(), 1, "{name}: {text}");
    }
    // It goes on after it was moved, and then nothing is left of the work.
    fs::remove_file(at("run/hard")).unwrap();
    fs::rename(at("image"), at("run/moved")).unwrap();
    run(&mut with_key(folder.path(), &["encrypt", "--in-place", "--resume", "run/moved"]));
    assert!(fs::read(at("run/moved")).unwrap() == expected);
    assert!(!at("image.casemate-journal").exists());
    run(&mut with_key(folder.path(), &["decrypt", "run/moved", "back"]));
    assert!(fs::read(at("back")).unwrap() == fs::read(at("plain")).unwrap());

    // Image and journal may both move; the name that the mark tells is of no use then.
    half_encrypted(folder.path());
    fs::rename(at("image"), at("run/image")).unwrap();
    fs::rename(at("image.casemate-journal"), at("run/image.casemate-journal")).unwrap();
    let (_, stderr) = failure(&mut with_key(folder.path(), &["decrypt", "run/image", "out"]), b"");
    assert!(stderr.contains("is not there any more"), "{stderr}");
    run(&mut with_key(folder.path(), &["encrypt", "--in-place", "--resume", "run/image"]));
    assert!(fs::read(at("run/image")).unwrap() == expected);
}

/// Sends SIGINT without a program that would have to be started first: the work may end meanwhile.
fn signal(child: &std::process::Child) {
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
}

/// Sends SIGINT and waits; gives exit status and standard error.
fn interrupt(child: std::process::Child) -> (Option<i32>, String) {
    signal(&child);
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn an_interrupt_leaves_nothing_that_looks_whole() {
    let folder = folder(48 << 20);
    let at = |name: &str| folder.path().join(name);
    let parts = || fs::read_dir(folder.path()).unwrap().count();
    // Portable code, so that there is time to interrupt.
    let slow = ["--cpu", "portable", "--threads", "1"];
    let mut file = heeding_signals(&with_key(folder.path(), &["encrypt", "plain", "out"]));
    let child = file.args(slow).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| parts() == 3);
    let (status, stderr) = interrupt(child);
    assert_eq!((status, &*stderr, parts()), (Some(130), "casemate: interrupted\n", 2));

    // A pipeline's first program ends at the same signal: the end of its output is not the end of an image.
    let mut stream = heeding_signals(&with_key(folder.path(), &["encrypt", "-", "out"]));
    let mut child = stream.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&[1; 1 << 20]).unwrap();
    wait_until(|| parts() == 3);
    signal(&child);
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), parts()), (Some(130), 2));

    fs::copy(at("plain"), at("image")).unwrap();
    run(&mut with_key(folder.path(), &["encrypt", "plain", "cipher"]));
    let in_place = ["encrypt", "--in-place", "image", "--hotzone-size", "1048576"];
    let mut place = heeding_signals(&with_key(folder.path(), &in_place));
    let child = place.args(slow).stderr(Stdio::piped()).spawn().unwrap();
    // The second hot zone is under way.
    wait_until(|| fs::metadata(at("image.casemate-journal")).is_ok_and(|journal| journal.len() > 2 << 20));
    let (status, stderr) = interrupt(child);
    assert_eq!(status, Some(130), "{stderr}");
    assert!(stderr.contains("stopped; resume it (--resume)"), "{stderr}");

    // What was stopped goes on elsewhere, but not with the image as it was, another key or another way.
    let (copy, journal) = (at("copy"), at("image.casemate-journal"));
    fs::copy(at("image"), &copy).unwrap();
    fs::copy(&journal, at("copy.casemate-journal")).unwrap();
    fs::copy(at("plain"), at("image")).unwrap();
    let before = fs::read(&journal).unwrap();
    let refused = |mut command: Command, why: &str| {
        let (status, stderr) = failure(command.arg("--resume"), b"");
        let errors = stderr.lines().filter(|line| !line.starts_with("casemate: note: ")).count();
        assert_eq!((status, errors, stderr.contains(why)), (2, 1, true), "{stderr}");
        assert!(fs::read(&journal).unwrap() == before);
        assert!(fs::read(at("image")).unwrap() == fs::read(at("plain")).unwrap());
    };
    refused(with_key(folder.path(), &in_place), "put back or changed since");
    refused(with_key(folder.path(), &["decrypt", "--in-place", "image"]), "belongs to an encryption");
    refused(crypt(folder.path(), &["encrypt", "--in-place", "image", "--key-file", "key"]), "not those");
    run(&mut with_key(folder.path(), &["encrypt", "--in-place", "--resume", "copy"]));
    assert!(fs::read(&copy).unwrap() == fs::read(at("cipher")).unwrap());
}

#[test]
fn what_can_not_be_ended_is_not_begun() {
    let folder = folder(1 << 16);
    let at = |name: &str| folder.path().join(name);
    let plain = fs::read(at("plain")).unwrap();
    let past_the_end = ["--skip", "18446744073709551560", "--hotzone-size", "4096"];
    for args in [&["--in-place", "plain"], &["plain", "old", "--overwrite", "--crypt-offset", "1s"][..]] {
        fs::write(at("old"), &plain).unwrap();
        let mut command = with_key(folder.path(), &["encrypt"]);
        command.args(args).args(&past_the_end[..if args.len() == 2 { 4 } else { 2 }]);
        let (status, stderr) = failure(&mut command, b"");
        assert_eq!((status, stderr.contains("pass 2^64")), (2, true), "{stderr}");
        assert!(fs::read(at("plain")).unwrap() == plain && fs::read(at("old")).unwrap()[..1 << 16] == plain);
    }
    assert!(!at("plain.casemate-journal").exists());
    let (status, stderr) =
        failure(&mut with_key(folder.path(), &["encrypt", "--in-place", "plain", "--journal", "plain"]), b"");
    assert_eq!((status, stderr.contains("can't be the image itself")), (2, true), "{stderr}");
}

#[test]
fn cryptsetup_names_are_taken() {
    // The options' names and defaults are cryptsetup's; its own help is the list.
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    let theirs = run(Command::new(cryptsetup).arg("--help"));
    for option in [
        "--cipher",
        "--key-size",
        "--key-file",
        "--keyfile-offset",
        "--hash",
        "--skip",
        "--sector-size",
        "--iv-large-sectors",
    ] {
        assert!(theirs.contains(option), "{option}");
        let ours = crypt(Path::new("/"), &["encrypt", option, "--nonsense"]).output().unwrap();
        let said = String::from_utf8_lossy(&ours.stderr);
        assert!(!said.contains(&format!("argument '{option}' found")), "{said}");
    }
}

#[test]
fn targets_and_journals_that_can_not_be_are_told_as_what_they_are() {
    let place = Place::new(env!("CARGO_BIN_EXE_casemate"));
    place.file("key", Vec::from_iter(0..64_u8));
    place.file("plain", vec![7; 2 << 20]);
    place.file("disk", vec![0; 1 << 20]);
    let own = |line: &str| place.own(&format!("crypt {line} --key-file key --key-size 512"));
    let output = own("encrypt plain disk,offset=512K");
    assert!(
        stderr(&output).contains("2097152 bytes are needed, and 524288 are there"),
        "{}",
        stderr(&output)
    );
    place.file("other", "precious");
    let output = own("encrypt --in-place plain --journal other");
    assert!(
        stderr(&output).contains("has the name of the journal, and is another file"),
        "{}",
        stderr(&output)
    );
    assert!(!stderr(&output).contains("resume"), "nothing was begun: {}", stderr(&output));
    assert!(place.read("other") == b"precious" && place.read("plain") == vec![7; 2 << 20]);
}
