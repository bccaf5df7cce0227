//! Contents that lie in the inode itself.

use casemate_blockdev::u64_of;

use crate::edit::contents::Contents;
use crate::edit::xattr::inline_room;
use crate::error::Result;
use crate::format::features::Incompat;
use crate::format::inline::HEAD;
use crate::format::inode::{Inode, InodeFlags};
use crate::read::fs::Ext4;
use crate::units::Block;

impl Contents<'_> {
    /// Whether the contents of a new file are to lie in its inode. Without contents it has an empty map.
    pub fn fits_inline(&self, size: u64) -> Result<bool> {
        Ok(size > 0
            && may_be_inline(self.inodes.fs(), self.inode)
            && size <= u64_of(inline_room(self.inodes.space(), self.inode)?))
    }

    /// Changes the size of contents that lie in the inode; false if they have no room there.
    pub fn resize_inline(&mut self, size: u64) -> Result<bool> {
        let room = inline_room(self.inodes.space(), self.inode)?;
        let Some(size) = usize::try_from(size).ok().filter(|size| *size > 0 && *size <= room) else {
            return Ok(false);
        };
        let mut bytes = self.inodes.fs().inline_data(self.inode)?;
        bytes.resize(size, 0);
        self.store_inline(&bytes)?;
        Ok(true)
    }

    /// Puts contents that fit into an inode that has no blocks.
    pub fn store_inline(&mut self, bytes: &[u8]) -> Result<()> {
        self.inode.set_flags(self.inode.flags().0 & !InodeFlags::EXTENTS.0 | InodeFlags::INLINE_DATA.0);
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD));
        self.inode.block_area_mut().fill(0);
        self.inode.block_area_mut()[..head.len()].copy_from_slice(head);
        self.inode.set_size(u64_of(bytes.len()));
        self.inodes.attributes(self.inode).set_inline(rest)
    }

    /// Moves contents that lie in the inode to a block.
    pub fn spread(&mut self) -> Result<()> {
        if !self.inode.has(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        let mut bytes = self.inodes.fs().inline_data(self.inode)?;
        self.drop_inline_data()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut place = Block::default();
        let block = self.inodes.space().block_size();
        bytes.resize(bytes.len().next_multiple_of(block), 0);
        self.map().fill(0, u64_of(bytes.len() / block), false, |run| place = run.physical)?;
        self.inodes.transaction().write_data(place, &bytes)?;
        Ok(())
    }

    /// Empties an inode with inline data, which has a map from then on.
    pub fn drop_inline_data(&mut self) -> Result<()> {
        self.inodes.attributes(self.inode).remove_inline()?;
        self.inode.set_flags(self.inode.flags().0 & !InodeFlags::INLINE_DATA.0);
        self.map().start();
        Ok(())
    }
}

/// Whether something new is to lie in its inode if it fits: never what is encrypted.
pub(in crate::edit) fn may_be_inline(fs: &Ext4, inode: &Inode) -> bool {
    fs.superblock().incompat.has(Incompat::INLINE_DATA) && !inode.has(InodeFlags::ENCRYPT)
}
