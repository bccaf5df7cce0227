//! Contents that are written where the file has some already, or a hole.
//!
//! Blocks that are new, and those that were never written, hold nothing that counts. Of others those that are written in
//! part are read before.

use casemate_blockdev::{u64_of, usize_of};

use super::Contents;
use crate::edit::encrypted::cipher;
use crate::edit::xattr::inline_room;
use crate::error::Result;
use crate::format::inode::InodeFlags;
use crate::number::within;
use crate::read::mapping::Mapping;
use crate::units::Block;

impl Contents<'_> {
    /// Writes bytes from `offset` on, as far as the transaction has room: how many. The size becomes as large as that
    /// needs.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<usize> {
        let (block, old_size) = (self.inodes.space().block_bytes(), self.inode.size());
        let end = offset + u64_of(bytes.len());
        if self.write_inline(offset, bytes)? {
            return Ok(bytes.len());
        }
        let (first, last) = (offset / block, end.div_ceil(block));
        if !old_size.is_multiple_of(block) && first > old_size / block {
            self.zero_from(old_size)?;
        }
        let mut fresh = Vec::new();
        let reached = self.map().fill_some(first, last, false, |run| fresh.push(run))?.min(last);
        let mut at = first;
        // All of it, whatever room there is: what is called written must be. That changes few blocks more.
        while self.inode.has(InodeFlags::EXTENTS) && at < reached {
            at = self.map().mark_some(at, reached, false, |run| fresh.push(run))?;
        }
        fresh.sort_unstable_by_key(|run| run.logical);
        let end = end.min(reached * block);
        let bytes = &bytes[..usize_of(end - offset)];
        self.store(offset, bytes, &fresh)?;
        if end > old_size {
            self.map().set_size(end)?;
        }
        Ok(bytes.len())
    }

    /// Writes to contents that lie in the inode, as far as all of them have room there; false if they have none.
    fn write_inline(&mut self, offset: u64, bytes: &[u8]) -> Result<bool> {
        let size = self.inode.size().max(offset + u64_of(bytes.len()));
        let is_inline = self.inode.has(InodeFlags::INLINE_DATA);
        let is_empty = || -> Result<bool> {
            Ok(self.inode.size() == 0 && self.inodes.view(self.inode).run_from(0)?.is_none())
        };
        if !is_inline && (!self.fits_inline(size)? || !is_empty()?) {
            return Ok(false);
        }
        if size > u64_of(inline_room(self.inodes.space(), self.inode)?) {
            self.spread()?;
            return Ok(false);
        }
        let mut all = if is_inline { self.inodes.fs().inline_data(self.inode)? } else { Vec::new() };
        // Less than an inode.
        all.resize(usize_of(size), 0);
        all[usize_of(offset)..][..bytes.len()].copy_from_slice(bytes);
        self.store_inline(&all)?;
        Ok(true)
    }

    /// Writes bytes to blocks that the file has; `fresh` are those that hold nothing yet.
    fn store(&mut self, offset: u64, bytes: &[u8], fresh: &[Mapping]) -> Result<()> {
        let block = self.inodes.space().block_bytes();
        let end = offset + u64_of(bytes.len());
        let cipher = cipher(self.inodes.fs(), self.inode)?;
        let mut at = offset;
        let mut buffer = Vec::new();
        while at < end {
            let run = self.inodes.view(self.inode).run_from(at / block)?;
            let Some(run) = run.filter(|run| run.logical <= at / block) else { break };
            let stop = end.min(run.end() * block);
            let (first, last) = (at / block, stop.div_ceil(block));
            let physical = run.physical + (first - run.logical);
            let part = &bytes[within(at..stop, offset)];
            let (from_start, to_end) = (at.is_multiple_of(block), stop.is_multiple_of(block));
            if from_start && to_end && cipher.is_none() {
                self.inodes.transaction().overwrite(physical, part)?;
            } else {
                buffer.clear();
                buffer.resize(usize_of((last - first) * block), 0);
                if !from_start {
                    self.read_old(first, physical, fresh, &mut buffer[..usize_of(block)])?;
                }
                if !to_end && (last - 1 > first || from_start) {
                    let tail = buffer.len() - usize_of(block);
                    self.read_old(last - 1, physical + (last - 1 - first), fresh, &mut buffer[tail..])?;
                }
                buffer[usize_of(at % block)..][..part.len()].copy_from_slice(part);
                if let Some(cipher) = &cipher {
                    cipher.encrypt(first, &mut buffer)?;
                }
                self.inodes.transaction().overwrite(physical, &buffer)?;
            }
            at = stop;
        }
        Ok(())
    }

    /// Reads the contents of block `logical` of the file before the change.
    fn read_old(&self, logical: u64, physical: Block, fresh: &[Mapping], buffer: &mut [u8]) -> Result<()> {
        let size = u64_of(buffer.len());
        let known = self.inode.size().saturating_sub(logical * size).min(size);
        let at = fresh.partition_point(|run| run.end() <= logical);
        if known == 0 || fresh.get(at).is_some_and(|run| run.logical <= logical) {
            return Ok(());
        }
        self.inodes.space().transaction().read_at(buffer, physical.offset(size))?;
        if let Some(cipher) = cipher(self.inodes.fs(), self.inode)? {
            cipher.decrypt(logical, buffer)?;
        }
        // What lies behind the end does not count.
        buffer[usize_of(known)..].fill(0);
        Ok(())
    }
}
