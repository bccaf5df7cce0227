//! Inodes of the file system itself, made anew: the journal, the reserve of descriptors, the list of orphans.

use std::collections::BTreeSet;

use casemate_blockdev::{u32_of, u64_of, usize_of};

use crate::check::{Finding, FindingKind};
use crate::edit::inode::{blank, read_raw, write_new, write_raw};
use crate::error::{Place, Result, Structure};
use crate::format::block_map::{self, DIRECT, DOUBLE};
use crate::format::csum::{Context, Subject};
use crate::format::features::{Compat, RoCompat};
use crate::format::inode::{FileType, Inode, InodeFlags, MODE};
use crate::format::journal_superblock;
use crate::format::orphan;
use crate::format::raw_inode::RawInode;
use crate::read::journal::Journal;
use crate::read::mapping::Mapping;
use crate::repair::Repair;
use crate::units::{Block, InodeNo, Run};

/// Blocks of a journal that is made anew, at least and at most.
const JOURNAL_BLOCKS: (u64, u64) = (1024, 32768);

/// Blocks that are left free beside a new journal.
const SPARE_BLOCKS: u64 = 64;

/// Part of the file system that a journal takes.
const JOURNAL_PART: u64 = 32;

/// Mode of the file system's own files.
const OWN_MODE: u16 = 0o600;

impl Repair {
    /// Makes an inode of the file system itself what it is for, or empties it.
    pub(super) fn renew_own(&mut self, finding: &Finding) -> Result<bool> {
        use FindingKind as K;
        match finding.kind() {
            K::ResizeInode => return self.renew_reserve(),
            K::JournalInode | K::JournalSuperblock => return self.renew_journal(),
            K::Checksum if finding.place().structure == Structure::JournalSuperblock => {
                return self.renew_journal();
            }
            K::OrphanList => return self.inodes_set_last_orphan(),
            K::OrphanFile => return self.renew_orphan_file(),
            K::QuotaInode => return self.drop_quota(finding),
            K::QuotaFile => return finding.place().inode.map_or(Ok(false), |file| self.renew_quota(file)),
            _ => {}
        }
        let Some(number) = finding.place().inode else { return Ok(false) };
        let raw = read_raw(self.files.space(), number)?;
        let superblock = self.files.fs().superblock();
        if number == InodeNo::BOOT_LOADER {
            let old = RawInode { number, raw: &raw };
            return match (old.kind(), finding.kind()) {
                // One of no kind has no contents, whatever else it says.
                (None | Some(FileType::Directory), _) => self.clear_inode(number),
                (_, K::InodeBlocks) => self.mend(finding, None),
                _ if self.flag_tree(old)? => Ok(true),
                _ => self.clear_inode(number),
            };
        }
        if number == InodeNo::BAD_BLOCKS {
            return self.cut_bad_blocks(RawInode { number, raw: &raw });
        }
        if superblock.journal_inode == Some(number) {
            return self.renew_journal();
        }
        if superblock.orphan_file == Some(number) {
            return self.renew_orphan_file();
        }
        if number == InodeNo::RESIZE && superblock.compat.has(Compat::RESIZE_INODE) {
            return self.renew_reserve();
        }
        if superblock.quota_inodes.contains(&Some(number)) {
            return self.renew_quota(number);
        }
        let (named, _) = superblock.named_journal();
        if named == Some(number) || number == InodeNo::ROOT {
            return Ok(false);
        }
        if number == InodeNo::JOURNAL && Journal::is_misnamed(self.files.fs()) {
            return self.rename_journal();
        }
        self.clear_inode(number)
    }

    /// An inode of the file system itself that has nothing yet.
    pub(super) fn own_inode(&mut self, number: InodeNo) -> Inode {
        let now = self.files.now();
        let mut inode = blank(self.files.fs(), number, FileType::Regular, 0, now);
        inode.set_permissions(OWN_MODE);
        inode.set_links(1);
        inode
    }

