//! Work that does not come to its end: interrupted, data that shrinks meanwhile, a full disk.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, Command, Stdio};

use casemate_testkit::{TempDir, heeding_signals, skip, tempdir};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// Nobody hashes so much before the first report is out, but a file system keeps it in no space.
const LONG: u64 = 1 << 40;

fn place(size: u64) -> TempDir {
    let place = tempdir().unwrap();
    File::create(place.path().join("data")).unwrap().set_len(size).unwrap();
    place
}

fn names(place: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(place.path()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Starts a command and waits until it is at work: its first report of progress is there.
fn start(place: &TempDir, line: &str) -> (Child, BufReader<ChildStderr>) {
    let mut command = heeding_signals(&Command::new(CASEMATE));
    command.args(line.split_whitespace()).args(["--progress-json", "--threads=1"]);
    command.current_dir(place.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut report = String::new();
    errors.read_line(&mut report).unwrap();
    assert!(report.contains("\"device_bytes\""), "{line}: {report}");
    (child, errors)
}

/// Waits for the end: exit status, standard output, and what is on standard error besides reports.
fn end(mut child: Child, errors: BufReader<ChildStderr>) -> (Option<i32>, String, Vec<String>) {
    let lines = errors.lines().map(Result::unwrap).filter(|line| !line.starts_with('{')).collect();
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    (child.wait().unwrap().code(), printed, lines)
}

fn send(child: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn an_interrupt_is_one_line_and_leaves_no_half_file() {
    for (signal, status) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        for line in [
            "verity format data hash",
            "verity format data hash --fec-device=fec",
            "fsverity digest data",
            "fsverity digest data --out-merkle-tree=tree --out-descriptor=descriptor",
        ] {
            let place = place(LONG);
            let (child, errors) = start(&place, line);
            send(&child, signal);
            let interrupted = (Some(status), String::new(), vec!["casemate: interrupted".to_owned()]);
            assert_eq!(end(child, errors), interrupted, "{line} {signal}");
            assert_eq!(names(&place), ["data"], "{line} {signal}");
        }
    }
}

#[test]
fn an_interrupted_format_in_place_says_what_it_left() {
    let place = place(LONG);
    fs::write(place.path().join("hash"), vec![7; 8192]).unwrap();
    let (child, errors) = start(&place, "verity format data hash");
    send(&child, "-INT");
    let said = "casemate: interrupted; hash was begun and is not whole, format it again";
    assert_eq!(end(child, errors), (Some(130), String::new(), vec![said.to_owned()]));
    // It can't be mistaken for a whole one: there is no superblock.
    let mut dump = heeding_signals(&Command::new(CASEMATE));
    dump.args(["verity", "dump", "hash"]).current_dir(place.path());
    assert_eq!(casemate_testkit::run_any(&mut dump).status.code(), Some(2));
}

/// Verification answers neither yes nor no.
#[test]
fn an_interrupted_verify_has_no_answer() {
    // A tree must be made first, so this one is of a size that takes seconds.
    let place = place(4 << 30);
    let run = |line: &str| {
        let mut command = heeding_signals(&Command::new(CASEMATE));
        casemate_testkit::run(command.args(line.split_whitespace()).current_dir(place.path()))
    };
    run("verity format data hash --root-hash-file=root");
    let root = fs::read_to_string(place.path().join("root")).unwrap();
    let (child, errors) = start(&place, &format!("verity verify data hash {root}"));
    send(&child, "-INT");
    assert_eq!(end(child, errors), (Some(130), String::new(), vec!["casemate: interrupted".to_owned()]));
}

/// A signal ends a command that waits for the other end of a pipe, or for what it brings, as it ends one that works.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_ends_waiting_for_a_pipe() {
    use casemate_testkit::{mke2fs, tool};
    use std::os::unix::fs::FileTypeExt;

    let Some(mke2fs) = tool("mke2fs") else { return };
    let place = place(1 << 20);
    mke2fs::make(&mke2fs, "-t ext4", &place.path().join("image"), "8M");
    fs::write(place.path().join("key"), (0..64).collect::<Vec<u8>>()).unwrap();
    let made = Command::new("mkfifo").arg(place.path().join("pipe")).status().unwrap();
    assert!(made.success());
    let before = names(&place);
    for signal in ["-INT", "-TERM"] {
        for (line, writer) in [
            ("ext4 put image pipe /new", false),
            ("ext4 put image pipe /new", true),
            ("ext4 put image - /new", true),
            ("ext4 put image --tar pipe /", false),
            ("ext4 put image --tar - /", true),
            ("ext4 extract image --tar=pipe", false),
            ("ext4 build new --tar pipe", false),
            ("ext4 build new --tar - --size 8M", true),
            ("fsverity digest pipe", false),
            ("crypt encrypt - new --key-file key --key-size 512", true),
            ("crypt encrypt data new --key-file pipe --key-size 512", false),
            ("luks format new --size 32M --key-file pipe", false),
            ("luks format new --size 32M", true),
            ("integrity format new --from pipe", false),
        ] {
            let mut command = heeding_signals(&Command::new(CASEMATE));
            command.args(line.split_whitespace()).current_dir(place.path());
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            // Somebody who has the other end, and writes nothing.
            let other = (writer && line.contains("pipe"))
                .then(|| File::options().read(true).write(true).open(place.path().join("pipe")).unwrap());
            wait_until_idle(&mut child, line);
            send(&child, signal);
            let status = ended(&mut child);
            drop(other);
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            // Before a command has begun what it would have to clean up, the system ends it.
            assert!(matches!(status.code(), Some(130 | 143) | None), "{line}: {status}: {said}");
            assert_eq!(names(&place), before, "{line}: {said}");
            assert!(fs::metadata(place.path().join("pipe")).unwrap().file_type().is_fifo());
        }
    }
}

/// No loop reports progress meanwhile, and a key may take minutes.
#[test]
fn a_signal_ends_the_derivation_of_a_key_and_leaves_no_half_file() {
    use std::time::{Duration, Instant};

    let place = place(1 << 20);
    fs::write(place.path().join("key"), "pw").unwrap();
    let pbkdf2 = "--pbkdf pbkdf2 --pbkdf-force-iterations 400000000";
    let argon2 = "--pbkdf argon2id --pbkdf-memory 64M --pbkdf-force-iterations 4000 --pbkdf-parallel 1";
    for (signal, status) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        for line in [
            format!("luks format new --size 32M --key-file key -q {pbkdf2}"),
            format!("luks format new --from data --key-file key -q {argon2}"),
        ] {
            let mut command = heeding_signals(&Command::new(CASEMATE));
            command.args(line.split_whitespace()).current_dir(place.path());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            casemate_testkit::wait_until(|| names(&place).len() > 2);
            std::thread::sleep(Duration::from_millis(300));
            assert!(names(&place)[0].ends_with(".part"), "{line}");
            let sent = Instant::now();
            send(&child, signal);
            let code = child.wait().unwrap().code();
            assert!(sent.elapsed() < Duration::from_millis(1500), "{line}: {:?}", sent.elapsed());
            assert_eq!((code, names(&place)), (Some(status), vec!["data".into(), "key".into()]), "{line}");
        }
    }
}

/// Waits until a process sleeps, having used no processor for a while: it waits for somebody.
#[cfg(target_os = "linux")]
fn wait_until_idle(child: &mut Child, line: &str) {
    use std::time::Duration;
    let stat = format!("/proc/{}/stat", child.id());
    let used = || {
        let text = fs::read_to_string(&stat).unwrap();
        let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
        (fields[0].to_owned(), fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
    };
    let (mut before, mut still) = (used(), 0);
    while still < 10 {
        assert!(child.try_wait().unwrap().is_none(), "{line}: it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
        let now = used();
        still = if now == before && now.0 == "S" { still + 1 } else { 0 };
        before = now;
    }
}

/// The end of a process, which is ended here if it does not end in a time that is long for any machine.
#[cfg(target_os = "linux")]
fn ended(child: &mut Child) -> std::process::ExitStatus {
    use std::time::{Duration, Instant};
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    let _ = child.wait();
    panic!("a signal did not end it");
}

/// A user who wants a memory dump of a command gets that, and no half file.
#[test]
#[cfg(target_os = "linux")]
fn sigquit_leaves_no_half_file() {
    use std::os::unix::process::ExitStatusExt;

    let place = place(1 << 20);
    fs::write(place.path().join("key"), (0..64).collect::<Vec<u8>>()).unwrap();
    let mut command = Command::new("sh");
    let line = "ulimit -c 0; exec env --default-signal=QUIT \"$0\" crypt encrypt - new --key-file key --key-size 512";
    command.args(["-c", line, CASEMATE]).current_dir(place.path());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&[1; 1 << 20]).unwrap();
    wait_until_idle(&mut child, line);
    assert_eq!(names(&place).len(), 3);
    send(&child, "-QUIT");
    let status = ended(&mut child);
    assert_eq!(status.signal(), Some(3), "{status}");
    assert_eq!(names(&place), ["data", "key"]);
}

/// Without a journal the state in between is one that only casemate completes.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_waits_for_the_end_of_a_commit() {
    use casemate_testkit::{mke2fs, run_any, tool};

    let (Some(mke2fs), Some(e2fsck), Some(strace)) = (tool("mke2fs"), tool("e2fsck"), tool("strace")) else {
        return;
    };
    let place = place(1 << 16);
    mke2fs::make(&mke2fs, "-t ext4 -O ^has_journal", &place.path().join("base"), "8M");
    let mut committed = 0;
    for when in [2, 4, 6] {
        fs::copy(place.path().join("base"), place.path().join("image")).unwrap();
        // Each write takes longer than a command waits before it ends by itself.
        let inject = format!("inject=pwrite64:signal=TERM:when={when}");
        let mut command = heeding_signals(&Command::new(&strace));
        command.args(["-f", "-qq", "-o", "trace", "-e", "trace=pwrite64", "-e", &inject]);
        command.args([
            "-e",
            "inject=pwrite64:delay_exit=320000",
            CASEMATE,
            "ext4",
            "put",
            "image",
            "data",
            "/data",
        ]);
        let output = run_any(command.current_dir(place.path()));
        let text = String::from_utf8_lossy(&output.stderr);
        let is_changed =
            fs::read(place.path().join("base")).unwrap() != fs::read(place.path().join("image")).unwrap();
        assert!(!place.path().join("image.casemate-redo").exists(), "{when}: {text}");
        let fsck = run_any(Command::new(&e2fsck).arg("-fn").arg(place.path().join("image")));
        assert_eq!(fsck.status.code(), Some(0), "{when}: {text}");
        committed += u32::from(is_changed);
    }
    assert!(committed > 0, "{committed}");
}

/// A shell ignores SIGINT for what it runs in the background of a script, and nohup SIGHUP.
#[test]
fn signals_that_were_ignored_before_end_nothing() {
    let place = place(1 << 20);
    fs::write(place.path().join("key"), (0..64).collect::<Vec<u8>>()).unwrap();
    let mut command = Command::new("env");
    command.args(["--ignore-signal=HUP,INT,TERM", CASEMATE]).current_dir(place.path());
    let line = "crypt encrypt - new --key-file key --key-size 512";
    let mut child =
        command.args(line.split_whitespace()).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&[1; 1 << 20]).unwrap();
    wait_until_idle(&mut child, line);
    for signal in ["-INT", "-TERM", "-HUP", "-INT"] {
        send(&child, signal);
    }
    // Longer than a command waits before it ends by itself.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none());
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()));
    assert_eq!(fs::metadata(place.path().join("new")).unwrap().len(), 1 << 20);
}

