//! One client: negotiation, then requests.
//!
//! A connection has a few threads that take turns. One of them, the leader, reads a request. If requests are quick to
//! do, it does them itself, and answers those that came together in one go: no thread is woken. If the device takes
//! long, or a large request has others behind it, it lets another thread lead, and then does its own. A thread is
//! started when one is needed: as many as there are processors, more only when some wait for the device or the client.
//!
//! A client that does not take its answers blocks its own threads and nobody else's. What is held for it is bounded:
//! before a request's bytes are read or made, room for them is waited for.

use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use casemate_blockdev::{u32_of, u64_of, usize_of};

use crate::crew::Crew;
use crate::export::Export;
use crate::link::{Link, Sending, lock};
use crate::protocol::{
    Agreed, ClientHello, Command, GREETING, MAX_PAYLOAD, Negotiation, OptionHeader, Request, Step, errors,
};
use crate::reader::Reader;
use crate::reply::Buffer;
use crate::room::Room;
use crate::shared::{STACK, Shared};

pub(crate) struct Connection<'a> {
    shared: &'a Shared,
    number: u64,
    link: Arc<Link>,
    export: &'a Export,
    agreed: Agreed,
    reader: Mutex<Reader>,
    crew: Crew,
    /// The memory, in bytes, for this client's requests and replies.
    room: Arc<Room>,
    /// The device's time for a request in nanoseconds, as a moving average.
    service: AtomicU64,
    logged: AtomicUsize,
}

