//! Letting a real kernel work on an image: this machine's, through a loop device where that is allowed, else
//! one in User-Mode-Linux.

use std::path::Path;
use std::process::Command;

use casemate_testkit::uml::Uml;
use casemate_testkit::{find_program, run_any};

/// Mounts `image` and runs `script` in its top folder, as root. What it prints, or `None` after a skip.
///
/// # Panics
/// If the script fails.
pub fn on_mounted(image: &Path, mount_options: &str, script: &str) -> Option<String> {
    let folder = casemate_testkit::tempdir().unwrap();
    let at = folder.path().display();
    let mount = |device: &str| format!("set -e; mount -t ext4 -o {mount_options} {device} {at}; cd {at}");
    let end = format!("cd /; umount {at}");
    if loop_mounts_work() {
        let options = format!("loop,{mount_options}");
        let whole = format!(
            "set -e; mount -t ext4 -o {options} '{}' {at}; cd {at}\n{script}\n{end}",
            image.display()
        );
        let output = run_any(Command::new("unshare").args(["-m", "sh", "-c", &whole]));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
        return Some(text(&output.stdout));
    }
    let whole = format!("{}\n{script}\n{end}", mount("/dev/ubda"));
    let output = Uml::new(whole).disk(image, mount_options.starts_with("ro")).run()?;
    Some(output.expect_success().stdout)
}

/// Whether this machine lets us mount an image, in a mount namespace of our own.
fn loop_mounts_work() -> bool {
    let Some(mke2fs) = find_program("mke2fs") else { return false };
    if find_program("unshare").is_none() {
        return false;
    }
    let folder = casemate_testkit::tempdir().unwrap();
    let (image, at) = (folder.path().join("image"), folder.path().join("at"));
    std::fs::create_dir(&at).unwrap();
    let made = run_any(Command::new(mke2fs).args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("1M"));
    let script = format!("mount -o loop {} {}", image.display(), at.display());
    let mounted = run_any(Command::new("unshare").args(["-m", "sh", "-c", &script]));
    made.status.success() && mounted.status.success()
}