#[test]
fn data_that_shrinks_is_an_error() {
    for line in
        ["verity format data hash", "fsverity digest data", "fsverity digest data --out-merkle-tree=tree"]
    {
        let place = place(LONG);
        let (child, errors) = start(&place, line);
        File::options().write(true).open(place.path().join("data")).unwrap().set_len(100_000).unwrap();
        let (status, printed, errors) = end(child, errors);
        assert_eq!((status, &*printed, errors.len()), (Some(2), "", 1), "{line}: {errors:?}");
        assert!(errors[0].starts_with("casemate: data: read of "), "{line}: {errors:?}");
        assert!(errors[0].ends_with("passes the end of the device at 100000"), "{line}: {errors:?}");
        assert_eq!(names(&place), ["data"], "{line}");
    }
}

/// A file system of 64 KiB, in a namespace of its own, into which a larger tree is written.
#[test]
fn a_full_disk_is_one_line_and_leaves_nothing() {
    let place = place(64 << 20);
    let small = place.path().join("small");
    fs::create_dir(&small).unwrap();
    for line in [
        "verity format ../data hash",
        "verity format ../data hash --fec-device=fec",
        "fsverity digest ../data --out-merkle-tree=tree",
    ] {
        let script = format!(
            "mount -t tmpfs -o size=64k tmpfs {0} || exit 77; cd {0}; {CASEMATE} {line}; echo $?; ls -A",
            small.display()
        );
        let mut command = Command::new("unshare");
        let output = casemate_testkit::run_any(command.args([
            "-r",
            "-m",
            "--propagation",
            "slave",
            "sh",
            "-c",
            &script,
        ]));
        if output.status.code() != Some(0) && output.stdout.is_empty() {
            skip("unshare: no user namespaces with mounts");
            return;
        }
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(stdout, "2\n", "{line}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{line}: {stderr}");
        assert!(stderr.contains(": No space left on device"), "{line}: {stderr}");
    }
}

/// Results on standard output may be lost too.
#[test]
fn results_that_could_not_be_printed_are_an_error() {
    let place = place(10_000);
    for line in ["verity format data hash", "fsverity digest data", "fsverity digest --json data"] {
        let mut command = Command::new(CASEMATE);
        command.args(line.split_whitespace()).current_dir(place.path());
        let output = command.stdout(File::create("/dev/full").unwrap()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(
            said.contains("standard output") && said.contains("No space left on device"),
            "{line}: {said}"
        );
    }
}
