//! Reading on behind damage: what can't be read is zeros, and is remembered.
//!
//! [`Salvage`] lies on top of what is read, and [`Unread`] below it, over an image of which a GNU ddrescue map says what was
//! never read. Such areas are zeros in the image, and zeros are no data.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::code::ErrorKind;
use crate::device::BlockDevice;
use crate::error::{Error, Result};
use crate::{u64_of, usize_of};

/// A device that shows zeros where the one below can't be read: damaged sectors, wrong tags, wrong digests.
///
/// A read that fails is tried again in halves, down to a granule, so that little more is lost than what is damaged.
#[derive(Debug)]
pub struct Salvage<D> {
    inner: D,
    granule: u64,
    lost: Mutex<DamageMap>,
}

/// Damaged ranges: their beginnings and ends. None of them touch.
#[derive(Debug, Default)]
pub struct DamageMap(BTreeMap<u64, u64>);

/// Ranges that are kept apart: a device may be damaged in every other sector. Behind these, what lies between two is called lost,
/// too.
const MOST_RANGES: usize = 1 << 20;

impl DamageMap {
    /// Adds a range that is not empty.
    pub fn add(&mut self, mut range: Range<u64>) {
        if self.0.len() >= MOST_RANGES
            && let Some(before) = self.0.range(..range.start).next_back()
        {
            range.start = *before.0;
        }
        // What touches it becomes part of it.
        while let Some((start, end)) =
            self.0.range(..=range.end).next_back().map(|(start, end)| (*start, *end))
            && end >= range.start
        {
            self.0.remove(&start);
            range = range.start.min(start)..range.end.max(end);
        }
        self.0.insert(range.start, range.end);
    }

    /// The ranges, in their order.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        self.0.iter().map(|(start, end)| *start..*end).collect()
    }
}

impl<D: BlockDevice> Salvage<D> {
    /// Reads of `inner` go on in steps of `granule` bytes, at least 512, where they fail.
    pub fn new(inner: D, granule: u32) -> Salvage<D> {
        Salvage { inner, granule: u64::from(granule.max(512)), lost: Mutex::default() }
    }

    /// Ranges that were asked for and can't be read, in their order.
    pub fn lost(&self) -> Vec<Range<u64>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).ranges()
    }

    fn read(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let Err(error) = self.inner.read_at(buf, offset) else { return Ok(()) };
        if !is_damage(&error) {
            return Err(error);
        }
        let len = u64_of(buf.len());
        let first_end = (offset / self.granule + 1) * self.granule;
        let end = offset.checked_add(len).ok_or(error)?;
        if first_end >= end {
            buf.fill(0);
            self.lost.lock().unwrap_or_else(PoisonError::into_inner).add(offset..end);
            return Ok(());
        }
        // The middle, on the edge of a granule.
        let middle = (offset + len / 2) / self.granule * self.granule;
        let middle = middle.max(first_end);
        let (low, high) = buf.split_at_mut(usize_of(middle - offset));
        self.read(low, offset)?;
        self.read(high, middle)
    }
}

/// Whether an error says that bytes can't be had, and not that the work should stop.
fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Corrupt | ErrorKind::Mismatch)
}

