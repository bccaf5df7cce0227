//! Commits that fail: who is told, and what becomes of the changes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use casemate_testkit::{kernel, run, skip, status, stderr, tool, wait_until};

use super::ends::{is_there, kill};
use super::{CASEMATE, Folders};

/// Runs a script where a disk of 20 MiB, `disk`, is full below a sparse image of 64, which is mounted on `own`.
fn on_a_full_disk(script: &str) -> Option<String> {
    let (Some(mke2fs), Some(folders)) = (tool("mke2fs"), Folders::new()) else { return None };
    if !kernel::loop_mounts_work() {
        skip("no mounts");
        return None;
    }
    let before = format!(
        "cd {}; mkdir disk own; mount -t tmpfs -o size=20M none disk; truncate -s 64M disk/root.img
        {} -q -t ext4 disk/root.img; casemate() {{ {CASEMATE} \"$@\"; }}
        status() {{ s=0; \"$@\" || s=$?; echo \"status $s\"; }}
        fill() {{ cat /dev/zero > disk/fill 2> /dev/null || true; }}
        write() {{ for i in $(seq 100); do echo \"important $i\" > own/$1$i; done; }}
        casemate mount --write disk/root.img own",
        folders.folder().display(),
        mke2fs.display()
    );
    kernel::with_mounts(&format!("{before}\n{script}"))
}

/// Changes for which the disk below has no room stay in memory, and in the folder, until there is room.
#[test]
fn changes_without_room_keep_their_folder_mounted() {
    let script = "fill; write a; status casemate umount own 2> said; cat own/a100
        status sync own/a1 2> /dev/null; status casemate umount own 2>> said; write b; rm disk/fill
        status casemate umount own; casemate ext4 cat disk/root.img /a100 /b1; casemate ext4 check disk/root.img
        sed 's/^/said /' said";
    let Some(said) = on_a_full_disk(script) else { return };
    let all: Vec<&str> = said.lines().collect();
    let (told, rest): (Vec<&str>, Vec<&str>) = all.iter().partition(|line| line.starts_with("said "));
    let expected =
        ["status 2", "important 100", "status 1", "status 2", "status 0", "important 100", "important 1"];
    assert_eq!(rest[..expected.len()], expected, "{said}");
    assert_eq!(told.len(), 2, "{said}");
    for line in told {
        assert!(
            line.starts_with(
                "said casemate: own: the last changes can't be made permanent, so it stays mounted"
            ),
            "{line}"
        );
        assert!(line.contains("No space left on device"), "{line}");
    }
}

/// Changes between the last answer of the process and the end of the mount can't be asked for: the process tells them.
#[test]
fn changes_that_come_while_a_folder_is_unmounted_are_not_lost_in_silence() {
    let Some(strace) = tool("strace") else { return };
    // It stops when all was committed, and before it unmounts.
    let script = format!(
        "{} -f -o log -e trace=fsync -e inject=fsync:signal=SIGSTOP {CASEMATE} umount own 2> said & tracer=$!
        until grep -q 'stopped by SIGSTOP' log; do sleep 0.1; done
        fill; write a; kill -CONT $(sed -n 's/ .*stopped by SIGSTOP.*//p' log | head -n 1)
        s=0; wait $tracer || s=$?; echo \"status $s\"; cat said; ls own",
        strace.display()
    );
    let Some(said) = on_a_full_disk(&script) else { return };
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0] == "status 2" && lines.len() == 2, "{said}");
    assert!(lines[1].contains("disk/root.img: the last changes could not be made permanent"), "{said}");
}

/// umount(8) asks nobody: the system's log is told then.
#[test]
fn who_is_not_asked_tells_the_log() {
    let Some(python) = tool("python3") else { return };
    let listen = "import socket, sys; log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); log.bind('dev/log'); \
        open('listens', 'w'); print(log.recv(4096).decode())";
    let script = format!(
        "casemate umount own; mkdir dev; cp -a /dev/null /dev/zero /dev/fuse /dev/urandom dev
        {} -c \"{listen}\" > told & listener=$!; until [ -e listens ]; do sleep 0.1; done
        mount --bind dev /dev; casemate mount --write disk/root.img own; fill; write a; umount own; wait $listener; cat told",
        python.display()
    );
    let Some(said) = on_a_full_disk(&script) else { return };
    assert!(said.starts_with("<27>casemate["), "{said}");
    assert!(said.contains("own: disk/root.img: the last changes could not be made permanent"), "{said}");
}

/// A disk that fails: told at each fsync from then on, and at the end.
#[test]
fn a_flush_that_failed_is_told_to_everybody() {
    let (Some(folders), Some(strace)) = (Folders::with_image(), tool("strace")) else { return };
    fs::create_dir(folders.path("own")).unwrap();
    let mut command = Command::new(strace);
    command.args("-f -qq -o log -e trace=fdatasync -e inject=fdatasync:error=EIO:when=1".split(' '));
    command.args([CASEMATE, "mount", "--foreground", "--write", "root.img", "own"]);
    let mut server = command.current_dir(folders.folder()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| folders.is_mounted("own"));
    fs::write(folders.path("own/new"), "text").unwrap();
    let file = File::open(folders.path("own/new")).unwrap();
    for _ in 0..3 {
        assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(5));
    }
    drop(file);
    folders.is("umount own", 2, "own: the last changes can't be made permanent, so it stays mounted");
    assert_eq!(fs::read(folders.path("own/new")).unwrap(), b"text");
    folders.is("umount --lazy own", 2, "own: is unmounted, but its last changes could not be made permanent");
    let mut said = String::new();
    server.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(2), "{said}");
    assert!(said.contains("root.img: the last changes could not be made permanent"), "{said}");
}

/// A process that takes its time is waited for, and it is said what for; one that is killed meanwhile said nothing.
#[test]
fn umount_waits_until_it_is_told() {
    let (Some(folders), Some(_)) = (Folders::with_image(), tool("python3")) else { return };
    for is_killed in [false, true] {
        folders.mount("--write root.img", "own");
        let process = folders.process("own");
        fs::write(folders.path("own/new"), "text").unwrap();
        kill("-STOP", &process);
        let mut command = folders.command();
        let mut child: Child = command.args(["umount", "own"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        assert!(
            line.contains("own: waiting for the process that makes its last changes permanent"),
            "{line}"
        );
        assert!(child.try_wait().unwrap().is_none());
        kill(if is_killed { "-KILL" } else { "-CONT" }, &process);
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(if is_killed { 2 } else { 0 }), "{rest:?}");
        assert_eq!(rest.iter().any(|line| line.contains("without an answer")), is_killed, "{rest:?}");
        assert!(!folders.is_mounted("own") && !is_there(&process));
        if !is_killed {
            folders.yes("ext4 cat root.img /new");
        }
    }
}

/// A signal is not a reason to lose anything.
#[test]
fn a_signal_leaves_mounted_what_has_no_room() {
    let script = format!(
        "casemate umount own; {CASEMATE} mount --foreground --write disk/root.img own 2> said & server=$!
        until grep -q \" $(pwd -P)/own \" /proc/self/mountinfo; do sleep 0.1; done; fill; write a; kill -TERM $server
        until grep -q 'No space left' said; do sleep 0.1; done; cat own/a7; rm disk/fill; casemate umount own
        status wait $server; casemate ext4 cat disk/root.img /a8"
    );
    let Some(said) = on_a_full_disk(&script) else { return };
    assert_eq!(said, "important 7\nstatus 0\nimportant 8\n");
}

/// A process that was killed before has lost what it had not committed, which is a failure.
#[test]
fn what_a_killed_process_had_not_committed_is_told() {
    let (Some(folders), Some(_)) = (Folders::with_image(), tool("python3")) else { return };
    folders.mount("--write root.img", "own");
    let process = folders.process("own");
    let mut file = File::create(folders.path("own/new")).unwrap();
    file.write_all(b"text").unwrap();
    kill("-KILL", &process);
    wait_until(|| fs::metadata(folders.path("own")).is_err());
    drop(file);
    let output = folders.own("umount own");
    assert!(
        status(&output) == 2 && stderr(&output).contains("changes that it had not committed are lost"),
        "{}",
        stderr(&output)
    );
    assert!(!folders.is_mounted("own"));
}

/// mount(8)'s counterpart calls this one where there is a link to it.
#[test]
fn umount_calls_its_helper() {
    let Some(folders) = Folders::with_image() else { return };
    let helper = folders.link("umount.fuse.casemate");
    folders.mount("--write root.img", "own");
    run(Command::new("touch").arg(folders.path("own/new")));
    let path = folders.path("own");
    let output = folders.run(&helper, &format!("{} -n -v -t fuse.casemate", Path::new(&path).display()));
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    folders.yes("ext4 cat root.img /new");
    assert_eq!(status(&folders.run(&helper, "own")), 32);
}
