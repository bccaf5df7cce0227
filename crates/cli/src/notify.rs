//! Messages to a service manager, as sd_notify(3) sends them, where `NOTIFY_SOCKET` names one.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// The service manager, if there is one that wants to hear.
pub struct Manager(Option<(UnixDatagram, SocketAddr)>);

impl Manager {
    /// The one that `NOTIFY_SOCKET` names: a path, or with an "@" a name that no file has.
    pub fn of_environment() -> Manager {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Manager(None) };
        let address = match name.as_bytes() {
            [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
            [b'/', ..] => SocketAddr::from_pathname(Path::new(&name)),
            _ => return Manager(None),
        };
        Manager(address.and_then(|address| Ok((UnixDatagram::unbound()?, address))).ok())
    }

    /// No service manager: that of a command which went to the background waits for the process that it started.
    pub fn none() -> Manager {
        Manager(None)
    }

    /// Reports that clients can connect, or files are there, with a few words on it.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\n{}", state(status)));
    }

    /// Reports that the end has begun.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=ending\n");
    }

    fn tell(&self, text: &str) {
        if let Some((socket, address)) = &self.0 {
            // A manager that does not listen is not waited for, as libsystemd has it.
            let _ = socket.set_nonblocking(true).and_then(|()| socket.send_to_addr(text.as_bytes(), address));
        }
    }
}

/// A line of the protocol; names of images may have any characters.
fn state(status: &str) -> String {
    format!("STATUS={}\n", crate::streams::visible(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_line_end_is_one_line() {
        assert_eq!(state("a\nREADY=1"), "STATUS=a?READY=1\n");
    }
}
