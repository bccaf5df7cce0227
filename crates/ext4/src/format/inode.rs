//! Inodes: 128 bytes that were always there, and extra fields and attributes behind them.
//!
//! Source: Documentation/filesystems/ext4/inodes.rst.

use std::ops::RangeInclusive;

use std::fmt;

use casemate_blockdev::u32_of;
use casemate_trees::Node;
pub use casemate_trees::{FileType, Time};

use crate::error::{Place, Result, Structure, invalid};
use crate::format::field::{Byte, Bytes, Le16, Le32, Split};
use crate::number::{high32, low32, u16_of};
use crate::units::{Block, InodeNo};

/// Bytes of an inode that every file system has.
pub(crate) const OLD_INODE_SIZE: usize = 128;

/// Bytes of the extra fields that are known here: up to the project.
const EXTRA_FIELDS: usize = PROJECT.end() - OLD_INODE_SIZE;

pub(crate) const MODE: Le16 = Le16(0x0);
pub(in crate::format) const UID: Split<Le16, Le16> = Split(Le16(0x2), Le16(0x78));
pub(in crate::format) const SIZE: Split<Le32, Le32> = Split(Le32(0x4), Le32(0x6c));
pub(in crate::format) const ACCESSED: Le32 = Le32(0x8);
pub(in crate::format) const CHANGED: Le32 = Le32(0xc);
pub(in crate::format) const MODIFIED: Le32 = Le32(0x10);
pub(in crate::format) const DELETED: Le32 = Le32(0x14);
pub(in crate::format) const GID: Split<Le16, Le16> = Split(Le16(0x18), Le16(0x7a));
pub(crate) const LINKS: Le16 = Le16(0x1a);
pub(in crate::format) const BLOCKS: Split<Le32, Le16> = Split(Le32(0x1c), Le16(0x74));
pub(in crate::format) const FLAGS: Le32 = Le32(0x20);
pub(in crate::format) const BLOCK_AREA: Bytes<60> = Bytes(0x28);
pub(crate) const GENERATION: Le32 = Le32(0x64);
pub(in crate::format) const XATTR_BLOCK: Split<Le32, Le16> = Split(Le32(0x68), Le16(0x76));
pub(crate) const CHECKSUM: Split<Le16, Le16> = Split(Le16(0x7c), Le16(0x82));
pub(crate) const EXTRA_SIZE: Le16 = Le16(0x80);

/// Fragment fields of old systems.
pub(in crate::format) const FRAGMENT: Le32 = Le32(0x70);
pub(in crate::format) const HURD_FRAGMENT: [Byte; 2] = [Byte(0x74), Byte(0x75)];

const CHANGED_EXTRA: Le32 = Le32(0x84);
const MODIFIED_EXTRA: Le32 = Le32(0x88);
const ACCESSED_EXTRA: Le32 = Le32(0x8c);
const CREATED: Le32 = Le32(0x90);
const CREATED_EXTRA: Le32 = Le32(0x94);
pub(in crate::format) const PROJECT: Le32 = Le32(0x9c);

/// Fields of an inode that holds an attribute's value: its hash in the place of the access time, its users in those of
/// `i_version` and the change time.
pub(in crate::format) const VALUE_HASH: Le32 = ACCESSED;
pub(in crate::format) const VALUE_USERS: Split<Le32, Le32> = Split(Le32(0x24), CHANGED);

/// Numbers of a device: in the place of the map, in the old encoding or behind it in the new one.
const OLD_DEVICE: Le32 = Le32(0);
const NEW_DEVICE: Le32 = Le32(4);

/// Largest numbers of a device that a node has room for: 12 and 20 bits.
const MOST_MAJOR: u32 = 0xfff;
const MOST_MINOR: u32 = 0xf_ffff;

/// Refuses numbers of a device that a node has no room for.
///
/// # Errors
/// `InvalidInput`.
pub(crate) fn require_device(major: u32, minor: u32) -> Result<()> {
    if major <= MOST_MAJOR && minor <= MOST_MINOR {
        return Ok(());
    }
    let text = format!(
        "device {major},{minor}: a node has room for major numbers up to {MOST_MAJOR} and minor numbers up to {MOST_MINOR}"
    );
    Err(invalid(std::io::ErrorKind::InvalidInput, text))
}

