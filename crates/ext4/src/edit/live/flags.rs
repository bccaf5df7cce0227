//! Flags and projects of inodes, as chattr(1) changes them.

use std::io::ErrorKind;

use crate::edit::Writer;
use crate::edit::inherit::{DIR_SYNC, NO_ATIME, NO_DUMP, PROJECT_INHERIT};
use crate::error::{Error, Result, invalid};
use crate::format::features::{Incompat, RoCompat};
use crate::format::inode::{FileType, Inode, InodeFlags, Stamp};
use crate::units::InodeNo;

/// Flags that programs may ask for: `EXT4_FL_USER_VISIBLE`. Of these others than `MODIFIABLE` stay as they are.
const VISIBLE: u32 = 0x725b_dfff;

/// `EXT4_FL_USER_MODIFIABLE`.
const MODIFIABLE: u32 = 0x624b_c0ff;

/// Flags of directories alone, and those that what is neither directory nor regular file may have.
const OF_DIRECTORIES: u32 = DIR_SYNC | TOP_OF_HIERARCHY | PROJECT_INHERIT | InodeFlags::CASEFOLD.0;
const OF_OTHERS: u32 = NO_DUMP | NO_ATIME;
const TOP_OF_HIERARCHY: u32 = 0x2_0000;

/// Flags that no file can have together with that of direct access (`EXT4_DAX_MUT_EXCL`).
const DAX: u32 = 0x200_0000;
const AGAINST_DAX: u32 =
    InodeFlags::VERITY.0 | InodeFlags::ENCRYPT.0 | InodeFlags::INLINE_DATA.0 | InodeFlags::JOURNAL_DATA.0;

impl Inode {
    /// The flags that programs are shown.
    pub fn visible_flags(&self) -> u32 {
        let hidden = if self.kind() == FileType::Regular { PROJECT_INHERIT } else { 0 };
        self.flags().0 & VISIBLE & !hidden
    }
}

impl Writer {
    /// Changes the flags of an inode, and its project. Those that nobody may change stay as they are.
    ///
    /// The caller checks permissions: which user may set which flag.
    ///
    /// # Errors
    /// `Unsupported` for flags that files of this kind can't have, without the features project and casefold for what these
    /// bring, and for a map that would become another; `DirectoryNotEmpty`.
    pub fn set_flags_of(&mut self, number: InodeNo, flags: u32, project: Option<u32>) -> Result<()> {
        self.operation(|files| {
            let mut inode = files.get_unlinked(number)?;
            let old = inode.flags().0;
            let unfit = match inode.kind() {
                FileType::Directory => 0,
                FileType::Regular => OF_DIRECTORIES,
                _ => !OF_OTHERS,
            };
            if flags & !VISIBLE != 0 || flags & MODIFIABLE & unfit != 0 {
                return Err(Error::unsupported("a flag that this kind of file can't have"));
            }
            let new = old & !MODIFIABLE | flags & MODIFIABLE;
            let changed = old ^ new;
            if changed & InodeFlags::EXTENTS.0 != 0 {
                return Err(Error::unsupported("making a file's extents pointers, or its pointers extents"));
            }
            let is_barred = |flags: u32| flags & DAX != 0 && old & AGAINST_DAX != 0;
            if is_barred(new) || old & DAX != 0 && new & InodeFlags::JOURNAL_DATA.0 != 0 {
                return Err(Error::unsupported(
                    "direct access to a file that is encrypted, verified or journaled",
                ));
            }
            if changed & InodeFlags::CASEFOLD.0 != 0 {
                if !files.fs().superblock().incompat.has(Incompat::CASEFOLD) || inode.has(InodeFlags::ENCRYPT)
                {
                    return Err(Error::unsupported("names without regard to case in this directory"));
                }
                if !files.directory(&mut inode).is_empty()? {
                    let text = "only empty directories can have names without regard to case";
                    return Err(invalid(ErrorKind::DirectoryNotEmpty, text));
                }
            }
            inode.set_flags(new);
            if let Some(project) = project.filter(|project| *project != inode.project()) {
                if !files.fs().superblock().ro_compat.has(RoCompat::PROJECT) || !inode.has_project() {
                    return Err(Error::unsupported("projects in a file system without the feature project"));
                }
                inode.set_project(project);
            }
            inode.set_time(Stamp::Changed, files.now());
            files.inodes().store(&inode)
        })
    }
}
