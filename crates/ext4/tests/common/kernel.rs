//! Letting a real kernel work on an image: this machine's, through a loop device where that is allowed, else
//! one in User-Mode-Linux.

use std::path::Path;
use std::process::Command;

use casemate_testkit::kernel::loop_mounts_work;
use casemate_testkit::run_any;
use casemate_testkit::uml::Uml;

/// Mounts `image` and runs `script` in its top folder, as root. What it prints, or `None` after a skip.
///
/// # Panics
/// If the script fails.
pub fn on_mounted(image: &Path, mount_options: &str, script: &str) -> Option<String> {
    if loop_mounts_work() {
        let folder = casemate_testkit::tempdir().unwrap();
        let at = folder.path().display();
        let options = format!("loop,{mount_options}");
        let whole = format!(
            "set -e; mount -t ext4 -o {options} '{}' {at}; cd {at}\n{script}\ncd /; umount {at}",
            image.display()
        );
        let output = run_any(Command::new("unshare").args(["-m", "sh", "-c", &whole]));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
        return Some(text(&output.stdout));
    }
    in_uml(image, mount_options, script)
}

/// The same in User-Mode-Linux, for what this machine's kernel may lack.
///
/// # Panics
/// If the script fails.
pub fn in_uml(image: &Path, mount_options: &str, script: &str) -> Option<String> {
    let folder = casemate_testkit::tempdir().unwrap();
    let at = folder.path().display();
    let mount = format!("mount -t ext4 -o {mount_options} /dev/ubda {at}");
    let whole = format!("set -e; {mount}; cd {at}\n{script}\ncd /; umount {at}");
    let output = Uml::new(whole).disk(image, mount_options.starts_with("ro")).run()?;
    Some(output.expect_success().stdout)
}
