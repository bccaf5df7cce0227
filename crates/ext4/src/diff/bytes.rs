//! Bytes of two devices compared, on all threads: which units differ. Everything else looks at those alone.

use std::ops::Range;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, u64_of, usize_of};
use casemate_providers::Work;

use super::bits::Bits;
use super::difference::{Difference, Side};
use crate::error::{Error, Result};

/// Bytes that a thread compares at a time.
const WINDOW: u64 = 1 << 20;

/// Places that can't be read and are told of; others are counted.
const MOST_UNREAD: usize = 16;

/// Result of a comparison.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Units that differ, by their number.
    pub units: Bits,
    /// Bytes of a unit: the smaller block.
    pub unit: u64,
    /// Bytes that both file systems have.
    pub common: u64,
    /// Bytes that only the longer one has.
    pub tail: u64,
    /// Bytes that differ, within what both have.
    pub bytes: u64,
    /// Whether a device ends before its file system does.
    pub is_cut: bool,
    /// Units that can't be read.
    pub unread: u64,
    /// The first ones of them.
    pub errors: Vec<(Side, Error)>,
}

impl Compared {
    /// Whether all bytes were read, and are equal.
    pub fn is_equal(&self) -> bool {
        self.bytes == 0 && self.tail == 0 && self.unread == 0 && !self.is_cut
    }

    /// Whether no byte of a range differs.
    pub fn is_same(&self, range: &Range<u64>) -> bool {
        range.end <= self.common && !self.units.any(range.start / self.unit..range.end.div_ceil(self.unit))
    }

    /// Lines on what can't be read.
    pub fn unread_lines(&self) -> impl Iterator<Item = Difference> {
        let line = |(side, error): &(Side, Error)| Difference::Unread {
            side: *side,
            path: None,
            error: error.again(),
        };
        self.errors.iter().map(line)
    }
}

struct Buffers {
    pair: [Vec<u8>; 2],
    found: Compared,
}

/// Compares two devices of which file systems fill so many bytes.
///
/// # Errors
/// `Interrupted`.
pub(super) fn compare(
    devices: [&Arc<dyn BlockDevice>; 2],
    ends: [u64; 2],
    unit: u64,
    work: &Work<'_>,
) -> Result<Compared> {
    let (common, longest) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
    let state = || {
        let pair = [0, 1].map(|_| vec![0; usize_of(WINDOW.min(common))]);
        Buffers { pair, found: Compared { unit, common, ..Compared::default() } }
    };
    let (states, done) = work.pool.gather(common.div_ceil(WINDOW), state, |buffers, window| {
        let start = window * WINDOW;
        let range = start..common.min(start + WINDOW);
        work.events.advance(range.end - range.start)?;
        buffers.window(devices, range)
    });
    done?;
    let mut all = Compared { unit, common, tail: longest - common, ..Compared::default() };
    for Buffers { found, .. } in states {
        all.units.unite(found.units);
        all.bytes += found.bytes;
        all.unread += found.unread;
        all.errors.extend(found.errors);
    }
    all.errors.truncate(MOST_UNREAD);
    Ok(all)
}

impl Buffers {
    fn window(&mut self, devices: [&Arc<dyn BlockDevice>; 2], range: Range<u64>) -> Result<()> {
        // Holes need no reading; where nobody knows of holes, everything is data.
        let is_hole = |device: &Arc<dyn BlockDevice>| match device.next_data(range.start) {
            Ok(next) => next.is_none_or(|next| next.start >= range.end),
            Err(_) => false,
        };
        if devices.into_iter().all(is_hole) {
            return Ok(());
        }
        let len = usize_of(range.end - range.start);
        let Buffers { pair: [a, b], found } = self;
        let (a, b) = (&mut a[..len], &mut b[..len]);
        let read = devices[0].read_at(a, range.start).and_then(|()| devices[1].read_at(b, range.start));
        match read {
            Ok(()) if a == b => return Ok(()),
            Ok(()) => {}
            Err(error) if error.is_interrupt() => return Err(error),
            Err(_) => return found.by_units(devices, range, a, b),
        }
        let unit = usize_of(found.unit);
        for (index, (a, b)) in a.chunks(unit).zip(b.chunks(unit)).enumerate() {
            found.unit(range.start / found.unit + u64_of(index), a, b);
        }
        Ok(())
    }
}

impl Compared {
    fn unit(&mut self, number: u64, a: &[u8], b: &[u8]) {
        if a != b {
            self.bytes += count(a, b);
            self.units.insert(number);
        }
    }

    /// Compares a window, some of which can't be read.
    fn by_units(
        &mut self,
        devices: [&Arc<dyn BlockDevice>; 2],
        range: Range<u64>,
        a: &mut [u8],
        b: &mut [u8],
    ) -> Result<()> {
        let unit = self.unit;
        let mut at = range.start;
        while at < range.end {
            let len = usize_of(unit.min(range.end - at));
            let (a, b) = (&mut a[..len], &mut b[..len]);
            let read = devices[0].read_at(a, at).map_err(|error| (Side::A, error));
            match read.and_then(|()| devices[1].read_at(b, at).map_err(|error| (Side::B, error))) {
                Ok(()) => self.unit(at / unit, a, b),
                Err((_, error)) if error.is_interrupt() => return Err(error),
                Err((side, error)) => {
                    self.unread += 1;
                    if self.errors.len() < MOST_UNREAD {
                        self.errors.push((side, error.map_text(|text| format!("byte {at}: {text}"))));
                    }
                }
            }
            at += u64_of(len);
        }
        Ok(())
    }
}

/// How many bytes differ.
pub(super) fn count(a: &[u8], b: &[u8]) -> u64 {
    // In parts whose sums fit bytes, which compilers turn into vectors.
    let parts = a.chunks(255).zip(b.chunks(255));
    parts
        .map(|(a, b)| u64::from(a.iter().zip(b).fold(0_u8, |sum, (a, b)| sum.wrapping_add(u8::from(a != b)))))
        .sum()
}
