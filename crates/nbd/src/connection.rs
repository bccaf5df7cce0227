//! One client: negotiation, then requests.
//!
//! A connection has a few threads that take turns. One of them, the leader, reads a request. If requests are quick to
//! do, it does them itself, and answers those that came together in one go: no thread is woken. If the device takes
//! long, or a large request has others behind it, it first lets another thread lead, and then does its own. A thread is
//! started when one is needed.
//!
//! A client that does not take its answers blocks its own threads and nobody else's. What is held for it is bounded:
//! before a request's bytes are read or made, room for them is waited for.

use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Instant;

use crate::link::{Link, lock};
use crate::protocol::{
    Agreed, ClientHello, Command, GREETING, MAX_PAYLOAD, Negotiation, OptionHeader, Request, Step, errors,
};
use crate::reply::Buffer;
use crate::server::{STACK, Shared};

pub(crate) struct Connection<'a> {
    shared: &'a Shared,
    number: u64,
    link: Arc<Link>,
    agreed: Agreed,
    reader: Mutex<Reader>,
    /// Threads that wait to lead.
    waiting: AtomicUsize,
    threads: AtomicUsize,
    room: Room,
    /// How long the device takes for a request, in nanoseconds, as a moving average.
    service: AtomicU64,
    logged: AtomicUsize,
}

/// What has come and was not looked at.
#[derive(Default)]
struct Reader {
    buf: Vec<u8>,
    start: usize,
    end: usize,
    ended: bool,
}

/// Bytes that may be held for a client.
struct Room {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Connection<'_> {
    /// Serves a client until it leaves, misbehaves, or the server stops.
    pub(crate) fn run(shared: &Shared, number: u64, link: Link) {
        let (link, agreed, answer) = match negotiate(shared, link) {
            Ok(Some(agreed)) => agreed,
            Ok(None) => return,
            // Whoever only looks whether somebody is there leaves like this.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return,
            Err(error) => return shared.log(&format!("client {number}: negotiation failed: {error}")),
        };
        let link = Arc::new(link);
        // Before the client hears that it can send requests, because from then on they are answered.
        if !shared.register(number, &link) {
            link.shut(Shutdown::Read);
        }
        if link.send(&answer).and_then(|()| link.no_timeout()).is_err() {
            return;
        }
        shared.export.counters().connected();
        let memory = shared.limits.memory.max(MAX_PAYLOAD as usize);
        let connection = Connection {
            shared,
            number,
            link,
            agreed,
            reader: Mutex::default(),
            waiting: AtomicUsize::new(0),
            threads: AtomicUsize::new(1),
            room: Room { free: Mutex::new(memory), freed: Condvar::new() },
            service: AtomicU64::new(0),
            logged: AtomicUsize::new(0),
        };
        std::thread::scope(|scope| connection.work(scope));
        connection.link.close();
    }

