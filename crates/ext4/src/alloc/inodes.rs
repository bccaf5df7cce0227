//! Inodes taken and freed.

use casemate_blockdev::{u32_of, usize_of};

use crate::alloc::Allocator;
use crate::error::{Error, Place, Result, Structure, no_space};
use crate::format::bitmap;
use crate::format::csum::{Kind, Subject};
use crate::format::group::{BLOCK_UNINIT, Bitmap, Descriptor, INODE_ZEROED};
use crate::format::raw_inode::RawInode;
use crate::units::{Block, GroupNo, InodeNo};

impl Allocator {
    /// Takes an inode for something in the directory `parent`.
    pub fn allocate_inode(&mut self, parent: InodeNo, is_dir: bool) -> Result<InodeNo> {
        let layout = *self.fs.layout();
        let near = parent.index() / layout.inodes_per_group;
        let first = if is_dir { self.directory_group(parent, near)? } else { near };
        let groups = self.usable_groups();
        for step in 0..groups {
            let group = GroupNo::new(first).around(step, groups);
            if self.descriptor(group)?.fields().free_inodes() == 0 {
                continue;
            }
            let descriptor = self.ensure_bitmap(Bitmap::Inodes, group)?;
            let reserved = if group == GroupNo::PRIMARY {
                self.fs.superblock().first_inode.saturating_sub(1)
            } else {
                0
            };
            let from = self.next_inodes.get(&group).copied().unwrap_or(0).max(reserved);
            let per_group = u64::from(layout.inodes_per_group);
            let superblock = self.fs.superblock();
            // tune2fs removes a feature and leaves the number of its file, which somebody else must not get.
            let is_named = |index: u64| {
                layout.inode_at(group, u32_of(index)).is_some_and(|number| superblock.names(number))
            };
            let found = self.transaction.with(descriptor.fields().inode_bitmap(), |bytes| {
                let free = |from: u64| bitmap::next(bytes, from, per_group, false);
                let mut found = free(from.into());
                while let Some(index) = found.filter(|index| is_named(*index)) {
                    found = free(index + 1);
                }
                found
            })?;
            let Some(index) = found.map(u32_of) else { continue };
            self.mark_inode(group, index, is_dir, true)?;
            self.next_inodes.insert(group, index + 1);
            let place = Place::group(Structure::InodeBitmap, group);
            return layout
                .inode_at(group, index)
                .ok_or_else(|| place.malformed("has free inodes behind the last"));
        }
        Err(no_space("inodes"))
    }

    /// The first block of a group's inodes.
    pub fn inode_table(&self, group: GroupNo) -> Result<Block> {
        Ok(self.descriptor(group)?.fields().inode_table())
    }

    /// Whether an inode that exists is in use.
    pub fn is_inode_used(&mut self, group: GroupNo, index: u32) -> Result<bool> {
        let descriptor = self.ensure_bitmap(Bitmap::Inodes, group)?;
        let (from, end) = (u64::from(index), u64::from(index) + 1);
        let used = |bytes: &[u8]| bitmap::next(bytes, from, end, true).is_some();
        self.transaction.with(descriptor.fields().inode_bitmap(), used)
    }

    /// Takes an inode that is free.
    pub fn take_inode(&mut self, number: InodeNo, is_dir: bool) -> Result<()> {
        let place = Place::inode(Structure::Inode, number);
        let position = self.fs.layout().inode_position(number);
        let (group, index) = position.ok_or_else(|| place.malformed("there is no inode with this number"))?;
        self.mark_inode(group, index, is_dir, true)
    }

    /// Frees an inode.
    pub fn free_inode(&mut self, number: InodeNo, is_dir: bool) -> Result<()> {
        let place = Place::inode(Structure::Inode, number);
        let position = self.fs.layout().inode_position(number);
        let (group, index) = position.ok_or_else(|| place.malformed("there is no inode with this number"))?;
        if self.fs.superblock().is_reserved(number) {
            return Err(place.malformed("is reserved"));
        }
        self.mark_inode(group, index, is_dir, false)?;
        if let Some(hint) = self.next_inodes.get_mut(&group) {
            *hint = index.min(*hint);
        }
        Ok(())
    }

