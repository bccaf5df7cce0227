//! A real kernel that mounts images: this machine's, through loop devices, where that is allowed, else one in
//! User-Mode-Linux.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Once;

use crate::uml::Uml;
use crate::{find_program, run_any};

/// Arguments of unshare for mounts of one's own. What is unmounted outside is unmounted there too: a copy of a mount would hold
/// what is mounted for as long as the script runs.
const APART: [&str; 3] = ["--mount", "--propagation", "slave"];

/// Runs a script as root, where `mount -o loop` works and is undone at its end. What it prints, or `None` after a skip.
///
/// # Panics
/// If the script fails.
pub fn with_mounts(script: &str) -> Option<String> {
    let script = format!("set -e\n{script}");
    if !loop_mounts_work() {
        return Some(Uml::new(script).run()?.expect_success().stdout);
    }
    let output = run_any(Command::new("unshare").args(APART).args(["sh", "-c", &script]));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    Some(text(&output.stdout))
}

/// Whether this machine lets us show folders of our own making (FUSE), or a skip.
pub fn fuse_works() -> bool {
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &device {
        crate::skip(&format!("FUSE: /dev/fuse: {error}"));
    }
    device.is_ok()
}

/// Gives a test program mounts of its own, if root runs it: a program that makes a mount namespace meanwhile would have a copy of
/// everything that is mounted here, and hold it for as long as it lives. The test program starts again in its own namespace, so
/// this comes before anything else in each test that mounts. What its tests unmount goes from the namespaces that they make
/// (`APART`).
pub fn own_mounts() {
    const STARTED_AGAIN: &str = "CASEMATE_TEST_HAS_OWN_MOUNTS";
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
        if !is_root || std::env::var_os(STARTED_AGAIN).is_some() {
            return;
        }
        let apart = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
            command
        };
        let share = "mount --make-rshared /";
        if apart(share).status().is_ok_and(|status| status.success()) {
            let program = std::env::current_exe().expect("the test program has a path");
            let mut command = apart(&format!("{share} && exec \"$0\" \"$@\""));
            command.arg(program).args(std::env::args_os().skip(1)).env(STARTED_AGAIN, "1");
            // It returns if that fails, and tests run where they are.
            let _ = command.exec();
        }
    });
}

/// Whether this machine lets us mount an image, in a mount namespace of our own.
pub fn loop_mounts_work() -> bool {
    let Some(mke2fs) = find_program("mke2fs") else { return false };
    if find_program("unshare").is_none() {
        return false;
    }
    let folder = crate::tempdir().expect("a temporary folder");
    let (image, at) = (folder.path().join("image"), folder.path().join("at"));
    std::fs::create_dir(&at).expect("a folder");
    let made = run_any(Command::new(mke2fs).args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("1M"));
    let script = format!("mount -o loop {} {}", image.display(), at.display());
    let mounted = run_any(Command::new("unshare").args(APART).args(["sh", "-c", &script]));
    made.status.success() && mounted.status.success()
}
