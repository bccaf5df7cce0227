//! Attributes that a new file gets from its directory: group, ACLs, flags and project.

use crate::edit::node::NewNode;
use crate::error::{Place, Result, Structure};
use crate::format::acl;
use crate::format::features::RoCompat;
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::format::xattr::{ACL_ACCESS, ACL_DEFAULT};
use crate::read::fs::Ext4;

/// The bit of a mode that lets a directory give its group to what is made in it.
const SET_GID: u16 = 0o2000;

/// Flags that go on: `EXT4_FL_INHERITED`; what only directories get of them, and all that links and nodes get.
const INHERITED: u32 = 0x1
    | 0x2
    | 0x4
    | 0x8
    | NO_DUMP
    | NO_ATIME
    | 0x400
    | 0x4000
    | 0x8000
    | DIR_SYNC
    | 0x200_0000
    | PROJECT_INHERIT
    | InodeFlags::CASEFOLD.0;
const FOR_DIRECTORIES: u32 = DIR_SYNC | PROJECT_INHERIT | InodeFlags::CASEFOLD.0;
const FOR_OTHERS: u32 = NO_DUMP | NO_ATIME;
pub(crate) const NO_DUMP: u32 = 0x40;
pub(crate) const NO_ATIME: u32 = 0x80;
pub(crate) const DIR_SYNC: u32 = 0x1_0000;
pub(crate) const PROJECT_INHERIT: u32 = 0x2000_0000;

/// Attributes of a new file after those of its directory were applied.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    pub node: NewNode,
    /// Attributes by their prefix index, as they are stored.
    pub acls: Vec<(u8, Vec<u8>)>,
}

/// Gives a new inode the flags and the project of its directory.
pub(crate) fn inherit_flags(fs: &Ext4, dir: &Inode, inode: &mut Inode) {
    let flags = dir.flags().0;
    inode.set_flags(match inode.kind() {
        FileType::Directory => flags & INHERITED,
        FileType::Regular => flags & INHERITED & !FOR_DIRECTORIES,
        _ => flags & FOR_OTHERS,
    });
    if flags & PROJECT_INHERIT != 0 && fs.superblock().ro_compat.has(RoCompat::PROJECT) {
        inode.set_project(dir.project());
    }
}

/// The owner, mode and ACLs of a new file whose mode is nobody's wish, as the kernel decides them.
pub(crate) fn inherit(fs: &Ext4, dir: &Inode, kind: FileType, node: &NewNode) -> Result<Inherited> {
    let mut node = *node;
    if dir.mode() & SET_GID != 0 {
        node.gid = dir.gid();
        if kind == FileType::Directory {
            node.mode |= SET_GID;
        }
    }
    let mut acls = Vec::new();
    if kind == FileType::Symlink {
        return Ok(Inherited { node, acls });
    }
    let Some(default) = fs.xattr(dir, ACL_DEFAULT, b"")? else {
        node.mode &= !node.umask;
        return Ok(Inherited { node, acls });
    };
    let place = Place::inode(Structure::Xattr, dir.number());
    let (access, mode, is_more) = acl::create(&default, node.mode)
        .ok_or_else(|| place.malformed("a default ACL that makes no sense"))?;
    node.mode = mode;
    if kind == FileType::Directory {
        acls.push((ACL_DEFAULT, default));
    }
    if is_more {
        acls.push((ACL_ACCESS, access));
    }
    Ok(Inherited { node, acls })
}
