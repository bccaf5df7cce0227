//! `casemate serve` beside `qemu-nbd` with a LUKS image and nbdkit with its luks filter, over a Unix socket, images in
//! memory; and 512-byte units in one cipher call a request beside one call for each unit.
//!
//! All servers have the same client: one thread, one connection, simple replies, so many requests in flight. What each
//! server gives is compared with the plaintext first. The contestants take turns, in short rounds; the medians are
//! shown, with the server's CPU time for each byte.
//!
//! Build the command first: `cargo build --release -p casemate-cli`. Arguments: the folder [/dev/shm], MiB [256], rounds
//! [3], milliseconds for each measurement [200], and words that select rows, such as "128" or "units" [all].

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use casemate_benches::{Probe, median};
use casemate_blockdev::{BlockDevice, FileDevice};
use casemate_crypt::{CryptDevice, Params, SectorCipher};
use casemate_nbd::protocol::TlsMode;
use casemate_nbd::{Export, Limits, Listener, Server};
use casemate_primitives::Cpu;
use casemate_primitives::testing::Rng;
use casemate_providers::{Policy, Registry};

const CASEMATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/release/casemate");

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, image, key, socket] = &args[..]
        && mode.starts_with("units-")
    {
        serve_units(mode, image, key, socket);
    }
    let folder = PathBuf::from(args.first().map_or("/dev/shm", String::as_str)).join("casemate-bench-nbd");
    let number =
        |at: usize, default: u64| args.get(at).map_or(default, |text| text.parse().expect("a number"));
    let (mib, rounds, time) = (number(1, 256), number(2, 3), Duration::from_millis(number(3, 200)));
    let words: Vec<&str> = args.iter().skip(4).map(String::as_str).collect();
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the folder can be made");
    let mut servers = start(&folder, mib);
    let plain = fs::read(folder.join("plain")).expect("the plaintext");
    for server in &mut servers {
        server.check(&plain);
    }
    println!("{mib} MiB in {}, {rounds} rounds of {time:?}; before: {}", folder.display(), Probe::measure());
    println!("MB/s, and in brackets the server's CPU time in ns for each KiB");
    print!("{:<22}", "");
    servers.iter().for_each(|server| print!("{:>19}", server.name));
    println!();
    for size in [4 << 10, 128 << 10, 1 << 20] {
        for depth in [1, 32] {
            for (write, random) in [(false, false), (false, true), (true, false), (true, true)] {
                let name = format!(
                    "{} {} {}K QD{depth}",
                    if random { "random" } else { "sequential" },
                    if write { "write" } else { "read" },
                    size >> 10
                );
                let by_units = |name: &str| name.starts_with("units");
                let selected = words.iter().all(|word| *word == "units" || name.contains(word));
                if !selected {
                    continue;
                }
                let only_units = words.contains(&"units");
                let mut results = vec![Vec::new(); servers.len()];
                for _ in 0..rounds {
                    for (server, results) in servers.iter_mut().zip(&mut results) {
                        let takes_part =
                            (!write || server.writable) && (!only_units || by_units(server.name));
                        if takes_part {
                            results.push(server.measure(write, random, size, depth, time));
                        }
                    }
                }
                print!("{name:<22}");
                for results in results {
                    if results.is_empty() {
                        print!("{:>19}", "-");
                        continue;
                    }
                    let of = |part: fn(&(f64, f64)) -> f64| median(results.iter().map(part).collect());
                    print!("{:>12.0} ({:>4.0})", of(|result| result.0), of(|result| result.1));
                }
                println!();
            }
        }
    }
    drop(servers);
    let _ = fs::remove_dir_all(&folder);
}

/// A server process with the one client.
struct Contestant {
    name: &'static str,
    process: Child,
    stream: UnixStream,
    size: u64,
    writable: bool,
    rng: Rng,
    buf: Vec<u8>,
}

