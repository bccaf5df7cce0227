//! The server with well-behaved, broken and hostile clients, over devices that do what a test wants.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use casemate_blockdev::{BlockDevice, MemoryDevice};
use casemate_nbd::tls::Tls;
use casemate_nbd::{Export, Limits, Listener, Server};
use casemate_testkit::nbd::{self, CACHE, Client, DF, FAST_ZERO, FUA, READ, TRIM, WRITE, WRITE_ZEROES};
use casemate_testkit::{PATIENCE, Rng, TempDir, tempdir, wait_until};

const SIZE: usize = 8 << 20;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

/// A device in memory that can be slow or broken.
struct Device {
    memory: MemoryDevice,
    bad: Option<std::ops::Range<u64>>,
    delay: Duration,
    unflushed: AtomicBool,
    flushes: AtomicU64,
}

impl Device {
    fn new() -> Device {
        let bytes = (0..SIZE).map(|at| (at / 512) as u8).collect();
        let (unflushed, flushes) = (AtomicBool::new(false), AtomicU64::new(0));
        Device { memory: MemoryDevice::new(bytes), bad: None, delay: Duration::ZERO, unflushed, flushes }
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        std::thread::sleep(self.delay);
        let end = offset + len as u64;
        match &self.bad {
            Some(bad) if offset < bad.end && end > bad.start => Err(io::Error::from_raw_os_error(5)),
            _ => Ok(()),
        }
    }
}

