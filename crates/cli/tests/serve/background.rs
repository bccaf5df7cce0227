//! Servers in the background, sockets that somebody else has opened, and overlays that go back into their images.

use std::fs;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use casemate_testkit::{Place, Rng, nbd, run, run_any, status, stderr, stdout, tool, wait_until};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

fn place() -> Place {
    let place = Place::new(CASEMATE);
    let mut image = Rng::new(3).bytes(1 << 20);
    // As gzip's, so that it is something when it is decrypted.
    image[..3].copy_from_slice(b"\x1f\x8b\x08");
    place.file("image", image);
    place
}

#[test]
fn a_server_goes_into_the_background_when_clients_can_connect() {
    let place = place();
    // Its output is a pipe: who reads that to the end does not wait for the server.
    let output = place.own("serve image -r --socket s --fork --pid-file pid --json");
    assert_eq!((status(&output), stderr(&output)), (0, String::new()));
    let said = stdout(&output);
    let pid = fs::read_to_string(place.path("pid")).unwrap();
    assert!(said.contains(&format!("\"pid\":{}", pid.trim())), "{said}");
    let mut client = nbd::Client::connect(place.path("s")).unwrap();
    assert!(client.read(4096, 512).unwrap() == place.read("image")[4096..4608]);
    drop(client);
    // Out of this session, so that nobody's terminal ends it.
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    assert_eq!(fields[3], pid.trim(), "the session of {stat}");
    run(Command::new("kill").arg(pid.trim()));
    wait_until(|| !place.path("pid").exists() && !place.path("s").exists());

    let uri = stdout(&place.own("serve image -r --socket s --fork --exit-with-last"));
    assert!(uri.starts_with("nbd+unix:///?socket="), "{uri}");
    drop(nbd::Client::connect(place.path("s")).unwrap());
    wait_until(|| !place.path("s").exists());
    // One whose address nobody hears is not a server.
    let mut unheard = place.command();
    unheard.args("serve image -r --socket s --fork".split_whitespace());
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(status(&run_any(unheard.stdout(full))), 2);
    assert!(!place.path("s").exists());
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(status(&run_any(unheard.stdout(closed))), 141);
    assert!(!place.path("s").exists());
    // What keeps it from beginning is its own.
    place.is("serve none -r --socket s --fork", 2, "none: No such file");
    place.is("serve image -r --socket none/s --fork", 2, "none/s");
    place.is("serve image -r --fork --exec true", 2, "--exec");
    place.is("serve image -r", 2, "--socket");
}

#[test]
fn a_signal_before_the_address_is_told_ends_the_server_too() {
    let place = place();
    // Standard output takes no more bytes: the command can't print the address.
    let (mut unread, mut full) = std::io::pipe().unwrap();
    let capacity = rustix::pipe::fcntl_getpipe_size(&full).unwrap();
    full.write_all(&vec![b'x'; capacity]).unwrap();
    let mut command = place.command();
    command.args("serve image -r --socket s --fork --pid-file pid".split_whitespace());
    let mut child = command.stdout(full).spawn().unwrap();
    drop(command);
    wait_until(|| place.path("pid").exists());
    // Enough for the server to leave, if it did so by itself.
    std::thread::sleep(Duration::from_millis(300));
    run(Command::new("kill").arg(child.id().to_string()));
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    wait_until(|| !place.path("pid").exists() && !place.path("s").exists());
    let mut said = Vec::new();
    unread.read_to_end(&mut said).unwrap();
    assert_eq!(said.len(), capacity);
}

/// Runs a server with this program's socket as descriptor 3, as systemd does.
fn activated(place: &Place, family: &str, options: &str) -> Option<std::process::Child> {
    let python = tool("python3")?;
    let script = format!(
        "import os, socket\n\
         s = socket.socket(socket.AF_{family})\n\
         s.bind('given' if '{family}' == 'UNIX' else ('127.0.0.1', 0))\n\
         s.listen()\n\
         if s.fileno() != 3: os.dup2(s.fileno(), 3)\n\
         os.set_inheritable(3, True)\n\
         os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\n\
         os.execv('{CASEMATE}', ['casemate', 'serve', 'image', '-r'] + '{options}'.split())"
    );
    let mut command = Command::new(python);
    command.args(["-c", &script]).current_dir(place.folder()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command.spawn().unwrap())
}

