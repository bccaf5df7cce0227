//! `fsverity digest` beside `casemate fsverity digest`: one file of 2 GiB in the page cache, and many small files.
//!
//! Build the command first (`cargo build --release -p casemate-cli` in the project's root). The folder that the
//! files are made in can be given: /dev/shm has pages of 4 KiB, ext4 keeps larger ones, which copies faster. A second
//! argument picks one case: plain, sha512, salted or small.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use casemate_benches::Race;
use casemate_primitives::testing::Rng;

const SIZE: usize = 2 << 30;
const SMALL_FILES: usize = 10_000;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project's root");
    let casemate = root.join("target/release/casemate");
    let folder = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let only = std::env::args().nth(2).unwrap_or_default();
    let folder = folder.join(format!("casemate-bench-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder for the files");
    let result = std::panic::catch_unwind(|| {
        one_large(&casemate, &folder, &only);
        many_small(&casemate, &folder, &only);
    });
    fs::remove_dir_all(&folder).expect("the folder can be removed");
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

fn one_large(casemate: &Path, folder: &Path, only: &str) {
    let file = folder.join("large");
    let mut rng = Rng::new(1);
    let mut out = File::create(&file).expect("the file");
    let mut block = vec![0; 16 << 20];
    for _ in 0..SIZE / block.len() {
        rng.fill(&mut block);
        out.write_all(&block).expect("room for the file");
    }
    drop(out);
    let cases = [
        ("plain", &[][..]),
        ("sha512", &["--hash-alg=sha512"]),
        ("salted", &["--block-size=1024", "--salt=00112233"]),
    ];
    for (_, options) in cases.into_iter().filter(|(name, _)| name.contains(only)) {
        let arguments = [&["digest"], options].concat();
        let title = format!("fsverity digest {} of 2 GiB in {}", options.join(" "), folder.display());
        race(&title, casemate, &arguments, &[&file], SIZE, 7);
    }
}

fn many_small(casemate: &Path, folder: &Path, only: &str) {
    if !"small".contains(only) {
        return;
    }
    let mut rng = Rng::new(2);
    let mut total = 0;
    let files: Vec<PathBuf> = (0..SMALL_FILES)
        .map(|i| {
            let path = folder.join(format!("{i}"));
            let limit = 1 << rng.below(17);
            let len = 1 + rng.below(limit) as usize;
            total += len;
            fs::write(&path, rng.bytes(len)).expect("room for a small file");
            path
        })
        .collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let title = format!("fsverity digest of {SMALL_FILES} files up to 64 KiB in {}", folder.display());
    race(&title, casemate, &["digest"], &files, total, 15);
}

fn race(title: &str, casemate: &Path, arguments: &[&str], files: &[&Path], bytes: usize, rounds: usize) {
    let theirs = || command(Path::new("fsverity"), arguments, files);
    let ours = |threads: &str| {
        let mut command = Command::new(casemate);
        command.args([threads, "fsverity"]).args(arguments).args(files).stdout(Stdio::piped());
        command
    };
    // The same answers, before anything is timed.
    let expected = output(theirs());
    assert!(output(ours("--threads=1")) == expected && output(ours("--threads=2")) == expected, "{title}");
    let mut race = Race::new(title, bytes).rounds(rounds);
    race.add("fsverity 1.5 (OpenSSL)", || drop(output(theirs())));
    race.add("casemate, 1 thread", || drop(output(ours("--threads=1"))));
    race.add("casemate, 2 threads", || drop(output(ours("--threads=2"))));
    race.add("only reading (1 thread, 128 KiB at once)", || {
        let mut buf = vec![0; 128 << 10];
        for file in files {
            let mut file = File::open(file).expect("the file");
            while file.read(&mut buf).expect("reading") > 0 {}
        }
    });
    race.run();
}

fn command(program: &Path, arguments: &[&str], files: &[&Path]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).args(files).stdout(Stdio::piped());
    command
}

fn output(mut command: Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    output.stdout
}
