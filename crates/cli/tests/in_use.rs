//! Images that somebody is using are left alone by every command that would write to them.

use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use casemate::blockdev::{FileDevice, is_same_storage};
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
    "ext4 label IMAGE x",
    "ext4 tune IMAGE -m 1",
    "ext4 resize IMAGE 3M",
    "ext4 minimize IMAGE",
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

    /// A command line by the name of a tool.
    fn called(&self, line: &str) -> Output {
        let mut words = line.split_whitespace();
        let name = self.path().join(".names").join(words.next().unwrap());
        fs::create_dir_all(name.parent().unwrap()).unwrap();
        let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_casemate"), &name);
        run_any(Command::new(name).args(words).current_dir(self.path()).stdin(Stdio::null()))
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
    let own = format!("PID {})", std::process::id());
    place.all_are_refused("image", &own);
    drop(user);
    let fixed = place.casemate("ext4 check --fix-checksums image");
    assert!(fixed.status.success(), "{fixed:?}");
}

#[test]
fn what_a_loop_device_stands_on_is_left_alone() {
    let Some(place) = Place::new() else { return };
    let image = place.path().join("image");
    let Some(device) = Loop::new(&image) else { return };
    place.all_are_refused("image", &format!("in use by {}; unmount and detach that first", device.0));
    fs::hard_link(&image, place.path().join("link")).unwrap();
    place.all_are_refused("link", "in use by");
}

/// Commands that read all of `IMAGE` for one answer.
const READERS: &[&str] = &[
    "crypt decrypt IMAGE out --key-file key",
    "crypt encrypt IMAGE out --key-file key",
    "integrity extract IMAGE out",
    "integrity verify IMAGE",
    "integrity format out --size 8M --from IMAGE",
    "ext4 check IMAGE",
    "ext4 check -n --repair IMAGE",
    "ext4 cat IMAGE /lost+found",
    "ext4 diff IMAGE fs",
    "ext4 diff fs IMAGE",
    "ext4 digest IMAGE",
    "ext4 extract IMAGE out",
    "ext4 undelete IMAGE out",
    "fscrypt backup IMAGE / out",
    "luks extract IMAGE out --key-file key",
    "luks extract --keep-going IMAGE out --key-file key",
    "luks format out --from IMAGE --key-file key --pbkdf pbkdf2 --iter-time 1",
    "verity format IMAGE out",
    "verity verify IMAGE tree ROOT",
    "verity verify data IMAGE ROOT",
    "verity repair -n IMAGE tree ROOT --fec-device parity",
];

/// Readers of images by the names of other tools.
const OTHER_READERS: &[&str] = &["veritysetup format IMAGE out", "veritysetup verify IMAGE tree ROOT"];

/// An image that somebody changes meanwhile is not read as a whole.
#[test]
fn what_somebody_writes_to_is_not_read_as_a_whole() {
    let Some(place) = Place::new() else { return };
    let image = place.path().join("image");
    let all_are_refused = |image: &str| {
        let own = READERS.iter().map(|line| format!("casemate {line}"));
        for line in own.chain(OTHER_READERS.iter().map(|line| (*line).to_owned())) {
            let output = place.called(&line.replace("IMAGE", image).replace("ROOT", &place.root));
            let stderr = String::from_utf8_lossy(&output.stderr);
            let is_busy = stderr.contains("in use by another process");
            let code = if line.starts_with("casemate") { 2 } else { 5 };
            assert_eq!((output.status.code(), is_busy), (Some(code), true), "{line}: {stderr}");
            assert!(!place.path().join("out").exists(), "{line}");
        }
    };
    let writer = FileDevice::open_exclusive(&image).unwrap();
    all_are_refused("image");
    let Some(device) = Loop::new(&image) else { return };
    all_are_refused(&device.0);
    drop(writer);
    let read = place.casemate(&format!("crypt decrypt {} out --key-file key", device.0));
    assert!(read.status.success(), "{read:?}");
}

/// A user with the right to read alone reads as before: a lock needs no right to write, and none on the folder.
#[test]
fn readers_need_no_right_to_write() {
    let Some(place) = Place::new() else { return };
    let set = |mode: &str| run(Command::new("chmod").args(["-R", mode, "."]).current_dir(place.path()));
    set("a-w,a+rX");
    let reader = FileDevice::open_shared(place.path().join("data")).unwrap();
    for line in ["verity verify data tree ROOT", "ext4 check fs", "ext4 digest fs", "fsverity digest data"] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--clear-groups", env!("CARGO_BIN_EXE_casemate")]);
        let line = line.replace("ROOT", &place.root);
        let output = run_any(command.args(line.split_whitespace()).current_dir(place.path()));
        let stderr = String::from_utf8_lossy(&output.stderr);
        if stderr.contains("setpriv") || stderr.contains(".rs:") {
            skip("setpriv: not root here");
            break;
        }
        assert_eq!(output.status.code(), Some(0), "{line}: {stderr}");
    }
    drop(reader);
    set("u+w");
}

