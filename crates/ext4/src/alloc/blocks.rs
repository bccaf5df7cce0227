//! Blocks taken and freed.

use crate::alloc::Allocator;
use crate::alloc::structures::own;
use crate::error::{Place, Result, Structure, no_space};
use crate::format::bitmap;
use crate::format::features::Incompat;
use crate::format::group::{Bitmap, Descriptor};
use crate::format::inode::FileType;
use crate::units::{Block, GroupNo, InodeNo, Run};

/// The purpose that blocks are allocated for, which decides where the search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Behind what the file has already, if anything is free there.
    Behind(Block),
    /// Anywhere near this group, in one piece if possible.
    Near(GroupNo),
}

impl Allocator {
    /// Takes up to `want` clusters in one run: its first block, and how many clusters.
    pub fn allocate(&mut self, goal: Goal, want: u64) -> Result<(Block, u64)> {
        let layout = *self.fs.layout();
        let mut want = want.min(layout.clusters_per_group.into());
        if self.keeps_reserve {
            let reserved = self.fs.reserved_blocks() / self.ratio();
            let room = (self.free_clusters() + self.pinned_clusters()).saturating_sub(reserved);
            want = want.min(room);
            if want == 0 {
                return Err(no_space("blocks"));
            }
        }
        let (first_group, from, exact) = match goal {
            Goal::Behind(block) => match Block::new(block.get().next_multiple_of(self.ratio())) {
                behind if layout.contains(behind, 1) => {
                    let (group, bit) = self.cluster_position(behind);
                    (group, bit, true)
                }
                _ => (self.cluster_position(block.before()).0, 0, false),
            },
            Goal::Near(group) => {
                let block = self.near.get(&group).copied().filter(|block| layout.contains(*block, 1));
                let (at, bit) = block.map_or((group, 0), |block| self.cluster_position(block));
                (at, bit, false)
            }
        };
        for least in [want, 1] {
            let groups = self.usable_groups();
            for step in 0..groups {
                let group = first_group.around(step, groups);
                let free = u64::from(self.descriptor(group)?.fields().free_clusters());
                if free < least {
                    continue;
                }
                let mut found = None;
                let is_first = group == first_group;
                if is_first && exact {
                    found = self.find_run(group, from, want, true)?;
                }
                // What is right behind the file is good in any length.
                if found.is_none() && is_first && from > 0 {
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
                    self.near.insert(goal, block + len * self.ratio());
                }
                return Ok((block, len));
            }
        }
        Err(no_space("blocks"))
    }

    /// Takes the clusters that blocks lie in, as far as they are free.
    pub fn take_blocks(&mut self, block: Block, len: u64) -> Result<()> {
        let ratio = self.ratio();
        let (mut at, end) = (block, block + len);
        while at < end {
            let (group, bit) = self.cluster_position(at);
            let start = self.fs.layout().group_start(group);
            let stop = end.min(start + self.fs.layout().blocks_in(group));
            let last = (stop - start).div_ceil(ratio);
            let descriptor = self.ensure_bitmap(Bitmap::Blocks, group)?;
            let block = descriptor.fields().block_bitmap();
            let free = |from, is_used| {
                self.transaction.with(block, |bytes| bitmap::next(bytes, from, last, is_used))
            };
            let Some(first) = free(bit, false)? else {
                at = stop;
                continue;
            };
            let behind = free(first, true)?.unwrap_or(last);
            self.mark_clusters(group, first, behind - first, true)?;
            at = start + behind * ratio;
        }
        Ok(())
    }

    /// Frees the clusters that blocks lie in.
    pub fn free_blocks(&mut self, block: Block, len: u64) -> Result<()> {
        self.free_run(block, len, false)
    }

    /// Frees blocks that were structures of groups until now.
    pub fn free_own(&mut self, block: Block, len: u64) -> Result<()> {
        self.free_run(block, len, true)
    }

    fn free_run(&mut self, block: Block, len: u64, are_own: bool) -> Result<()> {
        let ratio = self.ratio();
        self.transaction.forget(block, len);
        let (mut block, end) = (block, block + len);
        while block < end {
            let (group, bit) = self.cluster_position(block);
            let group_end = self.fs.layout().group_start(group) + self.fs.layout().blocks_in(group);
            let stop = end.min(group_end);
            let start = self.fs.layout().group_start(group);
            let count = (stop - start).div_ceil(ratio) - bit;
            match are_own {
                true => self.count_clusters(group, bit, count, false)?,
                false => self.mark_clusters(group, bit, count, false)?,
            }
            self.pins.add(group, bit, count);
            block = stop;
        }
        Ok(())
    }

    /// Clusters that were freed in this transaction, and can be taken after it.
    pub fn pinned_clusters(&self) -> u64 {
        self.pins.clusters()
    }

    /// Clusters that can be taken before the next commit.
    pub fn free_clusters(&self) -> u64 {
        let layout = self.fs.layout();
        let said = i128::from(self.fs.superblock().blocks_free / self.ratio());
        // A damaged superblock may count more than there are.
        let most = i128::from(layout.blocks.div_ceil(self.ratio()));
        let now = (said + self.base.clusters + self.free.clusters).clamp(0, most);
        u64::try_from(now).unwrap_or(0).saturating_sub(self.pins.clusters())
    }

