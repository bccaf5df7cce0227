//! The one place that takes and frees blocks and inodes.
//!
//! Everything is taken towards a goal: a file's blocks behind each other and in its inode's group, a file's inode
//! in its directory's group, directories below one another together and those below the root apart.

pub(crate) mod blocks;
pub(crate) mod descriptors;

use std::collections::HashMap;

use crate::alloc::descriptors::{Bitmap, Descriptor};
use crate::edit::{Writer, no_space};
use crate::error::{Place, Result, Structure};
use crate::format::bitmap;
use crate::format::features::Incompat;
use crate::format::group::BLOCK_UNINIT;
use crate::format::inode::{FileType, ROOT_INODE};

/// Clusters that were freed since the last commit. The state on the device still uses them, so nothing may be
/// written to them yet.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// Group, first cluster in it, count; in the order in which they were freed.
    list: Vec<(u32, u64, u64)>,
    /// The same by group, as positions in the list.
    groups: HashMap<u32, Vec<usize>>,
    clusters: u64,
}

impl Pins {
    /// A point to which [`roll_back`](Pins::roll_back) can go.
    pub fn mark(&self) -> usize {
        self.list.len()
    }

    pub fn roll_back(&mut self, mark: usize) {
        for (group, _, count) in self.list.drain(mark..).rev() {
            self.clusters -= count;
            if let Some(positions) = self.groups.get_mut(&group) {
                positions.pop();
            }
        }
    }

    pub fn clear(&mut self) {
        *self = Pins::default();
    }

    /// How many clusters are pinned.
    pub fn clusters(&self) -> u64 {
        self.clusters
    }

    fn add(&mut self, group: u32, first: u64, count: u64) {
        self.groups.entry(group).or_default().push(self.list.len());
        self.list.push((group, first, count));
        self.clusters += count;
    }

    fn of(&self, group: u32) -> impl Iterator<Item = (u64, u64)> {
        let positions = self.groups.get(&group).into_iter().flatten();
        positions.map(|position| (self.list[*position].1, self.list[*position].2))
    }
}

/// What blocks are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Behind what the file has already, if anything is free there.
    Behind(u64),
    /// Anywhere near this group, in one piece if possible.
    Near(u32),
}

impl Writer {
    /// Takes up to `want` clusters in one run: its first block, and how many clusters.
    pub(crate) fn allocate(&mut self, goal: Goal, want: u64) -> Result<(u64, u64)> {
        let layout = *self.fs.layout();
        let want = want.min(layout.clusters_per_group.into());
        let (first_group, from, exact) = match goal {
            Goal::Behind(block) => match block.next_multiple_of(self.ratio()) {
                behind if layout.contains(behind, 1) => {
                    let (group, bit) = self.cluster_position(behind);
                    (group, bit, true)
                }
                _ => (self.cluster_position(block - 1).0, 0, false),
            },
            Goal::Near(group) => {
                let block = self.hints.blocks.get(&group).copied().filter(|block| layout.contains(*block, 1));
                let (at, bit) = block.map_or((group, 0), |block| self.cluster_position(block));
                (at, bit, false)
            }
        };
        for least in [want, 1] {
            for step in 0..layout.groups {
                let group = ((u64::from(first_group) + u64::from(step)) % u64::from(layout.groups)) as u32;
                let free = u64::from(self.descriptor(group)?.fields().free_clusters());
                if free < least {
                    continue;
                }
                let mut found = None;
                if step == 0 && exact {
                    found = self.find_run(group, from, want, true)?;
                }
                // What is right behind the file is good in any length.
                if found.is_none() && step == 0 && from > 0 {
                    found = self.find_run(group, from, want, false)?.filter(|(_, len)| *len >= least);
                }
                if found.is_none() {
                    found = self.find_run(group, 0, want, false)?.filter(|(_, len)| *len >= least);
                }
                let Some((bit, len)) = found else { continue };
                let len = len.min(want);
                self.mark_clusters(group, bit, len, true)?;
                let block = layout.group_start(group) + bit * self.ratio();
                if let Goal::Near(goal) = goal {
                    self.hints.blocks.insert(goal, block + len * self.ratio());
                }
                return Ok((block, len));
            }
        }
        Err(no_space("blocks"))
    }

