//! The end moved forward, once nothing lies behind the new one that is not a structure of groups that go.

use casemate_blockdev::{u32_of, usize_of};

use crate::alloc::base_blocks;
use crate::edit::files::Files;
use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::{Context, Subject, recipe};
use crate::format::features::{Compat, Incompat};
use crate::format::group::Bitmap;
use crate::format::layout::Layout;
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, SuperblockMut};
use crate::number::u16_of;
use crate::resize::bad_blocks;
use crate::resize::evacuate::blocks_behind;
use crate::resize::grow::scaled;
use crate::resize::reserve;
use crate::resize::shape::Shape;
use crate::units::{Block, GroupNo};

/// Makes the file system smaller.
pub(super) fn cut(files: &mut Files, shape: Shape) -> Result<()> {
    let fs = files.fs().clone();
    let (old, before) = (*fs.layout(), fs.superblock().clone());
    let mut raw = *before.as_bytes();
    set_shape(&mut SuperblockMut { raw: &mut raw }, &before, &old, shape);
    let superblock = Superblock::from_bytes(&raw)?;
    let layout = Layout::new(&superblock)?;

    files.inodes().space_mut().keep_below(shape.end());
    bad_blocks::cut(files, shape.end())?;
    require_empty(files, shape)?;
    // Structures of groups that go may lie in others, with flex_bg.
    let (mut free, mut free_inodes) = (0i64, 0i64);
    let groups_end = old.group_start(GroupNo::new(layout.groups));
    for group in GroupNo::new(layout.groups).until(GroupNo::new(old.groups)) {
        let space = files.inodes().space_mut();
        let descriptor = space.descriptor(group)?;
        let fields = descriptor.fields();
        for (first, len) in [
            (fields.block_bitmap(), 1),
            (fields.inode_bitmap(), 1),
            (fields.inode_table(), old.inode_table_blocks()),
        ] {
            let len = groups_end.checked_since(first).unwrap_or(0).min(len);
            if len > 0 {
                space.free_own(first, len)?;
            }
        }
        free += i64::from(fields.free_clusters());
        free_inodes += i64::from(fields.free_inodes());
    }
    shrink_base(files, &old, &before, &layout, &superblock)?;
    free += cut_last(files, &old, &layout)?;
    if before.compat.has(Compat::RESIZE_INODE) {
        let reserved = superblock.reserved_descriptor_blocks();
        reserve::keep(files, &layout, reserved.into())?;
    }
    // What was freed here counts first: some of it goes.
    let now = files.now();
    files.inodes().space_mut().commit_counts(now)?;
    let place = Place::of(Structure::Superblock);
    files.inodes().transaction().edit_superblock(|superblock| {
        set_shape(superblock, &before, &old, shape);
        superblock
            .add_free((-free).into(), -free_inodes)
            .ok_or_else(|| place.malformed("its free counts are lower than those of groups that go"))
    })?;
    descriptors(files, &layout)?;
    copies(files, &layout)?;
    let transaction = files.inodes().transaction();
    transaction.forget(shape.end(), old.end() - shape.end());
    Ok(())
}

/// Refuses an end behind which anything is left but structures of groups that go: it would be lost.
fn require_empty(files: &Files, shape: Shape) -> Result<()> {
    let (used, own) = blocks_behind(files, shape)?;
    if used > own {
        let others = used - own;
        let text = format!("{others} blocks from block {} on are in use by what can't be moved", shape.end());
        return Err(Error::unsupported(text));
    }
    Ok(())
}

