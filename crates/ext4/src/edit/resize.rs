//! Files that get blocks, or become longer or shorter.

use std::io::ErrorKind;

use crate::edit::Writer;
use crate::edit::encrypted::cipher;
use crate::edit::file_map::Cut;
use crate::edit::files::Files;
use crate::error::{Result, invalid};
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::units::InodeNo;

impl Files {
    /// Ends what gave blocks to a file, which is to have this size if it was shorter.
    fn grow(&mut self, inode: &mut Inode, size: u64) -> Result<()> {
        if size > inode.size() {
            self.inodes().map(inode).set_size(size)?;
        }
        self.touch(inode);
        self.inodes().store(inode)
    }

    /// A regular file whose contents may be changed.
    pub(super) fn changeable_file(&self, number: InodeNo) -> Result<Inode> {
        let inode = self.get_unlinked(number)?;
        if inode.kind() != FileType::Regular {
            let kind = if inode.is_dir() { ErrorKind::IsADirectory } else { ErrorKind::InvalidInput };
            return Err(invalid(kind, format!("inode {number} is not a regular file")));
        }
        if inode.has(InodeFlags::VERITY) {
            let text = "contents of files with fs-verity can't be changed";
            return Err(invalid(ErrorKind::PermissionDenied, text));
        }
        cipher(self.fs(), &inode)?;
        Ok(inode)
    }
}

impl Writer {
    /// Allocates all of a file's first `size` bytes, which read as zeros where nothing was, and makes it that
    /// long if it was shorter. A file without extents can't say that blocks were never written: zeros are
    /// written then.
    ///
    /// # Errors
    /// `NotFound`; `StorageFull`, and nothing is allocated then.
    pub fn allocate_file(&mut self, path: &[u8], size: u64) -> Result<()> {
        let number = self.changeable(path, true)?;
        self.allocate_range(number, 0, size, false)
    }

    /// Allocates bytes `from..to` of the file with this inode, whose size may have to stay.
    ///
    /// # Errors
    /// `StorageFull`, and nothing is allocated then.
    pub fn allocate_range(&mut self, number: InodeNo, from: u64, to: u64, keep_size: bool) -> Result<()> {
        let size = if keep_size { 0 } else { to };
        let block = self.files().space().block_bytes();
        let (mut at, end) = (from / block, if to > from { to.div_ceil(block) } else { 0 });
        let mut is_listed = false;
        self.operation(|files| {
            let mut inode = files.changeable_file(number)?;
            files.drop_capabilities(&mut inode)?;
            files.inodes().contents(&mut inode).spread()?;
            files.inodes().view(&inode).check_size(to)?;
            at = files.inodes().contents(&mut inode).fill_with_zeros(at, end)?;
            if at < end {
                files.inodes().view(&inode).require_free(at, end)?;
                is_listed = !inode.has(InodeFlags::EXTENTS);
                if is_listed {
                    files.inodes().list_orphan(&mut inode)?;
                }
                return files.inodes().store(&inode);
            }
            files.grow(&mut inode, size)
        })?;
        if at >= end {
            return Ok(());
        }
        self.in_steps(&mut (), number, is_listed, |files, ()| {
            let mut inode = files.get_unlinked(number)?;
            at = files.inodes().contents(&mut inode).fill_with_zeros(at, end)?;
            if at < end {
                files.inodes().store(&inode)?;
                return Ok(false);
            }
            if is_listed {
                files.inodes().unlist_orphan(&mut inode)?;
            }
            files.grow(&mut inode, size)?;
            Ok(true)
        })
    }

    /// Makes a file longer, with a hole, or shorter.
    ///
    /// # Errors
    /// `NotFound`; `PermissionDenied` for immutable and append-only files.
    pub fn truncate(&mut self, path: &[u8], size: u64) -> Result<()> {
        let number = self.changeable(path, true)?;
        while !self.truncate_inode(number, size)? {}
        Ok(())
    }

    /// Truncates a file by its inode. Returns false if it must be called once more.
    pub(super) fn truncate_inode(&mut self, number: InodeNo, mut size: u64) -> Result<bool> {
        let wanted = size;
        self.operation(|files| {
            let mut inode = files.changeable_file(number)?;
            files.drop_capabilities(&mut inode)?;
            if size != inode.size() {
                if inode.has(InodeFlags::INLINE_DATA) {
                    if files.inodes().contents(&mut inode).resize_inline(size)? {
                        files.touch(&mut inode);
                        return files.inodes().store(&inode);
                    }
                    files.inodes().contents(&mut inode).spread()?;
                }
                files.inodes().view(&inode).check_size(size)?;
                let block = files.space().block_bytes();
                let old = inode.size();
                let cut = files.inodes().map(&mut inode).cut(size.div_ceil(block))?;
                // What lay behind the end must not come back when the file grows again.
                let end = size.min(old);
                if end % block != 0 {
                    files.inodes().contents(&mut inode).zero_from(end)?;
                }
                if cut == Cut::Begun && size == 0 && inode.has(InodeFlags::EXTENTS) {
                    // Some e2fsck damages a waiting inode (1.47.0) when it cuts a tree of levels to nothing.
                    size = block;
                }
                files.inodes().map(&mut inode).set_size(size)?;
                files.touch(&mut inode);
                if cut == Cut::Begun {
                    return files.inodes().finish_later(&mut inode);
                }
            } else {
                files.touch(&mut inode);
            }
            files.inodes().store(&inode)
        })?;
        Ok(size == wanted)
    }
}
