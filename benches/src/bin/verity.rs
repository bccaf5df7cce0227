//! `casemate verity format` and `verify` beside `veritysetup`, as whole commands on data in the page cache.
//!
//! The commands run in turn, and each result is compared before anything is timed. `verity fec` times what error
//! correction adds instead; `--size=MIB` and `--rounds=N` change the work.
//!
//! Build the command first: `cargo build --release -p casemate-cli`. `CASEMATE` and `VERITYSETUP` name other ones.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use casemate_benches::Probe;
use casemate_primitives::testing::Rng;

const PINNED: &str = "--salt=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff \
    --uuid=5e34f531-3859-825c-fad6-33289ccfcb92";

/// One command line, and what was measured of it.
struct Contestant {
    name: String,
    program: PathBuf,
    line: String,
    seconds: Vec<f64>,
    /// Time on all CPUs, which a busy machine changes less.
    cpu_seconds: Vec<f64>,
    peak_kib: u64,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| args.iter().find_map(|arg| arg.strip_prefix(name)?.parse::<usize>().ok());
    let fec = args.iter().any(|arg| arg == "fec");
    let mib = option("--size=").unwrap_or(if fec { 128 } else { 2048 });
    let rounds = option("--rounds=").unwrap_or(if fec { 1 } else { 7 });
    let env =
        |name: &str, default: &str| PathBuf::from(std::env::var(name).unwrap_or_else(|_| default.into()));
    let own = env("CASEMATE", concat!(env!("CARGO_MANIFEST_DIR"), "/../target/release/casemate"));
    let theirs = env("VERITYSETUP", "/usr/sbin/veritysetup");

    let folder = PathBuf::from(format!("/dev/shm/casemate-bench-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder in memory");
    write_data(&folder.join("data"), mib);
    println!(
        "{mib} MiB in /dev/shm, {rounds} rounds, sha256 4096/4096, salt of 32 bytes; {}",
        Probe::measure()
    );
    if fec {
        race_fec(&folder, &own, &theirs, rounds)
    } else {
        race(&folder, &own, &theirs, mib, rounds)
    }
    fs::remove_dir_all(&folder).expect("the folder can be removed");
}

/// Format and verify with both tools.
fn race(folder: &Path, own: &Path, theirs: &Path, mib: usize, rounds: usize) {
    let contestant = |name: &str, program: &Path, line: String| Contestant::new(name, program, line);
    let own_line =
        |action: &str, hash: &str, rest: &str| format!("verity {action} data {hash} {rest} --no-progress");
    let mut formats = [
        contestant("veritysetup format", theirs, format!("format data theirs {PINNED}")),
        contestant("casemate format, all cores", own, own_line("format", "ours", PINNED)),
        contestant(
            "casemate format, 1 thread",
            own,
            own_line("format", "ours", &format!("{PINNED} --threads=1")),
        ),
    ];
    // A first time for all: the results must be the same, and the data is in the page cache then.
    let roots: Vec<String> = formats.iter_mut().map(|contestant| contestant.run(folder)).collect();
    assert!(roots.iter().all(|root| *root == roots[0]), "{roots:?}");
    let read = |name: &str| fs::read(folder.join(name)).expect("a hash file");
    assert!(read("theirs") == read("ours"), "the hash files differ");
    let root = &roots[0];
    let mut verifies = [
        contestant("veritysetup verify", theirs, format!("verify data theirs {root}")),
        contestant("casemate verify, all cores", own, own_line("verify", "ours", root)),
        contestant(
            "casemate verify, 1 thread",
            own,
            own_line("verify", "ours", &format!("{root} --threads=1")),
        ),
    ];
    for _ in 0..rounds {
        for contestant in formats.iter_mut().chain(&mut verifies) {
            contestant.measure(folder);
        }
    }
    report(&formats, mib);
    report(&verifies, mib);
}

/// What error correction adds to formatting.
fn race_fec(folder: &Path, own: &Path, theirs: &Path, rounds: usize) {
    for roots in [2, 24] {
        let fec = |file: &str| format!("--fec-device={file} --fec-roots={roots}");
        let their_fec = format!("format data theirs {PINNED} {}", fec("their-fec"));
        let own_fec = format!("verity format data ours {PINNED} --no-progress {}", fec("our-fec"));
        let mut all = [
            Contestant::new("veritysetup", theirs, format!("format data theirs {PINNED}")),
            Contestant::new("veritysetup with parity", theirs, their_fec),
            Contestant::new("casemate", own, format!("verity format data ours {PINNED} --no-progress")),
            Contestant::new("casemate with parity", own, own_fec),
        ];
        for (index, contestant) in all.iter_mut().enumerate() {
            // The slow one is not run more often than needed.
            for _ in 0..if index == 1 { rounds } else { 5 * rounds } {
                contestant.measure(folder);
            }
        }
        let read = |name: &str| fs::read(folder.join(name)).expect("a parity file");
        assert!(read("their-fec") == read("our-fec"), "the parity differs");
        let added = |plain: usize, parity: usize| all[parity].median() - all[plain].median();
        let (their, our) = (added(0, 1), added(2, 3));
        println!(
            "{roots:2} roots: veritysetup {:.3} s and parity {their:.3} s, casemate {:.3} s and parity {our:.3} s: \
             {:.0} times less",
            all[0].median(),
            all[2].median(),
            their / our
        );
    }
}

fn report(contestants: &[Contestant], mib: usize) {
    for contestant in contestants {
        let pairs = contestants[0].seconds.iter().zip(&contestant.seconds);
        let ratio = median(pairs.map(|(first, this)| first / this).collect());
        let pairs = contestants[0].cpu_seconds.iter().zip(&contestant.cpu_seconds);
        let cpu_ratio = median(pairs.map(|(first, this)| first / this).collect());
        let seconds = contestant.median();
        println!(
            "{:28} {seconds:7.3} s {:6.2} GB/s {ratio:6.2} x; CPU {:6.2} s {cpu_ratio:6.2} x; {:6.1} MiB peak",
            contestant.name,
            (mib << 20) as f64 / seconds / 1e9,
            median(contestant.cpu_seconds.clone()),
            contestant.peak_kib as f64 / 1024.0
        );
    }
}

impl Contestant {
    fn new(name: &str, program: &Path, line: String) -> Contestant {
        let (name, program) = (name.to_owned(), program.to_owned());
        Contestant { name, program, line, seconds: Vec::new(), cpu_seconds: Vec::new(), peak_kib: 0 }
    }