/// Sets all that follows from another size; free blocks and inodes are others' to count.
fn set_shape(superblock: &mut SuperblockMut<'_>, before: &Superblock, old: &Layout, shape: Shape) {
    // OK to multiply: there are fewer groups than before.
    superblock.set_size(shape.blocks, shape.groups * before.inodes_per_group);
    superblock.set_reserved_blocks(scaled(before, shape.blocks));
    let blocks = shape.groups.div_ceil(old.descriptors_per_block());
    if before.compat.has(Compat::RESIZE_INODE) {
        // Descriptors that go leave their room to those that may come.
        let gone = old.descriptor_blocks() - blocks;
        let most = old.block_size / 4;
        let reserved = (u32::from(before.reserved_descriptor_blocks()) + gone).min(most);
        // At most a quarter of a block's bytes.
        superblock.set_reserved_descriptor_blocks(u16_of(reserved));
    }
    if before.incompat.has(Incompat::META_BG) {
        superblock.set_first_meta_bg(before.first_meta_bg.min(blocks));
    }
    let is_left = |group: GroupNo| if group.get() < shape.groups { group } else { GroupNo::PRIMARY };
    superblock.set_backup_groups(before.backup_groups.map(is_left));
    // Whoever mounts it counts them.
    superblock.set_overhead_clusters(0);
}

/// Frees room behind descriptors that no group has any more.
fn shrink_base(
    files: &mut Files,
    old: &Layout,
    before: &Superblock,
    layout: &Layout,
    superblock: &Superblock,
) -> Result<()> {
    for group in layout.all_groups().filter(|group| layout.has_superblock(*group)) {
        let (had, has) = (base_blocks(old, before, group), base_blocks(layout, superblock, group));
        if has < had {
            let first = if group == GroupNo::PRIMARY {
                layout.superblock_block() + has
            } else {
                layout.group_start(group) + has
            };
            files.inodes().space_mut().free_own(first, had - has)?;
        }
    }
    Ok(())
}

/// Marks blocks behind the end as ones that there are not. How many of them were free.
fn cut_last(files: &mut Files, old: &Layout, layout: &Layout) -> Result<i64> {
    let last = GroupNo::new(layout.groups - 1);
    let space = files.inodes().space_mut();
    space.ensure_bitmap(Bitmap::Blocks, last)?;
    let gone = old.blocks_in(last) - layout.blocks_in(last);
    if gone == 0 {
        return Ok(0);
    }
    let first = layout.end().get();
    space.set_run(Bitmap::Blocks, last, first, first + gone - 1, true)?;
    space.edit_descriptor(last, |descriptor| {
        let free = descriptor.fields().free_clusters().saturating_sub(u32_of(gone));
        descriptor.set_free_clusters(free);
    })?;
    Ok(gone.cast_signed())
}

/// Clears descriptors of groups that go, and copies the block in which they were.
fn descriptors(files: &mut Files, layout: &Layout) -> Result<()> {
    let size = layout.descriptor_len();
    for index in 0..layout.descriptor_blocks() {
        let block = layout.descriptor_block(index);
        let first = layout.first_described(index).get();
        let kept = usize_of((layout.groups - first).min(layout.descriptors_per_block())) * size;
        let transaction = files.inodes().transaction();
        let mut bytes = transaction.with(block, <[u8]>::to_vec)?;
        if bytes[kept..].iter().any(|byte| *byte != 0) {
            bytes[kept..].fill(0);
            transaction.update(block, |edit| edit.write(kept, &bytes[kept..]))?;
        }
        for (_, copy) in layout.descriptor_copies(index) {
            let is_same = transaction.with(copy, |copy| copy == bytes)?;
            if !is_same {
                transaction.create(copy, bytes.clone());
            }
        }
    }
    Ok(())
}

/// Writes all copies of the superblock.
fn copies(files: &mut Files, layout: &Layout) -> Result<()> {
    let transaction = files.inodes().transaction();
    let sums = *transaction.sums();
    let mut raw = [0; SUPERBLOCK_SIZE];
    transaction.read_at(&mut raw, SUPERBLOCK_OFFSET)?;
    for group in layout.copy_groups() {
        SuperblockMut { raw: &mut raw }.set_group(group);
        if sums.covers(Subject::Superblock) {
            sums.store(recipe(Subject::Superblock), &Context::default(), &mut raw);
        }
        let block: Block = layout.group_start(group);
        transaction.update(block, |edit| edit.write(0, &raw))?;
    }
    Ok(())
}
