//! Features that contradict what is there, or each other.

use crate::check::Finding;
use crate::error::Result;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::{FileType, InodeFlags};
use crate::format::raw_inode::RawInode;
use crate::format::xattr;
use crate::repair::Repair;
use crate::units::InodeNo;

impl Repair {
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
            K::ValueInodes => self.files.inodes().transaction().edit_superblock(|superblock| {
                superblock.add_incompat(Incompat::EA_INODE);
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
            K::Features => return self.renew_features(),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes a feature away.
    pub(super) fn remove_feature(&mut self, feature: RoCompat) -> Result<()> {
        self.files.inodes().transaction().edit_superblock(|superblock| {
            superblock.remove_ro_compat(feature);
            Ok(())
        })
    }

    /// Takes away features that make no sense beside others, with what they are for.
    fn renew_features(&mut self) -> Result<bool> {
        let superblock = self.files.fs().superblock().clone();
        let compat = superblock.compat;
        let meets_meta = compat.has(Compat::RESIZE_INODE) && superblock.incompat.has(Incompat::META_BG);
        let has_spare = !compat.has(Compat::RESIZE_INODE) && superblock.reserved_descriptor_blocks() != 0;
        let has_orphans = compat.has(Compat::ORPHAN_FILE);
        let lacks_journal = has_orphans && !compat.has(Compat::HAS_JOURNAL);
        let lacks_orphans = !has_orphans && superblock.ro_compat.has(RoCompat::ORPHAN_PRESENT);
        if let Some(number) = superblock.orphan_file.filter(|_| lacks_journal) {
            self.drop_orphan_file(number)?;
        }
        self.files.inodes().transaction().edit_superblock(|superblock| {
            if meets_meta || has_spare {
                superblock.remove_compat(Compat::RESIZE_INODE);
                superblock.set_reserved_descriptor_blocks(0);
            }
            if lacks_journal {
                superblock.clear_orphan_file();
            }
            if lacks_journal || lacks_orphans {
                superblock.remove_ro_compat(RoCompat::ORPHAN_PRESENT);
            }
            Ok(())
        })?;
        Ok(meets_meta || has_spare || lacks_journal || lacks_orphans)
    }

    /// Whether nothing but the missing feature keeps an inode's contents from lying in it: its flags say that they do, and it has
    /// the attribute for what has no room beside its map. Blocks that it counts may be those of other attributes.
    pub(super) fn has_only_inline_data(&self, inode: RawInode<'_>) -> bool {
        let superblock = self.files.fs().superblock();
        let is_contents =
            matches!(inode.kind(), Some(FileType::Regular | FileType::Directory | FileType::Symlink));
        if superblock.incompat.has(Incompat::INLINE_DATA)
            || !inode.has(InodeFlags::INLINE_DATA)
            || inode.has(InodeFlags::EXTENTS)
            || !is_contents
        {
            return false;
        }
        let mut rest = None;
        if let Some(base) = xattr::in_inode(inode.xattr_area()) {
            xattr::raw_entries(base, 0, |entry| {
                if (entry.index, entry.name) == (xattr::SYSTEM, xattr::INLINE_DATA) {
                    rest = Some(u64::from(entry.value_size));
                }
            });
        }
        rest.is_some_and(|rest| inode.size() <= 60 + rest)
    }

    /// Whether nothing but the missing feature keeps an inode from having attributes in a block: it leads to a block of some.
    pub(super) fn has_only_attributes(&self, inode: RawInode<'_>) -> Result<bool> {
        let fs = self.files.fs();
        let superblock = fs.superblock();
        if superblock.compat.has(Compat::EXT_ATTR) {
            return Ok(false);
        }
        let block = inode.xattr_block(superblock.incompat.has(Incompat::BITS64));
        let block = block.filter(|block| fs.layout().contains(*block, 1) && fs.is_present(*block, 1));
        let Some(block) = block else { return Ok(false) };
        let (is_one, _, blocks) = xattr::block_header(&fs.read_block(block)?);
        Ok(is_one && blocks == 1)
    }

    /// Sets the feature of attributes in blocks, by which inodes are looked at again.
    pub(super) fn restore_attributes(&mut self) -> Result<bool> {
        self.files.inodes().transaction().edit_superblock(|superblock| {
            superblock.add_compat(Compat::EXT_ATTR);
            Ok(())
        })?;
        self.is_other |= self.may_open;
        Ok(true)
    }

    /// Sets the feature of contents that lie in inodes, by which these are looked at again.
    pub(super) fn restore_inline_data(&mut self) -> Result<bool> {
        self.files.inodes().transaction().edit_superblock(|superblock| {
            superblock.add_incompat(Incompat::INLINE_DATA);
            Ok(())
        })?;
        self.is_other |= self.may_open;
        Ok(true)
    }
}
