//! The base64 commands, beside coreutils' base64.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use casemate_testkit::{Rng, run_any, stderr, tempdir, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// Runs `program` with `input` as its standard input.
fn piped(program: &str, args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(program);
    let command = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A reader that has seen enough closes its end.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    })
}

fn casemate(args: &[&str], input: &[u8]) -> Output {
    piped(CASEMATE, &[&["base64"], args].concat(), input)
}

#[test]
fn texts_are_those_of_coreutils() {
    let Some(base64) = tool("base64") else { return };
    let base64 = base64.to_str().unwrap();
    let mut rng = Rng::new(6);
    let mut lengths: Vec<usize> = (0..70).collect();
    lengths.extend([4096, 98_303, 98_304, 98_305, 300_000, 5_000_001]);
    for len in lengths {
        let data = rng.bytes(len);
        for wrap in ["76", "0", "1", "9"] {
            if wrap != "76" && len > 100_000 {
                continue;
            }
            let expected = piped(base64, &["-w", wrap], &data).stdout;
            let text = casemate(&["encode", "--wrap", wrap], &data).stdout;
            assert!(text == expected, "{len} bytes, {wrap} columns");
            assert!(casemate(&["decode"], &text).stdout == data, "{len} bytes, {wrap} columns");
        }
        assert!(piped(base64, &["-d"], &casemate(&["encode"], &data).stdout).stdout == data);
    }
}

#[test]
fn files_variants_and_alphabets() {
    let folder = tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [plain, coded, back] = ["plain", "coded", "back"].map(path);
    std::fs::write(&plain, b"\xfb\xff\xfe!").unwrap();
    // '!' has the value 63, '"' 62, and so on, '=' left out.
    let custom: String = ('!'..='a').filter(|character| *character != '=').rev().collect();
    for (args, text) in [
        (&["--variant=standard"][..], "+//+IQ=="),
        (&["--variant=url-safe", "--no-padding"], "-__-IQ"),
        (&["--variant=imap", "--no-padding"], "+,,+IQ"),
        (&["--alphabet", &custom, "--no-padding"], "\"!!\"YQ"),
    ] {
        let encode = [&["encode", "--wrap=0"][..], args, &[&plain, "--output", &coded]].concat();
        let output = casemate(&encode, b"");
        assert!(output.status.success() && output.stdout.is_empty(), "{}", stderr(&output));
        assert_eq!(std::fs::read_to_string(&coded).unwrap(), text, "{args:?}");
        let decode = [&["decode", "--strict"][..], args, &[&coded, "-o", &back]].concat();
        assert!(casemate(&decode, b"").status.success());
        assert_eq!(std::fs::read(&back).unwrap(), b"\xfb\xff\xfe!");
    }
    for (alphabet, why) in [
        ("abc", "a base64 alphabet has 64 characters, not 3"),
        (&"a".repeat(64), "character 1 of the base64 alphabet has occurred before"),
        (&custom.replace('A', "\n"), "a line feed separates lines"),
    ] {
        let output = casemate(&["encode", "--alphabet", alphabet], b"");
        assert_eq!(
            (output.status.code(), stderr(&output)),
            (Some(2), format!("casemate: --alphabet: {why}\n"))
        );
    }
}

#[test]
fn wrong_texts_are_refused_with_position_and_cause() {
    for (args, text, expected) in [
        (&[][..], "Zm9v\nZm 9v", "byte 7 of the base64 text is not in the alphabet"),
        (&[], "Zg==\nZg==", "misplaced '=' at byte 2 of the base64 text"),
        (&[], "Zm9vZg\n", "the base64 text ends after 7 bytes in the middle of a group"),
        (&[], "Zm9v\nZh==\n", "byte 6, the last of the base64 text, has unused bits that are not zero"),
        (&["--strict"], "Zm9v\nZm9v", "byte 4 of the base64 text is not in the alphabet"),
        (&["--no-padding"], "Zg==", "misplaced '=' at byte 2 of the base64 text"),
        (&["--variant=url-safe"], "Zm+v", "byte 2 of the base64 text is not in the alphabet"),
    ] {
        let output = casemate(&[&["decode"][..], args].concat(), text.as_bytes());
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert_eq!(stderr(&output), format!("casemate: standard input: {expected}\n"), "{text}");
    }
    let folder = tempdir().unwrap();
    let target = folder.path().join("target");
    let output = casemate(&["decode", "-o", target.to_str().unwrap()], b"Zm9v*");
    assert!(output.status.code() == Some(2) && !target.exists());
    let output = run_any(Command::new(CASEMATE).args(["base64", "decode", "/nonexistent"]));
    assert_eq!(output.status.code(), Some(2));
}

/// A gigabyte of text would not fit into the memory that is allowed here.
#[test]
fn memory_is_bounded() {
    let Some(sh) = tool("sh") else { return };
    if !Path::new("/dev/zero").exists() {
        return casemate_testkit::skip("no /dev/zero");
    }
    let script = format!(
        "ulimit -v 200000; head -c 300000000 /dev/zero | {CASEMATE} base64 encode --threads=1 | \
         {CASEMATE} base64 decode --threads=1 | wc -c"
    );
    let output = run_any(Command::new(sh).args(["-c", &script]));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "300000000", "{}", stderr(&output));
}
