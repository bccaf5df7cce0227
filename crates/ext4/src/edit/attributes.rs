//! Modes, owners, times and extended attributes, and directories that become encrypted.

use std::io::ErrorKind;

use crate::edit::Writer;
use crate::edit::encrypted::require_feature;
use crate::edit::files::Files;
use crate::edit::locked::refuse_immutable;
use crate::edit::xattr::split_name;
use crate::error::{Error, Place, Result, Structure, invalid};
use crate::format::acl;
use crate::format::inode::{FileType, Inode, InodeFlags, Stamp, Time};
use crate::format::xattr::{ACL_ACCESS, ACL_DEFAULT, SECURITY, USER};
use crate::units::InodeNo;

/// Bits of a mode: run as the owner, run as the group (which is what it says if the group runs it).
const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_RUNS: u16 = 0o010;

impl Files {
    /// Takes the capabilities away that whoever runs a file gets. Part of an operation; the caller stores the inode.
    pub fn drop_capabilities(&mut self, inode: &mut Inode) -> Result<()> {
        match self.fs().xattr(inode, SECURITY, b"capability")? {
            Some(_) => self.inodes().attributes(inode).change(&[(b"security.capability", None)]),
            None => Ok(()),
        }
    }

    /// Changes permission bits, and the ACL as they say. Part of an operation; the caller stores the inode.
    pub fn change_mode(&mut self, inode: &mut Inode, mode: u16) -> Result<()> {
        inode.set_permissions(mode);
        if let Some(access) = self.fs().xattr(inode, ACL_ACCESS, b"")? {
            let place = Place::inode(Structure::Xattr, inode.number());
            let access = acl::change_mode(&access, mode)
                .ok_or_else(|| place.malformed("an ACL that makes no sense"))?;
            self.inodes().attributes(inode).set_stored(vec![(ACL_ACCESS, access)])?;
        }
        Ok(())
    }

    /// Changes owner and group, and takes away what ran with the rights of the old ones. Part of an operation; the caller
    /// stores the inode.
    pub fn change_owner(&mut self, inode: &mut Inode, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        inode.set_owner(uid, gid);
        if inode.is_dir() {
            return Ok(());
        }
        drop_set_id(inode, true);
        self.drop_capabilities(inode)
    }

    /// Sets an attribute, or removes it if there is no value; whether it was there. Part of an operation; the caller stores
    /// the inode.
    pub fn change_xattr(&mut self, inode: &mut Inode, name: &[u8], value: Option<&[u8]>) -> Result<bool> {
        let (index, short) = split_name(name)?;
        let has_user = matches!(inode.kind(), FileType::Regular | FileType::Directory);
        if index == USER && !has_user {
            let text = "only regular files and directories have attributes of users (user.*)";
            return Err(invalid(ErrorKind::PermissionDenied, text));
        }
        let value = match index {
            ACL_ACCESS | ACL_DEFAULT => self.inodes().attributes(inode).apply_acl(index, value)?,
            _ => value,
        };
        let was_there = self.fs().xattr(inode, index, short)?.is_some();
        if value.is_some() || was_there {
            self.inodes().attributes(inode).change(&[(name, value)])?;
        }
        Ok(was_there || matches!(index, ACL_ACCESS | ACL_DEFAULT))
    }
}

/// Takes the rights away that whoever runs a file gets from its owner and group. Set-group-ID that is no such right, because
/// the group does not run the file, stays if who changes the file is in the group.
pub(super) fn drop_set_id(inode: &mut Inode, is_in_group: bool) {
    let mode = inode.mode() & !SET_UID;
    let stays = mode & GROUP_RUNS == 0 && is_in_group;
    inode.set_permissions(if stays { mode } else { mode & !SET_GID });
}

/// Takes set-group-ID away.
pub(super) fn drop_set_gid(inode: &mut Inode) {
    inode.set_permissions(inode.mode() & !SET_GID);
}

impl Writer {
    /// Changes a file's permission bits, and its ACL as they say.
    ///
    /// # Errors
    /// `NotFound`; `PermissionDenied` for immutable and append-only files.
    pub fn set_mode(&mut self, path: &[u8], mode: u16) -> Result<()> {
        let number = self.changeable(path, true)?;
        self.operation(|files| {
            let mut inode = files.get(number)?;
            files.change_mode(&mut inode, mode)?;
            inode.set_time(Stamp::Changed, files.now());
            files.inodes().store(&inode)
        })
    }

