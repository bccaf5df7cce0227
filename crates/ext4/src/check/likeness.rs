//! Likeness of blocks to a group's structures: what tells a descriptor that names a wrong block from a file that has a block it
//! should not have.

use std::collections::BTreeMap;

use casemate_blockdev::{BlockDevice, u64_of, usize_of};

use crate::check::places::{Places, fixed_blocks, places};
use crate::error::{Place, Result};
use crate::format::bitmap;
use crate::format::csum::{Context, Kind, Subject};
use crate::format::group::{Bitmap, GroupDescriptor};
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::format::raw_inode::RawInode;
use crate::read::fs::Ext4;
use crate::units::{Block, GroupNo, InodeNo};

/// Bytes of an inode table that are read at once.
const PIECE: u32 = 1 << 16;

/// How much a run of blocks looks like a group's inode table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Likeness {
    /// Nothing in it looks like an inode of the group.
    None,
    /// Something looks like one, as other data may by chance.
    Some,
    /// It has inodes whose checksums fit, or the root, whose first block is that of the root directory.
    Sure,
}

/// Runs of blocks that were looked at as inode tables. Forged descriptors of any number of groups can name one run.
#[derive(Debug, Default)]
pub(crate) struct Tables(BTreeMap<Block, Vec<u32>>);

/// Inodes in use of a run that are kept in mind; one with more is read again.
const MOST_KEPT: usize = 64;

impl Tables {
    /// Whether a run of blocks may be a group's inode table.
    pub fn holds_inodes(&mut self, fs: &Ext4, group: GroupNo, table: Block) -> Result<bool> {
        let layout = fs.layout();
        if !layout.contains(table, layout.inode_table_blocks()) {
            return Ok(false);
        }
        if let Some(used) = self.0.get(&table) {
            let mut found = Likeness::None;
            let mut raw = vec![0; layout.inode_len()];
            for index in used {
                let offset = layout.offset(table) + u64::from(*index) * u64::from(layout.inode_size);
                fs.device().read_at(&mut raw, offset)?;
                found = found.max(likeness_of(fs, group, *index, &raw)?);
            }
            return Ok(found > Likeness::None);
        }
        let mut used = Vec::new();
        let found = looked_at(fs, group, table, &mut used)?;
        if found < Likeness::Sure && used.len() < MOST_KEPT {
            self.0.insert(table, used);
        }
        Ok(found > Likeness::None)
    }
}

/// Looks at a run of blocks as a group's inode table.
pub(crate) fn likeness(fs: &Ext4, group: GroupNo, table: Block) -> Result<Likeness> {
    looked_at(fs, group, table, &mut Vec::new())
}

