//! Calls of ioctl(2) on files of folders: flags, projects, digests and keys, by the tools that make them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use casemate_testkit::{find_program, kernel, mke2fs, run, run_any, skip, tool};

use super::{Folders, assert_same_lines, images};

#[test]
fn flags_are_as_the_kernel_changes_them() {
    let (Some(mke2fs), Some(_), Some(_)) = (tool("mke2fs"), tool("lsattr"), tool("setpriv")) else { return };
    if !kernel::loop_mounts_work() {
        return skip("no loop mounts");
    }
    let Some(folders) = Folders::new() else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/flags.sh");
    for options in ["-I 256", "-b 1024 -O inline_data"] {
        mke2fs::make(&mke2fs, &format!("-t ext4 {options}"), &folders.path("root.img"), "16M");
        let line = format!(
            "cd {}; chmod 755 .; cp root.img copy; mkdir -p kernel; mount -o loop copy kernel
             bash {script} kernel > kernel.txt; umount kernel",
            folders.folder().display()
        );
        kernel::with_mounts(&line).unwrap();
        folders.mount("--write --allow-other root.img", "own");
        folders.sh(&format!("bash {script} own > own.txt"));
        folders.unmount("own");
        let read = |name: &str| fs::read_to_string(folders.path(name)).unwrap();
        assert_same_lines(&read("own.txt"), &read("kernel.txt"), options);
        folders.yes("ext4 check root.img");
        if let Some(e2fsck) = tool("e2fsck") {
            run(Command::new(e2fsck).arg("-fn").arg(folders.path("root.img")));
        }
    }
}

/// Quotas of projects, which not every kernel counts.
#[test]
fn projects_are_set_inherited_and_counted() {
    let (Some(mke2fs), Some(_), Some(folders)) = (tool("mke2fs"), tool("chattr"), Folders::new()) else {
        return;
    };
    let options = "-t ext4 -I 256 -O quota,project -E quotatype=usrquota:grpquota:prjquota";
    mke2fs::make(&mke2fs, options, &folders.path("root.img"), "16M");
    folders.mount("--write root.img", "own");
    folders.sh("cd own; mkdir d; head -c 50000 /dev/zero > f; chattr -p 7 f d; chattr +P d; mkdir d/sub; touch d/x; touch other");
    let listed = folders.sh("cd own; lsattr -pd f d d/sub d/x other");
    let projects: Vec<_> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(projects, ["7", "7", "7", "7", "0"], "{listed}");
    assert!(listed.lines().nth(2).unwrap().contains('P'), "{listed}");
    // A file of another project is copied there, not moved.
    folders.sh("python3 -c 'import os; os.rename(\"own/other\", \"own/d/other\")' 2>&1 | grep -q 'Errno 18'; chattr -p 8 own/f");
    folders.unmount("own");
    folders.yes("ext4 check root.img");
    if let Some(e2fsck) = tool("e2fsck") {
        run(Command::new(e2fsck).arg("-fn").arg(folders.path("root.img")));
    }
}

/// Names without regard to case, which not every kernel has; and what is not done.
#[test]
fn directories_get_names_without_regard_to_case() {
    let (Some(mke2fs), Some(_), Some(folders)) = (tool("mke2fs"), tool("chattr"), Folders::new()) else {
        return;
    };
    mke2fs::make(&mke2fs, "-t ext4 -O casefold", &folders.path("root.img"), "16M");
    folders.mount("--write root.img", "own");
    // That there is no such name is not remembered.
    folders.sh("mkdir own/d; ! cat own/d/NAME 2> cat.log; chattr +F own/d; echo 1 > own/d/name; cat own/d/NAME; rm own/d/Name");
    folders.sh("chattr -F own/d; echo 1 > own/d/a; ! chattr +F own/d 2> chattr.log; chattr -v 5 own/d/a 2>> chattr.log || true");
    let said = folders.sh("cat chattr.log; chattr -e own/d/a 2>&1 || true");
    assert!(said.contains("Directory not empty") && said.contains("Operation not supported"), "{said}");
    let listed = folders.sh("lsattr -v own/d/a");
    folders.unmount("own");
    let stat = folders.yes("ext4 stat root.img /d/a --json");
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    assert_eq!(listed.split_whitespace().next(), Some(&*stat["generation"].to_string()), "{listed}");
    folders.yes("ext4 check root.img");
}

