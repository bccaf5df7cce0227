//! Listening sockets: Unix and TCP.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use casemate_blockdev::{FileId, check_process};
use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;

use crate::link::Stream;

/// A socket that waits for clients. Dropping a Unix socket removes its name, unless another socket has the
/// name by then.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: Address,
    /// The socket in the file system.
    bound: Option<FileId>,
    /// The process that made it: a child that `fork` made of that one does not remove the name.
    process: u32,
}

/// The address at which clients reach a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// An IP address and a TCP port.
    Tcp(SocketAddr),
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Held while the process's umask is another one.
static UMASK: Mutex<()> = Mutex::new(());

/// How long another server may take to make or to remove its socket.
const LONGEST_LOCK: Duration = Duration::from_secs(5);

impl Listener {
    /// Makes a Unix socket that nobody but this user can connect to. A socket that a dead server left is replaced.
    ///
    /// The process's umask is changed for a moment, so this is for the time before there are threads.
    ///
    /// # Errors
    /// `AddrInUse` if a server listens at `path`, or something lies there that is not a socket; `WouldBlock` if another process
    /// has had the folder locked for seconds.
    pub fn unix(path: &Path) -> io::Result<Listener> {
        // Nobody else may take a dead server's place meanwhile, nor believe that this one is dead before it listens.
        let _lock = lock_folder(path)?;
        let is_socket = path.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_socket());
        if is_socket
            && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        {
            std::fs::remove_file(path)?;
        }
        let umask = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(before);
        drop(umask);
        let bound = bound.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => {
                io::Error::new(error.kind(), "the path of a Unix socket has at most 107 bytes")
            }
            io::ErrorKind::AddrInUse if is_socket => {
                io::Error::new(error.kind(), "another server listens on this socket")
            }
            io::ErrorKind::AddrInUse => io::Error::new(error.kind(), "there is something else of this name"),
            _ => error,
        })?;
        let address = Address::Unix(std::path::absolute(path)?);
        Ok(Listener {
            socket: Socket::Unix(bound),
            address,
            bound: socket_at(path),
            process: std::process::id(),
        })
    }

    /// Listens on a TCP port; port 0 is any free one.
    ///
    /// # Errors
    /// The system's error, if the port can't be had.
    pub fn tcp(address: SocketAddr) -> io::Result<Listener> {
        Listener::given_tcp(TcpListener::bind(address)?)
    }

    /// A Unix socket that listens already, and whose name is somebody else's.
    ///
    /// # Errors
    /// `Unsupported` for one without a path.
    pub fn given_unix(listener: UnixListener) -> io::Result<Listener> {
        listener.set_nonblocking(false)?;
        let address = listener.local_addr()?;
        let path = address.as_pathname().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "the Unix socket has no path, and clients could not be told one",
            )
        })?;
        let address = Address::Unix(path.to_owned());
        Ok(Listener { socket: Socket::Unix(listener), address, bound: None, process: std::process::id() })
    }

    /// A TCP socket that listens already.
    ///
    /// # Errors
    /// The system's error.
    pub fn given_tcp(listener: TcpListener) -> io::Result<Listener> {
        listener.set_nonblocking(false)?;
        let address = Address::Tcp(listener.local_addr()?);
        Ok(Listener { socket: Socket::Tcp(listener), address, bound: None, process: std::process::id() })
    }

    /// The address that the socket listens at.
    pub fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match &self.socket {
            Socket::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
            Socket::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
        }
    }

    /// Stops accepting clients; [`Listener::accept`] fails from now on.
    pub(crate) fn stop(&self) {
        let fd = match &self.socket {
            Socket::Unix(listener) => listener.as_fd(),
            Socket::Tcp(listener) => listener.as_fd(),
        };
        // Nothing can fail here but a socket that is shut already.
        let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Both);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Somebody may have removed it already, and another server may listen under its name. The number is no one
        // else's as long as the socket is open.
        if let Address::Unix(path) = &self.address
            && self.bound.is_some()
            && check_process(self.process).is_ok()
        {
            let _lock = lock_folder(path);
            if socket_at(path) == self.bound {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Keeps other servers from making and removing sockets in the folder of `path`, until what is returned is dropped.
fn lock_folder(path: &Path) -> io::Result<Option<File>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Whoever may use a folder but not read it goes without the lock.
    let Ok(folder) = File::open(folder) else { return Ok(None) };
    let begin = Instant::now();
    loop {
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(folder)),
            Err(Errno::WOULDBLOCK) if begin.elapsed() < LONGEST_LOCK => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(Errno::WOULDBLOCK) => {
                let text = "another process has locked the folder of the socket";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
            }
            // Not every file system has locks.
            Err(_) => return Ok(None),
        }
    }
}

fn socket_at(path: &Path) -> Option<FileId> {
    path.symlink_metadata().ok().as_ref().map(FileId::of)
}

impl Address {
    /// The URI that clients take; `tls` for connections that begin with TLS, `export` for a name that is not empty.
    pub fn uri(&self, tls: bool, export: &str) -> String {
        let scheme = if tls { "nbds" } else { "nbd" };
        let export = percent(export.as_bytes());
        match self {
            Address::Unix(path) => {
                use std::os::unix::ffi::OsStrExt;
                format!("{scheme}+unix:///{export}?socket={}", percent(path.as_os_str().as_bytes()))
            }
            Address::Tcp(address) => format!("{scheme}://{address}/{export}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => path.display().fmt(f),
            Address::Tcp(address) => address.fmt(f),
        }
    }
}

/// Text in which bytes that a URI can't hold are `%` and two digits.
fn percent(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(*byte))
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use casemate_testkit::tempdir;

    use super::*;

    #[test]
    fn the_socket_is_private_and_goes_with_its_server() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("a socket");
        let listener = Listener::unix(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Listener::unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(listener.address().uri(false, "a b").ends_with("/a%20socket"));
        drop(listener);
        assert!(!path.exists());
        // One whose name was taken away leaves it to the next.
        let first = Listener::unix(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = Listener::unix(&path).unwrap();
        drop(first);
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);
        assert!(!path.exists());
        // What a killed server leaves behind.
        drop(UnixListener::bind(&path).unwrap());
        assert!(Listener::unix(&path).is_ok());
        std::fs::write(&path, "a file").unwrap();
        assert!(Listener::unix(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"a file");
    }

    #[test]
    fn addresses_become_uris() {
        let tcp = Address::Tcp("[::1]:10809".parse().unwrap());
        assert_eq!(tcp.uri(true, ""), "nbds://[::1]:10809/");
        assert_eq!(Address::Unix("/run/s?".into()).uri(false, "x"), "nbd+unix:///x?socket=/run/s%3F");
    }
}
