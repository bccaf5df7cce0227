//! Bitmaps and inode tables that lie where they can't.

use crate::check::{CheckReport, Finding, Part, descriptor_copies, holds_inodes, places, range};
use crate::error::Result;
use crate::format::features::{Compat, RoCompat};
use crate::format::group::{BLOCK_UNINIT, Descriptor, GroupDescriptor, INODE_UNINIT};
use crate::read::fs::Ext4;
use crate::repair::Repair;
use crate::units::{Block, GroupNo, InodeNo, Run};

/// Blocks that others of the file system's own structures have.
struct Taken {
    /// Superblocks, descriptors, and inode tables of other groups.
    fixed: Vec<Run>,
    /// Bitmaps of other groups, which can be made anew.
    bitmaps: Vec<Run>,
}

impl Taken {
    fn of(fs: &Ext4, group: GroupNo) -> Result<Taken> {
        let layout = fs.layout();
        let mut taken = Taken { fixed: Vec::new(), bitmaps: Vec::new() };
        for other in layout.all_groups() {
            crate::check::fixed_blocks(layout, fs.superblock(), other, |run| taken.fixed.push(run));
            if other != group {
                let raw = fs.with_raw_descriptor(other, <[u8]>::to_vec)?;
                let [table, block_bitmap, inode_bitmap] = places(GroupDescriptor::from_bytes(&raw)?);
                taken.fixed.push(Run { first: table, len: layout.inode_table_blocks() });
                taken.bitmaps.extend([block_bitmap, inode_bitmap].map(|first| Run { first, len: 1 }));
            }
        }
        Ok(taken)
    }

    fn is_free(&self, run: Run, of_bitmaps: bool) -> bool {
        let is_apart = |others: &[Run]| others.iter().all(|other| meet(*other, run).is_none());
        is_apart(&self.fixed) && (!of_bitmaps || is_apart(&self.bitmaps))
    }
}

/// The blocks that two runs share, wherever forged ones end.
fn meet(a: Run, b: Run) -> Option<Block> {
    let first = a.first.max(b.first);
    (first < a.first.saturating_add(a.len) && first < b.first.saturating_add(b.len)).then_some(first)
}

impl Repair {
    /// Gives a group's structures places where they can be: those of a copy of its descriptor, or free blocks. The table comes
    /// first, because what is free is not known without it. One that holds inodes is never given up for a new one: then nothing
    /// else is decided either.
    pub(super) fn renew_places(&mut self, finding: &Finding, report: &CheckReport) -> Result<bool> {
        let Some(group) = finding.place().group else { return Ok(false) };
        if !self.placed.insert(group) {
            // It is looked at once more when the file system was opened by what was found.
            return Ok(true);
        }
        // Taken back if it succeeds.
        let was_stuck = std::mem::replace(&mut self.is_stuck, true);
        let fs = self.files.fs().clone();
        let mut taken = Taken::of(&fs, group)?;
        let raw = fs.with_raw_descriptor(group, <[u8]>::to_vec)?;
        let own = places(GroupDescriptor::from_bytes(&raw)?);
        let mut new = own;
        let mut copies = Vec::new();
        for copy in descriptor_copies(&fs, group)? {
            copies.push(places(GroupDescriptor::from_bytes(&copy)?));
        }
        let Some((table, begun)) = self.table_place(group, own[0], &copies, &taken, report)? else {
            return Ok(false);
        };
        new[0] = table;
        let mut begun: Vec<Run> = begun.into_iter().collect();
        if table == own[0] {
            taken.fixed.push(Run { first: table, len: fs.layout().inode_table_blocks() });
            let allowed = range(&fs, group);
            for part in [Part::Blocks, Part::Inodes] {
                let at = part as usize;
                let fits = |block: Block| {
                    allowed.contains(&block) && taken.is_free(Run { first: block, len: 1 }, true)
                };
                if !fits(own[at]) || report.is_displaced(group, part) {
                    let is_free = |block: Block| fits(block) && !report.is_claimed(block);
                    let named = report.found_place(group, part).into_iter();
                    let copied =
                        named.chain(copies.iter().map(|copy| copy[at])).find(|block| is_free(*block));
                    if copied.is_none() && report.lacks_tables() {
                        // Whose blocks are free is not known yet.
                        self.is_stuck = was_stuck;
                        return Ok(false);
                    }
                    let Some(place) = copied.or_else(|| free_run(&allowed, 1, |block| !is_free(block)))
                    else {
                        return Ok(false);
                    };
                    if copied.is_none() {
                        begun.push(Run { first: place, len: 1 });
                    }
                    new[at] = place;
                }
                taken.bitmaps.push(Run { first: new[at], len: 1 });
            }
        }
        self.is_stuck = was_stuck;
        if new == own {
            return Ok(false);
        }
        for run in begun {
            for block in run.first.run(run.len) {
                self.files.inodes().transaction().create_zeroed(block);
            }
        }
        let [table, block_bitmap, inode_bitmap] = new;
        self.space().edit_descriptor(group, |descriptor: &mut Descriptor| {
            descriptor.set_places(block_bitmap, inode_bitmap, table);
            if table != own[0] {
                descriptor.set_unused_inodes(0);
                descriptor.set_flags(descriptor.fields().flags() & !(INODE_UNINIT | BLOCK_UNINIT));
            }
        })?;
        Ok(true)
    }

