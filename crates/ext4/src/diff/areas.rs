//! Each byte that differs counted in the area that it lies in.

use std::collections::BTreeMap;
use std::ops::Range;

use casemate_blockdev::{u64_of, usize_of};

use super::Diff;
use super::bytes::count;
use super::difference::{Area, Difference, Side};
use super::owners::{Owned, Owners, is_used, used_slots};
use crate::error::Result;

/// Bytes that are read at a time.
const PART: u64 = 1 << 20;

/// Counts of an area.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    blocks: u64,
    bytes: u64,
    first: u64,
    /// The unit that was counted last.
    last: Option<u64>,
}

/// Counts of all areas.
#[derive(Debug, Default)]
pub(super) struct Areas {
    counts: BTreeMap<Area, Counted>,
}

impl Areas {
    /// Whether an area has bytes that differ.
    pub fn has(&self, area: Area) -> bool {
        self.counts.contains_key(&area)
    }

    fn add(&mut self, area: Area, unit: u64, bytes: u64, first: u64) {
        let counted = self.counts.entry(area).or_insert(Counted { first, ..Counted::default() });
        counted.bytes += bytes;
        if counted.last != Some(unit) {
            counted.last = Some(unit);
            counted.blocks += 1;
        }
    }

    /// Lines, in the order of areas.
    pub fn lines(&self) -> impl Iterator<Item = Difference> {
        self.counts.iter().map(|(area, counted)| Difference::Bytes {
            area: *area,
            blocks: counted.blocks,
            bytes: counted.bytes,
            first: counted.first,
        })
    }
}

impl Diff<'_> {
    /// Counts all bytes that differ by their areas.
    pub fn areas(&self, owners: &[Owners; 2]) -> Result<Areas> {
        let mut areas = Areas::default();
        let (unit, common) = (self.compared.unit, self.compared.common);
        let mut buffers = [Vec::new(), Vec::new()];
        let mut from = 0;
        let units = common.div_ceil(unit);
        while let Some(run) = self.compared.units.next_run(from..units) {
            let run = run.start..run.end.min(run.start + PART / unit);
            from = run.end;
            self.work.events.advance(0)?;
            let start = run.start * unit;
            let len = usize_of((run.end * unit).min(common) - start);
            for side in Side::BOTH {
                let buffer = &mut buffers[side.index()];
                buffer.resize(len, 0);
                self.sides[side.index()].device.read_at(buffer, start)?;
            }
            let [a, b] = &buffers;
            let parts = a.chunks(usize_of(unit)).zip(b.chunks(usize_of(unit)));
            for (index, (a, b)) in parts.enumerate() {
                let number = run.start + u64_of(index);
                self.unit(&mut areas, owners, number, [a, b]);
            }
        }
        if self.compared.tail > 0 {
            let blocks = self.compared.tail.div_ceil(unit);
            let counted = Counted { blocks, bytes: self.compared.tail, first: common, last: None };
            areas.counts.insert(Area::Tail, counted);
        }
        Ok(areas)
    }

    /// Counts the bytes of a unit.
    fn unit(&self, areas: &mut Areas, owners: &[Owners; 2], number: u64, pair: [&[u8]; 2]) {
        let start = number * self.compared.unit;
        let end = start + u64_of(pair[0].len());
        let owned = [owners[0].at(start), owners[1].at(start)];
        let mut at = start;
        while at < end {
            // Up to the next place where what a byte is may change.
            let mut stop = end;
            for owned in owned.iter().flatten() {
                let cuts = [owned.live.start, owned.live.end];
                stop = cuts.into_iter().filter(|cut| *cut > at).fold(stop, u64::min);
            }
            let slot = Side::BOTH.into_iter().find_map(|side| {
                let owned = owned[side.index()].filter(|owned| owned.live.contains(&at))?;
                self.slot(side, owned, at)
            });
            if let Some((slot, _)) = &slot {
                stop = stop.min(slot.end);
            }
            let range = usize_of(at - start)..usize_of(stop - start);
            let parts = pair.map(|bytes| &bytes[range.clone()]);
            let bytes = count(parts[0], parts[1]);
            if bytes > 0 {
                let area = owned.into_iter().flatten().map(|owned| area_of(owned, at)).min();
                let area = match (area.unwrap_or(Area::Unused), &slot) {
                    (Area::Inodes, Some((_, false))) => Area::UnusedInodes,
                    (Area::Padding, _) if at < 1024 => Area::Boot,
                    (area, _) => area,
                };
                let first = parts[0].iter().zip(parts[1]).position(|(a, b)| a != b).map_or(0, u64_of);
                areas.add(area, number, bytes, at + first);
            }
            at = stop;
        }
    }

    /// The bytes of the slot of an inode table that has a byte, and whether an inode of one of the file systems is in it.
    fn slot(&self, side: Side, owned: &Owned, at: u64) -> Option<(Range<u64>, bool)> {
        let (group, table) = owned.table?;
        let layout = self.sides[side.index()].fs.layout();
        let size = u64::from(layout.inode_size);
        let index = (at - table) / size;
        let start = table + index * size;
        let index = u32::try_from(index).ok()?;
        let number = layout.inode_at(group, index)?;
        let is_used = Side::BOTH.into_iter().any(|side| {
            let side = self.sides[side.index()];
            let mut raw = vec![0; layout.inode_len()];
            used_slots(&side.fs, group).is_ok_and(|used| index < used)
                && side.device.read_at(&mut raw, start).is_ok()
                && is_used(&side.fs, number, &raw)
        });
        Some((start..start + size, is_used))
    }
}

/// Area of a byte by its owner.
fn area_of(owned: &Owned, at: u64) -> Area {
    if owned.live.contains(&at) { owned.area } else { owned.rest }
}
