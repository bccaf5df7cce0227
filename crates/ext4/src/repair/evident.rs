//! Faults whose right state follows from the rest of the file system: counts, bitmaps, checksums, kinds in names, copies.

use crate::check::{CheckReport, Finding, FindingKind, Fix, descriptor_copies, tells_unused};
use crate::edit::create::MOST_LINKS;
use crate::edit::dir::name::Name;
use crate::edit::inode::write;
use crate::edit::quota_file::{QuotaFile, Usage};
use crate::error::{Counted, Marked, Problem, Result, Structure};
use crate::format::csum::Subject;
use crate::format::features::RoCompat;
use crate::format::group::{Bitmap, GroupDescriptor};
use crate::format::inode::{Inode, InodeFlags};
use crate::repair::Repair;
use crate::units::{Block, GroupNo, InodeNo};

impl Repair {
    /// Mends one finding. False if it is one that is left alone.
    pub(super) fn mend(&mut self, finding: &Finding, fix: Option<Fix>) -> Result<bool> {
        use FindingKind as K;
        let place = finding.place();
        match (finding.kind(), finding.problem()) {
            (K::GroupFlags, _) => {
                let Some(group) = place.group else { return Ok(false) };
                match bitmap(place.structure) {
                    Some(which) => _ = self.space().ensure_bitmap(which, group)?,
                    None => self.space().doubt_unused(group)?,
                }
            }
            (K::Checksum, _) if place.structure == Structure::GroupDescriptor => {
                let mended = fix.zip(place.group);
                return mended.map_or(Ok(false), |(fix, group)| self.descriptor(group, fix, false));
            }
            (K::Checksum, _) => return fix.map_or(Ok(false), |fix| self.checksum(fix)),
            (K::BlockBitmap | K::InodeBitmap, Problem::Marked { first, last, marked }) => {
                let Some((which, group)) = bitmap(place.structure).zip(place.group) else { return Ok(false) };
                // They are what they are said not to be.
                let used = *marked == Marked::Free;
                self.space().set_run(which, group, *first, *last, used)?;
                self.count(which, group, last - first + 1, used)?;
            }
            (K::BitmapPadding, _) => {
                let Some((which, group)) = bitmap(place.structure).zip(place.group) else { return Ok(false) };
                self.space().set_padding(which, group)?;
            }
            (K::FreeBlocks | K::FreeInodes | K::DirectoryCount, Problem::Number { expected, .. }) => {
                let (Some(group), Ok(mut value)) = (place.group, u32::try_from(*expected)) else {
                    return Ok(false);
                };
                if self.recounted.contains(&(finding.kind(), group)) {
                    let is_blocks = finding.kind() == K::FreeBlocks;
                    let which = if is_blocks { Bitmap::Blocks } else { Bitmap::Inodes };
                    value = self.files.space().free_in(which, group)?;
                } else if finding.kind() != K::DirectoryCount {
                    self.recounted.insert((finding.kind(), group));
                }
                self.space().edit_descriptor(group, |descriptor| match finding.kind() {
                    K::FreeBlocks => descriptor.set_free_clusters(value),
                    K::FreeInodes => descriptor.set_free_inodes(value),
                    _ => descriptor.set_used_directories(value),
                })?;
            }
            (K::FreeTotal, Problem::Number { what: Counted::FreeBlocks, .. }) => {
                self.space().correct_total(Bitmap::Blocks)?;
            }
            (K::FreeTotal, Problem::Number { what: Counted::FreeInodes, .. }) => {
                self.space().correct_total(Bitmap::Inodes)?;
            }
            (K::LinkCount, Problem::Number { expected, .. }) => {
                let Some(links) = u16::try_from(*expected).ok().filter(|links| *links <= MOST_LINKS) else {
                    return self.overflow_links(finding);
                };
                return self.edit_inode(finding, |inode| {
                    inode.set_links(links);
                    true
                });
            }
            (K::InodeBlocks, Problem::Number { expected, .. }) => {
                let block_size = self.files.fs().layout().block_size;
                let huge_file = self.files.fs().superblock().ro_compat.has(RoCompat::HUGE_FILE);
                return self.edit_inode(finding, |inode| inode.set_sectors(*expected, block_size, huge_file));
            }
            (K::DeletionTime | K::LostOrphan, _) => {
                let now = self.files.now();
                return self.edit_inode(finding, |inode| {
                    match inode.links() {
                        0 => inode.set_deleted_at(now),
                        _ => inode.set_deleted(0),
                    }
                    true
                });
            }
            (K::EntryKind, _) => return self.entry_kind(finding, false),
            (K::Parent, Problem::Number { expected, .. }) => {
                let parent = u32::try_from(*expected).ok().and_then(InodeNo::new);
                let (Some(number), Some(parent)) = (place.inode, parent) else {
                    return Ok(false);
                };
                self.set_parent(number, parent)?;
            }
            (K::HtreeRoot | K::HtreeNode | K::HtreeOrder | K::HtreeLeaf | K::HtreeHash, _) => {
                return self.rebuild_index(finding);
            }
            (K::Unconnected | K::Unattached, _) => return self.attach(finding),
            (K::QuotaUsage, _) => return self.usage(finding, fix),
            (K::ChecksumFeatures, _) => self.remove_feature(RoCompat::GDT_CSUM)?,
            (K::OrphanMark, _) => self.remove_feature(RoCompat::ORPHAN_PRESENT)?,
            (K::BackupChecksum | K::BackupDiffers, _) => {
                let Some(group) = place.group else { return Ok(false) };
                match place.structure {
                    Structure::BackupSuperblock => self.space().copy_superblock(group)?,
                    _ => self.copy_descriptors(group)?,
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Keeps a group's count of free blocks or inodes right that was right before some were found in use, or free: it may be
    /// that no other can be known.
    fn count(&mut self, which: Bitmap, group: GroupNo, count: u64, used: bool) -> Result<()> {
        let (kind, each) = match which {
            Bitmap::Blocks => (FindingKind::FreeBlocks, self.files.fs().layout().cluster_blocks),
            Bitmap::Inodes => (FindingKind::FreeInodes, 1),
        };
        self.recounted.insert((kind, group));
        if self.miscounted.contains(&(kind, group)) {
            return Ok(());
        }
        let count = u32::try_from(count.div_ceil(each.into())).unwrap_or(u32::MAX);
        let now = |free: u32| if used { free.saturating_sub(count) } else { free.saturating_add(count) };
        self.space().edit_descriptor(group, |descriptor| match which {
            Bitmap::Blocks => descriptor.set_free_clusters(now(descriptor.fields().free_clusters())),
            Bitmap::Inodes => descriptor.set_free_inodes(now(descriptor.fields().free_inodes())),
        })
    }

    /// Makes a descriptor with a wrong checksum valid again: with the places that a sound copy names, and without
    /// inodes that were never used. Without such a copy, its places are taken for right where the root is found by them, or
    /// where nothing else can be known.
    pub(super) fn descriptor(&mut self, group: GroupNo, fix: Fix, is_settled: bool) -> Result<bool> {
        let fs = self.files.fs();
        let layout = *fs.layout();
        let copy = descriptor_copies(fs, group)?.into_iter().next();
        if copy.is_none() && group != GroupNo::PRIMARY && !is_settled {
            return Ok(false);
        }
        let raw = fs.with_raw_descriptor(group, <[u8]>::to_vec)?;
        let tells_unused = tells_unused(&layout, group, GroupDescriptor::from_bytes(&raw)?, false);
        if let Some(copy) = copy {
            let copy = GroupDescriptor::from_bytes(&copy)?;
            let (blocks, inodes, table) = (copy.block_bitmap(), copy.inode_bitmap(), copy.inode_table());
            self.space().edit_descriptor(group, |own| own.set_places(blocks, inodes, table))?;
        }
        if !tells_unused {
            self.space().doubt_unused(group)?;
        }
        self.checksum(fix)
    }

    fn checksum(&mut self, fix: Fix) -> Result<bool> {
        match fix {
            // Every commit writes it, unless the rest of it is wrong, too.
            Fix::InPlace { subject: Subject::JournalSuperblock, .. } => {
                if !self.files.space().transaction().writes_journal() {
                    return Ok(false);
                }
                self.files.inodes().transaction().edit_superblock(|_| Ok(()))?;
            }
            Fix::InPlace { offset, len, subject, context } => {
                let (block, base) = Block::position_of(offset, self.space().block_bytes());
                let transaction = self.files.inodes().transaction();
                let mut bytes =
                    transaction.with(block, |bytes| bytes.get(base..base + len).map(<[u8]>::to_vec))?;
                let sums = *transaction.sums();
                let Some(bytes) = bytes.as_mut() else { return Ok(false) };
                if sums.correct(subject, &context, bytes).is_none() {
                    return Ok(false);
                }
                transaction.update(block, |edit| edit.write(base, bytes))?;
            }
            Fix::Bitmap { subject, group, value } => {
                let which = if subject == Subject::BlockBitmap { Bitmap::Blocks } else { Bitmap::Inodes };
                let sums = *self.files.inodes().transaction().sums();
                self.space()
                    .edit_descriptor(group, |descriptor| descriptor.set_bitmap_sum(&sums, which, value))?;
            }
            Fix::Usage { .. } => return Ok(false),
        }
        Ok(true)
    }

    /// Copies the block with a group's descriptor to its places, once in a look.
    fn copy_descriptors(&mut self, group: GroupNo) -> Result<()> {
        let (index, _) = self.files.fs().layout().descriptor_position(group);
        if self.copied.insert(index) { self.space().copy_descriptors(group) } else { Ok(()) }
    }

    /// Copies all other blocks of descriptors, too, if one had to be and the list of findings has no room for the rest.
    pub(super) fn copy_other_descriptors(&mut self, report: &CheckReport) -> Result<()> {
        if self.copied.is_empty() || !report.is_full() {
            return Ok(());
        }
        let layout = *self.files.fs().layout();
        for index in 0..layout.descriptor_blocks() {
            if self.files.space().transaction().is_large() {
                self.files.commit()?;
            }
            self.copy_descriptors(layout.first_described(index))?;
        }
        Ok(())
    }

    /// Changes an inode's fields, if `f` says that it did.
    fn edit_inode(&mut self, finding: &Finding, f: impl FnOnce(&mut Inode) -> bool) -> Result<bool> {
        let Some(number) = finding.place().inode else { return Ok(false) };
        let mut inode = self.files.inodes().get_unlinked(number)?;
        Ok(f(&mut inode) && write(self.space(), &inode).map(|()| true)?)
    }

    /// Counts no names of a directory with more than can be counted, as the feature for these has it.
    fn overflow_links(&mut self, finding: &Finding) -> Result<bool> {
        let is_done = self.edit_inode(finding, |inode| {
            let is_dir = inode.is_dir();
            if is_dir {
                inode.set_links(1);
            }
            is_dir
        })?;
        if is_done && !self.files.fs().superblock().ro_compat.has(RoCompat::DIR_NLINK) {
            self.files.inodes().transaction().edit_superblock(|superblock| {
                superblock.add_ro_compat(RoCompat::DIR_NLINK);
                Ok(())
            })?;
        }
        Ok(is_done)
    }

    /// Sets the kind in a name's record to that of its inode, unless damage makes unsure which of the two is right. The inode is
    /// believed if that `is_settled`.
    pub(super) fn entry_kind(&mut self, finding: &Finding, is_settled: bool) -> Result<bool> {
        let place = finding.place();
        let (Some(number), Some(block), Some(name)) = (place.inode, place.block, finding.name()) else {
            return Ok(false);
        };
        let mut dir = self.files.inodes().get_unlinked(number)?;
        if dir.has(InodeFlags::INLINE_DATA) {
            return Ok(false);
        }
        let found =
            self.files.directory(&mut dir).find_in_block(Block::new(block), &Name::exact(name, None))?;
        let Some(found) = found else { return Ok(false) };
        if !is_settled && self.obstacles.is_unsound(found.inode) {
            // The name may know better.
            return Ok(false);
        }
        let kind = self.files.inodes().get_unlinked(found.inode)?.kind();
        self.files.directory(&mut dir).retarget(&found, found.inode, kind)?;
        Ok(true)
    }

    /// Sets an owner's usage in a quota file.
    fn usage(&mut self, finding: &Finding, fix: Option<Fix>) -> Result<bool> {
        let (Some(file), Some(Fix::Usage { kind, id, space, inodes })) = (finding.place().inode, fix) else {
            return Ok(false);
        };
        let now = self.files.now();
        let mut file = QuotaFile::new(self.space(), file, now);
        let place = file.entry(kind, id)?;
        if !file.change(place, Usage { space, inodes })? {
            file.remove(id)?;
        }
        Ok(true)
    }
}

/// The bitmap that a structure is.
fn bitmap(structure: Structure) -> Option<Bitmap> {
    match structure {
        Structure::BlockBitmap => Some(Bitmap::Blocks),
        Structure::InodeBitmap => Some(Bitmap::Inodes),
        _ => None,
    }
}
