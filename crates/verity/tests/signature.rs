//! Signatures against OpenSSL, in both directions, and against hostile bytes.

use casemate_blockdev::ErrorKind;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use casemate_providers::Providers;
use casemate_testkit::{Rng, TempDir, fixture, run, run_any, tempdir, tool};
use casemate_verity::signature::{
    Certificate, DigestAlgorithm, Signature, SigningKey, VeritySig, assemble, root_hash_bytes, sign,
};

const DIGESTS: [DigestAlgorithm; 3] =
    [DigestAlgorithm::Sha256, DigestAlgorithm::Sha384, DigestAlgorithm::Sha512];

/// A folder with keys and certificates in every form, made by OpenSSL.
struct Lab {
    openssl: PathBuf,
    folder: TempDir,
}

impl Lab {
    fn new() -> Option<Lab> {
        let openssl = tool("openssl")?;
        let lab = Lab { openssl, folder: tempdir().unwrap() };
        for name in ["rsa2048", "rsa4096", "ecp256"] {
            for kind in ["key", "cert"] {
                fs::copy(corpus(&format!("keys/{name}.{kind}.pem")), lab.path(&format!("{name}.{kind}")))
                    .unwrap();
            }
        }
        lab.openssl("ecparam -name secp384r1 -genkey -out ecp384.key");
        lab.openssl("req -x509 -new -key ecp384.key -subj /O=Casemate/CN=P-384 -days 9999 -out ecp384.cert");
        Some(lab)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.openssl);
        command.args(line.split_whitespace()).current_dir(self.folder.path());
        command
    }

    fn openssl(&self, line: &str) {
        run(&mut self.command(line));
    }

    fn key(&self, name: &str) -> SigningKey {
        SigningKey::from_pem(&self.read(&format!("{name}.key"))).unwrap()
    }

    fn certificate(&self, name: &str) -> Certificate {
        Certificate::from_bytes(&self.read(&format!("{name}.cert"))).unwrap()
    }
}

const NAMES: [&str; 4] = ["rsa2048", "rsa4096", "ecp256", "ecp384"];

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fs-verity").join(name)
}

#[test]
fn openssl_accepts_our_signatures() {
    let Some(lab) = Lab::new() else { return };
    let message = root_hash_bytes(&Rng::new(1).bytes(32));
    assert!(message.len() == 64 && message.iter().all(|c| b"0123456789abcdef".contains(c)));
    lab.write("message", &message);
    lab.write("other", b"another message");
    for name in NAMES {
        let (key, certificate) = (lab.key(name), lab.certificate(name));
        for digest in DIGESTS {
            let der = sign(&message, &key, &certificate, digest, &Providers::default()).unwrap();
            lab.write("sig", &der);
            let line = |program: &str, content: &str| {
                format!(
                    "{program} -verify -binary -inform der -in sig -content {content} -certfile {name}.cert \
                     -nointern -noverify -out /dev/null"
                )
            };
            for program in ["smime", "cms"] {
                let right = run_any(&mut lab.command(&line(program, "message")));
                assert!(right.status.success(), "{program} {name} {digest:?}: {right:?}");
                let wrong = run_any(&mut lab.command(&line(program, "other")));
                assert!(!wrong.status.success(), "{program} {name} {digest:?}");
            }
            let signature = Signature::from_bytes(&der).unwrap();
            signature.verify(&message, &certificate, &Providers::default()).unwrap();
            for other in NAMES.into_iter().filter(|other| *other != name) {
                let error =
                    signature.verify(&message, &lab.certificate(other), &Providers::default()).unwrap_err();
                assert!(error.kind() == ErrorKind::Mismatch, "{error}");
            }
        }
    }
}