/// Flags of an inode (`i_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeFlags(pub u32);

#[allow(missing_docs, reason = "the names are the format's own")]
impl InodeFlags {
    pub const IMMUTABLE: InodeFlags = InodeFlags(0x10);
    pub const APPEND: InodeFlags = InodeFlags(0x20);
    pub const ENCRYPT: InodeFlags = InodeFlags(0x800);
    pub const INDEX: InodeFlags = InodeFlags(0x1000);
    pub(crate) const IMAGIC: InodeFlags = InodeFlags(0x2000);
    pub const JOURNAL_DATA: InodeFlags = InodeFlags(0x4000);
    pub(crate) const HUGE_FILE: InodeFlags = InodeFlags(0x4_0000);
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

/// Flags: bit, letter of lsattr, name.
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
    number: InodeNo,
    kind: FileType,
    raw: Box<[u8]>,
    /// Whether a time was set that it can't hold.
    is_time_cut: bool,
}

/// First and last second that an inode can hold: until 2038 without the extra fields of 256 bytes, until 2446 with them.
pub(crate) fn seconds(has_extra: bool) -> RangeInclusive<i64> {
    i64::from(i32::MIN)..=if has_extra { 0x3_7fff_ffff } else { i64::from(i32::MAX) }
}

/// Message on files whose times an inode can't hold.
pub(crate) fn cut_times(files: u64, has_extra: bool) -> String {
    let (last, who) = match has_extra {
        true => ("2446-05-10", "ext4"),
        false => ("2038-01-19", "inodes of 128 bytes"),
    };
    format!(
        "files with a time that is cut: {files}; {who} can hold times from 1901-12-13 to {last}, and the nearest is stored"
    )
}

/// One of an inode's four times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamp {
    Accessed,
    Changed,
    Modified,
    Created,
}

impl Stamp {
    /// Where the seconds lie, and where their further bits and the nanoseconds.
    fn fields(self) -> (Le32, Le32) {
        match self {
            Stamp::Accessed => (ACCESSED, ACCESSED_EXTRA),
            Stamp::Changed => (CHANGED, CHANGED_EXTRA),
            Stamp::Modified => (MODIFIED, MODIFIED_EXTRA),
            Stamp::Created => (CREATED, CREATED_EXTRA),
        }
    }
}

impl Inode {
    /// An inode in use from its bytes, 128 up to the block size: a power of two.
    ///
    /// # Errors
    /// `Corrupt` when its type is none, or its extra fields pass its end.
    pub fn from_bytes(number: InodeNo, bytes: &[u8]) -> Result<Inode> {
        let place = Place::inode(Structure::Inode, number);
        if bytes.len() < OLD_INODE_SIZE || !bytes.len().is_power_of_two() {
            return Err(place.malformed(format!("{} bytes: no power of two from 128 on", bytes.len())));
        }
        if bytes.len() > OLD_INODE_SIZE {
            let i_extra_isize = usize::from(EXTRA_SIZE.get(bytes));
            if OLD_INODE_SIZE + i_extra_isize > bytes.len() || i_extra_isize % 4 != 0 {
                return Err(place.malformed(format!("{i_extra_isize} bytes of extra fields")));
            }
        }
        let mode = MODE.get(bytes);
        let Some(kind) = FileType::from_mode(mode) else {
            return Err(place.malformed(format!("mode {mode:#o} is that of no kind of file")));
        };
        Ok(Inode { number, kind, raw: bytes.into(), is_time_cut: false })
    }

    /// An inode of `size` bytes without any blocks, times or names. `extra_fields` are the bytes of extra fields that
    /// the file system wants room for; it has those that are known here if it has room for them.
    pub(crate) fn new(number: InodeNo, kind: FileType, size: usize, extra_fields: usize) -> Inode {
        let mut inode = Inode { number, kind, raw: vec![0; size].into(), is_time_cut: false };
        if size > OLD_INODE_SIZE {
            let room = size - OLD_INODE_SIZE;
            let wanted = extra_fields.max(EXTRA_FIELDS).next_multiple_of(4);
            let extra = if wanted <= room { wanted } else { EXTRA_FIELDS.min(room) };
            // An inode has at most 32 KiB.
            EXTRA_SIZE.set(&mut inode.raw, u16_of(extra));
        }
        inode.set_permissions(0);
        inode
    }

