//! NBD servers in processes of their own, and the one client for all of them.
//!
//! The client is one thread with one connection and simple replies. It has a send buffer of 2 MiB, as qemu's and
//! libnbd's have since 2025, and uses one system call for a request and, where it can, one for a reply: what is
//! measured should be the servers.
//!
//! With one request at a time the client has a processor and the server another. Left alone, the scheduler puts them on
//! one processor or on two by chance, and keeps them there: a factor of two.

use std::fs;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use casemate_primitives::testing::Rng;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{setsockopt, sockopt};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// The image is this many bytes, again and again.
pub const CHUNK: usize = 1 << 20;

/// A server process with its client.
pub struct Contestant {
    /// What it is called in tables.
    pub name: &'static str,
    process: Child,
    stream: UnixStream,
    size: u64,
    processors: usize,
    rng: Rng,
    chunk: Vec<u8>,
    buf: Vec<u8>,
}

/// What clients ask for.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Writes, of what is there already.
    pub write: bool,
    /// Anywhere instead of one after the other.
    pub random: bool,
    /// Bytes of a request.
    pub size: usize,
    /// Requests in flight.
    pub depth: u64,
}

/// How fast it was.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// MB/s.
    pub throughput: f64,
    /// The server's CPU time, in nanoseconds for each KiB.
    pub server: f64,
    /// The client's.
    pub client: f64,
}

impl Load {
    /// Every combination, sizes first.
    pub fn all(sizes: &[usize]) -> Vec<Load> {
        let mut all = Vec::new();
        for &size in sizes {
            for depth in [1, 32] {
                for (write, random) in [(false, false), (false, true), (true, false), (true, true)] {
                    all.push(Load { write, random, size, depth });
                }
            }
        }
        all
    }

    /// In words, such as `random read 4 KiB QD1`.
    pub fn name(&self) -> String {
        let order = if self.random { "random" } else { "sequential" };
        let what = if self.write { "write" } else { "read" };
        format!("{order} {what} {} KiB QD{}", self.size >> 10, self.depth)
    }
}

impl Contestant {
    /// Starts a server by its command line, and connects to it.
    pub fn start(name: &'static str, line: &str, socket: &Path, chunk: &[u8]) -> Contestant {
        let mut words = line.split_whitespace();
        let process =
            Command::new(words.next().expect("a program")).args(words).stdout(Stdio::null()).spawn();
        let process = process.unwrap_or_else(|error| panic!("{line}: {error}"));
        let (stream, size) = connect(socket);
        setsockopt(&stream, sockopt::SndBuf, &(2 << 20)).expect("a number that is cut to what is allowed");
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let (rng, buf) = (Rng::new(1), vec![0; CHUNK]);
        Contestant { name, process, stream, size, processors, rng, chunk: chunk.to_vec(), buf }
    }

    /// Reads everything and compares it.
    pub fn check(&mut self, mib: u64) {
        assert!(self.size >= mib << 20, "{}: {} bytes", self.name, self.size);
        for k in 0..mib {
            self.send(false, k << 20, CHUNK);
            self.receive(false, CHUNK);
            assert!(self.buf == self.chunk, "{}: MiB {k} is wrong", self.name);
        }
    }

    /// Does this for some time.
    pub fn measure(&mut self, load: Load, time: Duration) -> Speed {
        let Load { write, random, size, depth } = load;
        let blocks = self.size / size as u64;
        self.place(depth == 1);
        let (mut next, mut sent, mut done) = (0, 0, 0);
        let (start, server, client) = (Instant::now(), self.server_time(), own_time());
        loop {
            let over = start.elapsed() >= time;
            if over && sent == done {
                break;
            }
            while !over && sent - done < depth {
                next = if random { self.rng.below(blocks) } else { (next + 1) % blocks };
                self.send(write, next * size as u64, size);
                sent += 1;
            }
            self.receive(write, size);
            done += 1;
        }
        let bytes = (done * size as u64) as f64;
        let per_kib = |time: Duration| time.as_nanos() as f64 / (bytes / 1024.0);
        Speed {
            throughput: bytes / start.elapsed().as_secs_f64() / 1e6,
            server: per_kib(self.server_time() - server),
            client: per_kib(own_time() - client),
        }
    }

    /// Gives the client and the server processors of their own, or all to both.
    fn place(&self, apart: bool) {
        let all = self.processors;
        let set = |range: Range<usize>| {
            let mut set = CpuSet::new();
            range.for_each(|processor| set.set(processor).expect("a processor that is there"));
            set
        };
        let (client, server) =
            if apart && all > 1 { (set(0..1), set(1..2)) } else { (set(0..all), set(0..all)) };
        sched_setaffinity(Pid::from_raw(0), &client).expect("our own thread");
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).expect("the server lives");
        for task in tasks.flatten() {
            let number = task.file_name().to_string_lossy().parse().expect("a thread's number");
            // It may have ended meanwhile.
            let _ = sched_setaffinity(Pid::from_raw(number), &server);
        }
    }

    fn send(&mut self, write: bool, offset: u64, len: usize) {
        let mut request = [0; 28];
        request[..4].copy_from_slice(&0x2560_9513u32.to_be_bytes());
        request[7] = u8::from(write);
        request[16..24].copy_from_slice(&offset.to_be_bytes());
        request[24..].copy_from_slice(&(len as u32).to_be_bytes());
        let data = if write { &self.chunk[offset as usize % CHUNK..][..len] } else { &[] };
        let mut parts = [IoSlice::new(&request), IoSlice::new(data)];
        let mut parts = &mut parts[..];
        while !parts.is_empty() {
            let sent = self.stream.write_vectored(parts).expect("the server is there");
            IoSlice::advance_slices(&mut parts, sent);
        }
    }

    fn receive(&mut self, write: bool, len: usize) {
        let mut head = [0; 16];
        let data = if write { &mut [] } else { &mut self.buf[..len] };
        let mut parts = [IoSliceMut::new(&mut head), IoSliceMut::new(data)];
        let mut parts = &mut parts[..];
        while !parts.is_empty() {
            let came = self.stream.read_vectored(parts).expect("the server answers");
            assert!(came > 0, "{} is gone", self.name);
            IoSliceMut::advance_slices(&mut parts, came);
        }
        let good = (&0x6744_6698u32.to_be_bytes()[..], &[0; 4][..]);
        assert_eq!((&head[..4], &head[4..8]), good, "{}", self.name);
    }

    /// Of all its threads, also those that have ended.
    fn server_time(&self) -> Duration {
        let process = Pid::from_raw(self.process.id() as i32);
        clock_gettime(clock_getcpuclockid(process).expect("the server lives")).expect("its clock").into()
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The CPU time of this thread.
pub fn own_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has this clock").into()
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

/// Writes the plaintext: `mib` times the same random MiB, which is given back.
pub fn write_image(path: &Path, mib: u64) -> Vec<u8> {
    let chunk = Rng::new(1).bytes(CHUNK);
    let mut file = fs::File::create(path).expect("room for the image");
    (0..mib).for_each(|_| file.write_all(&chunk).expect("room for the image"));
    chunk
}
