//! Maps of inodes read past their damage, and made anew of the runs that were found.

use std::collections::BTreeSet;
use std::sync::Arc;

use casemate_blockdev::ErrorKind;

use crate::check::metadata;
use crate::edit::too_large::TooLarge;
use crate::error::{Place, Result, Structure};
use crate::format::block_map::{self, SLOTS};
use crate::format::extent::{self, ExtentNode};
use crate::format::features::{Incompat, RoCompat};
use crate::format::inode::{Inode, InodeFlags};
use crate::format::raw_inode::RawInode;
use crate::read::fs::Ext4;
use crate::read::mapping::Mapping;
use crate::repair::Repair;
use crate::units::{Block, GroupNo, Run};

/// Blocks that a file can have.
const MOST_BLOCKS: u64 = 1 << 32;

/// Wrong numbers among those of a block from which on it is taken for none of numbers.
const MOST_WRONG: usize = 4;

/// A map as far as it can be followed.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Runs of the file's blocks, in the file's order, none over another.
    pub runs: Vec<Mapping>,
    /// Blocks of the map itself.
    pub nodes: Vec<Block>,
    /// Whether all of it could be followed.
    pub is_sound: bool,
}

/// A walk under way.
struct Walker<'a> {
    fs: &'a Ext4,
    metadata: &'a [Run],
    walk: Walk,
    seen: BTreeSet<Block>,
    /// Blocks up to the file's size.
    size: u64,
    place: Place,
}

/// Follows an inode's map, whatever its kind, past blocks of the file system's own structures.
fn walk(fs: &Ext4, inode: RawInode<'_>, metadata: &[Run]) -> Result<Walk> {
    let has_extents = fs.superblock().incompat.has(Incompat::EXTENTS);
    let area = inode.block_area();
    let walk = Walk { is_sound: true, ..Walk::default() };
    let place = Place::inode(Structure::Inode, inode.number);
    let size = inode.size().div_ceil(fs.layout().block_size.into());
    let mut walker = Walker { fs, metadata, walk, seen: BTreeSet::new(), size, place };
    match inode.has(InodeFlags::EXTENTS) || has_extents && extent::is_root(area) {
        true => walker.node(area, None, MOST_BLOCKS)?,
        false => {
            let mut at = 0;
            for slot in 0..SLOTS {
                let number = block_map::number(slot).get(area);
                walker.pointer(number, block_map::level(slot), &mut at)?;
            }
        }
    }
    Ok(walker.walk)
}

impl Walker<'_> {
    fn is_inside(&self, block: Block, len: u64) -> bool {
        let layout = self.fs.layout();
        let first = layout.group_start(GroupNo::PRIMARY).max(Block::new(1));
        block >= first && block.checked_add(len).is_some_and(|end| end <= layout.end())
    }

    fn is_metadata(&self, block: Block) -> bool {
        let at = self.metadata.partition_point(|own| own.end() <= block);
        self.metadata.get(at).is_some_and(|own| own.first <= block)
    }

    /// Whether a block can be one of the map. Each is followed once.
    fn may_follow(&mut self, block: Block) -> bool {
        let may = self.is_inside(block, 1)
            && !self.is_metadata(block)
            && self.fs.is_present(block, 1)
            && self.seen.insert(block);
        self.walk.is_sound &= may;
        may
    }

    fn end(&self) -> u64 {
        self.walk.runs.last().map_or(0, Mapping::end)
    }

    /// The length of an extent: one that reaches out of the file system, or over the next extent, is none if it passes the
    /// file's end, too. Then the size tells how much of it is the file's.
    fn possible_length(&self, logical: u64, physical: Block, len: u64, next: Option<u64>) -> u64 {
        let is_outside = !self.is_inside(physical, len) && self.is_inside(physical, 1);
        let is_over = next.is_some_and(|next| logical < next && next < logical + len);
        if logical + len <= self.size || !(is_outside || is_over) {
            return len;
        }
        let end = next.filter(|_| is_over).unwrap_or(u64::MAX).min(self.size);
        // One that begins behind the end has no room at all.
        let room = self.fs.layout().end().checked_since(physical).unwrap_or(0);
        let own = end.saturating_sub(logical).min(room);
        if own > 0 { own } else { len }
    }

    fn node(&mut self, bytes: &[u8], depth: Option<u16>, end: u64) -> Result<()> {
        let node = ExtentNode::from_bytes(bytes, self.place);
        let Some(node) = node.ok().filter(|node| depth.is_none_or(|depth| node.depth() == depth)) else {
            self.walk.is_sound = false;
            return Ok(());
        };
        if node.depth() == 0 {
            let mut extents = node.extents().peekable();
            while let Some(found) = extents.next() {
                let logical = u64::from(found.logical);
                let next = extents.peek().map(|next| u64::from(next.logical));
                let len = self.possible_length(logical, found.physical, found.len.into(), next);
                self.walk.is_sound &= len == u64::from(found.len);
                let fits = len > 0
                    && self.is_inside(found.physical, len)
                    && logical >= self.end()
                    && logical + len <= end.min(MOST_BLOCKS);
                self.walk.is_sound &= fits;
                if fits {
                    let (physical, unwritten) = (found.physical, found.unwritten);
                    self.walk.runs.push(Mapping { logical, physical, len, unwritten });
                }
            }
            return Ok(());
        }
        let indexes: Vec<_> = node.indexes().collect();
        for (at, index) in indexes.iter().enumerate() {
            let next = indexes.get(at + 1).map_or(end, |next| u64::from(next.logical));
            let next = if next > u64::from(index.logical) { next.min(end) } else { end };
            if self.may_follow(index.block) {
                self.walk.nodes.push(index.block);
                let below = self.fs.read_block(index.block)?;
                self.node(&below, Some(node.depth() - 1), next)?;
            }
        }
        Ok(())
    }

    fn pointer(&mut self, number: u32, level: u32, at: &mut u64) -> Result<()> {
        let per_block = block_map::per_block(self.fs.layout().block_size.into());
        let logical = *at;
        *at += per_block.pow(level);
        let Some(block) = Block::some(number.into()) else { return Ok(()) };
        if level == 0 {
            let fits = self.is_inside(block, 1);
            self.walk.is_sound &= fits;
            if fits {
                self.add_block(logical, block);
            }
            return Ok(());
        }
        if !self.may_follow(block) {
            return Ok(());
        }
        let bytes = self.fs.read_block(block)?;
        let numbers: Vec<u32> = block_map::numbers(&bytes).collect();
        let used = numbers.iter().filter(|number| **number != 0).count();
        let wrong = numbers
            .iter()
            .filter_map(|number| Block::some((*number).into()))
            .filter(|block| !self.is_inside(*block, 1))
            .count();
        if wrong >= MOST_WRONG && wrong * 4 > used {
            // Something else was written over it.
            self.walk.is_sound = false;
            return Ok(());
        }
        self.walk.nodes.push(block);
        let mut below = logical;
        for number in numbers {
            self.pointer(number, level - 1, &mut below)?;
        }
        Ok(())
    }

    /// Adds a block behind the last one, to its run if it goes on there.
    fn add_block(&mut self, logical: u64, physical: Block) {
        match self.walk.runs.last_mut() {
            Some(last) if last.end() == logical && last.physical + last.len == physical => last.len += 1,
            _ => self.walk.runs.push(Mapping { logical, physical, len: 1, unwritten: false }),
        }
    }
}

