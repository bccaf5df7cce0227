//! `casemate luks` beside `qemu-img`, `cryptsetup` and `cp`, as whole commands on files in the page cache.
//!
//! - `data`: volumes made with their data (`format --from`) and decrypted (`extract`), beside `qemu-img convert` to and from
//!   LUKS1, the only encrypted format it has, and `cp`. The same cipher, aes-256-xts-plain64 in sectors of 512 bytes; key
//!   derivation costs next to nothing.
//! - `reencrypt`: a LUKS2 volume under a new volume key, beside `cryptsetup reencrypt` on the same bytes, each resilience.
//! - `kdf`: a passphrase tried against a slot of cryptsetup's default costs (Argon2id, 1 GiB, 4 passes, 4 lanes), beside
//!   `cryptsetup open --test-passphrase`, which has the reference implementation.
//!
//! Results are compared before anything is timed. Build the command first: `cargo build --release -p casemate-cli`.
//! Arguments: what, the folder [/dev/shm], MiB [2048], rounds [5].

use std::fs::File;
use std::io::Write;

use casemate_benches::commands::{Contestant, race, ratio, run, shell};
use casemate_primitives::testing::Rng;

const CASEMATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/release/casemate");

const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let what = args.first().map_or("data", String::as_str);
    let folder = args.get(1).map_or("/dev/shm", String::as_str);
    let number =
        |at: usize, default: u64| args.get(at).map_or(default, |text| text.parse().expect("a number"));
    let (mib, rounds) = (number(2, 2048), number(3, 5));
    let folder = format!("{folder}/casemate-bench-luks");
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    std::env::set_current_dir(&folder).expect("the folder is there");
    shell("printf 'a passphrase' > key");
    match what {
        "data" => data(mib, rounds),
        "reencrypt" => reencrypt(mib, rounds),
        "kdf" => kdf(rounds),
        _ => panic!("data, reencrypt or kdf"),
    }
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}

fn plain(mib: u64) {
    let chunk = Rng::new(1).bytes(1 << 20);
    let mut plain = File::create("plain").expect("the folder can be written");
    (0..mib).for_each(|_| plain.write_all(&chunk).expect("room for the image"));
}

fn data(mib: u64, rounds: u64) {
    plain(mib);
    let format = format!("{CASEMATE} luks format --from plain out --key-file key {CHEAP} --threads 2");
    let extract = |threads| format!("{CASEMATE} luks extract volume out --key-file key --threads {threads}");
    let secret = "secret,id=s,file=key,format=raw";
    let to = format!(
        "qemu-img convert --object {secret} -f raw -O luks -o key-secret=s,iter-time=200 plain other"
    );
    let from = format!(
        "qemu-img convert --object {secret} --image-opts driver=luks,file.filename=other,key-secret=s -O raw out"
    );
    run(&to);
    run(&from);
    shell("cmp plain out; rm out");
    run(&format);
    shell("mv out volume");
    run(&extract(2));
    shell("cmp plain out");
    let contestants = [
        Contestant::new("cp", "rm -f out", "cp --reflink=never plain out"),
        Contestant::new("casemate luks format --from", "rm -f out", &format),
        Contestant::new("casemate luks extract", "rm -f out", &extract(2)),
        Contestant::new("casemate luks extract, 1 thread", "rm -f out", &extract(1)),
        Contestant::new("qemu-img convert to LUKS", "rm -f other", &to),
        Contestant::new("qemu-img convert from LUKS", "rm -f out", &from),
    ];
    let seconds = race(&format!("{mib} MiB"), rounds, &contestants);
    println!("  format: {:.1} times qemu-img", ratio(&seconds[1], &seconds[4]));
    println!("  extract: {:.1} times qemu-img", ratio(&seconds[2], &seconds[5]));
}

fn reencrypt(mib: u64, rounds: u64) {
    plain(mib);
    run(&format!("{CASEMATE} luks format --from plain volume --key-file key {CHEAP}"));
    for resilience in ["checksum", "journal", "none"] {
        let own = format!(
            "{CASEMATE} luks reencrypt copy --key-file key --resilience {resilience} {CHEAP} --threads 2"
        );
        let other = format!(
            "cryptsetup reencrypt -q --force-offline-reencrypt --key-file key --resilience {resilience} {CHEAP} copy"
        );
        for line in [&own, &other] {
            shell("cp --reflink=never volume copy");
            run(line);
            run(&format!("{CASEMATE} luks extract copy out --key-file key"));
            shell("cmp plain out; rm out; ! cmp -s volume copy");
        }
        let contestants = [
            Contestant::new("casemate luks reencrypt", "cp --reflink=never volume copy", &own),
            Contestant::new("cryptsetup reencrypt", "cp --reflink=never volume copy", &other),
        ];
        let seconds = race(&format!("{mib} MiB, resilience {resilience}"), rounds, &contestants);
        println!("  {:.1} times cryptsetup", ratio(&seconds[0], &seconds[1]));
    }
}

fn kdf(rounds: u64) {
    shell("truncate -s 20M volume");
    let costs = "--pbkdf argon2id --pbkdf-memory 1048576 --pbkdf-force-iterations 4 --pbkdf-parallel 4";
    run(&format!("cryptsetup luksFormat -q --type luks2 {costs} volume key"));
    let contestants = [
        Contestant::new(
            "casemate luks test-passphrase",
            "",
            &format!("{CASEMATE} luks test-passphrase volume --key-file key"),
        ),
        Contestant::new(
            "cryptsetup open --test-passphrase",
            "",
            "cryptsetup open --test-passphrase --key-file key volume",
        ),
    ];
    let seconds = race("Argon2id, 1 GiB, 4 passes, 4 lanes", rounds, &contestants);
    println!("  {:.1} times cryptsetup", ratio(&seconds[0], &seconds[1]));
}
