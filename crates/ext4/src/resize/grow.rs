//! New groups behind the last one.
//!
//! Blocks behind the old end are written as contents are, before the commit that makes it part of the file system.

use casemate_blockdev::{u32_of, usize_of};

use crate::alloc::base_blocks;
use crate::edit::files::Files;
use crate::error::{Place, Result, Structure};
use crate::format::csum::{Context, Kind, Subject, recipe};
use crate::format::features::{Compat, Incompat};
use crate::format::group::{BLOCK_UNINIT, Bitmap, Descriptor, INODE_UNINIT, INODE_ZEROED};
use crate::format::layout::Layout;
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, SuperblockMut};
use crate::number::u16_of;
use crate::resize::reserve;
use crate::resize::shape::Shape;
use crate::units::{Block, GroupNo};

/// Blocks of zeros that are written at once.
const CHUNK: u64 = 256;

/// How descriptors go on.
struct Room {
    /// Blocks that are kept for more descriptors.
    reserved: u32,
    /// The first block of descriptors that lies in the groups that it describes, if that begins now.
    first_meta_bg: Option<u32>,
}

/// Makes the file system larger. From byte `zeros_from` on the device reads as zeros.
pub(super) fn grow(files: &mut Files, shape: Shape, zeros_from: Option<u64>) -> Result<()> {
    let fs = files.fs().clone();
    let (old, before) = (*fs.layout(), fs.superblock().clone());
    let room = room(&old, &before, shape);
    let mut raw = *before.as_bytes();
    set_shape(&mut SuperblockMut { raw: &mut raw }, &before, shape, &room);
    let superblock = Superblock::from_bytes(&raw)?;
    let layout = Layout::new(&superblock)?;
    let grow = Grow { old, layout, superblock, zeros_from };

    let extended = grow.extend_last(files)?;
    let mut free = extended;
    let mut descriptors = Vec::new();
    for group in GroupNo::new(old.groups).until(GroupNo::new(layout.groups)) {
        let descriptor = grow.group(files, group)?;
        free += u64::from(descriptor.fields().free_clusters());
        descriptors.push(descriptor);
    }
    grow.descriptors(files, &descriptors)?;
    if room.first_meta_bg.is_some() {
        if before.compat.has(Compat::RESIZE_INODE) {
            reserve::drop(files)?;
        }
    } else if before.compat.has(Compat::RESIZE_INODE) {
        reserve::keep(files, &layout, room.reserved)?;
    }
    let inodes = layout.inodes - old.inodes;
    files.inodes().transaction().edit_superblock(|superblock| {
        set_shape(superblock, &before, shape, &room);
        // Nothing is less than nothing.
        let _ = superblock.add_free(free.into(), inodes.into());
        Ok(())
    })?;
    grow.copies(files)
}

/// Where more descriptors go: into the room that is kept for them, or to where what they describe is.
fn room(old: &Layout, superblock: &Superblock, shape: Shape) -> Room {
    let blocks = shape.groups.div_ceil(old.descriptors_per_block());
    let more = blocks - old.descriptor_blocks();
    let reserved = match superblock.compat.has(Compat::RESIZE_INODE) {
        true => u32::from(superblock.reserved_descriptor_blocks()),
        false => 0,
    };
    if superblock.incompat.has(Incompat::META_BG) || more <= reserved {
        let reserved = if superblock.incompat.has(Incompat::META_BG) { reserved } else { reserved - more };
        return Room { reserved, first_meta_bg: None };
    }
    Room { reserved: 0, first_meta_bg: Some(old.descriptor_blocks() + reserved) }
}

/// Sets all that follows from another size; free blocks and inodes are others' to count.
fn set_shape(superblock: &mut SuperblockMut<'_>, before: &Superblock, shape: Shape, room: &Room) {
    // OK to multiply: whoever chose the shape did.
    superblock.set_size(shape.blocks, shape.groups * before.inodes_per_group);
    superblock.set_reserved_blocks(scaled(before, shape.blocks));
    if before.compat.has(Compat::RESIZE_INODE) {
        // Not more than there were.
        superblock.set_reserved_descriptor_blocks(u16_of(room.reserved));
    }
    if let Some(first) = room.first_meta_bg {
        superblock.remove_compat(Compat::RESIZE_INODE);
        superblock.add_incompat(Incompat::META_BG);
        superblock.set_first_meta_bg(first);
    }
    // Whoever mounts it counts them.
    superblock.set_overhead_clusters(0);
}

/// The share of blocks that only root may use, of another size.
pub(super) fn scaled(before: &Superblock, blocks: u64) -> u64 {
    let scaled = u128::from(before.blocks_reserved) * u128::from(blocks) / u128::from(before.blocks.max(1));
    // OK to fall back: no more than before where that is a share at all.
    u64::try_from(scaled).unwrap_or(before.blocks_reserved)
}

struct Grow {
    old: Layout,
    layout: Layout,
    superblock: Superblock,
    zeros_from: Option<u64>,
}

impl Grow {
    /// Writes a block that the file system has, or will have.
    fn put(&self, files: &mut Files, block: Block, bytes: Vec<u8>) -> Result<()> {
        match block < self.old.end() {
            true => files.inodes().transaction().create(block, bytes),
            false => files.inodes().transaction().write_data(block, &bytes)?,
        }
        Ok(())
    }

    /// Frees what the last group gets behind its end. How many blocks that is.
    fn extend_last(&self, files: &mut Files) -> Result<u64> {
        let group = GroupNo::new(self.old.groups - 1);
        let more = self.layout.blocks_in(group) - self.old.blocks_in(group);
        if more == 0 {
            return Ok(0);
        }
        let first = self.old.end().get();
        let space = files.inodes().space_mut();
        space.set_run(Bitmap::Blocks, group, first, first + more - 1, false)?;
        space.edit_descriptor(group, |descriptor| {
            let free = descriptor.fields().free_clusters().saturating_add(u32_of(more));
            descriptor.set_free_clusters(free);
        })?;
        Ok(more)
    }