impl<D: BlockDevice> BlockDevice for Salvage<D> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.inner)
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        // Behind the end nothing is damaged.
        let end = offset.checked_add(u64_of(buf.len()));
        if end.is_none_or(|end| end > self.inner.size()) {
            return self.inner.read_at(buf, offset);
        }
        self.read(buf, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        Err(read_only())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// A device of which some ranges can't be read, whatever the one below has there, and nothing that is missing at its end.
#[derive(Debug)]
pub struct Unread<D> {
    inner: D,
    size: u64,
    /// In order, and apart.
    ranges: Vec<Range<u64>>,
}

impl<D: BlockDevice> Unread<D> {
    /// The device `inner` without these ranges. It is `size` bytes long, which may be more than there are.
    pub fn new(inner: D, mut ranges: Vec<Range<u64>>, size: u64) -> Unread<D> {
        ranges.push(inner.size()..size);
        ranges.retain(|range| range.start < range.end);
        ranges.sort_by_key(|range| range.start);
        Unread { inner, size, ranges }
    }
}

impl<D: BlockDevice> BlockDevice for Unread<D> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.inner)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = offset.saturating_add(u64_of(buf.len()));
        let after = self.ranges.partition_point(|range| range.end <= offset);
        match self.ranges.get(after).filter(|range| range.start < end) {
            Some(range) => {
                let text =
                    format!("bytes {} to {} were not read from the medium", range.start, range.end - 1);
                Err(Error::path(std::io::ErrorKind::Other, text))
            }
            None => self.inner.read_at(buf, offset),
        }
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        Err(read_only())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

fn read_only() -> Error {
    Error::path(std::io::ErrorKind::ReadOnlyFilesystem, "a device that is rescued takes no writes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn only_granules_that_fail_are_zeros() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8 + 1).collect();
        let unread = vec![1000..1001, 5000..9000, 99_990..100_000, 7..7];
        let below = Unread::new(MemoryDevice::new(bytes.clone()), unread, 100_000);
        let mut buf = vec![9; 100];
        assert!(below.read_at(&mut buf, 950).is_err());
        assert!(below.read_at(&mut buf, 901).is_err());
        below.read_at(&mut buf, 900).unwrap();
        below.read_at(&mut buf, 1001).unwrap();
        let salvage = Salvage::new(below, 512);
        let mut all = vec![9; bytes.len()];
        salvage.read_at(&mut all, 0).unwrap();
        let lost = [512..1024, 4608..9216, 99_840..100_000];
        assert_eq!(salvage.lost(), lost);
        for (at, (was, is)) in bytes.iter().zip(&all).enumerate() {
            let is_lost = lost.iter().any(|range| range.contains(&(at as u64)));
            assert_eq!(*is, if is_lost { 0 } else { *was }, "{at}");
        }
        // Reads that don't begin with a granule, and a second time.
        let mut some = vec![9; 700];
        salvage.read_at(&mut some, 700).unwrap();
        assert_eq!(some, all[700..1400]);
        assert_eq!(salvage.lost(), lost);
        assert!(salvage.read_at(&mut some, 99_999).is_err());
        assert!(salvage.write_at(&some, 0).is_err());
    }

    #[test]
    fn bytes_that_are_missing_at_the_end_are_lost() {
        let unread = std::iter::once(4000..6000).collect();
        let salvage = Salvage::new(Unread::new(MemoryDevice::new(vec![7; 5000]), unread, 8192), 512);
        let mut all = vec![9; 8192];
        salvage.read_at(&mut all, 0).unwrap();
        assert_eq!((salvage.size(), &salvage.lost()[..]), (8192, std::slice::from_ref(&(3584..8192))));
        assert!(all[..3584].iter().all(|byte| *byte == 7) && all[3584..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn errors_that_are_no_damage_stop_the_work() {
        struct Stopped;
        impl BlockDevice for Stopped {
            fn below(&self) -> Option<&dyn BlockDevice> {
                None
            }
            fn size(&self) -> u64 {
                4096
            }
            fn read_at(&self, _: &mut [u8], _: u64) -> Result<()> {
                Err(Error::unsupported("not so"))
            }
            fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
                Ok(())
            }
            fn flush(&self) -> Result<()> {
                Ok(())
            }
        }
        let salvage = Salvage::new(Stopped, 512);
        assert!(salvage.read_at(&mut [0; 1024], 0).is_err());
        assert_eq!(salvage.lost(), []);
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let mut lost = DamageMap::default();
        for range in [10..20, 30..40, 0..5, 20..25, 5..10, 24..31] {
            lost.add(range);
        }
        assert_eq!(lost.0.into_iter().collect::<Vec<_>>(), [(0, 40)]);
    }
}
