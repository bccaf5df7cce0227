//! Keys of a mounted folder, from outside.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use casemate::fscrypt::{KeyDescriptor, KeyId};
use casemate::{Advice, Error, SecretVec};

use crate::mounts::{Mounted, full_path};
use crate::tree::CONTROL;

/// The longest name of a socket.
const LONGEST: usize = 4096;

/// The keys that a mounted folder shows encrypted files with.
#[derive(Clone, Debug)]
pub struct FolderKeys {
    folder: PathBuf,
    socket: PathBuf,
    /// The user who mounted the folder: a listener of another user is told nothing.
    user: Option<u32>,
}

impl FolderKeys {
    /// The keys of a folder that is mounted with a socket for them.
    ///
    /// # Errors
    /// `Argument` if nothing of this program is mounted there, or without such a socket.
    pub fn of(folder: &Path) -> Result<FolderKeys, Error> {
        let path = full_path(folder)?;
        let Some(mounted) = Mounted::on(&path)?.filter(Mounted::is_ours) else {
            return Err(Error::argument(format!(
                "{}: nothing of casemate is mounted here",
                folder.display()
            )));
        };
        let mut text = vec![0; LONGEST];
        let len = rustix::fs::getxattr(&path, CONTROL, &mut text).map_err(|_| {
            let text = "was mounted without a control socket, so its keys can't be changed";
            Error::argument(format!("{}: {text}", folder.display())).advise(Advice::Control)
        })?;
        let socket = PathBuf::from(OsStr::from_bytes(&text[..len.min(LONGEST)]));
        Ok(FolderKeys { folder: folder.to_owned(), socket, user: mounted.user })
    }

    /// Adds a raw master key, under a descriptor of the caller's choice if there is one: the names of all keys then.
    ///
    /// # Errors
    /// Errors of the process that serves the folder; `Io`.
    pub fn add(&self, descriptor: Option<KeyDescriptor>, key: &SecretVec) -> Result<Vec<KeyId>, Error> {
        let descriptor = descriptor.map(|descriptor| format!(" {}", KeyId::from(descriptor)));
        let line = format!("add {}{}\n", key.expose().len(), descriptor.unwrap_or_default());
        self.ask(&line, key.expose())
    }

    /// Removes the key that a policy names: the names of all keys then.
    ///
    /// # Errors
    /// As [`FolderKeys::add`]; if there is no such key.
    pub fn remove(&self, id: &KeyId) -> Result<Vec<KeyId>, Error> {
        self.ask(&format!("remove {id}\n"), &[])
    }

    /// The names of all keys.
    ///
    /// # Errors
    /// As [`FolderKeys::add`].
    pub fn list(&self) -> Result<Vec<KeyId>, Error> {
        self.ask("status\n", &[])
    }

    fn ask(&self, line: &str, key: &[u8]) -> Result<Vec<KeyId>, Error> {
        let at = |error| Error::io(self.socket.display(), error);
        let mut stream = UnixStream::connect(&self.socket).map_err(at)?;
        let listener = rustix::net::sockopt::socket_peercred(&stream).map_err(|error| at(error.into()))?.uid;
        if !listener.is_root() && Some(listener.as_raw()) != self.user {
            let text = "the process that listens there does not belong to the user that mounted the folder; nothing was sent";
            return Err(Error::argument(text).at(self.socket.display()).within(self.folder.display()));
        }
        // Who may not ask is not listened to, and hears nothing.
        let is_closed =
            |error: &io::Error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
        let asked = stream.write_all(line.as_bytes()).and_then(|()| stream.write_all(key));
        let mut lines = BufReader::new(stream).lines();
        let first = match asked.and_then(|()| lines.next().transpose()) {
            Err(error) if is_closed(&error) => None,
            first => first.map_err(at)?,
        };
        match first.as_deref() {
            Some("ok") => {}
            Some(text) => {
                let text = text.strip_prefix("error ").unwrap_or(text).to_owned();
                return Err(Error::argument(format!("{}: {text}", self.folder.display())));
            }
            None => {
                let text = "only root and the user that mounted it may read and change its keys";
                return Err(Error::argument(format!("{}: {text}", self.folder.display())));
            }
        }
        let ids = lines.map_while(Result::ok);
        Ok(ids.filter_map(|line| KeyId::from_hex(line.split_whitespace().nth(1)?)).collect())
    }
}
