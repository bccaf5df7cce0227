//! Images with inodes that wait to be deleted or cut, opened for changes: what e2fsck and kernels make of the same.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::FileDevice;
use casemate_ext4::{Ext4, NewNode, OpenOptions, WriteOptions, Writer};
use casemate_testkit::{TempDir, find_program, run, run_any, skip, tempdir, tool};

struct Place {
    folder: TempDir,
    e2fsck: PathBuf,
}

impl Place {
    fn new(features: &str) -> Option<Place> {
        let (mke2fs, e2fsck) = (tool("mke2fs")?, tool("e2fsck")?);
        let place = Place { folder: tempdir().unwrap(), e2fsck };
        let mut command = Command::new(mke2fs);
        command.args(["-q", "-F", "-t", "ext4", "-b", "1024"]).args(features.split_whitespace());
        run(command.arg(place.image()).arg("16M"));
        Some(place)
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Opens the image for changes, and compares with what e2fsck makes of a copy.
    fn check(&self, what: &str) {
        let copy = self.folder.path().join("copy");
        std::fs::copy(self.image(), &copy).unwrap();
        let output = run_any(Command::new(&self.e2fsck).arg("-fp").arg(&copy));
        let said = String::from_utf8_lossy(&output.stdout);
        // e2fsck 1.47.0 cuts files with clusters wrongly, and then finds that.
        let cuts = !what.contains("bigalloc");
        assert!(!cuts || matches!(output.status.code(), Some(0 | 1)), "{what}: {said}");
        let device = Arc::new(FileDevice::open_writable(self.image()).unwrap());
        let mut writer = Writer::open(device, WriteOptions::default()).unwrap();
        let (ours, theirs) = (counts(&self.image()), counts(&copy));
        assert!(!cuts || ours == theirs, "{what}: {ours:?} {theirs:?} {said}");
        let output = run_any(Command::new(&self.e2fsck).arg("-fn").arg(self.image()));
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stdout));
        // And it can be used.
        let node = NewNode::new(0o755);
        writer.make_directory(b"/new", &node, false).unwrap();
        writer.commit().unwrap();
        drop(writer);
        let output = run_any(Command::new(&self.e2fsck).arg("-fn").arg(self.image()));
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

fn counts(image: &Path) -> (u64, u32) {
    let fs = Ext4::open(Arc::new(FileDevice::open(image).unwrap()), &OpenOptions::default()).unwrap();
    (fs.superblock().blocks_free, fs.superblock().inodes_free)
}

/// Files, a directory and links that have lost their names, and a file that is longer than it says.
fn list(place: &Place) -> Option<Vec<u32>> {
    let debugfs = tool("debugfs")?;
    let device = Arc::new(FileDevice::open_writable(place.image()).unwrap());
    let mut writer = Writer::open(device, WriteOptions::default()).unwrap();
    let mut node = NewNode::default();
    node.mode = 0o644;
    node.uid = 5;
    for name in ["file", "large", "cut"] {
        writer.make_file(name.as_bytes(), &node).unwrap();
        writer.allocate_file(name.as_bytes(), if name == "file" { 100 } else { 2_000_000 }).unwrap();
    }
    writer.set_xattr(b"/file", b"user.a", Some(&[7; 700]), true).unwrap();
    writer.make_directory(b"/dir", &NewNode::new(0o755), false).unwrap();
    writer.make_symlink(b"/short", b"target", &node).unwrap();
    writer.make_symlink(b"/long", &[b't'; 300], &node).unwrap();
    writer.commit().unwrap();
    let names = ["file", "large", "dir", "short", "long", "cut"];
    let number = |name: &&str| writer.fs().resolve(name.as_bytes(), false).unwrap().number().get();
    let numbers: Vec<u32> = names.iter().map(number).collect();
    drop(writer);
    let mut script = String::new();
    for (at, name) in names.iter().enumerate() {
        let next = numbers.get(at + 1).copied().unwrap_or(0);
        let number = numbers[at];
        if *name == "cut" {
            script += &format!("sif <{number}> size 3000\n");
        } else {
            script += &format!("unlink /{name}\nsif <{number}> links_count 0\n");
        }
        script += &format!("sif <{number}> dtime @{next}\n");
        if *name == "dir" {
            script += "sif / links_count 3\n";
        }
    }
    script += &format!("ssv last_orphan {}\n", numbers[0]);
    let path = place.folder.path().join("script");
    std::fs::write(&path, script).unwrap();
    run(Command::new(debugfs).arg("-w").arg("-f").arg(path).arg(place.image()));
    Some(numbers)
}

#[test]
fn the_list_is_worked_off() {
    for features in
        ["", "-O quota", "-O ^metadata_csum,^uninit_bg", "-O bigalloc -C 8192", "-O ^extent,^64bit"]
    {
        let Some(place) = Place::new(features) else { return };
        if list(&place).is_none() {
            return;
        }
        place.check(features);
        let fs =
            Ext4::open(Arc::new(FileDevice::open(place.image()).unwrap()), &OpenOptions::default()).unwrap();
        assert_eq!(fs.resolve(b"/cut", false).unwrap().size(), 3000);
    }
}

#[test]
fn a_list_that_makes_no_sense_is_refused() {
    let Some(place) = Place::new("") else { return };
    let Some(numbers) = list(&place) else { return };
    let before = std::fs::read(place.image()).unwrap();
    for (field, value, what) in [
        (numbers[4], numbers[0], "twice"),
        (numbers[4], 9, "reserved"),
        (numbers[4], 4000, "free"),
        (numbers[4], 1 << 30, "no such inode"),
    ] {
        std::fs::write(place.image(), &before).unwrap();
        let request = format!("sif <{field}> dtime @{value}");
        run(Command::new(tool("debugfs").unwrap()).args(["-w", "-R", &request]).arg(place.image()));
        let device = Arc::new(FileDevice::open_writable(place.image()).unwrap());
        let error = Writer::open(device, WriteOptions::default()).unwrap_err();
        assert!(error.to_string().contains(what), "{what}: {error}");
    }
}

/// An image as it lies there when the machine stops while files without names are open.
#[test]
fn what_a_kernel_left_behind() {
    for features in ["", "-O orphan_file", "-O orphan_file,^metadata_csum"] {
        let Some(place) = Place::new(features) else { return };
        if find_program("unshare").is_none() {
            return skip("no unshare");
        }
        let script = "mkdir top && mount -o loop image top || { echo no mount; exit; }\n\
            for n in 1 2 3 4 5 6; do head -c ${n}00000 /dev/zero >top/$n; done\n\
            exec 3<top/1 4<top/2 5<top/3 6<top/4\n\
            rm top/1 top/2 top/3\n\
            sync -f top\n\
            cp image crashed\n\
            exec 3<&- 4<&- 5<&- 6<&-\n\
            umount top";
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "slave", "sh", "-c", script]).current_dir(place.folder.path());
        let output = run_any(&mut command);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        if said.contains("no mount") {
            return skip(&format!("no loop mount of an image made with {features}"));
        }
        std::fs::rename(place.folder.path().join("crashed"), place.image()).unwrap();
        let listed = run_any(Command::new(&place.e2fsck).arg("-fn").arg(place.image()));
        assert!(!listed.status.success(), "{features}: nothing was left");
        place.check(features);
    }
}
