//! Names that move.

use std::io::ErrorKind;

use crate::edit::Writer;
use crate::edit::create::{in_full, refuse_slash};
use crate::edit::dir::name::require_name;
use crate::edit::encrypted::refuse_foreign;
use crate::edit::files::Files;
use crate::edit::locked::{refuse_immutable, refuse_locked, refuse_project};
use crate::edit::remove::Last;
use crate::error::{Result, invalid};
use crate::format::inode::{Inode, Stamp};
use crate::units::InodeNo;

/// Directories above one another; more is a circle.
const DEEPEST: u32 = 1 << 20;

impl Files {
    /// Whether a name is there, and not that of a directory: a link to one is a file, too.
    pub fn names_file(&mut self, parent: InodeNo, name: &[u8]) -> Result<bool> {
        let mut dir = self.get(parent)?;
        match self.directory(&mut dir).find(name)? {
            Some(found) => Ok(!self.get(found.inode)?.is_dir()),
            None => Ok(false),
        }
    }

    /// Whether two names are of one file, and are two records; one name that is given twice is refused.
    fn are_two_of_one(&mut self, from: (InodeNo, &[u8]), to: (InodeNo, &[u8])) -> Result<bool> {
        let (mut dir, mut other) = (self.get(from.0)?, self.get(to.0)?);
        let (found, target) =
            (self.directory(&mut dir).find(from.1)?, self.directory(&mut other).find(to.1)?);
        let (Some(found), Some(target)) = (found, target) else { return Ok(false) };
        if found.inode != target.inode {
            return Ok(false);
        }
        let is_same = from.0 == to.0 && found.is_same_record(&target);
        if is_same && from.1 == to.1 {
            return Err(invalid(ErrorKind::InvalidInput, "the new name is the old one"));
        }
        Ok(!is_same && !self.get(found.inode)?.is_dir())
    }

    /// Renames or moves; the inode that waits because its last name was in the way.
    pub fn rename_in(
        &mut self,
        (from_parent, from_name): (InodeNo, &[u8]),
        (to_parent, to_name): (InodeNo, &[u8]),
        last: Last,
    ) -> Result<Option<InodeNo>> {
        require_name(from_name)?;
        require_name(to_name)?;
        let mut gone = None;
        let mut dir = self.get(from_parent)?;
        let Some(found) = self.directory(&mut dir).find(from_name)? else {
            let text = format!("{}: no such file", String::from_utf8_lossy(from_name));
            return Err(invalid(ErrorKind::NotFound, text));
        };
        let mut inode = self.get(found.inode)?;
        let mut target_dir = self.get(to_parent)?;
        if inode.is_dir() {
            self.refuse_circle(inode.number(), to_parent)?;
        }
        refuse_project(self.fs(), &target_dir, &inode)?;
        refuse_foreign(self.fs(), &target_dir, &inode)?;
        if let Some(target) = self.directory(&mut target_dir).find(to_name)? {
            if target.inode == found.inode {
                // Two names of one file: nothing happens. In a directory without regard to case it may be the
                // same record, whose name then changes.
                if !target.is_same_record(&found) || from_name == to_name {
                    return Ok(None);
                }
            } else {
                let other = self.get(target.inode)?;
                match (inode.is_dir(), other.is_dir()) {
                    (true, false) => return Err(invalid(ErrorKind::NotADirectory, "a file is in the way")),
                    (false, true) => {
                        return Err(invalid(ErrorKind::IsADirectory, "a directory is in the way"));
                    }
                    _ => gone = self.unname(to_parent, to_name, last)?,
                }
            }
        }
        refuse_locked(&inode, from_name)?;
        refuse_locked(&dir, from_name)?;
        refuse_immutable(&target_dir, to_name)?;
        // Removing may have changed both directories and what lies in their blocks.
        dir = self.get(from_parent)?;
        let Some(found) = self.directory(&mut dir).find(from_name)? else {
            return Err(invalid(ErrorKind::NotFound, "the name is gone"));
        };
        self.directory(&mut dir).remove(&found)?;
        if inode.is_dir() && from_parent != to_parent {
            self.drop_subdirectory(&mut dir);
        }
        self.touch(&mut dir);
        self.inodes().store(&dir)?;
        let mut dir = self.get(to_parent)?;
        self.directory(&mut dir).insert(to_name, inode.number(), inode.kind())?;
        if inode.is_dir() && from_parent != to_parent {
            self.add_subdirectory(&mut dir)?;
            self.directory(&mut inode).set_parent(to_parent)?;
        }
        self.touch(&mut dir);
        self.inodes().store(&dir)?;
        inode.set_time(Stamp::Changed, self.now());
        self.inodes().store(&inode)?;
        Ok(gone)
    }

