//! Descriptors of all groups: where bitmaps and tables lie, the blocks that these take, and the copies.

use std::ops::Range;

use casemate_blockdev::ErrorKind;
use casemate_providers::Work;

use crate::check::findings::{Counts, FindingKind, Fix};
use crate::check::worker::{Check, merge};
use crate::error::{Corrupt, Error, Place, Result, Structure};
use crate::format::csum::{Context, Kind, Subject};
use crate::format::features::Incompat;
use crate::format::group::{BLOCK_UNINIT, Bitmap, GroupDescriptor, INODE_UNINIT};
use crate::format::layout::Layout;
use crate::format::superblock::{SUPERBLOCK_OFFSET, Superblock};
use crate::read::fs::{Ext4, read_superblock};
use crate::units::{Block, GroupNo, Run};

/// Places of a group's structures that a check needs; `None` where a block cannot be there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// The first block of the inode table.
    pub table: Option<Block>,
    /// How many inodes from the table's start on were ever used.
    pub used: u32,
    /// The bitmaps' blocks; those that were never written have none.
    pub block_bitmap: Option<Block>,
    pub inode_bitmap: Option<Block>,
    pub flags: u16,
    pub free_clusters: u32,
    pub free_inodes: u32,
    pub directories: u32,
}

/// Whether a group's word on inodes that were never used counts: a wrong one makes inodes in use look free. With a checksum
/// that fits it counts as far as it can be true, else only where each field says that no inode is in use. Group 0 has the
/// root.
pub(crate) fn tells_unused(
    layout: &Layout,
    group: GroupNo,
    descriptor: GroupDescriptor<'_>,
    is_sound: bool,
) -> bool {
    let (unused, free, all) = (descriptor.unused_inodes(), descriptor.free_inodes(), layout.inodes_per_group);
    if descriptor.flags() & INODE_UNINIT == 0 {
        return is_sound && unused <= free && unused <= all;
    }
    let is_empty = unused == all && descriptor.used_directories() == 0;
    group != GroupNo::PRIMARY && free == all && (is_sound || is_empty)
}

/// Checks the descriptors of all groups, and claims what the file system itself has.
pub(crate) fn load(check: &mut Check<'_>) -> Result<Vec<Group>> {
    let fs = check.fs;
    let layout = *fs.layout();
    let mut metadata = Vec::new();
    for group in GroupNo::first(layout.groups) {
        fixed_blocks(&layout, fs.superblock(), group, |run| metadata.push(run));
    }
    if let Some(block) = fs.superblock().mmp_block.filter(|block| layout.contains(*block, 1)) {
        metadata.push(Run { first: block, len: 1 });
    }
    for run in &metadata {
        check.claims.claim(run.first, run.len, |_| {});
    }
    let mut counts = Counts::default();
    let mut groups = Vec::new();
    for number in layout.all_groups() {
        groups.push(group(check, number, &mut counts, &mut metadata)?);
    }
    check.findings.add_counts(counts);
    merge(&mut metadata);
    check.metadata = metadata;
    Ok(groups)
}

/// Calls `f` with the runs of blocks that a group begins with: superblock, descriptors, and room for more of them.
fn fixed_blocks(layout: &Layout, superblock: &Superblock, group: GroupNo, mut f: impl FnMut(Run)) {
    let start = layout.group_start(group);
    let mut add = |block: Block, len: u64| {
        let end = block.saturating_add(len).min(layout.end());
        if block < end {
            f(Run::between(block, end));
        }
    };
    let per_block = layout.descriptors_per_block();
    let (index, within) = layout.descriptor_position(group);
    let meta = layout.is_meta(index);
    let offset = layout.superblock_offset(group);
    if let Some(offset) = offset {
        let own = Block::of_byte(offset, layout.block_size.into());
        // With 1 KiB blocks and bigalloc, the boot block belongs to group 0.
        add(own.min(start), (own.max(start) - own.min(start)) + 1);
        if !meta {
            let blocks = match superblock.incompat.has(Incompat::META_BG) {
                true => superblock.first_meta_bg.min(layout.descriptor_blocks()),
                false => layout.descriptor_blocks() + u32::from(superblock.reserved_descriptor_blocks()),
            };
            add(own + 1, blocks.into());
        }
    }
    if meta && [0, 1, per_block - 1].contains(&within) {
        let boot =
            u64::from(group == GroupNo::PRIMARY && layout.block_size == 1024 && layout.first_data_block == 0);
        add(start + u64::from(offset.is_some()) + boot, 1);
    }
}