/// A command that prints a file's `FS_XFLAG_*` in hexadecimal, by FS_IOC_FSGETXATTR, and sets them again as they are.
fn xflags(path: &str) -> String {
    let script = "import fcntl, os, struct, sys; at = os.open(sys.argv[1], os.O_RDONLY); \
                  old = fcntl.ioctl(at, 0x801c581f, bytes(28)); print(\"%x\" % struct.unpack_from(\"I\", old)); \
                  fcntl.ioctl(at, 0x401c5820, old)";
    format!("python3 -c '{script}' {path}")
}

/// Files with fs-verity are measured by its own tool, and not written.
#[test]
fn files_with_fsverity_are_measured_and_not_written() {
    let Some(folders) = Folders::new() else { return };
    let (_, image) =
        images("ext4/tests/fixtures/verity").into_iter().find(|(name, _)| name == "verity-4k-qemu").unwrap();
    folders.file("image", image);
    let expected = folders.yes("ext4 digest --tree image /size528384");
    folders.mount("--write image", "own");
    let file = folders.path("own/size528384");
    let before = fs::read(&file).unwrap();
    let denied = |result: std::io::Result<()>| assert_eq!(result.unwrap_err().raw_os_error(), Some(1));
    denied(fs::write(&file, "x"));
    denied(fs::File::options().append(true).open(&file).map(drop));
    folders.sh("! python3 -c 'import os; os.truncate(\"own/size528384\", 1)' 2> truncate.log; grep -q 'Errno 1]' truncate.log");
    // The flag of fs-verity is told, where the kernel lets it through (Linux 7.0 and later), and stays when a tool gives back
    // what it was told.
    let told = folders.sh(&format!("{0}; {0}", xflags("own/size528384")));
    assert!(["20000\n20000\n", "0\n0\n"].contains(&&*told), "{told}");
    // Attributes and names are not contents.
    folders.sh("chmod 600 own/size528384; mv own/size528384 own/moved; ln own/moved own/size528384");
    assert!(fs::read(&file).unwrap() == before);
    if find_program("fsverity").is_none() {
        skip("no fsverity");
    } else {
        let measured = run_any(Command::new("fsverity").arg("measure").arg(&file));
        let said = String::from_utf8_lossy(&measured.stderr);
        if said.contains("Value too large") {
            // Before Linux 6.11 FUSE has no room for a digest.
            skip("this kernel's FUSE passes no digests");
        } else {
            let found = String::from_utf8_lossy(&measured.stdout);
            assert_eq!(found.split(' ').next(), expected.split(' ').next(), "{said}");
            // Of another algorithm, with a salt.
            let long = folders.sh("fsverity measure own/opt-sha512-4096-32");
            assert!(long.starts_with("sha512:") && long.find(' ') == Some(7 + 128), "{long}");
            folders.sh("echo plain > own/plain");
            let none = run_any(Command::new("fsverity").arg("measure").arg(folders.path("own/plain")));
            assert!(String::from_utf8_lossy(&none.stderr).contains("No data available"), "{none:?}");
        }
    }
    folders.unmount("own");
    folders.yes("ext4 check image");
}

/// Program with the calls of fscryptctl(1): the status of keys, and their removal.
const KEYS: &str = r#"
import errno, fcntl, os, struct, sys
name = bytes.fromhex(sys.argv[2])
spec = struct.pack("<II32s", 1 if len(name) == 8 else 2, 0, name)
folder = os.open(sys.argv[1], os.O_RDONLY)
nonce = os.open(sys.argv[1] + "/secret", os.O_RDONLY)
if len(sys.argv) > 3:
    os.setuid(int(sys.argv[3]))