impl BlockDevice for Device {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.memory)
    }
    fn size(&self) -> u64 {
        self.memory.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate_blockdev::Result<()> {
        self.check(offset, buf.len())?;
        self.memory.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> casemate_blockdev::Result<()> {
        self.check(offset, buf.len())?;
        self.unflushed.store(true, Ordering::SeqCst);
        self.memory.write_at(buf, offset)
    }
    fn flush(&self) -> casemate_blockdev::Result<()> {
        self.unflushed.store(false, Ordering::SeqCst);
        self.flushes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn next_data(&self, offset: u64) -> casemate_blockdev::Result<Option<std::ops::Range<u64>>> {
        // Every second megabyte is a hole, as far as anybody is told.
        let mib = offset >> 20;
        let start = if mib.is_multiple_of(2) { (mib + 1) << 20 } else { offset };
        Ok((start < SIZE as u64).then_some(start..((start >> 20) + 1) << 20))
    }
}

struct Running {
    server: Option<Server>,
    export: Arc<Export>,
    device: Arc<Device>,
    log: Arc<Mutex<Vec<String>>>,
    socket: PathBuf,
    _folder: TempDir,
}

impl Running {
    fn start(device: Device, limits: Limits) -> Running {
        let folder = tempdir().unwrap();
        let socket = folder.path().join("socket");
        let device = Arc::new(device);
        let export = Arc::new(Export::new(Arc::clone(&device) as Arc<dyn BlockDevice>, "", false, 4096));
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        let server = Server::start(
            Listener::unix(&socket).unwrap(),
            vec![Arc::clone(&export)],
            Tls::off(),
            limits,
            move |line| lines.lock().unwrap().push(line.to_owned()),
        );
        Running { server: Some(server.unwrap()), export, device, log, socket, _folder: folder }
    }

    fn client(&self) -> Client {
        let client = Client::connect(&self.socket).unwrap();
        client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    fn raw(&self) -> UnixStream {
        UnixStream::connect(&self.socket).unwrap()
    }

    /// Checks, at the end of every test, that a well-behaved client is served.
    fn still_works(&self) {
        let mut client = self.client();
        assert_eq!(client.read(512 * 300, 512).unwrap(), [300u32 as u8; 512]);
    }

    fn stop(mut self) -> Duration {
        let start = Instant::now();
        self.server.take().unwrap().stop(Duration::from_secs(1)).unwrap();
        start.elapsed()
    }
}

/// Clients write and read their own regions with many requests in flight, and find what they wrote.
#[test]
fn many_clients_with_many_requests_in_flight() {
    let slow = Device { delay: Duration::from_micros(200), ..Device::new() };
    for device in [Device::new(), slow] {
        let running = Running::start(device, Limits::default());
        std::thread::scope(|scope| {
            for number in 0..4u64 {
                let mut client = running.client();
                scope.spawn(move || {
                    let mut rng = Rng::new(number);
                    let region = SIZE as u64 / 4;
                    let mut model = vec![0; region as usize];
                    client.write(number * region, &model, 0).unwrap();
                    for round in 0..30 {
                        // Slots do not overlap, so the order in which requests are done does not matter.
                        let slots = 1 + rng.below(32);
                        let slot = region / slots;
                        let mut expected = std::collections::HashMap::new();
                        for k in 0..slots {
                            let most = if round % 4 == 0 { slot } else { slot.min(9000) };
                            let (start, len) = (k * slot, 1 + rng.below(most));
                            let at = start + rng.below(slot - len + 1);
                            let range = at as usize..(at + len) as usize;
                            let offset = number * region + at;
                            if rng.below(2) == 0 {
                                let data = rng.bytes(len as usize);
                                model[range].copy_from_slice(&data);
                                let flags = if rng.below(8) == 0 { FUA } else { 0 };
                                let cookie = client.send(WRITE, flags, offset, len as u32, &data).unwrap();
                                expected.insert(cookie, Vec::new());
                            } else {
                                let cookie = client.send(READ, 0, offset, len as u32, &[]).unwrap();
                                expected.insert(cookie, model[range].to_vec());
                            }
                            // Replies of what is in flight must fit into the sockets, or both sides would wait.
                            if expected.len() > 4 {
                                let reply = client.receive().unwrap();
                                assert_eq!(expected.remove(&reply.cookie), Some(reply.data));
                            }
                        }
                        while !expected.is_empty() {
                            let reply = client.receive().unwrap();
                            assert_eq!((reply.error, expected.remove(&reply.cookie)), (0, Some(reply.data)));
                        }
                    }
                });
            }
        });
        assert_eq!(running.export.statistics().errors, 0, "{:?}", running.log.lock().unwrap());
        running.stop();
    }
}

#[test]
fn what_makes_no_sense_is_answered_and_the_connection_goes_on() {
    let running = Running::start(Device::new(), Limits::default());
    let mut client = running.client();
    let size = SIZE as u64;
    assert_eq!((client.size, client.flags & 3), (size, 1));
    assert_eq!(client.read(size - 1, 2), Err(EINVAL));
    assert_eq!(client.read(0, u32::MAX), Err(EINVAL));
    assert_eq!(client.read(u64::MAX, 1), Err(EINVAL));
    assert_eq!(client.write(size - 1, &[1, 2], 0), Err(ENOSPC));
    assert_eq!(client.write(0, &vec![1; (32 << 20) + 5], 0), Err(EINVAL));
    assert_eq!(client.write(3, &vec![9; SIZE], 0), Err(ENOSPC));
    assert_eq!(client.ask(99, 0, 0, 0, &[]), Err(EINVAL));
    assert_eq!(client.ask(READ, 0x80, 0, 1, &[]), Err(EINVAL));
    assert_eq!(client.ask(TRIM, 0, 0, 512, &[]), Err(95));
    assert_eq!(client.ask(WRITE_ZEROES, 0, size, 1, &[]), Err(ENOSPC));
    assert_eq!(client.status(0, 0), Err(EINVAL));
    assert_eq!(client.read(7, 0), Ok(Vec::new()));
    assert_eq!(client.write(7, &[], 0), Ok(()));
    assert_eq!(client.read(511, 2), Ok(vec![0, 1]));
    assert_eq!(client.write(513, &[7; 3], 0), Ok(()));
    assert_eq!(client.read(511, 7), Ok(vec![0, 1, 7, 7, 7, 1, 1]));
    assert_eq!(client.ask(WRITE_ZEROES, 0, 514, 100_000, &[]), Ok(Vec::new()));
    assert_eq!(client.read(512, 4), Ok(vec![1, 7, 0, 0]));
    assert_eq!(running.export.statistics().errors, 11);
    running.still_works();
    running.stop();
}

#[test]
fn a_reply_to_fua_or_flush_means_it_is_safe() {
    let running = Running::start(Device::new(), Limits::default());
    let mut client = running.client();
    for round in 0..50 {
        client.write(round * 5000, &[1; 5000], 0).unwrap();
        assert!(running.device.unflushed.load(Ordering::SeqCst));
        match round % 3 {
            0 => client.flush().unwrap(),
            1 => client.write(0, &[2], FUA).unwrap(),
            _ => drop(client.ask(WRITE_ZEROES, FUA, 0, 100, &[]).unwrap()),
        }
        assert!(!running.device.unflushed.load(Ordering::SeqCst));
    }
    let device = Arc::clone(&running.device);
    client.write(0, &[3], 0).unwrap();
    running.stop();
    assert!(!device.unflushed.load(Ordering::SeqCst), "the end flushes");
}

#[test]
fn holes_are_reported() {
    let running = Running::start(Device::new(), Limits::default());
    let mut client = running.client();
    let mib = 1 << 20;
    assert_eq!(client.status(0, 2 * mib), Ok(vec![(mib, 3), (mib, 0)]));
    assert_eq!(client.status(mib as u64 - 10, 20), Ok(vec![(10, 3), (10, 0)]));
    assert_eq!(client.status(5, 7), Ok(vec![(7, 3)]));
    assert_eq!(client.ask(nbd::BLOCK_STATUS, 8, 0, 4 * mib, &[]).unwrap().len(), 8, "one extent");
    assert_eq!(client.status(0, SIZE as u32).unwrap().len(), 8);
    running.stop();
}

#[test]
fn a_broken_device_fails_where_it_is_broken() {
    let bad = 1_000_000..1_000_512;
    let running = Running::start(Device { bad: Some(bad), ..Device::new() }, Limits::default());
    let mut client = running.client();
    assert_eq!(client.read(900_000, 200_000), Err(EIO));
    // What can be read around it came with the error, but not to clients that want it in one piece.
    client.send(READ, 0, 900_000, 200_000, &[]).unwrap();
    let reply = client.receive().unwrap();
    let block = 1_000_000 / 4096 * 4096;
    assert_eq!((reply.error, &reply.bad[..]), (EIO, &[block][..]));
    let mut at = 900_000;
    for (start, len) in reply.parts {
        at = if at == block { at + 4096 } else { at };
        assert_eq!(start, at);
        at += len as u64;
    }
    assert_eq!((at, reply.data.len()), (1_100_000, 200_000 - 4096));
    let expected = (900_000..block).chain(block + 4096..1_100_000).map(|at| (at / 512) as u8);
    assert!(reply.data.into_iter().eq(expected));
    client.send(READ, DF, 900_000, 200_000, &[]).unwrap();
    let reply = client.receive().unwrap();
    assert_eq!((reply.error, reply.parts.len(), reply.bad.len()), (EIO, 0, 0));
    assert_eq!(client.ask(CACHE, 0, 900_000, 200_000, &[]), Err(EIO));
    assert_eq!(client.ask(CACHE, 0, 0, 999_999, &[]), Ok(Vec::new()));
    assert_eq!(client.write(1_000_100, &[1], 0), Err(EIO));
    assert_eq!(client.read(1_000_512, 512).map(|data| data.len()), Ok(512));
    assert_eq!(client.read(0, 1_000_000).map(|data| data.len()), Ok(1_000_000));
    let log = running.log.lock().unwrap().clone();
    assert_eq!(log.len(), 5);
    assert!(log[0].starts_with("client 1: Read of 200000 bytes at 900000: "), "{log:?}");
    for _ in 0..300 {
        assert_eq!(client.read(1_000_000, 1), Err(EIO));
    }
    assert!(running.log.lock().unwrap().len() < 250, "one client can't fill the log");
    running.still_works();
    running.stop();
}

/// A device that needs a second to fail is not asked for each of a large read's blocks.
#[test]
fn a_device_that_fails_slowly_is_not_asked_for_ever() {
    let delay = Duration::from_millis(500);
    let running =
        Running::start(Device { bad: Some(0..SIZE as u64), delay, ..Device::new() }, Limits::default());
    let mut client = running.client();
    let start = Instant::now();
    client.send(READ, 0, 0, 4 << 20, &[]).unwrap();
    let reply = client.receive().unwrap();
    assert_eq!((reply.error, reply.bad, reply.parts), (EIO, vec![0], vec![]));
    // Each of its 1024 blocks would take half a second.
    assert!(start.elapsed() < Duration::from_secs(256));
    running.stop();
}

#[test]
fn zeros_are_made_quickly_or_not_at_all() {
    let running = Running::start(Device::new(), Limits::default());
    let mut client = running.client();
    assert_eq!(client.ask(WRITE_ZEROES, FAST_ZERO, 512, 512, &[]), Err(95));
    assert_eq!(client.read(512, 1), Ok(vec![1]));
    assert!(running.log.lock().unwrap().is_empty(), "that is not a failure");
    running.stop();
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let running = Running::start(Device::new(), Limits::default());
    let mut rng = Rng::new(3);
    let mut request = Client::connect(&running.socket).unwrap();
    for round in 0..200 {
        let mut client = running.client();
        let len = 1 + rng.below(300_000) as u32;
        let have = rng.below(len.into()) as usize;
        match round % 4 {
            // In the middle of a request, of a write's data, before the answer, and in the middle of it.
            0 => {
                client.stream.write_all(&[0x25, 0x60, 0x95, 0x13, 0, 0][..1 + rng.below(5) as usize]).unwrap()
            }
            1 => drop(client.send(WRITE, 0, 0, len, &rng.bytes(have)).unwrap()),
            2 => drop(client.send(READ, 0, 0, len, &[]).unwrap()),
            _ => {
                client.send(READ, 0, 0, len, &[]).unwrap();
                client.stream.read_exact(&mut [0; 10]).unwrap();
            }
        }
        drop(client);
        assert_eq!(request.read(512 * 9000, 1).unwrap(), [(9000 % 256) as u8]);
    }
    drop(request);
    wait_until(|| running.server.as_ref().unwrap().clients() == 0);
    running.still_works();
    running.stop();
}

#[test]
fn garbage_ends_the_connection_it_came_on() {
    let running = Running::start(Device::new(), Limits::default());
    let mut rng = Rng::new(4);
    for round in 0..300 {
        let mut stream = running.raw();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = Vec::new();
        if round % 3 > 0 {
            bytes.extend(1u32.to_be_bytes());
            for _ in 0..rng.below(5) {
                // Options that are right as far as their headers go.
                let len = rng.below(60) as usize;
                let data = rng.bytes(len);
                bytes.extend(b"IHAVEOPT");
                bytes.extend((rng.below(13) as u32).to_be_bytes());
                bytes.extend((data.len() as u32).to_be_bytes());
                bytes.extend(data);
            }
        }
        if round % 3 == 2 {
            // Into transmission by the old way.
            bytes.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\0");
        }
        let len = rng.below(2000) as usize;
        bytes.extend(rng.bytes(len));
        // The server may close in the middle of it.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = io::copy(&mut stream, &mut io::sink());
    }
    running.still_works();
    running.stop();
}

/// A client that never reads replies holds up nobody else, holds bounded memory, and is cut off when the server ends.
#[test]
fn answers_that_nobody_takes() {
    let running = Running::start(Device::new(), Limits::default());
    let mut lazy: Vec<Client> = (0..4).map(|_| running.client()).collect();
    for client in &mut lazy {
        client.stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        // Until the server takes no more.
        for _ in 0..400 {
            if client.send(READ, 0, 0, 1 << 20, &[]).is_err() {
                break;
            }
        }
    }
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
    };
    let mut client = running.client();
    for round in 0..100 {
        assert_eq!(client.read(round * 512, 1).unwrap(), [round as u8]);
    }
    // Four clients with 64 MiB each, what threads keep, other tests of this process.
    assert!(resident() < 1000, "{} MiB", resident());
    assert!(running.stop() < PATIENCE);
}

/// A client may send more than the sockets hold before it looks at the first answer.
#[test]
fn a_client_that_sends_first_and_reads_later() {
    let running = Running::start(Device::new(), Limits::default());
    let mut client = running.client();
    let (mib, data) = (1 << 20, vec![0xaa; 1 << 20]);
    client.stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let reads: Vec<u64> = (0..7).map(|k| client.send(READ, 0, k * mib, mib as u32, &[]).unwrap()).collect();
    let writes: Vec<u64> =
        (0..7).map(|_| client.send(WRITE, 0, 7 * mib, mib as u32, &data).unwrap()).collect();
    let mut cookies = Vec::new();
    for _ in 0..14 {
        let reply = client.receive().unwrap();
        assert_eq!(
            (reply.error, reply.data.len()),
            (0, if reads.contains(&reply.cookie) { 1 << 20 } else { 0 })
        );
        cookies.push(reply.cookie);
    }
    cookies.sort_unstable();
    let mut all = [reads, writes].concat();
    all.sort_unstable();
    assert_eq!(cookies, all);
    running.still_works();
    running.stop();
}

/// Clients that hold all memory there is and do not go on, because they take no answers or do not send what they have
/// announced, lose it to others.
#[test]
fn memory_that_is_held_for_nothing_is_taken_back() {
    let running = Running::start(Device::new(), Limits { total_memory: 48 << 20, ..Limits::default() });
    let mut lazy: Vec<Client> = (0..3).map(|_| running.client()).collect();
    for client in &mut lazy[..2] {
        // As many as a client may have threads, and those whose answers the socket takes.
        for _ in 0..20 {
            client.send(READ, 0, 0, 1 << 20, &[]).unwrap();
        }
    }
    lazy[2].send(WRITE, 0, 0, 16 << 20, &[1; 1000]).unwrap();
    let mut client = running.client();
    // What was there first may still be on its way to be held.
    let (mut round, log) = (0u64, || running.log.lock().unwrap().join("\n"));
    wait_until(|| {
        for _ in 0..40 {
            assert_eq!(client.read(round % 40 * 512, 4 << 20).unwrap()[..2], [(round % 40) as u8; 2]);
            round += 1;
        }
        log().contains("is cut off: it holds")
    });
    running.still_works();
    running.stop();
}

/// Clients that leave in the middle of a write take no memory with them.
#[test]
fn memory_of_a_write_that_broke_off_is_given_back() {
    let running = Running::start(Device::new(), Limits { total_memory: 33 << 20, ..Limits::default() });
    for _ in 0..4 {
        running.client().send(WRITE, 0, 0, 30 << 20, &[1; 1000]).unwrap();
    }
    let mut client = running.client();
    client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(client.read(512, 4 << 20).unwrap()[..2], [1; 2]);
    running.stop();
}

/// Nobody is cut off because the device is slow.
#[test]
fn a_device_that_stalls_costs_no_client() {
    let delay = Duration::from_secs(6);
    let limits = Limits { total_memory: 33 << 20, ..Limits::default() };
    let running = Running::start(Device { delay, ..Device::new() }, limits);
    std::thread::scope(|scope| {
        let mut client = running.client();
        scope.spawn(move || assert_eq!(client.write(0, &vec![1; 8 << 20], 0), Ok(())));
        for _ in 0..4 {
            let mut client = running.client();
            scope.spawn(move || assert_eq!(client.read(0, 8 << 20).map(|data| data.len()), Ok(8 << 20)));
        }
    });
    assert!(running.log.lock().unwrap().is_empty());
    running.stop();
}

#[test]
fn crowds_that_come_and_go() {
    let limits = Limits { clients: 1000, negotiation: Duration::from_secs(5), ..Limits::default() };
    let running = Running::start(Device::new(), limits);
    let mut client = running.client();
    // Within the usual limit of open files, of which each connection takes two here.
    let rounds = 5;
    for _ in 0..rounds {
        let crowd: Vec<_> = (0..200).map(|_| running.raw()).collect();
        assert_eq!(client.read(512, 1).unwrap(), [1]);
        drop(crowd);
    }
    // Some stay and say nothing: they are let go.
    let mut silent = running.raw();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(io::copy(&mut silent, &mut io::sink()).unwrap(), 18);
    running.still_works();
    running.stop();

    let few = Running::start(Device::new(), Limits { clients: 2, ..Limits::default() });
    let one = few.client();
    let _two = few.client();
    assert!(Client::connect(&few.socket).is_err(), "there are too many");
    drop(one);
    drop(Client::connect_when_there(&few.socket));
    let log = few.log.lock().unwrap().join("\n");
    assert!(log.starts_with("clients are refused from now on: 2 are connected\n"), "{log}");
    assert!(log.contains("clients are let in again; "), "{log}");
    few.stop();
}

#[test]
fn stopping_answers_what_has_come() {
    let device = Device { delay: Duration::from_millis(20), ..Device::new() };
    let running = Running::start(device, Limits::default());
    let mut clients: Vec<Client> = (0..3).map(|_| running.client()).collect();
    for client in &mut clients {
        for k in 0..20u64 {
            client.send(WRITE, 0, k * 512, 512, &[0xee; 512]).unwrap();
        }
    }
    let device = Arc::clone(&running.device);
    running.stop();
    for client in &mut clients {
        let answered = std::iter::from_fn(|| client.receive().ok()).filter(|reply| reply.error == 0).count();
        assert_eq!(answered, 20);
    }
    assert!(!device.unflushed.load(Ordering::SeqCst));
    let mut written = vec![0; 20 * 512];
    device.memory.read_at(&mut written, 0).unwrap();
    assert!(written.iter().all(|byte| *byte == 0xee));
    assert!(device.flushes.load(Ordering::SeqCst) > 0);
}
