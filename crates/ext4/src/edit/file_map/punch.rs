//! Blocks in the middle of a file that are taken away, or change between written and unwritten.

use crate::edit::file_map::{FileMap, Kind, RUNS, kind};
use crate::error::Result;
use crate::format::extent::longest;
use crate::read::mapping::Mapping;

impl FileMap<'_> {
    /// Takes the blocks `from..to` away from a file, the first ones first, as far as the transaction has room: the block
    /// that it came to.
    pub fn punch_some(&mut self, from: u64, to: u64) -> Result<u64> {
        let mut at = from;
        for runs in 0.. {
            let run = match kind(self.inode)? {
                Kind::Extents => self.take_next_extent(at, to)?,
                Kind::Pointers => self.take_next_pointers(at, to)?,
            };
            let Some(run) = run else { return Ok(to) };
            // Clusters at its ends may hold other blocks of the file.
            let ratio = self.space.ratio();
            let shared = |map: &Self, logical: u64| -> Result<bool> {
                let cluster = logical - logical % ratio;
                Ok(map.view().run_from(cluster)?.is_some_and(|run| run.logical < cluster + ratio))
            };
            let mut done = [None; 2];
            if ratio > 1 {
                let last = (run.physical + run.len).before();
                done[0] = shared(self, run.logical)?.then_some(run.physical.cluster(ratio));
                done[1] = shared(self, run.end() - 1)?.then_some(last.cluster(ratio));
            }
            self.free_run(run.physical, run.len, &done)?;
            at = run.end();
            if runs >= RUNS && self.space.transaction().is_full() {
                break;
            }
        }
        Ok(at)
    }

    /// Marks the mapped blocks of `from..to` as written or unwritten, as far as the transaction has room. Returns the
    /// block that it came to. Calls `found` for each run that was marked otherwise before. Only for extents.
    pub fn mark_some(
        &mut self,
        from: u64,
        to: u64,
        unwritten: bool,
        mut found: impl FnMut(Mapping),
    ) -> Result<u64> {
        let mut at = from;
        for runs in 0.. {
            let mut next = self.view().extent_from(at)?.filter(|run| run.logical < to);
            while let Some(run) = next.filter(|run| run.unwritten == unwritten) {
                at = run.end();
                next = self.view().extent_from(at)?.filter(|run| run.logical < to);
            }
            let Some(next) = next.filter(|_| at < to) else { return Ok(to) };
            let first = next.logical.max(at);
            let end = to.min(first + longest(unwritten));
            let Some(run) = self.take_next_extent(first, end)? else { return Ok(to) };
            self.insert_extent(Mapping { unwritten, ..run })?;
            found(run);
            at = run.end();
            if runs >= RUNS && self.space.transaction().is_full() {
                break;
            }
        }
        Ok(at.min(to))
    }
}