fn group(check: &Check<'_>, number: GroupNo, counts: &mut Counts, metadata: &mut Vec<Run>) -> Result<Group> {
    let (fs, findings) = (check.fs, check.findings);
    let layout = fs.layout();
    let mut raw = fs.with_raw_descriptor(number, <[u8]>::to_vec)?;
    let place = Place::group(Structure::GroupDescriptor, number);
    let subject = fs.checksums().descriptor_subject();
    let kind = fs.checksums().kind();
    let mut is_sound = true;
    if kind != Kind::None {
        let context = Context { group: number, ..Context::default() };
        counts.add(Structure::GroupDescriptor, 1);
        let fix = Fix::in_place(fs.descriptor_offset(number), raw.len(), subject, context);
        let result = fs.checksums().verify(subject, &context, &raw, place);
        is_sound = findings.note(result, Some(fix));
        // A sound copy knows better where things lie.
        if !is_sound && let Some(copy) = sound_copy(fs, number, subject)? {
            let (own, copied) = (GroupDescriptor::from_bytes(&raw)?, GroupDescriptor::from_bytes(&copy)?);
            let places = |of: GroupDescriptor<'_>| [of.block_bitmap(), of.inode_bitmap(), of.inode_table()];
            if places(own) != places(copied) {
                raw = copy;
            }
        }
    }
    let descriptor = GroupDescriptor::from_bytes(&raw)?;
    let (mut flags, unused) =
        (descriptor.flags() & (INODE_UNINIT | BLOCK_UNINIT), descriptor.unused_inodes());
    let wrong = |text: String| findings.say(FindingKind::GroupFlags, place, text);
    if kind == Kind::None {
        if flags != 0 || unused != 0 {
            wrong(format!("flags {flags} and {unused} unused inodes without checksums"));
        }
        flags = 0;
    } else {
        if flags & BLOCK_UNINIT != 0 && number.get() == layout.groups - 1 {
            wrong("the last group's block bitmap was never written".to_owned());
        }
        if unused > descriptor.free_inodes() || unused > layout.inodes_per_group {
            wrong(format!("{unused} inodes were never used, and {} are free", descriptor.free_inodes()));
        } else if flags & INODE_UNINIT != 0 && is_sound && !tells_unused(layout, number, descriptor, true) {
            wrong("the inode table was never written, and has inodes in use".to_owned());
        }
    }
    let used = if kind == Kind::None || !tells_unused(layout, number, descriptor, is_sound) {
        layout.inodes_per_group
    } else if flags & INODE_UNINIT != 0 {
        0
    } else {
        layout.inodes_per_group - unused
    };
    let mut settle = |what: &str, block: Block, len: u64| {
        if !range(fs, number).contains(&block) || block.saturating_add(len) > range(fs, number).end {
            findings.say(FindingKind::GroupPlace, place, format!("the {what} lies at block {block}"));
            return None;
        }
        let mut is_free = true;
        check.claims.claim(block, len, |_| is_free = false);
        metadata.push(Run { first: block, len });
        if !is_free {
            let text = format!("the {what} at block {block} lies on other metadata");
            findings.say(FindingKind::GroupConflict, place, text);
        }
        fs.is_present(block, len).then_some(block)
    };
    let table = settle("inode table", descriptor.inode_table(), layout.inode_table_blocks());
    let block_bitmap = settle("block bitmap", descriptor.block_bitmap(), 1);
    let inode_bitmap = settle("inode bitmap", descriptor.inode_bitmap(), 1);
    Ok(Group {
        table,
        used,
        block_bitmap: block_bitmap.filter(|_| flags & Bitmap::Blocks.uninit() == 0),
        inode_bitmap: inode_bitmap.filter(|_| flags & Bitmap::Inodes.uninit() == 0),
        flags,
        free_clusters: descriptor.free_clusters(),
        free_inodes: descriptor.free_inodes(),
        directories: descriptor.used_directories(),
    })
}