/// Commands that people type to sign for the kernel, and the options that they forget.
#[test]
fn openssls_signatures_verify() {
    let Some(lab) = Lab::new() else { return };
    let message = b"4392712ba01368efdf14b05c76f9e4df0d53664630b5d48632ed17a137f39076";
    lab.write("message", message);
    for name in NAMES {
        let certificate = lab.certificate(name);
        for (line, format) in [
            ("smime -sign -nocerts -noattr", "der"),
            ("smime -sign -nocerts -noattr -md sha512", "der"),
            ("smime -sign -md sha384", "der"),
            ("smime -sign -nocerts -noattr", "pem"),
            ("cms -sign -nocerts -noattr", "der"),
            ("cms -sign -keyid -nocerts -noattr", "der"),
            ("cms -sign -keyid -md sha512", "pem"),
        ] {
            let what = format!("{line} -outform {format} {name}");
            lab.openssl(&format!(
                "{line} -binary -in message -signer {name}.cert -inkey {name}.key -outform {format} -out sig"
            ));
            let signature = Signature::from_bytes(&lab.read("sig")).unwrap_or_else(|e| panic!("{what}: {e}"));
            signature
                .verify(message, &certificate, &Providers::default())
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let wrong =
                signature.verify(b"another message", &certificate, &Providers::default()).unwrap_err();
            assert!(wrong.kind() == ErrorKind::Mismatch, "{what}: {wrong}");
            assert!(!signature.signer().is_empty());
        }
        lab.openssl(&format!(
            "smime -sign -nodetach -binary -in message -signer {name}.cert -inkey {name}.key -outform der -out sig"
        ));
        let error = Signature::from_bytes(&lab.read("sig")).unwrap_err();
        assert!(error.to_string().contains("data inside"), "{error}");
    }
}

/// A token signs bytes and knows nothing of PKCS#7.
#[test]
fn bare_signatures_get_their_structure() {
    let Some(lab) = Lab::new() else { return };
    lab.write("message", b"FSVerity...");
    for name in NAMES {
        let certificate = lab.certificate(name);
        lab.openssl(&format!("dgst -sha512 -sign {name}.key -out bare message"));
        let der = assemble(
            b"FSVerity...",
            &lab.read("bare"),
            &certificate,
            DigestAlgorithm::Sha512,
            &Providers::default(),
        )
        .unwrap();
        Signature::from_bytes(&der)
            .unwrap()
            .verify(b"FSVerity...", &certificate, &Providers::default())
            .unwrap();
        if name.starts_with("rsa") {
            // RSA leaves no choice: the same bytes as when the key is at hand.
            assert!(
                der == sign(
                    b"FSVerity...",
                    &lab.key(name),
                    &certificate,
                    DigestAlgorithm::Sha512,
                    &Providers::default()
                )
                .unwrap()
            );
        }
        let wrong = assemble(
            b"FSVerity...",
            &lab.read("bare"),
            &certificate,
            DigestAlgorithm::Sha256,
            &Providers::default(),
        );
        assert!(wrong.is_err_and(|error| error.kind() == ErrorKind::Mismatch));
    }
}

#[test]
fn keys_are_read_in_every_form() {
    let Some(lab) = Lab::new() else { return };
    for (name, forms) in [
        ("rsa2048", &["pkey -traditional", "pkcs8 -topk8 -nocrypt", "rsa"][..]),
        ("ecp256", &["pkey -traditional", "pkcs8 -topk8 -nocrypt", "ec"]),
        ("ecp384", &["pkey -traditional", "pkcs8 -topk8 -nocrypt", "ec"]),
    ] {
        let expected = sign(
            b"m",
            &lab.key(name),
            &lab.certificate(name),
            DigestAlgorithm::Sha256,
            &Providers::default(),
        )
        .unwrap();
        for form in forms {
            lab.openssl(&format!("{form} -in {name}.key -out form"));
            let key =
                SigningKey::from_pem(&lab.read("form")).unwrap_or_else(|e| panic!("{form} {name}: {e}"));
            let made =
                sign(b"m", &key, &lab.certificate(name), DigestAlgorithm::Sha256, &Providers::default())
                    .unwrap();
            assert!(made == expected, "{form} {name}: the nonce of ECDSA is deterministic here");
            // The certificate may stand in the same file, with its text.
            let both = [lab.read(&format!("{name}.cert")), b"text\n".to_vec(), lab.read("form")].concat();
            SigningKey::from_pem(&both).unwrap();
            Certificate::from_bytes(&both).unwrap();
        }
        lab.openssl(&format!("pkcs8 -topk8 -passout pass:secret -in {name}.key -out form"));
        let error = SigningKey::from_pem(&lab.read("form")).unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.text().contains("encrypted"), "{error}");
        lab.openssl(&format!("pkey -traditional -aes128 -passout pass:secret -in {name}.key -out form"));
        let error = SigningKey::from_pem(&lab.read("form")).unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.text().contains("encrypted"), "{error}");
    }
    for line in ["genpkey -algorithm ed25519 -out form", "ecparam -name secp521r1 -genkey -noout -out form"] {
        lab.openssl(line);
        let error = SigningKey::from_pem(&lab.read("form")).unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported, "{line}: {error}");
    }
    let error = sign(
        b"m",
        &lab.key("rsa2048"),
        &lab.certificate("rsa4096"),
        DigestAlgorithm::Sha256,
        &Providers::default(),
    )
    .unwrap_err();
    assert!(error.to_string().contains("does not belong"), "{error}");
    assert!(SigningKey::from_pem(b"no key").is_err() && Certificate::from_bytes(b"no certificate").is_err());
    assert_eq!(format!("{:?}", lab.key("ecp256")), "SigningKey(P-256)");
}

