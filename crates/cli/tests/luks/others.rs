//! Volumes that somebody else works on, or has changed meanwhile.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use casemate::Providers;
use casemate::blockdev::{BlockDevice, FileDevice};
use casemate::luks::{Header, luks1};
use casemate_testkit::{Place, Rng, run_any, skip, stderr, tool};

use crate::{CASEMATE, says, yes};

const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

/// A volume of 1 MiB in `disk`, or with its header in `header`, with the passphrase in `key`.
fn volume(options: &str) -> Place {
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    place.file("new", "other");
    place.file("plain", Rng::new(8).bytes(1 << 20));
    yes(place.own(&format!("luks format --from plain disk --key-file key {CHEAP} {options}")));
    place
}

/// cryptsetup's lock of a reencryption of a volume, held by somebody else; `None` where this user can't.
fn lock_of_reencryption(place: &Place, image: &str) -> Option<(File, PathBuf)> {
    let uuid = yes(place.own(&format!("luks uuid {image}")));
    let folder = Path::new("/run/cryptsetup");
    let path = folder.join(format!("LN_LUKS2-reencryption-{}", uuid.trim()));
    // Whether it is there is seen below.
    let _ = fs::create_dir(folder);
    match File::options().create(true).truncate(false).write(true).open(&path) {
        Ok(file) => Some((file, path)),
        Err(error) => {
            skip(&format!("{}: {error}", path.display()));
            None
        }
    }
}

#[test]
fn a_reencryption_that_another_program_works_on_is_left_alone() {
    for (options, files) in
        [("--crypt-offset 1M", "disk"), ("--luks-header header", "disk --luks-header header")]
    {
        let place = volume(options);
        yes(place.own(&format!("luks reencrypt {files} --key-file key --init-only")));
        let image = files.split(' ').next_back().unwrap();
        let Some((lock, path)) = lock_of_reencryption(&place, image) else { return };
        let before = (place.read("disk"), place.read(image));
        let resume = format!("luks reencrypt {files} --key-file key --resume-only");
        let out = files.replacen("disk", "disk out", 1);
        let busy = "another process is reencrypting or reading this volume";
        lock.lock().unwrap();
        says(place.own(&resume), 2, busy);
        says(place.own(&format!("luks extract {out} --key-file key")), 2, busy);
        let layer = files.replacen("disk", "", 1);
        for serve in ["--read-only", "--write --reencrypt"] {
            says(
                place.own(&format!("serve {serve} --luks {layer} --key-file key --exec true disk")),
                2,
                busy,
            );
        }
        assert!(before == (place.read("disk"), place.read(image)));
        // Other readers do not disturb readers.
        lock.unlock().unwrap();
        lock.lock_shared().unwrap();
        yes(place.own(&format!("luks extract {out} --key-file key")));
        says(place.own(&resume), 2, busy);
        lock.unlock().unwrap();
        yes(place.own(&resume));
        let _ = fs::remove_file(path);
        yes(place.own(&format!("luks extract {out} --key-file key")));
        assert!(place.read("out") == place.read("plain"));
    }
}

#[test]
fn nothing_is_decrypted_while_somebody_changes_header_or_data() {
    for (options, files, held) in [
        ("--crypt-offset 1M", "disk", "disk"),
        ("--luks-header header", "disk --luks-header header", "header"),
        ("--luks-header header", "disk --luks-header header", "disk"),
        ("--type luks1", "disk", "disk"),
    ] {
        let place = volume(options);
        let out = files.replacen("disk", "disk out", 1);
        let extract = format!("luks extract {out} --key-file key");
        let file = File::open(place.path(held)).unwrap();
        file.lock().unwrap();
        says(place.own(&extract), 2, "in use by another process");
        let layer = files.replacen("disk", "", 1);
        let list = format!("ext4 ls --luks {layer} --key-file key disk /");
        says(place.own(&list), 2, "in use by another process");
        file.unlock().unwrap();
        file.lock_shared().unwrap();
        yes(place.own(&extract));
        // Who reads the data holds what others must not change.
        let mut child = place.command();
        let line = format!("serve --read-only --luks {layer} --key-file key --exec cat disk");
        let mut child =
            child.args(line.split_whitespace()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"x").unwrap();
        // What cat has is what it gives back, so that the volume is open by now.
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        file.unlock().unwrap();
        assert!(file.try_lock().is_err(), "{files}: {held}");
        drop(stdin);
        assert!(child.wait().unwrap().success());
        file.lock().unwrap();
    }
}

