//! NBD: devices offered to clients.

use std::ffi::{CString, c_char};
use std::net::ToSocketAddrs;
use std::ptr;
use std::time::Duration;

use casemate::nbd::Listener;
use casemate::serve::{ServeOptions, Service};
use casemate::{Error, Image};

use crate::boundary::{Status, YES, c_path, free, get, give, place, run, text};
use crate::device::CDevice;
use crate::error::CError;

/// A server, until it is stopped.
pub struct CServer {
    service: Option<Service>,
    uri: CString,
}

impl CServer {
    fn start(image: &Image, listener: Listener, name: Option<&str>) -> Result<CServer, Error> {
        let mut options = ServeOptions::default();
        name.unwrap_or_default().clone_into(&mut options.export_name);
        let service = image.serve(listener, &options)?;
        // A URI has no zero: it is percent-encoded.
        let uri = CString::new(service.uris().concat()).unwrap_or_default();
        Ok(CServer { service: Some(service), uri })
    }
}

impl Drop for CServer {
    fn drop(&mut self) {
        // Whoever wants to hear of errors has stopped it.
        self.service.take().map(|service| service.stop(Duration::ZERO));
    }
}

/// Offers a device at a Unix socket's path, on threads of its own, until it is stopped; clients write if the device
/// is writable. `name` is the export's; NULL is the empty one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_server_unix(
    device: *const CDevice,
    socket: *const c_char,
    name: *const c_char,
    server: *mut *mut CServer,
    error: *mut *mut CError,
) -> Status {
    let start = || {
        // SAFETY: the header says what these pointers are.
        let (device, socket) = unsafe { (get(device, "device")?, c_path(socket, "socket")?) };
        // SAFETY: the header says what these pointers are.
        let (name, server) = unsafe { (text(name, "name")?, place(server, "server")?) };
        let listener = Listener::unix(socket).map_err(|error| Error::io(socket.display(), error))?;
        Ok(give(server, CServer::start(&device.0, listener, name)?))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, start) }
}

/// The same at a port of a host, NULL being localhost; port 0 is one that is free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_server_tcp(
    device: *const CDevice,
    host: *const c_char,
    port: u16,
    name: *const c_char,
    server: *mut *mut CServer,
    error: *mut *mut CError,
) -> Status {
    let start = || {
        // SAFETY: the header says what these pointers are.
        let (device, host) = unsafe { (get(device, "device")?, text(host, "host")?) };
        // SAFETY: the header says what these pointers are.
        let (name, server) = unsafe { (text(name, "name")?, place(server, "server")?) };
        let host = host.unwrap_or("localhost");
        let found = (host, port).to_socket_addrs().map(|mut found| found.next());
        let found = found.and_then(|found| found.ok_or_else(|| std::io::ErrorKind::NotFound.into()));
        let listener = found.and_then(Listener::tcp);
        let listener = listener.map_err(|error| Error::io(format!("{host}:{port}"), error))?;
        Ok(give(server, CServer::start(&device.0, listener, name)?))
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, start) }
}

/// Where clients find the device: it lives as long as the server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_server_uri(server: *const CServer) -> *const c_char {
    // SAFETY: the header says what this pointer is.
    unsafe { server.as_ref() }.map_or(ptr::null(), |server| server.uri.as_ptr())
}

/// Lets nobody in any more, answers what was asked, and waits for stable storage. Clients that do not take their
/// answers within so many milliseconds are cut off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_server_stop(
    server: *mut CServer,
    patience_ms: u32,
    error: *mut *mut CError,
) -> Status {
    let stop = || {
        // SAFETY: the header says what this pointer is.
        let service = unsafe { place(server, "server")? }.service.take();
        service.map_or(Ok(()), |service| service.stop(Duration::from_millis(patience_ms.into())))?;
        Ok(YES)
    };
    // SAFETY: the header says what this pointer is.
    unsafe { run(error, stop) }
}

/// Stops a server that was not stopped, without patience.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_server_free(server: *mut CServer) {
    // SAFETY: the header says what this pointer is.
    unsafe { free(server) }
}
