//! Which blocks hold a file's contents, while that changes: extents or block numbers, whichever the inode has.

mod extents;
mod pointers;
mod punch;

use std::ops::ControlFlow;

use crate::alloc::{Allocator, Goal};
use crate::edit::inode::count_clusters;
use crate::edit::too_large::TooLarge;
use crate::error::{Error, Place, Result, Structure, invalid, no_space};
use crate::format::extent::{self, longest};
use crate::format::features::{Incompat, RoCompat};
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::read::mapping::Mapping;
use crate::units::{Block, Cluster};

/// The two ways in which an inode says where its blocks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Extents,
    Pointers,
}

/// A file's map, to look at.
#[derive(Clone, Copy)]
pub(crate) struct MapView<'t> {
    space: &'t Allocator,
    inode: &'t Inode,
}

/// A file's map, to change. The caller stores the inode.
pub(crate) struct FileMap<'t> {
    space: &'t mut Allocator,
    inode: &'t mut Inode,
}

/// How far a file was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Cut {
    Done,
    /// There is more to cut. The inode must wait for that: [`finish_later`](crate::edit::inodes::Inodes::finish_later).
    Begun,
}

/// Runs that are cut before it is asked whether the transaction has room for more.
const RUNS: u64 = 32;

impl<'t> MapView<'t> {
    pub fn new(space: &'t Allocator, inode: &'t Inode) -> MapView<'t> {
        MapView { space, inode }
    }

    /// The run of blocks that holds logical block `at`, or else the first one behind it. It may begin before `at`.
    pub fn run_from(&self, at: u64) -> Result<Option<Mapping>> {
        match kind(self.inode)? {
            Kind::Extents => self.extent_from(at),
            Kind::Pointers => {
                let mut found = None;
                self.space.fs().mappings(self.inode, at, |run| {
                    found = Some(run);
                    Ok(ControlFlow::Break(()))
                })?;
                Ok(found)
            }
        }
    }

    /// Blocks that a file with a map of this kind can have.
    pub fn most_blocks(&self) -> u64 {
        if self.inode.has(InodeFlags::EXTENTS) || self.inode.has(InodeFlags::INLINE_DATA) {
            return 1 << 32;
        }
        let most = pointers::most_blocks(self.space.block_bytes());
        if self.space.fs().superblock().ro_compat.has(RoCompat::HUGE_FILE) {
            return most;
        }
        // Their number in units of 512 bytes has 32 bits.
        most.min((1 << 32) / (self.space.block_bytes() / 512))
    }

    /// The first block of the cluster that logical block `at` must lie in because a neighbour does.
    fn shared_cluster(&self, at: u64) -> Result<Option<Block>> {
        let ratio = self.space.ratio();
        if ratio == 1 {
            return Ok(None);
        }
        let first = at - at % ratio;
        let near = self.run_from(first)?.filter(|run| run.logical < first + ratio);
        Ok(near.map(|run| {
            let logical = run.logical.max(first);
            (run.physical + (logical - run.logical)).cluster(ratio).first_block(ratio)
        }))
    }

    /// Refuses a size in bytes that the file can't have.
    pub fn check_size(&self, size: u64) -> Result<()> {
        let block = self.space.block_bytes();
        let largest = block * self.most_blocks() - block;
        if size > largest {
            let text = format!("the file can have at most {largest} bytes");
            return Err(invalid(std::io::ErrorKind::FileTooLarge, text));
        }
        Ok(())
    }

    /// Refuses to begin what there are not enough blocks for: to map all of the file's blocks `from..to`.
    pub fn require_free(&self, from: u64, to: u64) -> Result<()> {
        let mut needed = to - from;
        self.space.fs().mappings(self.inode, from, |run| {
            let (first, end) = (run.logical.max(from), run.end().min(to));
            needed -= end.saturating_sub(first);
            Ok(if run.end() < to { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        // What was freed in this transaction can be used in the next one.
        let free = self.space.free_clusters() + self.space.pinned_clusters();
        if needed.div_ceil(self.space.ratio()) > free { Err(no_space("blocks")) } else { Ok(()) }
    }

    fn goal_behind(&self, from: u64) -> Result<Goal> {
        let near = Goal::Near(self.space.goal_group(self.inode.number(), self.inode.kind()));
        if from == 0 {
            return Ok(near);
        }
        let before = self.run_from(from - 1)?.filter(|run| run.logical < from);
        Ok(before.map_or(near, |run| Goal::Behind(run.physical + run.len)))
    }
}

impl<'t> FileMap<'t> {
    pub fn new(space: &'t mut Allocator, inode: &'t mut Inode) -> FileMap<'t> {
        FileMap { space, inode }
    }

    /// A view of the map, to read it.
    pub fn view(&self) -> MapView<'_> {
        MapView { space: self.space, inode: self.inode }
    }

    /// Gives the inode an empty map, of extents where the file system has them.
    pub fn start(&mut self) {
        let flags = self.inode.flags().0 & !InodeFlags::EXTENTS.0;
        if self.space.fs().superblock().incompat.has(Incompat::EXTENTS) {
            self.inode.set_flags(flags | InodeFlags::EXTENTS.0);
            self.inode.block_area_mut().copy_from_slice(&extent::root_bytes(0, &[]));
        } else {
            self.inode.set_flags(flags);
            self.inode.block_area_mut().fill(0);
        }
    }

    /// Where the file's blocks `from..to` that have no place yet are put: all of them are mapped afterwards.
    /// Calls `found` for each new run. Only extents can be `unwritten`.
    ///
    /// # Errors
    /// [`TooLarge`] when that is too much for one transaction.
    pub fn fill(&mut self, from: u64, to: u64, unwritten: bool, found: impl FnMut(Mapping)) -> Result<()> {
        if self.fill_some(from, to, unwritten, found)? < to { Err(TooLarge::error()) } else { Ok(()) }
    }

    /// Maps the holes of `from..to` as far as the transaction has room. Returns the first block that was not looked at.
    pub fn fill_some(
        &mut self,
        from: u64,
        to: u64,
        unwritten: bool,
        mut found: impl FnMut(Mapping),
    ) -> Result<u64> {
        let kind = kind(self.inode)?;
        if to > self.view().most_blocks() {
            return Err(no_room());
        }
        let ratio = self.space.ratio();
        if kind == Kind::Pointers && ratio > 1 {
            let text =
                format!("inode {} has block numbers in a file system with clusters", self.inode.number());
            return Err(Error::unsupported(text));
        }
        let mut goal = self.view().goal_behind(from)?;
        let mut at = from;
        while at < to {
            let next = self.view().run_from(at)?;
            if let Some(next) = next.filter(|next| next.logical <= at) {
                at = next.end();
                goal = Goal::Behind(next.physical + next.len);
                continue;
            }
            let hole_end = next.map_or(to, |next| next.logical.min(to));
            let longest = match kind {
                Kind::Extents => longest(unwritten),
                Kind::Pointers => self.pointer_room(at, &mut goal)?,
            };
            let (physical, len) = match self.view().shared_cluster(at)? {
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
                    count_clusters(self.space.fs(), self.inode, clusters.cast_signed())?;
                    (block + within, (clusters * ratio - within).min(hole_end - at))
                }
            };
            let len = len.min(longest);
            let mapping = Mapping { logical: at, physical, len, unwritten };
            match kind {
                Kind::Extents => self.insert_extent(mapping)?,
                Kind::Pointers => self.insert_pointers(&mapping)?,
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

    /// Gives the file a size in bytes.
    pub fn set_size(&mut self, size: u64) -> Result<()> {
        self.inode.set_size(size);
        if i32::try_from(size).is_err() && !self.space.fs().superblock().ro_compat.has(RoCompat::LARGE_FILE) {
            self.space.transaction_mut().edit_superblock(|superblock| {
                superblock.add_ro_compat(RoCompat::LARGE_FILE);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Puts a run in its place, where the file has no blocks. Blocks of the map are taken for it.
    pub fn insert(&mut self, run: Mapping) -> Result<()> {
        if kind(self.inode)? == Kind::Extents {
            return self.insert_extent(run);
        }
        let mut goal = Goal::Behind(run.physical + run.len);
        let mut done = 0;
        while done < run.len {
            let (logical, physical) = (run.logical + done, run.physical + done);
            let len = self.pointer_room(logical, &mut goal)?.min(run.len - done);
            self.insert_pointers(&Mapping { logical, physical, len, unwritten: false })?;
            done += len;
        }
        Ok(())
    }

    /// Takes away the last run of blocks that lie behind `from`, or the part of it that does; the blocks stay in use.
    pub fn take_last(&mut self, from: u64) -> Result<Option<Mapping>> {
        match kind(self.inode)? {
            Kind::Extents => self.take_last_extent(from),
            Kind::Pointers => self.take_last_pointers(from),
        }
    }

    /// Takes the blocks from `from` on away from a file, the last ones first, as far as the transaction has room.
    pub fn cut(&mut self, from: u64) -> Result<Cut> {
        let ratio = self.space.ratio();
        // What still lies in the cluster of the first block that goes.
        let kept = match from % ratio {
            0 => None,
            _ => self.view().run_from(from - from % ratio)?.filter(|run| run.logical < from),
        };
        let kept = kept.map(|run| {
            let last = run.end().min(from) - 1;
            (run.physical + (last - run.logical)).cluster(ratio)
        });
        let mut done = [kept, None];
        let mut runs = 0;
        loop {
            let Some(run) = self.take_last(from)? else { return Ok(Cut::Done) };
            self.free_run(run.physical, run.len, &done)?;
            done[1] = Some(run.physical.cluster(ratio));
            runs += 1;
            // Whoever goes on does not know that this run's first cluster is free, if it has more blocks.
            if runs >= RUNS && run.logical.is_multiple_of(ratio) && self.space.transaction().is_full() {
                return Ok(Cut::Begun);
            }
        }
    }

    /// A block for metadata of the inode, near it.
    pub fn metadata_block(&mut self) -> Result<Block> {
        let group = self.space.goal_group(self.inode.number(), FileType::Directory);
        let (block, _) = self.space.allocate(Goal::Near(group), 1)?;
        count_clusters(self.space.fs(), self.inode, 1)?;
        Ok(block)
    }

    pub fn free_metadata_block(&mut self, block: Block) -> Result<()> {
        self.space.free_blocks(block, 1)?;
        count_clusters(self.space.fs(), self.inode, -1)
    }

    /// Frees the clusters of a run, except those at its ends that are `done` with: neighbours in a file share
    /// clusters.
    fn free_run(&mut self, physical: Block, len: u64, done: &[Option<Cluster>; 2]) -> Result<()> {
        let ratio = self.space.ratio();
        let last = (physical + len).before().cluster(ratio);
        let (mut first, mut end) = (physical.cluster(ratio), last + 1);
        if done.contains(&Some(first)) {
            first = first + 1;
        }
        if first < end && done.contains(&Some(last)) {
            end = last;
        }
        if first < end {
            self.space.free_blocks(first.first_block(ratio), (end - first) * ratio)?;
            count_clusters(self.space.fs(), self.inode, -(end - first).cast_signed())?;
        }
        Ok(())
    }
}

/// The error for a file that its map has no room for.
fn no_room() -> Error {
    invalid(std::io::ErrorKind::FileTooLarge, "more blocks than a file of this file system can have")
}

fn kind(inode: &Inode) -> Result<Kind> {
    if inode.has(InodeFlags::INLINE_DATA) {
        let place = Place::inode(Structure::Inode, inode.number());
        return Err(place.malformed("has its contents in the inode, and no blocks"));
    }
    Ok(if inode.has(InodeFlags::EXTENTS) { Kind::Extents } else { Kind::Pointers })
}
