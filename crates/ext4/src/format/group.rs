//! Group descriptors: where a group's bitmaps and inodes lie, and what is left of them.
//!
//! Source: Documentation/filesystems/ext4/group_descr.rst.

use crate::error::{Place, Result, Structure};
use crate::format::csum::{Checksums, Subject, recipe};
use crate::format::field::{Le16, Le32, Split};
use crate::units::Block;

/// Bytes of a descriptor without the feature `64bit`, and of the fields that are known of one with it.
const SHORT: usize = 32;
const LONG: usize = 64;

const BLOCK_BITMAP: Split<Le32, Le32> = Split(Le32(0x0), Le32(0x20));
const INODE_BITMAP: Split<Le32, Le32> = Split(Le32(0x4), Le32(0x24));
const INODE_TABLE: Split<Le32, Le32> = Split(Le32(0x8), Le32(0x28));
const FREE_CLUSTERS: Split<Le16, Le16> = Split(Le16(0xc), Le16(0x2c));
const FREE_INODES: Split<Le16, Le16> = Split(Le16(0xe), Le16(0x2e));
const USED_DIRECTORIES: Split<Le16, Le16> = Split(Le16(0x10), Le16(0x30));
const FLAGS: Le16 = Le16(0x12);
const UNUSED_INODES: Split<Le16, Le16> = Split(Le16(0x1c), Le16(0x32));

/// A block group's descriptor, as the bytes on disk.
#[derive(Clone, Copy, Debug)]
pub struct GroupDescriptor<'a> {
    raw: &'a [u8],
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
            SHORT | LONG.. => Ok(GroupDescriptor { raw }),
            _ => Err(Place::of(Structure::GroupDescriptor).malformed("cut short")),
        }
    }

    /// The bytes on disk.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.raw
    }

    /// The block of the block bitmap.
    pub fn block_bitmap(&self) -> Block {
        Block::new(BLOCK_BITMAP.get_if(self.is_long(), self.raw))
    }

    /// The block of the inode bitmap.
    pub fn inode_bitmap(&self) -> Block {
        Block::new(INODE_BITMAP.get_if(self.is_long(), self.raw))
    }

    /// The first block of the inode table.
    pub fn inode_table(&self) -> Block {
        Block::new(INODE_TABLE.get_if(self.is_long(), self.raw))
    }

    /// Free clusters of the group.
    pub fn free_clusters(&self) -> u32 {
        FREE_CLUSTERS.get_if(self.is_long(), self.raw)
    }

    /// Free inodes of the group.
    pub fn free_inodes(&self) -> u32 {
        FREE_INODES.get_if(self.is_long(), self.raw)
    }

    /// Directories among the group's inodes.
    pub fn used_directories(&self) -> u32 {
        USED_DIRECTORIES.get_if(self.is_long(), self.raw)
    }

    /// `bg_flags`.
    pub fn flags(&self) -> u16 {
        FLAGS.get(self.raw)
    }

    /// How many inodes at the table's end were never used; counts only with group checksums.
    pub fn unused_inodes(&self) -> u32 {
        UNUSED_INODES.get_if(self.is_long(), self.raw)
    }

    fn is_long(&self) -> bool {
        self.raw.len() >= LONG
    }
}

/// One of a group's two bitmaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bitmap {
    Blocks,
    Inodes,
}

impl Bitmap {
    pub fn subject(self) -> Subject {
        match self {
            Bitmap::Blocks => Subject::BlockBitmap,
            Bitmap::Inodes => Subject::InodeBitmap,
        }
    }

    pub fn structure(self) -> Structure {
        match self {
            Bitmap::Blocks => Structure::BlockBitmap,
            Bitmap::Inodes => Structure::InodeBitmap,
        }
    }

    /// The flag of a descriptor whose bitmap was never written.
    pub fn uninit(self) -> u16 {
        match self {
            Bitmap::Blocks => BLOCK_UNINIT,
            Bitmap::Inodes => INODE_UNINIT,
        }
    }

    /// The block that it lies in.
    pub fn block(self, descriptor: GroupDescriptor<'_>) -> Block {
        match self {
            Bitmap::Blocks => descriptor.block_bitmap(),
            Bitmap::Inodes => descriptor.inode_bitmap(),
        }
    }
}

/// A descriptor while it is changed: the fields that are known here, 32 or 64 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    raw: [u8; LONG],
    len: usize,
}

