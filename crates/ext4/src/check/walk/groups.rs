//! Descriptors and bitmaps of all groups.

use std::ops::Range;
use std::sync::Mutex;

use casemate_providers::Work;

use crate::check::visit::{BitmapItem, Item, Visitor};
use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::Context;
use crate::format::group::{BLOCK_UNINIT, Bitmap, GroupDescriptor, INODE_UNINIT};
use crate::read::fs::Ext4;

/// What is needed of a group to find its inodes.
#[derive(Clone, Debug)]
pub(crate) struct GroupInodes {
    pub group: u32,
    /// The first block of the inode table.
    pub table: u64,
    /// How many inodes from the table's start on were ever used.
    pub used: u32,
    /// Which of them are in use, if the bitmap can be believed.
    pub bitmap: Option<Vec<u8>>,
}

/// Groups that are visited at once, and bytes of the inode bitmaps that are in memory for that.
const GROUPS_AT_ONCE: u32 = 1024;
const BITMAPS_AT_ONCE: u32 = 8 << 20;

/// All groups, in runs of as many as are visited at once.
pub(crate) fn all(fs: &Ext4) -> impl Iterator<Item = Range<u32>> {
    let layout = fs.layout();
    let (groups, bitmap) = (layout.groups, layout.inodes_per_group.div_ceil(8).max(1));
    let at_once = (BITMAPS_AT_ONCE / bitmap).clamp(1, GROUPS_AT_ONCE);
    (0..groups).step_by(at_once as usize).map(move |start| start..groups.min(start + at_once))
}

/// Visits the copies of all descriptors.
pub(crate) fn descriptor_copies<V: Visitor>(
    fs: &Ext4,
    work: &Work<'_>,
    visitor: impl Fn() -> V + Sync,
) -> Result<()> {
    let layout = fs.layout();
    work.pool.run(u64::from(layout.descriptor_blocks()), visitor, |visitor, index| {
        // OK to truncate: there are fewer blocks than groups.
        let index = index as u32;
        let first = index * layout.descriptors_per_block();
        for (at, block) in layout.descriptor_copies(index) {
            let place = Place::group(Structure::BackupGroupDescriptor, at);
            if let Err(error) = fs.check_blocks(block, 1, place) {
                visitor.damage(error)?;
                continue;
            }
            let bytes = fs.read_block(block)?;
            let size = layout.descriptor_size as usize;
            for (group, bytes) in (first..layout.groups).zip(bytes.chunks_exact(size)) {
                let place = Place::group(Structure::BackupGroupDescriptor, group).at(block);
                let offset = layout.offset(block) + u64::from(group - first) * size as u64;
                let context = Context { group, ..Context::default() };
                visitor.structure(&Item { place, offset, bytes, context })?;
            }
        }
        Ok(())
    })
}

/// Visits descriptors and bitmaps of some groups, and finds their inodes.
pub(crate) fn groups<V: Visitor>(
    fs: &Ext4,
    work: &Work<'_>,
    visitor: impl Fn() -> V + Sync,
    some: Range<u32>,
) -> Result<Vec<GroupInodes>> {
    let found = Mutex::new(Vec::new());
    work.pool.run(u64::from(some.end - some.start), visitor, |visitor, number| {
        // OK to truncate: group numbers fit.
        if let Some(group) = group(fs, visitor, some.start + number as u32)? {
            found.lock().expect("no worker panicked").push(group);
        }
        Ok::<_, Error>(())
    })?;
    Ok(found.into_inner().expect("no worker panicked"))
}

fn group(fs: &Ext4, visitor: &mut impl Visitor, group: u32) -> Result<Option<GroupInodes>> {
    let raw = fs.with_raw_descriptor(group, <[u8]>::to_vec)?;
    let place = Place::group(Structure::GroupDescriptor, group);
    let context = Context { group, ..Context::default() };
    let offset = fs.descriptor_offset(group);
    let sound = visitor.structure(&Item { place, offset, bytes: &raw, context })?;
    let descriptor = GroupDescriptor::from_bytes(&raw)?;
    let layout = fs.layout();
    let flags = descriptor.flags();
    let mut in_use = None;
    if sound {
        if flags & BLOCK_UNINIT == 0 {
            let bits = (layout.clusters_per_group, layout.clusters_in(group));
            bitmap(fs, visitor, group, Bitmap::Blocks, descriptor, bits)?;
        }
        if flags & INODE_UNINIT == 0 {
            let bits = (layout.inodes_per_group, layout.inodes_per_group);
            in_use = bitmap(fs, visitor, group, Bitmap::Inodes, descriptor, bits)?;
        }
    }
    let table = match sound {
        true => Some(descriptor.inode_table()),
        false => confirmed_table(fs, group, descriptor.inode_table())?,
    };
    let Some(table) = table.filter(|_| flags & INODE_UNINIT == 0) else { return Ok(None) };
    if let Err(error) = fs.check_blocks(table, layout.inode_table_blocks(), place) {
        visitor.damage(error)?;
        return Ok(None);
    }
    let used = layout.inodes_per_group.saturating_sub(descriptor.unused_inodes());
    Ok(Some(GroupInodes { group, table, used, bitmap: in_use }))
}

/// Visits a bitmap, and returns its bytes if they can be believed.
fn bitmap(
    fs: &Ext4,
    visitor: &mut impl Visitor,
    group: u32,
    which: Bitmap,
    descriptor: GroupDescriptor<'_>,
    (covered, used): (u32, u32),
) -> Result<Option<Vec<u8>>> {
    let block = which.block(descriptor);
    if let Err(error) = fs.check_blocks(block, 1, Place::group(Structure::GroupDescriptor, group)) {
        return visitor.damage(error).map(|()| None);
    }
    let mut bytes = fs.read_block(block)?;
    let place = Place::group(which.structure(), group).at(block);
    let item = BitmapItem { which, group, descriptor, place, bytes: &bytes, covered, used };
    if !visitor.bitmap(&item)? {
        return Ok(None);
    }
    bytes.truncate(covered as usize / 8);
    Ok(Some(bytes))
}

/// Where the inode table of a group with a damaged descriptor lies, if a sound copy of the descriptor says
/// the same or there is no copy.
fn confirmed_table(fs: &Ext4, group: u32, table: u64) -> Result<Option<u64>> {
    let layout = fs.layout();
    let per_block = layout.descriptors_per_block();
    let at = (group % per_block) as usize * layout.descriptor_size as usize;
    let subject = fs.checksums().descriptor_subject();
    for (_, block) in layout.descriptor_copies(group / per_block) {
        if !layout.contains(block, 1) {
            continue;
        }
        let bytes = fs.read_block(block)?;
        let raw = &bytes[at..at + layout.descriptor_size as usize];
        let context = Context { group, ..Context::default() };
        let place = Place::group(Structure::BackupGroupDescriptor, group);
        if fs.checksums().verify(subject, &context, raw, place).is_ok() {
            return Ok(Some(GroupDescriptor::from_bytes(raw)?.inode_table()));
        }
    }
    Ok(Some(table))
}
