//! Bitmaps and inode tables that lie where they can't.

use crate::check::{CheckReport, Finding, Part, Places, Tables, descriptor_copies, places, range};
use crate::error::Result;
use crate::format::bitmap;
use crate::format::csum::Kind;
use crate::format::group::{BLOCK_UNINIT, Bitmap, Descriptor, GroupDescriptor, INODE_UNINIT, INODE_ZEROED};
use crate::format::layout::Layout;
use crate::read::fs::Ext4;
use crate::repair::Repair;
use crate::repair::taken::Taken;
use crate::units::{Block, GroupNo, Run};

/// Places that are decided for a group's structures.
enum Decision {
    /// These, some of them for structures that are begun anew.
    Places { places: Places, begun: Vec<Part> },
    /// None yet: whose blocks are free is not known.
    Later,
    /// None: a table that holds inodes would be given up, or there is no room.
    None,
}

impl Repair {
    /// Begins to look for places of structures.
    pub(super) fn begin_places(&mut self) -> Result<()> {
        self.taken = Taken::of(self.files.fs())?;
        self.tables = Tables::default();
        self.begun.clear();
        Ok(())
    }

    /// Gives a group's structures places where they can be: those of a copy of its descriptor, or free blocks. The table comes
    /// first, because what is free is not known without it. One that holds inodes is never given up for a new one: then nothing
    /// else is decided either.
    pub(super) fn renew_places(&mut self, finding: &Finding, report: &CheckReport) -> Result<bool> {
        let Some(group) = finding.place().group else { return Ok(false) };
        if !self.placed.insert(group) {
            // It is looked at once more when the file system was opened by what was found.
            return Ok(true);
        }
        let fs = self.files.fs().clone();
        let raw = fs.with_raw_descriptor(group, <[u8]>::to_vec)?;
        let own = places(GroupDescriptor::from_bytes(&raw)?);
        self.taken.remove(own);
        let decision = self.decide_places(&fs, group, own, report);
        let new = match &decision {
            Ok(Decision::Places { places, .. }) => *places,
            _ => own,
        };
        self.taken.add(new);
        self.is_stuck |= matches!(decision, Ok(Decision::None) | Err(_));
        let Decision::Places { places: [table, block_bitmap, inode_bitmap], begun } = decision? else {
            return Ok(false);
        };
        if new == own {
            return Ok(false);
        }
        let has_flags = fs.checksums().kind() != Kind::None;
        let is_unwritten = has_flags && group != GroupNo::PRIMARY && begun.contains(&Part::Table);
        if begun.contains(&Part::Table) && !is_unwritten {
            for block in table.run(fs.layout().inode_table_blocks()) {
                self.files.inodes().transaction().create_zeroed(block);
            }
        }
        let inodes = fs.layout().inodes_per_group;
        self.space().edit_descriptor(group, |descriptor: &mut Descriptor| {
            descriptor.set_places(block_bitmap, inode_bitmap, table);
            if table == own[0] {
                return;
            }
            let flags = descriptor.fields().flags() & !(INODE_UNINIT | BLOCK_UNINIT);
            descriptor.set_flags(flags);
            descriptor.set_unused_inodes(0);
            if is_unwritten {
                descriptor.set_flags(flags & !INODE_ZEROED | INODE_UNINIT);
                descriptor.set_unused_inodes(inodes);
                descriptor.set_free_inodes(inodes);
                descriptor.set_used_directories(0);
            }
        })?;
        self.begun.extend(begun.into_iter().filter_map(|part| Some((group, part.bitmap()?))));
        Ok(true)
    }

    fn decide_places(
        &mut self,
        fs: &Ext4,
        group: GroupNo,
        own: Places,
        report: &CheckReport,
    ) -> Result<Decision> {
        let mut places = own;
        let mut copies = Vec::new();
        for copy in descriptor_copies(fs, group)? {
            copies.push(crate::check::places(GroupDescriptor::from_bytes(&copy)?));
        }
        let Some((table, is_begun)) = self.table_place(fs, group, own[0], &copies, report)? else {
            return Ok(Decision::None);
        };
        places[0] = table;
        let mut begun: Vec<Part> = if is_begun { vec![Part::Table] } else { Vec::new() };
        if table != own[0] {
            return Ok(Decision::Places { places, begun });
        }
        let allowed = range(fs, group);
        let table = Run { first: table, len: fs.layout().inode_table_blocks() };
        let mut settled = vec![table];
        for part in [Part::Blocks, Part::Inodes] {
            let at = part.index();
            let last = |run: Run| last_of(&settled, run);
            let fits = |taken: &Taken, block: Block| {
                let run = Run { first: block, len: 1 };
                allowed.contains(&block) && taken.is_free(run, true) && last(run).is_none()
            };
            if !fits(&self.taken, own[at]) || report.is_displaced(group, part) {
                let last_used = |run: Run| report.last_claimed(run).max(last(run));
                let named = report.found_place(group, part).into_iter();
                let copied = named.chain(copies.iter().map(|copy| copy[at])).find(|block| {
                    fits(&self.taken, *block) && last_used(Run { first: *block, len: 1 }).is_none()
                });
                if copied.is_none() && report.lacks_tables() {
                    return Ok(Decision::Later);
                }
                let Some(place) = copied.or_else(|| self.taken.free_run(&allowed, 1, last_used)) else {
                    return Ok(Decision::None);
                };
                if copied.is_none() {
                    begun.push(part);
                }
                places[at] = place;
            }
            settled.push(Run { first: places[at], len: 1 });
        }
        Ok(Decision::Places { places, begun })
    }