impl Drop for Contestant {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes the images and starts the servers.
fn start(folder: &Path, mib: u64) -> Vec<Contestant> {
    let at = |name: &str| folder.join(name).display().to_string();
    let mut rng = Rng::new(1);
    let chunk = rng.bytes(1 << 20);
    let mut plain = fs::File::create(at("plain")).expect("room for the image");
    (0..mib).for_each(|_| plain.write_all(&chunk).expect("room for the image"));
    fs::copy(at("plain"), at("raw")).expect("room for the image");
    // qemu's secrets are text.
    let key: String = (0..64).map(|_| char::from(b'a' + rng.below(26) as u8)).collect();
    fs::write(at("key"), key).expect("the key");
    let crypt = |out: &str, more: &str| {
        run(&format!(
            "{CASEMATE} crypt encrypt {} {} --key-file {} --key-size 512 {more}",
            at("plain"),
            at(out),
            at("key")
        ))
    };
    crypt("c512", "");
    crypt("c4096", "--sector-size 4096");
    fs::copy(at("c512"), at("units")).expect("room for the image");
    let root = run(&format!("{CASEMATE} verity format {} {}", at("plain"), at("tree")));
    let root =
        root.lines().find_map(|line| line.strip_prefix("Root hash:")).expect("a root hash").trim().to_owned();
    let secret = format!("secret,id=s,file={},format=raw", at("key"));
    run(&format!(
        "qemu-img convert --object {secret} -f raw -O luks -o key-secret=s,iter-time=100 {} {}",
        at("plain"),
        at("luks")
    ));
    fs::copy(at("luks"), at("luks2")).expect("room for the image");
    let own = std::env::current_exe().expect("this program").display().to_string();
    let serve = |socket: &str, rest: &str| format!("{CASEMATE} serve --socket {} {rest}", at(socket));
    let options = "--crypt aes-xts-plain64 --key-size 512";
    let key = at("key");
    let lines = [
        ("plain", true, serve("s0", &at("raw"))),
        ("crypt 512", true, serve("s1", &format!("{options} --key-file {key} {}", at("c512")))),
        (
            "crypt 4096",
            true,
            serve("s2", &format!("{options} --sector-size 4096 --key-file {key} {}", at("c4096"))),
        ),
        ("verity", false, serve("s3", &format!("--verity {} {root} {}", at("tree"), at("plain")))),
        (
            "qemu-nbd luks",
            true,
            format!(
                "qemu-nbd -t -k {} --object {secret} --image-opts driver=luks,file.filename={},key-secret=s",
                at("s4"),
                at("luks")
            ),
        ),
        (
            "nbdkit luks",
            true,
            format!("nbdkit -f -U {} --filter=luks file {} passphrase=+{key}", at("s5"), at("luks2")),
        ),
        ("units batched", true, format!("{own} units-batched {} {key} {}", at("units"), at("s6"))),
        ("units one by one", true, format!("{own} units-single {} {key} {}", at("units"), at("s7"))),
    ];
    let start = |(k, (name, writable, line)): (usize, (&'static str, bool, String))| {
        let mut words = line.split_whitespace();
        let process =
            Command::new(words.next().expect("a program")).args(words).stdout(Stdio::null()).spawn();
        let process = process.unwrap_or_else(|error| panic!("{line}: {error}"));
        let (stream, size) = connect(&folder.join(format!("s{k}")));
        Contestant { name, process, stream, size, writable, rng: Rng::new(k as u64), buf: vec![0; 1 << 20] }
    };
    lines.into_iter().enumerate().map(start).collect()
}

impl Contestant {
    /// Reads everything.
    fn check(&mut self, plain: &[u8]) {
        assert!(self.size >= plain.len() as u64, "{}: {} bytes", self.name, self.size);
        for (k, expected) in plain.chunks(1 << 20).enumerate() {
            self.send(false, (k as u64) << 20, expected.len());
            self.receive(false, expected.len());
            assert!(self.buf[..expected.len()] == *expected, "{}: MiB {k} is wrong", self.name);
        }
    }

    /// MB/s, and nanoseconds of the server's CPU time for each KiB. Writes write what is there.
    fn measure(
        &mut self,
        write: bool,
        random: bool,
        size: usize,
        depth: usize,
        time: Duration,
    ) -> (f64, f64) {
        let blocks = self.size / size as u64;
        let (mut next, mut sent, mut done) = (0, 0u64, 0u64);
        let (start, cpu) = (Instant::now(), self.cpu());
        loop {
            let over = start.elapsed() >= time;
            if over && sent == done {
                break;
            }
            while !over && sent - done < depth as u64 {
                next = if random { self.rng.below(blocks) } else { (next + 1) % blocks };
                self.send(write, next * size as u64, size);
                sent += 1;
            }
            self.receive(write, size);
            done += 1;
        }
        let bytes = (done * size as u64) as f64;
        let seconds = start.elapsed().as_secs_f64();
        (bytes / seconds / 1e6, (self.cpu() - cpu) * 1e9 / (bytes / 1024.0))
    }

    fn send(&mut self, write: bool, offset: u64, len: usize) {
        let mut request = [0; 28];
        request[..4].copy_from_slice(&0x2560_9513u32.to_be_bytes());
        request[7] = u8::from(write);
        request[16..24].copy_from_slice(&offset.to_be_bytes());
        request[24..].copy_from_slice(&(len as u32).to_be_bytes());
        self.stream.write_all(&request).expect("the server is there");
        if write {
            self.stream.write_all(&self.buf[..len]).expect("the server is there");
        }
    }

    fn receive(&mut self, write: bool, len: usize) {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head).expect("the server answers");
        assert_eq!(
            (&head[..4], &head[4..8]),
            (&0x6744_6698u32.to_be_bytes()[..], &[0; 4][..]),
            "{}",
            self.name
        );
        if !write {
            self.stream.read_exact(&mut self.buf[..len]).expect("the server answers");
        }
    }

    /// Seconds of CPU time so far: the sum over its threads, which counts nanoseconds.
    fn cpu(&self) -> f64 {
        let folder = format!("/proc/{}/task", self.process.id());
        let tasks = fs::read_dir(folder).expect("the server lives");
        let of = |task: PathBuf| fs::read_to_string(task.join("schedstat")).ok();
        let all = tasks.filter_map(|task| of(task.ok()?.path()));
        all.filter_map(|text| text.split(' ').next()?.parse::<f64>().ok()).sum::<f64>() / 1e9
    }
}

/// Negotiates with `NBD_OPT_GO` for the default export, as soon as the server is there.
fn connect(path: &Path) -> (UnixStream, u64) {
    let start = Instant::now();
    let mut stream = loop {
        match UnixStream::connect(path) {
            Ok(stream) => break stream,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(60), "{}: {error}", path.display()),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    stream.read_exact(&mut [0; 18]).expect("a greeting");
    let hello = [&3u32.to_be_bytes()[..], b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0"].concat();
    let mut size = 0;
    (&stream).write_all(&hello).expect("the server is there");
    let exact = |len: usize| {
        let mut bytes = vec![0; len];
        (&stream).read_exact(&mut bytes).expect("an answer");
        bytes
    };
    loop {
        let head = exact(20);
        let body = exact(u32::from_be_bytes(head[16..].try_into().expect("four bytes")) as usize);
        match head[12..16] {
            [0, 0, 0, 1] => return (stream, size),
            [0, 0, 0, 3] if body[..2] == [0, 0] => {
                size = u64::from_be_bytes(body[2..10].try_into().expect("eight bytes"));
            }
            [0, 0, 0, 3] => {}
            _ => panic!("{}: option refused", path.display()),
        }
    }
}

/// Both sides of the experiment, in a process of their own.
fn serve_units(mode: &str, image: &str, key: &str, socket: &str) -> ! {
    let params = Params::new("aes-xts-plain64".parse().expect("a specification"));
    let key = fs::read(key).expect("the key");
    let registry = Registry::new(Cpu::detect());
    let cipher = SectorCipher::new(&params, &key, &registry, &Policy::default()).expect("a cipher");
    let device = FileDevice::open_writable(image).expect("the image");
    let device: Arc<dyn BlockDevice> = match mode {
        "units-batched" => Arc::new(CryptDevice::new(device, cipher).expect("whole sectors")),
        _ => Arc::new(OneByOne { device, cipher }),
    };
    let export = Arc::new(Export::new(device, "", false, 4096));
    let listener = Listener::unix(Path::new(socket)).expect("a socket");
    let _server =
        Server::start(listener, export, TlsMode::Off, None, Limits::default(), |text| eprintln!("{text}"));
    loop {
        std::thread::park();
    }
}

/// A mapping that calls the cipher once for each sector of 512 bytes.
struct OneByOne {
    device: FileDevice,
    cipher: SectorCipher,
}

impl BlockDevice for OneByOne {
    fn size(&self) -> u64 {
        self.device.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.device.read_at(buf, offset)?;
        for (k, unit) in buf.chunks_mut(512).enumerate() {
            self.cipher.decrypt(offset / 512 + k as u64, unit).expect("whole sectors");
        }
        Ok(())
    }
    fn write_at(&self, _: &[u8], _: u64) -> std::io::Result<()> {
        unreachable!("the server writes with write_from");
    }
    fn write_from(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        for (k, unit) in buf.chunks_mut(512).enumerate() {
            self.cipher.encrypt(offset / 512 + k as u64, unit).expect("whole sectors");
        }
        self.device.write_at(buf, offset)
    }
    fn flush(&self) -> std::io::Result<()> {
        self.device.flush()
    }
}

/// Runs a command, again if qemu-img can't time its key derivation, and gives what it says.
fn run(line: &str) -> String {
    loop {
        let mut words = line.split_whitespace();
        let output = Command::new(words.next().expect("a program")).args(words).output();
        let output = output.unwrap_or_else(|error| panic!("{line}: {error}"));
        if output.status.success() {
            return String::from_utf8(output.stdout).expect("text");
        }
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(why.contains("accurate CPU usage"), "{line}: {why}");
    }
}
