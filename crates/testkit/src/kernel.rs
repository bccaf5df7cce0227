//! A real kernel that mounts images: this machine's, through loop devices, where that is allowed, else one in
//! User-Mode-Linux.

use std::process::Command;

use crate::uml::Uml;
use crate::{find_program, run_any};

/// Runs a script as root, where `mount -o loop` works and is undone at its end. What it prints, or `None` after a skip.
///
/// # Panics
/// If the script fails.
pub fn with_mounts(script: &str) -> Option<String> {
    let script = format!("set -e\n{script}");
    if !loop_mounts_work() {
        return Some(Uml::new(script).run()?.expect_success().stdout);
    }
    let output = run_any(Command::new("unshare").args(["-m", "sh", "-c", &script]));
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
    let mounted = run_any(Command::new("unshare").args(["-m", "sh", "-c", &script]));
    made.status.success() && mounted.status.success()
}
