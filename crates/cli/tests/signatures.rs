//! Signing and verifying for both verities, run as a user runs them, beside OpenSSL and fsverity.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use casemate_testkit::{TempDir, run, tempdir, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");
const ROOT_HASH: &str = "4392712ba01368efdf14b05c76f9e4df0d53664630b5d48632ed17a137f39076";

/// A folder with a key, a certificate and another certificate.
fn place() -> TempDir {
    let folder = tempdir().unwrap();
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../verity/tests/fixtures/fs-verity/keys");
    for (from, to) in [
        ("rsa2048.key.pem", "key"),
        ("rsa2048.cert.pem", "cert"),
        ("ecp256.key.pem", "ec.key"),
        ("ecp256.cert.pem", "other"),
    ] {
        fs::copy(keys.join(from), folder.path().join(to)).unwrap();
    }
    folder
}

fn words(program: impl AsRef<std::ffi::OsStr>, folder: &TempDir, line: &str) -> Command {
    let mut command = Command::new(program);
    command.args(line.split_whitespace()).current_dir(folder.path());
    command
}

fn own(folder: &TempDir, line: &str) -> Output {
    words(CASEMATE, folder, line).output().unwrap()
}

fn status(output: &Output) -> (i32, String) {
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn signatures_of_rsa_keys_are_the_tools_byte_for_byte() {
    let Some(tool) = tool("fsverity") else { return };
    let folder = place();
    fs::write(folder.path().join("data"), vec![9; 70_000]).unwrap();
    for options in ["", "--hash-alg=sha512", "--block-size=1024 --salt=a1b2c3"] {
        let line = |out: &str| format!("sign data {out} --key=key --cert=cert {options}");
        let theirs = run(&mut words(&tool, &folder, &line("theirs")));
        let ours = own(&folder, &format!("fsverity {}", line("ours")));
        assert_eq!(status(&ours), (0, String::new()), "{options}");
        assert_eq!(String::from_utf8_lossy(&ours.stdout), theirs, "{options}");
        let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
        assert!(read("ours") == read("theirs"), "{options}");
        let verify = |cert: &str| {
            status(&own(&folder, &format!("fsverity verify-signature data theirs --cert={cert} {options}"))).0
        };
        assert_eq!((verify("cert"), verify("other"), verify("missing")), (0, 1, 2), "{options}");
    }
    let (code, said) = status(&own(&folder, "fsverity verify-signature ours data --cert=cert"));
    assert!(code == 2 && said.contains("ours: this is a signature; give the file that was signed"), "{said}");
    let (code, _) = status(&own(&folder, "fsverity verify-signature data ours --cert=cert"));
    assert_eq!(code, 1, "signed with another block size");
}

#[test]
fn what_openssl_signs_elsewhere_is_attached() {
    let Some(openssl) = tool("openssl") else { return };
    let folder = place();
    fs::write(folder.path().join("data"), b"data").unwrap();
    for (own_sign, verify) in [
        ("fsverity sign data".to_owned(), "fsverity verify-signature data".to_owned()),
        (format!("verity sign {ROOT_HASH}"), format!("verity verify-signature {ROOT_HASH}")),
    ] {
        let tbs = own(&folder, &format!("{own_sign} --print-tbs"));
        assert_eq!(status(&tbs), (0, String::new()), "{own_sign}");
        fs::write(folder.path().join("tbs"), &tbs.stdout).unwrap();
        run(&mut words(&openssl, &folder, "dgst -sha256 -sign key -out bare tbs"));
        let smime = "smime -sign -binary -noattr -in tbs -signer cert -inkey key -outform der -out made";
        run(&mut words(&openssl, &folder, smime));
        for source in ["--bare-signature=bare", "--signature=made", "--key=key"] {
            let made = own(&folder, &format!("{own_sign} out {source} --cert=cert"));
            assert_eq!(status(&made), (0, String::new()), "{own_sign} {source}");
            let verified = own(&folder, &format!("{verify} out --cert=cert"));
            assert_eq!(status(&verified), (0, String::new()), "{own_sign} {source}");
            assert_eq!(status(&own(&folder, &format!("{verify} out --cert=other"))).0, 1);
        }
        // Nothing that does not match is attached, and nothing is left of the attempt.
        fs::remove_file(folder.path().join("out")).unwrap();
        for source in ["--bare-signature=bare", "--signature=made", "--key=key"] {
            let (code, text) = status(&own(&folder, &format!("{own_sign} out {source} --cert=other")));
            assert_eq!(code, 2, "{own_sign} {source}: {text}");
            assert!(!folder.path().join("out").exists(), "{own_sign} {source}");
        }
        let (code, text) = status(&own(&folder, &format!("{own_sign} out --cert=cert")));
        assert!(code == 2 && text.contains("no private key"), "{text}");
    }
    let tbs = own(&folder, &format!("verity sign {ROOT_HASH} --print-tbs"));
    assert_eq!(tbs.stdout, ROOT_HASH.as_bytes(), "the hex digits, and no newline");
}

#[test]
fn a_verity_sig_partition_is_made_and_verified() {
    let folder = place();
    let made = own(&folder, &format!("verity sign {ROOT_HASH} part --key=key --cert=cert --systemd"));
    assert_eq!(status(&made), (0, String::new()));
    let bytes = fs::read(folder.path().join("part")).unwrap();
    assert_eq!(bytes.len(), 16384);
    let verify = |hash: &str, cert: &str| {
        status(&own(&folder, &format!("verity verify-signature {hash} part --cert={cert}"))).0
    };
    assert_eq!(verify(ROOT_HASH, "cert"), 0);
    assert_eq!(verify(ROOT_HASH, "other"), 1);
    assert_eq!(verify(&ROOT_HASH.replace('4', "5"), "cert"), 1);
}

/// Files beside a hash tree are named, with the commands that take them, and each command that needs no more runs.
#[test]
fn what_lies_beside_a_hash_tree_is_named() {
    let folder = place();
    let made = |line: &str| assert_eq!(status(&own(&folder, line)), (0, String::new()));
    made(&format!("verity sign {ROOT_HASH} object --key=key --cert=cert --systemd"));
    made(&format!("verity sign {ROOT_HASH} signature --key=key --cert=cert"));
    fs::write(folder.path().join("hash"), format!("{ROOT_HASH}\n")).unwrap();
    fs::write(folder.path().join("text"), format!("{ROOT_HASH} file\n")).unwrap();
    for (file, what, command) in [
        ("hash", "a root hash in hex", "verity verify IMAGE HASH_AREA --root-hash-file hash"),
        (
            "object",
            "a signed root hash",
            &format!("verity verify-signature {ROOT_HASH} object --cert CERTFILE"),
        ),
        (
            "signature",
            "a detached PKCS#7 signature",
            "verity verify-signature ROOT_HASH signature --cert CERTFILE",
        ),
    ] {
        let output = own(&folder, &format!("info {file}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(status(&output), (0, String::new()), "{text}");
        assert!(text.starts_with(&format!("{file}: {what}")), "{text}");
        assert!(text.contains(&format!("\n  $ casemate {command}\n")), "{text}");
        assert_eq!(text.contains(&format!("  root hash: {ROOT_HASH}\n")), file != "signature", "{text}");
        if file != "hash" {
            let line = command.replace("ROOT_HASH", ROOT_HASH).replace("CERTFILE", "cert");
            assert_eq!(status(&own(&folder, &line)).0, 0, "{line}");
        }
    }
    assert_eq!(status(&own(&folder, "info text")).0, 1);
}

#[test]
fn tokens_are_named_as_unsupported() {
    let folder = place();
    fs::write(folder.path().join("data"), b"data").unwrap();
    let (code, text) = status(&own(&folder, "fsverity sign data out --cert=cert --pkcs11-engine=e.so"));
    assert!(code == 2 && text.contains("--print-tbs"), "{text}");
}

/// Anybody can put a signer of any name before the one that signed.
#[test]
fn the_signer_that_was_verified_is_named() {
    let Some(openssl) = tool("openssl") else { return };
    let folder = place();
    fs::write(folder.path().join("tbs"), ROOT_HASH).unwrap();
    let request = "req -x509 -newkey rsa:2048 -nodes -days 9";
    for name in ["first", "second"] {
        run(&mut words(
            &openssl,
            &folder,
            &format!("{request} -keyout {name}.key -out {name}.pem -subj /CN={name}"),
        ));
    }
    let signers = "-inkey first.key -signer first.pem -inkey second.key -signer second.pem";
    run(&mut words(
        &openssl,
        &folder,
        &format!("smime -sign -noattr -binary -in tbs {signers} -outform der -out both"),
    ));
    for name in ["first", "second"] {
        let verified = own(&folder, &format!("verity verify-signature {ROOT_HASH} both --cert {name}.pem"));
        assert_eq!(status(&verified), (0, String::new()));
        let said = String::from_utf8(verified.stdout).unwrap();
        assert!(said.contains(&format!("by issuer 'CN={name}'")), "{said}");
    }
}