    /// Writes a new group's structures but those of fixed place, and returns its descriptor.
    fn group(&self, files: &mut Files, group: GroupNo) -> Result<Descriptor> {
        let layout = &self.layout;
        let size = layout.block_len();
        let has_flags = files.fs().checksums().kind() != Kind::None;
        let base = base_blocks(layout, &self.superblock, group);
        let first = layout.group_start(group) + base;
        let (inode_bitmap, table) = (first + 1, first + 2);
        let used = base + 2 + layout.inode_table_blocks();
        let blocks = layout.blocks_in(group);
        let place = Place::group(Structure::GroupDescriptor, group);
        let free =
            blocks.checked_sub(used).ok_or_else(|| place.malformed("has no room for its structures"))?;
        let mut descriptor =
            Descriptor::from_bytes(&vec![0; layout.descriptor_len()], layout.descriptor_len());
        descriptor.set_places(first, inode_bitmap, table);
        descriptor.set_free_clusters(u32_of(free));
        descriptor.set_free_inodes(layout.inodes_per_group);
        let sums = *files.inodes().transaction().sums();
        let is_last = group.get() + 1 == layout.groups;
        let mut flags = 0;
        if !has_flags || is_last {
            let mut bytes = vec![0; size];
            crate::format::bitmap::flip(&mut bytes, 0, used);
            crate::format::bitmap::flip_from(&mut bytes, blocks);
            if sums.covers(Subject::BlockBitmap) {
                let covered = usize_of(layout.clusters_per_group / 8);
                descriptor.set_bitmap_sum(&sums, Bitmap::Blocks, sums.update(None, &bytes[..covered]));
            }
            files.inodes().transaction().write_data(first, &bytes)?;
        } else {
            flags |= BLOCK_UNINIT;
        }
        let is_zeroed = self.zeros_from.is_some_and(|from| layout.offset(table) >= from);
        if has_flags {
            flags |= INODE_UNINIT | if is_zeroed { INODE_ZEROED } else { 0 };
            descriptor.set_unused_inodes(layout.inodes_per_group);
        } else {
            let mut bytes = vec![0; size];
            crate::format::bitmap::flip_from(&mut bytes, layout.inodes_per_group.into());
            files.inodes().transaction().write_data(inode_bitmap, &bytes)?;
            if !is_zeroed {
                self.zero(files, table, layout.inode_table_blocks())?;
            }
        }
        descriptor.set_flags(flags);
        Ok(descriptor)
    }

    fn zero(&self, files: &mut Files, first: Block, len: u64) -> Result<()> {
        let size = u64::from(self.layout.block_size);
        let mut at = 0;
        while at < len {
            let count = CHUNK.min(len - at);
            // At most a chunk.
            files.inodes().transaction().write_data(first + at, &vec![0; usize_of(count * size)])?;
            at += count;
        }
        Ok(())
    }

    /// Writes the descriptors of new groups, and copies of all that changed, or that lie in new groups.
    fn descriptors(&self, files: &mut Files, new: &[Descriptor]) -> Result<()> {
        let layout = &self.layout;
        let sums = *files.inodes().transaction().sums();
        let subject = sums.descriptor_subject();
        let size = layout.descriptor_len();
        let last = GroupNo::new(self.old.groups - 1);
        let first_changed = self.old.descriptor_position(last).0;
        for index in 0..layout.descriptor_blocks() {
            let block = layout.descriptor_block(index);
            let mut bytes = match index < self.old.descriptor_blocks() {
                true => files.inodes().transaction().with(block, <[u8]>::to_vec)?,
                false => vec![0; layout.block_len()],
            };
            let first = layout.first_described(index);
            let mut is_changed = index >= first_changed;
            for (at, group) in first
                .until(GroupNo::new(layout.groups))
                .take(usize_of(layout.descriptors_per_block()))
                .enumerate()
            {
                let Some(number) = group.get().checked_sub(self.old.groups) else { continue };
                let raw = &mut bytes[at * size..(at + 1) * size];
                raw.fill(0);
                let descriptor = new[usize_of(number)].as_bytes();
                raw[..descriptor.len()].copy_from_slice(descriptor);
                if sums.covers(subject) {
                    sums.store(recipe(subject), &Context { group, ..Context::default() }, raw);
                }
                is_changed = true;
            }
            if is_changed {
                self.put(files, block, bytes.clone())?;
            }
            for (_, copy) in layout.descriptor_copies(index) {
                if is_changed || copy >= self.old.end() {
                    self.put(files, copy, bytes.clone())?;
                }
            }
        }
        Ok(())
    }

    /// Writes all copies of the superblock.
    fn copies(&self, files: &mut Files) -> Result<()> {
        let transaction = files.inodes().transaction();
        let sums = *transaction.sums();
        let mut raw = [0; SUPERBLOCK_SIZE];
        transaction.read_at(&mut raw, SUPERBLOCK_OFFSET)?;
        for group in self.layout.copy_groups() {
            SuperblockMut { raw: &mut raw }.set_group(group);
            if sums.covers(Subject::Superblock) {
                sums.store(recipe(Subject::Superblock), &Context::default(), &mut raw);
            }
            let mut bytes = vec![0; self.layout.block_len()];
            bytes[..SUPERBLOCK_SIZE].copy_from_slice(&raw);
            self.put(files, self.layout.group_start(group), bytes)?;
        }
        Ok(())
    }
}
