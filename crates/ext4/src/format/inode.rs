//! Inodes: 128 bytes that were always there, and extra fields and attributes behind them.
//!
//! Source: Documentation/filesystems/ext4/inodes.rst.

use std::fmt;

use casemate_trees::Node;
pub use casemate_trees::{FileType, Time};

use crate::error::{Place, Result, Structure};
use crate::format::bytes::{join, le16, le32};

/// The root directory's inode.
pub const ROOT_INODE: u32 = 2;

/// Bytes of an inode that every file system has.
pub(crate) const OLD_INODE_SIZE: usize = 128;

/// Flags of an inode (`i_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeFlags(pub u32);

#[allow(missing_docs, reason = "the names are the format's own")]
impl InodeFlags {
    pub const IMMUTABLE: InodeFlags = InodeFlags(0x10);
    pub const APPEND: InodeFlags = InodeFlags(0x20);
    pub const ENCRYPT: InodeFlags = InodeFlags(0x800);
    pub const INDEX: InodeFlags = InodeFlags(0x1000);
    pub const EXTENTS: InodeFlags = InodeFlags(0x8_0000);
    pub const VERITY: InodeFlags = InodeFlags(0x10_0000);
    pub const EA_INODE: InodeFlags = InodeFlags(0x20_0000);
    pub const INLINE_DATA: InodeFlags = InodeFlags(0x1000_0000);
    pub const CASEFOLD: InodeFlags = InodeFlags(0x4000_0000);

    /// Whether all of `flags` are set.
    pub fn has(self, flags: InodeFlags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// What lsattr prints for a flag, and its name.
const FLAG_NAMES: [(u32, char, &str); 21] = [
    (0x1, 's', "secure_deletion"),
    (0x2, 'u', "undelete"),
    (0x4, 'c', "compressed"),
    (0x8, 'S', "sync"),
    (0x10, 'i', "immutable"),
    (0x20, 'a', "append_only"),
    (0x40, 'd', "no_dump"),
    (0x80, 'A', "no_atime"),
    (0x800, 'E', "encrypted"),
    (0x1000, 'I', "indexed"),
    (0x4000, 'j', "journal_data"),
    (0x8000, 't', "no_tail_merging"),
    (0x1_0000, 'D', "dirsync"),
    (0x2_0000, 'T', "top_of_hierarchy"),
    (0x8_0000, 'e', "extents"),
    (0x10_0000, 'V', "verity"),
    (0x20_0000, 'v', "ea_inode"),
    (0x200_0000, 'x', "dax"),
    (0x1000_0000, 'N', "inline_data"),
    (0x2000_0000, 'P', "project_hierarchy"),
    (0x4000_0000, 'F', "casefold"),
];

impl InodeFlags {
    /// The names of the flags that are set.
    pub fn names(self) -> Vec<&'static str> {
        FLAG_NAMES.iter().filter(|(bit, ..)| self.0 & bit != 0).map(|(.., name)| *name).collect()
    }
}

impl fmt::Display for InodeFlags {
    /// The letters that lsattr prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FLAG_NAMES
            .iter()
            .filter(|(bit, ..)| self.0 & bit != 0)
            .try_for_each(|(_, letter, _)| write!(f, "{letter}"))
    }
}

/// An inode, as the bytes on disk.
#[derive(Clone, Debug)]
pub struct Inode {
    number: u32,
    kind: FileType,
    raw: Box<[u8]>,
}

