//! Indexes of directories, made anew.

use crate::check::Finding;
use crate::edit::dir::NewName;
use crate::edit::file_map::Cut;
use crate::edit::too_large::TooLarge;
use crate::error::Result;
use crate::format::inode::InodeFlags;
use crate::repair::Repair;

impl Repair {
    /// Makes a directory's blocks anew from its names, with an index if it is large enough for one.
    pub(super) fn rebuild_index(&mut self, finding: &Finding) -> Result<bool> {
        let Some(number) = finding.place().inode else { return Ok(false) };
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