/// The likeness to a group's table, and the places of the first inodes in it that seem to be in use; all of them where it
/// is less than sure.
fn looked_at(fs: &Ext4, group: GroupNo, table: Block, used: &mut Vec<u32>) -> Result<Likeness> {
    let layout = fs.layout();
    let len = layout.inode_table_blocks();
    if !layout.contains(table, len) || !fs.is_present(table, len) {
        return Ok(Likeness::None);
    }
    let size = layout.inode_size;
    let per_piece = (PIECE / size).max(1);
    let (mut bytes, mut found) = (Vec::new(), Likeness::None);
    for first in (0..layout.inodes_per_group).step_by(usize_of(per_piece)) {
        let count = per_piece.min(layout.inodes_per_group - first);
        bytes.resize(usize_of(count) * usize_of(size), 0);
        let offset = layout.offset(table) + u64::from(first) * u64::from(size);
        fs.device().read_at(&mut bytes, offset)?;
        for (index, raw) in (first..).zip(bytes.chunks_exact(usize_of(size))) {
            if !is_used(raw) {
                continue;
            }
            if used.len() < MOST_KEPT {
                used.push(index);
            }
            found = found.max(likeness_of(fs, group, index, raw)?);
            if found == Likeness::Sure {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Whether bytes seem to be an inode in use, of whichever number.
fn is_used(raw: &[u8]) -> bool {
    let inode = RawInode { number: InodeNo::ROOT, raw };
    inode.kind().is_some() && inode.links() > 0 && inode.deleted() == 0
}

/// Evidence of an inode in use, at an index of a run, that the run is a group's table.
fn likeness_of(fs: &Ext4, group: GroupNo, index: u32, raw: &[u8]) -> Result<Likeness> {
    let has_sums = fs.checksums().covers(Subject::Inode);
    let Some(number) = fs.layout().inode_at(group, index).filter(|_| is_used(raw)) else {
        return Ok(Likeness::None);
    };
    let inode = RawInode { number, raw };
    if has_sums && fs.checksums().fits(Subject::Inode, &inode.context(), raw) {
        return Ok(Likeness::Sure);
    }
    if number == InodeNo::ROOT
        && let Ok(root) = inode.to_inode()
        && first_block(fs, &root).is_some_and(|block| block.starts_with(&ROOT_DOT))
    {
        return Ok(Likeness::Sure);
    }
    // Without checksums the first group is known by its directories alone: other numbers can't be told apart.
    let is_own = group != GroupNo::PRIMARY && !has_sums
        || number == InodeNo::ROOT && inode.kind() == Some(FileType::Directory) && inode.links() > 1;
    Ok(if is_own { Likeness::Some } else { Likeness::None })
}

/// The number in the root's first record.
const ROOT_DOT: [u8; 4] = [2, 0, 0, 0];

/// The first block of a directory, if it has blocks that can be read.
pub(crate) fn first_block(fs: &Ext4, directory: &Inode) -> Option<Vec<u8>> {
    if !directory.is_dir() || directory.has(InodeFlags::INLINE_DATA) {
        return None;
    }
    let first = fs.mapping_at(directory, 0).ok()??;
    if !fs.layout().contains(first.physical, 1) || !fs.is_present(first.physical, 1) {
        return None;
    }
    fs.read_block(first.physical).ok()
}

/// Blocks behind the fixed ones of the first group in which its inode table is looked for: bitmaps of several groups may lie
/// before it.
const SEARCHED: u64 = 64;

/// The inode table of the first group, found by its root behind the blocks that the group begins with.
pub(crate) fn first_table(fs: &Ext4) -> Result<Option<Block>> {
    let mut end = fs.layout().group_start(GroupNo::PRIMARY);
    fixed_blocks(fs.layout(), fs.superblock(), GroupNo::PRIMARY, |run| end = end.max(run.end()));
    for block in end.run(SEARCHED) {
        if likeness(fs, GroupNo::PRIMARY, block)? == Likeness::Sure {
            return Ok(Some(block));
        }
    }
    Ok(None)
}

/// Whether a block looks like a group's bitmap: its checksum fits, or without one, what lies behind the last bit and what the
/// file system itself has is marked as in use.
pub(crate) fn is_like_bitmap(
    fs: &Ext4,
    which: Bitmap,
    group: GroupNo,
    raw: &[u8],
    block: Block,
) -> Result<bool> {
    let layout = fs.layout();
    if !layout.contains(block, 1) || !fs.is_present(block, 1) {
        return Ok(false);
    }
    let bytes = fs.read_block(block)?;
    let (bits, covered) = match which {
        Bitmap::Blocks => (layout.clusters_in(group), layout.clusters_per_group),
        Bitmap::Inodes => (layout.inodes_per_group, layout.inodes_per_group),
    };
    if fs.checksums().kind() == Kind::Metadata {
        let place = Place::group(which.structure(), group);
        let summed = &bytes[..usize_of(covered) / 8];
        return Ok(fs.checksums().verify_bitmap(which.subject(), summed, raw, place).is_ok());
    }
    let all = u64_of(bytes.len()) * 8;
    let mut is_like = bitmap::all(&bytes, bits.into(), all.saturating_sub(bits.into()), true);
    match which {
        Bitmap::Inodes if group == GroupNo::PRIMARY => {
            let reserved = u64::from(fs.superblock().first_inode.saturating_sub(1).min(bits));
            is_like &= bitmap::all(&bytes, 0, reserved, true);
        }
        Bitmap::Inodes => {}
        Bitmap::Blocks => {
            let (start, each) = (layout.group_start(group), u64::from(layout.cluster_blocks));
            let found = GroupDescriptor::from_bytes(raw)?;
            let mut own = vec![(block, 1), (found.inode_bitmap(), 1)];
            own.push((found.inode_table(), layout.inode_table_blocks()));
            fixed_blocks(layout, fs.superblock(), group, |run| own.push((run.first, run.len)));
            for (first, len) in own {
                let end = first.saturating_add(len).min(start + layout.blocks_in(group));
                let first = first.max(start);
                if first < end {
                    let (from, to) = ((first - start) / each, (end - start).div_ceil(each));
                    is_like &= bitmap::all(&bytes, from, to - from, true);
                }
            }
        }
    }
    Ok(is_like)
}

/// Copies of a group's descriptor whose checksums fit, of the first places of such copies.
pub(crate) fn descriptor_copies(fs: &Ext4, group: GroupNo) -> Result<Vec<Vec<u8>>> {
    let layout = fs.layout();
    let (index, at) = layout.descriptor_position(group);
    let size = layout.descriptor_len();
    let at = u64::from(at) * u64_of(size);
    let mut copies = Vec::new();
    for block in copy_blocks(fs, index) {
        let mut raw = vec![0; size];
        fs.device().read_at(&mut raw, layout.offset(block) + at)?;
        if is_sound(fs, group, &raw) {
            copies.push(raw);
        }
        if copies.len() == MOST_COPIES {
            break;
        }
    }
    Ok(copies)
}

/// Places that copies of descriptors name, of the groups whose own descriptors name others. Each block of copies is read once.
pub(crate) fn copied_places(fs: &Ext4) -> Result<BTreeMap<GroupNo, Vec<Places>>> {
    let layout = fs.layout();
    let size = layout.descriptor_len();
    let mut found: BTreeMap<GroupNo, Vec<Places>> = BTreeMap::new();
    for index in 0..layout.descriptor_blocks() {
        let first = layout.first_described(index).get();
        for block in copy_blocks(fs, index).take(MOST_COPIES) {
            let bytes = fs.read_block(block)?;
            for (number, raw) in (first..layout.groups).zip(bytes.chunks_exact(size)) {
                let group = GroupNo::new(number);
                let own =
                    fs.with_raw_descriptor(group, |own| GroupDescriptor::from_bytes(own).map(places))??;
                let copied = places(GroupDescriptor::from_bytes(raw)?);
                if copied != own && is_sound(fs, group, raw) {
                    found.entry(group).or_default().push(copied);
                }
            }
        }
    }
    Ok(found)
}

/// The first places of copies of a block of descriptors that are there.
fn copy_blocks(fs: &Ext4, index: u32) -> impl Iterator<Item = Block> {
    let blocks = fs.layout().descriptor_copies(index).map(|(_, block)| block).take(MOST_LOOKED_AT);
    blocks.filter(|block| fs.layout().contains(*block, 1) && fs.is_present(*block, 1))
}

fn is_sound(fs: &Ext4, group: GroupNo, raw: &[u8]) -> bool {
    let sums = fs.checksums();
    let context = Context { group, ..Context::default() };
    sums.kind() == Kind::None || sums.fits(sums.descriptor_subject(), &context, raw)
}

/// Copies of a descriptor that are compared, and places of copies that are looked at.
const MOST_COPIES: usize = 2;
const MOST_LOOKED_AT: usize = 8;
