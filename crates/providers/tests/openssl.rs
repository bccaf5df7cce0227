//! Random keys, lengths, counters and batches against OpenSSL, which is asked through Python's ctypes (openssl.py).

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use casemate_primitives::{Cpu, Feature};
use casemate_providers::{Direction, Flags, Ivs, Policy, Registry};
use casemate_testkit::{Rng, slow_tests, tool};

/// Our name, OpenSSL's for each key length, whether units may end within a block.
type Names = (&'static str, &'static [(usize, &'static str)], bool);

const CIPHERS: &[Names] = &[
    ("xts(aes)", &[(32, "AES-128-XTS"), (64, "AES-256-XTS")], true),
    ("cbc(aes)", &[(16, "AES-128-CBC"), (24, "AES-192-CBC"), (32, "AES-256-CBC")], false),
    ("cts(cbc(aes))", &[(16, "AES-128-CBC-CTS"), (24, "AES-192-CBC-CTS"), (32, "AES-256-CBC-CTS")], true),
    ("ctr(aes)", &[(16, "AES-128-CTR"), (24, "AES-192-CTR"), (32, "AES-256-CTR")], true),
    ("ecb(aes)", &[(16, "AES-128-ECB"), (24, "AES-192-ECB"), (32, "AES-256-ECB")], false),
    ("cbc(camellia)", &[(16, "CAMELLIA-128-CBC"), (32, "CAMELLIA-256-CBC")], false),
    ("cbc(aria)", &[(16, "ARIA-128-CBC"), (32, "ARIA-256-CBC")], false),
    ("cbc(sm4)", &[(16, "SM4-CBC")], false),
];

const HASHES: &[(&str, &str)] = &[
    ("sha1", "sha1"),
    ("sha224", "sha224"),
    ("sha256", "sha256"),
    ("sha384", "sha384"),
    ("sha512", "sha512"),
    ("sha3-256", "sha3_256"),
    ("sha3-512", "sha3_512"),
    ("blake2b-512", "blake2b"),
    ("blake2s-256", "blake2s"),
    ("sm3", "sm3"),
    ("md5", "md5"),
];

/// Asks OpenSSL all at once; an answer for each question.
fn ask(questions: &[serde_json::Value]) -> Option<Vec<Vec<u8>>> {
    let python = tool("python3")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openssl.py");
    let mut child =
        Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = questions.iter().fold(String::new(), |mut lines, question| {
        writeln!(lines, "{question}").unwrap();
        lines
    });
    let mut input = child.stdin.take().unwrap();
    // Python answers while it is still being asked: two pipes, so two threads.
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    let answers: Vec<_> =
        output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    assert_eq!(answers.len(), questions.len());
    Some(answers.into_iter().map(|line| from_hex(str::from_utf8(line).unwrap())).collect())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

#[test]
fn random_batches_are_openssls() {
    let cpus = [Cpu::detect(), Cpu::detect().without(Feature::Avx512), Cpu::portable()];
    let registries = cpus.map(Registry::new);
    let mut rng = Rng::new(0x0551);
    let (mut questions, mut asked) = (Vec::new(), Vec::new());
    for _ in 0..if slow_tests() { 4000 } else { 200 } {
        let (algorithm, keys, odd) = CIPHERS[rng.below(CIPHERS.len() as u64) as usize];
        let (key_len, name) = keys[rng.below(keys.len() as u64) as usize];
        let size = match rng.below(4) {
            0 => 512,
            1 => 4096,
            _ => 16 * (1 + rng.below(40) as usize) + if odd { rng.below(16) as usize } else { 0 },
        };
        let units = 1 + rng.below(if size > 1000 { 5 } else { 40 }) as usize;
        let encrypt = rng.below(2) == 0;
        // Around a carry as often as not.
        let first = match rng.below(3) {
            0 => u128::from(rng.below(1 << 40)),
            1 => (1 << (32 * (1 + rng.below(3)))) - u128::from(rng.below(20)),
            _ => u128::MAX - u128::from(rng.below(20)),
        };
        let step = [1, 8][rng.below(2) as usize];
        let ivs = if algorithm.contains("ctr") || rng.below(5) == 0 && !algorithm.contains("xts") {
            Ivs::Big { first, step }
        } else {
            Ivs::Little { first, step }
        };
        let (key, data) = (rng.bytes(key_len), rng.bytes(units * size));
        let iv_len = if algorithm.starts_with("ecb") { 0 } else { 16 };
        let list: Vec<String> = (0..units)
            .map(|k| {
                let mut iv = vec![0; iv_len];
                ivs.write(k, &mut iv);
                hex(&iv)
            })
            .collect();
        questions.push(serde_json::json!({
            "cipher": name, "encrypt": encrypt, "cts": algorithm.starts_with("cts"), "key": hex(&key), "ivs": list,
            "data": hex(&data),
        }));
        asked.push((algorithm, name, key, size, encrypt, ivs, data));
    }
    let Some(answers) = ask(&questions) else { return };
    for ((algorithm, name, key, size, encrypt, ivs, data), answer) in asked.into_iter().zip(answers) {
        for registry in &registries {
            let rows = registry.rows().iter().filter(|row| row.algorithm == algorithm);
            for row in rows {
                let policy = Policy::default().naming(&row.driver);
                let cipher = registry.cipher(algorithm, &key, &policy).unwrap();
                let cipher = cipher.with_data_unit_size(size).unwrap();
                let direction = if encrypt { Direction::Encrypt } else { Direction::Decrypt };
                let mut data = data.clone();
                cipher.run(direction, &ivs, &mut data).unwrap();
                let batch = row.flags.contains(Flags::MULTI_DATA_UNIT);
                assert!(
                    data == answer,
                    "{} for {name}, units of {size}, {ivs:?}, {direction:?}, batch {batch}",
                    row.driver
                );
            }
        }
    }
}

#[test]
fn random_messages_hash_as_openssls() {
    let mut rng = Rng::new(0x0552);
    let (mut questions, mut asked) = (Vec::new(), Vec::new());
    for (ours, theirs) in HASHES {
        for _ in 0..if slow_tests() { 300 } else { 12 } {
            let len = rng.below(3000) as usize;
            let message = rng.bytes(len);
            questions.push(serde_json::json!({ "hash": theirs, "data": hex(&message) }));
            asked.push((*ours, message));
        }
    }
    let Some(answers) = ask(&questions) else { return };
    let registry = Registry::new(Cpu::detect());
    for ((algorithm, message), answer) in asked.into_iter().zip(answers) {
        let rows = registry.rows().iter().filter(|row| row.algorithm == algorithm);
        for row in rows {
            let hash = registry.hash(algorithm, &Policy::default().naming(&row.driver)).unwrap();
            let split = rng.below(message.len() as u64 + 1) as usize;
            let mut digest = vec![0; hash.digest_len()];
            hash.salted(&message[..split], &[]).hash(&message[split..], &mut digest);
            assert_eq!(digest, answer, "{} of {} bytes, split at {split}", row.driver, message.len());
        }
    }
}