impl Repair {
    /// Follows an inode's map, whatever its kind.
    pub(super) fn walk(&self, inode: RawInode<'_>) -> Result<Walk> {
        walk(self.files.fs(), inode, &self.metadata()?)
    }

    /// Blocks of the file system's own structures, as descriptors have them since the last look.
    pub(super) fn metadata(&self) -> Result<Arc<[Run]>> {
        if let Some(found) = self.metadata.get() {
            return Ok(Arc::clone(found));
        }
        let found: Arc<[Run]> = metadata(self.files.fs())?.into();
        Ok(Arc::clone(self.metadata.get_or_init(|| found)))
    }

    /// Gives an inode a map of these runs alone. Blocks of the old map are left to the bitmaps.
    pub(super) fn make_map(&mut self, inode: &mut Inode, runs: &[Mapping]) -> Result<()> {
        let fs = self.files.fs();
        let superblock = fs.superblock();
        let with_extents = superblock.incompat.has(Incompat::EXTENTS);
        let cluster = u64::from(fs.layout().cluster_blocks);
        let block_size = fs.layout().block_size;
        let huge_file = superblock.ro_compat.has(RoCompat::HUGE_FILE);
        let is_tree = with_extents && (inode.has(InodeFlags::EXTENTS) || cluster > 1);
        for run in runs {
            // New blocks of the map must not be among them.
            match self.space().take_blocks(run.physical, run.len) {
                Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
                _ => {}
            }
        }
        let flags = inode.flags().0 & !(InodeFlags::EXTENTS.0 | InodeFlags::INLINE_DATA.0);
        inode.set_flags(flags | if is_tree { InodeFlags::EXTENTS.0 } else { 0 });
        let empty = if is_tree { extent::root_bytes(0, &[]) } else { vec![0; 60] };
        inode.block_area_mut().copy_from_slice(&empty);
        let blocks: u64 = runs.iter().map(|run| run.len).sum();
        let extra = u64::from(inode.xattr_block().is_some());
        inode.set_sectors((blocks + extra) * u64::from(block_size / 512), block_size, huge_file);
        for run in runs {
            let longest = if is_tree { extent::longest(true) } else { run.len };
            let mut done = 0;
            while done < run.len {
                let len = longest.min(run.len - done);
                let piece = Mapping {
                    logical: run.logical + done,
                    physical: run.physical + done,
                    len,
                    unwritten: run.unwritten && is_tree,
                };
                self.files.inodes().map(inode).insert(piece)?;
                done += len;
            }
            if self.files.space().transaction().is_full() {
                return Err(TooLarge::error());
            }
        }
        Ok(())
    }
}
