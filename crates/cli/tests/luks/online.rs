//! Volumes reencrypted while they are served, by servers that are killed.

use std::process::{Child, Command, Stdio};

use casemate_testkit::nbd::Client;
use casemate_testkit::{Place, Rng, find_program, skip, tool};

use crate::CASEMATE;

const LEN: usize = 3 << 20;

/// A server that does not outlive the test.
struct Server(Child);

impl Server {
    fn kill(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn serve(place: &Place, header: &str) -> (Server, Client) {
    let line = format!(
        "serve --luks{header} --write --reencrypt --hotzone-size 64K --key-file key --socket socket disk"
    );
    let _ = std::fs::remove_file(place.path("socket"));
    let mut command = place.command();
    command.args(line.split(' ')).stdout(Stdio::null());
    let server = Server(command.spawn().unwrap());
    (server, Client::connect_when_there(place.path("socket")))
}

/// Reads and writes at random places, and compares with what was written.
fn work(client: &mut Client, model: &mut [u8], rng: &mut Rng, times: u64) {
    for _ in 0..times {
        let at = rng.below(model.len() as u64) as usize;
        let longest = if rng.below(4) == 0 { 300_000 } else { 9000 };
        let mut range = at..(at + 1 + rng.below(longest) as usize).min(model.len());
        if rng.below(2) == 0 {
            range = range.start / 4096 * 4096..range.end.next_multiple_of(4096).min(model.len());
        }
        if rng.below(2) == 0 {
            let data = rng.bytes(range.len());
            client.write(range.start as u64, &data, 0).unwrap();
            model[range].copy_from_slice(&data);
        } else {
            let found = client.read(range.start as u64, range.len() as u32).unwrap();
            assert!(found == model[range.clone()], "{range:?}");
        }
    }
}

/// The system tells of a write that was lost once. Where the thread that reencrypts is told, clients hear of it too.
#[test]
fn what_the_work_hears_of_lost_writes_clients_hear_too() {
    let Some(strace) = find_program("strace") else { return skip("no strace") };
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    place.file("plain", Rng::new(3).bytes(LEN));
    let cheap = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    place.yes(&format!("luks format --from plain disk --key-file key --crypt-offset 1M {cheap}"));
    place.yes("luks reencrypt disk --key-file key --init-only");
    let mut command = Command::new(strace);
    command.args(["-f", "-o", "notes", "-e", "trace=fdatasync"]);
    // Once, in the middle of the work; whoever flushes afterwards succeeds.
    command.args(["-e", "inject=fdatasync:error=EIO:when=12", CASEMATE]);
    let line = "serve --luks --write --reencrypt --hotzone-size 64K --key-file key --socket socket \
                --exit-with-last disk";
    command.args(line.split_whitespace()).current_dir(place.folder()).stdout(Stdio::null());
    let mut server = Server(command.spawn().unwrap());
    let mut client = Client::connect_when_there(place.path("socket"));
    let notes = || String::from_utf8(std::fs::read(place.path("notes")).unwrap_or_default()).unwrap();
    while !notes().contains("INJECTED") {
        if let Some(status) = server.0.try_wait().unwrap() {
            return skip(&format!("strace may not trace, or ended: {status}"));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    client.write(0, &[1; 4096], 0).unwrap();
    for _ in 0..3 {
        assert_eq!(client.flush(), Err(5));
    }
    drop(client);
    server.0.wait().unwrap();
    place.yes("luks reencrypt disk --key-file key --resume-only");
    place.yes("luks extract disk out --key-file key");
}

/// Every write that a killed server had acknowledged is there, in the middle of the work and after it, here and for
/// cryptsetup.
#[test]
fn a_volume_is_reencrypted_while_clients_write_to_it() {
    for (number, (made, begun, len)) in [
        ("", "", LEN),
        ("--sector-size 4096", "--resilience journal", LEN),
        ("-c aes-cbc-essiv:sha256", "-c aes-xts-plain64 --sector-size 4096", LEN),
        ("", "--reduce-device-size 1M", LEN - (1 << 20)),
    ]
    .into_iter()
    .enumerate()
    {
        let mut rng = Rng::new(77 + number as u64);
        let place = Place::new(CASEMATE);
        place.file("key", "pass");
        let mut model = rng.bytes(LEN);
        // The end is given up only where it is free: clients write before that.
        let used = if begun.contains("reduce") { len - (64 << 10) } else { len };
        model[used..].fill(0);
        place.file("plain", &model);
        let cheap = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
        place.yes(&format!("luks format --from plain disk --key-file key --crypt-offset 1M {cheap} {made}"));
        place.is(
            "serve --luks --write --reencrypt --key-file key --socket x disk",
            2,
            "no reencryption was begun",
        );
        place.yes(&format!("luks reencrypt disk --key-file key --init-only {begun}"));
        model.truncate(used);
        let is_whole = |model: &[u8], len: usize| {
            place.yes("luks extract disk out --key-file key");
            let out = place.read("out");
            assert!(out[..used] == *model && out[used..].iter().all(|byte| *byte == 0), "{made} {begun}");
            assert_eq!(out.len(), len, "{made} {begun}");
        };
        let mut rounds = 0;
        loop {
            let (mut server, mut client) = serve(&place, "");
            let times = 1 + rng.below(15);
            work(&mut client, &mut model, &mut rng, times);
            server.kill();
            rounds += 1;
            if rng.below(4) == 0 {
                is_whole(&model, len);
            }
            let metadata = place.yes("luks dump --dump-json-metadata disk");
            if !metadata.contains("online-reencrypt") {
                is_whole(&model, len);
                break;
            }
            assert!(rounds < 1000, "the work gets nowhere: {metadata}");
        }
        // The last server may have been killed before it had wiped what is of no use any more.
        let rest = place.own("luks reencrypt disk --key-file key --resume-only");
        let said = casemate_testkit::stderr(&rest);
        assert!(rest.status.success() || said.contains("nothing to go on with"), "{said}");
        is_whole(&model, len);
        // One server that does it all, and is asked to end.
        place.yes(&format!("luks reencrypt disk --key-file key --init-only {}", begun.replace("1M", "64K")));
        let (mut server, mut client) = serve(&place, "");
        let pid = rustix::process::Pid::from_child(&server.0);
        for _ in 0..60 {
            work(&mut client, &mut model, &mut rng, 5);
        }
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        drop(client);
        assert!(server.0.wait().unwrap().success());
        is_whole(&model, used);
        place.yes("luks reencrypt disk --key-file key");
        is_whole(&model, used);
        if let Some(cryptsetup) = tool("cryptsetup") {
            let opened = place.run(cryptsetup, "open --test-passphrase --key-file key disk");
            assert!(opened.status.success());
        }
    }
}

/// With the header in a file of its own plain data are encrypted, and encrypted ones decrypted, while they are served.
#[test]
fn data_are_encrypted_and_decrypted_beside_their_header_while_clients_write() {
    let mut rng = Rng::new(99);
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    let mut model = rng.bytes(1 << 20);
    place.file("disk", &model);
    let cheap = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    for begin in [format!("--encrypt {cheap}"), "--decrypt".to_owned()] {
        place.yes(&format!("luks reencrypt disk --luks-header header --key-file key --init-only {begin}"));
        for is_killed in [true, false] {
            // A server that was killed may have ended the work before.
            let dump = casemate_testkit::stdout(&place.own("luks dump header"));
            if !dump.contains("online-reencrypt") {
                break;
            }
            let (mut server, mut client) = serve(&place, " --luks-header header");
            work(&mut client, &mut model, &mut rng, 10);
            // Nobody else changes the header meanwhile.
            place.is(
                "luks reencrypt disk --luks-header header --key-file key --resume-only",
                2,
                "another process",
            );
            if is_killed {
                client.flush().unwrap();
                server.kill();
                continue;
            }
            let pid = rustix::process::Pid::from_child(&server.0);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            drop(client);
            assert!(server.0.wait().unwrap().success());
        }
        let done = place.own("luks reencrypt disk --luks-header header --key-file key --resume-only");
        let said = casemate_testkit::stderr(&done);
        assert!(done.status.success() || said.contains("nothing to go on with"), "{said}");
        if begin == "--decrypt" {
            assert!(place.read("disk") == model);
        } else {
            place.yes("luks extract disk out --luks-header header --key-file key");
            assert!(place.read("out") == model);
        }
    }
}
