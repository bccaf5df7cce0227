//! Blocks moved to before the new end: those of files, of their maps and of their attributes.

use std::collections::BTreeMap;

use casemate_blockdev::{u64_of, usize_of};

use crate::alloc::Goal;
use crate::edit::Writer;
use crate::edit::files::Files;
use crate::edit::inode::write;
use crate::edit::reseal::Blocks;
use crate::error::{Error, Place, Result, Structure, no_space};
use crate::format::bitmap;
use crate::format::csum::{Context, Kind, Subject, recipe};
use crate::format::features::Compat;
use crate::format::group::{BLOCK_UNINIT, Bitmap};
use crate::format::inode::Inode;
use crate::read::mapping::Mapping;
use crate::resize::ResizeReport;
use crate::resize::renumber::{each_inode, is_named, renumber};
use crate::resize::shape::{Shape, fixed_end, least, own_blocks};
use crate::resize::{bad_blocks, reserve};
use crate::units::{Block, GroupNo, InodeNo};

/// Bytes that are copied at once.
const CHUNK: u64 = 1 << 20;

/// Blocks that maps may take more than before when files are moved: so many, and one for each so many blocks in use.
const SLACK: u64 = 4;
const SHARE: u64 = 512;

/// How often a least size is tried with more room.
const TRIES: u32 = 12;

/// Moves all that lies behind the end of a shape to before it, file by file.
pub(super) fn evacuate(writer: &mut Writer, shape: Shape, report: &mut ResizeReport) -> Result<()> {
    let layout = *writer.fs().layout();
    writer.files_mut().inodes().space_mut().keep_below(shape.end());
    let (used, own) = blocks_behind(writer.files(), shape)?;
    if used != own {
        let found = search(writer, shape.end())?;
        writer.operation(|files| bad_blocks::sort(files, shape.end()))?;
        for number in found.files {
            let moved = writer.operation(|files| move_blocks(files, number, shape.end()))?;
            report.blocks_moved += moved;
        }
        if writer.fs().superblock().compat.has(Compat::RESIZE_INODE) {
            report.blocks_moved += writer.operation(|files| reserve::move_top(files, shape.end()))?;
        }
        for (block, users) in found.attributes {
            writer.operation(|files| move_attributes(files, block, &users))?;
            report.blocks_moved += 1;
        }
        writer.commit()?;
    }
    let is_empty = |group| {
        let free = writer.fs().with_descriptor(group, |descriptor| descriptor.free_inodes())?;
        Ok::<_, Error>(free == layout.inodes_per_group)
    };
    for group in GroupNo::new(shape.groups).until(GroupNo::new(layout.groups)) {
        if !is_empty(group)? {
            report.inodes_moved += writer.operation(|files| renumber(files, shape.groups))?;
            return writer.commit();
        }
    }
    Ok(())
}

/// Whether something found no free blocks.
pub(super) fn is_full(error: &Error) -> bool {
    error.io_kind() == Some(std::io::ErrorKind::StorageFull)
}

/// Moves files together as closely as they can be, but for a file system of no fewer blocks than `at_least`. The size that is
/// least then.
pub(super) fn to_least(writer: &mut Writer, at_least: u64, report: &mut ResizeReport) -> Result<Shape> {
    let layout = *writer.fs().layout();
    let free = {
        let fs = writer.fs();
        layout.blocks.saturating_sub(least(fs, 0)?.blocks)
    };
    let mut slack = SLACK + (layout.blocks - free) / SHARE;
    for _ in 0..TRIES {
        let mut wanted = least(writer.fs(), slack)?;
        if wanted.blocks < at_least {
            wanted = Shape::of(writer.fs(), at_least)?;
        }
        if wanted.blocks >= layout.blocks {
            break;
        }
        match evacuate(writer, wanted, report) {
            Ok(()) => {
                let least = last_used(writer, wanted)?;
                return if least.blocks < at_least { Ok(wanted) } else { Ok(least) };
            }
            Err(error) if is_full(&error) => slack *= 2,
            Err(error) => return Err(error),
        }
    }
    Ok(Shape { blocks: layout.blocks, groups: layout.groups })
}