/// Loop devices on other parts of one file are used together by one command, as partitions are.
#[test]
fn loop_devices_of_one_file_that_lie_apart_are_used_together() {
    let Some(place) = Place::new() else { return };
    let whole = place.path().join("whole");
    fs::File::create(&whole).unwrap().set_len(2 << 20).unwrap();
    if Loop::new(&whole).is_none() {
        return;
    }
    let part = |options: &[&str]| {
        let output = run(Command::new("losetup").args(["--find", "--show"]).args(options).arg(&whole));
        Loop(output.trim().to_owned())
    };
    let (data, hash) = (part(&["--sizelimit", "1048576"]), part(&["--offset", "1048576"]));
    let made = place.casemate(&format!("verity format {} {} --root-hash-file root", data.0, hash.0));
    assert!(made.status.success(), "{made:?}");
    let reader = FileDevice::open_shared(&whole).unwrap();
    let read = place.casemate(&format!("verity verify {} {} @root", data.0, hash.0));
    assert!(read.status.success(), "{read:?}");
    drop(reader);
    // Another process has all of it.
    let user = FileDevice::open_exclusive(&data.0).unwrap();
    let read = place.casemate(&format!("verity dump {}", hash.0));
    assert!(read.status.success(), "{read:?}");
    drop(user);
}

/// The kernel's users of a second loop device of a file, such as a mount, take no lock.
#[test]
fn a_second_loop_device_that_is_mounted_is_seen() {
    let Some(place) = Place::new() else { return };
    let image = place.path().join("image");
    let (Some(one), Some(two)) = (Loop::new(&image), Loop::new(&image)) else { return };
    let exclusive = rustix::fs::OFlags::EXCL.bits().cast_signed();
    let user = fs::OpenOptions::new().read(true).custom_flags(exclusive).open(&two.0).unwrap();
    place.all_are_refused(&one.0, &format!("{} uses the same file, and is mounted or in use", two.0));
    let line = format!("integrity format {} --from {} --overwrite", one.0, two.0);
    drop(user);
    let before = fs::read(&image).unwrap();
    let output = place.casemate(&line);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && stderr.contains("on the same bytes"), "{stderr}");
    assert!(fs::read(&image).unwrap() == before);
}

/// cryptsetup names its lock of a header after the device that it opens: a partition's own, not its disk's.
#[test]
fn a_header_in_a_partition_of_a_disk_is_locked_by_the_name_of_the_partition() {
    let Some(place) = Place::new() else { return };
    let Some(sfdisk) = tool("sfdisk") else { return };
    let disk = place.path().join("disk");
    fs::File::create(&disk).unwrap().set_len(40 << 20).unwrap();
    let script = "sfdisk=$1; disk=$2; printf 'label: gpt\n2048,\n' | $sfdisk -q $disk";
    run(Command::new("sh").args(["-c", script, "sh"]).args([&sfdisk, &disk]));
    let format = "luks format disk --partition 1 --key-file key --pbkdf pbkdf2 --iter-time 1";
    let made = place.casemate(format);
    assert!(made.status.success(), "{made:?}");
    let output = run_any(Command::new("losetup").args(["--find", "--show", "-P"]).arg(&disk));
    if !output.status.success() {
        return skip("no loop devices here");
    }
    let device = Loop(String::from_utf8(output.stdout).unwrap().trim().to_owned());
    let name = Path::new(&device.0).file_name().unwrap().to_str().unwrap();
    let numbers = || fs::read_to_string(format!("/sys/block/{name}/{name}p1/dev"));
    // Where the kernel does not look for partitions of loop devices by itself.
    if numbers().is_err()
        && let Some(partx) = tool("partx")
    {
        run_any(Command::new(partx).args(["-a", &device.0]));
    }
    let Ok(numbers) = numbers() else {
        return skip("no partitions of loop devices here");
    };
    let folder = Path::new("/run/cryptsetup");
    let _ = fs::create_dir(folder);
    let lock = folder.join(format!("L_{}", numbers.trim()));
    for image in [format!("{} --partition 1", device.0), format!("{},partition=1", device.0)] {
        let held = fs::File::create(&lock).unwrap();
        held.lock().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
        let line = format!("luks config {image} --label new");
        command.args(line.split_whitespace()).current_dir(place.path()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It asks for the lock until it has it.
        let files = format!("/proc/{}/fd", child.id());
        let has_open = || {
            let files = fs::read_dir(&files).into_iter().flatten().flatten();
            files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file == lock)
        };
        let mut has_given_up = false;
        while !has_open() && !has_given_up {
            has_given_up = child.try_wait().unwrap().is_some();
        }
        drop(held);
        let output = child.wait_with_output().unwrap();
        // The file is open for moments: who never sees that sees the end of its patience.
        let said = String::from_utf8_lossy(&output.stderr);
        let waited = has_given_up && said.contains("in use by another process");
        assert!(output.status.success() != waited, "{image}: {output:?}");
        assert!(waited || !has_given_up, "it did not ask for {}: {image}", lock.display());
    }
}

