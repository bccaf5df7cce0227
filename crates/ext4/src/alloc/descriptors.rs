//! Group descriptors and bitmaps, changed together.

use casemate_blockdev::usize_of;

use crate::alloc::Allocator;
use crate::alloc::structures::own;
use crate::error::{Place, Result, Structure};
use crate::format::bitmap;
use crate::format::csum::{Context, Kind};
use crate::format::features::{Compat, Incompat};
use crate::format::group::{Bitmap, Descriptor, INODE_UNINIT};
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;
use crate::transaction::patch::{Part, Patching};
use crate::units::{Block, GroupNo, Run};

impl Allocator {
    /// A group's descriptor as it is now.
    pub fn descriptor(&self, group: GroupNo) -> Result<Descriptor> {
        let layout = self.fs.layout();
        let (block, base) = self.descriptor_place(group);
        let size = layout.descriptor_len();
        let copy = |bytes: &[u8]| Descriptor::from_bytes(&bytes[base..], size);
        if let Some(descriptor) = self.transaction.held(block, copy) {
            return Ok(descriptor);
        }
        // The reader checks the checksum of the descriptor when it first sees it; so do we, of all in the block.
        let first = layout.first_described(layout.descriptor_position(group).0);
        self.transaction.with(block, |bytes| {
            for (group, raw) in first.until(GroupNo::new(layout.groups)).zip(bytes.chunks_exact(size)) {
                let place = Place::group(Structure::GroupDescriptor, group);
                let subject = self.transaction.sums().descriptor_subject();
                self.fs.verify(subject, &group_context(group), raw, place)?;
            }
            Ok(copy(bytes))
        })?
    }

    /// Stores what was changed in a descriptor.
    pub(super) fn store_descriptor(&mut self, group: GroupNo, new: &Descriptor) -> Result<()> {
        let (block, base) = self.descriptor_place(group);
        let part = Part {
            subject: self.transaction.sums().descriptor_subject(),
            context: group_context(group),
            base,
            len: self.fs.layout().descriptor_len(),
        };
        let mut new = *new;
        self.transaction.rewrite(block, &part, new.as_bytes_mut())
    }

    /// Changes a group's descriptor.
    pub fn edit_descriptor(&mut self, group: GroupNo, f: impl FnOnce(&mut Descriptor)) -> Result<()> {
        let mut descriptor = self.descriptor(group)?;
        let old = descriptor;
        f(&mut descriptor);
        self.note_places(&old, &descriptor);
        self.store_descriptor(group, &descriptor)
    }

    /// Makes a descriptor say that each of the group's inodes may be in use, and that its bitmaps were written.
    pub fn doubt_unused(&mut self, group: GroupNo) -> Result<()> {
        if self.fs.checksums().kind() != Kind::None {
            self.ensure_bitmap(Bitmap::Blocks, group)?;
            self.ensure_bitmap(Bitmap::Inodes, group)?;
        }
        self.edit_descriptor(group, |descriptor| {
            descriptor.set_unused_inodes(0);
            descriptor.clear_flag(Bitmap::Blocks.uninit() | Bitmap::Inodes.uninit());
        })
    }

    /// Marks blocks or inodes `first..=last` of a group as in use or free in its bitmap, where they are marked
    /// otherwise. The descriptor's counts are left as they are.
    pub fn set_run(
        &mut self,
        which: Bitmap,
        group: GroupNo,
        first: u64,
        last: u64,
        used: bool,
    ) -> Result<()> {
        let layout = self.fs.layout();
        let (start, each) = match which {
            Bitmap::Blocks => (layout.group_start(group).get(), self.ratio()),
            Bitmap::Inodes => (u64::from(group.get()) * u64::from(layout.inodes_per_group) + 1, 1),
        };
        let place = Place::group(which.structure(), group);
        let (Some(from), true) = (first.checked_sub(start), first <= last) else {
            return Err(place.malformed("is not about these"));
        };
        let count = (last - start) / each - from / each + 1;
        let mut descriptor = self.ensure_bitmap(which, group)?;
        self.flip(which, group, &mut descriptor, from / each, count, used)?;
        self.store_descriptor(group, &descriptor)
    }

