//! `casemate ext4 check` beside `e2fsck -fn`, and `casemate ext4 extract` beside what else copies a tree out of an
//! image: debugfs, and (for root) the kernel with tar. An image of 60 000 files, in the page cache.
//!
//! Build the command first (`cargo build --release -p casemate-cli` in the project's root). Arguments: the folder
//! for image and copies [/dev/shm], files [60000], and which race (check or extract; both without).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use casemate_benches::{Race, median};
use casemate_primitives::testing::Rng;

const FILES_IN_FOLDER: usize = 200;

/// Rounds of extractions.
const ROUNDS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map(String::as_str);
    let files = argument(1).map_or(60_000, |text| text.parse().expect("a number of files"));
    let only = argument(2).unwrap_or_default();
    let folder = PathBuf::from(argument(0).unwrap_or("/dev/shm"));
    let folder = folder.join(format!("casemate-bench-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder for the image");
    let result = std::panic::catch_unwind(|| {
        let (image, bytes) = make(&folder, files);
        if "check".contains(only) {
            check(&image, files);
        }
        if "extract".contains(only) {
            extract(&image, &folder, files, bytes);
        }
    });
    fs::remove_dir_all(&folder).expect("the folder can be removed");
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

/// An image of files of 0 to 20 000 bytes in folders of folders, and how many bytes they have.
fn make(folder: &Path, files: usize) -> (PathBuf, usize) {
    let tree = folder.join("tree");
    let mut rng = Rng::new(4);
    let mut bytes = 0;
    for number in 0..files {
        let sub = number / FILES_IN_FOLDER;
        let at = tree.join(format!("{:02}/{:02}", sub / 20, sub % 20));
        if number % FILES_IN_FOLDER == 0 {
            fs::create_dir_all(&at).expect("a folder of the tree");
        }
        let len = [0, 100, 1000, 3000, 5000, 20_000][rng.below(6) as usize];
        bytes += len;
        fs::write(at.join(format!("file-{number:06}-of-the-tree.txt")), rng.bytes(len)).expect("a file");
    }
    let image = folder.join("image");
    let inodes = (files + files / FILES_IN_FOLDER + 1000).to_string();
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-N", &inodes, "-d"]).arg(&tree).arg(&image);
    run(mke2fs.arg(format!("{}K", (2 * bytes >> 10) + files * 4 + 65_536)));
    fs::remove_dir_all(&tree).expect("the tree can be removed");
    (image, bytes)
}

fn check(image: &Path, files: usize) {
    let title = format!("check of {} with {files} files", image.display());
    let size = fs::metadata(image).expect("the image").len() as usize;
    let mut race = Race::new(title, size).rounds(15);
    let contestants: [(&str, &[&str]); 3] = [
        ("e2fsck -fn", &["e2fsck", "-fn"]),
        ("casemate ext4 check, 1 thread", &[CASEMATE, "--threads=1", "ext4", "check"]),
        ("casemate ext4 check, 2 threads", &[CASEMATE, "--threads=2", "ext4", "check"]),
    ];
    for (name, words) in contestants {
        // All say that all is well, or run() would not return.
        race.add(name, move || run(Command::new(words[0]).args(&words[1..]).arg(image)));
    }
    race.run();
}

fn extract(image: &Path, folder: &Path, files: usize, bytes: usize) {
    let (image, at) = (image.display(), folder.join("at"));
    fs::create_dir(&at).expect("a place to mount at");
    let (at, out) = (at.display(), folder.join("out"));
    let target = out.display();
    let ours = |threads: u32| format!("{CASEMATE} --threads={threads} ext4 extract {image} {target}");
    let mounted = |copy: String| {
        format!("unshare -m sh -ec 'mount -o loop,ro,noload {image} {at}; {copy}; umount {at}'")
    };
    let mut contestants = vec![
        ("casemate ext4 extract, 2 threads", ours(2)),
        ("casemate ext4 extract, 1 thread", ours(1)),
        ("debugfs rdump", format!("debugfs -R 'rdump / {target}' {image} 2>&1")),
        ("casemate ext4 extract --tar", format!("{CASEMATE} ext4 extract {image} --tar=- > /dev/null")),
    ];
    let copy = mounted(format!("cp -a {at} {target}"));
    let tar = mounted(format!("tar -c -C {at} . | cat > /dev/null"));
    // Only root may mount.
    if shell(&mounted("true".to_owned())).success() {
        contestants.push(("mount, cp -a", copy));
        contestants.push(("mount, tar -c", tar));
    }
    println!("extraction of {files} files, {bytes} bytes, to {}", folder.display());
    let mut seconds = vec![Vec::new(); contestants.len()];
    for round in 0..=ROUNDS {
        for ((name, line), own) in contestants.iter().zip(&mut seconds) {
            let _ = fs::remove_dir_all(&out);
            fs::create_dir(&out).expect("a folder for the copy");
            let start = Instant::now();
            assert!(shell(line).success(), "{name}");
            // The first round only shows that all of them do the work.
            if round > 0 {
                own.push(start.elapsed().as_secs_f64());
            } else if !line.contains("/dev/null") {
                assert_eq!(count(&out), files, "{name}");
            }
        }
    }
    for ((name, _), own) in contestants.iter().zip(&seconds) {
        let ratio = median(seconds[0].iter().zip(own).map(|(first, own)| first / own).collect());
        println!("  {name:<34} {:>8.3} s  x{ratio:.2}", median(own.clone()));
    }
}

/// How many files there are below a folder.
fn count(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).expect("a folder");
    let count = |entry: fs::DirEntry| match entry.file_type().expect("a kind of file").is_dir() {
        true => count(&entry.path()),
        false => 1,
    };
    entries.map(|entry| count(entry.expect("an entry"))).sum()
}

const CASEMATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/release/casemate");

fn shell(line: &str) -> std::process::ExitStatus {
    let output = Command::new("sh").args(["-c", line]).output().expect("a shell");
    output.status
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}