impl Inode {
    /// An inode in use from its bytes, 128 up to the block size.
    ///
    /// # Errors
    /// `Corrupt` when its type is none, or its extra fields pass its end.
    pub fn from_bytes(number: u32, bytes: &[u8]) -> Result<Inode> {
        let place = Place::inode(Structure::Inode, number);
        if bytes.len() < OLD_INODE_SIZE {
            return Err(place.malformed("fewer than 128 bytes"));
        }
        if bytes.len() > OLD_INODE_SIZE {
            let i_extra_isize = usize::from(le16(bytes, 0x80));
            if OLD_INODE_SIZE + i_extra_isize > bytes.len() || i_extra_isize % 4 != 0 {
                return Err(place.malformed(format!("{i_extra_isize} bytes of extra fields")));
            }
        }
        let mode = le16(bytes, 0);
        let Some(kind) = FileType::from_mode(mode) else {
            return Err(place.malformed(format!("mode {mode:#o} is that of no kind of file")));
        };
        Ok(Inode { number, kind, raw: bytes.into() })
    }

    /// The bytes on disk.
    pub fn as_bytes(&self) -> &[u8] {
        &self.raw
    }

    /// The inode's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What kind of file it is.
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Type and permission bits.
    pub fn mode(&self) -> u16 {
        le16(&self.raw, 0)
    }

    /// The owner.
    pub fn uid(&self) -> u32 {
        u32::from(le16(&self.raw, 0x2)) | u32::from(le16(&self.raw, 0x78)) << 16
    }

    /// The group.
    pub fn gid(&self) -> u32 {
        u32::from(le16(&self.raw, 0x18)) | u32::from(le16(&self.raw, 0x7a)) << 16
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        join(le32(&self.raw, 0x4), le32(&self.raw, 0x6c))
    }

    /// How many names it has.
    pub fn links(&self) -> u16 {
        le16(&self.raw, 0x1a)
    }

    /// `i_flags`.
    pub fn flags(&self) -> InodeFlags {
        InodeFlags(le32(&self.raw, 0x20))
    }

    /// Whether all of these flags are set.
    pub fn has(&self, flags: InodeFlags) -> bool {
        self.flags().has(flags)
    }

    /// `i_generation`.
    pub fn generation(&self) -> u32 {
        le32(&self.raw, 0x64)
    }

    /// What is allocated, in units of 512 bytes.
    pub fn sectors(&self, block_size: u32) -> u64 {
        let count = join(le32(&self.raw, 0x1c), u32::from(le16(&self.raw, 0x74)));
        // EXT4_HUGE_FILE_FL: counted in blocks.
        if self.flags().0 & 0x4_0000 != 0 { count.saturating_mul(u64::from(block_size / 512)) } else { count }
    }

    /// The 60 bytes of `i_block`: a map of blocks, a tree's root, a short symlink, inline data, or numbers of
    /// a device.
    pub fn block_area(&self) -> &[u8; 60] {
        // OK to unwrap: the range is 60 bytes long.
        self.raw[0x28..0x64].try_into().unwrap()
    }

    /// The block of extended attributes, 0 if there is none.
    pub fn xattr_block(&self) -> u64 {
        join(le32(&self.raw, 0x68), u32::from(le16(&self.raw, 0x76)))
    }

    /// Bytes of the extra fields; 0 where inodes have 128 bytes.
    pub fn extra_size(&self) -> usize {
        if self.raw.len() > OLD_INODE_SIZE { usize::from(le16(&self.raw, 0x80)) } else { 0 }
    }

    /// What is behind the extra fields: the place of extended attributes. Empty where inodes have 128 bytes.
    pub fn xattr_area(&self) -> &[u8] {
        match self.raw.len() {
            OLD_INODE_SIZE => &[],
            // OK to index: from_bytes() checked the size of the extra fields.
            _ => &self.raw[OLD_INODE_SIZE + self.extra_size()..],
        }
    }

    /// Last access, or for an inode that holds an attribute's value, the value's hash.
    pub fn accessed(&self) -> Time {
        self.time(0x8, 0x8c)
    }

    /// Last change of the inode.
    pub fn changed(&self) -> Time {
        self.time(0xc, 0x84)
    }

    /// Last change of the contents.
    pub fn modified(&self) -> Time {
        self.time(0x10, 0x88)
    }

