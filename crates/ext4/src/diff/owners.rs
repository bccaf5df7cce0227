//! Owners of the blocks that differ: structures of fixed places first, then every inode in use with its map.

use std::ops::{ControlFlow, Range};

use casemate_blockdev::u64_of;

use super::Diff;
use super::bits::Bits;
use super::difference::{Area, Difference, Side};
use crate::check::fixed_blocks;
use crate::error::{Error, Place, Result};
use crate::format::csum::Kind;
use crate::format::group::INODE_UNINIT;
use crate::format::inode::{FileType, Inode, InodeFlags, LINKS, MODE};
use crate::format::layout::Layout;
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use crate::read::fs::Ext4;
use crate::read::mapping::{MapVisitor, Mapping};
use crate::read::unread::Unread;
use crate::units::{Block, GroupNo, InodeNo};

/// Bytes that something has, of units that differ.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub bytes: Range<u64>,
    pub area: Area,
    /// Bytes of it that mean something; the others are in another area.
    pub live: Range<u64>,
    pub rest: Area,
    /// The group whose inode table it is, and the byte where that begins.
    pub table: Option<(GroupNo, u64)>,
}

/// Owners of one file system, in the order of their bytes.
#[derive(Debug, Default)]
pub(super) struct Owners {
    runs: Vec<Owned>,
}

impl Owners {
    /// The owner of a byte, if it has one.
    pub fn at(&self, byte: u64) -> Option<&Owned> {
        let next = self.runs.partition_point(|owned| owned.bytes.end <= byte);
        self.runs.get(next).filter(|owned| owned.bytes.start <= byte)
    }

    /// Numbers of inodes whose slots lie in units that differ.
    pub fn changed_slots(&self, layout: &Layout) -> impl Iterator<Item = InodeNo> {
        let size = u64::from(layout.inode_size);
        let (inodes, per_group) = (layout.inodes, layout.inodes_per_group);
        let tables = self.runs.iter().filter_map(|owned| Some((&owned.bytes, owned.table?)));
        tables.flat_map(move |(bytes, (group, table))| {
            let slots = (bytes.start - table) / size..(bytes.end - table).div_ceil(size);
            slots.filter_map(move |slot| {
                let slot = u32::try_from(slot).ok().filter(|slot| *slot < per_group)?;
                let index = group.get().checked_mul(per_group)?.checked_add(slot)?;
                InodeNo::at_index(index).filter(|_| index < inodes)
            })
        })
    }
}

/// Gives units that differ to owners, each to the first one.
struct Claimer {
    left: Bits,
    unit: u64,
    block_size: u64,
    runs: Vec<Owned>,
    /// Blocks of maps that were gone through: forged inodes may share them.
    maps: Bits,
}

impl Claimer {
    fn claim(&mut self, owned: Owned) {
        let units = owned.bytes.start / self.unit..owned.bytes.end.div_ceil(self.unit);
        while let Some(run) = self.left.next_run(units.clone()) {
            self.left.remove(run.clone());
            let bytes = run.start.saturating_mul(self.unit)..run.end.saturating_mul(self.unit);
            self.runs.push(Owned { bytes, ..owned.clone() });
        }
    }

    /// Blocks all of whose bytes mean something.
    fn blocks(&mut self, first: Block, len: u64, area: Area) {
        self.part(first, len, area, u64::MAX, Area::Padding);
    }

    /// Blocks of which the first bytes mean something.
    fn part(&mut self, first: Block, len: u64, area: Area, live: u64, rest: Area) {
        let Some(start) = first.checked_offset(self.block_size) else { return };
        let bytes = start..start.saturating_add(len.saturating_mul(self.block_size));
        let live = start..start.saturating_add(live).min(bytes.end);
        self.claim(Owned { bytes, area, live, rest, table: None });
    }

    fn finish(mut self) -> Owners {
        self.runs.sort_unstable_by_key(|owned| owned.bytes.start);
        Owners { runs: self.runs }
    }
}