def ask(number, size):
    try:
        return fcntl.ioctl(folder, 3 << 30 | size << 16 | ord("f") << 8 | number, spec.ljust(size, b"\0"))
    except OSError as error:
        return errno.errorcode[error.errno]
def status():
    answer = ask(26, 128)
    return answer if isinstance(answer, str) else {1: "absent", 2: "present"}[struct.unpack_from("<I", answer, 64)[0]]
removed = lambda answer: answer if isinstance(answer, str) else struct.unpack_from("<I", answer, 40)[0]
nonce = fcntl.ioctl(nonce, 2 << 30 | 16 << 16 | ord("f") << 8 | 27, bytes(16)).hex()
print(status(), removed(ask(24, 64)), status(), removed(ask(25, 64)), ask(22, 9), nonce)
"#;

#[test]
fn keys_are_asked_for_and_removed() {
    let (Some(_), Some(folders)) = (tool("python3"), super::keys::encrypted()) else { return };
    folders.file("keys.py", KEYS);
    let stat = folders.yes("ext4 stat root.img /secret --json");
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    let nonce = stat["encryption"]["nonce"].as_str().unwrap();
    folders.mount("--write --allow-other --control socket root.img --fscrypt-key key", "own");
    let ids = folders.yes("key status own");
    for id in ids.lines().rev() {
        let (kind, name) = id.split_once(' ').unwrap();
        folders.yes("key add own --fscrypt-key key");
        let line = format!("python3 keys.py own {name}");
        if fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
            let said = folders.sh(&format!("{line} 1234"));
            assert_eq!(said.trim(), format!("EACCES EACCES EACCES EACCES ENOTTY {nonce}"), "{kind}");
        }
        assert!(folders.sh("ls own/secret").contains('d'));
        assert_eq!(folders.sh(&line).trim(), format!("present 0 absent ENOKEY ENOTTY {nonce}"), "{kind}");
        assert!(fs::metadata(folders.path("own/secret/d")).is_err());
        folders.yes("key add own --fscrypt-key key");
    }
    folders.unmount("own");
    // Without a socket keys stay, because what was told of files is told for ever.
    folders.mount("root.img --fscrypt-key key", "own");
    let (_, name) = ids.lines().next().unwrap().split_once(' ').unwrap();
    let said = folders.sh(&format!("python3 keys.py own {name}"));
    assert_eq!(said.trim(), format!("present EACCES present EACCES ENOTTY {nonce}"));
    folders.unmount("own");
}

/// Calls that FUSE does not pass, or that this project does not support: an error, and the folder goes on.
#[test]
fn what_is_not_there_is_refused() {
    let (Some(_), Some(folders)) = (tool("python3"), Folders::with_image()) else { return };
    folders.mount("--write root.img", "own");
    let code = r#"
import errno, fcntl, os
def say(call):
    try:
        print(call())
    except OSError as error:
        print(errno.errorcode[error.errno])
file = os.open("own/file", os.O_RDONLY)
say(lambda: os.open("own", os.O_TMPFILE | os.O_RDWR, 0o600))
# FS_IOC_SETVERSION, FS_IOC_FIEMAP, FITRIM, FS_IOC_ADD_ENCRYPTION_KEY, FS_IOC_READ_VERITY_METADATA.
for number, size in (0x40087602, 8), (0xc020660b, 32), (0xc0185879, 24), (0xc0506617, 80), (0xc0286687, 40):
    say(lambda: fcntl.ioctl(file, number, bytes(size)))
print(os.read(file, 10))
"#;
    folders.file("refused.py", code);
    let said = folders.sh("python3 refused.py");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines, ["ENOTSUP", "ENOTTY", "ENOTSUP", "ENOTTY", "ENOTTY", "ENOTTY", "b'hello\\n'"]);
    folders.unmount("own");
}