    /// Changes the permission bits, and keeps the type.
    pub(crate) fn set_permissions(&mut self, mode: u16) {
        MODE.set(&mut self.raw, self.kind.mode_bits() | mode & 0o7777);
    }

    pub(crate) fn set_owner(&mut self, uid: Option<u32>, gid: Option<u32>) {
        for (id, field) in [(uid, UID), (gid, GID)] {
            if let Some(id) = id {
                field.set(&mut self.raw, id);
            }
        }
    }

    /// Clears what has no meaning without these features: fragments, and the upper halves of the counts and places.
    pub(crate) fn clear_unknown(&mut self, huge_file: bool, bits64: bool, is_hurd: bool) {
        FRAGMENT.set(&mut self.raw, 0);
        for field in HURD_FRAGMENT.into_iter().filter(|_| is_hurd) {
            field.set(&mut self.raw, 0);
        }
        let (Split(_, blocks_high), Split(_, block_high)) = (BLOCKS, XATTR_BLOCK);
        if !huge_file && !is_hurd {
            blocks_high.set(&mut self.raw, 0);
        }
        if !bits64 && !is_hurd {
            block_high.set(&mut self.raw, 0);
        }
    }

    pub(crate) fn set_size(&mut self, size: u64) {
        SIZE.set(&mut self.raw, size);
    }

    pub(crate) fn set_links(&mut self, links: u16) {
        LINKS.set(&mut self.raw, links);
    }

    pub(crate) fn set_flags(&mut self, flags: u32) {
        FLAGS.set(&mut self.raw, flags);
    }

    pub(crate) fn set_generation(&mut self, generation: u32) {
        GENERATION.set(&mut self.raw, generation);
    }

    pub(crate) fn set_xattr_block(&mut self, block: Option<Block>) {
        XATTR_BLOCK.set(&mut self.raw, Block::stored(block));
    }

    pub(crate) fn set_deleted(&mut self, seconds: u32) {
        DELETED.set(&mut self.raw, seconds);
    }

    /// Sets the time of deletion, which has 32 bits and is not 0.
    pub(crate) fn set_deleted_at(&mut self, time: Time) {
        self.set_deleted(u32_of(time.seconds.max(1)));
    }

    /// The next inode in the list of orphans, for an inode on the list: it has the place of the time of deletion.
    pub(crate) fn next_orphan(&self) -> Option<InodeNo> {
        InodeNo::new(self.deleted())
    }

    pub(crate) fn set_next_orphan(&mut self, next: Option<InodeNo>) {
        self.set_deleted(InodeNo::stored(next));
    }

    /// Whether there is room for a project.
    pub(crate) fn has_project(&self) -> bool {
        self.has_extra(PROJECT)
    }

    pub(crate) fn set_project(&mut self, project: u32) {
        if self.has_extra(PROJECT) {
            PROJECT.set(&mut self.raw, project);
        }
    }

    /// Changes what is allocated, in units of 512 bytes; false if there is no room to say so. `huge_file` is the file
    /// system's feature.
    pub(crate) fn set_sectors(&mut self, sectors: u64, block_size: u32, huge_file: bool) -> bool {
        let is_large = sectors >> 48 != 0;
        if sectors >> 32 != 0 && !huge_file {
            return false;
        }
        let flags = self.flags().0 & !InodeFlags::HUGE_FILE.0;
        self.set_flags(if is_large { flags | InodeFlags::HUGE_FILE.0 } else { flags });
        let count = if is_large { sectors / u64::from(block_size / 512) } else { sectors };
        BLOCKS.set_if(huge_file, &mut self.raw, count);
        true
    }

    pub(crate) fn set_time(&mut self, stamp: Stamp, time: Time) {
        let (field, extra_field) = stamp.fields();
        if stamp == Stamp::Created && !self.has_extra(extra_field) {
            return;
        }
        // What can't be said becomes the nearest that can.
        let range = seconds(self.has_extra(extra_field));
        let seconds = time.seconds.clamp(*range.start(), *range.end());
        self.is_time_cut |= seconds != time.seconds;
        let low = low32(seconds.cast_unsigned());
        field.set(&mut self.raw, low);
        if self.has_extra(extra_field) {
            // Two bits, after the clamp.
            let epoch = high32((seconds - i64::from(low.cast_signed())).cast_unsigned()) & 3;
            extra_field.set(&mut self.raw, time.nanoseconds << 2 | epoch);
        }
    }

