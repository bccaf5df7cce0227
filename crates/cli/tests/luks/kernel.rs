//! Volumes that are made here, opened by the kernel's dm-crypt: it reads what was encrypted, and what it writes is read.

use std::fmt::Write;

use casemate_testkit::uml::Uml;
use casemate_testkit::{Place, Rng, slow_tests, tool};

use crate::twins::CHEAP;
use crate::{CASEMATE, yes};

/// How volumes are made: every family of ciphers and IVs, both versions, both kinds of headers.
const VOLUMES: [&str; 12] = [
    "",
    "--sector-size 4096",
    "--sector-size 2048 -c aes-xts-plain64 -s 256",
    "-c aes-cbc-essiv:sha256 --sector-size 1024",
    "-c serpent-xts-plain64 --crypt-offset 1M",
    "-c twofish-cbc-plain64 -s 192 --crypt-offset 4M",
    "-c xchacha12,aes-adiantum-plain64 -s 256 --sector-size 4096",
    "-c capi:xts(aes)-plain64 -s 512",
    "--type luks1",
    "--type luks1 -c aes-cbc-essiv:sha256 -s 256 --hash sha512",
    "--luks-header header --sector-size 4096",
    "--type luks1 --luks-header header --crypt-offset 4M",
];

/// Every cipher, mode, IV, key size and sector size that go together; for slow tests.
fn matrix() -> Vec<String> {
    let mut lines = Vec::new();
    for (cipher, keys) in [("aes", &[128, 192, 256][..]), ("serpent", &[128, 256]), ("twofish", &[192, 256])]
    {
        for (mode, ivs) in [
            ("xts", &["plain", "plain64", "plain64be", "essiv:sha256"][..]),
            ("cbc", &["plain", "plain64", "plain64be", "essiv:sha256", "eboiv"]),
        ] {
            for (iv, key) in ivs.iter().flat_map(|iv| keys.iter().map(move |key| (iv, key))) {
                // The digest is the key of ESSIV's cipher.
                let bits = if mode == "xts" { 2 * key } else { *key };
                let spec = format!("{cipher}-{mode}-{iv}");
                let spec = spec.trim_end_matches('-');
                for sector in [512, 1024, 2048, 4096] {
                    lines.push(format!("-c {spec} -s {bits} --sector-size {sector}"));
                }
                lines.push(format!("--type luks1 -c {spec} -s {bits}"));
            }
        }
    }
    for cipher in ["xchacha12", "xchacha20"] {
        let sectors = [512, 4096];
        lines.extend(sectors.map(|n| format!("-c {cipher},aes-adiantum-plain64 -s 256 --sector-size {n}")));
    }
    for hash in
        ["sha1", "sha224", "sha256", "sha384", "sha512", "ripemd160", "whirlpool", "blake2b-512", "sha3-256"]
    {
        lines.push(format!("--hash {hash}"));
        lines.push(format!("--type luks1 --hash {hash}"));
    }
    lines.extend(VOLUMES.map(str::to_owned));
    lines
}

#[test]
fn the_kernel_opens_what_is_made() {
    let volumes = if slow_tests() { matrix() } else { VOLUMES.map(str::to_owned).to_vec() };
    let Some(cryptsetup) = tool("cryptsetup") else { return };
    let place = Place::new(CASEMATE);
    let plain = Rng::new(5).bytes(64 << 10);
    let other = Rng::new(6).bytes(64 << 10);
    place.file("key", "a secret");
    place.file("plain", &plain);
    place.file("other", &other);
    let mut script = format!("cd {}\nC={}\n", place.folder().display(), cryptsetup.display());
    for (k, options) in volumes.iter().enumerate() {
        let options = options.replace("--luks-header header", &format!("--luks-header header{k}"));
        // Room for many.
        let offset = if slow_tests() && !options.contains("offset") { "--crypt-offset 2M" } else { "" };
        yes(place.own(&format!("luks format --from plain disk{k} --key-file key {options} {offset} {CHEAP}")));
        let header =
            if options.contains("luks-header") { format!("--header header{k}") } else { String::new() };
        writeln!(
            script,
            "$C open --disable-locks --key-file key {header} disk{k} v{k}\n\
             [ -b /dev/mapper/v{k} ] || dmsetup mknodes v{k}\n\
             cat /dev/mapper/v{k} >read{k}\n\
             dd if=other of=/dev/mapper/v{k} bs=64k conv=fsync 2>/dev/null\n\
             dmsetup table v{k} >table{k}\n\
             $C close v{k}"
        )
        .unwrap();
    }
    let Some(output) = Uml::new(script).run() else { return };
    output.expect_success();
    println!("{} volumes", volumes.len());
    for (k, options) in volumes.iter().enumerate() {
        assert!(place.read(format!("read{k}")) == plain, "{options}: the kernel reads something else");
        let header =
            if options.contains("luks-header") { format!("--luks-header header{k}") } else { String::new() };
        yes(place.own(&format!("luks extract disk{k} out --key-file key {header}")));
        assert!(place.read("out") == other, "{options}: the kernel wrote something else");
        let table = String::from_utf8(place.read(format!("table{k}"))).unwrap();
        assert!(table.contains(" crypt "), "{table}");
    }
}
