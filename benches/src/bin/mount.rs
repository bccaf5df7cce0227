//! `casemate mount` beside fuse2fs and the kernel's ext4 on a loop device (for root): a walk through 60 000 files, a large
//! file read for the first time in its order and at random places, an encrypted file beside a plain one, and a tar of 20 000
//! files unpacked. Images lie in memory; each round mounts anew, so that nothing was read before.
//!
//! Build the command first (`cargo build --release -p casemate-cli` in the project's root). Arguments: the folder
//! for images [/dev/shm], rounds [5], and which race (walk, read, random, encrypted or untar; all without).

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use casemate_benches::commands::{ratio, shell};
use casemate_benches::{Probe, median};
use casemate_primitives::testing::Rng;

const CASEMATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/release/casemate");

/// Bytes of the large file.
const LARGE: u64 = 1 << 30;

/// Random reads: bytes of each, how many threads wait for one at a time, and how many each makes.
const BLOCK: usize = 4096;
const IN_FLIGHT: u64 = 32;
const EACH: u64 = 2000;

/// Who shows an image in a folder: how it is mounted, for reading and for writing, and unmounted.
struct Server {
    name: &'static str,
    read: String,
    write: String,
    end: String,
}

fn servers() -> Vec<Server> {
    // Whoever unmounts waits until all is on the image.
    let wait = "while pgrep -x fuse2fs > /dev/null; do sleep 0.002; done";
    vec![
        Server {
            name: "casemate mount",
            read: format!("{CASEMATE} mount -q image at --fscrypt-key key"),
            write: format!("{CASEMATE} mount -q --write image at"),
            end: format!("{CASEMATE} umount -q at"),
        },
        Server {
            name: "fuse2fs",
            read: "fuse2fs -o ro image at > fuse2fs.log 2>&1".to_owned(),
            write: "fuse2fs image at > fuse2fs.log 2>&1".to_owned(),
            end: format!("umount at; {wait}"),
        },
        Server {
            name: "kernel, loop device",
            read: "mount -o loop,ro image at".to_owned(),
            write: "mount -o loop image at".to_owned(),
            end: "umount at".to_owned(),
        },
    ]
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map(String::as_str);
    let rounds = argument(1).map_or(5, |text| text.parse().expect("a number of rounds"));
    let only = argument(2).unwrap_or_default();
    let folder = PathBuf::from(argument(0).unwrap_or("/dev/shm"));
    let folder = folder.join(format!("casemate-bench-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder for images");
    std::env::set_current_dir(&folder).expect("a folder");
    let result = std::panic::catch_unwind(|| {
        shell("mkdir at tree; head -c 64 /dev/urandom > key");
        if "walk".contains(only) {
            trees(60_000, "tree");
            shell("mke2fs -q -t ext4 -N 70000 -d tree image 1G; rm -r tree; mkdir tree");
            race("walk through 60 000 files", rounds, |server| &server.read, |_| walk(Path::new("at")));
        }
        if ["read", "random", "encrypted"].iter().any(|name| name.contains(only)) {
            large();
            if "read".contains(only) {
                race("first read of 1 GiB in its order", rounds, |server| &server.read, |_| read("at/plain"));
            }
            if "random".contains(only) {
                let title = "random reads of 4 KiB, 32 in flight, 64 000 of 1 GiB";
                race(title, rounds, |server| &server.read, |_| random("at/plain"));
            }
            if "encrypted".contains(only) {
                encrypted(rounds);
            }
        }
        if "untar".contains(only) {
            trees(20_000, "tree");
            shell("tar -cf tree.tar -C tree .; rm -r tree; mke2fs -q -t ext4 -N 30000 empty 1G");
            let untar = |server: &Server| {
                shell("tar -xf tree.tar -C at --no-same-owner");
                // What was written is on the image when it is unmounted.
                shell(&server.end);
            };
            race("untar of 20 000 files, and unmount", rounds, |server| &server.write, untar);
        }
    });
    let _ = std::process::Command::new("umount").args(["-l", "at"]).output();
    fs::remove_dir_all(&folder).expect("the folder can be removed");
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

/// Mounts an image with each server in turn, and times what is done with it.
fn race(title: &str, rounds: usize, mount: impl Fn(&Server) -> &String, work: impl Fn(&Server)) {
    println!("{title}, {rounds} rounds; before: {}", Probe::measure());
    let servers = servers();
    let mut seconds = vec![Vec::new(); servers.len()];
    for _ in 0..rounds {
        for (server, seconds) in servers.iter().zip(&mut seconds) {
            if Path::new("empty").exists() {
                shell("cp --sparse=always empty image");
            }
            shell(mount(server));
            let start = Instant::now();
            work(server);
            seconds.push(start.elapsed().as_secs_f64());
            shell(&format!("if mountpoint -q at; then {}; fi", server.end));
        }
    }
    for (server, own) in servers.iter().zip(&seconds) {
        let best = own.iter().copied().fold(f64::INFINITY, f64::min);
        println!(
            "  {:<20} {:>8.3} s  best {best:>8.3}   casemate is {:.2} times as fast",
            server.name,
            median(own.clone()),
            ratio(&seconds[0], own)
        );
    }
}

/// Files of 0 to 20 000 bytes in folders of 200.
fn trees(files: usize, tree: &str) {
    let mut rng = Rng::new(4);
    for number in 0..files {
        let at = Path::new(tree).join(format!("{:03}", number / 200));
        if number % 200 == 0 {
            fs::create_dir_all(&at).expect("a folder of the tree");
        }
        let len = [0, 100, 1000, 3000, 5000, 20_000][rng.below(6) as usize];
        fs::write(at.join(format!("file-{number:06}-of-the-tree.txt")), rng.bytes(len)).expect("a file");
    }
}

/// An image with a large file in plain text, and the same encrypted.
fn large() {
    shell(&format!(
        "rm -f image empty; mke2fs -q -t ext4 -O encrypt image 3G; {CASEMATE} ext4 mkdir image /secret
         {CASEMATE} fscrypt set-policy image /secret --fscrypt-key key
         head -c {LARGE} /dev/urandom > plain
         {CASEMATE} ext4 put -q image plain / ; {CASEMATE} ext4 put -q image plain /secret/ --fscrypt-key key; rm plain"
    ));
}

fn encrypted(rounds: usize) {
    println!("encrypted beside plain, first read of 1 GiB, {rounds} rounds; before: {}", Probe::measure());
    let server = &servers()[0];
    let mut seconds = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (path, seconds) in ["at/plain", "at/secret/plain"].iter().zip(&mut seconds) {
            shell(&server.read);
            let start = Instant::now();
            read(path);
            seconds.push(start.elapsed().as_secs_f64());
            shell(&server.end);
        }
    }
    let [plain, secret] = seconds;
    let share = ratio(&secret, &plain);
    println!("  plain {:.3} s, encrypted {:.3} s: {share:.2} of its speed", median(plain), median(secret));
}

/// Looks at all names below a folder, as find does that wants to know sizes.
fn walk(folder: &Path) {
    let (mut open, mut files, mut bytes) = (vec![folder.to_owned()], 0, 0);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let entry = entry.expect("a name");
            let found = entry.metadata().expect("attributes");
            if found.is_dir() {
                open.push(entry.path());
            } else {
                files += 1;
                bytes += found.size();
            }
        }
    }
    assert!(files >= 60_000 && bytes > 0, "{files} files");
}

fn read(path: &str) {
    let file = File::open(path).expect("the file");
    let (mut buffer, mut at) = (vec![0; 1 << 20], 0);
    while at < LARGE {
        file.read_exact_at(&mut buffer, at).expect("contents");
        at += buffer.len() as u64;
    }
}

fn random(path: &str) {
    thread::scope(|scope| {
        for seed in 0..IN_FLIGHT {
            scope.spawn(move || {
                let file = File::open(path).expect("the file");
                let (mut rng, mut buffer) = (Rng::new(seed), [0; BLOCK]);
                for _ in 0..EACH {
                    let at = rng.below(LARGE / BLOCK as u64) * BLOCK as u64;
                    file.read_exact_at(&mut buffer, at).expect("contents");
                }
            });
        }
    });
}