impl Connection<'_> {
    /// Serves a client until it leaves, misbehaves, or the server stops.
    pub(crate) fn run(shared: &Shared, number: u64, link: Link) {
        let Negotiated { link, export, agreed, answer } = match negotiate(shared, link) {
            Ok(Some(agreed)) => agreed,
            Ok(None) => return,
            // Whoever only looks whether somebody is there leaves like this.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return,
            Err(error) => return shared.log(&format!("client {number}: negotiation failed: {error}")),
        };
        let link = Arc::new(link);
        // Before the client hears that it can send requests, because from then on they are answered.
        let memory = shared.limits.memory.max(usize_of(MAX_PAYLOAD));
        let room = Arc::new(Room::new(memory));
        if !shared.register(number, &link, &room) {
            link.shut(Shutdown::Read);
        }
        if link.send(&answer).and_then(|()| link.no_timeout()).is_err() {
            return;
        }
        let export = &*shared.exports[export];
        export.counters().connected();
        let connection = Connection {
            shared,
            number,
            link,
            export,
            agreed,
            reader: Mutex::default(),
            crew: Crew::new(shared.processors, shared.limits.threads),
            room,
            service: AtomicU64::new(0),
            logged: AtomicUsize::new(0),
        };
        std::thread::scope(|scope| connection.work(scope));
        connection.link.close();
    }

    /// The work of one thread: lines up, reads requests as the leader, executes them, sends replies.
    fn work<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        let (mut payload, mut out) = (Buffer::default(), Buffer::default());
        while self.crew.line_up() {
            let Some((request, mut unsent)) = self.lead(&mut payload, &mut out) else { break };
            let mut sent = Ok(());
            if let Some(request) = &request {
                let slow = self.is_slow(request);
                self.have_follower(scope, slow);
                self.execute(request, &mut payload, &mut out);
                if slow {
                    self.crew.free();
                }
                sent = self.link.send_soon(out.used(), PATIENCE).map(|rest| unsent = rest);
            }
            if let Some(unsent) = unsent {
                self.have_follower(scope, true);
                let waiting = self.link.waiting();
                sent = unsent.finish(out.used());
                drop(waiting);
                self.crew.free();
            }
            out.clear(self.shared.retained());
            if let Some(request) = &request {
                payload.clear(self.shared.retained());
                self.give_room(request);
            }
            if sent.is_err() {
                break;
            }
        }
        self.crew.end();
    }

    /// Reads requests and executes those that are quick. Returns what needs no reader: a slow or large request, or a
    /// reply that the client does not take yet. `None` when the connection ends.
    fn lead(&self, payload: &mut Buffer, out: &mut Buffer) -> Option<(Option<Request>, Option<Sending<'_>>)> {
        let mut reader = lock(&self.reader);
        if !self.crew.lead() {
            return None;
        }
        loop {
            let request = match self.next_request(&mut reader, payload) {
                Ok(request) => request?,
                Err(error) => {
                    self.log(&format!("left in the middle of a request: {error}"));
                    return None;
                }
            };
            let large = self.is_large(&request);
            if self.is_slow(&request) || large && (reader.has_some() || self.link.has_more()) {
                return Some((Some(request), None));
            }
            self.execute(&request, payload, out);
            self.give_room(&request);
            // Answers wait for each other while whole requests are there that will not take long.
            let more = reader.peek().is_some_and(|next| !self.is_slow(&next) && !self.is_large(&next));
            if more && out.used().len() <= MOST_TOGETHER {
                continue;
            }
            match self.link.send_soon(out.used(), PATIENCE) {
                Ok(None) => out.clear(self.shared.retained()),
                // The client may want to send more before it takes the answer.
                Ok(unsent) => return Some((None, unsent)),
                Err(_) => return None,
            }
        }
    }

    /// Whether a request is likely to take so long that other requests should not wait for it.
    fn is_slow(&self, request: &Request) -> bool {
        let waits = request.command == Ok(Command::Flush) || request.flags & Request::FUA != 0;
        waits || self.service.load(Ordering::Relaxed) > SLOW
    }

    fn is_large(&self, request: &Request) -> bool {
        request.len >= LARGE
    }

    /// Makes sure that another thread reads the next request. With `stuck` this thread is about to wait for the device
    /// or the client; the caller must call `crew.free()` when the wait is over.
    fn have_follower<'s>(&'s self, scope: &'s Scope<'s, '_>, stuck: bool) {
        if self.crew.must_grow(stuck) {
            let builder = Builder::new().name(format!("client {}", self.number)).stack_size(STACK);
            if builder.spawn_scoped(scope, move || self.work(scope)).is_err() {
                self.crew.could_not_grow();
            }
        }
    }

    /// The next request, with room for its bytes and, for a write, its data in `payload`. `None` at the end.
    fn next_request(&self, reader: &mut Reader, payload: &mut Buffer) -> io::Result<Option<Request>> {
        if !reader.fill(&self.link, Request::LEN)? {
            return Ok(None);
        }
        let request = Request::from_bytes(reader.take());
        let Some(request) = request else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the client sent bytes that are not a request",
            ));
        };
        if request.command == Ok(Command::Disconnect) {
            return Ok(None);
        }
        payload.clear(self.shared.retained());
        if request.payload() > MAX_PAYLOAD {
            // It will be refused; what follows it must be found all the same.
            let mut left = request.payload();
            while left > 0 {
                let now = left.min(LARGE);
                payload.clear(self.shared.retained());
                reader.read_exact(&self.link, payload.extend(usize_of(now)))?;
                left -= now;
            }
            return Ok(Some(request));
        }
        self.take_room(&request)?;
        reader.large_writes = request.payload() >= LARGE;
        if request.payload() > 0 {
            let _waiting = self.link.waiting();
            let read = reader.read_exact(&self.link, payload.extend(usize_of(request.len)));
            // Others wait for the room of a client that leaves in the middle.
            read.inspect_err(|_| self.give_room(&request))?;
        }
        Ok(Some(request))
    }

    /// Takes memory for a request, and waits for it: first of this client's share, then of all clients' together.
    fn take_room(&self, request: &Request) -> io::Result<()> {
        let bytes = held(request);
        if bytes == 0 {
            return Ok(());
        }
        // While this client's own share is used up, its requests are worked on, or it takes no replies: nobody else
        // suffers from that wait.
        while !self.room.take(bytes, A_WHILE) {}
        self.shared.take_room(bytes).inspect_err(|_| self.room.give(bytes))
    }

    fn give_room(&self, request: &Request) {
        let bytes = held(request);
        if bytes > 0 {
            self.shared.room.give(bytes);
            self.room.give(bytes);
        }
    }

    /// Executes a request and appends the reply to `out`.
    fn execute(&self, request: &Request, payload: &mut Buffer, out: &mut Buffer) {
        let description = self.export.description();
        let structured =
            self.agreed.structured && matches!(request.command, Ok(Command::Read | Command::BlockStatus));
        let checked = request.check(description.size, description.flags, self.agreed.allocation);
        let done = checked.and_then(|command| {
            let start = Instant::now();
            let done = self.on_device(command, request, payload, out);
            // The processors' work takes time too, but is not waiting: at most a nanosecond for a byte. And a thread that
            // had to let another run now and then does not make a slow device.
            let waited = start.elapsed().saturating_sub(Duration::from_nanos(u64_of(held(request))));
            let waited = u64::try_from(waited.as_nanos()).map_or(4 * SLOW, |waited| waited.min(4 * SLOW));
            // Threads that do this at the same time lose one of the values, which does no harm.
            let before = self.service.load(Ordering::Relaxed);
            self.service.store(before - before / 8 + waited / 8, Ordering::Relaxed);
            done.or_else(|error| {
                let Request { offset, len, .. } = request;
                let number = number_of(&error);
                if number != errors::ENOTSUP {
                    self.log(&format!("{command:?} of {len} bytes at {offset}: {error}"));
                }
                if command != Command::Read || !structured || request.flags & Request::DF != 0 {
                    return Err(number);
                }
                self.export.counters().failed();
                self.read_around(request, number, out);
                Ok(())
            })
        });
        if let Err(number) = done {
            self.export.counters().failed();
            out.error(structured, request.cookie, number);
        }
    }

    /// Answers a read that has failed with those blocks that can be read, and says where the others are.
    fn read_around(&self, request: &Request, number: u32, out: &mut Buffer) {
        let (device, start) = (self.export.device(), Instant::now());
        let block = u64::from(self.export.description().preferred_block.max(1));
        let whole = request.offset..request.offset + u64::from(request.len);
        let (mut ranges, mut bad) = (vec![whole.clone()], Vec::<std::ops::Range<u64>>::new());
        // Halves of halves, down to a block. A device that takes long to fail is not asked for ever.
        while let Some(range) = ranges.pop() {
            let given_up = start.elapsed() > ENOUGH_TRIED;
            let len = u32_of(range.end - range.start);
            let read = |data: &mut [u8]| device.read_at(data, range.start);
            if !given_up && range != whole && out.part(request.cookie, range.start, len, read).is_ok() {
                continue;
            }
            let next_block = (range.start / block + 1) * block;
            let middle = next_block.max((range.start + u64::from(len / 2)) / block * block);
            match bad.last_mut() {
                _ if middle < range.end && !given_up => {
                    ranges.extend([middle..range.end, range.start..middle])
                }
                Some(before) if before.end == range.start => before.end = range.end,
                _ => bad.push(range),
            }
        }
        let bad: Vec<u64> = bad.iter().map(|range| range.start).collect();
        out.end_of_parts(request.cookie, number, &bad);
    }

    fn on_device(
        &self,
        command: Command,
        request: &Request,
        payload: &mut Buffer,
        out: &mut Buffer,
    ) -> io::Result<()> {
        let export = self.export;
        let (device, counters) = (export.device(), export.counters());
        let Request { cookie, offset, len, .. } = *request;
        let mut flush = request.flags & Request::FUA != 0;
        match command {
            Command::Read => {
                out.data(self.agreed, cookie, offset, len, |data| device.read_at(data, offset))?;
                counters.read(len.into());
                return Ok(());
            }
            Command::BlockStatus => {
                let most = if request.flags & Request::REQ_ONE != 0 { 1 } else { MOST_EXTENTS };
                out.extents(cookie, &extents(device, offset, len, most)?);
                counters.asked();
                return Ok(());
            }
            Command::Write => {
                device.write_from(payload.used_mut(), offset)?;
                counters.written(len.into());
            }
            Command::WriteZeroes => {
                let may_punch = request.flags & Request::NO_HOLE == 0;
                match request.flags & Request::FAST_ZERO {
                    0 => device.write_zeroes(offset, len.into(), may_punch)?,
                    _ => device.zero_fast(offset, len.into(), may_punch)?,
                }
                counters.zeroed();
            }
            Command::Cache => {
                cache(device, offset, len)?;
                counters.cached();
            }
            Command::Trim => {
                device.discard(offset, len.into())?;
                counters.trimmed();
            }
            Command::Flush | Command::Disconnect => flush = true,
        }
        if flush {
            counters.flushed();
            export.flush()?;
        }
        out.simple(cookie, 0);
        Ok(())
    }

    /// Logs a line about the client, up to a limit: one client can't fill the disk that the log is on.
    fn log(&self, text: &str) {
        let count = self.logged.fetch_add(1, Ordering::Relaxed);
        if count < MOST_LOGGED {
            self.shared.log(&format!("client {}: {text}", self.number));
        } else if count == MOST_LOGGED {
            self.shared.log(&format!("client {}: further messages about it are dropped", self.number));
        }
    }
}

