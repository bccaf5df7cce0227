//! Names, and inodes without any that are still in use.

use std::io::ErrorKind;

use crate::edit::Writer;
use crate::edit::encrypted::stored_name;
use crate::edit::files::Files;
use crate::edit::inherit::{Inherited, inherit};
use crate::edit::node::{Body, NewNode};
use crate::edit::remove::Last;
use crate::error::{Result, invalid};
use crate::format::inode::{FileType, InodeFlags};
use crate::units::InodeNo;

impl Files {
    fn rename_unless(
        &mut self,
        from: (InodeNo, &[u8]),
        to: (InodeNo, &[u8]),
        no_replace: bool,
    ) -> Result<Option<InodeNo>> {
        if no_replace {
            let mut dir = self.get(to.0)?;
            if self.directory(&mut dir).find(to.1)?.is_some() {
                return Err(invalid(ErrorKind::AlreadyExists, "the new name is there already"));
            }
        }
        self.rename_in(from, to, Last::Keep)
    }
}

impl Writer {
    /// Removes a name of a directory. If it was the inode's last one, the inode waits until it is
    /// [released](Writer::release): its number.
    ///
    /// # Errors
    /// As [`remove`](Writer::remove).
    pub fn remove_name(&mut self, parent: InodeNo, name: &[u8]) -> Result<Option<InodeNo>> {
        let gone = self.operation(|files| files.unname(parent, name, Last::Keep))?;
        Ok(self.held(gone))
    }

    /// Gives an inode a further name.
    ///
    /// # Errors
    /// As [`link`](Writer::link).
    pub fn link_inode(&mut self, number: InodeNo, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.operation(|files| files.link_in(parent, name, number))
    }

    /// Renames or moves: names in directories. What was in the way and lost its last name waits until it is
    /// [released](Writer::release): its number.
    ///
    /// # Errors
    /// As [`rename`](Writer::rename); with `no_replace` `AlreadyExists` if anything is in the way; `Locked` in an encrypted
    /// directory without its key.
    pub fn rename_name(
        &mut self,
        from: (InodeNo, &[u8]),
        to: (InodeNo, &[u8]),
        no_replace: bool,
    ) -> Result<Option<InodeNo>> {
        self.require_names([from.0, to.0])?;
        let gone = self.operation(|files| files.rename_unless(from, to, no_replace))?;
        Ok(self.held(gone))
    }

    /// Renames, and leaves a whiteout in place of the name: a device without numbers, which hides what lies below in
    /// layers of trees. `owner` gives its owner.
    ///
    /// # Errors
    /// As [`rename_name`](Writer::rename_name).
    pub fn rename_to_whiteout(
        &mut self,
        from: (InodeNo, &[u8]),
        to: (InodeNo, &[u8]),
        no_replace: bool,
        owner: &NewNode,
    ) -> Result<Option<InodeNo>> {
        self.require_names([from.0, to.0])?;
        let gone = self.operation(|files| {
            let gone = files.rename_unless(from, to, no_replace)?;
            let mut dir = files.get(from.0)?;
            // Of two names of one file both stay.
            if files.directory(&mut dir).find(from.1)?.is_none() {
                let kind = FileType::CharacterDevice;
                let Inherited { node, acls } =
                    inherit(files.fs(), &dir, kind, &NewNode { mode: 0, ..*owner })?;
                let mut inode = files.create_in(from.0, from.1, &node, Body::Node(kind, 0, 0))?;
                files.inodes().attributes(&mut inode).set_stored(acls)?;
                files.finish(&mut inode, &node)?;
            }
            Ok(gone)
        })?;
        Ok(self.held(gone))
    }

    /// Exchanges two names.
    ///
    /// # Errors
    /// As [`rename_name`](Writer::rename_name).
    pub fn exchange_names(&mut self, one: (InodeNo, &[u8]), other: (InodeNo, &[u8])) -> Result<()> {
        self.require_names([one.0, other.0])?;
        self.operation(|files| files.exchange_in(one, other))
    }

    /// Whether an inode without names waits until it is [released](Writer::release).
    pub fn is_held(&self, number: InodeNo) -> bool {
        self.files().is_held(number)
    }

    /// How many of these there are.
    pub fn count_held(&self) -> usize {
        self.files().all_held().len()
    }

    /// Frees an inode without names that nobody uses any more.
    ///
    /// # Errors
    /// `StorageFull` never; what the device says. The inode waits then for who opens the file system next.
    pub fn release(&mut self, number: InodeNo) -> Result<()> {
        if !self.files().is_held(number) {
            return Ok(());
        }
        self.files_mut().inodes().hold(number, false);
        let released = self.operation(|files| {
            let mut inode = files.get_unlinked(number)?;
            files.inodes().unlist_orphan(&mut inode)?;
            files.inodes().release(&mut inode)
        });
        if released.is_err() {
            self.files_mut().inodes().hold(number, true);
        }
        released
    }

    /// Releases all inodes that were held.
    ///
    /// # Errors
    /// As [`release`](Writer::release).
    pub fn release_all(&mut self) -> Result<()> {
        self.files().all_held().into_iter().try_for_each(|number| self.release(number))
    }

    /// Refuses to move names without the keys of the directories that they are encrypted in.
    fn require_names(&self, parents: [InodeNo; 2]) -> Result<()> {
        for parent in parents {
            let dir = self.files().get(parent)?;
            if dir.has(InodeFlags::ENCRYPT) {
                stored_name(self.fs(), &dir, b"a", true)?;
            }
        }
        Ok(())
    }

    /// Notes that an inode without names may be in use.
    fn held(&mut self, number: Option<InodeNo>) -> Option<InodeNo> {
        number.iter().for_each(|number| self.files_mut().inodes().hold(*number, true));
        number
    }
}
