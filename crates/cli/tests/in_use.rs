//! Images that somebody is using are left alone by every command that would write to them.

use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use casemate::blockdev::FileDevice;
use casemate_testkit::{Rng, TempDir, run, run_any, skip, tempdir, tool};

/// Every command that writes to `IMAGE`, in one way or another.
const WRITERS: &[&str] = &[
    "crypt encrypt --in-place IMAGE --journal journal --key-file key",
    "crypt decrypt --in-place IMAGE --journal journal --key-file key",
    "crypt encrypt data IMAGE --key-file key",
    "crypt encrypt data IMAGE --key-file key --crypt-offset 8s",
    "crypt encrypt - IMAGE --key-file key",
    "serve IMAGE --write --exec true",
    "serve data --overlay IMAGE --exec true",
    "ext4 mkdir IMAGE /x",
    "ext4 put IMAGE key /x",
    "ext4 recover IMAGE",
    "ext4 check --fix-checksums IMAGE",
    "ext4 check --repair --yes IMAGE",
    "ext4 extract fs --tar IMAGE",
    "fscrypt restore tar IMAGE /x",
    "overlay commit data IMAGE",
    "overlay commit IMAGE data",
    "verity format data IMAGE",
    "verity format data new --fec-device IMAGE",
    "verity update data IMAGE --changed 0+4096",
    "verity repair IMAGE tree ROOT --fec-device parity",
    "verity repair data IMAGE ROOT --fec-device parity",
];

/// A folder with what the writers need.
struct Place {
    folder: TempDir,
    root: String,
}