/// The least shape of at most this size that holds all blocks in use.
fn last_used(writer: &mut Writer, shape: Shape) -> Result<Shape> {
    let group = GroupNo::new(shape.groups - 1);
    let fs = writer.fs().clone();
    let layout = *fs.layout();
    let start = layout.group_start(group);
    let in_last = shape.end() - start;
    let descriptor = writer.files_mut().inodes().space_mut().ensure_bitmap(Bitmap::Blocks, group)?;
    let block = descriptor.fields().block_bitmap();
    let used = writer.files().space().transaction().with(block, |bytes| {
        (0..in_last).rev().find(|bit| bitmap::all(bytes, *bit, 1, true)).map_or(0, |bit| bit + 1)
    })?;
    let fixed = fixed_end(&fs, shape.groups)?;
    let wanted = (start + used).max(fixed);
    // A shape keeps what a last group must have, so that a smaller one is no better.
    let least = Shape::of(&fs, wanted.get())?;
    Ok(if least.groups == shape.groups && least.end() >= wanted { least } else { shape })
}

/// How many blocks behind the end of a shape are in use, and how many hold structures of groups that go. If the numbers are
/// equal, nothing else lies there. Of groups whose bitmap was never written, the first one may be too low.
pub(super) fn blocks_behind(files: &Files, shape: Shape) -> Result<(u64, u64)> {
    let fs = files.fs();
    let layout = *fs.layout();
    let transaction = files.space().transaction();
    let first = GroupNo::new(shape.groups - 1);
    let has_flags = fs.checksums().kind() != Kind::None;
    let (mut used, mut own) = (0u64, 0u64);
    for group in first.until(GroupNo::new(layout.groups)) {
        let (flags, bitmap_block, others, table) = fs.with_descriptor(group, |descriptor| {
            let others = [descriptor.block_bitmap(), descriptor.inode_bitmap()];
            (descriptor.flags(), descriptor.block_bitmap(), others, descriptor.inode_table())
        })?;
        let start = layout.group_start(group);
        let behind = shape.end().max(start) - start;
        let blocks = layout.blocks_in(group);
        if group != first {
            let base = own_blocks(fs, group) - 2 - layout.inode_table_blocks();
            let is_behind = |block: &&Block| **block >= shape.end();
            own += base + u64_of(others.iter().filter(is_behind).count());
            let table_end = table + layout.inode_table_blocks();
            own += table_end.max(shape.end()) - table.max(shape.end());
        }
        if has_flags && flags & BLOCK_UNINIT != 0 {
            // Nothing but the group's own is in use.
            used += match group == first {
                true => 0,
                false => {
                    let base = own_blocks(fs, group) - 2 - layout.inode_table_blocks();
                    let end = start + blocks;
                    let within = |block: Block, len: u64| {
                        (block + len).min(end).max(start) - block.max(start).min(end)
                    };
                    base + others.iter().map(|block| within(*block, 1)).sum::<u64>()
                        + within(table, layout.inode_table_blocks())
                }
            };
            continue;
        }
        fs.check_blocks(bitmap_block, 1, Place::group(Structure::GroupDescriptor, group))?;
        used += transaction.with(bitmap_block, |bytes| {
            let mut count = 0;
            let mut at = behind;
            while let Some(bit) = bitmap::next(bytes, at, blocks, true) {
                let end = bitmap::next(bytes, bit, blocks, false).unwrap_or(blocks);
                count += end - bit;
                at = end;
            }
            count
        })?;
    }
    Ok((used, own))
}

/// Files with blocks behind an end, those of the file system itself first; and blocks of attributes there, with all who
/// use them.
#[derive(Default)]
struct Found {
    files: Vec<InodeNo>,
    attributes: BTreeMap<Block, Vec<InodeNo>>,
}

fn search(writer: &Writer, end: Block) -> Result<Found> {
    let fs = writer.fs();
    let mut found = Found::default();
    let mut others = Vec::new();
    each_inode(writer.files(), 0, |number| {
        // Its blocks are room for descriptors, which is where groups have it, but for the top of its tree.
        if number == InodeNo::RESIZE {
            return Ok(());
        }
        let inode = fs.any_inode(number)?;
        if let Some(block) = inode.xattr_block().filter(|block| *block >= end) {
            found.attributes.entry(block).or_default().push(number);
        }
        let mut blocks = Blocks::default();
        let _ = fs.visit_map(&inode, 0, &mut blocks)?;
        let is_behind = blocks.of_map.iter().any(|block| *block >= end)
            || blocks.runs.iter().any(|run| run.physical + run.len > end);
        if is_behind {
            let is_own = is_named(fs, number);
            if is_own { &mut found.files } else { &mut others }.push(number);
        }
        Ok(())
    })?;
    found.files.extend(others);
    Ok(found)
}

