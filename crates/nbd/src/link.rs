//! Links to clients: a Unix or TCP socket each, with TLS or without.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustls::{ServerConfig, ServerConnection};

/// A socket of either kind.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A socket that one thread reads while others write.
pub(crate) struct Link {
    stream: Stream,
    tls: Option<Mutex<ServerConnection>>,
    /// Bytes that came and were not decrypted yet.
    came: Mutex<Vec<u8>>,
    turn: Mutex<Turn>,
    returned: Condvar,
    /// The number of threads that wait for the client to take or send bytes.
    waiting: AtomicUsize,
}

/// A thread's wait for the client, which ends when this is dropped.
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

/// The turn to send, so that replies do not mix: the thread that holds the buffer that TLS seals into has it.
struct Turn {
    sealed: Option<Vec<u8>>,
    waiting: usize,
}

/// A reply that is being sent.
pub(crate) struct Sending<'a> {
    link: &'a Link,
    /// Bytes of the reply that were sent, or sealed.
    done: usize,
    /// The buffer of sealed bytes; `None` until it is this thread's turn.
    sealed: Option<Vec<u8>>,
    /// Bytes of `sealed` that were sent.
    sealed_done: usize,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Stream {
    fn each<T>(&self, unix: impl FnOnce(&UnixStream) -> T, tcp: impl FnOnce(&TcpStream) -> T) -> T {
        match self {
            Stream::Unix(stream) => unix(stream),
            Stream::Tcp(stream) => tcp(stream),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&*stream).read(buf),
            Stream::Tcp(stream) => (&*stream).read(buf),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&*stream).write(buf),
            Stream::Tcp(stream) => (&*stream).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Link {
    /// A `roomy` Unix socket takes some large replies, so that the server and the client rarely wait for each other.
    pub(crate) fn new(stream: Stream, roomy: bool) -> Link {
        if let Stream::Tcp(stream) = &stream {
            // Replies are sent whole; waiting for more to send helps nobody. Without it everything works too.
            let _ = stream.set_nodelay(true);
        }
        if let (Stream::Unix(stream), true) = (&stream, roomy) {
            // The system may allow less, which does no harm. TCP finds the right size itself.
            let _ = set_socket_send_buffer_size(stream, SEND_BUFFER);
        }
        let turn = Mutex::new(Turn { sealed: Some(Vec::new()), waiting: 0 });
        Link {
            stream,
            tls: None,
            came: Mutex::default(),
            turn,
            returned: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Does TLS's handshake, to be over at `deadline`.
    pub(crate) fn secure(&mut self, config: &Arc<ServerConfig>, deadline: Instant) -> io::Result<()> {
        let mut tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        tls.set_buffer_limit(None);
        let mut timed = Timed { stream: &self.stream, deadline };
        while tls.is_handshaking() {
            tls.complete_io(&mut timed)?;
        }
        while tls.wants_write() {
            tls.write_tls(&mut timed)?;
        }
        self.tls = Some(Mutex::new(tls));
        Ok(())
    }

    /// Fills `buf`, or fails at `deadline`.
    pub(crate) fn read_exact_until(&self, mut buf: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !buf.is_empty() {
            self.set_timeout(deadline)?;
            match self.read(buf)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                len => buf = &mut buf[len..],
            }
        }
        Ok(())
    }

    /// Reads and writes wait no longer than until `deadline`.
    fn set_timeout(&self, deadline: Instant) -> io::Result<()> {
        set_timeout(&self.stream, deadline)
    }

    /// Reads and writes wait for ever from now on.
    pub(crate) fn no_timeout(&self) -> io::Result<()> {
        let both = |read: io::Result<()>, write: io::Result<()>| read.and(write);
        self.stream.each(
            |stream| both(stream.set_read_timeout(None), stream.set_write_timeout(None)),
            |stream| both(stream.set_read_timeout(None), stream.set_write_timeout(None)),
        )
    }

    /// Reads the bytes that have come, at least one; 0 at the end. One thread at a time may call this.
    pub(crate) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return read_some(&self.stream, buf) };
        let mut came = lock(&self.came);
        loop {
            let mut answer = false;
            {
                let mut tls = lock(tls);
                loop {
                    match tls.reader().read(buf) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        result => return result,
                    }
                    if came.is_empty() {
                        break;
                    }
                    // It takes only as much as it has room for.
                    let mut input = &came[..];
                    let taken = tls.read_tls(&mut input)?;
                    came.drain(..taken);
                    tls.process_new_packets()
                        .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
                    answer |= tls.wants_write();
                }
            }
            if answer {
                self.send(&[])?;
            }
            came.resize(TLS_INPUT, 0);
            let len = read_some(&self.stream, &mut came);
            came.truncate(*len.as_ref().unwrap_or(&0));
            if len? == 0 {
                // Tells TLS that nothing follows, so that it says whether that was announced.
                lock(tls).read_tls(&mut io::empty())?;
            }
        }
    }

    /// Sends all of `bytes`, not mixed with what other threads send.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.sending().finish(bytes)
    }

    /// Sends `bytes`, unless there is a wait longer than `patience` for the client or other threads. Then what is left
    /// is for [`Sending::finish`].
    pub(crate) fn send_soon(&self, bytes: &[u8], patience: Duration) -> io::Result<Option<Sending<'_>>> {
        let mut sending = self.sending();
        Ok(if sending.go_on(bytes, Some(patience))? { None } else { Some(sending) })
    }

    fn sending(&self) -> Sending<'_> {
        Sending { link: self, done: 0, sealed: None, sealed_done: 0 }
    }

    /// Waits for the turn to send. `None` if that takes longer than `patience`.
    fn take_turn(&self, patience: Option<Duration>) -> Option<Vec<u8>> {
        let mut turn = lock(&self.turn);
        let mut patient = true;
        loop {
            if let Some(sealed) = turn.sealed.take() {
                return Some(sealed);
            }
            if !patient {
                return None;
            }
            turn.waiting += 1;
            turn = match patience {
                None => self.returned.wait(turn).unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    let (turn, timeout) =
                        self.returned.wait_timeout(turn, patience).unwrap_or_else(PoisonError::into_inner);
                    patient = !timeout.timed_out();
                    turn
                }
            };
            turn.waiting -= 1;
        }
    }

    /// Sends at least one of `bytes`. `None` if the client makes no room within `patience`.
    fn send_some(&self, bytes: &[u8], patience: Option<Duration>) -> io::Result<Option<usize>> {
        let wait = if patience.is_some() { SendFlags::DONTWAIT } else { SendFlags::empty() };
        let flags = wait | SendFlags::NOSIGNAL;
        loop {
            let sent = self.stream.each(
                |stream| rustix::net::send(stream, bytes, flags),
                |stream| rustix::net::send(stream, bytes, flags),
            );
            match (sent, patience) {
                (Ok(sent), _) => return Ok(Some(sent)),
                (Err(Errno::INTR), _) => {}
                (Err(Errno::AGAIN), Some(patience)) => {
                    let fd = self.stream.fd();
                    // OK to unwrap: it is a few milliseconds.
                    let patience = patience.try_into().expect("a short time");
                    match rustix::event::poll(
                        &mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)],
                        Some(&patience),
                    ) {
                        Ok(0) => return Ok(None),
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                (Err(error), _) => return Err(error.into()),
            }
        }
    }

    /// Notes that this thread waits until the client has taken or sent something.
    pub(crate) fn waiting(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.waiting)
    }

    /// Whether any thread waits for the client.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether bytes have come that were not read.
    pub(crate) fn has_more(&self) -> bool {
        rustix::io::ioctl_fionread(self.stream.fd()).is_ok_and(|bytes| bytes > 0)
    }

    /// Sends TLS's closing alert, if the connection is encrypted.
    pub(crate) fn close(&self) {
        if let Some(tls) = &self.tls {
            lock(tls).send_close_notify();
            // The client may be gone already.
            let _ = self.send(&[]);
        }
        self.shut(Shutdown::Both);
    }

    /// Ends one direction or both; threads that wait for it are woken.
    pub(crate) fn shut(&self, how: Shutdown) {
        // Fails if the client has closed it already.
        let _ = self.stream.each(|stream| stream.shutdown(how), |stream| stream.shutdown(how));
    }
}

