//! Descriptors of all groups: where bitmaps and tables lie, the blocks that these take, and the copies.

use std::ops::Range;

use casemate_blockdev::{ErrorKind, u32_of, u64_of};
use casemate_providers::Work;

use crate::check::findings::{Counts, FindingKind, Fix};
use crate::check::likeness::{
    Likeness, copied_places, descriptor_copies, first_table, is_like_bitmap, likeness,
};
use crate::check::places::{Group, Part, Places, fixed_blocks, places};
use crate::check::worker::Check;
use crate::error::{Corrupt, Error, Place, Result, Structure};
use crate::format::csum::{Context, Kind, Subject};
use crate::format::features::Incompat;
use crate::format::group::{BLOCK_UNINIT, Bitmap, GroupDescriptor, INODE_UNINIT};
use crate::format::layout::Layout;
use crate::format::superblock::SUPERBLOCK_OFFSET;
use crate::read::fs::Ext4;
use crate::read::primary::read_superblock;
use crate::units::{Block, GroupNo, Run, merge};

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

/// Checks that a group that is marked as one without inodes says so in each field: what is done to all inodes of a file system passes
/// it over.
///
/// # Errors
/// `Corrupt` if it may have inodes in use.
pub(crate) fn require_unused(layout: &Layout, group: GroupNo, descriptor: GroupDescriptor<'_>) -> Result<()> {
    if tells_unused(layout, group, descriptor, false) {
        return Ok(());
    }
    let text = "is marked as one whose inodes were never used, and counts inodes in use: check the file system first";
    Err(Place::group(Structure::GroupDescriptor, group).malformed(text))
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
        groups.push(group(check, number, &mut counts)?);
    }
    // A bitmap can be made anew, a table can't: where both lie on one block, the bitmap is in the wrong.
    let copied = copied_places(fs)?;
    for which in [Part::Table, Part::Blocks, Part::Inodes] {
        for (number, group) in layout.all_groups().zip(&mut groups) {
            let copied = copied.get(&number).map_or(&[][..], Vec::as_slice);
            settle(check, number, group, which, copied, &mut metadata)?;
        }
    }
    check.findings.add_counts(counts);
    merge(&mut metadata);
    check.metadata = metadata;
    for (number, group) in layout.all_groups().zip(&groups) {
        foreign(check, number, group)?;
    }
    Ok(groups)
}

/// Notes a block bitmap that was never written of a group in which others have structures. Whoever needs it makes one in which
/// nothing but the group's own is in use.
fn foreign(check: &Check<'_>, number: GroupNo, group: &Group) -> Result<()> {
    let fs = check.fs;
    if group.flags & BLOCK_UNINIT == 0 {
        return Ok(());
    }
    let layout = fs.layout();
    let start = layout.group_start(number);
    let all = Run { first: start, len: layout.blocks_in(number) };
    let mut own = Vec::new();
    fixed_blocks(layout, fs.superblock(), number, |run| own.extend(run.shared(all)));
    let raw = fs.with_raw_descriptor(number, <[u8]>::to_vec)?;
    let [table, blocks, inodes] = places(GroupDescriptor::from_bytes(&raw)?);
    for (first, len) in [(table, layout.inode_table_blocks()), (blocks, 1), (inodes, 1)] {
        own.extend(Run::between(first, first.saturating_add(len)).shared(all));
    }
    merge(&mut own);
    let at = check.metadata.partition_point(|run| run.end() <= start);
    let found = check.metadata[at..].iter().map_while(|run| run.shared(all));
    if found.clone().map(|run| run.len).sum::<u64>() <= own.iter().map(|run| run.len).sum() {
        return Ok(());
    }
    // Clusters in which the group has something itself are in use all the same.
    let each = u64::from(layout.cluster_blocks);
    let is_own = |block: Block| {
        let first = start + (block - start) / each * each;
        let cluster = Run::between(first, first.saturating_add(each));
        own.iter().any(|run| run.shared(cluster).is_some())
    };
    if let Some(block) = found.flat_map(|run| run.first.run(run.len)).find(|block| !is_own(*block)) {
        let place = Place::group(Structure::BlockBitmap, number);
        let text =
            format!("it was never written, and metadata of another group lies at block {block} of the group");
        check.findings.say(FindingKind::GroupFlags, place, text);
    }
    Ok(())
}

/// Blocks of the file system's own structures, as far as descriptors say where they are, in order.
pub(crate) fn metadata(fs: &Ext4) -> Result<Vec<Run>> {
    let layout = fs.layout();
    let mut runs = Vec::new();
    for group in layout.all_groups() {
        fixed_blocks(layout, fs.superblock(), group, |run| runs.push(run));
        let raw = fs.with_raw_descriptor(group, <[u8]>::to_vec)?;
        let found = GroupDescriptor::from_bytes(&raw)?;
        let own = [
            (found.inode_table(), layout.inode_table_blocks()),
            (found.block_bitmap(), 1),
            (found.inode_bitmap(), 1),
        ];
        let own = own.into_iter().filter(|(first, len)| layout.contains(*first, *len));
        runs.extend(own.map(|(first, len)| Run { first, len }));
    }
    let mmp = fs.superblock().mmp_block.filter(|block| layout.contains(*block, 1));
    runs.extend(mmp.map(|first| Run { first, len: 1 }));
    merge(&mut runs);
    Ok(runs)
}

