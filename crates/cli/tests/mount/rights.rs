//! Rights that others may not leave in a file that they change, compared with the kernel.

use std::fs;
use std::os::unix::fs::MetadataExt;

use casemate_testkit::{kernel, mke2fs, skip, tool};

use super::{Folders, assert_same_lines};

/// Set-user-ID and set-group-ID when others change contents, ACLs and groups; times before 1970; attributes that are not there.
#[test]
fn rights_and_times_are_as_the_kernel_leaves_them() {
    let (Some(mke2fs), Some(_), Some(folders)) = (tool("mke2fs"), tool("python3"), Folders::new()) else {
        return;
    };
    if !fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) || !kernel::loop_mounts_work() {
        return skip("no loop mounts");
    }
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/rights.py");
    mke2fs::make(&mke2fs, "-t ext4 -I 256", &folders.path("root.img"), "16M");
    folders.sh("chmod 755 .; cp root.img copy; mkdir kernel own");
    let script = format!(
        "cd {}; mount -o loop copy kernel; python3 {program} kernel > kernel.txt; umount kernel",
        folders.folder().display()
    );
    kernel::with_mounts(&script).unwrap();
    folders.mount("--write --allow-other -o suid root.img", "own");
    folders.sh(&format!("python3 {program} own > own.txt"));
    let read = |name: &str| String::from_utf8(folders.read(name)).unwrap();
    assert_same_lines(&read("own.txt"), &read("kernel.txt"), "rights");
    assert!(read("own.txt").contains("time -1500000000 -1500000000"));
    folders.unmount("own");
    // They are in the image, too.
    assert!(folders.yes("ext4 stat root.img /file2").contains("1969-12-31 23:59:58.5"));
}
