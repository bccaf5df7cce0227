//! Fields of an inode in the bytes that it was read in, whatever they say: what goes through all inodes copies none.

use crate::error::Result;
use crate::format::csum::Context;
use crate::format::field::Split;
use crate::format::inode::{
    self, BLOCK_AREA, BLOCKS, DELETED, EXTRA_SIZE, FLAGS, FRAGMENT, FileType, GENERATION, GID, HURD_FRAGMENT,
    InodeFlags, LINKS, MODE, MODIFIED, OLD_INODE_SIZE, PROJECT, SIZE, UID, VALUE_HASH, VALUE_USERS,
    XATTR_BLOCK,
};
use crate::units::{Block, InodeNo};

/// An inode's bytes, 128 of them or more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawInode<'a> {
    pub number: InodeNo,
    pub raw: &'a [u8],
}

impl<'a> RawInode<'a> {
    /// The context of the checksums of the inode and its blocks.
    pub fn context(self) -> Context {
        Context { inode: Some(self.number), generation: self.generation(), ..Context::default() }
    }

    pub fn mode(self) -> u16 {
        MODE.get(self.raw)
    }

    pub fn kind(self) -> Option<FileType> {
        FileType::from_mode(self.mode())
    }

    pub fn links(self) -> u16 {
        LINKS.get(self.raw)
    }

    pub fn flags(self) -> InodeFlags {
        InodeFlags(FLAGS.get(self.raw))
    }

    pub fn has(self, flags: InodeFlags) -> bool {
        self.flags().has(flags)
    }

    /// Both halves of the size.
    pub fn size(self) -> u64 {
        SIZE.get(self.raw)
    }

    pub fn deleted(self) -> u32 {
        DELETED.get(self.raw)
    }

    /// The next inode in the list of orphans, for an inode on the list.
    pub fn next_orphan(self) -> Option<InodeNo> {
        InodeNo::new(self.deleted())
    }

    pub fn modified(self) -> u32 {
        MODIFIED.get(self.raw)
    }

    pub fn generation(self) -> u32 {
        GENERATION.get(self.raw)
    }

    /// Units of 512 bytes, or blocks, that are allocated; the high half counts with the feature `huge_file`.
    pub fn blocks(self, huge_file: bool) -> u64 {
        BLOCKS.get_if(huge_file, self.raw)
    }

    /// The high half of that.
    pub fn blocks_high(self) -> u16 {
        let Split(_, high) = BLOCKS;
        high.get(self.raw)
    }

    /// The block of attributes; the high half counts with the feature `64bit`.
    pub fn xattr_block(self, bits64: bool) -> Option<Block> {
        Block::some(XATTR_BLOCK.get_if(bits64, self.raw))
    }

    pub fn xattr_block_high(self) -> u16 {
        let Split(_, high) = XATTR_BLOCK;
        high.get(self.raw)
    }

    /// Whether there is something of fragments, which no Linux has.
    pub fn has_fragment(self, hurd: bool) -> bool {
        FRAGMENT.get(self.raw) != 0 || hurd && HURD_FRAGMENT.iter().any(|field| field.get(self.raw) != 0)
    }

    pub fn block_area(self) -> &'a [u8; 60] {
        BLOCK_AREA.get(self.raw)
    }

    /// Bytes of the extra fields as they are stored; 0 where inodes have 128 bytes.
    pub fn extra_size(self) -> u16 {
        if self.raw.len() > OLD_INODE_SIZE { EXTRA_SIZE.get(self.raw) } else { 0 }
    }

    /// The place of attributes behind the extra fields, if these end within the inode.
    pub fn xattr_area(self) -> &'a [u8] {
        if self.raw.len() == OLD_INODE_SIZE {
            return &[];
        }
        self.raw.get(OLD_INODE_SIZE + usize::from(self.extra_size())..).unwrap_or(&[])
    }

    /// User, group and project: for whom quotas count it.
    pub fn owners(self) -> [u32; 3] {
        let has_project = OLD_INODE_SIZE + usize::from(self.extra_size()) >= PROJECT.end();
        let project = if has_project && self.raw.len() >= PROJECT.end() { PROJECT.get(self.raw) } else { 0 };
        [UID.get(self.raw), GID.get(self.raw), project]
    }

    /// The hash of the value that it holds, and how many attributes have it.
    pub fn value(self) -> (u32, u64) {
        (VALUE_HASH.get(self.raw), VALUE_USERS.get(self.raw))
    }

    /// The inode as a structure of its own, if it is one in use.
    pub fn to_inode(self) -> Result<inode::Inode> {
        inode::Inode::from_bytes(self.number, self.raw)
    }
}