impl Sending<'_> {
    /// Sends the rest of `bytes`, however long that takes.
    pub(crate) fn finish(mut self, bytes: &[u8]) -> io::Result<()> {
        self.go_on(bytes, None).map(drop)
    }

    /// Sends the rest of `bytes`; `false` if there was a wait longer than `patience`.
    fn go_on(&mut self, bytes: &[u8], patience: Option<Duration>) -> io::Result<bool> {
        let link = self.link;
        if self.sealed.is_none() {
            self.sealed = link.take_turn(patience);
        }
        let Some(sealed) = &mut self.sealed else { return Ok(false) };
        let Some(tls) = &link.tls else {
            while self.done < bytes.len() {
                match link.send_some(&bytes[self.done..], patience)? {
                    Some(sent) => self.done += sent,
                    None => return Ok(false),
                }
            }
            return Ok(true);
        };
        loop {
            while self.sealed_done < sealed.len() {
                match link.send_some(&sealed[self.sealed_done..], patience)? {
                    Some(sent) => self.sealed_done += sent,
                    None => return Ok(false),
                }
            }
            sealed.clear();
            self.sealed_done = 0;
            // Also without any bytes: TLS may have something to say.
            let now = &bytes[self.done..bytes.len().min(self.done + TLS_CHUNK)];
            let mut tls = lock(tls);
            tls.writer().write_all(now)?;
            while tls.wants_write() {
                tls.write_tls(&mut *sealed)?;
            }
            self.done += now.len();
            if sealed.is_empty() {
                return Ok(true);
            }
        }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(mut sealed) = self.sealed.take() {
            // Something is left if the client is gone.
            sealed.clear();
            let mut turn = lock(&self.link.turn);
            turn.sealed = Some(sealed);
            // To wake nobody would cost a system call for each reply.
            if turn.waiting > 0 {
                self.link.returned.notify_one();
            }
        }
    }
}

/// A socket for a handshake that must end in time.
struct Timed<'a> {
    stream: &'a Stream,
    deadline: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        set_timeout(self.stream, self.deadline)?;
        let mut stream = self.stream;
        stream.read(buf)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        set_timeout(self.stream, self.deadline)?;
        let mut stream = self.stream;
        stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn set_timeout(stream: &Stream, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left < Duration::from_millis(1) {
        return Err(ErrorKind::TimedOut.into());
    }
    stream.each(
        |stream| stream.set_read_timeout(Some(left)).and(stream.set_write_timeout(Some(left))),
        |stream| stream.set_read_timeout(Some(left)).and(stream.set_write_timeout(Some(left))),
    )
}

fn read_some(mut stream: &Stream, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(buf) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that are read before they are decrypted: about a TLS record.
const TLS_INPUT: usize = 16 * 1024;

/// Bytes that are encrypted before they are sent: what a core's cache holds.
const TLS_CHUNK: usize = 64 * 1024;

/// Bytes that a Unix socket may hold.
const SEND_BUFFER: usize = 1 << 20;
