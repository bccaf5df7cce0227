//! State that the connections of a server share: its exports, its limits, and the clients that there are.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use casemate_blockdev::usize_of;

use crate::export::Export;
use crate::link::{Link, lock};
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

impl Default for Limits {
    fn default() -> Limits {
        let (clients, threads, memory) = (4096, 16, 64 << 20);
        Limits { clients, threads, memory, total_memory: 1 << 30, negotiation: Duration::from_secs(30) }
    }
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

impl Shared {
    pub(crate) fn new(exports: Vec<Arc<Export>>, tls: Tls, limits: Limits, log: Log) -> Shared {
        let descriptions = exports.iter().map(|export| export.description().clone()).collect();
        Shared {
            exports,
            descriptions,
            tls,
            limits,
            stopping: AtomicBool::new(false),
            processors: thread::available_parallelism().map_or(1, NonZero::get),
            room: Room::new(limits.total_memory.max(usize_of(MAX_PAYLOAD))),
            log,
            clients: Mutex::default(),
            count: AtomicUsize::new(0),
            one_left: Condvar::new(),
        }
    }

    /// How many clients there are at this moment.
    pub(crate) fn clients(&self) -> usize {
        lock(&self.clients).present.len()
    }

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

    pub(crate) fn is_crowded(&self) -> bool {
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

    pub(crate) fn enter(&self) -> Option<u64> {
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

    pub(crate) fn leave(&self, client: u64) {
        if lock(&self.clients).present.remove(&client).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        self.one_left.notify_all();
    }

    pub(crate) fn shut(&self, how: Shutdown) {
        lock(&self.clients).present.values().flatten().for_each(|client| client.link.shut(how));
    }

    /// Waits until all have left. Those who still negotiate are not waited for: nothing was promised to them.
    pub(crate) fn wait_for_clients(&self, patience: Duration) -> bool {
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
pub(crate) struct Present<'a>(pub(crate) &'a Shared, pub(crate) u64);

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
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
