//! A disk that loses power.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use casemate::blockdev::{BlockDevice, Result};
use casemate_testkit::Rng;

/// A disk that forgets: what was not flushed is there, gone or there in part after the power fails.
pub struct Disk {
    pub state: Mutex<DiskState>,
    pub power: Arc<Mutex<i64>>,
    pub flushes: AtomicU32,
}

pub struct DiskState {
    stable: Vec<u8>,
    cached: Vec<u8>,
}

impl Disk {
    pub fn new(bytes: Vec<u8>, power: &Arc<Mutex<i64>>) -> Arc<Disk> {
        let state = DiskState { stable: bytes.clone(), cached: bytes };
        Arc::new(Disk { state: Mutex::new(state), power: Arc::clone(power), flushes: AtomicU32::new(0) })
    }

    /// One more operation, if there is still power.
    pub fn spend(&self) -> Result<()> {
        let mut power = self.power.lock().unwrap();
        *power -= 1;
        if *power < 0 { Err(io::Error::other("the power failed").into()) } else { Ok(()) }
    }

    /// True if the disk begins with these bytes, as a program sees it.
    pub fn begins_with(&self, bytes: &[u8]) -> bool {
        self.state.lock().unwrap().cached.starts_with(bytes)
    }

    /// The disk after a power cut: each sector old or new.
    pub fn after_power_failure(&self, rng: &mut Rng) -> Vec<u8> {
        let state = self.state.lock().unwrap();
        let mut stable = state.stable.clone();
        let most = rng.below(3);
        for (old, new) in stable.chunks_mut(512).zip(state.cached.chunks(512)) {
            if rng.below(4) <= most {
                old.copy_from_slice(new);
            }
        }
        stable
    }
}

impl BlockDevice for Disk {
    fn below(&self) -> Option<&dyn BlockDevice> {
        None
    }

    fn size(&self) -> u64 {
        self.state.lock().unwrap().cached.len() as u64
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let state = self.state.lock().unwrap();
        let bytes = state.cached.get(offset as usize..offset as usize + buf.len());
        buf.copy_from_slice(bytes.ok_or_else(|| io::Error::other("past the end"))?);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        // A write that the power failure interrupts has done part of its work.
        let whole = self.spend();
        let part = if whole.is_ok() { buf.len() } else { buf.len() / 2 / 512 * 512 };
        let mut state = self.state.lock().unwrap();
        let at = offset as usize;
        state.cached[at..at + part].copy_from_slice(&buf[..part]);
        whole
    }

    fn flush(&self) -> Result<()> {
        self.spend()?;
        let mut state = self.state.lock().unwrap();
        state.stable = state.cached.clone();
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
