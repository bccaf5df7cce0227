//! An inode while it is changed.

use crate::edit::Writer;
use crate::error::{Place, Result, Structure};
use crate::format::bytes::{join, le16, le32};
use crate::format::csum::{Context, Subject};
use crate::format::features::RoCompat;
use crate::format::inode::{FileType, Inode, InodeFlags, OLD_INODE_SIZE, Time};
use crate::transaction::patch::Part;

/// EXT4_HUGE_FILE_FL: the count of blocks is one of file system blocks, not of 512 bytes.
const HUGE_FILE: u32 = 0x4_0000;

/// The extra fields that this writer gives new inodes, in bytes: up to the project.
const EXTRA_SIZE: u16 = 32;

/// An inode's bytes, changed in memory until [`Writer::store_inode`].
#[derive(Clone, Debug)]
pub(crate) struct InodeMut {
    number: u32,
    raw: Vec<u8>,
}

/// One of an inode's four times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamp {
    Accessed,
    Changed,
    Modified,
    Created,
}

impl InodeMut {
    pub fn number(&self) -> u32 {
        self.number
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.raw
    }

    /// The same inode for the functions that read.
    pub fn reader(&self) -> Result<Inode> {
        Inode::from_bytes(self.number, &self.raw)
    }

    pub fn kind(&self) -> FileType {
        // OK to fall back: only inodes whose mode has a kind get here.
        FileType::from_mode(self.mode()).unwrap_or(FileType::Regular)
    }

    pub fn is_dir(&self) -> bool {
        self.kind() == FileType::Directory
    }

    pub fn mode(&self) -> u16 {
        le16(&self.raw, 0)
    }

    pub fn set_mode(&mut self, mode: u16) {
        self.raw[..2].copy_from_slice(&mode.to_le_bytes());
    }

    pub fn set_owner(&mut self, uid: Option<u32>, gid: Option<u32>) {
        for (id, low, high) in [(uid, 0x2, 0x78), (gid, 0x18, 0x7a)] {
            if let Some(id) = id {
                let little = id.to_le_bytes();
                self.raw[low..low + 2].copy_from_slice(&little[..2]);
                self.raw[high..high + 2].copy_from_slice(&little[2..]);
            }
        }
    }

    pub fn size(&self) -> u64 {
        join(le32(&self.raw, 0x4), le32(&self.raw, 0x6c))
    }

    pub fn set_size(&mut self, size: u64) {
        let little = size.to_le_bytes();
        self.raw[0x4..0x8].copy_from_slice(&little[..4]);
        self.raw[0x6c..0x70].copy_from_slice(&little[4..]);
    }

    pub fn links(&self) -> u16 {
        le16(&self.raw, 0x1a)
    }

    pub fn set_links(&mut self, links: u16) {
        self.raw[0x1a..0x1c].copy_from_slice(&links.to_le_bytes());
    }

    pub fn flags(&self) -> InodeFlags {
        InodeFlags(le32(&self.raw, 0x20))
    }

    pub fn has(&self, flags: InodeFlags) -> bool {
        self.flags().has(flags)
    }

    pub fn set_flags(&mut self, flags: u32) {
        self.raw[0x20..0x24].copy_from_slice(&flags.to_le_bytes());
    }

    /// Whether names of the directory are stored with hashes: it is encrypted, and without regard to case.
    pub fn has_hashes(&self) -> bool {
        self.has(InodeFlags::ENCRYPT) && self.has(InodeFlags::CASEFOLD)
    }

    pub fn generation(&self) -> u32 {
        le32(&self.raw, 0x64)
    }

    pub fn block_area(&self) -> &[u8] {
        &self.raw[0x28..0x64]
    }

    pub fn block_area_mut(&mut self) -> &mut [u8] {
        &mut self.raw[0x28..0x64]
    }

    pub fn xattr_block(&self) -> u64 {
        join(le32(&self.raw, 0x68), u32::from(le16(&self.raw, 0x76)))
    }

    pub fn set_xattr_block(&mut self, block: u64) {
        let little = block.to_le_bytes();
        self.raw[0x68..0x6c].copy_from_slice(&little[..4]);
        self.raw[0x76..0x78].copy_from_slice(&little[4..6]);
    }

    /// `i_dtime`: in an orphan the next one of the list.
    pub fn deleted(&self) -> u32 {
        le32(&self.raw, 0x14)
    }