    /// The place of a group's inode table, and the blocks that it gets if a new one is begun; `None` if one that holds inodes
    /// would be given up.
    fn table_place(
        &self,
        group: GroupNo,
        own: Block,
        copies: &[crate::check::Places],
        taken: &Taken,
        report: &CheckReport,
    ) -> Result<Option<(Block, Option<Run>)>> {
        let fs = self.files.fs();
        let (len, allowed) = (fs.layout().inode_table_blocks(), range(fs, group));
        let fits = |block: Block, of_bitmaps: bool| {
            allowed.contains(&block)
                && block.checked_add(len).is_some_and(|end| end <= allowed.end)
                && taken.is_free(Run { first: block, len }, of_bitmaps)
        };
        let is_displaced = report.is_displaced(group, Part::Table);
        let is_table = !is_displaced && holds_inodes(fs, group, own)?;
        if !is_displaced && fits(own, !is_table) {
            return Ok(Some((own, None)));
        }
        if is_table {
            return Ok(None);
        }
        if let Some(found) = report.found_place(group, Part::Table) {
            return Ok(fits(found, false).then_some((found, None)));
        }
        for copy in copies {
            if holds_inodes(fs, group, copy[0])? {
                return Ok(fits(copy[0], false).then_some((copy[0], None)));
            }
        }
        if let Some(copy) = copies.iter().map(|copy| copy[0]).find(|copy| fits(*copy, true)) {
            return Ok(Some((copy, None)));
        }
        let is_taken =
            |block: Block| report.is_claimed(block) || !taken.is_free(Run { first: block, len: 1 }, true);
        let new = free_run(&allowed, len, is_taken);
        Ok(new.map(|first| (first, Some(Run { first, len }))))
    }

    /// Makes a feature or a field of the superblock that of what is there.
    pub(super) fn renew_feature(&mut self, finding: &Finding) -> Result<bool> {
        use crate::check::FindingKind as K;
        let superblock = self.files.fs().superblock();
        let has_journal = superblock.compat.has(Compat::HAS_JOURNAL);
        match finding.kind() {
            K::LargeFile => self.files.inodes().transaction().edit_superblock(|superblock| {
                superblock.add_ro_compat(RoCompat::LARGE_FILE);
                Ok(())
            })?,
            K::JournalFeature if !has_journal => {
                let (named, _) = superblock.named_journal();
                self.files.inodes().transaction().edit_superblock(|superblock| {
                    superblock.clear_journal();
                    Ok(())
                })?;
                // Any other one is a file of somebody, or has a name and becomes one.
                if named == Some(InodeNo::JOURNAL) {
                    self.clear_inode(InodeNo::JOURNAL)?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The first run of so many blocks of a range that are not in use.
fn free_run(range: &std::ops::Range<Block>, len: u64, is_used: impl Fn(Block) -> bool) -> Option<Block> {
    let mut first = range.start;
    let mut at = range.start;
    while at < range.end {
        if is_used(at) {
            first = at + 1;
        } else if at + 1 - first >= len {
            return Some(first);
        }
        at += 1;
    }
    None
}
