//! Files and directories that nobody may change, and directories that keep a project's files together: the kernel
//! refuses the same to everybody, also to root.

use std::io::ErrorKind;

use crate::edit::Writer;
use crate::edit::inherit::PROJECT_INHERIT;
use crate::error::{Result, invalid};
use crate::format::features::RoCompat;
use crate::format::inode::{Inode, InodeFlags};
use crate::read::fs::Ext4;
use crate::units::InodeNo;

/// Refuses to change or rename an immutable or append-only file, or to remove a name from such a directory.
pub(crate) fn refuse_locked(inode: &Inode, shown: &[u8]) -> Result<()> {
    refuse_immutable(inode, shown)?;
    refuse(inode, InodeFlags::APPEND, shown, "append-only (chattr -a ends that)")
}

/// Refuses what append-only files and directories allow: the time of now, and further names in a directory.
pub(crate) fn refuse_immutable(inode: &Inode, shown: &[u8]) -> Result<()> {
    refuse(inode, InodeFlags::IMMUTABLE, shown, "immutable (chattr -i ends that)")
}

fn refuse(inode: &Inode, flag: InodeFlags, shown: &[u8], what: &str) -> Result<()> {
    if !inode.has(flag) {
        return Ok(());
    }
    let whose = if inode.is_dir() { "the directory" } else { "the file" };
    let text = format!("{}: {whose} (inode {}) is {what}", String::from_utf8_lossy(shown), inode.number());
    Err(invalid(ErrorKind::PermissionDenied, text))
}

/// Refuses to give a file of one project a name in a directory of another one that its files inherit.
pub(crate) fn refuse_project(fs: &Ext4, dir: &Inode, inode: &Inode) -> Result<()> {
    let has_projects = fs.superblock().ro_compat.has(RoCompat::PROJECT);
    if !has_projects || dir.flags().0 & PROJECT_INHERIT == 0 || dir.project() == inode.project() {
        return Ok(());
    }
    let (ours, other) = (inode.project(), dir.project());
    let text = format!("the file belongs to project {ours}, and the directory to {other}: put a copy there");
    Err(invalid(ErrorKind::CrossesDevices, text))
}

impl Writer {
    /// The inode of a file that is to be changed.
    pub(crate) fn changeable(&self, path: &[u8], follow: bool) -> Result<InodeNo> {
        let number = self.fs().resolve(path, follow)?.number();
        refuse_locked(&self.files().get(number)?, path)?;
        Ok(number)
    }
}
