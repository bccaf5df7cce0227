//! Contents of files that somebody has open.

use casemate_blockdev::u64_of;

use crate::edit::Writer;
use crate::edit::attributes::drop_set_id;
use crate::edit::files::Files;
use crate::edit::live::SetId;
use crate::error::{Error, Result};
use crate::format::inode::{Inode, InodeFlags};
use crate::units::InodeNo;

impl Files {
    /// Goes on with blocks `at..end` of a file by `step`, which says what block it came to.
    fn part(
        &mut self,
        number: InodeNo,
        at: &mut u64,
        step: impl FnOnce(&mut Files, &mut Inode, u64) -> Result<u64>,
    ) -> Result<()> {
        let mut inode = self.changeable_file(number)?;
        *at = step(self, &mut inode, *at)?;
        self.touch(&mut inode);
        self.inodes().store(&inode)
    }
}

impl Writer {
    /// Writes bytes to a regular file from `offset` on: how many, which are fewer where an error comes later than the first
    /// of them. Blocks that the file has are written in place, as the kernel does in ordered mode: what was committed last
    /// names the same blocks.
    ///
    /// Set-user-ID and set-group-ID bits stay or go as `set_id` says; capabilities go in any case.
    ///
    /// # Errors
    /// `StorageFull`, `FileTooLarge`; `PermissionDenied` for files with fs-verity; `Locked` without an encrypted file's key.
    pub fn write_at(&mut self, number: InodeNo, offset: u64, bytes: &[u8], set_id: SetId) -> Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            let write = |files: &mut Files| {
                let mut inode = files.changeable_file(number)?;
                let (at, bytes) = (offset.saturating_add(u64_of(done)), &bytes[done..]);
                files.inodes().view(&inode).check_size(at.saturating_add(u64_of(bytes.len())))?;
                files.drop_capabilities(&mut inode)?;
                if let SetId::Goes { is_in_group } = set_id {
                    drop_set_id(&mut inode, is_in_group);
                }
                let written = files.inodes().contents(&mut inode).write(at, bytes)?;
                files.touch(&mut inode);
                files.inodes().store(&inode)?;
                Ok(written)
            };
            match self.operation(write) {
                Ok(written) => done += written,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Makes a file longer, with a hole, or shorter.
    ///
    /// # Errors
    /// `FileTooLarge`; `PermissionDenied` for files with fs-verity; `Locked` without an encrypted file's key.
    pub fn truncate_to(&mut self, number: InodeNo, size: u64) -> Result<()> {
        while !self.truncate_inode(number, size)? {}
        Ok(())
    }

    /// Makes a hole of the bytes `from..to` of a file, whose size stays.
    ///
    /// # Errors
    /// As [`truncate_to`](Writer::truncate_to).
    pub fn punch_hole(&mut self, number: InodeNo, from: u64, to: u64) -> Result<()> {
        self.replace(number, from, to, |files, inode, at, end| files.inodes().map(inode).punch_some(at, end))
    }

    /// Zeroes the bytes `from..to` of a file, which keep their blocks or get some. If the size is to stay, what lies behind
    /// the end gets blocks all the same.
    ///
    /// # Errors
    /// As [`allocate_range`](Writer::allocate_range); `Unsupported` for a file without extents.
    pub fn zero_range(&mut self, number: InodeNo, from: u64, to: u64, keep_size: bool) -> Result<()> {
        self.require_extents(number)?;
        // What there is no room for fails before anything is zeroed.
        self.allocate_range(number, from, to, keep_size)?;
        self.replace(number, from, to, |files, inode, at, end| {
            files.inodes().map(inode).mark_some(at, end, true, |_| ())
        })
    }

    /// Refuses a file whose map can't say of blocks that they were never written.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn require_extents(&self, number: InodeNo) -> Result<()> {
        let inode = self.inode(number)?;
        match inode.has(InodeFlags::EXTENTS) || inode.has(InodeFlags::INLINE_DATA) {
            true => Ok(()),
            false => Err(Error::unsupported("allocating blocks for files without extents")),
        }
    }

    /// Zeroes the ends of `from..to` that are no whole blocks, and lets `step` do something about the others.
    fn replace(
        &mut self,
        number: InodeNo,
        from: u64,
        to: u64,
        mut step: impl FnMut(&mut Files, &mut Inode, u64, u64) -> Result<u64>,
    ) -> Result<()> {
        let block = self.files().space().block_bytes();
        let (mut at, end) = (from.div_ceil(block), to / block);
        self.operation(|files| {
            let mut inode = files.changeable_file(number)?;
            files.drop_capabilities(&mut inode)?;
            files.inodes().contents(&mut inode).spread()?;
            if !from.is_multiple_of(block) {
                files.inodes().contents(&mut inode).zero_within(from, to.min(at * block))?;
            }
            if !to.is_multiple_of(block) && at <= end {
                files.inodes().contents(&mut inode).zero_within(end * block, to)?;
            }
            files.touch(&mut inode);
            files.inodes().store(&inode)
        })?;
        while at < end {
            self.operation(|files| {
                files.part(number, &mut at, |files, inode, at| step(files, inode, at, end))
            })?;
        }
        Ok(())
    }
}
