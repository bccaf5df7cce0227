//! The way to one client: a Unix or TCP socket, with TLS or without.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SendFlags;
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
    /// What came and was not decrypted yet.
    came: Mutex<Vec<u8>>,
    /// Held while something is sent, so that replies do not mix. Holds what TLS made of it.
    sending: Mutex<Vec<u8>>,
}

/// How much was sent; nobody else sends while this is there and not 0.
pub(crate) struct Sent<'a> {
    pub(crate) bytes: usize,
    _sending: Option<MutexGuard<'a, Vec<u8>>>,
}

impl Stream {
    fn each<T>(&self, unix: impl FnOnce(&UnixStream) -> T, tcp: impl FnOnce(&TcpStream) -> T) -> T {
        match self {
            Stream::Unix(stream) => unix(stream),
            Stream::Tcp(stream) => tcp(stream),
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
    pub(crate) fn new(stream: Stream) -> Link {
        if let Stream::Tcp(stream) = &stream {
            // Replies are sent whole; waiting for more to send helps nobody. Without it everything works too.
            let _ = stream.set_nodelay(true);
        }
        Link { stream, tls: None, came: Mutex::default(), sending: Mutex::default() }
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

    /// Reads what is there, at least a byte; 0 at the end. One thread at a time may call this.
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

    /// Sends what can be sent without waiting for the client. What is left is for [`Link::finish`].
    pub(crate) fn begin(&self, bytes: &[u8]) -> io::Result<Sent<'_>> {
        let Ok(sending) = self.sending.try_lock() else { return Ok(Sent { bytes: 0, _sending: None }) };
        if self.tls.is_some() {
            return Ok(Sent { bytes: 0, _sending: None });
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = match &self.stream {
            Stream::Unix(stream) => rustix::net::send(stream, bytes, flags),
            Stream::Tcp(stream) => rustix::net::send(stream, bytes, flags),
        };
        match sent {
            Ok(sent) => Ok(Sent { bytes: sent, _sending: Some(sending) }),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Sent { bytes: 0, _sending: None }),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends the rest of `bytes`.
    pub(crate) fn finish(&self, bytes: &[u8], sent: Sent<'_>) -> io::Result<()> {
        match sent.bytes {
            0 => {
                drop(sent);
                self.send(bytes)
            }
            begun => (&self.stream).write_all(&bytes[begun..]),
        }
    }

    /// Sends all of `bytes`, not mixed with what other threads send.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut sending = lock(&self.sending);
        let Some(tls) = &self.tls else { return (&self.stream).write_all(bytes) };
        let mut rest = bytes;
        loop {
            let (now, later) = rest.split_at(rest.len().min(TLS_CHUNK));
            {
                let mut tls = lock(tls);
                tls.writer().write_all(now)?;
                while tls.wants_write() {
                    tls.write_tls(&mut *sending)?;
                }
            }
            (&self.stream).write_all(&sending)?;
            sending.clear();
            rest = later;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Whether more has come that was not read.
    pub(crate) fn has_more(&self) -> bool {
        let fd = match &self.stream {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        };
        rustix::io::ioctl_fionread(fd).is_ok_and(|bytes| bytes > 0)
    }

    /// Says farewell where TLS demands it.
    pub(crate) fn close(&self) {
        if let Some(tls) = &self.tls {
            lock(tls).send_close_notify();
            // The client may be gone already.
            let _ = self.send(&[]);
        }
        self.shut(Shutdown::Both);
    }

    /// Ends one direction or both; whoever waits for it is woken.
    pub(crate) fn shut(&self, how: Shutdown) {
        // Fails if the client has closed it already.
        let _ = self.stream.each(|stream| stream.shutdown(how), |stream| stream.shutdown(how));
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

/// How much is read before it is decrypted: about a record.
const TLS_INPUT: usize = 16 * 1024;

/// How much is encrypted before it is sent: what a core's cache holds.
const TLS_CHUNK: usize = 64 * 1024;
