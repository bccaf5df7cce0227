//! How folders come and go: in the background, in use, by signals, and when their process was killed.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use casemate_testkit::{heeding_signals, run, status, stdout, tool, wait_until};

use super::Folders;

pub fn is_there(process: &str) -> bool {
    // A zombie is not a process.
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

pub fn kill(signal: &str, process: &str) {
    run(Command::new("kill").args([signal, process]));
}

#[test]
fn the_image_is_free_when_umount_ends() {
    let Some(folders) = Folders::with_image() else { return };
    fs::create_dir(folders.path("own")).unwrap();
    let said = folders.yes("mount root.img own --json");
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["event"], &said["image"]), (&"mounted".into(), &"root.img".into()));
    assert!(folders.is_mounted("own") && is_there(&said["pid"].to_string()));
    for _ in 0..5 {
        folders.is("ext4 mkdir root.img /new", 2, "root.img: ");
        assert_eq!(fs::read(folders.path("own/file")).unwrap(), b"hello\n");
        assert!(fs::write(folders.path("own/file"), "x").is_err());
        folders.yes("umount own");
        folders.yes("ext4 mkdir root.img /new");
        folders.yes("ext4 rm -r root.img /new");
        folders.mount("root.img", "own");
    }
    folders.yes("umount own");
    assert!(!is_there(&said["pid"].to_string()));
    folders.is("umount own", 2, "own: nothing of casemate is mounted here");
    folders.is("umount none/own", 2, "none/own: No such file");
    // What keeps it from beginning is said, and nothing is left.
    folders.is("mount none own", 2, "none: No such file");
    folders.is("mount root.img none", 2, "none: No such file");
    folders.is("mount root.img root.img", 2, "ot a directory");
    folders.is("mount tree/file own", 2, "tree/file: ");
    folders.is("mount root.img own -o rw", 2, "rw: --write allows writes");
    assert!(!folders.is_mounted("own"));
}

#[test]
fn contents_of_mapped_memory_that_find_no_room_are_not_lost_in_silence() {
    let Some(folders) = Folders::with_image_of("-t ext4 -m 0") else { return };
    let Some(python) = tool("python3") else { return };
    let fill = "import mmap, os\n\
                big = open('own/big', 'wb', 0)\n\
                try:\n while True: big.write(bytes(1 << 16))\n\
                except OSError: pass\n\
                big.close()\n\
                hole = os.open('own/hole', os.O_RDWR | os.O_CREAT)\n\
                os.ftruncate(hole, 1 << 20)\n\
                m = mmap.mmap(hole, 1 << 20)\n\
                m[:] = b'x' * (1 << 20)\n\
                m.close()\n\
                os.close(hole)";
    for is_removed in [false, true] {
        folders.mount("--write root.img", "own");
        run(Command::new(&python).args(["-c", fill]).current_dir(folders.folder()));
        folders.sh("sync -f own || true; rm own/big");
        if is_removed {
            folders.sh("rm own/hole");
            folders.unmount("own");
            continue;
        }
        // The kernel sends them once. The end tells of them, whoever heard of it before.
        folders.is("umount own", 2, "memory-mapped file are lost");
        assert!(!folders.is_mounted("own"));
        folders.yes("ext4 check root.img");
    }
}

#[test]
fn umount_does_not_wait_for_copies_of_a_mount() {
    let Some(folders) = Folders::with_image() else { return };
    folders.mount("--write root.img", "own");
    folders.sh("mkdir copy; mount --bind own copy; echo more > own/more");
    let process = folders.process("own");
    let text = format!("/copy; process {process} serves it");
    folders.is("umount own", 0, &text);
    assert!(!folders.is_mounted("own") && folders.is_mounted("copy") && is_there(&process));
    folders.unmount("copy");
    wait_until(|| !is_there(&process));
    assert_eq!(folders.yes("ext4 cat root.img /more"), "more\n");
}

/// Whether something was committed before or not, the changes are in no file any more; the folder still has them.
#[test]
fn an_image_that_was_removed_or_replaced_is_told_at_the_end() {
    for take_name in ["rm root.img", "cp root.img other.img; mv other.img root.img"] {
        for sync in ["true", "sync -f own/new"] {
            let Some(folders) = Folders::with_image() else { return };
            folders.mount("--write root.img", "own");
            folders.sh(&format!("echo text > own/new; {sync}; {take_name}"));
            for _ in 0..2 {
                folders.is("umount own", 2, "own: its image was removed or replaced, so it stays mounted");
            }
            assert_eq!(fs::read(folders.path("own/new")).unwrap(), b"text\n");
            folders.is(
                "umount --lazy own",
                2,
                "own: is unmounted, but its last changes could not be made permanent",
            );
        }
    }
    // One that has another name is there, and one that is only read loses nothing.
    let Some(folders) = Folders::with_image() else { return };
    folders.mount("--write root.img", "own");
    folders.sh("echo text > own/new; mv root.img other.img");
    folders.yes("umount own");
    assert_eq!(folders.yes("ext4 cat other.img /new"), "text\n");
    folders.mount("other.img", "own");
    folders.sh("rm other.img");
    folders.yes("umount own");
}