#[test]
fn a_socket_of_a_service_manager_is_used() {
    let place = place();
    let Some(mut server) = activated(&place, "UNIX", "--exit-with-last") else { return };
    wait_until(|| place.path("given").exists());
    let mut client = nbd::Client::connect_when_there(place.path("given"));
    assert!(client.read(512, 512).unwrap() == place.read("image")[512..1024]);
    drop(client);
    assert!(server.wait().unwrap().success());
    let output = server.wait_with_output().unwrap();
    // Standard output is that of the program which opened the socket: its data go there.
    assert_eq!((&*stdout(&output), &*stderr(&output)), ("", ""));
    // The name is the manager's.
    assert!(place.path("given").exists());
    fs::remove_file(place.path("given")).unwrap();
    let output = activated(&place, "INET", "--exec true").unwrap().wait_with_output().unwrap();
    assert_eq!((status(&output), stderr(&output)), (0, String::new()));
    let output = activated(&place, "INET", "--tcp 0").unwrap().wait_with_output().unwrap();
    assert!(status(&output) == 2 && stderr(&output).contains("LISTEN_FDS"), "{}", stderr(&output));
    // Those of another process are none of ours.
    let mut other = place.command();
    other.args(["serve", "image", "-r", "--exec", "true"]).env("LISTEN_FDS", "1").env("LISTEN_PID", "1");
    assert_eq!(status(&run_any(&mut other)), 0);
}

/// A server whose socket another program has opened writes nothing between that program's data, whatever it is asked for.
#[test]
fn a_client_that_starts_its_server_has_standard_output_for_itself() {
    let place = place();
    for options in ["-q --exit-with-last", "--json --exit-with-last", "--verbose --exit-with-last"] {
        let Some(mut server) = activated(&place, "UNIX", options) else { return };
        wait_until(|| place.path("given").exists());
        drop(nbd::Client::connect_when_there(place.path("given")));
        assert!(server.wait().unwrap().success(), "{options}");
        assert_eq!(stdout(&server.wait_with_output().unwrap()), "", "{options}");
        fs::remove_file(place.path("given")).unwrap();
    }
}