/// A loop device may be attached while somebody works on its file already.
#[test]
fn a_loop_device_is_in_use_with_its_file() {
    let Some(place) = Place::new() else { return };
    let image = place.path().join("image");
    let writer = FileDevice::open_exclusive(&image).unwrap();
    let Some(device) = Loop::new(&image) else { return };
    let file = fs::canonicalize(&image).unwrap();
    let why = format!("{}, which lies below it, is in use by another process (", file.display());
    place.all_are_refused(&device.0, &why);
    drop(writer);
    let reader = FileDevice::open_shared(&image).unwrap();
    place.all_are_refused(&device.0, &why);
    // Readers go together.
    drop(FileDevice::open_shared(&device.0).unwrap());
    drop(reader);
    let user = FileDevice::open_exclusive(&device.0).unwrap();
    assert!(FileDevice::open_shared(&image).unwrap_err().is_busy());
    // Over any number of devices, and any second one.
    for below in [&image, Path::new(&device.0)] {
        let Some(other) = Loop::new(below) else { return };
        assert!(FileDevice::open_shared(&other.0).unwrap_err().is_busy(), "{}", below.display());
    }
    drop(user);
    drop(FileDevice::open_exclusive(&device.0).unwrap());
    drop(FileDevice::open_shared(&image).unwrap());
}

/// Two loop devices of one file are one storage where their bytes meet.
#[test]
fn two_loop_devices_of_one_file_are_seen() {
    let Some(place) = Place::new() else { return };
    let image = place.path().join("image");
    let (Some(one), Some(two)) = (Loop::new(&image), Loop::new(&image)) else { return };
    let before = fs::read(&image).unwrap();
    let line = format!("crypt encrypt {} {} --key-file key --overwrite", one.0, two.0);
    let output = place.casemate(&line);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.contains("are the same file")), (Some(2), true), "{stderr}");
    assert!(fs::read(&image).unwrap() == before);
    let part = |options: &[&str]| {
        let output = run(Command::new("losetup").args(["--find", "--show"]).args(options).arg(&image));
        Loop(output.trim().to_owned())
    };
    let (first, second) = (part(&["--sizelimit", "1048576"]), part(&["--offset", "1048576"]));
    let same = |one: &Loop, other: &Loop| is_same_storage(Path::new(&one.0), Path::new(&other.0));
    assert!(same(&one, &first) && same(&second, &two) && !same(&first, &second));
    // A file that has been deleted is still there.
    fs::remove_file(&image).unwrap();
    assert!(same(&one, &first) && same(&second, &two) && !same(&first, &second));
    let output = place.casemate(&line);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.contains("are the same file")), (Some(2), true), "{stderr}");
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
    // It has a file system.
    let line = format!("crypt encrypt data {} --key-file key", device.0);
    let refused = place.casemate(&line);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("use --overwrite to destroy it"),
        "{refused:?}"
    );
    let made = place.casemate(&format!("{line} --overwrite"));
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
    let made =
        place.casemate(&format!("verity format {} {} --hash-offset 3145728 --overwrite", parts[0], device.0));
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