    pub fn set_deleted(&mut self, seconds: u32) {
        self.raw[0x14..0x18].copy_from_slice(&seconds.to_le_bytes());
    }

    /// The 32 bits of `i_atime`, `i_ctime` and `i_version` that an attribute's value keeps other things in.
    pub fn set_word(&mut self, at: usize, value: u32) {
        self.raw[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub fn word(&self, at: usize) -> u32 {
        le32(&self.raw, at)
    }

    /// Bytes of the extra fields.
    pub fn extra_size(&self) -> usize {
        if self.raw.len() > OLD_INODE_SIZE { usize::from(le16(&self.raw, 0x80)) } else { 0 }
    }

    /// What is behind the extra fields, for attributes.
    pub fn xattr_area_mut(&mut self) -> &mut [u8] {
        let at = OLD_INODE_SIZE + self.extra_size();
        if self.raw.len() > OLD_INODE_SIZE { &mut self.raw[at..] } else { &mut [] }
    }

    pub fn xattr_area_len(&self) -> usize {
        self.raw.len() - OLD_INODE_SIZE - self.extra_size()
    }

    pub fn project(&self) -> u32 {
        if self.has_extra(0x9c) { le32(&self.raw, 0x9c) } else { 0 }
    }

    pub fn set_project(&mut self, project: u32) {
        if self.has_extra(0x9c) {
            self.set_word(0x9c, project);
        }
    }

    pub fn set_time(&mut self, stamp: Stamp, time: Time) {
        let (at, extra_at) = match stamp {
            Stamp::Accessed => (0x8, 0x8c),
            Stamp::Changed => (0xc, 0x84),
            Stamp::Modified => (0x10, 0x88),
            Stamp::Created => (0x90, 0x94),
        };
        if stamp == Stamp::Created && !self.has_extra(0x94) {
            return;
        }
        // What can't be said becomes the nearest that can: 2038 without the extra field, 2446 with it.
        let last = if self.has_extra(extra_at) { 0x3_7fff_ffff } else { i64::from(i32::MAX) };
        let seconds = time.seconds.clamp(i64::from(i32::MIN), last);
        // OK to truncate: the low half of the seconds.
        self.set_word(at, seconds as u32);
        if self.has_extra(extra_at) {
            let low = i64::from((seconds as u32).cast_signed());
            // OK to truncate: two bits, after the clamp.
            let epoch = ((seconds - low) >> 32) as u32 & 3;
            self.set_word(extra_at, time.nanoseconds << 2 | epoch);
        }
    }

    pub fn is_huge(&self) -> bool {
        self.flags().0 & HUGE_FILE != 0
    }

    /// Allocated space in units of 512 bytes.
    pub fn sectors(&self, block_size: usize) -> u64 {
        let count = join(le32(&self.raw, 0x1c), u32::from(le16(&self.raw, 0x74)));
        if self.is_huge() { count.saturating_mul(block_size as u64 / 512) } else { count }
    }

    fn has_extra(&self, at: usize) -> bool {
        OLD_INODE_SIZE + self.extra_size() >= at + 4
    }
}

impl Writer {
    /// The inode with this number, to change it.
    pub(crate) fn inode_mut(&self, number: u32) -> Result<InodeMut> {
        let inode = self.fs.inode(number)?;
        Ok(InodeMut { number, raw: inode.as_bytes().to_vec() })
    }

    /// The same for one that may have no name left.
    pub(crate) fn unlinked_inode_mut(&self, number: u32) -> Result<InodeMut> {
        let inode = self.fs.any_inode(number)?;
        Ok(InodeMut { number, raw: inode.as_bytes().to_vec() })
    }

    /// An inode that is in use by nothing yet, with the times of now. It belongs to nobody.
    pub(crate) fn blank_inode(&mut self, number: u32, mode: u16) -> InodeMut {
        let size = self.fs.layout().inode_size as usize;
        let mut inode = InodeMut { number, raw: vec![0; size] };
        if size > OLD_INODE_SIZE {
            let superblock = &self.fs.superblock().as_bytes()[..];
            // s_want_extra_isize: what whoever made the file system wants room for.
            let wanted = le16(superblock, 0x15e).max(EXTRA_SIZE).next_multiple_of(4);
            let room = u16::try_from(size - OLD_INODE_SIZE).unwrap_or(u16::MAX);
            let extra = if wanted <= room { wanted } else { EXTRA_SIZE.min(room) };
            inode.raw[0x80..0x82].copy_from_slice(&extra.to_le_bytes());
        }
        inode.set_mode(mode);
        inode.set_word(0x64, self.random.next());
        let now = self.now();
        for stamp in [Stamp::Accessed, Stamp::Changed, Stamp::Modified, Stamp::Created] {
            inode.set_time(stamp, now);
        }
        inode
    }

    /// Stores an inode that was read before: what differs, and its checksum patched.
    pub(crate) fn store_inode(&mut self, inode: &InodeMut) -> Result<()> {
        self.count_stored(inode, false)?;
        self.rewrite_inode(inode)
    }

    /// The same for an inode that is freed now.
    pub(crate) fn store_freed(&mut self, inode: &InodeMut) -> Result<()> {
        self.count_stored(inode, true)?;
        self.rewrite_inode(inode)
    }

    fn rewrite_inode(&mut self, inode: &InodeMut) -> Result<()> {
        let (block, part) = self.inode_part(inode)?;
        let mut raw = inode.raw.clone();
        self.cache.update(block, |edit| self.patcher.rewrite(edit, &part, &mut raw))?;
        Ok(())
    }

    /// Stores an inode that was just taken: all of it is new, its checksum too.
    pub(crate) fn create_inode(&mut self, inode: &InodeMut) -> Result<()> {
        self.count_created(inode);
        let (block, part) = self.inode_part(inode)?;
        let mut raw = inode.raw.clone();
        self.patcher.seal(&Part { base: 0, ..part }, &mut raw);
        self.cache.update(block, |edit| edit.write(part.base, &raw))?;
        Ok(())
    }

    /// Adds to, or takes from, the space that an inode is said to have, in clusters.
    pub(crate) fn count_clusters(&self, inode: &mut InodeMut, change: i64) -> Result<()> {
        let place = Place::inode(Structure::Inode, inode.number);
        let block_size = self.block_size();
        let unit = (self.ratio() * (block_size as u64 / 512)).cast_signed();
        let sectors = inode.sectors(block_size).checked_add_signed(change * unit);
        let Some(sectors) = sectors else { return Err(place.malformed("its count of blocks is too low")) };
        let huge_file = self.fs.superblock().ro_compat.has(RoCompat::HUGE_FILE);
        let flags = inode.flags().0;
        let count = if sectors >> 32 == 0 || huge_file && sectors >> 48 == 0 {
            inode.set_flags(flags & !HUGE_FILE);
            sectors
        } else if huge_file {
            inode.set_flags(flags | HUGE_FILE);
            sectors / (block_size as u64 / 512)
        } else {
            return Err(crate::Error::unsupported("files of 2 TiB without the feature huge_file"));
        };
        let little = count.to_le_bytes();
        inode.raw[0x1c..0x20].copy_from_slice(&little[..4]);
        if huge_file {
            inode.raw[0x74..0x76].copy_from_slice(&little[4..6]);
        }
        Ok(())
    }

    /// The block that an inode lies in, and where in it.
    fn inode_part(&self, inode: &InodeMut) -> Result<(u64, Part)> {
        let place = Place::inode(Structure::Inode, inode.number);
        let Some((group, index)) = self.fs.layout().inode_position(inode.number) else {
            return Err(place.malformed("there is no inode with this number"));
        };
        let size = inode.raw.len();
        let at = index as usize * size;
        let block = self.descriptor(group)?.fields().inode_table() + (at / self.block_size()) as u64;
        self.fs.check_blocks(block, 1, Place::group(Structure::GroupDescriptor, group))?;
        let context =
            Context { inode: inode.number, generation: le32(&inode.raw, 0x64), ..Context::default() };
        Ok((block, Part { subject: Subject::Inode, context, base: at % self.block_size(), len: size }))
    }

    /// What a device node has in place of a map of blocks.
    pub(crate) fn device_area(major: u32, minor: u32) -> [u8; 60] {
        let mut area = [0; 60];
        // The old encoding where it is enough, as the kernel does.
        let (at, value) = if major < 256 && minor < 256 {
            (0, major << 8 | minor)
        } else {
            (4, minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12)
        };
        area[at..at + 4].copy_from_slice(&value.to_le_bytes());
        area
    }
}

/// The root of an empty extent tree.
pub(crate) fn empty_extents() -> [u8; 60] {
    let mut area = [0; 60];
    area[..5].copy_from_slice(&[0x0a, 0xf3, 0, 0, 4]);
    area
}