    /// Whether a time was set that it can't hold.
    pub(crate) fn is_time_cut(&self) -> bool {
        self.is_time_cut
    }

    pub(crate) fn block_area_mut(&mut self) -> &mut [u8; 60] {
        BLOCK_AREA.get_mut(&mut self.raw)
    }

    /// The bytes behind the extra fields, for attributes.
    pub(crate) fn xattr_area_mut(&mut self) -> &mut [u8] {
        let start = self.raw.len() - self.xattr_area().len();
        &mut self.raw[start..]
    }

    /// Writes the numbers of a device node in place of a map of blocks.
    ///
    /// # Errors
    /// Errors of [`require_device`].
    pub(crate) fn set_device(&mut self, major: u32, minor: u32) -> Result<()> {
        require_device(major, minor)?;
        let area = self.block_area_mut();
        // The old encoding where it is enough, as the kernel does.
        if major < 256 && minor < 256 {
            OLD_DEVICE.set(area, major << 8 | minor);
        } else {
            NEW_DEVICE.set(area, minor & 0xff | major << 8 | (minor & !0xff) << 12);
        }
        Ok(())
    }

    /// Writes the hash of the attribute's value that the inode holds, and how many attributes have it.
    pub(crate) fn set_value(&mut self, hash: u32, users: u64) {
        VALUE_HASH.set(&mut self.raw, hash);
        VALUE_USERS.set(&mut self.raw, users);
    }

    /// The bytes on disk.
    pub fn as_bytes(&self) -> &[u8] {
        &self.raw
    }

    /// The inode's number.
    pub fn number(&self) -> InodeNo {
        self.number
    }

    /// The kind of file.
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Type and permission bits.
    pub fn mode(&self) -> u16 {
        MODE.get(&self.raw)
    }

    /// The owner.
    pub fn uid(&self) -> u32 {
        UID.get(&self.raw)
    }

    /// The group.
    pub fn gid(&self) -> u32 {
        GID.get(&self.raw)
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        SIZE.get(&self.raw)
    }

    /// How many names it has.
    pub fn links(&self) -> u16 {
        LINKS.get(&self.raw)
    }

    /// `i_flags`.
    pub fn flags(&self) -> InodeFlags {
        InodeFlags(FLAGS.get(&self.raw))
    }

    /// Whether all of these flags are set.
    pub fn has(&self, flags: InodeFlags) -> bool {
        self.flags().has(flags)
    }

    /// Whether names of the directory are stored with hashes: it is encrypted, and without regard to case.
    pub(crate) fn has_hashes(&self) -> bool {
        self.has(InodeFlags::ENCRYPT) && self.has(InodeFlags::CASEFOLD)
    }

    /// `i_generation`.
    pub fn generation(&self) -> u32 {
        GENERATION.get(&self.raw)
    }

    /// The allocated size, in units of 512 bytes.
    pub fn sectors(&self, block_size: u32) -> u64 {
        let count = BLOCKS.get(&self.raw);
        // Counted in blocks.
        let is_huge = self.has(InodeFlags::HUGE_FILE);
        if is_huge { count.saturating_mul(u64::from(block_size / 512)) } else { count }
    }

    /// The 60 bytes of `i_block`: a map of blocks, a tree's root, a short symlink, inline data, or numbers of
    /// a device.
    pub fn block_area(&self) -> &[u8; 60] {
        BLOCK_AREA.get(&self.raw)
    }

    /// The block of extended attributes, if there is one.
    pub fn xattr_block(&self) -> Option<Block> {
        Block::some(XATTR_BLOCK.get(&self.raw))
    }

    /// Bytes of the extra fields; 0 where inodes have 128 bytes.
    pub fn extra_size(&self) -> usize {
        if self.raw.len() > OLD_INODE_SIZE { usize::from(EXTRA_SIZE.get(&self.raw)) } else { 0 }
    }

    /// The bytes behind the extra fields: the place of extended attributes. Empty where inodes have 128 bytes.
    pub fn xattr_area(&self) -> &[u8] {
        match self.raw.len() {
            OLD_INODE_SIZE => &[],
            // OK to index: from_bytes() checked the size of the extra fields.
            _ => &self.raw[OLD_INODE_SIZE + self.extra_size()..],
        }
    }

