//! Many clients at once.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::ServerConfig;

use crate::connection::Connection;
use crate::export::Export;
use crate::link::{Link, lock};
use crate::listener::Listener;
use crate::protocol::TlsMode;

/// What one client, or all of them, may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at a time; more are turned away.
    pub clients: usize,
    /// Threads that work on one client's requests.
    pub threads: usize,
    /// Bytes of requests and replies that are held for one client, at least those of the largest request.
    pub memory: usize,
    /// How long negotiating may take.
    pub negotiation: Duration,
}

/// A server at work. It works until [`Server::stop`].
pub struct Server {
    shared: Arc<Shared>,
    listener: Arc<Listener>,
    accepting: JoinHandle<()>,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) export: Arc<Export>,
    pub(crate) tls: TlsMode,
    pub(crate) tls_config: Option<Arc<ServerConfig>>,
    pub(crate) limits: Limits,
    pub(crate) stopping: AtomicBool,
    log: Box<dyn Fn(&str) + Send + Sync>,
    clients: Mutex<Clients>,
    one_left: Condvar,
}

#[derive(Default)]
struct Clients {
    next: u64,
    /// Sockets by client number; those still negotiating have none yet.
    links: HashMap<u64, Option<Arc<Link>>>,
}

impl Default for Limits {
    fn default() -> Limits {
        let (clients, threads, memory) = (4096, 16, 64 << 20);
        Limits { clients, threads, memory, negotiation: Duration::from_secs(30) }
    }
}

impl Server {
    /// Begins to let clients in. `log` hears, from any thread, a line about each thing that goes wrong.
    ///
    /// # Errors
    /// `InvalidInput` if TLS is wanted and there is no configuration for it; what the system says.
    pub fn start(
        listener: Listener,
        export: Arc<Export>,
        tls: TlsMode,
        tls_config: Option<Arc<ServerConfig>>,
        limits: Limits,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<Server> {
        if tls != TlsMode::Off && tls_config.is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "TLS needs a certificate"));
        }
        let shared = Arc::new(Shared {
            export,
            tls,
            tls_config,
            limits,
            stopping: AtomicBool::new(false),
            log: Box::new(log),
            clients: Mutex::default(),
            one_left: Condvar::new(),
        });
        let listener = Arc::new(listener);
        let accepting = {
            let (shared, listener) = (Arc::clone(&shared), Arc::clone(&listener));
            thread::Builder::new().name("accept".to_owned()).spawn(move || accept(&listener, &shared))?
        };
        Ok(Server { shared, listener, accepting })
    }

    /// Lets nobody in any more, answers the requests that have come, and puts everything on stable storage. Clients
    /// that do not take their answers within `patience` are cut off.
    ///
    /// # Errors
    /// What the last flush says.
    pub fn stop(self, patience: Duration) -> io::Result<()> {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.listener.stop();
        // Only a panic could make this fail, and then there is nobody to be waited for.
        let _ = self.accepting.join();
        self.shared.shut(Shutdown::Read);
        if !self.shared.wait_for_clients(patience) {
            self.shared.shut(Shutdown::Both);
            self.shared.wait_for_clients(patience);
        }
        if self.shared.export.is_read_only() { Ok(()) } else { self.shared.export.flush() }
    }

    /// How many clients there are now.
    pub fn clients(&self) -> usize {
        lock(&self.shared.clients).links.len()
    }
}

impl Shared {
    pub(crate) fn log(&self, text: &str) {
        (self.log)(text);
    }

    /// Has `link` shut when the server stops. `false` if it stops already.
    pub(crate) fn register(&self, client: u64, link: &Arc<Link>) -> bool {
        lock(&self.clients).links.insert(client, Some(Arc::clone(link)));
        !self.stopping.load(Ordering::SeqCst)
    }

    fn enter(&self) -> Option<u64> {
        let mut clients = lock(&self.clients);
        if clients.links.len() >= self.limits.clients {
            return None;
        }
        let number = clients.next + 1;
        clients.next = number;
        clients.links.insert(number, None);
        Some(number)
    }

    fn leave(&self, client: u64) {
        lock(&self.clients).links.remove(&client);
        self.one_left.notify_all();
    }

    fn shut(&self, how: Shutdown) {
        lock(&self.clients).links.values().flatten().for_each(|link| link.shut(how));
    }

    /// Waits until all have left. Those who still negotiate are not waited for: nothing was promised to them.
    fn wait_for_clients(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut clients = lock(&self.clients);
        while clients.links.values().any(Option::is_some) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            clients = match self.one_left.wait_timeout(clients, left) {
                Ok((clients, _)) => clients,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        true
    }
}

/// Leaves when dropped, whatever happened to the thread.
struct Present<'a>(&'a Shared, u64);

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

fn accept(listener: &Listener, shared: &Arc<Shared>) {
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
            shared.log("a client was turned away: there are too many");
            continue;
        };
        let client = {
            let shared = Arc::clone(shared);
            move || {
                let present = Present(&shared, number);
                Connection::run(present.0, number, Link::new(stream));
            }
        };
        let builder = thread::Builder::new().name(format!("client {number}")).stack_size(STACK);
        if let Err(error) = builder.spawn(client) {
            shared.leave(number);
            shared.log(&format!("client {number} was turned away: {error}"));
        }
    }
}

/// For each thread; it is memory only where it is used.
pub(crate) const STACK: usize = 1 << 20;