    /// Makes the inode that reserves blocks for descriptors anew: all its numbers follow from the layout.
    fn renew_reserve(&mut self) -> Result<bool> {
        let number = InodeNo::RESIZE;
        let fs = self.files.fs().clone();
        let layout = *fs.layout();
        if !fs.superblock().compat.has(Compat::RESIZE_INODE) {
            return self.clear_inode(number);
        }
        let raw = read_raw(self.files.space(), number)?;
        let per_block = block_map::per_block(layout.block_size.into());
        let top = block_map::number(DOUBLE).get((RawInode { number, raw: &raw }).block_area());
        let metadata = self.metadata()?;
        let is_own = |block: Block| metadata.iter().any(|run| run.first <= block && block < run.end());
        let top = Block::some(top.into()).filter(|top| layout.contains(*top, 1) && !is_own(*top));
        let is_reserved = top.map_or(Ok(false), |top| self.is_top(top))?;
        let mut inode = self.own_inode(number);
        let top = match top.filter(|_| is_reserved) {
            Some(top) => top,
            None => self.files.inodes().map(&mut inode).metadata_block()?,
        };
        let reserved = u32::from(fs.superblock().reserved_descriptor_blocks());
        let first = self.reserve().first;
        let mut numbers = vec![0; layout.block_len()];
        for index in 0..reserved {
            let block = first + u64::from(index);
            let Some(low) = block.low().filter(|_| layout.contains(block, 1)) else { return Ok(false) };
            let slot = usize_of(layout.descriptor_blocks() + index) % usize_of(per_block);
            block_map::number(slot).set(&mut numbers, low);
            let mut copies = vec![0; layout.block_len()];
            for (at, group) in layout.copy_groups().enumerate().take(usize_of(per_block)) {
                let copy = block + u64::from(group.get()) * u64::from(layout.blocks_per_group);
                block_map::number(at).set(&mut copies, copy.low().unwrap_or(0));
            }
            self.files.inodes().transaction().create(block, copies);
        }
        self.files.inodes().transaction().create(top, numbers);
        block_map::number(DIRECT + 1).set(inode.block_area_mut(), top.low().unwrap_or(0));
        let block_size = u64::from(layout.block_size);
        inode.set_size(block_map::most(2, block_size) * block_size);
        let copies = 1 + u64_of(layout.copy_groups().count().min(usize_of(per_block)));
        let blocks = 1 + u64::from(reserved) * copies;
        let huge_file = fs.superblock().ro_compat.has(RoCompat::HUGE_FILE);
        inode.set_sectors(blocks * u64::from(layout.block_size / 512), layout.block_size, huge_file);
        write_new(self.space(), &inode)?;
        Ok(true)
    }

    /// The blocks that the first copy of descriptors has for more of them.
    pub(super) fn reserve(&self) -> Run {
        let fs = self.files.fs();
        let layout = fs.layout();
        let first = layout.descriptor_block(0) + u64::from(layout.descriptor_blocks());
        Run { first, len: fs.superblock().reserved_descriptor_blocks().into() }
    }

    /// Whether a block holds numbers of blocks that are reserved, as the top of that tree does.
    fn is_top(&self, block: Block) -> Result<bool> {
        let fs = self.files.fs();
        if !fs.is_present(block, 1) {
            return Ok(false);
        }
        let reserve = self.reserve();
        let numbers: Vec<u32> =
            block_map::numbers(&fs.read_block(block)?).filter(|number| *number != 0).collect();
        let fits = numbers
            .iter()
            .filter(|number| (reserve.first..reserve.end()).contains(&Block::new((**number).into())));
        let fits = fits.count();
        Ok(fits > 0 && fits * 2 > numbers.len())
    }

    /// Makes the journal anew, empty. What it held was replayed, or can't be read.
    fn renew_journal(&mut self) -> Result<bool> {
        let fs = self.files.fs().clone();
        if fs.superblock().journal_inode.is_none() {
            return Ok(false);
        }
        // Another inode that is named and holds none is a file of somebody.
        let number = InodeNo::JOURNAL;
        if Journal::is_misnamed(&fs) {
            return self.rename_journal();
        }
        // What is committed now goes past it.
        self.files.inodes().transaction().leave_journal(self.recovery.clone())?;
        let layout = *fs.layout();
        let raw = read_raw(self.files.space(), number)?;
        let size = (RawInode { number, raw: &raw }).size() / u64::from(layout.block_size);
        let (least, most) = JOURNAL_BLOCKS;
        let usual = (layout.blocks / JOURNAL_PART).clamp(least, most);
        let blocks = if (least..=layout.blocks / 4).contains(&size) { size } else { usual };
        if self.files.space().free_clusters() * self.files.space().ratio() < blocks + SPARE_BLOCKS {
            // The file system goes on without one.
            self.clear_inode(number)?;
            self.files.inodes().transaction().edit_superblock(|superblock| {
                superblock.clear_journal();
                Ok(())
            })?;
            return Ok(true);
        }
        let mut inode = self.own_inode(number);
        self.files.inodes().map(&mut inode).start();
        let mut first = None;
        self.files.inodes().map(&mut inode).fill(0, blocks, false, |run| {
            first = first.or(Some(run.physical));
        })?;
        let Some(first) = first else { return Ok(false) };
        inode.set_size(blocks * u64::from(layout.block_size));
        // A map leads to no more blocks than 2^32.
        let bytes = journal_superblock::new_bytes(layout.block_len(), u32_of(blocks), 0);
        self.files.inodes().transaction().create(first, bytes);
        write_new(self.space(), &inode)?;
        let (map, size) = (*inode.block_area(), inode.size());
        self.files.inodes().transaction().edit_superblock(|superblock| {
            superblock.set_journal(number, &map, size);
            superblock.set_needs_recovery(false);
            Ok(())
        })?;
        Ok(true)
    }

