//! Which blocks hold a file's contents, while that changes: extents or block numbers, whichever the inode has.

use crate::alloc::Goal;
use crate::edit::extents::LONGEST;
use crate::edit::inode::{InodeMut, empty_extents};
use crate::edit::too_large::TooLarge;
use crate::edit::{Writer, pointers};
use crate::error::{Error, Place, Result, Structure, invalid};
use crate::format::features::{Incompat, RoCompat};
use crate::format::inode::{FileType, InodeFlags};
use crate::read::map::Mapping;

/// The two ways in which an inode says where its blocks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Extents,
    Pointers,
}

/// How far a file was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Cut {
    Done,
    /// There is more to cut. The inode must wait for that: [`finish_later`](Writer::finish_later).
    Begun,
}

/// Runs that are cut before it is asked whether the transaction has room for more.
const RUNS: u64 = 32;

impl Writer {
    /// Gives an inode an empty map, of extents where the file system has them.
    pub(crate) fn start_map(&self, inode: &mut InodeMut) {
        let flags = inode.flags().0 & !InodeFlags::EXTENTS.0;
        if self.space.fs().superblock().incompat.has(Incompat::EXTENTS) {
            inode.set_flags(flags | InodeFlags::EXTENTS.0);
            inode.block_area_mut().copy_from_slice(&empty_extents());
        } else {
            inode.set_flags(flags);
            inode.block_area_mut().fill(0);
        }
    }

    /// The run of blocks that holds logical block `at`, or else the first one behind it. It may begin before `at`.
    pub(crate) fn run_from(&self, inode: &InodeMut, at: u64) -> Result<Option<Mapping>> {
        match kind(inode)? {
            Kind::Extents => self.extent_from(inode, at),
            Kind::Pointers => {
                let mut found = None;
                self.space.fs().mappings(inode, at, |run| {
                    found = Some(run);
                    Ok(std::ops::ControlFlow::Break(()))
                })?;
                Ok(found)
            }
        }
    }

    /// Where the file's blocks `from..to` that have no place yet are put: all of them are mapped afterwards.
    /// Calls `found` for each new run. Only extents can be `unwritten`.
    ///
    /// # Errors
    /// [`TooLarge`](crate::edit::too_large::TooLarge) when that is too much for one transaction.
    pub(crate) fn fill(
        &mut self,
        inode: &mut InodeMut,
        from: u64,
        to: u64,
        unwritten: bool,
        found: impl FnMut(Mapping),
    ) -> Result<()> {
        if self.fill_some(inode, from, to, unwritten, found)? < to { Err(TooLarge::error()) } else { Ok(()) }
    }

    /// The same as far as the transaction has room: the first block that was not looked at.
    pub(crate) fn fill_some(
        &mut self,
        inode: &mut InodeMut,
        from: u64,
        to: u64,
        unwritten: bool,
        mut found: impl FnMut(Mapping),
    ) -> Result<u64> {
        let kind = kind(inode)?;
        if to > self.most_blocks(inode) {
            return Err(too_large());
        }
        let ratio = self.ratio();
        if kind == Kind::Pointers && ratio > 1 {
            let text = format!("inode {} has block numbers in a file system with clusters", inode.number());
            return Err(Error::unsupported(text));
        }
        let mut goal = self.goal_behind(inode, from)?;
        let mut at = from;
        while at < to {
            let next = self.run_from(inode, at)?;
            if let Some(next) = next.filter(|next| next.logical <= at) {
                at = next.end();
                goal = Goal::Behind(next.physical + next.len);
                continue;
            }
            let hole_end = next.map_or(to, |next| next.logical.min(to));
            let longest = match kind {
                Kind::Extents => LONGEST - u64::from(unwritten),
                Kind::Pointers => self.pointer_room(inode, at, &mut goal)?,
            };
            let (physical, len) = match self.shared_cluster(inode, at)? {
                Some(cluster) => {
                    // Another block of the file lies in the same cluster.
                    let within = at % ratio;
                    (cluster + within, (ratio - within).min(hole_end - at))
                }
                None => {
                    let within = at % ratio;
                    let whole = (hole_end - at + within) / ratio;
                    let is_shared =
                        next.is_some_and(|next| ratio > 1 && next.logical / ratio == (hole_end - 1) / ratio);
                    let want =
                        if is_shared { whole.max(1) } else { (hole_end - at + within).div_ceil(ratio) };
                    let want = want.min((longest / ratio).max(1));
                    let (block, clusters) = self.space.allocate(goal, want)?;
                    self.count_clusters(inode, clusters.cast_signed())?;
                    (block + within, (clusters * ratio - within).min(hole_end - at))
                }
            };
            let len = len.min(longest);
            let mapping = Mapping { logical: at, physical, len, unwritten };
            match kind {
                Kind::Extents => self.insert_extent(inode, mapping)?,
                Kind::Pointers => self.insert_pointers(inode, &mapping)?,
            }
            found(mapping);
            goal = Goal::Behind(physical + len);
            at += len;
            if self.space.transaction().is_full() {
                break;
            }
        }
        Ok(at.max(from))
    }

