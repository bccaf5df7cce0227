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

use casemate_benches::commands::{Contestant, race, ratio, run};
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
    let fresh = format!("rm -f {out}");
    let contestant = |name: &str, line: &str| Contestant::new(name, &fresh, line);
    let contestants = [
        contestant("cp", &format!("cp --reflink=never {p} {out}")),
        contestant("dd bs=256k", &format!("dd if={p} of={out} bs=256k status=none")),
        contestant("casemate encrypt, 2 threads", &crypt("encrypt", &p, &out, "2")),
        contestant("casemate decrypt, 2 threads", &crypt("decrypt", &c, &out, "2")),
        contestant("casemate decrypt, 1 thread", &crypt("decrypt", &c, &out, "1")),
        contestant("qemu-img convert to LUKS", &to_luks),
        contestant("qemu-img convert from LUKS", &from_luks),
    ];
    let seconds = race(&format!("{mib} MiB in {folder}"), rounds, &contestants);
    println!("  encrypt: {:.1} times qemu-img", ratio(&seconds[2], &seconds[5]));
    println!("  decrypt: {:.1} times qemu-img", ratio(&seconds[3], &seconds[6]));
    for name in ["plain", "key", "cipher", "luks", "out"] {
        let _ = fs::remove_file(at(name));
    }
}
