//! `casemate serve` beside `qemu-nbd` with a LUKS image and nbdkit with its luks filter, over a Unix socket, images in
//! memory.
//!
//! What each server gives is compared with the plaintext before and after. The contestants take turns, in short rounds,
//! every second time in the opposite order. Throughputs are medians; ratios are medians of the rounds' ratios.
//!
//! Build the command first: `cargo build --release -p casemate-cli`. Arguments: the folder [/dev/shm], MiB [128], rounds
//! [5], milliseconds for each measurement [100], and words that select rows, such as "128" or "QD1" [all].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use casemate_benches::nbd::{Contestant, Load, Speed, write_image};
use casemate_benches::{Probe, median};
use casemate_primitives::testing::Rng;

const CASEMATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/release/casemate");

/// Contestants by their places.
const PLAIN: usize = 0;
const CRYPT: usize = 1;
const VERITY: usize = 3;
const QEMU: usize = 4;
const NBDKIT: usize = 5;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let folder = PathBuf::from(args.first().map_or("/dev/shm", String::as_str)).join("casemate-bench-nbd");
    let number =
        |at: usize, default: u64| args.get(at).map_or(default, |text| text.parse().expect("a number"));
    let (mib, rounds, time) = (number(1, 128), number(2, 5), Duration::from_millis(number(3, 100)));
    let words: Vec<&str> = args.iter().skip(4).map(String::as_str).collect();
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the folder can be made");
    let mut servers = start(&folder, mib);
    servers.iter_mut().for_each(|server| server.check(mib));
    println!("{mib} MiB in {}, {rounds} rounds of {time:?}; before: {}", folder.display(), Probe::measure());
    let names: Vec<&str> = servers.iter().map(|server| server.name).collect();
    println!("MB/s");
    println!("| request | {} | beside qemu-nbd | beside nbdkit | of plain |", names.join(" | "));
    println!("|---|{}", "---:|".repeat(names.len() + 3));
    let mut cpu = Vec::new();
    for load in Load::all(&[4 << 10, 128 << 10, 1 << 20]) {
        let name = load.name();
        if !words.iter().all(|word| name.split(' ').any(|part| part == *word)) {
            continue;
        }
        let mut results: Vec<Vec<Speed>> = vec![Vec::new(); servers.len()];
        for round in 0..rounds {
            for k in 0..servers.len() {
                let k = if round % 2 == 0 { k } else { servers.len() - 1 - k };
                if k != VERITY || !load.write {
                    results[k].push(servers[k].measure(load, time));
                }
            }
        }
        let of = |part: fn(&Speed) -> f64, digits: usize| {
            let cell = |results: &Vec<Speed>| match results.is_empty() {
                true => "-".to_owned(),
                false => format!("{:.digits$}", median(results.iter().map(part).collect())),
            };
            results.iter().map(cell).collect::<Vec<_>>().join(" | ")
        };
        let ratio = |to: usize| {
            let each = results[CRYPT].iter().zip(&results[to]);
            median(each.map(|(own, other)| own.throughput / other.throughput).collect())
        };
        println!(
            "| {name} | {} | {:.1} | {:.1} | {:.0} % |",
            of(|speed| speed.throughput, 0),
            ratio(QEMU),
            ratio(NBDKIT),
            100.0 * ratio(PLAIN)
        );
        let client = median(results[CRYPT].iter().map(|speed| speed.client).collect());
        cpu.push(format!("| {name} | {} | {client:.0} |", of(|speed| speed.server, 0)));
    }
    println!("CPU time, ns for each KiB: the servers', and the client's with crypt 512");
    println!("| request | {} | client |", names.join(" | "));
    println!("|---|{}", "---:|".repeat(names.len() + 1));
    cpu.iter().for_each(|row| println!("{row}"));
    servers.iter_mut().for_each(|server| server.check(mib));
    drop(servers);
    let _ = fs::remove_dir_all(&folder);
}

/// Makes the images and starts the servers.
fn start(folder: &Path, mib: u64) -> Vec<Contestant> {
    let at = |name: &str| folder.join(name).display().to_string();
    let chunk = write_image(&folder.join("plain"), mib);
    fs::copy(at("plain"), at("raw")).expect("room for the image");
    // qemu's secrets are text.
    let mut rng = Rng::new(2);
    let key: String = (0..64).map(|_| char::from(b'a' + rng.below(26) as u8)).collect();
    fs::write(at("key"), key).expect("the key");
    let crypt = |out: &str, more: &str| {
        run(&format!(
            "{CASEMATE} crypt encrypt {} {} --key-file {} --key-size 512 {more}",
            at("plain"),
            at(out),
            at("key")
        ))
    };
    crypt("c512", "");
    crypt("c4096", "--sector-size 4096");
    let root = run(&format!("{CASEMATE} verity format {} {}", at("plain"), at("tree")));
    let root =
        root.lines().find_map(|line| line.strip_prefix("Root hash:")).expect("a root hash").trim().to_owned();
    let secret = format!("secret,id=s,file={},format=raw", at("key"));
    run(&format!(
        "qemu-img convert --object {secret} -f raw -O luks -o key-secret=s,iter-time=100 {} {}",
        at("plain"),
        at("luks")
    ));
    fs::copy(at("luks"), at("luks2")).expect("room for the image");
    let serve = |socket: &str, rest: &str| {
        let may = if rest.contains("--dm-verity") { "--read-only" } else { "--write" };
        format!("{CASEMATE} serve {may} --socket {} {rest}", at(socket))
    };
    let options = "--crypt aes-xts-plain64 --key-size 512";
    let key = at("key");
    let lines = [
        ("plain", serve("s0", &at("raw"))),
        ("crypt 512", serve("s1", &format!("{options} --key-file {key} {}", at("c512")))),
        (
            "crypt 4096",
            serve("s2", &format!("{options} --sector-size 4096 --key-file {key} {}", at("c4096"))),
        ),
        ("verity", serve("s3", &format!("--dm-verity {} {root} {}", at("tree"), at("plain")))),
        (
            "qemu-nbd luks",
            format!(
                "qemu-nbd -t -k {} --object {secret} --image-opts driver=luks,file.filename={},key-secret=s",
                at("s4"),
                at("luks")
            ),
        ),
        (
            "nbdkit luks",
            format!("nbdkit -f -U {} --filter=luks file {} passphrase=+{key}", at("s5"), at("luks2")),
        ),
    ];
    let start = |(k, (name, line)): (usize, (&'static str, String))| {
        Contestant::start(name, &line, &folder.join(format!("s{k}")), &chunk)
    };
    lines.into_iter().enumerate().map(start).collect()
}

/// Runs a command, again if qemu-img can't time its key derivation, and gives what it says.
fn run(line: &str) -> String {
    loop {
        let mut words = line.split_whitespace();
        let output = Command::new(words.next().expect("a program")).args(words).output();
        let output = output.unwrap_or_else(|error| panic!("{line}: {error}"));
        if output.status.success() {
            return String::from_utf8(output.stdout).expect("text");
        }
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(why.contains("accurate CPU usage"), "{line}: {why}");
    }
}