    /// Runs it and returns the root hash that it prints, if any.
    fn run(&mut self, folder: &Path) -> String {
        self.remove_files(folder);
        let mut command = Command::new(&self.program);
        command.args(self.line.split_whitespace()).current_dir(folder);
        let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        assert!(output.status.success(), "{}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let root = text.lines().find_map(|line| line.strip_prefix("Root hash:"));
        root.map_or(String::new(), |root| root.trim().to_owned())
    }

    /// Runs it once more, timed, and watches its memory.
    fn measure(&mut self, folder: &Path) {
        self.remove_files(folder);
        let mut command = Command::new(&self.program);
        command.args(self.line.split_whitespace()).current_dir(folder).stdout(Stdio::null());
        let (start, cpu_before) = (Instant::now(), cpu_of_children());
        let mut child = command.spawn().expect("the command can be run");
        let status = format!("/proc/{}/status", child.id());
        loop {
            if let Some(exit) = child.try_wait().expect("a child") {
                assert!(exit.success(), "{}: {exit}", self.name);
                break;
            }
            let text = fs::read_to_string(&status).unwrap_or_default();
            let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
            self.peak_kib = self.peak_kib.max(peak.and_then(|peak| peak.parse().ok()).unwrap_or(0));
            sleep(Duration::from_millis(2));
        }
        self.seconds.push(start.elapsed().as_secs_f64());
        self.cpu_seconds.push(cpu_of_children() - cpu_before);
    }

    /// Formatting makes its files anew each time.
    fn remove_files(&self, folder: &Path) {
        if !self.line.contains("format") {
            return;
        }
        let words = self.line.split([' ', '=']);
        for name in ["theirs", "ours", "their-fec", "our-fec"] {
            if words.clone().any(|word| word == name) {
                let _ = fs::remove_file(folder.join(name));
            }
        }
    }

    fn median(&self) -> f64 {
        median(self.seconds.clone())
    }
}

/// User and system time of all children that have ended, from `/proc/self/stat`, in which time is counted in
/// hundredths of a second.
fn cpu_of_children() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("/proc");
    // The name in parentheses may hold spaces; after it the fields are numbers, from the third on.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<f64> = fields.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    (fields[12] + fields[13]) / 100.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn write_data(path: &Path, mib: usize) {
    let mut file = File::create(path).expect("a file in memory");
    let mut rng = Rng::new(1);
    for _ in 0..mib {
        file.write_all(&rng.bytes(1 << 20)).expect("memory");
    }
}