/// Where a group's bitmaps and table can be: in the group, or with flex_bg anywhere.
fn range(fs: &Ext4, group: GroupNo) -> Range<Block> {
    let layout = fs.layout();
    match fs.superblock().incompat.has(Incompat::FLEX_BG) {
        true => layout.group_start(GroupNo::PRIMARY)..layout.end(),
        false => layout.group_start(group)..layout.group_start(group) + layout.blocks_in(group),
    }
}

/// The first copy of a descriptor whose checksum fits.
pub(crate) fn sound_copy(fs: &Ext4, group: GroupNo, subject: Subject) -> Result<Option<Vec<u8>>> {
    let layout = fs.layout();
    let (index, at) = layout.descriptor_position(group);
    let at = at as usize * layout.descriptor_size as usize;
    let context = Context { group, ..Context::default() };
    let place = Place::group(Structure::BackupGroupDescriptor, group);
    for (_, block) in layout.descriptor_copies(index) {
        if !layout.contains(block, 1) || !fs.is_present(block, 1) {
            continue;
        }
        let bytes = fs.read_block(block)?;
        let raw = &bytes[at..at + layout.descriptor_size as usize];
        if fs.checksums().verify(subject, &context, raw, place).is_ok() {
            return Ok(Some(raw.to_vec()));
        }
    }
    Ok(None)
}

/// Checks the copies of the superblock and of all descriptors, as far as they have checksums.
pub(crate) fn copies(check: &Check<'_>, work: &Work<'_>) -> Result<()> {
    let (fs, findings) = (check.fs, check.findings);
    let layout = fs.layout();
    for group in layout.copy_groups() {
        let place = Place::group(Structure::BackupSuperblock, group);
        // OK to fall back: the group is one of those with a copy.
        let offset = layout.superblock_offset(group).unwrap_or(SUPERBLOCK_OFFSET);
        if !fs.is_present(layout.group_start(group), 1) {
            continue;
        }
        match read_superblock(&**fs.device(), offset) {
            // A copy that says that it has no checksum has none.
            Ok(copy) if copy.has_metadata_csum() && check.has.checksums => {
                findings.count(Structure::BackupSuperblock);
                let bytes = &copy.as_bytes()[..];
                let fix = Fix::in_place(offset, bytes.len(), Subject::Superblock, Context::default());
                let result = fs.checksums().verify(Subject::Superblock, &Context::default(), bytes, place);
                findings.note(result, Some(fix));
            }
            Ok(_) => {}
            Err(error) => match Corrupt::of(&error) {
                Some(corrupt) => findings.damage(place.malformed(corrupt.problem().to_string()))?,
                None if error.kind() == ErrorKind::Unsupported => {
                    findings.damage(place.malformed(error.to_string()))?;
                }
                None => return Err(error),
            },
        }
    }
    if fs.checksums().kind() == Kind::None {
        return Ok(());
    }
    let subject = fs.checksums().descriptor_subject();
    work.pool.run(
        u64::from(layout.descriptor_blocks()),
        || (),
        |(), index| {
            // OK to truncate: there are fewer blocks than groups.
            let index = index as u32;
            let first = layout.first_described(index);
            let mut counts = Counts::default();
            for (at, block) in layout.descriptor_copies(index) {
                let place = Place::group(Structure::BackupGroupDescriptor, at);
                if let Err(error) = fs.check_blocks(block, 1, place) {
                    findings.damage(error)?;
                    continue;
                }
                if !fs.is_present(block, 1) {
                    continue;
                }
                let bytes = fs.read_block(block)?;
                let size = layout.descriptor_size as usize;
                for (group, bytes) in first.until(GroupNo::new(layout.groups)).zip(bytes.chunks_exact(size)) {
                    let place = Place::group(Structure::BackupGroupDescriptor, group).at(block);
                    let offset = layout.offset(block) + u64::from(group.get() - first.get()) * size as u64;
                    let context = Context { group, ..Context::default() };
                    counts.add(Structure::BackupGroupDescriptor, 1);
                    let fix = Fix::in_place(offset, bytes.len(), subject, context);
                    findings.note(fs.checksums().verify(subject, &context, bytes, place), Some(fix));
                }
            }
            findings.add_counts(counts);
            Ok::<_, Error>(())
        },
    )
}