/// A terminal that goes away ends a server in order; one that was started to survive that does.
#[test]
fn a_hangup_ends_a_server_unless_it_is_ignored() {
    let place = place();
    let hang_up = |pid: u32| run(Command::new("kill").args(["-HUP", &pid.to_string()]));
    // Whoever runs this test may ignore the signal, as nohup does.
    let mut server = Command::new("env")
        .args([
            "--default-signal=HUP",
            CASEMATE,
            "serve",
            "image",
            "-r",
            "--socket",
            "s",
            "--pid-file",
            "pid",
        ])
        .current_dir(place.folder())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    drop(nbd::Client::connect_when_there(place.path("s")));
    wait_until(|| place.path("pid").exists());
    hang_up(server.id());
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(!place.path("s").exists() && !place.path("pid").exists());
    let script = format!("trap '' HUP; exec {CASEMATE} serve image -r --socket s");
    let mut server = Command::new("sh")
        .args(["-c", &script])
        .current_dir(place.folder())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    drop(nbd::Client::connect_when_there(place.path("s")));
    let said = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let ignored = said.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 1, 1, "{said}");
    hang_up(server.id());
    drop(nbd::Client::connect_when_there(place.path("s")));
    run(Command::new("kill").arg(server.id().to_string()));
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn an_overlay_is_committed() {
    let Some(qemu_io) = tool("qemu-io") else { return };
    let place = place();
    let mut rng = Rng::new(5);
    place.file("key", rng.bytes(64));
    place.yes("crypt encrypt image enc --key-file key --key-size 512");
    let crypt = "--crypt aes-xts-plain64 --key-file key --key-size 512";
    for (image, options) in [("image", ""), ("enc", crypt)] {
        let write = |pattern: u8| {
            let exec = format!(
                "{} -f raw -c 'write -P {pattern} 300k 70k' -c 'write -P {pattern} 1048064 512' \"$uri\" >log",
                qemu_io.display()
            );
            let mut command = place.command();
            command
                .args(["serve", image, "--overlay", "ovl", "--exec", &exec])
                .args(options.split_whitespace());
            run(&mut command);
        };
        let plain = || match options {
            "" => place.read(image),
            _ => {
                place.yes("crypt decrypt enc plain --key-file key --key-size 512");
                place.read("plain")
            }
        };
        let (before, mut after) = (place.read(image), plain());
        for pattern in [7, 8] {
            write(pattern);
            let commit = format!("overlay commit ovl {image} {options}");
            let overlay = place.read("ovl");
            if pattern == 7 {
                place.is(
                    &format!("{commit} -n -v"),
                    0,
                    "19 blocks of 4096 bytes written, but nothing was written",
                );
                assert!(place.read(image) == before && place.read("ovl") == overlay);
                place.file("other", [0; 4096]);
                place.is(&format!("overlay commit ovl other {options}"), 2, "not 4096");
            }
            place.is(&format!("{commit} -v"), 0, "19 blocks of 4096 bytes written");
            after[300 << 10..370 << 10].fill(pattern);
            after[1_048_064..].fill(pattern);
            assert!(plain() == after, "{image} {pattern}");
            // The overlay goes on with the image as it is now.
            place.is(&format!("{commit} -v"), 0, "0 blocks of 4096 bytes written");
        }
        // One of an image that has changed meanwhile is refused.
        write(9);
        place.flip(image, 100, 1);
        place.is(&format!("overlay commit ovl {image} {options}"), 2, "belongs to another image");
        fs::remove_file(place.path("ovl")).unwrap();
    }
    place.is("overlay commit image image", 2, "the overlay can't be the image itself");
}

/// An overlay means something only with the image as it was when it was made: who wrote to that meanwhile is not undone, and
/// nobody sees a mixture. A copy of the image is as good.
#[test]
fn an_overlay_is_not_mixed_with_an_image_that_was_written_to() {
    let Some(qemu_io) = tool("qemu-io") else { return };
    let place = place();
    let mut disk = Rng::new(6).bytes(8 << 20);
    // A partition from byte 2^20 on, of whose first blocks none is among the samples of a whole disk.
    disk[446..510].fill(0);
    disk[450] = 0x83;
    disk[454..462].copy_from_slice(&[0, 8, 0, 0, 0, 0x38, 0, 0]);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    place.file("disk", &disk);
    let exec = format!("{} -f raw -c 'write -P 7 3M 70k' \"$uri\" >log", qemu_io.display());
    run(place.command().args(["serve", "disk", "--overlay", "ovl", "--exec", &exec]));
    let overlay = place.read("ovl");
    run(Command::new("cp").arg("-p").arg(place.path("disk")).arg(place.path("copy")));
    place.yes("serve -q -r copy --overlay ovl --exec true");
    let change = |at: usize| {
        let mut bytes = disk.clone();
        bytes[at] ^= 1;
        place.file("disk", &bytes);
        bytes
    };
    // Elsewhere, the partition's superblock, and under the overlay's blocks.
    let (unproved, other) = ("(--trust-image)", "belongs to another image");
    let kept = "1 blocks of 4096 bytes that the overlay keeps are neither";
    for (at, said, trusted) in [
        (5_000_000, unproved, None),
        ((1 << 20) + 1080, other, Some(other)),
        ((3 << 20) + 100, unproved, Some(kept)),
    ] {
        let bytes = change(at);
        for line in ["serve -q -r disk --overlay ovl --exec true", "overlay commit ovl disk"] {
            place.is(line, 2, said);
            if let Some(said) = trusted {
                place.is(&format!("{line} --trust-image"), 2, said);
            }
        }
        assert!(place.read("disk") == bytes && place.read("ovl") == overlay, "{at}");
    }
    place.file("disk", &disk);
    place.is("overlay commit ovl disk", 2, "another time of modification");
    place.yes("serve -q -r disk --overlay ovl --trust-image --exec true");
    place.is("overlay commit ovl disk --trust-image -v", 0, "18 blocks of 4096 bytes written");
    disk[3 << 20..(3 << 20) + (70 << 10)].fill(7);
    assert!(place.read("disk") == disk);
}

