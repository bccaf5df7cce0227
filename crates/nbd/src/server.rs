//! The server: many clients of some exports at once.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::Shutdown;
use std::num::NonZero;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use casemate_blockdev::{check_process, usize_of};

use crate::connection::Connection;
use crate::export::Export;
use crate::link::{Link, lock};
use crate::listener::Listener;
use crate::log::Log;
use crate::protocol::{Description, MAX_PAYLOAD};
use crate::room::Room;
use crate::tls::Tls;

/// Limits of one client, and of all together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at a time; more are turned away.
    pub clients: usize,
    /// Threads that work on one client's requests.
    pub threads: usize,
    /// Bytes of requests and replies that are held for one client, at least those of the largest request.
    pub memory: usize,
    /// Bytes held for all clients together. When they are used up, and none are given back, clients that do not take
    /// their answers, or do not send what they have announced, are cut off.
    pub total_memory: usize,
    /// The time that a client's negotiation may take.
    pub negotiation: Duration,
}

/// A server of one or more exports, at work until [`Server::stop`].
pub struct Server {
    shared: Arc<Shared>,
    listener: Arc<Listener>,
    accepting: JoinHandle<()>,
    /// The process that has the threads, and with them the server.
    process: u32,
}

/// State that all connections share.
pub(crate) struct Shared {
    pub(crate) exports: Vec<Arc<Export>>,
    /// Descriptions of the exports, in their order.
    pub(crate) descriptions: Arc<[Description]>,
    pub(crate) tls: Tls,
    pub(crate) limits: Limits,
    pub(crate) stopping: AtomicBool,
    pub(crate) processors: usize,
    /// Memory of all clients.
    pub(crate) room: Room,
    log: Log,
    clients: Mutex<Clients>,
    /// How many there are.
    count: AtomicUsize,
    one_left: Condvar,
}

#[derive(Default)]
struct Clients {
    next: u64,
    /// By client number; those still negotiating have nothing yet.
    present: HashMap<u64, Option<Client>>,
}

/// A client that may send requests.
struct Client {
    link: Arc<Link>,
    room: Arc<Room>,
}

impl Default for Limits {
    fn default() -> Limits {
        let (clients, threads, memory) = (4096, 16, 64 << 20);
        Limits { clients, threads, memory, total_memory: 1 << 30, negotiation: Duration::from_secs(30) }
    }
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
        let descriptions: Arc<[Description]> =
            exports.iter().map(|export| export.description().clone()).collect();
        let names: HashSet<&str> = descriptions.iter().map(|export| &*export.name).collect();
        if names.is_empty() || names.len() < exports.len() {
            let text = "a server needs at least one export, each with a name of its own";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let shared = Arc::new(Shared {
            exports,
            descriptions,
            tls,
            limits,
            stopping: AtomicBool::new(false),
            processors: thread::available_parallelism().map_or(1, NonZero::get),
            room: Room::new(limits.total_memory.max(usize_of(MAX_PAYLOAD))),
            log: Log::new(Box::new(log)),
            clients: Mutex::default(),
            count: AtomicUsize::new(0),
            one_left: Condvar::new(),
        });
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
        lock(&self.shared.clients).present.len()
    }
}

impl Shared {
    pub(crate) fn log(&self, text: &str) {
        self.log.line(text);
    }

    /// Has `link` shut when the server stops. `false` if it stops already.
    pub(crate) fn register(&self, number: u64, link: &Arc<Link>, room: &Arc<Room>) -> bool {
        let client = Client { link: Arc::clone(link), room: Arc::clone(room) };
        lock(&self.clients).present.insert(number, Some(client));
        !self.stopping.load(Ordering::SeqCst)
    }

    /// How many bytes a thread keeps for its next request: enough for most, but not for each thread of a crowd.
    pub(crate) fn retained(&self) -> usize {
        if self.is_crowded() { 0 } else { RETAINED }
    }

    fn is_crowded(&self) -> bool {
        self.count.load(Ordering::Relaxed) > CROWD
    }

    /// Takes memory from what all clients have together, or waits for it.
    ///
    /// # Errors
    /// When the server stops meanwhile.
    pub(crate) fn take_room(&self, bytes: usize) -> io::Result<()> {
        while !self.room.take(bytes, STALLED) {
            if self.stopping.load(Ordering::SeqCst) {
                return Err(io::Error::other("the server stops, and had no memory for the request"));
            }
            self.cut_off();
        }
        Ok(())
    }

    /// Disconnects the client that holds the most memory, of those that are waited for. A device that is slow costs
    /// nobody the connection.
    fn cut_off(&self) {
        let clients = lock(&self.clients);
        let held = |(number, client): (&u64, &Option<Client>)| {
            let client = client.as_ref().filter(|client| client.link.is_waited_for())?;
            Some((client.room.taken(), *number, Arc::clone(&client.link)))
        };
        let most = clients.present.iter().filter_map(held).max_by_key(|(bytes, ..)| *bytes);
        drop(clients);
        if let Some((bytes, number, link)) = most {
            self.log(&format!(
                "client {number} is cut off: it holds {bytes} bytes, and others wait for memory"
            ));
            link.shut(Shutdown::Both);
        }
    }

    fn enter(&self) -> Option<u64> {
        let mut clients = lock(&self.clients);
        if clients.present.len() >= self.limits.clients {
            return None;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let number = clients.next + 1;
        clients.next = number;
        clients.present.insert(number, None);
        Some(number)
    }

    fn leave(&self, client: u64) {
        if lock(&self.clients).present.remove(&client).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        self.one_left.notify_all();
    }

    fn shut(&self, how: Shutdown) {
        lock(&self.clients).present.values().flatten().for_each(|client| client.link.shut(how));
    }

    /// Waits until all have left. Those who still negotiate are not waited for: nothing was promised to them.
    fn wait_for_clients(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut clients = lock(&self.clients);
        while clients.present.values().any(Option::is_some) {
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

/// So many clients are a crowd.
const CROWD: usize = 64;

/// Memory that a thread keeps for its next request, in bytes.
const RETAINED: usize = 5 << 18;

/// Memory of all clients that nobody has given back for so long is held by clients that do not go on.
const STALLED: Duration = Duration::from_secs(5);

/// For each thread; it is memory only where it is used.
pub(crate) const STACK: usize = 1 << 20;