    /// Blocks (clusters) or inodes that a group's bitmap says are free. The bitmap was written.
    pub fn free_in(&self, which: Bitmap, group: GroupNo) -> Result<u32> {
        let layout = self.fs.layout();
        let count = match which {
            Bitmap::Blocks => layout.clusters_in(group),
            Bitmap::Inodes => layout.inodes_per_group,
        };
        let block = which.block(self.descriptor(group)?.fields());
        self.transaction.with(block, |bytes| bitmap::clear(bytes, count))
    }

    /// Sets all bits of a bitmap that stand for nothing.
    pub fn set_padding(&mut self, which: Bitmap, group: GroupNo) -> Result<()> {
        let mut descriptor = self.ensure_bitmap(which, group)?;
        let mut at = match which {
            Bitmap::Blocks => self.fs.layout().clusters_in(group).into(),
            Bitmap::Inodes => self.bits(which),
        };
        let end = 8 * self.block_bytes();
        let covered = usize_of(self.bits(which) / 8);
        let sums = *self.transaction.sums();
        let sum = self.transaction.update(which.block(descriptor.fields()), |edit| {
            while let Some(first) = bitmap::next(edit.bytes(), at, end, false) {
                at = bitmap::next(edit.bytes(), first, end, true).unwrap_or(end);
                edit.flip(first, at - first);
            }
            sums.update(None, &edit.bytes()[..covered])
        })?;
        if sums.covers(which.subject()) {
            descriptor.set_bitmap_sum(&sums, which, sum);
        }
        self.store_descriptor(group, &descriptor)
    }

    /// Inverts a run of a bitmap's bits, which must all be `!used`, and patches the bitmap's checksum in
    /// `descriptor`, which the caller stores.
    pub(super) fn flip(
        &mut self,
        which: Bitmap,
        group: GroupNo,
        descriptor: &mut Descriptor,
        first: u64,
        count: u64,
        used: bool,
    ) -> Result<()> {
        let bits = self.bits(which);
        let block = which.block(descriptor.fields());
        let place = Place::group(which.structure(), group).at(block);
        let patcher = *self.transaction.patcher();
        let old = descriptor.bitmap_sum(&patcher.sums, which);
        let sum = self.transaction.update(block, |edit| {
            if first + count > bits || !bitmap::all(edit.bytes(), first, count, !used) {
                let what = if used { "in use" } else { "free" };
                let text = format!("bits {first} to {} should not be {what}", first + count - 1);
                return Err(place.malformed(text));
            }
            edit.flip(first, count);
            if !patcher.sums.covers(which.subject()) {
                return Ok(None);
            }
            if patcher.patching == Patching::Recompute {
                return Ok(Some(patcher.sums.update(None, &edit.bytes()[..usize_of(bits / 8)])));
            }
            Ok(patcher.sums.flipped(old, bits, first, count, descriptor.as_bytes()))
        })??;
        if let Some(sum) = sum {
            descriptor.set_bitmap_sum(&patcher.sums, which, sum);
        }
        Ok(())
    }

