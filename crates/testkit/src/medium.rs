//! A medium that remembers what was written.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use casemate_blockdev::{BlockDevice, MemoryDevice, Result};

/// Device in memory that remembers what was written, in order, and fails when it is told to.
#[derive(Debug)]
pub struct Medium {
    bytes: MemoryDevice,
    writes: Mutex<Vec<(u64, Vec<u8>)>>,
    /// How many more writes succeed.
    good: AtomicU64,
}

impl Medium {
    /// A medium with these bytes.
    pub fn new(bytes: Vec<u8>) -> Arc<Medium> {
        Arc::new(Medium {
            bytes: MemoryDevice::new(bytes),
            writes: Mutex::default(),
            good: AtomicU64::new(u64::MAX),
        })
    }

    /// Makes `writes` writes succeed; of the next one the first half is there, and it fails, and all that follow.
    pub fn fail_after(&self, writes: u64) {
        self.good.store(writes, Ordering::Relaxed);
    }

    /// The bytes on the medium.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes.size() as usize];
        self.bytes.read_at(&mut bytes, 0).expect("memory can be read");
        bytes
    }

    /// The writes so far, with their places, which are forgotten.
    pub fn take_writes(&self) -> Vec<(u64, Vec<u8>)> {
        std::mem::take(&mut self.writes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The states of a medium with the bytes `before`, in which the power may be cut during these writes: of each one there are
/// so many bytes as `cuts` says of its length.
pub fn cut_states(
    before: &[u8],
    writes: &[(u64, Vec<u8>)],
    cuts: impl Fn(usize) -> Vec<usize>,
) -> Vec<Vec<u8>> {
    let mut states = Vec::new();
    let mut bytes = before.to_vec();
    for (offset, written) in writes {
        let at = *offset as usize;
        for cut in cuts(written.len()) {
            let (mut torn, cut) = (bytes.clone(), cut.min(written.len()));
            torn[at..at + cut].copy_from_slice(&written[..cut]);
            states.push(torn);
        }
        bytes[at..at + written.len()].copy_from_slice(written);
    }
    states
}

impl BlockDevice for Medium {
    fn below(&self) -> Option<&dyn BlockDevice> {
        None
    }

    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.bytes.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let good =
            self.good.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |good| good.checked_sub(1)).is_ok();
        let buf = if good { buf } else { &buf[..buf.len() / 2] };
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).push((offset, buf.to_vec()));
        self.bytes.write_at(buf, offset)?;
        if good { Ok(()) } else { Err(std::io::Error::other("injected").into()) }
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
