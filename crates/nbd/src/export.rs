//! Exports: a device, the requests that it takes, and counters of those that came.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use casemate_blockdev::BlockDevice;

use crate::link::lock;
use crate::protocol::{Description, flags};

/// An export: a device under the name that clients ask for.
pub struct Export {
    device: Arc<dyn BlockDevice>,
    description: Description,
    /// The number of flushes of the device that were begun.
    flushes_begun: AtomicU64,
    /// Whether a flush has failed: from then on no client can be told that its writes are safe. Locked while one runs.
    flush_failed: Mutex<bool>,
    counters: Counters,
}

/// Counters of clients' requests.
#[derive(Debug, Default)]
pub struct Counters {
    connections: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    trims: AtomicU64,
    zeroes: AtomicU64,
    statuses: AtomicU64,
    caches: AtomicU64,
    errors: AtomicU64,
}

/// The values of [`Counters`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connections that came as far as sending requests.
    pub connections: u64,
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flush requests, and writes that asked to be flushed.
    pub flushes: u64,
    /// Trim requests.
    pub trims: u64,
    /// Write-zeroes requests.
    pub zeroes: u64,
    /// Block status requests.
    pub statuses: u64,
    /// Requests to read ahead.
    pub caches: u64,
    /// Requests that were answered with an error.
    pub errors: u64,
}

impl Export {
    /// Offers `device` under `name`; the size is taken now and stays.
    pub fn new(device: Arc<dyn BlockDevice>, name: &str, read_only: bool, preferred_block: u32) -> Export {
        // All connections share the device, and nothing is kept for one of them alone: what one wrote all others read,
        // and a flush is good for all. So many connections are safe.
        let mut export = flags::HAS_FLAGS | flags::SEND_FLUSH | flags::SEND_DF | flags::CAN_MULTI_CONN;
        export |= flags::SEND_CACHE;
        export |= match read_only {
            true => flags::READ_ONLY,
            false => flags::SEND_FUA | flags::SEND_WRITE_ZEROES | flags::SEND_FAST_ZERO,
        };
        if !read_only && device.can_discard() {
            export |= flags::SEND_TRIM;
        }
        let description =
            Description { name: name.to_owned(), size: device.size(), flags: export, preferred_block };
        let (flushes_begun, flush_failed) = (AtomicU64::new(0), Mutex::new(false));
        Export { device, description, flushes_begun, flush_failed, counters: Counters::default() }
    }

    /// The export's description: name, size in bytes, flags and block size, as clients are told.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The export's counters so far.
    pub fn statistics(&self) -> Statistics {
        let Counters {
            connections,
            reads,
            read_bytes,
            writes,
            written_bytes,
            flushes,
            trims,
            zeroes,
            statuses,
            caches,
            errors,
        } = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Statistics {
            connections: get(connections),
            reads: get(reads),
            read_bytes: get(read_bytes),
            writes: get(writes),
            written_bytes: get(written_bytes),
            flushes: get(flushes),
            trims: get(trims),
            zeroes: get(zeroes),
            statuses: get(statuses),
            caches: get(caches),
            errors: get(errors),
        }
    }

    /// Puts everything that was written on stable storage. Requests that come during a flush wait, and then one flush
    /// serves all of them.
    ///
    /// # Errors
    /// The error of the device. The system reports lost writes once, to the first flush after them; so after one failure
    /// every later call fails too, for every client.
    pub fn flush(&self) -> io::Result<()> {
        let asked = self.flushes_begun.load(Ordering::SeqCst);
        let mut failed = lock(&self.flush_failed);
        // One that began after this one was asked for did what it is for, and is over.
        if self.flushes_begun.load(Ordering::SeqCst) == asked {
            self.flushes_begun.store(asked + 1, Ordering::SeqCst);
            let result = self.device.flush();
            *failed |= result.is_err();
            result?;
        }
        match *failed {
            true => Err(io::Error::other("an earlier flush failed, and the writes before it may be lost")),
            false => Ok(()),
        }
    }

    /// Whether the export can't be written.
    pub fn is_read_only(&self) -> bool {
        self.description.flags & flags::READ_ONLY != 0
    }

    pub(crate) fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Counters {
    pub(crate) fn connected(&self) {
        add(&self.connections, 1);
    }

    pub(crate) fn read(&self, bytes: u64) {
        add(&self.reads, 1);
        add(&self.read_bytes, bytes);
    }

    pub(crate) fn written(&self, bytes: u64) {
        add(&self.writes, 1);
        add(&self.written_bytes, bytes);
    }

    pub(crate) fn flushed(&self) {
        add(&self.flushes, 1);
    }

    pub(crate) fn trimmed(&self) {
        add(&self.trims, 1);
    }

    pub(crate) fn zeroed(&self) {
        add(&self.zeroes, 1);
    }

    pub(crate) fn asked(&self) {
        add(&self.statuses, 1);
    }

    pub(crate) fn cached(&self) {
        add(&self.caches, 1);
    }

    pub(crate) fn failed(&self) {
        add(&self.errors, 1);
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Its flushes do what is asked of it, one after the other.
    struct Flushing<F>(F, AtomicU64);

    impl<F: Fn(u64) -> io::Result<()> + Send + Sync> BlockDevice for Flushing<F> {
        fn below(&self) -> Option<&dyn BlockDevice> {
            None
        }
        fn size(&self) -> u64 {
            0
        }
        fn read_at(&self, _: &mut [u8], _: u64) -> casemate_blockdev::Result<()> {
            Ok(())
        }
        fn write_at(&self, _: &[u8], _: u64) -> casemate_blockdev::Result<()> {
            Ok(())
        }
        fn flush(&self) -> casemate_blockdev::Result<()> {
            Ok((self.0)(self.1.fetch_add(1, Ordering::SeqCst))?)
        }
    }

    fn export(flush: impl Fn(u64) -> io::Result<()> + Send + Sync + 'static) -> Export {
        Export::new(Arc::new(Flushing(flush, AtomicU64::new(0))), "", false, 4096)
    }

    /// As fsync: the call after the one that failed tells of nothing.
    #[test]
    fn a_failed_flush_is_not_forgotten() {
        let export = export(|number| if number == 1 { Err(io::ErrorKind::Other.into()) } else { Ok(()) });
        assert!(export.flush().is_ok());
        assert!(export.flush().is_err());
        let text = export.flush().unwrap_err().to_string();
        assert!(text.starts_with("an earlier flush failed"), "{text}");
    }

    #[test]
    fn who_flushes_meanwhile_hears_of_it_too() {
        let (begun, has_begun) = mpsc::channel();
        let export = export(move |number| {
            begun.send(()).unwrap();
            if number > 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
            Err(io::ErrorKind::Other.into())
        });
        std::thread::scope(|scope| {
            let first = scope.spawn(|| export.flush());
            has_begun.recv().unwrap();
            assert!(export.flush().is_err());
            assert!(first.join().unwrap().is_err());
        });
    }

    #[test]
    fn one_flush_is_good_for_all_who_wait() {
        let count = Arc::new(AtomicU64::new(0));
        let (begun, has_begun) = mpsc::channel();
        let export = {
            let count = Arc::clone(&count);
            export(move |_| {
                count.fetch_add(1, Ordering::SeqCst);
                begun.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(500));
                Ok(())
            })
        };
        std::thread::scope(|scope| {
            scope.spawn(|| export.flush().unwrap());
            has_begun.recv().unwrap();
            for _ in 0..20 {
                scope.spawn(|| export.flush().unwrap());
            }
        });
        let count = count.load(Ordering::SeqCst);
        assert!((2..10).contains(&count), "{count} flushes");
    }
}