    /// Frees the clusters that blocks lie in.
    pub(crate) fn free_blocks(&mut self, block: u64, len: u64) -> Result<()> {
        let ratio = self.ratio();
        self.cache.forget(block, len);
        let (mut block, end) = (block, block + len);
        while block < end {
            let (group, bit) = self.cluster_position(block);
            let group_end = self.fs.layout().group_start(group) + self.group_blocks(group);
            let stop = end.min(group_end);
            let start = self.fs.layout().group_start(group);
            let count = (stop - start).div_ceil(ratio) - bit;
            self.mark_clusters(group, bit, count, false)?;
            self.pins.add(group, bit, count);
            block = stop;
        }
        Ok(())
    }

    /// Clusters that can be taken before the next commit.
    pub(crate) fn free_clusters(&self) -> u64 {
        let free = self.fs.superblock().blocks_free / self.ratio();
        let now = free.saturating_add_signed(self.base.clusters + self.free.clusters);
        now.saturating_sub(self.pins.clusters())
    }

    /// A run of free clusters in a group from bit `from` on. With `exact` only what begins at `from`.
    fn find_run(&mut self, group: u32, from: u64, want: u64, exact: bool) -> Result<Option<(u64, u64)>> {
        let descriptor = self.ensure_bitmap(Bitmap::Blocks, group)?;
        // A cluster that is cut off by the end of the file system can't be used.
        let end = self.group_blocks(group) / self.ratio();
        let search = |bytes: &[u8]| {
            if exact {
                let stop = bitmap::next(bytes, from, end.min(from.saturating_add(want)), true);
                let len = stop.unwrap_or(end.min(from + want)).saturating_sub(from);
                return (len > 0).then_some((from, len));
            }
            bitmap::clear_run(bytes, from, end, want)
        };
        let mut pins = self.pins.of(group).peekable();
        let found = match pins.peek() {
            None => self.cache.with(descriptor.fields().block_bitmap(), search)?,
            Some(_) => {
                let mut bytes = self.cache.with(descriptor.fields().block_bitmap(), <[u8]>::to_vec)?;
                pins.for_each(|(first, count)| bitmap::flip(&mut bytes, first, count));
                search(&bytes)
            }
        };
        Ok(found)
    }

    /// Marks clusters of one group as used or free, everywhere that counts them.
    fn mark_clusters(&mut self, group: u32, bit: u64, count: u64, used: bool) -> Result<()> {
        let mut descriptor = self.ensure_bitmap(Bitmap::Blocks, group)?;
        self.refuse_metadata(group, &descriptor, bit, count)?;
        self.flip(Bitmap::Blocks, group, &mut descriptor, bit, count, used)?;
        let free = i64::from(descriptor.fields().free_clusters());
        let change = if used { -count.cast_signed() } else { count.cast_signed() };
        let place = Place::group(Structure::GroupDescriptor, group);
        let free = u32::try_from(free + change)
            .ok()
            .filter(|free| *free <= self.fs.layout().clusters_per_group)
            .ok_or_else(|| place.malformed("the count of free blocks is not that of the bitmap"))?;
        descriptor.set_free_clusters(free);
        self.store_descriptor(group, &descriptor)?;
        self.free.clusters += change;
        Ok(())
    }

    /// A bitmap that calls a group's own metadata free, or a file that claims to own it, is damaged: nothing is
    /// counted then.
    fn refuse_metadata(&self, group: u32, descriptor: &Descriptor, bit: u64, count: u64) -> Result<()> {
        let layout = self.fs.layout();
        let start = layout.group_start(group) + bit * self.ratio();
        let end = start + count * self.ratio();
        let own = [
            (layout.group_start(group), self.base_blocks(group)),
            (descriptor.fields().block_bitmap(), 1),
            (descriptor.fields().inode_bitmap(), 1),
            (descriptor.fields().inode_table(), layout.inode_table_blocks()),
        ];
        if own.iter().any(|(first, len)| start < first + len && *first < end) {
            let place = Place::group(Structure::BlockBitmap, group).at(descriptor.fields().block_bitmap());
            return Err(place.malformed(format!("blocks {start} to {} hold metadata of the group", end - 1)));
        }
        Ok(())
    }