    /// What each thread does.
    fn work<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        let (mut payload, mut out) = (Buffer::default(), Buffer::default());
        loop {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let mut reader = lock(&self.reader);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            // What is left to do without the reader: a request, or sending its answer.
            let (request, sent) = loop {
                if reader.ended {
                    return;
                }
                let request = match self.next_request(&mut reader, &mut payload) {
                    Ok(Some(request)) => request,
                    Ok(None) => {
                        reader.ended = true;
                        return;
                    }
                    Err(error) => {
                        reader.ended = true;
                        return self.log(&format!("left in the middle of a request: {error}"));
                    }
                };
                if self.is_slow(&request)
                    || self.is_large(&request) && (reader.has_some() || self.link.has_more())
                {
                    break (Some(request), None);
                }
                self.execute(&request, &mut payload, &mut out);
                self.room.give(held(&request));
                // Answers wait for each other while whole requests are there that will not take long.
                let more = reader.peek().is_some_and(|next| !self.is_slow(&next) && !self.is_large(&next));
                if more && out.used().len() <= MOST_TOGETHER {
                    continue;
                }
                match self.link.begin(out.used()) {
                    Ok(sent) if sent.bytes == out.used().len() => out.clear(),
                    // The client may want to send more before it takes the answer.
                    Ok(sent) => break (None, Some(sent)),
                    Err(_) => {
                        reader.ended = true;
                        return;
                    }
                }
            };
            drop(reader);
            self.have_follower(scope);
            if let Some(request) = &request {
                self.execute(request, &mut payload, &mut out);
            }
            let sent = match sent {
                Some(sent) => self.link.finish(out.used(), sent),
                None => self.link.send(out.used()),
            };
            out.clear();
            if let Some(request) = &request {
                self.room.give(held(request));
            }
            if sent.is_err() {
                lock(&self.reader).ended = true;
                return;
            }
        }
    }

    /// Whether a request is likely to take so long that others should not wait for it.
    fn is_slow(&self, request: &Request) -> bool {
        let waits = request.command == Ok(Command::Flush) || request.flags & Request::FUA != 0;
        waits || self.service.load(Ordering::Relaxed) > SLOW
    }

    fn is_large(&self, request: &Request) -> bool {
        request.len >= LARGE
    }

    /// Sees to it that somebody reads the next request.
    fn have_follower<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            return;
        }
        if self.threads.fetch_add(1, Ordering::SeqCst) >= self.shared.limits.threads {
            self.threads.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        let builder = Builder::new().name(format!("client {}", self.number)).stack_size(STACK);
        if builder.spawn_scoped(scope, move || self.work(scope)).is_err() {
            // No thread to be had: this one goes on when it is done.
            self.threads.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// The next request, with room for its bytes and, for a write, its data in `payload`. `None` at the end.
    fn next_request(&self, reader: &mut Reader, payload: &mut Buffer) -> io::Result<Option<Request>> {
        if !reader.fill(&self.link, Request::LEN)? {
            return Ok(None);
        }
        let request = Request::from_bytes(reader.take());
        let Some(request) = request else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "that is no request"));
        };
        if request.command == Ok(Command::Disconnect) {
            return Ok(None);
        }
        payload.clear();
        if request.payload() > MAX_PAYLOAD {
            // It will be refused; what follows it must be found all the same.
            let mut left = request.payload();
            while left > 0 {
                let now = left.min(LARGE);
                payload.clear();
                reader.read_exact(&self.link, payload.extend(now as usize))?;
                left -= now;
            }
            return Ok(Some(request));
        }
        self.room.take(held(&request));
        if request.payload() > 0 {
            reader.read_exact(&self.link, payload.extend(request.len as usize))?;
        }
        Ok(Some(request))
    }

    /// Does a request and adds the answer to `out`.
    fn execute(&self, request: &Request, payload: &mut Buffer, out: &mut Buffer) {
        let description = self.shared.export.description();
        let structured =
            self.agreed.structured && matches!(request.command, Ok(Command::Read | Command::BlockStatus));
        let checked = request.check(description.size, description.flags, self.agreed.allocation);
        let done = checked.and_then(|command| {
            let start = Instant::now();
            let done = self.on_device(command, request, payload, out);
            let taken = start.elapsed().as_nanos().min(1 << 40) as u64;
            // Threads that do this at the same time lose one of the values, which does no harm.
            let before = self.service.load(Ordering::Relaxed);
            self.service.store(before - before / 8 + taken / 8, Ordering::Relaxed);
            done.map_err(|error| {
                let Request { offset, len, .. } = request;
                self.log(&format!("{command:?} of {len} bytes at {offset}: {error}"));
                number_of(&error)
            })
        });
        if let Err(number) = done {
            self.shared.export.counters().failed();
            out.error(structured, request.cookie, number);
        }
    }

    fn on_device(
        &self,
        command: Command,
        request: &Request,
        payload: &mut Buffer,
        out: &mut Buffer,
    ) -> io::Result<()> {
        let export = &self.shared.export;
        let (device, counters) = (export.device(), export.counters());
        let Request { cookie, offset, len, .. } = *request;
        let mut wrote = true;
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
                device.write_zeroes(offset, len.into(), request.flags & Request::NO_HOLE == 0)?;
                counters.zeroed();
            }
            Command::Trim => {
                device.discard(offset, len.into())?;
                counters.trimmed();
            }
            Command::Flush | Command::Disconnect => wrote = false,
        }
        if !wrote || request.flags & Request::FUA != 0 {
            counters.flushed();
            export.flush()?;
        }
        out.simple(cookie, 0);
        Ok(())
    }

    /// One client can't fill the disk that the log is on.
    fn log(&self, text: &str) {
        let count = self.logged.fetch_add(1, Ordering::Relaxed);
        if count < MOST_LOGGED {
            self.shared.log(&format!("client {}: {text}", self.number));
        } else if count == MOST_LOGGED {
            self.shared.log(&format!("client {}: nothing more is said about it", self.number));
        }
    }
}