#[test]
fn two_folders_at_a_time() {
    let Some(folders) = Folders::with_image() else { return };
    fs::copy(folders.path("root.img"), folders.path("other.img")).unwrap();
    folders.yes("ext4 rm other.img /file");
    folders.mount("root.img", "one");
    folders.mount("root.img", "two");
    folders.mount("other.img", "three");
    folders.is("mount other.img one", 2, "root.img is mounted here already; unmount it (casemate umount)");
    for name in ["one", "two"] {
        assert_eq!(fs::read(folders.path(name).join("file")).unwrap(), b"hello\n");
    }
    assert!(!folders.path("three/file").exists() && folders.path("three/sub/f1").exists());
    folders.yes("umount one");
    assert_eq!(fs::read(folders.path("two/sub/f3")).unwrap(), b"3\n");
    folders.yes("umount two three");
    assert_eq!(fs::read_dir(folders.path("one")).unwrap().count(), 0);
}

#[test]
fn what_is_in_use_stays_until_it_is_not() {
    let (Some(folders), Some(_)) = (Folders::with_image(), tool("python3")) else { return };
    folders.mount("root.img", "own");
    let process = folders.process("own");
    let mut open = fs::File::open(folders.path("own/file")).unwrap();
    folders.is(
        "umount own",
        2,
        "own: a file or folder in it is in use; unmount it for everybody else (--lazy)",
    );
    assert!(folders.path("own/sub").exists());
    folders.yes("umount --lazy own");
    assert!(!folders.is_mounted("own") && !folders.path("own/sub").exists());
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello\n");
    // What is mounted there by now is none of that process, and a signal to it changes nothing of it.
    folders.mount("root.img", "own");
    kill("-TERM", &process);
    sleep(Duration::from_millis(300));
    assert!(is_there(&process) && folders.is_mounted("own"));
    folders.yes("umount own");
    drop(open);
    wait_until(|| !is_there(&process));

    // A signal is as gentle, and a second one is not.
    folders.mount("root.img", "own");
    let process = folders.process("own");
    let open = fs::File::open(folders.path("own/sub/f1")).unwrap();
    kill("-TERM", &process);
    wait_until(|| !folders.is_mounted("own"));
    folders.mount("root.img", "own");
    let mut text = String::new();
    (&open).read_to_string(&mut text).unwrap();
    assert_eq!(text, "1\n");
    kill("-TERM", &process);
    wait_until(|| !is_there(&process));
    assert!(open.metadata().is_err() || folders.path("own/sub").exists());
    assert_eq!(fs::read(folders.path("own/file")).unwrap(), b"hello\n");
}

#[test]
fn a_folder_whose_process_was_killed_is_explained_and_given_back() {
    let (Some(folders), Some(_)) = (Folders::with_image(), tool("python3")) else { return };
    folders.mount("root.img", "own");
    let process = folders.process("own");
    kill("-KILL", &process);
    wait_until(|| fs::metadata(folders.path("own")).is_err());
    let why =
        "the process that showed root.img here has ended without unmounting it; unmount it (casemate umount)";
    let output = folders.own("mount root.img own");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(status(&output), 2);
    assert!(
        said.contains(&why.replace("root.img", &folders.path("root.img").display().to_string())),
        "{said}"
    );
    folders.yes("umount own");
    folders.mount("root.img", "own");
    assert_eq!(fs::read(folders.path("own/file")).unwrap(), b"hello\n");
}

#[test]
fn in_the_foreground_faults_are_said_and_an_interrupt_unmounts() {
    let (Some(folders), Some(debugfs)) = (Folders::with_image(), tool("debugfs")) else { return };
    let ask = run(Command::new(debugfs).args(["-w", "-R", "ln <8> /journal"]).arg(folders.path("root.img")));
    assert_eq!(ask, "");
    fs::create_dir(folders.path("own")).unwrap();
    let mut command = heeding_signals(&folders.command());
    command.args(["mount", "--foreground", "--json", "root.img", "own"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("\"event\":\"mounted\""));
    assert_eq!(fs::read(folders.path("own/journal")).unwrap_err().raw_os_error(), Some(5));
    kill("-INT", &child.id().to_string());
    assert!(lines.next().unwrap().unwrap().contains("\"event\":\"unmounted\""));
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 0);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("root.img: inode 8 is the file system's own"), "{said}");
    assert!(!folders.is_mounted("own"));
}

