//! NBD: devices offered to clients.

use std::ffi::{CString, c_char};
use std::net::ToSocketAddrs;
use std::ptr;
use std::time::Duration;

use casemate::nbd::Listener;
use casemate::serve::{ServeOptions, Service};
use casemate::{Error, Image};

use crate::boundary::{Status, YES, c_path, free, get, give, place, text};
use crate::device::CDevice;
use crate::error::{CError, run};

/// An NBD server.
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

/// Serves a device over NBD on a Unix socket, with threads of its own, until the server is stopped. Clients may
/// write if the device is writable.
///
/// @param device the device; the caller may free it
/// @param socket path of the socket on the host
/// @param name name of the export; NULL is the empty name
/// @param server where the server is stored; the caller ends it with casemate_server_stop() and frees it with
///   casemate_server_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
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

/// Serves a device over NBD on a TCP port, as casemate_server_unix() does on a socket. Connections are not
/// encrypted: with a host that is not loopback, whoever reaches the port reads the device, and writes it if it is writable.
///
/// @param device the device; the caller may free it
/// @param host address to listen on; NULL is localhost
/// @param port port to listen on; 0 picks a free one
/// @param name name of the export; NULL is the empty name
/// @param server where the server is stored; the caller ends it with casemate_server_stop() and frees it with
///   casemate_server_free()
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
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

/// Returns the address for clients, such as "nbd+unix:///?socket=/run/disk.sock".
///
/// @param server the server
/// @return a string that lives as long as the server; NULL for NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_server_uri(server: *const CServer) -> *const c_char {
    // SAFETY: the header says what this pointer is.
    unsafe { server.as_ref() }.map_or(ptr::null(), |server| server.uri.as_ptr())
}

/// Accepts no more clients, answers the requests that have arrived, and flushes the device to stable storage.
/// The handle must still be freed.
///
/// @param server the server
/// @param patience_ms time in milliseconds for clients to take their replies; then they are disconnected
/// @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
/// @return CASEMATE_YES, or the status of `error`
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

/// Frees a server. One that is running is stopped at once.
///
/// @param server a server, or NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn casemate_server_free(server: *mut CServer) {
    // SAFETY: the header says what this pointer is.
    unsafe { free(server) }
}