    /// The group and the cluster in it that a block lies in.
    pub(crate) fn cluster_position(&self, block: u64) -> (u32, u64) {
        let layout = self.fs.layout();
        let within = block - u64::from(layout.first_data_block);
        let per_group = u64::from(layout.blocks_per_group);
        // OK to truncate: blocks of the file system only.
        ((within / per_group) as u32, within % per_group / self.ratio())
    }

    /// The group that the contents of a file should lie near: in a flex group of some size, its first group is
    /// left to metadata and directories.
    pub(crate) fn goal_group(&self, inode: u32, kind: FileType) -> u32 {
        let group = (inode - 1) / self.fs.layout().inodes_per_group;
        let flex = self.flex_size();
        if flex < 4 {
            return group;
        }
        let first = group - group % flex;
        let next = first + u32::from(kind == FileType::Regular);
        if next < self.fs.layout().groups { next } else { first }
    }

    /// Groups in a flex group.
    fn flex_size(&self) -> u32 {
        let superblock = self.fs.superblock();
        let s_log_groups_per_flex = u32::from(superblock.as_bytes()[0x174]);
        let has = superblock.incompat.has(Incompat::FLEX_BG) && s_log_groups_per_flex < 24;
        if has { 1 << s_log_groups_per_flex } else { 1 }
    }

    /// Takes an inode for something in the directory `parent`.
    pub(crate) fn allocate_inode(&mut self, parent: u32, is_dir: bool) -> Result<u32> {
        let layout = *self.fs.layout();
        let near = (parent - 1) / layout.inodes_per_group;
        let first = if is_dir { self.directory_group(parent, near)? } else { near };
        for step in 0..layout.groups {
            let group = ((u64::from(first) + u64::from(step)) % u64::from(layout.groups)) as u32;
            if self.descriptor(group)?.fields().free_inodes() == 0 {
                continue;
            }
            let descriptor = self.ensure_bitmap(Bitmap::Inodes, group)?;
            let reserved = if group == 0 { self.fs.superblock().first_inode.saturating_sub(1) } else { 0 };
            let from = self.hints.inodes.get(&group).copied().unwrap_or(0).max(reserved);
            let per_group = u64::from(layout.inodes_per_group);
            let found = self.cache.with(descriptor.fields().inode_bitmap(), |bytes| {
                bitmap::next(bytes, from.into(), per_group, false)
            })?;
            // OK to truncate: below the number of inodes in a group.
            let Some(index) = found.map(|index| index as u32) else { continue };
            self.mark_inode(group, index, is_dir, true)?;
            self.hints.inodes.insert(group, index + 1);
            return Ok(group * layout.inodes_per_group + index + 1);
        }
        Err(no_space("inodes"))
    }

    /// Frees an inode.
    pub(crate) fn free_inode(&mut self, number: u32, is_dir: bool) -> Result<()> {
        let place = Place::inode(Structure::Inode, number);
        let position = self.fs.layout().inode_position(number);
        let (group, index) = position.ok_or_else(|| place.malformed("there is no inode with this number"))?;
        if number < self.fs.superblock().first_inode {
            return Err(place.malformed("is reserved"));
        }
        self.mark_inode(group, index, is_dir, false)?;
        if let Some(hint) = self.hints.inodes.get_mut(&group) {
            *hint = index.min(*hint);
        }
        Ok(())
    }