/// Moves a file's blocks that lie behind an end, and makes its map anew. How many were moved.
fn move_blocks(files: &mut Files, number: InodeNo, end: Block) -> Result<u64> {
    let fs = files.fs().clone();
    let mut inode = files.get_unlinked(number)?;
    let mut found = Blocks::default();
    let _ = fs.visit_map(&inode, 0, &mut found)?;
    let mut moved = u64_of(found.of_map.iter().filter(|block| **block >= end).count());
    // What a map leads to stays in use; blocks of the map are freed.
    while files.inodes().map(&mut inode).take_last(0)?.is_some() {}
    for run in found.runs {
        let kept = end.checked_since(run.physical).unwrap_or(0).min(run.len);
        if kept > 0 {
            files.inodes().map(&mut inode).insert(Mapping { len: kept, ..run })?;
        }
        let mut done = kept;
        let mut goal = match kept {
            0 => Goal::Near(files.space().goal_group(number, inode.kind())),
            _ => Goal::Behind(run.physical + kept),
        };
        while done < run.len {
            let (to, len) = files.inodes().space_mut().allocate(goal, run.len - done)?;
            let from = run.physical + done;
            if !run.unwritten {
                copy(files, &inode, from, to, len)?;
            }
            files.inodes().space_mut().free_blocks(from, len)?;
            let piece = Mapping { logical: run.logical + done, physical: to, len, ..run };
            files.inodes().map(&mut inode).insert(piece)?;
            goal = Goal::Behind(to + len);
            done += len;
            moved += len;
        }
    }
    files.inodes().store(&inode)?;
    if fs.superblock().journal_inode == Some(number) {
        let (map, size) = (*inode.block_area(), inode.size());
        files.inodes().transaction().edit_superblock(|superblock| {
            superblock.set_journal(number, &map, size);
            Ok(())
        })?;
    }
    Ok(moved)
}

/// Copies blocks of a file to free ones.
fn copy(files: &mut Files, inode: &Inode, from: Block, to: Block, len: u64) -> Result<()> {
    let fs = files.fs().clone();
    let size = u64::from(fs.layout().block_size);
    let is_orphans = fs.superblock().orphan_file == Some(inode.number());
    let sums = *fs.checksums();
    let mut done = 0;
    while done < len {
        let count = (CHUNK / size).min(len - done);
        // At most a chunk.
        let mut bytes = vec![0; usize_of(count * size)];
        files.space().transaction().read_at(&mut bytes, fs.layout().offset(from + done))?;
        if is_orphans && sums.covers(Subject::OrphanBlock) {
            for (block, bytes) in (to + done).run(count).zip(bytes.chunks_exact_mut(usize_of(size))) {
                sums.store(recipe(Subject::OrphanBlock), &Context { block, ..inode.context() }, bytes);
            }
        }
        files.inodes().transaction().write_data(to + done, &bytes)?;
        done += count;
    }
    Ok(())
}

/// Moves a block of attributes, for all who use it.
fn move_attributes(files: &mut Files, from: Block, users: &[InodeNo]) -> Result<()> {
    let place = Place::of(Structure::XattrBlock).at(from);
    let fs = files.fs().clone();
    let goal = Goal::Near(GroupNo::PRIMARY);
    let (to, _) = files.inodes().space_mut().allocate(goal, 1)?;
    let bytes = fs.read_block(from)?;
    fs.verify(Subject::XattrBlock, &Context { block: from, ..Context::default() }, &bytes, place)?;
    let context = Context { block: to, ..Context::default() };
    files.inodes().transaction().create_structure(Subject::XattrBlock, context, to, bytes);
    for number in users {
        let mut inode = files.get_unlinked(*number)?;
        if inode.xattr_block() != Some(from) {
            return Err(no_space("blocks"));
        }
        inode.set_xattr_block(Some(to));
        write(files.inodes().space_mut(), &inode)?;
    }
    files.inodes().space_mut().free_blocks(from, 1)
}
