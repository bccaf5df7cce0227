//! Folders whose files change: beside the kernel's ext4, under load, killed, full, in use.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use casemate_testkit::{Rng, kernel, mke2fs, run, run_any, skip, slow_tests, tool, wait_until};

use super::{Folders, assert_same_lines};

/// The program that changes a tree at random.
fn changes() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/changes.py").to_owned()
}

/// Fails if an image is not as it should be.
#[track_caller]
fn assert_sound(folders: &Folders, image: &str) {
    folders.yes(&format!("ext4 check {image}"));
    if let Some(e2fsck) = tool("e2fsck") {
        run(Command::new(e2fsck).arg("-fn").arg(folders.path(image)));
    }
}

/// Equal calls have equal results, and leave equal files.
#[test]
fn changes_are_as_the_kernel_makes_them() {
    let (Some(mke2fs), Some(_)) = (tool("mke2fs"), tool("python3")) else { return };
    if !kernel::loop_mounts_work() {
        return skip("no loop mounts");
    }
    let Some(folders) = Folders::new() else { return };
    let kinds = [
        "-t ext4 -b 1024",
        "-t ext4 -b 4096",
        "-t ext4 -b 1024 -O inline_data -I 256",
        "-t ext4 -b 1024 -O bigalloc,orphan_file",
        "-t ext3",
        "-t ext2",
        "-t ext4 -O ^has_journal,^metadata_csum,^dir_index",
    ];
    let (rounds, count) = if slow_tests() { (20, 10_000) } else { (1, 1500) };
    for (number, kind) in (0..rounds).flat_map(|round| kinds.iter().map(move |kind| (round, kind))) {
        let seed = 1 + number * 100 + kind.len() as u64;
        mke2fs::make(&mke2fs, kind, &folders.path("root.img"), "64M");
        let call = format!("python3 {} kernel {seed} {count}", changes());
        let script = format!(
            "cd {}; cp root.img copy; mkdir -p kernel; mount -o loop,nodev copy kernel; {call} > kernel.txt; umount kernel",
            folders.folder().display(),
        );
        kernel::with_mounts(&script).unwrap();
        folders.mount("--write root.img", "own");
        folders.sh(&format!("python3 {} own {seed} {count} > own.txt", changes()));
        folders.unmount("own");
        let read = |name: &str| fs::read_to_string(folders.path(name)).unwrap();
        assert_same_lines(&read("own.txt"), &read("kernel.txt"), &format!("{kind}, seed {seed}"));
        assert_sound(&folders, "root.img");
        // What was written is there when the image is opened again.
        folders.mount("root.img", "own");
        let again = folders.sh(&format!("python3 {} own 1 0", changes()));
        let tree: String =
            read("own.txt").lines().filter(|line| line.starts_with("b'")).collect::<Vec<_>>().join("\n");
        assert_same_lines(&again, &tree, "read again");
        folders.unmount("own");
    }
}

/// Writes, cuts, holes and maps of memory in one file, beside the same in memory.
#[test]
fn contents_are_what_was_written_last() {
    let Some(folders) = Folders::with_image() else { return };
    folders.file("key", (0..64).collect::<Vec<u8>>());
    folders.yes("crypt encrypt --no-progress root.img enc --key-file key --key-size 512");
    let line = "--write enc --crypt aes-xts-plain64 --key-file key --key-size 512";
    folders.mount(line, "own");
    let mut rng = Rng::new(5);
    let path = folders.path("own/random");
    let (mut file, mut expected) = (File::create_new(&path).unwrap(), Vec::<u8>::new());
    let largest = 1_000_000;
    for step in 0..if slow_tests() { 20_000 } else { 2000 } {
        let at = rng.below(largest) as usize;
        let most = [10, 5000, 200_000][rng.below(3) as usize];
        let len = 1 + rng.below(most) as usize;
        match rng.below(8) {
            0..4 => {
                let bytes = rng.bytes(len);
                file.write_all_at(&bytes, at as u64).unwrap();
                expected.resize(expected.len().max(at + len), 0);
                expected[at..at + len].copy_from_slice(&bytes);
            }
            4 => {
                file.set_len(at as u64).unwrap();
                expected.resize(at, 0);
            }
            5 => {
                let end = (at + len).min(expected.len());
                folders.sh(&format!("fallocate -p -o {at} -l {len} own/random"));
                expected.get_mut(at..end).into_iter().for_each(|hole| hole.fill(0));
            }
            6 if step % 50 == 0 => {
                drop(file);
                folders.unmount("own");
                folders.mount(line, "own");
                file = File::options().read(true).write(true).open(&path).unwrap();
            }
            _ => {
                let mut found = Vec::new();
                file.rewind().unwrap();
                file.read_to_end(&mut found).unwrap();
                assert!(found == expected, "step {step}");
            }
        }
    }
    drop(file);
    folders.unmount("own");
    folders.yes("crypt decrypt --no-progress enc root.img.2 --key-file key --key-size 512");
    assert_sound(&folders, "root.img.2");
    folders.yes("ext4 extract --no-progress root.img.2 copy");
    assert!(fs::read(folders.path("copy/random")).unwrap() == expected);
}

