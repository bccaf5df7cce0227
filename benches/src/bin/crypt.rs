//! `casemate crypt encrypt` and `decrypt` beside `qemu-img convert`, `cp` and `dd`, as whole commands on an image in
//! the page cache.
//!
//! The commands run in turn; casemate's result is compared with its source first. qemu-img writes LUKS1, the only
//! encrypted format it has: aes-256-xts-plain64 in sectors of 512 bytes, the same cipher and IVs. `cp` lets the kernel
//! copy (copy_file_range), `dd` reads and writes 256 KiB at a time, as casemate does.
//!
//! Build the command first: `cargo build --release -p casemate-cli`. Arguments: the folder [/dev/shm], MiB [2048],
//! rounds [5].

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::time::Instant;

use casemate_benches::{Probe, median};
use casemate_primitives::testing::Rng;

const CASEMATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/release/casemate");

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let folder = args.first().map_or("/dev/shm", String::as_str);
    let number =
        |at: usize, default: u64| args.get(at).map_or(default, |text| text.parse().expect("a number"));
    let (mib, rounds) = (number(1, 2048), number(2, 5));
    let at = |name: &str| format!("{folder}/casemate-bench-{name}");
    let mut rng = Rng::new(1);
    let chunk = rng.bytes(1 << 20);
    let mut plain = File::create(at("plain")).expect("the folder can be written");
    (0..mib).for_each(|_| plain.write_all(&chunk).expect("room for the image"));
    fs::write(at("key"), rng.bytes(64)).expect("the key");

    let (p, k, c, l, out) = (at("plain"), at("key"), at("cipher"), at("luks"), at("out"));
    let secret = format!("secret,id=s,file={k},format=raw");
    let crypt = |action: &str, from: &str, to: &str, threads: &str| {
        format!("{CASEMATE} crypt {action} {from} {to} --key-file {k} --key-size 512 --threads {threads}")
    };
    let to_luks =
        format!("qemu-img convert --object {secret} -f raw -O luks -o key-secret=s,iter-time=200 {p} {l}");
    let from_luks = format!(
        "qemu-img convert --object {secret} --image-opts driver=luks,file.filename={l},key-secret=s -O raw {out}"
    );
    // The secret must be text; hexadecimal digits of the key's bytes are.
    let text: String =
        fs::read(&k).expect("the key").iter().map(|byte| char::from(b'a' + byte % 26)).collect();
    fs::write(&k, text).expect("the key");

    run(&crypt("encrypt", &p, &c, "2"));
    run(&crypt("decrypt", &c, &out, "2"));
    run(&format!("cmp {p} {out}"));
    let contestants = [
        ("cp", format!("cp --reflink=never {p} {out}")),
        ("dd bs=256k", format!("dd if={p} of={out} bs=256k status=none")),
        ("casemate encrypt, 2 threads", crypt("encrypt", &p, &out, "2")),
        ("casemate decrypt, 2 threads", crypt("decrypt", &c, &out, "2")),
        ("casemate decrypt, 1 thread", crypt("decrypt", &c, &out, "1")),
        ("qemu-img convert to LUKS", to_luks),
        ("qemu-img convert from LUKS", from_luks),
    ];
    println!("{mib} MiB in {folder}, {rounds} rounds; before: {}", Probe::measure());
    let mut seconds = vec![Vec::new(); contestants.len()];
    for _ in 0..rounds {
        for (k, (_, line)) in contestants.iter().enumerate() {
            let _ = fs::remove_file(&out);
            seconds[k].push(run(line));
        }
    }
    for ((name, _), own) in contestants.iter().zip(&seconds) {
        let ratio = median(seconds[0].iter().zip(own).map(|(cp, own)| cp / own).collect());
        let best = own.iter().copied().fold(f64::INFINITY, f64::min);
        println!(
            "  {name:<32} {:>7.3} s  best {best:>7.3}   {ratio:>5.2} of cp's speed",
            median(own.clone())
        );
    }
    for (own, qemu) in [(2, 5), (3, 6)] {
        let ratio = median(seconds[own].iter().zip(&seconds[qemu]).map(|(own, qemu)| qemu / own).collect());
        println!("  {}: {ratio:.1} times {}", contestants[own].0, contestants[qemu].0);
    }
    for name in ["plain", "key", "cipher", "luks", "out"] {
        let _ = fs::remove_file(at(name));
    }
}

/// Runs a command and gives the seconds that it took. qemu-img now and then can't time its key derivation and stops at
/// once; then it is run again.
fn run(line: &str) -> f64 {
    loop {
        let mut words = line.split(' ');
        let program = words.next().expect("a program");
        let start = Instant::now();
        let output = Command::new(program).args(words).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        if output.status.success() {
            return start.elapsed().as_secs_f64();
        }
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(why.contains("accurate CPU usage"), "{line}: {why}");
    }
}