    /// Takes the blocks from `from` on away from a file, the last ones first, as far as the transaction has room.
    pub(crate) fn cut(&mut self, inode: &mut InodeMut, from: u64) -> Result<Cut> {
        let kind = kind(inode)?;
        let ratio = self.ratio();
        // What still lies in the cluster of the first block that goes.
        let kept = match from % ratio {
            0 => None,
            _ => self.run_from(inode, from - from % ratio)?.filter(|run| run.logical < from),
        };
        let kept = kept.map(|run| {
            let last = run.end().min(from) - 1;
            (run.physical + (last - run.logical)) / ratio
        });
        let mut done = [kept, None];
        let mut runs = 0;
        loop {
            let run = match kind {
                Kind::Extents => self.take_last_extent(inode, from)?,
                Kind::Pointers => self.take_last_pointers(inode, from)?,
            };
            let Some(run) = run else { return Ok(Cut::Done) };
            self.free_run(inode, run.physical, run.len, &done)?;
            done[1] = Some(run.physical / ratio);
            runs += 1;
            // Whoever goes on does not know that this run's first cluster is free, if it has more blocks.
            if runs >= RUNS && run.logical.is_multiple_of(ratio) && self.space.transaction().is_full() {
                return Ok(Cut::Begun);
            }
        }
    }

    /// Blocks that a file with a map of this kind can have.
    pub(crate) fn most_blocks(&self, inode: &InodeMut) -> u64 {
        if inode.has(InodeFlags::EXTENTS) || inode.has(InodeFlags::INLINE_DATA) {
            return 1 << 32;
        }
        let most = pointers::most_blocks(self.block_size() as u64);
        if self.space.fs().superblock().ro_compat.has(RoCompat::HUGE_FILE) {
            return most;
        }
        // Their number in units of 512 bytes has 32 bits.
        most.min((1 << 32) / (self.block_size() as u64 / 512))
    }

    /// A block for metadata of an inode, near it.
    pub(crate) fn metadata_block(&mut self, inode: &mut InodeMut) -> Result<u64> {
        let group = self.space.goal_group(inode.number(), FileType::Directory);
        let (block, _) = self.space.allocate(Goal::Near(group), 1)?;
        self.count_clusters(inode, 1)?;
        Ok(block)
    }

    pub(crate) fn free_metadata_block(&mut self, inode: &mut InodeMut, block: u64) -> Result<()> {
        self.space.free_blocks(block, 1)?;
        self.count_clusters(inode, -1)
    }

    /// Frees the clusters of a run, except those at its ends that are `done` with: neighbours in a file share
    /// clusters.
    fn free_run(
        &mut self,
        inode: &mut InodeMut,
        physical: u64,
        len: u64,
        done: &[Option<u64>; 2],
    ) -> Result<()> {
        let ratio = self.ratio();
        let (mut first, mut end) = (physical / ratio, (physical + len - 1) / ratio + 1);
        if done.contains(&Some(first)) {
            first += 1;
        }
        if first < end && done.contains(&Some(end - 1)) {
            end -= 1;
        }
        if first < end {
            self.space.free_blocks(first * ratio, (end - first) * ratio)?;
            self.count_clusters(inode, -(end - first).cast_signed())?;
        }
        Ok(())
    }

    /// The first block of the cluster that logical block `at` must lie in because a neighbour does.
    fn shared_cluster(&self, inode: &InodeMut, at: u64) -> Result<Option<u64>> {
        let ratio = self.ratio();
        if ratio == 1 {
            return Ok(None);
        }
        let first = at - at % ratio;
        let near = self.run_from(inode, first)?.filter(|run| run.logical < first + ratio);
        Ok(near.map(|run| {
            let logical = run.logical.max(first);
            run.physical + (logical - run.logical) - logical % ratio
        }))
    }

    fn goal_behind(&self, inode: &InodeMut, from: u64) -> Result<Goal> {
        let near = Goal::Near(self.space.goal_group(inode.number(), inode.kind()));
        if from == 0 {
            return Ok(near);
        }
        let before = self.run_from(inode, from - 1)?.filter(|run| run.logical < from);
        Ok(before.map_or(near, |run| Goal::Behind(run.physical + run.len)))
    }
}

/// The error for a file that its map has no room for.
pub(crate) fn too_large() -> Error {
    invalid(std::io::ErrorKind::FileTooLarge, "more blocks than a file of this file system can have")
}

fn kind(inode: &InodeMut) -> Result<Kind> {
    if inode.has(InodeFlags::INLINE_DATA) {
        let place = Place::inode(Structure::Inode, inode.number());
        return Err(place.malformed("has its contents in the inode, and no blocks"));
    }
    Ok(if inode.has(InodeFlags::EXTENTS) { Kind::Extents } else { Kind::Pointers })
}