    /// Names the usual inode as the journal's: it has one, and what is named has none.
    fn rename_journal(&mut self) -> Result<bool> {
        let raw = read_raw(self.files.space(), InodeNo::JOURNAL)?;
        let inode = RawInode { number: InodeNo::JOURNAL, raw: &raw };
        let (map, size) = (*inode.block_area(), inode.size());
        self.files.inodes().transaction().edit_superblock(|superblock| {
            superblock.set_journal(InodeNo::JOURNAL, &map, size);
            Ok(())
        })?;
        Ok(true)
    }

    fn inodes_set_last_orphan(&mut self) -> Result<bool> {
        self.files.inodes().set_last_orphan(None)?;
        Ok(true)
    }

    /// Makes the inode of the file of orphans one of such a file, with those of its blocks that hold orphans: its mode is that of
    /// a file. False if it is, or has no such blocks.
    fn renew_orphan_inode(&mut self, old: RawInode<'_>) -> Result<bool> {
        let Ok(mut inode) = old.to_inode() else { return Ok(false) };
        if inode.kind() != FileType::Regular {
            return Ok(false);
        }
        let found = self.walk(old)?;
        let (mut runs, mut blocks): (Vec<Mapping>, _) = (Vec::new(), BTreeSet::new());
        for block in found.runs.iter().flat_map(|run| run.physical.run(run.len)) {
            if !self.is_orphan_block(block)? || !blocks.insert(block) {
                continue;
            }
            match runs.last_mut() {
                Some(last) if last.physical + last.len == block => last.len += 1,
                last => {
                    let logical = last.map_or(0, |last| last.end());
                    runs.push(Mapping { logical, physical: block, len: 1, unwritten: false });
                }
            }
        }
        if runs.is_empty() {
            return Ok(false);
        }
        let of_others = InodeFlags::INDEX.0 | InodeFlags::CASEFOLD.0 | InodeFlags::INLINE_DATA.0;
        let of_tree = if self.has_tree(&inode) { InodeFlags::EXTENTS.0 } else { 0 };
        inode.set_flags(inode.flags().0 & !of_others | of_tree);
        inode.set_links(inode.links().max(1));
        let is_in_order = found.runs.iter().try_fold(0, |next, run| (run.logical == next).then(|| run.end()));
        if !found.is_sound || is_in_order.is_none() {
            self.make_map(&mut inode, &runs)?;
            inode.set_size(u64_of(blocks.len()) * self.space().block_bytes());
        }
        if inode.as_bytes() == old.raw {
            return Ok(false);
        }
        write_new(self.space(), &inode)?;
        Ok(true)
    }