/// Somebody writes to an image whose commit was killed: the other half of the commit does not take that back.
#[test]
fn a_commit_that_was_interrupted_overwrites_nothing_that_came_later() {
    let (Some(qemu_io), Some(strace)) = (tool("qemu-io"), tool("strace")) else { return };
    let place = place();
    place.file("disk", vec![1; 8 << 20]);
    let write = |options: &[&str], what: &str| {
        let exec = format!("{} -f raw -c '{what}' \"$uri\" >log", qemu_io.display());
        run(place.command().arg("serve").args(options).args(["--exec", &exec]));
    };
    write(&["disk", "--overlay", "ovl"], "write -P 7 2M 4M");
    let mut killed = Command::new(strace);
    killed.args([
        "-f",
        "-o",
        "/dev/null",
        "-e",
        "trace=pwrite64",
        "-e",
        "inject=pwrite64:signal=KILL:when=5",
    ]);
    killed.arg(CASEMATE).args(["overlay", "commit", "ovl", "disk"]).current_dir(place.path(""));
    assert!(!run_any(&mut killed).status.success());
    let half = place.read("disk").iter().filter(|byte| **byte == 7).count();
    assert!(half > 0 && half < 4 << 20, "{half}");
    // A program that knows no marks.
    let mut before = place.read("disk");
    before[2_101_248..][..512].fill(9);
    place.file("disk", &before[..]);
    place.is("overlay commit ovl disk", 2, "1 blocks of 4096 bytes that the overlay keeps are neither");
    assert!(place.read("disk") == before);
    // Who says so gets all of the overlay.
    place.is("overlay commit ovl disk --trust-image -v", 0, "1024 blocks of 4096 bytes written");
    assert!(place.read("disk")[2 << 20..6 << 20].iter().all(|byte| *byte == 7));
}

