//! Modes, owners and times.

use crate::edit::Writer;
use crate::edit::inode::{InodeMut, Stamp};
use crate::edit::locked::refuse_immutable;
use crate::error::{Place, Result, Structure};
use crate::format::acl;
use crate::format::inode::Time;
use crate::read::xattr::{ACL_ACCESS, SECURITY};

/// Bits of a mode: run as the owner, run as the group (which is what it says if the group runs it).
const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_RUNS: u16 = 0o010;

impl Writer {
    /// Changes a file's permission bits, and its ACL as they say.
    ///
    /// # Errors
    /// `NotFound`; `PermissionDenied` for immutable and append-only files.
    pub fn set_mode(&mut self, path: &[u8], mode: u16) -> Result<()> {
        let number = self.changeable(path, true)?;
        self.operation(|writer| {
            let mut inode = writer.inode_mut(number)?;
            inode.set_permissions(mode);
            if let Some(access) = writer.space.fs().xattr(&inode, ACL_ACCESS, b"")? {
                let place = Place::inode(Structure::Xattr, number);
                let access = acl::change_mode(&access, mode)
                    .ok_or_else(|| place.malformed("an ACL that makes no sense"))?;
                writer.set_stored(&mut inode, vec![(ACL_ACCESS, access)])?;
            }
            inode.set_time(Stamp::Changed, writer.now());
            writer.store_inode(&inode)
        })
    }

    /// Changes a file's owner, group or both; a symbolic link's own if not `follow`. What ran with the rights of the old
    /// owner does not do so with those of the new one: set-user-ID, set-group-ID and capabilities go, as in the kernel,
    /// but for those of directories.
    ///
    /// # Errors
    /// `NotFound`; `PermissionDenied` for immutable and append-only files.
    pub fn set_owner(&mut self, path: &[u8], uid: Option<u32>, gid: Option<u32>, follow: bool) -> Result<()> {
        let number = self.changeable(path, follow)?;
        self.operation(|writer| {
            let mut inode = writer.inode_mut(number)?;
            inode.set_owner(uid, gid);
            if !inode.is_dir() {
                let mode = inode.mode() & !SET_UID;
                let is_run_by_group = mode & GROUP_RUNS != 0;
                inode.set_permissions(if is_run_by_group { mode & !SET_GID } else { mode });
                writer.drop_capabilities(&mut inode)?;
            }
            inode.set_time(Stamp::Changed, writer.now());
            writer.store_inode(&inode)
        })
    }

    /// Takes the capabilities away that whoever runs a file gets. Part of an operation; the caller stores the inode.
    pub(crate) fn drop_capabilities(&mut self, inode: &mut InodeMut) -> Result<()> {
        match self.space.fs().xattr(inode, SECURITY, b"capability")? {
            Some(_) => self.change_attributes(inode, &[(b"security.capability", None)]),
            None => Ok(()),
        }
    }

    /// Changes the times of last access and last change of the contents.
    ///
    /// # Errors
    /// `NotFound`; `PermissionDenied` for immutable and append-only files.
    pub fn set_times(&mut self, path: &[u8], accessed: Option<Time>, modified: Option<Time>) -> Result<()> {
        let number = self.changeable(path, true)?;
        self.set_stamps(number, accessed, modified)
    }

    /// The same for the time that changes are noted with, which append-only files get, too.
    ///
    /// # Errors
    /// `NotFound`; `PermissionDenied` for immutable files.
    pub fn set_times_to_now(&mut self, path: &[u8]) -> Result<()> {
        let number = self.space.fs().resolve(path, true)?.number();
        refuse_immutable(&self.inode_mut(number)?, path)?;
        let now = Some(self.now());
        self.set_stamps(number, now, now)
    }

    /// The time that changes are noted with.
    pub fn time(&self) -> Time {
        self.now()
    }

    fn set_stamps(&mut self, number: u32, accessed: Option<Time>, modified: Option<Time>) -> Result<()> {
        self.operation(|writer| {
            let mut inode = writer.inode_mut(number)?;
            for (stamp, time) in [(Stamp::Accessed, accessed), (Stamp::Modified, modified)] {
                if let Some(time) = time {
                    inode.set_time(stamp, time);
                }
            }
            inode.set_time(Stamp::Changed, writer.now());
            writer.store_inode(&inode)
        })
    }
}