    /// Empties the file of orphans; if its inode is none, the feature goes.
    fn renew_orphan_file(&mut self) -> Result<bool> {
        let fs = self.files.fs().clone();
        let block_size = fs.layout().block_len();
        let file = match fs.superblock().orphan_file {
            Some(number) => {
                let raw = read_raw(self.files.space(), number)?;
                let inode = RawInode { number, raw: &raw };
                if self.renew_orphan_inode(inode)? {
                    // The orphans in it are read by the next look at the file system.
                    return Ok(true);
                }
                let found = self.walk(inode)?;
                let is_whole = found.is_sound
                    && found.runs.iter().map(|run| run.len).sum::<u64>() * u64_of(block_size) == inode.size()
                    && inode.size() > 0
                    && found.runs.iter().all(|run| !run.unwritten)
                    && inode.kind() == Some(FileType::Regular);
                // One in which no block is of a file of orphans is a file of somebody.
                let is_one = self.has_orphan_block(&found.runs)?;
                let blocks = inode.size() / u64_of(block_size);
                let has_room = self.files.space().free_clusters() * self.files.space().ratio() > blocks;
                let file = Some((number, blocks)).filter(|_| is_whole && is_one && has_room);
                if file.is_none() && (is_one || inode.links() == 0) {
                    self.clear_inode(number)?;
                }
                file
            }
            None => None,
        };
        if let Some((number, blocks)) = file {
            self.begin_orphan_file(number, blocks)?;
        }
        self.files.inodes().transaction().edit_superblock(|superblock| {
            superblock.remove_ro_compat(RoCompat::ORPHAN_PRESENT);
            if file.is_none() {
                superblock.clear_orphan_file();
            }
            Ok(())
        })?;
        Ok(true)
    }

    /// Gives the file of orphans as many new blocks, which list nothing. Those that its map led to may be blocks of others, so
    /// they are left to the bitmaps.
    fn begin_orphan_file(&mut self, number: InodeNo, blocks: u64) -> Result<()> {
        let mut inode = self.own_inode(number);
        self.files.inodes().map(&mut inode).start();
        let mut places = Vec::new();
        self.files.inodes().map(&mut inode).fill(0, blocks, false, |run| {
            places.extend(run.physical.run(run.len));
        })?;
        let size = self.space().block_size();
        for block in places {
            let context = Context { block, ..inode.context() };
            let bytes = orphan::new_bytes(size);
            self.files.inodes().transaction().create_structure(Subject::OrphanBlock, context, block, bytes);
        }
        inode.set_size(blocks * u64_of(size));
        write_new(self.space(), &inode)
    }

    /// Whether one of these blocks is of a file of orphans.
    fn has_orphan_block(&self, runs: &[Mapping]) -> Result<bool> {
        for block in runs.iter().flat_map(|run| run.physical.run(run.len)) {
            if self.is_orphan_block(block)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_orphan_block(&self, block: Block) -> Result<bool> {
        let fs = self.files.fs();
        let place = Place::of(Structure::OrphanBlock);
        Ok(fs.is_present(block, 1) && orphan::check(&fs.read_block(block)?, place).is_ok())
    }

    /// Empties the inode of the file of orphans, which has no use without its feature; one without a block of orphans is a
    /// file of somebody.
    pub(super) fn drop_orphan_file(&mut self, number: InodeNo) -> Result<()> {
        let raw = read_raw(self.files.space(), number)?;
        let inode = RawInode { number, raw: &raw };
        let runs = self.walk(inode)?.runs;
        if self.has_orphan_block(&runs)? || inode.links() == 0 {
            self.clear_inode(number)?;
        }
        Ok(())
    }

    /// Makes the list of bad blocks one of those blocks alone that are none of the file system's own structures.
    pub(super) fn cut_bad_blocks(&mut self, inode: RawInode<'_>) -> Result<bool> {
        let metadata = self.metadata()?;
        let is_metadata = |block: Block| {
            let at = metadata.partition_point(|own| own.end() <= block);
            metadata.get(at).is_some_and(|own| own.first <= block)
        };
        let blocks: Vec<Block> = match inode.has(InodeFlags::INLINE_DATA) {
            true => Vec::new(),
            false => self
                .walk(inode)?
                .runs
                .into_iter()
                .flat_map(|run| run.physical.run(run.len))
                .filter(|block| !is_metadata(*block))
                .collect(),
        };
        let now = self.files.now();
        let mut list = blank(self.files.fs(), inode.number, FileType::Regular, 0, now);
        list.set_flags(if inode.has(InodeFlags::EXTENTS) { InodeFlags::EXTENTS.0 } else { 0 });
        let runs: Vec<Mapping> = (0..)
            .zip(&blocks)
            .map(|(logical, block)| Mapping { logical, physical: *block, len: 1, unwritten: false })
            .collect();
        self.make_map(&mut list, &runs)?;
        list.set_size(u64_of(blocks.len()) * self.space().block_bytes());
        let mut raw = list.as_bytes().to_vec();
        // It has no kind.
        MODE.set(&mut raw, 0);
        write_raw(self.space(), inode.number, &raw)?;
        Ok(true)
    }
}
