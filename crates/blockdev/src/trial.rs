//! A device whose changes nobody will see.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::device::{BlockDevice, past_end};
use crate::error::{AtFile, Result};
use crate::file::FileDevice;
use crate::{u64_of, usize_of};

/// Bytes that are kept together.
const PAGE: u64 = 4096;

/// Another device as it would be after changes, which are kept in a temporary file without a name.
///
/// The device below is never written. As a file does, this one grows by what is written behind its end.
#[derive(Debug)]
pub struct Trial<D> {
    below: D,
    changes: RwLock<Changes>,
}

#[derive(Debug)]
struct Changes {
    /// Every page at its place in the device.
    file: FileDevice,
    /// The numbers of the pages that are there.
    pages: BTreeSet<u64>,
    size: u64,
}

impl<D: BlockDevice> Trial<D> {
    /// The device `below`, without changes yet.
    ///
    /// # Errors
    /// `Io` if there is no temporary file to be had.
    pub fn new(below: D) -> Result<Trial<D>> {
        let file = tempfile::tempfile().map_err(Into::into).and_then(FileDevice::from_file);
        let (file, size) = (file.at(FILE)?, below.size());
        Ok(Trial { below, changes: RwLock::new(Changes { file, pages: BTreeSet::new(), size }) })
    }

    fn changes(&self) -> RwLockReadGuard<'_, Changes> {
        self.changes.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changes {
    /// Bytes that end within the device: runs of pages that are all in the file, or all below.
    fn read(&self, below: &dyn BlockDevice, mut buf: &mut [u8], mut at: u64) -> Result<()> {
        while !buf.is_empty() {
            let is_here = self.pages.contains(&(at / PAGE));
            let stop = at + u64_of(buf.len());
            let mut pages = at / PAGE..stop.div_ceil(PAGE);
            let end =
                pages.find(|page| self.pages.contains(page) != is_here).map_or(stop, |page| page * PAGE);
            let (now, later) = buf.split_at_mut(usize_of(end - at));
            if is_here {
                self.file.read_at(now, at).at(FILE)?;
            } else {
                // What lies between the old end and what was written behind it.
                let old = below.size().saturating_sub(at).min(u64_of(now.len()));
                let (old, new) = now.split_at_mut(usize_of(old));
                if !old.is_empty() {
                    below.read_at(old, at)?;
                }
                new.fill(0);
            }
            at += u64_of(now.len());
            buf = later;
        }
        Ok(())
    }

    fn write(&mut self, below: &dyn BlockDevice, buf: &[u8], at: u64) -> Result<()> {
        let end = at.checked_add(u64_of(buf.len())).ok_or_else(|| past_end(at, buf.len(), self.size))?;
        if end == at {
            return Ok(());
        }
        // The pages that are not written as a whole.
        for page in [at / PAGE, (end - 1) / PAGE] {
            let start = page * PAGE;
            let whole = at <= start && end - start >= PAGE;
            if !whole && !self.pages.contains(&page) {
                let mut bytes = vec![0; usize_of(PAGE)];
                let len = usize_of(self.size.saturating_sub(start).min(PAGE));
                self.read(below, &mut bytes[..len], start)?;
                self.file.write_at(&bytes, start).at(FILE)?;
                self.pages.insert(page);
            }
        }
        self.file.write_at(buf, at).at(FILE)?;
        self.pages.extend(at / PAGE..end.div_ceil(PAGE));
        self.size = self.size.max(end);
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Trial<D> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.below)
    }

    fn size(&self) -> u64 {
        self.changes().size
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let changes = self.changes();
        match offset.checked_add(u64_of(buf.len())) {
            Some(end) if end <= changes.size => changes.read(&self.below, buf, offset),
            _ => Err(past_end(offset, buf.len(), changes.size)),
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut changes = self.changes.write().unwrap_or_else(PoisonError::into_inner);
        changes.write(&self.below, buf, offset)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

const FILE: &str = "the temporary file";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn a_trial_grows_and_leaves_what_is_below() {
        let size = 3 * 4096 + 100;
        let original: Vec<u8> = (0..size).map(|i| (i * 31 / 7) as u8).collect();
        let below = MemoryDevice::new(original.clone());
        let trial = Trial::new(&below).unwrap();
        let mut oracle = original.clone();
        let whole = 0..size;
        for (offset, len) in
            [(0, 1), (4090, 20), (4000, 8300), (size - 7, 30), (size + 9000, 5000), (size + 4000, 1), (7, 0)]
        {
            let change: Vec<u8> = (0..len).map(|i| (i + offset + 1) as u8).collect();
            trial.write_at(&change, offset as u64).unwrap();
            oracle.resize(oracle.len().max(offset + len), 0);
            oracle[offset..offset + len].copy_from_slice(&change);
            assert_eq!(trial.size(), oracle.len() as u64);
            for (offset, len) in [(0, oracle.len()), (4095, 2), (8000, 300), (oracle.len() - 8, 8)] {
                let mut found = vec![7; len];
                trial.read_at(&mut found, offset as u64).unwrap();
                assert!(found == oracle[offset..offset + len], "{offset} {len}");
            }
        }
        assert!(trial.read_at(&mut [0; 2], oracle.len() as u64 - 1).is_err());
        assert!(trial.read_at(&mut [0], u64::MAX).is_err());
        assert!(trial.write_at(&[0; 2], u64::MAX).is_err());
        drop(trial);
        assert!(below.into_bytes()[whole] == original);
    }
}