    /// Inodes that can be taken.
    pub fn free_inodes(&self) -> u64 {
        let free = u64::from(self.fs.superblock().inodes_free);
        free.saturating_add_signed(self.base.inodes + self.free.inodes)
    }

    /// A run of free clusters in a group from bit `from` on. With `exact` only what begins at `from`.
    fn find_run(&mut self, group: GroupNo, from: u64, want: u64, exact: bool) -> Result<Option<(u64, u64)>> {
        let descriptor = self.ensure_bitmap(Bitmap::Blocks, group)?;
        // A cluster that is cut off by the end of the file system can't be used.
        let start = self.fs.layout().group_start(group);
        let below = self.limit.map_or(u64::MAX, |(end, _)| end.checked_since(start).unwrap_or(0));
        let end = self.fs.layout().blocks_in(group).min(below) / self.ratio();
        let search = |bytes: &[u8]| {
            if exact {
                let stop = bitmap::next(bytes, from.min(end), end.min(from.saturating_add(want)), true);
                let len = stop.unwrap_or(end.min(from + want)).saturating_sub(from);
                return (len > 0).then_some((from, len));
            }
            bitmap::clear_run(bytes, from, end, want)
        };
        let mut pins = self.pins.of(group).peekable();
        let found = match pins.peek() {
            None => self.transaction.with(descriptor.fields().block_bitmap(), search)?,
            Some(_) => {
                let mut bytes = self.transaction.with(descriptor.fields().block_bitmap(), <[u8]>::to_vec)?;
                pins.for_each(|(first, count)| bitmap::flip(&mut bytes, first, count));
                search(&bytes)
            }
        };
        Ok(found)
    }

    /// Marks clusters of one group as used or free, everywhere that counts them.
    fn mark_clusters(&mut self, group: GroupNo, bit: u64, count: u64, used: bool) -> Result<()> {
        let descriptor = self.ensure_bitmap(Bitmap::Blocks, group)?;
        self.refuse_metadata(group, &descriptor, bit, count)?;
        self.count_clusters(group, bit, count, used)
    }

    fn count_clusters(&mut self, group: GroupNo, bit: u64, count: u64, used: bool) -> Result<()> {
        let mut descriptor = self.ensure_bitmap(Bitmap::Blocks, group)?;
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
        self.free.clusters += i128::from(change);
        Ok(())
    }

    /// A bitmap that calls metadata free, that of the group or with flex_bg of another one, or a file that claims to own it, is
    /// damaged: nothing is counted then.
    fn refuse_metadata(
        &mut self,
        group: GroupNo,
        descriptor: &Descriptor,
        bit: u64,
        count: u64,
    ) -> Result<()> {
        let layout = *self.fs.layout();
        let start = layout.group_start(group) + bit * self.ratio();
        let end = start + count * self.ratio();
        let run = Run::between(start, end);
        let base = (layout.group_start(group), self.base_blocks(group));
        let own = own(descriptor.fields(), layout.inode_table_blocks());
        let of_group = own.into_iter().chain([base]).filter(|(_, len)| *len > 0);
        let mut runs = of_group.map(|(first, len)| Run::between(first, first.saturating_add(len)));
        let whose = if runs.any(|own| own.shared(run).is_some()) {
            "the group"
        } else if self.structures()?.shared(run).next().is_some() {
            "another group"
        } else {
            return Ok(());
        };
        let place = Place::group(Structure::BlockBitmap, group).at(descriptor.fields().block_bitmap());
        Err(place.malformed(format!("blocks {start} to {} hold metadata of {whose}", end.before())))
    }

    /// The group and the cluster in it that a block lies in.
    fn cluster_position(&self, block: Block) -> (GroupNo, u64) {
        // Blocks of the file system only.
        let (group, within) = self.fs.layout().group_of(block).unwrap_or_default();
        (group, within / self.ratio())
    }

    /// The group that the contents of a file should lie near: in a flex group of some size, its first group is
    /// left to metadata and directories.
    pub fn goal_group(&self, inode: InodeNo, kind: FileType) -> GroupNo {
        let group = inode.index() / self.fs.layout().inodes_per_group;
        let flex = self.flex_size();
        if flex < 4 {
            return GroupNo::new(group);
        }
        let first = group - group % flex;
        let next = first + u32::from(kind == FileType::Regular);
        GroupNo::new(if next < self.fs.layout().groups { next } else { first })
    }

    /// Groups in a flex group.
    pub(super) fn flex_size(&self) -> u32 {
        let superblock = self.fs.superblock();
        let s_log_groups_per_flex = u32::from(superblock.log_groups_per_flex());
        let has = superblock.incompat.has(Incompat::FLEX_BG) && s_log_groups_per_flex < 24;
        if has { 1 << s_log_groups_per_flex } else { 1 }
    }
}
