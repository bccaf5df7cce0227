//! Images and volumes of many kinds, mounted and written to by a real kernel, and read here afterwards. `cargo xtask kernels` runs
//! this with newer kernels.

use std::fs;
use std::path::Path;

use casemate_testkit::qemu::Qemu;
use casemate_testkit::{Rng, TempDir, tempdir, tool};

use super::{Checks, own};

/// An image: the commands of the host that make it, those of the guest that show its file system as block device or folder,
/// and the host's layers that read it afterwards.
struct Case {
    name: &'static str,
    make: &'static [&'static str],
    /// Guest commands; `DISK` is the image's device there. They leave the file system's device in `$fs`.
    open: &'static str,
    close: &'static str,
    /// Commands at the mounted folder, before its files are read.
    unlock: &'static str,
    layers: &'static str,
}

const PLAIN: Case = Case { name: "", make: &[], open: "fs=DISK", close: "true", unlock: "true", layers: "" };
const PASS: &str = "printf %s secret";

const CASES: &[Case] = &[
    Case { name: "plain", make: &["ext4 build plain --from tree --size 24M"], ..PLAIN },
    Case {
        name: "small-blocks",
        make: &[
            "ext4 build small-blocks --from tree --size 24M -b 1024 -O inline_data,quota,metadata_csum_seed",
        ],
        ..PLAIN
    },
    Case {
        name: "clusters",
        make: &["ext4 build clusters --from tree --size 48M -O bigalloc -C 16384"],
        ..PLAIN
    },
    Case { name: "old", make: &["ext4 build old --from tree --size 24M -t ext3 -I 128"], ..PLAIN },
    Case {
        name: "changed",
        make: &[
            "ext4 build changed --from tree/d --size 24M",
            "ext4 put -r changed tree/big tree/name tree/link tree/d tree/empty /",
            "ext4 rm -r changed /0 /1 /2",
            "ext4 put -r changed tree/d/0 tree/d/1 tree/d/2 /",
            "ext4 rm changed /0 /1 /2",
            "ext4 rm -r changed /3",
        ],
        ..PLAIN
    },
    Case {
        name: "encrypted",
        make: &["ext4 build encrypted --from tree --size 24M --encrypt /d=key"],
        unlock: "mount -o remount,rw /mnt; xfs_io -r -c add_enckey /mnt </key >/dev/null",
        layers: "--fscrypt-key key",
        ..PLAIN
    },
    Case {
        name: "luks2",
        make: &["ext4 build inner --from tree --size 16M", "luks format luks2 --from inner -d pass COSTS"],
        open: "PASS | cryptsetup open --key-file=- DISK v; fs=/dev/mapper/v",
        close: "cryptsetup close v",
        layers: "--luks --key-file pass",
        ..PLAIN
    },
    Case {
        name: "luks1",
        make: &["luks format luks1 --type luks1 --from inner -d pass --pbkdf-force-iterations 1000"],
        open: "PASS | cryptsetup open --key-file=- DISK v; fs=/dev/mapper/v",
        close: "cryptsetup close v",
        layers: "--luks --key-file pass",
        ..PLAIN
    },
    Case {
        name: "luks2-tags",
        make: &["luks format luks2-tags --from inner -d pass COSTS --integrity hmac-sha256"],
        open: "PASS | cryptsetup open --key-file=- DISK v; fs=/dev/mapper/v",
        close: "cryptsetup close v",
        layers: "--luks --key-file pass",
        ..PLAIN
    },
    Case {
        name: "reencrypted",
        make: &[
            "luks format reencrypted --from inner -d pass COSTS -c aes-cbc-essiv:sha256 -s 256",
            "luks reencrypt reencrypted -d pass -c aes-xts-plain64 -s 512 --sector-size 4096",
        ],
        open: "PASS | cryptsetup open --key-file=- DISK v; fs=/dev/mapper/v",
        close: "cryptsetup close v",
        layers: "--luks --key-file pass",
        ..PLAIN
    },
    Case {
        name: "checksums",
        make: &["integrity format checksums -I crc32c --size 32M --from inner"],
        open: "integritysetup open -I crc32c DISK v; fs=/dev/mapper/v",
        close: "integritysetup close v",
        layers: "--dm-integrity crc32c",
        ..PLAIN
    },
    Case {
        name: "mapped",
        make: &["crypt encrypt inner mapped -d raw -s 256"],
        open: "cryptsetup open --type plain -c aes-xts-plain64 -s 256 --key-file /raw DISK v; fs=/dev/mapper/v",
        close: "cryptsetup close v",
        layers: "--crypt aes-xts-plain64 --key-size 256 --key-file raw",
        ..PLAIN
    },
];

