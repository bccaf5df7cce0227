//! The fifth pass: bitmaps and counts of all groups, against the blocks and inodes that were found in use.

use casemate_blockdev::{u32_of, u64_of, usize_of};
use casemate_providers::Work;

use crate::check::facts::Fact;
use crate::check::findings::{Counts, Doubts, Finding, FindingKind, Fix};
use crate::check::places::Group;
use crate::check::worker::Check;
use crate::error::{Error, Marked, Place, Problem, Result, Structure};
use crate::format::bitmap;
use crate::format::dir::byte_of;
use crate::format::group::Bitmap;
use crate::format::inode::FileType;
use crate::units::{Block, GroupNo, Run};

pub(crate) fn all(check: &Check<'_>, groups: &[Group], work: &Work<'_>) -> Result<()> {
    work.pool.run(u64_of(groups.len()), Vec::new, |bits, number| {
        let number = GroupNo::new(u32_of(number));
        let group = &groups[number.index()];
        blocks(check, group, number, bits)?;
        inodes(check, group, number, bits)?;
        Ok::<_, Error>(())
    })
}

/// A bitmap of the disk with its checksum checked, and whether that fits.
fn read(
    check: &Check<'_>,
    which: Bitmap,
    number: GroupNo,
    block: Block,
    covered: u32,
) -> Result<(Vec<u8>, bool)> {
    let (fs, findings) = (check.fs, check.findings);
    let bytes = fs.read_block(block)?;
    if !check.has.checksums {
        return Ok((bytes, true));
    }
    let place = Place::group(which.structure(), number).at(block);
    let summed = &bytes[..usize_of(covered) / 8];
    let mut counts = Counts::default();
    counts.add(place.structure, 1);
    findings.add_counts(counts);
    let subject = which.subject();
    let result =
        fs.with_raw_descriptor(number, |raw| fs.checksums().verify_bitmap(subject, summed, raw, place))?;
    let value = fs.checksums().update(None, summed);
    let fits = findings.note(result, Some(Fix::Bitmap { subject, group: number, value }));
    Ok((bytes, fits))
}

/// All behind the bits in use must be set, so that nobody takes what is not there.
fn padding(check: &Check<'_>, bytes: &[u8], used: u32, place: Place) {
    let at = usize_of(used);
    let is_set = match bytes[at / 8..].split_first() {
        Some((first, rest)) => !first >> (at % 8) == 0 && rest.iter().all(|byte| *byte == 0xff),
        None => true,
    };
    if !is_set {
        let text = format!("not all bits behind the group's {used} are set");
        check.findings.say(FindingKind::BitmapPadding, place, text);
    }
}

/// Meaning of a bitmap's bits: their group's first one, how findings call it, and whether unexpected bits may be set.
struct Meaning {
    kind: FindingKind,
    place: Place,
    /// The block or inode of the first bit, and how many each bit is for.
    first: u64,
    each: u64,
    /// Not all that is in use was found.
    is_partial: bool,
}

/// Compares `count` bits on the disk with those that were found, in words.
fn compare(check: &Check<'_>, disk: &[u8], found: &[u64], count: u32, meaning: &Meaning) {
    let Meaning { kind, place, first, each, is_partial } = *meaning;
    // The first bit of a run, the one behind its last, and whether it is set on the disk.
    let mut run: Option<(u64, u64, bool)> = None;
    let tell = |run: Option<(u64, u64, bool)>| {
        let Some((from, to, is_set)) = run else { return };
        if is_set && is_partial {
            return;
        }
        let marked = if is_set { Marked::Used } else { Marked::Free };
        let problem = Problem::Marked { first: first + from * each, last: first + to * each - 1, marked };
        check.findings.add(Finding::new(kind, place, problem), None);
    };
    for (index, expected) in found.iter().enumerate() {
        let at = u64_of(index) * 64;
        let left = u64::from(count).saturating_sub(at);
        if left == 0 {
            break;
        }
        let mask = if left < 64 { !(!0 << left) } else { !0 };
        let mut word = [0; 8];
        let bytes = &disk[index * 8..disk.len().min(index * 8 + 8)];
        word[..bytes.len()].copy_from_slice(bytes);
        let stored = u64::from_le_bytes(word);
        let mut differing = (stored ^ expected) & mask;
        while differing != 0 {
            let bit = differing.trailing_zeros();
            differing &= differing - 1;
            let (bit, is_set) = (at + u64::from(bit), stored >> bit & 1 == 1);
            match &mut run {
                Some((_, to, set)) if *to == bit && *set == is_set => *to += 1,
                _ => tell(run.replace((bit, bit + 1, is_set))),
            }
        }
    }
    tell(run);
}