    /// Makes sure that a group's bitmap is in the cache and sound; one that was never written is made.
    pub fn ensure_bitmap(&mut self, which: Bitmap, group: GroupNo) -> Result<Descriptor> {
        let mut descriptor = self.descriptor(group)?;
        let block = which.block(descriptor.fields());
        let has_flags = self.fs.checksums().kind() != Kind::None;
        let used_bytes = usize_of(self.bits(which) / 8);
        if has_flags && descriptor.fields().flags() & which.uninit() != 0 {
            self.fs.check_blocks(block, 1, Place::group(Structure::GroupDescriptor, group))?;
            let bytes = match which {
                Bitmap::Blocks => self.made_block_bitmap(group, &descriptor)?,
                Bitmap::Inodes => self.fresh_inode_bitmap(),
            };
            self.refuse_unlikely(which, group, &descriptor, &bytes)?;
            if self.transaction.sums().covers(which.subject()) {
                // All of it is new.
                let sum = self.transaction.sums().update(None, &bytes[..used_bytes]);
                descriptor.set_bitmap_sum(self.transaction.sums(), which, sum);
            }
            self.transaction.create(block, bytes);
            descriptor.clear_flag(which.uninit());
            self.store_descriptor(group, &descriptor)?;
        } else if !self.transaction.holds(block) {
            self.fs.check_blocks(block, 1, Place::group(Structure::GroupDescriptor, group))?;
            let place = Place::group(which.structure(), group).at(block);
            self.transaction.with(block, |bytes| {
                let subject = which.subject();
                let verify = self.fs.verifies();
                let sums = &self.transaction.sums();
                let raw = descriptor.as_bytes();
                if verify { sums.verify_bitmap(subject, &bytes[..used_bytes], raw, place) } else { Ok(()) }
            })??;
        }
        Ok(descriptor)
    }

    /// Begins a group's bitmap with these bytes, by which what is free is counted, too. One that is as that of a group that
    /// was never used is left out where a descriptor can say so.
    pub fn begin_bitmap(&mut self, which: Bitmap, group: GroupNo, bytes: Vec<u8>) -> Result<()> {
        let layout = *self.fs.layout();
        let mut descriptor = self.descriptor(group)?;
        let (fresh, is_last) = match which {
            Bitmap::Blocks => {
                let is_last = group.get() + 1 == layout.groups;
                descriptor.set_free_clusters(bitmap::clear(&bytes, layout.clusters_in(group)));
                (self.fresh_block_bitmap(group, &descriptor), is_last)
            }
            Bitmap::Inodes => {
                descriptor.set_free_inodes(bitmap::clear(&bytes, layout.inodes_per_group));
                (self.fresh_inode_bitmap(), descriptor.fields().flags() & INODE_UNINIT == 0)
            }
        };
        if self.fs.checksums().kind() != Kind::None && !is_last && bytes == fresh {
            descriptor.set_flags(descriptor.fields().flags() | which.uninit());
            return self.store_descriptor(group, &descriptor);
        }
        descriptor.clear_flag(which.uninit());
        if self.transaction.sums().covers(which.subject()) {
            let sum = self.transaction.sums().update(None, &bytes[..usize_of(self.bits(which) / 8)]);
            descriptor.set_bitmap_sum(self.transaction.sums(), which, sum);
        }
        self.transaction.create(which.block(descriptor.fields()), bytes);
        self.store_descriptor(group, &descriptor)
    }

    /// Bits of a bitmap that mean something, and that its checksum covers.
    fn bits(&self, which: Bitmap) -> u64 {
        match which {
            Bitmap::Blocks => self.fs.layout().clusters_per_group.into(),
            Bitmap::Inodes => self.fs.layout().inodes_per_group.into(),
        }
    }

    /// Blocks at fixed places in a group: copies of superblock and descriptors, and room for more of those.
    pub(super) fn base_blocks(&self, group: GroupNo) -> u64 {
        base_blocks(self.fs.layout(), self.fs.superblock(), group)
    }

    /// A block bitmap as the kernel makes it for a group that was never used.
    fn fresh_block_bitmap(&self, group: GroupNo, descriptor: &Descriptor) -> Vec<u8> {
        let layout = self.fs.layout();
        let ratio = self.ratio();
        let start = layout.group_start(group);
        let clusters = layout.blocks_in(group).div_ceil(ratio);
        let mut bytes = vec![0; self.block_size()];
        let mut take = |from: u64, len: u64| {
            let (first, end) = (from / ratio, (from + len).div_ceil(ratio).min(clusters));
            for bit in first..end {
                bitmap::set(&mut bytes, bit);
            }
        };
        take(0, self.base_blocks(group));
        for (block, len) in own(descriptor.fields(), layout.inode_table_blocks()) {
            let end = start + layout.blocks_in(group);
            if block >= start && block < end {
                take(block - start, len.min(end - block));
            }
        }
        bitmap::flip_from(&mut bytes, clusters);
        bytes
    }

