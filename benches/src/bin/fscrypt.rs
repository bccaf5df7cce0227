//! Encrypted files of an ext4 image beside the same files in clear: `casemate ext4 extract` of one large file as a whole
//! command, and directories of 20 000 names in this process.
//!
//! The kernel makes the image, so this needs root, loop mounts and python3. Build the command first:
//! `cargo build --release -p casemate-cli`. Arguments: the folder for image and copies [/dev/shm], MiB of the large
//! file [1024].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use casemate::ext4::{Ext4, ReadOptions};
use casemate::{Access, Image, Keys, SecretSource, SecretVec, Work};
use casemate_benches::{Probe, Race, median};

const CASEMATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/release/casemate");

const NAMES: usize = 20_000;

const ROUNDS: usize = 7;

/// Puts one large file and one directory of many names into an encrypted folder and into a plain one.
const MAKE: &str = r#"
import fcntl, os, struct, sys
top, mib, names, key = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), bytes(range(64))
fd = os.open(top, os.O_RDONLY)
spec = bytearray(struct.pack("<II32xII32x", 2, 0, len(key), 0) + key)
fcntl.ioctl(fd, 0xC0506617, spec, True)
for folder in ("encrypted", "plain"):
    for part in ("file", "names"):
        path = os.path.join(top, folder + "-" + part)
        os.mkdir(path)
        if folder == "encrypted":
            policy = struct.pack("<BBBBB3x16s", 2, 1, 4, 3, 0, bytes(spec[8:24]))
            directory = os.open(path, os.O_RDONLY)
            fcntl.ioctl(directory, 0x800C6613, bytearray(policy), True)
            os.close(directory)
    piece = os.urandom(1 << 20)
    with open(os.path.join(top, folder + "-file", "large"), "wb") as f:
        for _ in range(mib):
            f.write(piece)
    for number in range(names):
        os.mknod(os.path.join(top, folder + "-names", "name-%d-of-a-usual-length" % number))
"#;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = PathBuf::from(arguments.first().map_or("/dev/shm", String::as_str));
    let mib = arguments.get(1).map_or(1024, |text| text.parse().expect("a number of MiB"));
    let folder = folder.join(format!("casemate-bench-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder for the image");
    let result = std::panic::catch_unwind(|| {
        let image = make(&folder, mib);
        list(&image);
        extract(&image, &folder, mib);
    });
    fs::remove_dir_all(&folder).expect("the folder can be removed");
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

fn make(folder: &Path, mib: usize) -> PathBuf {
    let (image, at) = (folder.join("image"), folder.join("at"));
    fs::create_dir(&at).expect("a place to mount at");
    fs::write(folder.join("make.py"), MAKE).expect("the script");
    fs::write(folder.join("key"), key()).expect("the key");
    let (shown, top, make) = (image.display(), at.display(), folder.join("make.py"));
    let size = 2 * mib + 256;
    shell(&format!(
        "mke2fs -q -F -t ext4 -O encrypt,^has_journal -N {} {shown} {size}M && unshare -m --propagation private sh -ec \
         'mount -o loop {shown} {top}; python3 {} {top} {mib} {NAMES}; umount {top}'",
        2 * NAMES + 1000,
        make.display()
    ));
    image
}

/// The names of a directory of each kind; the inodes behind them are not read.
fn list(image: &Path) {
    let keys = Keys::default().with_raw(&SecretSource::memory(SecretVec::new(key()))).expect("a key");
    let (locked, unlocked) = (open(image, Keys::default()), open(image, keys));
    let names = |fs: &Ext4, folder: &str| {
        let dir = fs.resolve(folder.as_bytes(), false).expect("the directory");
        fs.read_dir(&dir).expect("its names")
    };
    let sorted = |fs: &Ext4, folder: &str| {
        let mut list: Vec<Vec<u8>> = names(fs, folder).into_iter().map(|entry| entry.name).collect();
        list.sort();
        list
    };
    let plain = sorted(&locked, "plain-names");
    assert_eq!(plain.len(), NAMES);
    assert_eq!(sorted(&unlocked, "encrypted-names"), plain);
    assert!(sorted(&locked, "encrypted-names").iter().all(|name| name.len() > 50));

    let mut race = Race::new(format!("{NAMES} names, one thread"), 0).items(NAMES);
    race.add("encrypted, with the key", || drop(names(&unlocked, "encrypted-names")));
    race.add("encrypted, without the key", || drop(names(&locked, "encrypted-names")));
    race.add("plain", || drop(names(&locked, "plain-names")));
    for score in race.run() {
        println!("  {:<44} {:>12.0} names a second", score.name, 1e9 / score.median_ns);
    }
}

fn open(image: &Path, keys: Keys) -> Ext4 {
    let image = Image::open(image, Access::Read).expect("the image");
    let mut options = ReadOptions::default();
    options.keys = keys;
    image.ext4(&options, &Work::default()).expect("the image").inodes().clone()
}

fn extract(image: &Path, folder: &Path, mib: usize) {
    let (image, out) = (image.display(), folder.join("out"));
    let (target, key) = (out.display(), folder.join("key"));
    let line = |threads: u32, kind: &str| {
        let key = key.display();
        format!(
            "{CASEMATE} --threads={threads} ext4 extract {image} {target} --path=/{kind}-file --fscrypt-key={key}"
        )
    };
    let contestants = [
        ("plain, 1 thread", line(1, "plain")),
        ("encrypted, 1 thread", line(1, "encrypted")),
        ("plain, 2 threads", line(2, "plain")),
        ("encrypted, 2 threads", line(2, "encrypted")),
    ];
    println!("extraction of a file of {mib} MiB to {}; before: {}", folder.display(), Probe::measure());
    let mut seconds = vec![Vec::new(); contestants.len()];
    let mut first: Option<u64> = None;
    for round in 0..=ROUNDS {
        for ((name, line), own) in contestants.iter().zip(&mut seconds) {
            let _ = fs::remove_dir_all(&out);
            let start = Instant::now();
            shell(line);
            let elapsed = start.elapsed().as_secs_f64();
            // The first round shows that all do the work: lengths here, contents by the digest of each file's kind.
            let len = fs::metadata(out.join("large")).expect(name).len();
            assert_eq!(len, *first.get_or_insert(len), "{name}");
            assert_eq!(len, (mib as u64) << 20);
            if round == 0 {
                check(&out.join("large"), name);
            } else {
                own.push(elapsed);
            }
        }
    }
    for (k, ((name, _), own)) in contestants.iter().zip(&seconds).enumerate() {
        // Each encrypted one beside the plain one before it.
        let ratio = median(seconds[k & !1].iter().zip(own).map(|(plain, own)| plain / own).collect());
        println!("  {name:<32} {:>7.3} s   {ratio:>5.2} of plain", median(own.clone()));
    }
}

/// A file's MiB are all the same, and random: ciphertext would show.
fn check(path: &Path, name: &str) {
    let bytes = fs::read(path).expect(name);
    let (head, _) = bytes.split_at(1 << 20);
    assert!(bytes.chunks(1 << 20).all(|piece| piece == head), "{name}: not what was written");
}

fn key() -> Vec<u8> {
    (0..64).collect()
}

fn shell(line: &str) {
    let output = Command::new("sh").args(["-c", line]).output().expect("a shell");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}
