//! Users other than root: who may mount, and who may look.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::{Command, Output};

use casemate_testkit::{run_any, skip, status, stderr, tool};

use super::{CASEMATE, Folders};

/// Somebody who owns nothing of the system.
const NOBODY: u32 = 65_534;

/// Runs a line as that user, if we are root and may.
fn as_nobody(folders: &Folders, line: &str) -> Output {
    let ids = format!("--reuid={NOBODY}");
    let mut command = Command::new("setpriv");
    command.args([&ids, "--regid=65534", "--clear-groups", "sh", "-c", line]);
    run_any(command.current_dir(folders.folder()))
}

fn place() -> Option<Folders> {
    tool("setpriv")?;
    tool("fusermount3")?;
    let folders = Folders::with_image()?;
    if !fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        skip("not root");
        return None;
    }
    fs::set_permissions(folders.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(CASEMATE, folders.path("casemate")).unwrap();
    Some(folders)
}

#[test]
fn a_folder_is_its_users_alone() {
    let Some(folders) = place() else { return };
    if status(&as_nobody(&folders, "./casemate --version && test -w /dev/fuse")) != 0 {
        return skip("FUSE: other users can't use /dev/fuse here");
    }
    folders.sh("chmod 644 root.img; mkdir own");
    chown(folders.path("own"), Some(NOBODY), Some(NOBODY)).unwrap();
    let output =
        as_nobody(&folders, "./casemate mount root.img own && cat own/file && ./casemate umount own");
    assert_eq!((status(&output), &*output.stdout), (0, &b"hello\n"[..]), "{}", stderr(&output));
    assert!(!folders.is_mounted("own"));

    // Files of others are shown as they are, or as one's own.
    folders.yes("ext4 chmod root.img 600 /file");
    let output = as_nobody(&folders, "./casemate mount root.img own && ! cat own/file");
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    assert_eq!(fs::read(folders.path("own/file")).unwrap_err().raw_os_error(), Some(13), "not even root's");
    let output = as_nobody(&folders, "exec 5< own/sub/f1; ./casemate umount own");
    assert!(status(&output) == 2 && stderr(&output).contains("is in use"), "{}", stderr(&output));
    assert_eq!(status(&as_nobody(&folders, "./casemate umount own")), 0);
    let line =
        "./casemate mount root.img own --uid 65534 --gid 65534 && cat own/file && stat -c %u:%g own/sub";
    let output = as_nobody(&folders, &format!("{line}; ./casemate umount own"));
    assert_eq!(&*output.stdout, b"hello\n65534:65534\n", "{}", stderr(&output));
    let output = as_nobody(&folders, "./casemate mount root.img own --allow-other");
    let has_line = fs::read_to_string("/etc/fuse.conf")
        .is_ok_and(|text| text.lines().any(|line| line.trim() == "user_allow_other"));
    assert!(
        has_line || status(&output) == 2 && stderr(&output).contains("/etc/fuse.conf"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn others_look_in_where_they_may() {
    let Some(folders) = place() else { return };
    folders.yes("ext4 chmod root.img 600 /sub/f1");
    folders.mount("root.img", "own");
    assert_eq!(status(&as_nobody(&folders, "cat own/file")), 1, "without --allow-other");
    folders.yes("umount own");
    folders.mount("root.img --allow-other", "own");
    let output = as_nobody(&folders, "cat own/file own/sub/f2; ! cat own/sub/f1");
    assert_eq!((status(&output), &*output.stdout), (0, &b"hello\n2\n"[..]), "{}", stderr(&output));
}

/// A user who is shown as the owner writes, but gets none of the rights of the owner that is stored.
#[test]
fn a_shown_owner_gives_no_rights_of_the_stored_one() {
    let Some(folders) = place() else { return };
    folders.yes("ext4 chmod root.img 4755 /sub/f1");
    folders.yes("ext4 chmod root.img 6755 /sub/f2");
    folders.yes("ext4 chmod root.img 2755 /sub/f3");
    folders.yes("ext4 chown root.img 0:77 /sub/f3");
    folders.yes("ext4 chmod root.img 4755 /sub/f3");
    folders.yes("ext4 chmod root.img 755 /file");
    let mode = |path: &str| {
        let stat = folders.yes(&format!("ext4 stat --json root.img {path}"));
        let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
        let number = |name: &str| stat[name].as_u64().unwrap();
        format!("{} {}:{}", stat["mode"].as_str().unwrap(), number("uid"), number("gid"))
    };
    folders.mount("--write --allow-other --uid 65534 --gid 65534 root.img", "own");
    let refused = |line: &str| {
        let output = as_nobody(&folders, line);
        assert!(
            status(&output) == 1 && stderr(&output).contains("not permitted"),
            "{line}: {}",
            stderr(&output)
        );
    };
    let done = |line: &str| {
        let output = as_nobody(&folders, line);
        assert_eq!(status(&output), 0, "{line}: {}", stderr(&output));
    };
    done("echo evil > own/file");
    refused("chmod 4755 own/file");
    refused("chmod 2755 own/file");
    // More may run it, and it would still run as root.
    refused("chmod 4757 own/sub/f1");
    done("chmod 4711 own/sub/f1");
    done("truncate -s 0 own/sub/f2");
    done(
        "python3 -c \"import mmap, os\nfile = os.open('own/sub/f3', os.O_RDWR)\nmap = mmap.mmap(file, 2)\nmap[0] = 65\nmap.flush()\"",
    );
    done(
        "echo own > own/sub/new 2>&- || touch own/new; mkdir own/dir; touch own/dir/x; chmod 4755 own/dir/x",
    );
    // Root is not shown what it would give away.
    assert!(folders.sh("chmod 4755 own/file 2>&1 || true").contains("not permitted"));
    folders.sh("cp /bin/true own/dir/root; chmod 2777 own/dir");
    folders.unmount("own");
    assert_eq!(mode("/file"), "0755 0:0");
    assert_eq!(mode("/sub/f1"), "4711 0:0");
    assert_eq!(mode("/sub/f2"), "0755 0:0");
    assert_eq!(mode("/sub/f3"), "0755 0:77");
    assert_eq!(mode("/dir/x"), "4755 65534:65534");
    assert!(mode("/dir/root").ends_with(" 65534:65534"));
    // Of another user who may write there, and of a group that the directory gives.
    folders.yes("ext4 chown root.img 0:0 /dir");
    folders.mount("--write --allow-other --uid 1000 --gid 1000 root.img", "own");
    done("python3 -c \"import os; os.umask(0); os.mknod('own/dir/made', 0o106755)\"");
    folders.unmount("own");
    assert_eq!(mode("/dir/made"), "0755 1000:0");
}