/// A negotiation that has led to an export.
struct Negotiated {
    link: Link,
    /// The number of the export.
    export: usize,
    agreed: Agreed,
    /// The last answer, not sent yet.
    answer: Vec<u8>,
}

/// Negotiates until the transmission begins; `None` if the client wants no transmission.
fn negotiate(shared: &Shared, mut link: Link) -> io::Result<Option<Negotiated>> {
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    let deadline = Instant::now() + shared.limits.negotiation;
    link.send(&GREETING)?;
    let mut hello = [0; 4];
    link.read_exact_until(&mut hello, deadline)?;
    let hello = ClientHello::from_bytes(hello).ok_or_else(|| invalid("the client sent unknown flags"))?;
    let mut talk = Negotiation::new(Arc::clone(&shared.descriptions), shared.tls.mode(), hello);
    let mut out = Vec::new();
    loop {
        let mut header = [0; OptionHeader::LEN];
        link.read_exact_until(&mut header, deadline)?;
        let header = OptionHeader::from_bytes(&header)
            .ok_or_else(|| invalid("the client sent bytes that are not an option"))?;
        let mut data = vec![0; usize_of(header.len)];
        link.read_exact_until(&mut data, deadline)?;
        let step = talk.option(header.option, &data, &mut out);
        if let Step::Transmission(export, agreed) = step {
            return Ok(Some(Negotiated { link, export, agreed, answer: out }));
        }
        link.send(&out)?;
        out.clear();
        match step {
            Step::Continue | Step::Transmission(..) => {}
            Step::StartTls => {
                let config = shared.tls.config().ok_or_else(|| invalid("the server has no certificate"))?;
                link.secure(config, deadline)?;
                talk.secured();
            }
            Step::Close => {
                link.close();
                return Ok(None);
            }
        }
    }
}