    /// Exchanges two names.
    pub fn exchange_in(
        &mut self,
        (one_parent, one_name): (InodeNo, &[u8]),
        (other_parent, other_name): (InodeNo, &[u8]),
    ) -> Result<()> {
        require_name(one_name)?;
        require_name(other_name)?;
        let mut one = self.named(one_parent, one_name)?;
        let mut other = self.named(other_parent, other_name)?;
        if one.number() == other.number() {
            return Ok(());
        }
        for (inode, into) in [(&one, other_parent), (&other, one_parent)] {
            let dir = self.get(into)?;
            if inode.is_dir() {
                self.refuse_circle(inode.number(), into)?;
            }
            refuse_locked(&dir, b"the folder")?;
            refuse_locked(inode, one_name)?;
            refuse_project(self.fs(), &dir, inode)?;
            refuse_foreign(self.fs(), &dir, inode)?;
        }
        self.point(one_parent, one_name, &other)?;
        self.point(other_parent, other_name, &one)?;
        if one_parent != other_parent {
            for (inode, from, to) in
                [(&mut one, one_parent, other_parent), (&mut other, other_parent, one_parent)]
            {
                if !inode.is_dir() {
                    continue;
                }
                let mut dir = self.get(from)?;
                self.drop_subdirectory(&mut dir);
                self.inodes().store(&dir)?;
                let mut dir = self.get(to)?;
                self.add_subdirectory(&mut dir)?;
                self.inodes().store(&dir)?;
                self.directory(inode).set_parent(to)?;
            }
        }
        for inode in [&mut one, &mut other] {
            inode.set_time(Stamp::Changed, self.now());
            self.inodes().store(inode)?;
        }
        Ok(())
    }

    /// The inode of a name that must be there.
    fn named(&mut self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        let mut dir = self.get(parent)?;
        match self.directory(&mut dir).find(name)? {
            Some(found) => self.get(found.inode),
            None => {
                Err(invalid(ErrorKind::NotFound, format!("{}: no such file", String::from_utf8_lossy(name))))
            }
        }
    }

    /// Points an existing name to another inode.
    fn point(&mut self, parent: InodeNo, name: &[u8], inode: &Inode) -> Result<()> {
        let mut dir = self.get(parent)?;
        let mut names = self.directory(&mut dir);
        let found = names.find(name)?.ok_or_else(|| invalid(ErrorKind::NotFound, "the name is gone"))?;
        if found.is_in_inode() {
            names.remove(&found)?;
            names.insert(name, inode.number(), inode.kind())?;
        } else {
            names.retarget(&found, inode.number(), inode.kind())?;
        }
        self.touch(&mut dir);
        self.inodes().store(&dir)
    }

    /// Refuses to move a directory below itself.
    fn refuse_circle(&mut self, moved: InodeNo, into: InodeNo) -> Result<()> {
        let mut at = into;
        for _ in 0..DEEPEST {
            if at == moved {
                return Err(invalid(ErrorKind::InvalidInput, "a directory can't be moved into itself"));
            }
            if at == InodeNo::ROOT {
                return Ok(());
            }
            let dir = self.fs().inode(at)?;
            let Some(parent) = self.fs().lookup(&dir, b"..")? else { break };
            at = parent;
        }
        Err(invalid(ErrorKind::InvalidInput, "the directory's parents don't lead to the root"))
    }
}

impl Writer {
    /// Renames or moves a file or directory. A file in the way is replaced; so is an empty directory by a
    /// directory.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` when a directory would lie in itself; `IsADirectory`, `NotADirectory` and
    /// `DirectoryNotEmpty` for what is in the way.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<()> {
        self.rename_by(from, to, |files, from, to| files.rename_in(from, to, Last::Free).map(|_| ()))
    }

    /// Moves as mv(1) does: as [`rename`](Writer::rename), but of two names of one file the first goes, where rename(2) does
    /// nothing.
    ///
    /// # Errors
    /// Errors of [`rename`](Writer::rename); `InvalidInput` for one name that is given twice.
    pub fn move_name(&mut self, from: &[u8], to: &[u8]) -> Result<()> {
        self.rename_by(from, to, |files, from, to| match files.are_two_of_one(from, to)? {
            true => files.remove_in(from.0, from.1),
            false => files.rename_in(from, to, Last::Free).map(|_| ()),
        })
    }

    fn rename_by(
        &mut self,
        from: &[u8],
        to: &[u8],
        f: impl FnOnce(&mut Files, (InodeNo, &[u8]), (InodeNo, &[u8])) -> Result<()>,
    ) -> Result<()> {
        let (from_parent, from_name) = self.parent_of(from)?;
        let (to_parent, to_name) = self.parent_of(to)?;
        self.operation(|files| {
            if files.names_file(from_parent, &from_name)? {
                refuse_slash(from)?;
                refuse_slash(to)?;
            }
            f(files, (from_parent, &from_name), (to_parent, &to_name))
        })
        .map_err(|error| in_full(from, &from_name, error))
    }
}