#[test]
fn a_verity_sig_partition_round_trips() {
    let certificate = Certificate::from_bytes(&fixture(corpus("keys/rsa2048.cert.pem"))).unwrap();
    let other = Certificate::from_bytes(&fixture(corpus("keys/rsa4096.cert.pem"))).unwrap();
    let key = SigningKey::from_pem(&fixture(corpus("keys/rsa2048.key.pem"))).unwrap();
    let root_hash = Rng::new(9).bytes(32);
    let der = sign(
        &root_hash_bytes(&root_hash),
        &key,
        &certificate,
        DigestAlgorithm::Sha256,
        &Providers::default(),
    )
    .unwrap();
    let signature = Signature::from_bytes(&der).unwrap();
    let partition = VeritySig::new(&root_hash, &signature, &certificate, &Providers::default()).unwrap();
    assert!(VeritySig::new(&root_hash[1..], &signature, &certificate, &Providers::default()).is_err());
    let bytes = partition.to_bytes(16384, &Providers::default());
    assert_eq!(bytes.len(), 16384);
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(text.starts_with(r#"{"rootHash":""#) && text.ends_with('\0'), "{text}");
    let read = VeritySig::from_bytes(&bytes, &Providers::default()).unwrap();
    assert_eq!(read, partition);
    read.verify(&certificate, &Providers::default()).unwrap();
    assert!(
        read.verify(&other, &Providers::default()).is_err_and(|error| error.kind() == ErrorKind::Mismatch)
    );
    let anonymous = VeritySig { fingerprint: None, ..read.clone() };
    assert_eq!(
        VeritySig::from_bytes(&anonymous.to_bytes(0, &Providers::default()), &Providers::default()).unwrap(),
        anonymous
    );
    assert!(
        anonymous
            .verify(&other, &Providers::default())
            .is_err_and(|error| error.kind() == ErrorKind::Mismatch)
    );
    let mut dirty = bytes;
    *dirty.last_mut().unwrap() = 1;
    assert!(VeritySig::from_bytes(&dirty, &Providers::default()).is_err());
}

/// No bytes whatever make a reader panic, and no change of a signature's bytes makes it say more than before.
#[test]
fn hostile_bytes_are_refused() {
    let message = [7; 44];
    let mut rng = Rng::new(0x5164);
    let read = |name: &str| fixture(corpus(name));
    let certificate = Certificate::from_bytes(&read("keys/ecp256.cert.der")).unwrap();
    let key = SigningKey::from_pem(&read("keys/ecp256.key.pem")).unwrap();
    let der = sign(&message, &key, &certificate, DigestAlgorithm::Sha256, &Providers::default()).unwrap();
    let partition = br#"{"rootHash":"00","certificateFingerprint":"00","signature":"AAAA"}"#.to_vec();
    let seeds = [
        der.clone(),
        read("keys/ecp256.cert.der"),
        read("keys/ecp256.cert.pem"),
        read("keys/rsa2048.key.pem"),
        partition,
    ];
    for round in 0..4000 {
        let mut bytes = seeds[round % seeds.len()].clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(4) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = rng.next_u64() as u8,
                2 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, rng.next_u64() as u8),
            }
        }
        let _ = (
            SigningKey::from_pem(&bytes),
            Certificate::from_bytes(&bytes),
            VeritySig::from_bytes(&bytes, &Providers::default()),
        );
        if let Ok(signature) = Signature::from_bytes(&bytes) {
            assert!(
                signature.verify(&[8; 44], &certificate, &Providers::default()).is_err(),
                "round {round}"
            );
        }
    }
    for at in 0..der.len() {
        let mut bytes = der.clone();
        bytes[at] ^= 0x10;
        if let Ok(signature) = Signature::from_bytes(&bytes) {
            assert!(signature.verify(&[8; 44], &certificate, &Providers::default()).is_err(), "byte {at}");
        }
    }
}