/// Talks until transmission begins, but for the last answer, which is given back. `None` if the client wants none.
fn negotiate(shared: &Shared, mut link: Link) -> io::Result<Option<(Link, Agreed, Vec<u8>)>> {
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    let deadline = Instant::now() + shared.limits.negotiation;
    link.send(&GREETING)?;
    let mut hello = [0; 4];
    link.read_exact_until(&mut hello, deadline)?;
    let hello = ClientHello::from_bytes(hello).ok_or_else(|| invalid("that is no client of ours"))?;
    let mut talk = Negotiation::new(shared.export.description().clone(), shared.tls, hello);
    let mut out = Vec::new();
    loop {
        let mut header = [0; OptionHeader::LEN];
        link.read_exact_until(&mut header, deadline)?;
        let header = OptionHeader::from_bytes(&header).ok_or_else(|| invalid("that is no option"))?;
        let mut data = vec![0; header.len as usize];
        link.read_exact_until(&mut data, deadline)?;
        let step = talk.option(header.option, &data, &mut out);
        if let Step::Transmission(agreed) = step {
            return Ok(Some((link, agreed, out)));
        }
        link.send(&out)?;
        out.clear();
        match step {
            Step::Continue | Step::Transmission(_) => {}
            Step::StartTls => {
                let config = shared.tls_config.as_ref().ok_or_else(|| invalid("no certificate"))?;
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

/// Lengths and states of what lies in a range, from its beginning on.
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
            // OK to cast, here and below: within a range whose length is a u32.
            list.push(((start - at) as u32, HOLE | ZERO));
            at = start;
        }
        let stop = data.end.clamp(start, end);
        if stop > at && list.len() < most {
            list.push(((stop - at) as u32, 0));
            at = stop;
        }
    }
    Ok(list)
}

impl Reader {
    /// Has at least `len` bytes; `false` if the client is gone before the first of them.
    fn fill(&mut self, link: &Link, len: usize) -> io::Result<bool> {
        if self.buf.is_empty() {
            self.buf = vec![0; READ_AHEAD];
        }
        if self.buf.len() - self.start < len {
            self.buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < len {
            match link.read(&mut self.buf[self.end..]) {
                Ok(0) if self.start == self.end => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => self.end += more,
                // Between requests a client may go without a word, TLS's farewell included.
                Err(error) if self.start == self.end && is_end(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The next bytes, which are there.
    fn take<const N: usize>(&mut self) -> &[u8; N] {
        self.start += N;
        self.buf[self.start - N..self.start].try_into().expect("that many")
    }

    fn read_exact(&mut self, link: &Link, data: &mut [u8]) -> io::Result<()> {
        let have = data.len().min(self.end - self.start);
        let (mut now, mut data) = data.split_at_mut(have);
        now.copy_from_slice(&self.buf[self.start..self.start + have]);
        self.start += have;
        while !data.is_empty() {
            // The rest of a large write goes where it belongs; after a small one more requests may follow.
            if data.len() < self.buf.len() {
                if !self.fill(link, data.len())? {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let len = data.len();
                now = data;
                now.copy_from_slice(&self.buf[self.start..self.start + len]);
                self.start += len;
                return Ok(());
            }
            match link.read(data)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => data = &mut data[more..],
            }
        }
        Ok(())
    }

    fn has_some(&self) -> bool {
        self.end > self.start
    }

    /// The next request, if it is there whole.
    fn peek(&self) -> Option<Request> {
        let (request, rest) = self.buf[self.start..self.end].split_first_chunk()?;
        let request = Request::from_bytes(request)?;
        (rest.len() >= request.payload() as usize).then_some(request)
    }
}

impl Room {
    fn take(&self, bytes: usize) {
        let mut free = lock(&self.free);
        while *free < bytes {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= bytes;
    }

    fn give(&self, bytes: usize) {
        *lock(&self.free) += bytes;
        self.freed.notify_one();
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
}

/// Bytes that are in memory while a request is worked on.
fn held(request: &Request) -> usize {
    let moves = matches!(request.command, Ok(Command::Read | Command::Write)) && request.len <= MAX_PAYLOAD;
    if moves { request.len as usize } else { 0 }
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
        _ => errors::EIO,
    }
}

/// What is read from the socket at once. Large writes' data mostly does not go through this buffer.
const READ_AHEAD: usize = 16 * 1024;

/// A request of so many bytes is worth waking another thread, which takes some microseconds.
const LARGE: u32 = 32 * 1024;

/// A device that takes so many nanoseconds for a request is worth it for any.
const SLOW: u64 = 100_000;

/// Answers wait for each other until there are so many bytes of them.
const MOST_TOGETHER: usize = 64 * 1024;

/// A client asks again for what did not fit.
const MOST_EXTENTS: usize = 2048;

/// Lines about one client.
const MOST_LOGGED: usize = 200;

const HOLE: u32 = 1;
const ZERO: u32 = 2;
