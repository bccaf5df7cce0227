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