fn blocks(check: &Check<'_>, group: &Group, number: GroupNo, bits: &mut Vec<u64>) -> Result<()> {
    let layout = check.fs.layout();
    let (count, start) = (layout.clusters_in(number), layout.group_start(number));
    let each = u64::from(layout.cluster_blocks);
    let is_never_written = group.flags & Bitmap::Blocks.uninit() != 0;
    if group.block_bitmap.is_none() && !is_never_written {
        return Ok(());
    }
    bits.clear();
    if each == 1 {
        bits.extend((0..u64::from(count).div_ceil(64)).map(|word| check.claims.bits(start + word * 64)));
    } else {
        bits.resize(usize_of(count.div_ceil(64)), 0);
        for cluster in 0..u64::from(count) {
            let first = start + cluster * each;
            if check.claims.any(first, each.min(layout.end() - first)) {
                bits[usize_of(cluster) / 64] |= 1 << (cluster % 64);
            }
        }
    }
    let place = Place::group(Structure::BlockBitmap, number);
    let (bytes, place) = match group.block_bitmap {
        Some(block) => {
            let place = place.at(block);
            let (bytes, fits) = read(check, Bitmap::Blocks, number, block, layout.clusters_per_group)?;
            if fits {
                padding(check, &bytes, count, place);
            }
            (bytes, place)
        }
        None => (own_bitmap(check, number, count), place),
    };
    let is_partial = check.findings.doubts().has(Doubts::BLOCKS);
    let meaning = Meaning { kind: FindingKind::BlockBitmap, place, first: start.get(), each, is_partial };
    compare(check, &bytes, bits, count, &meaning);
    let free = bitmap::clear(&bytes, count);
    if free != group.free_clusters {
        let place = Place::group(Structure::GroupDescriptor, number);
        check.findings.number(
            FindingKind::FreeBlocks,
            place,
            "free clusters",
            group.free_clusters.into(),
            free.into(),
        );
    }
    Ok(())
}

/// The block bitmap that a group has which was never written: the file system's own structures are in use.
fn own_bitmap(check: &Check<'_>, number: GroupNo, count: u32) -> Vec<u8> {
    let layout = check.fs.layout();
    let mut bytes = vec![0; usize_of(count.div_ceil(8))];
    let (start, each) = (layout.group_start(number), u64::from(layout.cluster_blocks));
    let end = start + layout.blocks_in(number);
    let group = Run::between(start, end);
    let at = check.metadata.partition_point(|run| run.end() <= start);
    for run in check.metadata[at..].iter().map_while(|run| run.shared(group)) {
        let clusters = (run.first - start) / each..(run.end() - start).div_ceil(each);
        clusters.for_each(|cluster| bitmap::set(&mut bytes, cluster));
    }
    bytes
}

fn inodes(check: &Check<'_>, group: &Group, number: GroupNo, bits: &mut Vec<u64>) -> Result<()> {
    let layout = check.fs.layout();
    let count = layout.inodes_per_group;
    let is_never_written = group.flags & Bitmap::Inodes.uninit() != 0;
    if group.table.is_none() || group.inode_bitmap.is_none() && !is_never_written {
        return Ok(());
    }
    bits.clear();
    bits.resize(usize_of(count.div_ceil(64)), 0);
    let Some(first) = layout.inode_at(number, 0) else { return Ok(()) };
    let (mut directories, kind) = (0, byte_of(FileType::Directory));
    check.facts.each(first, count, |inode, fact: Fact, _| {
        let bit = inode.index() - first.index();
        bits[usize_of(bit) / 64] |= 1 << (bit % 64);
        directories += u32::from(fact.kind() == kind && !fact.has(Fact::INTERNAL));
    });
    let mut place = Place::group(Structure::InodeBitmap, number);
    let bytes = match group.inode_bitmap {
        Some(block) => {
            place = place.at(block);
            let (bytes, fits) = read(check, Bitmap::Inodes, number, block, count)?;
            if fits {
                padding(check, &bytes, count, place);
            }
            bytes
        }
        None => vec![0; usize_of(count.div_ceil(8))],
    };
    let is_partial = check.findings.doubts().has(Doubts::INODES);
    let meaning =
        Meaning { kind: FindingKind::InodeBitmap, place, first: first.get().into(), each: 1, is_partial };
    compare(check, &bytes, bits, count, &meaning);
    let place = Place::group(Structure::GroupDescriptor, number);
    let free = bitmap::clear(&bytes, count);
    if free != group.free_inodes {
        check.findings.number(
            FindingKind::FreeInodes,
            place,
            "free inodes",
            group.free_inodes.into(),
            free.into(),
        );
    }
    if directories != group.directories && !is_partial {
        let (found, expected) = (group.directories.into(), directories.into());
        check.findings.number(FindingKind::DirectoryCount, place, "directories", found, expected);
    }
    Ok(())
}
