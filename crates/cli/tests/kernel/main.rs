//! Images made by casemate under Debian's stock kernel: error correction by its dm-verity, and its fs-verity.

mod matrix;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use casemate_testkit::qemu::Qemu;
use casemate_testkit::{Rng, TempDir, run, tempdir, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");
const BLOCK: usize = 4096;

/// Runs a line of words in the folder and returns what it printed.
fn words(folder: &TempDir, line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    run(command.args(words).current_dir(folder.path())).trim_end().to_owned()
}

fn own(folder: &TempDir, line: &str) -> String {
    words(folder, &format!("{CASEMATE} {line}"))
}

/// The first word that `sha256sum` prints.
fn sha256(folder: &TempDir, name: &str) -> String {
    words(folder, &format!("sha256sum {name}")).split(' ').next().unwrap().to_owned()
}

/// One boot for all, because it is what takes long.
#[test]
fn a_stock_kernel_corrects_by_our_parity_and_measures_what_we_digest() {
    for needed in ["veritysetup", "dmsetup", "fsverity", "keyctl", "mke2fs", "openssl", "busybox"] {
        if tool(needed).is_none() {
            return;
        }
    }
    let folder = tempdir().unwrap();
    let mut checks = Checks::default();
    error_correction(&folder, &mut checks);
    fs_verity(&folder, &mut checks);
    a_root(&folder, &mut checks);
    let mut guest = Qemu::new(checks.script);
    for program in [CASEMATE, "veritysetup", "dmsetup", "fsverity", "keyctl"] {
        guest = guest.program(program);
    }
    for image in ["data", "hash", "fec", "files.img", "root.img"] {
        guest = guest.disk(folder.path().join(image));
    }
    let Some(output) = guest.run() else { return };
    let output = output.expect_success();
    let found: Vec<_> = output.stdout.lines().collect();
    assert_eq!(found, checks.expected, "{}\n{}", output.stderr, output.console);
}

/// Commands for the guest, and the lines that they should print there.
#[derive(Default)]
struct Checks {
    script: String,
    expected: Vec<String>,
}

impl Checks {
    fn run(&mut self, command: &str) {
        self.script += &format!("{command}\n");
    }

    fn prints(&mut self, command: &str, expected: impl Into<String>) {
        self.run(command);
        self.expected.push(expected.into());
    }

    /// A command that must fail.
    fn fails(&mut self, command: &str) {
        self.prints(
            &format!("if {command} >/dev/null 2>&1; then echo done; else echo refused; fi"),
            "refused",
        );
    }
}

/// Damaged data, which the kernel reads as it was before.
fn error_correction(folder: &TempDir, checks: &mut Checks) {
    let path = |name: &str| folder.path().join(name);
    let flip = |name: &str, offset: usize| {
        let mut bytes = fs::read(path(name)).unwrap();
        bytes[offset] ^= 0x40;
        fs::write(path(name), bytes).unwrap();
    };
    fs::write(path("data"), Rng::new(1).bytes(700 * BLOCK)).unwrap();
    let fec = "--fec-device=fec --fec-roots=8";
    own(folder, &format!("verity format data hash {fec} --root-hash-file=root"));
    let root = fs::read_to_string(path("root")).unwrap();
    let names = "--data-name=/dev/vda --hash-name=/dev/vdb --fec-name=/dev/vdc";
    let table = own(folder, &format!("verity table data hash {root} {names} {fec} --print=table"));
    let whole = sha256(folder, "data");
    for block in [0, 1, 300, 699] {
        flip("data", block * BLOCK + block);
    }
    // After the superblock and the top block, the second block of level 0: over data blocks 128 to 255.
    flip("hash", 3 * BLOCK);

    let devices = format!("/dev/vda v /dev/vdb {root}");
    checks.run(&format!("veritysetup open {devices} --fec-device=/dev/vdc --fec-roots=8"));
    checks.prints("sha256sum </dev/mapper/v | cut -c 1-64", whole.clone());
    checks.run("veritysetup close v");
    checks.run(&format!("dmsetup create v -r --table '{table}'"));
    checks.prints("sha256sum </dev/mapper/v | cut -c 1-64", whole);
    checks.run("dmsetup remove v");
    // Without the parity the same blocks are refused, and those below the bad hash block.
    checks.run(&format!("veritysetup open {devices}"));
    let read = |block: usize| format!("dd if=/dev/mapper/v bs={BLOCK} count=1 skip={block}");
    for block in [0, 1, 128, 255, 300, 699] {
        checks.fails(&read(block));
    }
    checks.run(&format!("{} of=/dev/null 2>/dev/null", read(2)));
    checks.run("veritysetup close v");
}

/// Files whose digests, trees and signatures are made here, and then by the kernel.
fn fs_verity(folder: &TempDir, checks: &mut Checks) {
    let files = folder.path().join("files");
    fs::create_dir(&files).unwrap();
    let file = |name: &str, size: usize| {
        fs::write(files.join(name), Rng::new(size as u64).bytes(size)).unwrap();
    };
    checks.run("mount /dev/vdd /mnt; cd /mnt");
    for (number, (size, options)) in [
        (0, ""),
        (1, "--salt=a1b2c3"),
        (BLOCK, "--hash-alg=sha512"),
        (BLOCK + 1, "--hash-alg=sha512 --salt=00ff"),
        (129 * BLOCK, "--salt=0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("f{number}");
        file(&name, size);
        let line = own(folder, &format!("fsverity digest files/{name} {options} --out-merkle-tree=tree"));
        let line = line.replace("files/", "");
        checks.run(&format!("casemate fsverity enable {name} {options}"));
        checks.prints(&format!("casemate fsverity measure {name}"), line.clone());
        checks.prints(&format!("fsverity measure {name}"), line);
        let tree = "casemate fsverity dump_metadata merkle_tree";
        checks.prints(&format!("{tree} {name} | sha256sum | cut -c 1-64"), sha256(folder, "tree"));
        checks.fails(&format!("casemate fsverity enable {name}"));
        checks.fails(&format!("sh -c 'echo >>{name}'"));
    }

    ["signed", "other", "unsigned"].iter().zip([BLOCK * 3, BLOCK * 4, 5]).for_each(|(name, size)| {
        file(name, size);
    });
    let (key, cert) = signer();
    words(folder, &format!("openssl x509 -in {cert} -outform der -out files/cert.der"));
    own(folder, &format!("fsverity sign files/signed files/signature --key={key} --cert={cert}"));
    checks.run("keyctl padd asymmetric '' %keyring:.fs-verity <cert.der >/dev/null");
    checks.run("echo 1 >/proc/sys/fs/verity/require_signatures");
    checks.run("casemate fsverity enable signed --signature=signature");
    checks.prints("sha256sum <signed | cut -c 1-64", sha256(folder, "files/signed"));
    checks.run("casemate fsverity dump_metadata signature signed >copy; cmp copy signature");
    checks.fails("casemate fsverity enable other --signature=signature");
    checks.fails("casemate fsverity enable unsigned");

    let image = PathBuf::from("files.img");
    fs::File::create(folder.path().join(&image)).unwrap().set_len(16 << 20).unwrap();
    words(folder, "mke2fs -q -t ext4 -b 4096 -O verity -d files files.img");
}

/// A private key and its certificate, which the guest trusts once it was told.
fn signer() -> (String, String) {
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../verity/tests/fixtures/fs-verity/keys");
    let path = |name: &str| keys.join(name).display().to_string();
    (path("rsa2048.key.pem"), path("rsa2048.cert.pem"))
}

/// A small root that is built here, with signed fs-verity on its files and under dm-verity: the kernel, which wants signatures,
/// opens it and runs its init.
fn a_root(folder: &TempDir, checks: &mut Checks) {
    let root = folder.path().join("small");
    for name in ["bin", "etc", "sbin"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::copy(tool("busybox").unwrap(), root.join("bin/busybox")).unwrap();
    fs::write(root.join("etc/name"), "a small root\n").unwrap();
    let init = "#!/bin/busybox sh\nread name </etc/name\necho \"booted $name\"\n/bin/busybox touch /etc/more 2>/dev/null || echo sealed\n";
    fs::write(root.join("sbin/init"), init).unwrap();
    fs::set_permissions(root.join("sbin/init"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let build = "ext4 build root.img --from small --owner 0:0 --verity --manifest digests --dm-verity append";
    let (key, cert) = signer();
    let build = format!("{build} --signing-key {key} --cert {cert}");
    let said = own(folder, &format!("{build} --root-hash-file root.txt --json"));
    let size = serde_json::from_str::<serde_json::Value>(&said).unwrap()["size"].as_u64().unwrap();
    let hash = fs::read_to_string(folder.path().join("root.txt")).unwrap();
    checks.run(&format!("veritysetup open /dev/vde root /dev/vde {} --hash-offset={size}", hash.trim()));
    checks.run("mkdir -p /new; mount -o ro /dev/mapper/root /new");
    checks.prints("chroot /new /sbin/init", "booted a small root");
    checks.expected.push("sealed".to_owned());
    // What the kernel measures of its files is what the manifest says.
    for line in fs::read_to_string(folder.path().join("digests")).unwrap().lines() {
        let (digest, path) = line.split_once(' ').unwrap();
        let path = path.trim_start_matches('/');
        checks.prints(&format!("cd /new; casemate fsverity measure {path}"), format!("{digest} {path}"));
    }
    checks.run("cd /; umount /new; veritysetup close root");
}