    /// The place of a group's inode table, and whether a new one is begun there; `None` if one that holds inodes would be
    /// given up.
    fn table_place(
        &mut self,
        fs: &Ext4,
        group: GroupNo,
        own: Block,
        copies: &[Places],
        report: &CheckReport,
    ) -> Result<Option<(Block, bool)>> {
        let (len, allowed) = (fs.layout().inode_table_blocks(), range(fs, group));
        let fits = |taken: &Taken, block: Block, of_bitmaps: bool| {
            allowed.contains(&block)
                && block.checked_add(len).is_some_and(|end| end <= allowed.end)
                && taken.is_free(Run { first: block, len }, of_bitmaps)
        };
        let is_displaced = report.is_displaced(group, Part::Table);
        let is_table = !is_displaced && self.tables.holds_inodes(fs, group, own)?;
        if !is_displaced && fits(&self.taken, own, !is_table) {
            return Ok(Some((own, false)));
        }
        if is_table {
            return Ok(None);
        }
        if let Some(found) = report.found_place(group, Part::Table) {
            return Ok(fits(&self.taken, found, false).then_some((found, false)));
        }
        for copy in copies {
            if self.tables.holds_inodes(fs, group, copy[0])? {
                return Ok(fits(&self.taken, copy[0], false).then_some((copy[0], false)));
            }
        }
        if let Some(copy) = copies.iter().map(|copy| copy[0]).find(|copy| fits(&self.taken, *copy, true)) {
            return Ok(Some((copy, false)));
        }
        let new = self.taken.free_run(&allowed, len, |run| report.last_claimed(run));
        Ok(new.map(|first| (first, true)))
    }

    /// Fills the bitmaps that were begun with what has an owner by now.
    pub(super) fn fill_bitmaps(&mut self, report: &CheckReport) -> Result<()> {
        let begun = std::mem::take(&mut self.begun);
        if begun.is_empty() {
            return Ok(());
        }
        let layout = *self.files.fs().layout();
        let own = self.taken.runs(layout.end());
        for (group, which) in begun {
            if self.files.space().transaction().is_large() {
                self.files.commit()?;
            }
            let mut bytes = vec![0; layout.block_len()];
            let count = match which {
                Bitmap::Blocks => {
                    mark_owned(&mut bytes, &layout, group, &own, report);
                    layout.clusters_in(group)
                }
                Bitmap::Inodes => layout.inodes_per_group,
            };
            for bit in u64::from(count)..8 * self.files.space().block_bytes() {
                bitmap::set(&mut bytes, bit);
            }
            self.space().begin_bitmap(which, group, bytes)?;
        }
        Ok(())
    }
}

/// The last block of a run that is in one of these.
fn last_of(others: &[Run], run: Run) -> Option<Block> {
    others.iter().filter_map(|other| other.shared(run)).map(|shared| shared.end().before()).max()
}

/// Sets the bits of those clusters of a group of which the file system's own structures, or others, have blocks.
fn mark_owned(bytes: &mut [u8], layout: &Layout, group: GroupNo, own: &[Run], report: &CheckReport) {
    let (start, each) = (layout.group_start(group), u64::from(layout.cluster_blocks));
    let all = Run { first: start, len: layout.blocks_in(group) };
    for at in (0..all.len).step_by(64) {
        let mut bits = report.claimed_bits(start + at);
        while bits != 0 {
            let block = at + u64::from(bits.trailing_zeros());
            bits &= bits - 1;
            if block < all.len {
                bitmap::set(bytes, block / each);
            }
        }
    }
    let first = own.partition_point(|run| run.end() <= start);
    for shared in own[first..].iter().map_while(|run| run.shared(all)) {
        let (from, to) = ((shared.first - start) / each, (shared.end() - start).div_ceil(each));
        for bit in from..to {
            bitmap::set(bytes, bit);
        }
    }
}
