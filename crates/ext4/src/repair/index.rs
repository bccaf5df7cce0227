//! Indexes of directories, made anew.

use std::collections::BTreeSet;

use crate::check::{CheckReport, Finding};
use crate::edit::dir::NewName;
use crate::edit::file_map::Cut;
use crate::edit::too_large::TooLarge;
use crate::error::Result;
use crate::format::features::Compat;
use crate::format::inode::InodeFlags;
use crate::repair::Repair;
use crate::units::InodeNo;

impl Repair {
    /// Makes a directory's blocks anew where its index is damaged.
    pub(super) fn rebuild_index(&mut self, finding: &Finding) -> Result<bool> {
        finding.place().inode.map_or(Ok(false), |number| self.index_anew(number))
    }

    /// Takes the directories that lost their indexes before the last look at the file system, but for those that something else
    /// is found of.
    pub(super) fn take_unindexed(&mut self, report: &CheckReport) -> Vec<InodeNo> {
        if self.unindexed.is_empty() {
            return Vec::new();
        }
        let unsound: BTreeSet<InodeNo> =
            report.faults.iter().filter_map(|finding| finding.place().inode).collect();
        let (later, now) = std::mem::take(&mut self.unindexed)
            .into_iter()
            .partition::<Vec<_>, _>(|number| unsound.contains(number));
        self.unindexed.extend(later);
        now
    }

    /// Gives a directory of several blocks an index. Without room for new blocks it stays a list.
    pub(super) fn restore_index(&mut self, number: InodeNo) -> Result<bool> {
        let size = u64::from(self.files.fs().layout().block_size);
        let has_feature = self.files.fs().superblock().compat.has(Compat::DIR_INDEX);
        self.step(|repair| {
            let dir = repair.files.inodes().get_unlinked(number)?;
            let is_list = dir.is_dir() && !dir.has(InodeFlags::INDEX) && dir.size() > size;
            Ok(has_feature && is_list && repair.index_anew(number)?)
        })
    }

    /// Makes a directory's blocks anew from its names, with an index if it is large enough for one.
    fn index_anew(&mut self, number: InodeNo) -> Result<bool> {
        if self.rebuilt.contains(&number) {
            return Ok(true);
        }
        let mut dir = self.files.inodes().get_unlinked(number)?;
        if !dir.is_dir() || dir.has(InodeFlags::INLINE_DATA) {
            return Ok(false);
        }
        let mut names = Vec::new();
        for (name, inode, _) in self.files.names_in(number)?.into_iter().rev() {
            names.push((name, inode, self.files.inodes().get_unlinked(inode)?.kind()));
        }
        let up = self.files.directory(&mut dir).find(b"..")?;
        let Some(parent) = up.map(|up| up.inode) else { return Ok(false) };
        if self.files.inodes().map(&mut dir).cut(0)? != Cut::Done {
            return Err(TooLarge::error());
        }
        self.files.forget_directory(number);
        dir.set_flags(dir.flags().0 & !InodeFlags::INDEX.0);
        dir.set_size(0);
        self.files.inodes().map(&mut dir).start();
        self.files.directory(&mut dir).first_leaf(parent)?;
        for (name, inode, kind) in &names {
            self.files.directory(&mut dir).insert_stored(&NewName { name, inode: *inode, kind: *kind })?;
        }
        if self.files.space().transaction().is_full() {
            return Err(TooLarge::error());
        }
        self.files.inodes().store(&dir)?;
        self.rebuilt.insert(number);
        Ok(true)
    }
}
