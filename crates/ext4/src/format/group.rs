//! Group descriptors: where a group's bitmaps and inodes lie, and what is left of them.
//!
//! Source: Documentation/filesystems/ext4/group_descr.rst.

use crate::error::{Place, Result, Structure};
use crate::format::bytes::{join, le16, le32};

/// A block group's descriptor, as the bytes on disk.
#[derive(Clone, Copy, Debug)]
pub struct GroupDescriptor<'a> {
    pub(crate) raw: &'a [u8],
}

/// `EXT4_BG_INODE_UNINIT`: the inode bitmap and table were never written.
pub const INODE_UNINIT: u16 = 1;
/// `EXT4_BG_BLOCK_UNINIT`: the block bitmap was never written.
pub const BLOCK_UNINIT: u16 = 2;
/// `EXT4_BG_INODE_ZEROED`: the inode table is zeroed.
pub const INODE_ZEROED: u16 = 4;

impl<'a> GroupDescriptor<'a> {
    /// A descriptor from its bytes: 32, or 64 and more with the feature `64bit`.
    ///
    /// # Errors
    /// `Corrupt` when there are fewer bytes.
    pub fn from_bytes(raw: &'a [u8]) -> Result<GroupDescriptor<'a>> {
        match raw.len() {
            32 | 64.. => Ok(GroupDescriptor { raw }),
            _ => Err(Place::of(Structure::GroupDescriptor).malformed("cut short")),
        }
    }

    /// The bytes on disk.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.raw
    }

    /// The block of the block bitmap.
    pub fn block_bitmap(&self) -> u64 {
        self.wide(0x0, 0x20)
    }

    /// The block of the inode bitmap.
    pub fn inode_bitmap(&self) -> u64 {
        self.wide(0x4, 0x24)
    }

    /// The first block of the inode table.
    pub fn inode_table(&self) -> u64 {
        self.wide(0x8, 0x28)
    }

    /// Free clusters of the group.
    pub fn free_clusters(&self) -> u32 {
        self.halves(0xc, 0x2c)
    }

    /// Free inodes of the group.
    pub fn free_inodes(&self) -> u32 {
        self.halves(0xe, 0x2e)
    }

    /// Directories among the group's inodes.
    pub fn used_directories(&self) -> u32 {
        self.halves(0x10, 0x30)
    }

    /// `bg_flags`.
    pub fn flags(&self) -> u16 {
        le16(self.raw, 0x12)
    }

    /// How many inodes at the table's end were never used; counts only with group checksums.
    pub fn unused_inodes(&self) -> u32 {
        self.halves(0x1c, 0x32)
    }

    /// Where the checksum of the block bitmap is stored: the low half, and the high one if there is room.
    pub fn block_bitmap_csum(&self) -> (u16, Option<u16>) {
        (le16(self.raw, 0x18), self.is_wide().then(|| le16(self.raw, 0x38)))
    }

    /// Where the checksum of the inode bitmap is stored.
    pub fn inode_bitmap_csum(&self) -> (u16, Option<u16>) {
        (le16(self.raw, 0x1a), self.is_wide().then(|| le16(self.raw, 0x3a)))
    }

    fn is_wide(&self) -> bool {
        self.raw.len() >= 64
    }

    fn wide(&self, low: usize, high: usize) -> u64 {
        join(le32(self.raw, low), if self.is_wide() { le32(self.raw, high) } else { 0 })
    }

    pub(crate) fn halves(&self, low: usize, high: usize) -> u32 {
        let high = if self.is_wide() { u32::from(le16(self.raw, high)) } else { 0 };
        u32::from(le16(self.raw, low)) | high << 16
    }
}
