//! The server: many clients of some exports at once.

use std::collections::HashSet;
use std::io;
use std::net::Shutdown;
use std::process;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use casemate_blockdev::check_process;

use crate::connection::Connection;
use crate::export::Export;
use crate::link::Link;
use crate::listener::Listener;
use crate::log::Log;
use crate::shared::{Limits, Present, STACK, Shared};
use crate::tls::Tls;

/// A server of one or more exports, at work until [`Server::stop`].
pub struct Server {
    shared: Arc<Shared>,
    listener: Arc<Listener>,
    accepting: JoinHandle<()>,
    /// The process that has the threads, and with them the server.
    process: u32,
}

impl Server {
    /// Starts a server that lets clients in, each to the export whose name it asks for. `log` hears, from any thread, a
    /// line about each fault.
    ///
    /// # Errors
    /// `InvalidInput` for no export at all, and for two of one name; the system's error, if no thread can be started.
    pub fn start(
        listener: Listener,
        exports: Vec<Arc<Export>>,
        tls: Tls,
        limits: Limits,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<Server> {
        let names: HashSet<&str> = exports.iter().map(|export| &*export.description().name).collect();
        if names.is_empty() || names.len() < exports.len() {
            let text = "a server needs at least one export, each with a name of its own";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let shared = Arc::new(Shared::new(exports, tls, limits, Log::new(Box::new(log))));
        let listener = Arc::new(listener);
        let accepting = {
            let (shared, listener) = (Arc::clone(&shared), Arc::clone(&listener));
            thread::Builder::new().name("accept".to_owned()).spawn(move || accept(&listener, &shared))?
        };
        Ok(Server { shared, listener, accepting, process: process::id() })
    }

    /// Stops the server: lets no more clients in, answers the requests that have come, and puts everything
    /// that was written on stable storage. Clients that do not take their answers within `patience` are cut
    /// off. A child that `fork` made of the process does nothing here: the server goes on in the parent.
    ///
    /// # Errors
    /// The error of the last flush of an export.
    pub fn stop(self, patience: Duration) -> io::Result<()> {
        if check_process(self.process).is_err() {
            // The child has the listening socket, too, and none of the threads.
            std::mem::forget(self);
            return Ok(());
        }
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.listener.stop();
        // Only a panic could make this fail, and then there is nobody to be waited for.
        let _ = self.accepting.join();
        self.shared.shut(Shutdown::Read);
        if !self.shared.wait_for_clients(patience) {
            self.shared.shut(Shutdown::Both);
            self.shared.wait_for_clients(patience);
        }
        // Each of them, whatever becomes of another.
        let exports = self.shared.exports.iter().filter(|export| !export.is_read_only());
        let flushed: Vec<io::Result<()>> = exports.map(|export| export.flush()).collect();
        flushed.into_iter().collect()
    }

    /// The number of clients at this moment; a child that `fork` made has none.
    pub fn clients(&self) -> usize {
        if check_process(self.process).is_err() {
            return 0;
        }
        self.shared.clients()
    }
}

fn accept(listener: &Listener, shared: &Arc<Shared>) {
    let mut turned_away = 0u64;
    loop {
        let accepted = listener.accept();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: clients that leave make room.
                shared.log(&format!("a client could not be let in: {error}"));
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let Some(number) = shared.enter() else {
            turned_away += 1;
            if turned_away == 1 {
                let most = shared.limits.clients;
                shared.log(&format!("clients are refused from now on: {most} are connected"));
            }
            continue;
        };
        if turned_away > 0 {
            shared.log(&format!("clients are let in again; {turned_away} were refused"));
            turned_away = 0;
        }
        let client = {
            let shared = Arc::clone(shared);
            move || {
                let present = Present(&shared, number);
                Connection::run(present.0, number, Link::new(stream, !shared.is_crowded()));
            }
        };
        let builder = thread::Builder::new().name(format!("client {number}")).stack_size(STACK);
        if let Err(error) = builder.spawn(client) {
            shared.leave(number);
            shared.log(&format!("client {number} was refused: {error}"));
        }
    }
}
