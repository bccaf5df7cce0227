//! A device whose changes stay in memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::device::{BlockDevice, past_end};
use crate::error::Result;
use crate::{u64_of, usize_of};

/// Bytes that are kept together.
const PAGE: u64 = 4096;

/// Another device as it would be after changes that are kept in memory, a page for each changed one.
///
/// The device below is never written. It keeps its size; nothing can be written behind its end.
#[derive(Debug)]
pub struct Overlay<D> {
    below: D,
    /// Changed pages by their numbers. The last one of a device may be shorter than a page.
    pages: RwLock<BTreeMap<u64, Vec<u8>>>,
}

impl<D: BlockDevice> Overlay<D> {
    /// The device `below`, without changes yet.
    pub fn new(below: D) -> Overlay<D> {
        Overlay { below, pages: RwLock::default() }
    }

    /// The number of bytes that differ from the device below.
    ///
    /// # Errors
    /// Errors of reading the device below.
    pub fn changed_bytes(&self) -> Result<u64> {
        let mut count = 0;
        for (number, page) in &*self.pages() {
            let mut below = vec![0; page.len()];
            match self.below.read_at(&mut below, number * PAGE) {
                // What can't be read is another one in all of its bytes.
                Err(error) if error.is_of_medium() => {
                    count += u64_of(page.len());
                    continue;
                }
                read => read?,
            }
            count += u64_of(page.iter().zip(&below).filter(|(new, old)| new != old).count());
        }
        Ok(count)
    }

    fn pages(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Vec<u8>>> {
        self.pages.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, Vec<u8>>> {
        self.pages.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what has not changed, a page at a time.
    fn read_unchanged(&self, pages: &BTreeMap<u64, Vec<u8>>, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = offset + u64_of(buf.len());
        for number in (offset / PAGE..end.div_ceil(PAGE)).filter(|number| !pages.contains_key(number)) {
            let (from, to) = ((number * PAGE).max(offset), ((number + 1) * PAGE).min(end));
            self.below.read_at(&mut buf[usize_of(from - offset)..usize_of(to - offset)], from)?;
        }
        Ok(())
    }

    fn check_range(&self, offset: u64, len: usize) -> Result<()> {
        let size = self.below.size();
        match offset.checked_add(u64_of(len)) {
            Some(end) if end <= size => Ok(()),
            _ => Err(past_end(offset, len, size)),
        }
    }
}

impl<D: BlockDevice> BlockDevice for Overlay<D> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.below)
    }

    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.check_range(offset, buf.len())?;
        // Held while the device below is read: a change is seen whole in each page or not at all.
        let pages = self.pages();
        let end = offset + u64_of(buf.len());
        match self.below.read_at(buf, offset) {
            // What is damaged below may have been changed.
            Err(error) if error.is_of_medium() => self.read_unchanged(&pages, buf, offset)?,
            read => read?,
        }
        for (number, page) in pages.range(offset / PAGE..end.div_ceil(PAGE)) {
            let start = number * PAGE;
            let (from, to) = (start.max(offset), (start + u64_of(page.len())).min(end));
            if from < to {
                let part = &page[usize_of(from - start)..usize_of(to - start)];
                buf[usize_of(from - offset)..usize_of(to - offset)].copy_from_slice(part);
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check_range(offset, buf.len())?;
        let end = offset + u64_of(buf.len());
        let size = self.below.size();
        let mut pages = self.pages_mut();
        for number in offset / PAGE..end.div_ceil(PAGE) {
            let start = number * PAGE;
            let page = match pages.entry(number) {
                Entry::Occupied(page) => page.into_mut(),
                Entry::Vacant(place) => {
                    let mut page = vec![0; usize_of((size - start).min(PAGE))];
                    let is_whole = offset <= start && start + u64_of(page.len()) <= end;
                    if !is_whole {
                        self.below.read_at(&mut page, start)?;
                    }
                    place.insert(page)
                }
            };
            let (from, to) = (start.max(offset), (start + u64_of(page.len())).min(end));
            let part = &buf[usize_of(from - offset)..usize_of(to - offset)];
            page[usize_of(from - start)..usize_of(to - start)].copy_from_slice(part);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn changes_are_seen_above_and_not_below() {
        let size = 3 * 4096 + 100;
        let original: Vec<u8> = (0..size).map(|i| (i * 31 / 7) as u8).collect();
        let below = MemoryDevice::new(original.clone());
        let overlay = Overlay::new(&below);
        let mut oracle = original.clone();
        for (offset, len) in [(0, 1), (4090, 20), (4000, 8300), (size - 7, 7), (size, 0)] {
            let change: Vec<u8> = (0..len).map(|i| (i + offset) as u8).collect();
            overlay.write_at(&change, offset as u64).unwrap();
            oracle[offset..offset + len].copy_from_slice(&change);
            for (offset, len) in [(0, size), (4095, 2), (8000, 300), (size - 8, 8)] {
                let mut found = vec![0; len];
                overlay.read_at(&mut found, offset as u64).unwrap();
                assert!(found == oracle[offset..offset + len], "{offset} {len}");
            }
        }
        let differ = oracle.iter().zip(&original).filter(|(new, old)| new != old).count();
        assert_eq!(overlay.changed_bytes().unwrap(), differ as u64);
        assert!(overlay.write_at(&[0; 8], size as u64 - 7).is_err());
        assert!(overlay.read_at(&mut [0], u64::MAX).is_err());
        drop(overlay);
        assert!(below.into_bytes() == original);
    }
}