/// A damaged image has as many faults as it is read: a few of them are told, and how many there were besides.
#[test]
fn faults_of_a_server_in_the_background_go_to_its_log_and_do_not_fill_it() {
    let place = place();
    let said = place.yes("verity format image tree");
    let root = said.lines().find_map(|line| line.strip_prefix("Root hash:")).unwrap().trim().to_owned();
    place.flip("image", 5 * 4096, 1);
    place.file("log", "what was there\n");
    let served = format!(
        "serve image,verity,root-hash={root},hash-device=tree --socket s --fork --pid-file pid --log log"
    );
    assert_eq!(status(&place.own(&served)), 0);
    let mut client = nbd::Client::connect(place.path("s")).unwrap();
    for _ in 0..200 {
        assert!(client.read(5 * 4096, 4096).is_err());
    }
    drop(client);
    run(Command::new("kill").arg(fs::read_to_string(place.path("pid")).unwrap().trim()));
    wait_until(|| !place.path("pid").exists() && !place.path("s").exists());
    wait_until(|| String::from_utf8(place.read("log")).unwrap().contains("left out"));
    let log = String::from_utf8(place.read("log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[0], "what was there");
    // On a slow machine some more pass meanwhile.
    assert!(lines.len() > 20 && lines.len() < 100, "{log}");
    assert!(lines[1].contains("Z casemate[") && lines[1].contains("]: serving nbd+unix://"), "{log}");
    assert!(lines[2].contains("does not match its hash tree"), "{log}");
    assert!(lines.iter().any(|line| line.ends_with("]: the server ended")), "{log}");
    for (log, why) in
        [("none/log", "none/log"), ("image", "this would replace"), ("tree", "this would replace")]
    {
        place.is(
            &format!("serve image,verity,root-hash={root},hash-device=tree --socket s --log {log}"),
            2,
            why,
        );
    }
    // An export has files of its own.
    for output in ["--log", "--pid-file"] {
        let served = format!("serve --export a=image,verity,root-hash={root},hash-device=tree --exec true");
        place.is(&format!("{served} {output} tree"), 2, "this would replace");
    }
}

#[test]
fn messages_are_added_to_no_volume() {
    let place = place();
    place.file("key", "k");
    place.yes("luks format volume --size 20M --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000");
    let before = place.read("volume");
    place.is(
        "serve image --log volume --exec true",
        2,
        "volume: contains a LUKS header; messages are only added",
    );
    assert!(place.read("volume") == before);
    place.file("old", [7_u8; 100]);
    place.is("serve image --log old --exec true", 0, "");
}

/// As systemd's own: a path, or a name in no folder.
#[test]
fn a_service_manager_hears_of_the_beginning_and_the_end() {
    let place = place();
    let name = format!("casemate-test-{}", std::process::id());
    let sockets = [
        (place.path("notify").display().to_string(), UnixDatagram::bind(place.path("notify")).unwrap()),
        (
            format!("@{name}"),
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
        ),
    ];
    for (name, socket) in sockets {
        socket.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        let hear = || {
            let mut buffer = [0; 1000];
            let len = socket.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..len].to_vec()).unwrap()
        };
        let mut command = place.command();
        command.args("serve image -r --socket s".split(' ')).env("NOTIFY_SOCKET", &name);
        let mut server = command.stdout(Stdio::null()).spawn().unwrap();
        let ready = hear();
        assert!(ready.starts_with("READY=1\nSTATUS=serving nbd+unix:///?socket="), "{ready}");
        // Now clients can connect.
        drop(nbd::Client::connect(place.path("s")).unwrap());
        run(Command::new("kill").arg(server.id().to_string()));
        assert_eq!(hear(), "STOPPING=1\nSTATUS=ending\n");
        server.wait().unwrap();
    }
    // Nobody listens, and nothing waits.
    let mut command = place.command();
    command.args("serve image -r --exec true".split(' ')).env("NOTIFY_SOCKET", place.path("none"));
    assert_eq!(status(&run_any(&mut command)), 0);
}

#[test]
fn units_for_systemd_are_understood() {
    let Some(analyze) = casemate_testkit::find_program("systemd-analyze") else { return };
    let place = place();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/systemd");
    let mut names = Vec::new();
    for entry in fs::read_dir(units).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap().replace("/usr/bin/casemate", CASEMATE);
        let name = path.file_name().unwrap().to_str().unwrap().replace('@', "@root");
        place.file(path.file_name().unwrap(), &text);
        for line in text.lines().filter_map(|line| line.strip_prefix("ExecStart=")) {
            // The options are there, too.
            let words = line
                .replace("$OPTIONS ", "")
                .replace("${IMAGE}", "image,lusk")
                .replace("${FOLDER}", "folder");
            let words = words.strip_prefix(CASEMATE).unwrap().replace("%i", "root");
            let mut command = place.command();
            command.env("LISTEN_FDS", "0");
            let output = run_any(command.args(words.split_whitespace()));
            assert!(stderr(&output).contains("unknown layer 'lusk'"), "{line}: {}", stderr(&output));
        }
        names.push(place.path(name));
    }
    assert_eq!(names.len(), 4);
    for name in &names {
        fs::copy(place.path(name.file_name().unwrap().to_str().unwrap().replace("@root", "@")), name)
            .unwrap();
    }
    run(Command::new(analyze).args(["verify", "--man=no"]).args(&names));
}