    /// The block bitmap for a group whose own was never written. Structures of other groups that lie there are in use, too,
    /// whatever its descriptor says.
    fn made_block_bitmap(&mut self, group: GroupNo, descriptor: &Descriptor) -> Result<Vec<u8>> {
        let mut bytes = self.fresh_block_bitmap(group, descriptor);
        let layout = self.fs.layout();
        let (start, ratio) = (layout.group_start(group), self.ratio());
        let all = Run { first: start, len: layout.blocks_in(group) };
        for run in self.structures()?.shared(all) {
            let (first, end) = ((run.first - start) / ratio, (run.end() - start).div_ceil(ratio));
            for bit in first..end {
                bitmap::set(&mut bytes, bit);
            }
        }
        Ok(bytes)
    }

    /// Refuses a descriptor that says that a bitmap was never written, and counts more in use than there is in a group that
    /// nobody ever used: what that is, nobody knows. A repair knows.
    fn refuse_unlikely(
        &self,
        which: Bitmap,
        group: GroupNo,
        descriptor: &Descriptor,
        bytes: &[u8],
    ) -> Result<()> {
        let layout = self.fs.layout();
        let (count, said) = match which {
            Bitmap::Blocks => (layout.clusters_in(group), descriptor.fields().free_clusters()),
            Bitmap::Inodes => (layout.inodes_per_group, descriptor.fields().free_inodes()),
        };
        let free = bitmap::clear(bytes, count);
        if said >= free || self.transaction.patcher().patching == Patching::Recompute {
            return Ok(());
        }
        let place = Place::group(Structure::GroupDescriptor, group);
        let what = match which {
            Bitmap::Blocks => "block",
            Bitmap::Inodes => "inode",
        };
        Err(place.malformed(format!(
            "the {what} bitmap is said never to have been written, and {said} are said to be free, not {free}"
        )))
    }

    fn fresh_inode_bitmap(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.block_size()];
        bitmap::flip_from(&mut bytes, self.fs.layout().inodes_per_group.into());
        bytes
    }

    /// The block that a group's descriptor lies in, and where in it.
    fn descriptor_place(&self, group: GroupNo) -> (Block, usize) {
        let layout = self.fs.layout();
        let (index, at) = layout.descriptor_position(group);
        (layout.descriptor_block(index), usize_of(at) * layout.descriptor_len())
    }
}

fn group_context(group: GroupNo) -> Context {
    Context { group, ..Context::default() }
}

/// Blocks at fixed places in a group of a file system with this superblock: copies of superblock and descriptors, and room
/// for more of those.
pub(crate) fn base_blocks(layout: &Layout, superblock: &Superblock, group: GroupNo) -> u64 {
    let has_superblock = layout.has_superblock(group);
    let per_block = layout.descriptors_per_block();
    let meta_bg = superblock.incompat.has(Incompat::META_BG);
    let first_meta_bg = superblock.first_meta_bg;
    let (index, within) = layout.descriptor_position(group);
    if meta_bg && index >= first_meta_bg {
        let holds = within <= 1 || within == per_block - 1;
        return u64::from(has_superblock) + u64::from(holds);
    }
    if !has_superblock {
        return 0;
    }
    let descriptors = if meta_bg { first_meta_bg } else { layout.descriptor_blocks() };
    let reserved = if superblock.compat.has(Compat::RESIZE_INODE) {
        u64::from(superblock.reserved_descriptor_blocks())
    } else {
        0
    };
    1 + u64::from(descriptors) + reserved
}