/// Reads bytes for nobody, so that the system has them in memory.
fn cache(device: &dyn casemate_blockdev::BlockDevice, offset: u64, len: u32) -> io::Result<()> {
    let mut data = vec![0; usize_of(len.min(READ_FOR_CACHE))];
    for done in (0..len).step_by(data.len().max(1)) {
        let now = usize_of((len - done).min(READ_FOR_CACHE));
        device.read_at(&mut data[..now], offset + u64::from(done))?;
    }
    Ok(())
}

/// The block status of a range: lengths in bytes with their states, from its beginning on.
fn extents(
    device: &dyn casemate_blockdev::BlockDevice,
    offset: u64,
    len: u32,
    most: usize,
) -> io::Result<Vec<(u32, u32)>> {
    let (mut at, end) = (offset, offset + u64::from(len));
    let mut list = Vec::new();
    while at < end && list.len() < most {
        let data = device.next_data(at)?.unwrap_or(end..end);
        let start = data.start.clamp(at, end);
        if start > at {
            list.push((u32_of(start - at), HOLE | ZERO));
            at = start;
        }
        let stop = data.end.clamp(start, end);
        if stop > at && list.len() < most {
            list.push((u32_of(stop - at), 0));
            at = stop;
        }
    }
    Ok(list)
}

/// Bytes that are in memory while a request is worked on.
fn held(request: &Request) -> usize {
    let moves = matches!(request.command, Ok(Command::Read | Command::Write)) && request.len <= MAX_PAYLOAD;
    if moves { usize_of(request.len) } else { 0 }
}

/// The protocol's number for what went wrong.
fn number_of(error: &io::Error) -> u32 {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            errors::ENOSPC
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => errors::EPERM,
        io::ErrorKind::OutOfMemory => errors::ENOMEM,
        io::ErrorKind::InvalidInput => errors::EINVAL,
        io::ErrorKind::Unsupported => errors::ENOTSUP,
        _ => errors::EIO,
    }
}

/// Bytes of a request that is worth waking another thread, which takes some microseconds.
const LARGE: u32 = 32 * 1024;

/// Nanoseconds that a device takes for a request before every request is worth waking another thread.
const SLOW: u64 = 100_000;

/// Bytes of replies up to which they wait for each other, to be sent together.
const MOST_TOGETHER: usize = 64 * 1024;

/// The time that a client has to make room for a reply before it is taken for one that wants to send first.
const PATIENCE: Duration = Duration::from_millis(2);

/// The most extents in one reply; a client asks again for the rest.
const MOST_EXTENTS: usize = 2048;

/// Bytes that are read at a time for `CACHE`, where only the reading counts.
const READ_FOR_CACHE: u32 = 256 * 1024;

/// The time that is spent on finding the readable blocks around damaged ones.
const ENOUGH_TRIED: Duration = Duration::from_secs(2);

/// The time after which a thread that waits for memory looks again.
const A_WHILE: Duration = Duration::from_secs(60);

/// The most lines that are logged about one client.
const MOST_LOGGED: usize = 200;

const HOLE: u32 = 1;
const ZERO: u32 = 2;