/// Synced changes are there, and the rest is as of a commit.
#[test]
fn a_killed_process_leaves_what_was_committed() {
    killed("-t ext4", if slow_tests() { 40 } else { 4 });
}

/// Without a journal the same is promised: commits lie in a file beside the image until they are in it.
#[test]
fn without_a_journal_a_killed_process_leaves_the_same() {
    killed("-t ext4 -O ^has_journal", if slow_tests() { 40 } else { 2 });
}

/// Where the file would lie there is a folder: what can't be kept is not committed.
#[test]
fn without_a_journal_changes_are_kept_beside_the_image() {
    let Some(folders) = Folders::with_image_of("-t ext4 -O ^has_journal") else { return };
    folders.mount("--write root.img", "own");
    fs::create_dir(folders.path("root.img.casemate-redo")).unwrap();
    let mut file = File::create(folders.path("own/file2")).unwrap();
    file.write_all(b"text").unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(5));
    drop(file);
    folders.is("umount own", 2, "own: the last changes can't be made permanent");
    folders.sh("rmdir root.img.casemate-redo");
    folders.unmount("own");
    assert_sound(&folders, "root.img");
    assert_eq!(folders.yes("ext4 cat root.img /file2"), "text");
}

fn killed(kind: &str, rounds: u64) {
    let (Some(folders), Some(_)) = (Folders::with_image_of(kind), tool("python3")) else { return };
    for round in 0..rounds {
        folders.mount("--write root.img", "own");
        let process = folders.process("own");
        let load = |seed: u64| {
            let mut python = Command::new("python3");
            python.arg(changes()).args([Path::new("own/sub"), Path::new(&seed.to_string())]).arg("1000000");
            python.current_dir(folders.folder()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut load = load(round);
        let mut synced = Vec::new();
        let mut rng = Rng::new(round);
        for number in 0..20 {
            let len = 1 + rng.below(50_000) as usize;
            let (name, bytes) = (format!("own/synced{round}-{number}"), rng.bytes(len));
            let mut file = File::create(folders.path(&name)).unwrap();
            file.write_all(&bytes).unwrap();
            file.sync_all().unwrap();
            synced.push((name, bytes));
        }
        sleep(Duration::from_millis(rng.below(300)));
        run(Command::new("kill").args(["-KILL", &process]));
        let _ = load.kill();
        load.wait().unwrap();
        wait_until(|| {
            fs::metadata(folders.path("own")).is_err() && folders.own("umount own").status.code() == Some(2)
        });
        assert!(!folders.is_mounted("own"));
        // It may note that a change was interrupted.
        run(folders.command().args(["mount", "root.img", "own"]));
        for (name, bytes) in &synced {
            assert!(fs::read(folders.path(name)).unwrap() == *bytes, "{name}");
        }
        folders.unmount("own");
        // Whoever opens it next for writing completes what was begun.
        folders.is("ext4 recover root.img", 0, "");
        assert_sound(&folders, "root.img");
        folders.mount("--write root.img", "own");
        folders.sh("rm -rf own/synced* own/sub/*");
        folders.unmount("own");
        assert_sound(&folders, "root.img");
    }
}

#[test]
fn what_is_open_stays_without_its_name() {
    let Some(folders) = Folders::with_image() else { return };
    folders.mount("--write root.img", "own");
    let free = || folders.sh("stat -f -c '%f %d' own");
    sleep(Duration::from_millis(100));
    let before = free();
    let mut file =
        File::options().read(true).write(true).create_new(true).open(folders.path("own/open")).unwrap();
    file.write_all(&[1; 500_000]).unwrap();
    fs::remove_file(folders.path("own/open")).unwrap();
    file.write_all(&[2; 500_000]).unwrap();
    fs::create_dir(folders.path("own/gone")).unwrap();
    let gone = File::open(folders.path("own/gone")).unwrap();
    fs::remove_dir(folders.path("own/gone")).unwrap();
    folders.is("umount own", 2, "a file or folder in it is in use");
    let mut found = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut found).unwrap();
    assert!(found[..500_000] == [1; 500_000] && found[500_000..] == [2; 500_000]);
    assert_ne!(free(), before);
    drop((file, gone));
    // What nobody uses is free again.
    wait_until(|| free() == before);
    folders.unmount("own");
    assert_sound(&folders, "root.img");
}

#[test]
fn a_full_file_system_says_so_and_goes_on() {
    let Some(folders) = Folders::with_image() else { return };
    folders.mount("--write root.img", "own");
    let free = || folders.sh("stat -f -c %f own");
    let before = free();
    for _ in 0..3 {
        // A file that went is freed when the kernel has forgotten it, which it says behind its back.
        wait_until(|| free() == before);
        let mut file = File::create(folders.path("own/full")).unwrap();
        let error = loop {
            if let Err(error) = file.write_all(&[3; 100_000]) {
                break error;
            }
        };
        assert_eq!(error.raw_os_error(), Some(28));
        assert_eq!(fs::write(folders.path("own/more"), [0; 9000]).unwrap_err().raw_os_error(), Some(28));
        fs::remove_file(folders.path("own/more")).unwrap();
        drop(file);
        fs::remove_file(folders.path("own/full")).unwrap();
    }
    fs::write(folders.path("own/more"), [0; 9000]).unwrap();
    folders.unmount("own");
    assert_sound(&folders, "root.img");
}

/// Reserved blocks of a full file system are root's.
#[test]
fn users_leave_to_root_what_is_reserved() {
    let (Some(mke2fs), Some(folders)) = (tool("mke2fs"), Folders::new()) else { return };
    if tool("setpriv").is_none() || fs::metadata("/proc/self").is_ok_and(|found| found.uid() != 0) {
        return skip("only root can be somebody else");
    }
    mke2fs::make(&mke2fs, "-t ext4 -m 10", &folders.path("root.img"), "32M");
    folders.mount("--write --allow-other root.img", "own");
    folders.sh("chmod 755 .; chmod 777 own");
    let available = || folders.sh("stat -f -c %a own").trim().parse::<u64>().unwrap();
    assert!(available() > 5000);
    folders.sh("setpriv --reuid=1234 --regid=1234 --clear-groups sh -c 'cat /dev/zero > own/user' || true");
    assert!(available() < 4, "{}", available());
    folders.sh("head -c 1000000 /dev/zero > own/root");
    folders.unmount("own");
    assert_sound(&folders, "root.img");
}

#[test]
fn inside_encrypted_folders_files_change_with_their_keys() {
    let (Some(mke2fs), Some(folders)) = (tool("mke2fs"), Folders::new()) else { return };
    mke2fs::make(&mke2fs, "-t ext4 -O encrypt -I 256", &folders.path("root.img"), "16M");
    folders.file("key", (0..64).collect::<Vec<u8>>());
    folders.yes("ext4 mkdir root.img /secret");
    folders.yes("fscrypt set-policy root.img /secret --fscrypt-key key");
    folders.mount("--write root.img --fscrypt-key key", "own");
    let script = "mkdir own/secret/d; echo one > own/secret/d/file; printf two >> own/secret/d/file
        head -c 300000 /dev/urandom > own/secret/big; ln -s d/file own/secret/link
        dd if=/dev/urandom of=own/secret/big bs=1 count=3333 seek=77777 conv=notrunc status=none
        truncate -s 200001 own/secret/big; mv own/secret/d/file own/secret/d/other; cp own/secret/big big
        echo plain > own/plain";
    folders.sh(script);
    let into = fs::rename(folders.path("own/plain"), folders.path("own/secret/plain")).unwrap_err();
    assert_eq!(into.raw_os_error(), Some(18));
    folders.unmount("own");
    assert_sound(&folders, "root.img");
    folders.yes("ext4 extract --no-progress root.img copy --fscrypt-key key");
    assert_eq!(folders.read("copy/secret/d/other"), b"one\ntwo");
    assert!(folders.read("copy/secret/big") == folders.read("big"));
    // Without the key nothing is made there, names are as the kernel shows them, and go.
    folders.mount("--write root.img", "own");
    let made = fs::write(folders.path("own/secret/new"), "x").unwrap_err();
    assert_eq!(made.raw_os_error(), Some(126));
    folders.sh("rm -r own/secret/*");
    folders.unmount("own");
    assert_sound(&folders, "root.img");
}

#[test]
fn what_must_not_change_does_not() {
    let (Some(folders), Some(debugfs)) = (Folders::with_image(), tool("debugfs")) else { return };
    // An immutable file, and one that can only be appended to.
    for (file, flags) in [("/file", "0x80010"), ("/sub/f1", "0x80020")] {
        let ask = format!("sif {file} flags {flags}");
        run(Command::new(&debugfs).args(["-w", "-R", &ask]).arg(folders.path("root.img")));
    }
    folders.mount("--write root.img", "own");
    let denied = |result: std::io::Result<()>| assert_eq!(result.unwrap_err().raw_os_error(), Some(1));
    denied(fs::write(folders.path("own/file"), "x"));
    denied(fs::remove_file(folders.path("own/file")));
    denied(fs::rename(folders.path("own/file"), folders.path("own/other")));
    denied(fs::set_permissions(folders.path("own/file"), fs::Permissions::from_mode(0o600)));
    denied(fs::write(folders.path("own/sub/f1"), "x"));
    folders.sh("echo more >> own/sub/f1");
    assert_eq!(folders.read("own/sub/f1"), b"1\nmore\n");
    folders.unmount("own");
    folders.yes("verity format --no-progress root.img tree.verity --root-hash-file root.txt");
    folders.is("mount root.img own --write --dm-verity tree.verity @root.txt", 2, "--write");
    folders.is("mount --write root.img own -o ro", 2, "--write and -o ro: one of them");
}

/// Everyday programs: a tree unpacked, a repository cloned, a database.
#[test]
fn programs_work_in_it() {
    let (Some(mke2fs), Some(folders), Some(_)) = (tool("mke2fs"), Folders::new(), tool("python3")) else {
        return;
    };
    mke2fs::make(&mke2fs, "-t ext4", &folders.path("root.img"), "128M");
    folders.mount("--write root.img", "own");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    folders.sh(&format!(
        "cp -a {0} own/src; diff -r {0} own/src; tar -cf t.tar -C own src; mkdir own/again; tar -xf t.tar -C own/again
         diff -r {0} own/again/src; rm -r own/src; mv own/again/src own/src; diff -r {0} own/src",
        source.display()
    ));
    if tool("git").is_some() {
        let git = "git -c user.name=a -c user.email=b -c init.defaultBranch=main";
        folders.sh(&format!(
            "cd own; {git} init -q repo; cp -a src repo; cd repo; {git} add -A; {git} commit -qm one; {git} gc -q
             cd ..; {git} clone -q repo clone; diff -r repo/src clone/src; cd clone; {git} fsck --strict 2>&1"
        ));
    }
    let database = "import sqlite3\ndb = sqlite3.connect('own/db'); db.execute('pragma journal_mode=wal')\n\
        db.execute('create table t (a, b)')\n\
        for n in range(20):\n  db.executemany('insert into t values (?, ?)', [(n, 'x' * 100)] * 50); db.commit()\n\
        db.execute('delete from t where a % 3 = 0'); db.commit(); db.execute('vacuum'); \
        print(db.execute('pragma integrity_check').fetchall(), db.execute('select count(*) from t').fetchall())";
    let said = run_any(Command::new("python3").args(["-c", database]).current_dir(folders.folder()));
    assert_eq!(String::from_utf8_lossy(&said.stdout), "[('ok',)] [(650,)]\n", "{said:?}");
    folders.unmount("own");
    assert_sound(&folders, "root.img");
}
