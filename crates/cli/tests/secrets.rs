//! The memory of commands that had keys, just before they end: nothing of the keys is left in it.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use casemate_testkit::{PATIENCE, Place, Rng, TempDir, run, skip, tempdir, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// Name that strace has for the system call that ends a process.
const EXIT_GROUP: &str = if cfg!(target_arch = "x86_64") { "231 " } else { "94 " };

const PASSPHRASE: &str = "correct horse battery staple 4711";

/// Everything that a command could have written to in its memory, when it has done its work and is about to end.
fn memory_at_the_end(place: &TempDir, line: &str, input: &str) -> Option<Vec<Vec<u8>>> {
    let strace = tool("strace")?;
    let mut command = Command::new(strace);
    command.args(["-f", "-o", "/dev/null", "-e", "trace=exit_group", "-e", "signal=none"]);
    command.args(["-e", "inject=exit_group:delay_enter=1800000000:when=1", CASEMATE]).args(line.split(' '));
    let mut strace = command
        .current_dir(place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    strace.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let start = Instant::now();
    let process = loop {
        let children = format!("/proc/{0}/task/{0}/children", strace.id());
        let children = fs::read_to_string(children).unwrap_or_default();
        let process = children.split(' ').next().unwrap_or("").to_owned();
        let read = |what: &str| fs::read_to_string(format!("/proc/{process}/{what}")).unwrap_or_default();
        if read("syscall").starts_with(EXIT_GROUP) && read("comm").trim() == "casemate" {
            break process;
        }
        if strace.try_wait().unwrap().is_some() || start.elapsed() > PATIENCE {
            let mut said = String::new();
            let _ = strace.kill();
            strace.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            skip(&format!("secrets: strace may not hold a process: {}", said.trim()));
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let regions = memory(&process);
    run(Command::new("kill").args(["-KILL", &process]));
    strace.kill().unwrap();
    strace.wait().unwrap();
    Some(regions)
}

/// Memory that a process can write to.
fn memory(process: &str) -> Vec<Vec<u8>> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let mut memory = File::open(format!("/proc/{process}/mem")).unwrap();
    let mut regions = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
        let mut bytes = vec![0; (end - start) as usize];
        memory.seek(SeekFrom::Start(start)).unwrap();
        if memory.read_exact(&mut bytes).is_ok() {
            regions.push(bytes);
        }
    }
    regions
}

/// A part of memory that is looked for.
struct Secret {
    what: String,
    bytes: Vec<u8>,
}

/// A key: each of its pieces of 16 bytes, and the round keys that AES makes of each of its halves, as they are and as
/// decryption has them.
fn of_key(key: &[u8]) -> Vec<Secret> {
    let mut secrets: Vec<Secret> = key
        .chunks(16)
        .enumerate()
        .map(|(at, bytes)| Secret {
            what: format!("bytes {} and on of the key", at * 16),
            bytes: bytes.to_vec(),
        })
        .collect();
    for half in key.chunks(32) {
        for (round, bytes) in expand(half).chunks(16).enumerate().skip(2) {
            secrets.push(Secret { what: format!("AES's round key {round}"), bytes: bytes.to_vec() });
            let bytes = bytes.chunks(4).flat_map(|column| unmix(column.try_into().unwrap())).collect();
            secrets.push(Secret { what: format!("AES's round key {round} of decryption"), bytes });
        }
    }
    secrets
}

/// AES's field: a byte times x.
fn double(byte: u8) -> u8 {
    (byte << 1) ^ ((byte >> 7) * 0x1b)
}

fn multiply(a: u8, b: u8) -> u8 {
    let (mut product, mut power) = (0, a);
    for bit in 0..8 {
        product ^= power * (b >> bit & 1);
        power = double(power);
    }
    product
}

/// InvMixColumns of a column (FIPS 197, section 5.3.3).
fn unmix(column: [u8; 4]) -> [u8; 4] {
    std::array::from_fn(|row| {
        let factors = [14, 11, 13, 9].into_iter().enumerate();
        factors.fold(0, |sum, (at, factor)| sum ^ multiply(column[(row + at) % 4], factor))
    })
}

/// AES-256's key expansion (FIPS 197, section 5.2).
fn expand(key: &[u8]) -> Vec<u8> {
    let substitute = |byte: u8| {
        let inverse = (1..=255).find(|other| multiply(byte, *other) == 1).unwrap_or(0);
        (0..5).fold(0x63, |sum: u8, turn| sum ^ inverse.rotate_left(turn))
    };
    let mut words: Vec<[u8; 4]> = key.chunks(4).map(|word| word.try_into().unwrap()).collect();
    let mut constant = 1;
    for at in 8..60 {
        let mut word: [u8; 4] = words[at - 1];
        if at % 8 == 0 {
            word.rotate_left(1);
        }
        if at % 4 == 0 {
            word = word.map(substitute);
        }
        if at % 8 == 0 {
            word[0] ^= constant;
            constant = double(constant);
        }
        let before = words[at - 8];
        words.push(std::array::from_fn(|byte| word[byte] ^ before[byte]));
    }
    words.concat()
}

fn find(regions: &[Vec<u8>], bytes: &[u8]) -> bool {
    regions.iter().any(|region| memchr::memmem::find(region, bytes).is_some())
}

/// A folder with an image and keys.
fn place(key: &[u8]) -> TempDir {
    let place = tempdir().unwrap();
    fs::write(place.path().join("image"), Rng::new(2).bytes(1 << 20)).unwrap();
    fs::write(place.path().join("key"), key).unwrap();
    place
}

fn casemate(place: &Path, line: &str) {
    run(Command::new(CASEMATE).args(line.split(' ')).current_dir(place));
}

/// Panics with everything that is there and should not be.
fn assert_gone(place: &TempDir, line: &str, input: &str, secrets: &[Secret]) -> Option<()> {
    let regions = memory_at_the_end(place, line, input)?;
    // That memory is really looked at: arguments and names are there.
    assert!(find(&regions, line.split(' ').next_back().unwrap().as_bytes()), "{line}: no memory of it");
    let left: Vec<_> =
        secrets.iter().filter(|secret| find(&regions, &secret.bytes)).map(|secret| &secret.what).collect();
    assert!(left.is_empty(), "`{line}` leaves in memory: {left:?}");
    Some(())
}

#[test]
fn round_keys_are_those_of_the_standard() {
    // FIPS 197, appendix A.3: the third round key of its key of 256 bits.
    let key: Vec<u8> =
        [0x603deb10u32, 0x15ca71be, 0x2b73aef0, 0x857d7781, 0x1f352c07, 0x3b6108d7, 0x2d9810a3, 0x0914dff4]
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect();
    let third: Vec<u8> = [0x9ba35411u32, 0x8e6925af, 0xa51a8b5f, 0x2067fcde]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
    assert_eq!(expand(&key)[32..48], third);
    // The standard's example of MixColumns, backwards.
    assert_eq!(unmix([0x04, 0x66, 0x81, 0xe5]), [0xd4, 0xbf, 0x5d, 0x30]);
}

#[test]
fn mappings_leave_nothing() {
    let key = Rng::new(77).bytes(64);
    let place = place(&key);
    let secrets = of_key(&key);
    for line in [
        "crypt encrypt --key-file key --key-size 512 image target",
        "crypt decrypt --key-file key --key-size 512 target plain",
        "crypt encrypt --in-place --key-file key --key-size 512 image",
        // A command that ends by itself would be held, too.
        "serve --crypt aes-xts-plain64 --key-size 512 --key-file key --exec kill\t-9\t$$ target",
    ] {
        if assert_gone(&place, line, "", &secrets).is_none() {
            return;
        }
    }
    // While it is at work it has the key, and that is seen.
    let mut server = Command::new(CASEMATE);
    server.args(
        "serve --crypt aes-xts-plain64 --key-size 512 --key-file key --socket socket target".split(' '),
    );
    let mut server =
        server.current_dir(place.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !place.path().join("socket").exists() {
        assert!(server.try_wait().unwrap().is_none(), "the server has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    let regions = memory(&server.id().to_string());
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(secrets.iter().any(|secret| find(&regions, &secret.bytes)), "the key is looked for in vain");
}

#[test]
fn passphrases_leave_nothing() {
    let place = place(&[0; 32]);
    let secrets = [Secret { what: "the passphrase".to_owned(), bytes: PASSPHRASE.as_bytes()[8..].to_vec() }];
    let input = format!("{PASSPHRASE}\n");
    assert_gone(&place, "crypt encrypt image target", &input, &secrets);
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_with_keys_leaves_no_core() {
    let place = tempdir().unwrap();
    fs::write(place.path().join("plain"), [0; 4096]).unwrap();
    let look = "grep 'core file' /proc/self/limits";
    let script = format!("ulimit -S -c 1000; exec {CASEMATE} serve -r --exec \"{look}\" plain");
    let limits = run(Command::new("sh").current_dir(place.path()).args(["-c", &script]));
    let soft = limits.split_whitespace().nth(4);
    assert!(matches!(soft, Some("0" | "1")), "{limits}");
}

#[test]
fn volumes_leave_nothing() {
    let key = Rng::new(79).bytes(64);
    let place = place(&key);
    fs::write(place.path().join("pass"), PASSPHRASE).unwrap();
    fs::write(place.path().join("other"), "another one that is long enough").unwrap();
    let cheap = "--pbkdf-force-iterations 4 --pbkdf-memory 64K --pbkdf-parallel 1";
    let mut secrets = of_key(&key);
    secrets.push(Secret { what: "the passphrase".to_owned(), bytes: PASSPHRASE.as_bytes()[8..].to_vec() });
    for line in [
        format!("luks format --volume-key-file key --key-file pass {cheap} --from image disk"),
        "luks test-passphrase --key-file pass disk".to_owned(),
        "luks extract --key-file pass disk out".to_owned(),
        format!("luks add-key --key-file pass --new-key-file other {cheap} disk"),
        "luks remove-key --key-file pass disk".to_owned(),
    ] {
        if assert_gone(&place, &line, "", &secrets).is_none() {
            return;
        }
    }
}

#[test]
fn encrypted_folders_leave_nothing() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let key = Rng::new(78).bytes(64);
    let place = place(&key);
    let image = place.path().join("fs");
    run(Command::new(mke2fs).args(["-q", "-t", "ext4", "-O", "encrypt"]).arg(image).arg("8M"));
    casemate(place.path(), "ext4 mkdir fs /home");
    casemate(place.path(), "fscrypt set-policy --key key fs /home");
    casemate(place.path(), "ext4 put --fscrypt-key key fs image /home/file");
    // The keys that are derived for one file's contents and for one directory's names.
    let derived = |purpose: &str, path: &str| {
        let said = run(Command::new(CASEMATE)
            .args(["ext4", "stat", "--json", "--fscrypt-key", "key", "fs", path])
            .current_dir(place.path()));
        let context =
            said.split("\"encryption_context\":").nth(1).unwrap().split('"').nth(1).unwrap().to_owned();
        let mut command = Command::new(CASEMATE);
        command.args(["fscrypt", "derive", purpose, "--fscrypt-key", "key", "--context", &context]);
        casemate::hex::decode(run(command.current_dir(place.path())).trim()).unwrap()
    };
    let (contents, names) = (derived("contents", "/home/file"), derived("filenames", "/home"));
    assert_eq!((contents.len(), names.len()), (64, 32));
    let mut secrets = of_key(&key);
    for (what, key) in [("contents", contents), ("names", names)] {
        let derived = of_key(&key).into_iter();
        secrets.extend(derived.map(|secret| Secret { what: format!("{what}: {}", secret.what), ..secret }));
    }
    for line in [
        "ext4 put --fscrypt-key key fs image /home/file",
        "ext4 ls --fscrypt-key key fs /home",
        "ext4 cat --fscrypt-key key fs /home/file",
        "fscrypt key-id key",
    ] {
        if assert_gone(&place, line, "", &secrets).is_none() {
            return;
        }
    }
}

/// A program that fails gives an empty secret, and nothing is made with that.
#[test]
fn a_pipe_that_brings_nothing_is_no_key() {
    let place = Place::new(env!("CARGO_BIN_EXE_casemate"));
    let cheap = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    place.sh("truncate -s 20M zeros; printf secret >key; mkdir folder; : >empty; truncate -s 8M plain");
    let format = format!("luks format disk --size 20M {cheap}");
    place.yes(&format!("{format} --key-file key"));
    let before = place.read("disk");
    for line in [
        format!("luks format zeros --key-file - {cheap}"),
        format!("luks format zeros --key-file /dev/null {cheap}"),
        format!("luks format zeros {cheap}"),
        format!("luks add-key disk --key-file key --new-key-file - {cheap}"),
        format!("luks change-key disk --key-file key --new-key-file /dev/null {cheap}"),
        "luks test-passphrase disk --key-file -".to_owned(),
        "luks test-passphrase disk --volume-key-file -".to_owned(),
        format!("luks reencrypt plain --encrypt --luks-header header --key-file - {cheap}"),
        format!("ext4 build new --from folder --luks --key-file - {cheap}"),
        "ext4 build new --from folder --encrypt /=/dev/null".to_owned(),
        "ext4 build new --from folder --protect /=/dev/null".to_owned(),
        "crypt encrypt plain cipher --key-file -".to_owned(),
        "crypt encrypt plain cipher".to_owned(),
        "integrity format zeros --integrity hmac-sha256 --integrity-key-file -".to_owned(),
        "fscrypt key-id -".to_owned(),
    ] {
        let mut command = place.command();
        let output = command.args(line.split_whitespace()).current_dir(place.folder()).stdin(Stdio::null());
        let output = output.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(place.read("disk") == before, "{line}");
        assert!(place.read("zeros").iter().all(|byte| *byte == 0), "{line}");
        assert!(["new", "cipher", "header"].iter().all(|name| !place.path(name).exists()), "{line}");
    }
    // An empty file is a key, but one that a new key slot gets only if that is said.
    let line = format!("luks format zeros --key-file empty {cheap}");
    place.is(&line, 2, "use --allow-empty-key to confirm");
    place.is(
        &format!("luks add-key disk --key-file key --new-key-file empty {cheap}"),
        2,
        "--allow-empty-key",
    );
    place.yes(&format!("{line} --allow-empty-key"));
    place.yes("luks test-passphrase zeros --key-file empty");
    place.is(
        "luks format other --size 20M --key-file key --pbkdf-memory 1048576",
        2,
        "1048576K is what cryptsetup",
    );
    assert!(!place.path("other").exists());
}