    fn mark_inode(&mut self, group: GroupNo, index: u32, is_dir: bool, used: bool) -> Result<()> {
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
                self.zero_inodes(group, &descriptor, used_before, index)?;
                descriptor.set_unused_inodes(per_group - index - 1);
            }
        }
        self.store_descriptor(group, &descriptor)?;
        self.free.inodes += if used { -1 } else { 1 };
        Ok(())
    }

    /// Zeroes the slots `from..=to` of an inode table that were never used, as whole blocks where `from` is the
    /// first slot of one: what lies there is unknown. Of those, the last slot alone is in use by the bitmap.
    fn zero_inodes(&mut self, group: GroupNo, descriptor: &Descriptor, from: u32, to: u32) -> Result<()> {
        let layout = *self.fs.layout();
        let per_block = layout.block_size / layout.inode_size;
        let first = from.next_multiple_of(per_block);
        if first > to {
            return Ok(());
        }
        let end = (to + 1).next_multiple_of(per_block).min(layout.inodes_per_group);
        let others = [(first, to), (to + 1, end)];
        let used = self.transaction.with(descriptor.fields().inode_bitmap(), |bytes| {
            others.into_iter().find_map(|(from, to)| bitmap::next(bytes, from.into(), to.into(), true))
        })?;
        if let Some(index) = used {
            return Err(in_use(group, index));
        }
        for index in (first..=to).step_by(usize_of(per_block)) {
            let block = descriptor.fields().inode_table() + u64::from(index / per_block);
            self.refuse_used(group, descriptor, block, index)?;
            self.transaction.create_zeroed(block);
        }
        Ok(())
    }

    /// Refuses to zero a block of a table which was zeroed once, and that holds inodes that are in use by what they say:
    /// their group's word that they were never used is wrong. What lies in a table that was never zeroed is old.
    fn refuse_used(&self, group: GroupNo, descriptor: &Descriptor, block: Block, first: u32) -> Result<()> {
        if descriptor.fields().flags() & INODE_ZEROED == 0 {
            return Ok(());
        }
        let layout = self.fs.layout();
        let bytes = self.fs.read_block(block)?;
        for (index, raw) in (first..layout.inodes_per_group).zip(bytes.chunks_exact(layout.inode_len())) {
            let Some(number) = layout.inode_at(group, index) else { break };
            let inode = RawInode { number, raw };
            let sums = self.transaction.sums();
            let is_used = inode.kind().is_some() && inode.links() > 0;
            let place = Place::inode(Structure::Inode, number);
            if is_used && sums.verify(Subject::Inode, &inode.context(), raw, place).is_ok() {
                return Err(in_use(group, index.into()));
            }
        }
        Ok(())
    }

    /// Whether flags and unused inodes of descriptors count.
    fn has_group_flags(&self) -> bool {
        self.fs.checksums().kind() != Kind::None
    }

    /// The group for a new directory: below the root where there is most room, else near the parent unless
    /// that is fuller than others.
    fn directory_group(&self, parent: InodeNo, near: u32) -> Result<u32> {
        let layout = self.fs.layout();
        let flex = self.flex_size();
        let sets = layout.groups.div_ceil(flex);
        let counts = |set: u32| {
            let (mut inodes, mut clusters, mut directories) = (0u64, 0u64, 0u64);
            for group in set * flex..((set + 1) * flex).min(layout.groups) {
                let descriptor = self.descriptor(GroupNo::new(group))?;
                inodes += u64::from(descriptor.fields().free_inodes());
                clusters += u64::from(descriptor.fields().free_clusters());
                directories += u64::from(descriptor.fields().used_directories());
            }
            Ok::<_, Error>((inodes, clusters, directories))
        };
        let average = (
            u64::from(self.fs.superblock().inodes_free).saturating_add_signed(self.base.inodes)
                / u64::from(sets),
            self.free_clusters() / u64::from(sets),
        );
        let near_set = near / flex;
        let top = parent == InodeNo::ROOT;
        let mut best: Option<(u64, u32)> = None;
        for step in 0..sets {
            let set = u32_of((u64::from(near_set) + u64::from(step)) % u64::from(sets));
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

/// The fault of a group in which an inode is in use that was never used by the group's word.
pub(crate) fn in_use(group: GroupNo, index: u64) -> Error {
    let text =
        format!("inodes of the group were never used by its word, and that at index {index} is in use");
    Place::group(Structure::GroupDescriptor, group).malformed(text)
}