fn group(check: &Check<'_>, number: GroupNo, counts: &mut Counts) -> Result<Group> {
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
        if !is_sound && let Some(copy) = descriptor_copies(fs, number)?.into_iter().next() {
            let (own, copied) = (GroupDescriptor::from_bytes(&raw)?, GroupDescriptor::from_bytes(&copy)?);
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
            let place = Place::group(Structure::BlockBitmap, number);
            findings.say(FindingKind::GroupFlags, place, "the last group's was never written");
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
    let [table, block_bitmap, inode_bitmap] = places(descriptor);
    Ok(Group {
        table: Some(table),
        used,
        block_bitmap: Some(block_bitmap),
        inode_bitmap: Some(inode_bitmap),
        flags,
        free_clusters: descriptor.free_clusters(),
        free_inodes: descriptor.free_inodes(),
        directories: descriptor.used_directories(),
    })
}

/// Claims the blocks of a group's structure, and takes its place from the group if it can't be there.
fn settle(
    check: &Check<'_>,
    number: GroupNo,
    group: &mut Group,
    part: Part,
    copied: &[Places],
    metadata: &mut Vec<Run>,
) -> Result<()> {
    let (fs, findings, what) = (check.fs, check.findings, part.name());
    let place = Place::group(Structure::GroupDescriptor, number);
    let len = if part == Part::Table { fs.layout().inode_table_blocks() } else { 1 };
    let uninit = part.bitmap().map_or(0, Bitmap::uninit);
    let is_unwritten = group.flags & uninit != 0;
    let slot = part.of(group);
    let Some(block) = slot.take() else { return Ok(()) };
    let better = better_place(fs, number, part, block, copied)?;
    if better.is_some() {
        findings.displace(number, part, better);
    }
    if !range(fs, number).contains(&block) || block.saturating_add(len) > range(fs, number).end {
        findings.say(FindingKind::GroupPlace, place, format!("the {what} lies at block {block}"));
        return Ok(());
    }
    if let Some(other) = better {
        let text = format!("the {what} is said to lie at block {block}, and lies at block {other}");
        findings.say(FindingKind::GroupPlace, place, text);
        return Ok(());
    }
    let mut taken = 0;
    check.claims.claim(block, len, |run| taken += run.len);
    metadata.push(Run { first: block, len });
    if taken > 0 {
        let text = format!("the {what} at block {block} lies on other metadata");
        findings.say(FindingKind::GroupConflict, place, text);
    }
    // A table that others have more of holds their inodes. Forged descriptors of any number of groups can name one table.
    let is_others = len > 1 && taken > len / 2;
    *slot = (!is_others && !is_unwritten && fs.is_present(block, len)).then_some(block);
    Ok(())
}

/// The place of a structure that is not where the descriptor says: where copies of that say; the first inode table is looked
/// for, too.
fn better_place(
    fs: &Ext4,
    number: GroupNo,
    part: Part,
    block: Block,
    copied: &[Places],
) -> Result<Option<Block>> {
    let own = fs.with_raw_descriptor(number, <[u8]>::to_vec)?;
    let look = |block: Block| match part.bitmap() {
        None => likeness(fs, number, block),
        Some(bitmap) => Ok(match is_like_bitmap(fs, bitmap, number, &own, block)? {
            true => Likeness::Sure,
            false => Likeness::None,
        }),
    };
    let mut is_like = None;
    for other in copied.iter().map(|copy| copy[part.index()]) {
        if other == block {
            continue;
        }
        // Checksums of bitmaps stand in the primary descriptor alone.
        let own = is_like.map_or_else(|| look(block), Ok)?;
        is_like = Some(own);
        if own < Likeness::Sure && look(other)? > own {
            return Ok(Some(other));
        }
    }
    if number == GroupNo::PRIMARY && part == Part::Table && look(block)? < Likeness::Sure {
        return first_table(fs);
    }
    Ok(None)
}

/// Notes bitmaps that lie where a file has a block and that don't look like bitmaps: the file has its block by right.
pub(crate) fn displaced(check: &Check<'_>, groups: &[Group], shared: &[Run]) -> Result<()> {
    let fs = check.fs;
    for number in fs.layout().all_groups() {
        let raw = fs.with_raw_descriptor(number, <[u8]>::to_vec)?;
        let all = places(GroupDescriptor::from_bytes(&raw)?);
        for part in [Part::Blocks, Part::Inodes] {
            let (block, Some(bitmap)) = (all[part.index()], part.bitmap()) else { continue };
            let at = shared.partition_point(|run| run.end() <= block);
            let is_shared = shared.get(at).is_some_and(|run| run.first <= block);
            let is_written =
                groups.get(number.index()).is_some_and(|group| group.flags & bitmap.uninit() == 0);
            if is_shared && !(is_written && is_like_bitmap(fs, bitmap, number, &raw, block)?) {
                let what = part.name();
                let text = format!("the {what} lies at block {block}, where a file has a block");
                check.findings.displace(number, part, None);
                let place = Place::group(Structure::GroupDescriptor, number);
                check.findings.say(FindingKind::GroupConflict, place, text);
            }
        }
    }
    Ok(())
}

/// Where a group's bitmaps and table can be: in the group, or with flex_bg anywhere.
pub(crate) fn range(fs: &Ext4, group: GroupNo) -> Range<Block> {
    let layout = fs.layout();
    match fs.superblock().incompat.has(Incompat::FLEX_BG) {
        true => layout.group_start(GroupNo::PRIMARY)..layout.end(),
        false => layout.group_start(group)..layout.group_start(group) + layout.blocks_in(group),
    }
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
            let index = u32_of(index);
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
                let size = layout.descriptor_len();
                for (group, bytes) in first.until(GroupNo::new(layout.groups)).zip(bytes.chunks_exact(size)) {
                    let place = Place::group(Structure::BackupGroupDescriptor, group).at(block);
                    let offset = layout.offset(block) + u64::from(group.get() - first.get()) * u64_of(size);
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