    /// Changes a file's owner, group or both; a symbolic link's own if not `follow`. What ran with the rights of the
    /// old owner does not do so with those of the new one: set-user-ID, set-group-ID and capabilities go, as in the
    /// kernel, but for those of directories.
    ///
    /// # Errors
    /// `NotFound`; `PermissionDenied` for immutable and append-only files.
    pub fn set_owner(&mut self, path: &[u8], uid: Option<u32>, gid: Option<u32>, follow: bool) -> Result<()> {
        let number = self.changeable(path, follow)?;
        self.operation(|files| {
            let mut inode = files.get(number)?;
            files.change_owner(&mut inode, uid, gid)?;
            inode.set_time(Stamp::Changed, files.now());
            files.inodes().store(&inode)
        })
    }

    /// Changes the times of last access and last change of the contents.
    ///
    /// # Errors
    /// `NotFound`; `PermissionDenied` for immutable and append-only files.
    pub fn set_times(&mut self, path: &[u8], accessed: Option<Time>, modified: Option<Time>) -> Result<()> {
        let number = self.changeable(path, true)?;
        self.set_stamps(number, accessed, modified)
    }

    /// Sets both times to the one that changes are noted with, which append-only files allow, too.
    ///
    /// # Errors
    /// `NotFound`; `PermissionDenied` for immutable files.
    pub fn set_times_to_now(&mut self, path: &[u8]) -> Result<()> {
        let number = self.fs().resolve(path, true)?.number();
        refuse_immutable(&self.files().get(number)?, path)?;
        let now = Some(self.time());
        self.set_stamps(number, now, now)
    }

    fn set_stamps(&mut self, number: InodeNo, accessed: Option<Time>, modified: Option<Time>) -> Result<()> {
        self.operation(|files| {
            let mut inode = files.get(number)?;
            for (stamp, time) in [(Stamp::Accessed, accessed), (Stamp::Modified, modified)] {
                if let Some(time) = time {
                    inode.set_time(stamp, time);
                }
            }
            inode.set_time(Stamp::Changed, files.now());
            files.inodes().store(&inode)
        })
    }

    /// Sets an attribute of a file, or removes it if the value is `None`. With an access ACL, the permission bits
    /// become what it says, and it is stored if it says more than they can.
    ///
    /// # Errors
    /// `NotFound` for a path, or an attribute to be removed, that is not there (which may be so for ACLs);
    /// `StorageFull` when all attributes together have no room; `InvalidInput` for names without a known prefix, and
    /// for more than the kernel takes; `PermissionDenied` for immutable and append-only files, and for attributes that
    /// files of this kind can't have.
    pub fn set_xattr(&mut self, path: &[u8], name: &[u8], value: Option<&[u8]>, follow: bool) -> Result<()> {
        let number = self.changeable(path, follow)?;
        self.operation(|files| {
            let mut inode = files.get(number)?;
            let was_there = files.change_xattr(&mut inode, name, value)?;
            if value.is_none() && !was_there {
                let text = format!("{}: no such attribute", String::from_utf8_lossy(name));
                return Err(invalid(ErrorKind::NotFound, text));
            }
            inode.set_time(Stamp::Changed, files.now());
            files.inodes().store(&inode)
        })
    }

    /// Makes an empty directory an encrypted one; what is made in it from now on is encrypted as its context says.
    /// `context` makes that from a nonce.
    ///
    /// # Errors
    /// `DirectoryNotEmpty`, `NotADirectory`, `AlreadyExists` for one that is encrypted; `Unsupported`
    /// when the file system has not the feature encrypt.
    pub fn encrypt_directory(
        &mut self,
        path: &[u8],
        context: impl FnOnce([u8; 16]) -> Vec<u8>,
    ) -> Result<()> {
        require_feature(self.fs())?;
        let number = self.fs().resolve(path, true)?.number();
        self.operation(|files| {
            let mut dir = files.get(number)?;
            if !dir.is_dir() {
                return Err(invalid(ErrorKind::NotADirectory, "only directories are encrypted"));
            }
            if dir.has(InodeFlags::ENCRYPT) {
                return Err(invalid(ErrorKind::AlreadyExists, "the directory is encrypted already"));
            }
            if !files.directory(&mut dir).is_empty()? {
                return Err(invalid(ErrorKind::DirectoryNotEmpty, "only empty directories can be encrypted"));
            }
            if dir.has(InodeFlags::INLINE_DATA) {
                files.directory(&mut dir).spread_inline_directory()?;
            }
            let context = context(files.inodes().random().nonce()?);
            if dir.has(InodeFlags::CASEFOLD) && context.first() != Some(&2) {
                let text = "a directory without regard to case takes policies of version 2 only";
                return Err(Error::unsupported(text.to_owned()));
            }
            dir.set_flags(dir.flags().0 | InodeFlags::ENCRYPT.0);
            files.inodes().attributes(&mut dir).set_context(context)?;
            dir.set_time(Stamp::Changed, files.now());
            files.inodes().store(&dir)
        })
    }
}