impl Diff<'_> {
    /// Owners of the units that differ, in both file systems.
    pub fn owners(&mut self) -> Result<[Owners; 2]> {
        let mut both = Vec::new();
        for side in Side::BOTH {
            let fs = self.sides[side.index()].fs.clone();
            let (unit, left) = (self.compared.unit, self.compared.units.clone());
            let block_size = fs.layout().block_size.into();
            let mut claimer = Claimer { left, unit, block_size, runs: Vec::new(), maps: Bits::default() };
            fixed(&fs, &mut claimer);
            let mut unread = Unread::default();
            self.of_inodes(&fs, &mut claimer, &mut unread)?;
            for error in unread.errors {
                self.tell(Difference::Unread { side, path: None, error })?;
            }
            self.unread += unread.left_out;
            both.push(claimer.finish());
        }
        let mut both = both.into_iter();
        Ok([0, 1].map(|_| both.next().unwrap_or_default()))
    }

    fn of_inodes(&self, fs: &Ext4, claimer: &mut Claimer, unread: &mut Unread) -> Result<()> {
        let layout = *fs.layout();
        let size = layout.inode_len();
        let per_block = layout.block_size / layout.inode_size;
        for group in layout.all_groups() {
            self.work.events.advance(0)?;
            let used = match used_slots(fs, group) {
                Ok(used) => used,
                Err(error) if error.is_interrupt() => return Err(error),
                Err(error) => {
                    unread.add(error);
                    continue;
                }
            };
            let table = match fs.with_descriptor(group, |found| found.inode_table()) {
                Ok(table) if layout.contains(table, layout.inode_table_blocks()) => table,
                _ => continue,
            };
            for index in 0..used.div_ceil(per_block) {
                let block = table + u64::from(index);
                let bytes = match fs.read_block(block) {
                    Ok(bytes) => bytes,
                    Err(error) if error.is_interrupt() => return Err(error),
                    Err(error) => {
                        unread.add(error);
                        continue;
                    }
                };
                for (slot, raw) in bytes.chunks_exact(size).enumerate() {
                    let number = u64::from(index) * u64::from(per_block) + u64_of(slot);
                    let number = u32::try_from(number).ok().and_then(|index| layout.inode_at(group, index));
                    let Some(number) = number.filter(|number| is_used(fs, *number, raw)) else {
                        continue;
                    };
                    let found = fs
                        .inode_in_block(number, u32::try_from(slot).unwrap_or(u32::MAX), &bytes)
                        .and_then(|inode| inode.map_or(Ok(()), |inode| of_inode(fs, &inode, claimer)));
                    match found {
                        Err(error) if error.is_interrupt() => return Err(error),
                        // Inodes with a name were told of where they are.
                        Err(error)
                            if !self.reached.iter().any(|reached| reached.has(number.get().into())) =>
                        {
                            unread.add(error);
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}

/// How many slots of a group's inode table were ever used.
pub(super) fn used_slots(fs: &Ext4, group: GroupNo) -> Result<u32> {
    let all = fs.layout().inodes_per_group;
    let (flags, unused) = fs.with_descriptor(group, |found| (found.flags(), found.unused_inodes()))?;
    Ok(match fs.checksums().kind() {
        Kind::None => all,
        _ if flags & INODE_UNINIT != 0 => 0,
        _ => all - unused.min(all),
    })
}

/// Whether the bytes of a slot are those of an inode in use.
pub(super) fn is_used(fs: &Ext4, number: InodeNo, raw: &[u8]) -> bool {
    let is_kept = fs.superblock().is_reserved(number) && MODE.get(raw) != 0;
    LINKS.get(raw) != 0 || is_kept
}

/// Structures of fixed places, the more particular ones first.
fn fixed(fs: &Ext4, claimer: &mut Claimer) {
    let (layout, superblock) = (*fs.layout(), fs.superblock());
    let size = u64_of(SUPERBLOCK_SIZE);
    let block_size = claimer.block_size;
    for group in layout.all_groups() {
        let Some(offset) = layout.superblock_offset(group) else { continue };
        let start = offset / block_size * block_size;
        let is_primary = offset == SUPERBLOCK_OFFSET;
        let area = if is_primary { Area::Superblock } else { Area::SuperblockCopies };
        let live = offset..offset.saturating_add(size);
        let bytes = start..start.saturating_add(block_size);
        claimer.claim(Owned { bytes, area, live, rest: Area::Padding, table: None });
    }
    let per_block = u64::from(layout.descriptors_per_block());
    for index in 0..layout.descriptor_blocks() {
        let left = u64::from(layout.groups) - u64::from(index) * per_block;
        let live = left.min(per_block) * u64::from(layout.descriptor_size);
        claimer.part(layout.descriptor_block(index), 1, Area::Descriptors, live, Area::Padding);
        for (_, copy) in layout.descriptor_copies(index) {
            claimer.part(copy, 1, Area::DescriptorCopies, live, Area::Padding);
        }
    }
    if let Some(block) = superblock.mmp_block {
        claimer.part(block, 1, Area::Mmp, size, Area::Padding);
    }
    for group in layout.all_groups() {
        let places = fs.with_raw_descriptor(group, |raw| {
            let found = crate::format::group::GroupDescriptor::from_bytes(raw)?;
            Ok::<_, Error>((found.block_bitmap(), found.inode_bitmap(), found.inode_table()))
        });
        if let Ok(Ok((blocks, inodes, table))) = places {
            let bits = u64::from(layout.clusters_per_group).div_ceil(8);
            if layout.contains(blocks, 1) {
                claimer.part(blocks, 1, Area::BlockBitmaps, bits, Area::Padding);
            }
            let bits = u64::from(layout.inodes_per_group).div_ceil(8);
            if layout.contains(inodes, 1) {
                claimer.part(inodes, 1, Area::InodeBitmaps, bits, Area::Padding);
            }
            let len = layout.inode_table_blocks();
            if layout.contains(table, len) {
                let start = layout.offset(table);
                let bytes = start..start.saturating_add(len.saturating_mul(block_size));
                let live = start
                    ..start.saturating_add(u64::from(layout.inodes_per_group) * u64::from(layout.inode_size));
                let table = Some((group, start));
                claimer.claim(Owned { bytes, area: Area::Inodes, live, rest: Area::Padding, table });
            }
        }
        fixed_blocks(&layout, superblock, group, |run| {
            claimer.blocks(run.first, run.len, Area::ReservedDescriptors);
        });
    }
    // Block 0 of small blocks has no group.
    claimer.part(Block::default(), 1, Area::Boot, SUPERBLOCK_OFFSET, Area::Padding);
}

/// Blocks of an inode.
fn of_inode(fs: &Ext4, inode: &Inode, claimer: &mut Claimer) -> Result<()> {
    if let Some(block) = inode.xattr_block() {
        claimer.blocks(block, 1, Area::Attributes);
    }
    let superblock = fs.superblock();
    let number = inode.number();
    let area = if superblock.journal_inode == Some(number) {
        Area::Journal
    } else if superblock.orphan_file == Some(number) {
        Area::OrphanFile
    } else if superblock.quota_inodes.contains(&Some(number)) {
        Area::QuotaFiles
    } else if number == InodeNo::RESIZE {
        Area::ReservedDescriptors
    } else if inode.has(InodeFlags::EA_INODE) {
        Area::Attributes
    } else {
        match inode.kind() {
            FileType::Directory => Area::Directories,
            FileType::Symlink => Area::Symlinks,
            _ => Area::Contents,
        }
    };
    let mut blocks = Blocks { claimer, area, inode, is_first: true };
    fs.visit_map(inode, 0, &mut blocks).map(|_| ())
}

/// A visitor of an inode's blocks that claims them.
struct Blocks<'a> {
    claimer: &'a mut Claimer,
    area: Area,
    inode: &'a Inode,
    is_first: bool,
}

impl MapVisitor for Blocks<'_> {
    fn mapping(&mut self, run: Mapping) -> Result<ControlFlow<()>> {
        let area = if run.unwritten { Area::Unwritten } else { self.area };
        // The end of a file with contents of bytes; the others have whole blocks.
        let rest = if self.inode.has(InodeFlags::VERITY) { Area::Verity } else { Area::Slack };
        let has_end = matches!(self.area, Area::Contents | Area::Symlinks | Area::Attributes);
        let start = run.logical.saturating_mul(self.claimer.block_size);
        let live = if has_end { self.inode.size().saturating_sub(start) } else { u64::MAX };
        let rest = if run.unwritten { Area::Unwritten } else { rest };
        self.claimer.part(run.physical, run.len, area, live, rest);
        Ok(ControlFlow::Continue(()))
    }

    /// Damage of a map keeps its other blocks from no owner.
    fn broken(&mut self, _error: Error) -> Result<()> {
        Ok(())
    }

    fn map_block(&mut self, block: Block) -> Result<()> {
        self.is_first = self.claimer.maps.insert(block.get());
        self.claimer.blocks(block, 1, Area::Maps);
        Ok(())
    }

    fn node(&mut self, fs: &Ext4, inode: &Inode, place: Place, _block: Block, bytes: &[u8]) -> Result<bool> {
        let is_first = std::mem::replace(&mut self.is_first, true);
        if place.structure == crate::error::Structure::ExtentBlock {
            fs.verify(crate::format::csum::Subject::ExtentBlock, &inode.context(), bytes, place)?;
        }
        Ok(is_first)
    }
}