    /// Last access, or for an inode that holds an attribute's value, the value's hash.
    pub fn accessed(&self) -> Time {
        self.time(Stamp::Accessed)
    }

    /// Last change of the inode.
    pub fn changed(&self) -> Time {
        self.time(Stamp::Changed)
    }

    /// Last change of the contents.
    pub fn modified(&self) -> Time {
        self.time(Stamp::Modified)
    }

    /// The attributes beside the contents, as trees of any file system have them.
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
        self.has_extra(CREATED_EXTRA).then(|| self.time(Stamp::Created))
    }

    /// When it was deleted: seconds since 1970, or for orphans the next inode of their list.
    pub fn deleted(&self) -> u32 {
        DELETED.get(&self.raw)
    }

    /// The project, where there is room to say so.
    pub fn project(&self) -> u32 {
        if self.has_extra(PROJECT) { PROJECT.get(&self.raw) } else { 0 }
    }

    /// User, group and project: for whom quotas count it.
    pub(crate) fn owners(&self) -> [u32; 3] {
        [self.uid(), self.gid(), self.project()]
    }

    /// Major and minor number of a device node.
    pub fn device(&self) -> Option<(u32, u32)> {
        if !matches!(self.kind, FileType::CharacterDevice | FileType::BlockDevice) {
            return None;
        }
        let area = self.block_area();
        let old = OLD_DEVICE.get(area);
        if old != 0 {
            return Some((old >> 8 & 0xff, old & 0xff));
        }
        let new = NEW_DEVICE.get(area);
        Some((new >> 8 & 0xfff, new & 0xff | new >> 12 & 0xfff00))
    }

    /// The hash of an attribute's value, in an inode that holds one.
    pub(crate) fn value_hash(&self) -> u32 {
        VALUE_HASH.get(&self.raw)
    }

    /// How many attributes have the value that the inode holds.
    pub(crate) fn value_users(&self) -> u64 {
        VALUE_USERS.get(&self.raw)
    }

    /// Whether the extra fields reach past this one.
    fn has_extra(&self, field: Le32) -> bool {
        OLD_INODE_SIZE + self.extra_size() >= field.end()
    }

    fn time(&self, stamp: Stamp) -> Time {
        // Seconds are signed; two bits of the extra field count what passed 2038 (inodes.rst, "Inode
        // Timestamps").
        let (field, extra_field) = stamp.fields();
        let seconds = i64::from(field.get(&self.raw).cast_signed());
        if !self.has_extra(extra_field) {
            return Time { seconds, nanoseconds: 0 };
        }
        let extra = extra_field.get(&self.raw);
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
        assert_eq!(Inode::from_bytes(InodeNo::FIRST, &raw).unwrap().modified().seconds, -1);
        raw[0x88..0x8c].copy_from_slice(&(5u32 << 2 | 1).to_le_bytes());
        let time = Time { seconds: (1 << 32) - 1, nanoseconds: 5 };
        assert_eq!(Inode::from_bytes(InodeNo::FIRST, &raw).unwrap().modified(), time);
    }

    /// 0 stands for an inode that was not deleted.
    #[test]
    fn times_of_deletion_stop_with_32_bits() {
        let mut inode = Inode::new(InodeNo::LOST_AND_FOUND, FileType::Regular, 256, 0);
        for (seconds, stored) in [(-5, 1), (0, 1), (7, 7), (1 << 32, u32::MAX), (i64::MAX, u32::MAX)] {
            inode.set_deleted_at(Time { seconds, nanoseconds: 0 });
            assert_eq!(inode.deleted(), stored);
        }
    }

    #[test]
    fn both_encodings_of_device_numbers() {
        let mut raw = sample();
        raw[1] = 0x21;
        raw[0x28..0x2a].copy_from_slice(&[3, 1]);
        assert_eq!(Inode::from_bytes(InodeNo::FIRST, &raw).unwrap().device(), Some((1, 3)));
        // 259:65537
        raw[0x28..0x30].copy_from_slice(&[0, 0, 0, 0, 0x01, 0x03, 0x01, 0x10]);
        assert_eq!(Inode::from_bytes(InodeNo::FIRST, &raw).unwrap().device(), Some((259, 65537)));
    }

    #[test]
    fn what_is_written_is_read() {
        let mut inode = Inode::new(InodeNo::LOST_AND_FOUND, FileType::Regular, 256, 0);
        inode.set_permissions(0o6755);
        inode.set_owner(Some(0x1_0002), Some(0x3_0004));
        inode.set_size(0x5_0000_0006);
        inode.set_links(7);
        inode.set_flags(InodeFlags::EXTENTS.0);
        inode.set_generation(8);
        inode.set_xattr_block(Block::some(0x9_0000_000a));
        inode.set_deleted(11);
        inode.set_project(12);
        inode.block_area_mut()[59] = 13;
        inode.xattr_area_mut()[0] = 14;
        let stamps = [Stamp::Accessed, Stamp::Changed, Stamp::Modified, Stamp::Created];
        for (seconds, stamp) in [-1, 1 << 31, (1 << 34) - (1 << 31) - 1, 4].into_iter().zip(stamps) {
            inode.set_time(stamp, Time { seconds, nanoseconds: 999_999_999 });
        }
        let inode = Inode::from_bytes(InodeNo::LOST_AND_FOUND, inode.as_bytes()).unwrap();
        assert_eq!(
            (inode.mode(), inode.uid(), inode.gid(), inode.project()),
            (0o106_755, 0x1_0002, 0x3_0004, 12)
        );
        assert_eq!((inode.size(), inode.links(), inode.generation()), (0x5_0000_0006, 7, 8));
        assert_eq!(
            (inode.flags(), inode.xattr_block(), inode.deleted()),
            (InodeFlags::EXTENTS, Block::some(0x9_0000_000a), 11)
        );
        assert_eq!((inode.block_area()[59], inode.xattr_area()[0], inode.xattr_area().len()), (13, 14, 96));
        let times = [inode.accessed(), inode.changed(), inode.modified(), inode.created().unwrap()];
        assert_eq!(times.map(|time| time.seconds), [-1, 1 << 31, (1 << 34) - (1 << 31) - 1, 4]);
        assert_eq!(times.map(|time| time.nanoseconds), [999_999_999; 4]);
    }

    #[test]
    fn counts_of_sectors_grow_over_three_encodings() {
        let mut inode = Inode::new(InodeNo::LOST_AND_FOUND, FileType::Regular, 128, 0);
        for (sectors, huge_file, fits) in [
            (u64::from(u32::MAX), false, true),
            (1 << 32, false, false),
            ((1 << 48) - 1, true, true),
            (1 << 50, true, true),
            (8, true, true),
        ] {
            assert_eq!(inode.set_sectors(sectors, 4096, huge_file), fits, "{sectors}");
            assert!(!fits || inode.sectors(4096) == sectors, "{sectors}: {}", inode.sectors(4096));
            assert_eq!(inode.has(InodeFlags::HUGE_FILE), sectors >> 48 != 0, "{sectors}");
        }
    }

    #[test]
    fn new_inodes_have_extra_fields_where_there_is_room() {
        // From 128 bytes on there are none; what the superblock wants may be any number.
        for (size, wanted, extra) in
            [(128, 32, 0), (256, 0, 32), (256, 33, 36), (256, 128, 128), (256, 129, 32), (4096, 65535, 32)]
        {
            let inode = Inode::new(InodeNo::LOST_AND_FOUND, FileType::Directory, size, wanted);
            assert_eq!(inode.extra_size(), extra, "{size} {wanted}");
            assert!(Inode::from_bytes(InodeNo::LOST_AND_FOUND, inode.as_bytes()).unwrap().is_dir());
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let mut raw = sample();
        raw[0x80] = 129;
        for len in [0, 127, 129, 130, 160, 255] {
            assert!(Inode::from_bytes(InodeNo::FIRST, &[0xff; 256][..len]).is_err(), "{len}");
        }
        assert!(Inode::from_bytes(InodeNo::FIRST, &raw).is_err());
        raw[0x80] = 32;
        raw[1] = 0x31;
        assert!(Inode::from_bytes(InodeNo::FIRST, &raw).is_err());
        assert!(Inode::from_bytes(InodeNo::FIRST, &raw[..127]).is_err());
    }
}
