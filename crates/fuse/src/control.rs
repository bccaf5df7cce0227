//! The socket by which keys of encrypted files come and go while a folder is mounted.
//!
//! A request is a line: `status`; `add LENGTH`, or `add LENGTH DESCRIPTOR` for a key that policies of version 1 call so, with
//! the key's bytes behind it; or `remove ID`. The answer is `ok`, with a line for each name of a key behind it, or a line
//! `error TEXT`. Who is neither root nor the user that mounted is answered nothing.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

use casemate::fscrypt::KeyId;
use casemate::{Error, SecretVec};

use crate::kernel::Kernel;
use crate::tree::Tree;

/// How long somebody may take to say what he wants.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of a request's line, and of a key.
const LONGEST_LINE: u64 = 200;
const LONGEST_KEY: usize = 64;

/// Clients that may wait to be heard.
const MOST_WAITING: i32 = 16;

/// A socket that nobody answers yet.
pub struct Control {
    listener: UnixListener,
    bound: Bound,
}

/// The name of a socket, which is removed when this is dropped.
pub struct Bound {
    path: PathBuf,
    inode: u64,
}

impl Drop for Bound {
    fn drop(&mut self) {
        // By now another process may have put its own there.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Control {
    /// Makes a socket, in place of one that nobody answers any more.
    ///
    /// # Errors
    /// `Busy` if a process answers there; `Argument` if the name is that of something else than a socket; `Io`.
    pub fn bind(path: &Path) -> Result<Control, Error> {
        let at = |error| Error::io(path.display(), error);
        let is_socket = || std::fs::symlink_metadata(path).map(|found| found.file_type().is_socket());
        let listener = match listen(path) {
            // A dead socket can be replaced. Nothing else that has the name is ours to remove.
            Err(error) if error.kind() == ErrorKind::AddrInUse && !is_socket().map_err(at)? => {
                return Err(Error::argument(format!(
                    "{}: exists and is not a socket; name another file for the socket, or remove this one first",
                    path.display()
                )));
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                match UnixStream::connect(path) {
                    Ok(_) => {
                        return Err(Error::busy(format!(
                            "{}: another process listens on this socket",
                            path.display()
                        )));
                    }
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                    Err(error) => return Err(at(error)),
                }
                std::fs::remove_file(path).map_err(at)?;
                listen(path)
            }
            bound => bound,
        };
        let listener = listener.map_err(at)?;
        let inode = std::fs::symlink_metadata(path).map_err(at)?.ino();
        Ok(Control { listener, bound: Bound { path: path.to_owned(), inode } })
    }

    /// Answers from now on, one after the other.
    pub fn serve(self, tree: Arc<Tree>, kernel: Kernel) -> Result<Bound, Error> {
        let Control { listener, bound } = self;
        let serve = move || {
            for stream in listener.incoming() {
                // Whoever hangs up has nobody to be told.
                let _ = stream.and_then(|stream| answer(&stream, &tree, &kernel));
            }
        };
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(serve);
        thread.map_err(|error| Error::io("a thread", error))?;
        Ok(bound)
    }
}

/// Listens at a socket that is made, for this user alone from the first moment on: by its name it might be another file's
/// mode that is changed, in a folder that others can write.
fn listen(path: &Path) -> std::io::Result<UnixListener> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, MOST_WAITING)?;
    Ok(socket.into())
}

fn answer(mut stream: &UnixStream, tree: &Tree, kernel: &Kernel) -> std::io::Result<()> {
    let user = rustix::net::sockopt::socket_peercred(stream)?.uid;
    if !user.is_root() && user != rustix::process::getuid() {
        return Ok(());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = match answered(stream, tree, kernel) {
        Ok(()) => "ok\n".to_owned(),
        Err(error) => format!("error {}\n", error.to_string().replace('\n', " ")),
    };
    if text.starts_with("ok") {
        tree.keys().ids().iter().for_each(|id| text += &format!("{} {id}\n", id.kind()));
    }
    stream.write_all(text.as_bytes())
}

fn answered(stream: &UnixStream, tree: &Tree, kernel: &Kernel) -> Result<(), Error> {
    let failed = |error| Error::io("the request", error);
    // Nothing of a key is left in a buffer: what lies behind the line is read by itself.
    let mut line = Vec::new();
    BufReader::with_capacity(1, stream).take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(failed)?;
    let line = String::from_utf8_lossy(&line).into_owned();
    let words: Vec<&str> = line.split_whitespace().collect();
    let malformed = || Error::argument("the request is not known");
    let id = |text: &str| KeyId::from_hex(text).ok_or_else(malformed);
    match words[..] {
        ["status"] => Ok(()),
        ["add", len, ref descriptor @ ..] if descriptor.len() < 2 => {
            let len = len.parse().ok().filter(|len| *len <= LONGEST_KEY).ok_or_else(malformed)?;
            let descriptor = match descriptor.first().map(|text| id(text)).transpose()? {
                Some(KeyId::Descriptor(descriptor)) => Some(descriptor),
                Some(_) => return Err(malformed()),
                None => None,
            };
            let mut key = SecretVec::zeroed(len);
            let mut stream = stream;
            stream.read_exact(key.expose_mut()).map_err(failed)?;
            tree.keys().add(descriptor, key)?;
            tree.forget_encrypted(kernel);
            Ok(())
        }
        ["remove", text] => {
            let id = id(text)?;
            match tree.remove_key(&id, kernel) {
                true => Ok(()),
                false => Err(Error::argument(format!("there is no key with {} {id}", id.kind()))),
            }
        }
        _ => Err(malformed()),
    }
}