    /// What it is beside its contents, as trees of any file system have it.
    pub(crate) fn node(&self) -> Node {
        Node {
            kind: self.kind,
            mode: self.mode() & 0o7777,
            uid: self.uid(),
            gid: self.gid(),
            modified: self.modified(),
            accessed: Some(self.accessed()),
            device: self.device().unwrap_or((0, 0)),
        }
    }

    /// When it was made, where there is room to say so.
    pub fn created(&self) -> Option<Time> {
        self.has_extra(0x94).then(|| self.time(0x90, 0x94))
    }

    /// When it was deleted: seconds since 1970, or for orphans the next inode of their list.
    pub fn deleted(&self) -> u32 {
        le32(&self.raw, 0x14)
    }

    /// The project, where there is room to say so.
    pub fn project(&self) -> u32 {
        if self.has_extra(0x9c) { le32(&self.raw, 0x9c) } else { 0 }
    }

    /// Major and minor number of a device node.
    pub fn device(&self) -> Option<(u32, u32)> {
        if !matches!(self.kind, FileType::CharacterDevice | FileType::BlockDevice) {
            return None;
        }
        let area = self.block_area();
        let old = le32(area, 0);
        if old != 0 {
            return Some((old >> 8 & 0xff, old & 0xff));
        }
        let new = le32(area, 4);
        Some((new >> 8 & 0xfff, new & 0xff | new >> 12 & 0xfff00))
    }

    /// The hash of an attribute's value, in an inode that holds one.
    pub(crate) fn value_hash(&self) -> u32 {
        le32(&self.raw, 0x8)
    }

    /// Whether the extra fields reach past the four bytes at `at`.
    fn has_extra(&self, at: usize) -> bool {
        OLD_INODE_SIZE + self.extra_size() >= at + 4
    }

    fn time(&self, at: usize, extra_at: usize) -> Time {
        // Seconds are signed; two bits of the extra field count what passed 2038 (inodes.rst, "Inode
        // Timestamps").
        let seconds = i64::from(le32(&self.raw, at).cast_signed());
        if !self.has_extra(extra_at) {
            return Time { seconds, nanoseconds: 0 };
        }
        let extra = le32(&self.raw, extra_at);
        let nanoseconds = (extra >> 2).min(999_999_999);
        Time { seconds: seconds + (i64::from(extra & 3) << 32), nanoseconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut raw = vec![0; 256];
        raw[0..2].copy_from_slice(&0x81a4u16.to_le_bytes());
        raw[0x80] = 32;
        raw
    }

    #[test]
    fn times_pass_2038() {
        let mut raw = sample();
        // -1 second in the first epoch, and the same bits 2^32 seconds later with 5 ns.
        raw[0x10..0x14].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Inode::from_bytes(1, &raw).unwrap().modified().seconds, -1);
        raw[0x88..0x8c].copy_from_slice(&(5u32 << 2 | 1).to_le_bytes());
        let time = Time { seconds: (1 << 32) - 1, nanoseconds: 5 };
        assert_eq!(Inode::from_bytes(1, &raw).unwrap().modified(), time);
    }

    #[test]
    fn both_encodings_of_device_numbers() {
        let mut raw = sample();
        raw[1] = 0x21;
        raw[0x28..0x2a].copy_from_slice(&[3, 1]);
        assert_eq!(Inode::from_bytes(1, &raw).unwrap().device(), Some((1, 3)));
        // 259:65537
        raw[0x28..0x30].copy_from_slice(&[0, 0, 0, 0, 0x01, 0x03, 0x01, 0x10]);
        assert_eq!(Inode::from_bytes(1, &raw).unwrap().device(), Some((259, 65537)));
    }

    #[test]
    fn nonsense_is_refused() {
        let mut raw = sample();
        raw[0x80] = 129;
        assert!(Inode::from_bytes(1, &raw).is_err());
        raw[0x80] = 32;
        raw[1] = 0x31;
        assert!(Inode::from_bytes(1, &raw).is_err());
        assert!(Inode::from_bytes(1, &raw[..127]).is_err());
    }
}