/// Changes a header as a program does that takes no locks.
fn change_label(path: &Path) {
    let device = FileDevice::open_writable(path).unwrap();
    let providers = Providers::default();
    match Header::read(&device, &providers).unwrap() {
        Header::Luks2(mut header) => {
            header.label = "other".to_owned();
            header.write(&device, &providers, &mut |_| Ok(())).unwrap();
        }
        Header::Luks1(_) => {
            let mut bytes = [0; luks1::HEADER_LEN];
            device.read_at(&mut bytes, 0).unwrap();
            bytes[168..172].copy_from_slice(b"0000");
            device.write_at(&bytes, 0).unwrap();
        }
    }
}

#[test]
fn a_header_that_was_changed_meanwhile_is_not_written() {
    for (options, line) in [
        ("--crypt-offset 1M", "luks add-key disk --key-file fifo --new-key-file new"),
        ("--type luks1", "luks add-key disk --key-file fifo --new-key-file new"),
        ("--crypt-offset 1M", "luks change-key disk --key-file fifo --new-key-file new"),
        ("--type luks1", "luks change-key disk --key-file fifo --new-key-file new"),
        ("--crypt-offset 1M", "luks convert-key disk --key-file fifo"),
        ("--crypt-offset 1M", "luks remove-key disk --key-file fifo --batch-mode"),
        ("--type luks1", "luks remove-key disk --key-file fifo --batch-mode"),
        ("--crypt-offset 1M", "luks reencrypt disk --key-file fifo"),
        ("--crypt-offset 1M", "luks reencrypt disk --key-file fifo --init-only"),
        ("--crypt-offset 1M", "luks reencrypt disk --key-file fifo --decrypt --luks-header export"),
        ("--crypt-offset 1M", "luks extract disk out --key-file fifo"),
        ("--type luks1", "luks extract disk out --key-file fifo"),
    ] {
        let place = volume(options);
        place.sh("mkfifo fifo");
        let cheap = if line.contains("-key ") && !line.contains("remove") { CHEAP } else { "" };
        let mut command = place.command();
        command.args(line.split_whitespace().chain(cheap.split_whitespace()));
        let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // When the key is read the header has been read.
        let mut fifo = File::options().write(true).open(place.path("fifo")).unwrap();
        change_label(&place.path("disk"));
        let changed = place.read("disk");
        fifo.write_all(b"pass").unwrap();
        drop(fifo);
        let output = child.wait_with_output().unwrap();
        says(output, 2, "another program has changed the LUKS header");
        assert!(place.read("disk") == changed, "{line}");
        assert!(!place.path("out").exists() && !place.path("export").exists());
        says(place.own("luks test-passphrase disk --key-file key"), 0, "");
    }
}

/// A loop device over a file, gone at the end.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Option<Loop> {
        let losetup = tool("losetup")?;
        let output = run_any(std::process::Command::new(losetup).args(["-f", "--show"]).arg(file));
        match output.status.success() {
            true => Some(Loop(String::from_utf8(output.stdout).unwrap().trim_end().into())),
            false => {
                skip(&format!("no loop devices: {}", stderr(&output)));
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run_any(std::process::Command::new("losetup").arg("-d").arg(&self.0));
    }
}

#[test]
fn the_header_of_a_block_device_is_changed_under_its_lock() {
    use std::os::unix::fs::MetadataExt;
    let place = volume("--crypt-offset 1M");
    let Some(device) = Loop::over(&place.path("disk")) else { return };
    let number = fs::metadata(&device.0).unwrap().rdev();
    // As the kernel packs them in 64 bits.
    let (major, minor) = (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xfff00);
    let path = format!("/run/cryptsetup/L_{major}:{minor}");
    let _ = fs::create_dir("/run/cryptsetup");
    let lock = match File::options().create(true).truncate(false).write(true).open(&path) {
        Ok(lock) => lock,
        Err(error) => return skip(&format!("{path}: {error}")),
    };
    lock.lock().unwrap();
    let mut command = place.command();
    let line = format!("luks config {} --label mine", device.0.display());
    let mut child = command.args(line.split(' ')).spawn().unwrap();
    for _ in 0..20 {
        assert!(child.try_wait().unwrap().is_none(), "it has not waited for the lock");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let before = yes(place.own("luks dump disk"));
    assert!(!before.contains("mine"));
    lock.unlock().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(yes(place.own("luks dump disk")).contains("mine"));
}