impl Place {
    fn new() -> Option<Place> {
        let mke2fs = tool("mke2fs")?;
        let folder = tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut rng = Rng::new(3);
        fs::write(at("key"), rng.bytes(32)).unwrap();
        fs::write(at("tar"), [0; 1024]).unwrap();
        fs::write(at("data"), rng.bytes(1 << 20)).unwrap();
        fs::write(at("fs"), vec![0; 4 << 20]).unwrap();
        run(Command::new(mke2fs).args(["-q", "-t", "ext4", "-O", "metadata_csum"]).arg(at("fs")));
        // The superblock's checksum is wrong, so there is something to rewrite.
        let mut image = fs::read(at("fs")).unwrap();
        image[1024 + 1020] ^= 1;
        fs::write(at("image"), image).unwrap();
        let place = Place { folder, root: String::new() };
        let made = place.casemate("verity format data tree --fec-device parity");
        assert!(made.status.success(), "{made:?}");
        let made = String::from_utf8(made.stdout).unwrap();
        let root = made.lines().find_map(|line| line.strip_prefix("Root hash:")).unwrap().trim().to_owned();
        Some(Place { root, ..place })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn casemate(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
        run_any(command.args(line.split_whitespace()).current_dir(self.path()).stdin(Stdio::null()))
    }

    /// Every writer is refused with these words, and nothing is written or left.
    fn all_are_refused(&self, image: &str, why: &str) {
        let names = || {
            let mut names: Vec<_> =
                fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let contents = || fs::read(self.path().join(image)).unwrap();
        let before = (names(), contents());
        for line in WRITERS {
            let output = self.casemate(&line.replace("IMAGE", image).replace("ROOT", &self.root));
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{line}: {stderr}");
            assert!(stderr.contains(&format!("{image}: ")) && stderr.contains(why), "{line}: {stderr}");
            assert!((names(), contents()) == before, "{line}: {stderr}");
        }
    }
}

/// A loop device over a file, gone at the end.
struct Loop(String);

impl Loop {
    fn new(path: &Path) -> Option<Loop> {
        let losetup = tool("losetup")?;
        let output = run_any(Command::new(losetup).args(["--find", "--show"]).arg(path));
        if !output.status.success() {
            skip("no loop devices here");
            return None;
        }
        Some(Loop(String::from_utf8(output.stdout).unwrap().trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run(Command::new("losetup").args(["-d", &self.0]));
    }
}

#[test]
fn what_another_process_has_locked_is_left_alone() {
    let Some(place) = Place::new() else { return };
    let user = FileDevice::open_shared(place.path().join("image")).unwrap();
    place.all_are_refused("image", "another process is working on it");
    drop(user);
    let fixed = place.casemate("ext4 check --fix-checksums image");
    assert!(fixed.status.success(), "{fixed:?}");
}

#[test]
fn what_a_loop_device_stands_on_is_left_alone() {
    let Some(place) = Place::new() else { return };
    let image = place.path().join("image");
    let Some(device) = Loop::new(&image) else { return };
    place.all_are_refused("image", &format!("{} stands on it; unmount and detach that first", device.0));
    fs::hard_link(&image, place.path().join("link")).unwrap();
    place.all_are_refused("link", "stands on it");
}

#[test]
fn a_device_in_use_is_left_alone() {
    let Some(place) = Place::new() else { return };
    let Some(device) = Loop::new(&place.path().join("image")) else { return };
    // What a mount does: no lock.
    let exclusive = rustix::fs::OFlags::EXCL.bits().cast_signed();
    let user = fs::OpenOptions::new().read(true).custom_flags(exclusive).open(&device.0).unwrap();
    place.all_are_refused(&device.0, "the device is mounted or in use");
    drop(user);
    let made = place.casemate(&format!("crypt encrypt data {} --key-file key", device.0));
    assert!(made.status.success(), "{made:?}");
    // Another name of the same device.
    let node = place.path().join("node");
    let number = fs::metadata(&device.0).unwrap().rdev();
    let (major, minor) = (number >> 8, number & 0xff);
    run(Command::new("mknod").arg(&node).args(["b", &major.to_string(), &minor.to_string()]));
    let refused = place.casemate(&format!("crypt encrypt {} node --key-file key", device.0));
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr.contains("are the same file"), "{stderr}");
}

/// A loop device is the file that it stands on, and a partition the disk that it lies on.
#[test]
fn what_a_device_lies_on_is_seen() {
    let Some(place) = Place::new() else { return };
    let table = "label: dos\nstart=2048, size=2048\nstart=4096\n";
    let disk = place.path().join("disk");
    fs::write(&disk, vec![0; 4 << 20]).unwrap();
    let Some(device) = Loop::new(&disk) else { return };
    let same = |one: &str, other: &str| {
        let line = format!("crypt encrypt {one} {other} --key-file key --crypt-offset 8s");
        let output = place.casemate(&line);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).contains("are the same file"))
    };
    assert_eq!(same("disk", &device.0), (Some(2), true));
    assert!(fs::read(&disk).unwrap() == vec![0; 4 << 20]);
    let Some(sfdisk) = tool("sfdisk") else { return };
    fs::write(place.path().join("table"), table).unwrap();
    let input = fs::File::open(place.path().join("table")).unwrap();
    run(Command::new(sfdisk).args(["-q", "--no-reread"]).arg(&device.0).stdin(input));
    let scanned = tool("partx").map(|partx| run_any(Command::new(partx).args(["-a", &device.0])));
    let parts = [1, 2].map(|number| format!("{}p{number}", device.0));
    if !scanned.is_some_and(|output| output.status.success()) || !Path::new(&parts[0]).exists() {
        return skip("no partitions of loop devices here");
    }
    for (one, other) in [(&device.0[..], &parts[0][..]), (&parts[1], &device.0), ("disk", &parts[0])] {
        assert_eq!(same(one, other), (Some(2), true), "{one} {other}");
    }
    // Two parts are two devices.
    assert!(!same(&parts[0], &parts[1]).1);
    // What lies on a disk has other places there.
    let made = place.casemate(&format!("verity format {} {} --hash-offset 3145728", parts[0], device.0));
    assert!(made.status.success(), "{made:?}");
    assert!(fs::read(&disk).unwrap()[3 << 20..].starts_with(b"verity\0\0"));
    run(Command::new("partx").args(["-d", &device.0]));
}

#[test]
fn two_names_of_one_file_are_seen() {
    let Some(place) = Place::new() else { return };
    let before = fs::read(place.path().join("data")).unwrap();
    fs::hard_link(place.path().join("data"), place.path().join("link")).unwrap();
    for (line, why) in [
        ("crypt encrypt data link --key-file key --crypt-offset 8s", "are the same file"),
        ("serve data --overlay link --exec true", "can't be kept in the image itself"),
        ("crypt encrypt --in-place data --journal link --key-file key", "can't be the image itself"),
    ] {
        let output = place.casemate(line);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.contains(why)), (Some(2), true), "{line}: {stderr}");
        assert!(fs::read(place.path().join("data")).unwrap() == before);
    }
}
