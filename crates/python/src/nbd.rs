//! Devices offered over NBD.

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use casemate::nbd::Listener;
use casemate::serve::{ServeOptions, Service};
use casemate::{Error, Image};
use pyo3::prelude::*;

use crate::device::Device;
use crate::error::raise;

/// Where clients find a server: a Unix socket's path, or a host and a port.
#[derive(FromPyObject)]
pub enum Address {
    Socket(PathBuf),
    Tcp(String, u16),
}

/// A server that runs until it is stopped.
#[pyclass(frozen, module = "casemate._casemate")]
pub struct Server(Mutex<Option<Service>>);

fn listener(address: Address, allow_remote: bool) -> Result<Listener, Error> {
    match address {
        Address::Socket(path) => Listener::unix(&path).map_err(|error| Error::io(path.display(), error)),
        Address::Tcp(host, port) => {
            let name = format!("{host}:{port}");
            let found = (&*host, port).to_socket_addrs().map(|mut found| found.next());
            let found = found.and_then(|found| found.ok_or_else(|| std::io::ErrorKind::NotFound.into()));
            let found = found.map_err(|error| Error::io(&name, error))?;
            if !allow_remote && !found.ip().is_loopback() {
                let text = "not an address of this machine alone, and connections are not encrypted: allow_remote=True serves others";
                return Err(Error::argument(text).at(name));
            }
            Listener::tcp(found).map_err(|error| Error::io(name, error))
        }
    }
}

#[pymethods]
impl Server {
    #[new]
    fn new(
        py: Python<'_>,
        device: &Device,
        address: Address,
        name: String,
        allow_remote: bool,
    ) -> PyResult<Server> {
        let mut options = ServeOptions::default();
        options.export_name = name;
        let image: &Image = device.image();
        let serve = || listener(address, allow_remote).and_then(|listener| image.serve(listener, &options));
        py.detach(serve).map(|service| Server(Mutex::new(Some(service)))).map_err(raise)
    }

    /// The URI that clients take; `None` once the server has stopped.
    #[getter]
    fn uri(&self) -> Option<String> {
        self.with(|service| service.uris().first().cloned()).flatten()
    }

    #[getter]
    fn clients(&self) -> usize {
        self.with(Service::clients).unwrap_or(0)
    }

    /// Accepts no more clients, answers the requests that have arrived, and puts everything on stable storage.
    fn stop(&self, py: Python<'_>, patience: f64) -> PyResult<()> {
        let patience = Duration::try_from_secs_f64(patience)
            .map_err(|error| raise(Error::argument(format!("patience: {error}"))))?;
        let service = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| service.map_or(Ok(()), |service| service.stop(patience))).map_err(raise)
    }
}

impl Server {
    fn with<T>(&self, ask: impl FnOnce(&Service) -> T) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(ask)
    }
}