/// Contents that commands find at a target, by their signatures: a name, and bytes at a place; a place below 0 counts from the end.
const CONTENTS: &[(&str, i64, &[u8])] = &[
    ("LUKS", 0, b"LUKS\xba\xbe\0\x02"),
    ("LUKS2 second", 16_384, b"SKUL\xba\xbe\0\x02"),
    ("integrity", 0, b"integrt\0"),
    ("GPT", 512, b"EFI PART"),
    ("GPT backup", -512, b"EFI PART"),
    ("LVM", 512, b"LABELONE"),
    ("MD 1.1", 0, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
    ("MD 1.2", 4096, b"\xfc\x4e\x2b\xa9"),
    ("MD 1.0", -8192, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
    ("MD 0.90", -65536, b"\xfc\x4e\x2b\xa9\0\0\0\0"),
    ("ZFS", 132 << 10, b"\x0c\xb1\xba\0\0\0\0\0"),
    ("ZFS at the end", -(128 << 10), b"\0\0\0\0\0\xba\xb1\x0c"),
    ("bcache", 4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    ("squashfs", 0, b"hsqs"),
    ("XFS", 0, b"XFSB"),
    ("swap", 4086, b"SWAPSPACE2"),
];

/// Commands that make something new at `target`, which takes their output's place or is written in place.
const MAKERS: &[(&str, bool)] = &[
    ("ext4 build target", true),
    ("ext4 build target --from folder", true),
    ("ext4 build target --from folder --android-sparse", true),
    ("ext4 build target --from folder --dm-verity append", true),
    (
        "ext4 build target --from folder --luks --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000",
        true,
    ),
    ("ext4 build new --from folder --dm-verity target", true),
    ("ext4 build new --from folder --dm-verity append --fec-device target", true),
    ("ext4 build target --from folder --offset 0 --size 64K -O ^has_journal", false),
    ("crypt encrypt data target --key-file key", true),
    ("crypt decrypt data target --key-file key", true),
    ("crypt encrypt data target --key-file key --crypt-offset 8s", false),
    ("crypt encrypt - target --key-file key", true),
    (
        "luks format target --key-file key --luks2-keyslots-size 128K --crypt-offset 256K \
      --pbkdf pbkdf2 --pbkdf-force-iterations 1000 -c aes-cbc-plain64 -s 128",
        false,
    ),
    ("luks format --from data target --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000", true),
    ("luks extract volume target --key-file key", true),
    ("integrity format target", false),
    ("integrity extract tags target", true),
    ("verity format data target", true),
    ("verity format data hash --fec-device target", true),
];

/// Commands that write an ordinary file, which is `target`.
const WRITERS_OF_FILES: &[&str] = &[
    "verity format data hash --root-hash-file target",
    "verity sign @root target --signing-key key.pem --cert cert.pem",
    "fsverity sign data target --signing-key key.pem --cert cert.pem",
    "fsverity digest data --out-merkle-tree target",
    "fsverity digest data --out-descriptor target",
    "ext4 build new --from folder --verity --manifest target",
    "ext4 build new --from folder --dm-verity append --root-hash-file target",
    "base64 encode data -o target",
    "info volume --html target",
];

struct Targets {
    place: casemate_testkit::Place,
}

impl Targets {
    fn new() -> Targets {
        let place = casemate_testkit::Place::new(env!("CARGO_BIN_EXE_casemate"));
        place.file("key", (0..32).collect::<Vec<u8>>());
        place.file("data", Rng::new(5).bytes(1 << 20));
        place.sh("mkdir folder; echo 1 >folder/one; printf %064d 7 >root");
        place.yes(
            "luks format --from data volume --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000",
        );
        place.yes("integrity format tags --size 2M");
        Targets { place }
    }

    /// A file of 4 MiB with a signature.
    fn contents(at: i64, bytes: &[u8]) -> Vec<u8> {
        let mut disk = vec![0; 4 << 20];
        let at = usize::try_from(if at < 0 { disk.len() as i64 + at } else { at }).unwrap();
        disk[at..at + bytes.len()].copy_from_slice(bytes);
        if bytes.starts_with(b"SKUL") {
            disk[at + 256..at + 264].copy_from_slice(&(at as u64).to_be_bytes());
        }
        disk
    }

    /// Runs a line with `target` as it is given; returns the exit status and what is said.
    fn run(&self, line: &str, target: &[u8]) -> (i32, String) {
        self.place.file("target", target);
        let mut command = self.place.command();
        let input = fs::File::open(self.place.path("data")).unwrap();
        command.args(line.split_whitespace()).current_dir(self.place.folder()).stdin(input);
        let output = command.output().unwrap();
        for name in ["new", "hash"] {
            let _ = fs::remove_file(self.place.path(name));
        }
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn nothing_new_is_made_where_something_known_is_but_with_overwrite() {
    let targets = Targets::new();
    for (line, _) in MAKERS {
        for (name, at, bytes) in CONTENTS {
            // What is kept in front of an offset is not lost, and places at the end are those of the whole.
            if line.contains("--crypt-offset 8s") && *at < 4096 {
                continue;
            }
            let disk = Targets::contents(*at, bytes);
            let (status, said) = targets.run(line, &disk);
            let is_refused = status == 2 && said.contains("target contains") && said.contains("--overwrite");
            assert!(is_refused, "{line}: {name}: {status}: {said}");
            assert!(targets.place.read("target") == disk, "{line}: {name}");
        }
        let (status, said) =
            targets.run(&format!("{line} --overwrite"), &Targets::contents(0, b"LUKS\xba\xbe"));
        assert_eq!(status, 0, "{line}: {said}");
        // Zeros are free.
        let (status, said) = targets.run(line, &vec![0; 4 << 20]);
        assert_eq!(status, 0, "{line}: {said}");
    }
}

#[test]
fn unknown_data_are_replaced_with_their_file_and_kept_where_something_is_made_in_place() {
    let targets = Targets::new();
    let noise = Rng::new(6).bytes(4 << 20);
    for (line, is_replaced) in MAKERS {
        let (status, said) = targets.run(line, &noise);
        assert_eq!(status, if *is_replaced { 0 } else { 2 }, "{line}: {said}");
        assert_eq!(targets.place.read("target") == noise, !is_replaced, "{line}");
        assert!(*is_replaced || said.contains("data of no known kind"), "{line}: {said}");
    }
}

#[test]
fn another_run_replaces_what_the_first_one_made_unless_that_holds_keys() {
    let targets = Targets::new();
    let place = &targets.place;
    for line in [
        "ext4 build again --from folder",
        "ext4 build again --from folder --dm-verity hash",
        "verity format data hash",
        "verity format data hash --fec-device parity",
        "crypt encrypt again again.enc --key-file key",
        "crypt decrypt again.enc again.dec --key-file key",
        "luks extract volume again.plain --key-file key",
        "integrity extract tags again.tags",
    ] {
        place.yes(line);
        place.yes(line);
    }
    for line in ["integrity format tags", "luks format --from data volume --key-file key"] {
        place.is(line, 2, "use --overwrite to destroy it");
    }
    // A partition of a disk is written in place, and keeps what it has, of whatever kind.
    place.yes("ext4 build part --from folder --size 2M");
    place.is("ext4 build part --from folder --offset 0 --size 1M", 2, "contains");
    // The other way round than it is meant, data would be lost.
    place.is("verity format hash part", 2, "part contains an ext2, ext3 or ext4 file system");
}

#[test]
fn an_ordinary_file_does_not_replace_an_image() {
    let targets = Targets::new();
    if tool("openssl").is_none() {
        return;
    }
    targets
        .place
        .sh("openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=x -keyout key.pem -out cert.pem 2>log");
    for line in WRITERS_OF_FILES {
        for (name, at, bytes) in CONTENTS {
            let disk = Targets::contents(*at, bytes);
            let (status, said) = targets.run(line, &disk);
            assert!(status == 2 && said.contains("target: contains"), "{line}: {name}: {status}: {said}");
            assert!(targets.place.read("target") == disk, "{line}: {name}");
        }
        let (status, said) = targets.run(line, b"an earlier one");
        assert_eq!(status, 0, "{line}: {said}");
    }
    targets.place.is("base64 encode data -o data", 2, "this would replace data");
    let signed = targets.place.own("verity sign @root - --signing-key key.pem --cert cert.pem");
    assert!(signed.status.success() && signed.stdout.len() > 300 && !targets.place.path("-").exists());
}

/// An error about a file in use names the process, also one that serves another part of it. One process serves parts beside each
/// other.
#[test]
fn the_process_that_uses_a_file_is_named() {
    let Some(place) = Place::new() else { return };
    fs::write(place.path().join("disk"), vec![0; 4 << 20]).unwrap();
    let serve = |images: &str, script: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
        command.args(["serve", "-w", "--exec", script]).args(images.split(' '));
        run_any(command.current_dir(place.path()).stdin(Stdio::null()))
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let casemate = env!("CARGO_BIN_EXE_casemate");
    let script = format!("echo $PPID; {casemate} luks format -q disk,offset=2M --key-file key");
    let output = serve("disk,offset=0,size=1M", &script);
    let server = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let why = format!("disk: in use by another process (casemate serve, PID {server})");
    assert!(output.status.code() == Some(2) && said(&output).contains(&why), "{why}: {}", said(&output));

    let parts = "--export a=disk,offset=0,size=1M --export b=disk,offset=2M";
    let output = serve(parts, "test $(echo $uris | wc -w) = 2");
    assert!(output.status.success(), "{}", said(&output));
    let output = serve("--export a=disk --export b=disk,offset=2M", "true");
    let is_told = said(&output).contains("disk: another writer of this process is changing it");
    assert!(output.status.code() == Some(2) && is_told, "{}", said(&output));
}
