//! Attributes of inodes that somebody uses.

use std::io::ErrorKind;

use crate::edit::Writer;
use crate::edit::attributes::{drop_set_gid, drop_set_id};
use crate::edit::locked::{refuse_immutable, refuse_locked};
use crate::edit::xattr::split_name;
use crate::error::{Result, invalid};
use crate::format::inode::{Stamp, Time};
use crate::format::xattr::ACL_ACCESS;
use crate::units::InodeNo;

/// Attributes that change together: those that are given.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct NewAttributes {
    /// Permission bits.
    pub mode: Option<u16>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Last access.
    pub accessed: Option<Time>,
    /// Last change of the contents.
    pub modified: Option<Time>,
    /// Whether the times are those of now, which files get that can only be appended to.
    pub is_now: bool,
    /// Whether whoever changes the owner is outside the file's group, so that set-group-ID goes whatever it means.
    pub is_outsider: bool,
}

/// Treatment of set-user-ID and set-group-ID bits when a file is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetId {
    /// They stay.
    #[default]
    Stays,
    /// They go.
    Goes {
        /// Whether who changes the file is in its group: set-group-ID that is no right to run it stays then.
        is_in_group: bool,
    },
}

/// Whether an extended attribute may be there, or has to be, when it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// It may be.
    #[default]
    Any,
    /// It must not be (`XATTR_CREATE`).
    Absent,
    /// It must be (`XATTR_REPLACE`).
    Present,
}

impl Writer {
    /// Changes attributes of an inode, as [`set_mode`](Writer::set_mode), [`set_owner`](Writer::set_owner) and
    /// [`set_times`](Writer::set_times) do.
    ///
    /// # Errors
    /// `PermissionDenied` for immutable and append-only files.
    pub fn set_attributes(&mut self, number: InodeNo, new: &NewAttributes) -> Result<()> {
        let NewAttributes { mode, uid, gid, accessed, modified, is_now, is_outsider } = *new;
        self.operation(|files| {
            let mut inode = files.get_unlinked(number)?;
            match is_now && mode.is_none() && uid.is_none() && gid.is_none() {
                true => refuse_immutable(&inode, b"it")?,
                false => refuse_locked(&inode, b"it")?,
            }
            if uid.is_some() || gid.is_some() {
                if is_outsider && !inode.is_dir() {
                    drop_set_gid(&mut inode);
                }
                files.change_owner(&mut inode, uid, gid)?;
            }
            if let Some(mode) = mode {
                files.change_mode(&mut inode, mode)?;
            }
            for (stamp, time) in [(Stamp::Accessed, accessed), (Stamp::Modified, modified)] {
                if let Some(time) = time {
                    inode.set_time(stamp, time);
                }
            }
            inode.set_time(Stamp::Changed, files.now());
            files.inodes().store(&inode)
        })
    }

    /// Takes away what ran with the rights of the owner or group, for who is in the group or is not; whether there was
    /// anything.
    ///
    /// # Errors
    /// Errors of storing an inode.
    pub fn drop_privileges(&mut self, number: InodeNo, is_in_group: bool) -> Result<bool> {
        let old = self.inode(number)?;
        let mut inode = old.clone();
        drop_set_id(&mut inode, is_in_group);
        if inode.mode() == old.mode() {
            return Ok(false);
        }
        self.operation(|files| files.inodes().store(&inode))?;
        Ok(true)
    }

    /// Sets an extended attribute of an inode, or removes it if there is no value. Set-group-ID stays or goes with an access
    /// ACL as `set_id` says.
    ///
    /// # Errors
    /// Errors of [`set_xattr`](Writer::set_xattr); `AlreadyExists` and `NotFound` for one that is there or is not, against
    /// what was said.
    pub fn set_xattr_of(
        &mut self,
        number: InodeNo,
        name: &[u8],
        value: Option<&[u8]>,
        presence: Presence,
        set_id: SetId,
    ) -> Result<()> {
        self.operation(|files| {
            let mut inode = files.get_unlinked(number)?;
            refuse_locked(&inode, name)?;
            let (index, short) = split_name(name)?;
            let is_there = files.fs().xattr(&inode, index, short)?.is_some();
            let shown = String::from_utf8_lossy(name);
            match (is_there, presence) {
                (true, Presence::Absent) => {
                    return Err(invalid(ErrorKind::AlreadyExists, format!("{shown}: is there already")));
                }
                (false, Presence::Present) => {
                    return Err(invalid(ErrorKind::NotFound, format!("{shown}: no such attribute")));
                }
                _ => {}
            }
            files.change_xattr(&mut inode, name, value)?;
            if matches!(set_id, SetId::Goes { is_in_group: false }) && index == ACL_ACCESS && value.is_some()
            {
                drop_set_gid(&mut inode);
            }
            inode.set_time(Stamp::Changed, files.now());
            files.inodes().store(&inode)
        })
    }
}