impl Descriptor {
    /// A copy of the descriptor that begins with these bytes and has `size` of them.
    pub fn from_bytes(bytes: &[u8], size: usize) -> Descriptor {
        let len = if size >= LONG { LONG } else { SHORT };
        let mut raw = [0; LONG];
        raw[..len].copy_from_slice(&bytes[..len]);
        Descriptor { raw, len }
    }

    /// Sets the blocks where the bitmaps and the inode table begin.
    pub fn set_places(&mut self, block_bitmap: Block, inode_bitmap: Block, inode_table: Block) {
        let is_long = self.fields().is_long();
        for (field, block) in
            [(BLOCK_BITMAP, block_bitmap), (INODE_BITMAP, inode_bitmap), (INODE_TABLE, inode_table)]
        {
            field.set_if(is_long, &mut self.raw, block.get());
        }
    }

    pub fn set_free_clusters(&mut self, value: u32) {
        FREE_CLUSTERS.set_if(self.fields().is_long(), &mut self.raw, value);
    }

    pub fn set_free_inodes(&mut self, value: u32) {
        FREE_INODES.set_if(self.fields().is_long(), &mut self.raw, value);
    }

    pub fn set_used_directories(&mut self, value: u32) {
        USED_DIRECTORIES.set_if(self.fields().is_long(), &mut self.raw, value);
    }

    pub fn set_unused_inodes(&mut self, value: u32) {
        UNUSED_INODES.set_if(self.fields().is_long(), &mut self.raw, value);
    }

    pub fn set_flags(&mut self, flags: u16) {
        FLAGS.set(&mut self.raw, flags);
    }

    pub fn clear_flag(&mut self, flag: u16) {
        let flags = self.fields().flags() & !flag;
        FLAGS.set(&mut self.raw, flags);
    }

    pub fn set_bitmap_sum(&mut self, sums: &Checksums, which: Bitmap, value: u32) {
        sums.write(recipe(which.subject()), &mut self.raw[..self.len], value);
    }

    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        &mut self.raw[..self.len]
    }

    /// The stored checksum of a bitmap: 32 bits, or its low 16 where descriptors are short.
    pub fn bitmap_sum(&self, sums: &Checksums, which: Bitmap) -> u32 {
        sums.stored(recipe(which.subject()), self.as_bytes()).unwrap_or(0)
    }

    /// Its fields, as they are read.
    pub fn fields(&self) -> GroupDescriptor<'_> {
        GroupDescriptor { raw: self.as_bytes() }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.raw[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use casemate_primitives::Cpu;
    use casemate_primitives::crc32c::Crc32c;

    use super::*;
    use crate::format::superblock::{Superblock, tests::sample};

    #[test]
    fn what_is_written_is_read() {
        let sums = Checksums::new(Crc32c::new(Cpu::portable()), &Superblock::from_bytes(&sample()).unwrap())
            .unwrap();
        for (size, mask) in [(32, 0xffff), (64, !0), (128, !0)] {
            let mut descriptor = Descriptor::from_bytes(&[0xff; 128], size);
            descriptor.set_free_clusters(0x1_0002);
            descriptor.set_free_inodes(0x3_0004);
            descriptor.set_used_directories(0x5_0006);
            descriptor.set_unused_inodes(0x7_0008);
            descriptor.clear_flag(BLOCK_UNINIT);
            descriptor.set_bitmap_sum(&sums, Bitmap::Blocks, 0x9_000a);
            descriptor.set_bitmap_sum(&sums, Bitmap::Inodes, 0xb_000c);
            let fields = GroupDescriptor::from_bytes(descriptor.as_bytes()).unwrap();
            assert_eq!(fields.as_bytes().len(), size.min(64));
            assert_eq!(
                (fields.free_clusters(), fields.free_inodes()),
                (0x1_0002 & mask, 0x3_0004 & mask),
                "{size}"
            );
            assert_eq!(
                (fields.used_directories(), fields.unused_inodes()),
                (0x5_0006 & mask, 0x7_0008 & mask)
            );
            assert_eq!(fields.flags(), 0xfffd);
            assert_eq!(descriptor.bitmap_sum(&sums, Bitmap::Blocks), 0x9_000a & mask);
            assert_eq!(descriptor.bitmap_sum(&sums, Bitmap::Inodes), 0xb_000c & mask);
            let blocks = [fields.block_bitmap(), fields.inode_bitmap(), fields.inode_table()];
            assert_eq!(blocks, [Block::new(if size > 32 { u64::MAX } else { u32::MAX.into() }); 3]);
        }
    }
}