    fn mark_inode(&mut self, group: u32, index: u32, is_dir: bool, used: bool) -> Result<()> {
        let mut descriptor = self.ensure_bitmap(Bitmap::Inodes, group)?;
        if used && self.has_group_flags() && descriptor.fields().flags() & BLOCK_UNINIT != 0 {
            // As in the kernel: a group with inodes has a block bitmap.
            descriptor = self.ensure_bitmap(Bitmap::Blocks, group)?;
        }
        self.flip(Bitmap::Inodes, group, &mut descriptor, index.into(), 1, used)?;
        let place = Place::group(Structure::GroupDescriptor, group);
        let step = |count: u32, down: bool| if down { count.checked_sub(1) } else { count.checked_add(1) };
        let free = step(descriptor.fields().free_inodes(), used)
            .ok_or_else(|| place.malformed("the count of free inodes is not that of the bitmap"))?;
        descriptor.set_free_inodes(free);
        if is_dir {
            let directories = step(descriptor.fields().used_directories(), !used)
                .ok_or_else(|| place.malformed("the count of directories is too low"))?;
            descriptor.set_used_directories(directories);
        }
        if used && self.has_group_flags() {
            let per_group = self.fs.layout().inodes_per_group;
            let used_before = per_group.saturating_sub(descriptor.fields().unused_inodes());
            if index >= used_before {
                self.zero_inodes(&descriptor, used_before, index)?;
                descriptor.set_unused_inodes(per_group - index - 1);
            }
        }
        self.store_descriptor(group, &descriptor)?;
        self.free.inodes += if used { -1 } else { 1 };
        Ok(())
    }

    /// Zeroes the slots `from..=to` of an inode table that were never used, as whole blocks where `from` is the
    /// first slot of one: what lies there is unknown.
    fn zero_inodes(&mut self, descriptor: &Descriptor, from: u32, to: u32) -> Result<()> {
        let per_block = (self.block_size() / self.fs.layout().inode_size as usize) as u32;
        for index in (from.next_multiple_of(per_block)..=to).step_by(per_block as usize) {
            let block = descriptor.fields().inode_table() + u64::from(index / per_block);
            self.cache.create(block, vec![0; self.block_size()].into());
        }
        Ok(())
    }

    /// Whether flags and unused inodes of descriptors count.
    fn has_group_flags(&self) -> bool {
        self.fs.checksums().kind() != crate::format::csum::Kind::None
    }

    /// The group for a new directory: below the root where there is most room, else near the parent unless
    /// that is fuller than others.
    fn directory_group(&self, parent: u32, near: u32) -> Result<u32> {
        let layout = self.fs.layout();
        let flex = self.flex_size();
        let sets = layout.groups.div_ceil(flex);
        let counts = |set: u32| {
            let (mut inodes, mut clusters, mut directories) = (0u64, 0u64, 0u64);
            for group in set * flex..((set + 1) * flex).min(layout.groups) {
                let descriptor = self.descriptor(group)?;
                inodes += u64::from(descriptor.fields().free_inodes());
                clusters += u64::from(descriptor.fields().free_clusters());
                directories += u64::from(descriptor.fields().used_directories());
            }
            Ok::<_, crate::Error>((inodes, clusters, directories))
        };
        let average = (
            u64::from(self.fs.superblock().inodes_free).saturating_add_signed(self.base.inodes)
                / u64::from(sets),
            self.free_clusters() / u64::from(sets),
        );
        let near_set = near / flex;
        let top = parent == ROOT_INODE;
        let mut best: Option<(u64, u32)> = None;
        for step in 0..sets {
            let set = ((u64::from(near_set) + u64::from(step)) % u64::from(sets)) as u32;
            let (inodes, clusters, directories) = counts(set)?;
            let share = if top { 1 } else { 4 };
            if inodes == 0 || inodes < average.0 / share || clusters < average.1 / share {
                continue;
            }
            if !top {
                return Ok(if set == near_set { near } else { set * flex });
            }
            if best.is_none_or(|(fewest, _)| directories < fewest) {
                best = Some((directories, set));
            }
        }
        Ok(best.map_or(near, |(_, set)| set * flex))
    }
}