#[test]
fn mount_calls_its_helper() {
    let Some(folders) = Folders::with_image() else { return };
    let helper = folders.link("mount.casemate");
    fs::create_dir(folders.path("own")).unwrap();
    folders.file("key", (0..64).collect::<Vec<u8>>());
    folders.yes("crypt encrypt --no-progress root.img enc --key-file key --key-size 512");
    let options = "rw,noauto,crypt=aes-xts-plain64,key-file=key,key-size=512,noexec,nofail,allow_other";
    let output = folders.run(&helper, &format!("enc own -n -o {options}"));
    assert_eq!((status(&output), stdout(&output)), (0, String::new()), "{output:?}");
    let list = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let path = folders.folder().canonicalize().unwrap().join("own");
    let line = list.lines().find(|line| line.contains(path.to_str().unwrap())).unwrap();
    assert!(line.contains(" ro,nosuid,nodev,noexec") && line.contains("fuse.casemate"), "{line}");
    assert!(line.contains(&format!(" {} ", Path::new(&folders.path("enc")).display())), "{line}");
    assert_eq!(fs::read(folders.path("own/file")).unwrap(), b"hello\n");
    folders.yes("umount own");
    assert_eq!(status(&folders.run(&helper, "enc own -o luks")), 32);
    assert_eq!(status(&folders.run(&helper, "enc own -f")), 0);
    assert!(!folders.is_mounted("own"));
}

/// Sandboxes and emulators have FUSE without what gives each thread a file of its own.
#[test]
fn a_kernel_that_clones_no_files_is_answered() {
    let (Some(folders), Some(strace)) = (Folders::with_image(), tool("strace")) else { return };
    fs::create_dir(folders.path("own")).unwrap();
    let mut command = Command::new(strace);
    command.args("-f -qq -o log -P /dev/fuse -e trace=ioctl -e inject=ioctl:error=ENOTTY".split(' '));
    command.args([super::CASEMATE, "mount", "--foreground", "root.img", "own"]).current_dir(folders.folder());
    let mut child = command.spawn().unwrap();
    wait_until(|| folders.is_mounted("own"));
    assert_eq!(fs::read(folders.path("own/file")).unwrap(), b"hello\n");
    assert_eq!(fs::read_dir(folders.path("own/sub")).unwrap().count(), 3);
    folders.unmount("own");
    assert!(child.wait().unwrap().success());
    let log = fs::read_to_string(folders.path("log")).unwrap();
    assert!(log.contains("INJECTED"), "{log}");
}

#[test]
fn a_mount_does_not_hide_its_own_image() {
    let Some(folders) = Folders::with_image() else { return };
    folders.sh("mkdir -p over/deep elsewhere && cp root.img over/deep/ && ln -s ../root.img over/link && ln -s over again");
    for (image, folder) in [
        ("over/deep/root.img", "over"),
        ("over/deep/root.img", "again"),
        ("again/deep/root.img", "over/deep"),
        ("over/link", "over"),
        ("root.img", "."),
    ] {
        folders.is(&format!("mount --write {image} {folder}"), 2, "the mount needs and would hide");
        assert!(!folders.is_mounted("over"));
    }
    folders.is("mount root.img over --control over/socket", 2, "the mount needs and would hide");
    folders.sh("ln -s over/none dangling");
    folders.is("mount -w root.img over --recovery-file dangling", 2, "the mount needs and would hide");
    folders.mount("--write over/deep/root.img", "elsewhere");
    folders.unmount("elsewhere");
}

/// Nobody would know of it, and a folder whose process has ended answers nobody.
#[test]
fn a_command_that_ends_before_the_folder_is_there_leaves_none() {
    let Some(folders) = Folders::with_image() else { return };
    folders.sh("echo pw > key; mkdir own");
    folders.yes("luks format volume --from root.img --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 3000000 -q");
    for signal in ["-TERM", "-HUP", "-KILL"] {
        for options in [&["--write"][..], &[]] {
            let mut command = folders.command();
            command.args(["mount", "volume,luks,key-file=key", "own"]).args(options);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let children = format!("/proc/{0}/task/{0}/children", child.id());
            let mut server = String::new();
            wait_until(|| {
                server = fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
                !server.is_empty()
            });
            // While it derives the key.
            sleep(Duration::from_millis(200));
            kill(signal, &child.id().to_string());
            child.wait().unwrap();
            wait_until(|| !is_there(&server));
            assert!(!folders.is_mounted("own"), "{signal}");
        }
    }
}