/// Names, kinds, modes, owners, sizes and contents below the current folder; the same line of busybox on both sides.
const LIST: &str = "(find . ! -name 'lost+found' | sort | xargs stat -c '%n %f %u %g'; \
                    find . -type f | sort | xargs sha256sum; find . -type l | sort | xargs -n 1 readlink) | sha256sum | cut -c 1-64";

fn tree(folder: &TempDir) {
    let root = folder.path().join("tree");
    fs::create_dir_all(root.join("d/deep")).unwrap();
    let mut rng = Rng::new(71);
    for k in 0..150_usize {
        fs::write(root.join(format!("d/{k}")), rng.bytes(k * 37)).unwrap();
    }
    fs::write(root.join("big"), rng.bytes(3_000_001)).unwrap();
    fs::write(root.join("name"), "a line\n").unwrap();
    fs::write(root.join("empty"), "").unwrap();
    std::os::unix::fs::symlink("d/deep/../7", root.join("link")).unwrap();
}

fn listed(folder: &Path) -> String {
    let mut command = std::process::Command::new("busybox");
    let script = format!("cd {} && {}", folder.display(), LIST);
    casemate_testkit::run(command.args(["sh", "-c", &script])).trim().to_owned()
}

#[test]
fn kernels_read_and_write_what_is_made() {
    let programs = ["cryptsetup", "integritysetup", "xfs_io"];
    for needed in programs.into_iter().chain(["busybox"]) {
        if tool(needed).is_none() {
            return;
        }
    }
    let folder = tempdir().unwrap();
    tree(&folder);
    fs::write(folder.path().join("pass"), "secret").unwrap();
    fs::write(folder.path().join("key"), [7_u8; 64]).unwrap();
    fs::write(folder.path().join("raw"), Rng::new(9).bytes(32)).unwrap();
    let mut checks = Checks::default();
    checks.run(&format!("printf '{}' >/key", "\\007".repeat(64)));
    let raw: String = Rng::new(9).bytes(32).iter().map(|byte| format!("\\{byte:03o}")).collect();
    checks.run(&format!("printf '{raw}' >/raw"));
    let mut guest = Qemu::new(String::new()).modules(&[
        "quota_v2",
        "crc32c_cryptoapi",
        "dm_crypt",
        "dm_integrity",
        "xts",
        "cts",
        "hmac",
        "cbc",
        "essiv",
        "algif_skcipher",
        "algif_hash",
    ]);
    for (case, letter) in CASES.iter().zip('a'..='z') {
        for line in case.make {
            let costs = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
            own(&folder, &line.replace("COSTS", costs));
        }
        let device = format!("/dev/vd{letter}");
        let fill = |text: &str| text.replace("DISK", &device).replace("PASS", PASS);
        checks.run(&fill(case.open));
        checks.run("mount -t ext4 $fs /mnt");
        checks.run(case.unlock);
        let made = format!("made-{}", case.name);
        own(&folder, &format!("ext4 extract {} {made} {}", case.name, case.layers));
        checks.prints(&format!("cd /mnt; {LIST}; cd /"), listed(&folder.path().join(&made)));
        // The kernel takes a file away, adds one, and one in a directory that may be encrypted.
        checks.run("rm /mnt/name; mkdir -p /mnt/d; seq 5000 >/mnt/d/more; cp /mnt/d/more /mnt/new; sync");
        checks.prints(
            &format!("cd /mnt; echo {} $( {LIST} ); cd /; umount /mnt; {}", case.name, fill(case.close)),
            case.name,
        );
        guest = guest.disk(folder.path().join(case.name));
    }
    for program in programs {
        guest = guest.program(program);
    }
    let Some(output) = guest.script(checks.script).run() else { return };
    let output = output.expect_success();
    let found: Vec<_> = output.stdout.lines().collect();
    assert_eq!(
        found.len(),
        checks.expected.len(),
        "{}\n{}\n{}",
        output.stdout,
        output.stderr,
        output.console
    );
    for (found, expected) in found.iter().zip(&checks.expected) {
        // What the kernel shows after its writes is what is extracted here afterwards.
        let (found, expected) = match found.split_once(' ') {
            Some((name, digest)) => {
                let case = CASES.iter().find(|case| case.name == name).unwrap();
                own(&folder, &format!("ext4 check {name} {}", case.layers.replace("--fscrypt-key key", "")));
                own(&folder, &format!("ext4 extract {name} after-{name} {}", case.layers));
                (digest.to_owned(), listed(&folder.path().join(format!("after-{name}"))))
            }
            None => ((*found).to_owned(), expected.clone()),
        };
        assert_eq!(found, expected, "{}\n{}", output.stderr, output.console);
    }
}
