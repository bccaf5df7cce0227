//! A device whose flushes are everybody's.

use std::sync::{Mutex, PoisonError};

use casemate_blockdev::BlockDevice;

use crate::error::{Error, Result, again};

/// A device that several threads flush for reasons of their own: contents, commits, multi-mount protection.
///
/// A system tells one of them that writes were lost, once, and says to the next one that all is well. After a flush
/// that failed, all others here fail too: no commit is called whole that is not.
pub(super) struct Flushes<D> {
    device: D,
    failed: Mutex<Option<Error>>,
}

impl<D: BlockDevice> Flushes<D> {
    pub fn new(device: D) -> Flushes<D> {
        Flushes { device, failed: Mutex::new(None) }
    }
}

impl<D: BlockDevice> BlockDevice for Flushes<D> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.device)
    }

    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.device.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.device.write_at(buf, offset)
    }

    fn write_from(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.device.write_from(buf, offset)
    }

    fn forget_cached(&self, offset: u64, len: u64) -> Result<()> {
        self.device.forget_cached(offset, len)
    }

    fn flush(&self) -> Result<()> {
        // One after the other: who flushes at the same time as another one that fails may be told nothing.
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &*failed {
            return Err(again(error));
        }
        self.device.flush().inspect_err(|error| *failed = Some(again(error)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use casemate_blockdev::MemoryDevice;

    use super::*;

    /// Says once that writes were lost, as Linux does.
    struct Once(MemoryDevice, AtomicBool);

    impl BlockDevice for Once {
        fn below(&self) -> Option<&dyn BlockDevice> {
            Some(&self.0)
        }

        fn size(&self) -> u64 {
            self.0.size()
        }

        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            self.0.read_at(buf, offset)
        }

        fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
            self.0.write_at(buf, offset)
        }

        fn flush(&self) -> Result<()> {
            if self.1.swap(false, Ordering::Relaxed) { Err(std::io::ErrorKind::Other.into()) } else { Ok(()) }
        }
    }

    #[test]
    fn a_flush_that_failed_fails_for_all() {
        let device = Flushes::new(Once(MemoryDevice::new(vec![0; 512]), AtomicBool::new(false)));
        device.flush().unwrap();
        device.device.1.store(true, Ordering::Relaxed);
        assert!(device.flush().is_err());
        assert!(device.flush().is_err(), "the other one that flushes is told, too");
    }
}
